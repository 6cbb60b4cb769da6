"""A linear map as a metric: one that is given, or that of a fitted transformer or pipeline.

A scaler, PCA or another linear step before a learned linear map makes, together with it, one map
x -> Lx + b. The offset b changes no distance; exports hold it, so that their images are those of
``transform``.
"""

from __future__ import annotations

import importlib
import os
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from scipy import sparse
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_array, check_is_fitted

from nearfar.blocks import is_dask
from nearfar.blocks.collections import Stream
from nearfar.errors import InvalidInputError
from nearfar.estimators._base import MetricLearner
from nearfar.estimators._blocks import validated_dask
from nearfar.estimators._deploy import faiss_index, onnx_model
from nearfar.estimators._input import validated_points
from nearfar.estimators._start import given_map
from nearfar.estimators._training import Callbacks, store_ending, with_callbacks
from nearfar.kernels import kernels_for, to_host
from nearfar.linalg import canonical_factor, signed
from nearfar.problems.linear_maps import discriminant_map, principal_map, standard_map
from nearfar.solvers import Status
from nearfar.supervision.labelled_blocks import LabelledStream

if TYPE_CHECKING:
    import faiss
    import onnx

Matrix = NDArray[np.float64]

ORTHOGONAL = 1e-12  # cosine of rows that count as orthogonal
NEGLIGIBLE = 1e-12  # entry, relative to the largest of its column, that is a rounding error
PROBE_ENTRIES = 1 << 22  # of the unit vectors mapped at a time: 32 MB
TRIALS = 10  # random points on which linearity is tested, at each of SCALES
SCALES = (1e-3, 1.0, 1e3)


class LinearMetric(MetricLearner):
    """The metric of a linear map that is given: D(a, b) = ‖L(a − b)‖.

    Nothing is learned. A map from elsewhere gets the methods of metric learners: ``pair_distance``,
    ``get_metric``, files, `PairClassifier`, exports. `as_metric` makes one from a fitted
    transformer.

    Parameters
    ----------
    components : array-like of shape (rows, n_features) or None, default=None
        The map L. None is the identity, the Euclidean distance.

    Attributes
    ----------
    components_ : ndarray or torch.Tensor of shape (n_components, n_features)
        The map, its rows orthogonal and sorted by decreasing length, with the same distances as
        ``components``; as many as the rank.
    objective_ : None
        Nothing is minimised.
    duality_gap_ : None
        Nothing is minimised.
    status_ : str
        "converged".
    n_iter_ : int
        0.
    history_ : list
        Empty.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of str
        Names of the features, if X had any.

    Notes
    -----
    ``fit`` takes O(r² d) time for r rows and d features, whatever the number of points.

    Examples
    --------
    >>> from nearfar import LinearMetric
    >>> metric = LinearMetric([[3.0, 4.0]]).fit([[0.0, 0.0]])
    >>> metric.pair_distance([[[0.0, 0.0], [1.0, 1.0]]])
    array([7.])
    """

    def __init__(
        self,
        components: ArrayLike | None = None,
    ) -> None:
        self.components = components

    @with_callbacks
    def fit(self, X: Any, y: Any = None) -> LinearMetric:
        """Validate the map, and store it in the dtype and on the device of the points.

        Parameters
        ----------
        X : array-like, torch.Tensor or Dask array of shape (n_samples, n_features)
            The points. A Dask array or table is not computed.
        y : None
            Not used.

        Returns
        -------
        LinearMetric
            The fitted estimator.
        """
        if is_dask(X):
            lazy = validated_dask(self, X, reset=True)
            X = np.empty(0, dtype=np.float32 if lazy.dtype == np.float32 else np.float64)
        else:
            X = validated_points(self, X, reset=True)
        callbacks = Callbacks(self, X, y)
        d = self.n_features_in_
        if self.components is None:
            L = np.eye(d)
        else:
            L = given_map(self.components, None, d, "components", "Transpose or correct it.")
        self.components_ = kernels_for(X).like(_canonical(L), X)
        store_ending(self, Status.CONVERGED, None, None, [])
        callbacks.finish({"components_": self.components_})
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = False
        return tags


