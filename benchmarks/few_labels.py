"""Frozen embeddings and few labels: ``python -m benchmarks.few_labels --cache newsgroups.npz``.

Two searches are measured with posts that were not learned from: among *new* documents, each of them
among the others, and among the *known* ones, from whose labels the metric was learned. The file has
the arrays X, y, queries and truth that ``benchmarks.newsgroups --cache`` writes; all its rows are
used alike. A draw is saved as soon as it is measured, and left out of the next run.
"""

import json
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.covariance import ledoit_wolf_shrinkage
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from benchmarks import common, tables
from benchmarks.papers.records import facts
from nearfar import LMNN
from nearfar.evaluation import retrieval_measures

RECORD = common.ROOT / "benchmarks" / "results" / "few_labels.json"
PAGE = common.ROOT / "docs" / "results" / "few_labels.md"
LABELS = (2, 5, 10, 20, 50, 100)  # of each class
DRAWS = 3
TESTED = 1000  # new documents
SHRINKAGE = 0.9
MEASURES = {
    "precision@10": "precision",
    "MRR": "mean_reciprocal_rank",
    "nDCG@10": "ndcg",
}


def as_they_are(X, _):
    return np.eye(X.shape[1])


def shrunk_lda(X, y):
    """scikit-learn's, which shrinks the covariance of each class; fails with two labels a class."""
    lda = LinearDiscriminantAnalysis(solver="eigen", shrinkage="auto").fit(X, y)
    return discriminants(lda)


def lmnn(X, y):
    return LMNN(neighbors(y), tol=0.01).fit(X, y).components_


def with_discriminants(X, y):
    """The embeddings, and beside them their discriminants at the same total variance, (d + c, d).

    The pooled covariance within classes is shrunk by Ledoit and Wolf's rule.
    """
    _, codes = np.unique(y, return_inverse=True)
    means = np.array([X[codes == c].mean(axis=0) for c in range(codes.max() + 1)])
    shrinkage = ledoit_wolf_shrinkage(X - means[codes], assume_centered=True)
    L = discriminants(LinearDiscriminantAnalysis(solver="eigen", shrinkage=shrinkage).fit(X, y))
    weight = np.sqrt(X.var(axis=0).sum() / (X @ L.T).var(axis=0).sum())
    return np.vstack([np.eye(X.shape[1]), weight * L])


def lmnn_with_discriminants(X, y):
    """LMNN that keeps the distance of the embeddings and their discriminants."""
    kept = with_discriminants(X, y)
    model = LMNN(neighbors(y), shrinkage=SHRINKAGE, tol=0.01).fit(X @ kept.T, y)
    return model.components_ @ kept


def discriminants(lda):
    return lda.scalings_[:, : len(lda.classes_) - 1].T


def neighbors(y):
    return int(min(3, np.unique(y, return_counts=True)[1].min() - 1))


METHODS = {
    "as they are": as_they_are,
    "shrunk LDA": shrunk_lda,
    "LMNN()": lmnn,
    "embeddings and discriminants": with_discriminants,
    "LMNN that keeps both": lmnn_with_discriminants,
}


def load(path):
    """All rows, without columns that hardly vary, and their labels."""
    with np.load(path) as arrays:
        X = np.concatenate([arrays["X"], arrays["queries"]]).astype(np.float64)
        y = np.concatenate([arrays["y"], arrays["truth"]])
    return X[:, X.std(axis=0) > 1e-6], y


def draw(y, n_labels, seed):
    """Rows to learn from, n_labels of each class, and new ones."""
    rng = np.random.default_rng([seed, n_labels])
    rows = [rng.permutation(np.flatnonzero(y == c))[:n_labels] for c in np.unique(y)]
    known = np.concatenate(rows)
    return known, rng.permutation(np.setdiff1d(np.arange(len(y)), known))[:TESTED]


def measure(X, y, n_labels, seed, method):
    """{search: {measure: value}} and seconds, or the name of what failed."""
    known, new = draw(y, n_labels, seed)
    begin = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that classes are small
            L = METHODS[method](X[known], y[known])
    except np.linalg.LinAlgError as error:
        return {"failed": f"{type(error).__name__}: {error}"}
    seconds = time.perf_counter() - begin
    Z = X @ L.T
    searches = {
        "new": retrieval_measures(Z[new], y[new], k=10),
        "known": retrieval_measures(Z[known], y[known], Z[new], y[new], k=10),
    }
    values = {
        search: {title: round(getattr(found, name), 5) for title, name in MEASURES.items()}
        for search, found in searches.items()
    }
    return values | {"seconds": round(seconds, 2)}


