"""Checkpoints: files from which a run continues after its process was killed."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import CheckpointError, CheckpointWarning, warn
from nearfar.files import DAMAGE, STORED, Archive, atomic_writer, unwritable

FAMILY = "nearfar-checkpoint-"
FORMAT = f"{FAMILY}2"  # 1 had no residuals in its records, and estimates among their duality gaps
EVERY_SECONDS = 0.5


class Checkpoint:
    """A file with the arrays and plain values of one run, identified by its fingerprint."""

    def __init__(self, path: str | os.PathLike[str], fingerprint: str) -> None:
        self._path, self._fingerprint = Path(path), fingerprint
        self._written = -np.inf
        self._warned = False
        fault = unwritable(path)
        if fault is not None:
            raise CheckpointError(f"checkpoint {str(path)!r} {fault}")
        if not self._path.parent.is_dir():
            raise CheckpointError(
                f"the folder of checkpoint {str(path)!r} does not exist. Create it first."
            )

    def load(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]] | None:
        """The arrays and values of an earlier run of the same fit, or None if there is no file."""
        if not self._path.exists():
            return None
        try:
            with open(self._path, "rb") as stream:
                archive = Archive(stream, STORED, compressed=False)
                values = json.loads(str(archive.array("values")))
                written, known = str(values.pop("format")), values.pop("fingerprint")
                ours = (written, known) == (FORMAT, self._fingerprint)
                names = [name for name in archive.names if ours and name != "values"]
                arrays = {name: archive.array(name) for name in names}
        except (MemoryError, *DAMAGE) as error:
            raise CheckpointError(
                f"{str(self._path)!r} is not a checkpoint of nearfar. Delete it or name another."
            ) from error
        if written != FORMAT and written.startswith(FAMILY):
            raise CheckpointError(
                f"checkpoint {str(self._path)!r} was written by another version of nearfar, and"
                " cannot be continued. Delete it or name another."
            )
        if not ours:
            raise CheckpointError(
                f"checkpoint {str(self._path)!r} belongs to other data or other parameters, and"
                " cannot be continued. Delete it or name another."
            )
        return arrays, values

    def save(self, arrays: dict[str, NDArray[Any]], values: dict[str, Any]) -> None:
        """Replace the file; if that fails, warn once, and the fit continues."""
        values = {"format": FORMAT, "fingerprint": self._fingerprint, **values}
        document = np.array(json.dumps(values))
        try:
            with atomic_writer(self._path) as stream:
                np.savez(stream, values=document, **arrays)  # type: ignore[arg-type]
        except OSError as error:
            self._warn("written", error)
        self._written = time.monotonic()

    @property
    def due(self) -> bool:
        """Whether the file has not been written for a while."""
        return time.monotonic() - self._written >= EVERY_SECONDS

    def remove(self) -> None:
        """Delete the file of a run that is complete."""
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            self._warn("deleted", error)

    def _warn(self, what: str, error: OSError) -> None:
        """Warn that the file could not be changed; once, since later attempts would fail too."""
        if self._warned:
            return
        self._warned = True
        warn(
            f"checkpoint {str(self._path)!r} could not be {what}: {error.strerror or error}. The"
            " fit goes on without it; make room or name another file before the next one.",
            CheckpointWarning,
        )
