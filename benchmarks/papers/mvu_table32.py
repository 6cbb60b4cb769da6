"""Table 3.2 of the thesis, measured again: ``python -m benchmarks.papers.mvu_table32``.

Every embedding's measures are saved as soon as they are known, and a run leaves out what is saved.
"""

import sys
import time

from benchmarks import common
from benchmarks.papers import table32_methods, table32_page
from benchmarks.papers.records import available, chosen, open_records, run_script
from benchmarks.papers.table32_methods import GROUPS, METHODS, Result, measure
from benchmarks.papers.table32_paper import PROTOCOLS

SMOKE = {"data": ["swiss_roll"], "points": 150}


def measure_all(arguments):
    """Measure what is missing, save it, and say it; what has failed."""
    deadline = time.time() + arguments.max_seconds
    order = [(data, method) for data in PROTOCOLS for method in METHODS]
    records, stamp = open_records(arguments, "mvu_table32", order)
    failures = []
    for data in available(arguments.data, table32_methods.check):
        for method in records.missing(data, 0, arguments.methods):
            if time.time() > deadline:
                return failures
            found = measure(data, method, arguments.device, arguments.points)
            place = f"{data:<11} {method:<29}"
            if isinstance(found, Result):
                measures = {name: round_or_none(value) for name, value in found.measures.items()}
                entry = [0, round(found.seconds, 4), measures, found.remark]
                records.add(data, method, entry, stamp)
                shown = " ".join(f"{value:.3f}" for value in measures.values() if value is not None)
                print(f"{place} {found.seconds:8.2f} s  {shown}  {found.remark}", flush=True)
            else:
                failures.append(f"{place} failed: {found}")
                print(failures[-1], flush=True)
    return failures


def round_or_none(value):
    return None if value is None else round(value, 6)


def parse(arguments=None):
    parser = common.record_parser(
        "papers.mvu_table32", __doc__, "a small Swiss roll; nothing is kept"
    )
    add = parser.add_argument
    data, methods = chosen(PROTOCOLS, {}), chosen(METHODS, GROUPS)
    add("--data", type=data, default=list(PROTOCOLS), help=f"of {','.join(PROTOCOLS)}")
    names = ", ".join([*GROUPS, *METHODS])
    add("--methods", type=methods, default=list(METHODS), help=f"of {names}; default: all")
    add("--device", default="cpu", help="cpu or cuda, for nearfar")
    add("--points", type=int, help="at most so many of each data set; nothing is kept")
    add("--max-seconds", type=float, default=float("inf"), help="then nothing new is begun")
    parsed = parser.parse_args(arguments)
    if parsed.smoke:
        parsed.data, parsed.points = SMOKE["data"], SMOKE["points"]
    parsed.smoke = parsed.points is not None  # nothing is kept
    return parsed


def main(arguments=None):
    return run_script(parse(arguments), "mvu_table32", measure_all, table32_page.page)


if __name__ == "__main__":
    sys.exit(main())
