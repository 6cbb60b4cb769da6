"""Validation of what users pass to ``fit`` and after it: points, labels, pairs and triplets."""

from __future__ import annotations

from dataclasses import replace
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import check_random_state, get_tags
from sklearn.utils.validation import validate_data

from nearfar.blocks import is_dask
from nearfar.blocks.collections import (
    array_of_known_rows,
    on_this_machine,
    rows_on_this_machine,
)
from nearfar.errors import DataWarning, InvalidInputError, warn
from nearfar.estimators._dask import refuse_dask, validated_dask
from nearfar.estimators._start import without_dead_features
from nearfar.kernels import Array, is_torch, kernels_for, take_rows, to_host
from nearfar.registry import entries
from nearfar.supervision import ClassOrder, Pairs, Tuples
from nearfar.supervision.labels import check_class_pairs, class_order, shown
from nearfar.supervision.pairs import (
    equal_points,
    labelled_edges,
    near_kinds,
    pairs_of_edges,
    pairs_of_labels,
    pairs_of_tuples,
    warn_of_far_and_equal,
    weighted_by_points,
)
from nearfar.validation import check_choice, check_in_memory, check_number

Floats = NDArray[np.float64]
Index = NDArray[np.intp]
Mask = NDArray[np.bool_]

LARGEST_WEIGHT = 1e100  # of a row, so that squares of sums stay within the range of float64
BLOCK = 1 << 14  # pairs whose points are compared at a time


# -- points ----------------------------------------------------------------------------------------


def validated_points(
    estimator: Any,
    X: Any,
    reset: bool,
    *,
    differentiable: bool = False,
    accept_sparse: bool = False,
    to_accept: str = "",
) -> Array:
    """Points of shape (n, d) in float32 or float64, all finite; sparse ones as CSR rows.

    ``reset`` stores the number and the names of the features; otherwise they must be those of fit.
    ``differentiable`` is for results of which torch may take the gradient. ``to_accept`` is what a
    user may do so that sparse points are accepted, for the error that refuses them.
    """
    refuse_dask(estimator, X)
    check_in_memory(X)
    if reset and getattr(X, "ndim", None) == 3 and get_tags(estimator).target_tags.required:
        *others, last = (entry.name for entry in entries(learns_from="pairs", kernel=False))
        name = type(estimator).__name__
        regresses = any(entry.name == name for entry in entries(learns_from="numbers"))
        raise InvalidInputError(
            f"{name} learns from points with {'numbers' if regresses else 'labels'}, of shape"
            f" (n, d); got {tuple(X.shape)}. For pairs take {', '.join(others)} or {last}."
        )
    if sparse.issparse(X) and accept_sparse:
        return _canonical_rows(validated_rows(estimator, X, reset))
    if sparse.issparse(X):
        gigabytes = np.prod(X.shape, dtype=float) * 8 / 1e9
        raise InvalidInputError(
            f"{type(estimator).__name__} needs dense points; got a sparse array of shape {X.shape},"
            f" which would take {gigabytes:.2g} GB. {to_accept}Reduce it first, for example with"
            " sklearn.decomposition.TruncatedSVD, which does not make it dense; docs/large_data.md"
            " shows how the two become one map."
        )
    if not is_torch(X):
        return validate_data(
            estimator, X, reset=reset, dtype=[np.float64, np.float32], ensure_min_samples=1
        )
    return _validated_tensor(estimator, X, reset, differentiable)


def validated_rows(estimator: Any, X: Any, reset: bool = False) -> Array:
    """Points of shape (n, d), by default with the features of fit: dense, or sparse in CSR form."""
    if not sparse.issparse(X):
        return validated_points(estimator, X, reset=reset, differentiable=True)
    return validate_data(
        estimator, X, reset=reset, accept_sparse="csr", dtype=[np.float64, np.float32]
    )


def _canonical_rows(X: Any) -> sparse.csr_array:
    """The rows with sorted indices, each once, and no stored zeros; the user's are not changed."""
    rows = sparse.csr_array(X)
    if rows.has_canonical_format and rows.data.all():
        return rows
    rows = rows.copy()
    rows.sum_duplicates()
    rows.eliminate_zeros()
    return rows


