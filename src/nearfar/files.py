"""Files: read within limits, written whole or not at all; and digests of what they hold.

What a file declares is checked before memory is taken. An array needs

    prod(max(axis, 1)) · max(itemsize, 8) bytes

so that one without elements counts as well: code downstream makes something for each of its rows.
That is at most what `Limit` allows for a file of the given size.
"""

from __future__ import annotations

import hashlib
import math
import os
import secrets
import stat
import struct
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from nearfar.errors import InvalidInputError

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
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)
ARRAY_KINDS = "biufcUSmM"  # every dtype kind but objects and records
MIB = 2**20

_LAST_CODE_POINT = 0x10FFFF
_PIECE = MIB  # bytes that are read at a time
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # those of numpy.savez
_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class UnsafeFileError(ValueError):
    """A file that may carry code or asks for too much memory; the text goes after its name."""


class Limit(NamedTuple):
    """Bytes that an array may need: ``floor``, or ``ratio`` for each byte of its file."""

    floor: int
    ratio: int

    def of(self, size: int) -> int:
        """The limit for a file of `size` bytes."""
        return max(self.floor, self.ratio * size)


# Where nothing is compressed only an array without elements can need more than 8 times its file.
STORED = Limit(16 * MIB, 8)


# -- reading ---------------------------------------------------------------------------------------


class Archive:
    """A zip archive whose members are read one by one, when they are asked for.

    ``compressed`` says whether members may be compressed, as numpy.savez_compressed does it.
    """

    def __init__(self, stream: IO[bytes], limit: Limit, *, compressed: bool) -> None:
        self._archive = zipfile.ZipFile(stream)
        self._size = stream.seek(0, os.SEEK_END)
        self._limit = limit
        members = self._archive.infolist()
        self._members = {member.filename: member for member in members}
        if compressed:
            return
        # Uncompressed members that fit in the file together cannot expand in memory.
        stored = all(member.compress_type == zipfile.ZIP_STORED for member in members)
        if not stored or sum(member.file_size for member in members) > self._size:
            raise UnsafeFileError(
                "does not have the size it declares: expected members stored uncompressed, found "
                "ones that expand."
            )

    @property
    def names(self) -> list[str]:
        """The names of the arrays."""
        return [name.removesuffix(".npy") for name in self._members if name.endswith(".npy")]

    def __contains__(self, member: str) -> bool:
        return member in self._members

    def read(self, member: str, most: int) -> bytes:
        """A member that is not an array, of at most ``most`` bytes."""
        declared = self._members[member].file_size
        if declared > most:
            raise UnsafeFileError(
                f"holds {member} of {declared:,} bytes: expected at most {most:,}."
            )
        return self._archive.read(self._members[member])

    def array(self, name: str) -> np.ndarray:
        """An array, by the name that numpy.savez was given."""
        member = self._members[f"{name}.npy"]
        if member.compress_type not in _METHODS:
            raise UnsafeFileError(
                f"holds an array compressed by method {member.compress_type}: expected one written "
                "by numpy.savez or numpy.savez_compressed."
            )
        with self._archive.open(member) as stream:
            return read_array(stream, member.file_size, self._limit.of(self._size))


def read_array(stream: IO[bytes], size: int, most: int) -> np.ndarray:
    """Read an array in NPY format, of `size` bytes with its header.

    Raises
    ------
    UnsafeFileError
        It holds objects, or it needs more than `most` bytes.
    """
    shape, fortran_order, dtype, start = _read_header(stream)
    if dtype.kind not in ARRAY_KINDS:
        raise UnsafeFileError(
            f"holds an array of dtype {dtype}, which may carry code: expected numbers or text. It "
            "was not opened."
        )
    count = math.prod(shape)
    if min(shape, default=0) < 0 or count * dtype.itemsize != size - start:
        raise ValueError(f"an array of shape {shape} does not match its bytes")
    check_shape(shape, dtype.itemsize, most)
    array: np.ndarray = np.empty(count, dtype)
    if array.nbytes:
        _fill(array, stream)
    if dtype.kind == "U" and array.nbytes:
        code_points = array.view(np.dtype(np.uint32).newbyteorder(dtype.byteorder))
        if code_points.max() > _LAST_CODE_POINT:
            raise ValueError("an array of text holds something else")
    return array.reshape(shape, order="F" if fortran_order else "C")


