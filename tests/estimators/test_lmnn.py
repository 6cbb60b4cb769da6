"""LMNN: the papers' objective, its optimum, and what it does not depend on."""

import tracemalloc

import numpy as np
import pytest
from scipy.stats import ortho_group
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier
from threadpoolctl import threadpool_limits

from nearfar import LMNN
from nearfar.errors import ConvergenceWarning, InvalidInputError

VARIANTS = [
    {},
    {"push_weight": 0.2},
    {"push_weight": 0.9, "n_neighbors": 1},
    {"n_components": 2},
    {"n_components": 2, "reduce": "project"},
]
each_variant = pytest.mark.parametrize("parameters", VARIANTS, ids=str)


@pytest.fixture(params=["iris", "wine", "overlapping"])
def labelled(request, iris, wine, overlapping):
    """Points and labels of each of three sets."""
    return {"iris": iris, "wine": wine, "overlapping": overlapping}[request.param]


def distances(model, X):
    """Learned distances between the rows of X, (n, n)."""
    Z = model.transform(X)
    return np.linalg.norm(Z[:, None] - Z[None], axis=2)


# -- the objective -----------------------------------------------------------------------------


@pytest.mark.parametrize(("push_weight", "metric"), [(0.5, 1 / 3), (0.2, 1 / 8)])
def test_an_answer_derived_by_hand(push_weight, metric):
    """On a line, class a at 0 and 1 and class b at 3 and 4, with one target neighbour each.

    M is a number m >= 0. The four target edges have length m. The impostors of 0 are at squared
    distances 9m and 16m, those of 1 at 4m and 9m, and so on by symmetry, so that
    f(m) = 4(1-mu) m + 2 mu ([1 - 3m]₊ + 2 [1 - 8m]₊ + [1 - 15m]₊).
    For mu = 0.5 its slope is 2 - 3 < 0 left of 1/3 and 2 right of it: m = 1/3, f = 2/3.
    For mu = 0.2 its slope is 3.2 - 0.4 (3 + 16) < 0 left of 1/8 and 3.2 - 1.2 > 0 right of it:
    m = 1/8, f = 0.4 + 0.4 (1 - 3/8) = 0.65.
    """
    X, y = np.array([[0.0], [1], [3], [4]]), ["a", "a", "b", "b"]
    model = LMNN(shrinkage=0, n_neighbors=1, push_weight=push_weight, tol=1e-6).fit(X, y)
    optimum = {0.5: 2 / 3, 0.2: 0.65}[push_weight]
    assert model.objective_ == pytest.approx(optimum, rel=1e-5)
    assert model.get_mahalanobis_matrix().item() == pytest.approx(metric, rel=1e-3)
    assert model.status_ == "converged"


@each_variant
def test_objective_is_the_papers(parameters, dtype, overlapping, nearest_of_class, paper_objective):
    """Computed in float64; a float32 map is rounded after that, which costs its last digits.

    Where the map is projected it is that of the full metric.
    """
    X, y = overlapping
    model = LMNN(shrinkage=0, **parameters).fit(X.astype(dtype), y)
    whole = model
    if model.reduce == "project":
        whole = clone(model).set_params(n_components=None).fit(X.astype(dtype), y)
    X = X.astype(dtype).astype(np.float64)
    targets = nearest_of_class(X, y, model.n_neighbors)
    expected = paper_objective(whole.get_mahalanobis_matrix(), X, y, targets, model.push_weight)
    assert model.objective_ == pytest.approx(expected, rel=1e-9 if dtype == np.float64 else 1e-4)


# Whether the tighter fit gets there does not matter: its objective is an upper bound all the same.
@pytest.mark.filterwarnings("ignore::nearfar.errors.ConvergenceWarning")
@pytest.mark.parametrize("parameters", VARIANTS[:3], ids=str)
@pytest.mark.parametrize("tol", [1e-1, 1e-3])
def test_no_metric_is_below_the_certified_bound(parameters, tol, overlapping):
    model = LMNN(shrinkage=0, tol=tol, **parameters).fit(*overlapping)
    better = LMNN(shrinkage=0, tol=1e-6, **parameters).fit(*overlapping)
    bound = model.objective_ * (1 - model.duality_gap_)
    assert model.status_ == "converged"
    assert model.duality_gap_ <= tol
    assert better.objective_ >= bound
    assert better.objective_ * (1 - better.duality_gap_) <= model.objective_


