"""Relevant component analysis as a scikit-learn transformer."""

from __future__ import annotations

import warnings
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from sklearn.utils.validation import check_is_fitted

from nearfar.blocks import is_dask
from nearfar.blocks.collections import Stream
from nearfar.errors import DataWarning, InvalidInputError, warn
from nearfar.estimators._base import MetricLearner
from nearfar.estimators._blocks import validated_dask
from nearfar.estimators._input import (
    checked_labels,
    class_factors,
    validated_points,
    validated_weights,
)
from nearfar.estimators._shrinkage import (
    better_scale,
    check_shrinkage,
    drawn_by_class,
    scale_of_pairs,
    shrinkage_for,
    value_keys,
)
from nearfar.estimators._start import (
    all_equal,
    check_range,
    check_spread,
    dead_features,
    without_dead_features,
)
from nearfar.estimators._training import Callbacks, store_ending, with_callbacks
from nearfar.estimators._tuples import PairLearner, holds_tuples, score_of_labels, validated_pairs
from nearfar.kernels import Array, kernels_for, single_threaded_blas, take_rows, to_host
from nearfar.linalg import canonical_factor, pad_or_trim_rows
from nearfar.problems.rca import ChunkletPoints, RCAProblem, near_origin
from nearfar.problems.rca_blocks import ChunkletBlocks
from nearfar.problems.rca_sparse import SparseRCAProblem
from nearfar.problems.sparse_points import SparsePoints
from nearfar.problems.whitening import rounded_like
from nearfar.solvers import Status
from nearfar.supervision import ClassOrder
from nearfar.supervision.labelled_blocks import LabelledStream
from nearfar.supervision.pairs import equal_points
from nearfar.validation import check_number

Index = NDArray[np.intp]
Matrix = NDArray[np.float64]
Mask = NDArray[np.bool_]

NONE = -1  # the number of points that are in no chunklet
PATH = (1.0, 0.5, 0.25, 0.1, 0.01)  # shares of 1 − ρ among which held-out rows choose
FOLDS = 5  # of held-out rows
SHIFTS = 20  # far pairs of a row that compare scales
COMPARED = 1 << 21  # pairs of held-out and other rows that are enough for a choice
FEWEST_HELD_OUT = 200  # rows of a fold, however many others there are