def check_shape(shape: Sequence[int], itemsize: int, most: int) -> None:
    """Raise if an array needs more than `most` bytes."""
    needed = math.prod(max(axis, 1) for axis in shape) * max(itemsize, 8)
    if needed > most:
        raise UnsafeFileError(
            f"declares an array of shape {tuple(shape)}, which needs {needed:,} bytes: expected at "
            f"most {most:,} in a file of this size."
        )


def _read_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Shape, order and dtype of an array, and the length of the header."""
    version = np.lib.format.read_magic(stream)
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    if version not in readers:
        raise ValueError("an array has another .npy version than 1.0 or 2.0")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of files that Python 2 wrote, and of odd escapes
            shape, fortran_order, dtype = readers[version](stream)
    except (SyntaxError, tokenize.TokenError, MemoryError) as error:  # of Python's parser
        raise ValueError("an array has no readable header") from error
    return shape, fortran_order, dtype, stream.tell()


def _fill(array: np.ndarray, stream: IO[bytes]) -> None:
    """Read the numbers of an array."""
    buffer = array.view(np.uint8)
    filled = 0
    while filled < len(buffer):
        piece = stream.read(min(_PIECE, len(buffer) - filled))
        if not piece:
            raise EOFError("an array ends before its last number")
        buffer[filled : filled + len(piece)] = np.frombuffer(piece, np.uint8)
        filled += len(piece)


# -- writing ---------------------------------------------------------------------------------------


def unwritable(path: str | os.PathLike[str]) -> str | None:
    """Why a path cannot become a file, to be said after its name; None if it can.

    A link is what it points to.
    """
    try:
        kind = stat.S_IFMT(os.stat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if kind == stat.S_IFREG:
        return None
    if kind == stat.S_IFDIR:
        return "is a folder. Name a file in it."
    found = _KINDS.get(kind, "no regular file")
    return f"is {found}, and only a file is replaced. Name a file."


def check_target(path: str | os.PathLike[str]) -> None:
    """Raise unless `path` is a regular file or nothing yet."""
    fault = unwritable(path)
    if fault is not None:
        raise InvalidInputError(f"{os.fspath(path)} {fault}")


@contextmanager
def atomic_writer(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a new file that takes the place of `path` only when the block ends without error.

    A link keeps pointing where it did, and the file that it points to is replaced. The new file has
    the mode of the old one, and its owner where that is allowed. Nothing but a regular file is
    replaced.
    """
    check_target(path)
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{secrets.token_hex(8)}.nearfar-tmp")
    try:
        before = target.stat() if target.exists() else None
        # Of a file that is replaced nothing may be seen before it has the mode of the old one.
        mode = 0o666 if before is None else 0o600
        with open(temporary, "xb", opener=lambda file, flags: os.open(file, flags, mode)) as stream:
            if before is not None:
                _resemble(temporary, before)
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, target)
    except OSError as error:
        if error.errno is not None:  # name the file that was asked for, not the temporary one
            error.filename, error.filename2 = os.fspath(path), None
        raise
    finally:
        with suppress(OSError):  # it is in its place, or it was never made
            temporary.unlink()


def _resemble(path: Path, other: os.stat_result) -> None:
    """Give a file the owner, where that is allowed, and the permissions of another one."""
    if hasattr(os, "chown"):
        with suppress(PermissionError):  # only root gives files away
            os.chown(path, other.st_uid, other.st_gid)
    os.chmod(path, stat.S_IMODE(other.st_mode) & 0o777)


# -- contents --------------------------------------------------------------------------------------


def fingerprint(*parts: Any) -> str:
    """A digest of arrays, CSR arrays and plain values: equal for equal content."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        if sparse.issparse(part):
            digest.update(fingerprint(part.data, part.indices, part.indptr, part.shape).encode())
        elif isinstance(part, np.ndarray):
            digest.update(f"{part.dtype}{part.shape}".encode())
            digest.update(np.ascontiguousarray(part).tobytes())
        else:
            digest.update(f"{type(part).__name__}{part!r};".encode())
    return digest.hexdigest()


def row_hashes(X: Any) -> NDArray[np.uint64]:
    """A number for each row of points (n, d), the same for equal rows; by BLAKE2."""
    digests = bytearray()
    for first in range(0, len(X), 1024):
        block = np.ascontiguousarray(X[first : first + 1024], dtype=np.float64) + 0.0  # -0 is 0
        for row in block:
            digests += hashlib.blake2b(row.tobytes(), digest_size=8).digest()
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)