def page(record):
    """Means over the draws; in bold what is below the embeddings as they are."""
    runs = record["runs"]
    n_draws = max((run["draw"] for run in runs), default=-1) + 1
    parts = [
        "# Few labels on frozen embeddings\n",
        f"Written by `python -m benchmarks.few_labels`; {record['rows']} posts of"
        f" {record['classes']} newsgroups, embedded by all-MiniLM-L6-v2, {record['columns']}"
        f" features that vary; means of {n_draws} draws. *New*: {record['tested']} posts that were"
        " not learned from are searched for among each other. *Known*: they are searched for among"
        " the labelled posts. In bold: below the embeddings as they are.\n",
        "*Embeddings and discriminants* is no learner: it is the distance of the embeddings plus"
        " that of their discriminants (LDA with the pooled covariance, shrunk) at the same total"
        f" variance. *LMNN that keeps both* learns on top of it with `shrinkage={SHRINKAGE}`"
        " (`examples/search/adapt_embeddings.py` has the few lines). Its two constants were chosen"
        " on other draws of these posts; those of `LMNN()` on 34 other sets, and one of them, how"
        " fast a distance loses its weight, also on the first draws of"
        " these.\n",
    ]
    for search, words in (("new", "New documents"), ("known", "Known documents")):
        parts += [
            f"## {words}, {title} in %\n\n{_table(runs, search, title)}" for title in MEASURES
        ]
    parts.append(f"## Seconds to learn\n\n{_seconds(runs)}")
    commits = sorted({run["commit"] for run in runs})
    parts.append(tables.measured_on(record, ", one thread", commits))
    return "\n".join(parts)


def _chosen(runs, n_labels, method):
    return [run for run in runs if (run["labels"], run["method"]) == (n_labels, method)]


def _header(runs):
    labels = [n for n in LABELS if any(run["labels"] == n for run in runs)]
    return labels, ["method", *(f"{n} labels a class" for n in labels)]


def _table(runs, search, title):
    labels, header = _header(runs)
    means = {
        (method, n): np.mean([run[search][title] for run in some])
        for method in METHODS
        for n in labels
        if (some := [run for run in _chosen(runs, n, method) if search in run])
    }
    rows = []
    for method in METHODS:
        cells = []
        for n in labels:
            value = means.get((method, n))
            below = value is not None and value < means["as they are", n]
            text = "fails" if value is None else f"{100 * value:.1f}"
            cells.append(f"**{text}**" if below else text)
        rows.append([method, *cells])
    return tables.markdown(header, rows)


def _seconds(runs):
    labels, header = _header(runs)
    rows = [
        [method]
        + [
            f"{np.mean(found):.1f}"
            if (found := [r["seconds"] for r in _chosen(runs, n, method) if "seconds" in r])
            else "fails"
            for n in labels
        ]
        for method in METHODS
        if method != "as they are"
    ]
    return tables.markdown(header, rows)


def main(arguments=None):
    parser = common.page_parser("few_labels", __doc__, RECORD, PAGE)
    parser.add_argument("--cache", type=Path, help="file with X, y, queries and truth")
    parser.add_argument("--labels", default=",".join(map(str, LABELS)), help="by commas")
    parser.add_argument("--draws", type=int, default=DRAWS)
    options = parser.parse_args(arguments)
    if not options.table and options.cache is None:
        parser.error("--cache names the file with the embeddings; benchmarks.newsgroups makes one")
    record = json.loads(options.record.read_text()) if options.record.exists() else {"runs": []}
    if not options.table:
        X, y = load(options.cache)
        commit = common.commit()  # before the record changes
        shape = {"rows": len(X), "columns": X.shape[1], "classes": len(np.unique(y))}
        record |= facts("cpu") | shape | {"tested": TESTED}
        for n_labels in map(int, options.labels.split(",")):
            for seed in range(options.draws):
                for method in METHODS:
                    if any(
                        run["draw"] == seed for run in _chosen(record["runs"], n_labels, method)
                    ):
                        continue
                    run = {"labels": n_labels, "draw": seed, "method": method}
                    run |= {"commit": commit}
                    run |= measure(X, y, n_labels, seed, method)
                    print(json.dumps(run), flush=True)
                    record["runs"].append(run)
                    record |= {"date": common.now()[:10]}
                    common.write_runs(options.record, record)
    common.write_text(options.page, page(record))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
