"""The records as Markdown: docs/results/mvu_table32.md."""

from statistics import mean

from benchmarks.papers.records import best_rows, machines
from benchmarks.papers.table32_paper import AVERAGE, MEASURES, METHODS, PROTOCOLS, paper
from benchmarks.tables import markdown

INTRODUCTION = """\
# MVU: Table 3.2 of the thesis, measured again

`python -m benchmarks.papers.mvu_table32` writes this page from
`benchmarks/results/mvu_table32-*.json`; do not edit it. `benchmarks/README.md` says how to repeat
the runs. The thesis is Weinberger, Metric learning with convex optimization, University of
Pennsylvania, 2007.

How faithful embeddings in 2 or 3 dimensions are, by the measures of section 3.1.9 over 15
neighbours, 1 being perfect: *thesis / ours*; in bold the best of each. MVU keeps the lengths of all
edges of its graph; *(CG)* is variational MVU with refinement. PCA, kernel PCA (not in the thesis'
table), Isomap, Hessian LLE, Laplacian eigenmaps and LLE are scikit-learn's. A graph in several
pieces is linked by the thesis' rule for MVU, and as scikit-learn does it for the others. *Order* is
Spearman's rank correlation of thesis and ours: 1 if the methods come in the same order.
"""
OURS = """\
## How they were found

Seconds, the neighbours k of the graph, how the solver ended, its certified gap and the largest
relative change of a squared length before the projection; and the trustworthiness of Venna and
Kaski, which the thesis has not.
"""


def page(records):
    """docs/results/mvu_table32.md from the records of all machines."""
    rows = best_rows(records)
    if not rows:
        return INTRODUCTION
    known = [data for data in PROTOCOLS if any(data == name for name, _ in rows)]
    parts = [INTRODUCTION, _data(known)]
    parts += [_measure(measure, known, rows) for measure in MEASURES]
    return "\n".join([*parts, _found(known, rows), machines(records)])


def _data(known):
    lines = ["## Data\n"]
    for data in known:
        protocol = PROTOCOLS[data]
        note = " ".join(protocol.note.split())
        size = f"{protocol.points} points in {protocol.columns} dimensions"
        lines.append(f"- {protocol.title}: {size}, embedded in {protocol.components}. {note}")
    return "\n".join(lines) + "\n"


def ours(rows, measure, method, data):
    """Our number, or None; ``data`` may be AVERAGE, which is of all data sets."""
    if data == AVERAGE:
        found = [ours(rows, measure, method, each) for each in PROTOCOLS]
        return None if None in found else mean(found)
    row = rows.get((data, method))
    return None if row is None else row["splits"][0][2][measure]


def _measure(measure, known, rows):
    columns = [*known, *([AVERAGE] if len(known) == len(PROTOCOLS) else [])]
    cells = {
        data: {m: (paper(measure, m, data), ours(rows, measure, m, data)) for m in METHODS}
        for data in columns
    }
    best = {
        data: [max((pair[side] or 0) for pair in column.values()) for side in (0, 1)]
        for data, column in cells.items()
    }
    lines = [
        [title, *(_cell(cells[data][method], best[data]) for data in columns)]
        for method, title in METHODS.items()
    ]
    order = (agreement(list(cells[data].values())) for data in columns)
    lines.append(["order", *("" if value is None else f"{value:.2f}" for value in order)])
    header = ["", *(PROTOCOLS[data].title if data in PROTOCOLS else data for data in columns)]
    return f"## {MEASURES[measure]}\n\n" + markdown(header, lines)


def _cell(pair, best):
    shown = []
    for value, most in zip(pair, best, strict=True):
        text = "–" if value is None else f"{value:.3f}"
        shown.append(f"**{text}**" if value == most else text)
    return " / ".join(shown)


def agreement(pairs):
    """Spearman's rank correlation of the pairs that have both numbers, equal ones sharing ranks."""
    pairs = [pair for pair in pairs if None not in pair]
    if len(pairs) < 3:
        return None
    first, second = (_ranks(column) for column in zip(*pairs, strict=True))
    middle = (len(pairs) - 1) / 2
    product = sum((a - middle) * (b - middle) for a, b in zip(first, second, strict=True))
    sizes = [sum((a - middle) ** 2 for a in ranks) for ranks in (first, second)]
    return product / (sizes[0] * sizes[1]) ** 0.5 if min(sizes) > 0 else None


def _ranks(values):
    return [
        sum(other < value for other in values) + (sum(other == value for other in values) - 1) / 2
        for value in values
    ]


def _found(known, rows):
    lines = []
    for method, title in METHODS.items():
        for data in known:
            if (data, method) in rows:
                _, seconds, measures, remark = rows[data, method]["splits"][0]
                trust = measures["trustworthiness"]
                cells = [f"{seconds:.3g}", "" if trust is None else f"{trust:.3f}", remark]
                lines.append([title, PROTOCOLS[data].title, *cells])
    return OURS + "\n" + markdown(["", "data", "seconds", "trustworthiness", ""], lines)
