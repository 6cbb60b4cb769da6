"""Least absolute deviations in a second-order cone, for many small problems at once.

With A (k, v), G (q, v) and the cone Q = {u : u₀ ≥ ‖(u₁, …)‖}, for each of m problems:

(1) primal   minimise Σ(a⁺ + a⁻) + cᵀx  with  a⁺ − a⁻ = Ax + b,  a⁺, a⁻ ≥ 0,  u = Gx + h ∈ Q
(2) dual     maximise bᵀσ − hᵀz  with  c + Aᵀσ = Gᵀz,  −1 ≤ σ ≤ 1,  z ∈ Q
(3) path     a⁺(1 − σ) = τ,  a⁻(1 + σ) = τ,  u ∘ z = τe,  for τ falling to zero

∘ is the product of the cone's Jordan algebra, u ∘ z = (uᵀz, u₀z₁ + z₀u₁, …), and e = (1, 0, …) its
unit. The scaling of Nesterov and Todd is the symmetric W with Wz = W⁻¹u = λ. A step of Newton's
method towards (3), both sides staying feasible, is then a linear system in v unknowns:

(4) dσ = w(A dx − f),  w = 1 / (a⁺/(1 − σ) + a⁻/(1 + σ)),  f from the targets of a⁺ and a⁻
(5) dz = W⁻¹(t − W⁻¹G dx),  t from λ ∘ t = the target of the cone
(6) (Aᵀ diag(w) A + GᵀW⁻²G) dx = Aᵀ(wf) + GᵀW⁻¹t − (c + Aᵀσ − Gᵀz)

A predictor step with τ = 0 shows how far a step can go, which determines τ; Mehrotra's corrector
then adds the second-order terms of the predictor to the targets. Problems that are solved leave the
batch.

Why a cone: with u₀² ≥ ‖(u₁, …)‖² as a scalar constraint with a multiplier, (2) would be bilinear,
steps would not stay feasible, and one problem in a thousand would cycle.

The last axis of every array runs over the problems: x is (v, m). All operations are vectorised
along it, and the same code runs on NumPy arrays and torch tensors.

References
----------
Andersen, Roos & Terlaky, On implementing a primal-dual interior-point method for conic quadratic
optimization, Mathematical Programming 95 (2003).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import reduce
from typing import Any, Protocol, Self

from nearfar.linalg import ldl, ldl_solve

Array = Any

MOST_STEPS = 40
SHARE = 0.98  # of the way to the boundary of the cones
LEAST_LEFT = 0.05  # lower bound on the share of the products that the predictor leaves
RIDGE = 1e-13  # added to the unit diagonal of the scaled (6), which may be singular


class ConeDeviations(Protocol):
    """What the solver needs of m problems: the arrays of (1), a start, and a certificate.

    A (k, v, m), b (k, m), c (v, 1), G (q, v), h (q, 1). The start is an x (v, m) with u inside the
    cone, and a z (q, m) inside it that satisfies (2) with σ = 0. The gap (m,) bounds the distance
    of the objective from the optimum. ``numbers`` (m,) are the numbers of the problems, and
    ``take`` selects some of them.
    """

    @property
    def numbers(self) -> Array: ...  # noqa: D102
    @property
    def A(self) -> Array: ...  # noqa: D102
    @property
    def b(self) -> Array: ...  # noqa: D102
    @property
    def c(self) -> Array: ...  # noqa: D102
    @property
    def G(self) -> Array: ...  # noqa: D102
    @property
    def h(self) -> Array: ...  # noqa: D102
    def start(self) -> tuple[Array, Array]: ...  # noqa: D102
    def gap(self, x: Array, sigma: Array) -> Array: ...  # noqa: D102
    def take(self, chosen: Array) -> Self: ...  # noqa: D102


@dataclass(frozen=True)
class Deviations:
    """The best points found, and their duality gaps."""

    x: Array  # (v, m)
    sigma: Array  # (k, m)
    gap: Array  # (m,)


def least_deviations(problems: ConeDeviations, tol: float) -> Deviations:
    """Solve each problem until its gap is at most ``tol``, or rounding allows no further step.

    Time O(k v² + v³) for each step, of which a problem needs about ten.
    """
    state = _start(problems)
    gap = problems.gap(state.x, state.sigma)
    best = Deviations(1 * state.x, 1 * state.sigma, 1 * gap)
    for _ in range(MOST_STEPS):
        going = gap > tol  # False for nan: that problem broke down
        if not bool(going.any()):
            break
        if not bool(going.all()):
            problems, state = problems.take(going), state.take(going)
        state = _Newton(problems, state).step()
        gap, sigma = problems.gap(state.x, state.sigma), state.sigma
        better = gap < best.gap[problems.numbers]
        improved = problems.numbers[better]
        best.x[:, improved], best.sigma[:, improved] = state.x[:, better], sigma[:, better]
        best.gap[improved] = gap[better]
    return best


@dataclass(frozen=True)
class _State:
    """A point of each problem inside the cones of (1) and (2)."""

    x: Array  # (v, m)
    above: Array  # (k, m) a⁺
    below: Array  # (k, m) a⁻
    up: Array  # (k, m) 1 − σ
    down: Array  # (k, m) 1 + σ
    z: Array  # (q, m)

    @property
    def sigma(self) -> Array:
        return 0.5 * (self.down - self.up)

    def take(self, chosen: Array) -> _State:
        return _State(*(getattr(self, field.name)[:, chosen] for field in fields(self)))

    def moved(self, step: _Step, primal: Array, dual: Array) -> _State:
        return _State(
            self.x + primal * step.x,
            self.above + primal * step.above,
            self.below + primal * step.below,
            self.up - dual * step.sigma,
            self.down + dual * step.sigma,
            self.z + dual * step.z,
        )


def _start(problems: ConeDeviations) -> _State:
    x, z = problems.start()
    deviation = _times(problems.A, x) + problems.b
    ones = 0 * deviation + 1
    return _State(x, deviation.clip(0) + 1, (-deviation).clip(0) + 1, ones, ones, z)


@dataclass(frozen=True)
class _Step:
    """A direction; for the cone, also in scaled coordinates."""

    x: Array
    above: Array
    below: Array
    sigma: Array
    z: Array
    u: Array
    scaled_u: Array  # W⁻¹ du
    scaled_z: Array  # W dz


class _Newton:
    """Equations (4) to (6) at a point."""

    def __init__(self, problems: ConeDeviations, state: _State) -> None:
        self._problems, self._state = problems, state
        self._u = problems.G @ state.x + problems.h
        self._scaling = _Scaling.of(self._u, state.z)
        self._lambda = self._scaling(state.z)
        self._w = 1 / (state.above / state.up + state.below / state.down)
        M = self._matrix()
        v = range(len(M))
        self._D = M[v, v] ** -0.5
        M = M * self._D * self._D[:, None]
        M[v, v] += RIDGE
        self._factor = ldl(M)
        forces = _transposed_times(problems.A, state.sigma)
        self._residual = problems.c + forces - problems.G.T @ state.z

    def _matrix(self) -> Array:
        """The matrix of (6), (v, v, m)."""
        A, G = self._problems.A, self._problems.G
        weighted = self._w[:, None] * A
        mirrored = 1 * G
        mirrored[1:] = -G[1:]
        cone = self._scaling.inverse_square(G.T @ mirrored, G)
        for i in range(len(cone)):  # a row at a time: the arrays stay small
            cone[i] += (weighted[:, i, None] * A).sum(0)
        return cone

    def step(self) -> _State:
        """The next point."""
        state = self._state
        first = self._direction(0.0, None)
        products = _products(state, self._u)
        ends = self._reach(first, 1.0)
        left = _products(state.moved(first, *ends), self._u + ends[0] * first.u) / products
        tau = left.clip(LEAST_LEFT, 1) ** 3 * products / (2 * len(state.up) + 1)
        second = self._direction(tau, first)
        return state.moved(second, *self._reach(second, SHARE))

    def _direction(self, tau: Array, first: _Step | None) -> _Step:
        """Newton's direction towards products τ, with the correction of a predictor."""
        state, A, G = self._state, self._problems.A, self._problems.G
        above = tau - state.above * state.up
        below = tau - state.below * state.down
        cone = -_jordan(self._lambda, self._lambda)
        cone[0] += tau
        if first is not None:
            above = above + first.above * first.sigma
            below = below - first.below * first.sigma
            cone = cone - _jordan(first.scaled_u, first.scaled_z)
        f = above / state.up - below / state.down
        t = _divided(cone, self._lambda)
        right = _transposed_times(A, self._w * f) + G.T @ self._scaling.inverse(t) - self._residual
        dx = self._D * ldl_solve(self._factor, self._D * right)  # (6)
        sigma = self._w * (_times(A, dx) - f)  # (4)
        du = G @ dx
        scaled_u = self._scaling.inverse(du)
        scaled_z = t - scaled_u
        return _Step(
            dx,
            (above + state.above * sigma) / state.up,
            (below - state.below * sigma) / state.down,
            sigma,
            self._scaling.inverse(scaled_z),  # (5)
            du,
            scaled_u,
            scaled_z,
        )

    def _reach(self, step: _Step, share: float) -> tuple[Array, Array]:
        """Step lengths, at most 1: this share of the way to the boundaries of both cones."""
        state = self._state
        primal = _way(state.above, step.above).clip(max=_way(state.below, step.below))
        dual = _way(state.up, -step.sigma).clip(max=_way(state.down, step.sigma))
        primal = primal.clip(max=_way_in_cone(self._u, step.u))
        dual = dual.clip(max=_way_in_cone(state.z, step.z))
        return (share * primal).clip(0, 1), (share * dual).clip(0, 1)


