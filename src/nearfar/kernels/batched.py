"""Many small problems at once, in blocks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg.lapack import dtrtri

from nearfar.kernels import Array, is_torch, kernels_for
from nearfar.kernels.parallel import in_threads
from nearfar.limits import check_time

HOST_ENTRIES = 1 << 18  # entries of the largest array of a block on the host: two megabytes
DEVICE_ENTRIES = 1 << 24  # the same on a GPU
TOUCHED = 100  # about how often a solver reads or writes each entry until it ends


def in_blocks(work: Callable[[slice], Array], m: int, entries: int, reference: Array) -> Array:
    """Results of the work on consecutive ranges of m problems, joined; in threads on the host.

    ``entries`` is the size of the largest array that one problem needs. Invalid floating-point
    operations do not warn: a problem that breaks down becomes nan.
    """
    on_card = is_torch(reference) and reference.is_cuda
    step = max(1, (DEVICE_ENTRIES if on_card else HOST_ENTRIES) // entries)
    parts = [slice(first, min(first + step, m)) for first in range(0, max(m, 1), step)]

    def quietly(part: slice) -> Array:
        check_time()
        with np.errstate(all="ignore"):
            return work(part)

    if is_torch(reference):
        found = [quietly(part) for part in parts]
    else:
        found = in_threads(quietly, parts, TOUCHED * reference.itemsize * m * entries)
    return kernels_for(reference).concatenate(found)


def eigh(A: Array) -> tuple[Array, Array]:
    """Eigenvalues (m, r), ascending, and vectors (m, r, r), in columns, of symmetric matrices."""
    if is_torch(A):
        import torch

        values, vectors = torch.linalg.eigh(A)
        return values, vectors
    return np.linalg.eigh(A)


def zeros(shape: tuple[int, ...], reference: Array) -> Array:
    """Zeros of the dtype and on the device of the reference."""
    return reference.new_zeros(shape) if is_torch(reference) else np.zeros(shape, reference.dtype)


def lower_factors(A: Array) -> tuple[Array, Array]:
    """L and L⁻¹ of positive definite matrices A = LLᵀ (m, r, r); LinAlgError if one is not."""
    if is_torch(A):
        import torch

        L, failed = torch.linalg.cholesky_ex(A)
        if bool(failed.any()):
            raise np.linalg.LinAlgError("a matrix is not positive definite")
        unit = torch.eye(A.shape[-1], dtype=A.dtype, device=A.device)
        return L, torch.linalg.solve_triangular(L, unit.expand_as(L), upper=False)
    L = np.linalg.cholesky(A)
    inverses = np.empty(A.shape, A.dtype)
    for factor, inverse in zip(L, inverses, strict=True):
        inverse[:] = dtrtri(factor, lower=1)[0] if len(factor) else factor
    return L, inverses
