"""KernelMMC's problem on features that outnumber what an answer needs: whitening, and few rows."""

import numpy as np
import pytest

from nearfar import KernelMMC
from nearfar.kernels import on_numpy
from nearfar.problems import kernel_mmc
from nearfar.problems.kernel_mmc import KernelMMCProblem
from nearfar.problems.mmc import MMCProblem
from nearfar.problems.near_pairs import ratio
from nearfar.supervision import Pairs

N, SHRINKAGE = 90, 0.4


def drawn(rng, E, n_near=120, n_far=100):
    heads, tails = rng.integers(0, len(E), (2, n_near + n_far))
    tails = np.where(heads == tails, (tails + 1) % len(E), tails)
    return Pairs(E, heads, tails, np.arange(n_near + n_far) < n_near)


def features(rng, n=N):
    """Principal components of n points in n − 1 directions, as a kernel of full rank gives them."""
    left = np.linalg.svd(rng.normal(size=(n, n)) - 0.1)[0]
    left -= left.mean(axis=0)
    left = np.linalg.svd(left)[0][:, : n - 1]
    return left * np.geomspace(3.0, 0.03, n - 1)


def problem_of(pairs, shrinkage=SHRINKAGE):
    E = pairs.points
    return KernelMMCProblem.of(
        pairs,
        np.arange(len(E)),
        E,
        shrinkage,
        lambda components: E @ components.T,
        lambda components: float(np.vdot(components, components)),
    )


def scatter(pairs, regularization):
    heads, tails = pairs.near_edges()
    x = pairs.points[heads] - pairs.points[tails]
    H = x.T @ x
    return H + regularization * np.trace(H) / len(H) * np.eye(len(H))


def whitening(pairs, regularization, by=KernelMMCProblem):
    points = pairs.points - pairs.points[0]
    return by._whitened(on_numpy, points, pairs, pairs.far_edges(), regularization, None)


def test_whitening_by_one_factor(rng, monkeypatch):
    """RᵀHR = I, and no eigenvectors are needed."""
    pairs, regularization = drawn(rng, features(rng)), ratio(SHRINKAGE)
    expected = np.linalg.inv(scatter(pairs, regularization))
    careful = whitening(pairs, regularization, MMCProblem)
    monkeypatch.setattr("nearfar.problems.near_pairs.linalg.eigh", None)
    R = whitening(pairs, regularization)
    np.testing.assert_allclose(R.T @ scatter(pairs, regularization) @ R, np.eye(N - 1), atol=1e-10)
    np.testing.assert_allclose(R @ R.T, expected, atol=1e-10 * np.abs(expected).max())
    np.testing.assert_allclose(careful @ careful.T, expected, atol=1e-8 * np.abs(expected).max())


def test_near_pairs_much_shorter_than_points_are_apart(rng):
    """Sums over points would lose the digits of differences of 1e-9."""
    E = np.repeat(features(rng, 12)[:, :5], 2, axis=0)
    E[1::2] += 1e-9 * rng.normal(size=(12, 5))
    heads = np.arange(0, 24, 2)
    far = rng.permutation(24)
    pairs = Pairs(E, np.r_[heads, far[:12]], np.r_[heads + 1, far[12:]], np.arange(24) < 12)
    H = scatter(pairs, 1.0)
    R = whitening(pairs, 1.0)
    np.testing.assert_allclose(R.T @ H @ R, np.eye(5), atol=1e-6)


def test_a_factor_of_few_rows(rng):
    """Its value is minus the objective at any length, and its gradient that of differences."""
    problem = problem_of(drawn(rng, features(rng)))
    L, D = rng.normal(size=(2, 3, problem.U.shape[1]))
    at = problem.evaluate(L)
    assert at.value == pytest.approx(-problem.bound(problem.place(L)).objective, rel=1e-12)
    assert problem.evaluate(7 * L).value == pytest.approx(at.value, rel=1e-12)
    step = 1e-6
    change = problem.evaluate(L + step * D).value - problem.evaluate(L - step * D).value
    assert np.vdot(at.gradient, D) == pytest.approx(change / (2 * step), rel=1e-6)


def test_directions_that_are_lacking(rng):
    """The objective grows along each of them, which a bound of 1 would exclude."""
    problem = problem_of(drawn(rng, features(rng)))
    L = problem.place(problem.leading_rows()[:2]).L
    at = problem.place(L)
    for row in problem.lacking(at):
        slope = row @ at.W @ row / (row @ row)
        assert slope > 1
    longer = np.vstack([L, 1e-2 * problem.lacking(at)])
    assert problem.evaluate(longer).value < problem.evaluate(L).value


@pytest.mark.parametrize("first", [1, 24])
def test_few_rows_reach_the_optimum_of_all_metrics(rng, first, monkeypatch):
    """From one row or several, with the objective of the ascent over full factors."""
    X, y = rng.normal(size=(N, 6)), rng.integers(0, 3, N)
    X[:, 0] += y
    parameters = {"n_pairs": 200, "random_state": 0, "tol": 1e-5}
    monkeypatch.setattr(KernelMMCProblem, "grows", False)
    full = KernelMMC(**parameters).fit(X, y)
    monkeypatch.undo()
    monkeypatch.setattr(kernel_mmc, "FIRST_ROWS", first)
    few = KernelMMC(**parameters).fit(X, y)
    assert few.status_ == "converged"
    assert few.duality_gap_ <= 1e-5
    assert few.objective_ == pytest.approx(full.objective_, rel=2e-5)


def test_all_of_W_is_computed_for_proofs_only(rng, monkeypatch):
    """Once for the start, and twice for each proof, the second time with the certificate."""
    X, y = rng.normal(size=(N, 6)), rng.integers(0, 3, N)
    X[:, 0] += y
    calls = []
    moment = KernelMMCProblem._weighted_moment

    def counted(self, rates, U, some=None):
        calls.extend([None] * (some is None))
        return moment(self, rates, U, some)

    monkeypatch.setattr(KernelMMCProblem, "_weighted_moment", counted)
    model = KernelMMC(n_pairs=200, random_state=0).fit(X, y)
    proofs = sum(record["duality_gap"] is not None for record in model.history_)
    assert model.status_ == "converged"
    assert len(calls) <= 2 + proofs < model.n_iter_
