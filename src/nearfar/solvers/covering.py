"""Interior-point method with a working set for semidefinite programs of many rank-one constraints.

For problems max over M ⪰ 0, tr M = d of min_t uₜᵀMuₜ + cₜ tr M over very many t, with cₜ ≥ 0 (see
`nearfar.problems.dml_eig`). The scale of M is free there, so they are covering problems: with
v = u/ν and b = c/ν² for some unit of length ν, Aₜ = vₜvₜᵀ + bₜI, and M = d N / tr N,

(1) primal   minimise tr N  over N ⪰ 0 with yₜ = ⟨Aₜ, N⟩ − 1 ≥ 0
(2) dual     maximise Σ βₜ  over β ≥ 0 with Z = I − Σ βₜ Aₜ ⪰ 0
(3) gap      tr N − Σ β = ⟨N, Z⟩ + Σ βₜ yₜ
(4) path     NZ = μI and βₜyₜ = μ, for μ falling to zero

Few constraints are tight at the optimum. Those in the working set, the rows of V (k, d), make a
small problem, however many there are in all. A step of Newton's method towards (4) that keeps both
N and β feasible solves one k × k system: with HKM's linearisation of NZ = μI

(5) dN = μZ⁻¹ − N − sym(N dZ Z⁻¹),  dZ = −Σ dβₜ Aₜ,  yₜ dβₜ + βₜ dyₜ = μ − βₜyₜ
(6) [S + diag(y/β)] dβ = μ/β + 1 − μ ⟨Aₜ, Z⁻¹⟩,  S_st = tr(AₛN AₜZ⁻¹), with h = diag(VNZ⁻¹Vᵀ):
    S = (VNVᵀ) ∘ (VZ⁻¹Vᵀ) + hbᵀ + bhᵀ + tr(NZ⁻¹) bbᵀ

The first term of S is a product of two, because vvᵀ has rank one. `predictor_corrector`
chooses μ; its corrections are the products dN dZ and dβ ∘ dy of the predictor.

From time to time all lengths are computed. The smallest length gives the multiple of N that
satisfies all constraints of (1); β is feasible in (2) for any working set. So both bound the
optimum, and the bounds meet as violated constraints are added.

References
----------
Helmberg, Rendl, Vanderbei & Wolkowicz, An interior-point method for semidefinite programming, SIAM
J. Optim. 6 (1996).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from nearfar.limits import check_time
from nearfar.linalg import symmetric
from nearfar.solvers.predictor_corrector import (
    Share,
    definite_step,
    positive_step,
    predictor_corrector,
)
from nearfar.solvers.run import Iterate

Array = Any
Index = NDArray[np.intp]
Matrix = NDArray[np.float64]

FIRST, ADDED = 4, 4  # size of the first working set, and of additions, for each row of N
FEWEST = 16  # least size of both
LOOSE, TIGHTEST, LOOSEST = 5.0, 0.05, 1.0
CLOSER = 0.3  # share of the gap to which the working-set problem is solved before all are measured
PRUNED = (1.0, 0.1, 0.01)  # a direction of N is dropped if N is below this share of Z there
MOST_STEPS = 50  # of Newton's method between two measurements
SHARE = Share(0.95)  # of the way to the boundary that a step may go
ROOM = 0.1  # largest slack that violated constraints get when they are added
SHORTEST_STEP = 1e-6  # of Newton's method, below which rounding errors dominate


class Weights(NamedTuple):
    """The certificate: weights of some constraints in the bound, and their numbers."""

    weights: Array
    numbers: Index | None  # None for all of them, in their order


class ManyConstraints(Protocol):
    """What the solver needs of a problem; see `nearfar.problems.dml_eig`."""

    @property
    def size(self) -> int: ...  # noqa: D102
    @property
    def trace(self) -> float: ...  # noqa: D102
    def lengths(self, L: Matrix) -> Array: ...  # noqa: D102
    def shortest(self, lengths: Array, count: int, below: float = np.inf) -> Index: ...  # noqa: D102
    def differences(self, numbers: Index) -> Matrix: ...  # noqa: D102
    def kept(self, numbers: Index) -> Matrix: ...  # noqa: D102


@dataclass(frozen=True)
class Interior:
    """A strictly feasible pair of (1) and (2) over the working set."""

    V: Matrix  # (k, d)
    b: Matrix  # (k,)
    N: Matrix  # (d, d)
    beta: Matrix  # (k,)

    @cached_property
    def slack(self) -> Matrix:
        """y of (1)."""
        return _products(self.V, self.b, self.N) - 1

    @cached_property
    def covered(self) -> Matrix:
        """I − Z of (2)."""
        return _combined(self.V, self.b, self.beta)

    @cached_property
    def Z(self) -> Matrix:
        """(2)."""
        return np.eye(len(self.N)) - self.covered

    @property
    def mu(self) -> float:
        """The mean of all products of (4)."""
        gap = np.vdot(self.N, self.Z) + self.beta @ self.slack
        return float(gap) / (len(self.N) + len(self.beta))

    @cached_property
    def bound(self) -> float:
        """Σβ of the largest feasible multiple of β."""
        top = len(self.N) - 1
        largest = linalg.eigvalsh(self.covered, subset_by_index=(top, top))[0]
        return float(self.beta.sum() / largest)

    @property
    def value(self) -> float:
        """tr N of the smallest multiple of N that is feasible for the working set."""
        return float(np.trace(self.N) / (1 + self.slack.min()))


def solve_covering_sdp(problem: ManyConstraints, tol: float) -> Iterator[Iterate[None, Weights]]:
    """Iterates towards the optimum: some steps of Newton's method, then all lengths are computed.

    The first is M = d uuᵀ/‖u‖² of the shortest u, which is the optimum if no other u is shorter
    under it. The point is a factor of the best M so far, the value is −min_t uₜᵀMuₜ, and the
    residual is the certified gap relative to the value. The certificate holds the weights of the
    bound, (6) of `nearfar.problems.dml_eig`, and the numbers of their constraints.
    """
    d, size = problem.trace, problem.size
    lengths = problem.lengths(np.eye(size))
    unit = float(lengths.min()) ** 0.5
    numbers = problem.shortest(lengths, max(FIRST * size, FEWEST))
    V, b = problem.differences(numbers) / unit, problem.kept(numbers) / unit**2
    beta = np.full(len(V), 0.5 / (linalg.norm(V) ** 2 + b.sum()))
    at, n_steps = Interior(V, b, 2 * np.eye(size), beta), 0
    L = V[:1]
    value, _ = _value_and_lengths(problem, L, unit)
    bound, weights = 1 / float(V[0] @ V[0] + b[0]), Weights(np.ones(1), numbers[:1])

    def iterate() -> Iterate[None, Weights]:
        objective = d * unit**2 / value
        info = {"objective": objective, "pairs_at_hand": len(at.V), "newton_steps": n_steps}
        point = d**0.5 / linalg.norm(L) * L
        return Iterate(point, -objective, gap, True, info, certificate=weights, certified=True)

    gap = max(value / bound - 1, 0.0)
    yield iterate()
    while True:
        before = gap
        at, n_steps, moved = _approach(at, CLOSER * max(min(gap, 1.0), tol))
        if at.bound > bound:
            bound, weights = at.bound, Weights(at.beta, numbers)
        factor = _factor(at.N)
        tried, lengths = _value_and_lengths(problem, factor, unit)
        if tried < value:
            value, L = tried, factor
        for share in PRUNED if value <= (1 + tol) * bound else ():
            pruned = _pruned(factor, at.Z, share)
            tried, _ = _value_and_lengths(problem, pruned, unit)
            if tried <= (1 + tol) * bound:
                value, L = tried, pruned
                break
        gap = max(value / bound - 1, 0.0)
        yield iterate()

        if gap < before:  # otherwise they might come and go forever
            loose = min(max(LOOSE * gap, TIGHTEST), LOOSEST)
            kept = at.slack < loose + (1 + loose) * at.slack.min()
            at = Interior(at.V[kept], at.b[kept], at.N, at.beta[kept])
            numbers = numbers[kept]
        most = max(ADDED * size, FEWEST)
        violated = problem.shortest(lengths, len(numbers) + most, unit**2)
        violated = violated[~np.isin(violated, numbers)][:most]
        if not moved and (len(violated) == 0 or not gap < before):
            return
        if len(violated):
            more = problem.differences(violated) / unit, problem.kept(violated) / unit**2
            at = _extended(at, *more)
            numbers = np.concatenate([numbers, violated])


def _value_and_lengths(problem: ManyConstraints, L: Matrix, unit: float) -> tuple[float, Array]:
    """tr N of the smallest feasible multiple of N = LᵀL, and all lengths uᵀNu."""
    lengths = problem.lengths(L)
    smallest = float(lengths.min()) / unit**2
    return float(np.vdot(L, L)) / smallest if smallest > 0 else np.inf, lengths


def _factor(N: Matrix) -> Matrix:
    """L with LᵀL = N and orthogonal rows."""
    values, vectors = linalg.eigh(N)
    kept = values > 0
    factor: Matrix = np.sqrt(values[kept])[:, None] * vectors[:, kept].T
    return factor


def _pruned(factor: Matrix, Z: Matrix, share: float) -> Matrix:
    """Rows of N's factor, without those that are small relative to Z: at the optimum NZ = 0."""
    values = np.vecdot(factor, factor)
    opposite = np.vecdot(factor @ Z, factor) / values
    kept = values >= share * opposite * values.sum()
    return factor[kept] if kept.any() else factor