def as_metric(transformer: Any, X: Any = None, y: Any = None) -> LinearMetric:
    """The metric of a linear transformer: the distance between its images.

    Works with every transformer that is linear up to a shift, which changes no distance:
    scikit-learn's PCA with and without whitening, LDA, NCA, TruncatedSVD, FactorAnalysis, FastICA,
    PLS, scalers, random projections, feature selection, pipelines and column transformers of these,
    and those of other libraries. The map is computed from the images of unit vectors and tested on
    random points.

    Parameters
    ----------
    transformer : transformer
        It has ``transform`` and ``n_features_in_``, and is fitted unless X is given. It is neither
        stored nor changed.
    X, y : arrays or None, default=None
        If X is given, a copy of the transformer is fitted to it, and to labels y if it needs them.
        X may be a Dask array or table for ``StandardScaler``, ``PCA`` and
        ``LinearDiscriminantAnalysis``: their maps follow from scatter matrices, which are summed in
        one pass over the blocks.

    Returns
    -------
    LinearMetric
        Fitted, on the host in float64.

    Raises
    ------
    InvalidInputError
        The transformer is not linear, or does not transform arbitrary points.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.decomposition import PCA
    >>> from nearfar import as_metric
    >>> X, _ = load_iris(return_X_y=True)
    >>> metric = as_metric(PCA(2, whiten=True).fit(X))
    >>> metric.components_.shape
    (2, 4)
    """
    if isinstance(transformer, type) or not hasattr(transformer, "transform"):
        raise InvalidInputError(
            f"as_metric needs a fitted transformer such as PCA().fit(X); got {transformer!r}."
        )
    if is_dask(X):
        metric = LinearMetric(_map_of_blocks(transformer, X, y))
        validated_dask(metric, X, reset=True)
    else:
        if X is not None:
            transformer = clone(transformer).fit(X, y)
        check_is_fitted(transformer)
        metric = LinearMetric(linear_map(transformer)[0])
    metric.components_ = _canonical(np.asarray(metric.components))
    metric.n_features_in_ = metric.components_.shape[1]
    if hasattr(transformer, "feature_names_in_"):
        metric.feature_names_in_ = np.asarray(transformer.feature_names_in_, dtype=object)
    store_ending(metric, Status.CONVERGED, None, None, [])
    return metric


def _map_of_blocks(transformer: Any, X: Any, y: Any) -> Matrix:
    """The map that a transformer would learn from all rows, from their scatter matrices."""
    kind, options = type(transformer).__name__, transformer.get_params(deep=False)
    if isinstance(transformer, LinearDiscriminantAnalysis):
        _check_options(kind, options, priors=(None,), shrinkage=(None,), solver=("svd", "eigen"))
        if y is None:
            raise InvalidInputError(f"{kind} needs y, the class of each row; got None. Pass it.")
        labels = LabelledStream.of(Stream.of(X), y, None, kind)
        if len(labels.classes) < 2:
            raise InvalidInputError(
                f"{kind} needs at least two classes; y has {len(labels.classes)}. Add rows of"
                " another class."
            )
        every = np.ones(len(labels.classes), dtype=bool)
        grouped = labels.with_groups(every, np.ones(len(every)), all_means=True)
        rows, *_ = grouped.scatters(labels.rows.first_row())
        return discriminant_map(rows, transformer.n_components)
    if isinstance(transformer, StandardScaler):
        _check_options(kind, options, with_std=(True,))
        return standard_map(Stream.of(X).scatter()[0])
    if isinstance(transformer, PCA):
        if isinstance(transformer.n_components, str):
            _check_options(kind, options, n_components=(None,))
        rows, _ = Stream.of(X).scatter()
        return principal_map(rows, transformer.n_components, whiten=transformer.whiten)
    raise InvalidInputError(
        f"as_metric fits StandardScaler, PCA and LinearDiscriminantAnalysis to Dask arrays; got a"
        f" {kind}. Fit it to a sample of the rows, and pass the fitted transformer alone."
    )


def _check_options(kind: str, options: dict[str, Any], **allowed: tuple[Any, ...]) -> None:
    """Raise unless the options have allowed values."""
    for name, values in allowed.items():
        if options[name] not in values:
            raise InvalidInputError(
                f"{kind} of a Dask array needs {name} to be"
                f" {' or '.join(map(repr, values))}; got {options[name]!r}. Change it, or fit to a"
                " sample of the rows."
            )


def affine_map(model: Any) -> tuple[Matrix, Matrix]:
    """L (r, d) and b (r,) with ``model.transform(x) = Lx + b``, of any fitted linear transformer.

    The map of one linear metric is read off; that of anything else is computed from the images of
    unit vectors and tested on random points, as `as_metric` does.
    """
    if not isinstance(model, Pipeline) and hasattr(model, "components_"):
        components = to_host(model.components_).astype(np.float64)
        if components.ndim == 2:
            return components, np.zeros(len(components))
    return linear_map(model)


