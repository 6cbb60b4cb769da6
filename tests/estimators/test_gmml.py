"""GMML as an estimator: forms of input, priors, open directions, and difficult data."""

import numpy as np
import pytest

from nearfar import GMML, Covariance, Tuples, make_pairs
from nearfar.errors import InvalidInputError
from nearfar.kernels import on_numpy


def test_labels_are_all_pairs_and_no_pairs_are_made(overlapping, monkeypatch):
    X, y = overlapping
    pairs = np.stack(np.triu_indices(60, 1), axis=1)
    kinds = np.where(y[pairs[:, 0]] == y[pairs[:, 1]], 1, -1)
    by_pairs = GMML(shrinkage=0).fit(Tuples(X, pairs), kinds)

    def refuse(*_):
        raise AssertionError("pairs were made")

    monkeypatch.setattr(on_numpy, "edge_scatter", refuse)
    by_labels = GMML(shrinkage=0).fit(X, y)
    np.testing.assert_allclose(by_labels.components_, by_pairs.components_, rtol=1e-6)
    assert by_labels.objective_ == pytest.approx(by_pairs.objective_, rel=1e-9)


def test_certified_and_closed(overlapping, dtype):
    X, y = overlapping
    model = GMML(shrinkage=0).fit(X.astype(dtype), y)
    assert model.components_.dtype == dtype
    assert model.duality_gap_ <= (1e-12 if dtype == np.float64 else 1e-6)
    assert (model.status_, model.n_iter_, model.history_) == ("converged", 0, [])
    assert model.shrinkage_ == 0.0


def test_scale_of_the_data_only_scales_the_metric(overlapping):
    X, y = overlapping
    M = GMML(shrinkage=0).fit(X, y).get_mahalanobis_matrix()
    for scale in (1e-60, 1e60):
        np.testing.assert_allclose(
            GMML(shrinkage=0).fit(scale * X, y).get_mahalanobis_matrix(), M, rtol=1e-7
        )


def test_the_prior_by_name_is_that_matrix(overlapping):
    X, y = overlapping
    named = GMML(shrinkage=0.5, prior="covariance").fit(X, y)
    inverse = Covariance().fit(X).get_mahalanobis_matrix()
    given = GMML(shrinkage=0.5, prior=inverse).fit(X, y)
    np.testing.assert_allclose(given.components_, named.components_, rtol=1e-6)
    plain = GMML(shrinkage=0.5).fit(X, y)
    eye = GMML(shrinkage=0.5, prior=3 * np.eye(5)).fit(X, y)
    np.testing.assert_allclose(eye.components_, plain.components_, rtol=1e-9)
    assert not np.allclose(plain.components_, named.components_, rtol=1e-2)


def test_rows_of_weight_two_are_rows_given_twice_in_a_prior_too(overlapping, rng):
    few, y = overlapping
    weights = rng.integers(1, 4, len(few))
    many = few[:, :1] * rng.normal(size=40) + rng.normal(size=(len(few), 40))
    for X in (few, many):
        twice = np.repeat(np.arange(len(X)), weights)
        learner = GMML(prior="covariance", shrinkage=0.7)
        weighted = learner.fit(X, y, sample_weight=weights).get_mahalanobis_matrix()
        repeated = learner.fit(X[twice], y[twice]).get_mahalanobis_matrix()
        np.testing.assert_allclose(weighted, repeated, rtol=1e-8, atol=1e-10 * abs(repeated).max())


def test_the_papers_program_needs_all_directions(overlapping):
    X, _ = overlapping
    tuples = Tuples(X, [[0, 1], [2, 3], [0, 30], [1, 31], [4, 32], [7, 41], [9, 50]])
    y = [1, 1, -1, -1, -1, -1, -1]
    message = (
        r"in all 5 directions .* near pairs differ in 2, far pairs in 5\. Set shrinkage='auto'"
    )
    with pytest.raises(InvalidInputError, match=message):
        GMML(shrinkage=0).fit(tuples, y)
    model = GMML().fit(tuples, y)
    assert model.shrinkage_ == 20 / (20 + 2)  # 5 features, 2 near pairs


def test_auto_depends_on_the_number_of_points_and_features(overlapping):
    X, y = overlapping
    model = GMML().fit(X, y)
    assert model.shrinkage_ == 20 / (20 + 60)
    assert model.feature_scale_ is None
    same = GMML(shrinkage=0.25).fit(X, y)
    np.testing.assert_array_equal(model.components_, same.components_)


def test_the_inputs_distance_stays_where_no_pair_differs(rng):
    X, y = rng.normal(size=(12, 40)), np.arange(12) % 3
    M = GMML(shrinkage=1 - 1e-9).fit(X, y).get_mahalanobis_matrix()
    np.testing.assert_allclose(M / M[0, 0], np.eye(40), atol=1e-6)


