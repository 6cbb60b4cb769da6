"""The interior-point method on vectors whose answer is known, and its working set."""

from dataclasses import dataclass

import numpy as np
import pytest

from nearfar.solvers import Status, covering, run
from nearfar.solvers.covering import Interior, solve_covering_sdp


@dataclass
class Vectors:
    """max over M ⪰ 0, tr M = d of min uᵀMu over given vectors; counts what was asked."""

    rows: np.ndarray
    constants: np.ndarray | float = 0.0
    n_looks: int = 0

    @property
    def size(self):
        return self.rows.shape[1]

    @property
    def trace(self):
        return float(self.size)

    def lengths(self, L):
        self.n_looks += 1
        return ((self.rows @ L.T) ** 2).sum(axis=1) + self.constants * (L * L).sum()

    def shortest(self, lengths, count, below=np.inf):
        order = np.argsort(lengths, kind="stable")
        return order[lengths[order] < below][:count]

    def differences(self, numbers):
        return self.rows[numbers]

    def kept(self, numbers):
        return np.broadcast_to(self.constants, len(self.rows))[numbers]


def solved(rows, tol=1e-8, constants=0.0, **limits):
    rows = np.asarray(rows, dtype=np.float64)
    problem = Vectors(rows, constants)
    return run(solve_covering_sdp(problem, tol), tol=tol, **{"max_iter": 200, **limits})


def metric(solution):
    """M of the factor."""
    return solution.iterate.point.T @ solution.iterate.point


def bound_of(rows, certificate):
    """d λ_max(Σ α uuᵀ) of the weights that an iterate carries."""
    weights, numbers = certificate
    assert (weights >= 0).all()
    rows = np.asarray(rows)[numbers]
    G = sum(w * np.outer(u, u) for w, u in zip(weights / weights.sum(), rows, strict=True))
    return rows.shape[1] * np.linalg.eigvalsh(G)[-1]


def test_constants_beside_the_vectors(rng):
    """⟨uuᵀ + cI, M⟩ = uᵀMu + c d: the bound and the optimality of 200 metrics, one by one."""
    rows, constants = rng.normal(size=(60, 4)), rng.uniform(0, 0.5, 60)
    solution = solved(rows, constants=constants)
    assert solution.status == Status.CONVERGED
    M = metric(solution)
    value = (np.einsum("ij,jk,ik->i", rows, M, rows) + 4 * constants).min()
    assert -solution.iterate.value == pytest.approx(value)
    weights, numbers = solution.iterate.certificate
    alpha = weights / weights.sum()
    G = rows[numbers].T @ (alpha[:, None] * rows[numbers]) + alpha @ constants[numbers] * np.eye(4)
    assert 4 * np.linalg.eigvalsh(G)[-1] == pytest.approx(value, rel=1e-7)
    for _ in range(200):
        L = rng.normal(size=(rng.integers(1, 5), 4))
        other = M + rng.uniform(0, 0.2) * (4 * L.T @ L / np.sum(L * L) - M)
        assert (np.einsum("ij,jk,ik->i", rows, other, rows) + 4 * constants).min() < value + 1e-6


# -- known answers -----------------------------------------------------------------------------


def test_one_vector_gets_all():
    """M = d uuᵀ/‖u‖²."""
    u = np.array([3.0, -1.0, 2.0])
    solution = solved([u])
    assert (solution.status, solution.n_iter) == (Status.CONVERGED, 1)
    np.testing.assert_allclose(metric(solution), 3 * np.outer(u, u) / (u @ u), atol=1e-6)
    assert -solution.iterate.value == pytest.approx(3 * (u @ u), rel=1e-8)


def test_orthogonal_vectors_share_by_their_inverse_squares():
    """M = diag(c/sᵢ²) makes all sᵢ²Mᵢᵢ equal to c = d / Σ sᵢ⁻²."""
    s = np.array([0.5, 1.0, 2.0, 7.0])
    solution = solved(np.diag(s))
    c = 4 / np.sum(s**-2)
    assert -solution.iterate.value == pytest.approx(c, rel=1e-8)
    np.testing.assert_allclose(metric(solution), np.diag(c / s**2), atol=1e-5)


def test_all_directions_of_a_plane_share_equally():
    """For unit vectors of all directions M = I is best, by symmetry; the value is 1."""
    angles = np.linspace(0, np.pi, 500)
    solution = solved(np.column_stack([np.cos(angles), np.sin(angles)]), 1e-4)
    assert -solution.iterate.value == pytest.approx(1, rel=1e-4)
    np.testing.assert_allclose(metric(solution), np.eye(2), atol=0.02)


def test_one_dimension():
    solution = solved([[2.0], [-0.5], [3.0]])
    assert -solution.iterate.value == pytest.approx(0.25)
    np.testing.assert_allclose(metric(solution), [[1.0]])


def test_equal_vectors_are_no_trouble(rng):
    rows = rng.normal(size=(3, 3))
    once, often = solved(rows), solved(np.repeat(rows, 40, axis=0))
    assert often.iterate.value == pytest.approx(once.iterate.value, rel=1e-7)


