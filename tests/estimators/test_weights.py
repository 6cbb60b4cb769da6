"""Weights of rows and classes: what they mean, and those that are refused."""

from types import SimpleNamespace

import numpy as np
import pandas
import polars
import pytest
from sklearn.utils.class_weight import compute_sample_weight

from nearfar.errors import InvalidInputError
from nearfar.estimators._input import drop_rows_without_weight, validated_weights
from nearfar.supervision import class_order

Y = np.array(["a", "b", "b", "c", "b", "c"])
LABELS = class_order(Y, "NCA")


class NCA(SimpleNamespace):
    """An estimator as far as weights are concerned."""


def weights_of(sample_weight=None, class_weight=None, labels=LABELS):
    return validated_weights(NCA(class_weight=class_weight), len(Y), sample_weight, labels)


# -- what they mean --------------------------------------------------------------------------------


def test_no_weights_and_ones_are_the_same():
    assert weights_of() is None
    assert weights_of(np.ones(6)) is None
    assert weights_of(class_weight={}) is None
    assert validated_weights(SimpleNamespace(), 6, None) is None


@pytest.mark.parametrize("as_given", [list, np.float32, pandas.Series, polars.Series])
def test_weights_of_every_kind(as_given):
    given = [1, 2, 0, 3, 1, 1]
    assert np.array_equal(weights_of(as_given(given)), given)


@pytest.mark.torch
def test_weights_on_a_device(torch):
    assert np.array_equal(weights_of(torch.tensor([1.0, 2, 0, 3, 1, 1])), [1, 2, 0, 3, 1, 1])


@pytest.mark.parametrize("class_weight", ["balanced", {"a": 3, "c": 0.5}, {"a": 1, "b": 2, "c": 3}])
def test_class_weights_have_the_meaning_of_scikit_learn(class_weight):
    assert np.allclose(
        weights_of(class_weight=class_weight), compute_sample_weight(class_weight, Y)
    )


def test_labels_that_are_numbers():
    labels = class_order(np.array([0, 1, 1, 2, 1, 2]), "NCA")
    found = weights_of(class_weight={0: 4, 1: 0.5}, labels=labels)
    assert np.array_equal(found, [4, 0.5, 0.5, 1, 0.5, 1])


def test_balanced_classes_have_the_same_total_with_sample_weights_too():
    """Integer weights count as repeated rows, so that balancing does not tell them apart."""
    counts = np.array([1, 2, 3, 1, 1, 4])
    found = weights_of(counts, "balanced")
    assert np.allclose(np.bincount(LABELS.codes, found), 4.0)  # 12 rows, 3 classes
    repeated = compute_sample_weight("balanced", np.repeat(Y, counts))
    assert np.allclose(np.repeat(found / counts, counts), repeated)


def test_classes_without_weight_are_not_balanced():
    found = weights_of([0, 1, 1, 1, 1, 0], "balanced")
    assert np.allclose(found, [0, 2 / 3, 2 / 3, 2, 2 / 3, 0])


def test_a_dict_may_name_more_classes():
    """As a fold of a cross-validation may lack one."""
    found = weights_of(class_weight={"a": 2, "b": 1, "c": 1, "d": 5})
    assert np.array_equal(found, [2, 1, 1, 1, 1, 1])


def test_rows_without_weight_are_dropped():
    estimator, X = NCA(), np.arange(12.0).reshape(6, 2)
    weights = np.array([0, 1, 2, 1, 0, 3.0])
    points, labels, kept = drop_rows_without_weight(estimator, X, LABELS, weights)
    assert np.array_equal(points, X[[1, 2, 3, 5]])
    assert labels.classes[labels.codes].tolist() == ["b", "b", "c", "c"]
    assert estimator.classes_.tolist() == ["b", "c"]
    assert np.array_equal(kept, [1, 2, 1, 3])
    assert drop_rows_without_weight(estimator, X, LABELS, None)[2] is None


# -- those that are refused ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([1, 2], r"NCA needs a weight for each of the 6 rows; got sample_weight of shape \(2,\)"),
        (2.0, r"got sample_weight of shape \(\)"),
        (np.ones((6, 1)), r"got sample_weight of shape \(6, 1\)"),
        (["x"] * 6, r"numbers; got sample_weight of <U1. Convert them"),
        ([1, 1, -2, 1, -1, 1], r"at least 0; sample_weight is -2 in row 2 \(2 such rows\)"),
        ([1, np.nan, 1, 1, 1, 1], r"sample_weight is nan in row 1 \(1 such rows\)\. Correct them"),
        ([1, np.inf, 1, 1, 1, 1], r"sample_weight is inf in row 1"),
        (np.zeros(6), r"positive weight; all 6 weights are zero\. Correct sample_weight and"),
        (np.full(6, 1e308), r"at most 1e\+100; the largest is\s1e\+308\. Only ratios"),
    ],
)
def test_bad_sample_weights(given, message):
    with pytest.raises(InvalidInputError, match=message):
        weights_of(given)


def test_bad_rows_are_named():
    with pytest.raises(InvalidInputError) as caught:
        weights_of([1, 1, -2, 1, -1, 1])
    assert caught.value.indices.tolist() == [2, 4]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("equal", r"class_weight must be one of 'balanced', a dict or None; got 'equal'"),
        ([1, 2, 3], r"class_weight must be one of"),
        (
            {"a": 1, "x": 2},
            r"names the class 'x', which is not in y; its classes are 'a', 'b', 'c'",
        ),
        ({"a": -1}, r"class_weight\['a'\] must be a number of at least 0; got -1"),
        ({"a": "two"}, r"class_weight\['a'\] must be a number"),
        ({"a": np.nan}, r"class_weight\['a'\] must be"),
        ({"a": 0, "b": 0, "c": 0}, r"all 6 weights are zero"),
    ],
)
def test_bad_class_weights(given, message):
    with pytest.raises(InvalidInputError, match=message):
        weights_of(class_weight=given)


def test_no_weight_at_all_with_balanced_classes():
    with pytest.raises(InvalidInputError, match="all 6 weights are zero"):
        weights_of(np.zeros(6), "balanced")


def test_tuples_have_no_classes():
    with pytest.raises(InvalidInputError, match=r"NCA was given tuples\. Set class_weight=None"):
        weights_of(class_weight="balanced", labels=None)
