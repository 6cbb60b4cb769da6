"""Figures of the thesis on MVU, measured again: ``python -m benchmarks.papers.mvu_figures``.

A figure is saved when it is done, and a run leaves out what is saved.
"""

import sys
import time
import warnings
from dataclasses import astuple

from benchmarks import common
from benchmarks.papers import mvu_figures_page
from benchmarks.papers.mvu_figures_data import POINTS, SMOKE_POINTS, Sets
from benchmarks.papers.mvu_figures_measured import FIGURES
from benchmarks.papers.records import chosen, open_records, run_script


def measure_all(arguments):
    """Measure what is missing, save it, and say it."""
    records, stamp = open_records(arguments, "mvu_figures", [(name, "ours") for name in FIGURES])
    sets = Sets(SMOKE_POINTS if arguments.smoke else arguments.points, arguments.device)
    warnings.simplefilter("ignore")  # of graphs that are linked: the thesis links them, too
    for name in arguments.figures:
        if not records.missing(name, 0, ["ours"]):
            continue
        begin = time.process_time()
        try:
            claims, drawing = FIGURES[name](sets)
        except common.UnavailableError as error:
            print(f"Figure {name}: left out: {error}", flush=True)
            continue
        seconds = round(time.process_time() - begin, 2)
        entry = [0, seconds, [list(astuple(claim)) for claim in claims], drawing]
        records.add(name, "ours", entry, stamp)
        for claim in claims:
            print(f"Figure {name} {claim.what}: {claim.thesis} / {claim.ours}", flush=True)


def parse(arguments=None):
    parser = common.record_parser(
        "papers.mvu_figures", __doc__, f"{SMOKE_POINTS} points of each set; nothing is kept"
    )
    add = parser.add_argument
    add("--figures", type=chosen(FIGURES, {}), default=list(FIGURES), help=", ".join(FIGURES))
    add("--points", type=int, default=POINTS, help=f"at most so many; default: {POINTS}")
    add("--device", default="cpu", help="cpu or cuda, for MVU")
    return parser.parse_args(arguments)


def main(arguments=None):
    return run_script(
        *(parse(arguments), "mvu_figures", measure_all),
        *(mvu_figures_page.page, mvu_figures_page.draw),
    )


if __name__ == "__main__":
    sys.exit(main())
