"""Data that break careless code: small classes, equal points, extreme scales, outliers."""

import numpy as np
import pytest
from sklearn.base import clone

import nearfar
from nearfar import GMML, ITML, LFDA, LMNN, Covariance
from nearfar.errors import ConvergenceWarning, DataWarning, InvalidInputError

SCALES = [1e8, 1e-8, 1e100, 1e-100]


def distances(model, X):
    """Learned distances between the rows of X, (n, n)."""
    Z = model.transform(X)
    return np.linalg.norm(Z[:, None] - Z[None], axis=2)


def assert_sound(model, X):
    """Converged to its tolerance, with a finite map."""
    assert model.status_ == "converged"
    assert model.duality_gap_ is None or model.duality_gap_ <= model.tol
    assert np.isfinite(model.components_).all()
    assert np.isfinite(model.transform(X)).all()


# -- classes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("label", ["setosa", 3])
def test_one_class_is_an_error(label, overlapping):
    X, _ = overlapping
    with pytest.raises(
        InvalidInputError, match=rf"needs at least two classes; y has 1 class, {label!r}\. Add rows"
    ):
        LMNN(shrinkage=0).fit(X, [label] * len(X))


def test_every_class_of_one_member_is_an_error(overlapping):
    X, _ = overlapping
    with pytest.raises(
        InvalidInputError, match=r"class with two or more members; every class has 1 member"
    ):
        LMNN(shrinkage=0).fit(X[:10], np.arange(10))


def test_a_class_of_one_member_serves_as_an_impostor(
    overlapping, nearest_of_class, paper_objective
):
    """It sits amid class 0, so that leaving it out would make the objective smaller."""
    X, y = overlapping
    X = np.vstack([X, X[y == 0].mean(axis=0)])
    y = np.append(y, 7)
    with pytest.warns(
        DataWarning, match=r"class 7 has 1 member: .* serves as an impostor only\. Add rows or"
    ):
        model = LMNN(shrinkage=0).fit(X, y)
    assert_sound(model, X)
    targets = nearest_of_class(X, y, 3)
    assert (targets[-1] == -1).all()
    expected = paper_objective(model.get_mahalanobis_matrix(), X, y, targets, 0.5)
    assert model.objective_ == pytest.approx(expected, rel=1e-9)
    assert (
        model.objective_ * (1 - model.duality_gap_)
        > LMNN(shrinkage=0).fit(X[:-1], y[:-1]).objective_
    )


def test_several_small_classes_are_named_in_one_warning(overlapping):
    X, y = overlapping
    y = np.array(["a", "b", "c"], dtype=object)[y]
    y[[0, 1]] = "lone", "single"
    with pytest.warns(DataWarning, match="classes 'lone', 'single' have 1 member") as record:
        LMNN(shrinkage=0).fit(X, y)
    assert len(record) == 1


def test_a_class_of_at_most_k_members_uses_what_it_has(
    overlapping, nearest_of_class, paper_objective
):
    X, y = overlapping
    y = y.copy()
    y[:3] = 7
    with pytest.warns(
        DataWarning,
        match=r"class 7 has fewer than n_neighbors \+ 1 = 4 members.*as few as 2.*Lower",
    ):
        model = LMNN(shrinkage=0).fit(X, y)
    assert_sound(model, X)
    targets = nearest_of_class(X, y, 3)
    assert (targets[:3, 2] == -1).all()
    expected = paper_objective(model.get_mahalanobis_matrix(), X, y, targets, 0.5)
    assert model.objective_ == pytest.approx(expected, rel=1e-9)


def test_a_class_of_k_plus_one_members_is_not_warned_of(overlapping, recwarn):
    X, y = overlapping
    y = y.copy()
    y[:4] = 7
    assert_sound(LMNN(shrinkage=0).fit(X, y), X)
    assert len(recwarn) == 0


def test_more_neighbours_than_points(overlapping):
    X, y = overlapping
    with pytest.warns(DataWarning, match=r"classes 0, 1, 2 have fewer than n_neighbors \+ 1 = 101"):
        model = LMNN(shrinkage=0, n_neighbors=100).fit(X, y)
    assert model.objective_ == pytest.approx(LMNN(shrinkage=0, n_neighbors=19).fit(X, y).objective_)


