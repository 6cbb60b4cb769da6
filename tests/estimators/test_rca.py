"""RCA: chunklets from ids, labels, pairs and triplets; directions that chunklets leave open."""

import numpy as np
import pandas
import pytest
from sklearn.covariance import shrunk_covariance
from sklearn.decomposition import PCA
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from nearfar import RCA, PairClassifier, Tuples, make_chunklets, make_pairs, make_triplets
from nearfar.errors import DataWarning, InvalidInputError
from nearfar.estimators.rca import PATH
from tests.callbacks import Recorder, needs_callbacks


@pytest.fixture
def chunklets(overlapping):
    """Fifteen of four points each; 0 to 14, of which the labels say nothing more."""
    _, y = overlapping
    return make_chunklets(y, 15, chunklet_size=4, random_state=0)


def within(X, chunklets):
    """The covariance about the means of the chunklets."""
    parts = [X[chunklets == number] for number in np.unique(chunklets) if number != -1]
    deviations = np.vstack([part - part.mean(axis=0) for part in parts])
    return deviations.T @ deviations / len(deviations)


def test_the_metric_is_the_inverse_covariance_within_chunklets(overlapping, chunklets):
    X, _ = overlapping
    model = RCA(shrinkage=0).fit(X, chunklets)
    C = within(X, chunklets)
    np.testing.assert_allclose(model.get_mahalanobis_matrix(), np.linalg.inv(C), rtol=1e-8)
    assert model.n_chunklets_ == 15
    assert model.shrinkage_ == 0
    assert (model.status_, model.n_iter_, model.history_) == ("converged", 0, [])


def test_the_objective_and_its_gap(overlapping, chunklets):
    """At M = C⁻¹ it is N (d + log det C); the gap is rounding, but not left out."""
    X, _ = overlapping
    model = RCA(shrinkage=0).fit(X, chunklets)
    count, C = np.sum(chunklets != -1), within(X, chunklets)
    assert model.objective_ == pytest.approx(count * (5 + np.linalg.slogdet(C)[1]), rel=1e-10)
    assert 0 <= model.duality_gap_ < 1e-12


def test_the_symmetric_root_has_the_same_distances(overlapping, chunklets):
    X, _ = overlapping
    for parameters in ({}, {"n_components": 2}, {"pca_components": 3}):
        model = RCA(**parameters).fit(X, chunklets)
        root, M = model.get_whitening_matrix(), model.get_mahalanobis_matrix()
        np.testing.assert_allclose(root, root.T, atol=1e-9)
        np.testing.assert_allclose(root @ root, M, atol=1e-9 * np.abs(M).max())
        assert np.linalg.eigvalsh(root)[0] > -1e-9
    assert root.shape == (5, 5)


# -- chunklets -----------------------------------------------------------------------------------


def test_points_in_no_chunklet_or_alone_in_one_do_not_count(overlapping, chunklets):
    X, _ = overlapping
    ids = chunklets.copy()
    ids[ids >= 6] = -1
    members = ids != -1
    expected = np.linalg.inv(within(X, ids))
    few = RCA(shrinkage=0).fit(X, ids)
    np.testing.assert_allclose(few.get_mahalanobis_matrix(), expected, rtol=1e-8)
    ids[~members] = 100 + np.arange(np.sum(~members))
    alone = RCA(shrinkage=0).fit(X, ids)
    np.testing.assert_allclose(alone.get_mahalanobis_matrix(), expected, rtol=1e-8)
    assert few.n_chunklets_ == alone.n_chunklets_ == 6


