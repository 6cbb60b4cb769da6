"""Table 3.3 of the thesis: errors of support vector machines with fixed and with learned kernels.

The digits are the training part of USPS, read from ``usps.npz`` (``X`` in [-1, 1], ``y`` and the
row numbers ``train``) in the folder that the environment variable NEARFAR_DATA names; in a smoke
run those of scikit-learn.
"""

import time
import warnings
from functools import lru_cache

import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics.pairwise import linear_kernel, polynomial_kernel, rbf_kernel
from sklearn.model_selection import GridSearchCV, StratifiedKFold, train_test_split
from sklearn.svm import SVC

from benchmarks import common
from benchmarks.papers.table32_methods import on_device
from benchmarks.papers.table33_paper import POINTS, TEST
from nearfar import MVU

NEIGHBORS = 4
SIGMA = 1.0
PENALTIES = [0.1, 1.0, 10.0, 100.0, 1000.0]  # C, chosen by cross validation
FOLDS = 5
SMOKE_POINTS = 120
SEED = 0


def check(_):
    """Raise `common.UnavailableError` where the file is missing."""
    common.data_file("usps")


@lru_cache(maxsize=1)
def images(digits, smoke=False):
    """As many images of each of two digits, drawn at random, of unit length, and labels."""
    if smoke:
        X, y = load_digits(return_X_y=True)
    else:
        with np.load(common.data_file("usps"), allow_pickle=False) as archive:
            rows = archive["train"]
            X, y = 1 + archive["X"][rows].astype(np.float64), archive["y"][rows]
    count = (SMOKE_POINTS if smoke else POINTS) // 2
    generator = np.random.default_rng(SEED)
    rows = [
        generator.choice(np.flatnonzero(y == int(digit)), count, replace=False)
        for digit in digits.split("v")
    ]
    rows = np.concatenate(rows)
    X, y = X[rows], y[rows]
    return X / np.linalg.norm(X, axis=1, keepdims=True), y


@lru_cache(maxsize=1)
def mvu_kernel(digits, smoke, device):
    """K of all images, training and testing, without their labels; and what is to be known."""
    X, _ = images(digits, smoke)
    learner = MVU(n_neighbors=NEIGHBORS, on_disconnected="link", random_state=SEED)
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what they say stands in the remark
        learner.fit(on_device(X, device))
    seconds = time.perf_counter() - begin
    K = learner.kernel_ if device == "cpu" else learner.kernel_.cpu().numpy()
    remark = f"{seconds:.1f} s, {learner.status_}, gap {learner.duality_gap_:.0e}, "
    share = learner.eigenvalues_[:10].sum() / learner.eigenvalues_.sum()
    return K, remark + f"{share:.0%} of the variance in 10 dimensions"


def kernel_matrix(kernel, digits, smoke=False, device="cpu"):
    """The kernel matrix of all images, and what is to be known of it."""
    if kernel == "mvu":
        return mvu_kernel(digits, smoke, device)
    X, _ = images(digits, smoke)
    if kernel == "linear":
        return linear_kernel(X), ""
    if kernel == "polynomial":
        return polynomial_kernel(X, degree=2, gamma=1, coef0=1), ""
    return rbf_kernel(X, gamma=1 / (2 * SIGMA**2)), ""


def error(K, y, split):
    """The test error of one split, by the penalty that does best in cross validation.

    The kernel is scaled until points have a mean squared distance of 2 from each other, so that the
    penalties mean the same for all kernels.
    """
    K = K / (np.diagonal(K).mean() - K.mean())
    parts = train_test_split(np.arange(len(y)), test_size=TEST, stratify=y, random_state=split)
    train, test = parts
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=split)
    search = GridSearchCV(SVC(kernel="precomputed"), {"C": PENALTIES}, cv=folds)
    search.fit(K[np.ix_(train, train)], y[train])
    return 1 - search.score(K[np.ix_(test, train)], y[test])
