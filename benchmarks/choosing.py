"""What stands behind docs/choosing.md: every learner on the same data, errors and times.

``python -m benchmarks.choosing`` runs all of it, ``--smoke`` iris alone, ``--table`` only writes
the page's table anew from the record. Two uses are measured: the 3-NN error on the test part, and
the equal error rate of telling pairs of test points of one class from pairs of different classes
by their distance.
"""

import json
import time
import warnings

import numpy as np
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.preprocessing import StandardScaler

import nearfar
from benchmarks import common, tables
from benchmarks.lmnn.data import load
from nearfar import as_metric, make_pairs
from nearfar.evaluation import equal_error_rate, knn_error
from nearfar.registry import entries

RECORD = common.ROOT / "benchmarks" / "results" / "choosing.json"
PAGE = common.ROOT / "docs" / "choosing.md"
MARKS = "<!-- measured: begin -->\n", "<!-- measured: end -->\n"

DATA = ("wine", "digits", "letter", "isolet", "mnist10000")
PAIRS = {"n_pairs": 20_000, "random_state": 0}
KERNEL_ROWS = 2000  # the most points for which a kernel matrix is made
N_TEST_PAIRS = 5000  # near ones, and as many far ones

BASELINES = {
    "as given": lambda: None,
    "standardised": lambda: StandardScaler(),
    "PCA, whitened": lambda: PCA(0.95, whiten=True),
    "LDA": lambda: LinearDiscriminantAnalysis(),
}


def _title(entry):
    return f"{entry.name}, {PAIRS['n_pairs']} pairs" if entry.learns_from == "pairs" else entry.name


# What the command offers, by the name in the table; kernels last.
ENTRIES = {_title(entry): entry for entry in sorted(entries(command=True), key=lambda e: e.kernel)}
LEARNERS = [*BASELINES, *ENTRIES]


def _learner(name):
    if name in BASELINES:
        return BASELINES[name]()
    entry = ENTRIES[name]
    return getattr(nearfar, entry.name)(**(PAIRS if entry.learns_from == "pairs" else {}))


def measured(name, data):
    """What one learner does on one data set; None where it is left out."""
    train, test, y_train, y_test = data
    if name in ENTRIES and ENTRIES[name].kernel and len(train) > KERNEL_ROWS:
        return None
    train, test = train.astype(np.float32), test.astype(np.float32)
    learner = _learner(name)
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if learner is not None:
            learner.fit(train, y_train)
    seconds = time.perf_counter() - begin
    row = {"learner": name, "rows": len(train), "columns": train.shape[1], "seconds": seconds}
    row["gap"] = getattr(learner, "duality_gap_", None)
    row["status"] = getattr(learner, "status_", None)
    if name in ENTRIES and ENTRIES[name].kind == "classifier":
        return row | {"error": float(np.mean(learner.predict(test) != y_test))}
    row["error"] = knn_error(learner, train, y_train, test, y_test, 3)
    return row | {"equal_error": _equal_error(learner, test, y_test)}


def _equal_error(learner, test, y_test):
    pairs, kinds = make_pairs(test, y_test, N_TEST_PAIRS, random_state=0)
    if learner is None:
        distances = np.linalg.norm(np.diff(pairs.dense(), axis=1)[:, 0], axis=1)
    elif hasattr(learner, "pair_distance"):
        distances = learner.pair_distance(pairs)
    else:
        distances = as_metric(learner).pair_distance(pairs)
    return float(equal_error_rate(kinds, distances))


def table(record):
    """The measured part of the page."""
    runs = record["runs"]
    text = (
        "Measured with `python -m benchmarks.choosing`. All learners have their defaults and"
        " float32\npoints; wine is standardised for all. Learners of pairs draw"
        f" {PAIRS['n_pairs']} near pairs and as many\nfar ones, and with drawn pairs none of them"
        " keeps a distance that the labels choose.\nBelow each data set are its"
        f" training points and features.\n\n{_measurements(runs)}"
    )
    names = [name for name in DATA if any(run["data"] == name for run in runs)]
    header = ["learner"]
    for name in names:
        first = next(run for run in runs if run["data"] == name)
        header.append(f"{name}<br>{first['rows']} × {first['columns']}")
    found = {(run["learner"], run["data"]): run for run in runs}
    parts = [text]
    for title, cell in PARTS.items():
        rows = [
            [_name(learner)]
            + [cell(found[learner, name]) if (learner, name) in found else "" for name in names]
            for learner in LEARNERS
        ]
        rows = [row for row in rows if any(row[1:])]
        parts.append(f"### {title}\n\n{tables.markdown(header, rows)}")
    return "\n".join(parts)


def _measurements(runs):
    """Which learners were measured where and when, a line each; seconds of two do not compare."""
    found = {}
    for run in runs:
        machine, day = run["machine"], run["date"].partition(" ")[0]
        cores = "one core" if machine["cores"] == 1 else f"{machine['cores']} cores"
        where = f"{machine['cpu']}, {cores}, {day}"
        where += f", {run['note']}" if run["note"] else ""
        names = found.setdefault(where, [])
        if (name := _name(run["learner"])) not in names:
            names.append(name)
    *some, (most, _) = sorted(found.items(), key=lambda item: len(item[1]))
    lines = [f"- {', '.join(names)}: {where}" for where, names in some]
    return "\n".join([*lines, f"- {'all others' if some else 'all'}: {most}"]) + "\n"


def _name(learner):
    return learner.partition(",")[0] if learner in ENTRIES else learner


def _error(run):
    return f"{100 * run['error']:.1f}"


def _equal_error_rate(run):
    return f"{100 * run['equal_error']:.1f}" if "equal_error" in run else ""


def _seconds(run):
    return f"{float(format(run['seconds'], '.2g')):g}" if run["seconds"] >= 0.01 else "< 0.01"


PARTS = {
    "3-NN error on the test part, in %": _error,
    "Equal error rate of same or different, in %": _equal_error_rate,
    "Seconds to learn": _seconds,
}


def main(arguments=None):
    parser = common.page_parser("choosing", __doc__, RECORD, PAGE)
    parser.add_argument("--data", default=",".join(DATA), help="data sets, by commas")
    parser.add_argument("--learners", help="learners, by semicolons; all by default")
    parser.add_argument("--note", default="", help="of these runs: what else ran, say")
    parser.add_argument("--smoke", action="store_true", help="iris alone, and nothing is kept")
    options = parser.parse_args(arguments)
    record = {"runs": []}
    if options.record.exists() and not options.smoke:
        record = json.loads(options.record.read_text())
    learners = options.learners.split(";") if options.learners else LEARNERS
    names = [] if options.table else ["iris"] if options.smoke else options.data.split(",")
    stamp = {"machine": common.machine(), "date": common.now(), "note": options.note}
    for name in names:
        data = load(name)
        for learner in learners:
            run = measured(learner, data)
            if run is None:
                continue
            cells = "; ".join(f"{title}: {cell(run)}" for title, cell in PARTS.items())
            print(f"{name}, {learner}: {cells}", flush=True)
            same = [(name, learner)]
            record["runs"] = [
                old for old in record["runs"] if (old["data"], old["learner"]) not in same
            ] + [{"data": name} | run | stamp]
            if not options.smoke:
                common.write_text(options.record, json.dumps(record, indent=1) + "\n")
    if not options.smoke:
        before, _, rest = options.page.read_text().partition(MARKS[0])
        after = rest.partition(MARKS[1])[2]
        options.page.write_text(before + MARKS[0] + table(record) + MARKS[1] + after)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
