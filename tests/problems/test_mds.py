"""Stress and s-stress: values by loops, slopes by finite differences, majorisation by its bound."""

import math

import numpy as np
import pytest

from nearfar.problems import classical_mds
from nearfar.problems.classical_mds import axes, gram_of_distances, leading_axes, strain
from nearfar.problems.local_mds import LocalProblem
from nearfar.problems.mds import SQUARED_STRESS, STRESS, AllPairs, SomePairs, StressProblem
from nearfar.problems.nonmetric_mds import NonmetricProblem

N, R = 14, 2
LOSSES = [STRESS, SQUARED_STRESS]
each_loss = pytest.mark.parametrize("loss", LOSSES)


def pair_list(n=N):
    return [(i, j) for i in range(n) for j in range(i + 1, n)]


def value_by_loops(Y, D, W, loss):
    total = 0.0
    for i, j in pair_list(len(Y)):
        d = math.dist(Y[i], Y[j])
        error = D[i, j] - d if loss == STRESS else D[i, j] ** 2 - d**2
        total += W[i, j] * error**2
    return total


def differences(value, Y, step=1e-6):
    """Half the gradient of a function by central differences."""
    slope = np.zeros_like(Y)
    for index in np.ndindex(Y.shape):
        E = np.zeros_like(Y)
        E[index] = step
        slope[index] = (value(Y + E) - value(Y - E)) / (4 * step)
    return slope


@pytest.fixture
def D(rng):
    """Dissimilarities of no points."""
    D = rng.uniform(0.5, 3, size=(N, N))
    D = np.triu(D, 1)
    return D + D.T


@pytest.fixture
def W(rng):
    """Weights of different sizes, a third of them zero, connected along the first row."""
    W = rng.uniform(0.1, 5, size=(N, N)) * (rng.uniform(size=(N, N)) < 0.67)
    W[0] = 1
    W = np.triu(W, 1)
    return W + W.T


@pytest.fixture
def Y(rng):
    Y = rng.normal(size=(N, R))
    return Y - Y.mean(axis=0)


def edges_of(W):
    return np.nonzero(np.triu(W, 1))


def forms(D, W, backend):
    """The same pairs in all forms that hold them."""
    heads, tails = edges_of(W)
    ones = (W[heads, tails] == 1).all()
    on_device = backend.asarray(D)
    weights = None if ones and len(heads) == N * (N - 1) // 2 else backend.asarray(W)
    yield AllPairs.of(on_device, weights)
    given = None if ones else W[heads, tails]
    yield SomePairs.of(N, (heads, tails), D[heads, tails], given, on_device)


