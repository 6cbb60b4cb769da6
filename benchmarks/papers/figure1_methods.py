"""The curves of Figures 1 and 2 of the MCML paper: 1-NN errors of a split by projection dimension.

A method answers with the test points and the training points on each number of dimensions. Those
of Fig. 1 learn one map, whose leading rows are the projections; those of Fig. 2, NMCML and NCA,
learn anew for each number of rows.
"""

import time
import warnings
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.model_selection import StratifiedKFold

from benchmarks.papers import figure1_data
from nearfar import MCML, MMC, NCA, KernelMCML
from nearfar.evaluation import knn_error

# of KMCML, chosen by cross validation on the training part of the first split; the widths are
# multiples of 1 over the sum of the variances of the features, and the shrinkages give the trace
# weights of about 0.01, 0.1 and 1 where points of a class differ by 1.3 on average (squared)
WIDTHS = (0.3, 1.0, 3.0)
SHRINKAGES = (0.06, 0.4, 0.86)
FOLDS = 5
NULL = 1e-10  # share of the largest variance that is rounding


@dataclass(frozen=True)
class Curve:
    """Errors by dimension, seconds of learning, and the eigenvalues of the metric if it has any."""

    errors: dict[int, float]
    seconds: float
    spectrum: list[float] = field(default_factory=list)


def _projected(split, train, test, seconds, spectrum=()):
    """The curve of a map whose leading rows are the projections; level where it has no more."""
    rows = {q: min(q, train.shape[1]) for q in figure1_data.dimensions(split.X_train.shape[1])}
    known = {r: _error(split, train[:, :r], test[:, :r]) for r in set(rows.values())}
    total = sum(spectrum) or 1.0
    spectrum = [float(value / total) for value in spectrum]
    return Curve({q: known[r] for q, r in rows.items()}, seconds, spectrum)


def _error(split, train, test):
    return knn_error(None, train, split.y_train, test, split.y_test, 1)


def _fitted(split, learner):
    begin = time.perf_counter()
    learner.fit(split.X_train, split.y_train)
    return time.perf_counter() - begin


def _learned(split, learner, given=None):
    """The curve of a learner that gets ``given``, by default the split itself."""
    given = split if given is None else given
    seconds = _fitted(given, learner)
    spectrum = ()
    if hasattr(learner, "components_"):
        spectrum = (learner.components_**2).sum(axis=1)
    parts = map(learner.transform, (given.X_train, given.X_test))
    return _projected(split, *parts, seconds, spectrum)


def mcml(_, split):
    return _learned(split, MCML(shrinkage=0))


def mcml_whitened(_, split):
    """On points that are whitened: the full metric is the same, its leading directions are not."""
    return _learned(split, MCML(shrinkage=0), _whitened(split)[0])


def mmc(_, split):
    """All pairs of a class are near, all others far."""
    return _learned(split, MMC(shrinkage=0))


def pca_whitened(_, split):
    given, seconds = _whitened(split)
    return _projected(split, given.X_train, given.X_test, seconds)


def _whitened(split):
    """The split on its principal components, each divided by its deviation."""
    pca = PCA()
    seconds = _fitted(split, pca)
    varies = pca.explained_variance_ > NULL * pca.explained_variance_[0]
    deviations = np.sqrt(pca.explained_variance_[varies])
    train, test = (pca.transform(X)[:, varies] / deviations for X in (split.X_train, split.X_test))
    return replace(split, X_train=train, X_test=test), seconds


def lda(_, split):
    """On one dimension less than there are classes at most: the others hold nothing."""
    model = LinearDiscriminantAnalysis()
    seconds = _fitted(split, model)
    return _projected(split, model.transform(split.X_train), model.transform(split.X_test), seconds)


def kernel_mcml(data, split):
    gamma, shrinkage = _chosen(data)
    return _learned(split, _kernel_learner(split.X_train, gamma, shrinkage))


def _kernel_learner(X, width, shrinkage):
    return KernelMCML(gamma=width / X.var(axis=0).sum(), shrinkage=shrinkage)


@lru_cache
def _chosen(data):
    """The width and the weight of the trace with the least error in cross validation."""
    split = figure1_data.load(data, 0)
    X, y = split.X_train, split.y_train
    folds = list(StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(X, y))
    errors = {}
    for width in WIDTHS:
        for shrinkage in SHRINKAGES:
            learner = _kernel_learner(X, width, shrinkage)
            errors[width, shrinkage] = sum(
                knn_error(learner.fit(X[a], y[a]), X[a], y[a], X[b], y[b], 1) for a, b in folds
            )
    return min(errors, key=errors.get)


def nmcml(_, split):
    return _anew(split, lambda q: MCML(n_components=q, reduce="learn", shrinkage=0))


def nca(_, split):
    return _anew(split, lambda q: NCA(n_components=q, shrinkage=0))


def _anew(split, learner_of):
    errors, seconds = {}, 0.0
    for q in figure1_data.dimensions(split.X_train.shape[1]):
        learner = learner_of(q)
        seconds += _fitted(split, learner)
        errors[q] = _error(split, *map(learner.transform, (split.X_train, split.X_test)))
    return Curve(errors, seconds)


METHODS = {
    "mcml": mcml,
    "mcml_whitened": mcml_whitened,
    "pca": pca_whitened,
    "lda": lda,
    "mmc": mmc,
    "kmcml": kernel_mcml,
    "nmcml": nmcml,
    "nca": nca,
}
SMALL = ("kmcml", "nmcml", "nca")  # not on large sets


def applies(method, data):
    return method not in SMALL or figure1_data.small(data)


def measure(data, split, methods, deadline):
    """Yield (method, Curve or the error's text) for one split; nothing new after the deadline."""
    warnings.simplefilter("ignore")  # how a fit ended is not what is compared here
    parts = figure1_data.load(data, split)
    for method in methods:
        if time.time() > deadline:
            return
        try:
            yield method, METHODS[method](data, parts)
        except Exception as error:
            yield method, f"{type(error).__name__}: {error}"
