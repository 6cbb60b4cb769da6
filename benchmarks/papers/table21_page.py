"""The records as Markdown: docs/results/thesis_table21.md."""

from statistics import mean, stdev

from benchmarks.papers import table21_methods, table21_paper
from benchmarks.papers.records import best_rows, machines
from benchmarks.papers.table1_paper import PROTOCOLS
from benchmarks.papers.table21_paper import DATA, METHODS, VALIDATED
from benchmarks.tables import markdown

INTRODUCTION = """\
# LMNN: Table 2.1 of the thesis, measured again

`python -m benchmarks.papers.thesis_table21` writes this page from
`benchmarks/results/thesis_table21-*.json`; do not edit it. `benchmarks/README.md` says how to
repeat the runs. The thesis is Weinberger, Metric learning with convex optimization, University of
Pennsylvania, 2007.

Unlike [Table 1 of the later paper](lmnn_table1.md), where k = 3 everywhere, the number k of target
neighbours was set by cross validation here; all counts of active constraints in that table are
those of this one. Here k is chosen once for a data set: by the mean error over its splits on 30 %
of the training rows, which are held out, with as many votes as targets. So is the number of passes
(MUL-LMNN), up to 8. Where the thesis stops learning early on held-out rows
({validated}), so do these fits, each k with its own stop, and passes
end when the held-out error falls no more. The
program is that of the thesis (`shrinkage=0`, mu = 0.5). *Train* is the leave-one-out error of the
training points, *energy* the error of energy classification by the
[rule of the authors' program](../algorithms/energy.md), and *active* the number of triplets
(i, j, l) with D(i, l) < 1 + D(i, j) at the end. Data sets are made as for
[Table 1](lmnn_table1.md), but Yale faces, which have 200 components with the illumination, as in
the thesis. Its SVM is on that page, too.

Each cell: *thesis / ours*, errors in percent, means over splits. Bold: at or below the thesis'.
"""
SEEN = """\
- **balance**: with k by validation the thesis' errors of LMNN, of one pass and of several, come out
  within a standard error, and so does the size of its count of active constraints; with k = 3 the
  error is twice as large ([Table 1](lmnn_table1.md)).
- **wine**: the optimum of the thesis' program errs less than half as often as the thesis says, and
  has a small part of its active constraints. The thesis' solver may not have reached it, since the
  features differ in scale by a factor of a thousand.
- **Olivetti** after LDA: the optimum in the 39 directions of LDA fits the training images without
  an error, in the thesis and here, and errs on more than a fifth of the others.
- **isolet**: ten neighbours have five times the thesis' active constraints, so that its k was
  smaller; the errors of LMNN are the thesis' within a standard error (0.47). Held-out rows like 5
  and 10 about as much: their errors differ by less than the draw of the rows changes them. With
  ten, several passes and a metric for each letter err more often than the thesis': the passes leave
  a tenth of a percent of training errors and fit the training speakers too well.
- **20news**, where articles, words and weights are not the thesis': one metric errs as there within
  a standard error, and less often by energy than by votes, in the thesis and here. After LDA
  the held-out rows stop the learning at once, so that LDA-LMNN errs as LDA.
- **letters**: held-out rows like one neighbour a little better than three, and with one there are a
  seventh of the thesis' active constraints. The errors of one metric, of several passes and of
  several metrics are the thesis' within two standard errors.
- **iris**: held-out rows choose more neighbours than the paper's three, and every row with a
  learned metric errs less than the thesis'.
"""
UNMEASURED = """\
The same command measures what is missing.
"""
COLUMNS = ("train", "test", "energy", "active")
PAPER = (table21_paper.TRAIN, table21_paper.TEST, table21_paper.ENERGY, table21_paper.ACTIVE)


