"""Maps of the same points by MVU and others: ``python -m benchmarks.maps``.

Every method runs with its defaults, to two dimensions, but with 3 neighbours on the teapots. UMAP
and PyMDE are measured where they are installed (``pip install umap-learn pymde``). A map is saved
when it is done, and a run leaves out what is saved.
"""

import sys
import time
import warnings
from importlib import import_module

import numpy as np
from scipy.spatial import procrustes
from sklearn.datasets import load_digits
from sklearn.manifold import TSNE, Isomap, LocallyLinearEmbedding

from benchmarks import common, pictures
from benchmarks.mvu.data import swiss_roll
from benchmarks.papers.records import (
    available,
    best_rows,
    chosen,
    machines,
    open_records,
    run_script,
)
from benchmarks.tables import markdown
from nearfar import MVU, VariationalMVU
from nearfar.evaluation import knn_predict, trustworthiness

SEED = 0
POINTS = 500  # of each set, or all where there are fewer
SMOKE_POINTS = 60
N_NEIGHBORS = 10  # of trustworthiness and continuity
GRID = 999  # coordinates are saved as whole numbers up to this one
FILES = {"teapots": "teapots_100", "cells": "pbmc68k_reduced_pca"}
NEIGHBORS = {"teapots": 3}  # among 4 of one image there are mirror images
PEERS = {"umap": "umap-learn", "pymde": "pymde"}

INTRODUCTION = f"""\
# Maps: MVU, Isomap, LLE, t-SNE, UMAP and PyMDE on four sets

`python -m benchmarks.maps` writes this page from `benchmarks/results/maps-*.json`; do not edit it.
`benchmarks/README.md` says how to repeat the runs.

Every method runs with its defaults, to two dimensions; {POINTS} points of each set, so that exact
MVU takes part, and all 100 of the teapots, with 3 neighbours (t-SNE: a perplexity of 3), since
among 4 there are mirror images. *Trustworthiness*: neighbours on the map are neighbours
in the data; *continuity*: neighbours in the data are neighbours on the map, both over
{N_NEIGHBORS} neighbours, 1 is perfect. *Off the truth*: what is left of the true map, in percent of
its size, after the best rotation, reflection and scaling of the map found; chance is near 100.
*1-NN error*: points in percent whose nearest neighbour on the map has another label. *Seconds* are
of the processor, one thread, on a busy machine, so that only large ratios count; UMAP and PyMDE had
a run before, which compiles them.

Which one to take: where distances along the sheet matter, as on the Swiss roll and the ring of
teapots, MVU, its variational version and Isomap keep them. Where only neighbours and clusters
matter, as for digits and cells, t-SNE, UMAP and PyMDE show them better; distances between clusters
on their maps mean little.
"""
SETS = {
    "swiss_roll": "Swiss roll: points on a rolled-up sheet in three dimensions, coloured along it. "
    "The truth is the sheet.",
    "teapots": "Teapots: a teapot seen from all sides, 100 images of 38 x 50 pixels, coloured by "
    "angle. The truth is a circle.",
    "digits": "Digits: scikit-learn's images of 8 x 8 pixels, coloured by digit.",
    "cells": "Cells: blood cells (PBMC 68k, reduced) by 50 principal components of their genes, "
    "coloured by type.",
}
TITLES = {
    "mvu": "MVU",
    "variational_mvu": "VariationalMVU",
    "isomap": "Isomap",
    "lle": "LLE",
    "umap": "UMAP",
    "tsne": "t-SNE",
    "pymde": "PyMDE",
}


def load(data, most):
    """Points, a number or class to colour each by, and the true map or None."""
    if data == "swiss_roll":
        X = swiss_roll(most, SEED, noise=0)[:, :3]
        angle = np.hypot(X[:, 0], X[:, 2])
        along = (angle * np.sqrt(1 + angle**2) + np.arcsinh(angle)) / 2  # arc length of the spiral
        return X, angle, np.column_stack([along, X[:, 1]])
    if data == "digits":
        X, y = load_digits(return_X_y=True)
        return X[:most], y[:most], None
    with np.load(common.data_file(FILES[data]), allow_pickle=False) as archive:
        X = archive["X"].astype(np.float64)
        if data == "cells":
            return X[:most], archive["y"][:most].astype(int), None
        angle = 2 * np.pi * np.arange(len(X)) / len(X)
        return X / archive["scale"], angle, np.column_stack([np.cos(angle), np.sin(angle)])


def check(data):
    """Raise `common.UnavailableError` where the file of a data set is missing."""
    if data in FILES:
        common.data_file(FILES[data])


def peer(method):
    """A module that is not a dependency, or `common.UnavailableError`."""
    try:
        return import_module(method)
    except ImportError as error:
        raise common.UnavailableError(
            f"{TITLES[method]} is not installed; pip install {PEERS[method]}"
        ) from error


def embed(method, X, k=None):
    """The map (n, 2) that a method finds, with k neighbours or its default number of them."""
    near = {} if k is None else {"n_neighbors": k}
    if method == "umap":
        return peer(method).UMAP(random_state=SEED, n_jobs=1, **near).fit_transform(X)
    if method == "pymde":
        module = peer(method)
        module.seed(SEED)
        return module.preserve_neighbors(X, embedding_dim=2, **near).embed().cpu().numpy()
    learner = {
        "mvu": MVU(random_state=SEED),
        "variational_mvu": VariationalMVU(random_state=SEED),
        "isomap": Isomap(),
        "lle": LocallyLinearEmbedding(random_state=SEED),
        "tsne": TSNE(random_state=SEED),
    }[method]
    if k is not None:
        learner.set_params(**{"perplexity": k} if method == "tsne" else near)
    return learner.fit_transform(X)