def test_the_fewest_points_that_can_be_learned_from():
    """Two of one class and one of another, apart: every margin can be kept, so f = 0 is near."""
    with pytest.warns(DataWarning):
        model = LMNN(shrinkage=0, n_neighbors=1).fit([[0.0, 0], [1, 0], [0, 5]], [0, 0, 1])
    assert_sound(model, [[0.0, 0]])
    assert model.objective_ <= 1e-3


# -- equal points ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"init": "identity"},
        {"init": "pca"},
        {"init": "lda"},
        {"n_components": 2},
        {"n_components": 2, "reduce": "project"},
    ],
    ids=str,
)
def test_all_points_equal(parameters):
    """Every distance is 0 under every metric: each of 20 x 3 x 10 triplets costs mu."""
    X, y = np.ones((20, 3)), np.arange(20) % 2
    with pytest.warns(DataWarning, match=r"all points are equal.*Check X"):
        model = LMNN(shrinkage=0, **parameters).fit(X, y)
    assert_sound(model, X)
    assert model.objective_ == pytest.approx(0.5 * 20 * 3 * 10)


@pytest.mark.parametrize("parameters", [{}, {"init": "lda"}, {"n_components": 2}], ids=str)
def test_every_class_one_repeated_point(parameters):
    """Target neighbours cost nothing, and a large metric keeps all margins: f = 0."""
    X, y = np.repeat(np.eye(3), 5, axis=0), np.repeat([0, 1, 2], 5)
    model = LMNN(shrinkage=0, **parameters).fit(X, y)
    assert_sound(model, X)
    assert model.objective_ <= 1e-3


def test_duplicated_points(overlapping, nearest_of_class, paper_objective):
    """A copy is a neighbour like any other; a point is never its own neighbour."""
    X, y = overlapping
    X, y = np.vstack([X, X[:30]]), np.concatenate([y, y[:30]])
    model = LMNN(shrinkage=0).fit(X, y)
    assert_sound(model, X)
    targets = nearest_of_class(X, y, 3)
    assert (targets != np.arange(90)[:, None]).all()
    expected = paper_objective(model.get_mahalanobis_matrix(), X, y, targets, 0.5)
    assert model.objective_ == pytest.approx(expected, rel=1e-9)


def test_duplicates_with_different_labels_are_counted(overlapping):
    X, y = overlapping
    X, y = np.vstack([X, X[:4]]), np.concatenate([y, (y[:4] + 1) % 3])
    with pytest.warns(
        DataWarning,
        match="^4 pairs of equal points have different labels: no metric can separate them",
    ):
        model = LMNN(shrinkage=0).fit(X, y)
    assert_sound(model, X)


@pytest.mark.filterwarnings("ignore:.*pairs of equal points:nearfar.errors.DataWarning")
@pytest.mark.parametrize("seed", range(6))
def test_many_points_at_few_places(seed, nearest_of_class, paper_objective):
    """Neighbours mostly coincide, so that nothing pulls; so do impostors, whom no metric parts."""
    rng = np.random.default_rng(seed)
    X = rng.integers(-1, 2, (6, 3))[rng.integers(0, 6, 120)].astype(float)
    y = rng.integers(0, 3, 120)
    model = LMNN(shrinkage=0, n_neighbors=2, push_weight=0.9, tol=1e-5).fit(X, y)
    assert_sound(model, X)
    assert model.status_ == "converged"
    targets = nearest_of_class(X, y, 2)
    expected = paper_objective(model.get_mahalanobis_matrix(), X, y, targets, 0.9)
    assert model.objective_ == pytest.approx(expected, rel=1e-9)
    parted = np.abs(X[:, None] - X).sum(axis=2) > 0
    least = 0.9 * 2 * np.sum(~parted & (y[:, None] != y))
    assert least - 1e-9 <= model.objective_ <= expected + 1e-9


def test_equal_points_of_different_classes_count_once_for_a_class_of_one(overlapping):
    X, y = overlapping
    X, y = np.vstack([X, X[:1]]), np.append(y, 7)
    with (
        pytest.warns(DataWarning, match="class 7 has 1 member"),
        pytest.warns(DataWarning, match=r"^1 pairs? of equal points"),
    ):
        LMNN(shrinkage=0).fit(X, y)


