"""Sparse compositional metric learning as a scikit-learn transformer."""

from __future__ import annotations

from functools import partial
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import DataWarning, InvalidInputError, warn
from nearfar.estimators._base import MetricLearner
from nearfar.estimators._held_out import warn_if_trials_are_worse
from nearfar.estimators._shrinkage import (
    AUTO_OF_PAIRS,
    Prior,
    check_shrinkage,
    chosen_prior,
    shrinkage_for,
)
from nearfar.estimators._start import principal_rows, robust_centre, without_dead_features
from nearfar.estimators._training import (
    Proof,
    Training,
    check_limits,
    settled,
    store_ending,
    with_callbacks,
)
from nearfar.estimators._tuples import drawn_tuples, holds_tuples, validated_triplets
from nearfar.kernels import Array, kernels_for, single_threaded_blas, take_rows, to_host
from nearfar.limits import fit_clock
from nearfar.linalg import canonical_factor, pad_or_trim_rows
from nearfar.problems.scml import SCMLProblem
from nearfar.problems.whitening import rounded_like
from nearfar.solvers import Iterate
from nearfar.solvers.column_generation import column_generation
from nearfar.supervision import ClassOrder, class_order, make_triplets
from nearfar.validation import check_number

Matrix = NDArray[np.float64]
Index = NDArray[np.intp]

NEEDS = "points of different classes that differ; of every triplet two points are equal"
VOTERS = 3  # neighbours whose mistakes choose the distance to keep
SCORED = 1 << 16  # triplets of labelled points in a score


