"""Input as metric-learn takes it: points, tuples, or indicators that a preprocessor looks up.

Messages are metric-learn's, since programs may match them.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from sklearn.datasets import make_spd_matrix
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.utils import check_array, check_random_state, check_X_y

from nearfar.errors import InvalidInputError, NearfarError
from nearfar.linalg import pad_or_trim_rows

Matrix = NDArray[np.float64]

ANY_ARRAY: dict[str, Any] = {  # options of check_array that leave the array as it is
    "ensure_2d": False,
    "allow_nd": True,
    "ensure_all_finite": False,
    "accept_sparse": True,
    "dtype": None,
    "ensure_min_features": 0,
    "ensure_min_samples": 0,
}
FORMED = {"classic": (2, "points"), "tuples": (3, "tuples")}  # dimensions, and their name


class PeerError(InvalidInputError):
    """An error with the message of the library whose interface this is."""


class SingularMatrixError(PeerError, np.linalg.LinAlgError):
    """A matrix that must be positive definite and is not."""


class PreprocessorError(NearfarError):
    """A preprocessor that failed."""

    def __init__(self, original_error: Exception) -> None:
        super().__init__(
            f"An error occurred when trying to use the preprocessor: {original_error!r}"
        )


class NonPSDError(PeerError, np.linalg.LinAlgError):
    """A matrix with negative eigenvalues."""

    def __init__(self) -> None:
        super().__init__("Matrix is not positive semidefinite (PSD).")


# -- points and tuples ---------------------------------------------------------------------------


class ArrayIndexer:
    """A preprocessor that looks up rows of an array."""

    def __init__(self, X: Any) -> None:
        self.X = check_array(X, **ANY_ARRAY)

    def __call__(self, indices: Any) -> Any:
        """The rows with these numbers."""
        return self.X[indices]


def make_name(estimator: Any) -> str | None:
    """The name of an estimator that is given as such or by its name."""
    if estimator is None or isinstance(estimator, str):
        return estimator
    return type(estimator).__name__


def make_context(estimator: Any) -> str:
    """' by LMNN' for messages, or nothing."""
    name = make_name(estimator)
    return "" if name is None else f" by {name}"


def preprocess_points(points: Any, preprocessor: Any) -> Any:
    """What a preprocessor makes of indicators (n,)."""
    try:
        return preprocessor(points)
    except Exception as error:
        raise PreprocessorError(error) from error


def preprocess_tuples(tuples: Any, preprocessor: Any) -> Any:
    """What a preprocessor makes of indicators (m, t): tuples (m, t, d)."""
    try:
        return np.stack([preprocessor(column) for column in np.asarray(tuples).T], axis=1)
    except Exception as error:
        raise PreprocessorError(error) from error


def check_input(
    input_data: Any,
    y: Any = None,
    preprocessor: Any = None,
    type_of_inputs: str = "classic",
    tuple_size: int | None = None,
    *,
    dtype: Any = "numeric",
    accept_sparse: bool = False,
    multi_output: bool = False,
    y_numeric: bool = False,
    ensure_min_samples: int = 1,
    ensure_min_features: int = 1,
    estimator: Any = None,
) -> Any:
    """Points (n, d), or tuples (m, t, d), and their targets, checked; or made of indicators.

    Parameters
    ----------
    input_data : array-like
        Points or tuples, or with a preprocessor also indicators of points (n,) or tuples (m, t).
    y : array-like or None, default=None
        Targets; +1 and -1 for pairs.
    preprocessor : callable or None, default=None
        Makes points (n, d) of indicators (n,).
    type_of_inputs : {"classic", "tuples"}, default="classic"
        Whether points or tuples are expected.
    tuple_size : int or None, default=None
        Points of a tuple.
    dtype, accept_sparse, multi_output, y_numeric, ensure_min_samples, ensure_min_features
        As in ``sklearn.utils.check_X_y``.
    estimator : estimator, str or None, default=None
        Whom messages name.

    Returns
    -------
    ndarray, or a tuple of two if y is given
        The points or tuples, and the targets.
    """
    if y is None:
        data = check_array(input_data, **ANY_ARRAY)
    else:
        data, y = check_X_y(
            input_data, y, multi_output=multi_output, y_numeric=y_numeric, **ANY_ARRAY
        )
    if type_of_inputs not in tuple(FORMED):
        raise PeerError(
            f"Unknown value {type_of_inputs} for type_of_inputs. Valid values are 'classic' or"
            " 'tuples'."
        )
    context, (n_dim, _) = make_context(estimator), FORMED[type_of_inputs]
    indicators = data.ndim == n_dim - 1
    if indicators and preprocessor is not None:
        form = preprocess_points if type_of_inputs == "classic" else preprocess_tuples
        data = form(data, preprocessor)
        _check_dimensions(data, type_of_inputs, context, "after")
    else:
        _check_dimensions(data, type_of_inputs, context, "no" if preprocessor is None else "with")
    data = check_array(
        data,
        dtype=dtype,
        accept_sparse=accept_sparse,
        allow_nd=True,
        ensure_2d=False,
        ensure_min_samples=ensure_min_samples,
        ensure_min_features=ensure_min_features,
        estimator=estimator,
    )
    if type_of_inputs == "tuples":
        _check_tuples(data, tuple_size, ensure_min_features, context)
        if y is not None and data.shape[1] == 2:
            check_y_valid_values_for_pairs(y)
    return data if y is None else (data, y)


def _check_dimensions(data: Any, kind: str, context: str, preprocessing: str) -> None:
    """Raise unless points have two and tuples three dimensions."""
    n_dim, name = FORMED[kind]
    if data.ndim == n_dim:
        return
    expected = f"{n_dim}D array of formed {name}"
    if preprocessing == "with":
        expected = f"{n_dim - 1}D array of indicators or {expected}"
    when = {
        "no": "",
        "with": " when using a preprocessor",
        "after": " after the preprocessor has been applied",
    }
    usable = preprocessing == "after" or (preprocessing == "no" and data.ndim == n_dim - 1)
    raise PeerError(
        f"{expected} expected{context}{when[preprocessing]}. Found {data.ndim}D array"
        f" instead:\ninput={data}. Reshape your data"
        f"{' and/or use a preprocessor' if usable else ''}.\n"
    )


def _check_tuples(tuples: Any, size: int | None, least_features: int, context: str) -> None:
    if tuples.shape[2] < least_features:
        raise PeerError(
            f"Found array with {tuples.shape[2]} feature(s) (shape={tuples.shape}) while a minimum"
            f" of {least_features} is required{context}."
        )
    if size is not None and tuples.shape[1] != size:
        raise PeerError(
            f"Tuples of {size} element(s) expected{context}. Got tuples of {tuples.shape[1]}"
            f" element(s) instead (shape={tuples.shape}):\ninput={tuples}.\n"
        )


def check_y_valid_values_for_pairs(y: Any) -> None:
    """Raise unless all targets are +1 or -1."""
    if not np.array_equal(np.abs(y), np.ones_like(y)):
        raise PeerError(
            "When training on pairs, the labels (y) should contain only values in [-1, 1]. Found an"
            " incorrect value."
        )


def validate_vector(u: Any, dtype: Any = None) -> Any:
    """A vector, of what may be a number or have axes of length one."""
    u = np.atleast_1d(np.asarray(u, dtype=dtype, order="C").squeeze())
    if u.ndim > 1:
        raise PeerError("Input vector should be 1-D.")
    return u


# -- where a metric starts, or what it stays near to ---------------------------------------------


def check_n_components(n_features: int, n_components: Any) -> int:
    """The number of rows of a map, n_features for None."""
    if n_components is None:
        return n_features
    if 0 < n_components <= n_features:
        return int(n_components)
    raise PeerError(f"Invalid n_components, must be in [1, {n_features}]")


def initial_map(
    init: Any, n_components: int, X: Matrix, y: Any, random_state: Any, *, classes: bool = True
) -> Matrix:
    """The map (n_components, d) to start from, by the words of metric-learn and scikit-learn."""
    n, d = X.shape
    words = ["auto", "pca", "identity", "random", *(["lda"] if classes else [])]
    if isinstance(init, np.ndarray):
        check_initial_map(init, n_components, d)
        return np.array(init, dtype=np.float64)
    if init not in words:
        raise PeerError(
            "`init` must be '{}' or a numpy array of shape (n_components, n_features).".format(
                "', '".join(words)
            )
        )
    if init == "auto":
        init = auto_init(classes, d, n, n_components, len(np.unique(y)) if classes else 0)
    if init == "identity":
        return np.eye(n_components, d)
    random = check_random_state(random_state)
    if init == "random":
        return np.asarray(random.standard_normal((n_components, d)))
    if init == "pca":
        return np.asarray(PCA(n_components, random_state=random).fit(X).components_)
    found = LinearDiscriminantAnalysis(n_components=n_components).fit(X, y)
    return pad_or_trim_rows(found.scalings_.T, n_components)


def auto_init(
    classes: bool, n_features: int, n_samples: int, n_components: int, n_classes: int
) -> str:
    """What "auto" is: LDA where it has enough directions, else PCA, else the identity."""
    if classes and n_components <= min(n_features, n_classes - 1):
        return "lda"
    return "pca" if n_components < min(n_features, n_samples) else "identity"


def check_initial_map(init: Any, n_components: int | None, n_features: int) -> None:
    """Raise unless a map (r, d) fits the features, is not higher than wide, and has the rows."""
    rows, columns = check_array(init).shape
    if columns != n_features:
        raise PeerError(
            f"The input dimensionality ({columns}) of the given linear transformation `init` must"
            f" match the dimensionality of the given inputs `X` ({n_features})."
        )
    if rows > columns:
        raise PeerError(
            f"The output dimensionality ({rows}) of the given linear transformation `init` cannot"
            f" be greater than its input dimensionality ({columns})."
        )
    if n_components is not None and n_components != rows:
        raise PeerError(
            "The preferred dimensionality of the projected space `n_components`"
            f" ({n_components}) does not match the output dimensionality of the given linear"
            f" transformation `init` ({rows})!"
        )


def initial_metric(
    given: Any, X: Matrix, random_state: Any, name: str, *, definite: bool
) -> Matrix:
    """The matrix (d, d) to start from or to stay near to, by the words of metric-learn."""
    d = X.shape[-1]
    if isinstance(given, np.ndarray):
        return _given_metric(given, d, name, definite)
    if not isinstance(given, str) or given not in ("identity", "covariance", "random"):
        raise PeerError(
            f"`{name}` must be 'identity', 'covariance', 'random' or a numpy array of shape"
            " (n_features, n_features)."
        )
    if given == "identity":
        return np.eye(d)
    if given == "random":
        return np.asarray(make_spd_matrix(d, random_state=check_random_state(random_state)))
    points = np.unique(X.reshape(-1, d), axis=0) if X.ndim == 3 else X
    covariance = np.atleast_2d(np.cov(points, rowvar=False))
    if not check_eigenvalues(linalg.eigvalsh(covariance)):
        if definite:
            raise SingularMatrixError(
                "Unable to get a true inverse of the covariance matrix since it is not definite."
                f" Try another `{name}`, or an algorithm that does not require the `{name}` to be"
                " strictly positive definite."
            )
        warnings.warn(
            "The covariance matrix is not invertible: using the pseudo-inverse instead.To make the"
            " covariance matrix invertible you can remove any linearly dependent features and/or"
            " reduce the dimensionality of your input, for instance using"
            " `sklearn.decomposition.PCA` as a preprocessing step.",
            stacklevel=4,
        )
    return np.asarray(linalg.pinvh(covariance))


def _given_metric(given: Any, d: int, name: str, definite: bool) -> Matrix:
    M = check_array(given, dtype=np.float64, copy=True)
    if M.shape != (d, d):
        raise PeerError(
            f"The input dimensionality {M.shape} of the given mahalanobis matrix `{name}` must"
            f" match the dimensionality of the given inputs ({d})."
        )
    if not np.allclose(M, M.T):
        raise PeerError(f"`{name}` is not symmetric.")
    if not check_eigenvalues(linalg.eigvalsh(M)) and definite:
        raise SingularMatrixError(
            f"You should provide a strictly positive definite matrix as `{name}`. This one is not"
            f" definite. Try another {name}, or an algorithm that does not require the {name} to be"
            " strictly positive definite."
        )
    return np.asarray(M)


def check_eigenvalues(values: Any, tol: float | None = None) -> bool:
    """Whether all eigenvalues are positive; raises if one is negative. Up to tol is zero."""
    if tol is None:
        tol = float(np.abs(values).max() * len(values) * np.finfo(values.dtype).eps)
    if tol < 0:
        raise PeerError("tol should be positive.")
    if (values < -tol).any():
        raise NonPSDError
    return bool((np.abs(values) >= tol).all())


def components_from_metric(metric: Any, tol: float | None = None) -> Matrix:
    """A square map L with LᵀL = metric."""
    if not np.allclose(metric, np.transpose(metric)):
        raise PeerError("The input metric should be symmetric.")
    values, vectors = linalg.eigh(metric)
    check_eigenvalues(values, tol)
    return np.asarray(vectors.T * np.sqrt(np.maximum(values, 0))[:, None])