@pytest.mark.parametrize("scale", [1e-100, 1e-8, 1e8, 1e100])
def test_the_scale_does_not_matter(scale, rng):
    rows = rng.normal(size=(50, 4))
    one, other = solved(rows), solved(scale * rows)
    np.testing.assert_allclose(metric(other), metric(one), atol=1e-4)
    assert other.iterate.value / scale**2 == pytest.approx(one.iterate.value, rel=1e-7)


def test_a_much_shorter_vector_decides(rng):
    rows = rng.normal(size=(200, 5))
    rows[17] *= 1e-6
    solution = solved(rows, 1e-6)
    assert solution.status is Status.CONVERGED
    assert bound_of(rows, solution.iterate.certificate) < 5 * (rows[17] @ rows[17]) * (1 + 1e-5)


# -- what is proved ----------------------------------------------------------------------------


def test_every_iterate_is_feasible_and_proves_its_gap(rng):
    """From the point and the weights alone: trace, value, bound and gap of each."""
    rows = rng.normal(size=(4000, 6)) * [1, 1, 2, 2, 5, 5]
    gaps, values, best = [], [], np.inf
    for iterate in solve_covering_sdp(Vectors(rows), 1e-6):
        M = iterate.point.T @ iterate.point
        assert np.trace(M) == pytest.approx(6)
        value = np.einsum("ij,jk,ik->i", rows, M, rows).min()
        assert iterate.info["objective"] == -iterate.value == pytest.approx(value, rel=1e-9)
        best = min(best, bound_of(rows, iterate.certificate))
        assert iterate.residual == pytest.approx(best / value - 1, rel=1e-6, abs=1e-9)
        gaps.append(iterate.residual)
        values.append(value)
        if iterate.residual <= 1e-6:
            break
    assert (np.diff(gaps) <= 0).all()
    assert (np.diff(values) >= -1e-12).all()
    assert len(gaps) < 30


def test_rounding_errors_end_it(rng):
    """No gap is below zero, so that the generator must end by itself."""
    solution = solved(rng.normal(size=(300, 5)), tol=0)
    assert solution.status in (Status.STALLED, Status.CONVERGED)
    assert solution.iterate.residual < 1e-7


def test_directions_that_fade_are_dropped_where_the_gap_allows(rng):
    """Vectors near a plane are longest under a metric of rank two, but for rounding."""
    angles = rng.uniform(0, np.pi, 400)
    rows = 1e-3 * rng.normal(size=(400, 6))
    rows[:, :2] += rng.uniform(1, 2, (400, 1)) * np.column_stack([np.cos(angles), np.sin(angles)])
    solution = solved(rows, 1e-3)
    assert len(solution.iterate.point) == 2
    assert solution.iterate.residual <= 1e-3


# -- the working set ---------------------------------------------------------------------------


def test_few_of_many_constraints_are_at_hand(rng):
    rows = rng.normal(size=(100_000, 5))
    problem = Vectors(rows)
    solution = run(solve_covering_sdp(problem, 1e-4), tol=1e-4, max_iter=100)
    assert solution.status is Status.CONVERGED
    assert max(record["pairs_at_hand"] for record in solution.history) < 200
    assert problem.n_looks <= solution.n_iter + 1 + len(covering.PRUNED)


def test_new_constraints_leave_the_interior_feasible(rng):
    V = rng.normal(size=(12, 4))
    at = Interior(V, np.zeros(12), 10 * np.eye(4), np.full(12, 0.01))
    at = covering._approach(at, 0.01)[0]
    more = 0.3 * rng.normal(size=(9, 4))
    assert (np.vecdot(more @ at.N, more) < 1).any()
    wider = covering._extended(at, more, np.zeros(len(more)))
    np.testing.assert_array_equal(wider.V, np.vstack([at.V, more]))
    assert wider.slack.min() > 0
    assert wider.beta.min() > 0
    assert np.linalg.eigvalsh(wider.Z)[0] > 0


def test_steps_stay_in_the_interior_and_close_the_gap(rng):
    """tr N − Σβ = ⟨N, Z⟩ + Σ β y at each, falling to zero."""
    V = rng.normal(size=(30, 5))
    at = Interior(V, np.zeros(30), 10 * np.eye(5), np.full(30, 0.5 / np.sum(V**2)))
    gaps = []
    for _ in range(12):
        at, moved = covering._step(at)
        assert moved
        assert at.slack.min() > 0
        assert at.beta.min() > 0
        assert np.linalg.eigvalsh(at.N)[0] > 0
        assert np.linalg.eigvalsh(at.Z)[0] > 0
        gap = np.trace(at.N) - at.beta.sum()
        assert gap == pytest.approx((5 + 30) * at.mu, rel=1e-6, abs=1e-12)
        gaps.append(gap)
    assert (np.diff(gaps) < 0).all()
    assert gaps[-1] < 1e-6 * gaps[0]
    assert at.bound <= at.value * (1 + 1e-12)


def test_outside_the_interior_there_is_no_step():
    at = Interior(np.eye(2), np.zeros(2), np.eye(2), np.full(2, 0.1))  # a slack of zero
    assert covering._approach(at, 1e-3) == (at, 0, False)
