"""Local multidimensional scaling as a scikit-learn estimator."""

from __future__ import annotations

from functools import partial
from numbers import Real
from typing import Any, Self

from sklearn.utils import check_random_state

from nearfar.estimators._graph_layout import (
    Layout,
    Unfolded,
    as_returned,
    check_graph_parameters,
    graph_input,
    max_distortion,
    run_component,
    store_layout,
)
from nearfar.estimators._mds import KnownDistances, initial_places, principal_places
from nearfar.estimators._training import Training, check_limits, store_ending, with_callbacks
from nearfar.estimators._unfolding import Unfolding
from nearfar.kernels import kernels_for, single_threaded_blas
from nearfar.problems.local_mds import LocalProblem
from nearfar.solvers.majorization import majorize
from nearfar.validation import check_number


class LocalMDS(Unfolding):
    """Local multidimensional scaling: keeps near distances and pushes all other points apart.

    A local minimum of ``Σ (δ - d)²`` over the edges of a neighbourhood graph, less ``t Σ d`` over
    all other pairs, with δ the lengths of the edges and d the distances of the embedding. The push
    t is ``repulsion`` times the median length times the number of edges over that of other pairs.
    See ``docs/algorithms/mds.md`` for the mathematics and for a way to choose the push.

    Parameters
    ----------
    n_components : int, default=2
        Dimensions of the embedding.
    n_neighbors : int or None, default=6
        Number of neighbours of a point. None takes all known distances of
        ``metric="precomputed"``, and 4 neighbours of points.
    repulsion : float, default=0.05
        How hard points that are not neighbours are pushed apart: 0 is not at all. Useful values lie
        between 0.001 and 1.
    metric : {"euclidean", "precomputed", "kernel"}, default="euclidean"
        Whether X holds points, distances (of which some may be missing) or kernel values.
    on_disconnected : {"link", "error", "separate"}, default="link"
        What to do with a graph of several components: link them by edges between near points,
        with a warning that names their sizes; raise an error; or lay out each by itself about the
        origin.
    tol : float, default=1e-6
        Estimated decrease that is left, relative to ``Σ δ²`` over the edges, at which to stop.
    max_iter : int, default=300
        Largest number of iterations.
    max_seconds : float or None, default=None
        Largest time in seconds.
    verbose : int, default=0
        1 shows the iterations while fitting: a bar, or lines if stderr is no terminal.
    random_state : int, RandomState instance or None, default=None
        Draws links between components, and separates points that start in the same place.

    Attributes
    ----------
    embedding_ : ndarray or torch.Tensor of shape (n_samples, n_components)
        Positions of the points, centred and along their principal axes.
    eigenvalues_ : ndarray of shape (n_components,)
        The squared lengths of the columns of the embedding.
    graph_ : NeighborhoodGraph
        The graph whose edges were kept.
    component_labels_ : ndarray of shape (n_samples,)
        The component of each point.
    max_distortion_ : float
        The largest relative error of a squared edge length.
    objective_ : float
        What is minimised, over unordered pairs, in float64; copies of a point count once. It may be
        negative.
    duality_gap_ : None
        There is no certificate: the problem is not convex.
    status_ : str
        Why the fit ended: "converged", "max_iter", "max_seconds", "stalled", "stopped" (by a
        callback) or "interrupted".
    n_iter_ : int
        Number of iterations.
    history_ : list of dict
        For each iteration: n_iter, seconds, objective, component, residual (the estimated relative
        decrease that is left, which is no bound) and duality_gap, which is None.
    X_fit_ : ndarray or torch.Tensor of shape (n_samples, n_features), or None
        The points. None if X held distances or kernel values.
    n_features_in_ : int
        Number of features, or of points if X holds distances.
    feature_names_in_ : ndarray of str
        Names of the features, if X had any.

    Notes
    -----
    With n points an iteration takes O(n² n_components) time in blocks, and a sparse solution. The
    start, classical scaling of the shortest paths along the graph, takes O(n² (log n +
    n_neighbors)) time and O(n²) memory.

    References
    ----------
    Chen & Buja, Local multidimensional scaling for nonlinear dimension reduction, graph drawing,
    and proximity analysis, JASA 104 (2009).

    Examples
    --------
    >>> from sklearn.datasets import make_swiss_roll
    >>> from nearfar import LocalMDS
    >>> from nearfar.evaluation import neighborhood_intersection
    >>> X, _ = make_swiss_roll(500, random_state=0)
    >>> Y = LocalMDS(repulsion=0.001).fit_transform(X)
    >>> neighborhood_intersection(X, Y) > 0.9
    True
    """

    angles = False  # neighbours of a point are no neighbours of each other

    def __init__(
        self,
        n_components: int = 2,
        *,
        n_neighbors: int | None = 6,
        repulsion: float = 0.05,
        metric: str = "euclidean",
        on_disconnected: str = "link",
        tol: float = 1e-6,
        max_iter: int = 300,
        max_seconds: float | None = None,
        verbose: int = 0,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.repulsion = repulsion
        self.metric = metric
        self.on_disconnected = on_disconnected
        self.tol = tol
        self.max_iter = max_iter
        self.max_seconds = max_seconds
        self.verbose = verbose
        self.random_state = random_state

    @with_callbacks
    @single_threaded_blas()
    def fit(self, X: Any, y: Any = None) -> Self:
        """Place the points.

        Parameters
        ----------
        X : array-like, torch.Tensor, sparse array or NeighborhoodGraph
            Points (n_samples, n_features), or a graph, which then takes the place of
            ``n_neighbors`` and ``metric``. With ``metric="precomputed"`` distances
            (n_samples, n_samples), dense with NaN or infinity where one is not known, or sparse
            with the known ones stored; with ``metric="kernel"`` a kernel matrix.
        y : None
            Not used.

        Returns
        -------
        LocalMDS
            The fitted estimator.
        """
        check_graph_parameters(self)
        check_limits(self)
        check_number("repulsion", self.repulsion, Real, 0, None)
        given = graph_input(self, X)
        training = Training(self, X, y, bounded=False)
        layout = Layout(given, self.n_components)
        random = check_random_state(self.random_state)
        for component in layout.components():
            graph, n = component.graph, component.graph.n_nodes
            known = KnownDistances.of_graph(graph, given.reference)
            problem = LocalProblem.of(n, known.some_pairs(), float(self.repulsion))
            start = initial_places(known, min(self.n_components, n - 1), "classical", random)
            solution = run_component(
                training,
                layout,
                component,
                majorize(problem.evaluate, start, partial(_relative_gain, problem.scale)),
                lambda iterate: principal_places(iterate.point),
            )
            Y = as_returned(principal_places(solution.iterate.point), given.reference)
            unfolded = Unfolded(
                embedding=Y,
                eigenvalues=(Y * Y).sum(axis=0),
                max_distortion=max_distortion(Y, graph),
                objective=problem.evaluate(kernels_for(start).like(Y, start)).value,
                duality_gap=None,
                status=solution.status,
            )
            layout.place(component, unfolded)
        store_layout(self, layout)
        status = layout.status(self.tol)
        store_ending(self, status, layout.objective, layout.duality_gap, training.history)
        training.finish(status, layout.attributes())
        return self


def _relative_gain(scale: float, _: Any, gain: float) -> float:
    """What is left to gain, relative to the sum of squared lengths."""
    return gain / scale