def measures(X, Y, values, truth):
    """Trustworthiness, continuity, percent off the truth and 1-NN error in percent, or None."""
    off = wrong = None
    if truth is not None:
        off = 100 * float(np.sqrt(procrustes(truth, Y)[2]))
    else:
        others = [np.delete(np.arange(len(Y)), i) for i in range(len(Y))]
        found = [knn_predict(Y[o], values[o], Y[[i]], 1)[0] for i, o in enumerate(others)]
        wrong = 100 * float(np.mean(np.array(found) != values))
    faithful = [float(trustworthiness(*pair, N_NEIGHBORS)) for pair in ((X, Y), (Y, X))]
    return [None if m is None else round(m, 4) for m in (*faithful, off, wrong)]


def on_grid(Y):
    """Coordinates as whole numbers, the same unit for both axes."""
    shifted = Y - Y.min(axis=0)
    return np.rint(GRID * shifted / shifted.max()).astype(int).tolist()


def measure_all(arguments):
    """Measure what is missing, save it, and say it."""
    arguments.device = "cpu"
    data = available(arguments.data, check)
    methods = available(arguments.methods, lambda name: name in PEERS and peer(name))
    records, stamp = open_records(arguments, "maps", [(d, m) for d in SETS for m in TITLES])
    warnings.simplefilter("ignore")  # of graphs that are linked, and of methods to come
    for method in methods:
        if method in PEERS:
            embed(method, np.random.default_rng(SEED).normal(size=(100, 5)))
        for name in data:
            if not records.missing(name, 0, [method]):
                continue
            X, values, truth = load(name, SMOKE_POINTS if arguments.smoke else POINTS)
            begin = time.process_time()
            Y = np.asarray(embed(method, X, NEIGHBORS.get(name)), dtype=np.float64)
            seconds = round(time.process_time() - begin, 2)
            found = measures(X, Y, values, truth)
            records.add(name, method, [0, seconds, found, on_grid(Y)], stamp)
            print(f"{name:<10} {method:<15} {seconds:8.2f} s  {found}", flush=True)


def page(records):
    """docs/results/maps.md from the records of all machines."""
    rows = best_rows(records)
    parts = [INTRODUCTION]
    if not rows:
        return INTRODUCTION
    parts.append("![Maps of four sets by seven methods](../images/maps.png)\n")
    for data, text in SETS.items():
        lines = []
        for method, title in TITLES.items():
            if (data, method) in rows:
                _, seconds, found, _ = rows[data, method]["splits"][0]
                forms = ("{:.3f}", "{:.3f}", "{:.1f}", "{:.1f}")
                cells = [
                    "" if m is None else f.format(m) for m, f in zip(found, forms, strict=True)
                ]
                lines.append([title, *cells, f"{seconds:.3g}"])
        header = ["", "trustworthiness", "continuity", "off the truth", "1-NN error", "seconds"]
        columns = [i for i in range(len(header)) if any(line[i] for line in lines)]
        title, _, rest = text.partition(": ")
        table = markdown(
            [header[i] for i in columns], [[line[i] for i in columns] for line in lines]
        )
        parts.append(f"## {title}\n\n{rest[0].upper()}{rest[1:]}\n\n{table}")
    return "\n".join([*parts, machines(records)])


def draw(records, folder):
    """All maps: a row of panels for each set, a column for each method."""
    rows = best_rows(records)
    names = [data for data in SETS if any((data, method) in rows for method in TITLES)]
    figure, grid = pictures.panels(len(names), len(TITLES))
    for data, line in zip(names, grid, strict=True):
        n = max(len(rows[data, m]["splits"][0][3]) for m in TITLES if (data, m) in rows)
        _, values, truth = load(data, n)
        for method, axes in zip(TITLES, line, strict=True):
            if (data, method) not in rows:
                axes.set_axis_off()
                continue
            Y = np.array(rows[data, method]["splits"][0][3])
            style = {"classes": truth is None, "cyclic": data == "teapots"}
            pictures.scatter(axes, Y, values, **style)
        line[0].set_ylabel(SETS[data].partition(":")[0], fontsize=9)
        line[0].set_axis_on()
    for method, axes in zip(TITLES.values(), grid[0], strict=True):
        axes.set_title(method, fontsize=9)
    pictures.save(figure, folder / "maps.png")


def parse(arguments=None):
    parser = common.record_parser("maps", __doc__, f"{SMOKE_POINTS} points; writes nothing")
    add = parser.add_argument
    add("--data", type=chosen(SETS, {}), default=list(SETS), help=f"of {','.join(SETS)}")
    add("--methods", type=chosen(TITLES, {}), default=list(TITLES), help=f"of {','.join(TITLES)}")
    return parser.parse_args(arguments)


def main(arguments=None):
    return run_script(parse(arguments), "maps", measure_all, page, draw)


if __name__ == "__main__":
    sys.exit(main())
