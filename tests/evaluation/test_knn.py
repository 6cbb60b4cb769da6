"""kNN error against a plain loop, and the rule for ties."""

from collections import Counter

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler

from nearfar.errors import InvalidInputError
from nearfar.evaluation import knn_error, knn_predict, leave_one_out_error, standard_error


def predict_by_loop(X_train, y_train, X_test, n_neighbors):
    predicted = []
    for x in X_test:
        order = np.argsort([np.sum((x - other) ** 2) for other in X_train], kind="stable")
        for k in range(n_neighbors, 0, -1):
            (label, most), *others = Counter(y_train[order[:k]].tolist()).most_common()
            if not others or others[0][1] < most:
                predicted.append(label)
                break
    return np.array(predicted)


@pytest.mark.parametrize("n_neighbors", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("n_classes", [2, 5])
def test_equals_a_plain_loop(n_neighbors, n_classes):
    rng = np.random.default_rng([n_neighbors, n_classes])
    X_train, X_test = rng.normal(size=(40, 3)), rng.normal(size=(60, 3))
    y_train = np.array(list("abcde"))[rng.integers(n_classes, size=40)]
    expected = predict_by_loop(X_train, y_train, X_test, n_neighbors)
    np.testing.assert_array_equal(knn_predict(X_train, y_train, X_test, n_neighbors), expected)


def test_a_tie_goes_to_the_class_that_leads_when_the_farthest_votes_are_dropped():
    """Neighbours of 0 from near to far: b c c a a b. With k = 6 all tie; with 5, c and a tie; with
    4, c leads. The first class in alphabetical order, a, must not win a tie."""
    X_train = np.arange(1.0, 7.0)[:, None]
    y_train = np.array(["b", "c", "c", "a", "a", "b"])
    predicted = [knn_predict(X_train, y_train, [[0.0]], k)[0] for k in range(1, 7)]
    assert predicted == ["b", "b", "c", "c", "c", "c"]


def test_without_ties_it_is_the_classifier_of_scikit_learn():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 4)), rng.integers(2, size=200)
    theirs = KNeighborsClassifier(n_neighbors=3).fit(X[:100], y[:100]).predict(X[100:])
    np.testing.assert_array_equal(knn_predict(X[:100], y[:100], X[100:], 3), theirs)


def test_error_is_the_share_of_wrong_labels_in_the_models_space():
    """Feature 1 carries the class, feature 0 is noise a thousand times as large."""
    X_train = np.array([[0.0, 0.0], [5000.0, 1.0]])
    X_test = np.array([[5000.0, 0.0], [0.0, 1.0], [0.0, 0.1], [5000.0, 0.9]])
    y_test = [0, 1, 0, 1]
    model = StandardScaler().fit([[-5000.0, 0.0], [5000.0, 0.0001]])
    assert knn_error(None, X_train, [0, 1], X_test, y_test, n_neighbors=1) == 0.5
    assert knn_error(model, X_train, [0, 1], X_test, y_test, n_neighbors=1) == 0.0


def test_labels_unseen_in_training_count_as_errors():
    assert knn_error(None, [[0.0]], ["a"], [[0.0], [0.0]], ["a", "z"], n_neighbors=1) == 0.5


@pytest.mark.parametrize("n_neighbors", [1, 2, 5])
def test_leave_one_out_equals_a_loop_that_leaves_one_out(n_neighbors):
    """The grid has many equal points, so that a point may not be among its own nearest."""
    rng = np.random.default_rng(n_neighbors)
    X, y = rng.integers(3, size=(60, 2)).astype(float), rng.integers(3, size=60)
    wrong = [
        knn_predict(np.delete(X, i, 0), np.delete(y, i), X[i : i + 1], n_neighbors)[0] != y[i]
        for i in range(60)
    ]
    assert leave_one_out_error(None, X, y, n_neighbors) == np.mean(wrong)


def test_leave_one_out_in_the_models_space():
    """Feature 1 carries the class, feature 0 is noise a thousand times as large."""
    X = np.array([[0.0, 0.0], [5000.0, 0.1], [0.0, 1.0], [5000.0, 1.1]])
    model = StandardScaler().fit([[-5000.0, 0.0], [5000.0, 0.0001]])
    assert leave_one_out_error(None, X, [0, 0, 1, 1], n_neighbors=1) == 1.0
    assert leave_one_out_error(model, X, [0, 0, 1, 1], n_neighbors=1) == 0.0


def test_leave_one_out_of_dask_arrays():
    dask = pytest.importorskip("dask.array")
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(70, 3)), rng.integers(2, size=70)
    assert leave_one_out_error(None, dask.from_array(X, chunks=(30, 3)), y) == leave_one_out_error(
        None, X, y
    )


def test_leave_one_out_refuses_what_cannot_be():
    with pytest.raises(
        InvalidInputError, match=r"n_neighbors=2 must be between 1 and 1, the other"
    ):
        leave_one_out_error(None, [[0.0], [1.0]], [0, 1], 2)
    with pytest.raises(InvalidInputError, match="X has 2 rows and y has 3"):
        leave_one_out_error(None, [[0.0], [1.0]], [0, 1, 1], 1)


def test_standard_error_is_binomial():
    assert standard_error(0.2, 100) == pytest.approx(0.04)
    assert standard_error(0.0, 100) == 0.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[0.0]], [0], [[0.0]], [0], 2), "n_neighbors=2 must be between 1 and the 1 training"),
        (([[0.0]], [0], [[0.0]], [0], 0), "n_neighbors=0 must be between"),
        (([[0.0]], [0], [[0.0]], ["0"], 1), "they cannot be compared"),
        (([[0.0]], [0, 1], [[0.0]], [0], 1), "X_train has 1 rows and y_train has 2"),
        (([[0.0]], [0], [[0.0]], [0, 1], 1), "X_test has 1 rows and y_test has 2"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        knn_error(None, *arguments)
