"""Errors with confidence: against other computations of the same numbers."""

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import binomtest, norm

from nearfar import MultiMetricLMNN
from nearfar.evaluation import knn_error, knn_predict
from nearfar.report.comparison import compare_errors, mcnemar, wilson_interval
from nearfar.report.material import gather
from nearfar.report.neighbors import neighbors, neighbors_after
from nearfar.report.study import study


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


@pytest.mark.parametrize(
    ("mended", "broken"), [(0, 0), (4, 4), (19, 1), (0, 8), (3, 5), (700, 650)]
)
def test_mcnemar_is_the_exact_binomial_test(mended, broken):
    differing = mended + broken
    expected = binomtest(mended, differing).pvalue if differing else 1.0
    assert mcnemar(mended, broken) == pytest.approx(expected, rel=1e-9)
    assert mcnemar(broken, mended) == mcnemar(mended, broken)


def test_errors_are_those_of_the_library(wine_report_example):
    given = wine_report_example
    subject = study(given.model, given.X, given.y, test=given.test)
    found = gather(subject, None, None, None, 0).comparison
    votes = given.X[~given.test], given.y[~given.test]
    tested = given.X[given.test], given.y[given.test]
    assert found.before.error == knn_error(None, *votes, *tested, 3)
    assert found.after.error == knn_error(given.model, *votes, *tested, 3)
    scale = votes[0].std(axis=0)
    scaled = (votes[0] / scale, votes[1], tested[0] / scale, tested[1])
    assert found.standardised.error == knn_error(None, *scaled, 3)
    before = knn_predict(*votes, tested[0], 3) != tested[1]
    after = knn_predict(given.model.transform(votes[0]), votes[1], given.model.transform(tested[0]))
    after = after != tested[1]
    changes = found.changes(found.before)
    assert changes.mended == np.sum(before & ~after)
    assert changes.broken == np.sum(~before & after)
    assert changes.mended > changes.broken
    expected = binomtest(changes.mended, changes.mended + changes.broken).pvalue
    assert changes.p_value == pytest.approx(expected)
    assert found.changes(found.after)[:2] == (0, 0)


def test_without_held_out_rows_each_is_tested_by_the_others(wine_report_example):
    """Leave one out, by a loop."""
    given = wine_report_example
    subject = study(given.model, given.X, given.y, n_neighbors=1)
    found = gather(subject, None, None, None, 0).comparison
    images = given.model.transform(given.X)
    for points, outcome in ((given.X, found.before), (images, found.after)):
        wrong = []
        for i, x in enumerate(points):
            squares = ((points - x) ** 2).sum(axis=1)
            squares[i] = np.inf
            wrong.append(given.y[squares.argmin()] != given.y[i])
        assert outcome.wrong.tolist() == wrong


def test_a_classifier_decides_by_itself(wine_report_example):
    given = wine_report_example
    X, y, test = given.X / given.X.std(axis=0), given.y, given.test
    model = MultiMetricLMNN(max_iter=5, tol=10.0).fit(X[~test], y[~test])
    subject = study(model, X, y, test=test)
    queries = subject.tested
    before = neighbors(X, queries, subject.voters, 3)
    found = compare_errors(subject, before, neighbors_after(subject, queries, 3))
    assert found.after.error == np.mean(model.predict(X[test]) != y[test])


def test_a_label_that_only_the_model_knows_is_wrong(wine_report_example):
    """Where all true labels are new, none that the model predicts is among them."""
    given = wine_report_example
    X, y, test = given.X / given.X.std(axis=0), given.y, given.test
    model = MultiMetricLMNN(max_iter=5, tol=10.0).fit(X[~test], y[~test])
    renamed = np.where(test, y + 10, y)
    subject = study(model, X, renamed, test=test)
    before = neighbors(X, subject.tested, subject.voters, 3)
    after = neighbors_after(study(model, X, y, test=test), subject.tested, 3)
    assert compare_errors(subject, before, after).after.error == 1
