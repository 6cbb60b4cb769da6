"""One fit of `benchmarks.mvu.large`: ``python -m benchmarks.mvu.large_fit TASK OUTPUT DEVICE``.

TASK is a JSON list of data, method and options; OUTPUT receives the row as JSON. On a DEVICE other
than "cpu" points are tensors. `judge` shares
no code with nearfar. With edges of squared lengths D_e, in units of their mean, and places y:

    misfit      sum_e (|y_i - y_j|^2 - D_e)^2                                     thesis, eq. 3.26
    objective   2 r l sum_i |y_i - mean|^2 - misfit,  r the stretch, l the second smallest
                eigenvalue of the graph's Laplacian; of all dimensions that were optimised; of MVU
                itself sum_i |y_i - mean|^2, less p sum_e ||y_i - y_j|^2 - D_e| where lengths may
                change at the price p = w / (1 - w), w the slack weight, in units of the data
    errors      distances to the true places after the best rigid motion, in per cent of the width
                of the field, or of the length of the unrolled sheet; with anchors without a motion
"""

import json
import sys
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import optimize, sparse
from scipy.sparse.linalg import eigsh
from scipy.spatial import cKDTree
from sklearn.neighbors import NearestNeighbors

from benchmarks import common
from benchmarks.mvu.data import connected_roll, edges, swiss_roll
from benchmarks.worker import Memory

SEED = 0
ROLL_NEIGHBORS, DIGIT_NEIGHBORS = 6, 5
MVU_NEIGHBORS, SLACK_WEIGHT = 5, 0.999
RADIUS, MOST, NOISE = 0.06, 20, 0.1  # of the thesis' network of 20000 nodes
CITY_RADIUS = 0.1
PARALLEL = np.radians(38)  # where degrees of longitude are measured
RANDOM_STEPS = 100  # line searches of the thesis' baseline


@dataclass(frozen=True)
class Problem:
    """Points, or a network of noisy distances; the edges as the judge knows them; the truth."""

    points: np.ndarray | None
    heads: np.ndarray
    tails: np.ndarray
    lengths: np.ndarray
    truth: np.ndarray | None  # (n, 2)

    @property
    def n(self):
        return int(self.tails.max()) + 1 if self.points is None else len(self.points)


# -- data --


def problem(data):
    if data.startswith("mvu"):
        X = connected_roll(int(data.removeprefix("mvu")), MVU_NEIGHBORS)[0]
        return of_points(X, MVU_NEIGHBORS, None)
    if data.startswith("roll"):
        return roll(int(data.removeprefix("roll")))
    if data == "digits":
        return digits()
    if data == "cities":
        return network(cities(), CITY_RADIUS, None)
    n = int(data.removeprefix("square"))
    places = np.random.default_rng(SEED).uniform(size=(n, 2))
    return network(places, RADIUS * np.sqrt(20000 / n), MOST)


def roll(n):
    """A Swiss roll with five dimensions of noise, and the sheet that it is rolled of."""
    X = swiss_roll(n)
    angle = np.hypot(X[:, 0], X[:, 2])
    arc = (angle * np.sqrt(1 + angle**2) + np.arcsinh(angle)) / 2
    return of_points(X, ROLL_NEIGHBORS, np.column_stack([arc, X[:, 1]]))


def digits():
    """The twos and threes of MNIST's training part, 12089 images."""
    with np.load(common.data_file("mnist"), allow_pickle=False) as archive:
        X, y = archive["X"][archive["train"]], archive["y"][archive["train"]]
    return of_points(X[(y == 2) | (y == 3)] / 255.0, DIGIT_NEIGHBORS, None)


def of_points(X, k, truth):
    heads, tails = edges(X, k) if X.shape[1] < 20 else brute_edges(X, k)
    lengths = np.sqrt(((X[heads] - X[tails]) ** 2).sum(axis=1))
    return Problem(X, heads, tails, lengths, truth)


def brute_edges(X, k):
    """`edges` where a tree is of no use."""
    near = NearestNeighbors(algorithm="brute").fit(X).kneighbors(X, k + 1)[1]
    first, second = np.triu_indices(k + 1, 1)
    pairs = np.stack([near[:, first].ravel(), near[:, second].ravel()], axis=1)
    return np.unique(np.sort(pairs, axis=1), axis=0).T


def cities():
    """The largest cities of the continental US, on a map one unit wide."""
    with np.load(common.data_file("us_cities"), allow_pickle=False) as archive:
        latitude, longitude = archive["X"].T
    places = np.column_stack([longitude * np.cos(PARALLEL), latitude])
    return (places - places.min(axis=0)) / np.ptp(places, axis=0).max()


