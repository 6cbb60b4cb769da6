"""Ten labels a class and many rows without one: ``python -m benchmarks.semi_supervised``.

1-NN and 3-NN errors by the labelled rows, of the unlabelled rows and of new ones, for LMNN that
learns from the labelled rows alone, or from all. A draw is saved as soon as it is measured, and
left out of the next run.
"""

import sys
import time
import warnings
from pathlib import Path

import joblib
import numpy as np
from sklearn.decomposition import PCA
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import StandardScaler

from benchmarks import common, few_labels, never_worse_data
from benchmarks.papers.records import (
    available,
    best_rows,
    chosen,
    machines,
    open_records,
    run_script,
)
from benchmarks.tables import markdown
from nearfar import LMNN
from nearfar.evaluation import knn_error

STEM = "semi_supervised"
NAMED = ("digits", "isolet", "usps", "mnist", "texts")  # where there are many unlabelled rows
OTHERS = ("letter", "spambase", "pbmc", "wine", "iris", "balance", "ionosphere")
SETS = (*NAMED, *OTHERS)
TABLES = ("spambase", "wine", "balance", "ionosphere")  # standardised: features of many units
DRAWS = 10
LABELS = 10  # of each class
UNLABELED, NEW = 1500, 1000  # rows at most
COMPONENTS = 100  # principal ones, of the rows to learn from, for wider sets
GRAPH_NEIGHBORS = 10
GRAPH_SHARE = 0.7  # of the neighbours' scatter, the rest is a multiple of the identity
ERRORS = ("unlabelled rows, 1-NN", "unlabelled rows, 3-NN", "new rows, 1-NN", "new rows, 3-NN")
SMOKE = {"sets": ["iris", "wine"], "draws": 2}


def labelled_rows(X, y):
    return LMNN().fit(X[y >= 0], y[y >= 0])


def all_rows(X, y):
    return LMNN(unlabeled_weight=1.0).fit(X, y)


class Neighborhoods:
    """LMNN of the labelled rows that keeps the local distance of all rows.

    That distance is whitened by the scatter of mutual neighbours, with or without a label.
    """

    def fit(self, X, y):
        graph = NearestNeighbors(n_neighbors=GRAPH_NEIGHBORS).fit(X).kneighbors_graph()
        heads, tails = graph.multiply(graph.T).nonzero()
        steps, d = X[heads] - X[tails], X.shape[1]
        G = steps.T @ steps
        values, vectors = np.linalg.eigh(
            GRAPH_SHARE * G + (1 - GRAPH_SHARE) * np.trace(G) / d * np.eye(d)
        )
        W = vectors / np.sqrt(values)
        Z, labels = X[y >= 0] @ W, y[y >= 0]
        lmnn = LMNN(shrinkage=4 * d / (4 * d + len(Z))).fit(Z, labels)
        self.components = lmnn.components_ @ W.T
        return self

    def transform(self, X):
        return X @ self.components.T


METHODS = {
    "inputs": lambda *_: None,
    "LMNN(), labelled rows": labelled_rows,
    "LMNN(unlabeled_weight=1)": all_rows,
    "neighbourhoods of all rows": lambda X, y: Neighborhoods().fit(X, y),
}
BASELINE, SEMI = "LMNN(), labelled rows", "LMNN(unlabeled_weight=1)"
ORDER = [(data, method) for data in SETS for method in METHODS]


def load(name, texts):
    return few_labels.load(texts) if name == "texts" else never_worse_data.load(name)


def check(name, texts):
    """Raise UnavailableError if the data cannot be had here."""
    if name != "texts":
        never_worse_data.check(name)
    elif texts is None or not texts.exists():
        raise common.UnavailableError("--texts must name the cache of benchmarks.newsgroups")


