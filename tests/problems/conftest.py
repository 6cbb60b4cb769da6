"""A small LMNN problem beside the same mathematics in plain loops over the original features."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from nearfar.kernels import kernels_for, reference
from nearfar.problems.lmnn import LMNNProblem
from tests.conic import solve_conic


@dataclass(frozen=True)
class Case:
    """Points sorted by class with their targets; M is a metric, C a factor, on the features."""

    X: np.ndarray
    starts: np.ndarray
    heads: np.ndarray
    tails: np.ndarray
    push_weight: float
    masses: np.ndarray | None = field(default=None, kw_only=True)  # weights; None if all are 1

    @cached_property
    def m(self) -> np.ndarray:
        return np.ones(len(self.X)) if self.masses is None else self.masses

    @cached_property
    def v(self) -> np.ndarray:
        """The weights of all triplets."""
        edge, impostor = self.triplets.T
        return self.m[self.heads[edge]] * self.m[impostor]

    @cached_property
    def labels(self) -> np.ndarray:
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))

    @cached_property
    def triplets(self) -> np.ndarray:
        """All (edge, impostor), in order."""
        return np.array(
            [
                (edge, impostor)
                for edge, head in enumerate(self.heads)
                for impostor in range(len(self.X))
                if self.labels[impostor] != self.labels[head]
            ]
        )

    def objective(self, M: np.ndarray) -> float:
        """(1−μ) Σ_ij m_i D(i, j) + μ Σ_ijl m_i m_l [1 + D(i, j) − D(i, l)]₊ as three loops."""
        X, labels, m = self.X.astype(np.float64), self.labels, self.m
        pull = push = 0.0
        for i, j in zip(self.heads, self.tails, strict=True):
            near = (X[i] - X[j]) @ M @ (X[i] - X[j])
            pull += m[i] * near
            for other in range(len(X)):
                if labels[other] != labels[i]:
                    far = (X[i] - X[other]) @ M @ (X[i] - X[other])
                    push += m[i] * m[other] * max(0.0, 1 + near - far)
        return (1 - self.push_weight) * pull + self.push_weight * push

    def differences(self, heads: np.ndarray, tails: np.ndarray) -> np.ndarray:
        """x_h − x_t in float64."""
        return self.X[heads].astype(np.float64) - self.X[tails]

    def lengths(self, C: np.ndarray, heads: np.ndarray, tails: np.ndarray) -> np.ndarray:
        """‖C(x_h − x_t)‖²."""
        return ((self.differences(heads, tails) @ C.T) ** 2).sum(axis=1)

    def slacks(self, C: np.ndarray) -> np.ndarray:
        """1 + D(i, j) − D(i, l) of all triplets."""
        edge, impostor = self.triplets.T
        near = self.lengths(C, self.heads, self.tails)[edge]
        return 1 + near - self.lengths(C, self.heads[edge], impostor)

    def smoothed(self, C: np.ndarray, prox: np.ndarray, width: float) -> float:
        """The objective with max over 0 ≤ α ≤ 1 of αs − (w/2)(α − a)² for [s]₊; a of all triplets.

        The maximum over α of a concave parabola is at a + s/w if that is in [0, 1], else at the
        nearer end.
        """
        slack = self.slacks(C)
        best = np.maximum(-(width / 2) * prox**2, slack - (width / 2) * (1 - prox) ** 2)
        free = prox + slack / width
        inside = (free > 0) & (free < 1)
        best[inside] = (prox * slack + slack**2 / (2 * width))[inside]
        pull = self.m[self.heads] @ self.lengths(C, self.heads, self.tails)
        return (1 - self.push_weight) * pull + self.push_weight * (self.v @ best)

    def outer(self, heads: np.ndarray, tails: np.ndarray, weights: Any) -> np.ndarray:
        """Σ w (x_h − x_t)(x_h − x_t)ᵀ."""
        difference = self.differences(heads, tails)
        return difference.T @ (difference * np.broadcast_to(weights, len(heads))[:, None])

    @property
    def P(self) -> np.ndarray:
        return (1 - self.push_weight) * self.outer(self.heads, self.tails, self.m[self.heads])

    def S(self, alpha: np.ndarray) -> np.ndarray:
        """μ Σ v α (C_il − C_ij), α of all triplets."""
        edge, impostor = self.triplets.T
        alpha = self.v * alpha
        pushed = self.outer(self.heads[edge], impostor, alpha)
        return self.push_weight * (pushed - self.outer(self.heads[edge], self.tails[edge], alpha))

    def spread(self, triplets: Any, values: Any) -> np.ndarray:
        """Values given for the problem's triplets, as values of all triplets."""
        keys = self.keys(triplets)
        found = dict(zip(keys, kernels_for(values).to_host(values), strict=True))
        assert len(found) == len(keys), "a triplet is named twice"
        everything = np.array([found.pop(tuple(key), 0.0) for key in self.triplets.tolist()])
        assert not found, "no such triplets"
        return everything

    def keys(self, triplets: Any) -> list[tuple[int, int]]:
        """The problem's triplets as (edge, impostor); their pairs must start at the edge's head."""
        host = kernels_for(triplets.edge).to_host
        edge, pair = host(triplets.edge), host(triplets.pair)
        heads, tails = host(triplets.heads), host(triplets.tails)
        np.testing.assert_array_equal(self.heads[edge], heads[pair])
        return list(zip(edge.tolist(), tails[pair].tolist(), strict=True))


