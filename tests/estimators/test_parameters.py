"""Parameters that cannot be used: refused before any work, in words that help."""

import inspect
import re

import numpy as np
import pytest

import nearfar.estimators
from nearfar import LMNN, MCML, PairClassifier, SensorLocalization, make_pairs
from nearfar.errors import InvalidInputError, NearfarError

BAD = [
    ("n_neighbors", 0, "n_neighbors must be an integer of at least 1; got 0"),
    ("n_neighbors", 2.5, "n_neighbors must be an integer of at least 1; got 2.5"),
    ("n_neighbors", True, "n_neighbors must be an integer of at least 1; got True"),
    ("push_weight", 0, "push_weight must be a number between 0 and 1; got 0"),
    ("push_weight", 1, "push_weight must be a number between 0 and 1; got 1"),
    ("push_weight", -1, "push_weight must be a number between 0 and 1; got -1"),
    ("push_weight", np.nan, "push_weight must be a number between 0 and 1; got nan"),
    ("push_weight", "half", "push_weight must be a number between 0 and 1; got 'half'"),
    ("n_components", 0, "n_components must be an integer from 1 to 5; got 0"),
    ("n_components", -1, "n_components must be an integer from 1 to 5; got -1"),
    ("n_components", 6, "n_components must be an integer from 1 to 5; got 6"),
    ("n_components", 2.0, "n_components must be an integer from 1 to 5; got 2.0"),
    ("reduce", "truncate", "reduce must be one of 'learn', 'project'; got 'truncate'"),
    ("reduce", None, "reduce must be one of 'learn', 'project'; got None"),
    ("init", "random", "'identity', 'pca', 'lda' or an array; got 'random'"),
    ("init", None, "or an array; got None"),
    (
        "init",
        np.eye(3),
        "the map of init must have shape (rows, 5) and hold numbers; it has shape (3",
    ),
    ("init", np.ones(5), "and hold numbers; it has shape (5,) and holds float64. Correct it"),
    ("init", np.full((5, 5), np.nan), "the map of init must be finite and not zero"),
    ("init", np.full((5, 5), np.inf), "the map of init must be finite and not zero"),
    ("init", np.zeros((2, 5)), "the map of init must be finite and not zero"),
    ("validation_fraction", 0, "validation_fraction must be a number between 0 and 1; got 0"),
    ("validation_fraction", 1.0, "validation_fraction must be a number between 0 and 1; got 1.0"),
    ("tol", -1e-3, "tol must be a number of at least 0; got -0.001"),
    ("tol", np.nan, "tol must be a number of at least 0; got nan"),
    ("max_iter", 0, "max_iter must be an integer of at least 1; got 0"),
    ("max_iter", 10.0, "max_iter must be an integer of at least 1; got 10.0"),
    ("max_seconds", -1, "max_seconds must be a number of at least 0; got -1"),
]


@pytest.mark.parametrize(("name", "value", "message"), BAD, ids=lambda value: str(value)[:40])
def test_unusable_parameters_are_an_error(name, value, message, overlapping):
    model = LMNN(**{name: value})
    with pytest.raises(InvalidInputError, match=re.escape(message)):
        model.fit(*overlapping)
    assert not hasattr(model, "components_")


def test_errors_are_errors_of_nearfar_and_value_errors(overlapping):
    with pytest.raises(NearfarError) as caught:
        LMNN(tol=-1).fit(*overlapping)
    assert isinstance(caught.value, ValueError)


def test_an_init_of_other_rows_than_n_components_is_an_error(overlapping):
    with pytest.raises(InvalidInputError, match=r"must have shape \(3, 5\).* \(2, 5\)"):
        LMNN(n_components=3, init=np.ones((2, 5))).fit(*overlapping)


def test_numpy_numbers_are_numbers(overlapping):
    model = LMNN(np.int64(2), np.float32(0.25), np.int32(2), max_iter=np.int16(500)).fit(
        *overlapping
    )
    plain = LMNN(2, 0.25, 2, max_iter=500).fit(*overlapping)
    np.testing.assert_array_equal(model.components_, plain.components_)


def test_nothing_is_checked_before_fit():
    LMNN(n_neighbors=-1).set_params(push_weight=7)


def float_parameters():
    """Each class with each of its parameters that is documented as a float."""
    for name in nearfar.estimators.__all__:
        cls = getattr(nearfar.estimators, name)
        if isinstance(cls, type):
            section = inspect.getdoc(cls).partition("Parameters\n---")[2]
            section = section.partition("\nAttributes\n---")[0]
            for parameter in re.findall(r"^(\w+) : .*\bfloat\b", section, re.MULTILINE):
                yield cls, parameter


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(("cls", "name"), list(float_parameters()))
def test_numbers_are_finite(cls, name, value, overlapping):
    """Of every class, before any work."""
    X, y = overlapping
    data = X, y
    if cls is PairClassifier:
        data = make_pairs(X, y, n_pairs=20, random_state=0)
    if cls is SensorLocalization:
        data = (np.linalg.norm(X[:, None] - X, axis=2),)
    with pytest.raises(InvalidInputError, match=rf"{name}.* must be .*; got {value}"):
        cls(**{name: value}).fit(*data)


def test_infinity_in_words(overlapping):
    message = "tol must be finite; got inf. Give a large number."
    with pytest.raises(InvalidInputError, match=re.escape(message)):
        MCML(tol=np.inf).fit(*overlapping)
