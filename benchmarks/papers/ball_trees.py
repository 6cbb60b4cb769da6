"""Low dimensions and trees, Figs. 10, 12 and 13 of the LMNN paper, measured again.

``python -m benchmarks.papers.ball_trees --part trees`` times the searches on the CPU, with one
thread; ``--part low-rank --device cuda`` learns the maps on a GPU. Both go into one record, from
which the page is made. The data is MNIST, deskewed; see table1_data.
"""

import argparse
import json
import platform
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib import metadata
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from threadpoolctl import threadpool_limits

from benchmarks import common
from benchmarks.papers import ball_trees_page
from benchmarks.papers.table1_data import deskewed
from nearfar import LMNN
from nearfar.estimators._start import principal_rows
from nearfar.kernels import (
    kernels_for,
    numpy_impostors,
    on_numpy,
    parallel,
    single_threaded_blas,
    to_host,
)
from nearfar.kernels.search import TREES
from nearfar.kernels.slabs import pruned_impostor_pairs
from nearfar.supervision.neighbors import vote

PARTS = ("search", "impostors", "low-rank")
GROUPS = {part: (part,) for part in PARTS} | {"trees": ("search", "impostors")}
SEED = 0
NEIGHBORS = 3
REPEATS = 2  # of each timing; the shortest counts


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    search: tuple[int, ...] = (2, 5, 10, 15, 20, 25, 30, 35, 40, 45, 50)
    impostors: tuple[int, ...] = (2, 5, 10, 15, 20, 30, 40, 50)
    low_rank: tuple[int, ...] = tuple(ball_trees_page.PAPER)
    inputs: int = 350  # principal components from which maps are learned
    queries: int = 500  # points whose neighbours or impostors are searched in trees
    sample: int = 5000  # points from which the map of the search for impostors is learned


SMOKE = Sizes(search=(2, 5), impostors=(2, 5), low_rank=(5,), inputs=16, queries=100, sample=400)


@dataclass(frozen=True)
class Points:
    """Both parts on the principal axes of the training part, float32, most variance first."""

    train: Any
    test: Any
    labels: tuple[Any, Any]


def mnist(rows):
    """The first rows of a seeded shuffle of the 60000, and as many of the test part."""
    archive = np.load(common.data_file("mnist"), allow_pickle=False)
    X, y = archive["X"], archive["y"].astype(np.int64)
    parts = []
    for part in ("train", "test"):
        kept = np.random.default_rng(SEED).permutation(archive[part])[:rows]
        images = deskewed(X[kept].reshape(-1, 28, 28).astype(np.float32))
        parts.append((images.reshape(len(kept), -1) / 255, y[kept]))
    return rotated(*parts)


def digits():
    """The digits of scikit-learn."""
    X, y = load_digits(return_X_y=True)
    X = (X / 16).astype(np.float32)
    train, test, *labels = train_test_split(X, y, test_size=0.3, random_state=SEED)
    return rotated((train, labels[0]), (test, labels[1]))


