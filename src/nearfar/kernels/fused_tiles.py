"""The tiles of `nearfar.kernels.fused`, as Triton programs: its page of formulas explains them.

Each program computes the products of BM rows with many tiles of BN columns, and holds its rows.
Triton reads types off the arguments, so that the functions here have none. It would compile a
program again for sizes that are 1 or multiples of 16: those that vary are not specialised.
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
def _lowest(count):
    """Words of which the lowest bits are set: as many as the count says, from none to all 32."""
    count = tl.maximum(count, 0)
    return tl.where(count < 32, (1 << tl.minimum(count, 31)) - 1, -1)


@triton.jit(do_not_specialize=["first_row", "last_row", "first_column", "tiles", "span", "words"])
def mark(
    A, bar_a, half_a, B, bar_b, half_b, firsts, stops, bits,
    first_row, last_row, first_column, tiles, span, words,
    D: tl.constexpr, K1: tl.constexpr, K2: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BOTH: tl.constexpr,
):  # fmt: skip
    """Set the bits of all pairs that pass (4) by the bar of the row or, with BOTH, of the column.

    Columns from the first of a row up to its stop have no bit set.
    """
    rows = first_row + tl.program_id(0) * BM + tl.arange(0, BM)
    one, two = _held(A, rows, D, K1, K2)
    bar_row = tl.load(bar_a + rows)
    half_row = tl.load(half_a + rows)
    excluded_from = tl.load(firsts + rows)[:, None]
    excluded_to = tl.load(stops + rows)[:, None]
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
        at = (begin + 32 * word)[None, :]
        packed &= _lowest(excluded_from - at) | ~_lowest(excluded_to - at)
        tl.store(lines + tile * (BN // 32), packed, mask=inside)


@triton.jit(do_not_specialize=["first_row", "last_row", "tiles", "span", "chunks"])
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


@triton.jit(do_not_specialize=["m"])
def edge_lengths(Z, heads, tails, out, m, r, EDGES: tl.constexpr, K: tl.constexpr):
    """‖z_h − z_t‖² along some of m edges."""
    e = tl.program_id(0).to(tl.int64) * EDGES + tl.arange(0, EDGES)
    head = tl.load(heads + e, mask=e < m, other=0).to(tl.int64)[:, None] * r
    tail = tl.load(tails + e, mask=e < m, other=0).to(tl.int64)[:, None] * r
    total = tl.zeros((EDGES, K), Z.dtype.element_ty)
    for first in range(0, r, K):
        k = first + tl.arange(0, K)[None, :]
        change = tl.load(Z + head + k, mask=k < r, other=0.0)
        change -= tl.load(Z + tail + k, mask=k < r, other=0.0)
        total += change * change
    tl.store(out + e, tl.sum(total, 1), mask=e < m)


@triton.jit(do_not_specialize=["m"])
def edge_products(Z, D, heads, tails, cross, square, m, r, EDGES: tl.constexpr, K: tl.constexpr):
    """(z_h − z_t)·(d_h − d_t) and ‖d_h − d_t‖² along some of m edges."""
    e = tl.program_id(0).to(tl.int64) * EDGES + tl.arange(0, EDGES)
    head = tl.load(heads + e, mask=e < m, other=0).to(tl.int64)[:, None] * r
    tail = tl.load(tails + e, mask=e < m, other=0).to(tl.int64)[:, None] * r
    product = tl.zeros((EDGES, K), Z.dtype.element_ty)
    total = tl.zeros((EDGES, K), Z.dtype.element_ty)
    for first in range(0, r, K):
        k = first + tl.arange(0, K)[None, :]
        change = tl.load(D + head + k, mask=k < r, other=0.0)
        change -= tl.load(D + tail + k, mask=k < r, other=0.0)
        apart = tl.load(Z + head + k, mask=k < r, other=0.0)
        apart -= tl.load(Z + tail + k, mask=k < r, other=0.0)
        product += apart * change
        total += change * change
    tl.store(cross + e, tl.sum(product, 1), mask=e < m)
    tl.store(square + e, tl.sum(total, 1), mask=e < m)


@triton.jit
def _pair_products(
    high1, high2, low1, low2, H, L, columns, D: tl.constexpr, K1: tl.constexpr, K2: tl.constexpr
):
    """(h + l)·(h' + l') less l·l', of rows that are held with rows of H and L."""
    high = tl.trans(_entries(H, columns, 0, K1, D))
    low = tl.trans(_entries(L, columns, 0, K1, D))
    p = tl.dot(high1, high)
    p = tl.dot(high1, low, p)
    p = tl.dot(low1, high, p)
    if K2 > 0:
        high = tl.trans(_entries(H, columns, K1, K2, D))
        low = tl.trans(_entries(L, columns, K1, K2, D))
        p = tl.dot(high2, high, p)
        p = tl.dot(high2, low, p)
        p = tl.dot(low2, high, p)
    return p


