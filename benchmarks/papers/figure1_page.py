"""The records as Markdown and as a picture: docs/results/mcml_figure1.md."""

import math
from statistics import mean, stdev

from benchmarks.papers.figure1_data import ALL, NAMES, NOTES
from benchmarks.papers.records import best_rows, machines
from benchmarks.tables import markdown

INTRODUCTION = """\
# MCML: Figures 1 and 2 of the paper, measured again

`python -m benchmarks.papers.mcml_figure1` writes this page and its picture from
`benchmarks/results/mcml_figure1-*.json`; do not edit it. `benchmarks/README.md` says how to repeat
the runs. The paper is Globerson & Roweis, Metric learning by collapsing classes, NIPS 2005; it has
curves without numbers, so that only their course can be compared.

1-NN test errors in percent on random splits (40 in the paper; the tables say how many here), 70 %
for training (1000 points of it at most) and 30 % for testing: the mean and its standard error. A
metric is learned once, and projected on its leading directions, as in section 3; *NMCML* and *NCA*
learn a map of so many rows each time (section 5.1). *PCAW* is PCA with whitening; *LDA* has one
dimension less than there are classes, and *MMC*, the method of Xing et al., seldom many: where
there are no more the errors stay. The kernel of *KMCML* is Gaussian; its width and the weight of
the trace are chosen by 5-fold cross validation on the training part of the first split. All others
learn with shrinkage 0, the paper's program. KMCML, NMCML and NCA are measured where there are fewer
than 1000 training points. Features are
standardised by the training part, pixels are not. The full metric of MCML does not depend on the
scale of the features, but which of its directions lead does: *MCML, whitened* (not in the paper)
learns from the points of PCAW. The paper's Yale faces (YALE) are missing: the file is not at hand,
and Extended Yale B, which is, has other images.
"""
TITLES = {
    "mcml": "MCML",
    "mcml_whitened": "MCML, whitened",
    "pca": "PCAW",
    "lda": "LDA",
    "mmc": "MMC",
    "kmcml": "KMCML",
    "nmcml": "NMCML",
    "nca": "NCA",
}
COMPARED = """\
## MCML against the others

In how many of all data sets and dimensions MCML's error is lower by more than two standard errors
of the difference over splits, about equal, and higher by more than two.
"""
SPECTRA = """\
## Spectra

The share of each leading eigenvalue in the trace of MCML's metric, mean over splits (insets of
Fig. 2).
"""
LEADING = 8  # eigenvalues that are shown
# Okabe & Ito: told apart by the colour-blind
STYLES = {
    "mcml": ("#D55E00", "o", "-"),
    "mcml_whitened": ("#D55E00", "+", "--"),
    "kmcml": ("#E69F00", "s", "-"),
    "pca": ("#0072B2", "^", "-"),
    "lda": ("#009E73", "v", "-"),
    "mmc": ("#CC79A7", "D", "-"),
    "nmcml": ("#D55E00", "o", ":"),
    "nca": ("#777777", "x", ":"),
}


def page(records, picture):
    """The page from the records of all machines; ``picture`` is where the picture is from there."""
    rows = best_rows(records)
    if not rows:
        return INTRODUCTION
    parts = [INTRODUCTION, f"![Errors by projection dimension]({picture})\n", _compared(rows)]
    parts += [_section(data, rows) for data in NAMES if _methods(data, rows)]
    return "\n".join([*parts, _spectra(rows), machines(records)])


def _methods(data, rows):
    return [method for method in TITLES if (data, method) in rows]


def curve(row):
    """Dimensions, mean errors and their standard errors, both in percent."""
    by_dimension = {}
    for _, _, errors, *_ in row["splits"]:
        for q, error in errors.items():
            by_dimension.setdefault(int(q), []).append(100 * error)
    return [(q, *_mean_and_error(values)) for q, values in sorted(by_dimension.items())]


def _mean_and_error(values):
    spread = stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return mean(values), spread


def verdicts(ours, theirs):
    """How often ours is lower, about equal and higher, by the same splits of two rows."""
    known = {split: errors for split, _, errors, *_ in theirs["splits"]}
    differences = {}
    for split, _, errors, *_ in ours["splits"]:
        for q in errors.keys() & known.get(split, {}).keys():
            differences.setdefault(q, []).append(errors[q] - known[split][q])
    counts = [0, 0, 0]
    for values in differences.values():
        middle, spread = _mean_and_error(values)
        counts[1 if abs(middle) <= 2 * spread else 0 if middle < 0 else 2] += 1
    return counts


def _compared(rows):
    lines = []
    for method, title in TITLES.items():
        shared = [data for data in NAMES if {(data, "mcml"), (data, method)} <= rows.keys()]
        if method != "mcml" and shared:
            counts = (verdicts(rows[data, "mcml"], rows[data, method]) for data in shared)
            lines.append([title, *(str(sum(column)) for column in zip(*counts, strict=True))])
    return COMPARED + "\n" + markdown(["", "MCML lower", "about equal", "MCML higher"], lines)


def _section(data, rows):
    methods = _methods(data, rows)
    curves = {method: {q: cell for q, *cell in curve(rows[data, method])} for method in methods}
    dimensions = sorted({q for found in curves.values() for q in found})
    lines = [[str(q), *(_cell(curves[method].get(q)) for method in methods)] for q in dimensions]
    seconds = [mean(split[1] for split in rows[data, method]["splits"]) for method in methods]
    lines.append(["seconds", *(f"{value:.2g}" for value in seconds)])
    lines.append(["splits", *(str(len(rows[data, method]["splits"])) for method in methods)])
    header = ["dimensions", *(TITLES[method] for method in methods)]
    return f"## {data}\n\n{NOTES[data]}\n\n" + markdown(header, lines)


def _cell(found):
    return "" if found is None else "{:.1f} ± {:.1f}".format(*found)


def _spectra(rows):
    lines = []
    for data in NAMES:
        if (data, "mcml") in rows:
            found = [spectrum for *_, spectrum in rows[data, "mcml"]["splits"]]
            shares = [mean(s[i] if i < len(s) else 0 for s in found) for i in range(LEADING)]
            lines.append([data, *(f"{share:.3f}" for share in shares)])
    return SPECTRA + "\n" + markdown(["", *map(str, range(1, LEADING + 1))], lines)


def draw(records, target):
    """The curves of all data sets, one panel each."""
    from matplotlib.figure import Figure

    rows = best_rows(records)
    names = [data for data in NAMES if _methods(data, rows)]
    figure = Figure(figsize=(12, 6.2), dpi=100, layout="constrained")
    panels = figure.subplots(2, 4).ravel()
    handles = {}
    for axes, data in zip(panels, names, strict=False):
        for method in _methods(data, rows):
            colour, marker, line = STYLES[method]
            style = {"color": colour, "marker": marker, "ls": line, "ms": 4, "lw": 1.4}
            handles[method] = axes.errorbar(*zip(*curve(rows[data, method]), strict=True), **style)
        axes.set_title(data, loc="left", fontweight="bold")
        axes.set(xlabel="projection dimensions", ylabel="1-NN error in %", ylim=(0, None))
        axes.spines[["top", "right"]].set_visible(False)
        if axes.get_xlim()[1] > ALL + 1:
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_formatter("{x:g}")
    for axes in panels[len(names) :]:
        axes.set_axis_off()
    order = [method for method in STYLES if method in handles]
    titles = [TITLES[method] for method in order]
    panels[-1].legend([handles[m] for m in order], titles, loc="center", frameon=False)
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, metadata={"Software": None})
