"""Confidence of errors, against other computations of the same numbers."""

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import binomtest, norm

from nearfar.evaluation import mcnemar, wilson_interval


@pytest.mark.parametrize(("wrong", "n"), [(1, 10), (7, 539), (300, 1000), (99, 100)])
def test_wilson_ends_are_where_the_score_test_just_rejects(wrong, n):
    """p is an end if |w/n − p| = z √(p(1 − p)/n), which Wilson's formula solves."""
    z = norm.ppf(0.975)

    def excess(p):
        return abs(wrong / n - p) - z * np.sqrt(p * (1 - p) / n)

    low, high = wilson_interval(wrong, n)
    assert low == pytest.approx(brentq(excess, 1e-9, wrong / n), rel=1e-6)
    assert high == pytest.approx(brentq(excess, wrong / n, 1 - 1e-9), rel=1e-6)


def test_wilson_agrees_with_scipy_and_reaches_the_ends():
    for wrong, n in [(0, 20), (3, 20), (20, 20)]:
        other = binomtest(wrong, n).proportion_ci(method="wilson")
        np.testing.assert_allclose(wilson_interval(wrong, n), other, atol=1e-12)
    assert wilson_interval(0, 20)[0] == 0
    assert wilson_interval(20, 20)[1] == 1


@pytest.mark.parametrize(("fixed", "broken"), [(0, 0), (4, 4), (19, 1), (0, 8), (3, 5), (700, 650)])
def test_mcnemar_is_the_exact_binomial_test(fixed, broken):
    differing = fixed + broken
    expected = binomtest(fixed, differing).pvalue if differing else 1.0
    assert mcnemar(fixed, broken) == pytest.approx(expected, rel=1e-9)
    assert mcnemar(broken, fixed) == mcnemar(fixed, broken)
