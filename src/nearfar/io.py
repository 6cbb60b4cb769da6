"""Model files: plain arrays and one JSON document in a zip. Nothing in them can run.

::

    model.nearfar (zip, members stored uncompressed)
    ├── model.json         format, versions, class name, parameters, fitted attributes
    └── <attribute>.npy    one member for each array; ``numpy.load`` opens them too. An estimator
                           inside another has its name in front: ``metric_.components_.npy``

JSON holds None, booleans, strings, integers, finite floats and lists as they are. Everything else
is an object with one key that starts with ``$``:

=====================  =============================================================
``$array``             the name of a ``.npy`` member
``$objects``           an object array of plain values (feature names, classes)
``$scalar``            a NumPy scalar
``$float``             nan, inf or -inf
``$tuple`` ``$path``   a tuple, a path
``$dict``              a dict whose keys are not plain strings, as [key, value] pairs
``$graph``             a `NeighborhoodGraph`, field by field
``$model``             another estimator of nearfar, fitted or not: class, parameters, attributes
``$frozen``            the same in scikit-learn's ``FrozenEstimator``
=====================  =============================================================

A pipeline is a document of class "Pipeline" with its steps, as [name, step] pairs. A step is an
estimator of nearfar, or one of a few transformers of scikit-learn, of which the file holds class,
parameters, and the arrays by which it maps points; their names are fixed here.
"""

from __future__ import annotations

import copy
import dataclasses
import importlib
import itertools
import json
import math
import os
import warnings
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    RobustScaler,
    StandardScaler,
)
from sklearn.utils.validation import check_is_fitted

from nearfar import __version__
from nearfar.errors import InvalidInputError, ModelFileError, upgrade_command
from nearfar.files import (
    ARRAY_KINDS,
    DAMAGE,
    MIB,
    STORED,
    Archive,
    UnsafeFileError,
    atomic_writer,
    check_shape,
    check_target,
)
from nearfar.graphs import NeighborhoodGraph
from nearfar.kernels import is_torch
from nearfar.registry import ENTRIES
from nearfar.solvers import Status

# Every class that a model file may hold, and its module. The list is closed: a name in a file is
# looked up here and never imported.
MODEL_CLASSES = {entry.name: entry.module for entry in ENTRIES}

# What estimators hold beside plain data and each other: ``graph_`` of the unfoldings, and distances
# as functions, which ``get_metric`` gives to estimators of other libraries.
_PARTS = (
    "nearfar.estimators._base.LinearDistance",
    "nearfar.estimators._kernel.Kernel",
    "nearfar.estimators._kernel.KernelDistance",
    "nearfar.graphs.neighborhood.NeighborhoodGraph",
)
_DECOMPOSED = {
    "components_": "rd",
    "explained_variance_": "r",
    "explained_variance_ratio_": "r",
    "singular_values_": "r",
}
# The transformers of scikit-learn that may be steps of a pipeline, and the arrays of each with a
# letter for each axis: d are features, r images. This list is closed, too.
STEPS: dict[str, tuple[type, dict[str, str]]] = {
    "StandardScaler": (StandardScaler, {"mean_": "d", "var_": "d", "scale_": "d"}),
    "MinMaxScaler": (
        MinMaxScaler,
        dict.fromkeys(["min_", "scale_", "data_min_", "data_max_", "data_range_"], "d"),
    ),
    "MaxAbsScaler": (MaxAbsScaler, {"scale_": "d", "max_abs_": "d"}),
    "RobustScaler": (RobustScaler, {"center_": "d", "scale_": "d"}),
    "PCA": (PCA, {**_DECOMPOSED, "mean_": "d"}),
    "TruncatedSVD": (TruncatedSVD, _DECOMPOSED),
    "Normalizer": (Normalizer, {}),
}
_COUNTS = ("n_components_", "n_samples_", "n_samples_seen_", "noise_variance_")
_STEP_FACTS = (*_COUNTS, "n_features_in_", "feature_names_in_")

#: What ``skops.io.load(path, trusted=nearfar.TRUSTED_TYPES)`` has to trust.
TRUSTED_TYPES = sorted([*_PARTS, *(f"{module}.{name}" for name, module in MODEL_CLASSES.items())])