@each_loss
@pytest.mark.parametrize("weighted", [True, False])
def test_value_slope_and_step(backend, D, W, Y, loss, weighted):
    W = W if weighted else 1 - np.eye(N)
    V = np.diag(W.sum(axis=0)) - W
    for pairs in forms(D, W, backend):
        problem = StressProblem.of(pairs, loss)
        at = problem.evaluate(backend.asarray(Y))
        assert at.value == pytest.approx(value_by_loops(Y, D, W, loss), rel=1e-12)
        slope, step = backend.to_numpy(at.slope), backend.to_numpy(at.step)
        expected = differences(lambda Y: value_by_loops(Y, D, W, loss), Y)
        np.testing.assert_allclose(slope, expected, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(V @ step * -problem.caution, slope, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(step.sum(axis=0), 0, atol=1e-10)
        power = 2 if loss == STRESS else 4
        assert problem.scale == pytest.approx(np.sum(np.triu(W * D**power)), rel=1e-12)
        assert problem.scale == pytest.approx(problem.evaluate(backend.asarray(0 * Y)).value)


def test_few_edges_are_solved_by_a_sparse_factor(backend, rng, Y, D):
    """A chain: V⁺ is that of a tridiagonal matrix."""
    heads, tails = np.arange(N - 1), np.arange(1, N)
    weights = rng.uniform(0.1, 5, N - 1)
    pairs = SomePairs.of(N, (heads, tails), D[heads, tails], weights, backend.asarray(D))
    V = np.zeros((N, N))
    for i, w in enumerate(weights):
        V[i : i + 2, i : i + 2] += w * np.array([[1, -1], [-1, 1]])
    found = backend.to_numpy(pairs.solve(backend.asarray(Y)))
    np.testing.assert_allclose(found, np.linalg.pinv(V) @ Y, rtol=1e-9, atol=1e-10)


def test_a_far_offset_changes_nothing(D, Y):
    problem = StressProblem.of(AllPairs.of(D, None), STRESS)
    assert problem.evaluate(Y + 1e6).value == pytest.approx(problem.evaluate(Y).value, rel=1e-8)


def test_the_bound_of_majorisation_holds_everywhere(D, W, Y, rng):
    """(4): the quadratic function lies above the stress, and touches it at Y."""
    problem = StressProblem.of(AllPairs.of(D, W), STRESS)
    at, V = problem.evaluate(Y), np.diag(W.sum(axis=0)) - W
    for size in (0.01, 0.3, 1.0, 10.0):
        Z = Y + size * rng.normal(size=Y.shape)
        Z -= Z.mean(axis=0)
        move = Z - Y
        bound = at.value + 2 * np.sum(at.slope * move) + np.sum(move * (V @ move))
        assert value_by_loops(Z, D, W, STRESS) <= bound * (1 + 1e-12)


def test_a_majorisation_step_is_that_of_smacof(D, Y):
    """Guttman's transform B(Y) Y / n with b_ij = -δ_ij / d_ij off the diagonal."""
    at = StressProblem.of(AllPairs.of(D, None), STRESS).evaluate(Y)
    B = np.zeros((N, N))
    for i, j in pair_list():
        B[i, j] = B[j, i] = -D[i, j] / math.dist(Y[i], Y[j])
    B -= np.diag(B.sum(axis=1))
    np.testing.assert_allclose(Y + at.step, B @ Y / N, rtol=1e-10)


def test_points_in_one_place_do_not_push_each_other(D, Y):
    """δ/d counts as 0 there; the slope is that of the other pairs."""
    Y = Y.copy()
    Y[3] = Y[5]
    at = StressProblem.of(AllPairs.of(D, None), STRESS).evaluate(Y)
    W = 1 - np.eye(N)
    W[3, 5] = W[5, 3] = 0
    without = StressProblem.of(AllPairs.of(D, W), STRESS).evaluate(Y)
    np.testing.assert_allclose(at.slope, without.slope, rtol=1e-10, atol=1e-12)


# -- without a metric --------------------------------------------------------------------------


def isotonic_by_loops(values, weights):
    """Pool adjacent violators."""
    blocks = []
    for value, weight in zip(values, weights, strict=True):
        blocks.append([value * weight, weight, 1])
        while len(blocks) > 1 and blocks[-2][0] / blocks[-2][1] >= blocks[-1][0] / blocks[-1][1]:
            last = blocks.pop()
            blocks[-1] = [a + b for a, b in zip(blocks[-1], last, strict=True)]
    return [total / weight for total, weight, count in blocks for _ in range(count)]


def kruskal(Y, D, W, ties):
    """The squared stress-1."""
    pairs = [(i, j) for i, j in pair_list(len(Y)) if W[i, j] > 0]
    d = {(i, j): math.dist(Y[i], Y[j]) for i, j in pairs}
    if ties == "primary":
        order = sorted(pairs, key=lambda p: (D[p], d[p]))
        levels = isotonic_by_loops([d[p] for p in order], [W[p] for p in order])
        fitted = dict(zip(order, levels, strict=True))
    else:
        values = sorted({D[p] for p in pairs})
        tied = [[p for p in pairs if D[p] == value] for value in values]
        weights = [sum(W[p] for p in group) for group in tied]
        means = [sum(W[p] * d[p] for p in g) / w for g, w in zip(tied, weights, strict=True)]
        levels = isotonic_by_loops(means, weights)
        fitted = {p: level for group, level in zip(tied, levels, strict=True) for p in group}
    return sum(W[p] * (d[p] - fitted[p]) ** 2 for p in pairs) / sum(W[p] * d[p] ** 2 for p in pairs)


@pytest.mark.parametrize("ties", ["primary", "secondary"])
@pytest.mark.parametrize("tied", [True, False])
def test_kruskal_stress_and_its_slope(D, W, Y, ties, tied):
    """The slope is taken at the rescaled Y, for which sum w d^2 = sum w."""
    D = np.round(D) if tied else D
    heads, tails = edges_of(W)
    pairs = SomePairs.of(N, (heads, tails), D[heads, tails], W[heads, tails], np.empty(0))
    at = NonmetricProblem.of(pairs, ties).evaluate(Y)
    assert at.value == pytest.approx(kruskal(Y, D, W, ties), rel=1e-10)
    total = sum(W[i, j] * math.dist(at.Y[i], at.Y[j]) ** 2 for i, j in pair_list())
    assert total == pytest.approx(np.triu(W).sum())
    expected = differences(lambda Y: kruskal(Y, D, W, ties), at.Y)
    np.testing.assert_allclose(at.slope, expected, rtol=1e-4, atol=1e-8)
    V = np.diag(W.sum(axis=0)) - W
    np.testing.assert_allclose(V @ at.step, -at.slope * np.triu(W).sum(), rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("ties", ["primary", "secondary"])
def test_steps_without_a_metric_never_raise_the_stress(D, W, rng, ties):
    heads, tails = edges_of(W)
    pairs = SomePairs.of(N, (heads, tails), np.round(D)[heads, tails], W[heads, tails], np.empty(0))
    problem = NonmetricProblem.of(pairs, ties)
    at = problem.evaluate(rng.normal(size=(N, R)))
    for _ in range(50):
        new = problem.evaluate(at.Y + at.step)
        assert new.value <= at.value * (1 + 1e-12)
        at = new
    assert at.value < 0.15


# -- local -------------------------------------------------------------------------------------


def local_by_loops(Y, D, W, t):
    total = 0.0
    for i, j in pair_list(len(Y)):
        d = math.dist(Y[i], Y[j])
        total += W[i, j] * (D[i, j] - d) ** 2 if W[i, j] > 0 else -t * d
    return total


def test_local_stress_and_its_slope(backend, D, W, Y):
    heads, tails = edges_of(W)
    m = len(heads)
    pairs = SomePairs.of(N, (heads, tails), D[heads, tails], W[heads, tails], backend.asarray(D))
    problem = LocalProblem.of(N, pairs, 0.3)
    t = 0.3 * np.median(D[heads, tails]) * m / (N * (N - 1) / 2 - m)
    assert problem.push == pytest.approx(t)
    at = problem.evaluate(backend.asarray(Y))
    assert at.value == pytest.approx(local_by_loops(Y, D, W, t), rel=1e-10)
    expected = differences(lambda Y: local_by_loops(Y, D, W, t), Y)
    np.testing.assert_allclose(backend.to_numpy(at.slope), expected, rtol=1e-5, atol=1e-6)
    V = np.diag(W.sum(axis=0)) - W
    np.testing.assert_allclose(
        -V @ backend.to_numpy(at.step), backend.to_numpy(at.slope), atol=1e-9
    )


def test_local_steps_never_raise_the_stress(D, W, rng):
    heads, tails = edges_of(W)
    pairs = SomePairs.of(N, (heads, tails), D[heads, tails], W[heads, tails], D)
    problem = LocalProblem.of(N, pairs, 2.0)
    at = problem.evaluate(rng.normal(size=(N, R)))
    for _ in range(50):
        new = problem.evaluate(at.Y + at.step)
        assert new.value <= at.value + 1e-12 * abs(at.value)
        at = new


def test_a_complete_graph_pushes_nobody(D, Y):
    """Then local stress is stress."""
    heads, tails = edges_of(1 - np.eye(N))
    pairs = SomePairs.of(N, (heads, tails), D[heads, tails], None, D)
    problem = LocalProblem.of(N, pairs, 5.0)
    assert problem.push == 0
    whole = StressProblem.of(AllPairs.of(D, None), STRESS).evaluate(Y)
    assert problem.evaluate(Y).value == pytest.approx(whole.value)


# -- classical ---------------------------------------------------------------------------------


def test_inner_products_of_points_from_their_distances(backend, rng):
    X = rng.normal(size=(N, 3))
    X -= X.mean(axis=0)
    D = [[math.dist(a, b) for b in X] for a in X]
    G = gram_of_distances(backend.asarray(np.array(D)))
    np.testing.assert_allclose(backend.to_numpy(G), X @ X.T, atol=1e-12)


def test_the_strain_is_what_the_embedding_leaves(backend, D):
    """‖G − Y Yᵀ‖² itself, for a G with negative eigenvalues and more axes than positive ones."""
    G = gram_of_distances(backend.asarray(D))
    for r in (2, N - 1):
        spectrum, vectors, roots = axes(G, r)
        Y = backend.to_numpy(vectors * roots)
        host = backend.to_numpy(G)
        expected = np.sum((host - Y @ Y.T) ** 2)
        assert strain(spectrum, backend.to_numpy(roots)) == pytest.approx(expected, rel=1e-9)
        assert (np.diff(spectrum) <= 0).all()
        assert spectrum[-1] < -0.1
        largest = np.abs(Y).argmax(axis=0)
        assert (Y[largest, np.arange(r)] >= 0).all()


def test_a_few_axes_are_the_first_of_all(D, monkeypatch):
    G = gram_of_distances(D)
    _, vectors, roots = axes(G, 3)
    monkeypatch.setattr(classical_mds, "LARGE", 5)
    few, their_roots = leading_axes(G, 3)
    np.testing.assert_allclose(their_roots, roots, rtol=1e-10)
    np.testing.assert_allclose(few, vectors, atol=1e-8)