def check_device(estimator: Any, X: Array, fitted: Array) -> None:
    """Raise unless X is on the device of what was fitted."""
    here, there = _device(X), _device(fitted)
    if here != there:
        raise InvalidInputError(
            f"{type(estimator).__name__} was fitted on {there} and X is on {here};"
            f" both must be in one place. Move X to {there}, or fit on {here}."
        )


def floating_tensor(X: Any, name: str, differentiable: bool) -> Array:
    """A dense real tensor in float32 or float64, all finite; ``name`` is the estimator's.

    Only if it is ``differentiable`` does it keep its gradient and its subclass.
    """
    if str(X.layout) != "torch.strided" or X.is_complex():
        raise InvalidInputError(
            f"{name} needs a dense tensor of real numbers; got {X.layout} of {X.dtype}."
            " Convert it, for example with X.to_dense() or X.real."
        )
    if not differentiable:
        X = kernels_for(X).detached(X)
    if not X.is_floating_point():
        X = X.double()
    if X.element_size() < 4:
        X = X.float()
    if not bool(X.isfinite().all()):
        raise InvalidInputError(
            f"{name} does not accept NaN or infinity in X; the tensor contains such values."
            " Drop or impute these rows."
        )
    return X


def _device(X: Array) -> str:
    return f"torch device {X.device}" if is_torch(X) else "NumPy"


def _validated_tensor(estimator: Any, X: Any, reset: bool, differentiable: bool) -> Array:
    """What scikit-learn's ``validate_data`` does, for a tensor, without moving it."""
    name = type(estimator).__name__
    X = floating_tensor(X, name, differentiable)
    if X.ndim != 2 or X.shape[0] < 1 or X.shape[1] < 1:
        raise InvalidInputError(
            f"{name} expects a tensor of shape (n_samples, n_features), each at least 1;"
            f" got {tuple(X.shape)}. Reshape your data."
        )
    if reset:
        estimator.n_features_in_ = int(X.shape[1])
        if hasattr(estimator, "feature_names_in_"):
            del estimator.feature_names_in_
    elif X.shape[1] != estimator.n_features_in_:
        raise InvalidInputError(
            f"X has {X.shape[1]} features, but {name} is expecting"
            f" {estimator.n_features_in_} features as input. Give the features used in fit."
        )
    return X


# -- labels ----------------------------------------------------------------------------------------


def validated_labels(estimator: Any, X: Array, y: Any) -> ClassOrder:
    """A label for each row of X; sets ``classes_``."""
    labels = checked_labels(estimator, X, y)
    estimator.classes_ = labels.classes
    return labels


def checked_labels(estimator: Any, X: Array, y: Any) -> ClassOrder:
    """A label for each row of X."""
    name = type(estimator).__name__
    y = to_host(y)
    if y.ndim == 0:
        raise InvalidInputError(
            f"{name} requires y to be passed, but the target y is {y.item()!r}."
            " Pass a label for each row."
        )
    if len(y) != X.shape[0]:
        raise InvalidInputError(
            f"{name} needs a label for each row; X has {X.shape[0]} rows and y has {len(y)}."
            " Check that they belong together."
        )
    return class_order(y, name)


def warn_of_coinciding(count: int) -> None:
    """Warn of pairs of equal points with different labels, if there are any."""
    if count:
        warn(
            f"{count} pairs of equal points have different labels: no metric can separate them."
            " Check these labels.",
            DataWarning,
        )


def warn_of_no_variation() -> None:
    """Warn that all points are equal."""
    warn(
        "all points are equal, so that every metric is as good as any other. Check X.", DataWarning
    )


# -- weights ---------------------------------------------------------------------------------------


