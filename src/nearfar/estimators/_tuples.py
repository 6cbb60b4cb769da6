"""Learners from pairs, triplets and quadruplets: validation of their input, and a mixin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from numbers import Integral
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score
from sklearn.utils import check_random_state

from nearfar.blocks import Blocks, is_dask
from nearfar.blocks.collections import (
    array_of_known_rows,
    as_array,
    on_this_machine,
    rows_on_this_machine,
)
from nearfar.errors import InvalidInputError
from nearfar.estimators._blocks import (
    block_keys,
    live_blocks,
    refuse_dask,
    scaled_blocks,
    validated_dask,
    varying_in_blocks,
)
from nearfar.estimators._input import (
    checked_labels,
    validated_labels,
    validated_points,
    validated_weights,
)
from nearfar.estimators._shrinkage import (
    AUTO,
    Prior,
    better_scale,
    chosen_prior,
    framed,
    scale_of_pairs,
    shrinkage_for,
)
from nearfar.estimators._start import check_range, without_dead_features
from nearfar.estimators._training import Proof
from nearfar.kernels import Array, is_torch, kernels_for, take_rows, to_host
from nearfar.problems.near_pairs_blocks import check_room
from nearfar.problems.whitening import varying
from nearfar.registry import entries
from nearfar.supervision import ClassOrder, Pairs, Tuples
from nearfar.supervision.labels import check_class_pairs, check_near_and_far
from nearfar.supervision.pairs import (
    check_both_kinds,
    equal_points,
    labelled_edges,
    near_kinds,
    pairs_of_edges,
    pairs_of_labels,
    pairs_of_tuples,
    warn_of_far_and_equal,
    weighted_by_points,
)
from nearfar.validation import check_number

Index = NDArray[np.intp]
Mask = NDArray[np.bool_]
Matrix = NDArray[np.float64]

BLOCK = 1 << 14  # pairs whose points are compared at a time
VOTERS = 3  # neighbours whose errors choose the distance to keep
SCORED_PAIRS = 1 << 21  # largest number of near and of far pairs in a score of labelled points


def holds_tuples(X: Any) -> bool:
    """Whether X holds pairs or triplets rather than points."""
    if isinstance(X, Tuples):
        return True
    try:
        return len(X.shape if hasattr(X, "shape") else np.asarray(X).shape) == 3
    except ValueError:  # rows of different lengths, of which the validation of points complains
        return False


def validated_tuples(estimator: Any, X: Any, reset: bool) -> tuple[Array, Index]:
    """Points, all finite, and the rows (m, 2) or (m, 3) that make up the tuples."""
    if _size_of_tuples(estimator, X) not in (2, 3):
        _refuse_size(estimator, _shape(X))
    return _points_and_rows(estimator, X, reset)


def validated_triplets(estimator: Any, X: Any, y: Any, reset: bool) -> tuple[Array, Index]:
    """Points, all finite, and the rows (m, 3) of triplets, which have no y.

    Equal points of dense triplets have the same row.
    """
    name = type(estimator).__name__
    if _size_of_tuples(estimator, X) != 3:
        raise InvalidInputError(
            f"{name} takes triplets of shape (n_triplets, 3, n_features); got {_shape(X)}."
            " For pairs take ITML, for quadruplets LSML."
        )
    if y is not None:
        raise InvalidInputError(
            f"{name} takes triplets without y: the first point is nearer to the second than to"
            " the third. Pass y=None."
        )
    points, rows = _points_and_rows(estimator, X, reset)
    return points, rows if isinstance(X, Tuples) else equal_points(points)[rows]


def validated_quadruplets(estimator: Any, X: Any, y: Any, reset: bool) -> tuple[Array, Index]:
    """Points, all finite, and the rows (m, 4) or (m, 3) of quadruplets or triplets, without y."""
    name = type(estimator).__name__
    if y is not None:
        raise InvalidInputError(
            f"{name} takes quadruplets without y: the first two points should be nearer to each"
            " other than the last two. Pass y=None."
        )
    if _size_of_tuples(estimator, X) not in (3, 4):
        raise InvalidInputError(
            f"{name} takes quadruplets of shape (n_quadruplets, 4, n_features) or triplets of"
            f" shape (n_triplets, 3, n_features); got {_shape(X)}. For pairs take ITML."
        )
    return _points_and_rows(estimator, X, reset)


def drawn_tuples(
    estimator: Any, X: Any, y: Any, make: Callable[..., Tuples], needs: str, *, reset: bool
) -> tuple[Array, Index]:
    """Labelled points, and the rows of the tuples that ``make`` draws from them.

    ``needs`` says what the points must be like if all of these tuples hold equal points.
    """
    name = type(estimator).__name__
    points = validated_points(estimator, X, reset)
    labels = (validated_labels if reset else checked_labels)(estimator, points, y)
    check_near_and_far(labels, name)
    found = make(points, labels.codes)
    if not len(found):
        raise InvalidInputError(f"{name} needs {needs}. Check the features.")
    return points, found.indices


def _size_of_tuples(estimator: Any, X: Any) -> int:
    """The number of points of each tuple."""
    refuse_dask(estimator, X)
    return _shape(X)[1]


def _shape(X: Any) -> tuple[int, ...]:
    return tuple(X.shape if hasattr(X, "shape") else np.asarray(X).shape)


def _points_and_rows(estimator: Any, X: Any, reset: bool) -> tuple[Array, Index]:
    """The points of tuples, and the rows that make up each; those of an array stay apart."""
    if isinstance(X, Tuples):
        X = gathered_tuples(estimator, X)
        return validated_points(estimator, X.points, reset), X.indices
    m, size, d = _shape(X)
    points = X if is_torch(X) else np.asarray(X)
    rows = np.arange(m * size).reshape(m, size)
    return validated_points(estimator, points.reshape((m * size, d)), reset), rows


def validated_kinds(estimator: Any, indices: Index, y: Any) -> Mask | None:
    """Which pairs are near, from y of +1 and −1; None for triplets, which have no y."""
    name = type(estimator).__name__
    if indices.shape[1] == 3:
        if y is not None:
            raise InvalidInputError(
                f"{name} takes triplets without y: the first two points are near, the outer two"
                " far. Pass y=None."
            )
        return None
    if y is None:
        raise InvalidInputError(
            f"{name} requires y to be passed, but the target y is None."
            " Pass +1 for each near and -1 for each far pair."
        )
    kinds = np.asarray(to_host(y))
    if kinds.shape != (len(indices),):
        raise InvalidInputError(
            f"{name} needs +1 or -1 for each pair; there are {len(indices)} pairs, and y has shape"
            f" {kinds.shape}. Check that they belong together."
        )
    return near_kinds(kinds)


def validated_pairs(
    estimator: Any,
    X: Any,
    y: Any,
    n_pairs: int | None = None,
    random_state: Any = None,
    *,
    sample_weight: Any = None,
    both: bool = True,
    drop_dead: bool = False,
    sharded: bool = False,
    check: Callable[[], None] = lambda: None,
) -> Pairs:
    """The near and far pairs that X and y give to ``fit``.

    Sets ``n_features_in_``, the names of the features and, for labelled points, ``classes_``.
    Points of `Tuples` and labelled points keep their order; equal points of dense pairs and
    triplets become one.

    Parameters
    ----------
    estimator : estimator
        It is named in messages.
    X, y
        As `nearfar.estimators._tuples.PairLearner` describes them.
    n_pairs : int or None, default=None
        For labelled points, how many near and how many far pairs to draw; None for all.
    random_state : int, RandomState instance or None, default=None
        Draws them.
    sample_weight : array-like or None, default=None
        Weights of labelled points, whose products are those of their pairs, or of tuples.
    both : bool, default=True
        Whether near and far pairs must both occur.
    drop_dead : bool, default=False
        Whether features that hardly vary are set to zero first. Points that differ in no other
        feature then count as equal.
    sharded : bool, default=False
        Whether the points of pairs in a Dask array are left there, as `Blocks` of the rows that are
        named, with zeros for features that hardly vary. Otherwise they come to this machine.
    check : callable
        Checks parameters; called before rows of a Dask array are read, when ``n_features_in_`` is
        known.
    """
    vars(estimator).pop("classes_", None)
    name = type(estimator).__name__
    if not holds_tuples(X):
        if n_pairs is not None:
            check_number("n_pairs", n_pairs, Integral, 1, None)
        if is_dask(X):
            given = estimator, X, y, n_pairs, random_state, sample_weight
            drawn = pairs_of_blocks(*given, sharded=sharded, check=check)
            dead = drop_dead and not sharded
            points = without_dead_features(drawn.points) if dead else drawn.points
            return replace(drawn, points=points)
        points = validated_points(estimator, X, reset=True)
        labels = validated_labels(estimator, points, y)
        weights = validated_weights(estimator, len(points), sample_weight, labels)
        check_class_pairs(labels, name)
        points = without_dead_features(points) if drop_dead else points
        random = check_random_state(random_state)
        return weighted_by_points(pairs_of_labels(points, labels, n_pairs, random, name), weights)
    if n_pairs is not None:
        raise InvalidInputError(
            f"n_pairs={n_pairs} chooses pairs of labelled points, but X holds tuples."
            " Set n_pairs=None, or give points of shape (n_samples, n_features) and labels."
        )
    if sharded and is_dask(X.points if isinstance(X, Tuples) else X):
        return _pairs_in_blocks(estimator, X, y, sample_weight, both=both, check=check)
    points, indices = validated_tuples(estimator, X, reset=True)
    near = validated_kinds(estimator, indices, y)
    weights = validated_weights(estimator, len(indices), sample_weight)
    points = without_dead_features(points) if drop_dead else points
    pairs = pairs_of_tuples(points, indices, near, both, not isinstance(X, Tuples), weights)
    return replace(pairs, rows=X.named_rows) if isinstance(X, Tuples) else pairs


def _pairs_in_blocks(
    estimator: Any,
    X: Any,
    y: Any,
    sample_weight: Any,
    *,
    both: bool,
    check: Callable[[], None],
) -> Pairs:
    """Pairs of a Dask array, by row number or as an array of shape (m, 2 or 3, features).

    Their points are the rows that pairs with weight name, ascending, in blocks.
    """
    array = X.points if isinstance(X, Tuples) else _rows_of_dense(estimator, X)
    array = validated_dask(estimator, array, reset=True)
    check()
    array = array_of_known_rows(array)
    indices = X.indices if isinstance(X, Tuples) else np.arange(len(array)).reshape(-1, X.shape[1])
    if indices.shape[1] not in (2, 3):
        _refuse_size(estimator, (*indices.shape, array.shape[1]))
    near = validated_kinds(estimator, indices, on_this_machine(y))
    weights = validated_weights(estimator, len(indices), on_this_machine(sample_weight))
    named = np.unique(indices if weights is None else indices[weights > 0])
    check_room((len(named), array.shape[1]), array.dtype, (indices.shape[1] - 1) * len(indices))
    rows, _ = live_blocks(array, named)
    place = np.searchsorted(named, indices)
    return replace(pairs_of_tuples(rows, place, near, both, False, weights), rows=named)


def _rows_of_dense(estimator: Any, X: Any) -> Any:
    """The rows (m · size, features) of a Dask array of tuples (m, size, features)."""
    array = as_array(X, ndim=3)
    if array.shape[1] not in (2, 3):
        _refuse_size(estimator, array.shape)
    array = array.rechunk({1: -1, 2: -1})
    if np.isnan(array.shape[0]):
        array = array.copy()  # the user's stays as it is
        array.compute_chunk_sizes()
    return array.reshape(-1, array.shape[2])


def _refuse_size(estimator: Any, shape: tuple[int, ...]) -> NoReturn:
    raise InvalidInputError(
        f"{type(estimator).__name__} takes pairs of shape (n_pairs, 2, n_features) or triplets"
        f" of shape (n_triplets, 3, n_features); got {shape}."
        " Stack pairs with numpy.stack([a, b], axis=1)."
    )


def pairs_of_blocks(
    estimator: Any,
    X: Any,
    y: Any,
    n_pairs: int | None,
    random_state: Any,
    sample_weight: Any,
    *,
    sharded: bool = False,
    check: Callable[[], None] = lambda: None,
) -> Pairs:
    """Pairs drawn from labelled rows of a Dask array: the rows that they name, in memory.

    Or in blocks, if they are ``sharded``, with zeros for features that hardly vary.
    """
    name = type(estimator).__name__
    if name not in {entry.name for entry in entries(blocks=True)}:
        refuse_dask(estimator, X)
    if n_pairs is None:
        raise InvalidInputError(
            f"n_pairs=None takes all pairs of labelled rows, and {name} would hold each of them;"
            " got a Dask array. Set n_pairs, for example to 100000, or give Tuples."
        )
    array = validated_dask(estimator, X, reset=True)
    check()
    array = array_of_known_rows(array)
    labels = validated_labels(estimator, array, on_this_machine(y))
    weights = validated_weights(estimator, len(array), on_this_machine(sample_weight), labels)
    check_class_pairs(labels, name)
    heads, tails, near = labelled_edges(labels, n_pairs, check_random_state(random_state))
    rows = np.unique([heads, tails])
    heads, tails = np.searchsorted(rows, heads), np.searchsorted(rows, tails)
    if sharded:
        check_room((len(rows), array.shape[1]), array.dtype, len(heads))
        points, _ = live_blocks(array, rows)
    else:
        points = rows_on_this_machine(array, rows)
    pairs = Pairs(points, heads, tails, near, rows=rows)
    return weighted_by_points(pairs_of_edges(pairs, name), weights)


def gathered_tuples(estimator: Any, X: Tuples) -> Tuples:
    """Tuples in memory: those of a Dask array with the rows that they name, for who takes them."""
    if type(estimator).__name__ not in {entry.name for entry in entries(blocks=True)}:
        refuse_dask(estimator, X.points)
    return X.in_memory()


def validated_stream(
    estimator: Any,
    X: Any,
    y: Any,
    n_pairs: int | None,
    random_state: Any,
    *,
    shuffle: bool,
    reset: bool,
) -> Pairs:
    """The pairs that X and y give to ``partial_fit``, in the order in which to learn from them.

    As `validated_pairs`, but they may be all near or all far and may contradict earlier ones, and a
    triplet is its near pair followed by its far pair. ``shuffle`` holds for labelled points.
    """
    if not holds_tuples(X):
        points = validated_points(estimator, X, reset)
        labels, random = checked_labels(estimator, points, y), check_random_state(random_state)
        if len(labels.classes) > 1:
            pairs = pairs_of_labels(points, labels, n_pairs, random, type(estimator).__name__)
        else:
            pairs = Pairs(points, *labelled_edges(labels, n_pairs, random))
        order = random.permutation(len(pairs)) if shuffle else slice(None)
        return Pairs(points, pairs.heads[order], pairs.tails[order], pairs.near[order])
    points, indices = validated_tuples(estimator, X, reset)
    near = validated_kinds(estimator, indices, y)
    rows = np.arange(len(indices))
    if near is None:  # (a, b, c): a and b are near, a and c are far
        rows = np.repeat(rows, 2)
        near = np.tile([True, False], len(indices))
        indices = np.column_stack([indices[rows, 0], indices[:, 1:].ravel()])
    pairs = Pairs(points, indices[:, 0], indices[:, 1], near)
    wrong = _far_and_equal(pairs)
    if wrong.any():
        warn_of_far_and_equal(rows[wrong], "tuple")
        pairs = Pairs(points, pairs.heads[~wrong], pairs.tails[~wrong], pairs.near[~wrong])
    return pairs


def _far_and_equal(pairs: Pairs) -> Mask:
    """Which far pairs consist of equal points."""
    found = [np.zeros(0, dtype=bool)]
    for first in range(0, len(pairs), BLOCK):
        block = slice(first, first + BLOCK)
        head, tail = (take_rows(pairs.points, end[block]) for end in (pairs.heads, pairs.tails))
        found.append(~pairs.near[block] & ~to_host((head != tail).any(1)))
    return np.concatenate(found)


# -- learners from near and far pairs --------------------------------------------------------------


class PairLearner:
    """A mixin that scores a metric learner on pairs.

    X and y of ``fit(X, y=None)`` and of ``score`` are one of

    - X (n_samples, n_features) and class labels y: all pairs, or ``n_pairs`` near and far ones;
    - X (n_pairs, 2, n_features) and y of +1 (near) and −1 (far);
    - X (n_triplets, 3, n_features), y None: the first two points are near, the outer two far;
    - X = Tuples(points, indices): pairs with y, or triplets, by row number.
    """

    def score(self, X: Any, y: Any = None) -> float:
        """Area under the ROC curve of ``pair_score``: how well it separates near and far pairs.

        Parameters
        ----------
        X : array-like, torch.Tensor or Tuples
            Pairs, triplets or points, as in ``fit``.
        y : array-like or None, default=None
            +1 and −1 for pairs, None for triplets, class labels for points. Labelled points are
            scored on all their pairs; if there are more than two million near or far ones, on so
            many of each, the same in every call.

        Returns
        -------
        float
            From 0 to 1; 0.5 is a guess. It does not depend on the share of near pairs.
        """
        if not holds_tuples(X):
            points = validated_points(self, X, reset=False)
            return score_of_labels(self, points, checked_labels(self, points, y))
        points, indices = validated_tuples(self, X, reset=False)
        near = validated_kinds(self, indices, y)
        if near is None:  # (a, b, c): a and b are near, a and c are far
            near = np.repeat([True, False], len(indices))
            indices = np.concatenate([indices[:, :2], indices[:, ::2]])
        return _area_under_roc(self, points, indices[:, 0], indices[:, 1], near)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.three_d_array = True
        return tags


def score_of_labels(learner: Any, points: Array, labels: ClassOrder) -> float:
    """The score on the pairs of labelled points."""
    pairs = labelled_edges(labels, SCORED_PAIRS, np.random.RandomState(0))
    return _area_under_roc(learner, points, *pairs)


def _area_under_roc(learner: Any, points: Array, heads: Index, tails: Index, near: Mask) -> float:
    check_both_kinds(near, "Shuffle them, or split them with StratifiedKFold(shuffle=True).")
    distances = learner._edge_distances(points, heads, tails)
    return float(roc_auc_score(near, -to_host(distances)))


def shrunk_pairs(
    estimator: Any, pairs: Pairs, rows: int, *, diagonal: bool = False
) -> tuple[Pairs, Prior | None]:
    """The pairs in coordinates of the distance that ``shrinkage`` keeps, and W of these, if any.

    "auto" keeps that of `chosen_prior` for labels, and otherwise, or for a ``diagonal`` metric,
    that of the inputs or of features at one scale, whichever is better. It is one half at so many
    ``rows`` of labelled points for each feature, and at 4 of pairs. Sets ``shrinkage_``,
    ``feature_scale_`` and ``prior_components_`` of the estimator.
    """
    points, labels, scale, prior = pairs.points, pairs.labels, None, None
    in_blocks = isinstance(points, Blocks)
    varies = varying_in_blocks(points) if in_blocks else varying(kernels_for(points), points)
    d = int(np.count_nonzero(varies))
    if isinstance(estimator.shrinkage, str):
        check_range(points)
        if labels is None:
            edges = pairs.heads, pairs.tails, pairs.near, pairs.weights
            scale = scale_of_pairs(points, *edges, keys=block_keys(points) if in_blocks else None)
        elif diagonal:
            scale = scale_of_rows(points, labels.codes, pairs.given_weights)
        else:
            prior = prior_of_rows(points, labels.codes, pairs.given_weights)
    rows = AUTO if labels is None else rows  # pairs are classified by distances, not by neighbours
    estimator.shrinkage_ = shrinkage_for(estimator.shrinkage, count_of(pairs), d, rows)
    estimator.feature_scale_ = None if scale is None else to_host(scale)
    estimator.prior_components_ = None if prior is None else prior[0]
    if scale is not None:
        scaled = scaled_blocks(points, to_host(scale)) if in_blocks else points * scale
        pairs = replace(pairs, points=scaled)
    elif prior is not None:
        pairs = replace(pairs, points=framed(points, prior[0]))
    return pairs, prior


def different_ends(pairs: Pairs) -> Index:
    """The different points that occur in pairs."""
    return np.unique(equal_points(pairs.points)[np.concatenate([pairs.heads, pairs.tails])])


def count_of(pairs: Pairs) -> float:
    """The n of "auto": labelled points, or the fewer of near pairs and points, by their weights."""
    weights = pairs.given_weights
    if pairs.labels is None:
        return min(float(len(different_ends(pairs))), pairs.near_total)
    return float(len(pairs.points) if weights is None else weights.sum())


def prior_of_rows(points: Array, codes: Index, weights: Matrix | None = None) -> Prior | None:
    """`chosen_prior` with as many coordinates as features, of which the last may be zero."""
    points, codes = _different_rows(points, codes, weights)
    order = np.argsort(codes, kind="stable")
    prior = chosen_prior(take_rows(points, order), codes[order], VOTERS)
    if prior is None:
        return None
    none = np.zeros((points.shape[1] - len(prior[0]), points.shape[1]))
    return np.vstack([prior[0], none]), np.hstack([prior[1], none.T])


def scale_of_rows(points: Array, codes: Index, weights: Matrix | None) -> Array | None:
    """`better_scale` by the different rows of positive weight."""
    return better_scale(*_different_rows(points, codes, weights), VOTERS)


def _different_rows(points: Array, codes: Index, weights: Matrix | None) -> tuple[Array, Index]:
    """The different rows of positive weight: a copy is its own neighbour."""
    rows = np.arange(len(points)) if weights is None else np.flatnonzero(weights)
    points = take_rows(points, rows)
    kept = np.flatnonzero(equal_points(points) == np.arange(len(points)))
    return take_rows(points, kept), codes[rows][kept]


# -- what proofs hold of pairs -------------------------------------------------------------------


def drawn_pairs(pairs: Pairs, n_pairs: int | None) -> Proof:
    """The pairs that were drawn from labelled points; nothing if all were taken."""
    if n_pairs is None:
        return {}
    edges = {"near": pairs.near_edges(), "far": pairs.far_edges()}
    return {name: _numbered(pairs, ends) for name, ends in edges.items()}


def weights_proof(pairs: Pairs) -> Proof:
    """The weights of labelled points or of tuples, if they were given."""
    return {} if pairs.given_weights is None else {"sample_weight": pairs.given_weights}


def far_rows(pairs: Pairs, X: Any) -> NDArray[np.int32]:
    """The far pairs (m, 2) by row numbers of X, or of the stacked points of dense tuples.

    In ``pairs`` equal points of dense tuples have become one.
    """
    if pairs.tuples is None or pairs.rows is not None or isinstance(X, Tuples):
        return _numbered(pairs, pairs.far_edges())
    size, far = _shape(X)[1], pairs.tuples[~pairs.near]
    return np.stack([size * far, size * far + size - 1], axis=1).astype(np.int32)


def _numbered(pairs: Pairs, edges: tuple[Index, Index]) -> NDArray[np.int32]:
    """Edges (m, 2) by numbers of the user's rows."""
    return pairs.numbers(np.stack(edges, axis=1)).astype(np.int32)
