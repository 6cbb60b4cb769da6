"""The names of metric-learn 0.7 on nearfar's learners.

>>> import nearfar.compat.metric_learn as metric_learn
>>> from sklearn.datasets import load_iris
>>> X, y = load_iris(return_X_y=True)
>>> lmnn = metric_learn.LMNN(n_neighbors=3).fit(X, y)
>>> lmnn.components_.shape
(4, 4)

Classes, parameters, methods and thresholds are metric-learn's. The metrics are nearfar's: each fit
minimises the same function, and ``learner_`` is the estimator of nearfar that did it, with its
certificate, status and history. Parameters that only steer metric-learn's own iterations are
accepted with one warning. What differs is listed in ``docs/migration.md``.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import pairwise_distances
from sklearn.utils import check_array

import nearfar
from nearfar.compat.metric_learn._base import (
    GIVEN_UP,
    MahalanobisMixin,
    PairsLearner,
    QuadrupletsClassifierMixin,
    SupervisedLearner,
    TripletsClassifierMixin,
    has_near_and_far,
    papers_program,
    print_history,
)
from nearfar.compat.metric_learn._input import (
    PeerError,
    check_n_components,
    initial_map,
    initial_metric,
)
from nearfar.compat.metric_learn.constraints import Constraints, wrap_pairs
from nearfar.errors import DataWarning, warn
from nearfar.supervision import Tuples

STEADYING = 0.1  # shrinkage where chunklets leave directions open

__version__ = "0.7.0"  # of metric-learn, whose interface this is

__all__ = [
    "ITML",
    "LFDA",
    "LMNN",
    "LSML",
    "MLKR",
    "MMC",
    "NCA",
    "RCA",
    "SCML",
    "SDML",
    "Constraints",
    "Covariance",
    "ITML_Supervised",
    "LSML_Supervised",
    "MMC_Supervised",
    "RCA_Supervised",
    "SCML_Supervised",
    "SDML_Supervised",
    "__version__",
]

parameters = dataclass(eq=False, repr=False)  # writes the constructor; scikit-learn does the rest
Matrix = NDArray[np.float64]


# -- from labels, numbers or points --------------------------------------------------------------


@parameters
class Covariance(SupervisedLearner):
    """`nearfar.Covariance`."""

    preprocessor: Any = None

    def fit(self, X: Any, y: Any = None) -> Any:  # noqa: ARG002 (scikit-learn's signature)
        """Learn from points."""
        X = self._prepare_inputs(X, ensure_min_samples=2, dtype=np.float64)
        return self._keep(nearfar.Covariance().fit(X))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = False
        return tags


@parameters
class LFDA(SupervisedLearner):
    """`nearfar.LFDA`; k is at most the number of features less one, as in metric-learn."""

    n_components: Any = None
    k: Any = None
    embedding_type: Any = "weighted"
    preprocessor: Any = None

    def fit(self, X: Any, y: Any) -> Any:
        """Learn from labelled points."""
        X, y = self._points_and_targets(X, y)
        rows, most = check_n_components(X.shape[1], self.n_components), max(X.shape[1] - 1, 1)
        if self.k is not None and self.k > most:
            warnings.warn(f"Chosen k ({self.k}) too large, using {most} instead.", stacklevel=2)
        learner = papers_program(
            nearfar.LFDA,
            n_components=rows,
            n_neighbors=min(7 if self.k is None else int(self.k), most),
            embedding_type=self.embedding_type,
        )
        return self._keep(learner.fit(X, y), rows)


@parameters
class LMNN(SupervisedLearner):
    """`nearfar.LMNN` with push_weight = 1 - regularization."""

    _unused: ClassVar[tuple[str, ...]] = ("learn_rate", "min_iter", "verbose")
    _renamed: ClassVar[dict[str, str]] = {"k": "n_neighbors"}

    init: Any = "auto"
    n_neighbors: Any = 3
    min_iter: Any = 50
    max_iter: Any = 1000
    learn_rate: Any = 1e-7
    regularization: Any = 0.5
    convergence_tol: Any = 0.001
    verbose: Any = False
    preprocessor: Any = None
    n_components: Any = None
    random_state: Any = None
    k: Any = GIVEN_UP

    def fit(self, X: Any, y: Any) -> Any:
        """Learn from labelled points."""
        X, y = self._points_and_targets(X, y)
        self._warn_of_unused()
        rows = check_n_components(X.shape[1], self.n_components)
        start = initial_map(self.init, rows, X, y, self.random_state)
        learner = papers_program(
            nearfar.LMNN,
            n_neighbors=self._value("n_neighbors"),
            push_weight=1 - self.regularization,
            n_components=None if rows == X.shape[1] else rows,
            init=start,
            max_iter=self.max_iter,
            tol=self.convergence_tol,
        )
        return self._keep(learner.fit(X, y), rows)


@parameters
class NCA(SupervisedLearner):
    """`nearfar.NCA`."""

    init: Any = "auto"
    n_components: Any = None
    max_iter: Any = 100
    tol: Any = None
    verbose: Any = False
    preprocessor: Any = None
    random_state: Any = None

    def fit(self, X: Any, y: Any) -> Any:
        """Learn from labelled points."""
        X, y = self._points_and_targets(X, y)
        rows = check_n_components(X.shape[1], self.n_components)
        start = initial_map(self.init, rows, X, y, self.random_state)
        if not has_near_and_far(y):
            self.components_, self.n_iter_ = start, 0
            return self
        options = {} if self.tol is None else {"tol": self.tol}
        learner = papers_program(
            nearfar.NCA, n_components=rows, init=start, max_iter=self.max_iter, **options
        ).fit(X, y)
        if self.verbose:
            print_history(self, learner, "NCA")
        return self._keep(learner, rows)


@parameters
class MLKR(SupervisedLearner):
    """`nearfar.MLKR`."""

    n_components: Any = None
    init: Any = "auto"
    tol: Any = None
    max_iter: Any = 1000
    verbose: Any = False
    preprocessor: Any = None
    random_state: Any = None

    def fit(self, X: Any, y: Any) -> Any:
        """Learn from points with a number each."""
        X, y = self._points_and_targets(X, y, y_numeric=True)
        rows = check_n_components(X.shape[1], self.n_components)
        start = initial_map(self.init, rows, X, y, self.random_state, classes=False)
        options = {} if self.tol is None else {"tol": self.tol}
        learner = nearfar.MLKR(n_components=rows, init=start, max_iter=self.max_iter, **options)
        learner.fit(X, y)
        if self.verbose:
            print_history(self, learner, "MLKR")
        return self._keep(learner, rows)


@parameters
class RCA(SupervisedLearner):
    """`nearfar.RCA` of the points that are in chunklets."""

    n_components: Any = None
    preprocessor: Any = None

    def fit(self, X: Any, chunks: Any) -> Any:
        """Learn from points and the number of the chunklet of each, -1 for none."""
        X, chunks = self._points_and_targets(X, chunks)
        return self._fit_chunks(X, np.asanyarray(chunks, dtype=int))

    def _fit_chunks(self, X: Matrix, chunks: Any) -> Any:
        rows, grouped = check_n_components(X.shape[1], self.n_components), chunks >= 0
        learner = papers_program(nearfar.RCA, n_components=rows)
        within = _about_means(X[grouped], chunks[grouped])
        if np.linalg.matrix_rank(within) < np.linalg.matrix_rank(X - X.mean(axis=0)):
            warn(
                "points do not differ within chunklets in all directions, so that they cannot be"
                f" whitened; shrinkage={STEADYING:g} is used. Reduce the dimensions, or add"
                " chunklets.",
                DataWarning,
            )
            learner.set_params(shrinkage=STEADYING)
        return self._keep(learner.fit(X[grouped], chunks[grouped]), rows)


def _about_means(X: Matrix, chunks: Any) -> Matrix:
    """Each point less the mean of its chunklet."""
    _, which = np.unique(chunks, return_inverse=True)
    sums = np.zeros((which.max(initial=-1) + 1, X.shape[1]))
    np.add.at(sums, which, X)
    return X - (sums / np.bincount(which)[:, None])[which]


@parameters
class RCA_Supervised(RCA):
    """`nearfar.RCA` with chunklets that are drawn from the labels."""

    _renamed: ClassVar[dict[str, str]] = {"num_chunks": "n_chunks"}

    n_components: Any = None
    n_chunks: Any = 100
    chunk_size: Any = 2
    preprocessor: Any = None
    random_state: Any = None
    num_chunks: Any = GIVEN_UP

    def fit(self, X: Any, y: Any) -> Any:
        """Learn from labelled points; negative labels are unknown."""
        X, y = self._points_and_targets(X, y)
        self._warn_of_unused()
        n_chunks = self._value("n_chunks")
        return self._fit_chunks(
            X, Constraints(y).chunks(n_chunks, self.chunk_size, self.random_state)
        )


# -- from tuples, or from tuples that are drawn from labels --------------------------------------


class DrawsPairs(SupervisedLearner):
    """A learner from labels that draws pairs."""

    _fit: Any  # learns from pairs and their kinds

    def fit(self, X: Any, y: Any, **options: Any) -> Any:
        """Learn from labelled points; negative labels are unknown."""
        X, y = self._points_and_targets(X, y)
        pairs, kinds = wrap_pairs(X, self._drawn(y))
        return self._fit(pairs, kinds, **options)

    def _drawn(self, y: Any, same_length: bool = False) -> tuple[Any, Any, Any, Any]:
        count = self._value("n_constraints")
        count = 20 * len(np.unique(y)) ** 2 if count is None else count
        return Constraints(y).positive_negative_pairs(count, same_length, self.random_state)


class FitsITML(MahalanobisMixin):
    """What ITML and ITML_Supervised share."""

    def _fit(self, pairs: Any, y: Any, bounds: Any = None) -> Any:
        self._warn_of_unused()
        prior = initial_metric(self.prior, pairs, self.random_state, "prior", definite=True)
        self.bounds_ = _itml_bounds(pairs, bounds)
        learner = nearfar.ITML(
            violation_weight=self.gamma,
            bounds=self.bounds_,
            prior=prior,
            max_iter=self.max_iter,
            tol=self._value("tol"),
        )
        return self._keep(learner.fit(pairs, y))


def _itml_bounds(pairs: Any, bounds: Any) -> Matrix:
    """The bounds that are given, or metric-learn's: percentiles of distances, not squared."""
    if bounds is None:
        points = np.unique(pairs.reshape(-1, pairs.shape[2]), axis=0)
        found = np.percentile(pairwise_distances(points), (5, 95))
    else:
        found = check_array(bounds, dtype=np.float64, ensure_min_samples=0, ensure_2d=False).ravel()
        if found.size != 2:
            raise PeerError("`bounds` should be an array-like of two elements.")
    return np.where(found == 0, 1e-9, found)