def _times(A: Array, x: Array) -> Array:
    """Ax (k, m)."""
    return (A * x).sum(1)


def _transposed_times(A: Array, y: Array) -> Array:
    """Aᵀy (v, m)."""
    return (A * y[:, None]).sum(0)


def _products(state: _State, u: Array) -> Array:
    """The sum of all products (3)."""
    return (state.above * state.up + state.below * state.down).sum(0) + (u * state.z).sum(0)


def _way(values: Array, changes: Array) -> Array:
    """The largest t at which values + t·changes is positive; infinite if it always is."""
    steepest = reduce(lambda slope, other: slope.clip(min=other), -changes / values)
    return 1 / steepest.clip(0)


# -- the cone --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Scaling:
    """W = η [w₀, w₁ᵀ; w₁, I + w₁w₁ᵀ/(1 + w₀)] with w₀² − ‖w₁‖² = 1."""

    size: Array  # (m,) η
    w: Array  # (q, m)
    mirrored: Array  # (q, m) Jw: W⁻¹ is the same with it, and 1/η

    @classmethod
    def of(cls, u: Array, z: Array) -> _Scaling:
        """The one with Wz = W⁻¹u."""
        size_u, size_z = _determinant(u, u) ** 0.5, _determinant(z, z) ** 0.5
        u, z = u / size_u, _mirrored(z / size_z)
        w = (u + z) / (2 + 2 * _determinant(u, z)) ** 0.5
        return cls((size_u / size_z) ** 0.5, w, _mirrored(w))

    def __call__(self, v: Array) -> Array:
        return self.size * _boosted(self.w, v)

    def inverse(self, v: Array) -> Array:
        """W⁻¹v."""
        return _boosted(self.mirrored, v) / self.size

    def inverse_square(self, GJG: Array, G: Array) -> Array:
        """GᵀW⁻²G (v, v, m) of a matrix, by W⁻² = η⁻²(2 Jw wᵀJ − J)."""
        g = G.T @ self.mirrored
        return (2 * g * g[:, None] - GJG[..., None]) / (self.size * self.size)