@pytest.mark.filterwarnings("ignore::nearfar.errors.ConvergenceWarning")
@pytest.mark.parametrize(
    "parameters",
    [{"max_iter": 1}, {"max_iter": 7}],
    ids=str,
)
def test_the_bound_holds_for_maps_far_from_the_optimum(parameters, overlapping):
    model = LMNN(shrinkage=0, **parameters).fit(*overlapping)
    best = LMNN(shrinkage=0, tol=1e-5).fit(*overlapping)
    assert 0 <= model.duality_gap_ <= 1
    assert best.objective_ >= model.objective_ * (1 - model.duality_gap_)


@pytest.mark.filterwarnings("ignore::nearfar.errors.ConvergenceWarning")
def test_no_other_metric_of_many_is_below_the_bound(
    rng, overlapping, nearest_of_class, paper_objective
):
    """Neighbours of the answer, and its multiples."""
    X, y = overlapping
    X, y = X[::2], y[::2]
    model = LMNN(shrinkage=0, tol=1e-6).fit(X, y)
    targets = nearest_of_class(X, y, 3)
    bound = model.objective_ * (1 - model.duality_gap_)
    L = model.components_
    maps = [L + 10.0**-power * rng.normal(size=L.shape) for power in range(5)]
    for other in [*maps, 0.9 * L, 1.1 * L, np.eye(5)]:
        assert paper_objective(other.T @ other, X, y, targets, 0.5) >= bound


def test_a_tight_tolerance_is_reached(labelled):
    model = LMNN(shrinkage=0, tol=1e-6, max_iter=5000).fit(*labelled)
    assert model.status_ == "converged"
    assert model.duality_gap_ <= 1e-6


@pytest.mark.parametrize("n_components", [None, 1, 2])
def test_float32_converges(n_components, labelled):
    X, y = labelled
    model = LMNN(shrinkage=0, n_components=n_components).fit(X.astype(np.float32), y)
    assert model.status_ == "converged"


def test_history_tells_of_every_iteration(overlapping):
    model = LMNN(shrinkage=0).fit(*overlapping)
    assert [record["n_iter"] for record in model.history_] == list(range(1, model.n_iter_ + 1))
    for record in model.history_:
        assert {"seconds", "objective", "duality_gap", "active_triplets"} <= set(record)
    seconds = [record["seconds"] for record in model.history_]
    assert seconds == sorted(seconds)
    assert seconds[0] > 0
    last = model.history_[-1]
    assert last["duality_gap"] == pytest.approx(model.duality_gap_, rel=1e-6)
    assert model.duality_gap_ <= model.tol
    assert last["objective"] == pytest.approx(model.objective_)


# -- what the answer does not depend on ----------------------------------------------------------


@each_variant
def test_the_order_of_the_rows_does_not_matter(parameters, rng, overlapping):
    X, y = overlapping
    order = rng.permutation(len(X))
    model = LMNN(shrinkage=0, **parameters).fit(X, y)
    other = LMNN(shrinkage=0, **parameters).fit(X[order], y[order])
    assert other.objective_ == pytest.approx(model.objective_, rel=1e-6)
    np.testing.assert_allclose(other.components_, model.components_, rtol=1e-3, atol=1e-4)


@each_variant
def test_the_names_of_the_classes_do_not_matter(parameters, overlapping):
    X, y = overlapping
    model = LMNN(shrinkage=0, **parameters).fit(X, y)
    other = LMNN(shrinkage=0, **parameters).fit(X, np.array(["z", "b", "k"])[y])
    assert other.objective_ == pytest.approx(model.objective_, rel=1e-6)
    np.testing.assert_allclose(other.components_, model.components_, rtol=1e-3, atol=1e-4)


