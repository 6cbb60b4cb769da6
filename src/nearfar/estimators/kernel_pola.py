"""The pseudo-metric online learning algorithm in the feature space of a kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if

from nearfar.errors import InvalidInputError
from nearfar.estimators._input import check_device
from nearfar.estimators._kernel import PRECOMPUTED, Kernel, KernelMetricLearner
from nearfar.estimators._start import robust_centre
from nearfar.estimators._training import Training, with_callbacks
from nearfar.estimators._tuples import PairLearner, validated_pairs, validated_stream
from nearfar.estimators.pola import (
    check_parameters,
    counters,
    forget_fit,
    leading_factor,
    learned_from_pairs,
    settings,
    state_attributes,
    store_ending,
)
from nearfar.kernels import Array, kernels_for, single_threaded_blas, take_rows, to_host
from nearfar.limits import fit_clock
from nearfar.problems.kernel_pola import Ends, coefficients, products
from nearfar.solvers.pola import GrowingProjections, epochs
from nearfar.supervision import Pairs
from nearfar.validation import check_number

Index = NDArray[np.intp]
Matrix = NDArray[np.float64]

BLOCK = 128  # pairs whose products with each other are computed at a time


class KernelPOLA(PairLearner, KernelMetricLearner):
    """Pseudo-metric online learning in the feature space of a kernel.

    `POLA` after the map φ of a kernel, which is used through kernel values only. The metric lies in
    the span of the pairs that it has learned from, which grows with them, up to a limit. See
    ``docs/algorithms/kernel_pola.md`` for the mathematics. With the linear kernel it is `POLA`.

    Parameters
    ----------
    kernel : str or callable, default="rbf"
        "linear", "poly", "rbf", "sigmoid", "cosine" or "laplacian", by the formulas of
        scikit-learn, or a function of two vectors that returns a number. Not "precomputed": the
        points are kept, to be compared with new ones.
    gamma : float or None, default=None
        Parameter of the kernels poly, rbf, sigmoid and laplacian. None means 1 over the sum of the
        variances of the features; `partial_fit` then computes it from the points of its first
        call. For a stream, set it.
    kernel_params : dict or None, default=None
        Parameters of the kernels poly ("degree", default 3, and "coef0", default 1) and sigmoid
        ("coef0"); for a function, its further arguments.
    max_directions : int or None, default=100
        Largest number of pairs whose directions in feature space span the metric. When there are so
        many, other pairs still correct the metric within the span. None sets no limit: time and
        memory grow without bound in a long stream.
    beta : float or None, default=None
        Largest loss that is not corrected, both in `fit` and in `partial_fit`; `fit` ends when no
        pair has a larger one. None corrects every loss, and `fit` then makes ``max_iter`` epochs
        without a warning.
    scale : float or None, default=None
        The length, in feature space, at which a pair changes the metric and the threshold equally;
        longer pairs change the threshold less. None takes the mean length of the pairs so far; the
        paper has 1.
    n_pairs : int or None, default=None
        For class labels: how many near and how many far pairs to draw. None takes all.
    shuffle : bool, default=True
        Whether each epoch of `fit` visits the pairs in a new random order. In `partial_fit` only
        pairs that are made from class labels are shuffled.
    max_iter : int, default=5
        Largest number of epochs of `fit`.
    max_seconds : float or None, default=None
        Largest time of `fit` in seconds. It may end an epoch before all pairs were visited.
    verbose : int, default=0
        1 shows the iterations while fitting: a bar, or lines if stderr is no terminal.
    random_state : int, RandomState instance or None, default=0
        Draws and shuffles the pairs. None does so differently each time.

    Attributes
    ----------
    dual_coef_ : ndarray or torch.Tensor of shape (n_components, n_fit)
        The map: a point x goes to ``dual_coef_ @ k`` with k its kernel values to the rows of
        ``X_fit_``. Rows are orthogonal in feature space, longest first, as many as the metric has
        rank, and sum to zero. Float64.
    X_fit_ : ndarray or torch.Tensor of shape (n_fit, n_features)
        The first points of the r pairs that span the metric, followed by their second points, so
        that n_fit = 2r; while r is zero, two copies of one point.
    matrix_ : ndarray of shape (r, r)
        The metric in an orthonormal basis of the span, from which `partial_fit` continues.
    basis_ : ndarray of shape (r, r)
        The coordinates of the r pairs in this basis, as rows: a lower triangle.
    gamma_ : float or None
        The gamma that was used; None for kernels without one.
    threshold_ : float
        The distance √b up to which `predict` calls a pair near.
    squared_threshold_ : float
        b.
    n_pairs_seen_ : int
        Number of pairs visited since learning began; `fit` visits each pair once per epoch.
    n_updates_ : int
        Number of visits that changed the metric.
    squared_loss_ : float
        Sum of the squared losses of these visits, each before its correction, which the paper
        bounds.
    total_length_ : float
        Sum of the lengths, in feature space, of the visited pairs.
    objective_ : float or None
        Sum of the losses of all pairs under the answer, computed in float64. This attribute and the
        following ones, up to ``history_``, exist only after `fit`.
        None, like the gap, if it could not be computed within twice ``max_seconds``.
    duality_gap_ : float or None
        0.0 if the objective is zero, its least possible value: all margins are satisfied. Otherwise
        None, because nothing is proved.
    status_ : str
        Why the fit ended: "converged" (no loss above beta), "max_iter", "max_seconds", "stopped"
        (by a callback) or "interrupted".
    n_iter_ : int
        Number of epochs.
    history_ : list of dict
        For each epoch: n_iter, seconds, objective (the sum of the losses when their pairs were
        visited), largest_loss (of these), n_updates, squared_threshold, residual (0 if no loss is
        above beta, else None) and duality_gap, which is None.
    classes_ : ndarray
        The labels, after a fit to labelled points.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of str
        Names of the features, if X had any.

    Notes
    -----
    With r directions so far, a pair costs O(r d + r²), and O(r³) once in some hundred near pairs
    with a loss; a new point costs O(r d). Memory is O(r² + r d) beside the pairs. Kernel values are
    computed where the data is, in float64; the rest is sequential and happens on the host. With a
    kernel of full rank, such as RBF, every pair of new points is a new direction until the limit,
    and without a limit enough epochs satisfy all margins, whichever pairs are near. Sparse input is
    refused.

    References
    ----------
    Shalev-Shwartz, Singer & Ng, Online and batch learning of pseudo-metrics, ICML 2004.

    Examples
    --------
    >>> from sklearn.datasets import make_circles
    >>> from nearfar import KernelPOLA
    >>> X, y = make_circles(100, noise=0.05, factor=0.5, random_state=0)
    >>> model = KernelPOLA("poly", kernel_params={"degree": 2}).fit(X, y)
    >>> model.score(*make_circles(100, noise=0.05, factor=0.5, random_state=1)) > 0.95
    True
    """

    X_fit_: Array
    threshold_: float
    tol = 0.0  # `fit` converges by beta: the residual is zero once no loss exceeds it
    _axes: ClassVar[dict[str, str]] = {
        "dual_coef_": "rn",
        "X_fit_": "nd",
        "matrix_": "kk",
        "basis_": "kk",
    }

    def __init__(
        self,
        kernel: str | Callable[..., float] = "rbf",
        gamma: float | None = None,
        *,
        kernel_params: dict[str, Any] | None = None,
        max_directions: int | None = 100,
        beta: float | None = None,
        scale: float | None = None,
        n_pairs: int | None = None,
        shuffle: bool = True,
        max_iter: int = 5,
        max_seconds: float | None = None,
        verbose: int = 0,
        random_state: Any = 0,
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.kernel_params = kernel_params
        self.max_directions = max_directions
        self.beta = beta
        self.scale = scale
        self.n_pairs = n_pairs
        self.shuffle = shuffle
        self.max_iter = max_iter
        self.max_seconds = max_seconds
        self.verbose = verbose
        self.random_state = random_state

    @with_callbacks
    @single_threaded_blas()
    def fit(self, X: Any, y: Any = None) -> KernelPOLA:
        """Learn from a fixed set of pairs, in epochs; what was learned before is forgotten.

        Parameters
        ----------
        X : array-like, torch.Tensor or Tuples
            Points of shape (n_samples, n_features), pairs of shape (n_pairs, 2, n_features) or
            triplets of shape (n_triplets, 3, n_features), whose first two points are near and
            whose outer two are far.
        y : array-like or None, default=None
            Class labels of points; +1 for near and −1 for far pairs; None for triplets.

        Returns
        -------
        KernelPOLA
            The fitted estimator.
        """
        self._check_parameters()
        pairs = validated_pairs(self, X, y, self.n_pairs, self.random_state)
        robust_centre(pairs.points)  # raises if squares leave the range of float64
        random = check_random_state(self.random_state)

        projections = self._new_projections(pairs.points)

        def epoch() -> Iterator[Matrix]:
            order = np.arange(len(pairs))
            order = random.permutation(order) if self.shuffle else order
            return _visits(projections, pairs, order)

        training = Training(self, X, y)
        solution = training.run(
            epochs(projections, epoch), lambda iterate: _attributes(iterate.state, pairs.points)
        )

        fitted = _attributes(solution.iterate.state, pairs.points)
        self._store(fitted)
        losses = fit_clock().in_time(lambda: self._losses(pairs))
        store_ending(self, solution.status, losses, training.history)
        training.finish(solution.status, fitted)
        return self

    @single_threaded_blas()
    def partial_fit(self, X: Any, y: Any = None) -> KernelPOLA:
        """Learn from the next pairs of a stream, each once and in the given order.

        One call with all pairs and one call for each pair give the same answer, up to rounding, if
        ``gamma`` is set. If a call fails or is interrupted, nothing of it is learned. The pairs of
        a call may all be near or all be far, and may contradict earlier ones.

        Parameters
        ----------
        X : array-like, torch.Tensor or Tuples
            As in `fit`; a triplet is its near pair and then its far pair.
        y : array-like or None, default=None
            As in `fit`.

        Returns
        -------
        KernelPOLA
            The estimator.
        """
        self._check_parameters()
        known = hasattr(self, "matrix_")
        pairs = validated_stream(
            self, X, y, self.n_pairs, self.random_state, shuffle=self.shuffle, reset=not known
        )
        robust_centre(pairs.points)  # raises if squares leave the range of float64
        if known:
            check_device(self, pairs.points, self.dual_coef_)
            projections = self._old_projections()
        else:
            projections = self._new_projections(pairs.points)
        for _ in _visits(projections, pairs, np.arange(len(pairs))):
            pass
        self._store(_attributes(projections, pairs.points))
        forget_fit(self, X)
        return self

    @available_if(learned_from_pairs)
    def predict(self, pairs: Any) -> NDArray[np.intp]:
        """+1 for pairs within ``threshold_`` of each other, −1 for others.

        Parameters
        ----------
        pairs : array-like, torch.Tensor or Tuples of shape (n_pairs, 2, n_features)
            The pairs.

        Returns
        -------
        ndarray of shape (n_pairs,)
            On the host. After a fit to labelled points the method is hidden, because scikit-learn
            would take it for a prediction for each point.
        """
        return np.where(to_host(self.pair_distance(pairs)) <= self.threshold_, 1, -1)

    def _check_parameters(self) -> None:
        check_parameters(self)
        if self.max_directions is not None:
            check_number("max_directions", self.max_directions, Integral, 1, None)
        if self.kernel == PRECOMPUTED:
            raise InvalidInputError(
                f"{type(self).__name__} compares new points with those that it keeps, so that"
                " kernel='precomputed' cannot be used. Name a kernel, or give a function of two"
                " points as kernel."
            )

    def _new_projections(self, points: Array) -> _KernelProjections:
        """Projections that have seen no pair."""
        kernel = Kernel.of(self.kernel, self.gamma, self.kernel_params).scaled_to(points)
        return _KernelProjections(limit=self.max_directions, kernel=kernel, **settings(self))

    def _old_projections(self) -> _KernelProjections:
        """Projections in the state of the fitted attributes."""
        points, r = self.X_fit_, len(self.basis_)
        return _KernelProjections(
            self.matrix_.copy(order="F"),
            L=self.basis_,
            limit=self.max_directions,
            kernel=self._fitted_kernel(),
            ends=(points[:r], points[r:]) if r else None,
            **counters(self),
            **settings(self),
        )

    def _losses(self, pairs: Pairs) -> Matrix:
        """The losses (m,) of all pairs under the stored metric."""
        points = kernels_for(pairs.points).double(pairs.points)
        distances = to_host(self._edge_distances(points, pairs.heads, pairs.tails))
        signs = np.where(pairs.near, 1.0, -1.0)
        losses: Matrix = (1 - signs * (self.squared_threshold_ - distances**2)).clip(0)
        return losses


@dataclass
class _KernelProjections(GrowingProjections):
    """Projections with the pairs whose directions span the metric."""

    kernel: Kernel = field(kw_only=True)
    ends: Ends | None = None  # of the pairs of L

    def learn_from_pairs(self, pairs: Ends, signs: Matrix) -> Matrix:
        """Visit pairs in turn; the losses (m,) before each update."""
        old = np.zeros((len(signs), 0))
        if self.ends is not None:
            old = products(self.kernel, pairs, self.ends)
        new = products(self.kernel, pairs, pairs)
        losses, joined = self.learn_from_products(old, new, signs)
        if joined:
            head, tail = (take_rows(end, np.array(joined)) for end in pairs)
            if self.ends is not None:
                kernels = kernels_for(head)
                head = kernels.concatenate([self.ends[0], head])
                tail = kernels.concatenate([self.ends[1], tail])
            self.ends = head, tail
        return losses


def _visits(projections: _KernelProjections, pairs: Pairs, order: Index) -> Iterator[Matrix]:
    """Let the projections learn from the pairs in this order; yields losses, block by block."""
    for first in range(0, len(order), BLOCK):
        rows = order[first : first + BLOCK]
        head, tail = (take_rows(pairs.points, end[rows]) for end in (pairs.heads, pairs.tails))
        yield projections.learn_from_pairs((head, tail), np.where(pairs.near[rows], 1.0, -1.0))


def _attributes(projections: _KernelProjections, points: Array) -> dict[str, Any]:
    """The fitted attributes, on the device of the points."""
    kernels = kernels_for(points)
    if projections.ends is None:
        C, ends = np.zeros((1, 2)), (points[:1], points[:1])
    else:
        C = coefficients(leading_factor(projections.matrix), projections.L)
        ends = projections.ends
    return {
        "dual_coef_": kernels.like(C, kernels.double(points[:0])),
        "X_fit_": kernels.concatenate([*ends]),
        "basis_": projections.L,
        "gamma_": projections.kernel.gamma,
        **state_attributes(projections),
    }
