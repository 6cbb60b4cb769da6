"""Early stopping on held-out rows."""

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

from nearfar import LMNN
from nearfar.errors import ConvergenceWarning, InvalidInputError
from nearfar.estimators._held_out import (
    CLOSELY,
    PATIENCE,
    EarlyStopping,
    held_out_rows,
    votes_under,
)
from nearfar.solvers import Iterate, Status
from nearfar.supervision import class_order
from tests.callbacks import interrupt_at, needs_callbacks


@pytest.fixture
def noisy(rng, read_only):
    """Two classes that differ in the first of two features."""
    y = np.repeat([0, 1], 40)
    return read_only(rng.normal(size=(80, 2)) + 4 * np.outer(y, [1, 0])), read_only(y)


@pytest.fixture
def follower(noisy):
    X, y = noisy

    def predict(iterate):
        return votes_under(iterate.point, X[::2], y[::2], X[1::2], 3)

    return EarlyStopping(predict, y[1::2])


GOOD, BAD = np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]])


def test_the_rows_held_out_are_a_share_of_each_class():
    labels = class_order(np.repeat(["a", "b", "c"], [40, 20, 2]), "LMNN")
    train, held_out = held_out_rows(labels, 0.25, np.random.RandomState(0))
    assert np.bincount(labels.codes[held_out], minlength=3).tolist() == [10, 5, 0]
    np.testing.assert_array_equal(np.sort(np.concatenate([train, held_out])), np.arange(62))


def test_two_members_of_each_class_are_left_to_learn_from():
    labels = class_order(np.repeat([0, 1], [10, 3]), "LMNN")
    train, _ = held_out_rows(labels, 0.99, np.random.RandomState(0))
    assert np.bincount(labels.codes[train]).tolist() == [2, 2]


def test_the_map_with_the_smallest_error_is_kept(follower):
    for point in (BAD, GOOD, BAD):
        follower(Iterate(point, 0.0), [{"residual": 0.1}])
    assert follower.best.point is GOOD
    assert follower.error < 0.2


def test_the_run_ends_when_the_error_rests(follower):
    answers = [follower(Iterate(GOOD, 0.0), [{"residual": 0.1}])]
    answers += [follower(Iterate(BAD, 0.0), [{"residual": 0.1}]) for _ in range(PATIENCE)]
    assert answers == [None] * PATIENCE + [Status.EARLY_STOPPED]


def test_iterates_between_the_looks_are_not_measured(follower):
    trace = [{"residual": None}] * (CLOSELY + 1)
    assert follower(Iterate(GOOD, 0.0), trace) is None
    assert follower.best is None


def test_the_first_iterates_are_all_measured_and_try_no_patience(follower):
    for count in range(1, CLOSELY + 1):
        assert follower(Iterate(GOOD, 0.0), [{"residual": None} for _ in range(count)]) is None
    assert follower.best.point is GOOD
    assert follower.resting == 0


@pytest.mark.parametrize("parameters", [{}, {"n_components": 1}, {"n_components": 2}], ids=str)
def test_the_stored_map_has_the_smallest_error_of_the_history(parameters, overlapping):
    """Which rows are held out follows from the seed."""
    X, y = overlapping
    model = LMNN(shrinkage=0, validation_fraction=0.3, random_state=3, **parameters).fit(X, y)
    train, held_out = held_out_rows(class_order(y, "LMNN"), 0.3, np.random.RandomState(3))
    errors = [r["validation_error"] for r in model.history_ if "validation_error" in r]
    classifier = KNeighborsClassifier(3).fit(model.transform(X[train]), y[train])
    error = np.mean(classifier.predict(model.transform(X[held_out])) != y[held_out])
    assert error == min(errors)
    assert model.status_ in ("converged", "early_stopped")


def test_the_objective_is_that_of_the_rows_learned_from(
    overlapping, nearest_of_class, paper_objective
):
    X, y = overlapping
    model = LMNN(shrinkage=0, validation_fraction=0.3, random_state=3).fit(X, y)
    train, _ = held_out_rows(class_order(y, "LMNN"), 0.3, np.random.RandomState(3))
    X, y = X[train], y[train]
    M, targets = model.get_mahalanobis_matrix(), nearest_of_class(X, y, 3)
    assert model.objective_ == pytest.approx(paper_objective(M, X, y, targets, 0.5), rel=1e-9)


def test_it_stops_before_the_tolerance_and_does_not_warn(wine, recwarn):
    """Wine is learned in a few iterations as far as neighbours go; a gap of 1e-8 takes hundreds."""
    model = LMNN(shrinkage=0, validation_fraction=0.3, tol=1e-8, random_state=0).fit(*wine)
    assert model.status_ == "early_stopped"
    assert model.n_iter_ < 100
    assert len(recwarn) == 0


def test_a_converged_status_is_that_of_the_stored_map(overlapping):
    model = LMNN(shrinkage=0, validation_fraction=0.3, random_state=0).fit(*overlapping)
    if model.status_ == "converged":
        assert model.duality_gap_ <= model.tol


@pytest.mark.parametrize(
    ("limit", "status"),
    [({"max_iter": 7}, "max_iter"), ({"max_seconds": 1e-9}, "max_seconds")],
    ids=["iterations", "seconds"],
)
def test_limits_are_told_of_all_the_same(limit, status, wine):
    model = LMNN(shrinkage=0, validation_fraction=0.2, tol=1e-5, random_state=0, **limit)
    with pytest.warns(ConvergenceWarning, match=status):
        model.fit(*wine)
    assert model.status_ == status


@needs_callbacks
def test_interruptions_are_told_of_all_the_same(wine):
    """The map with the smallest error is that of iteration 5; the signal comes two later."""
    model = LMNN(shrinkage=0, validation_fraction=0.2, tol=1e-5, random_state=0).set_callbacks(
        interrupt_at(7)
    )
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        model.fit(*wine)
    assert model.status_ == "interrupted"


def test_a_seed_fixes_the_rows(overlapping):
    first, second = (
        LMNN(shrinkage=0, validation_fraction=0.3, random_state=5).fit(*overlapping) for _ in "ab"
    )
    np.testing.assert_array_equal(first.components_, second.components_)


def test_classes_too_small_to_hold_out_are_an_error(overlapping):
    X, y = overlapping
    with pytest.raises(
        InvalidInputError,
        match=r"validation_fraction=0\.01 leaves no row to validate on: .* too small\. Raise it",
    ):
        LMNN(shrinkage=0, validation_fraction=0.01).fit(X, y)


def test_target_neighbors_and_validation_contradict_each_other(overlapping, nearest_of_class):
    X, y = overlapping
    with pytest.raises(
        InvalidInputError, match="target_neighbors and validation_fraction cannot be used together"
    ):
        LMNN(shrinkage=0, validation_fraction=0.2).fit(X, y, nearest_of_class(X, y, 3))
