"""MCML: values, gradients and entropies against plain loops over the original features."""

import numpy as np
import pytest

from nearfar.kernels import kernels_for
from nearfar.problems.mcml import MCMLProblem

SIZES = (5, 4, 1, 2)  # one point is alone in its class


@pytest.fixture(params=[0.0, 0.7], ids=lambda value: f"lambda{value}")
def case(request, rng, mcml_by_loops):
    """Points sorted by class, in three features of different units and far from the origin."""
    y = np.repeat(np.arange(len(SIZES)), SIZES)
    X = rng.normal(size=(12, 3)) + 0.5 * rng.normal(size=(4, 3))[y]
    return mcml_by_loops(X * [1.0, 3.0, 0.3] + [5.0, -20.0, 0.0], y, request.param)


@pytest.fixture(params=[1, 2, 3], ids=lambda rows: f"rows{rows}")
def factor(request, rng, case):
    """A random factor on the features, such that distances are of the order of 1."""
    return 0.5 * rng.normal(size=(request.param, 3)) / case.X.std(axis=0)


def build(case, X=None):
    X = case.X if X is None else X
    starts = np.cumsum([0, *SIZES])
    return MCMLProblem.build(X, kernels_for(X).double(X).mean(0), starts, case.regularization)


def test_the_value_is_that_of_the_paper(case, factor, backend):
    problem = build(case, backend.asarray(case.X))
    point = problem.evaluate(problem.factor(factor))
    assert point.value == pytest.approx(case.objective(factor.T @ factor), rel=1e-9)


def test_the_gradient_is_that_of_the_paper(case, factor, backend):
    """∂f/∂L = 2 L ∂f/∂A, on the features: ⟨∂f/∂L, D⟩ for a change D of the factor on U."""
    problem = build(case, backend.asarray(case.X))
    point = problem.evaluate(problem.factor(factor))
    expected = 2 * factor @ case.gradient(factor.T @ factor)
    np.testing.assert_allclose(
        point.gradient, expected @ problem.basis, rtol=1e-7, atol=1e-8 * abs(expected).max()
    )


def test_the_entropy_is_that_of_the_soft_neighbours(case, factor, backend):
    """Of (5), which is a bound if p is feasible: Σ H[p] − Σ log(n − 1)."""
    problem = build(case, backend.asarray(case.X))
    entropy = problem.evaluate(problem.factor(factor)).entropy
    assert entropy == pytest.approx(case.entropy(case.chosen(factor.T @ factor)), rel=1e-8)