@each_variant
def test_translation_does_not_matter(parameters, overlapping):
    X, y = overlapping
    model = LMNN(shrinkage=0, **parameters).fit(X, y)
    other = LMNN(shrinkage=0, **parameters).fit(X - 1e4, y)
    assert other.objective_ == pytest.approx(model.objective_, rel=1e-6)
    np.testing.assert_allclose(other.components_, model.components_, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("shift", [1e7, 1e8])
def test_translation_does_not_matter_where_squares_cancel(shift, rng):
    """Squared norms are 1e15 or more, squared distances about 40: ‖a‖² + ‖b‖² - 2ab would fail."""
    y = np.repeat(np.arange(3), 30)
    X = rng.normal(size=(90, 20)) + 2 * rng.normal(size=(3, 20))[y]
    X = (X + shift) - shift  # what is left of the digits, so that both have the same data
    model = LMNN(shrinkage=0).fit(X, y)
    other = LMNN(shrinkage=0).fit(X + shift, y)
    assert other.objective_ == pytest.approx(model.objective_, rel=1e-3)


def test_rotation_turns_the_metric_along(rng, overlapping):
    X, y = overlapping
    Q = ortho_group(5, seed=rng).rvs()
    model, other = (
        LMNN(shrinkage=0, tol=1e-4).fit(X, y),
        LMNN(shrinkage=0, tol=1e-4).fit(X @ Q.T, y),
    )
    assert other.objective_ == pytest.approx(model.objective_, rel=1e-4)
    np.testing.assert_allclose(distances(other, X @ Q.T), distances(model, X), atol=0.1)


def test_units_of_the_features_do_not_matter_once_neighbours_are_fixed(
    overlapping, nearest_of_class
):
    X, y = overlapping
    units = np.array([1.0, 1e-3, 40.0, 1e5, 7.0])
    targets = nearest_of_class(X, y, 3)
    model, other = (
        LMNN(shrinkage=0).fit(X, y, targets),
        LMNN(shrinkage=0).fit(X * units, y, targets),
    )
    assert other.objective_ == pytest.approx(model.objective_, rel=1e-6)
    np.testing.assert_allclose(distances(other, X * units), distances(model, X), atol=1e-3)


def test_the_number_of_threads_does_not_matter(overlapping):
    with threadpool_limits(1):
        one = LMNN(shrinkage=0).fit(*overlapping)
    with threadpool_limits(2):
        two = LMNN(shrinkage=0).fit(*overlapping)
    np.testing.assert_allclose(one.components_, two.components_, rtol=1e-6, atol=1e-9)


def test_a_seed_fixes_everything():
    """Enough rows for a first guess from a random part of them."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 1100)
    X = rng.normal(size=(2200, 2)) + [5, 0] * y[:, None]
    first, second = (LMNN(shrinkage=0, random_state=7).fit(X, y) for _ in range(2))
    np.testing.assert_array_equal(first.components_, second.components_)
    other = LMNN(shrinkage=0, random_state=8).fit(X, y)
    assert other.objective_ == pytest.approx(first.objective_, rel=2e-3)


def test_no_array_of_all_pairs_is_allocated():
    """5000² distances in float64 would take 200 MB."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(5), 1000)
    X = rng.normal(size=(5000, 3)) + 8 * rng.normal(size=(5, 3))[y]
    tracemalloc.start()
    try:
        LMNN(shrinkage=0, tol=0.1, random_state=0).fit(X, y)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100e6


# -- target neighbours ---------------------------------------------------------------------------


def test_given_nearest_neighbours_are_the_default(overlapping, nearest_of_class):
    X, y = overlapping
    model = LMNN(shrinkage=0, n_neighbors=2).fit(X, y)
    given = LMNN(shrinkage=0).fit(X, y, nearest_of_class(X, y, 2))
    np.testing.assert_allclose(given.components_, model.components_, rtol=1e-6, atol=1e-9)


def test_given_neighbours_may_be_any_of_the_class(rng, overlapping, paper_objective):
    """A different number for each row: -1 stands for none, at any place."""
    X, y = overlapping
    targets = np.full((60, 4), -1)
    for i in range(60):
        others = np.setdiff1d(np.flatnonzero(y == y[i]), [i])
        chosen = rng.choice(others, size=i % 4, replace=False)
        targets[i, 4 - len(chosen) :] = chosen
    model = LMNN(shrinkage=0).fit(X, y, target_neighbors=targets.tolist())
    expected = paper_objective(model.get_mahalanobis_matrix(), X, y, targets, 0.5)
    assert model.objective_ == pytest.approx(expected, rel=1e-9)
    assert model.duality_gap_ <= model.tol


def test_given_neighbours_follow_the_rows(rng, overlapping, nearest_of_class):
    X, y = overlapping
    targets = nearest_of_class(X, y, 3)
    order = rng.permutation(60)
    place = np.argsort(order)
    shuffled = LMNN(shrinkage=0).fit(X[order], y[order], place[targets[order]])
    assert shuffled.objective_ == pytest.approx(
        LMNN(shrinkage=0).fit(X, y, targets).objective_, rel=1e-6
    )


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([60, 1], r"row 7 names row numbers outside 0 … 59 \(1 in all"),
        ([-2, 1], "row 7 names row numbers outside 0 … 59"),
        ([7, 1], "row 7 names the row itself"),
        ([30, 1], "row 7 names rows of another class"),
        ([1, 1], "row 7 names the same row twice"),
    ],
)
def test_unusable_neighbours_are_an_error(row, message, overlapping):
    X, y = overlapping
    targets = np.full((60, 2), -1)
    targets[7] = row
    with pytest.raises(InvalidInputError, match=message) as caught:
        LMNN(shrinkage=0).fit(X, y, targets)
    assert caught.value.indices.tolist() == [7]
    assert str(caught.value).startswith("target_neighbors must name other rows of the same class")


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (np.zeros((59, 1), int), r"integer array of shape \(60, k\).* got shape \(59, 1\)"),
        (np.zeros(60, int), r"got shape \(60,\) of int64"),
        (np.zeros((60, 1)), "of float64"),
        (np.full((60, 3), -1), "names no neighbour at all. Give at least one"),
        (np.zeros((60, 0), int), "names no neighbour at all"),
    ],
)
def test_tables_of_neighbours_that_fit_nothing_are_an_error(targets, message, overlapping):
    with pytest.raises(InvalidInputError, match=message):
        LMNN(shrinkage=0).fit(*overlapping, targets)