def test_points_in_no_chunklet_do_not_count_where_classes_are_balanced(overlapping, rng):
    """Nor does a chunklet of one point, whatever its label."""
    X, y = overlapping
    others = rng.normal(size=(500, X.shape[1]))
    model = RCA(class_weight="balanced")
    expected = model.fit(X, y).components_
    found = model.fit(np.vstack([X, others]), [*y, *np.full(499, -1), 9])
    np.testing.assert_allclose(found.components_, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "write",
    [
        lambda ids: ids.astype(float),
        lambda ids: ids.tolist(),
        lambda ids: np.where(ids < 0, -1, 7 * ids - 53),  # some numbers below -1
    ],
)
def test_every_way_to_number_chunklets_gives_the_same(overlapping, chunklets, write):
    X, _ = overlapping
    ids = np.where(chunklets == 3, -1, chunklets)
    expected, model = RCA(shrinkage=0).fit(X, ids), RCA(shrinkage=0).fit(X, write(ids))
    np.testing.assert_allclose(model.components_, expected.components_, rtol=1e-9)
    assert model.n_chunklets_ == 14


def test_labels_make_a_chunklet_of_each_class(overlapping):
    X, y = overlapping
    model = RCA(shrinkage=0).fit(X, np.array(["red", "-1", "blue"])[y])
    np.testing.assert_allclose(
        model.get_mahalanobis_matrix(), np.linalg.inv(within(X, y)), rtol=1e-8
    )
    assert model.n_chunklets_ == 3