def page(records):
    """docs/results/thesis_table21.md from the records of all machines."""
    rows = best_rows(records)
    names = " and ".join([", ".join(VALIDATED[:-1]), VALIDATED[-1]])
    parts = [INTRODUCTION.format(validated=names)]
    shown = [data for data in DATA if any((data, method) in rows for method in METHODS)]
    if shown:
        parts += [_overview(rows, shown), _measured(rows, shown), SEEN, *_unmeasured(rows)]
        parts += [_section(rows, data) for data in shown]
        parts.append(machines(records))
    return "\n".join(parts)


def figures(row):
    """Mean train, test and energy error in percent and mean active constraints, or None."""
    splits = row["splits"]
    errors = [100 * mean(split[i] for split in splits) for i in (2, 3, 4)]
    counts = [split[5] for split in splits if split[5] is not None]
    return [*errors, mean(counts) if counts else None]


def _overview(rows, shown):
    lines = []
    for method, title in METHODS.items():
        cells = []
        for data in shown:
            row = rows.get((data, method))
            cells.append(_cell(method, data, 1, None if row is None else figures(row)))
        lines.append([title, *cells])
    return "## Test errors\n\n" + markdown(["", *shown], lines)


def _measured(rows, shown):
    """A sentence on the splits that are measured."""
    counts = []
    for data in shown:
        most = max(len(rows[data, m]["splits"]) for m in METHODS if (data, m) in rows)
        counts.append(f"{data} {most} ({PROTOCOLS[data].splits})")
    return f"Splits here, and in brackets the thesis': {', '.join(counts)}.\n"


def _unmeasured(rows):
    """A section on rows that no machine has measured, in a list; empty if there are none."""
    missing = []
    for data in DATA:
        titles = [title for method, title in METHODS.items() if (data, method) not in rows]
        if titles:
            everything = len(titles) == len(METHODS)
            names = "all rows" if everything else ", ".join(titles)
            known = _choice(rows, data) if everything else ""  # else in the section of the data set
            missing.append(f"- **{data}**: {names}. {known}".strip())
    return ["\n".join(["## Not measured\n", UNMEASURED, *missing, ""])] if missing else []


def _cell(method, data, column, ours):
    theirs = table21_paper.figure(PAPER[column], method, data)
    if theirs is None:
        return ""
    form = "{:.0f}" if column == 3 else "{:.2f}"
    text = "–" if ours is None or ours[column] is None else form.format(ours[column])
    bold = column < 3 and text != "–" and float(text) <= theirs
    return f"{form.format(theirs)} / " + (f"**{text}**" if bold else text)


def _section(rows, data):
    lines = []
    for method, title in METHODS.items():
        row = rows.get((data, method))
        if row is None:
            continue
        ours, splits = figures(row), row["splits"]
        cells = [_cell(method, data, column, ours) for column in range(4)]
        spread = ""
        if len(splits) > 1:
            spread = f"{100 * stdev(s[3] for s in splits) / len(splits) ** 0.5:.2f}"
        seconds = f"{mean(split[6] for split in splits):.3g}"
        lines.append([title, *cells, spread, str(len(splits)), seconds, _remarks(splits)])
    header = ["", *COLUMNS, "± of test", "splits", "seconds", ""]
    return f"## {data}\n\n{_choice(rows, data)}\n\n" + markdown(header, lines)


def _choice(rows, data):
    """A sentence on k and on the number of passes."""
    parts = []
    for name, text, chosen in (
        ("k", "k", table21_methods.chosen_k),
        ("n_passes", "passes", table21_methods.chosen_passes),
    ):
        row = rows.get((data, name))
        if row is None:
            continue
        splits = row["splits"]
        errors = [s[1] if name == "k" else dict(enumerate(s[1], 1)) for s in splits]
        keys = sorted({key for split in errors for key in split}, key=int)
        means = ", ".join(
            f"{key}: {100 * mean(split.get(key, max(split.values())) for split in errors):.2f}"
            for key in keys
        )
        parts.append(f"Held-out error by {text}: {means}. Chosen: {chosen(splits)}.")
    return " ".join(parts)


def _remarks(splits):
    found = sorted({split[7] for split in splits if split[7]})
    return ", ".join(found[:4])