@triton.jit(do_not_specialize=["n", "tiles"])
def softmax_rows(
    H, L, heights, firsts, stops, tops, totals, sames, n, alpha, tiles,
    D: tl.constexpr, K1: tl.constexpr, K2: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """The largest exponent of each row, and the sums of (3) relative to it."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    high1, high2 = _held(H, rows, D, K1, K2)
    low1, low2 = _held(L, rows, D, K1, K2)
    first = tl.load(firsts + rows)[:, None]
    stop = tl.load(stops + rows)[:, None]
    top = tl.full((BM,), -1e30, tl.float32)
    total = tl.zeros((BM,), tl.float64)
    same = tl.zeros((BM,), tl.float64)
    for tile in range(0, tiles):
        columns = tile * BN + tl.arange(0, BN)
        p = _pair_products(high1, high2, low1, low2, H, L, columns, D, K1, K2)
        exponent = alpha * p - tl.load(heights + columns)[None, :]
        exponent = tl.where(rows[:, None] == columns[None, :], float("-inf"), exponent)
        peak = tl.maximum(top, tl.max(exponent, 1))
        part = tl.exp2(exponent - peak[:, None])
        mates = (columns[None, :] >= first) & (columns[None, :] < stop)
        shrink = tl.exp2(top - peak).to(tl.float64)
        total = total * shrink + tl.sum(part, 1).to(tl.float64)
        same = same * shrink + tl.sum(tl.where(mates, part, 0.0), 1).to(tl.float64)
        top = peak
    inside = rows < n
    tl.store(tops + rows, top, mask=inside)
    tl.store(totals + rows, total, mask=inside)
    tl.store(sames + rows, same, mask=inside)


@triton.jit
def _add_products(sums, weights, YH, YL, columns, first, C: tl.constexpr, WIDTH: tl.constexpr):
    """Sums plus the products of weights in [−1, 1], times 2¹⁴, with some entries of rows of Y."""
    scaled = weights * 16384.0
    high = scaled.to(tl.float16)
    low = (scaled - high.to(tl.float32)).to(tl.float16)
    y = _entries(YH, columns, first, WIDTH, C)
    sums = tl.dot(high, y, sums)
    sums = tl.dot(low, y, sums)
    return tl.dot(high, _entries(YL, columns, first, WIDTH, C), sums)


@triton.jit
def _store_entries(out, sums, rows, first, n, C: tl.constexpr, WIDTH: tl.constexpr):
    at = out + rows.to(tl.int64)[:, None] * C + (first + tl.arange(0, WIDTH))[None, :]
    tl.store(at, sums, mask=(rows < n)[:, None])


@triton.jit(do_not_specialize=["n", "tiles"])
def softmax_products(
    H, L, YH, YL, heights, norms, firsts, stops, row_same, row_other, column_same, column_other,
    forward, backward, degrees, n, alpha, tiles,
    D: tl.constexpr, K1: tl.constexpr, K2: tl.constexpr,
    C: tl.constexpr, C1: tl.constexpr, C2: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BOTH: tl.constexpr,
):  # fmt: skip
    """The sums of (4) over all columns: W Y, with BOTH also Wᵀ Y, and the column sums of W."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    high1, high2 = _held(H, rows, D, K1, K2)
    low1, low2 = _held(L, rows, D, K1, K2)
    first = tl.load(firsts + rows)[:, None]
    stop = tl.load(stops + rows)[:, None]
    height = tl.load(heights + rows)[:, None]
    norm = tl.load(norms + rows)[:, None]
    same = tl.load(row_same + rows)[:, None]
    other = tl.load(row_other + rows)[:, None]
    degree = tl.zeros((BM,), tl.float64)
    forward1 = tl.zeros((BM, C1), tl.float32)
    forward2 = tl.zeros((BM, C2), tl.float32)
    backward1 = tl.zeros((BM, C1), tl.float32)
    backward2 = tl.zeros((BM, C2), tl.float32)
    for tile in range(0, tiles):
        columns = tile * BN + tl.arange(0, BN)
        p = alpha * _pair_products(high1, high2, low1, low2, H, L, columns, D, K1, K2)
        p = tl.where(rows[:, None] == columns[None, :], float("-inf"), p)
        mates = (columns[None, :] >= first) & (columns[None, :] < stop)
        to_column = tl.where(mates, same, other)
        to_column *= tl.exp2(tl.minimum(p - tl.load(heights + columns)[None, :] - norm, 0.0))
        same_back = tl.load(column_same + columns)[None, :]
        to_row = tl.where(mates, same_back, tl.load(column_other + columns)[None, :])
        to_row *= tl.exp2(tl.minimum(p - tl.load(norms + columns)[None, :] - height, 0.0))
        degree += tl.sum(to_row, 1).to(tl.float64)
        forward1 = _add_products(forward1, to_column, YH, YL, columns, 0, C, C1)
        if C > C1:
            forward2 = _add_products(forward2, to_column, YH, YL, columns, C1, C, C2)
        if BOTH:
            backward1 = _add_products(backward1, to_row, YH, YL, columns, 0, C, C1)
            if C > C1:
                backward2 = _add_products(backward2, to_row, YH, YL, columns, C1, C, C2)
    tl.store(degrees + rows, degree, mask=rows < n)
    _store_entries(forward, forward1, rows, 0, n, C, C1)
    if C > C1:
        _store_entries(forward, forward2, rows, C1, n, C, C2)
    if BOTH:
        _store_entries(backward, backward1, rows, 0, n, C, C1)
        if C > C1:
            _store_entries(backward, backward2, rows, C1, n, C, C2)
