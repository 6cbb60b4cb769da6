"""The energy against its definition in plain loops, for one metric and for several."""

import numpy as np
import pytest

from nearfar.kernels import kernels_for
from nearfar.problems import energy as module
from nearfar.problems.energy import Energy

SIZES = (9, 2, 14, 1, 7)  # two classes are smaller than the three neighbours
K = 3
FEATURES, ROWS = 4, 3


def energy_by_loops(
    new,
    train,
    labels,
    k,
    mu,
    squared,
    space_of=lambda x: x,
    metric_of_new=None,
    metric_of=None,
    learned=False,
    query_margin=1.0,
):
    """E_t(y) of the paper, eq. (15), with ``squared(a, b, metric of b)``, (m, C).

    Targets are nearest by Euclidean distance between ``space_of`` both points; those of new points
    are nearest by the learned distance, if so asked.
    """
    n, n_classes = len(train), labels.max() + 1
    metric_of = np.zeros(n, int) if metric_of is None else metric_of

    def targets(x, label, but=None):
        def apart(j):
            if learned and but is None:
                return squared(x, train[j], metric_of[j])
            return np.sum((space_of(x) - space_of(train[j])) ** 2)

        mates = [j for j in range(n) if labels[j] == label and j != but]
        return sorted(mates, key=apart)[:k]

    table = np.zeros((len(new), n_classes))
    for t, x in enumerate(new):
        for y in range(n_classes):
            mine = targets(x, y)
            for j in mine:
                near = squared(x, train[j], metric_of[j])
                table[t, y] += (1 - mu) * near
                for impostor in range(n):
                    if labels[impostor] != y:
                        far = squared(x, train[impostor], metric_of[impostor])
                        table[t, y] += mu * max(0.0, query_margin + near - far)
            metric = 0 if metric_of_new is None else metric_of_new[t, y]
            for i in range(n):
                if labels[i] == y:
                    continue
                for j in targets(train[i], labels[i], but=i):
                    near = squared(train[i], train[j], metric_of[j])
                    table[t, y] += mu * max(0.0, 1 + near - squared(train[i], x, metric))
    return table


@pytest.fixture
def data(rng, dtype):
    """Training points sorted by class, new points, and where each class begins."""
    starts = np.cumsum([0, *SIZES])
    labels = np.repeat(np.arange(len(SIZES)), SIZES)
    centres = rng.normal(size=(len(SIZES), FEATURES))
    train = (centres[labels] + rng.normal(size=(len(labels), FEATURES))).astype(dtype)
    new = rng.normal(size=(11, FEATURES)).astype(dtype)
    return train, labels, starts, new


def close(got, wanted, dtype):
    """Sums of some hundred terms."""
    np.testing.assert_allclose(got, wanted, rtol=3000 * np.finfo(dtype).eps)


@pytest.mark.parametrize(
    ("mu", "learned", "query_margin"),
    [(0.2, False, 1.0), (0.5, False, 0.0), (0.85, False, 1.0), (0.3, True, 0.0)],
)
def test_one_metric(data, rng, dtype, backend, mu, learned, query_margin):
    train, labels, starts, new = data
    L = rng.normal(size=(ROWS, FEATURES))
    on_device, queries = backend.asarray(train), backend.asarray(new)
    kernels = kernels_for(on_device)
    energy = Energy.build(
        kernels.apply(on_device, L), on_device, starts, K, mu, query_margin=query_margin
    )
    space = None if learned else queries
    got = backend.to_numpy(energy.of(kernels.apply(queries, L), space))
    assert got.dtype == np.float64
    wanted = energy_by_loops(
        new.astype(np.float64),
        train.astype(np.float64),
        labels,
        K,
        mu,
        lambda a, b, _: np.sum((L @ (a - b)) ** 2),
        learned=learned,
        query_margin=query_margin,
    )
    close(got, wanted, dtype)


def by_class(_, labels, m):
    """The metric is that of the label."""
    n_classes = labels.max() + 1
    return labels, np.tile(np.arange(n_classes), (m, 1)), n_classes


def by_cluster(rng, labels, m):
    """The metric is that of the place, whatever the label; one of the four has no new point."""
    new = rng.integers(3, size=(m, 1)) + np.zeros((1, labels.max() + 1), int)
    return rng.integers(4, size=len(labels)), new, 4


