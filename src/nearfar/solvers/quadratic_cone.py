"""A primal-dual interior point method for quadratic functions of a small matrix Z ⪰ 0.

The program is to minimise ½⟨Z, G(Z)⟩ − ⟨g, Z⟩ over Z ⪰ 0, with G ⪰ 0 a linear map of symmetric
matrices. Its slope S = G(Z) − g must be ⪰ 0 with ⟨S, Z⟩ = 0. With a target τ for the products:

(1) Z S = τI                                                    the central path
(2) ΔS = G(ΔZ) + R,  R = G(Z) − g − S                           S becomes the slope
(3) ΔZ = τS⁻¹ − Z − ½(Z ΔS S⁻¹ + S⁻¹ ΔS Z) − correction
(4) (I + H G) ΔZ = τS⁻¹ − Z − correction − H(R),  H(X) = ½(Z X S⁻¹ + S⁻¹ X Z)

(3) is the direction of Helmberg, Kojima and Monteiro, as in `nearfar.solvers.interior_point`. A
predictor (τ = 0) tells how far it goes, which sets τ for the corrector with Mehrotra's
second-order terms. Both matrices make the same step, as (2) is linear in both.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from nearfar.linalg import smat, svec, symmetric, symmetric_kronecker
from nearfar.solvers.run import Iterate

Matrix = NDArray[np.float64]

SHARE = 0.98  # of the way to the border of the cone
LEAST_TARGET = 1e-6  # relative to the mean product
SHORTEST = 1e-4  # step below which rounding errors allow no progress
LEAST_START = 1e-2  # of the first Z, relative to what g alone would let expect
EXHAUSTED = 1e-18  # mean product, relative to the first, below which nothing is left to gain
MARGIN = 1e-3  # of the first S, relative to the largest eigenvalue of the slope


class Program(Protocol):
    """What the solver asks of a program."""

    @property
    def G(self) -> Matrix:
        """(p, p), on svec."""

    @property
    def g(self) -> Matrix:
        """(p,)."""

    @property
    def size(self) -> int: ...  # noqa: D102
    def slope(self, Z: Matrix) -> Matrix: ...  # noqa: D102
    def certificate(self, Z: Matrix) -> Any: ...  # noqa: D102


def quadratic_cone(program: Program) -> Iterator[Iterate]:
    """Iterates Z of a program; it ends where rounding allows no further step.

    The residual is the certified relative gap of the program's own ``certificate``, which holds for
    its objective, here negated.
    """
    m, G = program.size, program.G
    Z = _start(program)
    slope = program.slope(Z)
    values = linalg.eigvalsh(slope)
    floor = max(0.0, -float(values[0])) + MARGIN * float(np.abs(values).max())
    S = slope + floor * np.eye(m)
    first = 0.0
    while True:
        certificate = program.certificate(Z)
        info = {"objective": certificate.objective, "bound": certificate.bound}
        yield Iterate(Z, -certificate.objective, certificate.gap, True, info, certified=True)
        mu = float(np.vdot(Z, S)) / m
        first = first or mu
        if mu <= EXHAUSTED * first:
            return
        inverse = symmetric(linalg.inv(S))
        H = symmetric_kronecker(Z, inverse)
        R = program.slope(Z) - S  # (2)
        factors = linalg.lu_factor(np.eye(len(program.g)) + H @ G)

        def direction(target: float, correction: Matrix) -> tuple[Matrix, Matrix]:
            right = svec(target * inverse - Z - correction) - H @ svec(R)  # noqa: B023
            step = linalg.lu_solve(factors, right)  # (4)  # noqa: B023
            return smat(step), smat(G @ step) + R  # noqa: B023

        dZ, dS = direction(0.0, np.zeros((m, m)))
        length = min(1.0, _reach(Z, dZ), _reach(S, dS))
        after = float(np.vdot(Z + length * dZ, S + length * dS)) / m
        target = mu * max(min(1.0, max(after, 0.0) / mu) ** 3, LEAST_TARGET)
        dZ, dS = direction(target, symmetric(dZ @ dS @ inverse))
        length = min(1.0, SHARE * _reach(Z, dZ), SHARE * _reach(S, dS))
        if not length > SHORTEST:
            return
        Z, S = Z + length * dZ, S + length * dS


def _start(program: Program) -> Matrix:
    """The best multiple of I, or a small one where all multiples are worse than zero."""
    one = svec(np.eye(program.size))
    size = float(np.linalg.norm(program.g)) * np.sqrt(program.size)
    best = max(float(program.g @ one), LEAST_START * size) or 1.0
    return best / float(one @ program.G @ one) * np.eye(program.size)


def _reach(A: Matrix, change: Matrix) -> float:
    """How far A + t·change stays positive definite; 0 where A is not."""
    try:
        least = float(linalg.eigh(change, A, eigvals_only=True, subset_by_index=[0, 0])[0])
    except linalg.LinAlgError:
        return 0.0
    return np.inf if least >= 0 else -1 / least
