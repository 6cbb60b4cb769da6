"""Variational maximum variance unfolding as a scikit-learn transformer."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import InvalidInputError
from nearfar.estimators._factored_unfolding import BASES, FactoredUnfolding, check_points
from nearfar.estimators._unfolding import Task
from nearfar.graphs import NeighborhoodGraph
from nearfar.graphs.spectrum import Spectrum, bottom_spectrum
from nearfar.problems.landmark_mvu import lle_matrix, lle_weights
from nearfar.validation import check_choice, check_number

Matrix = NDArray[np.float64]


class VariationalMVU(FactoredUnfolding):
    """Maximum variance unfolding of many points: by smooth functions first, then point by point.

    The Gram matrix of the unfolded points is that of a few smooth functions on the neighbourhood
    graph, K = U Z Uᵀ, so that the semidefinite program in Z is tiny however many points there are.
    It trades the variance of the points against squared changes of squared lengths, and is solved
    to a certified gap. Conjugate gradients then improve the points themselves, in as many
    dimensions as there are functions and, at last, in ``n_components``.

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
        How many smooth functions, at least ``n_components``.
    basis : {"laplacian", "lle"}, default="laplacian"
        Which functions are smooth: bottom eigenvectors of the graph's Laplacian, or of the matrix
        of locally linear embedding, which needs points.
    stretch : float, default=0.01
        How much longer squared lengths may become on average for the sake of variance, relative to
        their mean. 0 fits lengths alone.
    refine : bool, default=True
        Whether conjugate gradients follow the semidefinite program.
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
    random_state : int, RandomState instance or None, default=None
        Draws links of ``on_disconnected="link"`` and where the search for eigenvectors starts.

    Attributes
    ----------
    embedding_ : ndarray or torch.Tensor of shape (n_samples, n_components)
        The places, along axes of decreasing variance.
    eigenvalues_ : ndarray
        Of the Gram matrix before the projection on ``n_components``, largest first: how many of
        them are large tells the dimension.
    max_distortion_ : float
        Largest relative change of a squared length before the projection.
    objective_ : float
        ``2 * stretch * λ * trace - Σ weight * change²`` of the embedding, or of the program without
        ``refine``; in units in which the mean squared length is 1.
    duality_gap_ : float or None
        Certified gap of the program; None after a refinement, which is not convex.
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
    X_fit_ : ndarray, torch.Tensor or None
        The points, if there are any.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of str
        Names of the features, if X had any.

    Notes
    -----
    With n points, e edges and m eigenvectors the program takes O(e m⁴) time once and O(m⁶) an
    iteration, a step of the refinement O((e + f) m), where f is the size of a sparse factor of the
    Laplacian: O(n log n) on a manifold of two dimensions. Memory is O(e + f + n m). Eigenvectors
    and factor are computed on the host, sums over edges where the data is.

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
        metric: str = "euclidean",
        on_disconnected: str = "link",
        tol: float = 1e-4,
        max_iter: int = 500,
        max_seconds: float | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.angles = angles
        self.n_eigenvectors = n_eigenvectors
        self.basis = basis
        self.stretch = stretch
        self.refine = refine
        self.metric = metric
        self.on_disconnected = on_disconnected
        self.tol = tol
        self.max_iter = max_iter
        self.max_seconds = max_seconds
        self.random_state = random_state

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_choice("basis", self.basis, BASES)
        check_number("n_eigenvectors", self.n_eigenvectors, Integral, 1, None)
        if self.n_eigenvectors < self.n_components:
            raise InvalidInputError(
                f"n_eigenvectors must be at least n_components={self.n_components}; got"
                f" {self.n_eigenvectors}. Raise n_eigenvectors: the program has no more dimensions"
                " than functions."
            )

    def _n_eigenvectors(self) -> int:
        return self.n_eigenvectors if self.basis == "laplacian" else 1

    def _functions(
        self, graph: NeighborhoodGraph, spectrum: Spectrum, task: Task
    ) -> tuple[Matrix, dict[str, Any]]:
        if self.basis == "laplacian":
            return spectrum.vectors, {}
        check_points(graph, type(self).__name__)
        count = min(self.n_eigenvectors, graph.n_nodes - 1)
        Phi = lle_matrix(lle_weights(graph))
        return bottom_spectrum(Phi, count, task.random, by_products=False).vectors, {}
