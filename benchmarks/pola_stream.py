"""How long POLA takes for a stream of pairs, on one core.

``python -m benchmarks.pola_stream`` streams a million pairs of 50 features through ``partial_fit``,
once for each kind of stream, and writes benchmarks/results/pola_stream.json. The making of the
pairs is not timed.
"""

import argparse
import json
import platform
import sys
import time
from importlib import metadata
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks import common
from nearfar import POLA

SEED = 0
FEATURES = 50
RANK = 5  # of the metric that tells near from far
KINDS = {"clean": 0.0, "noisy": 0.2, "random": 0.5}  # share of labels that are wrong
RECORD = common.ROOT / "benchmarks" / "results" / "pola_stream.json"


class Stream:
    """Pairs that are near below the median distance under a metric of low rank."""

    def __init__(self, wrong):
        self._random = np.random.default_rng(SEED)
        self._map = self._random.normal(size=(FEATURES, RANK))
        self._wrong = wrong
        self._median = np.median(self._squares(self._points(20000)))

    def batch(self, size):
        pairs = self._points(size)
        near = self._squares(pairs) < self._median
        near ^= self._random.random(size) < self._wrong
        return pairs, np.where(near, 1, -1)

    def _points(self, size):
        return self._random.normal(size=(size, 2, FEATURES))

    def _squares(self, pairs):
        return np.sum(((pairs[:, 0] - pairs[:, 1]) @ self._map) ** 2, axis=1)


def measure(kind, n_pairs, batch):
    """One row of the record: seconds of all calls, and how well the last metric tells new pairs."""
    stream, model, seconds, busy = Stream(KINDS[kind]), POLA(), 0.0, 0.0
    for first in range(0, n_pairs, batch):
        pairs, y = stream.batch(min(batch, n_pairs - first))
        began, began_busy = time.perf_counter(), time.process_time()
        model.partial_fit(pairs, y)
        seconds += time.perf_counter() - began
        busy += time.process_time() - began_busy
    return {
        "stream": kind,
        "pairs": n_pairs,
        "features": FEATURES,
        "batch": batch,
        "seconds": round(seconds, 2),
        "cpu_seconds": round(busy, 2),  # less than seconds where others used the core
        "updates": model.n_updates_,
        "squared_loss": model.squared_loss_,
        "auc": round(model.score(*stream.batch(20000)), 4),
    }


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=10_000)
    parser.add_argument("--out", type=Path, default=RECORD)
    parser.add_argument("--smoke", action="store_true", help="a short stream; nothing is written")
    options = parser.parse_args(arguments)
    rows = []
    with threadpool_limits(1):
        for kind in KINDS:
            n_pairs = 2000 if options.smoke else options.pairs
            rows.append(measure(kind, n_pairs, min(options.batch, n_pairs)))
            print(json.dumps(rows[-1]), flush=True)
    if not options.smoke:
        versions = {name: metadata.version(name) for name in ("numpy", "scipy", "scikit-learn")}
        facts = {
            "machine": common.machine(),
            "threads": 1,
            "dtype": "float64",
            "versions": versions | {"python": platform.python_version()},
            "seed": SEED,
            "commit": common.commit(),
            "date": common.now(),
        }
        common.write_text(options.out, json.dumps(facts | {"measured": rows}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
