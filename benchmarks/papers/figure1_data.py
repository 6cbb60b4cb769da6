"""The data sets of Figure 1 of the MCML paper: where they come from, how they are split and scaled.

iris, wine and digits come with scikit-learn. The others are read from the folder that the
environment variable NEARFAR_DATA names, one ``<name>.npz`` each with ``X`` and ``y``. What the
paper leaves open is said in NOTES, which the page prints.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from benchmarks import common

TRAIN, TEST, MOST = 0.7, 0.3, 1000  # MOST: training points, drawn from the 70 %
SPLITS = 40
BUILT_IN = {"iris": load_iris, "wine": load_wine, "digits": load_digits}
FILES = {"ionosphere": "ionosphere", "balance": "balance_scale"}
FILES |= {"spam": "spambase", "usps": "usps"}
IMAGES = ("usps", "digits")
NAMES = ("wine", "ionosphere", "balance", "iris", "spam", "usps", "digits")
SPREAD = (
    1,
    2,
    3,
    4,
    5,
    7,
    10,
    14,
    20,
    28,
    40,
)  # dimensions of a set that has more than ALL of them
ALL = 13

NOTES = {
    "wine": "178 points.",
    "ionosphere": "351 points; one feature is constant.",
    "balance": "625 points.",
    "iris": "150 points.",
    "spam": "4601 points.",
    "usps": "9298 images of 16 x 16 pixels, averaged over blocks of 2 x 2; the paper's Digits.",
    "digits": "1797 images; not in the paper.",
}


@dataclass(frozen=True)
class Split:
    """The two parts of one split."""

    X_train: np.ndarray
    X_test: np.ndarray
    y_train: np.ndarray
    y_test: np.ndarray


def check(name):
    """Raise `common.UnavailableError` where the file of a data set is missing."""
    if name in FILES:
        common.data_file(FILES[name])


@lru_cache(maxsize=2)
def points(name):
    """All points and labels of a data set."""
    if name in BUILT_IN:
        X, y = BUILT_IN[name](return_X_y=True)
        return (X / 16 if name == "digits" else X), y
    with np.load(common.data_file(FILES[name]), allow_pickle=False) as archive:
        X, y = archive["X"].astype(np.float64), archive["y"].astype(np.int64)
    return (halved(X) if name == "usps" else X), y


def halved(X):
    """Images of 16 x 16 pixels at half their size: means over blocks of 2 x 2."""
    return X.reshape(-1, 8, 2, 8, 2).mean(axis=(2, 4)).reshape(len(X), -1)


def load(name, split):
    """One split, drawn with its number as the seed; features standardised, images not."""
    X, y = points(name)
    rows = np.arange(len(y))
    train, test = train_test_split(rows, train_size=TRAIN, test_size=TEST, random_state=split)
    train = train[:MOST]  # train_test_split has shuffled them
    X_train, X_test = X[train], X[test]
    if name not in IMAGES:
        scaler = StandardScaler().fit(X_train)
        X_train, X_test = scaler.transform(X_train), scaler.transform(X_test)
    return Split(X_train, X_test, y[train], y[test])


def small(name):
    """Whether all methods are measured: those of kernels and of Fig. 2 are not on large sets."""
    return TRAIN * len(points(name)[0]) < MOST


def dimensions(d):
    """The numbers of dimensions on which d features are projected."""
    if d <= ALL:
        return tuple(range(1, d + 1))
    return *(q for q in SPREAD if q < d), d
