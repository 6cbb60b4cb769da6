"""Pipelines as JSON and arrays, and back: some transformers, then an estimator of nearfar."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    RobustScaler,
    StandardScaler,
)
from sklearn.utils.validation import check_is_fitted

from nearfar.errors import ModelFileError
from nearfar.io.checks import check_account
from nearfar.io.classes import UnusableFile, is_ours
from nearfar.io.models import Arrays, decode, decode_model, encode, encode_model

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


def check_steps(pipeline: Pipeline) -> None:
    """Raise if a file cannot hold one of the steps."""
    *others, (name, last) = pipeline.steps
    strange = [
        (step_name, step)
        for step_name, step in others
        if not (is_ours(step) or _is_step(step) or step in (None, "passthrough"))
    ]
    if strange:
        where, step = strange[0]
        raise ModelFileError(
            f"a pipeline with a {type(step).__name__} (step {where!r}) cannot be saved. Before an "
            f"estimator of nearfar a model file holds {', '.join(STEPS)}. Apply that step "
            "beforehand, and save the steps after it; or, if all steps are linear, save "
            "nearfar.as_metric(pipeline); any other with skops (docs/persistence.md)."
        )
    if not is_ours(last):
        raise ModelFileError(
            f"a pipeline that ends in a {type(last).__name__} (step {name!r}) cannot be saved: the "
            "last step must be an estimator of nearfar. Save pipeline[:-1], or classify with "
            "nearfar.NearestNeighborClassifier."
        )


def _is_step(value: Any) -> bool:
    """Whether `value` is one of scikit-learn's transformers that a file may hold."""
    return type(value).__name__ in STEPS and type(value) is STEPS[type(value).__name__][0]


def encode_pipeline(model: Pipeline, prefix: str, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """The steps that do something, each with its name."""
    kept = [(name, step) for name, step in model.steps if step not in (None, "passthrough")]
    steps = [
        [
            name,
            (_encode_step if _is_step(step) else encode_model)(step, f"{prefix}step{i}.", arrays),
        ]
        for i, (name, step) in enumerate(kept)
    ]
    return {"class": "Pipeline", "steps": steps}


def _encode_step(step: Any, prefix: str, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """The same of a transformer of scikit-learn, of which only the listed attributes are stored."""
    _, axes = STEPS[type(step).__name__]
    check_is_fitted(step)
    parameters = {
        name: encode(value, prefix + name, arrays)
        for name, value in step.get_params(deep=False).items()
    }
    attributes = {
        name: encode(value, prefix + name, arrays)
        for name, value in vars(step).items()
        if name in axes or name in _STEP_FACTS
    }
    return {"class": type(step).__name__, "parameters": parameters, "attributes": attributes}


def decode_pipeline(value: dict[str, Any], arrays: Arrays, writer: str) -> Pipeline:
    """The steps, each of which takes as many features as the previous one returns."""
    steps: list[tuple[str, Any]] = []
    for name, content in value["steps"]:
        known = content["class"] in STEPS
        step = _decode_step(content, arrays) if known else decode_model(content, arrays, writer)
        steps.append((str(name), step))
    names = [name for name, _ in steps]
    if not steps or not is_ours(steps[-1][1]) or len(set(names)) < len(names):
        raise UnusableFile(
            f"holds a pipeline of the steps {', '.join(names) or 'none'}; expected different names,"
            " and an estimator of nearfar at the end. Fit and save again."
        )
    for (first, step), (second, after) in itertools.pairwise(steps):
        made = _width(step)
        if made != after.n_features_in_:
            raise UnusableFile(
                f"holds a pipeline whose step {first!r} makes {made} features, and whose step "
                f"{second!r} takes {after.n_features_in_}. Fit and save again."
            )
    return Pipeline(steps)


def _width(step: Any) -> int:
    """The number of features that a step returns."""
    components = getattr(step, "components_", None)
    return int(step.n_features_in_ if components is None else np.shape(components)[0])


def _decode_step(value: dict[str, Any], arrays: Arrays) -> Any:
    """A fitted transformer of scikit-learn: numbers, arrays of the listed shapes and no more."""
    cls, axes = STEPS[value["class"]]
    parameters, facts = decode(value["parameters"], arrays), decode(value["attributes"], arrays)
    step = cls()
    unknown = sorted(set(parameters) - set(step.get_params(deep=False)))
    unknown += sorted(set(facts) - {*axes, *_STEP_FACTS})
    if unknown:
        raise UnusableFile(
            f"sets {', '.join(unknown)}, which {value['class']} does not have. Fit and save again."
        )
    step.set_params(**parameters)
    vars(step).update(facts)
    check_is_fitted(step)
    check_account(step)
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
            raise UnusableFile(
                f"holds {name} of a {value['class']} as {array!r:.60}; expected finite numbers of "
                f"shape ({', '.join(str(lengths.get(axis, axis)) for axis in letters)}). Fit and "
                "save again."
            )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of names of features, and of a division by zero
        image = step.transform(np.zeros((1, lengths["d"])))
    if not np.isfinite(image).all():
        raise UnusableFile(
            f"holds a {value['class']} that maps zero to no number. Fit and save again."
        )
    names = facts.get("feature_names_in_")
    if names is not None and np.shape(names) != (lengths["d"],):
        raise UnusableFile(
            f"holds feature_names_in_ of shape {np.shape(names)}; expected one for each feature of "
            f"a {value['class']}. Fit and save again."
        )
    return step