def network(places, radius, most):
    """Each node hears ``most`` others within the radius, drawn at random, or all of them.

    Lengths have uniform errors of up to NOISE. All but the largest component is left out.
    """
    random = np.random.default_rng(SEED)
    pairs = cKDTree(places).query_pairs(radius, output_type="ndarray")
    if most is not None:
        ends = np.concatenate([pairs, pairs[:, ::-1]])
        ends = ends[np.lexsort((random.random(len(ends)), ends[:, 0]))]
        rank = np.arange(len(ends)) - np.searchsorted(ends[:, 0], ends[:, 0])
        pairs = np.unique(np.sort(ends[rank < most], axis=1), axis=0)
    graph = sparse.coo_array((np.ones(len(pairs)), pairs.T), shape=(len(places),) * 2)
    labels = sparse.csgraph.connected_components(graph, directed=False)[1]
    kept = labels == np.bincount(labels).argmax()
    number = np.cumsum(kept) - 1
    heads, tails = number[pairs[kept[pairs[:, 0]]]].T
    places = places[kept]
    lengths = np.linalg.norm(places[heads] - places[tails], axis=1)
    lengths *= random.uniform(1 - NOISE, 1 + NOISE, len(lengths))
    order = np.argsort(tails, kind="stable")
    return Problem(None, heads[order], tails[order], lengths[order], places)


# -- fits --


def fitted(given, method, options, device="cpu"):
    """Places of all dimensions that were optimised, and what the method says of them."""
    from nearfar import LandmarkMVU, NeighborhoodGraph, SensorLocalization, VariationalMVU

    if method == "random":
        return by_chance(given), {}
    if method == "mvu":
        return by_mvu(given, options)
    X, n_anchors = given.points, options.pop("n_anchors", 0)
    if X is None:
        X = NeighborhoodGraph.from_edges(given.heads, given.tails, given.lengths, given.n)
    if method == "sensors":
        chosen = np.random.default_rng(SEED).permutation(given.n)[:n_anchors]
        anchors = {int(node): given.truth[node] for node in chosen} or None
        model = SensorLocalization(anchors=anchors, random_state=SEED, **options)
    else:
        learner = {"variational": VariationalMVU, "landmark": LandmarkMVU}[method]
        if given.points is not None:
            k = ROLL_NEIGHBORS if given.truth is not None else DIGIT_NEIGHBORS
            options = {"n_neighbors": k, "on_disconnected": "link", **options}
            X = on_device(X, device)
        elif not options.get("refine", True):
            options = {"n_components": options["n_eigenvectors"], **options}
        model = learner(random_state=SEED, **options)
    model.fit(X)
    about = {
        "reported_objective": model.objective_,
        "status": model.status_,
        "n_iter": model.n_iter_,
    }
    if method == "sensors":
        about["expected_error"] = float(np.median(model.standard_errors_))
        about["pinned"] = float(model.pinned_.mean())
    else:
        about["gap"] = model.program_gap_
        about["embedding_gap"], about["whole_gap"] = model.duality_gap_, model.whole_gap_
    return as_array(model.embedding_), about


def on_device(X, device):
    """Points as they are, or a tensor on the device."""
    if device == "cpu":
        return X
    import torch

    return torch.tensor(X, device=device)


def as_array(Y):
    return Y if isinstance(Y, np.ndarray) else Y.cpu().numpy()


def by_mvu(given, options):
    """Points of all dimensions, by either solver of MVU, and the interval that it proves."""
    from nearfar import MVU

    model = MVU(n_neighbors=MVU_NEIGHBORS, random_state=SEED, **options).fit(given.points)
    about = {
        "reported_objective": model.objective_,
        "status": model.status_,
        "n_iter": model.n_iter_,
        "embedding_gap": model.duality_gap_,
        "bound": float(model.proof_["weights"][:, 0].sum()),
    }
    if model.factor_ is not None:
        return model.factor_, about
    values, vectors = np.linalg.eigh(model.kernel_)
    return vectors * np.sqrt(np.maximum(values, 0.0)), about


def by_chance(given):
    """The thesis' baseline: a descent on the misfit from random places, here SciPy's."""
    D = given.lengths**2 / np.mean(given.lengths**2)
    n, heads, tails = given.n, given.heads, given.tails
    incidence = sparse.csr_array(
        (
            np.repeat([1.0, -1.0], len(heads)),
            (np.tile(np.arange(len(heads)), 2), np.concatenate([heads, tails])),
        ),
        shape=(len(heads), n),
    )

    def misfit_and_slope(flat):
        differences = incidence @ flat.reshape(n, 2)
        excess = (differences**2).sum(axis=1) - D
        return excess @ excess, 4 * (incidence.T @ (excess[:, None] * differences)).ravel()

    start = np.random.default_rng(SEED).normal(size=2 * n)
    found = optimize.minimize(
        misfit_and_slope, start, jac=True, method="L-BFGS-B", options={"maxiter": RANDOM_STEPS}
    )
    return found.x.reshape(n, 2) * np.sqrt(np.mean(given.lengths**2))


# -- the judge --


