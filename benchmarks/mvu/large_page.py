"""The records as Markdown: ``python -m benchmarks.mvu.large`` writes docs/results/mvu_large.md."""

from benchmarks.tables import digits, markdown

INTRODUCTION = """\
# Unfolding and locating many points

`python -m benchmarks.mvu.large --table` writes this page from
`benchmarks/results/mvu_large-*.json`; do not edit it. `benchmarks/README.md` says how to repeat the
runs. The experiments are those of section 3.1.8 of Weinberger, *Metric learning with convex
optimization*, University of Pennsylvania, 2007; its times are of a desktop computer of that year,
with two cores.

*Seconds* are those of `fit`, with the search of the graph; *CPU* is the time of all its threads,
and *load* how many programs were at work when it began: where these are more than cores, seconds
count waiting. *Memory* is by how much the resident memory rose. Misfit, objective and errors are
computed by a judge that shares no code with nearfar: *misfit* is the mean over edges of (squared
length found − squared length given)², in units of the mean squared length; *errors* are distances
to the true places, after the best rigid motion if there are no anchors, in per cent of the width of
the field or the length of the unrolled sheet. The judge's objectives agree with `objective_`, or
the command ends with an error.
"""
ROLLS = """\
### Swiss rolls and digits

Swiss rolls with five dimensions of noise, 6 neighbours with the edges among them, and the twos and
threes of MNIST, 5 neighbours (Figures 3.17 and 3.18): `VariationalMVU` on 15 eigenvectors of the
Laplacian or of LLE, or on 10 as in the thesis, and `LandmarkMVU` with 20 landmarks, all with
refinement. *Gap of all* is how far the points are proved to be from the best ones of any dimension,
before the projection on the plane and after it; with *gap_tol* they were to come so near before it.
Of two objectives on the same data the larger is the better. The denser a roll, the more
of the distance between neighbours is noise, which makes the unrolled sheet larger than the true
one: so errors grow with the number of points.
"""
SOLVERS = """\
### Both solvers of MVU

`MVU` on Swiss rolls with 5 neighbours, in its three forms (slack weight 0.999): the interior point
method to 1e-6, and the low-rank solver to 1e-2 (5e-2 for "equal"), or as far as it gets in 100
iterations. Objectives are in units of the data. The optimum lies between the bound and the
objective, less what lengths that are not quite kept may have gained; the command ends with an error
if these intervals of the two solvers do not meet.
"""

FIELDS = """\
### Sensors

20000 nodes in a unit square, each with up to 20 distances within a radius of 0.06, and the largest
cities of the continental United States (998 of the thesis' 1097), with all distances within a tenth
of the width of the country; every distance has a uniform error of up to 10 % (Figures 3.19 and
3.20). *Program* is the semidefinite program on 10 eigenvectors alone, *random start* a descent
from random places (SciPy's L-BFGS, 100 iterations). *Expected* is the median error that
`SensorLocalization` itself states, *pinned* the share of nodes that it says are pinned down.
"""
COUNTS = """\
### How many eigenvectors

The program alone, on the map of cities, as in Figure 3.21: more functions fit better and cost more.
"""
THESIS = {  # seconds
    "roll10000 laplacian, 10": "30",
    "roll10000 lle": "30",
    "digits laplacian": "309, with LLE",
    "square20000 program": "19",
    "square20000 sensors": "71",
    "cities program": "3",
    "cities sensors": "5",
}
NAMES = {"variational": "VariationalMVU", "landmark": "LandmarkMVU"}


def page(records):
    """docs/results/mvu_large.md from the records, one section a machine."""
    return "\n".join([INTRODUCTION, *(_section(record) for record in records)])


