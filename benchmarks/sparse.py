"""Learning from words that stay sparse: ``python -m benchmarks.sparse``.

20 newsgroups by date, TF-IDF of all words: 11314 posts to learn from, 7532 to test. Each method
runs in a process of its own, which reports its CPU seconds and the most memory that it ever held,
data and imports included. A method is saved as soon as it is measured, and is not run again.
"""

import json
import resource
import subprocess
import sys
import time
import warnings

import numpy as np
from scipy import sparse
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.neighbors import KNeighborsClassifier

from benchmarks import common, tables
from benchmarks.papers.records import facts
from nearfar import LMNN, NCA, RCA
from nearfar.errors import ConvergenceWarning

RECORD = common.ROOT / "benchmarks" / "results" / "sparse.json"
PAGE = common.ROOT / "docs" / "results" / "sparse.md"
ROWS = 30  # of each map
SEARCHED = 2000  # test posts whose neighbours among each other are judged


def words(_, __):
    return None


def truncated_svd(X, _):
    return TruncatedSVD(ROWS, random_state=0).fit(X)


def lmnn(X, y):
    return LMNN(n_components=ROWS, tol=0.01, max_iter=60).fit(X, y)


def nca(X, y):
    return NCA(n_components=ROWS, tol=1e-3, max_iter=30).fit(X, y)


def rca(X, y):
    return RCA(n_components=ROWS).fit(X, y)


METHODS = {
    "words as they are": words,
    "TruncatedSVD": truncated_svd,
    "RCA": rca,
    "LMNN": lmnn,
    "NCA": nca,
}


def load(smoke=False):
    """TF-IDF of the posts to learn from and of those to test, with their groups."""
    if smoke:
        rng = np.random.default_rng(0)
        y = np.arange(200) % 4
        X = rng.poisson(rng.gamma(0.05, size=(4, 1000))[y]).astype(float)
        train, test = np.arange(120), np.arange(120, 200)
        X = sparse.csr_array(X)
    else:
        with np.load(common.data_file("newsgroups20")) as file:
            parts = file["data"].astype(np.float64), file["indices"], file["indptr"]
            X = sparse.csr_array(parts, shape=tuple(file["shape"]))
            y, train, test = file["y"], file["train"], file["test"]
    weigh = TfidfTransformer(sublinear_tf=True).fit(X[train])
    known, new = (sparse.csr_array(weigh.transform(X[rows])) for rows in (train, test))
    return known, y[train], new, y[test]


def measure(method, smoke=False):
    """Fit in this process, and judge test posts by their nearest neighbours."""
    known, y, new, truth = load(smoke)
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = METHODS[method](known, y)
    seconds = time.process_time() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    images = (known, new) if model is None else (model.transform(known), model.transform(new))
    vote = KNeighborsClassifier(3, algorithm="brute").fit(images[0], y)
    some = images[1][:SEARCHED]
    near = (
        KNeighborsClassifier(11, algorithm="brute").fit(some, truth[:SEARCHED]).kneighbors(some)[1]
    )
    others = np.array([[t for t in row if t != i][:10] for i, row in enumerate(near)])
    return {
        "method": method,
        "error": float(np.mean(vote.predict(images[1]) != truth)),
        "precision": float(np.mean(truth[:SEARCHED][others] == truth[:SEARCHED][:, None])),
        "seconds": seconds,
        "n_iter": getattr(model, "n_iter_", None),
        "status": str(getattr(model, "status_", "")),
        "shrinkage": getattr(model, "shrinkage_", None),
        "megabytes_before": before / 1024,
        "megabytes": peak / 1024,
        "shape": [known.shape[0], new.shape[0], known.shape[1]],
        "stored": int(known.nnz),
        "commit": common.commit(),
        "date": common.now()[:10],
    }


def page(record):
    runs = sorted(record["runs"], key=lambda run: list(METHODS).index(run["method"]))
    n, tested, d = runs[0]["shape"]
    rows = [
        [
            run["method"],
            f"{100 * run['error']:.1f}",
            f"{100 * run['precision']:.1f}",
            "" if run["method"] == "words as they are" else f"{run['seconds']:.0f}",
            "" if run["n_iter"] is None else f"{run['n_iter']} ({run['status']})",
            f"{run['megabytes']:.0f}",
        ]
        for run in runs
    ]
    header = ["method", "3-NN error, %", "precision@10, %", "CPU s", "iterations", "peak MB"]
    machine = record["machine"]
    versions = ", ".join(f"{name} {v}" for name, v in record["versions"].items())
    commits = sorted({f"{run['commit']} ({run['date']})" for run in runs})
    return "\n".join(
        [
            "# Learning from sparse words",
            "",
            f"Written by `python -m benchmarks.sparse`; {n} posts of 20 newsgroups to learn from,"
            f" {tested} to test (the split by date), TF-IDF of {d} words, {runs[0]['stored']}"
            " numbers stored. As a dense array the posts to learn from would take"
            f" {8 * n * d / 1e6:.0f} MB. Maps have {ROWS} rows. *3-NN error*: of all test posts, by"
            " neighbours among those learned from. *Precision@10*: among"
            f" {min(SEARCHED, tested)} test posts, none of them learned from. *Peak*: the most"
            " memory that the process held until the end of the fit, of which data and imports"
            f" take {runs[0]['megabytes_before']:.0f} MB.",
            "",
            tables.markdown(header, rows),
            "",
            "`LMNN` holds the triplets of posts, targets and impostors beside the map."
            " `LMNN` was stopped after 60 iterations, or at a tolerance of 0.01; `NCA` after 30, or"
            " at 0.001.",
            "",
            f"Measured on {machine['cpu']}, {machine['cores']} cores, {machine['system']}, one"
            f" thread, one run each, with other work on the machine: CPU seconds, not those of the"
            f" clock; {versions}; commit {', '.join(commits)}.",
            "",
        ]
    )


def main(arguments=None):
    parser = common.page_parser("sparse", __doc__, RECORD, PAGE)
    parser.add_argument("--methods", default=",".join(METHODS), help="by commas")
    parser.add_argument("--smoke", action="store_true", help="a few made-up posts, no record")
    parser.add_argument("--child", help="measure this method in this process")
    options = parser.parse_args(arguments)
    if options.child:
        print(json.dumps(measure(options.child, options.smoke)))
        return 0
    record = {"runs": []}
    if options.record.exists() and not options.smoke:
        record = json.loads(options.record.read_text())
    for method in [] if options.table else options.methods.split(","):
        if any(run["method"] == method for run in record["runs"]):
            continue
        command = [sys.executable, "-m", "benchmarks.sparse", "--child", method]
        command += ["--smoke"] if options.smoke else []
        environment = common.threads_environment(1)
        done = subprocess.run(
            command, env=environment, check=True, stdout=subprocess.PIPE, text=True, cwd=common.ROOT
        )
        record["runs"].append(json.loads(done.stdout))
        print(done.stdout.strip(), flush=True)
        record |= facts("cpu")
        if not options.smoke:
            common.write_runs(options.record, record)
    if options.smoke:
        print(page(record))
    else:
        common.write_text(options.page, page(record))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
