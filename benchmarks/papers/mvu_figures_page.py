"""The records as Markdown and pictures: docs/results/mvu_figures.md."""

import numpy as np

from benchmarks import pictures
from benchmarks.papers.mvu_figures_data import POINTS
from benchmarks.papers.mvu_figures_measured import FIGURES, TRIALS
from benchmarks.papers.records import best_rows, machines
from benchmarks.tables import markdown

INTRODUCTION = f"""\
# MVU: figures of the thesis, measured again

`python -m benchmarks.papers.mvu_figures` writes this page from
`benchmarks/results/mvu_figures-*.json`; do not edit it. `benchmarks/README.md` says how to repeat
the runs. The thesis is Weinberger, Metric learning with convex optimization, University of
Pennsylvania, 2007. It shows pictures, so that its side of the tables is what its text says of them.

These runs are smaller than the thesis': at most {POINTS} points of a set, and {TRIALS} trials of
Figure 3.23 instead of ten. Neighbourhoods have 4 points, as in the thesis, 5 for the Olivetti
faces, as in its Table 3.2, and 3 for the teapots, of which a reduced set of 100 grey images is at
hand: among 4 neighbours of these there are mirror images. *Dimensions of 95 %*: the leading
eigenvalues that hold 95 % of the variance.
"""
TITLES = {
    "3.11": "Handwritten twos",
    "3.12": "Noisy globes",
    "3.13": "Faces, with inequalities",
    "3.22": "Measures by the number of dimensions",
    "3.23": "Consistency of new points",
    "3.31": "Isomap of the teapots",
    "3.32": "Kernel PCA of the Swiss roll",
    "3.33": "Kernel PCA of the teapots",
    "3.34": "The Gaussian kernel",
    "3.35": "Kernel PCA of twos and threes",
    "3.36": "A plane through the Swiss roll",
    "3.37": "Negative eigenvalues of Isomap",
}
NOTES = {
    "3.12": "The 900 noisy colour images of a rotating globe are not at hand: this figure is not"
    " measured.",
    "3.23": "How far the places of new points differ between two unfoldings, over how far those"
    " of MVU itself differ (equation 3.34). The Swiss roll has three times as many points as other"
    " sets, since a third of it has to be dense enough to unfold: with as many as the others its"
    " inconsistency was 0.75, below theirs.",
    "3.34": "The width is the root mean square distance of the 4 nearest, as in the thesis. The 100"
    " teapots are four times as sparse as the thesis' 400, so that this width covers most of them.",
    "3.36": "Points on one side of a plane against the others; a linear support vector machine.",
    "3.37": "The 20 eigenvalues of largest magnitude. Isomap has as many neighbours as keep its"
    " graph in one piece, MVU links the pieces.",
}
PICTURES = {
    "images": ("3.11", "3.13"),
    "measures": ("3.22", "3.23"),
    "kernels": ("3.31", "3.32", "3.33", "3.35"),
    "planes": ("3.34", "3.36", "3.37"),
}
MARKS = {True: "yes", False: "**no**", None: ""}


def page(records):
    """docs/results/mvu_figures.md from the records of all machines."""
    rows, parts = best_rows(records), [INTRODUCTION]
    if not rows:
        return INTRODUCTION
    for name in FIGURES:
        parts.append(f"## Figure {name}: {TITLES[name]}\n")
        if name in NOTES:
            parts.append(NOTES[name] + "\n")
        if (name, "ours") in rows:
            _, seconds, claims, _ = rows[name, "ours"]["splits"][0]
            lines = [[what, thesis, ours, MARKS[holds]] for what, thesis, ours, holds in claims]
            parts.append(markdown(["", "thesis", "ours", "as in the thesis"], lines))
            parts.append(f"{seconds:.3g} s of the processor.\n")
        for picture, shown in PICTURES.items():
            if name == shown[-1] and any((figure, "ours") in rows for figure in shown):
                parts.append(
                    f"![Figures {', '.join(shown)}](../images/mvu_figures_{picture}.png)\n"
                )
    return "\n".join([*parts, machines(records)])


def draw(records, folder):
    """Four pictures, of the figures that are measured."""
    rows = best_rows(records)
    drawn = {name: row["splits"][0][3] for (name, _), row in rows.items()}
    for picture, shown in PICTURES.items():
        present = [name for name in shown if name in drawn]
        if present:
            figure = globals()[f"_{picture}"](present, drawn)
            pictures.save(figure, folder / f"mvu_figures_{picture}.png")


