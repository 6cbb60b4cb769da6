"""LMNN's gap from a sample of rows against the exact one: ``python -m benchmarks.sampled_gap``.

A full metric is learned on 60,000 digits of MNIST (164 principal components, shrinkage=0, gap
1e-2), and the loss of every pair is computed once, by definition. Then 200 samples are drawn for
each working set, from complete to made to deceive, and the bound of `nearfar.problems.lmnn_sampled`
is compared with what is really missing. It takes three minutes, and writes
benchmarks/results/sampled_gap.json and docs/results/sampled_gap.md.
"""

import json
import warnings

import numpy as np
from scipy.sparse import csr_array
from sklearn.datasets import make_blobs

from benchmarks import common, tables
from benchmarks.lmnn.data import load
from benchmarks.papers.records import facts
from nearfar import LMNN
from nearfar.problems.lmnn_sampled import (
    ADDED,
    CONFIDENCE,
    drawn_rows,
    most_unseen,
    n_needed,
)

DRAWS, SHARES = 200, (0.05, 0.1, 0.2, 0.4)  # of the rows; and as many as the tolerance needs
TOL, EARLY = 1e-2, 6  # gap of the fit; iterations of the map at which a stale set was searched
MARGIN = 0.1  # around reaches, within which triplets are kept at hand
BLOCK = 512  # rows of a block of distances
RISK = (1 - CONFIDENCE) / 2  # of the first draw of a fit
RECORD = common.ROOT / "benchmarks" / "results" / "sampled_gap.json"
PAGE = common.ROOT / "docs" / "results" / "sampled_gap.md"
MISSING = {
    "nothing": "the working set is complete, as it was when this fit asked for its certificate",
    "one in a hundred": "every hundredth active pair, at random",
    "stale": f"what a search at the map after {EARLY} iterations did not find",
    "one row": "all impostors of the row with the largest loss",
    "a group": "all pairs between the 40 rows with the largest losses",
}


def losses(Z, y, targets, margin=0.0):
    """Losses Σ_e [1 + margin + D(e) − D(i, l)]₊ of all pairs (i, l), sparse, and Σ_e (1 + D(e))."""
    near = ((Z[:, None] - Z[targets]) ** 2).sum(axis=2)
    squares, heads, tails, found = (Z * Z).sum(axis=1), [], [], []
    for first in range(0, len(Z), BLOCK):
        rows = slice(first, first + BLOCK)
        table = squares[rows, None] + squares - 2 * (Z[rows] @ Z.T)
        reach = 1 + margin + near[rows]
        inside = (table < reach.max(axis=1)[:, None]) & (y[rows, None] != y)
        i, j = np.nonzero(inside)
        heads.append(first + i)
        tails.append(j)
        found.append((reach[i] - table[i, j][:, None]).clip(0).sum(axis=1))
    entries = np.concatenate(found), (np.concatenate(heads), np.concatenate(tails))
    return csr_array(entries, shape=(len(Z), len(Z))), (1 + near).sum(axis=1)


def missing_pairs(loss, stale, rng):
    """Of each working set the directed losses that it lacks."""
    coo = loss.tocoo()
    heads, tails = coo.coords
    row = loss.sum(axis=1).argmax()
    group = np.zeros(loss.shape[0], dtype=bool)
    group[np.argsort(-loss.sum(axis=1) - loss.sum(axis=0))[:40]] = True
    at_hand = stale[heads, tails]
    chosen = {
        "nothing": np.zeros(len(heads), dtype=bool),
        "one in a hundred": rng.random(len(heads)) < 0.01,
        "stale": np.asarray(at_hand).ravel() == 0,
        "one row": heads == row,
        "a group": group[heads] & group[tails],
    }
    for name, lacks in chosen.items():
        kept = coo.data[lacks], (heads[lacks], tails[lacks])
        yield name, csr_array(kept, shape=loss.shape)


def measure(missing, costs, problem, count, rng, draws):
    """Coverage and gaps of so many draws of ``count`` rows."""
    objective, bound, mu = problem
    both = missing + missing.T
    totals, whole, masses = both.sum(axis=1), both.sum() / 2, np.ones(len(costs))
    gaps, held = [], 0
    for _ in range(draws):
        largest, drawn = drawn_rows(costs, count, rng)
        rest = np.ones(len(costs), dtype=bool)
        rest[np.concatenate([largest, drawn])] = False
        hidden = float(rest @ (both @ rest)) / 2
        unseen = most_unseen(totals[drawn], costs[rest], masses[rest], RISK)
        held += hidden <= unseen
        upper = objective + mu * (unseen - hidden)
        gaps.append((upper - bound) / upper)
    return {
        "rows": len(largest) + count,
        "missing_share": mu * float(whole) / objective,
        "covered": held,
        "median_gap": float(np.median(gaps)),
        "largest_gap": float(np.max(gaps)),
        "exact_gap": (objective - bound) / objective,
    }


