"""Soft neighbours on CUDA in float32: exponents, weights and their products in one pass.

No table of weights is written. Tensor cores multiply float16, so a number is the sum of two:

(1) x = s(z − c) = h + l + e,  h = fl₁₆(x),  l = fl₁₆(x − h),  |e| <= 2⁻²² |x| + 2⁻²⁵

with s a power of 2 that brings the largest |x| to 2¹⁴ at most. A product of points has three parts,
hᵢ·hⱼ + hᵢ·lⱼ + lᵢ·hⱼ, each exact up to its sum in float32. What is left out, lᵢ·lⱼ, is also left
out of the squared norms, so that it cancels where points are near:

(2) s² D(i, j) = qᵢ + qⱼ − 2(hᵢ·hⱼ + hᵢ·lⱼ + lᵢ·hⱼ) + ‖lᵢ − lⱼ‖²,  q = ‖h‖² + 2 h·l

where the last term, at most 2⁻²⁰ of the largest of ‖x‖², is neglected. So D has about the error of
its computation in float32. With heights bⱼ = log₂ e (‖zⱼ‖² − log mⱼ) and p the product of (2) times
2 log₂ e / s²,

(3) Aᵢ = log₂ Σ_{j≠i} 2^(p − bⱼ),  the same for the own class: a first pass, with a running maximum
(4) w_ij = 2^(p − bⱼ − Aᵢ) fᵢⱼ, where f is one number for the class of i and one for all others

and p is symmetric: a second pass has w_ij and w_ji of a tile from one product. Weights are at most
1, also after rounding; times 2¹⁴ they are split as in (1), with an error of at most 2⁻²² of
themselves plus 2⁻³⁹.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nearfar.kernels import fused_tiles
from nearfar.kernels.fused import BLOCK, PADDING, SAMPLE, pieces, shared_memory
from nearfar.kernels.tiles import labels_of

Index = NDArray[np.intp]
Sums = tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]

MOST_FEATURES = 256  # of points, and of what is multiplied
WIDEST = 2.0**12  # largest entry relative to that of the median point
LARGEST = 14  # power of 2 of the largest entry
LOG2_E = float(np.log2(np.e))
BN = 32  # columns of a tile
STAGES = 2  # tiles that are loaded at a time


@dataclass(frozen=True)
class Pairs:
    """Rows as sums of two float16 numbers, by (1), with zeros behind the last."""

    high: Tensor  # (n + PADDING, D)
    low: Tensor  # (n + PADDING, D)
    scale: float

    @classmethod
    def of(cls, X: Tensor, D: int) -> Pairs | None:
        """Split rows; None if some are so large that others would lose digits."""
        sizes = X.abs().amax(1)
        largest, median = float(sizes.max()), float(sizes.median())
        if largest == 0 or largest > WIDEST * median:
            return None
        scale = float(np.ldexp(1.0, LARGEST - int(np.frexp(largest)[1])))
        high = torch.zeros((len(X) + PADDING, D), dtype=torch.float16, device=X.device)
        low = torch.zeros_like(high)
        step = max(1, BLOCK // X.shape[1])
        for first in range(0, len(X), step):
            part = slice(first, min(first + step, len(X)))
            x = X[part] * scale
            high[part, : X.shape[1]] = x
            low[part, : X.shape[1]] = x - high[part, : X.shape[1]].float()
        return cls(high, low, scale)

    def squares(self, n: int) -> Tensor:
        """q / s² of (2) for n rows, in float64."""
        high, low = self.high[:n].double(), self.low[:n].double()
        total: Tensor = (high * (high + 2 * low)).sum(1)
        return total / self.scale**2


def softmax_neighbors(
    Z: Tensor,
    Y: Tensor,
    starts: Index,
    own: bool,
    both: bool,
    masses: NDArray[np.float64] | None = None,
) -> Sums | None:
    """As `nearfar.kernels.on_torch.softmax_neighbors`.

    None if the points are not in float32, have too many features, also for the shared memory of the
    device, or are of too different sizes.
    Time O(n² (r + c)), memory O(n (r + c)).
    """
    (n, r), c, device = Z.shape, Y.shape[1], Z.device
    if Z.dtype != torch.float32 or not (0 < r <= MOST_FEATURES and 0 < c <= MOST_FEATURES):
        return None
    (K1, K2), (C1, C2) = pieces(r), pieces(c)
    BM = _tile_rows(K1 + K2, C1 + C2, shared_memory(Z))
    if BM is None:
        return None
    centre = Z[:: -(-n // SAMPLE)].median(0).values
    points, values = Pairs.of(Z - centre, K1 + K2), Pairs.of(Y, C1 + C2)
    if points is None or values is None:
        return None
    mass = torch.as_tensor(np.ones(n) if masses is None else masses, device=device)
    sizes = np.diff(starts)
    labels = labels_of(starts)
    firsts, stops = (
        _padded(torch.as_tensor(part[labels], dtype=torch.int32, device=device), 0)
        for part in (starts[:-1], starts[1:])
    )
    squares = points.squares(n)
    heights = _padded((LOG2_E * (squares - mass.log())).float(), torch.inf)
    alpha, tiles = 2 * LOG2_E / points.scale**2, -(-n // BN)
    shape = {"D": K1 + K2, "K1": K1, "K2": K2, "BM": BM, "BN": BN}
    options = {"num_warps": BM // 16, "num_stages": STAGES, "enable_fp_fusion": False}
    tops = torch.empty(n, dtype=torch.float32, device=device)
    totals = torch.empty(n, dtype=torch.float64, device=device)
    sames = torch.empty_like(totals)
    grid = (-(-n // BM),)
    with torch.cuda.device_of(Z):
        fused_tiles.softmax_rows[grid](
            points.high, points.low, heights, firsts, stops, tops, totals, sames, n, alpha, tiles,
            **shape, **options,
        )  # fmt: skip
    norms = tops.double() + totals.log2()  # (3)
    logs, shares = norms / LOG2_E - squares, sames / totals
    alone = torch.as_tensor(np.repeat(sizes == 1, sizes), device=device)
    same = torch.where(alone, 0.0, 1 - shares if own else torch.ones_like(shares))
    other = torch.where(alone, 0.0, -shares if own else torch.ones_like(shares))
    heaviest = float(mass.max())
    factors = [same, other, same * mass / heaviest, other * mass / heaviest]
    forward = torch.empty((n, C1 + C2), dtype=torch.float32, device=device)
    backward = torch.empty_like(forward) if both else forward
    degrees = torch.empty_like(totals)
    with torch.cuda.device_of(Z):
        fused_tiles.softmax_products[grid](
            points.high, points.low, values.high, values.low,
            heights, _padded(norms.float(), torch.inf), firsts, stops,
            *(_padded(factor.float(), 0.0) for factor in factors),
            forward, backward, degrees, n, alpha, tiles,
            C=C1 + C2, C1=C1, C2=max(C2, 16), BOTH=both, **shape, **options,
        )  # fmt: skip
    degrees *= heaviest
    if not own:
        degrees += ~alone * mass
    unit = 2.0**-14 / values.scale
    forward = forward[:, :c] * (unit * mass).float()[:, None]
    return logs, shares, degrees, forward, backward[:, :c] * (unit * heaviest) if both else None


def _tile_rows(D: int, C: int, memory: int) -> int | None:
    """Rows of a tile whose two parts fit into shared memory, with columns and values; or None."""
    fitting = (BM for BM in (128, 64) if memory >= 4 * (D * BM + STAGES * BN * (D + C)) + 1024)
    return next(fitting, None)


def _padded(values: Tensor, other: float) -> Tensor:
    return torch.nn.functional.pad(values, (0, PADDING), value=other)
