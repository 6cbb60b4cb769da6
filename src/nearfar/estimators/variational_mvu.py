"""Variational maximum variance unfolding as a scikit-learn transformer.

The thesis' recipe (3.1.8), of which `LandmarkMVU` and `SensorLocalization` use the parts below:

1. smooth functions on the graph, a few bottom eigenvectors;
2. the semidefinite program on these functions gives the shape (`solve_program`);
3. if ``gap_tol`` asks for it, a descent in more dimensions until the best unfolding is proved
   (`unfold_whole`);
4. conjugate gradients on the points themselves, first in as many dimensions as the program has,
   which flattens the shape, and then in those of the embedding, which corrects what the projection
   has done (`refine`).
"""

from __future__ import annotations

from functools import partial
from numbers import Integral
from typing import Any, Self

from sklearn.utils import check_random_state

from nearfar.errors import InvalidInputError
from nearfar.estimators._graph_layout import (
    Component,
    Layout,
    check_graph_parameters,
    graph_input,
    run_component,
)
from nearfar.estimators._small_program import (
    BASES,
    ScaledGraph,
    Shape,
    Stairs,
    check_stretch,
    lle_functions,
    lle_matrix_of,
    open_checkpoint,
    store_programs,
    unfolded_by,
)
from nearfar.estimators._training import Training, check_limits, with_callbacks
from nearfar.estimators._unfolding import Unfolding
from nearfar.kernels import single_threaded_blas
from nearfar.problems.variational_mvu import VariationalProgram
from nearfar.validation import check_choice, check_number


