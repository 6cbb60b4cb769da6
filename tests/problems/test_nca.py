"""NCA: values and gradients against plain loops over the original features."""

import numpy as np
import pytest

from nearfar.kernels import kernels_for
from nearfar.problems.nca import DiagonalNCAProblem, NCAProblem

SIZES = (5, 4, 1, 2)  # one point is alone in its class
STARTS = np.cumsum([0, *SIZES])
Y = np.repeat(np.arange(len(SIZES)), SIZES)


@pytest.fixture
def X(rng):
    """Points sorted by class, in three features of different units and far from the origin."""
    points = rng.normal(size=(12, 3)) + rng.normal(size=(4, 3))[Y]
    return points * [1.0, 30.0, 0.01] + [5.0, -200.0, 0.0]


@pytest.fixture(params=[1, 2, 3], ids=lambda rows: f"rows{rows}")
def factor(request, rng, X):
    """A random map on the features, such that distances are of the order of 1."""
    return 0.7 * rng.normal(size=(request.param, 3)) / X.std(axis=0)


def build(kind, X):
    return kind.build(X, kernels_for(X).double(X).mean(0), STARTS)


# -- full and rectangular maps ---------------------------------------------------------------------


def test_the_value_is_minus_that_of_the_paper(X, factor, backend, nca_by_loops):
    problem = build(NCAProblem, backend.asarray(X))
    point = problem.evaluate(problem.factor(factor))
    assert -point.value == pytest.approx(nca_by_loops.objective(X @ factor.T, Y), rel=1e-10)
    assert 0 < -point.value < 11


def test_the_gradient_is_minus_that_of_the_paper(X, factor, backend, nca_by_loops):
    """On U = XB a map L stands for LBᵀ on X, so that ∂f/∂L = (∂f/∂(LBᵀ)) B."""
    problem = build(NCAProblem, backend.asarray(X))
    point = problem.evaluate(problem.factor(factor))
    expected = -nca_by_loops.gradient(factor, X, Y) @ problem.basis
    np.testing.assert_allclose(
        point.gradient, expected, rtol=1e-7, atol=1e-9 * np.abs(expected).max()
    )


def test_the_gradient_is_that_of_differences(X, factor, rng):
    problem = build(NCAProblem, X)
    L, change = problem.factor(factor), rng.normal(size=(len(factor), 3))
    ends = [problem.evaluate(L + sign * 1e-5 * change).value for sign in (1, -1)]
    slope = np.vdot(problem.evaluate(L).gradient, change)
    assert slope == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-6)


@pytest.mark.parametrize("kind", [NCAProblem, DiagonalNCAProblem])
def test_the_objective_is_that_of_the_paper_in_float64(kind, X, backend, nca_by_loops):
    """Of float32 points, not of their rounded coordinates."""
    single = X.astype(np.float32)
    problem, factor = build(kind, backend.asarray(single)), np.diag([0.7, 0.01, 30.0])
    exact = nca_by_loops.objective(single.astype(np.float64) @ factor, Y)
    assert problem.objective(factor) == pytest.approx(exact, rel=1e-10)


@pytest.mark.parametrize("kind", [NCAProblem, DiagonalNCAProblem])
def test_shrinkage_and_weights(kind, X, backend, rng, nca_by_loops, mcml_by_loops):
    """Σ mᵢ pᵢ of φI + A, less λ tr A, with λ and φ by the three nearest; and its gradient."""
    points, weights = X / X.std(axis=0), rng.uniform(0.2, 4, 12)
    masses, on_device = weights / weights.mean(), backend.asarray(points)
    centre = kernels_for(on_device).double(on_device).mean(0)
    problem = kind.shrunk(on_device, centre, STARTS, 0.3, masses)
    case = mcml_by_loops.shrunk(points, Y, 0.3, weights, nearest=3)
    factor = np.diag([0.7, 0.3, 1.1])
    if kind is NCAProblem:
        factor = factor + 0.3 * rng.normal(size=(3, 3))
    L = problem.factor(factor)
    images = points @ np.vstack([factor, case.floor**0.5 * np.eye(3)]).T
    expected = nca_by_loops.objective(images, Y, weights)
    expected -= case.regularization * np.sum(factor**2)
    assert -problem.evaluate(L).value == pytest.approx(expected, rel=1e-9)
    assert problem.objective(problem.returned(L)) == pytest.approx(expected, rel=1e-9)
    change = rng.normal(size=L.shape)
    ends = [problem.evaluate(L + sign * 1e-5 * change).value for sign in (1, -1)]
    slope = np.vdot(problem.evaluate(L).gradient, change)
    assert slope == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-5)
    above = problem.above_floor(problem.returned(L))
    np.testing.assert_allclose(above.T @ above, factor.T @ factor, atol=1e-9)


def test_a_point_alone_in_its_class_is_chosen_but_counts_for_nobody(X, nca_by_loops):
    """Without it the points of other classes choose it no more, and more of their own."""
    factor = np.diag(1 / X.std(axis=0))
    problem = build(NCAProblem, X)
    value = -problem.evaluate(problem.factor(factor)).value
    assert value == pytest.approx(nca_by_loops.objective(X @ factor.T, Y), rel=1e-10)
    others = np.delete(np.arange(12), 9)
    assert value < nca_by_loops.objective(X[others] @ factor.T, Y[others]) - 1e-6
    assert problem.counted.sum() == 11


