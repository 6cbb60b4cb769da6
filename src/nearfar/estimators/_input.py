"""Validation of what users pass to ``fit`` and after it: points, labels and weights."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import get_tags
from sklearn.utils.validation import validate_data

from nearfar.errors import DataWarning, InvalidInputError, warn
from nearfar.estimators._blocks import refuse_dask
from nearfar.kernels import Array, is_torch, kernels_for, take_rows, to_host
from nearfar.registry import entries
from nearfar.supervision import ClassOrder
from nearfar.supervision.labels import class_order, shown
from nearfar.validation import check_choice, check_in_memory, check_number

Floats = NDArray[np.float64]
Balances = Callable[[NDArray[Any], NDArray[Any], Floats], NDArray[np.bool_]]

LARGEST_WEIGHT = 1e100  # of a row, so that squares of sums stay within the range of float64


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
    estimator: Any,
    n: int,
    sample_weight: Any,
    labels: ClassOrder | None = None,
    balances: Balances | None = None,
) -> Floats | None:
    """The weights of n rows: ``sample_weight`` times the weight of the class; None if all are 1.

    The weights of classes are those of ``estimator.class_weight``, if it has that parameter:
    "balanced" counts rows with their ``sample_weight``, and classes that a dict does not name have
    the weight 1. ``labels`` are the classes of the rows, or None for tuples, which have none.
    ``balances`` says which classes "balanced" is about, from their labels, the numbers of their
    rows of positive weight and the sums of the weights; None are all of them.
    """
    weights = np.ones(n) if sample_weight is None else numbers_for_rows(estimator, n, sample_weight)
    class_weight = getattr(estimator, "class_weight", None)
    if class_weight is not None:
        with np.errstate(over="ignore"):  # the check of the largest raises
            weights = weights * _weights_of_classes(
                estimator, class_weight, weights, labels, balances
            )
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


def masses_of(weights: Floats | None, order: NDArray[np.intp]) -> Floats | None:
    """The weights of these rows, all positive, scaled to a mean of 1; None if all are 1."""
    if weights is None:
        return None
    scaled = weights[order] / weights[order].max()
    return np.asarray(scaled / scaled.mean())


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
    estimator: Any,
    class_weight: Any,
    weights: Floats,
    labels: ClassOrder | None,
    balances: Balances | None,
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
    if balances is not None:
        counts = np.bincount(labels.codes, weights > 0, len(labels.classes))
        masses = masses * balances(labels.classes, counts, masses)
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


def class_weight_among(class_weight: Any, y: NDArray[Any]) -> Any:
    """``class_weight`` for these labels: a dict without the classes that none of them has."""
    if not isinstance(class_weight, dict):
        return class_weight
    classes = set(y.tolist())
    return {label: weight for label, weight in class_weight.items() if label in classes}