# -- features --------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0.0, 3.7, 1e12])
def test_a_constant_feature_changes_nothing(value, overlapping):
    X, y = overlapping
    model = LMNN(shrinkage=0).fit(X, y)
    padded = np.insert(X, 2, value, axis=1)
    other = LMNN(shrinkage=0).fit(padded, y)
    assert_sound(other, padded)
    assert other.objective_ == pytest.approx(model.objective_, rel=1e-6)
    np.testing.assert_allclose(distances(other, padded), distances(model, X), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    "learner",
    [
        Covariance(),
        GMML(),
        GMML(shrinkage=0),
        GMML(prior="covariance"),
        ITML(prior="covariance"),
        LFDA(),
        LFDA(shrinkage=0),
    ],
    ids=repr,
)
@pytest.mark.parametrize("value", [0.1, -1e9 / 3])
def test_a_constant_feature_whose_mean_is_rounded_gets_no_weight(learner, value, rng):
    """What is left of it beside its mean was taken for a feature of 1e-17 that all vary in."""
    X, y = rng.normal(size=(60, 3)), np.arange(60) % 3
    expected, found = (
        clone(learner).fit(np.insert(X, 1, constant, axis=1), y).get_mahalanobis_matrix()
        for constant in (0.0, value)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)


def test_a_repeated_feature_changes_nothing(overlapping, nearest_of_class):
    X, y = overlapping
    targets = nearest_of_class(X, y, 3)
    model, other = (
        LMNN(shrinkage=0, tol=1e-6).fit(X[:, columns], y, targets)
        for columns in ([0, 1, 2, 3, 4], [0, 1, 2, 3, 4, 0])
    )
    assert other.objective_ == pytest.approx(model.objective_, rel=1e-6)
    assert np.isfinite(other.components_).all()


@pytest.mark.parametrize("parameters", [{}, {"init": "pca"}, {"init": "lda"}, {"n_components": 2}])
def test_more_features_than_points(parameters, rng):
    """100 random features part 20 points in any way: all targets coincide, all margins are kept."""
    X, y = rng.normal(size=(20, 100)), np.arange(20) % 2
    model = LMNN(shrinkage=0, **parameters).fit(X, y)
    assert_sound(model, X)
    assert model.objective_ <= 1e-3


def test_one_feature(overlapping):
    X, y = overlapping
    model = LMNN(shrinkage=0).fit(X[:, :1], y)
    assert_sound(model, X[:, :1])
    assert model.components_.shape == (1, 1)


