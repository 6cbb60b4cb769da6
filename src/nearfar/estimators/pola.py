"""The pseudo-metric online learning algorithm, as a transformer that learns from a stream."""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if

from nearfar.errors import ConvergenceWarning, InvalidInputError, warn
from nearfar.estimators._base import MetricLearner
from nearfar.estimators._start import robust_centre
from nearfar.estimators._training import UNFINISHED, Training, check_limits, with_callbacks
from nearfar.estimators._tuples import PairLearner, holds_tuples, validated_pairs, validated_stream
from nearfar.kernels import Array, as_dtype_of, kernels_for, single_threaded_blas, to_host
from nearfar.limits import fit_clock
from nearfar.linalg import null_tolerance, signed
from nearfar.problems.pola import POLAProblem
from nearfar.solvers import Record, Status
from nearfar.solvers.pola import MarginProjections, epochs
from nearfar.validation import check_number

Index = NDArray[np.intp]
Matrix = NDArray[np.float64]

AT_A_TIME = 64  # pairs between two checks of the clock


def learned_from_pairs(learner: Any) -> bool:
    """Whether to offer ``predict``, which scikit-learn expects to answer for each row of X."""
    if hasattr(learner, "classes_"):
        raise AttributeError(
            f"this {type(learner).__name__} was fitted to labelled points, and predictions are of"
            " pairs. Compare pair_distance with threshold_, or fit it to pairs."
        )
    return True