class SCML(MetricLearner):
    """Sparse compositional metric learning: a few of many rank-one metrics, from triplets.

    Of each triplet the first point should be nearer to the second than to the third, by a margin.
    The metric is ``Σ w_k b_k b_kᵀ``, with vectors b that separate near from far in some region, and
    the weights w >= 0 of the least ``mean [1 + D(a, b) - D(a, c)]₊ + sparsity_weight τ Σ w``. D is
    the squared distance, and τ the mean squared Euclidean distance of the far pairs. Most weights
    are 0. When it learns from labelled points, it adds this metric to a known distance: see
    ``shrinkage``.

    The problem is a linear program, and ``duality_gap_`` proves how close the answer is to the
    optimum. See ``docs/algorithms/scml.md`` for the mathematics.

    Parameters
    ----------
    n_components : int or None, default=None
        Rows of the map: the longest, or with shrinkage the images on their principal components.
        None keeps as many as the metric has rank. If there are fewer than asked for, the last rows
        are zero.
    shrinkage : float or "auto", default="auto"
        How much of a known distance to keep, from 0, the paper's program, to below 1: the metric is
        that distance, with a mean of shrinkage / (1 - shrinkage) over the near pairs, and the sum.
        A number keeps the Euclidean distance of features that vary. "auto" is 0 for triplets, and
        for n labelled points of d features 64 d / (64 d + n). It then keeps a mean of distances: of
        the inputs, of features at one scale, and of discriminant analysis of both, weighted by how
        well each classifies rows that are left out (see ``prior_components_``).
    sparsity_weight : float, default=1e-3
        The weight of the sum of the weights, relative to the mean loss of a triplet.
    n_bases : int, default=200
        Largest number of vectors to choose from.
    n_triplets : int, default=2000
        For class labels: how many triplets to draw, or all if there are fewer.
    tol : float, default=1e-3
        Certified relative duality gap at which to stop.
    max_iter : int, default=1000
        Largest number of linear programs.
    max_seconds : float or None, default=None
        Largest time in seconds.
    verbose : int, default=0
        1 shows the iterations while fitting: a bar, or lines if stderr is no terminal.
    random_state : int, RandomState instance or None, default=None
        Draws the triplets.

    Attributes
    ----------
    components_ : ndarray or torch.Tensor of shape (n_components, n_features)
        The map L, its rows sorted by decreasing length.
    shrinkage_ : float
        The shrinkage that was used.
    prior_components_ : ndarray of shape (rows, n_features) or None
        The map W whose distance ``shrinkage="auto"`` keeps; None for the inputs as they are.
    weights_ : ndarray of shape (n_bases,)
        The weight of each vector.
    bases_ : ndarray of shape (n_bases, n_features) or (n_bases, rows)
        The vectors, of unit length: of points x, or of W x.
    objective_ : float or None
        The minimum, computed from the data in float64, before rows were cut off.
        None, as the gap, if it could not be computed within twice ``max_seconds``.
    duality_gap_ : float or None
        Proved bound on (objective − optimum) relative to the objective, or to 1 if that is larger,
        among all weights of these vectors.
    proof_ : dict or None
        What proves ``duality_gap_``, for `nearfar.verify`: the dual weights of the triplets, and
        the triplets if they were drawn.
    status_ : str
        Why the fit ended: "converged", "max_iter", "max_seconds", "stalled", "stopped" (by a
        callback) or "interrupted".
    n_iter_ : int
        Number of iterations.
    history_ : list of dict
        For each iteration: n_iter, seconds, objective, residual (the gap), duality_gap (the same,
        since every iterate is certified), n_columns (vectors in the program) and n_rows (triplets
        in it).
    classes_ : ndarray
        The labels, if y were class labels.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of str
        Names of the features, if X had any.

    Notes
    -----
    With n points, d features, m triplets and K vectors the table of margins takes O(n d K + m K)
    time and O(m K) memory. Then some linear programs of m variables and a few rows are solved.
    `fit` refuses sparse input.

    References
    ----------
    Shi, Bellet & Sha, Sparse compositional metric learning, AAAI (2014).

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from nearfar import SCML, make_triplets
    >>> X, y = load_iris(return_X_y=True)
    >>> scml = SCML().fit(make_triplets(X, y, 500, random_state=0))
    >>> scml.status_, scml.duality_gap_ <= 1e-3
    ('converged', True)
    >>> int((scml.weights_ > 0).sum()) < 10
    True
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        shrinkage: float | str = "auto",
        sparsity_weight: float = 1e-3,
        n_bases: int = 200,
        n_triplets: int = 2000,
        tol: float = 1e-3,
        max_iter: int = 1000,
        max_seconds: float | None = None,
        verbose: int = 0,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.shrinkage = shrinkage
        self.sparsity_weight = sparsity_weight
        self.n_bases = n_bases
        self.n_triplets = n_triplets
        self.tol = tol
        self.max_iter = max_iter
        self.max_seconds = max_seconds
        self.verbose = verbose
        self.random_state = random_state

    @with_callbacks
    def fit(self, X: Any, y: Any = None) -> SCML:
        """Learn the metric.

        Parameters
        ----------
        X : array-like, torch.Tensor or Tuples
            Triplets (n_triplets, 3, n_features) of a point, a near and a far one, `Tuples`, or
            points (n_samples, n_features). Float32 stays float32; tensors are computed on their
            device, but for the linear program.
        y : array-like or None, default=None
            Class labels of points; None for triplets.

        Returns
        -------
        SCML
            The fitted estimator.
        """
        points, triplets = self._validated_triplets(X, y)
        self._check_parameters()
        kernels, labels = kernels_for(points), None
        if not holds_tuples(X):
            codes = np.searchsorted(self.classes_, np.asarray(to_host(y)).ravel())
            labels = class_order(codes, type(self).__name__)
        with single_threaded_blas():
            centred = kernels.double(points) - robust_centre(points)
            self._check_far(centred, triplets)
            prior = self._kept(points, labels)
            framed = centred if prior is None else kernels.apply(centred, prior[0])
            problem = SCMLProblem.build(
                kernels, framed, triplets, self.n_bases, self.sparsity_weight, self.shrinkage_
            )

            def in_inputs(weights: Matrix) -> Matrix:
                L = problem.components(weights)
                return L if prior is None else canonical_factor(L @ prior[0])

            def attributes(iterate: Iterate) -> dict[str, Any]:
                L = in_inputs(iterate.point)
                if problem.kept.any() and self.n_components is not None:
                    L = canonical_factor(principal_rows(L, points)[: self.n_components])
                L = pad_or_trim_rows(L, self.n_components)
                return {"components_": kernels.like(L, points)}

            training = Training(self, X, y)
            w = np.zeros(len(problem.bases))
            nothing = Iterate(w, problem.value(w))
            solution = training.run(column_generation(problem), attributes, start=nothing)
            found = solution.iterate
            self.components_ = attributes(found)["components_"]
            self.bases_, self.weights_ = problem.bases, found.point / problem.size
            L = rounded_like(in_inputs(found.point), points)
            L = L if prior is None else L @ prior[1]
            objective = fit_clock().in_time(lambda: problem.objective(kernels, framed, triplets, L))
        gap = None
        self.proof_: Proof | None = None
        if objective is not None and found.certificate is not None:
            self.proof_ = {"weights": np.clip(found.certificate, 0, 1 / len(triplets))}
            if not holds_tuples(X):
                self.proof_["triplets"] = triplets.astype(np.int32)
            gap = max(objective - problem.bound(found.certificate), 0.0) / max(objective, 1.0)
        if not found.point.any() and not problem.kept.any():
            warn(
                f"all weights are 0: no vector gains as much as sparsity_weight="
                f"{self.sparsity_weight:g} costs, and all distances are 0. Lower it.",
                DataWarning,
            )
        status = settled(solution.status, gap, self.tol)
        store_ending(self, status, objective, gap, training.history)
        training.finish(status, {"components_": self.components_})
        if self.shrinkage == "auto":
            warn_if_trials_are_worse(self, points, labels)
        return self

    def score(self, X: Any, y: Any = None) -> float:
        """The share of triplets that hold under the learned metric; ties count half.

        Parameters
        ----------
        X : array-like, torch.Tensor or Tuples
            Triplets or points, as in ``fit``.
        y : array-like or None, default=None
            Class labels of points, of which 65536 triplets are drawn, the same in every call; None
            for triplets.

        Returns
        -------
        float
            From 0 to 1, 0.5 for a guess.
        """
        points, triplets = self._triplets(X, y, reset=False, drawn=SCORED, random_state=0)
        near, far = (
            to_host(self._edge_distances(points, triplets[:, 0], triplets[:, k])) for k in (1, 2)
        )
        return float(np.mean((near < far) + 0.5 * (near == far)))

    # -- before ------------------------------------------------------------------------------

    def _kept(self, points: Array, labels: ClassOrder | None) -> Prior | None:
        """The distance that "auto" keeps; sets ``shrinkage_`` and ``prior_components_``."""
        prior, (n, d) = None, points.shape
        if self.shrinkage == "auto" and labels is not None:
            prior = chosen_prior(
                take_rows(points, labels.order), labels.codes[labels.order], VOTERS
            )
        self.prior_components_ = None if prior is None else prior[0]
        self.shrinkage_ = 0.0
        if self.shrinkage != "auto" or prior is not None:
            self.shrinkage_ = shrinkage_for(self.shrinkage, n, d, AUTO_OF_PAIRS)
        return prior

    def _check_parameters(self) -> None:
        check_limits(self)
        check_shrinkage(self.shrinkage)
        if self.n_components is not None:
            check_number("n_components", self.n_components, Integral, 1, self.n_features_in_)
        check_number("sparsity_weight", self.sparsity_weight, Real, 0, None, open_ends=True)
        check_number("n_bases", self.n_bases, Integral, 1, None)

    def _check_far(self, points: Array, triplets: Index) -> None:
        """Refuse triplets whose first and last points are all equal: no metric changes anything."""
        kernels = kernels_for(points)
        edges = (kernels.index(rows, points) for rows in (triplets[:, 0], triplets[:, 2]))
        if not bool((kernels.sq_lengths(points, *edges) > 0).any()):
            raise InvalidInputError(
                f"{type(self).__name__} needs triplets whose first and last points differ; they are"
                f" equal in all {len(triplets)}. Check the row numbers and the features."
            )

    def _validated_triplets(self, X: Any, y: Any) -> tuple[Array, Index]:
        """What X and y say, checked; sets ``n_features_in_``, names, and of labels ``classes_``."""
        self.__dict__.pop("classes_", None)
        if not holds_tuples(X):
            check_number("n_triplets", self.n_triplets, Integral, 1, None)
        points, triplets = self._triplets(X, y, True, self.n_triplets, self.random_state)
        return without_dead_features(points), triplets

    def _triplets(
        self, X: Any, y: Any, reset: bool, drawn: int, random_state: Any
    ) -> tuple[Array, Index]:
        """Points, and the rows (m, 3) of triplets."""
        if holds_tuples(X):
            return validated_triplets(self, X, y, reset)
        make = partial(make_triplets, n_triplets=drawn, random_state=random_state)
        return drawn_tuples(self, X, y, make, NEEDS, reset=reset)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags
