"""Landmark maximum variance unfolding as a scikit-learn transformer."""

from __future__ import annotations

from functools import partial
from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
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
    lle_matrix_of,
    open_checkpoint,
    store_programs,
    unfolded_by,
)
from nearfar.estimators._training import Training, check_limits, with_callbacks
from nearfar.estimators._unfolding import Unfolding
from nearfar.graphs import NeighborhoodGraph
from nearfar.kernels import single_threaded_blas
from nearfar.problems.landmark_mvu import reconstruction
from nearfar.problems.variational_mvu import VariationalProgram
from nearfar.validation import check_choice, check_number

Matrix = NDArray[np.float64]
Index = NDArray[np.intp]


class LandmarkMVU(Unfolding):
    """Maximum variance unfolding of a few landmarks, which all points follow.

    Every point is a combination of landmarks, with the weights that best reconstruct the points
    from their neighbours: K = Q L Qᵀ, with L the Gram matrix of the landmarks. The program
    in L is tiny however many points there are; it trades the variance of all points against squared
    changes of squared lengths. Conjugate gradients then improve the points themselves.

    See ``docs/algorithms/landmark_mvu.md`` for the mathematics.

    Parameters
    ----------
    n_components : int, default=2
        Dimensions of the embedding.
    n_neighbors : int, default=5
        Neighbours of each point in the graph.
    angles : bool, default=True
        Whether the distances among the neighbours of a point are kept, too.
    n_landmarks : int, default=20
        Number of landmarks, more than ``n_components``. They are far apart along the graph.
    basis : {"lle", "laplacian"} or None, default=None
        How points follow from others: by the weights of locally linear embedding, which needs
        points, or by the mean of their neighbours. None is "lle" if there are points.
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
        Draws the links of ``on_disconnected="link"``, the first landmark, and the start of the
        eigenvector search.
    checkpoint : path or None, default=None
        File to write the state of the descent that ``gap_tol`` asks for to, about twice a second,
        and to continue from if it exists. It is removed when the fit has converged.

    Attributes
    ----------
    embedding_ : ndarray or torch.Tensor of shape (n_samples, n_components)
        Positions of the points, along axes of decreasing variance.
    landmarks_ : ndarray of int, of shape (n_landmarks,)
        The landmarks, as row numbers; those of all components.
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
        of ten steps, which is no bound), duality_gap (certified, of the program; None in a
        refinement), stage, component.
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
    With n points, e edges and m landmarks the program takes O(e m⁴) time once and O(m⁶) an
    iteration; weights of landmarks take O(f m), where f is the size of a sparse factor of a matrix
    with entries for neighbours of neighbours. Memory is O(e + f + n m). Weights and factor are
    computed on the host, sums over edges where the data is.

    References
    ----------
    Weinberger & Saul, Unsupervised learning of image manifolds by semidefinite programming, IJCV 70
    (2006), eq. 16; Weinberger, Packer & Saul, Nonlinear dimensionality reduction by semidefinite
    programming and kernel matrix factorization, AISTATS 2005.

    Examples
    --------
    >>> from sklearn.datasets import make_swiss_roll
    >>> from nearfar import LandmarkMVU
    >>> X, _ = make_swiss_roll(600, random_state=0)
    >>> unfolding = LandmarkMVU(n_neighbors=6, random_state=0).fit(X)
    >>> unfolding.embedding_.shape, unfolding.program_gap_ <= 1e-4
    ((600, 2), True)
    """

    def __init__(
        self,
        n_components: int = 2,
        n_neighbors: int | None = 5,
        *,
        angles: bool = True,
        n_landmarks: int = 20,
        basis: str | None = None,
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
        self.n_landmarks = n_landmarks
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
        LandmarkMVU
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
        landmarks = [np.empty(0, dtype=np.intp)]
        for component in map(Component.in_near_order, layout.components()):
            run = partial(run_component, training, layout, component)
            scaled = ScaledGraph.of(component.graph, given.reference, 1, random)
            chosen, Q = self._landmark_weights(component.graph)
            program = VariationalProgram.build(scaled.edges, Q, scaled.pull(self.stretch))
            stair = stairs.of(component.number)
            shape = unfolded_by(program, scaled, self, run, random, stair)
            layout.place(component, shape.unfolded(self.n_components, given.reference))
            shapes.append(shape)
            landmarks.append(component.rows[chosen])
        self.landmarks_ = layout.first_copies[np.concatenate(landmarks)]
        store_programs(self, layout, shapes, training)
        return self

    def _check_parameters(self) -> None:
        check_graph_parameters(self)
        check_limits(self)
        check_stretch(self)
        if self.basis is not None:
            check_choice("basis", self.basis, BASES, " or None")
        check_number("n_landmarks", self.n_landmarks, Integral, 2, None)
        if self.n_landmarks <= self.n_components:
            raise InvalidInputError(
                f"n_landmarks must be more than n_components={self.n_components}; got"
                f" {self.n_landmarks}. Raise n_landmarks: so many points have one dimension less."
            )

    def _landmark_weights(self, graph: NeighborhoodGraph) -> tuple[Index, Matrix]:
        """Landmarks (m,), and the weights Q (n, m) by which all points follow from them."""
        count = min(self.n_landmarks, graph.n_nodes)
        landmarks = graph.landmarks(count, random_state=self.random_state)
        default = "laplacian" if graph.points is None else "lle"
        if (self.basis or default) == "lle":
            Phi = lle_matrix_of(graph, type(self).__name__)
        else:
            L = graph.laplacian()
            Phi = (L @ L).tocsr()
        return landmarks, reconstruction(Phi, landmarks)