def test_near_pairs_are_closed_to_chunklets(overlapping):
    """0-1, 1-2 and 3-4, and so on: 2 belongs to 0 through 1. Far pairs change nothing."""
    X, _ = overlapping
    fives = np.arange(60).reshape(12, 5)
    near = np.vstack([fives[:, [0, 1]], fives[:, [1, 2]], fives[:, [3, 4]]])
    ids = 2 * (np.arange(60) // 5) + (np.arange(60) % 5 > 2)
    expected = RCA(shrinkage=0).fit(X, ids)
    far = fives[:, [0, 4]]
    both, kinds = np.vstack([near, far]), np.repeat([1, -1], [len(near), len(far)])
    models = [
        RCA(shrinkage=0).fit(X[near]),
        RCA(shrinkage=0).fit(X[near].tolist(), np.ones(len(near))),
        RCA(shrinkage=0).fit(Tuples(X, near)),
        RCA(shrinkage=0).fit(Tuples(X, both), kinds),
        RCA(shrinkage=0).fit(X[both], kinds),
        RCA(shrinkage=0).fit(
            np.concatenate([X[near], X[(near + 30) % 60][:, :1]], axis=1)
        ),  # triplets
    ]
    for model in models:
        np.testing.assert_allclose(model.components_, expected.components_, rtol=1e-7, atol=1e-9)
        assert model.n_chunklets_ == 24


def test_far_pairs_within_a_chunklet_are_warned_of(overlapping):
    X, _ = overlapping
    pairs = np.vstack([np.arange(60).reshape(30, 2), np.arange(1, 59).reshape(29, 2), [[0, 2]]])
    kinds = np.repeat([1, -1], [59, 1])
    with pytest.warns(DataWarning, match=r"1 far pairs are of points that near pairs connect"):
        model = RCA(shrinkage=0).fit(Tuples(X, pairs), kinds)
    assert model.n_chunklets_ == 1


# -- directions that are left open ---------------------------------------------------------------


def test_features_that_do_not_vary_or_repeat_others_change_no_distance(overlapping, chunklets):
    X, _ = overlapping
    more = np.hstack([X, np.full((60, 1), 3.0), X[:, :2] @ [[1.0], [-30.0]], np.zeros((60, 1))])
    expected, model = RCA(shrinkage=0).fit(X, chunklets), RCA(shrinkage=0).fit(more, chunklets)
    pairs = np.stack([np.arange(30), np.arange(30, 60)], axis=1)
    np.testing.assert_allclose(
        model.pair_distance(more[pairs]), expected.pair_distance(X[pairs]), rtol=1e-6
    )
    assert model.components_.shape == (5, 8)


def test_too_few_chunklets_for_the_papers_program(overlapping):
    """Three pairs leave 2 of 5 directions open: only a shrunk covariance has an inverse."""
    X, _ = overlapping
    ids = np.full(60, -1)
    ids[:6] = [0, 0, 1, 1, 2, 2]
    message = r"differ within chunklets in all 5 directions .* differ in 3, .* the other 2 without"
    with pytest.raises(InvalidInputError, match=message):
        RCA(shrinkage=0).fit(X, ids)
    expected = np.linalg.inv(shrunk_covariance(within(X, ids), 0.1))
    model = RCA(shrinkage=0.1).fit(X, ids)
    np.testing.assert_allclose(model.get_mahalanobis_matrix(), expected, rtol=1e-7)
    few = RCA(pca_components=3, shrinkage=0).fit(X, ids)
    assert few.components_.shape == (3, 5)
    assert few.shrinkage_ == 0


def test_the_inputs_distance_stays_where_no_chunklet_says_anything(rng):
    """Towards ρ = 1 the metric is a multiple of the identity, also off the span of the points."""
    X, ids = rng.normal(size=(30, 200)), np.arange(30) // 6
    M = RCA(shrinkage=1 - 1e-9).fit(X, ids).get_mahalanobis_matrix()
    np.testing.assert_allclose(M / M[0, 0], np.eye(200), atol=1e-6)


def test_auto_starts_from_the_number_of_points_and_features(overlapping):
    X, y = overlapping
    model = RCA().fit(X, y)
    least = 20 / (20 + 60 - len(np.unique(y)))
    assert any(model.shrinkage_ == pytest.approx(1 - (1 - least) * share) for share in PATH)
    same = RCA(shrinkage=model.shrinkage_).fit(X, y)
    assert model.feature_scale_ is None
    np.testing.assert_allclose(model.components_, same.components_)


def test_auto_goes_to_the_inputs_where_whitening_only_hurts(rng):
    """Classes differ along the one feature that also varies most within them; the rest is noise."""
    y = np.repeat([0, 1], 40)
    X = 0.1 * rng.normal(size=(80, 20))
    X[:, 0] = y + 0.4 * rng.normal(size=80)
    assert RCA().fit(X, y).shrinkage_ > 0.9


def test_auto_brings_features_to_one_scale_where_that_helps(overlapping):
    X, y = overlapping
    X = X.copy()
    X[:, 2] = np.sin(np.arange(60.0) ** 2)  # noise
    units = np.array([1.0, 1, 2.0**20, 1, 1])
    scaled = RCA().fit(X * units, y)
    assert scaled.feature_scale_[2] < 1e-5 * scaled.feature_scale_[0]
    twin = RCA(shrinkage=scaled.shrinkage_).fit(X * units * scaled.feature_scale_, y)
    np.testing.assert_allclose(
        scaled.pair_distance((X * units)[None, :2]),
        twin.pair_distance((X * units * scaled.feature_scale_)[None, :2]),
    )


def test_auto_does_not_depend_on_the_order_of_the_rows(overlapping, rng):
    X, y = overlapping
    order = rng.permutation(60)
    assert RCA().fit(X[order], y[order]).shrinkage_ == RCA().fit(X, y).shrinkage_


def test_more_features_than_points(rng):
    X, ids = rng.normal(size=(30, 200)), np.arange(30) // 6
    with pytest.raises(InvalidInputError, match=r"in all 29 directions .* differ in 25"):
        RCA(shrinkage=0).fit(X, ids)
    model = RCA(shrinkage=0.1).fit(X, ids)
    assert model.components_.shape == (200, 200)
    assert model.duality_gap_ < 1e-9
    exact = RCA(pca_components=20, shrinkage=0).fit(X, ids)
    Z = exact.transform(X)
    np.testing.assert_allclose(within(Z, ids), np.eye(20), atol=1e-8)


def test_the_principal_step_is_that_of_scikit_learn(overlapping, chunklets):
    X, _ = overlapping
    pca = PCA(3).fit(X)
    model, after = (
        RCA(pca_components=3, shrinkage=0).fit(X, chunklets),
        RCA(shrinkage=0).fit(pca.transform(X), chunklets),
    )
    expected = pca.components_.T @ after.get_mahalanobis_matrix() @ pca.components_
    np.testing.assert_allclose(model.get_mahalanobis_matrix(), expected, rtol=1e-7, atol=1e-9)


def test_rows_that_do_not_exist_are_zero(overlapping, chunklets):
    X, _ = overlapping
    model = RCA(n_components=4, pca_components=2, shrinkage=0).fit(X, chunklets)
    assert model.components_.shape == (4, 5)
    assert not model.components_[2:].any()
    assert np.isfinite(model.objective_)
    assert np.isfinite(model.get_whitening_matrix()).all()


@pytest.mark.parametrize("scale", [1e-8, 1e8])
@pytest.mark.parametrize("parameters", [{}, {"n_components": 2}, {"shrinkage": 0.1}])
def test_units_do_not_matter(overlapping, chunklets, scale, parameters):
    X, _ = overlapping
    model, expected = (RCA(**parameters).fit(data, chunklets) for data in (scale * X + scale, X))
    np.testing.assert_allclose(
        scale * model.components_, expected.components_, rtol=1e-6, atol=1e-9
    )


def test_far_from_the_origin(overlapping, chunklets):
    X, _ = overlapping
    model, expected = RCA(shrinkage=0).fit(X + 1e6, chunklets), RCA(shrinkage=0).fit(X, chunklets)
    np.testing.assert_allclose(model.components_, expected.components_, rtol=1e-6, atol=1e-7)


# -- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (None, "requires y to be passed, but the target y is None"),
        (np.zeros(59), "X has 60 rows and y has 59"),
        (np.full(60, -1), r"needs a chunklet of two or more points; got 0 of one point each"),
        (np.arange(60), r"got 60 of one point each, for n_samples=60\. Give points that belong"),
        (np.linspace(0, 1, 60), "Unknown label type: continuous"),
        (np.where(np.arange(60) == 7, np.nan, 1.0), "infinity or no value in row 7"),
    ],
)
def test_bad_chunklets(overlapping, y, message):
    X, _ = overlapping
    with pytest.raises(ValueError, match=message):
        RCA(shrinkage=0).fit(X, y)


