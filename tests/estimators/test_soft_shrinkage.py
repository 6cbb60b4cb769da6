"""MCML and NCA with a shrinkage, the default: what is kept of the inputs' distance."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits, load_wine
from sklearn.neighbors import KNeighborsClassifier

import nearfar
from nearfar import MCML, NCA
from nearfar.errors import InvalidInputError

each_class = pytest.mark.parametrize("cls", [MCML, NCA])


def error(model, X, y, new, truth):
    """3-NN test error; of the inputs for None."""
    known, new = (X, new) if model is None else (model.transform(X), model.transform(new))
    return 1 - KNeighborsClassifier(3).fit(known, y).score(new, truth)


@each_class
def test_auto_is_the_default_and_follows_rows_and_features(cls, wine):
    X, y = wine
    rows = (64 if cls is MCML else 16) * 13
    assert cls().shrinkage == "auto"
    assert cls().fit(X, y).shrinkage_ == rows / (rows + 178)
    constant = np.column_stack([X, np.ones(178)])
    assert cls().fit(constant, y).shrinkage_ == rows / (rows + 178)
    assert cls().fit(X[::2], y[::2]).shrinkage_ == rows / (rows + 89)


@each_class
def test_few_points_of_many_features(cls):
    """Where the paper's program is worse than the inputs, the shrunk one is not."""
    X, y = load_digits(return_X_y=True)
    rows = np.random.default_rng(0).permutation(len(X))
    data = (X[rows[:200]], y[rows[:200]], X[rows[200:1200]], y[rows[200:1200]])
    inputs, shrunk, paper = (
        error(None if model is None else model.fit(*data[:2]), *data)
        for model in (None, cls(), cls(shrinkage=0))
    )
    assert paper > inputs + 0.02
    assert shrunk < inputs + 0.01


def test_features_in_different_units_are_brought_to_one_scale():
    """Proline of wine varies by 300, hue by 0.2: nearest neighbours see the former alone."""
    X, y = load_wine(return_X_y=True)
    model = NCA(diagonal=True).fit(X, y)
    powers = np.log2(model.feature_scale_)
    assert np.array_equal(powers, np.round(powers))
    assert np.ptp(powers) > 5
    scaled = NCA(diagonal=True, shrinkage=model.shrinkage_).fit(X * model.feature_scale_, y)
    np.testing.assert_allclose(model.components_, scaled.components_ * model.feature_scale_)
    assert scaled.feature_scale_ is None
    found = nearfar.verify(model, X, y)
    assert not found.violations


@pytest.mark.parametrize(
    "learner",
    [
        MCML(),
        MCML(n_components=2),
        MCML(n_components=2, reduce="learn"),
        NCA(),
        NCA(n_components=2),
    ],
    ids=repr,
)
def test_auto_is_the_program_of_points_in_other_coordinates(learner):
    """Those of the distance that is kept: the same metric as of the points W x."""
    X, y = load_wine(return_X_y=True)
    model = learner.fit(X, y)
    W = model.prior_components_
    twin = clone(learner).set_params(shrinkage=model.shrinkage_).fit((X - X[0]) @ W.T, y)
    assert twin.prior_components_ is None
    metric, expected = model.get_mahalanobis_matrix(), W.T @ twin.get_mahalanobis_matrix() @ W
    np.testing.assert_allclose(metric, expected, rtol=0, atol=1e-4 * np.abs(expected).max())
    assert model.objective_ == pytest.approx(twin.objective_, rel=1e-6)
    assert not nearfar.verify(model, X, y).violations


def test_a_proof_for_another_kept_distance_is_refuted():
    X, y = load_wine(return_X_y=True)
    model = MCML().fit(X, y)
    assert nearfar.verify(model, X, y).proved
    model.prior_components_ = 2 * model.prior_components_
    assert nearfar.verify(model, X, y).proved  # the program does not depend on the scale of W
    model.prior_components_ = np.eye(13)
    assert not nearfar.verify(model, X, y).proved


@each_class
def test_a_warm_start_from_other_units(cls):
    X, y = load_wine(return_X_y=True)
    model = cls(warm_start=True).fit(X, y)
    before, steps = model.objective_, model.n_iter_
    model.fit(X, y)
    assert model.objective_ == pytest.approx(before, rel=1e-3)
    assert model.n_iter_ <= steps


@pytest.mark.parametrize("learner", [MCML(), NCA(), NCA(diagonal=True)], ids=repr)
def test_the_metric_stays_above_its_floor(learner, wine, mcml_by_loops):
    X, y = wine
    model = clone(learner).set_params(shrinkage=0.3).fit(X, y)
    nearest = 3 if isinstance(model, NCA) else None
    floor = mcml_by_loops.shrunk(X, y, 0.3, nearest=nearest).floor
    assert np.linalg.eigvalsh(model.get_mahalanobis_matrix())[0] >= floor * (1 - 1e-9)
    model.components_ = 0.9 * model.components_
    assert nearfar.verify(model, X, y).violations


@each_class
@pytest.mark.parametrize("scale", [1e-100, 1e100])
def test_the_scale_of_all_inputs_does_not_matter(cls, scale, wine):
    X, y = wine
    model, scaled = (cls(tol=1e-6, max_iter=500).fit(points, y) for points in (X, scale * X))
    assert scaled.objective_ == pytest.approx(model.objective_, rel=1e-4)
    assert scaled.shrinkage_ == model.shrinkage_


@each_class
def test_zero_has_no_floor_and_no_scale(cls, wine):
    model = cls(shrinkage=0).fit(*wine)
    assert (model.shrinkage_, model.prior_components_) == (0, None)


@each_class
@pytest.mark.parametrize(
    ("value", "message"),
    [
        (1, "shrinkage must be below 1, which would be the distance of the inputs; got 1"),
        (-0.1, r"shrinkage must be a number from 0 to below 1, or 'auto'; got -0\.1"),
        (np.nan, "shrinkage must be a number from 0 to below 1, or 'auto'; got nan"),
        ("much", r"shrinkage must be one of 'auto' or a number from 0 to below 1; got 'much'"),
    ],
)
def test_what_is_no_shrinkage(cls, value, message, wine):
    with pytest.raises(InvalidInputError, match=message):
        cls(shrinkage=value).fit(*wine)


def test_all_of_a_class_at_one_place():
    """There is no distance within classes to measure the floor by: the paper's program is left."""
    X, y = np.repeat([[0.0, 0], [1, 0], [0, 1]], 3, axis=0), np.repeat([0, 1, 2], 3)
    model = MCML().fit(X, y)
    assert model.status_ == "converged"
    assert model.objective_ <= 1e-3
    assert not nearfar.verify(model, X, y).violations