def test_other_points_can_be_given(X, factor, nca_by_loops):
    """As float64 for float32: those that `exact` gives are the points of float32, not rounded."""
    single = X.astype(np.float32)
    problem = build(NCAProblem, single)
    assert problem.U.dtype == np.float32
    assert problem.exact().dtype == np.float64
    exact = nca_by_loops.objective(single.astype(np.float64) @ factor.T, Y)
    L = problem.factor(factor)
    assert -problem.evaluate(L, problem.exact()).value == pytest.approx(exact, rel=1e-10)
    assert -problem.evaluate(L).value == pytest.approx(exact, rel=1e-4)


# -- a weight for each feature ---------------------------------------------------------------------


@pytest.fixture
def weights(rng, X):
    return rng.uniform(0.2, 1.5, size=3) / X.std(axis=0)


def test_the_diagonal_value_and_slopes_are_those_of_a_diagonal_map(
    X, weights, backend, nca_by_loops
):
    """∂f/∂s_k is the diagonal entry of ∂f/∂L at L = diag(s); features are divided by their
    deviations, which the chain rule multiplies."""
    problem = build(DiagonalNCAProblem, backend.asarray(X))
    s = problem.factor(np.diag(weights))
    point = problem.evaluate(s)
    expected = -np.diag(nca_by_loops.gradient(np.diag(weights), X, Y))
    assert -point.value == pytest.approx(nca_by_loops.objective(X * weights, Y), rel=1e-10)
    np.testing.assert_allclose(point.gradient, expected * np.diag(problem.basis), rtol=1e-8)
    np.testing.assert_allclose(problem.components(s), np.diag(weights))


def test_the_diagonal_gradient_is_that_of_differences(X, weights, rng):
    problem = build(DiagonalNCAProblem, X)
    s, change = problem.factor(np.diag(weights)), rng.normal(size=3)
    ends = [problem.evaluate(s + sign * 1e-5 * change).value for sign in (1, -1)]
    slope = np.vdot(problem.evaluate(s).gradient, change)
    assert slope == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-6)


def test_the_weights_of_a_map_are_the_diagonal_of_its_metric(X, rng):
    components = rng.normal(size=(2, 3))
    problem = build(DiagonalNCAProblem, X)
    metric = problem.components(problem.factor(components))
    np.testing.assert_allclose(metric**2, np.diag(np.diag(components.T @ components)))


def test_weights_have_no_sign(X, weights):
    problem = build(DiagonalNCAProblem, X)
    s = problem.factor(np.diag(weights)) * [1, -1, 1]
    np.testing.assert_allclose(problem.components(s), np.diag(weights))
    assert problem.evaluate(s).value == pytest.approx(problem.evaluate(np.abs(s)).value)


def test_a_constant_feature_has_no_weight(X, weights, nca_by_loops):
    X = X.copy()
    X[:, 1] = 1e6
    problem = build(DiagonalNCAProblem, X)
    s = problem.factor(np.diag(weights))
    guess = problem.first_guess()
    assert guess[1] == 0
    assert (guess[[0, 2]] > 0).all()
    assert problem.components(s)[1, 1] == problem.evaluate(s).gradient[1] == 0
    assert -problem.evaluate(s).value == pytest.approx(nca_by_loops.objective(X * weights, Y))


@pytest.mark.parametrize("kind", [NCAProblem, DiagonalNCAProblem])
def test_the_first_guess_does_not_depend_on_units(kind, X):
    """Distances under it are the same for rescaled features."""
    images = []
    for units in (1.0, [1e-8, 3.0, 1e8]):
        problem = build(kind, X * units)
        images.append((X * units - X[0] * units) @ problem.components(problem.first_guess()).T)
    lengths = [((Z[:, None] - Z) ** 2).sum(axis=2) for Z in images]
    np.testing.assert_allclose(lengths[1], lengths[0], rtol=1e-6, atol=1e-9)


def test_the_first_guess_of_a_weight_is_the_closed_form(rng):
    """Feature 0 parts the classes and feature 1 is noise. s² = ¼ n (1 − 1/τ) / P_kk on features of
    unit deviation, with P and τ from sums over pairs, and a factor such that D is 5 on average."""
    y = np.repeat([0, 1], 20)
    X = np.column_stack([4 * y + rng.normal(size=40), rng.normal(size=40)])
    problem = DiagonalNCAProblem.build(X, X.mean(axis=0), np.array([0, 20, 40]))
    U = X / X.std(axis=0)
    squares = (U[:, None] - U) ** 2
    near = (y[:, None] == y) / 19
    pull = (near[:, :, None] * squares).sum(axis=(0, 1))
    tau = squares.mean(axis=(0, 1)) * 40 / pull
    assert tau[0] > 1.5
    expected = np.sqrt(0.25 * 40 * np.maximum(1 - 1 / tau, 0.02) / pull)
    mean = (squares * expected**2).sum(axis=2).mean()
    assert mean < 5
    np.testing.assert_allclose(problem.first_guess(), expected * (5 / mean) ** 0.5, rtol=1e-10)


@pytest.mark.parametrize("kind", [NCAProblem, DiagonalNCAProblem])
@pytest.mark.parametrize("distance", [0.0, 20.0])
def test_random_points_are_apart_at_first(kind, distance, rng):
    """At D = 5 on average at least, whether classes overlap or not."""
    y = np.repeat([0, 1], 20)
    X = rng.normal(size=(40, 3)) + distance * y[:, None]
    problem = kind.build(X, X.mean(axis=0), np.array([0, 20, 40]))
    Z = (X - X.mean(axis=0)) @ problem.components(problem.first_guess()).T
    mean = ((Z[:, None] - Z) ** 2).sum(axis=2).mean()
    assert mean > 20 if distance else mean == pytest.approx(5)
