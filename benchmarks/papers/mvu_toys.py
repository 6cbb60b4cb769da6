"""The thesis' small examples of MVU, measured again: ``python -m benchmarks.papers.mvu_toys``.

A toy is saved when it is done, and a run leaves out what is saved.
"""

import sys
import time
from dataclasses import astuple

from benchmarks import common
from benchmarks.papers.records import best_rows, chosen, machines, open_records, run_script
from benchmarks.papers.toys import FLAT, SEEN, SLACK, TOYS, Toy
from benchmarks.tables import markdown

INTRODUCTION = f"""\
# MVU: the thesis' small examples, measured again

`python -m benchmarks.papers.mvu_toys` writes this page from `benchmarks/results/mvu_toys-*.json`;
do not edit it. `benchmarks/README.md` says how to repeat the runs. The thesis is Weinberger, Metric
learning with convex optimization, University of Pennsylvania, 2007; it shows its examples in
pictures, so that their measurements are ours.

*Spectrum* is the share of the leading eigenvalues in the variance; two dimensions are those that
hold {FLAT:.0%} of it, and a dimension counts from {SEEN:.0%} on. *Harmonic mean* is that of local
continuity, trust and intersection over 15 neighbours. *Locks up*: the variance is that of the
points themselves. *Exact lengths* are the thesis'; by default MVU gives the points of a graph that
is stiff by itself, as those of points in two or three dimensions are, a little
[thickness](../algorithms/mvu.md#stiff-graphs). The price of slack is {SLACK} times the least that
keeps the variance finite.
The comb has 6 teeth, as long as 3 times their distance: teeth at right angles to the spine that
point away from each other take 5 dimensions, the spine one. The knot is a ribbon of 3 points across
and 539 along. Measures of least and largest variance are over as many neighbours as the graph has.
"""
MARKS = {True: "yes", False: "no", None: ""}


def measure_all(arguments):
    """Measure what is missing, save it, and say it; in a smoke run, what does not hold."""
    records, stamp = open_records(arguments, "mvu_toys", [(name, "ours") for name in TOYS])
    failures = []
    for name in arguments.toys:
        if not records.missing(name, 0, ["ours"]):
            continue
        begin, claims = time.perf_counter(), []
        for claim in TOYS[name][1](Toy(arguments.smoke, arguments.device)):
            claims.append(list(astuple(claim)))
            print(f"{name:<14} {claim.what}: {claim.thesis} / {claim.ours}", flush=True)
            if arguments.smoke and claim.holds is False:
                failures.append(f"{name}, {claim.what}: {claim.ours}, expected {claim.thesis}")
        records.add(name, "ours", [0, round(time.perf_counter() - begin, 2), claims], stamp)
    return failures


def page(records):
    """docs/results/mvu_toys.md from the records of all machines."""
    rows, parts = best_rows(records), [INTRODUCTION]
    for name, (title, _) in TOYS.items():
        if (name, "ours") in rows:
            _, seconds, claims = rows[name, "ours"]["splits"][0]
            lines = [[what, thesis, ours, MARKS[holds]] for what, thesis, ours, holds in claims]
            table = markdown(["", "thesis", "ours", "as in the thesis"], lines)
            parts.append(f"## {title}\n\n{table}\n{seconds:.3g} s in all.\n")
    return "\n".join([*parts, machines(records)] if rows else parts)


def parse(arguments=None):
    parser = common.record_parser(
        "papers.mvu_toys", __doc__, "small ones; fails if a claim does not hold"
    )
    add = parser.add_argument
    add("--toys", type=chosen(TOYS, {}), default=list(TOYS), help=f"of {','.join(TOYS)}")
    add("--device", default="cpu", help="cpu or cuda, for MVU of points")
    return parser.parse_args(arguments)


def main(arguments=None):
    return run_script(parse(arguments), "mvu_toys", measure_all, page)


if __name__ == "__main__":
    sys.exit(main())