class RCA(PairLearner, MetricLearner):
    """Relevant component analysis: whiten by the covariance within chunklets.

    A chunklet is a set of points that are known to be alike. Variation within chunklets is
    irrelevant and is scaled down, so that chunklets have unit variance in every direction:
    M = C⁻¹, with C the covariance of the points about the means of their chunklets, shrunk towards
    the distance of the inputs. For ``shrinkage=0`` it is the minimum over M of
    ``Σ (x - m)ᵀ M (x - m) - N log det M`` over the N points in chunklets, found in closed form. See
    ``docs/algorithms/rca.md`` for the mathematics.

    Parameters
    ----------
    n_components : int or None, default=None
        Rows of the map: the directions with the smallest share of variance within chunklets. None
        keeps all in which the points vary. If there are fewer, the last rows are zero.
    pca_components : int, float or None, default=None
        Principal directions of all points to keep first, because the others are mostly noise; a
        number below 1 is the share of the variance to keep at least. None keeps all.
    shrinkage : float or "auto", default="auto"
        How much of the inputs' distance to keep, from 0 to below 1: C becomes
        ``(1 - shrinkage) C + shrinkage (tr C / d) I`` for d features. 0 is the papers' program,
        which needs points that differ within chunklets in every direction in which points differ.
        "auto" starts from 4 d / (4 d + n) for n points more than chunklets, and goes from there
        towards the inputs as far as that classifies held-out rows better. It also brings
        features to one scale where points of a chunklet are then nearer to each other than to
        others more often, unless ``pca_components`` is given (see ``feature_scale_``).
    class_weight : dict, "balanced" or None, default=None
        Weights of the chunklets of labelled points, by which ``sample_weight`` is multiplied:
        "balanced" gives all chunklets the same weight, and those that a dict does not name have the
        weight 1.

    Attributes
    ----------
    components_ : ndarray or torch.Tensor of shape (n_components, n_features)
        The map L, its rows sorted by decreasing length.
    n_chunklets_ : int
        Chunklets of two or more points.
    shrinkage_ : float
        The shrinkage that was used.
    feature_scale_ : ndarray of shape (n_features,) or None
        What ``shrinkage="auto"`` multiplied features by, powers of two; None for ones.
        ``components_`` are for the features as they were given.
    objective_ : float
        The minimum, computed from the data in float64, with the determinant on the row space of L;
        of features that are multiplied by ``feature_scale_``.
    duality_gap_ : float
        Proved bound on (objective − optimum) relative to the objective, or to 1 if that is larger,
        among the metrics of the same row space. It consists of rounding errors.
    status_ : str
        "converged".
    n_iter_ : int
        0, since there is a closed form.
    history_ : list
        Empty.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of str
        Names of the features, if X had any.

    Notes
    -----
    With n points and d features the time is O(n d² + d³), most of it one eigendecomposition, and
    the memory O(n d + d²); ``shrinkage="auto"`` costs about five times as much. For ``shrinkage=0``
    and d > n the squares of d become n d. CSR input, which needs fewer rows than features and a
    shrinkage above 0, is never made dense: it takes O(d r) more memory and the time of some
    thousand products with it, and "auto" holds no rows out.

    References
    ----------
    Bar-Hillel, Hertz, Shental & Weinshall, Learning a Mahalanobis metric from equivalence
    constraints, JMLR 6 (2005).

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from nearfar import RCA, make_chunklets
    >>> X, y = load_iris(return_X_y=True)
    >>> chunklets = make_chunklets(y, 30, random_state=0)
    >>> rca = RCA().fit(X, chunklets)
    >>> rca.n_chunklets_, rca.transform(X).shape
    (30, (150, 4))
    """

    feature_scale_: Matrix | None

    def __init__(
        self,
        n_components: int | None = None,
        *,
        pca_components: int | float | None = None,
        shrinkage: float | str = "auto",
        class_weight: str | dict[Any, float] | None = None,
    ) -> None:
        self.n_components = n_components
        self.pca_components = pca_components
        self.shrinkage = shrinkage
        self.class_weight = class_weight

    @with_callbacks
    @single_threaded_blas()
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> RCA:
        """Learn the metric.

        Parameters
        ----------
        X : array-like, sparse array, torch.Tensor, Dask array or Tuples
            Points (n_samples, n_features), or pairs (n_pairs, 2, n_features), or triplets
            (n_triplets, 3, n_features) whose first two points are near. Float32 stays float32;
            tensors are computed on their device.
        y : array-like or None, default=None
            For points the chunklet of each row: any label; the number -1 means no chunklet, and
            chunklets of one point are not used. Class labels make each class a chunklet. For pairs
            +1 (near) or -1 (far), or None if all are near: points that near pairs connect, directly
            or through others, are a chunklet, and far pairs are not used. None for triplets.
        sample_weight : array-like or None, default=None
            Weights of the points, so that integers count as repeated points: a chunklet of one
            point of weight 2 or more is one of copies. Of pairs and triplets, those of weight 0 are
            dropped; the others connect points, whatever their weight.

        Returns
        -------
        RCA
            The fitted estimator.
        """
        if is_dask(X):
            return self._fit_blocks(X, y, sample_weight)
        points, chunklets, weights = self._validated_chunklets(X, y, sample_weight)
        self._check_parameters()
        callbacks = Callbacks(self, X, y)
        if sparse.issparse(points):
            self._fit_sparse(points, chunklets, weights)
            callbacks.finish({"components_": self.components_})
            return self
        self._check_variation(points)

        given, kernels = points, kernels_for(points)
        points = near_origin(kernels, without_dead_features(points))
        rows = np.flatnonzero(chunklets != NONE)
        _, codes = np.unique(chunklets[rows], return_inverse=True)
        scale = self._chosen_scale(points, rows, codes)
        points = points if scale is None else points * scale
        source = ChunkletPoints(points, rows, codes, weights)
        self.n_chunklets_ = int(codes.max()) + 1
        self._learn(source, _all_or(points, rows), codes, given)
        callbacks.finish({"components_": self.components_})
        return self

    def _learn(
        self, source: ChunkletPoints | ChunkletBlocks, points: Array, codes: Index, given: Array
    ) -> None:
        """Learn from scaled rows, of which ``points`` with ``codes`` choose how much to shrink."""
        problem = self._problem(source, points, codes)
        L = rounded_like(problem.solution(self.n_components), given)
        scale = self.feature_scale_
        components = L if scale is None else canonical_factor(L * scale)
        components = pad_or_trim_rows(components, self.n_components)
        self.components_ = kernels_for(given).like(components, given)
        # In coordinates of a span, which an outlier may have spoilt, W is that of the images.
        images = None if problem.T is None else source.within_images(problem, L)
        store_ending(self, Status.CONVERGED, *problem.objective_and_gap(L, images), [])

    def _fit_blocks(self, X: Any, y: Any, sample_weight: Any) -> RCA:
        """Learn from a Dask array or table, in one pass over its rows, or two for few rows.

        "auto" is chosen from a sample of the rows, or from all if there are no more than that.
        """
        array = validated_dask(self, X, reset=True)
        self._check_parameters()
        if y is None:
            raise InvalidInputError(
                f"{type(self).__name__} requires y to be passed, but the target y is None. Pass"
                " the chunklet of each row."
            )
        callbacks = Callbacks(self, X, y)
        stream, auto = Stream.of(array), self.shrinkage == "auto"
        labels = LabelledStream.of(stream, y, sample_weight, type(self).__name__)
        given = are_chunklets(labels.classes, labels.counts, labels.weights)
        factors = class_factors(self, labels.classes, labels.weights * given)
        used = are_chunklets(labels.classes, labels.counts, labels.weights * factors)
        if not used.any():
            raise self._no_chunklets(int((labels.counts == 1).sum()), stream.n_rows)
        grouped, centre = labels.with_groups(used, factors), stream.first_row()
        within, _, points, codes = grouped.scatters(centre, sample=auto)
        check_spread(float(np.sqrt(within.squares.max())))
        live = (within.squares > 0) & ~dead_features(np.sqrt(within.squares / within.n_rows))
        if not live.any():
            raise self._equal_within_chunklets(0)
        codes = np.unique(codes, return_inverse=True)[1]
        points = np.where(live, points - centre, 0.0)
        scale = self._chosen_scale(points, np.arange(len(points)), codes) if auto else None
        self.feature_scale_ = scale
        scale = np.ones(len(live)) if scale is None else scale
        self.n_chunklets_ = int(used.sum())
        source = ChunkletBlocks(grouped, centre, within, live, scale)
        self._learn(source, points * scale, codes, np.empty(0, dtype=stream.dtype))
        callbacks.finish({"components_": self.components_})
        return self

    def _fit_sparse(self, X: Any, chunklets: Index, weights: Matrix | None) -> None:
        """Learn few rows from CSR points; "auto" is the rule in their numbers alone."""
        check_range(X)
        X = without_dead_features(X)
        rows = np.flatnonzero(chunklets != NONE)
        _, codes = np.unique(chunklets[rows], return_inverse=True)
        assert self.n_components is not None
        source = SparsePoints(X, int(self.n_components))
        masses = np.ones(X.shape[0]) if weights is None else weights
        n_free, n_live = masses[rows].sum() - codes.max() - 1, int((source.variances > 0).sum())
        self.shrinkage_, self.feature_scale_ = shrinkage_for(self.shrinkage, n_free, n_live), None
        problem = SparseRCAProblem(source, rows, codes, masses, self.shrinkage_)
        if not problem.trace > 0:
            raise self._equal_within_chunklets(n_live)
        L = rounded_like(problem.solution(int(self.n_components)), X)
        self.components_ = pad_or_trim_rows(L, self.n_components).astype(X.dtype)
        self.n_chunklets_ = int(codes.max()) + 1
        store_ending(self, Status.CONVERGED, *problem.objective_and_gap(L), [])

    def _validated_points(self, X: Any) -> Array:
        """Points, which may be sparse if few rows are learned and something shrinks C."""
        count: Any = self.n_components
        few = sparse.issparse(X) and isinstance(count, Integral) and count < X.shape[1]
        return validated_points(
            self,
            X,
            reset=True,
            accept_sparse=few and self.shrinkage != 0 and self.pca_components is None,
            to_accept="A map of few rows is learned from sparse points: set n_components, leave"
            " pca_components=None, and let shrinkage be 'auto' or above 0. ",
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        few = self.n_components is not None and self.pca_components is None
        tags.input_tags.sparse = few and self.shrinkage != 0
        return tags

    def _check_variation(self, X: Array) -> None:
        """Raise if squares leave the range of float64, or if all points are equal."""
        check_range(X)
        if all_equal(X):
            raise self._equal_within_chunklets(0)  # before rounding of the mean makes them differ

    def _chosen_scale(self, points: Array, rows: Index, codes: Index) -> Array | None:
        """What brings features to one scale, if "auto" finds that better; sets the attribute."""
        scale = None
        if self.shrinkage == "auto" and self.pca_components is None:
            members = _all_or(points, rows)
            different = np.flatnonzero(equal_points(members) == np.arange(len(members)))
            own = codes[different]  # copies of a row are one row
            scale = scale_of_chunklets(take_rows(members, different), own)
        self.feature_scale_ = None if scale is None else to_host(scale)
        return scale

    def _problem(
        self, source: ChunkletPoints | ChunkletBlocks, points: Array, codes: Index
    ) -> RCAProblem:
        """The problem, in coordinates in which it can be solved; sets ``shrinkage_``."""
        d, n_live = self.n_features_in_, source.n_live
        n_free = source.count - self.n_chunklets_
        self.shrinkage_ = shrinkage_for(self.shrinkage, n_free, n_live)
        if self.shrinkage == "auto":
            self.shrinkage_ = chosen_by_held_out_rows(points, codes, self.shrinkage_)
        plain = self.n_components in (None, d) and self.pca_components is None
        if plain and (self.shrinkage_ or d <= n_free):
            problem = source.in_features()
            if not problem.C.any():
                raise self._equal_within_chunklets(n_live)
            if self.shrinkage_:
                problem = problem.shrunk(self.shrinkage_, n_live)
            if problem.n_flat == 0:
                return problem
        problem = source.in_span(self.pca_components, orthogonal=self.shrinkage_ > 0)
        flat, rank = problem.n_flat, problem.rank
        if flat == rank:
            raise self._equal_within_chunklets(rank)
        if flat and not self.shrinkage_:
            raise InvalidInputError(
                f"shrinkage=0 needs points that differ within chunklets in all {rank} directions in"
                f" which points differ; those of a chunklet differ in {rank - flat}, and whitening"
                f" would stretch the other {flat} without bound. Set shrinkage='auto' or a number,"
                f" set pca_components to at most {rank - flat}, or add chunklets."
            )
        if not self.shrinkage_:
            return problem
        problem = problem.shrunk(
            self.shrinkage_, n_live if self.pca_components is None else problem.rank
        )
        if problem.n_flat:
            raise InvalidInputError(
                f"shrinkage={self.shrinkage_:g} is lost in the rounding of the covariances. Raise"
                " it, for example to 0.1."
            )
        return problem

    def _equal_within_chunklets(self, rank: int) -> InvalidInputError:
        """The error for points that do not differ in any of the directions that are kept."""
        return InvalidInputError(
            f"{type(self).__name__} needs points that differ within a chunklet; those of every"
            f" chunklet are equal in the {rank} directions that are kept. Check the chunklets,"
            " drop repeated points, or raise pca_components."
        )

    def get_whitening_matrix(self) -> Matrix:
        """The symmetric root of M, of shape (n_features, n_features), on the host in float64.

        ``X @ get_whitening_matrix()`` has the same distances as ``transform(X)`` and as many
        columns as X. Of all maps that whiten the chunklets it moves their points least.
        """
        check_is_fitted(self, "components_")
        L = to_host(self.components_).astype(np.float64)
        lengths = np.linalg.norm(L, axis=1)
        L, lengths = L[lengths > 0], lengths[lengths > 0]
        root: Matrix = (L.T / lengths) @ L
        return root

    def score(self, X: Any, y: Any = None) -> float:
        """Area under the ROC curve of ``pair_score``: how well it separates near and far pairs.

        Parameters
        ----------
        X : array-like, torch.Tensor or Tuples
            Points, pairs or triplets.
        y : array-like or None, default=None
            The chunklet of each point, where points of none (-1) are left out; +1 and -1 for pairs;
            None for triplets. Points are scored on all their pairs; if there are more than two
            million near or far ones, on so many of each, the same in every call.

        Returns
        -------
        float
            From 0 to 1; 0.5 is a guess. It does not depend on the share of near pairs.
        """
        if holds_tuples(X):
            return super().score(X, y)
        points = validated_points(self, X, reset=False)
        rows = np.flatnonzero(chunklet_numbers(chunklet_labels(self, points, y)) != NONE)
        points = take_rows(points, rows)
        return score_of_labels(self, points, chunklet_labels(self, points, to_host(y)[rows]))

    # -- before ------------------------------------------------------------------------------

    def _check_parameters(self) -> None:
        d = self.n_features_in_
        if self.n_components is not None:
            check_number("n_components", self.n_components, Integral, 1, d)
        pca = self.pca_components
        if isinstance(pca, int | np.integer):
            check_number("pca_components", pca, Integral, 1, d)
        elif pca is not None:
            check_number(
                "pca_components, if it is not an integer,", pca, Real, 0, 1, open_ends=True
            )
        check_shrinkage(self.shrinkage)

    def _validated_chunklets(
        self, X: Any, y: Any, sample_weight: Any
    ) -> tuple[Array, Index, Matrix | None]:
        """Points, the number of each point's chunklet, NONE if it has no other point, and weights.

        Points without weight are left out.
        """
        weights: Matrix | None = None
        if holds_tuples(X):
            if y is None and np.shape(X)[1] == 2:
                y = np.ones(len(X), dtype=np.intp)
            pairs = validated_pairs(self, X, y, both=False, sample_weight=sample_weight)
            points, ids = pairs.points, components_of_pairs(len(pairs.points), *pairs.near_edges())
            heads, tails = pairs.far_edges()
            within = np.count_nonzero(ids[heads] == ids[tails])
            if within:
                warn(
                    f"{within} far pairs are of points that near pairs connect through others: they"
                    " count as near. Check these pairs.",
                    DataWarning,
                )
        else:
            points = self._validated_points(X)
            labels, n = chunklet_labels(self, points, y), points.shape[0]
            ids = chunklet_numbers(labels)
            weights = validated_weights(self, n, sample_weight, labels, are_chunklets)
            if weights is not None:
                rows = np.flatnonzero(weights)
                points, ids, weights = take_rows(points, rows), ids[rows], weights[rows]
        sizes = np.bincount(ids[ids != NONE], minlength=1)
        alone = (ids != NONE) & (sizes[ids] < 2)
        if weights is not None:
            alone &= weights < 2  # more are copies
        ids[alone] = NONE
        if (ids == NONE).all():
            raise self._no_chunklets(int((sizes == 1).sum()), points.shape[0])
        return points, ids, weights

    def _no_chunklets(self, found: int, n: int) -> InvalidInputError:
        return InvalidInputError(
            f"{type(self).__name__} needs a chunklet of two or more points; got {found} of one"
            f" point each, for n_samples={n}. Give points that belong together the same label."
        )


# -- chunklets: their numbers, and what rows that are held out of them choose ----------------------


def scale_of_chunklets(points: Array, codes: Index) -> Array | None:
    """What brings features to one scale, if neighbours are then more often of one chunklet.

    Chunklets too small for a vote of three neighbours are compared by pairs: of points that follow
    each other in a chunklet, and of points of different ones.
    """
    if _neighbors(codes) == 3:
        return better_scale(points, codes, 3)
    order = drawn_by_class(value_keys(points), codes)
    n = len(order)
    if n < 2:
        return None
    shifts = np.unique(np.linspace(1, n - 1, min(n - 1, SHIFTS)).astype(np.intp))
    heads = np.tile(order, len(shifts))
    tails = np.concatenate([np.roll(order, -shift) for shift in shifts])
    near = codes[heads] == codes[tails]
    used = np.flatnonzero(~near | (np.arange(len(heads)) < n))
    return scale_of_pairs(points, heads[used], tails[used], near[used])


def _all_or(points: Array, rows: Index) -> Array:
    """The points in the given rows, in ascending order; no copy of them if these are all."""
    return points if len(rows) == len(points) else take_rows(points, rows)


def _neighbors(codes: Index, most: int = 3) -> int:
    """How many neighbours vote: three, or fewer where chunklets are smaller."""
    return int(np.clip(np.median(np.bincount(codes)) - 1, 1, most))


def chosen_by_held_out_rows(points: Array, codes: Index, least: float) -> float:
    """The shrinkage between ``least`` and 1 by which neighbours of held-out rows are right most.

    Rows of each chunklet are held out in turn; neighbours are right if they are of their chunklet.
    Copies of a row are one row. An order of the rows by their values makes the
    choice independent of the order in which they were given.
    """
    kernels = kernels_for(points)
    kept = np.flatnonzero(equal_points(points) == np.arange(len(points)))
    points, codes = kernels.double(take_rows(points, kept)), codes[kept]
    points = points - points.mean(0)
    fold = np.empty(len(codes), dtype=np.intp)
    fold[drawn_by_class(value_keys(points), codes)] = np.arange(len(codes)) % FOLDS
    k, path = _neighbors(codes, 10), 1 - (1 - least) * np.array(PATH)
    if len(codes) < 2:
        return float(path[-1])
    wrong = np.zeros(len(path))
    for number in range(FOLDS):
        held_out, others = np.flatnonzero(fold == number), np.flatnonzero(fold != number)
        most = max(COMPARED // max(len(others), 1), FEWEST_HELD_OUT)
        held_out = held_out[:: max(1, -(-len(held_out) // most))]
        known_codes = np.unique(codes[others], return_inverse=True)[1]
        problem = RCAProblem.in_features(kernels, points, others, known_codes)
        if not problem.C.any():
            return float(path[-1])
        live = problem.rank
        ordered, seen = codes[others], min(k, len(others))
        for place, shrinkage in enumerate(path):
            L = problem.shrunk(shrinkage, live).solution()
            known, new = (kernels.apply(take_rows(points, part), L) for part in (others, held_out))
            near = to_host(kernels.nearest(new, known, seen)[0])
            wrong[place] += np.count_nonzero(ordered[near] != codes[held_out][:, None])
    return float(path[wrong.argmin()])


def are_chunklets(labels: NDArray[Any], counts: NDArray[Any], weights: Matrix) -> Mask:
    """Which labels are of chunklets: of two rows or more, or of one that stands for as many."""
    several: Mask = (counts > 1) | (weights >= 2)
    return several & (labels != NONE) if labels.dtype.kind in "if" else several


def chunklet_numbers(labels: ClassOrder) -> Index:
    """Numbers from 0 for the labels of chunklets, NONE for the label −1."""
    numbers = labels.codes.copy()
    if labels.classes.dtype.kind in "if":
        numbers[labels.classes[numbers] == NONE] = NONE
    return numbers


def chunklet_labels(estimator: Any, points: Array, y: Any) -> ClassOrder:
    """Validated labels, which may be as many as half of the points, or more."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)
        return checked_labels(estimator, points, y)


def components_of_pairs(n_points: int, heads: Index, tails: Index) -> Index:
    """The number of each point's connected component in the graph of the pairs."""
    graph = coo_array((np.ones(len(heads)), (heads, tails)), shape=(n_points, n_points))
    numbers: Index = connected_components(graph, directed=False)[1].astype(np.intp)
    return numbers
