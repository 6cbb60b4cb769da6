"""MultiMetricLMNN() leaves the one metric only where rows that are left out do not lose by it."""

import numpy as np
import pytest
from sklearn.datasets import load_wine

import nearfar
from nearfar import MultiMetricLMNN
from nearfar.errors import WorseThanInputsWarning
from nearfar.estimators import _held_out, multi_metric_lmnn


def waves(rng, n):
    """Two classes that differ in direction: one varies along each axis."""
    y = np.arange(n) % 2
    X = rng.standard_normal((n, 2)) * np.where(y[:, None] == 0, [3.0, 0.3], [0.3, 3.0])
    return np.hstack([X, 0.1 * rng.standard_normal((n, 2))]), y


def test_of_equals_several_metrics_are_kept():
    X, y = load_wine(return_X_y=True)
    X = X / X.std(axis=0)
    model = MultiMetricLMNN().fit(X, y)
    assert not model.single_metric_
    assert (model.status_, model.duality_gap_ <= 1e-2) == ("converged", True)


def test_the_one_metric_is_kept_where_several_lose(rng, monkeypatch):
    """All metrics are then the same multiple of the one."""
    X, y = waves(rng, 120)
    monkeypatch.setattr(MultiMetricLMNN, "_loses", lambda *_: True)
    model = MultiMetricLMNN().fit(X, y)
    assert (model.single_metric_, model.status_) == (True, "early_stopped")
    M = model.get_mahalanobis_matrix()
    np.testing.assert_array_equal(M[0], M[1])
    one = model.prior_components_.T @ model.prior_components_  # what was learned first
    np.testing.assert_allclose(M[0] / np.trace(M[0]), one / np.trace(one), atol=1e-6)
    assert model.objective_ is not None
    assert nearfar.verify(model, X, y).proved


def test_rows_that_are_left_out_decide(rng, monkeypatch):
    """The trial learns from 70 % of each class, and what it says of the others is counted."""
    X, y = waves(rng, 100)
    asked = []

    def nearest_under(new, points, maps, _, k):
        asked.append((len(new), len(points), len(maps)))
        right = len(asked) == 1  # the one metric is asked first, then several, then the inputs
        codes = np.arange(2)[:, None] == model_codes
        own = np.array([np.flatnonzero(codes[c])[0] for c in (0, 1)])
        truth = new_codes if right else 1 - new_codes
        return np.repeat(own[truth][:, None], k, axis=1)

    held = multi_metric_lmnn.held_out_rows

    def split(labels, fraction, random):
        nonlocal model_codes, new_codes
        rows, new = held(labels, fraction, random)
        model_codes, new_codes = labels.codes[rows], labels.codes[new]
        return rows, new

    model_codes = new_codes = np.empty(0, dtype=int)
    monkeypatch.setattr(_held_out, "nearest_under", nearest_under)
    monkeypatch.setattr(multi_metric_lmnn, "held_out_rows", split)
    model = MultiMetricLMNN().fit(X, y)
    assert asked == [(30, 70, 1), (30, 70, 2), (30, 70, 1)]
    assert model.single_metric_


def test_a_fit_that_left_out_rows_find_worse_warns(rng, monkeypatch):
    """The one metric, several and the inputs are asked; all but the last are wrong."""
    X, y = waves(rng, 100)
    calls = []

    def vote(nearest, _):
        calls.append(len(nearest))
        truth = np.tile([0, 1], 15)  # of the rows that are left out, in their order
        return truth if len(calls) == 3 else 1 - truth

    def split(*_):
        return np.arange(30, 100), np.arange(30)

    monkeypatch.setattr(_held_out, "vote", vote)
    monkeypatch.setattr(multi_metric_lmnn, "held_out_rows", split)
    message = r"of 30 rows that were not learned from, .* 100\.0 % under it, and 0\.0 % with"
    with pytest.warns(WorseThanInputsWarning, match=message):
        MultiMetricLMNN().fit(X, y)
    assert calls == [30, 30, 30]


@pytest.mark.parametrize(
    "settings", [{"shrinkage": 0.5}, {"validation_fraction": 0.3}, {"init": np.eye(4)}]
)
def test_without_auto_there_is_no_trial(rng, monkeypatch, settings):
    def refuse(*_):
        raise AssertionError("a trial")

    X, y = waves(rng, 60)
    monkeypatch.setattr(MultiMetricLMNN, "_loses", refuse)
    MultiMetricLMNN(random_state=0, **settings).fit(X, y)


def test_too_few_rows_to_leave_any_out_keep_the_one_metric():
    X = np.array([[0.0, 0.0], [0.1, 1.0], [3.0, 0.2], [3.1, 1.1]])
    model = MultiMetricLMNN(n_neighbors=1).fit(X, [0, 0, 1, 1])
    assert model.single_metric_


def test_weights_and_clusters_go_with_the_rows(rng):
    X, y = waves(rng, 60)
    clusters = np.arange(60) % 3
    model = MultiMetricLMNN("given").fit(X, y, clusters, rng.integers(1, 3, 60))
    assert model.components_.shape[0] == 3