def test_chunklets_of_equal_points(overlapping):
    X, _ = overlapping
    X = np.repeat(X[::2], 2, axis=0)
    for parameters in ({}, {"shrinkage": 0.1}):
        with pytest.raises(InvalidInputError, match="those of every chunklet are equal in the 5"):
            RCA(**parameters).fit(X, np.arange(60) // 2)


def test_one_point(overlapping):
    X, _ = overlapping
    with pytest.raises(InvalidInputError, match="n_samples=1"):
        RCA(shrinkage=0).fit(X[:1], [0])


def test_bad_pairs(overlapping):
    X, _ = overlapping
    pairs = X.reshape(30, 2, 5)
    with pytest.raises(InvalidInputError, match="y must be \\+1 for near pairs and -1 for far"):
        RCA(shrinkage=0).fit(pairs, np.zeros(30))
    with pytest.raises(InvalidInputError, match="needs a chunklet of two or more points"):
        RCA(shrinkage=0).fit(pairs, -np.ones(30))
    with pytest.raises(InvalidInputError, match="row numbers from 0 to 59"):
        RCA(shrinkage=0).fit(Tuples(X, [[0, 60]]))
    itself = np.stack([X, X], axis=1)
    with (
        pytest.warns(DataWarning, match="near pairs of a point with itself"),
        pytest.raises(InvalidInputError, match="needs a chunklet of two or more points"),
    ):
        RCA(shrinkage=0).fit(itself)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_components": 6}, "n_components must be an integer from 1 to 5; got 6"),
        ({"n_components": 0}, "n_components must be an integer"),
        ({"pca_components": 6}, "pca_components must be an integer from 1 to 5; got 6"),
        ({"pca_components": True}, "pca_components must be an integer"),
        (
            {"pca_components": 1.5},
            "pca_components, if it is not an integer, must be a number between",
        ),
        ({"pca_components": "mle"}, "pca_components, if it is not an integer, must be a number"),
        ({"shrinkage": -1}, "shrinkage must be a number from 0 to below 1, or 'auto'; got -1"),
        ({"shrinkage": None}, "shrinkage must be a number"),
        ({"shrinkage": 1}, "shrinkage must be below 1"),
        ({"shrinkage": "most"}, "shrinkage must be one of 'auto' or a number"),
    ],
)
def test_bad_parameters(overlapping, parameters, message):
    X, y = overlapping
    with pytest.raises(InvalidInputError, match=message):
        RCA(**parameters).fit(X, y)


