"""Measures of verification, derived by hand and by loops."""

import re

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from nearfar.errors import InvalidInputError
from nearfar.evaluation import best_threshold, equal_error_rate, roc, true_positive_rate_at

# near, near, far, near, far, far in the order of distance
Y = np.array([1, 1, -1, 1, -1, -1])
DISTANCES = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])


def test_roc_by_hand():
    false_positives, true_positives, thresholds = roc(Y, DISTANCES)
    np.testing.assert_allclose(false_positives, np.array([0, 0, 0, 1, 1, 2, 3]) / 3)
    np.testing.assert_allclose(true_positives, np.array([0, 1, 2, 2, 3, 3, 3]) / 3)
    np.testing.assert_array_equal(thresholds, [-np.inf, 1, 2, 3, 4, 5, 6])


@pytest.mark.parametrize("dtype", ["uint8", "int64", "float16"])
def test_distances_of_any_type(dtype):
    """Unsigned integers have no negatives: minus 0 is larger than minus 1, but as bytes 0 < 255."""
    distances = DISTANCES.astype(dtype) - 1
    for found, expected in zip(roc(Y, distances), roc(Y, DISTANCES - 1), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert equal_error_rate(Y, distances) == equal_error_rate(Y, DISTANCES - 1)


def test_roc_is_what_the_thresholds_do(rng):
    y = np.where(rng.random(50) < 0.3, 1, -1)
    distances = np.round(rng.random(50), 1)
    for false_positive, true_positive, threshold in zip(*roc(y, distances), strict=True):
        near = distances <= threshold
        assert false_positive == np.mean(near[y == -1])
        assert true_positive == np.mean(near[y == 1])
    false_positives, true_positives, _ = roc(y, distances)
    area = np.trapezoid(true_positives, false_positives)
    assert area == pytest.approx(roc_auc_score(y, -distances))


def test_equal_error_rate_by_hand():
    """At 3 one of three far pairs is taken for near, and one of three near pairs for far."""
    assert equal_error_rate(Y, DISTANCES) == pytest.approx(1 / 3)
    assert equal_error_rate(-Y, -DISTANCES) == pytest.approx(1 / 3)


def test_equal_error_rate_between_two_thresholds():
    """All distances are equal: the curve is the diagonal from (0, 0) to (1, 1)."""
    assert equal_error_rate([1, 1, -1], [2.0, 2.0, 2.0]) == 0.5


def test_equal_error_rate_of_perfect_and_of_reversed_distances():
    assert equal_error_rate([1, 1, -1, -1], [1, 2, 3, 4]) == 0
    assert equal_error_rate([1, 1, -1, -1], [4, 3, 2, 1]) == 1


def test_equal_error_rate_is_that_of_normal_scores(rng):
    """Distances normal about 0 and 2 with deviation 1 have the rate Φ(−1) = 0.15866."""
    y = np.repeat([1, -1], [20_000, 30_000])
    distances = rng.normal(size=50_000) + np.where(y == 1, 0, 2)
    assert equal_error_rate(y, distances) == pytest.approx(0.15866, abs=0.01)


@pytest.mark.parametrize(("limit", "expected"), [(0, 2 / 3), (0.33, 2 / 3), (0.34, 1), (1, 1)])
def test_true_positive_rate_at_a_false_positive_rate(limit, expected):
    assert true_positive_rate_at(Y, DISTANCES, limit) == pytest.approx(expected)


def test_best_threshold_by_hand():
    """Up to 2 the accuracy is 5/6, F is 4/5; up to 4 accuracy 5/6, F 6/7."""
    assert best_threshold(Y, DISTANCES) == 2.5
    assert best_threshold(Y, DISTANCES, "f_beta") == 4.5
    assert best_threshold(Y, DISTANCES, "f_beta", beta=0.1) == 2.5
    assert best_threshold(Y, DISTANCES, "true_positive_rate", rate=0.6) == 2.5
    assert best_threshold(Y, DISTANCES, "true_positive_rate") == 4.5
    assert best_threshold(Y, DISTANCES, "equal_error") == 3.5


@pytest.mark.torch
def test_tensors(torch):
    y, distances = torch.tensor(Y), torch.tensor(DISTANCES)
    assert equal_error_rate(y, distances) == pytest.approx(1 / 3)
    assert best_threshold(y, distances) == 2.5


@pytest.mark.parametrize(
    ("y", "distances", "message"),
    [
        ([1, -1], [1.0], "there must be a distance and a +1 or -1 for each pair; got distances of"),
        ([[1, -1]], [[1.0, 2.0]], "distances of shape (1, 2) and y of shape (1, 2). Check that"),
        ([1, 0], [1.0, 2.0], "y must be +1 for near pairs and -1 for far ones; y[1] is 0"),
        ([1, 1], [1.0, 2.0], "near and far pairs are both needed; got 2 near and 0 far ones."),
        ([1, -1], [1.0, np.nan], "distances must be finite; that of pair 1 is nan (1 in all)."),
    ],
)
@pytest.mark.parametrize(
    "measure",
    [roc, equal_error_rate, best_threshold, lambda y, d: true_positive_rate_at(y, d, 0.1)],
)
def test_bad_input_is_an_error(measure, y, distances, message):
    with pytest.raises(InvalidInputError, match=re.escape(message)):
        measure(y, distances)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            {"criterion": "best"},
            "criterion must be one of 'accuracy', 'f_beta', 'true_positive_rate",
        ),
        ({"beta": -1}, "beta must be a number of at least 0; got -1."),
        ({"rate": 1.5}, "rate must be a number from 0 to 1; got 1.5."),
    ],
)
def test_bad_parameters_are_an_error(parameters, message):
    with pytest.raises(InvalidInputError, match=message):
        best_threshold(Y, DISTANCES, **parameters)


def test_a_false_positive_rate_above_one_is_an_error():
    with pytest.raises(InvalidInputError, match="false_positive_rate must be a number from 0 to 1"):
        true_positive_rate_at(Y, DISTANCES, 1.5)