# -- scale -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("parameters", [{}, {"n_components": 2}], ids=str)
@pytest.mark.parametrize("scale", SCALES)
def test_scale_of_all_features_gives_the_same_metric_up_to_scale(parameters, scale, overlapping):
    X, y = overlapping
    model, other = (
        LMNN(shrinkage=0, **parameters).fit(X, y),
        LMNN(shrinkage=0, **parameters).fit(scale * X, y),
    )
    assert other.objective_ == pytest.approx(model.objective_, rel=1e-6)
    np.testing.assert_allclose(scale * other.components_, model.components_, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("scale", [1e8, 1e-8])
def test_scale_of_one_feature_gives_the_same_metric_up_to_scale(
    scale, overlapping, nearest_of_class
):
    """The nearest points depend on the units, so the target neighbours are given."""
    X, y = overlapping
    units = np.array([1, 1, scale, 1, 1])
    targets = nearest_of_class(X, y, 3)
    model, other = (
        LMNN(shrinkage=0).fit(X, y, targets),
        LMNN(shrinkage=0).fit(X * units, y, targets),
    )
    assert other.objective_ == pytest.approx(model.objective_, rel=1e-5)
    np.testing.assert_allclose(distances(other, X * units), distances(model, X), atol=0.01)


@pytest.mark.parametrize("scale", [1e30, 1e-30])
def test_scale_in_float32(scale, overlapping):
    """Squares leave the range of float32, but not that of float64."""
    X, y = overlapping
    X = X.astype(np.float32)
    model, other = LMNN(shrinkage=0).fit(X, y), LMNN(shrinkage=0).fit(X * np.float32(scale), y)
    assert other.components_.dtype == np.float32
    assert other.objective_ == pytest.approx(model.objective_, rel=2e-3)


@pytest.mark.parametrize("scale", [1e150, 1e200, 1e-150, 1e-200])
def test_squares_beyond_float64_are_an_error(scale, overlapping):
    X, y = overlapping
    with pytest.raises(
        InvalidInputError, match=r"spread of X is .*leave the range of float64\. Scale your data"
    ):
        LMNN(shrinkage=0).fit(scale * X, y)


@pytest.mark.parametrize("name", ["DMLEig", "MMC", "RCA", "GMML", "LFDA", "Covariance", "MLKR"])
def test_a_constant_feature_does_not_hide_squares_beyond_float64(name, overlapping):
    X, y = overlapping
    X = np.column_stack([1e-160 * X, np.full(len(X), 3.0)])
    with pytest.raises(
        InvalidInputError, match=r"spread of X is .*leave the range of float64\. Scale your data"
    ):
        getattr(nearfar, name)().fit(X, y)


@pytest.mark.parametrize("size", [1e3, 1e6, 1e8, 1e12])
def test_one_outlier_does_not_blind_the_metric(
    size, dtype, iris, nearest_of_class, paper_objective
):
    """A metric that ignores the outlier's direction u = (1, 1, 1, 1) is at hand.

    Any metric of the points projected on the complement of u is a metric of the points, so the
    optimum is at most that of the projected points, which does not grow with the outlier.
    """
    X, y = iris
    targets = nearest_of_class(X, y, 3)
    X = X.astype(dtype)
    X[5] = size
    if dtype == np.float32 and size > 1e6:
        return assert_float32_is_too_coarse(X, y, targets, paper_objective)
    model = LMNN(shrinkage=0).fit(X, y, targets)
    assert_sound(model, X)
    complement = np.linalg.qr(np.ones((4, 1)), mode="complete")[0][:, 1:]
    projected = LMNN(shrinkage=0).fit(X.astype(np.float64) @ complement, y, targets)
    assert model.objective_ <= projected.objective_ * (1 + model.tol)
    return None


def assert_float32_is_too_coarse(X, y, targets, paper_objective):
    """No map of float32 entries ignores u: they are rounded by 6e-8, which the outlier makes a
    length of 6 or more. What is reported is what the returned map has."""
    with pytest.warns(ConvergenceWarning, match=r"Pass X as float64\. Row 5 of X is an outlier"):
        model = LMNN(shrinkage=0).fit(X, y, targets)
    Z = X.astype(np.float64) @ model.components_.T.astype(np.float64)
    expected = paper_objective(np.eye(Z.shape[1]), Z, y, targets, 0.5)
    assert model.objective_ == pytest.approx(expected, rel=1e-6)
    assert model.status_ == "stalled"
    assert model.duality_gap_ > model.tol
    double = LMNN(shrinkage=0).fit(X.astype(np.float64), y, targets)
    np.testing.assert_allclose(model.components_, double.components_, rtol=0.05, atol=0.05)


def test_one_outlier_in_one_feature(dtype, iris, nearest_of_class):
    """Its feature can be given no weight: the optimum is at most that of the other features."""
    X, y = iris
    targets = nearest_of_class(X, y, 3)
    X = X.astype(dtype)
    X[5, 0] = 1e12
    model = LMNN(shrinkage=0).fit(X, y, targets)
    assert_sound(model, X)
    assert model.objective_ <= LMNN(shrinkage=0).fit(X[:, 1:], y, targets).objective_ * (
        1 + model.tol
    )


def test_push_weight_near_its_ends(overlapping):
    """As mu falls every margin is given up, f -> mu x (number of triplets); never a crash."""
    X, y = overlapping
    for push_weight in (1e-9, 1e-6, 1 - 1e-6):
        model = LMNN(shrinkage=0, push_weight=push_weight).fit(X, y)
        assert_sound(model, X)
        assert model.objective_ <= push_weight * 60 * 3 * 40 * (1 + 1e-9)


@pytest.mark.filterwarnings("ignore::nearfar.errors.DataWarning")
@pytest.mark.parametrize("number", range(12))
def test_random_shapes_units_and_parameters(number, seed, nearest_of_class, paper_objective):
    """Features in any units, classes of any size, as many features as points."""
    rng = np.random.default_rng([number, seed])
    n, d, n_classes = rng.integers([8, 1, 2], [40, 9, 5])
    n_neighbors, push_weight = int(rng.integers(1, 5)), float(rng.choice([0.2, 0.5, 0.9]))
    y = np.append([0, 0, 1], rng.integers(n_classes, size=n - 3))
    X = rng.normal(size=(n_classes, d))[y] + rng.normal(size=(n, d))
    X *= 10.0 ** rng.uniform(-3, 3, size=d)
    model = LMNN(n_neighbors, push_weight, shrinkage=0).fit(X, y)
    assert_sound(model, X)
    targets = nearest_of_class(X, y, n_neighbors)
    expected = paper_objective(model.get_mahalanobis_matrix(), X, y, targets, push_weight)
    assert model.objective_ == pytest.approx(expected, rel=1e-8, abs=1e-8)


@pytest.mark.parametrize("size", [1e-14, 1e-31, 1e-160])
def test_a_feature_that_is_rounding_errors_beside_the_others_changes_nothing(size, iris, rng):
    """Sentence encoders have such dimensions; stretched to the size of the others they would bury
    what is real."""
    X, y = iris
    noise = size * rng.normal(size=(len(X), 1))
    with pytest.warns(DataWarning, match=r"1 of 5 features .*no weight: columns 4\. Drop them"):
        model = LMNN(shrinkage=0).fit(np.hstack([X, noise]), y)
    expected = LMNN(shrinkage=0).fit(X, y)
    assert not model.components_[:, 4].any()
    np.testing.assert_allclose(model.components_[:, :4], expected.components_, atol=1e-9)
    assert model.objective_ == pytest.approx(expected.objective_, rel=1e-9)


# -- what stopped a fit is named -------------------------------------------------------------------


def outlying(size):
    """Row 3 is so many times as far away as the others."""
    X = np.array([[0, 1], [0, 0], [0, 1], [size, 1], [1, 1]], dtype=np.float64)
    return X, [0, 1, 2, 0, 1]


@pytest.mark.filterwarnings("ignore::nearfar.errors.DataWarning")
def test_an_outlier_beyond_all_digits_is_named():
    X, y = outlying(1e9)
    with pytest.warns(ConvergenceWarning, match=r"Row 3 of X is an outlier, 1e\+09 times as far"):
        nearfar.MultiMetricLMNN(push_weight=0.2, shrinkage=0, max_iter=200).fit(X, y)


@pytest.mark.filterwarnings("ignore::nearfar.errors.DataWarning")
def test_a_map_that_float32_spoils_is_named():
    """Distances of 1e9 and of 1 under one map: float32 has 7 digits."""
    X = [[0, 1], [2, 0], [0, 1], [0, 0], [1e9, 1e9], [2, 0], [1, 2], [1, 2], [1, 0], [2, 1], [1, 1]]
    X, y = np.array(X, dtype=np.float32), [3, 0, 2, 1, 3, 3, 1, 1, 0, 0, 1]
    with pytest.warns(
        ConvergenceWarning,
        match=r"since rounding the map to float32 raised the objective .* Pass X as float64\.",
    ):
        nearfar.MCML(tol=1e-5, shrinkage=0).fit(X, y)
    assert nearfar.MCML(tol=1e-5, shrinkage=0).fit(X.astype(np.float64), y).status_ == "converged"


def test_data_without_outliers_are_not_said_to_have_one():
    X, y = np.random.default_rng(0).lognormal(sigma=2, size=(60, 3)), np.arange(60) % 2
    with pytest.warns(ConvergenceWarning, match=r"reached max_iter, .* Raise max_iter or tol\.$"):
        nearfar.LMNN(shrinkage=0, max_iter=2, tol=1e-6).fit(X, y)


def test_multipliers_settle_where_no_step_descends():
    """The objective was at its optimum, and the multipliers 1.3e-5 from theirs: each halving of the
    width moves them twice as far, and three were too few."""
    X = [[-0.802, -1.324], [-0.248, 0.42], [1.136, 0.11], [-0.553, -0.785], [0.749, 1.635]]
    X += [[0.273, -1.233], [-0.958, 1.6], [0.203, -1.732], [-0.084, -1.163], [-0.629, -0.488]]
    X += [[-0.713, 0.553], [-0.063, -0.589]]
    model = nearfar.LMNN(shrinkage=0, n_neighbors=1, init="identity", tol=1e-5).fit(X, [0, 1] * 6)
    assert model.status_ == "converged"
