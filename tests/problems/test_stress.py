"""The stress of points: by loops, by differences, along lines, on every device."""

import numpy as np
import pytest

from nearfar.problems.stress import FLOOR, Stress
from nearfar.problems.variational_mvu import Edges


@pytest.fixture
def network(rng):
    n = 20
    pairs = {(i, i + 1) for i in range(n - 1)}
    pairs |= {tuple(sorted(rng.choice(n, 2, replace=False).tolist())) for _ in range(40)}
    heads, tails = np.array(sorted(pairs)).T
    return n, heads, tails, rng.uniform(0.5, 2, len(heads)), rng.uniform(0.5, 3, len(heads))


def stress_by_loops(edges, Y, pull):
    total = -pull * sum(np.sum((y - Y.mean(axis=0)) ** 2) for y in Y)
    for i, j, D, w in zip(edges.heads, edges.tails, edges.squares, edges.weights, strict=True):
        total += w * (np.sum((Y[i] - Y[j]) ** 2) - D) ** 2
    return total


@pytest.mark.parametrize("pull", [0.0, 0.7])
def test_value_and_size_by_loops(network, rng, pull):
    edges, _ = Edges.build(*network, np.empty(0))
    Y = rng.normal(size=(20, 3)) + 5
    at = Stress(edges, pull).place(Y)
    assert at.value == pytest.approx(stress_by_loops(edges, Y, pull), rel=1e-12)
    misfit, variance = stress_by_loops(edges, Y, 0), 20 * pull * Y.var(axis=0).sum()
    none = FLOOR * (edges.weights @ edges.squares**2)
    assert at.size == pytest.approx(misfit + variance + none, rel=1e-12)


@pytest.mark.parametrize("pull", [0.0, 0.7])
def test_the_gradient_by_differences(network, rng, pull):
    edges, _ = Edges.build(*network, np.empty(0))
    problem, Y = Stress(edges, pull), rng.normal(size=(20, 2))
    gradient = problem.place(Y).gradient
    for i, k in [(0, 0), (7, 1), (19, 0)]:
        step = np.zeros_like(Y)
        step[i, k] = 1e-5
        slope = (problem.place(Y + step).value - problem.place(Y - step).value) / 2e-5
        assert gradient[i, k] == pytest.approx(slope, rel=1e-6, abs=1e-6)


def test_fixed_nodes_have_no_gradient(network, rng):
    edges, _ = Edges.build(*network, np.empty(0))
    Y, free = rng.normal(size=(20, 2)), np.ones((20, 1))
    free[[3, 8]] = 0
    whole, held = Stress(edges).place(Y), Stress(edges, free=free).place(Y)
    assert (held.gradient[[3, 8]] == 0).all()
    others = np.setdiff1d(np.arange(20), [3, 8])
    np.testing.assert_array_equal(held.gradient[others], whole.gradient[others])
    assert held.value == whole.value


@pytest.mark.parametrize("pull", [0.0, 0.7])
def test_a_line_is_a_polynomial_and_a_move_along_it_a_place(network, rng, pull):
    edges, _ = Edges.build(*network, np.empty(0))
    problem = Stress(edges, pull)
    at, direction = problem.place(rng.normal(size=(20, 3))), rng.normal(size=(20, 3))
    coefficients, line = problem.line(at, direction)
    for t in (-0.4, 0.3, 2.0):
        direct, moved = problem.place(at.Y + t * direction), problem.moved(at, line, t)
        polynomial = np.polyval([*coefficients, 0], t)
        assert direct.value - at.value == pytest.approx(polynomial, rel=1e-9)
        assert moved.value == pytest.approx(direct.value, rel=1e-10)
        np.testing.assert_allclose(moved.gradient, direct.gradient, atol=1e-8)


def test_on_any_device(network, rng, backend, dtype):
    """In float64 whatever the data are; points and gradients are where the edges are."""
    Y = rng.normal(size=(20, 2))
    edges, _ = Edges.build(*network, backend.asarray(np.empty(0, dtype)))
    at = Stress(edges, 0.3).place(Y)
    assert backend.to_numpy(at.excess).dtype == np.float64
    host = Stress(Edges.build(*network, np.empty(0))[0], 0.3).place(Y)
    assert type(at.gradient) is type(at.Y) is type(edges.squares)
    assert at.value == pytest.approx(host.value, rel=1e-12)
    np.testing.assert_allclose(backend.to_numpy(at.gradient), host.gradient, atol=1e-10)