def _boosted(w: Array, v: Array) -> Array:
    """(w₀v₀ + w₁ᵀv₁, v₁ + (v₀ + w₁ᵀv₁ / (1 + w₀)) w₁)."""
    inner = (w[1:] * v[1:]).sum(0)
    out = v + (v[0] + inner / (1 + w[0])) * w
    out[0] = w[0] * v[0] + inner
    return out


def _mirrored(u: Array) -> Array:
    """Ju = (u₀, −u₁, …)."""
    out = -u
    out[0] = u[0]
    return out


def _determinant(u: Array, v: Array) -> Array:
    """uᵀJv."""
    return u[0] * v[0] - (u[1:] * v[1:]).sum(0)


def _jordan(u: Array, v: Array) -> Array:
    """u ∘ v."""
    out = u[0] * v + v[0] * u
    out[0] = (u * v).sum(0)
    return out


def _divided(target: Array, u: Array) -> Array:
    """The t with u ∘ t = target."""
    first = _determinant(u, target) / _determinant(u, u)
    out = (target - first * u) / u[0]
    out[0] = first
    return out


def _way_in_cone(u: Array, du: Array) -> Array:
    """The largest t with u + t·du in the cone: the first root of its determinant."""
    constant, half, square = _determinant(u, u), _determinant(u, du), _determinant(du, du)
    under = half * half - constant * square
    slope = under.clip(0) ** 0.5 - half
    return constant / ((under >= 0) * slope).clip(0)
