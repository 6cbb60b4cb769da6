"""All work over pairs of points, and the only code that knows the device.

Three modules implement the same functions: `reference` (plain loops, the specification),
`on_numpy` and `on_torch`. Tests bind them together. `on_sparse` has those that CSR rows need.
Callers ask once which one to use::

    kernels = kernels_for(X)
    heads, tails = kernels.impostor_pairs(X, reach, starts)

Apart from these functions, callers may index arrays and use arithmetic, ``@``, ``.T``, ``.sum()``
and ``.clip()``, which NumPy arrays and torch tensors spell alike.

Shapes: points Z (n, r); edges are two index arrays ``heads`` and ``tails`` (m,); rows are sorted by
class, and class c holds the rows ``starts[c]:starts[c + 1]``.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from nearfar import limits
from nearfar.errors import InvalidInputError, MemoryLimitError, MissingExtraError
from nearfar.kernels.threads import single_threaded_blas
from nearfar.limits import allowed_gigabytes

__all__ = [
    "Array",
    "as_dtype_of",
    "check_memory",
    "free_memory",
    "gram_kernels_for",
    "held_memory",
    "is_torch",
    "kernels_for",
    "memory_error",
    "row_blocks",
    "single_threaded_blas",
    "take_rows",
    "to_device_of",
    "to_host",
    "transfer_to",
]

GIGABYTE = 1e9
BLOCK_ROWS = 1 << 16  # of which copies are made at a time

Array = Any
"""A NumPy array, a torch tensor on any device, or a CSR array where sparse input is taken."""


def is_torch(X: Any) -> bool:
    """Tell whether X is a torch tensor, of whatever subclass, without importing torch."""
    tensor = getattr(sys.modules.get("torch"), "Tensor", None)
    return tensor is not None and isinstance(X, tensor)


def kernels_for(X: Any) -> ModuleType:
    """Return the kernel module that computes where X lives."""
    if sparse.issparse(X):
        from nearfar.kernels import on_sparse

        return on_sparse
    if not is_torch(X):
        from nearfar.kernels import on_numpy

        return on_numpy
    try:
        from nearfar.kernels import on_torch
    except ImportError as error:  # pragma: no cover - a tensor without torch cannot be made
        raise MissingExtraError.for_extra("torch", "torch") from error
    return on_torch


def to_host(values: Any) -> NDArray[Any]:
    """Convert an array, a table, a sparse array or a tensor on any device to a NumPy array."""
    if sparse.issparse(values):
        return np.asarray(values.toarray())
    return np.asarray(kernels_for(values).to_host(values))


def row_blocks(X: Array) -> list[Array]:
    """The rows of X in blocks, so that what is computed of them takes the memory of one block."""
    return [X[first : first + BLOCK_ROWS] for first in range(0, len(X), BLOCK_ROWS)]


def take_rows(X: Array, rows: NDArray[np.intp]) -> Array:
    """Return rows of X, on its device."""
    return X[kernels_for(X).index(rows, X)]


def to_device_of(reference: Array, X: Array) -> Array:
    """Return X, a host array or one on the device of the reference, there and of its dtype."""
    return X if is_torch(X) else kernels_for(reference).like(X, reference)


def as_dtype_of(reference: Array, X: Array) -> Array:
    """Return X in the dtype of the reference, float32 or float64, on its device."""
    kernels = kernels_for(X)
    return kernels.single(X) if str(reference.dtype).endswith("float32") else kernels.double(X)


def free_memory(reference: Any) -> float:
    """Bytes that ``memory_limit`` leaves beside what is held on the device of the reference.

    Without a ``memory_limit``, those that are free there.
    """
    kernels, limit = gram_kernels_for(reference), allowed_gigabytes()
    if limit is None:
        return float(kernels.total_memory(reference))
    return limit * GIGABYTE - float(kernels.held_memory(reference))


def held_memory(reference: Any) -> float:
    """Bytes that all tensors have on the device of the reference; 0 on the host."""
    return float(gram_kernels_for(reference).held_memory(reference))


def transfer_to(device: str) -> Any:
    """What copies tensors to a device and back, see `nearfar.kernels.transfer`."""
    try:
        from nearfar.kernels.transfer import Transfer
    except ImportError as error:
        raise MissingExtraError.for_extra("torch", "torch") from error
    try:
        return Transfer(device)
    except (AssertionError, RuntimeError, TypeError) as error:  # torch has no class for these
        from nearfar.kernels.devices import torch_devices

        raise InvalidInputError(
            f"device {device!r} cannot be used here: {error!s:.200}. Give one of"
            f" {', '.join(torch_devices())}."
        ) from error


def check_memory(needed: float, what: str, remedy: str, reference: Any) -> None:
    """Raise if ``needed`` bytes are more than `free_memory`."""
    if needed > free_memory(reference):
        raise memory_error(needed, what, remedy, reference)


def memory_error(needed: float, what: str, remedy: str, reference: Any) -> MemoryLimitError:
    """The error that ``needed`` bytes are too many."""
    kernels, limit = gram_kernels_for(reference), allowed_gigabytes()
    other = "raise memory_limit"
    if limit is not None:
        above, held = f"the limit of {limit:.2g} GB", kernels.held_memory(reference) / GIGABYTE
        if held:
            above += f", of which tensors on the device hold {held:.2g} GB"
    else:
        known, total = limits.machine_memory() is not None, kernels.total_memory(reference)
        above = f"{'the available memory' if known else 'the limit'} of {total / GIGABYTE:.2g} GB"
        other = "use a machine with more memory" if known else other
    return MemoryLimitError(
        f"{what} needs about {needed / GIGABYTE:.2g} GB, above {above}. {remedy}, or {other}."
    )


def gram_kernels_for(X: Any) -> ModuleType:
    """Return the module of kernels on Gram matrices that computes where X lives."""
    if not is_torch(X):
        from nearfar.kernels import gram_numpy

        return gram_numpy
    from nearfar.kernels import gram_torch

    return gram_torch