def rotated(train, test):
    (X, y), (Q, t) = train, test
    mean = X.mean(axis=0, dtype=np.float64)
    covariance = sum(
        (rows - mean).T @ (rows - mean) for rows in np.array_split(X, -(-len(X) // 4096))
    )
    axes = np.linalg.eigh(covariance)[1][:, ::-1].astype(np.float32)
    centre = mean.astype(np.float32)
    return Points((X - centre) @ axes, (Q - centre) @ axes, (y, t))


def seconds(work):
    """The shortest processor time of some runs on one thread, and what the work returns."""
    times = []
    for _ in range(REPEATS):
        began = time.process_time()
        found = work()
        times.append(time.process_time() - began)
    return min(times), found


def measure_search(points, sizes):
    """Fig. 10: seconds to find the 3 nearest training points of some test points."""
    queries = points.test[: sizes.queries]
    taken, _ = seconds(lambda: on_numpy.nearest(queries, points.train, NEIGHBORS))
    yield {"dimensions": points.train.shape[1], "products": taken}
    for r in sizes.search:
        Z, Q = (np.ascontiguousarray(part[:, :r]) for part in (points.train, queries))
        row = {"dimensions": r}
        row["products"], (_, expected) = seconds(lambda Q=Q, Z=Z: on_numpy.nearest(Q, Z, NEIGHBORS))
        for name, tree in TREES.items():
            row[f"{name} built"], built = seconds(lambda tree=tree, Z=Z: tree(Z))
            row[name], (apart, _) = seconds(lambda built=built, Q=Q: built.query(Q, NEIGHBORS))
            same = np.allclose(apart**2, expected, rtol=1e-4, atol=1e-5)
            check(same, f"{name} finds other neighbours in {r} dimensions")
        yield row


def measure_impostors(points, sizes):
    """Fig. 12: seconds to find all impostors of all points at a learned map.

    Trees are searched for some of the points, and their time is that share of what is reported.
    """
    order = np.argsort(points.labels[0], kind="stable")
    labels = points.labels[0][order]
    starts = np.searchsorted(labels, np.arange(labels.max() + 2))
    random = np.random.default_rng(SEED)
    sample = random.permutation(len(order))[: sizes.sample]
    some = np.sort(random.permutation(len(order))[: sizes.queries])
    for r in sizes.impostors:
        X = np.ascontiguousarray(points.train[order, :r])
        lmnn = LMNN(tol=1e-2, shrinkage=0).fit(X[sample], labels[sample])
        Z = np.ascontiguousarray(lmnn.transform(X))
        targets = on_numpy.nearest_in_class(X, starts, NEIGHBORS)
        lengths = on_numpy.sq_lengths(Z, *targets).astype(np.float64)
        reach = on_numpy.segment_max(targets[0], lengths, len(Z)) + 1
        row = {"dimensions": r, "rank": Z.shape[1]}
        row["all pairs"], expected = seconds(lambda Z=Z, reach=reach: all_pairs(Z, reach, starts))
        row["nearfar"], found = seconds(
            lambda Z=Z, reach=reach: on_numpy.impostor_pairs(Z, reach, starts)
        )
        check(np.array_equal(found, expected), f"blocks have other impostors in {r} dimensions")
        row["pruned"] = pruned_impostor_pairs(Z, reach, starts, parallel.in_threads) is not None
        row["impostors"] = len(found[0])
        few = np.count_nonzero(np.isin(found[0], some))
        for name, tree in TREES.items():
            built, searched, pairs = in_trees(tree, Z, reach, starts, some)
            row[name] = built + searched * len(Z) / len(some)
            same = abs(len(pairs[0]) - few) <= 1e-4 * few  # trees compute in float64
            check(same, f"{name} finds other impostors in {r} dimensions")
        yield row


def all_pairs(Z, reach, starts):
    """The search of all pairs, in the order of `impostor_pairs`."""
    return np.divmod(np.sort(numpy_impostors._screened_impostor_pairs(Z, reach, starts, Z)), len(Z))


def in_trees(tree, Z, reach, starts, some):
    """Seconds to build a tree of each class and to search all of them, and the pairs in order.

    A radius of a tree takes in what lies on it, and the reach leaves it out: the next smaller one.
    """
    built, trees = seconds(lambda: [tree(Z[first:last]) for first, last in pairwise(starts)])
    radii = np.nextafter(np.sqrt(reach), 0)

    def search():
        codes = []
        for (first, last), one in zip(pairwise(starts), trees, strict=True):
            rows = some[(some < first) | (some >= last)]
            near = one.query_radius(Z[rows], radii[rows])
            heads = np.repeat(rows, [len(tails) for tails in near])
            codes.append(heads * len(Z) + first + np.concatenate(near))
        return np.divmod(np.sort(np.concatenate(codes)), len(Z))

    searched, pairs = seconds(search)
    return built, searched, pairs


def check(holds, failure):
    """All searches are exact, so that their answers may differ by rounding only."""
    if not holds:
        raise RuntimeError(failure)


def measure_low_rank(points, sizes, device):
    """Fig. 13: 3-NN test errors of maps to few dimensions, learned on the device."""
    X, Q = (on_device(part[:, : sizes.inputs], device) for part in (points.train, points.test))
    y = points.labels[0]

    def error(L):
        """In %, with the map L, (r, inputs)."""
        images = [part[:, : L.shape[1]] @ L.T for part in (X, Q)]
        return 100 * knn_error(*images, *points.labels)

    raw = [on_device(part, device) for part in (points.train, points.test)]
    row = {"dimensions": raw[0].shape[1], "raw": 100 * knn_error(*raw, *points.labels)}
    del raw
    square, row["lmnn seconds"] = fitted(LMNN(shrinkage=0), X, y)
    row |= {"inputs": X.shape[1], "lmnn": error(square.components_)}
    row |= {"gap": square.duality_gap_, "rank": len(square.components_)}
    yield row
    # The rows of LMNN(n_components=r, reduce="project"), without another fit
    square_map = to_host(square.components_).astype(np.float64)
    principal = on_device(principal_rows(square_map, X).astype(np.float32), device)
    for r in sizes.low_rank:
        learned, taken = fitted(LMNN(n_components=r, shrinkage=0), X, y)
        axes = on_device(np.eye(r, X.shape[1], dtype=np.float32), device)
        yield {
            "dimensions": r,
            "pca": error(axes),
            "lmnn_s": error(principal[:r]),
            "lmnn_r": error(learned.components_),
            "seconds": taken,
            "status": learned.status_,
        }


def on_device(X, device):
    X = np.ascontiguousarray(X)
    if device == "cpu":
        return X
    import torch

    return torch.as_tensor(X, device=device)


def fitted(learner, X, y):
    began = time.perf_counter()
    learner.fit(X, y)
    return learner, time.perf_counter() - began


def knn_error(Z, Q, y, expected):
    kernels = kernels_for(Z)
    with single_threaded_blas():
        nearest = kernels.to_host(kernels.nearest(Q, Z, NEIGHBORS)[0])
    return float(np.mean(vote(y[nearest], int(y.max()) + 1) != expected))


def measure(part, points, sizes, device):
    """The rows of one part."""
    if part == "low-rank":
        yield from measure_low_rank(points, sizes, device)
    else:
        work = {"search": measure_search, "impostors": measure_impostors}[part]
        with threadpool_limits(1), single_threaded_blas():  # trees have one thread
            yield from work(points, sizes)


def facts(arguments):
    machine = common.machine()
    if arguments.device != "cpu":
        import torch

        machine["device"] = torch.cuda.get_device_name(arguments.device)
    versions = {"python": platform.python_version()}
    for name in ("numpy", "scipy", "scikit-learn", "torch"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "not installed"
    stamp = {"commit": common.commit(), "date": common.now()}
    return {"machine": machine, "versions": versions, "seed": SEED, **stamp}


def run(arguments, sizes):
    """Measure the parts that are asked for; a part replaces what the record had of it."""
    points = digits() if arguments.smoke else mnist(arguments.rows)
    for part in arguments.part:
        rows = []
        for row in measure(part, points, sizes, arguments.device):
            rows.append(row)
            print(part, json.dumps(row), flush=True)
        record = read(arguments.results)
        size = {"points": len(points.train), "queries": min(sizes.queries, len(points.test))}
        record[part] = facts(arguments) | size | {"measured": rows}
        common.write_text(arguments.results, written(record))


def read(path):
    return json.loads(path.read_text()) if path.exists() else {}


def written(record):
    """The record, one measured row a line."""
    parts = []
    for part, found in record.items():
        head = json.dumps({k: v for k, v in found.items() if k != "measured"})
        rows = ",\n".join(json.dumps(row) for row in found["measured"])
        parts.append(f'"{part}": {head[:-1]}, "measured": [\n{rows}\n]}}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def parse(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.papers.ball_trees", description=__doc__.splitlines()[0]
    )
    add, root = parser.add_argument, common.ROOT
    add("--part", choices=GROUPS, help="trees: search and impostors; default: all")
    add("--device", default="cpu", help="cpu or cuda, for --part low-rank")
    add("--rows", type=int, default=60000, help="of MNIST's training part; default: all")
    add("--results", type=Path, default=root / "benchmarks" / "results" / "ball_trees.json")
    add("--to", type=Path, default=root / "docs" / "results" / "ball_trees.md", help="the page")
    add("--page", action="store_true", help="only write the page anew")
    add("--smoke", action="store_true", help="the digits of scikit-learn; writes nothing")
    parsed = parser.parse_args(arguments)
    parsed.part = GROUPS.get(parsed.part, PARTS)
    return parsed


def main(arguments=None):
    arguments = parse(arguments)
    with tempfile.TemporaryDirectory() as folder:
        if arguments.smoke:
            arguments.results, arguments.to = Path(folder) / "record.json", Path(folder) / "page.md"
        if not arguments.page:
            try:
                run(arguments, SMOKE if arguments.smoke else Sizes())
            except common.UnavailableError as error:
                print(error, file=sys.stderr)
                return 2
        common.write_text(arguments.to, ball_trees_page.page(read(arguments.results)))
        if arguments.smoke:
            print(arguments.to.read_text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
