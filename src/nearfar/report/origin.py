"""Where a model and its rows come from, and how to make them again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nearfar.analysis.study import Study
from nearfar.estimators._base import Estimator
from nearfar.files import fingerprint
from nearfar.report.payload import clipped
from nearfar.report.versions import versions

VALUE = 200  # characters of a parameter or a version
COMMAND = 2000


@dataclass(frozen=True)
class Origin:
    """Where a model and its rows come from.

    Attributes
    ----------
    held_out : a sentence on how the tested rows came about
    first_row : the number of the first row as the user counts
    commands : what was typed, by what it did
    facts : anything else to write down, by name
    fit_versions : versions that the model was fitted with, if they are known
    """

    held_out: str | None = None
    first_row: int = 0
    commands: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)
    fit_versions: Mapping[str, str] = field(default_factory=dict)


def reproduce(study: Study, origin: Origin, random_state: int) -> dict[str, Any]:
    """What is needed to make model and page again."""
    now = versions()
    then = origin.fit_versions
    return {
        "commands": [(clipped(k), clipped(v, COMMAND)) for k, v in origin.commands.items()],
        "code": _code(study),
        "facts": [
            *((clipped(k), clipped(v, VALUE)) for k, v in (origin.facts or _facts(study)).items()),
            ("seed of the samples on this page", str(random_state)),
        ],
        "versions": [
            (name, clipped(then.get(name, ""), VALUE), here) for name, here in now.items()
        ],
        "fit_known": bool(then),
    }


def _code(study: Study) -> str:
    """The model as Python, with all parameters of each step."""
    if study.model is study.learner:
        return _call(study.learner, "nearfar.")
    steps = [step for _, step in study.model.steps]
    calls = [_call(step, "nearfar." if isinstance(step, Estimator) else "") for step in steps]
    return f"make_pipeline({', '.join(calls)})"


def _call(step: Any, package: str) -> str:
    parameters = ", ".join(
        f"{name}={clipped(repr(value), VALUE)}"
        for name, value in step.get_params(deep=False).items()
    )
    return f"{package}{type(step).__name__}({parameters})"


def _facts(study: Study) -> dict[str, str]:
    """What identifies the data, where the caller says nothing."""
    if study.X is None:
        return {"rows": str(len(study))}
    return {
        "rows and features": " × ".join(map(str, study.X.shape)),
        "digest of points and labels": fingerprint(study.X, study.y),
    }