# -- fewer rows ------------------------------------------------------------------------------------


def test_projection_is_pca_of_the_transformed_points(overlapping):
    X, y = overlapping
    X = X * [1.0, 10.0, 0.1, 3.0, 1.0]  # so that rows and variances are sorted otherwise
    full = LMNN(shrinkage=0).fit(X, y)
    projected = LMNN(shrinkage=0, n_components=2, reduce="project").fit(X, y)
    expected = PCA(2).fit(full.transform(X)).transform(full.transform(X))
    images = projected.transform(X) - projected.transform(X).mean(0)
    np.testing.assert_allclose(np.abs(images), np.abs(expected), rtol=1e-6, atol=1e-9)
    assert projected.objective_ == full.objective_
    assert projected.duality_gap_ == full.duality_gap_


def test_projection_of_digits_is_better_than_the_longest_rows():
    X, y = load_digits(return_X_y=True)
    X, new, y, truth = train_test_split(X[:900], y[:900], test_size=0.3, random_state=0)

    def error(transform):
        return 1 - KNeighborsClassifier(3).fit(transform(X), y).score(transform(new), truth)

    longest = LMNN(shrinkage=0, tol=1e-2).fit(X, y).components_[:4]
    projected = LMNN(shrinkage=0, n_components=4, reduce="project", tol=1e-2).fit(X, y)
    assert error(projected.transform) < 0.7 * error(lambda X: X @ longest.T)


def test_a_learned_map_is_at_least_as_good_as_a_projected_one(
    overlapping, nearest_of_class, paper_objective
):
    """It starts elsewhere and could end in a worse local minimum, but not on these data."""
    X, y = overlapping
    learned = LMNN(shrinkage=0, n_components=2).fit(X, y)
    M = LMNN(shrinkage=0, n_components=2, reduce="project").fit(X, y).get_mahalanobis_matrix()
    assert learned.objective_ < paper_objective(M, X, y, nearest_of_class(X, y, 3), 0.5)
    assert learned.duality_gap_ is None


def test_a_learned_map_is_stationary(overlapping, nearest_of_class, paper_objective):
    """No multiple and no small change of a converged map is better by more than the tolerance."""
    X, y = overlapping
    model = LMNN(shrinkage=0, n_components=2, tol=1e-4).fit(X, y)
    targets = nearest_of_class(X, y, 3)
    L = model.components_
    rng = np.random.default_rng(0)
    changes = [0.03 * rng.normal(size=L.shape) * np.abs(L).max() for _ in range(10)]
    for other in [0.9 * L, 0.97 * L, 1.03 * L, 1.1 * L, *(L + change for change in changes)]:
        assert paper_objective(other.T @ other, X, y, targets, 0.5) > 0.999 * model.objective_


def test_a_smaller_tolerance_does_not_worsen_a_learned_map(labelled):
    X, y = labelled
    loose = LMNN(shrinkage=0, n_components=2, tol=1e-2).fit(X, y)
    tight = LMNN(shrinkage=0, n_components=2, tol=1e-4, max_iter=3000).fit(X, y)
    assert tight.objective_ <= 1.01 * loose.objective_


@pytest.mark.parametrize("reduce", ["learn", "project"])
def test_all_rows_are_the_full_metric(reduce, overlapping):
    full = LMNN(shrinkage=0).fit(*overlapping)
    model = LMNN(shrinkage=0, n_components=5, reduce=reduce).fit(*overlapping)
    assert model.objective_ == pytest.approx(full.objective_)
    assert model.duality_gap_ <= model.tol
    assert model.components_.shape == (5, 5)