@parameters
class ITML(FitsITML, PairsLearner):
    """`nearfar.ITML` with violation_weight = gamma."""

    _unused: ClassVar[tuple[str, ...]] = ("verbose",)
    _renamed: ClassVar[dict[str, str]] = {"convergence_threshold": "tol"}

    gamma: Any = 1.0
    max_iter: Any = 1000
    tol: Any = 1e-3
    prior: Any = "identity"
    verbose: Any = False
    preprocessor: Any = None
    random_state: Any = None
    convergence_threshold: Any = GIVEN_UP


@parameters
class ITML_Supervised(FitsITML, DrawsPairs):
    """`nearfar.ITML` with pairs that are drawn from the labels."""

    _unused: ClassVar[tuple[str, ...]] = ("verbose",)
    _renamed: ClassVar[dict[str, str]] = {
        "convergence_threshold": "tol",
        "num_constraints": "n_constraints",
    }

    gamma: Any = 1.0
    max_iter: Any = 1000
    tol: Any = 1e-3
    n_constraints: Any = None
    prior: Any = "identity"
    verbose: Any = False
    preprocessor: Any = None
    random_state: Any = None
    num_constraints: Any = GIVEN_UP
    convergence_threshold: Any = GIVEN_UP


class FitsMMC(MahalanobisMixin):
    """What MMC and MMC_Supervised share."""

    def _fit(self, pairs: Any, y: Any) -> Any:
        """The metric of nearfar at metric-learn's scale.

        metric-learn bounds the sum of squares of the near pairs by a hundredth of that under
        ``init``; a diagonal metric has half of ``diagonal_c`` there at its optimum. nearfar's is 1.
        """
        self._warn_of_unused()
        A = initial_metric(self.init, pairs, self.random_state, "init", definite=False)
        learner = papers_program(
            nearfar.MMC,
            diagonal=self.diagonal,
            max_iter=self.max_iter,
            tol=self._value("tol"),
        ).fit(pairs, y)
        near = pairs[y == 1, 0] - pairs[y == 1, 1]
        found = np.vdot(near @ learner.get_mahalanobis_matrix(), near)
        wanted = self.diagonal_c / 2 if self.diagonal else np.vdot(near @ A, near) / 100
        return self._keep(learner, scale=wanted / found)