FORMAT = "nearfar-model"
FORMAT_VERSION = 1
MOST_DOCUMENT = 16 * MIB  # bytes of model.json; as Python values they take up to sixty times that
FEW = 1000  # neighbours that a classifier may ask for however few points it has
PROOF_BYTES = 1 << 24  # of a proof that is stored by default
_DOCUMENT = "model.json"
_ZIP_START = b"PK\x03\x04"
_SCALARS = {np.dtype(code).name for code in "?bhilqBHILQefd"}

# scikit-learn's attributes that belong to the running program, not to the model.
_NOT_STORED = ("_skl_callbacks", "_callback_fit_ctx", "_parent_callback_ctx", "_metadata_request")

_FOREIGN = (
    "is not a model file: expected a file written by nearfar.save, found {}. "
    "Check the path; nearfar does not open pickles or files of other libraries."
)


def save(
    model: Any,
    path: str | os.PathLike[str],
    *,
    proof: bool | str = "auto",
    provenance: dict[str, Any] | None = None,
) -> None:
    """Write a fitted estimator to a file, completely or not at all.

    Parameters
    ----------
    model : estimator
        A fitted estimator of nearfar, or a pipeline of StandardScaler, MinMaxScaler, MaxAbsScaler,
        RobustScaler, PCA, TruncatedSVD or Normalizer, and an estimator of nearfar at the end.
        Torch tensors are stored as arrays and come back as NumPy. Callbacks, metadata requests and
        output settings are not stored.
    path : path-like
        The file to write, by custom ``*.nearfar``; one that exists is replaced and keeps its mode.
    proof : {"auto", True, False}, default="auto"
        Whether to store ``proof_``, by which `nearfar.verify` checks the model; "auto" stores it
        where it takes at most 16 MB.
    provenance : dict or None, default=None
        How the model came about, as plain JSON values; it belongs to the file, and
        `read_provenance` returns it.

    Raises
    ------
    ModelFileError
        The estimator is not one of nearfar's, or it holds a value that is not plain data.
    InvalidInputError
        The path is not a regular file but a folder, a pipe or a device.
    """
    check_target(path)
    name = type(model).__name__
    if isinstance(model, Pipeline):
        _check_steps(model)
    elif not _is_ours(model):
        raise ModelFileError(
            f"a {name} cannot be saved. A model file holds one of {', '.join(MODEL_CLASSES)}, or a "
            "pipeline that ends in one, not a subclass or another estimator. Save the fitted "
            "nearfar estimator itself, any other with skops (docs/persistence.md)."
        )
    check_is_fitted(model)
    if not (isinstance(proof, bool) or proof == "auto"):
        raise InvalidInputError(f"proof must be 'auto', True or False; got {proof!r}.")
    limit = {True: math.inf, False: -1, "auto": PROOF_BYTES}[proof]
    model = _with_proof_up_to(limit, model)
    arrays: dict[str, np.ndarray] = {}
    document = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "nearfar_version": __version__,
        "sklearn_version": sklearn.__version__,
        **({} if provenance is None else {"provenance": provenance}),
        **(_encode_pipeline if isinstance(model, Pipeline) else _encode_model)(model, "", arrays),
    }
    text = json.dumps(document, indent=1, allow_nan=False)
    if len(text) > MOST_DOCUMENT:
        raise ModelFileError(
            f"a {name} cannot be saved: its plain values take {len(text):,} bytes, and a model "
            f"file holds at most {MOST_DOCUMENT:,} besides its arrays. Store long lists as arrays."
        )
    with atomic_writer(path) as stream, zipfile.ZipFile(stream, "w") as archive:
        archive.writestr(zipfile.ZipInfo(_DOCUMENT), text)
        for attribute, array in arrays.items():
            member = BytesIO()
            np.lib.format.write_array(member, array, version=(1, 0), allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{attribute}.npy"), member.getvalue())


def _check_steps(pipeline: Pipeline) -> None:
    """Raise if a file cannot hold one of the steps."""
    *others, (name, last) = pipeline.steps
    strange = [
        (step_name, step)
        for step_name, step in others
        if not (_is_ours(step) or _is_step(step) or step in (None, "passthrough"))
    ]
    if strange:
        where, step = strange[0]
        raise ModelFileError(
            f"a pipeline with a {type(step).__name__} (step {where!r}) cannot be saved. Before an "
            f"estimator of nearfar a model file holds {', '.join(STEPS)}. Apply that step "
            "beforehand, and save the steps after it; or, if all steps are linear, save "
            "nearfar.as_metric(pipeline); any other with skops (docs/persistence.md)."
        )
    if not _is_ours(last):
        raise ModelFileError(
            f"a pipeline that ends in a {type(last).__name__} (step {name!r}) cannot be saved: the "
            "last step must be an estimator of nearfar. Save pipeline[:-1], or classify with "
            "nearfar.NearestNeighborClassifier."
        )


def _is_step(value: Any) -> bool:
    """Whether `value` is one of scikit-learn's transformers that a file may hold."""
    return type(value).__name__ in STEPS and type(value) is STEPS[type(value).__name__][0]


def _with_proof_up_to(limit: float, model: Any) -> Any:
    """The model, or a copy without a ``proof_`` of more bytes; also of one inside another model."""
    if isinstance(model, Pipeline):
        return Pipeline([(name, _with_proof_up_to(limit, step)) for name, step in model.steps])
    proof = getattr(model, "proof_", None)
    if proof is not None and sum(array.nbytes for array in proof.values()) > limit:
        model = copy.copy(model)
        del model.proof_
    metric = getattr(model, "metric_", None)
    inner = metric if metric is None else _with_proof_up_to(limit, metric)
    if inner is not metric:
        model = copy.copy(model)
        model.metric_ = inner
    return model


def load(path: str | os.PathLike[str]) -> Any:
    """Read the fitted estimator that `save` wrote.

    Parameters
    ----------
    path : path-like
        The model file. It is data only: no pickle is read, no code runs, and no class outside
        nearfar can be named.

    Returns
    -------
    model : estimator
        Its arrays are NumPy arrays.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    ModelFileError
        The file is corrupt, foreign, or written by a newer version of nearfar.
    """
    return _opened(path, _restore)


def read_provenance(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """How the model in a file was made, if `save` was given that.

    Parameters
    ----------
    path : path-like
        The model file.

    Returns
    -------
    dict or None
        What ``nearfar fit`` writes: command, table, target, digest (of points and labels),
        test_share, seed, n_rows, n_train, n_learned (of the training rows, fewer with ``--rows``),
        learned_rows (hashes of some of these, by which they are known again) and versions.
        Like everything in a file it is a claim of whoever wrote it.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    ModelFileError
        The file is corrupt, foreign, or written by a newer version of nearfar.
    """
    found = _opened(path, lambda document, _: document.get("provenance"))
    return found if isinstance(found, dict) else None


def _opened(path: str | os.PathLike[str], take: Callable[[dict[str, Any], Arrays], Any]) -> Any:
    """What is taken from the document and the arrays of a file."""
    path = Path(path)
    if path.is_dir():
        raise ModelFileError(
            f"{path} is a folder: expected a file that nearfar.save wrote. Name the file in it."
        )
    with open(path, "rb") as stream:
        start = stream.read(len(_ZIP_START))
        content = start + stream.read() if start == _ZIP_START else b""
    try:
        if not content:
            raise _Unusable(_FOREIGN.format("one that is not a zip archive"))
        return take(*_read_members(content))
    except _Unusable as error:
        raise ModelFileError(f"{path} {error}") from None
    except UnsafeFileError as error:
        raise ModelFileError(
            f"{path} {error} Do not use a file from this source; ask for one written by "
            "nearfar.save."
        ) from None
    except MemoryError as error:
        raise ModelFileError(
            f"{path} needs more memory than there is, for a file of {len(content):,} bytes. Load "
            "it on a machine with more memory, if you trust where it comes from."
        ) from error
    except DAMAGE as error:
        raise ModelFileError(
            f"{path} is a damaged model file: expected what nearfar.save wrote, found a "
            f"{type(error).__name__} ({error}). Copy the file again, or fit and save again."
        ) from error


class _Unusable(Exception):
    """Why a file cannot be loaded, to be said after its path."""


class Arrays:
    """The arrays of a model file by name, each read when it is first asked for."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._read: dict[str, np.ndarray] = {}

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._read:
            self._read[name] = self._archive.array(name)
        return self._read[name]


def _read_members(content: bytes) -> tuple[dict[str, Any], Arrays]:
    """The JSON document and the arrays of a model file."""
    archive = Archive(BytesIO(content), STORED, compressed=False)
    if _DOCUMENT not in archive:
        raise _Unusable(_FOREIGN.format(f"an archive without {_DOCUMENT}"))
    text = archive.read(_DOCUMENT, MOST_DOCUMENT)
    document = json.loads(text, parse_constant=_refuse_constant)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise _Unusable(_FOREIGN.format("another format"))
    _check_version(document)
    return document, Arrays(archive)


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is not JSON")


def _check_version(document: dict[str, Any]) -> None:
    if int(document["format_version"]) > FORMAT_VERSION:
        raise _Unusable(
            f"was written by nearfar {document['nearfar_version']} in format "
            f"{document['format_version']}; nearfar {__version__} reads up to format "
            f"{FORMAT_VERSION}. Upgrade: {upgrade_command()}"
        )


def _restore(document: dict[str, Any], arrays: Arrays) -> Any:
    writer = f"that wrote it ({document['nearfar_version']})"
    decode = _decode_pipeline if document["class"] == "Pipeline" else _decode_model
    model = decode(document, arrays, writer)
    check_is_fitted(model)
    return model


def _decode_model(value: dict[str, Any], arrays: Arrays, writer: str = "that wrote it") -> Any:
    """The inverse of `_encode_model`; the attributes of a fitted model are checked."""
    name = value["class"]
    if name not in MODEL_CLASSES:
        raise _Unusable(
            f"holds a model of class {name!r}; nearfar {__version__} knows "
            f"{', '.join(MODEL_CLASSES)}. Load it with the nearfar {writer}, or upgrade: "
            f"{upgrade_command()}"
        )
    cls = _model_class(name)
    parameters = _decode(value["parameters"], arrays)
    attributes = _decode(value["attributes"], arrays)
    unknown = sorted(set(parameters) - set(cls._get_param_names()))
    unknown += sorted(key for key in attributes if not key.isidentifier() or hasattr(cls, key))
    if unknown:
        raise _Unusable(
            f"sets {', '.join(unknown)}, which {name} of nearfar {__version__} does not "
            f"have. Load it with the nearfar {writer}, or fit and save again."
        )
    model = cls(**parameters)
    if attributes:
        if isinstance(attributes.get("history_"), list):
            attributes["history_"] = [_with_residual(record) for record in attributes["history_"]]
        vars(model).update(attributes)
        check_is_fitted(model)
        _check_account(model)
        _check_shapes(model)
    return model


def _with_residual(record: Any) -> Any:
    """A line of the trace of a fit, from before residuals and duality gaps had two names.

    What such a line calls duality_gap may be an estimate, and so it is the residual.
    """
    if not isinstance(record, dict) or "duality_gap" not in record or "residual" in record:
        return record
    return {**record, "residual": record["duality_gap"], "duality_gap": None}


def _check_account(model: Any) -> None:
    """What a model says of its fit are the numbers and words that nearfar writes."""
    for attribute, (is_sound, expected) in _ACCOUNT.items():
        value = vars(model).get(attribute)
        if attribute in vars(model) and not is_sound(value):
            raise _Unusable(
                f"holds {value!r:.60} as {attribute}; expected {expected}. Fit and save again."
            )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def _is_number_or_none(value: Any) -> bool:
    return value is None or _is_number(value)


def _is_count(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) >= 0


def _is_record(value: Any) -> bool:
    """Whether `value` is a line of the trace of a fit."""
    return (
        isinstance(value, dict)
        and all(isinstance(key, str) for key in value)
        and all(_is_number(value.get(key)) for key in ("n_iter", "seconds", "objective"))
        and math.isfinite(value["seconds"])
    )


# Attributes of a fit, whether a value can be one, and that in words.
_ACCOUNT: dict[str, tuple[Callable[[Any], bool], str]] = {
    "n_features_in_": (_is_count, "a number of features"),
    "n_iter_": (_is_count, "a number of iterations"),
    "n_neighbors_": (_is_count, "a number of neighbours"),
    "objective_": (_is_number_or_none, "a number or None"),
    "duality_gap_": (_is_number_or_none, "a number or None"),
    "sampled_gap_": (_is_number_or_none, "a number or None"),
    "gap_confidence_": (_is_number_or_none, "a number or None"),
    "status_": (lambda value: value in list(Status), f"one of {', '.join(Status)}"),
    "history_": (
        lambda value: isinstance(value, list) and all(map(_is_record, value)),
        "a list of iterations with n_iter, seconds and objective",
    ),
    "classes_": (
        lambda value: isinstance(value, np.ndarray) and value.ndim == 1,
        "an array of labels",
    ),
    "feature_names_in_": (
        lambda value: isinstance(value, np.ndarray) and all(isinstance(v, str) for v in value.flat),
        "an array of names",
    ),
}


def _check_shapes(model: Any) -> None:
    """Arrays have the axes that the class declares, d of them features, and names are as many."""
    lengths = {"d": model.n_features_in_}
    for attribute, axes in model._axes.items():
        array: Any = getattr(model, attribute, None)
        shape, kind = np.shape(array), getattr(getattr(array, "dtype", None), "kind", "O")
        fits = isinstance(array, np.ndarray) and len(shape) == len(axes)
        fits = fits and all(
            lengths.setdefault(axis, size) == size for axis, size in zip(axes, shape, strict=True)
        )
        if not fits or (len(axes) > 1 and kind != "f"):
            expected = ", ".join(str(lengths.get(axis, axis)) for axis in axes)
            raise _Unusable(
                f"holds {attribute} of shape {shape}; expected an array of shape ({expected}) with "
                f"n_features_in_={model.n_features_in_}. Fit and save again."
            )
    _check_counts(model, lengths.get("n"))
    names = getattr(model, "feature_names_in_", None)
    if names is not None and np.shape(names) != (model.n_features_in_,):
        raise _Unusable(
            f"holds feature_names_in_ of shape {np.shape(names)}; expected "
            f"n_features_in_={model.n_features_in_} names. Fit and save again."
        )
    metric = getattr(model, "metric_", model)
    if not _is_ours(metric) or getattr(metric, "n_features_in_", None) != model.n_features_in_:
        raise _Unusable(
            f"holds {metric!r} as metric_; expected a fitted metric learner with "
            f"n_features_in_={model.n_features_in_}. Fit and save again."
        )


def _check_counts(model: Any, n: int | None) -> None:
    """Counts for which arrays are made later are no larger than the arrays that are there."""
    graph, n_neighbors = getattr(model, "graph_", None), getattr(model, "n_neighbors_", None)
    if isinstance(graph, NeighborhoodGraph) and graph.n_nodes != n:
        raise _Unusable(
            f"holds a graph of {graph.n_nodes} nodes; expected {n}, one for each row of embedding_."
            " Fit and save again."
        )
    if n_neighbors is not None and n is not None and n_neighbors > max(n, FEW):
        raise _Unusable(
            f"holds {n_neighbors} as n_neighbors_; expected at most {FEW} or the {n} points. Fit "
            "and save again."
        )


def _is_ours(model: Any) -> bool:
    """Whether `model` is of a class of the registry, not of a subclass."""
    name = type(model).__name__
    return name in MODEL_CLASSES and type(model) is _model_class(name)


def _encode_model(model: Any, prefix: str, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """Class, parameters and fitted attributes; names of arrays begin with the prefix."""
    values = {
        attribute: _encode(value, prefix + attribute, arrays)
        for attribute, value in model.__getstate__().items()
        if attribute not in _NOT_STORED
    }
    parameters = {key: values.pop(key) for key in model.get_params(deep=False)}
    return {"class": type(model).__name__, "parameters": parameters, "attributes": values}


def _encode_pipeline(model: Pipeline, prefix: str, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """The steps that do something, each with its name."""
    kept = [(name, step) for name, step in model.steps if step not in (None, "passthrough")]
    steps = [
        [
            name,
            (_encode_step if _is_step(step) else _encode_model)(step, f"{prefix}step{i}.", arrays),
        ]
        for i, (name, step) in enumerate(kept)
    ]
    return {"class": "Pipeline", "steps": steps}


def _encode_step(step: Any, prefix: str, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """The same of a transformer of scikit-learn, of which only the listed attributes are stored."""
    _, axes = STEPS[type(step).__name__]
    check_is_fitted(step)
    parameters = {
        name: _encode(value, prefix + name, arrays)
        for name, value in step.get_params(deep=False).items()
    }
    attributes = {
        name: _encode(value, prefix + name, arrays)
        for name, value in vars(step).items()
        if name in axes or name in _STEP_FACTS
    }
    return {"class": type(step).__name__, "parameters": parameters, "attributes": attributes}


def _decode_pipeline(value: dict[str, Any], arrays: Arrays, writer: str) -> Pipeline:
    """The steps, each of which takes as many features as the one before it makes."""
    steps: list[tuple[str, Any]] = []
    for name, content in value["steps"]:
        known = content["class"] in STEPS
        step = _decode_step(content, arrays) if known else _decode_model(content, arrays, writer)
        steps.append((str(name), step))
    names = [name for name, _ in steps]
    if not steps or not _is_ours(steps[-1][1]) or len(set(names)) < len(names):
        raise _Unusable(
            f"holds a pipeline of the steps {', '.join(names) or 'none'}; expected different names,"
            " and an estimator of nearfar at the end. Fit and save again."
        )
    for (first, step), (second, after) in itertools.pairwise(steps):
        made = _width(step)
        if made != after.n_features_in_:
            raise _Unusable(
                f"holds a pipeline whose step {first!r} makes {made} features, and whose step "
                f"{second!r} takes {after.n_features_in_}. Fit and save again."
            )
    return Pipeline(steps)


def _width(step: Any) -> int:
    """The number of features that a step makes."""
    components = getattr(step, "components_", None)
    return int(step.n_features_in_ if components is None else np.shape(components)[0])


def _decode_step(value: dict[str, Any], arrays: Arrays) -> Any:
    """A fitted transformer of scikit-learn: numbers, arrays of the listed shapes and no more."""
    cls, axes = STEPS[value["class"]]
    parameters, facts = _decode(value["parameters"], arrays), _decode(value["attributes"], arrays)
    step = cls()
    unknown = sorted(set(parameters) - set(step.get_params(deep=False)))
    unknown += sorted(set(facts) - {*axes, *_STEP_FACTS})
    if unknown:
        raise _Unusable(
            f"sets {', '.join(unknown)}, which {value['class']} does not have. Fit and save again."
        )
    step.set_params(**parameters)
    vars(step).update(facts)
    check_is_fitted(step)
    _check_account(step)
    lengths = {"d": facts["n_features_in_"]}
    for name, letters in axes.items():
        array = facts.get(name)
        if array is None:  # such as the variance of a StandardScaler(with_std=False)
            continue
        shape = np.shape(array)
        fits = isinstance(array, np.ndarray) and array.dtype.kind == "f"
        fits = fits and len(shape) == len(letters) and bool(np.isfinite(array).all())
        fits = fits and all(
            lengths.setdefault(axis, size) == size
            for axis, size in zip(letters, shape, strict=True)
        )
        if not fits:
            raise _Unusable(
                f"holds {name} of a {value['class']} as {array!r:.60}; expected finite numbers of "
                f"shape ({', '.join(str(lengths.get(axis, axis)) for axis in letters)}). Fit and "
                "save again."
            )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of names of features, and of a division by zero
        image = step.transform(np.zeros((1, lengths["d"])))
    if not np.isfinite(image).all():
        raise _Unusable(
            f"holds a {value['class']} that maps zero to no number. Fit and save again."
        )
    names = facts.get("feature_names_in_")
    if names is not None and np.shape(names) != (lengths["d"],):
        raise _Unusable(
            f"holds feature_names_in_ of shape {np.shape(names)}; expected one for each feature of "
            f"a {value['class']}. Fit and save again."
        )
    return step


def _encode(value: Any, where: str, arrays: dict[str, np.ndarray]) -> Any:
    """`value` as JSON; arrays go to `arrays` under the name `where`."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, np.generic) and value.dtype.name in _SCALARS:
        return {"$scalar": value.dtype.name, "value": _encode(value.item(), where, arrays)}
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$float": repr(value)}
    if isinstance(value, os.PathLike):
        return {"$path": os.fspath(value)}
    if isinstance(value, list | tuple):
        items = [_encode(item, f"{where}.{i}", arrays) for i, item in enumerate(value)]
        return items if isinstance(value, list) else {"$tuple": items}
    if isinstance(value, dict):
        items = [_encode(item, f"{where}.{i}", arrays) for i, item in enumerate(value.values())]
        if all(isinstance(key, str) and not key.startswith("$") for key in value):
            return dict(zip(value, items, strict=True))
        keys = [_encode(key, where, arrays) for key in value]
        return {"$dict": list(zip(keys, items, strict=True))}
    if isinstance(value, FrozenEstimator) and _is_ours(value.estimator):
        return {"$frozen": _encode_model(value.estimator, f"{where}.", arrays)}
    if _is_ours(value):
        return {"$model": _encode_model(value, f"{where}.", arrays)}
    if isinstance(value, NeighborhoodGraph):
        return {"$graph": _encode_graph(value, where, arrays)}
    if is_torch(value):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray) and value.dtype.kind in ARRAY_KINDS:
        same = (name for name, array in arrays.items() if array is value)
        name = next(same, where)  # an array that several attributes share is stored once
        arrays[name] = value
        return {"$array": name}
    if isinstance(value, np.ndarray) and value.dtype.kind == "O":
        items = [_encode(item, f"{where}.{i}", arrays) for i, item in enumerate(value.flat)]
        return {"$objects": items, "shape": list(value.shape)}
    raise ModelFileError(
        f"{where.split('.')[0]} cannot be saved: expected arrays, numbers, strings, lists or "
        f"dicts, found a {type(value).__name__}. Set it to plain data first (for random_state, an "
        "integer; for a kernel of your own, 'precomputed')."
    )


def _encode_graph(graph: NeighborhoodGraph, where: str, arrays: dict[str, np.ndarray]) -> Any:
    """The fields of a neighbourhood graph."""
    values = {field.name: getattr(graph, field.name) for field in dataclasses.fields(graph)}
    points = values["points"]
    if points is not None and not is_torch(points):
        values["points"] = np.asarray(points)
    return {name: _encode(value, f"{where}.{name}", arrays) for name, value in values.items()}


def _decode_graph(value: dict[str, Any], arrays: Arrays) -> NeighborhoodGraph:
    fields = {name: _decode(item, arrays) for name, item in value["$graph"].items()}
    graph = NeighborhoodGraph(**fields)
    if not graph.is_consistent():
        raise ValueError("the edges of a graph do not fit its nodes")
    return graph


def _decode(value: Any, arrays: Arrays) -> Any:
    """The inverse of `_encode`."""
    if isinstance(value, list):
        return [_decode(item, arrays) for item in value]
    if not isinstance(value, dict):
        return value
    tag = next((key for key in value if key.startswith("$")), None)
    if tag is None:
        return {key: _decode(item, arrays) for key, item in value.items()}
    return _DECODERS[tag](value, arrays)


def _decode_objects(value: dict[str, Any], arrays: Arrays) -> np.ndarray:
    items = _decode(value["$objects"], arrays)
    if not items:
        check_shape(value["shape"], 0, STORED.floor)
    array = np.empty(len(items), dtype=object)
    for i, item in enumerate(items):
        array[i] = item
    return array.reshape(value["shape"])


def _decode_scalar(value: dict[str, Any], arrays: Arrays) -> Any:
    if value["$scalar"] not in _SCALARS:
        raise ValueError(f"{value['$scalar']!r} is not the name of a number type")
    return np.dtype(value["$scalar"]).type(_decode(value["value"], arrays))


_DECODERS: dict[str, Callable[[dict[str, Any], Arrays], Any]] = {
    "$array": lambda value, arrays: arrays[value["$array"]],
    "$objects": _decode_objects,
    "$scalar": _decode_scalar,
    "$float": lambda value, _: float(value["$float"]),
    "$path": lambda value, _: Path(value["$path"]),
    "$tuple": lambda value, arrays: tuple(_decode(value["$tuple"], arrays)),
    "$dict": lambda value, arrays: dict(_decode(value["$dict"], arrays)),
    "$graph": _decode_graph,
    "$model": lambda value, arrays: _decode_model(value["$model"], arrays),
    "$frozen": lambda value, arrays: FrozenEstimator(_decode_model(value["$frozen"], arrays)),
}


def _model_class(name: str) -> Any:
    return getattr(importlib.import_module(MODEL_CLASSES[name]), name)