def fitted(X, y, **options):
    """The images of a fit in float64, its targets, and the model."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a fit that is stopped says so
        model = LMNN(shrinkage=0, tol=TOL, **options).fit(X, y)
    Z = np.asarray(X, dtype=np.float64) @ model.components_.astype(np.float64).T
    return Z - Z.mean(axis=0), model.proof_["targets"], model


def runs(X, y, draws, seed=0):
    """All rows of the record, one after the other."""
    rng = np.random.default_rng(seed)
    Z, targets, model = fitted(X, y)
    loss, costs = losses(Z, y, targets)
    early = fitted(X, y, max_iter=EARLY)[0]
    stale = losses(early, y, targets, MARGIN)[0]
    mu, objective = model.push_weight, model.objective_
    found = (1 - mu) * (costs.sum() - targets.size) + mu * loss.sum()
    assert abs(found / objective - 1) < 1e-5, (found, objective)
    problem = objective, objective * (1 - model.duality_gap_), mu
    needed = n_needed(costs, np.ones(len(y)), ADDED * TOL * objective / mu, RISK)
    for name, missing in missing_pairs(loss, stale, rng):
        for share in (*SHARES, None):
            count = needed if share is None else int(share * len(y))
            result = measure(missing, costs, problem, count, rng, draws)
            yield {"missing": name, "needed": share is None, "draws": draws, **result}


def page(record):
    """The page of a record."""
    rows = [
        [
            run["missing"],
            f"{100 * run['missing_share']:.2g} %",
            f"{run['rows']}{' (needed)' if run['needed'] else ''}",
            f"{run['covered']} of {run['draws']}",
            f"{run['exact_gap']:.2e}",
            f"{run['median_gap']:.2e}",
            f"{run['largest_gap']:.2e}",
            f"{run['median_gap'] / run['exact_gap']:.1f}",
        ]
        for run in record["runs"]
    ]
    header = ["missing", "share of objective", "rows compared", "bound holds"]
    header += ["exact gap", "sampled gap (median)", "(largest)", "median / exact"]
    return "\n".join(
        [
            "# A gap from a sample of the rows\n",
            "`python -m benchmarks.sampled_gap` writes this page; do not edit it.",
            f"`LMNN(shrinkage=0, tol={TOL:g})` learned from {record['n']} digits of MNIST in"
            f" {record['d']} dimensions. The losses of all pairs under its map were computed by"
            " definition. Then rows were drawn at random, and the"
            f" [bound with {CONFIDENCE:.1%} confidence]"
            "(../algorithms/lmnn.md#a-certificate-from-a-sample) was compared with the loss"
            f" that {record['runs'][0]['draws']} draws really left hidden. A working set lacks:\n",
            *(f"- *{name}*: {words};" for name, words in MISSING.items()),
            "",
            tables.markdown(header, rows),
            '*Needed* is the number of rows that `certificate="sample"` draws at this tolerance'
            " (more than a quarter of so few rows, so that a fit compares all pairs instead). Where"
            " nothing is missing, the gap grows by a hidden clique, which falls with the square"
            " of the number of rows. Where much is missing, the sampled gap is far above the"
            " tolerance: the fit then searches all pairs, and asks again.\n",
            tables.measured_on(record, ""),
        ]
    )


def main(arguments=None):
    parser = common.page_parser("sampled_gap", __doc__, RECORD, PAGE)
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--smoke", action="store_true", help="2000 points, five draws: seconds")
    options = parser.parse_args(arguments)
    if options.table:
        record = json.loads(options.record.read_text())
    else:
        if options.smoke:
            X, y = make_blobs(2000, 8, centers=5, cluster_std=4.0, random_state=0)
        else:
            X, _, y, _ = load("mnist60000")
            X = X.astype(np.float32)
        record = facts("cpu") | {"n": len(X), "d": X.shape[1], "runs": []}
        for run in runs(X, y, 5 if options.smoke else options.draws):
            print(json.dumps(run), flush=True)
            record["runs"].append(run)
        record |= {"commit": common.commit(), "date": common.now()[:10]}
        common.write_text(options.record, json.dumps(record, indent=1) + "\n")
    common.write_text(options.page, page(record))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
