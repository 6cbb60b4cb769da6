"""What `choose_targets` costs, and how well it chooses: ``python -m benchmarks.target_choice``.

Of each data set, the number of target neighbours and of votes is chosen three times with other rows
held out: by `choose_targets`; and *thoroughly*, by a fit for each number to all rows that are not
held out, to LMNN's own tolerance. The first is to cost little beside the one fit to all rows that
follows, and to choose as well. Sets of NEARFAR_DATA join those of scikit-learn.
"""

from __future__ import annotations

import json
import time
import warnings

import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from benchmarks import common, tables
from benchmarks.papers.records import facts
from nearfar import LMNN
from nearfar.errors import NearfarWarning
from nearfar.evaluation import choose_targets, knn_error
from nearfar.evaluation.split import split_points
from nearfar.evaluation.targets import TRIED

RECORD = common.ROOT / "benchmarks" / "results" / "target_choice.json"
PAGE = common.ROOT / "docs" / "results" / "target_choice.md"
DRAWS = 3
HELD_OUT = 0.3  # share of the rows on which the thorough choice compares
TEST = 0.3  # share of the sets without an official test part
PUSH_WEIGHTS = (0.3, 0.5, 0.7)
# name in NEARFAR_DATA: principal components, None for the features as they are
FILES = {"balance_scale": None, "letter": None, "usps": None, "isolet": 172, "mnist": 164}
SETS = ("digits", *FILES)
USUAL = 3  # target neighbours and votes of LMNN's default


def load(name, seed):
    """Points and labels to learn from, and to test."""
    if name == "digits":
        X, y = load_digits(return_X_y=True)
        official = None
    else:
        with np.load(common.data_file(name), allow_pickle=False) as arrays:
            X, y = arrays["X"], arrays["y"]
            official = (arrays["train"], arrays["test"]) if "train" in arrays else None
    X = X.astype(np.float32)
    if official is None:
        rows = split_points(np.arange(len(y)), y, TEST, seed)
        official = rows.X_train, rows.X_test
    train, test = official
    X_train, X_test = X[train], X[test]
    if FILES.get(name):
        pca = PCA(FILES[name], random_state=0).fit(X_train)
        X_train, X_test = pca.transform(X_train), pca.transform(X_test)
    return X_train, y[train], X_test, y[test]


def seconds_of(work):
    """Processor seconds, and what the work returned."""
    begin = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NearfarWarning)
        found = work()
    return time.process_time() - begin, found


def thorough(X, y, seed):
    """The number of neighbours with the least error on held-out rows, after a fit for each."""
    split = split_points(X, y, HELD_OUT, seed)
    errors = {}
    for k in TRIED:
        known = split.X_train, split.y_train
        model = LMNN(n_neighbors=k).fit(*known)
        errors[k] = knn_error(model, *known, split.X_test, split.y_test, n_neighbors=k)
    return min(errors, key=lambda k: (errors[k], k))


def measure(name, seed):
    """Processor seconds of each way, the numbers they choose and the test errors with these."""
    X, y, X_test, y_test = load(name, seed)
    fits, errors = {}, {}

    def test_error(k):
        if k not in errors:
            model = LMNN(n_neighbors=k)
            fits[k], _ = seconds_of(lambda: model.fit(X, y))
            errors[k] = knn_error(model, X, y, X_test, y_test, n_neighbors=k)
        return round(100 * errors[k], 3)

    trials, quick = seconds_of(
        lambda: choose_targets(X, y, n_neighbors=TRIED, refit=False, random_state=seed)
    )
    weights, _ = seconds_of(
        lambda: choose_targets(X, y, None, TRIED, PUSH_WEIGHTS, refit=False, random_state=seed)
    )
    seconds, careful = seconds_of(lambda: thorough(X, y, seed))
    chosen = quick.best.n_neighbors
    test_errors = {str(k): test_error(k) for k in (USUAL, chosen, careful)}
    parts = {"usual fit": fits[USUAL], "fit": fits[chosen], "trials": trials}
    parts |= {"trials of weights": weights, "thorough": seconds}
    return {
        "rows": len(y),
        "features": X.shape[1],
        "chosen": chosen,
        "thoroughly": careful,
        "test errors": test_errors,
        "seconds": {part: round(value, 3) for part, value in parts.items()},
    }


def page(record):
    header = [
        *("data", "rows × features", "usual fit, s", "trials, s", "fit of the chosen, s"),
        *("trials / usual fit", "with push weights", "thorough"),
        *("chosen", "thoroughly", "test error of 3, %", "of the chosen, %", "thoroughly, %"),
    ]
    rows = []
    for name in dict.fromkeys(run["data"] for run in record["runs"]):
        runs = [run for run in record["runs"] if run["data"] == name]

        def seconds(part, runs=runs):
            return f"{np.mean([run['seconds'][part] for run in runs]):.2f}"

        def ratio(part, runs=runs):
            return f"{np.mean([r['seconds'][part] / r['seconds']['usual fit'] for r in runs]):.2f}"

        def error(way, runs=runs):
            return f"{np.mean([r['test errors'][str(r.get(way, USUAL))] for r in runs]):.2f}"

        rows.append(
            [
                name,
                f"{runs[0]['rows']} × {runs[0]['features']}",
                *(seconds(part) for part in ("usual fit", "trials", "fit")),
                *(ratio(part) for part in ("trials", "trials of weights", "thorough")),
                *(", ".join(str(r[way]) for r in runs) for way in ("chosen", "thoroughly")),
                *(error(way) for way in ("usual", "chosen", "thoroughly")),
            ]
        )
    draws = max(run["draw"] for run in record["runs"]) + 1
    return "\n".join(
        [
            "# The choice of target neighbours\n",
            "Written by `python -m benchmarks.target_choice`."
            " [`choose_targets`](../algorithms/lmnn.md#how-many-target-neighbours) tries"
            f" {', '.join(map(str, TRIED))} target neighbours on held-out rows, which also are the"
            " neighbours that vote, and fits LMNN to all rows with the best. Seconds are of the"
            f" processor, means of the choices listed, at most {draws}, each with other rows held"
            f" out. The *usual fit* is `LMNN()`, with {USUAL} target neighbours, to all rows."
            " Beside it stand the trials of `choose_targets`, the same with push weights"
            f" {', '.join(map(str, PUSH_WEIGHTS))}, and the *thorough* choice: a fit for each"
            " number, to LMNN's own tolerance, to all rows that are not held out.\n",
            tables.markdown(header, rows),
            "Test errors are of the fits to all rows, each with as many votes as targets. Sets"
            " without an official test part are split anew for each choice.\n",
            tables.measured_on(record, ", one thread"),
        ]
    )


def main(arguments=None):
    parser = common.page_parser("target_choice", __doc__, RECORD, PAGE)
    parser.add_argument("--sets", default=",".join(SETS), help="by commas")
    parser.add_argument("--draws", type=int, default=DRAWS)
    options = parser.parse_args(arguments)
    if options.table:
        record = json.loads(options.record.read_text())
    else:
        record = facts("cpu") | {"commit": common.commit(), "date": common.now()[:10], "runs": []}
        for name in options.sets.split(","):
            for seed in range(options.draws):
                run = {"data": name, "draw": seed, **measure(name, seed)}
                print(json.dumps(run), flush=True)
                record["runs"].append(run)
                common.write_text(options.record, json.dumps(record, indent=1) + "\n")
    common.write_text(options.page, page(record))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
