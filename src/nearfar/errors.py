"""Every exception and warning that nearfar raises.

::

    NearfarError (Exception)
    ├── InvalidInputError (ValueError)      data or parameters that cannot be used
    │   ├── DisconnectedGraphError          a graph in pieces where it must be in one
    │   └── MemoryLimitError                what needs more memory than there is or memory_limit
    ├── CheckpointError (ValueError)        a checkpoint that does not fit this fit
    ├── ModelFileError (ValueError)         a model file that is corrupt, foreign or too new
    ├── TimeLimitError (TimeoutError)       a fit that found no answer within max_seconds
    ├── ClusterError (ConnectionError)      a cluster that failed, or whose scheduler is gone
    └── MissingExtraError (ImportError)     an optional package that is not installed

    NearfarWarning (UserWarning)
    ├── DataWarning                         data that weakens the answer
    │   └── WorseThanInputsWarning          a learned distance that held-out rows advise against
    ├── CheckpointWarning                   a checkpoint that cannot be written; the fit goes on
    ├── CompatibilityWarning                a parameter of another library that has no meaning here
    └── ConvergenceWarning                  a solver stopped before its tolerance
        (also sklearn.exceptions.ConvergenceWarning)

Messages have four parts: what is wrong, what was expected, what was found, what to do.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import shlex
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import sklearn.exceptions


class NearfarError(Exception):
    """The base of all errors of nearfar."""


class InvalidInputError(NearfarError, ValueError):
    """Data or parameters that cannot be used; ``indices`` names the offending rows, if any."""

    def __init__(self, message: str, indices: Any = ()) -> None:
        super().__init__(message)
        self.indices = np.asarray(indices, dtype=np.intp)


class MemoryLimitError(InvalidInputError):
    """A computation that needs more memory than there is, or than ``memory_limit`` allows."""


class DisconnectedGraphError(InvalidInputError):
    """A graph in pieces; ``indices`` names the nodes outside the largest one."""

    def __init__(self, message: str, indices: Any = (), component_sizes: Any = ()) -> None:
        super().__init__(message, indices)
        self.component_sizes = tuple(component_sizes)  # largest first


class CheckpointError(NearfarError, ValueError):
    """A checkpoint that is corrupt, or that belongs to other data or parameters."""


class ModelFileError(NearfarError, ValueError):
    """A model file that is corrupt, foreign, or written by a newer version."""


class TimeLimitError(NearfarError, TimeoutError):
    """A fit that found no answer within ``max_seconds``."""


class ClusterError(NearfarError, ConnectionError):
    """A cluster of Dask that failed in the middle of a fit, or whose scheduler is gone."""


class MissingExtraError(NearfarError, ImportError):
    """An optional package that is needed now and not installed."""

    @classmethod
    def for_extra(cls, package: str, extra: str) -> MissingExtraError:
        """Name the package and the pip command that installs it."""
        return cls(f"{package} is not installed; run: {install_command(extra)}")


class NearfarWarning(UserWarning):
    """The base of all warnings of nearfar."""


class DataWarning(NearfarWarning):
    """Data that can be used, but weaken the answer."""


class WorseThanInputsWarning(DataWarning):
    """A learned distance that misclassifies more held-out rows than the inputs do."""


class CheckpointWarning(NearfarWarning):
    """A checkpoint that could not be written or deleted; the fit goes on without it."""


class CompatibilityWarning(NearfarWarning):
    """A parameter of another library that has no meaning in nearfar."""


class ConvergenceWarning(NearfarWarning, sklearn.exceptions.ConvergenceWarning):
    """A solver stopped before its tolerance; the message gives status, residual and remedy."""


def install_command(extra: str | None = None) -> str:
    """The pip command that installs nearfar again from where it came, with an extra if given.

    pip notes in ``direct_url.json`` [PEP 610] if a package came from a folder or an address;
    without it, it came from an index.
    """
    from urllib.parse import urlsplit  # these load modules for networks, which few need
    from urllib.request import url2pathname

    brackets = "" if extra is None else f"[{extra}]"
    origin = _origin()
    url, folder = str(origin.get("url", "")), origin.get("dir_info")
    if folder is not None:
        path = url2pathname(urlsplit(url).path)
        editable = "-e " if folder.get("editable") else ""
        return f"pip install {editable}{shlex.quote(path + brackets)}"
    if "vcs_info" in origin:
        url = f"{origin['vcs_info'].get('vcs', 'git')}+{url}"
    if url:
        return f"pip install {shlex.quote(f'nearfar{brackets} @ {url}')}"
    return f"pip install {shlex.quote(f'nearfar{brackets}')}"


def upgrade_command() -> str:
    """How to get a newer nearfar, from where this one came."""
    if _origin().get("dir_info") is not None:
        return f"update the folder, and run: {install_command()}"
    return install_command().replace("install", "install --upgrade", 1)


def _origin() -> dict[str, Any]:
    """Where pip installed nearfar from; empty for an index, or if it is not installed at all."""
    import importlib.metadata

    try:
        noted = importlib.metadata.distribution("nearfar").read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        return {}
    found = json.loads(noted) if noted else {}
    return found if isinstance(found, dict) else {}


_OWN_FOLDERS = tuple(str(Path(module).parent) for module in (__file__, sklearn.__file__))
_DECORATORS = contextlib.__file__  # a context manager that decorates a method calls it from there


def warn(message: str, category: type[NearfarWarning]) -> None:
    """Warn at the line of the user's own code that called nearfar."""
    frame, level = inspect.currentframe(), 0
    while frame is not None and frame.f_code.co_filename.startswith((*_OWN_FOLDERS, _DECORATORS)):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level + 1)