def _images(names, drawn):
    """Maps with images, and spectra."""
    figure, grid = pictures.panels(1, 2 * len(names), (3.0, 2.8))
    for (axes, beside), name in zip(grid[0].reshape(-1, 2), names, strict=True):
        Y = np.array(drawn[name]["map"])
        _scattered(axes, Y, f"thesis {name}: {TITLES[name].lower()}", c="#bbbbbb")
        chosen, images, shape = drawn[name]["thumbnails"]
        height = 0.16 * np.ptp(Y[:, 1])
        width = height * shape[1] / shape[0]
        for row, image in zip(chosen, images, strict=True):
            x, y = Y[row]
            extent = (x - width / 2, x + width / 2, y - height / 2, y + height / 2)
            picture = np.reshape(image, shape)
            axes.imshow(picture, cmap="gray", extent=extent, zorder=2, aspect="equal")
        axes.set_aspect("equal", "datalim")
        axes.autoscale_view()
        _bars(beside, drawn[name]["bars"], "share of the variance")
    return figure


def _measures(names, drawn):
    """Curves of 3.22 and bars of 3.23."""
    panels = [
        (name, title) for name in names for title in (drawn[name] if name == "3.22" else [""])
    ]
    figure, grid = pictures.panels(1, len(panels), (2.9, 2.4))
    for axes, (name, title) in zip(grid[0], panels, strict=True):
        if name == "3.22":
            used, curves = drawn[name][title]
            for colour, (label, curve) in zip(pictures.CLASSES, curves.items(), strict=False):
                axes.plot(used, curve, color=colour, marker="o", ms=2.5, lw=1.2, label=label)
            axes.legend(fontsize=6.5, frameon=False)
            pictures.lines(axes, f"thesis 3.22: {title}", "dimensions r", "")
            axes.set_ylim(0, 1.02)
        else:
            _bars(axes, _by_method(drawn[name]), "", labels=list(drawn[name]))
            axes.axhline(1, color="#222222", lw=0.8)
            pictures.lines(axes, "thesis 3.23: new points", "", "relative inconsistency")
    return figure


def _by_method(found):
    columns = zip(*found.values(), strict=True)
    return dict(zip(("sdp", "sdp+cg", "lle"), columns, strict=True))


def _kernels(names, drawn):
    """Maps and spectra by kernel, a row for each figure."""
    figure, grid = pictures.panels(len(names), 5, (1.9, 1.9))
    for line, name in zip(grid, names, strict=True):
        for axes, (kernel, places) in zip(line, drawn[name]["maps"].items(), strict=False):
            Y = np.array(places)
            _scattered(axes, Y, kernel, c=drawn[name]["colours"])
        for axes in line[len(drawn[name]["maps"]) : -1]:
            axes.set_axis_off()
        _bars(line[-1], drawn[name]["bars"], "share of the variance")
        line[0].set_ylabel(f"thesis {name}", fontsize=8)
    return figure


def _planes(names, drawn):
    """3.34 in three components, 3.36, and the eigenvalues of 3.37."""
    figure, grid = pictures.panels(2, 4, (2.3, 2.0))
    panels = iter(grid.ravel())
    for name in names:
        for title, places in drawn[name].get("maps", {}).items():
            Y, axes = np.array(places), next(panels)
            classes = drawn[name].get("classes")
            colours = Y[:, -1] if classes is None else classes
            _scattered(axes, Y, f"{name}: {title}", c=colours)
        for title, values in drawn[name].get("bars", {}).items():
            axes = next(panels)
            axes.bar(np.arange(1, len(values) + 1), values, color=pictures.CLASSES[0])
            axes.axhline(0, color="#222222", lw=0.8)
            pictures.lines(axes, f"{name}: {title}", "", "")
    for axes in panels:
        axes.set_axis_off()
    return figure


def _scattered(axes, Y, title, c=None):
    colours = {"c": c} if isinstance(c, str) or c is None else {"c": c, "cmap": "viridis"}
    axes.scatter(Y[:, 0], Y[:, 1], s=4, linewidths=0, **colours)
    axes.set_aspect("equal", "datalim")
    axes.set_title(title, loc="left", fontsize=8)
    pictures.bare(axes)


def _bars(axes, series, title, labels=None):
    """Bars side by side, a colour for each of the series."""
    width = 0.8 / len(series)
    for index, (label, values) in enumerate(series.items()):
        place = np.arange(1, len(values) + 1) + (index - (len(series) - 1) / 2) * width
        axes.bar(place, values, width, color=pictures.CLASSES[index], label=label)
    if labels is not None:
        axes.set_xticks(range(1, len(labels) + 1), labels)
    axes.legend(fontsize=6.5, frameon=False)
    pictures.lines(axes, "", "", title)
