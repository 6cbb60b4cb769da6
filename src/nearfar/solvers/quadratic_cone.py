"""A primal-dual interior point method for quadratic functions of a small matrix Z ⪰ 0.

The program minimises ½⟨Z, G(Z)⟩ − ⟨g, Z⟩ over Z ⪰ 0, with G ⪰ 0 a linear map of symmetric matrices.
At the optimum the slope S = G(Z) − g is ⪰ 0, with ⟨S, Z⟩ = 0. With a target τ for the products:

(1) Z S = τI                                                    the central path
(2) ΔS = G(ΔZ) + R,  R = G(Z) − g − S                           S becomes the slope
(3) ΔZ = τS⁻¹ − Z − ½(Z ΔS S⁻¹ + S⁻¹ ΔS Z) − correction
(4) (I + H G) ΔZ = τS⁻¹ − Z − correction − H(R),  H(X) = ½(Z X S⁻¹ + S⁻¹ X Z)

(3) is the direction of Helmberg, Kojima and Monteiro, as in `nearfar.solvers.interior_point`;
`predictor_corrector` chooses τ and the correction. Both matrices take the same step length, since
(2) is linear in both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from nearfar.linalg import smat, svec, symmetric, symmetric_kronecker
from nearfar.solvers.predictor_corrector import Share, definite_step, predictor_corrector
from nearfar.solvers.quasi_newton import Bounded
from nearfar.solvers.run import Iterate

Matrix = NDArray[np.float64]

SHARE = Share(0.98)  # of the way to the boundary of the cone
SHORTEST = 1e-4  # step length below which rounding errors allow no progress
LEAST_START = 1e-2  # least size of the first Z, relative to the size that g suggests
EXHAUSTED = 1e-18  # mean product, relative to the first, below which nothing is left to gain
MARGIN = 1e-3  # of the first S, relative to the largest eigenvalue of the slope


class Certificate(Bounded, Protocol):
    """The certified gap of a point."""

    @property
    def bound(self) -> float: ...  # noqa: D102


class Program(Protocol):
    """What the solver needs of a program."""

    @property
    def G(self) -> Matrix:
        """(p, p), on svec."""

    @property
    def g(self) -> Matrix:
        """(p,)."""

    @property
    def size(self) -> int: ...  # noqa: D102
    def slope(self, Z: Matrix) -> Matrix: ...  # noqa: D102
    def certificate(self, Z: Matrix) -> Certificate: ...  # noqa: D102


def quadratic_cone(program: Program) -> Iterator[Iterate[None, None]]:
    """Iterates Z of a program, until rounding allows no further step.

    The residual is the certified relative gap of the program's ``certificate``; the value is its
    objective, negated.
    """
    Z = _start(program)
    slope = program.slope(Z)
    values = linalg.eigvalsh(slope)
    floor = max(0.0, -float(values[0])) + MARGIN * float(np.abs(values).max())
    S = slope + floor * np.eye(program.size)
    first = 0.0
    while True:
        certificate = program.certificate(Z)
        info = {"objective": certificate.objective, "bound": certificate.bound}
        yield Iterate(Z, -certificate.objective, certificate.gap, True, info, certified=True)
        try:
            system = _Newton(program, Z, S)
        except linalg.LinAlgError:  # rounding has left the cone
            return
        first = first or system.mu
        if system.mu <= EXHAUSTED * first:
            return
        step = predictor_corrector(system, SHARE)
        if not step.primal > SHORTEST:
            return
        Z, S = Z + step.primal * step.Z, S + step.dual * step.S


@dataclass(frozen=True)
class _Step:
    """A direction, and the step length of both matrices."""

    Z: Matrix
    S: Matrix
    primal: float = 0.0
    dual: float = 0.0


class _Newton:
    """Equations (2) to (4) at a point."""

    def __init__(self, program: Program, Z: Matrix, S: Matrix) -> None:
        self._G, self._Z, self._S = program.G, Z, S
        self._roots = linalg.cholesky(Z, lower=True), linalg.cholesky(S, lower=True)
        self._inverse = symmetric(linalg.cho_solve((self._roots[1], True), np.eye(len(S))))
        H = symmetric_kronecker(Z, self._inverse)
        self._R = program.slope(Z) - S  # (2)
        self._HR = H @ svec(self._R)
        self._factors = linalg.lu_factor(np.eye(len(program.g)) + H @ program.G)
        self.mu = float(np.vdot(Z, S)) / len(Z)

    def direction(self, target: float, predictor: _Step | None) -> _Step:
        """(2) and (3) for a target, with the correction of a predictor."""
        right = target * self._inverse - self._Z
        if predictor is not None:
            right = right - symmetric(predictor.Z @ predictor.S @ self._inverse)
        step = linalg.lu_solve(self._factors, svec(right) - self._HR)  # (4)
        return _Step(smat(step), smat(self._G @ step) + self._R)

    def limited(self, step: _Step, share: float) -> _Step:
        """The step with a length of this share of the way to the boundary, at most 1."""
        reach = min(definite_step(self._roots[0], step.Z), definite_step(self._roots[1], step.S))
        length = min(1.0, share * reach)
        return replace(step, primal=length, dual=length)

    def mean_product(self, step: _Step) -> float:
        """The mean product after a step."""
        product = np.vdot(self._Z + step.primal * step.Z, self._S + step.dual * step.S)
        return max(float(product), 0.0) / len(self._Z)


def _start(program: Program) -> Matrix:
    """The best multiple of I, or a small one if all multiples are worse than zero."""
    one = svec(np.eye(program.size))
    size = float(np.linalg.norm(program.g)) * np.sqrt(program.size)
    best = max(float(program.g @ one), LEAST_START * size) or 1.0
    return best / float(one @ program.G @ one) * np.eye(program.size)