def test_auto_brings_features_to_one_scale_where_that_helps(overlapping):
    X, y = overlapping
    X = X * np.array([1, 1, 1e-3, 1, 1]) + 1e4 * np.sin(np.arange(60.0) ** 2)[:, None] * np.array(
        [0, 0, 0, 0, 1.0]
    )
    pairs, kinds = make_pairs(X, y, 100, random_state=0)
    for model in (GMML().fit(X, y), GMML().fit(pairs, kinds)):
        scale = model.feature_scale_
        assert scale[4] < 1e-3 * scale[0]
        twin = GMML(shrinkage=model.shrinkage_)
        twin = (
            twin.fit(X * scale, y) if hasattr(model, "classes_") else twin.fit(pairs * scale, kinds)
        )
        np.testing.assert_allclose(model.pair_distance(pairs), twin.pair_distance(pairs * scale))
        rows = model.components_ @ model.components_.T
        np.testing.assert_allclose(rows, np.diag(np.diag(rows)), atol=1e-9 * rows.max())


def test_constant_and_repeated_features_get_a_metric_on_the_others(overlapping):
    X, y = overlapping
    wide = np.hstack([X, np.ones((60, 2)), X[:, :1]])
    model = GMML(shrinkage=0).fit(wide, y)
    assert model.components_.shape == (5, 8)
    assert not model.components_[:, 5:7].any()
    assert model.duality_gap_ < 1e-9


def test_units_that_differ_too_much_are_an_error(overlapping):
    X, y = overlapping
    with pytest.raises(InvalidInputError, match=r"lost in rounding: .* Standardise"):
        GMML(shrinkage=0).fit(X * [1, 1e-9, 1e9, 1, 1], y)


def test_equal_points_in_all_near_pairs_are_an_error():
    X = np.repeat(np.eye(3), 4, axis=0)
    with pytest.raises(
        InvalidInputError, match="GMML needs near pairs of points that differ; those"
    ):
        GMML(shrinkage=0).fit(X, np.repeat([0, 1, 2], 4))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"t": 1.5}, "t must be a number from 0 to 1; got 1.5"),
        ({"t": True}, "t must be a number"),
        ({"shrinkage": -1}, "shrinkage must be a number from 0 to below 1"),
        ({"prior": "random"}, "prior must be one of 'identity', 'covariance' or an array"),
        ({"prior": np.eye(3)}, r"prior must be a matrix of numbers of shape \(5, 5\); got shape"),
        ({"prior": -np.eye(5)}, "prior must be symmetric and positive definite"),
        ({"prior": np.triu(np.ones((5, 5)))}, "prior must be symmetric and positive definite"),
        ({"n_components": 6}, "n_components must be an integer from 1 to 5; got 6"),
        ({"n_pairs": 0}, "n_pairs must be an integer of at least 1; got 0"),
    ],
)
def test_parameters_that_cannot_be_used_are_an_error(overlapping, parameters, message):
    with pytest.raises(InvalidInputError, match=message):
        GMML(**parameters).fit(*overlapping)


def test_drawn_pairs_depend_on_the_seed_alone(overlapping):
    first, second, other = (
        GMML(n_pairs=50, random_state=seed, shrinkage=0).fit(*overlapping) for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first.components_, second.components_)
    assert not np.array_equal(first.components_, other.components_)


@pytest.mark.torch
def test_tensors(overlapping, torch):
    X, y = overlapping
    model, expected = GMML(shrinkage=0).fit(torch.tensor(X.copy()), y), GMML(shrinkage=0).fit(X, y)
    assert isinstance(model.components_, torch.Tensor)
    np.testing.assert_allclose(model.components_.numpy(), expected.components_, rtol=1e-8)


@pytest.mark.parametrize("scale", [1e-30, 1e25])
def test_the_scale_of_float32_is_no_matter_for_the_score_and_the_scale_of_features(scale, wine):
    """Squares of distances are out of the range of float32."""
    X, y = wine[0] * ([1000] + 12 * [1]), wine[1]
    pairs, kinds = make_pairs(X, y, 100, random_state=0)
    plain, scaled = (
        GMML().fit(Tuples((unit * X).astype(np.float32), pairs.indices), kinds)
        for unit in (1, scale)
    )
    assert np.array_equal(
        plain.feature_scale_ / plain.feature_scale_.max(),
        scaled.feature_scale_ / scaled.feature_scale_.max(),
    )
    expected = plain.score(X.astype(np.float32), y)
    assert scaled.score((scale * X).astype(np.float32), y) == pytest.approx(expected, abs=1e-3)
