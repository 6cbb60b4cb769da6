"""The tiles of `nearfar.kernels.fused`, as Triton programs: its page of formulas explains them.

Each program computes the products of BM rows with many tiles of BN columns, and holds its rows.
Triton reads types off the arguments, so that the functions here have none.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def write_one(out):
    """Write 1: shows that Triton can compile and run here."""
    tl.store(out, 1)


@triton.jit
def _entries(H, rows, first, K: tl.constexpr, D: tl.constexpr):
    """Entries first … first + K − 1 of some rows of H (·, D)."""
    k = first + tl.arange(0, K)
    return tl.load(H + rows.to(tl.int64)[:, None] * D + k[None, :])


@triton.jit
def _held(A, rows, D: tl.constexpr, K1: tl.constexpr, K2: tl.constexpr):
    """The first K1 entries of some rows, and the next K2, if any."""
    one = _entries(A, rows, 0, K1, D)
    two = one
    if K2 > 0:
        two = _entries(A, rows, K1, K2, D)
    return one, two


@triton.jit
def _products(one, two, A, B, rows, columns, D: tl.constexpr, K1: tl.constexpr, K2: tl.constexpr):
    """Products of rows of A, of which ``one`` and ``two`` are held, with rows of B."""
    p = tl.dot(one, tl.trans(_entries(B, columns, 0, K1, D)))
    if K2 > 0:
        p = tl.dot(two, tl.trans(_entries(B, columns, K1, K2, D)), p)
    for k in range(K1 + K2, D, 64):
        p = tl.dot(_entries(A, rows, k, 64, D), tl.trans(_entries(B, columns, k, 64, D)), p)
    return p


@triton.jit
def mark(
    A, B, bar_a, half_a, bar_b, half_b, stops, bits,
    first_row, last_row, first_column, tiles, span, words,
    D: tl.constexpr, K1: tl.constexpr, K2: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BOTH: tl.constexpr,
):  # fmt: skip
    """Set the bits of all pairs that pass (4) by the bar of the row or, with BOTH, of the column.

    Columns before the stop of a row have no bit set.
    """
    rows = first_row + tl.program_id(0) * BM + tl.arange(0, BM)
    one, two = _held(A, rows, D, K1, K2)
    bar_row = tl.load(bar_a + rows)
    half_row = tl.load(half_a + rows)
    stop = tl.load(stops + rows)
    bit = 1 << (tl.arange(0, BN) % 32)
    word = tl.arange(0, BN // 32)
    lines = bits + (rows - first_row).to(tl.int64)[:, None] * words + word[None, :]
    inside = (rows < last_row)[:, None]
    first = tl.program_id(1) * span
    for tile in range(first, min(first + span, tiles)):
        begin = first_column + tile * BN
        columns = begin + tl.arange(0, BN)
        p = _products(one, two, A, B, rows, columns, D, K1, K2)
        hit = p >= bar_row[:, None] + tl.load(half_b + columns)[None, :]
        if BOTH:
            hit = hit | (p >= half_row[:, None] + tl.load(bar_b + columns)[None, :])
        spread = tl.where(hit, bit[None, :], 0)
        packed = tl.sum(tl.reshape(spread, (BM, BN // 32, 32)), 2)
        # No bits of columns before the stop: these may be some of a word, or all 32.
        before = tl.maximum(stop[:, None] - (begin + 32 * word)[None, :], 0)
        packed = tl.where(before < 32, packed & (-1 << tl.minimum(before, 31)), 0)
        tl.store(lines + tile * (BN // 32), packed, mask=inside)


@triton.jit
def best(
    A, B, far, out,
    first_row, last_row, tiles, span, chunks,
    D: tl.constexpr, K1: tl.constexpr, K2: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """The largest p − far of each row in each chunk of columns, as in (5)."""
    rows = first_row + tl.program_id(0) * BM + tl.arange(0, BM)
    one, two = _held(A, rows, D, K1, K2)
    top = tl.full((BM,), float("-inf"), tl.float32)
    chunk = tl.program_id(1)
    for tile in range(chunk * span, min((chunk + 1) * span, tiles)):
        columns = tile * BN + tl.arange(0, BN)
        p = _products(one, two, A, B, rows, columns, D, K1, K2)
        top = tl.maximum(top, tl.max(p - tl.load(far + columns)[None, :], 1))
    line = out + (rows - first_row).to(tl.int64) * chunks + chunk
    tl.store(line, top, mask=rows < last_row)
