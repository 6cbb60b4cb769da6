"""What ``--method`` names, and which options each method takes.

An option goes with every method whose class has the parameter of that name. What is not given
keeps the default of the class. Classes are looked up when a fit starts, so that this module costs
``--help`` nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from nearfar.registry import entries

# The methods, and their classes at the top of nearfar.
METHODS = {entry.method: entry.name for entry in entries(command=True)}
# What ``nearfar map --method`` names, and the classes.
MAPS = {
    "variational": "VariationalMVU",
    "mvu": "MVU",
    "landmark": "LandmarkMVU",
    "local-mds": "LocalMDS",
    "mds": "MetricMDS",
    "classical-mds": "ClassicalMDS",
    "nonmetric-mds": "NonmetricMDS",
}
# The options that not every method takes, and the parameters that they set.
PARAMETERS = {
    "push_weight": "push_weight",
    "components": "n_components",
    "reduce": "reduce",
    "diagonal": "diagonal",
    "passes": "n_passes",
    "partition": "partition",
    "metrics": "n_metrics",
    "kernel": "kernel",
    "gamma": "gamma",
    "rank": "rank",
    "max_directions": "max_directions",
    "pca": "pca_components",
    "shrinkage": "shrinkage",
    "pairs": "n_pairs",
    "triplets": "n_triplets",
    "quadruplets": "n_quadruplets",
    "beta": "beta",
    "solver": "solver",
    "tol": "tol",
    "certificate": "certificate",
    "max_iter": "max_iter",
    "max_seconds": "max_seconds",
    "validation_fraction": "validation_fraction",
    "checkpoint": "checkpoint",
}


def written(option: str) -> str:
    """An option as it is typed."""
    return f"--{option.replace('_', '-')}"


def taken_by(method: str) -> dict[str, str]:
    """The options of `PARAMETERS` that a method takes, and the parameters that they set."""
    parameters = inspect.signature(_class_of(method)).parameters
    return {option: name for option, name in PARAMETERS.items() if name in parameters}


def takes_chunklets(method: str) -> bool:
    """Whether a method learns from chunklet numbers."""
    return METHODS[method] in {entry.name for entry in entries(learns_from="chunklets")}


def make_model(method: str, given: Mapping[str, Any], neighbors: int, seed: int) -> Any:
    """An estimator with the options that were given; those that do not apply are refused."""
    from nearfar.errors import InvalidInputError

    cls, takes = _class_of(method), taken_by(method)
    strange = [written(option) for option in given if option not in takes]
    if strange:
        do, it = ("does", "it") if len(strange) == 1 else ("do", "them")
        raise InvalidInputError(
            f"{' and '.join(strange)} {do} not go with --method {method}, which takes"
            f" {_joined(takes)}. Leave {it} out, or choose another method."
        )
    parameters = {takes[option]: value for option, value in given.items()}
    shared = {"n_neighbors": neighbors, "random_state": seed}
    named = inspect.signature(cls).parameters
    parameters |= {name: value for name, value in shared.items() if name in named}
    return cls(**parameters)


def make_map(
    method: str,
    n_components: int,
    neighbors: int | None,
    max_seconds: float | None,
    seed: int,
) -> Any:
    """An estimator that places points, with the options that were given."""
    import nearfar
    from nearfar.errors import InvalidInputError

    cls = getattr(nearfar, MAPS[method])
    named = inspect.signature(cls).parameters
    given = {"n_neighbors": neighbors, "max_seconds": max_seconds}
    for name, value in given.items():
        if value is not None and name not in named:
            raise InvalidInputError(
                f"--{name.removeprefix('n_').replace('_', '-')} does not go with --method {method}."
                " Leave it out, or choose another method."
            )
    parameters: dict[str, Any] = {"n_components": n_components}
    parameters |= {name: value for name, value in given.items() if value is not None}
    if "random_state" in named:
        parameters["random_state"] = seed
    return cls(**parameters)


def _joined(options: Iterable[str]) -> str:
    *others, last = [written(option) for option in options] or ["no such option"]
    return f"{', '.join(others)} and {last}" if others else last


def _class_of(method: str) -> Any:
    import nearfar

    return getattr(nearfar, METHODS[method])
