"""Newton's method on positive definite matrices."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pytest
from scipy import linalg

from nearfar.solvers.newton_cg import newton_cg, newton_step


@dataclass(frozen=True)
class At:
    """tr(TB) − log det B at B = CᵀC: the optimum is B = T⁻¹, of value d + log det T."""

    T: np.ndarray
    C: np.ndarray
    gap = 1.0  # it proves nothing here

    @property
    def value(self):
        return float(np.vdot(self.C @ self.T, self.C) - 2 * np.linalg.slogdet(self.C)[1])

    @cached_property
    def gradient(self):
        return self.C @ self.T @ self.C.T - np.eye(len(self.C))

    def product(self):
        return lambda S: S

    def moved(self, S):
        try:
            return At(self.T, linalg.cholesky(np.eye(len(S)) + S) @ self.C)
        except linalg.LinAlgError:
            return None


@dataclass(frozen=True)
class Problem:
    T: np.ndarray

    def place(self, C):
        return At(self.T, C)


@pytest.mark.parametrize("scale", [0.1, 1.0, 1e4])
def test_the_optimum_is_the_inverse(rng, scale):
    """From B = I, wherever T is: steps that leave the cone are halved."""
    root = rng.normal(size=(4, 4))
    T = scale * (root @ root.T + np.eye(4))
    *_, last = newton_cg(Problem(T), np.eye(4))
    np.testing.assert_allclose(last.point.T @ last.point, np.linalg.inv(T), rtol=1e-6)
    assert last.value == pytest.approx(4 + np.linalg.slogdet(T)[1], rel=1e-9)


def test_values_fall(rng):
    root = rng.normal(size=(4, 4))
    values = [iterate.value for iterate in newton_cg(Problem(root @ root.T + np.eye(4)), np.eye(4))]
    assert (np.diff(values) <= 1e-12).all()
    assert len(values) < 30


def test_a_step_solves_its_system(rng):
    """H S = −G, up to the share that the size of G allows."""
    H = rng.normal(size=(9, 9))
    H = H @ H.T + np.eye(9)
    G = 1e-8 * rng.normal(size=(3, 3))

    def product(S):
        return (H @ S.ravel()).reshape(3, 3)

    S = newton_step(product, G)
    assert np.linalg.norm(product(S) + G) <= 1e-3 * np.linalg.norm(G)