def test_a_shrinkage_below_rounding_is_refused(overlapping):
    X, _ = overlapping
    ids = np.where(np.arange(60) < 4, np.arange(60) // 2, -1)
    with pytest.raises(InvalidInputError, match="shrinkage=1e-14 is lost in the rounding"):
        RCA(shrinkage=1e-14).fit(X, ids)


def test_points_whose_squares_leave_the_range(overlapping):
    X, y = overlapping
    with pytest.raises(InvalidInputError, match="leave the range of float64"):
        RCA(shrinkage=0).fit(1e200 * X, y)


# -- with the rest of the library ----------------------------------------------------------------


@pytest.mark.torch
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize(
    "parameters", [{}, {"n_components": 2}, {"pca_components": 0.9, "shrinkage": 0.1}]
)
def test_tensors(overlapping, chunklets, parameters, device, torch):
    X, _ = overlapping
    expected = RCA(**parameters).fit(X, chunklets)
    points = torch.tensor(X, device=device)
    model = RCA(**parameters).fit(points, torch.tensor(chunklets, device=device))
    np.testing.assert_allclose(model.components_.cpu(), expected.components_, rtol=1e-6, atol=1e-9)
    assert model.components_.device.type == model.transform(points).device.type == device
    single = RCA(**parameters).fit(points.float(), chunklets)
    assert single.components_.dtype == torch.float32
    np.testing.assert_allclose(single.components_.cpu(), expected.components_, rtol=1e-3, atol=1e-3)
    pairs = Tuples(points, np.arange(60).reshape(30, 2))
    dense = Tuples(X, np.arange(60).reshape(30, 2))
    np.testing.assert_allclose(
        RCA(**parameters).fit(pairs).components_.cpu(),
        RCA(**parameters).fit(dense).components_,
        rtol=1e-6,
        atol=1e-9,
    )


def test_float32_gives_the_metric_of_float64(overlapping, chunklets):
    X, _ = overlapping
    single = RCA(shrinkage=0).fit(X.astype(np.float32), chunklets)
    double = RCA(shrinkage=0).fit(X.astype(np.float32).astype(np.float64), chunklets)
    assert single.components_.dtype == np.float32
    np.testing.assert_allclose(single.components_, double.components_, rtol=1e-5, atol=1e-6)


def test_the_score_is_that_of_the_pairs_of_known_points(overlapping, chunklets):
    """Rows in no chunklet say nothing of who is far."""
    X, _ = overlapping
    ids = np.where(chunklets > 9, -1, chunklets)
    model = RCA(shrinkage=0).fit(X, ids)
    known = np.flatnonzero(ids != -1)
    heads, tails = (known[places] for places in np.triu_indices(len(known), 1))
    kinds = np.where(ids[heads] == ids[tails], 1, -1)
    pairs = Tuples(X, np.stack([heads, tails], axis=1))
    assert model.score(X, ids) == pytest.approx(model.score(pairs, kinds), abs=1e-12)


def test_a_score_of_named_columns_and_many_chunklets_does_not_warn(rng):
    """Labels of as many chunklets as half of the points are not taken for a regression target."""
    X = pandas.DataFrame(rng.normal(size=(40, 3)), columns=["a", "b", "c"])
    ids = np.arange(40) % 20
    ids[:2] = -1
    model = RCA(shrinkage=0.1).fit(X, ids)
    assert 0 <= model.score(X, ids) <= 1


def test_in_a_grid_search_on_pairs(wine):
    X, y = wine
    pairs, kinds = make_pairs(X, y, 200, random_state=0)
    search = GridSearchCV(
        RCA(shrinkage=0),
        {"shrinkage": [0.01, 0.1], "n_components": [None, 3]},
        error_score="raise",
        cv=3,
    ).fit(pairs, kinds)
    assert search.best_score_ > 0.7
    classifier = PairClassifier(RCA(shrinkage=0.1)).fit(pairs, kinds)
    assert classifier.score(pairs, kinds) > 0.7


def test_triplets_and_a_pipeline(wine):
    X, y = wine
    triplets = make_triplets(X, y, 300, random_state=0)
    assert RCA(shrinkage=0.1).fit(triplets).score(triplets) > 0.75
    pipeline = make_pipeline(StandardScaler(), RCA(2, shrinkage=0)).fit(X, y)
    assert pipeline.transform(X).shape == (178, 2)


@needs_callbacks
def test_callbacks_hear_of_the_fit(overlapping, chunklets):
    recorder = Recorder()
    X, _ = overlapping
    RCA(shrinkage=0).set_callbacks(recorder).fit(X, chunklets)
    assert recorder.calls == ["setup", "begin fit", "end fit", "teardown"]


@pytest.mark.parametrize("value", [0.0, 3e-33, 0.1])
def test_equal_points_are_refused_whatever_their_mean_rounds_to(value):
    with pytest.raises(InvalidInputError, match="needs points that differ within a chunklet"):
        RCA(shrinkage=0).fit(np.full((5, 1), value), [0, 1, 0, 1, 0])


@pytest.mark.parametrize("shrinkage", [0.0, 0.1])
def test_an_origin_far_away_costs_no_digits(shrinkage, rng):
    """Eighths plus 2^40 are exact, so that differences are the same; a mean of them is not."""
    X, chunklets = rng.integers(-20, 20, (30, 3)) / 8, np.arange(30) % 5
    near, far = (RCA(shrinkage=shrinkage).fit(points, chunklets) for points in (X, X + 2.0**40))
    assert far.objective_ == pytest.approx(near.objective_, rel=1e-12)
    np.testing.assert_allclose(far.components_, near.components_, rtol=1e-10)


def test_features_near_the_largest_of_float32(rng):
    """Whether one is far from 0, relative to its spread, is told without multiplying that."""
    X, chunklets = rng.normal(size=(24, 3)) * [1, 1e6, 1e-6], np.arange(24) % 3
    plain, huge = (
        RCA(shrinkage=0.1).fit((scale * X).astype(np.float32), chunklets) for scale in (1, 1e30)
    )
    expected, found = plain.transform(X), huge.transform(1e30 * X)
    np.testing.assert_allclose(np.abs(found), np.abs(expected), rtol=1e-3, atol=1e-3)


def test_features_whose_squares_are_zero_are_whitened(rng):
    """Units change nothing but log det, whatever they are: 1e-162 squared is zero."""
    X, chunklets = rng.normal(size=(12, 3)), np.arange(12) % 4
    units = 2.0 ** np.array([-450, -505, -540])
    plain = RCA(shrinkage=0).fit(X, chunklets)
    model = RCA(shrinkage=0).fit(X * units, chunklets)
    assert model.components_.shape == (3, 3)
    expected = plain.transform(X)
    found = model.transform(X * units)
    distances = [((Z[:6] - Z[6:]) ** 2).sum(axis=1) for Z in (expected, found)]
    np.testing.assert_allclose(distances[1], distances[0], rtol=1e-9)


def test_chunklets_of_copies_of_one_point_are_refused_beside_others():
    X = np.array([[1.0, 2], [1, 2], [5, 2], [3, 4]])
    with pytest.raises(InvalidInputError, match="those of every chunklet are equal"):
        RCA().fit(X, [0, 0, -1, -1])
