"""Figures 2.4 and 2.20 of the thesis, 6 and 9 of the paper: ``-m benchmarks.papers.lmnn_figures``.

Figures 6 and 9 are quotients of rows of Table 1, whose records this page reads. The others are
measured here; a figure is saved when it is done, and a run leaves out what is saved.
"""

import sys
import time
import warnings
from statistics import mean, stdev

import numpy as np
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from benchmarks import common, pictures
from benchmarks.papers import table1_page, table1_paper
from benchmarks.papers.records import best_rows, chosen, machines, open_records, run_script
from benchmarks.tables import markdown
from nearfar import LMNN, RCA
from nearfar.datasets import make_half_square
from nearfar.evaluation import knn_predict

SIZES = (25, 50, 100, 200, 400, 800)
RUNS = 100
STEPS = 100  # test points on a side of the square
LARGEST = ("mnist", "letters", "20news", "isolet", "yale")  # of Figures 6 and 9
GAUSSIAN = 150  # points of each class in Figure 2.20
FIGURES = ("2.4", "2.20")

INTRODUCTION = """\
# LMNN: figures of the thesis and of the paper, measured again

`python -m benchmarks.papers.lmnn_figures` writes this page from
`benchmarks/results/lmnn_figures-*.json` and, for Figures 6 and 9, from the records of
[Table 1](lmnn_table1.md); do not edit it. `benchmarks/README.md` says how to repeat the runs. The
thesis is Weinberger, Metric learning with convex optimization, University of Pennsylvania, 2007;
the paper is Weinberger & Saul, JMLR 10 (2009). All fits are of the papers' program
(`shrinkage=0`).

![The four figures](../images/lmnn_figures.png)
"""
HALF_SQUARE = f"""\
## Thesis, Figure 2.4: half of a square

Uniform points in a square, labelled by the half that they lie in; only the vertical direction tells
the classes apart. The probability, in percent, that the 1-NN rule misclassifies a new point of the
square, by the number of training points: mean and standard error of {RUNS} runs, as in the thesis,
on a grid of {STEPS} x {STEPS} points, and those of the difference in a run. The thesis shows curves
without numbers, both falling to zero, and LMNN significantly below the Euclidean distance at every
size.
"""
GAUSSIANS = f"""\
## Thesis, Figure 2.20: PCA, RCA and LDA

Two Gaussian classes of {GAUSSIAN} points with the same covariance and shifted means, long across
the direction that separates them. The thesis shows a picture: the first principal component is the
direction of largest variance and mixes the classes, RCA makes the classes round, and LDA finds the
direction that separates them. *1-NN error* is of the first coordinate alone, each point left out in
turn; *roundness* is the smallest over the largest deviation within classes.
"""
RATIOS = """\
## Paper, Figure {number}: {title}

The 3-NN test error of {what} over that of LMNN with one pass and one metric:
below 1 where it helps. *Paper* is from its Table 1, *ours* from the records of
[that page](lmnn_table1.md). {says}
"""


def half_square(smoke):
    """{size: [(Euclidean error, LMNN error) of each run]}."""
    sizes, runs = (SIZES[:2], 2) if smoke else (SIZES, RUNS)
    side = (np.arange(STEPS) + 0.5) * 10 / STEPS
    new = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    truth = (new[:, 1] > 5).astype(int)
    found = {}
    for size in sizes:
        found[size] = []
        for run in range(runs):
            X, y = make_half_square(size, random_state=1000 * size + run)
            L = LMNN(1, shrinkage=0).fit(X, y).components_
            errors = [
                float(np.mean(knn_predict(X @ map_.T, y, new @ map_.T, 1) != truth))
                for map_ in (np.eye(2), L)
            ]
            found[size].append([round(error, 5) for error in errors])
    return found


def gaussians(_):
    """{name: [1-NN error of the first coordinate, roundness, points, classes]}."""
    random = np.random.default_rng(0)
    y = np.repeat([0, 1], GAUSSIAN)
    turn = np.array([[0.8, -0.6], [0.6, 0.8]])
    X = (random.normal(size=(len(y), 2)) * [4, 0.6] + np.outer(2 * y - 1, [0, 1.3])) @ turn.T
    X = X - X.mean(axis=0)
    lda = LinearDiscriminantAnalysis(solver="eigen").fit(X, y)
    maps = {
        "inputs": X,
        "PCA": PCA(2).fit_transform(X),
        "RCA": RCA(shrinkage=0).fit(X, y).transform(X),
        "LDA": X @ lda.scalings_,
    }
    return {name: [*_first_coordinate(Y, y), np.round(Y, 2).tolist()] for name, Y in maps.items()}


def _first_coordinate(Y, y):
    wrong = 0
    for i in range(len(Y)):
        distance = np.abs(Y[:, 0] - Y[i, 0])
        distance[i] = np.inf
        wrong += y[np.argmin(distance)] != y[i]
    within = np.cov((Y - [Y[y == c].mean(axis=0) for c in y]).T)
    spread = np.sqrt(np.linalg.eigvalsh(within))
    return [round(wrong / len(Y), 4), round(float(spread[0] / spread[-1]), 3)]


MEASURED = {"2.4": half_square, "2.20": gaussians}


def measure_all(arguments):
    """Measure what is missing, save it, and say it."""
    arguments.device = "cpu"
    records, stamp = open_records(arguments, "lmnn_figures", [(name, "ours") for name in FIGURES])
    for name in arguments.figures:
        if not records.missing(name, 0, ["ours"]):
            continue
        begin = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = MEASURED[name](arguments.smoke)
        records.add(name, "ours", [0, round(time.process_time() - begin, 2), found], stamp)
        print(f"Figure {name}: {time.process_time() - begin:.1f} s", flush=True)


