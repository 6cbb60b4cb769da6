"""The records as Markdown: ``python -m benchmarks.mvu`` writes docs/results/mvu.md."""

from benchmarks.mvu.programs import GAP, VIOLATION
from benchmarks.tables import digits, facts, markdown, seconds_cell

INTRODUCTION = f"""\
# MVU: speed and accuracy against general solvers

`python -m benchmarks.mvu --table` writes this page from `benchmarks/results/mvu-*.json`; do not
edit it. `benchmarks/README.md` says how to repeat the runs.

The programs are unfoldings of Swiss rolls of three coordinates and five dimensions of Gaussian
noise with deviation 0.05: roll400k4 has 400 points, and its edges join each point, its 4 nearest
neighbours, and these among each other; rolls whose graph is in several pieces are left out, and the
next seed is taken. Every solver gets the same edges and squared lengths, and solves in a process of
its own. CSDP is the papers' solver. It does best by far where K is centred by the objective, which
leaves the program an interior, with lengths divided by what they should be; *as in the thesis* is
with a constraint that the entries of K sum to zero. Clarabel and SCS get the dual, which has fewer
variables, with rows in the units that they do best with. All are asked for a relative gap of
{GAP:g}; tolerances of constraints are the solvers' own.

*Seconds* are those of solving, the shortest of five where it takes less than a second; of CSDP with
the reading and writing of its files, of nearfar with the search of the graph and the eigenvectors.
*Memory* is by how much the resident memory rose meanwhile, or that of the device; of CSDP that of
its process. The rest is computed in float64 by one evaluator that shares no code with any solver:
*variance* is the trace of K, centred and without its negative eigenvalues, *violation* the largest
relative change of a squared length, and *gap* the relative distance of the variance from the bound
that the solver's dual variables prove. In bold: gap and violation at most {GAP:g} and
{VIOLATION:g}. "over": it ran into the limit.
"""
SPEED_UP = """\
Seconds of CSDP against nearfar's, whatever the accuracy that they end with:
"""


def page(records):
    """docs/results/mvu.md from the records, one section a machine."""
    return "\n".join([INTRODUCTION, *(_section(record) for record in records)])


def _section(record):
    machine, runs = record["machine"], record["runs"]
    parts = [f"## {machine.get('device') or machine['cpu']}\n", facts(record, runs)]
    if "note" in record:
        parts.append(record["note"] + "\n")
    parts.append(_measurements(runs))
    ratios = [row for run in runs if run["program"] == "csdp" for row in _speed_up(run, runs)]
    if ratios:
        header = ["data", "CSDP", "its seconds", "nearfar's", "ratio"]
        parts.append(SPEED_UP + "\n" + markdown(header, ratios))
    return "\n".join(parts)


def _measurements(runs):
    header = ["data", "edges", "solver", "seconds", "iterations", "memory MB", "variance"]
    rows = []
    for run in runs:
        row = [
            run["data"],
            str(run["edges"]),
            run["method"],
            seconds_cell(run),
            digits(run.get("n_iter"), "{}"),
            digits(run.get("peak_device_mb", run.get("fit_mb")), "{:.0f}"),
            digits(run.get("objective"), "{:.8g}"),
            digits(run.get("gap"), "{:.1e}"),
            digits(run.get("violation"), "{:.1e}"),
            "" if "reason" in run else run["status"],
        ]
        rows.append([row[0], row[1], *_bold(row[2:], accurate(run))])
    return markdown([*header, "gap", "violation", "it says"], rows)


def _bold(cells, wanted):
    return [f"**{cell}**" if wanted and cell else cell for cell in cells]


def accurate(run):
    """Whether the evaluator finds the accuracy that is asked for."""
    gap, violation = run.get("gap"), run.get("violation")
    return gap is not None and gap <= GAP and violation <= VIOLATION


def _speed_up(theirs, runs):
    """The row of one run of CSDP, if nearfar has solved the same program."""
    for run in runs:
        if run["program"] == "nearfar" and run["data"] == theirs["data"] and "seconds" in run:
            ratio = ""
            if "seconds" in theirs:
                over = "over " if theirs["status"] == "killed" else ""
                ratio = f"{over}{theirs['seconds'] / run['seconds']:.3g} x"
            cells = [seconds_cell(theirs), digits(run["seconds"], "{:.3g}"), ratio]
            yield [run["data"], theirs["method"], *cells]
