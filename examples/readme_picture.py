"""Draw the picture of the README: wine by the Euclidean distance and by a learned one.

Both maps to the plane are found from the training rows alone. The test rows, which neither has
seen, are drawn over them and classified by their three nearest training rows in that plane.

    python examples/readme_picture.py [FILE]

needs matplotlib (``pip install '.[plot]'``) and writes docs/images/wine.png, or FILE.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from sklearn.datasets import load_wine
from sklearn.decomposition import PCA
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline

from nearfar import LMNN

TARGET = Path(__file__).resolve().parents[1] / "docs" / "images" / "wine.png"
COLOURS = ("#0072B2", "#E69F00", "#009E73")  # Okabe & Ito: told apart by the colour-blind
MARKERS = ("o", "s", "^")
PAPER, INK, GREY = "#fcfcfa", "#222222", "#777777"


def draw(axes, place, title, data):
    """The plane of one map, and its 3-NN test error."""
    X_train, X_test, y_train, y_test = data
    train, test = place(X_train), place(X_test)
    wrong = KNeighborsClassifier(3).fit(train, y_train).predict(test) != y_test
    for label, (colour, marker) in enumerate(zip(COLOURS, MARKERS, strict=True)):
        style = {"marker": marker, "color": colour}
        axes.scatter(*train[y_train == label].T, s=22, alpha=0.3, linewidths=0, **style)
        axes.scatter(
            *test[y_test == label].T, s=52, edgecolors="white", linewidths=0.8, zorder=3, **style
        )
    axes.scatter(*test[wrong].T, s=150, facecolors="none", edgecolors=INK, linewidths=1.3, zorder=4)
    axes.set_title(title, loc="left", pad=24, fontsize=12.5, fontweight="bold")
    error = f"3-NN test error {100 * wrong.mean():.1f} %"
    axes.text(0, 1.03, error, transform=axes.transAxes, fontsize=11.5, color=GREY)


def legend_handles(names):
    """One entry for each class, the two kinds of points, and the ring of an error."""
    handles = [
        Line2D([], [], ls="", marker=marker, color=colour, mec="white", ms=8, label=name)
        for name, colour, marker in zip(names, COLOURS, MARKERS, strict=True)
    ]
    faint = {"ls": "", "marker": "o", "color": GREY}
    ring = {"ls": "", "marker": "o", "mfc": "none", "mec": INK, "mew": 1.3}
    return [
        *handles,
        Line2D([], [], alpha=0.35, mew=0, ms=5, label="training rows", **faint),
        Line2D([], [], ms=11, label="test row, wrong class", **ring),
    ]


def picture() -> Figure:
    """Wine in the plane, twice."""
    X, y = load_wine(return_X_y=True)
    data = train_test_split(X, y, test_size=0.3, stratify=y, random_state=0)
    X_train, _, y_train, _ = data
    euclidean = PCA(n_components=2).fit(X_train)
    learned = make_pipeline(LMNN(n_components=2), PCA()).fit(X_train, y_train)  # PCA only turns it

    figure = Figure(figsize=(10, 4.2), dpi=100, facecolor=PAPER, layout="constrained")
    figure.get_layout_engine().set(w_pad=0.12, h_pad=0.1, wspace=0.05)
    left, right = figure.subplots(1, 2)
    draw(left, euclidean.transform, "Euclidean distance", data)
    draw(right, learned.transform, "Distance learned by LMNN", data)
    for axes in (left, right):
        axes.set(facecolor=PAPER, xlabel="first direction", ylabel="second direction")
        axes.spines[["top", "right"]].set_visible(False)
    names = [f"cultivar {number}" for number in (1, 2, 3)]
    figure.legend(handles=legend_handles(names), loc="outside lower center", ncols=5, frameon=False)
    return figure


def main(target: Path) -> None:
    settings = {
        "axes.edgecolor": GREY,
        "axes.labelcolor": GREY,
        "text.color": INK,
        "xtick.color": GREY,
        "ytick.color": GREY,
    }
    with mpl.rc_context(settings):
        picture().savefig(target, metadata={"Software": None})
    print(f"wrote {target}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET)