def curves(found):
    """(size, mean and standard error in percent) of both distances and of their difference."""
    lines = []
    for size, runs in found.items():
        both = [(100 * a, 100 * b, 100 * (b - a)) for a, b in runs]
        columns = list(zip(*both, strict=True))
        spread = [stdev(c) / len(c) ** 0.5 if len(c) > 1 else 0.0 for c in columns]
        lines.append((int(size), *zip(map(mean, columns), spread, strict=True)))
    return lines


def ratios(method):
    """[(data, paper's quotient, ours or None)] of a row of Table 1 over that of LMNN."""
    records = common.read_records(common.ROOT / "benchmarks" / "results", "lmnn_table1")
    rows, found = best_rows(records), []
    for data in LARGEST:
        theirs = [table1_paper.error(name, data) for name in (method, "lmnn")]
        ours = [rows.get((data, name)) for name in (method, "lmnn")]
        errors = [None if row is None else table1_page.error_of(row)[0] for row in ours]
        quotient = None if None in errors else errors[0] / errors[1]
        found.append((data, theirs[0] / theirs[1], quotient))
    return found


def page(records):
    """docs/results/lmnn_figures.md from the records of all machines."""
    rows, parts = best_rows(records), [INTRODUCTION]
    if ("2.4", "ours") in rows:
        lines = [
            [str(size), *("{:.2f} ± {:.2f}".format(*cell) for cell in cells)]
            for size, *cells in curves(rows["2.4", "ours"]["splits"][0][2])
        ]
        header = ["points", "Euclidean", "LMNN", "difference"]
        parts.append(HALF_SQUARE + "\n" + markdown(header, lines))
    if ("2.20", "ours") in rows:
        found = rows["2.20", "ours"]["splits"][0][2]
        lines = [[name, f"{100 * e:.1f}", f"{r:.2f}"] for name, (e, r, _) in found.items()]
        parts.append(GAUSSIANS + "\n" + markdown(["", "1-NN error", "roundness"], lines))
    for number, title, what, says, method in SHOWN:
        lines = [
            [data, f"{theirs:.2f}", "" if ours is None else f"{ours:.2f}"]
            for data, theirs, ours in ratios(method)
        ]
        text = RATIOS.format(number=number, title=title, what=what, says=says)
        parts.append(text + "\n" + markdown(["", "paper", "ours"], lines))
    return "\n".join([*parts, machines(records)] if rows else parts)


SHOWN = (
    (
        "6",
        "several passes",
        "several passes",
        "The paper finds them generally helpful on its five largest sets.",
        "multi_pass",
    ),
    (
        "9",
        "several metrics",
        "one metric for each class",
        "The paper finds that it improves on every one of them, most on MNIST.",
        "multi_metric",
    ),
)


def draw(records, folder):
    """Half square, Gaussians, and the quotients as bars."""
    rows = best_rows(records)
    figure, grid = pictures.panels(2, 4, (2.6, 2.3))
    first, *rest = grid[0]
    rest[-1].set_axis_off()
    if ("2.4", "ours") in rows:
        found = curves(rows["2.4", "ours"]["splits"][0][2])
        for index, (name, colour) in enumerate((("Euclidean", 1), ("LMNN", 0))):
            x, y = [line[0] for line in found], [line[1 + index] for line in found]
            style = {"color": pictures.CLASSES[colour], "marker": "o", "ms": 3, "lw": 1.2}
            first.errorbar(x, *zip(*y, strict=True), label=name, **style)
        first.set(xscale="log", ylim=(0, None))
        first.set_xticks(x, x)
        first.minorticks_off()
        first.legend(fontsize=7, frameon=False)
    pictures.lines(first, "thesis 2.4: half square", "training points", "misclassified, %")
    for axes, (_, title, _, _, method), number in zip(rest, SHOWN, ("6", "9"), strict=False):
        found = ratios(method)
        place = np.arange(len(found))
        axes.bar(place - 0.2, [f[1] for f in found], 0.4, color="#bbbbbb", label="paper")
        ours = [np.nan if f[2] is None else f[2] for f in found]
        axes.bar(place + 0.2, ours, 0.4, color=pictures.CLASSES[0], label="ours")
        axes.axhline(1, color="#222222", lw=0.8)
        axes.set_xticks(place, [f[0] for f in found])
        axes.set_ylim(0, 1.35)
        axes.legend(fontsize=7, frameon=False, loc="upper right", ncols=2)
        pictures.lines(axes, f"JMLR {number}: {title}", "", "error over that of LMNN")
    if ("2.20", "ours") in rows:
        classes = np.repeat([0, 1], GAUSSIAN)
        panels = zip(grid[1], rows["2.20", "ours"]["splits"][0][2].items(), strict=True)
        for axes, (name, (_, _, points)) in panels:
            pictures.scatter(axes, np.array(points), classes, classes=True)
            axes.set_title(f"thesis 2.20: {name}", loc="left", fontsize=9, fontweight="bold")
    pictures.save(figure, folder / "lmnn_figures.png")


def parse(arguments=None):
    parser = common.record_parser("papers.lmnn_figures", __doc__, "small ones; writes nothing")
    known = dict.fromkeys(FIGURES)
    parser.add_argument("--figures", type=chosen(known, {}), default=list(FIGURES))
    return parser.parse_args(arguments)


def main(arguments=None):
    return run_script(parse(arguments), "lmnn_figures", measure_all, page, draw)


if __name__ == "__main__":
    sys.exit(main())