@parameters
class MMC(FitsMMC, PairsLearner):
    """`nearfar.MMC`, at the scale that init, or for a diagonal metric diagonal_c, gives."""

    _unused: ClassVar[tuple[str, ...]] = ("max_proj", "verbose")
    _renamed: ClassVar[dict[str, str]] = {"convergence_threshold": "tol"}

    max_iter: Any = 100
    max_proj: Any = 10000
    tol: Any = 1e-3
    init: Any = "identity"
    diagonal: Any = False
    diagonal_c: Any = 1.0
    verbose: Any = False
    preprocessor: Any = None
    random_state: Any = None
    convergence_threshold: Any = GIVEN_UP


@parameters
class MMC_Supervised(FitsMMC, DrawsPairs):
    """`nearfar.MMC` with pairs that are drawn from the labels."""

    _unused: ClassVar[tuple[str, ...]] = ("max_proj", "verbose")
    _renamed: ClassVar[dict[str, str]] = {
        "convergence_threshold": "tol",
        "num_constraints": "n_constraints",
    }

    max_iter: Any = 100
    max_proj: Any = 10000
    tol: Any = 1e-6
    n_constraints: Any = None
    init: Any = "identity"
    diagonal: Any = False
    diagonal_c: Any = 1.0
    verbose: Any = False
    preprocessor: Any = None
    random_state: Any = None
    num_constraints: Any = GIVEN_UP
    convergence_threshold: Any = GIVEN_UP


