"""Fixtures for all tests.

A test that needs torch is marked `torch`, one that needs a CUDA device `gpu`; the marks alone
skip it, with the reason, where these are missing. NEARFAR_REQUIRE_TORCH=1 turns a skip for want
of torch into a failure. NEARFAR_TEST_SEEDS sets the seeds of every random test: "7", or "0-9".
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

# scikit-learn skips its array API checks unless this is set before SciPy is imported.
os.environ.setdefault("SCIPY_ARRAY_API", "1")

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.conic import solve_conic

DEFAULT_SEEDS = "42"
TESTS = Path(__file__).parent
SLOW_FOLDERS = {"benchmarks", "blocks", "campaign", "examples"}  # of tests


def require_torch() -> ModuleType:
    """The module torch; without it the test is skipped, or fails if torch must be there."""
    if importlib.util.find_spec("torch") is None:
        if os.environ.get("NEARFAR_REQUIRE_TORCH") == "1":
            pytest.fail("torch is not installed, but NEARFAR_REQUIRE_TORCH=1", pytrace=False)
        pytest.skip("torch is not installed: pip install 'nearfar[torch]'")
    return importlib.import_module("torch")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the tests of scripts, of campaigns and of clusters as slow."""
    if item.path.relative_to(TESTS).parts[0] in SLOW_FOLDERS:
        item.add_marker("slow")


def pytest_runtest_setup(item: pytest.Item) -> None:
    needs_gpu = item.get_closest_marker("gpu") is not None
    if needs_gpu or item.get_closest_marker("torch") is not None:
        torch = require_torch()
        if needs_gpu and not torch.cuda.is_available():
            pytest.skip("no CUDA device")


def _seeds() -> list[int]:
    first, _, last = os.environ.get("NEARFAR_TEST_SEEDS", DEFAULT_SEEDS).partition("-")
    return list(range(int(first), int(last or first) + 1))


@pytest.fixture(params=_seeds(), ids=lambda seed: f"seed{seed}")
def seed(request: pytest.FixtureRequest) -> int:
    """The seed of a random test, which must pass for every one of them."""
    return int(request.param)


@pytest.fixture
def rng(seed: int) -> np.random.Generator:
    """A generator seeded with `seed`."""
    return np.random.default_rng(seed)


@pytest.fixture
def global_random_state_kept() -> Iterator[None]:
    """The test fails if it draws from NumPy's global random state or sets it."""
    _, key, *rest = np.random.get_state()  # noqa: NPY002 - it is what must not change
    key = key.copy()
    yield
    _, key_after, *rest_after = np.random.get_state()  # noqa: NPY002
    assert rest_after == rest
    np.testing.assert_array_equal(key_after, key)


@pytest.fixture
def torch() -> ModuleType:
    """The module torch, for a test whose marks cannot say that it needs it."""
    return require_torch()


@dataclass(frozen=True)
class Backend:
    """An array library on a device, as far as a test needs to know it."""

    name: str
    device: str = "cpu"

    def asarray(self, array: NDArray[Any]) -> Any:
        """A copy of a NumPy array in this library, of the same dtype."""
        if self.name == "numpy":
            return array.copy()
        return require_torch().tensor(array, device=self.device)

    def to_numpy(self, array: Any) -> NDArray[Any]:
        """The array in NumPy; anything that is not this library's own fails the test."""
        if self.name == "numpy":
            assert isinstance(array, np.ndarray)
            return array
        assert isinstance(array, require_torch().Tensor)
        assert array.device.type == self.device
        return array.detach().cpu().numpy()


@pytest.fixture(
    params=[
        Backend("numpy"),
        pytest.param(Backend("torch"), marks=pytest.mark.torch),
        pytest.param(Backend("torch", "cuda"), marks=[pytest.mark.torch, pytest.mark.gpu]),
    ],
    ids=lambda backend: f"{backend.name}-{backend.device}",
)
def backend(request: pytest.FixtureRequest) -> Backend:
    """Runs the test on NumPy, on torch and on torch with CUDA."""
    return request.param


@pytest.fixture(params=[np.float32, np.float64], ids=["float32", "float64"])
def dtype(request: pytest.FixtureRequest) -> type[np.floating[Any]]:
    """Runs the test in both precisions."""
    return request.param


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    copy = np.array(array)
    copy.setflags(write=False)
    return copy


