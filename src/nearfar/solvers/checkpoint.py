"""Checkpoints: what a run needs to go on after its process was killed."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import CheckpointError

FORMAT = "nearfar-checkpoint-1"
EVERY_SECONDS = 0.5
# What zipfile, numpy and json raise at bytes that are not what was written.
DAMAGE = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
    zipfile.BadZipFile,
)


@contextmanager
def atomic_writer(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a new file that takes the place of `path` only when the block ends without error."""
    target = Path(os.path.realpath(path))  # a link keeps pointing where it did
    temporary = target.with_name(f".{secrets.token_hex(8)}.nearfar-tmp")
    try:
        with open(temporary, "xb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def fingerprint(*parts: Any) -> str:
    """A digest of arrays and plain values: equal for equal content."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        if isinstance(part, np.ndarray):
            digest.update(f"{part.dtype}{part.shape}".encode())
            digest.update(np.ascontiguousarray(part).tobytes())
        else:
            digest.update(f"{type(part).__name__}{part!r};".encode())
    return digest.hexdigest()


class Checkpoint:
    """A file that holds arrays and plain values of one run, known by its fingerprint."""

    def __init__(self, path: str | os.PathLike[str], fingerprint: str) -> None:
        self._path, self._fingerprint = Path(path), fingerprint
        self._written = -np.inf
        if self._path.is_dir():
            raise CheckpointError(f"checkpoint {str(path)!r} is a folder. Name a file in it.")
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
                file = np.load(stream, allow_pickle=False)
                arrays = {name: file[name] for name in file.files if name != "values"}
                values = json.loads(str(file["values"]))
            known = (values.pop("format"), values.pop("fingerprint"))
        except DAMAGE as error:
            raise CheckpointError(
                f"{str(self._path)!r} is not a checkpoint of nearfar. Delete it or name another."
            ) from error
        if known != (FORMAT, self._fingerprint):
            raise CheckpointError(
                f"checkpoint {str(self._path)!r} belongs to other data or other parameters, and"
                " cannot be continued. Delete it or name another."
            )
        return arrays, values

    def save(self, arrays: dict[str, NDArray[Any]], values: dict[str, Any]) -> None:
        """Replace the file."""
        values = {"format": FORMAT, "fingerprint": self._fingerprint, **values}
        document = np.array(json.dumps(values))
        with atomic_writer(self._path) as stream:
            np.savez(stream, values=document, **arrays)  # type: ignore[arg-type]
        self._written = time.monotonic()

    @property
    def due(self) -> bool:
        """Whether the file has not been written for a while."""
        return time.monotonic() - self._written >= EVERY_SECONDS

    def remove(self) -> None:
        """Delete the file, once its run has ended by itself."""
        self._path.unlink(missing_ok=True)
