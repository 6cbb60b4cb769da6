"""The place of a new point in an embedding, from distances to its neighbours or weights of them.

The k training points nearest to a new point have places yᵢ (r,) and squared distances dᵢ to it;
bᵢ = ‖yᵢ‖² − dᵢ. Unknown are its place y and s, which stands for ‖y‖²:

(1) matrix    S = [[I, y], [yᵀ, s]] ⪰ 0  ⇔  s ≥ ‖y‖²                        [Thesis, eqs. 3.30-31]
(2) slack     ξᵢ = ŷᵢᵀSŷᵢ − dᵢ = s − 2yᵢᵀy + bᵢ,  ŷᵢ = (yᵢ, −1)             [Thesis, eqs. 3.32-33]
(3) minimise  Σ|ξᵢ| + s  over s ≥ ‖y‖²                                            [Thesis, 3.1.10]
(4) dual      maximise bᵀσ − ‖Σσᵢyᵢ‖² / μ  over −1 ≤ σ ≤ 1 with μ = 1 + Σσᵢ > 0
(5) stress    f(y) = Σ(‖y − yᵢ‖² − dᵢ)²                                         [Thesis, eq. 3.26]
(6) its least value, where the mean of the yᵢ is the origin, C = Σyᵢyᵢᵀ, g = Σbᵢyᵢ, b̄ = Σbᵢ/k:
              y = 2(4C + λI)⁻¹g  with  ‖y‖² = s,  s = λ/(2k) − b̄,  4C + λI ⪰ 0
(7) weights   minimise ‖x − Σωᵢxᵢ‖² + ρ tr(Γ) ‖ω‖²  with Σωᵢ = 1, then y = Σωᵢyᵢ           [SR03]
              Γᵢⱼ = (x − xᵢ)ᵀ(x − xⱼ) = ½(dᵢ + dⱼ − ‖xᵢ − xⱼ‖²),  (Γ + ρ tr(Γ) I)ω ∝ 1

Why (4) bounds (3): |ξᵢ| ≥ σᵢξᵢ, so Σ|ξᵢ| + s ≥ bᵀσ − 2(Σσᵢyᵢ)ᵀy + μs, and μs ≥ μ‖y‖²; the least
value of that over y is (4).

The origin matters in (3), since s pulls y towards it. If it is the mean of the yᵢ, all (y, s) with
ξ = 0 are optimal: σᵢ = −1/k has μ = 0 and Σσᵢyᵢ = 0, so that every objective is at least −b̄ = s. A
new point with the distances of a point y of the embedding, or of a point at any height h above it
(dᵢ = ‖y − yᵢ‖² + h², s = ‖y‖² + h²), is placed at y exactly. With an origin far away it is not.

The stress is not convex in y, but f = 4yᵀCy − 4gᵀy + k(s + b̄)² + constant is convex in (y, s), and
its only constraint is ‖y‖² = s. By (6) its Lagrangian with the multiplier λ is convex, and
stationary there: no place has less stress. λ is unique, since ‖y‖² falls with λ and s grows.
Directions in which the neighbours do not differ are left at zero: any other place would have a
mirror image that fits equally well.

[SR03] Saul & Roweis, Think globally, fit locally, JMLR 4 (2003).
[Thesis] Weinberger, Metric learning with convex optimization, University of Pennsylvania 2007.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Self

import numpy as np

from nearfar.kernels import Array, kernels_for
from nearfar.kernels.batched import eigh
from nearfar.linalg import ldl, ldl_solve

SHRUNK = 1e-12  # share by which σ is shrunk, which keeps μ of (4) above zero
NARROW = 1e-10  # variance of neighbours, relative to the largest, that is a rounding error
RIDGE = 1e-3  # ρ of (7)


@dataclass(frozen=True)
class Neighborhoods:
    """The neighbours of m new points, in float64 on one device. The last axis counts the points."""

    places: Array  # (k, r, m)
    squares: Array  # (k, m)
    numbers: Array  # (m,)

    @classmethod
    def of(cls, places: Array, squares: Array) -> Self:
        """All new points, with their numbers."""
        return cls(places, squares, kernels_for(places).arange(places.shape[2], places))

    def take(self, chosen: Array) -> Self:
        """Some of the new points, with their numbers."""
        return type(self)(self.places[..., chosen], self.squares[:, chosen], self.numbers[chosen])

    @cached_property
    def b(self) -> Array:
        """(k, m)."""
        return (self.places * self.places).sum(1) - self.squares


class OutOfSampleProgram(Neighborhoods):
    """The program (3) of each new point, as `nearfar.solvers.cone_deviations` takes it.

    x = (y, s), and (1) says that u = ((s + 1)/2, y, (s − 1)/2) is in the cone u₀ ≥ ‖(u₁, …)‖, since
    u₀² − ‖(u₁, …)‖² = s − ‖y‖².
    """

    @cached_property
    def A(self) -> Array:
        """(k, r + 1, m) with ξ = Ax + b."""
        ones = 0 * self.squares[None] + 1
        columns = [-2 * self.places.swapaxes(0, 1), ones]
        return kernels_for(ones).concatenate(columns).swapaxes(0, 1)

    @cached_property
    def c(self) -> Array:
        """(r + 1, 1) with s = cᵀx."""
        return kernels_for(self.places).like(np.eye(self.A.shape[1])[:, -1:], self.places)

    @cached_property
    def G(self) -> Array:
        """(r + 2, r + 1) with u = Gx + h."""
        G = np.eye(self.A.shape[1] + 1)[:, 1:]
        G[[0, -1], -1] = 0.5
        return kernels_for(self.places).like(G, self.places)

    @cached_property
    def h(self) -> Array:
        """(r + 2, 1)."""
        h = np.zeros((self.A.shape[1] + 1, 1))
        h[[0, -1]] = [[0.5], [-0.5]]
        return kernels_for(self.places).like(h, self.places)

    def start(self) -> tuple[Array, Array]:
        """y = 0 and s = 1 inside (1), and z = (2, 0, …) for σ = 0."""
        ones = 0 * self.squares[:1] + 1
        return self.c * ones, 4 * self.h.clip(0) * ones

    def value(self, x: Array) -> Array:
        """(3) at x (r + 1, m), with s raised to ‖y‖² where it is below."""
        y, s = x[:-1], x[-1]
        s = s.clip(min=(y * y).sum(0))
        return abs((self.A[:, :-1] * y).sum(1) + s + self.b).sum(0) + s

    def bound(self, sigma: Array) -> Array:
        """(4) at σ (k, m): no value (3) is below it."""
        centre = (self.places * sigma[:, None]).sum(0)
        return (self.b * sigma).sum(0) - (centre * centre).sum(0) / (1 + sigma.sum(0))

    def gap(self, x: Array, sigma: Array) -> Array:
        """The gap between (3) and (4)."""
        return self.value(x) - self.bound((1 - SHRUNK) * sigma)


@dataclass(frozen=True)
class LocalStress:
    """The stress (5) of each new point, along the axes of its neighbours.

    With t = λ + 4 min c, coordinate j of (6) is 2gⱼ / (4(cⱼ − min c) + t), for t ≥ 0.
    """

    axes: Array  # (m, r, r) eigenvectors of C, in columns
    pull: Array  # (r, m) 2g along the axes, 0 where the neighbours do not differ
    excess: Array  # (r, m) 4(c − min c), c being the eigenvalues of C
    lowest: Array  # (m,) 4 min c + 2k b̄, the t with s = 0
    k: int

    @classmethod
    def of(cls, near: Neighborhoods) -> LocalStress:
        """From neighbours with their mean at the origin."""
        rows = near.places.swapaxes(0, 2).swapaxes(1, 2)  # (m, k, r)
        c, axes = eigh(rows.swapaxes(1, 2) @ rows)
        c, b = c.T, near.b
        narrow = c <= NARROW * c[-1]
        c = c + narrow * (c[-1] - c)  # any but the least: its pull is zero
        pull = 2 * ((b.T[:, None] @ rows) @ axes)[:, 0].T * ~narrow
        least = reduce(lambda least, row: least.clip(max=row), c)
        return cls(axes, pull, 4 * (c - least), 4 * least + 2 * b.sum(0), len(b))

    def ends(self) -> tuple[Array, Array]:
        """Lower and upper bounds (m,) on the t of (6)."""
        size = (self.pull * self.pull).sum(0)  # ‖y‖² <= size / t²
        return 0 * size, self.lowest.clip(0) + (2 * self.k * size) ** (1 / 3)

    def surplus(self, t: Array) -> Array:
        """‖y‖² − s of (6), which decreases with t (m,)."""
        y = self._coordinates(t)
        return (y * y).sum(0) - (t - self.lowest) / (2 * self.k)

    def place(self, t: Array) -> Array:
        """y (r, m) of (6)."""
        return (self.axes @ self._coordinates(t).T[..., None])[..., 0].T

    def _coordinates(self, t: Array) -> Array:
        return self.pull / (self.excess + t + (self.pull == 0))


def reconstruction_weights(squares: Array, among: Array) -> Array:
    """ω of (7) (k, m), from the squared distances (k, m), and those among neighbours (k, k, m)."""
    C = 0.5 * (squares + squares[:, None] - among)
    diagonal = range(len(squares))
    trace = squares.sum(0)
    C[diagonal, diagonal] += RIDGE * trace + (trace == 0)
    weights = ldl_solve(ldl(C), 0 * squares + 1)
    return weights / weights.sum(0)