def make_case(X, sizes, push_weight, k=3):
    starts = np.cumsum([0, *sizes])
    return Case(X, starts, *reference.nearest_in_class(X, starts, k), push_weight)


def build(case, backend=None):
    """The problem of a case, in NumPy or in the library of a backend."""
    X = case.X if backend is None else backend.asarray(case.X)
    kernels = kernels_for(X)
    edges = kernels.index(case.heads, X), kernels.index(case.tails, X)
    centre = kernels.double(X).mean(0)
    return LMNNProblem.build(X, centre, edges, case.starts, case.push_weight, masses=case.masses)


def svec(A):
    """The upper triangles of symmetric matrices (m, d, d) by columns, off the diagonal times √2, so
    that ⟨A, B⟩ = svec(A)·svec(B)."""
    columns, rows = np.tril_indices(A.shape[-1])
    return A[..., rows, columns] * np.where(rows == columns, 1.0, np.sqrt(2))


def by_clarabel(case):
    """min ⟨P, M⟩ + μ Σ v ξ over M ⪰ 0, ξ ≥ 0, ξ_t ≥ 1 − ⟨A_t, M⟩ with A_t = C_il − C_ij.

    Clarabel wants b − A x in a cone, here for x = (svec M, ξ): first ξ + ⟨A, M⟩ − 1 ≥ 0, then
    ξ ≥ 0, then M ⪰ 0.
    """
    import clarabel

    edge, impostor = case.triplets.T
    far = case.differences(case.heads[edge], impostor)
    near = case.differences(case.heads[edge], case.tails[edge])
    A = svec(far[:, :, None] * far[:, None, :] - near[:, :, None] * near[:, None, :])
    m, size = A.shape
    eye = sparse.eye(m)
    constraints = sparse.bmat([[-A, -eye], [None, -eye], [-sparse.eye(size), None]], format="csc")
    constants = np.concatenate([-np.ones(m), np.zeros(m + size)])
    cost = np.concatenate([svec(case.P[None])[0], case.push_weight * case.v])
    cones = [
        clarabel.NonnegativeConeT(2 * m),
        clarabel.PSDTriangleConeT(case.X.shape[1]),
    ]
    solution = solve_conic(cost, constraints, constants, cones)
    triangle = np.array(solution.x[:size])
    d = case.X.shape[1]
    columns, rows = np.tril_indices(d)
    M = np.zeros((d, d))
    M[rows, columns] = triangle / np.where(rows == columns, 1.0, np.sqrt(2))
    return solution.obj_val, M + np.triu(M, 1).T


@pytest.fixture(name="by_clarabel")
def by_clarabel_fixture():
    """Solves a case with an independent solver: objective and metric."""
    return by_clarabel


@pytest.fixture(name="make_case")
def make_case_fixture():
    return make_case


@pytest.fixture(name="build")
def build_fixture():
    return build


@pytest.fixture(params=[0.2, 0.5, 0.9], ids=lambda value: f"mu{value}")
def push_weight(request):
    return request.param


@pytest.fixture
def points(rng):
    """Overlapping classes of 7, 6, 1 and 3 points in four features of very different units."""
    sizes = (7, 6, 1, 3)
    X = rng.normal(size=(sum(sizes), 4)) + np.repeat(rng.normal(size=(4, 4)), sizes, axis=0)
    return X * [1.0, 30.0, 0.1, 2.0] + [5.0, -100.0, 0.0, 1.0], sizes


@pytest.fixture(params=[False, True], ids=["", "weighted"])
def case(points, push_weight, request):
    """Also with weights of the points, of mean 1."""
    found = make_case(*points, push_weight)
    masses = np.random.default_rng(1).uniform(0.1, 4, len(found.X))
    return replace(found, masses=masses / masses.mean()) if request.param else found


@pytest.fixture
def factor(case, rng):
    """Makes random factors on the features, of a scale that violates about half of the margins."""

    def factor(rows=3):
        C = rng.normal(size=(rows, case.X.shape[1])) / case.X.std(axis=0)
        edge, impostor = case.triplets.T
        typical = np.median(case.lengths(C, case.heads[edge], impostor))
        return C / np.sqrt(typical)

    return factor
