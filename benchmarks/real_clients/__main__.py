"""Run nearfar inside other people's code, and print what broke and why.

    python -m benchmarks.real_clients                  # all uses whose libraries are installed
    python -m benchmarks.real_clients --only umap,skops
    python -m benchmarks.real_clients --list

Every use is a function in a module of this folder. The exit code is 1 if one broke that should
work; one whose failure is the fault of the other library is listed as theirs.
"""

from __future__ import annotations

import argparse
from collections import Counter

from benchmarks.real_clients import collect
from benchmarks.real_clients.uses import outcome_of


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.real_clients")
    parser.add_argument("--only", help="words, of which a use must have one in its name")
    parser.add_argument("--list", action="store_true", help="print the names only")
    options = parser.parse_args(arguments)
    words = options.only.lower().split(",") if options.only else [""]
    chosen = [one for one in collect() if any(word in one.name.lower() for word in words)]
    counts: Counter[str] = Counter()
    for one in chosen:
        if options.list:
            print(f"{one.name} ({', '.join(one.needs) or 'scikit-learn'})")
            continue
        outcome = outcome_of(one)
        counts[outcome.verdict] += 1
        print(f"{outcome.verdict:14} {outcome.seconds:6.1f} s  {one.name}", flush=True)
        if outcome.why:
            print(f"{'':26}{outcome.why}", flush=True)
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    return int(counts["broke"] > 0)


if __name__ == "__main__":
    raise SystemExit(main())
