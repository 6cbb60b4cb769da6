"""The inverse of a sparse positive definite matrix by many small dense ones, on any device.

With the fronts F of `nearfar.graphs.fronts`, o the own rows of a part and b those of its border:

(1) factor  F_oo = LLᵀ,  M = [L⁻¹; −F_bo F_oo⁻¹],  and F_bb − F_bo F_oo⁻¹ F_ob is left
(2) up      y_o = L⁻¹ v_o,  and v_b − F_bo F_oo⁻¹ v_o is left: both are M v_o
(3) down    x_o = Mᵀ [y_o; x_b]

These are products of stacks of matrices, which a GPU is good at, and so is the host. All sums are
gathered, in a fixed order. [Duff & Reid, The multifrontal solution of indefinite sparse symmetric
linear equations, ACM Trans. Math. Softw. 9, 1983]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nearfar.graphs.fronts import Assembly, Level, Structure, analyse, transposed
from nearfar.kernels import Array, check_memory
from nearfar.kernels.batched import lower_factors, zeros
from nearfar.limits import check_time


@dataclass(frozen=True)
class Factored:
    """A stack with its M, all on the device."""

    own: Array  # (m, s)
    border: Array  # (m, b)
    below: Array | None  # (parts below, m, s + b)
    rows: slice  # that it leaves
    M: Array  # (m, s + b, s)


class Multifrontal:
    """The inverse of a sparse positive definite matrix, times (n, r), on the reference's device.

    Raises LinAlgError if the matrix is not positive definite. The memory is about that of the
    factor, with the zeros of small dense blocks.
    """

    def __init__(self, A: Any, reference: Array, structure: Structure | None = None) -> None:
        structure = analyse(A) if structure is None else structure
        self._reference = reference[:0]
        check_memory(
            8.0 * structure.factor_entries,
            f"the factor of a graph of {A.shape[0]} nodes",
            "Lower n_neighbors",
            self._reference,
        )
        assembly = Assembly(structure, A, reference)
        back = np.empty_like(structure.order)
        back[structure.order] = np.arange(len(back))
        self._order, self._back = assembly.index(structure.order), assembly.index(back)
        self._counts = [len(level.starts) for level in structure.levels]  # of rows left, and a 0
        self.levels = [self._factored(level, assembly) for level in structure.levels]

    def _factored(self, level: Level, assembly: Assembly) -> list[Factored]:
        """(1)."""
        found, left = [], []
        for stack in level.stacks:
            (m, s), b = stack.own.shape, stack.border.shape[1]
            M = zeros((m, s + b, s), self._reference)
            for part, F, _ in assembly.fronts(stack):
                inverse = lower_factors(F[:, :s, :s])[1]
                lower = F[:, s:, :s] @ transposed(inverse)
                M[part, :s] = inverse
                M[part, s:] = -(lower @ inverse)
                left.append((F[:, s:, s:] - lower @ transposed(lower)).reshape(-1))
            own, border = assembly.index(stack.own), assembly.index(stack.border)
            below = None if stack.below is None else assembly.index(stack.below)
            found.append(Factored(own, border, below, slice(stack.first, stack.first + m * b), M))
        assembly.finish_level(level, left)
        return found

    def __call__(self, G: Array) -> Array:
        """A⁻¹ G for G (n, r) on the device."""
        check_time()
        n, r = G.shape
        X = zeros((n + 1, r), self._reference)  # the last row stays zero
        X[:n] = G[self._order]
        left = X[n:]
        for stacks, count in zip(self.levels, self._counts, strict=True):
            leaving = zeros((count, r), self._reference)
            for at in stacks:
                V, s = X[at.own], at.own.shape[1]
                carried = None
                for rows in () if at.below is None else at.below:
                    carried = left[rows] if carried is None else carried + left[rows]
                Z = at.M @ (V if carried is None else V + carried[:, :s])
                if carried is not None:
                    Z[:, s:] += carried[:, s:]
                X[at.own] = Z[:, :s]
                leaving[at.rows] = Z[:, s:].reshape(-1, r)  # (2)
            left = leaving
        for stacks in reversed(self.levels):
            for at in stacks:
                s = at.own.shape[1]
                above = transposed(at.M[:, s:]) @ X[at.border]
                X[at.own] = transposed(at.M[:, :s]) @ X[at.own] + above  # (3)
        return X[self._back]