def _section(record):
    machine, rows = record["machine"], record["rows"]
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    commits, dates = (sorted({row[key] for row in rows}) for key in ("commit", "date"))
    parts = [
        f"## {machine.get('device', machine['cpu'])}\n",
        f"{machine['cores']} cores, {record['threads']} threads, {machine['memory_gb']} GB, "
        f"{machine['system']}; {versions}; commit {', '.join(commits)}; {dates[0]} to "
        f"{dates[-1]}.\n",
        *([record["note"] + "\n"] if "note" in record else []),
    ]
    counted = [row for row in rows if row["name"].endswith("eigenvectors")]
    fields = [row for row in rows if _is_field(row) and row not in counted]
    exact = [row for row in rows if row["method"] == "mvu"]
    others = [row for row in rows if not _is_field(row) and row not in exact]
    for text, some, table in (
        (ROLLS, others, _unfoldings),
        (SOLVERS, exact, _solvers),
        (FIELDS, fields, _fields),
        (COUNTS, counted, _counts),
    ):
        if some:
            parts += [text, table(some)]
    return "\n".join(parts)


def _is_field(row):
    return row["data"].startswith(("square", "cities"))


def _shared(row):
    return [
        digits(row["points"], "{}"),
        digits(row["edges"], "{}"),
        digits(row["seconds"], "{:.3g}"),
        digits(row["cpu_seconds"], "{:.3g}"),
        digits(row["load"], "{:.0f}"),
        THESIS.get(row["name"], ""),
        digits(row["fit_mb"], "{:.0f}"),
    ]


SHARED = ["points", "edges", "seconds", "CPU", "load", "thesis, s", "memory MB"]


def _errors(row):
    names = ("median_error", "q95_error", "largest_error")
    return [digits(row.get(name), "{:.3g}") for name in names]


def _unfoldings(rows):
    header = ["data", "by", *SHARED, "kB a point", "objective", "gap of the program"]
    header += ["gap of all", "in the plane"]
    lines = []
    for row in rows:
        basis = row["options"].get("basis", "laplacian")
        count = row["options"].get("n_eigenvectors")
        by = NAMES[row["method"]] + (f", {basis}" if row["method"] == "variational" else "")
        by += f", {count}" if count else ""
        if "gap_tol" in row["options"]:
            by += f", gap_tol={row['options']['gap_tol']:g}"
        lines.append(
            [
                row["data"],
                by,
                *_shared(row),
                digits(1000 * row["fit_mb"] / row["points"], "{:.1f}"),
                digits(row["objective"], "{:.5g}"),
                digits(row["gap"], "{:.0e}"),
                digits(row.get("whole_gap"), "{:.1e}"),
                digits(row.get("embedding_gap"), "{:.1e}"),
                *_errors(row)[:2],
            ]
        )
    return markdown([*header, "median error %", "95 %"], lines)


def _solvers(rows):
    header = ["data", "constraints", "solver", "points", "edges", "seconds", "CPU", "load"]
    lines = [
        [
            row["data"],
            row["options"]["constraints"],
            row["options"]["solver"],
            *(digits(row[name], "{}") for name in ("points", "edges")),
            *(digits(row[name], "{:.3g}") for name in ("seconds", "cpu_seconds")),
            digits(row["load"], "{:.0f}"),
            digits(row["fit_mb"], "{:.0f}"),
            digits(row["objective"], "{:.6g}"),
            digits(row["bound"], "{:.6g}"),
            digits(row["embedding_gap"], "{:.1e}"),
        ]
        for row in rows
    ]
    return markdown([*header, "memory MB", "objective", "bound", "gap"], lines)


def _fields(rows):
    header = ["data", "by", *SHARED, "misfit", "median error %", "95 %", "largest"]
    lines = [
        [
            row["data"],
            row["name"].removeprefix(row["data"]).strip(),
            *_shared(row),
            digits(row["misfit_per_edge"], "{:.3g}"),
            *_errors(row),
            digits(row.get("expected_error"), "{:.3g}"),
            digits(row.get("pinned"), "{:.1%}"),
        ]
        for row in rows
    ]
    return markdown([*header, "expected", "pinned"], lines)


def _counts(rows):
    lines = [
        [
            str(row["options"]["n_eigenvectors"]),
            digits(row["misfit_per_edge"], "{:.4g}"),
            digits(row["seconds"], "{:.2g}"),
            digits(row["gap"], "{:.0e}"),
            digits(row["median_error"], "{:.3g}"),
        ]
        for row in rows
    ]
    return markdown(["eigenvectors", "misfit", "seconds", "gap", "median error %"], lines)