def _extended(at: Interior, V: Matrix, b: Matrix) -> Interior:
    """Add constraints to the working set, and stay strictly feasible."""
    V, b = np.vstack([at.V, V]), np.concatenate([at.b, b])
    new = slice(len(at.V), None)
    squares = _products(V, b, at.N)
    room = min(max(1 - squares.min(), at.value / at.bound - 1), ROOM)
    scale = max((1 + room) / squares.min(), 1.0)
    beta = np.concatenate([at.beta, at.mu / (scale * squares[new] - 1)])
    # The new constraints reduce Z: by at most half of the room that scaling β makes.
    share = 0.5 * room / linalg.eigvalsh(_combined(V[new], b[new], beta[new]))[-1]
    beta[new] *= min(1.0, share)
    return Interior(V, b, scale * at.N, beta * (1 - room))


# -- towards the optimum over the working set ------------------------------------------------


def _approach(at: Interior, gap: float) -> tuple[Interior, int, bool]:
    """Take steps until the gap over the working set is small.

    Also returns the number of steps, and whether the gap became small.
    """
    for n_steps in range(MOST_STEPS):
        check_time()
        try:
            after, moved = _step(at)
        except linalg.LinAlgError:
            return at, n_steps, False
        if not moved:
            return at, n_steps, False
        at = after
        if at.value <= (1 + gap) * at.bound:
            return at, n_steps + 1, True
    return at, MOST_STEPS, False