@pytest.mark.parametrize("reduce", ["learn", "project"])
def test_more_rows_than_the_data_have_dimensions(reduce, overlapping):
    """Five features that are multiples of one: the map still has the two rows asked for."""
    X, y = overlapping
    model = LMNN(shrinkage=0, n_components=2, reduce=reduce).fit(X[:, :1] * [1.0, 2, 3, 4, 5], y)
    assert model.components_.shape == (2, 5)
    assert model.transform(X).shape == (60, 2)


# -- limits ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("parameters", [{}, {"n_components": 2}], ids=str)
def test_max_iter(parameters, overlapping):
    model = LMNN(shrinkage=0, max_iter=3, **parameters)
    with pytest.warns(ConvergenceWarning, match=r"stopped before tol=0\.001: reached max_iter"):
        model.fit(*overlapping)
    assert (model.status_, model.n_iter_, len(model.history_)) == ("max_iter", 3, 3)
    assert np.isfinite(model.transform(overlapping[0])).all()


def test_max_iter_warning_gives_the_gap_that_was_reached(overlapping):
    with pytest.warns(ConvergenceWarning, match="duality gap of [0-9]") as record:
        model = LMNN(shrinkage=0, max_iter=3).fit(*overlapping)
    assert f"{model.duality_gap_:.1e}" in str(record[0].message)
    assert "Raise max_iter or tol" in str(record[0].message)


def test_warnings_point_to_the_line_that_fits(overlapping):
    with pytest.warns(ConvergenceWarning) as record:
        LMNN(shrinkage=0, max_iter=1).fit(*overlapping)
    assert record[0].filename == __file__


def test_max_seconds(overlapping):
    with pytest.warns(ConvergenceWarning, match="reached max_seconds"):
        model = LMNN(shrinkage=0, max_seconds=1e-9, tol=1e-8).fit(*overlapping)
    assert model.status_ == "max_seconds"
    assert model.n_iter_ == 1


def test_a_converged_fit_does_not_warn(overlapping, recwarn):
    assert LMNN(shrinkage=0).fit(*overlapping).status_ == "converged"
    assert len(recwarn) == 0


# -- warm start ------------------------------------------------------------------------------------


@pytest.mark.parametrize("parameters", [{}, {"n_components": 2}], ids=str)
@pytest.mark.parametrize("data", ["iris", "wine"])
def test_warm_start_takes_fewer_iterations(data, parameters, request):
    X, y = request.getfixturevalue(data)
    model = LMNN(shrinkage=0, warm_start=True, **parameters).fit(X, y)
    cold, objective = model.n_iter_, model.objective_
    model.fit(X, y)
    assert model.n_iter_ < cold
    assert model.objective_ <= objective * (1 + model.tol)


def test_warm_start_reaches_the_optimum_of_other_parameters(overlapping):
    model = LMNN(shrinkage=0, warm_start=True).fit(*overlapping).set_params(push_weight=0.9)
    model.fit(*overlapping)
    cold = LMNN(shrinkage=0, push_weight=0.9).fit(*overlapping)
    assert model.objective_ == pytest.approx(cold.objective_, rel=2e-3)


@pytest.mark.parametrize("parameters", [{}, {"validation_fraction": 0.3}], ids=str)
def test_warm_start_from_less_than_the_kept_distance(parameters, rng):
    """Where no impostor is near, the optimum is the kept distance. The last map is far below it."""
    y = np.repeat([0, 1, 2], 20)
    X = rng.standard_normal((60, 3)) + 20 * y[:, None]
    model = LMNN(shrinkage=0.5, warm_start=True, random_state=0).fit(10 * X, y)
    model.set_params(**parameters).fit(X, y)
    M = model.get_mahalanobis_matrix()
    np.testing.assert_allclose(M, M[0, 0] * np.eye(3), atol=1e-6 * M[0, 0])
    assert model.duality_gap_ <= model.tol


def test_warm_start_with_another_number_of_features_is_an_error(overlapping):
    X, y = overlapping
    model = LMNN(shrinkage=0, warm_start=True).fit(X, y)
    with pytest.raises(
        InvalidInputError, match=r"map of the last fit must .*shape \(rows, 4\).*warm_start"
    ):
        model.fit(X[:, :4], y)


def test_without_warm_start_another_number_of_features_is_a_new_fit(overlapping):
    X, y = overlapping
    model = LMNN(shrinkage=0).fit(X, y).fit(X[:, :4], y)
    assert model.n_features_in_ == model.components_.shape[1] == 4
