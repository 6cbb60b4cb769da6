"""Neighbourhood components analysis as a scikit-learn transformer."""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from nearfar.blocks import Blocks
from nearfar.errors import InvalidInputError
from nearfar.estimators._base import MetricLearner
from nearfar.estimators._blocks import centre_of, near_squares, scaled_blocks
from nearfar.estimators._input import warn_of_no_variation
from nearfar.estimators._shrinkage import Prior, check_shrinkage, in_inputs, of_points
from nearfar.estimators._soft_neighbors import (
    LabelledPoints,
    as_components,
    check_init,
    check_start,
    expected_gain,
    framed_points,
    named_start,
    open_checkpoint,
    points_to_shrink,
    run_descent,
    start_from,
    validated_labelled_points,
)
from nearfar.estimators._start import (
    given_start,
    projection,
    sparse_projection,
)
from nearfar.estimators._training import Training, check_limits, store_ending, with_callbacks
from nearfar.kernels import Array, kernels_for, single_threaded_blas, to_host
from nearfar.limits import fit_clock
from nearfar.problems.nca import DiagonalNCAProblem, NCAProblem
from nearfar.problems.nca_blocks import DiagonalNCABlocks, NCABlocks
from nearfar.problems.nca_sparse import SparseNCAProblem
from nearfar.problems.soft_neighbors import Point, masses_of_others
from nearfar.problems.sparse_points import SKETCH, SparsePoints
from nearfar.solvers import Iterate, Status
from nearfar.solvers.quasi_newton import Memory, descend
from nearfar.supervision import ClassOrder
from nearfar.validation import check_number

Matrix = NDArray[np.float64]

NEAREST = 2  # neighbours whose distances give the scale of a local start
SMALLER = (0.3, 0.1, 0.03)  # shares of the first guess that are tried beside a floor
SAMPLE_ROWS = 1000  # whose neighbours are enough for it


