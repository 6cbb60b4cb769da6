"""Table 3.3 of the thesis, measured again: ``python -m benchmarks.papers.mvu_table33``.

Every split is saved as soon as it is measured, and a run leaves out what is saved.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import common
from benchmarks.papers import table33_methods, table33_page
from benchmarks.papers.records import available, chosen, open_records
from benchmarks.papers.table33_methods import error, images, kernel_matrix
from benchmarks.papers.table33_paper import KERNELS, PAPER, SPLITS

SMOKE = {"digits": ["1v2"], "splits": 2}


def measure_all(arguments):
    """Measure what is missing, save it, and say it."""
    deadline = time.time() + arguments.max_seconds
    if not arguments.smoke:
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


def write_page(arguments):
    """docs/results/mvu_table33.md from the records of all machines."""
    paths = sorted(arguments.results.glob("mvu_table33-*.json"))
    text = table33_page.page([json.loads(path.read_text()) for path in paths])
    common.write_text(arguments.page, text)
    return text


def parse(arguments=None):
    root = common.ROOT
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.papers.mvu_table33", description=__doc__.splitlines()[0]
    )
    add = parser.add_argument
    add("--digits", type=chosen(PAPER, {}), default=list(PAPER), help=f"of {','.join(PAPER)}")
    add("--splits", type=int, default=SPLITS, help=f"default: {SPLITS}")
    add("--device", default="cpu", help="cpu or cuda, for MVU")
    add("--max-seconds", type=float, default=float("inf"), help="then nothing new is begun")
    add("--machine", help="the name in the record's file name; default: the processor")
    add("--results", type=Path, default=root / "benchmarks" / "results", help="the records")
    add("--page", type=Path, default=root / "docs" / "results" / "mvu_table33.md")
    add("--table", action="store_true", help="only write the page anew")
    add("--smoke", action="store_true", help="some of scikit-learn's digits; nothing is kept")
    return parser.parse_args(arguments)


def main(arguments=None):
    arguments = parse(arguments)
    if arguments.table:
        write_page(arguments)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        if arguments.smoke:
            arguments.digits, arguments.splits = SMOKE["digits"], SMOKE["splits"]
            arguments.results, arguments.page = Path(folder), Path(folder) / "page.md"
        measure_all(arguments)
        text = write_page(arguments)
        if arguments.smoke:
            print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