def validated_weights(
    estimator: Any, n: int, sample_weight: Any, labels: ClassOrder | None = None
) -> Floats | None:
    """The weights of n rows: ``sample_weight`` times the weight of the class; None if all are 1.

    The weights of classes are those of ``estimator.class_weight``, if it has that parameter:
    "balanced" counts rows with their ``sample_weight``, and classes that a dict does not name have
    the weight 1. ``labels`` are the classes of the rows, or None for tuples, which have none.
    """
    weights = np.ones(n) if sample_weight is None else numbers_for_rows(estimator, n, sample_weight)
    class_weight = getattr(estimator, "class_weight", None)
    if class_weight is not None:
        with np.errstate(over="ignore"):  # the check of the largest tells
            weights = weights * _weights_of_classes(estimator, class_weight, weights, labels)
    name = type(estimator).__name__
    if n and not weights.any():
        raise InvalidInputError(
            f"{name} needs a row of positive weight; all {n} weights are zero."
            " Correct sample_weight and class_weight, or leave them out."
        )
    if weights.max(initial=0.0) > LARGEST_WEIGHT:
        raise InvalidInputError(
            f"{name} needs weights of at most {LARGEST_WEIGHT:g}; the largest is"
            f" {weights.max():g}. Only ratios of weights matter: divide them all by the largest."
        )
    return None if bool((weights == 1).all()) else weights


def drop_rows_without_weight(
    estimator: Any, X: Array, labels: ClassOrder, weights: Floats | None
) -> tuple[Array, ClassOrder, Floats | None]:
    """The rows of positive weight with their labels and weights; sets ``classes_``."""
    if weights is None or bool((weights > 0).all()):
        return X, labels, weights
    rows = np.flatnonzero(weights)
    labels = class_order(labels.classes[labels.codes[rows]], type(estimator).__name__)
    estimator.classes_ = labels.classes
    return take_rows(X, rows), labels, weights[rows]


def numbers_for_rows(estimator: Any, n: int, sample_weight: Any) -> Floats:
    """A finite number of at least zero for each row."""
    name, given = type(estimator).__name__, to_host(sample_weight)
    if given.shape != (n,):
        raise InvalidInputError(
            f"{name} needs a weight for each of the {n} rows; got sample_weight of shape"
            f" {given.shape}. Check that they belong together."
        )
    try:
        weights = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"{name} needs weights that are numbers; got sample_weight of {given.dtype}."
            " Convert them, for example with sample_weight.astype(float)."
        ) from error
    wrong = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if len(wrong):
        raise InvalidInputError(
            f"{name} needs finite weights of at least 0; sample_weight is {weights[wrong[0]]:g} in"
            f" row {wrong[0]} ({len(wrong)} such rows). Correct them, or give 0 to drop a row.",
            wrong,
        )
    return weights


def _weights_of_classes(
    estimator: Any, class_weight: Any, weights: Floats, labels: ClassOrder | None
) -> Floats:
    """The weight of each row's class; rows without weight count for no class."""
    name = type(estimator).__name__
    if not isinstance(class_weight, dict):
        check_choice("class_weight", class_weight, ("balanced",), or_else=", a dict or None")
    if labels is None:
        raise InvalidInputError(
            f"class_weight needs points with class labels; {name} was given tuples."
            " Set class_weight=None, and give sample_weight a weight for each tuple."
        )
    masses = np.bincount(labels.codes, weights, len(labels.classes)).astype(np.float64)
    return np.asarray(class_factors(estimator, labels.classes, masses)[labels.codes])


def class_factors(estimator: Any, labels: NDArray[Any], masses: Floats) -> Floats:
    """The weight of each class, by ``class_weight`` if the estimator has that parameter.

    ``masses`` are the weights of the rows of each class; a class without weight counts for none.
    """
    class_weight = getattr(estimator, "class_weight", None)
    found, classes = np.ones(len(labels)), labels.tolist()
    if class_weight is None:
        return found
    if not isinstance(class_weight, dict):
        check_choice("class_weight", class_weight, ("balanced",), or_else=", a dict or None")
    if isinstance(class_weight, dict):
        for label, weight in class_weight.items():
            check_number(f"class_weight[{shown(label)}]", weight, Real, 0, None)
        unknown = [label for label in class_weight if label not in classes]
        # As in scikit-learn a dict may name further classes, but not instead of those in y.
        if unknown and len(class_weight) - len(unknown) < len(classes):
            raise InvalidInputError(
                f"class_weight names the class {shown(unknown[0])}, which is not in y; its classes"
                f" are {', '.join(map(shown, classes[:5]))}{', …' if len(classes) > 5 else ''}."
                " Correct the names."
            )
        found = np.array([class_weight.get(label, 1.0) for label in classes], dtype=np.float64)
    else:
        present = masses > 0
        found[present] = masses.sum() / (present.sum() * masses[present])
    return found