class NCA(MetricLearner):
    """Neighbourhood components analysis: maximises the expected number of correct neighbours.

    Every point chooses a neighbour at random, near ones more likely:
    ``p(j|i) ∝ exp(-D(i, j))`` with D the squared learned distance. The map is a local
    maximum of ``Σ p(j|i)`` over pairs of a class: the expected number of points that choose a
    neighbour of their own class, and are classified correctly by it.

    The problem is not convex: the answer depends on the start, and there is no certificate. See
    ``docs/algorithms/nca.md`` for the mathematics.

    Parameters
    ----------
    n_components : int or None, default=None
        Rows of the map; None for as many as there are features. If the rank of the metric is lower,
        the last rows are zero, or left out for None. A diagonal metric keeps the features of
        largest weight.
    diagonal : bool, default=False
        Whether to learn a weight for each feature instead, a diagonal metric.
    shrinkage : float or "auto", default="auto"
        From 0 to below 1: how much of the distance of the inputs is kept. With few points for the
        number of features the paper's program (0) fits noise; shrinkage puts a price on the
        trace of the metric and, for a full one, keeps it above a multiple of the identity (see
        ``docs/algorithms/nca.md``). "auto" is 16d / (16d + n) for n points and d features, and
        keeps a mean of distances: of the inputs, of features at one scale, and of discriminant
        analysis of both, weighted by how well each classifies points that are left out (see
        ``prior_components_``). For sparse points and diagonal metrics it is 4d / (4d + n), and the
        distance that of the inputs, or of features at one scale if that classifies better
        (``feature_scale_``). For a number, bring features to one scale first.
    class_weight : dict, "balanced" or None, default=None
        Weights of classes, by which those of their rows are multiplied: "balanced" gives all
        classes the same weight, and classes that a dict does not name have the weight 1.
    init : {"auto", "identity", "pca", "lda", "random"} or array (rows, n_features), default="auto"
        Where to start. "auto" is the best of three starts, by the objective: directions weighted by
        the distances between random points relative to those within classes; the inputs; and
        standardised features (or principal components of these), scaled so that nearest neighbours
        are at a distance of about 1. The other words are scaled to the length of the first;
        "random" are normal random numbers, for starts from several places. An
        array is used as it is, and its scale matters. A diagonal metric starts from "auto",
        "identity" or an array, of whose metric it takes the diagonal.
    tol : float, default=1e-5
        Estimated relative gain that is left at which to stop.
    max_iter : int, default=100
        Largest number of iterations.
    max_seconds : float or None, default=None
        Largest time in seconds.
    verbose : int, default=0
        1 shows the iterations while fitting: a bar, or lines if stderr is no terminal.
    warm_start : bool, default=False
        Start from the map of the last fit.
    checkpoint : path or None, default=None
        File to write the state to, about twice a second, and to continue from if it exists. It is
        removed when the fit has converged.
    random_state : int, RandomState instance or None, default=None
        Draws ``init="random"``.

    Attributes
    ----------
    components_ : ndarray or torch.Tensor of shape (n_components, n_features)
        The map L, its rows sorted by decreasing length.
    shrinkage_ : float
        The shrinkage that was used.
    feature_scale_ : ndarray of shape (n_features,) or None
        What ``shrinkage="auto"`` multiplied features by for the distance that it keeps: powers of
        two, or None if they were left as they are. ``components_`` are for the inputs themselves.
    prior_components_ : ndarray of shape (rows, n_features) or None
        The map W whose distance ``shrinkage="auto"`` keeps: the objective is about points W x. None
        for the inputs, or scaled features.
    objective_ : float or None
        The expected number of points that choose one of their class, for weights of mean 1, less
        the price of the trace; computed in float64; for a diagonal metric, with the weights of all
        features.
        None if it could not be computed within twice ``max_seconds``.
    duality_gap_ : None
        There is no certificate.
    proof_ : dict or None
        The weights of the rows, for `nearfar.verify`; None if all count alike.
    status_ : str
        Why the fit ended: "converged", "max_iter", "max_seconds", "stalled", "stopped" (by a
        callback) or "interrupted".
    n_iter_ : int
        Number of iterations.
    history_ : list of dict
        For each iteration: n_iter, seconds, objective, residual (the estimated relative gain that
        is left, which is no bound) and duality_gap, which is None.
    classes_ : ndarray
        The labels.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of str
        Names of the features, if X had any.

    Notes
    -----
    With n points, d features and r rows an iteration costs O(n² (r + d)), or O(n² r) for few rows.
    Memory is O(n d) and some blocks of a few megabytes: no n × n array is made. CSR input, for a
    map of fewer rows than features, is never made dense; for z stored numbers an iteration costs
    O(n² r + z r), and memory is O(z + (n + d) (r + 100)).

    References
    ----------
    Goldberger, Roweis, Hinton & Salakhutdinov, Neighbourhood components analysis, NIPS 2004.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from nearfar import NCA
    >>> X, y = load_iris(return_X_y=True)
    >>> nca = NCA(n_components=2).fit(X, y)
    >>> nca.transform(X).shape
    (150, 2)
    >>> nca.objective_ > 130
    True
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        diagonal: bool = False,
        shrinkage: float | str = "auto",
        class_weight: str | dict[Any, float] | None = None,
        init: str | ArrayLike = "auto",
        tol: float = 1e-5,
        max_iter: int = 100,
        max_seconds: float | None = None,
        verbose: int = 0,
        warm_start: bool = False,
        checkpoint: Any = None,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.diagonal = diagonal
        self.shrinkage = shrinkage
        self.class_weight = class_weight
        self.init = init
        self.tol = tol
        self.max_iter = max_iter
        self.max_seconds = max_seconds
        self.verbose = verbose
        self.warm_start = warm_start
        self.checkpoint = checkpoint
        self.random_state = random_state

    @with_callbacks
    @single_threaded_blas()
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> NCA:
        """Learn the map.

        Parameters
        ----------
        X : array-like, sparse array, torch.Tensor or Dask array of shape (n_samples, n_features)
            The points. Float32 stays float32; tensors are computed on their device, and Dask arrays
            and tables block by block, on the cluster of the current client if there is one. They
            may be sparse if there are fewer rows than features.
        y : array-like of shape (n_samples,)
            Class labels: numbers, strings, booleans or categories.
        sample_weight : array-like of shape (n_samples,) or None, default=None
            Weights of the rows, of which only ratios matter; a row of weight 0 is dropped. A row
            counts by its weight as a point and as a neighbour of others.

        Returns
        -------
        NCA
            The fitted estimator.
        """
        given_rows = validated_labelled_points(
            self,
            X,
            y,
            sample_weight,
            accept_dask=True,
            accept_sparse=sparse.issparse(X) and self._learns_few_rows(X.shape[1]),
            to_accept="A map of few rows is learned from sparse points: set n_components, and leave"
            " diagonal=False. ",
        )
        X, labels = given_rows.X, given_rows.labels
        self._check_parameters()
        full = self.diagonal or self.n_components in (None, self.n_features_in_)
        rows = None if full else self.n_components
        given = given_start(self, rows)

        points, prior = self._points(X, labels)
        X, scale = points if isinstance(points, Blocks) else X, self.feature_scale_
        problem = self._problem(points, labels, given_rows.masses, rows)
        if not problem.varies:
            return self._store_without_variation(X, given_rows, rows)
        if given is None:
            start = named_start(problem, points, labels, str(self.init), rows, self.random_state)
            if self.init == "auto":
                local = map(problem.factor, local_maps(problem, points, labels, rows))
                smaller = [share * start for share in SMALLER if problem.floor.any()]
                starts = [start, *local, *smaller]
                start = min(starts, key=lambda L: problem.evaluate(L).value)
        else:
            start = start_from(self, problem, of_points(given, self.feature_scale_, prior))
        if problem.floor.any():
            start = problem.opened(start)
        elif given is not None:
            check_start(problem, start)

        def residual(at: Point, gain: float) -> float:
            return expected_gain(gain, at.value, least=-float(problem.counted.sum()))

        def recorded(at: Point) -> dict[str, Any]:
            return {"objective": -at.value}

        def descent(L: Matrix, memory: Memory | None) -> Iterator[Iterate]:
            return descend(problem.evaluate, L, residual, recorded, memory)

        def attributes(components: Matrix) -> dict[str, Any]:
            components = in_inputs(components, None, prior)
            return {"components_": as_components(components, self.n_components, X, scale)}

        settings = [self.n_components, bool(self.diagonal), self.shrinkage_, problem.masses]
        checkpoint = open_checkpoint(
            self.checkpoint, points, labels.starts, type(self).__name__, *settings
        )
        training = Training(self, given_rows.X, y, checkpoint=checkpoint)
        solution = run_descent(training, problem, start, descent, attributes)

        components = problem.returned(solution.iterate.point)
        fitted = attributes(components)
        self.components_, self.proof_ = fitted["components_"], given_rows.proof or None
        objective = fit_clock().in_time(lambda: problem.objective(components))
        store_ending(self, solution.status, objective, None, training.history)
        training.finish(solution.status, fitted)
        return self

    def _points(self, X: Array, labels: ClassOrder) -> tuple[Array | Blocks, Prior | None]:
        """The points sorted by class, in coordinates of what ``shrinkage`` keeps, and W of these.

        Other coordinates than scaled features would make sparse points dense, and a diagonal metric
        a full one.
        """
        if self.diagonal or sparse.issparse(X):
            self.prior_components_ = None
            return points_to_shrink(self, X, labels), None
        self.feature_scale_ = None
        return framed_points(self, X, labels)

    def _learns_few_rows(self, n_features: int) -> bool:
        """Whether the map has fewer rows than there are features."""
        count: Any = self.n_components
        return isinstance(count, Integral) and count < n_features and not self.diagonal

    def _problem(
        self, points: Array, labels: ClassOrder, masses: Matrix | None, rows: int | None
    ) -> NCAProblem:
        """The problem on points sorted by class; a map of all rows has a floor."""
        if sparse.issparse(points):
            source = SparsePoints(points, rows or 1)
            return SparseNCAProblem.of(source, labels.starts, self.shrinkage_, masses)
        kind: type[NCAProblem] = DiagonalNCAProblem if self.diagonal else NCAProblem
        if isinstance(points, Blocks):
            kind = DiagonalNCABlocks if self.diagonal else NCABlocks
        settings = labels.starts, self.shrinkage_, masses
        return kind.shrunk(points, centre_of(points), *settings, floored=rows is None)

    def _check_parameters(self) -> None:
        check_limits(self)
        check_init(self.init, "random")
        check_shrinkage(self.shrinkage)
        if self.n_components is not None:
            check_number("n_components", self.n_components, Integral, 1, self.n_features_in_)
        words = ("auto", "identity")
        if self.diagonal and isinstance(self.init, str) and self.init not in words:
            raise InvalidInputError(
                f"a diagonal metric starts from 'auto', 'identity' or an array; got"
                f" init={self.init!r}. Choose one of these, or set diagonal=False."
            )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self.n_components is not None and not self.diagonal
        return tags

    def _store_without_variation(self, X: Array, given: LabelledPoints, rows: int | None) -> NCA:
        """All points are equal, so that every map is as good as any other: keep the identity."""
        warn_of_no_variation()
        d, n = self.n_features_in_, X.shape[0]
        masses = np.ones(n) if given.masses is None else given.masses
        self.components_ = as_components(np.eye(rows or d, d), self.n_components, X)
        self.proof_ = given.proof or None
        others = masses_of_others(given.labels.starts, masses)
        objective = float(masses @ (others / masses_of_others(np.array([0, n]), masses)))
        store_ending(self, Status.CONVERGED, objective, None, [])
        return self


def local_maps(
    problem: NCAProblem, points: Array, labels: ClassOrder, rows: int | None
) -> list[Matrix]:
    """The inputs and standardised features, or their principal components, at a local scale.

    At that scale nearest neighbours are at a distance of about 1. Where classes alternate over
    short distances, there is no direction in which they differ on average, and another start sees
    nothing but chance. Of many sparse features the maps are principal components and discriminants.
    """
    if isinstance(problem, SparseNCAProblem) and rows is not None:
        source, d = problem.source, points.shape[1]
        if d > SKETCH:
            maps = (sparse_projection(source, labels, init, rows) for init in ("pca", "lda"))
            return [found for L in maps for found in at_local_scale(L, source.images(L))]
        points = source.sketch[1]
    if isinstance(points, Blocks):
        return _local_maps_of_blocks(points, labels, rows)
    d, kernels = points.shape[1], kernels_for(points)
    centred = kernels.double(points) - kernels.double(points[:1])
    deviations = np.std(to_host(centred[:: -(-len(centred) // SAMPLE_ROWS)]), axis=0)
    inverse = np.divide(1.0, deviations, where=deviations > 0, out=np.zeros(d))
    found = []
    for weights in (np.ones(d), inverse):
        components = np.diag(weights)
        if rows not in (None, d):
            weighted = centred * kernels.like(weights, centred)
            components = projection(weighted, labels, "pca", rows) * weights
        found += at_local_scale(components, kernels.apply(centred, components))
    return found


def _local_maps_of_blocks(points: Blocks, labels: ClassOrder, rows: int | None) -> list[Matrix]:
    """The same of rows in blocks."""
    n, d = points.shape
    some = np.arange(0, n, -(-n // SAMPLE_ROWS))
    sample = np.asarray(to_host(points.take(some)), dtype=np.float64)
    deviations = np.std(sample - sample[:1], axis=0)
    inverse = np.divide(1.0, deviations, where=deviations > 0, out=np.zeros(d))
    found = []
    for weights in (np.ones(d), inverse):
        components = np.diag(weights)
        if rows not in (None, d):
            weighted = scaled_blocks(points, weights)
            components = projection(weighted, labels, "pca", rows) * weights
        squares = near_squares(points, components, some, min(NEAREST + 1, n))
        found += _at_scale(components, squares)
    return found


def at_local_scale(components: Matrix, images: Array) -> list[Matrix]:
    """A map scaled by the distances between nearest images; none if all are equal."""
    sample = images[:: -(-len(images) // SAMPLE_ROWS)]
    count = min(NEAREST + 1, len(images))
    squares = to_host(kernels_for(images).nearest(sample, images, count)[1])
    return _at_scale(components, squares)


def _at_scale(components: Matrix, squares: Matrix) -> list[Matrix]:
    """A map scaled by squared distances between its images; none if all are zero."""
    return [components / np.sqrt(np.median(squares[squares > 0]))] if squares.any() else []
