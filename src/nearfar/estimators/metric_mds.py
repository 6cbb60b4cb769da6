"""Metric multidimensional scaling as a scikit-learn estimator."""

from __future__ import annotations

from typing import Any, Self

from numpy.typing import ArrayLike

from nearfar.errors import InvalidInputError
from nearfar.estimators._mds import (
    IterativeMDS,
    KnownDistances,
    check_scaling_parameters,
    in_unit_beside,
    initial_places,
    known_distances,
    principal_places,
    relative_gain,
)
from nearfar.estimators._start import check_power
from nearfar.estimators._training import Training, store_ending, with_callbacks
from nearfar.kernels import Array, as_dtype_of, single_threaded_blas
from nearfar.problems.mds import SQUARED_STRESS, STRESS, StressProblem
from nearfar.solvers import Iterate
from nearfar.solvers.majorization import majorize
from nearfar.validation import check_choice


class MetricMDS(IterativeMDS):
    """Metric multidimensional scaling: points whose distances are close to the given ones.

    A local minimum of the stress ``Σ w (δ - d)²`` over pairs of points, with δ the given distances,
    d those of the embedding and w weights, or of the s-stress ``Σ w (δ² - d²)²``. Distances may be
    missing. See ``docs/algorithms/mds.md`` for the mathematics.

    Parameters
    ----------
    n_components : int, default=2
        Dimensions of the embedding.
    metric : {"euclidean", "precomputed"}, default="euclidean"
        Whether X holds points or distances.
    loss : {"stress", "sstress"}, default="stress"
        What is minimised. The s-stress, eq. (3.2) of Weinberger's thesis, mostly fits the largest
        distances.
    init : {"classical", "random"} or array of shape (n_samples, n_components), default="classical"
        Where to start: classical scaling, with the shortest paths along known distances for
        missing ones; normal random numbers; or as given.
    tol : float, default=1e-6
        Stop when the estimated relative decrease that is left is at most this.
    max_iter : int, default=300
        Largest number of iterations.
    max_seconds : float or None, default=None
        Largest time in seconds.
    verbose : int, default=0
        1 shows the iterations while fitting: a bar, or lines if stderr is no terminal.
    random_state : int, RandomState instance or None, default=None
        Draws a random start, and separates points that start in the same place.

    Attributes
    ----------
    embedding_ : ndarray or torch.Tensor of shape (n_samples, n_components)
        Positions of the points, centred and along their principal axes.
    objective_ : float
        The stress, or the s-stress, summed over pairs i < j in float64.
    duality_gap_ : None
        There is no certificate: the problem is not convex.
    status_ : str
        Why the fit ended: "converged", "max_iter", "max_seconds", "stalled", "stopped" (by a
        callback) or "interrupted".
    n_iter_ : int
        Number of iterations.
    history_ : list of dict
        For each iteration: n_iter, seconds, objective, residual (the estimated relative decrease
        that is left, which is no bound) and duality_gap, which is None.
    n_features_in_ : int
        Number of features, or of points if X holds distances.
    feature_names_in_ : ndarray of str
        Names of the features, if X had any.

    Notes
    -----
    With n points an iteration takes O(n² n_components) time. If only m distances are known, less
    than a quarter of all, it takes O(m n_components) and a sparse solution. With weights, or if
    less than three quarters of the distances are missing, O(n³) is added once, as it is by the
    classical start. Memory is O(n²).

    References
    ----------
    De Leeuw, Applications of convex analysis to multidimensional scaling, 1977.
    Borg & Groenen, Modern multidimensional scaling, 2nd edition, 2005.

    Examples
    --------
    >>> import numpy as np
    >>> from nearfar import MetricMDS
    >>> D = np.array([[0, 3, 5], [3, 0, 4], [5, 4, 0]])
    >>> Y = MetricMDS(metric="precomputed").fit_transform(D)
    >>> np.round(np.linalg.norm(Y[0] - Y[1:], axis=1), 6)
    array([3., 5.])
    """

    def __init__(
        self,
        n_components: int = 2,
        *,
        metric: str = "euclidean",
        loss: str = "stress",
        init: str | ArrayLike = "classical",
        tol: float = 1e-6,
        max_iter: int = 300,
        max_seconds: float | None = None,
        verbose: int = 0,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.metric = metric
        self.loss = loss
        self.init = init
        self.tol = tol
        self.max_iter = max_iter
        self.max_seconds = max_seconds
        self.verbose = verbose
        self.random_state = random_state

    @with_callbacks
    @single_threaded_blas()
    def fit(self, X: Any, y: Any = None, *, weights: Any = None) -> Self:
        """Place the points.

        Parameters
        ----------
        X : array-like, torch.Tensor, sparse array or NeighborhoodGraph
            Points (n_samples, n_features); or with ``metric="precomputed"`` distances (n_samples,
            n_samples), dense with NaN or infinity where one is not known, or sparse with the known
            ones stored, zeros among them; or a graph, whose edges are the known distances. Tensors
            are computed on their device.
        y : None
            Not used.
        weights : array-like, torch.Tensor or sparse array of shape (n_samples, n_samples), or None
            How much each distance counts: symmetric, not negative. None counts all alike.

        Returns
        -------
        MetricMDS
            The fitted estimator.
        """
        check_scaling_parameters(self)
        check_choice("loss", self.loss, (STRESS, SQUARED_STRESS))
        known, reference = known_distances(self, X, weights)
        known.check_connected(type(self).__name__)
        problem = self._problem(known)
        start = initial_places(known, self.n_components, self.init, self.random_state)
        training = Training(self, X, y)

        def embedding(iterate: Iterate) -> Array:
            return as_dtype_of(reference, known.unit * principal_places(iterate.point))

        def objective(at: Any) -> float:
            return float(at.value * known.unit**self._power)

        solution = training.run(
            majorize(
                problem.evaluate,
                start,
                relative_gain(problem.scale),
                lambda at: {"objective": objective(at)},
            ),
            lambda iterate: {"embedding_": embedding(iterate)},
        )
        self.embedding_ = embedding(solution.iterate)
        returned = problem.evaluate(in_unit_beside(self.embedding_, start, known.unit))
        store_ending(self, solution.status, objective(returned), None, training.history)
        training.finish(solution.status, {"embedding_": self.embedding_})
        return self

    def _problem(self, known: KnownDistances) -> StressProblem:
        pairs = known.pairs()
        if pairs.total(2) == 0:
            raise InvalidInputError(
                f"MetricMDS needs points that differ; all distances of the {known.n} are 0. Check"
                " the data."
            )
        check_power(known.unit, self._power, "largest distance", "Divide your data by it.")
        return StressProblem.of(pairs, self.loss)

    @property
    def _power(self) -> int:
        """The power of lengths in the loss."""
        return 2 if self.loss == STRESS else 4
