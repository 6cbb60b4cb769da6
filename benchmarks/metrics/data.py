"""The data sets of the tasks: ``python -m benchmarks.metrics.data NAME FOLDER``.

FOLDER receives what `benchmarks.lmnn.data` writes, and for the tasks that learn from pairs or
chunklets ``pairs.npz`` with the rows ``near`` and ``far`` (m, 2), all of a small set and PAIRS
drawn ones of a large one, and ``chunklets.npy``, a number for each row, -1 for none.

digits40 are the 40 leading principal components of the digits: in some of the 64 pixels near pairs
do not differ. digits300 are 300 of the training rows, which is what pyDML can do. isolet617 are
all the features of isolet.
"""

import json
import sys
from pathlib import Path

import numpy as np

from benchmarks.lmnn import data as lmnn_data
from benchmarks.lmnn.data import SEED

PAIRS = 5000  # near and as many far pairs
CHUNKLET = 10  # points in a chunklet
SHARE = 0.8  # of the points are in chunklets


def load(name):
    """X_train, X_test, y_train, y_test of a data set, as the benchmark uses it."""
    if name == "digits300":
        train, test, y_train, y_test = lmnn_data.load("digits")
        return train[:300], test, y_train[:300], y_test
    if name == "digits40":
        train, test, *labels = lmnn_data.load("digits")
        return *leading(train, test, 40), *labels
    if name == "isolet617":
        archive = lmnn_data.read_archive("isolet")
        X, y = np.round(archive["X"].astype(np.float64), 4), archive["y"]
        train, test = archive["train"], archive["test"]
        return X[train], X[test], y[train], y[test]
    return lmnn_data.load(name)


def leading(train, test, count):
    """Both parts on the leading principal components of the first."""
    mean = train.mean(0)
    axes = np.linalg.eigh(np.cov(train.T))[1][:, ::-1][:, :count]
    return (train - mean) @ axes, (test - mean) @ axes


def drawn_pairs(y, count, generator):
    """At most ``count`` near and ``count`` far pairs (m, 2), first row below second."""
    n = len(y)
    if n * (n - 1) // 2 <= 4 * count:
        rows = np.stack(np.triu_indices(n, 1), axis=1)
    else:
        rows = np.unique(np.sort(generator.integers(n, size=(64 * count, 2)), axis=1), axis=0)
        rows = rows[rows[:, 0] < rows[:, 1]]
    rows = generator.permutation(rows)
    near = y[rows[:, 0]] == y[rows[:, 1]]
    return rows[near][:count], rows[~near][:count]


def drawn_chunklets(y, generator):
    """Numbers of chunklets within classes, of CHUNKLET points or a few more; -1 for the rest."""
    chunklets, number = np.full(len(y), -1), 0
    for label in np.unique(y):
        members = generator.permutation(np.flatnonzero(y == label))
        members = members[: max(2, round(SHARE * len(members)))]
        for part in np.array_split(members, max(1, len(members) // CHUNKLET)):
            chunklets[part] = number
            number += 1
    return chunklets


def main(name, folder):
    folder = Path(folder)
    X_train, X_test, y_train, y_test = load(name)
    np.savez(folder / "train.npz", X=X_train, y=y_train)
    np.savez(folder / "test.npz", X=X_test, y=y_test)
    generator = np.random.default_rng(SEED)
    near, far = drawn_pairs(y_train, PAIRS, generator)
    np.savez(folder / "pairs.npz", near=near, far=far)
    np.save(folder / "chunklets.npy", drawn_chunklets(y_train, generator))
    (folder / "shape.json").write_text(json.dumps(X_train.shape))


if __name__ == "__main__":
    main(*sys.argv[1:])