@pytest.fixture
def read_only() -> Callable[[NDArray[Any]], NDArray[Any]]:
    """Copies an array so that writing to the copy raises."""
    return _read_only


def _standardised(data: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    X = (data.data - data.data.mean(axis=0)) / data.data.std(axis=0)
    return _read_only(X), _read_only(data.target)


@pytest.fixture
def stopped_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time stands still in fits: ``max_seconds=0`` ends their iterations, and nothing is late."""
    from nearfar import limits

    monkeypatch.setattr(limits, "now", lambda: 1000.0)


@pytest.fixture(scope="session")
def iris() -> tuple[NDArray[Any], NDArray[Any]]:
    """Iris, standardised: X (150 x 4) and y, both read-only."""
    from sklearn.datasets import load_iris

    return _standardised(load_iris())


@pytest.fixture(scope="session")
def wine() -> tuple[NDArray[Any], NDArray[Any]]:
    """Wine, standardised: X (178 x 13) and y, both read-only."""
    from sklearn.datasets import load_wine

    return _standardised(load_wine())


@dataclass(frozen=True)
class CollapsingByLoops:
    """MCML of Globerson & Roweis, equations (1) to (6), one pair of points after the other.

    Points that are alone in their class have no p0(j|i) and choose nobody, but can be chosen.
    Distributions are matrices (n, n) with row i for p(.|i), zeros on the diagonal; A is a metric.
    ``regularization`` is lambda of (6), or a matrix R for <R, A> in place of lambda trace(A).
    ``floor`` is a multiple of the squared distance of the points that is added to that of A.
    ``weights`` of points are scaled to a mean of 1; a point counts so often, for itself and as a
    neighbour of others.
    """

    X: NDArray[Any]
    y: NDArray[Any]
    regularization: Any = 0.0
    floor: float = 0.0
    weights: Any = None

    @classmethod
    def shrunk(
        cls, X: Any, y: Any, shrinkage: float, weights: Any = None, *, nearest: int | None = None
    ) -> CollapsingByLoops:
        """Lambda r T / 8d and the floor r n / T, of a shrinkage r / (1 + r).

        T is over all of a class, or over the mean of so many of its nearest that differ.
        """
        plain = cls(np.asarray(X, np.float64), np.asarray(y), weights=weights)
        total, r = np.trace(plain.spread(plain.target)), shrinkage / (1 - shrinkage)
        if nearest is not None:
            total = 0.0
            for i in plain.anchors:
                mates = np.unique(plain.X[plain.y == plain.y[i]], axis=0)
                squares = np.sort(((mates - plain.X[i]) ** 2).sum(axis=1))[1 : nearest + 1]
                total += plain.masses[i] * (squares.mean() if len(squares) else 0.0)
        varies = int((plain.X[0] != plain.X).any(axis=0).sum())
        counted = plain.masses[plain.anchors].sum()
        return replace(plain, regularization=r * total / 8 / varies, floor=r * counted / total)

    @cached_property
    def masses(self) -> NDArray[np.float64]:
        """The weights, of mean 1."""
        if self.weights is None:
            return np.ones(len(self.X))
        return np.asarray(self.weights, np.float64) / np.mean(self.weights)

    @cached_property
    def ridge(self) -> NDArray[np.float64]:
        """R, which is lambda times the identity unless it is given."""
        R = np.asarray(self.regularization, np.float64)
        return R if R.ndim == 2 else R * np.eye(self.X.shape[1])

    @cached_property
    def anchors(self) -> list[int]:
        """Points with another one of their class."""
        return [i for i, label in enumerate(self.y) if np.sum(self.y == label) > 1]

    @cached_property
    def target(self) -> NDArray[np.float64]:
        """p0(j|i) of (3), scaled to sum to 1: 1 / (n_c - 1) for the others of a class of n_c."""
        p0 = np.zeros((len(self.X), len(self.X)))
        for i in self.anchors:
            mates = [j for j in range(len(self.X)) if j != i and self.y[j] == self.y[i]]
            p0[i, mates] = self.masses[mates] / self.masses[mates].sum()
        return p0

    def distance(self, A: NDArray[Any], i: int, j: int) -> float:
        """(1)"""
        difference = np.asarray(self.X[i], np.float64) - self.X[j]
        return float(difference @ A @ difference + self.floor * difference @ difference)

    def log_chosen(self, A: NDArray[Any]) -> NDArray[np.float64]:
        """log p(j|i) of (2), minus infinity on the diagonal and where nobody is chosen."""
        log_p = np.full((len(self.X), len(self.X)), -np.inf)
        for i in self.anchors:
            others = [j for j in range(len(self.X)) if j != i]
            energies = [np.log(self.masses[j]) - self.distance(A, i, j) for j in others]
            log_p[i, others] = np.array(energies) - np.logaddexp.reduce(energies)
        return log_p

    def chosen(self, A: NDArray[Any]) -> NDArray[np.float64]:
        """p(j|i) of (2)."""
        return np.exp(self.log_chosen(A))

    def objective(self, A: NDArray[Any]) -> float:
        """(4) and (6): sum over i of KL[p0(.|i) | p(.|i)], plus lambda trace(A)."""
        p0, log_p, total = self.target, self.log_chosen(A), 0.0
        for i, j in zip(*np.nonzero(p0), strict=True):
            total += self.masses[i] * p0[i, j] * (np.log(p0[i, j]) - log_p[i, j])
        return float(total + np.sum(self.ridge * A))

    def spread(self, weights: NDArray[Any]) -> NDArray[np.float64]:
        """Sum over i and j of m_i w(j|i) (x_j - x_i)(x_j - x_i)^T."""
        S = np.zeros((self.X.shape[1], self.X.shape[1]))
        for i, j in zip(*np.nonzero(weights), strict=True):
            difference = np.asarray(self.X[j], np.float64) - self.X[i]
            S += self.masses[i] * weights[i, j] * np.outer(difference, difference)
        return S

    def slack(self, q: NDArray[Any]) -> NDArray[np.float64]:
        """The matrix of (5), which must be positive semidefinite, with lambda I of (6) added.

        At q = p of A it is the gradient of the objective, section 2.2.
        """
        return self.spread(self.target) - self.spread(q) + self.ridge

    def gradient(self, A: NDArray[Any]) -> NDArray[np.float64]:
        """Of the objective, section 2.2 and (6)."""
        return self.slack(self.chosen(A))

    def entropy(self, q: NDArray[Any]) -> float:
        """(5): sum over i of H[q(.|i)] - H[p0(.|i)], and what the floor costs q less than p0."""
        kept = np.trace(self.spread(self.target)) - np.trace(self.spread(q))
        return self._entropy(q) - self._entropy(self.target) + self.floor * float(kept)

    def _entropy(self, p: NDArray[Any]) -> float:
        """Sum over anchors i of -m_i p(j|i) log(p(j|i) / m_j)."""
        total, m = 0.0, self.masses
        for i in self.anchors:
            total -= sum(m[i] * p[i, j] * np.log(p[i, j] / m[j]) for j in np.flatnonzero(p[i]))
        return float(total)

    def bound(self, q: NDArray[Any]) -> float:
        """(5), which lies below every objective if q is feasible; if not, the test fails.

        log Z_i >= H[q] - E_q[d] for any q, so that the objective at A is at least the entropy plus
        <slack(q), A>.
        """
        assert (q >= 0).all()
        assert not np.diag(q).any()
        np.testing.assert_allclose(q[self.anchors].sum(axis=1), 1, rtol=1e-12)
        scale = np.trace(self.spread(self.target) + self.ridge)
        assert np.linalg.eigvalsh(self.slack(q))[0] >= -1e-12 * scale
        return self.entropy(q)

    def by_clarabel(self) -> tuple[float, NDArray[np.float64]]:
        """Objective and metric of the optimum, by a general solver of conic programs.

        Minimise E_p0[d] + lambda trace(A) + sum over i of t_i over A, t and u with
        exp(-d_ij - t_i) <= u_ij, sum over j of u_ij <= 1, hence t_i >= log Z_i, and A psd.
        Clarabel wants b - M v in a cone, here for v = (triangle of A, t, u): first
        1 - sum over j of u_ij >= 0, then A psd, then (-d_ij - t_i, 1, u_ij) with x, y, z in the
        cone y exp(x / y) <= z. Off the diagonal the triangle holds A times the root of 2.
        """
        import clarabel
        from scipy import sparse

        d, m = self.X.shape[1], len(self.anchors)
        pairs = [(row, i, j) for row, i in enumerate(self.anchors) for j in range(len(self.X))]
        pairs = [(row, i, j) for row, i, j in pairs if i != j]
        columns, rows = np.tril_indices(d)
        scale = np.where(rows == columns, 1.0, np.sqrt(2))
        size = len(scale)
        sums = sparse.lil_matrix((m, size + m + len(pairs)))
        cones = sparse.lil_matrix((3 * len(pairs), size + m + len(pairs)))
        constants = np.zeros(m + size + 3 * len(pairs))
        constants[:m] = 1
        for number, (row, i, j) in enumerate(pairs):
            difference = np.asarray(self.X[i], np.float64) - self.X[j]
            sums[row, size + m + number] = self.masses[j]
            constants[m + size + 3 * number] = -self.floor * difference @ difference
            cones[3 * number, :size] = np.outer(difference, difference)[rows, columns] * scale
            cones[3 * number, size + row] = 1
            constants[m + size + 3 * number + 1] = 1
            cones[3 * number + 2, size + m + number] = -1
        psd = sparse.hstack([-sparse.eye(size), sparse.csc_matrix((size, m + len(pairs)))])
        pull = self.spread(self.target) + self.ridge
        counts = self.masses[self.anchors]
        cost = np.concatenate([pull[rows, columns] * scale, counts, np.zeros(len(pairs))])
        solution = solve_conic(
            cost,
            sparse.vstack([sums, psd, cones]),
            constants,
            [
                clarabel.NonnegativeConeT(m),
                clarabel.PSDTriangleConeT(d),
                *[clarabel.ExponentialConeT()] * len(pairs),
            ],
        )
        A = np.zeros((d, d))
        A[rows, columns] = np.array(solution.x[:size]) / scale
        constant = self._entropy(self.target) - self.floor * np.trace(self.spread(self.target))
        return solution.obj_val - float(constant), A + np.triu(A, 1).T


@pytest.fixture(scope="session")
def mcml_by_loops() -> type[CollapsingByLoops]:
    """MCML of (X, y, regularization) in plain loops, and its optimum by another solver."""
    return CollapsingByLoops


class NeighbourhoodsByLoops:
    """NCA of Goldberger et al., equations (1) to (5), one pair of points after the other."""

    @staticmethod
    def chosen(images: NDArray[Any], weights: Any = None) -> NDArray[np.float64]:
        """p_ij of (1), row i for the choice of point i, from the images Ax of the points.

        A point of weight w is chosen w times as often as one at its place of weight 1.
        """
        Z = np.asarray(images, np.float64)
        masses = np.ones(len(Z)) if weights is None else np.asarray(weights, np.float64)
        p = np.zeros((len(Z), len(Z)))
        for i in range(len(Z)):
            others = [j for j in range(len(Z)) if j != i]
            energies = [np.log(masses[j]) - np.sum((Z[i] - Z[j]) ** 2) for j in others]
            p[i, others] = np.exp(np.array(energies) - np.logaddexp.reduce(energies))
        return p

    @classmethod
    def objective(cls, images: NDArray[Any], y: NDArray[Any], weights: Any = None) -> float:
        """(2) and (3): the sum of p_ij over all i and the others j of its class.

        With weights, scaled to a mean of 1, each i counts so often.
        """
        p, total = cls.chosen(images, weights), 0.0
        masses = np.ones(len(p)) if weights is None else np.asarray(weights) / np.mean(weights)
        for i in range(len(p)):
            mates = [j for j in range(len(p)) if j != i and y[i] == y[j]]
            total += masses[i] * sum(p[i, j] for j in mates)
        return float(total)

    @classmethod
    def gradient(cls, A: NDArray[Any], X: NDArray[Any], y: NDArray[Any]) -> NDArray[np.float64]:
        """(5): 2A sum_i (p_i sum_k p_ik x_ik x_ik^T - sum_j in class p_ij x_ij x_ij^T)."""
        p = cls.chosen(X @ A.T)
        total = np.zeros((X.shape[1], X.shape[1]))
        for i in range(len(X)):
            mates = [j for j in range(len(X)) if j != i and y[i] == y[j]]
            share = p[i, mates].sum()
            for j in range(len(X)):
                if j != i:
                    weight = share * p[i, j] - (p[i, j] if j in mates else 0.0)
                    total += weight * np.outer(X[i] - X[j], X[i] - X[j])
        return 2 * A @ total


@pytest.fixture(scope="session")
def nca_by_loops() -> type[NeighbourhoodsByLoops]:
    """NCA in plain loops."""
    return NeighbourhoodsByLoops