def to_faiss(model: Any, X: Any = None, index: str | faiss.Index | None = None) -> faiss.Index:
    """A faiss index that takes original vectors and searches by the distance of a model.

    Needs the extra ``faiss``. It is ``model.to_faiss`` for a metric, and does the same for a
    pipeline of linear steps, such as ``make_pipeline(StandardScaler(), LMNN())``, whose map it
    holds as one matrix and one offset.

    Parameters
    ----------
    model : fitted metric learner or pipeline
        All its steps are linear up to a shift.
    X : array-like of shape (n_samples, n_features) or None, default=None
        Points to add; an index that needs training is trained on them first.
    index : str, faiss.Index or None, default=None
        What searches among the images; see `LMNN.to_faiss`.

    Returns
    -------
    faiss.IndexPreTransform
        Its ``search`` returns *squared* distances between images.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> import nearfar
    >>> X, y = load_wine(return_X_y=True)
    >>> pipeline = make_pipeline(StandardScaler(), nearfar.LMNN()).fit(X, y)
    >>> squared_distances, rows = nearfar.to_faiss(pipeline, X).search(X[:2], 3)
    >>> rows[:, 0].tolist()
    [0, 1]
    """
    components, offset = _exported(model, "to_faiss")
    points = None
    if X is not None:
        points = check_array(to_host(X), dtype=[np.float64, np.float32])
        if points.shape[1] != components.shape[1]:
            raise InvalidInputError(
                f"X has {points.shape[1]} features, the model has {components.shape[1]}. Give the"
                " features of the fit."
            )
    return faiss_index(components, points, index, offset)


def to_onnx(
    model: Any,
    path: str | os.PathLike[str] | None = None,
    *,
    dtype: DTypeLike | None = None,
) -> onnx.ModelProto:
    """``model.transform`` as an ONNX model: one MatMul, and one Add if there is an offset.

    Needs the extra ``onnx``. It is ``model.to_onnx`` for a metric, and does the same for a pipeline
    of linear steps.

    Parameters
    ----------
    model : fitted metric learner or pipeline
        All its steps are linear up to a shift.
    path : path-like or None, default=None
        File to write, completely or not at all; one that exists is replaced.
    dtype : float32, float64 or None, default=None
        Type of the input, of the output and of the map. By default that of ``components_``.

    Returns
    -------
    onnx.ModelProto
        Input "features" of shape (rows, n_features), output "transformed" of shape
        (rows, n_components); opset 13. See `LMNN.to_onnx`.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> import nearfar
    >>> pipeline = make_pipeline(StandardScaler(), nearfar.LMNN()).fit(*load_wine(return_X_y=True))
    >>> [node.op_type for node in nearfar.to_onnx(pipeline).graph.node]
    ['MatMul', 'Add']
    """
    components, offset = _exported(model, "to_onnx")
    last = model.steps[-1][1] if isinstance(model, Pipeline) else model
    if dtype is None:
        dtype = to_host(last.components_).dtype if hasattr(last, "components_") else np.float64
    names = getattr(model, "feature_names_in_", None)
    return onnx_model(components, type(last).__name__, names, path, dtype, offset)


def _canonical(L: Matrix) -> Matrix:
    """The map with orthogonal rows, sorted by length, that has the same distances.

    Orthogonal rows are sorted only, because rows of equal length, as those of whitened PCA, could
    be rotated in any way.
    """
    lengths = np.linalg.norm(L, axis=1)
    cosines = L @ L.T / np.maximum(np.outer(lengths, lengths), np.finfo(float).tiny)
    if np.abs(cosines - np.diag(np.diag(cosines))).max() > ORTHOGONAL:
        return _without_negligible_rows(canonical_factor(L))
    order = np.argsort(-(lengths / lengths.max()).round(12), kind="stable")
    return _without_negligible_rows(signed(L[order]))


def _without_negligible_rows(L: Matrix) -> Matrix:
    """The rows of L except those that are rounding errors in every column; at least the first."""
    sizes = np.abs(L)
    kept = (sizes > NEGLIGIBLE * sizes.max(axis=0)).any(axis=1)
    kept[0] = True
    return np.asarray(L[kept])


