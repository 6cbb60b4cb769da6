"""Validation of what users pass to ``fit`` and after it: points, labels, pairs and triplets."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state, get_tags
from sklearn.utils.validation import validate_data

from nearfar.errors import DataWarning, InvalidInputError, warn
from nearfar.estimators._start import without_dead_features
from nearfar.kernels import Array, is_torch, kernels_for, take_rows, to_host
from nearfar.registry import entries
from nearfar.supervision import ClassOrder, Pairs, Tuples, class_order
from nearfar.supervision.labels import check_class_pairs
from nearfar.supervision.pairs import (
    equal_points,
    labelled_edges,
    near_kinds,
    pairs_of_labels,
    pairs_of_tuples,
    warn_of_far_and_equal,
)
from nearfar.validation import check_in_memory, check_number

Index = NDArray[np.intp]
Mask = NDArray[np.bool_]

BLOCK = 1 << 14  # pairs whose points are compared at a time


# -- points ----------------------------------------------------------------------------------------


def validated_points(estimator: Any, X: Any, reset: bool, *, differentiable: bool = False) -> Array:
    """Points of shape (n, d) in float32 or float64, all finite.

    ``reset`` stores the number and the names of the features; otherwise they must be those of fit.
    ``differentiable`` is for results of which torch may take the gradient.
    """
    check_in_memory(X)
    if reset and getattr(X, "ndim", None) == 3 and get_tags(estimator).target_tags.required:
        *others, last = (entry.name for entry in entries(learns_from="pairs", kernel=False))
        name = type(estimator).__name__
        regresses = any(entry.name == name for entry in entries(learns_from="numbers"))
        raise InvalidInputError(
            f"{name} learns from points with {'numbers' if regresses else 'labels'}, of shape"
            f" (n, d); got {tuple(X.shape)}. For pairs take {', '.join(others)} or {last}."
        )
    if not is_torch(X):
        return validate_data(
            estimator, X, reset=reset, dtype=[np.float64, np.float32], ensure_min_samples=1
        )
    return _validated_tensor(estimator, X, reset, differentiable)


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
    if len(y) != len(X):
        raise InvalidInputError(
            f"{name} needs a label for each row; X has {len(X)} rows and y has {len(y)}."
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
    X = X if is_torch(X) or isinstance(X, Tuples) else np.asarray(X)
    m, size, d = X.shape
    if size not in (2, 3):
        raise InvalidInputError(
            f"{type(estimator).__name__} takes pairs of shape (n_pairs, 2, n_features) or triplets"
            f" of shape (n_triplets, 3, n_features); got {tuple(X.shape)}."
            " Stack pairs with numpy.stack([a, b], axis=1)."
        )
    if isinstance(X, Tuples):
        return validated_points(estimator, X.points, reset), X.indices
    points = validated_points(estimator, X.reshape((m * size, d)), reset)
    return points, np.arange(m * size).reshape(m, size)


def validated_triplets(estimator: Any, X: Any, y: Any, reset: bool) -> tuple[Array, Index]:
    """Points, all finite, and the rows (m, 3) of triplets, which have no y.

    Equal points of dense triplets have the same row.
    """
    name = type(estimator).__name__
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
        points = validated_points(estimator, X, reset=True)
        labels = validated_labels(estimator, points, y)
        check_class_pairs(labels, name)
        points = without_dead_features(points) if drop_dead else points
        return pairs_of_labels(points, labels, n_pairs, check_random_state(random_state), name)
    if n_pairs is not None:
        raise InvalidInputError(
            f"n_pairs={n_pairs} chooses pairs of labelled points, but X holds tuples."
            " Set n_pairs=None, or give points of shape (n_samples, n_features) and labels."
        )
    points, indices = validated_tuples(estimator, X, reset=True)
    near = validated_kinds(estimator, indices, y)
    points = without_dead_features(points) if drop_dead else points
    return pairs_of_tuples(points, indices, near, both, merge=not isinstance(X, Tuples))


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
