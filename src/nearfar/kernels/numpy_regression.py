"""The kernel of `on_numpy` for regression by soft neighbours, which visits each pair once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearfar.kernels.numpy_similarities import SOFTMAX_ROWS, SOFTMAX_SHARES, softmax
from nearfar.kernels.parallel import in_threads
from nearfar.kernels.threads import n_threads
from nearfar.limits import check_time

Floats = NDArray[np.floating]
Index = NDArray[np.intp]
Matrix = NDArray[np.float64]

STRIPS = 8  # of the pairs of few points: half of the first square of each is computed in vain
STRIP_BYTES = 1 << 20  # of a strip at most, which then stays in the cache
HELD_BYTES = 1 << 24  # of all strips, if they are held for the second pass in a shared cache
# Exponents below which a weight is negligible unless all are, and totals that tell the latter: the
# smallest normal numbers are about exp(-87) in float32 and exp(-708) in float64.
VANISHING = {np.float32: (-80.0, 1e-25), np.float64: (-700.0, 1e-280)}


def kernel_regression(Z: Floats, U: Floats, y: Matrix) -> tuple[Matrix, Matrix]:
    """As in `nearfar.kernels.reference`.

    E_ij = exp(−‖zᵢ − zⱼ‖²) is symmetric. A first pass over the pairs i < j finds Sᵢ = Σⱼ E_ij and
    ŷᵢ = Σⱼ E_ij yⱼ / Sᵢ, and a second one the scatter, in which a pair counts both ways:

        w_ij + w_ji = E_ij (aᵢ + aⱼ − bᵢ yⱼ − bⱼ yᵢ)  with bᵢ = 2 (ŷᵢ − yᵢ) / Sᵢ and aᵢ = bᵢ ŷᵢ

    Exponents come from one matrix product in the dtype of Z, so that Z should be centred. Points of
    which all E_ij vanish are visited alone, their exponents shifted by their largest. Time
    O(n² (r + s)), memory O(STRIP_BYTES) a thread, HELD_BYTES, and SOFTMAX_SHARES times 2 n numbers.
    """
    (n, s), dtype = U.shape, Z.dtype
    table = _PairTable(Z, twice=s > 0)
    ones, column = np.ones(n, dtype), y.astype(dtype)
    # Large buffers are allocated here: memory that threads allocate stays in their heaps.
    buffers = [np.empty((2, table.entries), dtype) for _ in range(min(n_threads(), len(table)))]

    def totals_of(part: range) -> Matrix:
        sums, buffer = np.zeros((2, n)), buffers.pop()
        for number in part:
            E, rows = table.strip(number, buffer[0]), table.strips[number]
            for total, factor in zip(sums, (ones, column), strict=True):
                total[rows] += E @ factor[rows.start :]
                total[rows.start :] += factor[rows] @ E
        buffers.append(buffer)
        return sums

    work = n * n * Z.itemsize // 2
    found = in_threads(totals_of, table.parts, work * (Z.shape[1] + 2))
    total, weighted = np.sum(found, axis=0)
    far = np.flatnonzero(total < VANISHING[dtype.type][1])
    total[far] = np.inf  # their E_ij count for others, of which they are none of the nearest
    estimates = weighted / total
    b = 2 * (estimates - y) / total
    a = b * estimates
    alone = _ScatterSums(U)
    step = max(1, table.entries // n)
    for first in range(0, len(far), step):
        check_time()
        some = far[first : first + step]
        P = table.exponents(some, slice(0, n))
        softmax(P, some)
        estimates[some] = P @ column
        P *= (2 * (estimates[some] - y[some])).astype(dtype)[:, None]
        P *= estimates[some].astype(dtype)[:, None] - column
        alone.add(P, some, slice(0, n))
    if s == 0:
        return estimates, alone.scatter
    left = np.stack([a, np.ones(n), -b, -y], axis=1).astype(dtype)
    right = np.stack([np.ones(n), a, y, b]).astype(dtype)

    def scatter_of(part: range) -> _ScatterSums:
        sums, buffer = _ScatterSums(U), buffers.pop()
        for number in part:
            E, rows = table.strip(number, buffer[0]), table.strips[number]
            weights = buffer[1, : E.size].reshape(E.shape)
            np.matmul(left[rows], right[:, rows.start :], out=weights)
            weights *= E
            sums.add(weights, rows, slice(rows.start, n))
        buffers.append(buffer)
        return sums

    shares = [alone, *in_threads(scatter_of, table.parts, work * (s + 4))]
    return estimates, np.sum([share.scatter for share in shares], axis=0)


class _PairTable:
    """E_ij for i < j in strips: of some rows, with all columns from the first of them on.

    Strips that are asked for twice are held, if there is room for all of them.
    """

    def __init__(self, Z: Floats, *, twice: bool) -> None:
        n = len(Z)
        height = max(SOFTMAX_ROWS, min(-(-n // STRIPS), STRIP_BYTES // (n * Z.itemsize)))
        self.strips = [slice(first, min(first + height, n)) for first in range(0, n, height)]
        tasks = min(SOFTMAX_SHARES, len(self))  # strips become shorter, so that tasks take turns
        self.parts = [range(first, len(self), tasks) for first in range(tasks)]
        self.entries = min(height, n) * n  # of a strip
        self._later = np.triu(np.ones((min(height, n),) * 2, Z.dtype), 1)
        squares, one = np.einsum("ij,ij->i", Z, Z)[:, None], np.ones((n, 1), Z.dtype)
        # −‖zᵢ − zⱼ‖² is one product
        self._left, self._right = np.hstack([2 * Z, -one, -squares]), np.hstack([Z, squares, one]).T
        self._lowest, _ = VANISHING[Z.dtype.type]
        self._deep = -4 * float(squares.max()) < self._lowest  # no exponent is below this
        ends = np.cumsum(
            [0] + [(rows.stop - rows.start) * (n - rows.start) for rows in self.strips]
        )
        self._held, self._known = None, [False] * len(self)
        if twice and ends[-1] * Z.itemsize <= HELD_BYTES:
            self._held = np.split(np.empty(ends[-1], Z.dtype), ends[1:-1])

    def __len__(self) -> int:
        return len(self.strips)

    def exponents(self, rows: slice | Index, columns: slice, out: Floats | None = None) -> Floats:
        """−‖zᵢ − zⱼ‖²."""
        return np.matmul(self._left[rows], self._right[:, columns], out=out)

    def strip(self, number: int, buffer: Floats) -> Floats:
        """A strip of E, zero unless i < j: one that is held, or in the buffer."""
        rows, n = self.strips[number], self._right.shape[1]
        height, width = rows.stop - rows.start, n - rows.start
        entries = buffer if self._held is None else self._held[number]
        E: Floats = entries[: height * width].reshape(height, width)
        if not self._known[number]:
            check_time()
            self.exponents(rows, slice(rows.start, n), E)
            if self._deep:
                E.clip(self._lowest, 0.0, out=E)  # rounding of long points can be above 0
            np.exp(E, out=E)
            E[:, :height] *= self._later[:height, :height]
            self._known[number] = self._held is not None
        return E


class _ScatterSums:
    """Sums over pairs for Σ ω (uᵢ − uⱼ)(uᵢ − uⱼ)ᵀ = Uᵀ diag(d) U − H − Hᵀ."""

    def __init__(self, U: Floats) -> None:
        self._U, self._ones = U, np.ones(len(U), U.dtype)
        self._degrees, self._cross = np.zeros(len(U)), np.zeros((U.shape[1],) * 2)  # d and H

    def add(self, weights: Floats, rows: slice | Index, columns: slice) -> None:
        """Add pairs of some rows with consecutive columns, and their ω."""
        self._degrees[rows] += weights @ self._ones[columns]
        self._degrees[columns] += self._ones[rows] @ weights
        self._cross += self._U[rows].T @ (weights @ self._U[columns])

    @property
    def scatter(self) -> Matrix:
        """(s, s), of the pairs that were added."""
        found: Matrix = self._U.T @ (self._degrees[:, None] * self._U) - self._cross - self._cross.T
        return found