@pytest.mark.parametrize(
    ("mu", "learned", "query_margin"), [(0.3, False, 1.0), (0.5, False, 0.0), (0.8, True, 0.0)]
)
@pytest.mark.parametrize("partition", [by_class, by_cluster])
def test_several_metrics(data, rng, dtype, backend, partition, mu, learned, query_margin):
    """Terms 1 and 2 use the metric of the training point, term 3 that of the new point."""
    train, labels, starts, new = data
    metric_of, metric_of_new, n_metrics = partition(rng, labels, len(new))
    components = rng.normal(size=(n_metrics, ROWS, FEATURES))
    on_device, queries = backend.asarray(train), backend.asarray(new)
    energy = Energy.build(
        on_device,
        on_device,
        starts,
        K,
        mu,
        backend.asarray(components),
        metric_of,
        query_margin,
    )
    got = backend.to_numpy(energy.of(queries, None if learned else queries, metric_of_new))
    wanted = energy_by_loops(
        new.astype(np.float64),
        train.astype(np.float64),
        labels,
        K,
        mu,
        lambda a, b, metric: np.sum((components[metric] @ (a - b)) ** 2),
        metric_of_new=metric_of_new,
        metric_of=metric_of,
        learned=learned,
        query_margin=query_margin,
    )
    close(got, wanted, dtype)


def test_several_equal_metrics_are_one(data, rng, dtype):
    train, labels, starts, new = data
    L = rng.normal(size=(ROWS, FEATURES))
    several = Energy.build(train, train, starts, K, 0.4, np.stack([L] * 5), labels)
    one = Energy.build(train @ L.T.astype(dtype), train, starts, K, 0.4)
    everyone = np.tile(np.arange(5), (len(new), 1))
    close(several.of(new, new, everyone), one.of(new @ L.T.astype(dtype), new), dtype)


def test_targets_are_chosen_in_their_own_space(data, dtype):
    """Here only the last feature counts, which the metric hardly sees."""
    train, labels, starts, new = data
    L = np.diag([1.0, 1.0, 1.0, 0.1])
    energy = Energy.build(train @ L.astype(dtype), train[:, 3:], starts, K, 0.3)
    got = energy.of(new @ L.astype(dtype), new[:, 3:])
    wanted = energy_by_loops(
        new.astype(np.float64),
        train.astype(np.float64),
        labels,
        K,
        0.3,
        lambda a, b, _: np.sum((L @ (a - b)) ** 2),
        space_of=lambda x: x[3:],
    )
    close(got, wanted, dtype)


def test_blocks_of_new_points_are_as_the_whole(data, rng, monkeypatch):
    train, labels, starts, new = data
    components = rng.normal(size=(5, ROWS, FEATURES))
    energy = Energy.build(train, train, starts, K, 0.5, components, labels)
    everyone = np.tile(np.arange(5), (len(new), 1))
    whole = energy.of(new, new, everyone)
    monkeypatch.setattr(module, "BLOCK", 4)
    np.testing.assert_allclose(energy.of(new, new, everyone), whole, rtol=1e-6)


def test_a_hand_made_energy():
    """On a line with classes at 0, 1 and at 4, k = 1, mu = ¼, and a new point at 2.

    Label a: the target is 1, at D = 1. The point 4 is at D = 4 > 1 + 1: no hinge. The point 4 has
    no target, hence no perimeter. E = ¾ · 1.
    Label b: the target is 4, at D = 4, perimeter 5. The points 0 and 1 are at D = 4 and 1: hinges 1
    and 4. The targets of 0 and 1 are each other, perimeters 2: the new point is at 4 and 1 from
    them, one hinge of 1. E = ¾ · 4 + ¼ (1 + 4) + ¼ · 1.
    """
    points = np.array([[0.0], [1.0], [4.0]])
    energy = Energy.build(points, points, np.array([0, 2, 3]), 1, 0.25)
    np.testing.assert_allclose(
        energy.of(np.array([[2.0]]), np.array([[2.0]])), [[0.75, 3 + 1.25 + 0.25]]
    )


def test_no_new_points(data):
    train, _, starts, new = data
    energy = Energy.build(train, train, starts, K, 0.5)
    assert energy.of(new[:0], new[:0]).shape == (0, len(SIZES))
