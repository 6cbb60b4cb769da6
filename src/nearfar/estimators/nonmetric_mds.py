"""Non-metric multidimensional scaling as a scikit-learn estimator."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
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
from nearfar.estimators._training import Training, store_ending, with_callbacks
from nearfar.kernels import Array, as_dtype_of, kernels_for, single_threaded_blas
from nearfar.problems.nonmetric_mds import PRIMARY, SECONDARY, NonmetricProblem
from nearfar.solvers import Iterate
from nearfar.solvers.majorization import majorize
from nearfar.validation import check_choice


class NonmetricMDS(IterativeMDS):
    """Non-metric multidimensional scaling: points whose distances have the order of the given ones.

    A local minimum of Kruskal's stress-1, ``√(Σ w (d̂ - d)² / Σ w d²)`` over pairs of points, with d
    the distances of the embedding, w weights, and d̂ the numbers nearest to d that rise with the
    given dissimilarities. Only the order of these matters; some may be missing. See
    ``docs/algorithms/mds.md`` for the mathematics.

    Parameters
    ----------
    n_components : int, default=2
        Dimensions of the embedding.
    metric : {"euclidean", "precomputed"}, default="euclidean"
        Whether X holds points or dissimilarities.
    ties : {"primary", "secondary"}, default="primary"
        Whether equal dissimilarities may get any distances between those of smaller and larger
        ones, or should get equal distances.
    init : {"classical", "random"} or array of shape (n_samples, n_components), default="classical"
        Where to start: classical scaling, with the shortest paths along known dissimilarities for
        missing ones; normal random numbers; or as given.
    tol : float, default=1e-6
        Stop when the estimated relative decrease of the squared stress that is left is at most
        this.
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
        Positions of the points, centred and along their principal axes. The weighted
        mean of their squared distances is 1: the scale has no meaning.
    objective_ : float
        Stress-1, computed in float64: 0 is perfect, and Kruskal called 0.025 excellent, 0.05 good,
        0.1 fair and 0.2 poor.
    duality_gap_ : None
        There is no certificate: the problem is not convex.
    status_ : str
        Why the fit ended: "converged", "max_iter", "max_seconds", "stalled", "stopped" (by a
        callback) or "interrupted".
    n_iter_ : int
        Number of iterations.
    history_ : list of dict
        For each iteration: n_iter, seconds, objective, residual (the estimated relative decrease
        of the squared stress that is left, which is no bound) and duality_gap, which is None.
    n_features_in_ : int
        Number of features, or of points if X holds dissimilarities.
    feature_names_in_ : ndarray of str
        Names of the features, if X had any.

    Notes
    -----
    With n points and m known dissimilarities an iteration takes O(m n_components) time, and
    O(m log m) with ties in the primary approach, on the host, where tensors are copied to. Weights
    or missing dissimilarities, and the classical start, cost up to O(n³) once. Memory is O(n² + m).

    References
    ----------
    Kruskal, Multidimensional scaling by optimizing goodness of fit to a nonmetric hypothesis,
    Psychometrika 29 (1964).

    Examples
    --------
    >>> import numpy as np
    >>> from nearfar import NonmetricMDS
    >>> x = np.array([0.0, 1.0, 3.0, 7.0])
    >>> D = np.abs(x[:, None] - x) ** 3  # no distances, but of their order
    >>> mds = NonmetricMDS(n_components=1, metric="precomputed").fit(D)
    >>> mds.objective_ < 1e-3
    True
    """

    def __init__(
        self,
        n_components: int = 2,
        *,
        metric: str = "euclidean",
        ties: str = "primary",
        init: str | ArrayLike = "classical",
        tol: float = 1e-6,
        max_iter: int = 300,
        max_seconds: float | None = None,
        verbose: int = 0,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.metric = metric
        self.ties = ties
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
            Points (n_samples, n_features); or with ``metric="precomputed"`` dissimilarities
            (n_samples, n_samples), dense with NaN or infinity where one is not known, or sparse
            with the known ones stored, zeros among them; or a graph, whose edges are the known
            dissimilarities. Tensors are copied to the host.
        y : None
            Not used.
        weights : array-like, torch.Tensor or sparse array of shape (n_samples, n_samples), or None
            How much each dissimilarity counts: symmetric, not negative. None counts all alike.

        Returns
        -------
        NonmetricMDS
            The fitted estimator.
        """
        check_scaling_parameters(self)
        check_choice("ties", self.ties, (PRIMARY, SECONDARY))
        known, reference = known_distances(self, X, weights)
        known.check_connected(type(self).__name__)
        problem = self._problem(known)
        start = initial_places(known, self.n_components, self.init, self.random_state)
        kernels = kernels_for(start)
        start = np.asarray(kernels.to_host(start))
        training = Training(self, X, y)

        def embedding(iterate: Iterate) -> Array:
            places = kernels.like(principal_places(iterate.point), known.reference)
            return as_dtype_of(reference, places)

        solution = training.run(
            majorize(
                problem.evaluate,
                start,
                relative_gain(problem.scale),
                lambda at: {"objective": float(at.value**0.5)},
            ),
            lambda iterate: {"embedding_": embedding(iterate)},
        )
        self.embedding_ = embedding(solution.iterate)
        stress = problem.evaluate(in_unit_beside(self.embedding_, start, 1.0)).value ** 0.5
        store_ending(self, solution.status, stress, None, training.history)
        training.finish(solution.status, {"embedding_": self.embedding_})
        return self

    def _problem(self, known: KnownDistances) -> NonmetricProblem:
        pairs = known.some_pairs(on_host=True)
        if pairs.lengths.min() == pairs.lengths.max():
            raise InvalidInputError(
                "NonmetricMDS needs dissimilarities that differ; all known ones are"
                f" {known.unit * pairs.lengths.min():g}, which have no order. Check the data."
            )
        return NonmetricProblem.of(pairs, self.ties)
