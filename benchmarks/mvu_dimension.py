"""The dimension that MVU finds, and how far a Swiss roll is from the true sheet, by neighbours.

``python -m benchmarks.mvu_dimension`` unfolds Swiss rolls of several sizes, noises and seeds, and
the thesis' examples, with 4 and 5 neighbours, and writes benchmarks/results/mvu_dimension.json:
the dimension by `MVU.intrinsic_dimension_`, by the widest gap of the spectrum, and the error.
"""

import argparse
import json
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks import common
from benchmarks.papers import toys_data
from nearfar import MVU

SIZES, SEEDS, NEIGHBORS = (300, 400), range(3), (4, 5)
NOISES = {"noise 0.05": 0.05, "noise 0.3": 0.3}  # in five more features
FOLDED = 0.4  # error of a roll that did not unfold: short circuits, which no rule can mend
RECORD = common.ROOT / "benchmarks" / "results" / "mvu_dimension.json"


def rolls(sizes, seeds):
    """Names, points and true sheets of Swiss rolls with five features of noise."""
    for n in sizes:
        for seed in seeds:
            for name, noise in NOISES.items():
                roll, along = toys_data.swiss_roll(n, seed=seed)
                more = noise * np.random.default_rng(seed).normal(size=(n, 5))
                points = np.concatenate([roll, more], axis=1)
                yield f"Swiss roll, {n} points, {name}, seed {seed}", points, (along, roll[:, 1])


def examples():
    """Names and points of the thesis' examples, as far as they are at hand."""
    yield "trefoil knot, 300 points", toys_data.trefoil(300)
    yield "comb, 300 points", toys_data.comb(300)
    try:
        yield "teapots, reduced set", toys_data.teapots()
        yield "teapots, half a turn", toys_data.teapots()[:50]
        yield "Frey faces, every fifth", toys_data.frey_faces(5)
        yield "MNIST, 300 fives", toys_data.fives(smoke=False)[:300]
    except common.UnavailableError as error:
        print(error, file=sys.stderr)


def widest_gap(spectrum):
    """How many eigenvalues stand before the widest relative gap among the first twenty."""
    leading = np.maximum(spectrum[:21], 1e-9 * spectrum[0])
    return int(np.argmax(leading[:-1] / leading[1:])) + 1


def sheet_error(embedding, sheet):
    """Distance from the sheet, relative to its size, after the best rotation."""
    Y, T = embedding - embedding.mean(axis=0), np.column_stack(sheet)
    T = T - T.mean(axis=0)
    U, _, V = np.linalg.svd(Y.T @ T)
    return float(np.linalg.norm(Y @ U @ V - T) / np.linalg.norm(T))


def measure(name, X, k, sheet=None):
    """One row of the record."""
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # short circuits lock up, and links are named
        model = MVU(n_neighbors=k, tol=1e-5, random_state=0).fit(X)
    spectrum = model.eigenvalues_
    return {
        "data": name,
        "neighbors": k,
        "status": model.status_,
        "edges": model.graph_.n_edges,
        "cpu_seconds": round(time.process_time() - began, 2),
        "shares": (spectrum[:6] / spectrum.sum()).round(4).tolist(),
        "dimension": model.intrinsic_dimension_,
        "widest_gap": widest_gap(spectrum),
        "error": None if sheet is None else round(sheet_error(model.embedding_, sheet), 4),
    }


def summary(rows):
    """Counts over the rolls that unfolded, and median errors, by the number of neighbours."""
    found = {}
    for k in NEIGHBORS:
        mine = [row for row in rows if row["neighbors"] == k and row["error"] is not None]
        flat = [row for row in mine if row["error"] < FOLDED]
        found[f"{k} neighbors"] = {
            "rolls": len(mine),
            "unfolded": len(flat),
            "dimension_is_2": sum(row["dimension"] == 2 for row in flat),
            "widest_gap_is_2": sum(row["widest_gap"] == 2 for row in flat),
            "median_error": float(np.median([row["error"] for row in mine] or [np.nan]).round(4)),
            "median_error_unfolded": float(
                np.median([row["error"] for row in flat] or [np.nan]).round(4)
            ),
        }
    return found


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=RECORD)
    parser.add_argument("--smoke", action="store_true", help="one small roll; nothing is written")
    options = parser.parse_args(arguments)
    cases = list(rolls((60,), (0,)))[:1] if options.smoke else list(rolls(SIZES, SEEDS))
    cases += [] if options.smoke else [(*example, None) for example in examples()]
    rows = []
    with threadpool_limits(1):
        for name, X, sheet in cases:
            for k in NEIGHBORS:
                rows.append(measure(name, X, k, sheet))
                print(json.dumps(rows[-1]), flush=True)
    facts = {"machine": common.machine(), "threads": 1, "commit": common.commit()}
    record = facts | {"date": common.now(), "summary": summary(rows), "measured": rows}
    print(json.dumps(record["summary"], indent=2))
    if not options.smoke:
        common.write_text(options.out, json.dumps(record, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