class FitsSDML(MahalanobisMixin):
    """What SDML and SDML_Supervised share."""

    def _fit(self, pairs: Any, y: Any) -> Any:
        self._warn_of_unused()
        prior = initial_metric(self.prior, pairs, self.random_state, "prior", definite=True)
        learner = nearfar.SDML(
            balance=self.balance_param,
            sparsity_weight=self.sparsity_param,
            prior=prior,
        )
        return self._keep(learner.fit(pairs, y))


@parameters
class SDML(FitsSDML, PairsLearner):
    """`nearfar.SDML` with balance = balance_param and sparsity_weight = sparsity_param."""

    _unused: ClassVar[tuple[str, ...]] = ("verbose",)

    balance_param: Any = 0.5
    sparsity_param: Any = 0.01
    prior: Any = "identity"
    verbose: Any = False
    preprocessor: Any = None
    random_state: Any = None


@parameters
class SDML_Supervised(FitsSDML, DrawsPairs):
    """`nearfar.SDML` with pairs that are drawn from the labels."""

    _unused: ClassVar[tuple[str, ...]] = ("verbose",)
    _renamed: ClassVar[dict[str, str]] = {"num_constraints": "n_constraints"}

    balance_param: Any = 0.5
    sparsity_param: Any = 0.01
    prior: Any = "identity"
    n_constraints: Any = None
    verbose: Any = False
    preprocessor: Any = None
    random_state: Any = None
    num_constraints: Any = GIVEN_UP


class FitsLSML(MahalanobisMixin):
    """What LSML and LSML_Supervised share."""

    def _fit(self, quadruplets: Any, weights: Any) -> Any:
        unequal = weights is not None and np.ptp(weights) > 0
        self._warn_of_unused(*(["weights"] if unequal else []))
        prior = initial_metric(self.prior, quadruplets, self.random_state, "prior", definite=True)
        learner = nearfar.LSML(prior=prior, max_iter=self.max_iter, tol=self.tol)
        return self._keep(learner.fit(quadruplets))


@parameters
class LSML(FitsLSML, QuadrupletsClassifierMixin):
    """`nearfar.LSML`."""

    _unused: ClassVar[tuple[str, ...]] = ("verbose",)

    tol: Any = 1e-3
    max_iter: Any = 1000
    prior: Any = "identity"
    verbose: Any = False
    preprocessor: Any = None
    random_state: Any = None

    def fit(self, quadruplets: Any, weights: Any = None) -> Any:
        """Learn from quadruplets; metric-learn's weights only steer its line search."""
        formed = self._prepare_inputs(quadruplets, type_of_inputs="tuples", dtype=np.float64)
        return self._fit(formed, weights)


@parameters
class LSML_Supervised(FitsLSML, DrawsPairs):
    """`nearfar.LSML` with quadruplets that are drawn from the labels."""

    _unused: ClassVar[tuple[str, ...]] = ("verbose",)
    _renamed: ClassVar[dict[str, str]] = {"num_constraints": "n_constraints"}

    tol: Any = 1e-3
    max_iter: Any = 1000
    prior: Any = "identity"
    n_constraints: Any = None
    weights: Any = None
    verbose: Any = False
    preprocessor: Any = None
    random_state: Any = None
    num_constraints: Any = GIVEN_UP

    def fit(self, X: Any, y: Any) -> Any:  # type: ignore[override]  # metric-learn has no others
        """Learn from labelled points; negative labels are unknown."""
        X, y = self._points_and_targets(X, y)
        rows = np.stack(self._drawn(y, same_length=True), axis=1)
        return self._fit(X[rows], self.weights)


