"""Table 3.3 of the thesis, measured again: ``python -m benchmarks.papers.mvu_table33``.

Every split is saved as soon as it is measured, and a run leaves out what is saved.
"""

import sys
import time

from benchmarks import common
from benchmarks.papers import table33_methods, table33_page
from benchmarks.papers.records import available, chosen, open_records, run_script
from benchmarks.papers.table33_methods import error, images, kernel_matrix
from benchmarks.papers.table33_paper import KERNELS, PAPER, SPLITS

SMOKE = {"digits": ["1v2"], "splits": 2}


def measure_all(arguments):
    """Measure what is missing, save it, and say it."""
    deadline = time.time() + arguments.max_seconds
    if arguments.smoke:
        arguments.digits, arguments.splits = SMOKE["digits"], SMOKE["splits"]
    else:
        arguments.digits = available(arguments.digits, table33_methods.check)
    order = [(digits, kernel) for digits in PAPER for kernel in KERNELS]
    records, stamp = open_records(arguments, "mvu_table33", order)
    for digits in arguments.digits:
        for kernel in KERNELS:
            missing = [s for s in range(arguments.splits) if records.missing(digits, s, [kernel])]
            if not missing or time.time() > deadline:
                continue
            K, remark = kernel_matrix(kernel, digits, arguments.smoke, arguments.device)
            _, y = images(digits, arguments.smoke)
            for split in missing:
                found = round(error(K, y, split), 6)
                records.add(digits, kernel, [split, found, remark], stamp)
                print(f"{digits} {kernel:<10} {split:>2} {found:7.2%}  {remark}", flush=True)


def parse(arguments=None):
    parser = common.record_parser(
        "papers.mvu_table33", __doc__, "some of scikit-learn's digits; nothing is kept"
    )
    add = parser.add_argument
    add("--digits", type=chosen(PAPER, {}), default=list(PAPER), help=f"of {','.join(PAPER)}")
    add("--splits", type=int, default=SPLITS, help=f"default: {SPLITS}")
    add("--device", default="cpu", help="cpu or cuda, for MVU")
    add("--max-seconds", type=float, default=float("inf"), help="then nothing new is begun")
    return parser.parse_args(arguments)


def main(arguments=None):
    return run_script(parse(arguments), "mvu_table33", measure_all, table33_page.page)


if __name__ == "__main__":
    sys.exit(main())
