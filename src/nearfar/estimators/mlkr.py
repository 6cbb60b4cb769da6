"""Metric learning for kernel regression as a scikit-learn transformer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearfar.errors import InvalidInputError
from nearfar.estimators._base import MetricLearner
from nearfar.estimators._input import validated_points
from nearfar.estimators._start import (
    all_equal,
    check_range,
    check_spread,
    given_map,
    without_dead_features,
)
from nearfar.estimators._training import Training, check_limits, store_ending, with_callbacks
from nearfar.kernels import Array, kernels_for, single_threaded_blas, to_host
from nearfar.limits import fit_clock
from nearfar.linalg import pad_or_trim_rows
from nearfar.problems.mlkr import MLKRProblem
from nearfar.problems.soft_neighbors import Point
from nearfar.problems.whitening import rounded_like
from nearfar.solvers import Iterate, Status
from nearfar.solvers.quasi_newton import Memory, descend
from nearfar.supervision.numbers import target_numbers
from nearfar.validation import check_choice, check_number

Matrix = NDArray[np.float64]

ROUGH = 1e-5  # residual down to which float32 is enough
REMAINS = 10  # steps like the last one that a descent may still gain, about


class MLKR(MetricLearner):
    """Metric learning for kernel regression: near points should have similar numbers.

    Each number is estimated from those of all other points, with weights ``exp(-‖L(a - b)‖²)``. The
    map L is a local minimum of the sum of squared errors ``Σ (ŷ - y)²``.

    The problem is not convex: the answer is a local optimum. See ``docs/algorithms/mlkr.md`` for
    the mathematics.

    Parameters
    ----------
    n_components : int or None, default=None
        Rows of the map. None learns as many as the points have directions.
    init : "auto", "identity" or array of shape (rows, n_features), default="auto"
        The map to start from. The first row of "auto" is the direction of linear regression, and
        the width of its kernel is the one with the smallest error.
    tol : float, default=1e-4
        Estimated relative gain that is left at which to stop.
    max_iter : int, default=1000
        Largest number of iterations.
    max_seconds : float or None, default=None
        Largest time in seconds.
    verbose : int, default=0
        1 shows the iterations while fitting: a bar, or lines if stderr is no terminal.

    Attributes
    ----------
    components_ : ndarray or torch.Tensor of shape (n_components, n_features)
        The map L, its rows sorted by decreasing length.
    objective_ : float or None
        The sum of squared errors of the estimates, in units of y², computed from the data in
        float64. None if it could not be computed within twice ``max_seconds``.
    duality_gap_ : None
        The problem is not convex.
    status_ : str
        Why the fit ended: "converged", "max_iter", "max_seconds", "stalled", "stopped" (by a
        callback) or "interrupted".
    n_iter_ : int
        Number of iterations.
    history_ : list of dict
        For each iteration: n_iter, seconds, objective, residual (the estimated relative gain that
        is left) and duality_gap (None).
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of str
        Names of the features, if X had any.

    Notes
    -----
    With n points, d features and r rows an evaluation costs O(n² (r + d)) time, in blocks, and
    O(n d) memory. `fit` refuses sparse input.

    References
    ----------
    Weinberger & Tesauro, Metric learning for kernel regression, AISTATS (2007).

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.neighbors import KNeighborsRegressor
    >>> from nearfar import MLKR
    >>> X, y = load_diabetes(return_X_y=True)
    >>> mlkr = MLKR(n_components=2).fit(X, y)
    >>> model = KNeighborsRegressor(20).fit(mlkr.transform(X), y)
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        init: str | ArrayLike = "auto",
        tol: float = 1e-4,
        max_iter: int = 1000,
        max_seconds: float | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.init = init
        self.tol = tol
        self.max_iter = max_iter
        self.max_seconds = max_seconds
        self.verbose = verbose

    @with_callbacks
    def fit(self, X: Any, y: Any = None) -> MLKR:
        """Learn the map.

        Parameters
        ----------
        X : array-like or torch.Tensor of shape (n_samples, n_features)
            The points. Float32 stays float32; tensors are computed on their device.
        y : array-like of shape (n_samples,)
            A number for each point.

        Returns
        -------
        MLKR
            The fitted estimator.
        """
        points = validated_points(self, X, reset=True)
        targets = validated_numbers(self, points, y)
        self._check_parameters()
        with single_threaded_blas():
            points, kernels = without_dead_features(points), kernels_for(points)
            training = Training(self, X, y)
            if all_equal(points) or not np.ptp(targets):
                return self._without_variation(points, targets, training)
            problem = MLKRProblem.build(kernels, points, targets)
            start = self._start(problem)

            def attributes(iterate: Iterate) -> dict[str, Any]:
                L = rounded_like(problem.components(iterate.point), points)
                return {"components_": kernels.like(pad_or_trim_rows(L, self.n_components), points)}

            def residual(at: Point, gain: float) -> float:
                return min(REMAINS * gain, at.value) / max(at.value, 1.0)

            def in_units_of_targets(at: Point) -> dict[str, Any]:
                return {"objective": at.value * problem.unit**2}

            def iterates() -> Iterator[Iterate[Memory, None]]:
                """In float32 while the gains are above its rounding, in half of the time."""
                point, memory, rough = start, None, problem.in_single()
                if rough is not None:
                    for iterate in descend(rough.evaluate, point, residual, in_units_of_targets):
                        point, memory = iterate.point, iterate.state
                        if iterate.residual is None or iterate.residual <= max(ROUGH, self.tol):
                            break
                        yield replace(iterate, residual=None)
                yield from descend(problem.evaluate, point, residual, in_units_of_targets, memory)

            solution = training.run(
                iterates(),
                attributes,
                start=Iterate(start, np.inf),
            )
            self.components_ = attributes(solution.iterate)["components_"]
            L = to_host(self.components_).astype(np.float64)
            objective = fit_clock().in_time(lambda: problem.objective(L))
        store_ending(self, solution.status, objective, None, training.history)
        training.finish(solution.status, {"components_": self.components_})
        return self

    def _start(self, problem: MLKRProblem) -> Matrix:
        """The map on white coordinates to start from."""
        rows, d = self.n_components, self.n_features_in_
        if isinstance(self.init, str) and self.init == "auto":
            return problem.first_guess(rows)
        L = np.eye(rows or d, d)
        if not isinstance(self.init, str):
            L = given_map(self.init, rows, d, "init", "Correct it, or leave it out.")
        return problem.factor(L)

    def _without_variation(self, points: Array, targets: Matrix, training: Training) -> MLKR:
        """All points or all targets are equal: the identity is as good as any other map."""
        n, d = len(targets), self.n_features_in_
        others = (targets.sum() - targets) / max(n - 1, 1)
        identity = np.eye(self.n_components or d, d)
        self.components_ = kernels_for(points).like(identity, points)
        store_ending(self, Status.CONVERGED, float(((others - targets) ** 2).sum()), None, [])
        training.finish(Status.CONVERGED, {"components_": self.components_})
        return self

    def _check_parameters(self) -> None:
        check_limits(self)
        if self.n_components is not None:
            check_number("n_components", self.n_components, Integral, 1, self.n_features_in_)
        if isinstance(self.init, str) or self.init is None:
            check_choice("init", self.init, ("auto", "identity"), or_else=" or an array")


def validated_numbers(estimator: Any, points: Array, y: Any) -> Matrix:
    """A finite number for each of two or more points, in float64."""
    name = type(estimator).__name__
    numbers = target_numbers(y, len(points), name)
    if len(numbers) < 2:
        raise InvalidInputError(
            f"{name} needs at least two points; got n_samples={len(numbers)}. Add points."
        )
    check_spread(float(np.ptp(numbers)))
    check_range(points)
    return numbers