def judge(given, Y, stretch, anchored, device="cpu"):
    unit = np.mean(given.lengths**2)
    lengths = ((Y[given.heads] - Y[given.tails]) ** 2).sum(axis=1)
    misfit = float((((lengths - given.lengths**2) / unit) ** 2).sum())
    pulled = 0.0
    if stretch:
        smallest = second_eigenvalue(given) if device == "cpu" else eigenvalue_on(device, given)
        pulled = 2 * stretch * smallest * ((Y - Y.mean(axis=0)) ** 2).sum() / unit
    found = {"misfit_per_edge": misfit / len(lengths), "objective": float(pulled) - misfit}
    if given.truth is not None:
        errors = placing_errors(Y[:, :2], given.truth, anchored)
        for name, share in (("median", 0.5), ("q95", 0.95), ("largest", 1.0)):
            found[f"{name}_error"] = float(np.quantile(errors, share))
    return found


def judge_variance(given, Y, constraints):
    lengths = ((Y[given.heads] - Y[given.tails]) ** 2).sum(axis=1)
    variance = float(((Y - Y.mean(axis=0)) ** 2).sum())
    if constraints != "slack":
        return variance
    price = SLACK_WEIGHT / (1 - SLACK_WEIGHT)
    return variance - price * float(np.abs(lengths - given.lengths**2).sum())


def laplacian(given):
    n, ones = given.n, np.ones(len(given.heads))
    joined = sparse.coo_array((ones, (given.heads, given.tails)), shape=(n, n)).tocsr()
    joined = joined + joined.T
    return sparse.diags_array(joined.sum(axis=1)) - joined


def second_eigenvalue(given):
    L = laplacian(given)
    return float(np.sort(eigsh(L.tocsc(), 2, sigma=-1e-6, return_eigenvectors=False))[1])


def eigenvalue_on(device, given):
    """The same by inverse iteration with conjugate gradients there: no factor of a large matrix."""
    import torch

    L = laplacian(given).tocsr()
    parts = (torch.as_tensor(part, device=device) for part in (L.indptr, L.indices, L.data))
    A = torch.sparse_csr_tensor(*parts, size=L.shape, dtype=torch.float64)
    generator = torch.Generator(device).manual_seed(SEED)
    x = torch.randn(given.n, dtype=torch.float64, device=device, generator=generator)
    value, previous = np.inf, 0.0
    while previous == 0 or abs(value - previous) > 1e-6 * value:
        x = solved(A, (x - x.mean()) / x.norm())
        previous, value = value, float(x @ (A @ x)) / float(x @ x)
    return value


def solved(A, b, accuracy=1e-6, most=20000):
    """A⁻¹b for b of mean zero, by conjugate gradients."""
    x, r, p = 0 * b, b, b
    square = float(r @ r)
    for _ in range(most):
        Ap = A @ p
        step = square / float(p @ Ap)
        x, r = x + step * p, r - step * Ap
        previous, square = square, float(r @ r)
        if square <= accuracy**2 * float(b @ b):
            break
        p = r + square / previous * p
    return x - x.mean()


def placing_errors(Y, truth, anchored):
    """In per cent of the widest side of the truth."""
    if not anchored:
        Y, target = Y - Y.mean(axis=0), truth - truth.mean(axis=0)
        left, _, right = np.linalg.svd(Y.T @ target)
        Y = Y @ (left @ right) + truth.mean(axis=0)
    return 100 * np.linalg.norm(Y - truth, axis=1) / np.ptp(truth, axis=0).max()


def main(task, output, device="cpu"):
    (data, method, options), output = json.loads(task), Path(output)
    output.with_name("started").touch()  # from here on the limit of the task counts
    given = problem(data)
    warm_up(given)
    memory, began, began_busy = Memory(), time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what they say stands in the status
        Y, about = fitted(given, method, dict(options), device)
    row = {
        "data": data,
        "method": method,
        "options": options,
        "points": given.n,
        "edges": len(given.heads),
        "seconds": time.perf_counter() - began,
        "cpu_seconds": time.process_time() - began_busy,
        **memory.facts(),
        **about,
    }
    if method == "mvu":
        row["objective"] = judge_variance(given, Y, options["constraints"])
    else:
        stretch = options.get("stretch", 0.01 if method in ("variational", "landmark") else 0.0)
        print(json.dumps(row), flush=True)  # what is known if the judge has no time
        row |= judge(given, Y, stretch, bool(options.get("n_anchors")), device)
    if "expected_error" in row:
        row["expected_error"] *= 100 / np.ptp(given.truth, axis=0).max()
    output.write_text(json.dumps(row))


def warm_up(given):
    """Import what a fit needs: that is not part of it."""
    few = Problem(None, np.array([0, 1, 2]), np.array([1, 2, 3]), np.ones(3), given.truth)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted(few, "variational", {"n_components": 1})


if __name__ == "__main__":
    main(*sys.argv[1:])
