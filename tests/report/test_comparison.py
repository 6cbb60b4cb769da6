"""Errors with confidence: against other computations of the same numbers."""

import numpy as np
import pytest
from scipy.stats import binomtest

from nearfar import MultiMetricLMNN
from nearfar.analysis.comparison import compare_errors
from nearfar.analysis.study import study
from nearfar.evaluation import Split, compare_fitted, knn_error, knn_predict
from nearfar.report.material import gather


def test_errors_are_those_of_the_library(wine_report_example):
    given = wine_report_example
    subject = study(given.model, given.X, given.y, test=given.test)
    tested_rows = gather(subject, None, None, None, 0).tested
    found = tested_rows.comparison
    votes = given.X[~given.test], given.y[~given.test]
    tested = given.X[given.test], given.y[given.test]
    expected = compare_fitted(given.model, Split(*votes, *tested)).rows
    assert [row.method for row in found.rows] == [row.method for row in expected]
    for row, other in zip(found.rows, expected, strict=True):
        assert row.wrong.tolist() == other.wrong.tolist()
    scale = votes[0].std(axis=0)
    scaled = (votes[0] / scale, votes[1], tested[0] / scale, tested[1])
    assert found.rows[1].error == knn_error(None, *scaled, 3)
    before = knn_predict(*votes, tested[0], 3) != tested[1]
    after = knn_predict(given.model.transform(votes[0]), votes[1], given.model.transform(tested[0]))
    after = after != tested[1]
    changes = found.changes(found.rows[0])
    assert changes.fixed == np.sum(before & ~after)
    assert changes.broken == np.sum(~before & after)
    assert changes.fixed > changes.broken
    expected = binomtest(changes.fixed, changes.fixed + changes.broken).pvalue
    assert changes.p_value == pytest.approx(expected)
    assert found.changes(found.model)[:2] == (0, 0)


def test_without_held_out_rows_each_is_tested_by_the_others(wine_report_example):
    """Leave one out, by a loop."""
    given = wine_report_example
    subject = study(given.model, given.X, given.y, n_neighbors=1)
    found = gather(subject, None, None, None, 0).tested
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
    found = compare_errors(subject, *subject.neighbors(queries, 3))
    assert found.after.wrong.mean() == np.mean(model.predict(X[test]) != y[test])


def test_a_label_that_only_the_model_knows_is_wrong(wine_report_example):
    """Where all true labels are new, none that the model predicts is among them."""
    given = wine_report_example
    X, y, test = given.X / given.X.std(axis=0), given.y, given.test
    model = MultiMetricLMNN(max_iter=5, tol=10.0).fit(X[~test], y[~test])
    renamed = np.where(test, y + 10, y)
    subject = study(model, X, renamed, test=test)
    both = study(model, X, y, test=test).neighbors(subject.tested, 3)
    assert compare_errors(subject, *both).after.wrong.all()
