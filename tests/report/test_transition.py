"""The slider: each step against the Mahalanobis metric M_t, by definitions."""

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from nearfar import LMNN, LinearMetric, VariationalMVU
from nearfar.analysis import transition as module
from nearfar.analysis.study import study
from nearfar.analysis.transition import STEPS, between, transition
from nearfar.evaluation import knn_predict
from nearfar.supervision.neighbors import vote


@pytest.fixture(scope="module")
def pipeline(wine_report_example):
    given = wine_report_example
    return make_pipeline(StandardScaler(), LMNN()).fit(given.X[~given.test], given.y[~given.test])


def made(model, given):
    subject = study(model, given.X, given.y, test=given.test)
    queries = np.concatenate([subject.tested, subject.voters])
    ends = subject.neighbors(queries, 5)
    return subject, queries, ends, transition(subject, np.arange(178), queries, *ends, 0)


def metric_at(pipeline, given, t):
    """M_t = (1 − t) I + t c LᵀL for standardised features, c by the variances of training rows."""
    Z = pipeline[0].transform(given.X)
    L = pipeline[-1].components_
    c = Z[~given.test].var(axis=0).sum() / (Z[~given.test] @ L.T).var(axis=0).sum()
    return Z, (1 - t) * np.eye(13) + t * c * L.T @ L


def test_neighbours_errors_and_places_are_those_of_the_metric_between(
    pipeline, wine_report_example
):
    given = wine_report_example
    subject, queries, _, found = made(pipeline, given)
    votes = np.flatnonzero(~given.test)
    for number, t in enumerate(STEPS):
        Z, M = metric_at(pipeline, given, t)
        E = Z @ np.linalg.cholesky(M + 1e-13 * np.eye(13))
        D = np.linalg.norm(E[queries][:, None] - E[votes][None], axis=2)
        D[queries[:, None] == votes[None]] = np.inf
        np.testing.assert_array_equal(found.near[number], votes[np.argsort(D, axis=1)[:, :5]])
        predicted = knn_predict(E[votes], given.y[votes], E[subject.tested], 3)
        np.testing.assert_array_equal(found.wrong[number], predicted != given.y[subject.tested])
        # The plane of the two principal directions, whichever way it is turned.
        flat = PCA(2).fit(E).transform(E)
        ours = found.places[number]
        np.testing.assert_allclose(ours @ ours.T, flat @ flat.T, atol=1e-6 * np.square(flat).max())
        assert found.shares[number] == pytest.approx(PCA(2).fit(E).explained_variance_ratio_.sum())


def test_many_classes_vote_as_few(rng):
    """Class numbers of any size, counted anew in each row, give the majority of `vote`."""
    classes = rng.integers(0, 4, size=(300, 6))
    np.testing.assert_array_equal(module._voted(classes), vote(classes, 4))
    np.testing.assert_array_equal(module._voted(10**6 * classes), 10**6 * vote(classes, 4))


def test_more_features_than_rows(rng):
    """The span of the rows holds the plane: the places are those of all features."""
    X, y = rng.normal(size=(30, 70)), np.arange(30) % 2
    L = rng.normal(size=(50, 70))
    subject = study(LinearMetric(L).fit(X), X, y)
    everyone = np.arange(30)
    found = transition(subject, everyone, everyone, *subject.neighbors(everyone, 5), 0)
    c = X.var(axis=0).sum() / (X @ L.T).var(axis=0).sum()
    for t, places in zip(STEPS, found.places, strict=True):
        E = np.hstack([np.sqrt(1 - t) * X, np.sqrt(t * c) * X @ L.T])
        flat = PCA(2, svd_solver="full").fit_transform(E)
        np.testing.assert_allclose(
            places @ places.T, flat @ flat.T, atol=1e-6 * np.square(flat).max()
        )


def test_planes_are_turned_to_fit_the_last(pipeline, wine_report_example):
    """No turn or mirroring of a plane brings it nearer: placesᵀ last is symmetric, and positive."""
    found = made(pipeline, wine_report_example)[-1]
    for places in found.places:
        cross = places.T @ found.places[-1]
        np.testing.assert_allclose(cross, cross.T, atol=1e-8 * np.abs(cross).max())
        assert np.linalg.eigvalsh(cross).min() >= -1e-8 * np.abs(cross).max()


def test_lists_hold_all_that_is_near_at_some_step(pipeline, wine_report_example):
    given = wine_report_example
    subject, queries, ends, found = made(pipeline, given)
    rows, at = queries[[3, 100, 7]], np.array([3, 100, 7])
    lists = between(subject, found, rows, at, ends)
    assert lists.exact.all()
    for i, row in enumerate(rows):
        part = slice(lists.starts[i], lists.starts[i + 1])
        near = lists.rows[part]
        assert set(near) == set(found.near[:, at[i]].ravel())
        assert (np.diff(near) > 0).all()
        for t, squares in ((0.0, lists.before), (1.0, lists.after)):
            Z, M = metric_at(pipeline, given, t)
            delta = Z[near] - Z[row]
            np.testing.assert_allclose(squares[part], np.vecdot(delta @ M, delta))


def test_of_many_rows_the_first_are_searched_between_the_ends(
    pipeline, wine_report_example, monkeypatch
):
    monkeypatch.setattr(module, "PAIRS", 20 * 118)
    subject, queries, ends, found = made(pipeline, wine_report_example)
    assert found.near.shape == (11, 20, 5)
    assert found.wrong.shape == (11, 20)
    lists = between(subject, found, queries[[0, 30]], np.array([0, 30]), ends)
    assert lists.exact.tolist() == [True, False]
    near = set(lists.rows[lists.starts[1] :])
    assert near == set(ends[0].rows[30]) | set(ends[1].rows[30])


def test_what_has_no_steps(wine_report_example):
    given = wine_report_example
    X = given.X / given.X.std(axis=0)
    unfolding = VariationalMVU(n_neighbors=8, random_state=0).fit(X)
    subject = study(unfolding, X)
    ends = subject.neighbors(np.arange(178), 5)
    assert transition(subject, np.arange(178), np.arange(178), *ends, 0) is None
