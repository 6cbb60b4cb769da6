"""Few points: the papers' programs and ``shrinkage="auto"``, beside the inputs and LDA.

    python -m benchmarks.shrinkage                              # LMNN, the digits of scikit-learn
    NEARFAR_DATA=DIR python -m benchmarks.shrinkage             # also USPS, isolet and faces
    python -m benchmarks.shrinkage --newsgroups newsgroups.npz  # the cache of benchmarks.newsgroups
    python -m benchmarks.shrinkage --learners soft --splits 5   # MCML and NCA, on more sets

It prints the tables of docs/algorithms/lmnn.md, with ``--learners soft`` one of MCML and NCA: 3-NN
test errors in %, and for embeddings 100 minus the precision at 10 of held-out posts among each
other; means over random splits, and with ``soft`` the mean difference to the inputs with its
standard error.
"""

from __future__ import annotations

import argparse
import os
import warnings
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler

from nearfar import LMNN, MCML, NCA
from nearfar.evaluation import retrieval_measures

FILES = {
    "USPS": ("usps.npz", 300),
    "isolet": ("isolet.npz", 300),
    "Olivetti": ("olivetti_faces.npz", 280),
}
BUILT_IN = {"wine": load_wine, "iris": load_iris, "breast cancer": load_breast_cancer}
SMALL = {"balance": "balance_scale.npz", "ionosphere": "ionosphere.npz"}
SHARE = 0.7  # of the rows of small sets, to learn from
LABELS = (5, 10, 20, 50)  # posts of each group to learn from
INPUTS = 200  # principal components
TESTED = 1500  # rows at most
METHODS = {
    "lmnn": {
        "inputs": None,
        "shrunk LDA": LinearDiscriminantAnalysis(solver="eigen", shrinkage="auto"),
        "shrinkage=0": LMNN(tol=1e-2, shrinkage=0),
        "LMNN()": LMNN(tol=1e-2),
    },
    "soft": {"inputs": None, "MCML()": MCML(), "NCA()": NCA()},
}


def images(method, X, y, *parts):
    """The parts under a method that is fitted to X and y."""
    return parts if method is None else [method.fit(X, y).transform(part) for part in parts]


def classification(methods, X, y, n_learned, seed):
    """3-NN test error of each method in %, in one split."""
    rng = np.random.default_rng(seed)
    while True:
        rows = rng.permutation(len(X))
        learned, tested = rows[:n_learned], rows[n_learned : n_learned + TESTED]
        if np.unique(y[learned], return_counts=True)[1].min() > 1:
            break
    for method in methods.values():
        known, new = images(method, X[learned], y[learned], X[learned], X[tested])
        yield 100 * (1 - KNeighborsClassifier(3).fit(known, y[learned]).score(new, y[tested]))


def retrieval(methods, X, y, n_labels, seed):
    """100 − precision@10 among held-out rows of each method, in one split."""
    rng = np.random.default_rng(seed)
    learned = np.concatenate(
        [rng.permutation(np.flatnonzero(y == c))[:n_labels] for c in np.unique(y)]
    )
    tested = rng.permutation(np.setdiff1d(np.arange(len(y)), learned))[:TESTED]
    for method in methods.values():
        (new,) = images(method, X[learned], y[learned], X[tested])
        yield 100 * (1 - retrieval_measures(new, y[tested], k=10).precision)


def small_sets(folder):
    """Name, points and labels, also standardised; those of files if there is a folder."""
    for name, load in BUILT_IN.items():
        X, y = load(return_X_y=True)
        yield name, X, y
        yield f"{name}, standardised", StandardScaler().fit_transform(X), y
    for name, file in SMALL.items() if folder else ():
        with np.load(Path(folder) / file) as arrays:
            yield name, arrays["X"].astype(np.float64), arrays["y"]


def tasks(newsgroups, learners):
    """Name, measure and its arguments of each row of the table."""
    yield "digits", classification, *load_digits(return_X_y=True), 200
    folder = os.environ.get("NEARFAR_DATA")
    for name, X, y in small_sets(folder) if learners == "soft" else ():
        yield name, classification, X, y, int(SHARE * len(X))
    for name, (file, n_learned) in FILES.items() if folder else ():
        with np.load(Path(folder) / file) as arrays:
            X, y = arrays["X"].astype(np.float64), arrays["y"]
        rows = np.random.default_rng(0).permutation(len(X))[:4300]
        yield (
            name,
            classification,
            PCA(INPUTS, random_state=0).fit_transform(X[rows]),
            y[rows],
            n_learned,
        )
    if newsgroups is not None:
        with np.load(newsgroups) as arrays:
            X = np.concatenate([arrays["X"], arrays["queries"]]).astype(np.float64)
            y = np.concatenate([arrays["y"], arrays["truth"]])
        X = X[:, X.std(axis=0) > 1e-6]  # the encoder leaves three outputs unused
        for n_labels in LABELS:
            yield f"newsgroups, {n_labels} posts a class", retrieval, X, y, n_labels


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--newsgroups", type=Path, help="file with X, y, queries and truth")
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--learners", choices=METHODS, default="lmnn")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # that a class has few members
    methods, seeds = METHODS[arguments.learners], range(arguments.splits)
    print(f"| data | {' | '.join(methods)} |\n|{' --- |' * (1 + len(methods))}")
    for name, measure, *data in tasks(arguments.newsgroups, arguments.learners):
        found = np.array([list(measure(methods, *data, seed)) for seed in seeds])
        cells = [f"{value:.1f}" for value in found.mean(axis=0)]
        if arguments.learners == "soft":
            change = found[:, 1:] - found[:, :1]
            errors = change.std(axis=0, ddof=1) / len(seeds) ** 0.5
            pairs = zip(change.mean(axis=0), errors, strict=True)
            cells[1:] = [
                f"{cell} ({mean:+.1f} ± {error:.1f})"
                for cell, (mean, error) in zip(cells[1:], pairs, strict=True)
            ]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
