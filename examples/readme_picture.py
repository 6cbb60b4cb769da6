"""Draw the picture of the README: wine as given, standardised, and after learning.

Each panel shows the plane in which the training rows vary most under one distance, with the same
scale on both axes. A ring marks a test row that its three nearest training rows, by all 13
dimensions of that distance, give the wrong class. The errors over the panels are means of five-fold
cross-validation, repeated ten times.

    python examples/readme_picture.py [FILE]

needs matplotlib (``pip install '.[plot]'``), prints the errors with their standard errors, and
writes docs/images/wine.svg, or FILE.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from sklearn.datasets import load_wine
from sklearn.decomposition import PCA
from sklearn.model_selection import RepeatedStratifiedKFold, cross_val_score, train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from nearfar import LMNN

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
MARKERS = ("o", "s", "^")
DISTANCES = {
    "As given": FunctionTransformer(),
    "Standardised": StandardScaler(),
    "Standardised, then LMNN": make_pipeline(StandardScaler(), LMNN()),
}


def cross_validated_errors(X, y):
    """The 3-NN errors of each distance in the folds, the same folds for all."""
    folds = RepeatedStratifiedKFold(n_splits=5, n_repeats=10, random_state=0)
    return {
        name: 1 - cross_val_score(make_pipeline(step, KNeighborsClassifier(3)), X, y, cv=folds)
        for name, step in DISTANCES.items()
    }


def draw(axes, step, data):
    """The principal plane of the training rows under one distance, and the test rows in it."""
    X_train, X_test, y_train, y_test = data
    train, test = step.fit(X_train, y_train).transform(X_train), step.transform(X_test)
    wrong = KNeighborsClassifier(3).fit(train, y_train).predict(test) != y_test
    plane = PCA(2).fit(train)
    train, test = plane.transform(train), plane.transform(test)
    for label, marker in enumerate(MARKERS):
        style = {"marker": marker, "color": f"C{label}"}
        axes.scatter(*train[y_train == label].T, s=14, alpha=0.35, linewidths=0, **style)
        axes.scatter(
            *test[y_test == label].T, s=34, edgecolors="white", linewidths=0.6, zorder=3, **style
        )
    axes.scatter(*test[wrong].T, s=110, facecolors="none", edgecolors="#222222", zorder=4)
    middle = (train.min(axis=0) + train.max(axis=0)) / 2
    half = 0.56 * np.ptp(train, axis=0).max()
    axes.set(xlim=middle[0] + [-half, half], ylim=middle[1] + [-half, half], aspect="equal")
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(True)


def legend_handles(names):
    """One entry for each class, the two kinds of points, and the ring of an error."""
    handles = [
        Line2D([], [], ls="", marker=marker, color=f"C{label}", mec="white", ms=8, label=name)
        for label, (name, marker) in enumerate(zip(names, MARKERS, strict=True))
    ]
    faint = {"ls": "", "marker": "o", "color": "#777777"}
    ring = {"ls": "", "marker": "o", "mfc": "none", "mec": "#222222"}
    return [
        *handles,
        Line2D([], [], alpha=0.45, mew=0, ms=5, label="training row", **faint),
        Line2D([], [], ms=11, label="test row, wrong class", **ring),
    ]


def picture() -> Figure:
    """Wine in three planes."""
    X, y = load_wine(return_X_y=True)
    data = train_test_split(X, y, test_size=0.3, stratify=y, random_state=0)
    errors = cross_validated_errors(X, y)
    figure = Figure(figsize=(9.6, 4.1))
    figure.get_layout_engine().set(wspace=0.05, h_pad=0.1)
    for axes, (name, step) in zip(figure.subplots(1, 3), DISTANCES.items(), strict=True):
        draw(axes, step, data)
        mean = 100 * errors[name].mean()
        print(
            f"{name:<24} {mean:5.2f} ± {100 * errors[name].std() / len(errors[name]) ** 0.5:.2f} %"
        )
        axes.set_title(f"{name}\n3-NN error {mean:.1f} %")
    names = [f"cultivar {number}" for number in (1, 2, 3)]
    figure.legend(handles=legend_handles(names), loc="outside lower center", ncols=5)
    return figure


def main(target: Path) -> None:
    with mpl.rc_context(fname=IMAGES / "style.mplstyle"):
        picture().savefig(target, metadata={"Date": None})
    print(f"wrote {target}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES / "wine.svg")