def linear_map(transformer: Any) -> tuple[Matrix, Matrix]:
    """L (r, d) and b (r,) with transform(x) = Lx + b, tested on random points.

    If b is large compared with the image of a unit vector, differences would lose digits, so that a
    longer step is taken.
    """
    if not hasattr(transformer, "n_features_in_"):
        raise InvalidInputError(
            f"as_metric needs n_features_in_, which a {type(transformer).__name__} does not have."
            " Set it to the number of features."
        )
    d = int(transformer.n_features_in_)
    offset = _images(transformer, np.zeros((1, d)))[0]
    steps, size = np.ones(d), float(np.abs(offset).max(initial=0.0))
    for _ in range(2):
        columns = _steps_taken(transformer, steps, offset)
        lengths = np.abs(columns).max(axis=0, initial=0.0)
        known = np.maximum(lengths, np.finfo(float).eps * size)
        steps = np.exp2(np.ceil(np.log2(np.maximum(size / np.where(known > 0, known, 1.0), 1.0))))
    _check_linear(transformer, columns, offset, steps)
    if not columns.any():
        raise InvalidInputError(
            f"this {type(transformer).__name__} maps all points to the same image: there is no"
            " distance. Check how it was fitted."
        )
    return columns, offset


def _steps_taken(transformer: Any, steps: Matrix, offset: Matrix) -> Matrix:
    """(transform(stepᵢ eᵢ) − offset) / stepᵢ in column i, (r, d)."""
    d = len(steps)
    L, block = np.empty((len(offset), d)), max(1, PROBE_ENTRIES // d)
    for first in range(0, d, block):
        part = np.arange(first, min(first + block, d))
        probes = np.zeros((len(part), d))
        probes[np.arange(len(part)), part] = steps[part]
        L[:, part] = ((_images(transformer, probes) - offset) / steps[part, None]).T
    return L


def _check_linear(transformer: Any, L: Matrix, offset: Matrix, steps: Matrix) -> None:
    random = np.random.default_rng(0)
    for scale in SCALES:
        X = scale * steps * random.standard_normal((TRIALS, len(steps)))
        images = _images(transformer, X)
        sizes = np.abs(offset).max(initial=0.0) + (np.abs(X) @ np.abs(L).T).max(axis=1)
        errors = np.abs(images - offset - X @ L.T).max(axis=1)
        if (errors > np.sqrt(np.finfo(images.dtype).eps) * sizes).any():
            raise InvalidInputError(
                "as_metric needs a transformer that is linear up to a shift; this"
                f" {type(transformer).__name__} is not: its images of random points differ from"
                f" Lx + b by up to {(errors / sizes).max():.1g} of their size. Take its images as"
                " points instead."
            )


def _images(transformer: Any, X: Matrix) -> NDArray[Any]:
    """Dense images (m, r) in floating point, of new points (m, d)."""
    X = np.vstack([X, np.zeros_like(X[:1])])  # SparsePCA maps a single row to a vector
    points: Any = X
    if hasattr(transformer, "feature_names_in_"):  # a ColumnTransformer finds columns by name
        try:
            frames = importlib.import_module("pandas")
        except ImportError:
            pass
        else:
            points = frames.DataFrame(X, columns=transformer.feature_names_in_)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            images = transformer.transform(points)
        images = np.asarray(images.toarray() if sparse.issparse(images) else images)
    except (TypeError, ValueError) as error:
        reason = str(error).rstrip(".")
        raise InvalidInputError(
            f"as_metric asked a {type(transformer).__name__} for the images of zero and of unit"
            f" vectors, and it refused: {reason}. Only a transformer of all real numbers can be"
            " linear."
        ) from error
    if images.dtype.kind not in "fiub" or images.ndim != 2 or not np.isfinite(images).all():
        raise InvalidInputError(
            "as_metric needs finite numbers of shape (n_samples, n_components) from a"
            f" {type(transformer).__name__}; got shape {images.shape} of {images.dtype}."
        )
    images = images[:-1]
    return images if images.dtype in (np.float32, np.float64) else images.astype(np.float64)


def _exported(model: Any, function: str) -> tuple[Matrix, Matrix]:
    """The affine map, or an error that says which step has none."""
    if isinstance(model, type) or not hasattr(model, "transform"):
        raise InvalidInputError(
            f"{function} needs a fitted metric learner or pipeline with transform; got"
            f" {type(model).__name__}. Of a pipeline that ends in a classifier give"
            " pipeline[:-1]."
        )
    check_is_fitted(model)
    try:
        return affine_map(model)
    except InvalidInputError as error:
        bad = next((name for name in _step_names(model) if not _is_linear(model, name)), None)
        if bad is None:
            raise
        raise InvalidInputError(
            f"{function} folds a pipeline into one matrix and one offset, and its step {bad!r} is"
            " not linear. Apply that step to the vectors first, and export the steps after it:"
            " pipeline[1:] if it is the first."
        ) from error


def _step_names(model: Any) -> list[str]:
    return [name for name, _ in model.steps] if isinstance(model, Pipeline) else []


def _is_linear(model: Pipeline, name: str) -> bool:
    try:
        affine_map(model.named_steps[name])
    except InvalidInputError:
        return False
    return True
