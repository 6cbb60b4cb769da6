"""How many eigenvalues of a sparse symmetric matrix are below a small number: proved by fronts.

With the fronts F of `nearfar.graphs.fronts`, o the own rows of a part and b those of its border:

(1) factor  F_oo = LLᵀ,  N = F_bo L⁻ᵀ,  and the matrix C = F_bb − NNᵀ is left
(2) error   of a front: what F differs from the sum it should be, F_oo from LLᵀ, F_bo from NLᵀ, and
            C from F_bb − NNᵀ, all as computed
(3) root    F + σvvᵀ = LLᵀ,  v = F1,  σ = −2 / 1ᵀF1 > 0

A is the sum of a positive semidefinite matrix, −σvvᵀ, and the errors (2) of all fronts: so at most
one eigenvalue is below −‖E‖, and ‖E‖ is at most the largest sum of |E| over a row. However L and N
were found, their errors are computed from them: a sum of k products differs from the computed one
by at most γ = ku / (1 − ku) times the sum of their sizes [Higham, section 3.1], in any order, with
fused operations or without. All is in float64, on the host or on a GPU.

If A has one eigenvalue below zero and x = 1 makes xᵀFx negative at the root, (3) is positive
definite: it reflects the one negative direction. That a front below the root is not positive
definite proves nothing; then the answer is no, too.

[Higham] Accuracy and stability of numerical algorithms, 2nd edition, SIAM 2002.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nearfar.graphs.fronts import Assembly, Stack, Structure, transposed
from nearfar.kernels import Array, kernels_for, to_host
from nearfar.kernels.batched import lower_factors, zeros

ROUNDOFF = float(np.finfo(np.float64).eps) / 2
ROOM = 1.01  # for rounding in the computed bounds themselves


def has_one_negative(A: Any, structure: Structure, allowed: float, reference: Array) -> bool:
    """Whether it is proved that at most one eigenvalue of A is below −``allowed``.

    The structure is that of A, or of a matrix with more entries. Computed where the reference is.
    """
    assembly, errors = Assembly(structure, A, reference), _RowSums(len(structure.order), reference)
    try:
        for level in structure.levels[:-1]:
            left = [
                _eliminated(F, sizes, stack, part, errors).reshape(-1)
                for stack in level.stacks
                for part, F, sizes in assembly.fronts(stack, measured=True)
            ]
            assembly.finish_level(level, left)
        (root,) = structure.levels[-1].stacks
        ((_, F, sizes),) = assembly.fronts(root, measured=True)
        _reflect(F, sizes, root, errors)
    except np.linalg.LinAlgError:  # a front is not positive definite
        return False
    return bool(ROOM * errors.largest <= allowed)


class _RowSums:
    """Sums of |E| over the rows of A, of all fronts."""

    def __init__(self, n: int, reference: Array) -> None:
        self._kernels, self._n = kernels_for(reference), n
        self._sums, self._reference = zeros((n + 1,), reference), reference[:0]

    def add(self, nodes: Any, sums: Array) -> None:
        """Add sums (m, r) over the rows of nodes (m, r); n stands for no node."""
        index = self._kernels.index(nodes.reshape(-1), self._reference)
        self._sums = self._sums + self._kernels.segment_sum(index, sums.reshape(-1), self._n + 1)

    @property
    def largest(self) -> float:
        """Over all rows; nan if one is not a number."""
        return float(to_host(self._sums[: self._n]).max())


def _eliminated(F: Array, sizes: Array, stack: Stack, part: slice, errors: _RowSums) -> Array:
    """C of (1); the errors (2) are added. ``sizes`` are those of the terms of F."""
    s = stack.own.shape[1]
    own, side, corner = F[:, :s, :s], F[:, s:, :s], F[:, s:, s:]
    L, inverse = lower_factors(own)
    N = side @ transposed(inverse)
    C = corner - N @ transposed(N)
    gamma = _gamma(s + 1)
    beside = abs(side - N @ transposed(L))
    columns = (abs(L).sum(1) + abs(N).sum(1))[:, :, None]  # of [L; N]
    in_own = abs(own - L @ transposed(L)).sum(2) + beside.sum(1)
    in_own = in_own + gamma * (abs(F[:, :, :s]).sum(1) + (abs(L) @ columns)[:, :, 0])
    in_border = beside.sum(2)
    in_border = in_border + gamma * (abs(F[:, s:]).sum(2) + (abs(N) @ columns)[:, :, 0])
    assembled = _gamma(1 if stack.below is None else len(stack.below)) * sizes
    errors.add(stack.own[part], in_own + assembled[:, :s])
    errors.add(stack.border[part], in_border + assembled[:, s:])
    return C


def _reflect(F: Array, sizes: Array, stack: Stack, errors: _RowSums) -> None:
    """(3); its errors are added, and LinAlgError is raised if it is not positive definite."""
    v = F.sum(2)  # (1, s)
    total = float(v.sum())
    if not total < 0:
        raise np.linalg.LinAlgError("the constants do not make the root's front negative")
    column = v[:, :, None] * (-2 / total) ** 0.5
    whole = F + column @ transposed(column)
    L = lower_factors(whole)[0]
    gamma = _gamma(F.shape[1] + 3)
    products = (abs(L) @ abs(L).sum(1)[:, :, None])[:, :, 0]
    products = products + (abs(column) * abs(column).sum(1)[:, None])[:, :, 0]
    sums = abs(whole - L @ transposed(L)).sum(2) + gamma * (abs(F).sum(2) + products)
    count = 1 if stack.below is None else len(stack.below)
    errors.add(stack.own, sums + _gamma(count) * sizes)


def _gamma(k: int) -> float:
    return k * ROUNDOFF / (1 - k * ROUNDOFF)
