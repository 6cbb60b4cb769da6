"""Thresholds, against a search through all of them by plain loops."""

import numpy as np
import pytest

from nearfar.supervision.thresholds import CRITERIA, Cuts

GRID = np.linspace(-1, 2, 2001)  # finer than the distances below, which are multiples of 0.01


@pytest.fixture
def sample(rng, dtype):
    """40 distances with ties, the near ones smaller on the whole."""
    near = rng.random(40) < 0.4
    distances = np.round(rng.random(40) * 0.6 + np.where(near, 0, 0.4), 2)
    return distances.astype(dtype), near


def counted(distances, near, threshold):
    """True and false positives of a threshold."""
    taken = distances <= threshold
    return int(np.sum(taken & near)), int(np.sum(taken & ~near))


def goodness(criterion, distances, near, threshold, beta, rate):
    """What the criterion makes as large as possible, by the textbook's formulas."""
    TP, FP = counted(distances, near, threshold)
    P, N = int(near.sum()), int((~near).sum())
    if criterion == "accuracy":
        return (TP + N - FP) / (P + N)
    if criterion == "f_beta":
        precision, recall = TP / max(TP + FP, 1), TP / P
        return (1 + beta**2) * precision * recall / max(beta**2 * precision + recall, 1e-300)
    if criterion == "true_positive_rate":
        return -threshold if rate <= TP / P else -np.inf
    return -abs(FP / N - (P - TP) / P)


def test_counts_are_those_of_the_thresholds(sample):
    cuts = Cuts.of(*sample)
    assert cuts.thresholds.dtype == sample[0].dtype
    assert (np.diff(cuts.thresholds) > 0).all()
    assert len(cuts.thresholds) == len(np.unique(sample[0])) + 1
    for row, threshold in enumerate(cuts.thresholds):
        assert counted(*sample, threshold) == (cuts.true_positives[row], cuts.false_positives[row])
    assert (cuts.true_positives[0], cuts.false_positives[0]) == (0, 0)
    assert (cuts.true_positive_rates[-1], cuts.false_positive_rates[-1]) == (1, 1)


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize(("beta", "rate"), [(1.0, 0.5), (0.3, 0.9), (2.5, 1.0), (0.0, 0.5)])
def test_no_other_threshold_is_better(sample, criterion, beta, rate):
    best = Cuts.of(*sample).best(criterion, beta, rate)
    assert isinstance(best, float)
    others = [goodness(criterion, *sample, threshold, beta, rate) for threshold in GRID]
    if criterion == "true_positive_rate":  # half way to the next distance costs no near pair
        assert goodness(criterion, *sample, best, beta, rate) > -np.inf
        assert counted(*sample, best) == counted(*sample, GRID[int(np.argmax(others))])
    else:
        reached = goodness(criterion, *sample, best, beta, rate)
        assert reached == pytest.approx(max(others), abs=1e-12)


@pytest.mark.parametrize("criterion", CRITERIA)
def test_kinds_that_are_apart_are_parted_in_the_middle(criterion, dtype):
    """The rate of 1 needs both near pairs; half way from 2 to 5 is 3.5."""
    distances, near = np.array([5, 1, 2, 7], dtype), np.array([False, True, True, False])
    assert Cuts.of(distances, near).best(criterion, 1.0, 1.0) == 3.5


def test_where_far_pairs_are_the_nearer_ones_none_is_near():
    distances, near = np.array([1.0, 2.0, 3.0]), np.array([False, False, True])
    assert Cuts.of(distances, near).best("accuracy", 1.0, 0.95) == 0.5
    distances[0] = 0
    assert Cuts.of(distances, near).best("accuracy", 1.0, 0.95) == -1


def test_a_rate_of_zero_finds_none_and_a_rate_of_one_all():
    distances, near = np.array([1.0, 2.0, 3.0, 4.0]), np.array([True, False, True, False])
    cuts = Cuts.of(distances, near)
    assert [cuts.best("true_positive_rate", 1.0, rate) for rate in (0.0, 0.5, 0.51, 1.0)] == [
        0.5,
        1.5,
        3.5,
        3.5,
    ]


def test_a_rate_that_is_met_exactly_counts_as_met():
    """0.95 of 20 near pairs are 19, although 0.95 · 20 may round above."""
    near = np.arange(21) < 20
    for n_found in range(1, 21):
        threshold = Cuts.of(np.arange(21.0), near).best("true_positive_rate", 1.0, n_found / 20)
        assert threshold == n_found - 0.5


def test_neighbouring_numbers_are_parted(dtype):
    low = dtype(1)
    high = np.nextafter(low, dtype(2))
    cuts = Cuts.of(np.array([low, high]), np.array([True, False]))
    best = dtype(cuts.best("accuracy", 1.0, 0.95))
    assert low <= best < high


def test_a_beta_of_zero_is_the_precision():
    """The nearest pair alone has precision 1; without any pair there is none, not the best one."""
    distances, near = np.array([1.0, 2.0, 3.0]), np.array([True, False, True])
    assert Cuts.of(distances, near).best("f_beta", 0.0, 0.95) == 1.5
