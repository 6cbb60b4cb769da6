"""LMNN with few points: the papers' program and ``shrinkage="auto"``, beside the inputs and LDA.

    python -m benchmarks.shrinkage                              # the digits of scikit-learn
    NEARFAR_DATA=DIR python -m benchmarks.shrinkage             # also USPS, isolet and faces
    python -m benchmarks.shrinkage --newsgroups newsgroups.npz  # the cache of benchmarks.newsgroups

It prints the table of docs/algorithms/lmnn.md: 3-NN test errors in %, and for embeddings 100 minus
the precision at 10 of held-out posts among each other; means over random splits.
"""

from __future__ import annotations

import argparse
import os
import warnings
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.neighbors import KNeighborsClassifier

from nearfar import LMNN
from nearfar.evaluation import retrieval_measures

FILES = {
    "USPS": ("usps.npz", 300),
    "isolet": ("isolet.npz", 300),
    "Olivetti": ("olivetti_faces.npz", 280),
}
LABELS = (5, 10, 20)  # posts of each group to learn from
INPUTS = 200  # principal components
TESTED = 1500  # rows at most
METHODS = {
    "inputs": None,
    "shrunk LDA": LinearDiscriminantAnalysis(solver="eigen", shrinkage="auto"),
    "shrinkage=0": LMNN(tol=1e-2, shrinkage=0),
    'shrinkage="auto"': LMNN(tol=1e-2),
}


def images(method, X, y, *parts):
    """The parts under a method that is fitted to X and y."""
    return parts if method is None else [method.fit(X, y).transform(part) for part in parts]


def classification(X, y, n_learned, seed):
    """3-NN test error of each method in %, in one split."""
    rng = np.random.default_rng(seed)
    while True:
        rows = rng.permutation(len(X))
        learned, tested = rows[:n_learned], rows[n_learned : n_learned + TESTED]
        if np.unique(y[learned], return_counts=True)[1].min() > 1:
            break
    for method in METHODS.values():
        known, new = images(method, X[learned], y[learned], X[learned], X[tested])
        yield 100 * (1 - KNeighborsClassifier(3).fit(known, y[learned]).score(new, y[tested]))


def retrieval(X, y, n_labels, seed):
    """100 − precision@10 among held-out rows of each method, in one split."""
    rng = np.random.default_rng(seed)
    learned = np.concatenate(
        [rng.permutation(np.flatnonzero(y == c))[:n_labels] for c in np.unique(y)]
    )
    tested = rng.permutation(np.setdiff1d(np.arange(len(y)), learned))[:TESTED]
    for method in METHODS.values():
        (new,) = images(method, X[learned], y[learned], X[tested])
        yield 100 * (1 - retrieval_measures(new, y[tested], k=10).precision)


def tasks(newsgroups):
    """Name, measure and its arguments of each row of the table."""
    yield "digits", classification, *load_digits(return_X_y=True), 200
    folder = os.environ.get("NEARFAR_DATA")
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
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # that a class has few members
    print(f"| data | {' | '.join(METHODS)} |\n|{' --- |' * (1 + len(METHODS))}")
    for name, measure, *data in tasks(arguments.newsgroups):
        found = np.mean([list(measure(*data, seed)) for seed in range(arguments.splits)], axis=0)
        print(f"| {name} | {' | '.join(f'{value:.1f}' for value in found)} |", flush=True)


if __name__ == "__main__":
    main()