class VariationalMVU(Unfolding):
    """Maximum variance unfolding of many points: by smooth functions first, then point by point.

    The Gram matrix of the unfolded points is that of a few smooth functions on the neighbourhood
    graph, K = U Z Uᵀ, so that the semidefinite program in Z is tiny however many points there are.
    It trades the variance of the points against squared changes of squared lengths, and is solved
    to a certified gap. Conjugate gradients then improve the points themselves, first in as many
    dimensions as there are functions, and finally in ``n_components``.

    See ``docs/algorithms/variational_mvu.md`` for the mathematics.

    Parameters
    ----------
    n_components : int, default=2
        Dimensions of the embedding.
    n_neighbors : int, default=5
        Neighbours of each point in the graph.
    angles : bool, default=True
        Whether the distances among the neighbours of a point are kept, too.
    n_eigenvectors : int, default=15
        Number of smooth functions, at least ``n_components``.
    basis : {"laplacian", "lle"}, default="laplacian"
        Which functions are smooth: bottom eigenvectors of the graph's Laplacian, or of the matrix
        of locally linear embedding, which needs points.
    stretch : float, default=0.01
        How much longer squared lengths may become on average for the sake of variance, relative to
        their mean. 0 fits lengths alone.
    refine : bool, default=True
        Whether conjugate gradients follow the semidefinite program.
    gap_tol : float or None, default=None
        If given, a refinement descends in ten dimensions or more, until the certified gap of the
        points there, ``whole_gap_``, is at most this; 1e-3 is a matter of seconds for 2000 points.
    metric : {"euclidean", "precomputed", "kernel"}, default="euclidean"
        Whether X holds points, distances or a kernel matrix.
    on_disconnected : {"link", "error", "separate"}, default="link"
        What to do with a graph of several components: link them by edges between near points,
        with a warning that names their sizes; raise an error; or unfold each by itself about the
        origin.
    tol : float, default=1e-4
        Where to stop: the certified relative gap of the program, and for a refinement what its last
        ten steps gained, relative to misfit and variance together.
    max_iter : int, default=500
        Largest number of iterations of each stage.
    max_seconds : float or None, default=None
        Largest time in seconds.
    memory_limit : float or None, default=None
        Gigabytes for the descent of ``gap_tol``, for the graph of a Dask array, and for its rows if
        there is no cluster; None is all memory. What needs more is refused before it is computed.
    verbose : int, default=0
        1 shows the iterations while fitting: a bar, or lines if stderr is no terminal.
    random_state : int, RandomState instance or None, default=None
        Draws the links of ``on_disconnected="link"`` and the start of the eigenvector search.
    checkpoint : path or None, default=None
        File to write the state of the descent that ``gap_tol`` asks for to, about twice a second,
        and to continue from if it exists. It is removed when the fit has converged.

    Attributes
    ----------
    embedding_ : ndarray or torch.Tensor of shape (n_samples, n_components)
        Positions of the points, along axes of decreasing variance.
    eigenvalues_ : ndarray
        Eigenvalues of the Gram matrix before the projection on ``n_components``, largest first.
        The number of large ones is an estimate of the dimension.
    max_distortion_ : float
        Largest relative change of a squared length before the projection.
    objective_ : float
        ``2 * stretch * λ * trace - Σ weight * change²`` of the embedding, or of the program without
        ``refine``; in units in which the mean squared length is 1.
    duality_gap_ : float or None
        Certified gap of the embedding: how far its objective is at most from that of the best
        points in any number of dimensions, relative as ``program_gap_``. None if there was no time
        or memory for the proof.
    whole_gap_ : float or None
        The same of the points in all their dimensions, before the projection on ``n_components``.
    program_objective_ : float
        Objective of the program.
    program_gap_ : float
        Its certified relative gap.
    status_ : str
        Why the fit ended: "converged", "max_iter", "max_seconds", "stalled", "stopped" (by a
        callback) or "interrupted".
    n_iter_ : int
        Number of iterations of all stages.
    history_ : list of dict
        For each iteration: n_iter, seconds, objective, residual (in a refinement the relative gain
        of ten steps, which is no bound), duality_gap (certified, of the program, and of the points
        once ``gap_tol`` was proved; None elsewhere), stage, component; on the way to ``gap_tol``
        also estimated_gap, now and then, which proves nothing.
    graph_ : NeighborhoodGraph
        The graph.
    component_labels_ : ndarray of shape (n_samples,)
        The component of each point.
    X_fit_ : ndarray, torch.Tensor, Dask array or None
        The points, if there are any.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of str
        Names of the features, if X had any.

    Notes
    -----
    With n points, e edges and m eigenvectors the program takes O(e m⁴) time once and O(m⁶) an
    iteration, a step of the refinement O((e + f) m), where f is the size of a sparse factor of the
    Laplacian: O(n log n) on a manifold of two dimensions. Memory is O(e + f + n m). Factor, sums
    over edges and descents are where the data is; Lanczos' vectors are on the host.

    References
    ----------
    Weinberger, Metric learning with convex optimization, PhD thesis, University of Pennsylvania,
    2007, section 3.1.8; Weinberger, Sha, Zhu & Saul, Graph Laplacian regularization for large-scale
    semidefinite programming, NIPS 2006.

    Examples
    --------
    >>> from sklearn.datasets import make_swiss_roll
    >>> from nearfar import VariationalMVU
    >>> X, _ = make_swiss_roll(600, random_state=0)
    >>> unfolding = VariationalMVU(n_neighbors=6).fit(X)
    >>> unfolding.embedding_.shape, unfolding.program_gap_ <= 1e-4
    ((600, 2), True)
    """

    def __init__(
        self,
        n_components: int = 2,
        n_neighbors: int | None = 5,
        *,
        angles: bool = True,
        n_eigenvectors: int = 15,
        basis: str = "laplacian",
        stretch: float = 0.01,
        refine: bool = True,
        gap_tol: float | None = None,
        metric: str = "euclidean",
        on_disconnected: str = "link",
        tol: float = 1e-4,
        max_iter: int = 500,
        max_seconds: float | None = None,
        memory_limit: float | None = None,
        verbose: int = 0,
        random_state: Any = None,
        checkpoint: Any = None,
    ) -> None:
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.angles = angles
        self.n_eigenvectors = n_eigenvectors
        self.basis = basis
        self.stretch = stretch
        self.refine = refine
        self.gap_tol = gap_tol
        self.metric = metric
        self.on_disconnected = on_disconnected
        self.tol = tol
        self.max_iter = max_iter
        self.max_seconds = max_seconds
        self.memory_limit = memory_limit
        self.verbose = verbose
        self.random_state = random_state
        self.checkpoint = checkpoint

    @with_callbacks
    @single_threaded_blas()
    def fit(self, X: Any, y: Any = None) -> Self:
        """Unfold the points.

        Parameters
        ----------
        X : array-like, torch.Tensor, Dask array or table, sparse array or NeighborhoodGraph
            Points (n_samples, n_features), or a graph, which then takes the place of
            ``n_neighbors``, ``angles`` and ``metric``. The rows of a Dask array stay where they
            are; their graph comes to this machine, which unfolds it. With
            ``metric="precomputed"`` distances (n_samples, n_samples), dense with NaN or infinity
            where one is not known, or sparse with the known ones stored; with ``metric="kernel"`` a
            kernel matrix.
        y : None
            Not used.

        Returns
        -------
        VariationalMVU
            The fitted estimator.
        """
        self._check_parameters()
        given = graph_input(self, X, blocks=True)
        checkpoint = open_checkpoint(self, given)
        training = Training(self, X, y, checkpoint=checkpoint, bounded=False)
        stairs = Stairs(training)
        layout = Layout(given, self.n_components)
        random = check_random_state(self.random_state)
        shapes: list[Shape] = []
        for component in map(Component.in_near_order, layout.components()):
            run = partial(run_component, training, layout, component)
            count = self.n_eigenvectors if self.basis == "laplacian" else 1
            scaled = ScaledGraph.of(component.graph, given.reference, count, random)
            functions = scaled.spectrum.vectors
            if self.basis == "lle":
                Phi = lle_matrix_of(component.graph, type(self).__name__)
                functions = lle_functions(Phi, self.n_eigenvectors, random)
            program = VariationalProgram.build(scaled.edges, functions, scaled.pull(self.stretch))
            stair = stairs.of(component.number)
            shape = unfolded_by(program, scaled, self, run, random, stair)
            layout.place(component, shape.unfolded(self.n_components, given.reference))
            shapes.append(shape)
        store_programs(self, layout, shapes, training)
        return self

    def _check_parameters(self) -> None:
        check_graph_parameters(self)
        check_limits(self)
        check_stretch(self)
        check_choice("basis", self.basis, BASES)
        check_number("n_eigenvectors", self.n_eigenvectors, Integral, 1, None)
        if self.n_eigenvectors < self.n_components:
            raise InvalidInputError(
                f"n_eigenvectors must be at least n_components={self.n_components}; got"
                f" {self.n_eigenvectors}. Raise n_eigenvectors: the program has no more dimensions"
                " than functions."
            )