class POLA(PairLearner, MetricLearner):
    """Pseudo-metric online learning: a metric and a threshold from near and far pairs.

    Visits one pair after another. Near pairs should have a squared distance of at most b − 1 and
    far ones of at least b + 1. If a pair violates this, the metric and b make the smallest change
    that corrects it, and the metric is projected onto the positive semidefinite matrices.
    `partial_fit` visits each pair of a stream once, `fit` visits all pairs again and again. See
    ``docs/algorithms/pola.md`` for the mathematics.

    If some metric satisfies all margins, the sum of squared losses on a stream of any length is
    bounded (``squared_loss_``, with a fixed ``scale``). If none does, as for most real data, the
    answer depends on the order of the pairs, and on the last ones most.

    Parameters
    ----------
    beta : float or None, default=None
        Largest loss that is not corrected, both in `fit` and in `partial_fit`; `fit` ends when no
        pair has a larger one. None corrects every loss, and `fit` then makes ``max_iter`` epochs
        without a warning.
    scale : float or None, default=None
        The length at which a pair changes the metric and the threshold equally; longer pairs change
        the threshold less. None takes the mean length of the pairs so far, so that the units of the
        features do not matter; the paper has 1.
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
    components_ : ndarray or torch.Tensor of shape (n_components, n_features)
        The map L, its rows sorted by decreasing length, as many as the metric has rank. In a stream
        their number may change.
    matrix_ : ndarray of shape (n_features, n_features)
        M = LᵀL in float64, from which `partial_fit` continues.
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
        bounds. A pair on the wrong side of the threshold adds at least 1.
    total_length_ : float
        Sum of the lengths of the visited pairs.
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
    A pair costs O(d²), and O(d³) once in some hundred near pairs with a loss: 4 microseconds at
    d = 50, and 70 for a near pair with a loss, which costs 150 at d = 164. Memory is O(d²) beside
    the pairs. The work is sequential and happens on the host in float64; torch tensors are copied
    there a few megabytes at a time, and the map goes back to their device. `fit` refuses sparse
    input.

    References
    ----------
    Shalev-Shwartz, Singer & Ng, Online and batch learning of pseudo-metrics, ICML 2004; Weinberger,
    Metric learning with convex optimization, thesis, University of Pennsylvania, 2007, section 2.2.

    Examples
    --------
    >>> import numpy as np
    >>> from nearfar import POLA
    >>> rng = np.random.default_rng(0)
    >>> pairs = rng.normal(size=(500, 2, 5))
    >>> y = np.where(abs(pairs[:, 0, 0] - pairs[:, 1, 0]) < 1, 1, -1)
    >>> model = POLA()
    >>> for first in range(0, 400, 50):  # a stream
    ...     model = model.partial_fit(pairs[first : first + 50], y[first : first + 50])
    >>> model.score(pairs[400:], y[400:]) > 0.9
    True
    """

    threshold_: float
    tol = 0.0  # `fit` converges by beta: the residual is zero once no loss exceeds it

    def __init__(
        self,
        beta: float | None = None,
        *,
        scale: float | None = None,
        n_pairs: int | None = None,
        shuffle: bool = True,
        max_iter: int = 5,
        max_seconds: float | None = None,
        verbose: int = 0,
        random_state: Any = 0,
    ) -> None:
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
    def fit(self, X: Any, y: Any = None) -> POLA:
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
        POLA
            The fitted estimator.
        """
        check_parameters(self)
        pairs = validated_pairs(self, X, y, self.n_pairs, self.random_state, drop_dead=True)
        robust_centre(pairs.points)  # raises if squares leave the range of float64
        random, d = check_random_state(self.random_state), self.n_features_in_

        problem = POLAProblem(pairs.points, pairs.heads, pairs.tails, pairs.near)
        projections = MarginProjections(np.zeros((d, d), order="F"), **settings(self))

        def epoch() -> Iterator[Matrix]:
            order = np.arange(len(pairs))
            order = random.permutation(order) if self.shuffle else order
            return _visits(projections, problem, order)

        training = Training(self, X, y)
        solution = training.run(
            epochs(projections, epoch), lambda iterate: _attributes(iterate.state, pairs.points)
        )

        fitted = _attributes(solution.iterate.state, pairs.points)
        self.__dict__.update(fitted)
        losses = fit_clock().in_time(
            lambda: problem.losses(fitted["matrix_"], fitted["squared_threshold_"])
        )
        store_ending(self, solution.status, losses, training.history)
        training.finish(solution.status, fitted)
        return self

    @single_threaded_blas()
    def partial_fit(self, X: Any, y: Any = None) -> POLA:
        """Learn from the next pairs of a stream, each once and in the given order.

        One call with all pairs and one call for each pair give exactly the same answer, from 128
        features on up to rounding. If a call
        fails or is interrupted, nothing of it is learned. The pairs of a call may all be near or
        all be far, and may contradict earlier ones.

        Parameters
        ----------
        X : array-like, torch.Tensor or Tuples
            As in `fit`; a triplet is its near pair and then its far pair.
        y : array-like or None, default=None
            As in `fit`.

        Returns
        -------
        POLA
            The estimator.
        """
        check_parameters(self)
        known = hasattr(self, "matrix_")
        pairs = validated_stream(
            self, X, y, self.n_pairs, self.random_state, shuffle=self.shuffle, reset=not known
        )
        robust_centre(pairs.points)  # raises if squares leave the range of float64
        problem = POLAProblem(pairs.points, pairs.heads, pairs.tails, pairs.near)
        if known:
            matrix = self.matrix_.copy(order="F")
            projections = MarginProjections(matrix, **counters(self), **settings(self))
        else:
            d = self.n_features_in_
            projections = MarginProjections(np.zeros((d, d), order="F"), **settings(self))
        for _ in _visits(projections, problem, np.arange(len(pairs))):
            pass
        self.__dict__.update(_attributes(projections, pairs.points))
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


def _visits(projections: MarginProjections, problem: POLAProblem, order: Index) -> Iterator[Matrix]:
    """Let the projections learn from the pairs in this order; yields losses, block by block."""
    for X, signs in problem.blocks(order):
        for first in range(0, len(X), AT_A_TIME):
            block = slice(first, first + AT_A_TIME)
            yield projections.learn(X[block], signs[block])


def _attributes(projections: MarginProjections, points: Array) -> dict[str, Any]:
    """The fitted attributes, with a map in the dtype and on the device of the points."""
    kernels = kernels_for(points)
    components = kernels.like(leading_factor(projections.matrix), kernels.double(points[:0]))
    return {"components_": as_dtype_of(points, components), **state_attributes(projections)}


# -- shared with KernelPOLA ------------------------------------------------------------------------


def check_parameters(estimator: Any) -> None:
    """Raise if a parameter is out of range."""
    check_limits(estimator)
    if estimator.max_seconds is not None:
        check_number("max_seconds", estimator.max_seconds, Real, 0, None)
    if estimator.beta is not None:
        check_number("beta", estimator.beta, Real, 0, None)
    if estimator.scale is not None:
        check_number("scale", estimator.scale, Real, 0, None, open_ends=True)
    if not isinstance(estimator.shuffle, bool | np.bool_):
        raise InvalidInputError(f"shuffle must be True or False; got {estimator.shuffle!r}.")
    if estimator.n_pairs is not None:
        check_number("n_pairs", estimator.n_pairs, Integral, 1, None)


def settings(estimator: Any) -> dict[str, Any]:
    """The parameters of the projections."""
    return {"scale": estimator.scale, "beta": estimator.beta or 0.0}


def state_attributes(projections: MarginProjections) -> dict[str, Any]:
    """The fitted attributes from which `partial_fit` goes on; `counters` reads them back."""
    return {
        "matrix_": projections.matrix,
        "squared_threshold_": projections.b,
        "threshold_": projections.b**0.5,
        "n_pairs_seen_": projections.n_seen,
        "n_updates_": projections.n_updates,
        "squared_loss_": projections.squared_loss,
        "total_length_": projections.total_length,
    }


def counters(estimator: Any) -> dict[str, Any]:
    """What projections need to go on, beside their matrix and `settings`."""
    return {
        "b": estimator.squared_threshold_,
        "total_length": estimator.total_length_,
        "n_seen": estimator.n_pairs_seen_,
        "n_updates": estimator.n_updates_,
        "squared_loss": estimator.squared_loss_,
    }


def leading_factor(M: Matrix) -> Matrix:
    """The canonical F with M = FᵀF for M ⪰ 0, with as many rows as M has rank, at least one."""
    values, vectors = linalg.eigh(M)
    rank = max(1, int((values > null_tolerance(values)).sum()))
    leading = np.sqrt(values[: -rank - 1 : -1].clip(0))  # eigenvalues ascend
    rows: Matrix = leading[:, None] * signed(vectors[:, : -rank - 1 : -1].T)
    return rows


def forget_fit(estimator: Any, X: Any) -> None:
    """Delete what describes the metric of an earlier `fit`, which X has changed."""
    for name in ("objective_", "duality_gap_", "status_", "n_iter_", "history_"):
        vars(estimator).pop(name, None)
    if holds_tuples(X):
        vars(estimator).pop("classes_", None)


def store_ending(
    estimator: Any, status: Status, losses: Matrix | None, history: list[Record]
) -> None:
    """Store how `fit` ended, and warn if losses above beta are left or epochs are missing.

    ``losses`` are those of all pairs under the answer, if there was time to compute them. Their sum
    is not negative, so that a sum of zero is proved to be the minimum.
    """
    estimator.objective_ = None if losses is None else float(losses.sum())
    estimator.duality_gap_ = 0.0 if estimator.objective_ == 0 else None
    estimator.status_, estimator.n_iter_ = str(status), len(history)
    estimator.history_ = history
    name, beta = type(estimator).__name__, estimator.beta
    if status is Status.INTERRUPTED:
        warn(
            f"{name} was interrupted; the last whole epoch is kept. Fit again to finish.",
            ConvergenceWarning,
        )
    elif status in UNFINISHED and not (beta is None and status is Status.MAX_ITER):
        unknown = ", too soon to know objective_, which is None" if losses is None else ""
        goal, remedy = "max_iter epochs", f"Raise {status}."
        if beta is not None:
            goal = f"every loss was at most beta={beta:g}"
            remedy = (
                f"Raise {status} or beta; pairs that no metric separates with a margin need"
                " beta=None."
            )
        warn(
            f"{name} stopped before {goal}: {status.sentence}, with a largest loss of"
            f" {history[-1]['largest_loss']:.2g}{unknown}. {remedy}",
            ConvergenceWarning,
        )