def _step(at: Interior) -> tuple[Interior, bool]:
    """A step of Newton's method, and whether it is long enough to be useful."""
    step = predictor_corrector(_Newton(at), SHARE)
    N, beta = at.N + step.primal * step.N, at.beta + step.dual * step.beta
    after = Interior(at.V, at.b, N, beta)
    return after, max(step.primal, step.dual) > SHORTEST_STEP


@dataclass(frozen=True)
class _Step:
    """A direction, and how far N with y, and β with Z, may go along it."""

    N: Matrix
    Z: Matrix
    beta: Matrix
    y: Matrix
    primal: float = 0.0
    dual: float = 0.0


class _Newton:
    """Equations (5) and (6) at a point."""

    def __init__(self, at: Interior) -> None:
        if not (at.slack.min() > 0 and at.beta.min() > 0):
            raise linalg.LinAlgError("rounding errors have left the interior")
        self._at, self.mu = at, at.mu
        self._roots = linalg.cholesky(at.N, lower=True), linalg.cholesky(at.Z, lower=True)
        self._inverse = linalg.cho_solve((self._roots[1], True), np.eye(len(at.Z)))
        reach = at.V @ self._inverse @ at.V.T
        self._reach = np.diag(reach) + np.trace(self._inverse) * at.b  # ⟨A, Z⁻¹⟩
        system = (at.V @ at.N @ at.V.T) * reach  # (6)
        if at.b.any():
            mixed = at.N @ self._inverse
            along = np.vecdot(at.V @ mixed, at.V) + 0.5 * np.trace(mixed) * at.b
            # Only one triangle, the lower one in Fortran's order, is read below.
            system = linalg.blas.dsyr2(1.0, along, at.b, a=system.T, lower=1, overwrite_a=1)
        system[np.diag_indices_from(system)] += at.slack / at.beta
        self._system = linalg.cho_factor(system, lower=True, overwrite_a=True, check_finite=False)

    def direction(self, target: float, predictor: _Step | None) -> _Step:
        """(5) for a target, with the correction of a predictor."""
        at, inverse = self._at, self._inverse
        right = target / at.beta + 1 - target * self._reach
        N = target * inverse - at.N
        if predictor is not None:
            left = symmetric(predictor.N @ predictor.Z @ inverse)
            right += _products(at.V, at.b, left) - predictor.beta * predictor.y / at.beta
            N -= left
        beta = linalg.cho_solve(self._system, right)
        Z = -_combined(at.V, at.b, beta)
        N -= symmetric(at.N @ Z @ inverse)
        return _Step(N, Z, beta, _products(at.V, at.b, N))

    def limited(self, step: _Step, share: float) -> _Step:
        """The step with lengths that go this share of the way to the boundary, 1 at most."""
        at = self._at
        primal = min(definite_step(self._roots[0], step.N), positive_step(at.slack, step.y))
        dual = min(definite_step(self._roots[1], step.Z), positive_step(at.beta, step.beta))
        return replace(step, primal=min(1.0, share * primal), dual=min(1.0, share * dual))

    def mean_product(self, step: _Step) -> float:
        """The mean of all products of (4) after a step."""
        at, a, b = self._at, step.primal, step.dual
        matrices = np.vdot(at.N + a * step.N, at.Z + b * step.Z)
        vectors = (at.slack + a * step.y) @ (at.beta + b * step.beta)
        return max(float(matrices + vectors), 0.0) / (len(at.N) + len(at.beta))


def _products(V: Matrix, b: Matrix, N: Matrix) -> Matrix:
    """⟨A, N⟩ = vᵀNv + b tr N of each constraint."""
    products: Matrix = np.vecdot(V @ N, V) + b * np.trace(N)
    return products


def _combined(V: Matrix, b: Matrix, beta: Matrix) -> Matrix:
    """Σ β A over the constraints."""
    combined: Matrix = V.T @ (beta[:, None] * V) + float(beta @ b) * np.eye(V.shape[1])
    return combined