# -- pairs and triplets ----------------------------------------------------------------------------


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
    refuse_dask(estimator, X)
    X = X if is_torch(X) or isinstance(X, Tuples) else np.asarray(X)
    m, size, d = X.shape
    if size not in (2, 3):
        raise InvalidInputError(
            f"{type(estimator).__name__} takes pairs of shape (n_pairs, 2, n_features) or triplets"
            f" of shape (n_triplets, 3, n_features); got {tuple(X.shape)}."
            " Stack pairs with numpy.stack([a, b], axis=1)."
        )
    if isinstance(X, Tuples):
        X = gathered_tuples(estimator, X)
        return validated_points(estimator, X.points, reset), X.indices
    points = validated_points(estimator, X.reshape((m * size, d)), reset)
    return points, np.arange(m * size).reshape(m, size)


def validated_triplets(estimator: Any, X: Any, y: Any, reset: bool) -> tuple[Array, Index]:
    """Points, all finite, and the rows (m, 3) of triplets, which have no y.

    Equal points of dense triplets have the same row.
    """
    name = type(estimator).__name__
    refuse_dask(estimator, X)
    X = X if is_torch(X) or isinstance(X, Tuples) else np.asarray(X)
    m, size, d = X.shape
    if size != 3:
        raise InvalidInputError(
            f"{name} takes triplets of shape (n_triplets, 3, n_features); got {tuple(X.shape)}."
            " For pairs take ITML, for quadruplets LSML."
        )
    if y is not None:
        raise InvalidInputError(
            f"{name} takes triplets without y: the first point is nearer to the second than to"
            " the third. Pass y=None."
        )
    if isinstance(X, Tuples):
        X = gathered_tuples(estimator, X)
        return validated_points(estimator, X.points, reset), X.indices
    points = validated_points(estimator, X.reshape((m * size, d)), reset)
    return points, equal_points(points).reshape(m, size)


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
        As `nearfar.estimators._pairs.PairLearner` describes them.
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
    """
    vars(estimator).pop("classes_", None)
    name = type(estimator).__name__
    if not holds_tuples(X):
        if n_pairs is not None:
            check_number("n_pairs", n_pairs, Integral, 1, None)
        if is_dask(X):
            drawn = pairs_of_blocks(estimator, X, y, n_pairs, random_state, sample_weight)
            points = without_dead_features(drawn.points) if drop_dead else drawn.points
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
    points, indices = validated_tuples(estimator, X, reset=True)
    near = validated_kinds(estimator, indices, y)
    weights = validated_weights(estimator, len(indices), sample_weight)
    points = without_dead_features(points) if drop_dead else points
    pairs = pairs_of_tuples(points, indices, near, both, not isinstance(X, Tuples), weights)
    return replace(pairs, rows=X.named_rows) if isinstance(X, Tuples) else pairs


def pairs_of_blocks(
    estimator: Any, X: Any, y: Any, n_pairs: int | None, random_state: Any, sample_weight: Any
) -> Pairs:
    """Pairs drawn from labelled rows of a Dask array: the rows that they name, in memory."""
    name = type(estimator).__name__
    if name not in {entry.name for entry in entries(blocks=True)}:
        refuse_dask(estimator, X)
    if n_pairs is None:
        raise InvalidInputError(
            f"n_pairs=None takes all pairs of labelled rows, and {name} holds its pairs in memory;"
            " got a Dask array. Set n_pairs, for example to 100000, or give Tuples."
        )
    array = array_of_known_rows(validated_dask(estimator, X, reset=True))
    labels = validated_labels(estimator, array, on_this_machine(y))
    weights = validated_weights(estimator, len(array), on_this_machine(sample_weight), labels)
    check_class_pairs(labels, name)
    heads, tails, near = labelled_edges(labels, n_pairs, check_random_state(random_state))
    rows = np.unique([heads, tails])
    heads, tails = np.searchsorted(rows, heads), np.searchsorted(rows, tails)
    pairs = Pairs(rows_on_this_machine(array, rows), heads, tails, near, rows=rows)
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
