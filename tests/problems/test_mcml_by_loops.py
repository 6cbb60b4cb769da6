"""The plain loops that MCML is compared with, against what can be derived by hand."""

import numpy as np
import pytest

REGULARIZATION = [0.0, 0.7]


@pytest.fixture(params=REGULARIZATION, ids=lambda value: f"lambda{value}")
def case(request, rng, mcml_by_loops):
    """Overlapping classes of 5, 4, 1 and 2 points in three features of different units."""
    y = np.array([0, 1, 0, 2, 1, 0, 3, 1, 0, 3, 1, 0])
    X = (rng.normal(size=(12, 3)) + 0.5 * rng.normal(size=(4, 3))[y]) * [1.0, 3.0, 0.3]
    return mcml_by_loops(X, y, request.param)


@pytest.fixture
def metric(rng):
    """A random metric."""
    factor = 0.5 * rng.normal(size=(3, 3))
    return factor.T @ factor


def test_two_classes_of_two_on_a_line(mcml_by_loops):
    """Points 0, 1 | 3, 5 and A = a. Each p0 has one mate, so KL = d + log Z with
    Z_0 = e^-a + e^-9a + e^-25a, Z_1 = e^-a + e^-4a + e^-16a, Z_3 = e^-4a + e^-9a + e^-4a and
    Z_5 = e^-4a + e^-16a + e^-25a; d = a, a, 4a, 4a."""
    a = 0.3
    case = mcml_by_loops(np.array([[0.0], [1.0], [3.0], [5.0]]), np.array([0, 0, 1, 1]), 2.0)
    powers = [(1, 9, 25), (1, 4, 16), (4, 9, 4), (4, 16, 25)]
    log_z = [np.log(sum(np.exp(-a * power) for power in row)) for row in powers]
    assert case.objective(np.array([[a]])) == pytest.approx(10 * a + sum(log_z) + 2 * a)


def test_targets_are_uniform_over_the_rest_of_the_class(case):
    """1/4 among five, 1/3 among four, 1 among two, and nothing for one alone."""
    np.testing.assert_allclose(case.target[0, [2, 5, 8, 11]], 0.25)
    np.testing.assert_allclose(case.target[1, [4, 7, 10]], 1 / 3)
    assert case.target[6, 9] == case.target[9, 6] == 1
    assert not case.target[3].any()
    np.testing.assert_allclose(case.target.sum(axis=1), [1, 1, 1, 0, *[1] * 8])
    assert not case.target[case.y[:, None] != case.y].any()


def test_without_a_metric_all_others_are_alike(case):
    """p = 1 / (n - 1), KL = log((n - 1) / (n_c - 1)), and its entropies less those of p0 are the
    same."""
    expected = 5 * np.log(11 / 4) + 4 * np.log(11 / 3) + 2 * np.log(11)
    nothing = np.zeros((3, 3))
    assert case.objective(nothing) == pytest.approx(expected)
    assert case.entropy(case.chosen(nothing)) == pytest.approx(expected)


def test_the_gradient_is_that_of_differences(case, metric, rng):
    direction = rng.normal(size=(3, 3))
    direction += direction.T
    step = 1e-6
    ends = [case.objective(metric + sign * step * direction) for sign in (1, -1)]
    slope = (ends[0] - ends[1]) / (2 * step)
    assert np.sum(case.gradient(metric) * direction) == pytest.approx(slope, rel=1e-6)


def test_bounds_lie_below_all_objectives(case, metric):
    """p of a metric mixed with p0, or with the point that is nearest if spread(p0) is made round,
    until (5) holds. The objective is above the bound by <slack, A> at least."""
    whiten = np.linalg.cholesky(np.linalg.inv(case.spread(case.target)))
    nearest = np.zeros_like(case.target)
    for i in case.anchors:
        distances = (((case.X - case.X[i]) @ whiten) ** 2).sum(axis=1)
        distances[i] = np.inf
        nearest[i, distances.argmin()] = 1
    assert case.bound(case.target) == 0
    feasible = 0
    for other in (case.target, nearest):
        for share in (0.1, 0.5, 0.9, 0.99):
            q = (1 - share) * case.chosen(metric) + share * other
            if np.linalg.eigvalsh(case.slack(q))[0] < 0:
                continue
            feasible += 1
            for scale in (0.0, 0.1, 1.0, 10.0):
                left = np.sum(case.slack(q) * (scale * metric))
                assert case.bound(q) + left <= case.objective(scale * metric) + 1e-9
    assert feasible


def test_a_distribution_that_is_not_feasible_gives_no_bound(case):
    """Everyone chooses the point that is farthest away."""
    q = np.zeros_like(case.target)
    for i in case.anchors:
        q[i, int(np.argmax(((case.X[i] - case.X) ** 2).sum(axis=1)))] = 1
    with pytest.raises(AssertionError):
        case.bound(q)


@pytest.mark.parametrize("regularization", REGULARIZATION)
def test_the_other_solver_finds_a_metric_that_the_dual_proves(regularization, rng, mcml_by_loops):
    """At the optimum slack(p) is the gradient, psd and orthogonal to A, and the entropies of p and
    p0 differ by the objective: p is optimal for (5)."""
    X, y = rng.normal(size=(14, 2)), np.arange(14) % 3
    case = mcml_by_loops(X, y, regularization)
    optimum, A = case.by_clarabel()
    assert np.linalg.eigvalsh(A)[0] > -1e-7
    assert case.objective(A) == pytest.approx(optimum, rel=1e-6)
    gradient = case.gradient(A)
    scale = np.trace(case.spread(case.target))
    assert np.linalg.eigvalsh(gradient)[0] > -1e-4 * scale
    assert abs(np.sum(gradient * A)) < 1e-4 * optimum
    assert case.entropy(case.chosen(A)) == pytest.approx(optimum, rel=1e-4)
