"""The evaluator against plain loops and derived answers."""

import numpy as np
import pytest

from benchmarks.lmnn import evaluate


def problem(seed, n=40, d=4, classes=3):
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(n, d))
    y = np.arange(n) % classes
    generator.shuffle(y)
    L = generator.normal(size=(d, d))
    X.flags.writeable = False
    return X, y, X @ L.T


def by_loops(Z, y, targets, mu, scale):
    def distance(a, b):
        return scale * ((Z[a] - Z[b]) ** 2).sum()

    value = 0.0
    for i, near in enumerate(targets):
        for j in near:
            value += (1 - mu) * distance(i, j)
            for far in np.flatnonzero(y != y[i]):
                value += mu * max(0.0, 1 + distance(i, j) - distance(i, far))
    return value


@pytest.mark.parametrize("mu", [0.2, 0.5, 0.9])
@pytest.mark.parametrize("scale", [0.05, 1.0, 7.0])
def test_objective_equals_the_triple_loop(mu, scale):
    X, y, Z = problem(seed=1)
    targets = evaluate.target_neighbors(X, y)
    expected = by_loops(Z, y, targets, mu, scale)
    assert evaluate.objective(Z, y, targets, mu, scale) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("mu", [0.2, 0.9])
@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3])
def test_best_scale_is_a_minimum_of_the_triple_loop(seed, mu, size):
    """f is convex: no value on either side is lower, and the reported one is f there."""
    X, y, Z = problem(seed)
    Z = size * Z
    targets = evaluate.target_neighbors(X, y)
    scale, value = evaluate.best_scale(Z, y, targets, mu)
    assert value == pytest.approx(by_loops(Z, y, targets, mu, scale), rel=1e-10)
    for factor in (0.99, 1.01):
        assert by_loops(Z, y, targets, mu, factor * scale) >= value * (1 - 1e-10)


@pytest.mark.parametrize("sample", [130, 1000])
def test_best_scale_does_not_depend_on_the_sample_or_on_blocks(monkeypatch, sample):
    X, y, Z = problem(seed=3, n=60)
    targets = evaluate.target_neighbors(X, y)
    whole = evaluate.best_scale(Z, y, targets)
    monkeypatch.setattr(evaluate, "BLOCK", 100)
    assert evaluate.best_scale(Z, y, targets, sample=sample) == pytest.approx(whole, rel=1e-12)
    np.testing.assert_array_equal(evaluate.target_neighbors(X, y), targets)


def test_best_scale_of_an_example_by_hand():
    """Two pairs on a line at 0, 1 and 3, 4, one class each, k = 1, mu = 1/2.

    D_ij = 1 for all four points; the margins D_il - D_ij are 8, 15 (from 0), 3, 8 (from 1) and
    the same again by symmetry. (1-mu)/mu sum D_ij = 4 and the sorted margins begin 3, 3: their
    running sum reaches 4 at the second, so s = 1/3 and f = 1/2 * 4/3, with no margin violated.
    """
    Z, y = np.array([[0.0], [1], [3], [4]]), np.array([0, 0, 1, 1])
    targets = evaluate.target_neighbors(Z, y, k=1)
    scale, value = evaluate.best_scale(Z, y, targets, mu=0.5)
    assert scale == pytest.approx(1 / 3)
    assert value == pytest.approx(2 / 3)


def test_where_every_metric_is_worse_than_none_the_scale_is_zero():
    """Classes that alternate with the same points: all margins are 0 or negative, so s = 0.

    Then f = mu times the number of triplets: 4 points, 1 target, 2 impostors each.
    """
    Z, y = np.array([[0.0], [0], [1], [1]]), np.array([0, 1, 0, 1])
    targets = evaluate.target_neighbors(Z, y, k=1)
    assert evaluate.best_scale(Z, y, targets, mu=0.5) == (0.0, 4.0)


def test_targets_are_the_first_of_equally_near_points_and_never_the_point_itself():
    """Point 1 is as near to 0 as to 2, and 3 is a copy of 2."""
    X, y = np.array([[0.0], [1], [2], [2], [9]]), np.array([0, 0, 0, 0, 0])
    targets = evaluate.target_neighbors(X, y, k=1)
    assert targets.ravel().tolist() == [1, 0, 3, 2, 2]


def test_too_small_a_class_is_an_error():
    with pytest.raises(ValueError, match="class 1 has 2 points, k=2 targets need 3"):
        evaluate.target_neighbors(np.arange(5.0)[:, None], np.array([0, 0, 0, 1, 1]), k=2)


def test_given_targets_may_break_ties_differently_but_must_be_nearest():
    X, y = np.array([[0.0], [1], [2], [2], [9]]), np.zeros(5, dtype=int)
    evaluate.check_targets(X, y, np.array([[1], [2], [3], [2], [3]]))
    with pytest.raises(ValueError, match="not the nearest in class"):
        evaluate.check_targets(X, y, np.array([[1], [4], [3], [2], [3]]))
    with pytest.raises(ValueError, match="distinct other points"):
        evaluate.check_targets(X, y, np.arange(5)[:, None])


def test_votes_that_tie_go_to_the_nearest():
    """The test point 0 sees labels 2, 1, 0 at 1, 2, 3: all have one vote, 2 is nearest.

    The test point 10 sees 5, 5, 7: the majority wins although 7 is nearest.
    """
    train = np.array([[1.0], [2], [3], [10.1], [10.3], [10.2]])
    labels = np.array([2, 1, 0, 7, 5, 5])
    test = np.array([[0.0], [10]])
    assert evaluate.knn_error(train, labels, test, np.array([2, 5])) == 0
    assert evaluate.knn_error(train, labels, test, np.array([1, 5])) == 0.5


def test_judgement_of_a_folder(tmp_path):
    X, y, _ = problem(seed=5)
    np.savez(tmp_path / "train.npz", X=X + 1e3, y=y)
    np.savez(tmp_path / "test.npz", X=X + 1e3, y=y)
    targets = evaluate.target_neighbors(X, y)
    L = 0.5 * np.eye(4)
    judgement = evaluate.evaluate(tmp_path, L, targets)
    assert judgement["objective_as_given"] == pytest.approx(by_loops(X / 2, y, targets, 0.5, 1))
    assert judgement["objective"] <= judgement["objective_as_given"]
    assert 0 <= judgement["test_error"] <= 1
    assert "objective_as_given" not in evaluate.evaluate(tmp_path, L)