def draw(name, seed, texts):
    """Rows to learn from, their labels with -1 for most, all labels, and new rows with theirs."""
    X, y = load(name, texts)
    y = np.unique(y, return_inverse=True)[1]
    rng = np.random.default_rng([seed, SETS.index(name)])
    rows = [rng.permutation(np.flatnonzero(y == c)) for c in range(y.max() + 1)]
    known = np.concatenate([r[: min(LABELS, len(r) // 2)] for r in rows])
    rest = rng.permutation(np.setdiff1d(np.arange(len(y)), known))
    n_new = min(NEW, len(rest) // 3)
    new, unlabeled = rest[:n_new], rest[n_new : n_new + UNLABELED]
    learned = np.concatenate([known, unlabeled])
    X_learned, X_new = X[learned], X[new]
    if name in TABLES:
        scaler = StandardScaler().fit(X_learned)
        X_learned, X_new = scaler.transform(X_learned), scaler.transform(X_new)
    if X.shape[1] > COMPONENTS:
        pca = PCA(COMPONENTS, random_state=0).fit(X_learned)
        X_learned, X_new = pca.transform(X_learned), pca.transform(X_new)
    given = np.where(np.arange(len(learned)) < len(known), y[learned], -1)
    return X_learned, given, y[learned], X_new, y[new]


def measure(name, seed, methods, texts):
    """{method: [draw, the four errors, seconds, errors of the spread labels or None]}."""
    X, given, truth, X_new, y_new = draw(name, seed, texts)
    known, found = given >= 0, {}
    for method in methods:
        begin = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that classes are small
            learner = METHODS[method](X, given)
        seconds = time.process_time() - begin
        tests = [(part, k) for part in ((X[~known], truth[~known]), (X_new, y_new)) for k in (1, 3)]
        errors = [knn_error(learner, X[known], given[known], *part, k) for part, k in tests]
        spread = getattr(learner, "transduction_", None)
        wrong = None if spread is None else round(float(np.mean((spread != truth)[~known])), 5)
        found[method] = [seed, *(round(e, 5) for e in errors), round(seconds, 2), wrong]
    return name, found


def measure_all(arguments):
    if arguments.smoke:
        arguments.sets, arguments.draws = SMOKE["sets"], SMOKE["draws"]
    deadline = time.time() + arguments.max_seconds
    names = available(arguments.sets, lambda name: check(name, arguments.texts))
    records, stamp = open_records(arguments, STEM, ORDER)
    work = [
        (name, seed, missing, arguments.texts)
        for seed in range(arguments.draws)
        for name in names
        if (missing := records.missing(name, seed, METHODS))
    ]

    def task(job):
        return (job[0], {}) if time.time() > deadline else measure(*job)

    with joblib.parallel_config("loky", n_jobs=arguments.jobs, inner_max_num_threads=1):
        parallel = joblib.Parallel(return_as="generator_unordered")
        for name, found in parallel(joblib.delayed(task)(job) for job in work):
            for method, entry in found.items():
                records.add(name, method, entry, stamp)
                print(name, method, entry, flush=True)


# -- the page ----------------------------------------------------------------------------------


def page(records):
    rows = best_rows(records)
    parts = [
        "# Ten labels a class, and many rows without one\n",
        "Written by `python -m benchmarks.semi_supervised`. Of each class"
        f" {LABELS} rows have a label, up to {UNLABELED} rows of the set have none, and up to {NEW}"
        " are new. Errors in %: the labelled rows classify the unlabelled and the new ones by one"
        " or three neighbours. In brackets the difference to LMNN of the labelled rows and its"
        " standard error, over the same draws; in bold where it is worse by more than one standard"
        f" error. Sets of more than {COMPONENTS} columns were reduced to so many principal"
        f" components of all rows to learn from; {', '.join(TABLES)} were standardised.\n",
        "*LMNN(unlabeled_weight=1)* spreads the labels under the metric of the labelled rows, and"
        " learns again from all rows ([how](../algorithms/lmnn.md#rows-without-a-label))."
        " *Neighbourhoods of all rows* is another attempt, which is not in the library: LMNN of the"
        " labelled rows that keeps not the distance of the inputs, but the one whitened by the"
        f" scatter of mutual {GRAPH_NEIGHBORS}-nearest neighbours of all rows.\n",
        "How labels spread and what confidence is was chosen on other draws of these sets.\n",
        _summary(rows),
        "## The sets with many unlabelled rows\n",
        *(_table(name, rows) for name in NAMED),
        "## Other sets\n",
        *(_table(name, rows) for name in OTHERS),
        machines(records),
    ]
    return "\n".join(part for part in parts if part)


def _splits(name, rows):
    """{method: its splits, (n, 7), of the draws that all methods have}; empty without any."""
    found = {m: np.array(rows[name, m]["splits"], float) for m in METHODS if (name, m) in rows}
    if len(found) < len(METHODS):
        return {}
    shared = set.intersection(*({int(split[0]) for split in splits} for splits in found.values()))
    return {m: splits[np.isin(splits[:, 0], list(shared))] for m, splits in found.items()}


def _changes(splits, baseline):
    """Means of the four differences in %, and their standard errors; zero of one draw."""
    change = 100 * (splits - baseline)[:, 1:5]
    few = len(change) < 2
    error = np.zeros(4) if few else change.std(axis=0, ddof=1) / len(change) ** 0.5
    return change.mean(axis=0), error


def _summary(rows):
    lines = []
    for title, names in (("the sets with many unlabelled rows", NAMED), ("the others", OTHERS)):
        found = [splits for name in names if (splits := _splits(name, rows))]
        changes = [_changes(splits[SEMI], splits[BASELINE]) for splits in found]
        if not changes:
            continue
        change, error = np.concatenate(changes, axis=1)
        lines.append(
            f"Of the {len(change)} errors on {len(found)} of {title}, unlabelled rows lower"
            f" {(change < -error).sum()} by more than a standard error, and raise"
            f" {(change > error).sum()}; the mean change is {change.mean():+.1f} points.\n"
        )
    return "\n".join(lines)


def _table(name, rows):
    found = _splits(name, rows)
    if not found:
        return ""
    lines = []
    for method, splits in found.items():
        errors = 100 * splits[:, 1:5].mean(axis=0)
        changes = zip(errors, *_changes(splits, found[BASELINE]), strict=True)
        cells = [_cell(*change, method == BASELINE) for change in changes]
        lines.append([method, *cells, f"{splits[:, 5].mean():.1f}"])
    table = markdown(["method", *ERRORS, "seconds"], lines)
    return (
        f"### {name}, {len(splits)} draws\n\n{table}\n"
        f"The labels that were spread are wrong in {100 * found[SEMI][:, 6].mean():.1f} % of the"
        " unlabelled rows.\n"
    )


def _cell(mean, change, error, is_baseline):
    if is_baseline:
        return f"{mean:.1f}"
    text = f"{mean:.1f} ({change:+.1f} ± {error:.1f})"
    return f"**{text}**" if change > error else text


def main(arguments=None):
    parser = common.record_parser(STEM, __doc__, "two draws of iris and wine, kept not")
    add = parser.add_argument
    add("--sets", type=chosen(SETS, {}), default=list(SETS), help=f"of {','.join(SETS)}")
    add("--texts", type=Path, help="the cache of benchmarks.newsgroups")
    add("--draws", type=int, default=DRAWS, help=f"default: {DRAWS}")
    add("--jobs", type=int, default=1, help="draws at a time, each in a process of one thread")
    add("--max-seconds", type=float, default=float("inf"), help="then nothing new is begun")
    arguments = parser.parse_args(arguments)
    arguments.device = "cpu"
    return run_script(arguments, STEM, measure_all, page)


if __name__ == "__main__":
    sys.exit(main())