class FitsSCML(MahalanobisMixin):
    """What SCML and SCML_Supervised share."""

    _integers: ClassVar[tuple[str, ...]] = ("max_iter", "output_iter", "batch_size")
    _authorized_basis: ClassVar[list[str]] = ["triplet_diffs"]

    def _check(self, d: int, default: int) -> int:
        """Check what metric-learn checks; returns the number of bases."""
        for name in self._integers:
            if not isinstance(getattr(self, name), int):
                kind = type(getattr(self, name))
                raise PeerError(f"{name} should be an integer, instead it is of type {kind}")
        if self.output_iter > self.max_iter:
            raise PeerError("The value of output_iter must be equal or smaller than max_iter.")
        basis, count = self.basis, self.n_basis
        if isinstance(basis, np.ndarray):
            if basis.shape[1] != d:
                raise PeerError(
                    f"The dimensionality ({basis.shape[1]}) of the provided bases must match the"
                    f" dimensionality of the data ({d})."
                )
        elif basis not in self._authorized_basis:
            raise PeerError(
                "`basis` must be one of the options '{}' or an array of shape (n_basis,"
                " n_features).".format("', '".join(self._authorized_basis))
            )
        if count is None:
            warnings.warn(
                "As no value for `n_basis` was selected, the number of basis will be set to"
                f" n_basis= {default}",
                stacklevel=4,
            )
            return default
        if not isinstance(count, int):
            raise PeerError(f"n_basis should be an integer, instead it is of type {type(count)}")
        return count

    def _fit(self, points: Matrix, triplets: Any, n_bases: int) -> Any:
        """nearfar's penalty is in units of the mean squared distance of far pairs, beta is not."""
        self._warn_of_unused()
        if not len(triplets):
            raise PeerError(
                f"{type(self).__name__} needs a class with two or more points and points of another"
                " class; there are no triplets. Check that y holds class labels."
            )
        far = points[triplets[:, 0]] - points[triplets[:, 2]]
        size = float((far**2).sum(axis=1).mean())
        learner = nearfar.SCML(sparsity_weight=self.beta / (size or 1.0), n_bases=n_bases)
        return self._keep(learner.fit(Tuples(points, triplets)))


SCML_STEPS = ("basis", "gamma", "max_iter", "output_iter", "batch_size", "verbose")


@parameters
class SCML(FitsSCML, TripletsClassifierMixin):
    """`nearfar.SCML`, whose vectors are those of regions of the points."""

    _unused: ClassVar[tuple[str, ...]] = SCML_STEPS

    beta: Any = 1e-5
    basis: Any = "triplet_diffs"
    n_basis: Any = None
    gamma: Any = 5e-3
    max_iter: Any = 10000
    output_iter: Any = 500
    batch_size: Any = 10
    verbose: Any = False
    preprocessor: Any = None
    random_state: Any = None

    def fit(self, triplets: Any) -> Any:
        """Learn from triplets."""
        formed = self._prepare_inputs(triplets, type_of_inputs="tuples", dtype=np.float64)
        m, size, d = formed.shape
        n_bases = self._check(d, 80 * d)
        points, rows = np.unique(formed.reshape(m * size, d), axis=0, return_inverse=True)
        return self._fit(points, rows.reshape(m, size), n_bases)


@parameters
class SCML_Supervised(FitsSCML, SupervisedLearner):
    """`nearfar.SCML` with the triplets of nearest neighbours."""

    _unused: ClassVar[tuple[str, ...]] = SCML_STEPS
    _integers: ClassVar[tuple[str, ...]] = (*FitsSCML._integers, "k_genuine", "k_impostor")
    _authorized_basis: ClassVar[list[str]] = ["triplet_diffs", "lda"]

    k_genuine: Any = 3
    k_impostor: Any = 10
    beta: Any = 1e-5
    basis: Any = "lda"
    n_basis: Any = None
    gamma: Any = 5e-3
    max_iter: Any = 10000
    output_iter: Any = 500
    batch_size: Any = 10
    verbose: Any = False
    preprocessor: Any = None
    random_state: Any = None

    def fit(self, X: Any, y: Any) -> Any:
        """Learn from labelled points; negative labels are unknown."""
        X, y = self._points_and_targets(X, y)
        n_bases = self._check(X.shape[1], 20 * X.shape[1])
        triplets = Constraints(y).generate_knntriplets(X, self.k_genuine, self.k_impostor)
        return self._fit(X, triplets, n_bases)
