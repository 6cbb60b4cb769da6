"""MMC: what it learns from labels, pairs, triplets and Tuples, and what it refuses."""

import numpy as np
import pytest
from scipy import linalg
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV, StratifiedKFold

import nearfar
from nearfar import MMC, Tuples, make_pairs, make_triplets
from nearfar.errors import ConvergenceWarning, DataWarning, InvalidInputError
from tests.callbacks import interrupt_at, needs_callbacks

FORMS = [{}, {"diagonal": True}]
each_form = pytest.mark.parametrize("form", FORMS, ids=["full", "diagonal"])


def differences(pairs, kinds, kind):
    pairs = np.asarray(pairs, dtype=np.float64)[np.asarray(kinds) == kind]
    return pairs[:, 0] - pairs[:, 1]


def near_scatter(pairs, kinds, shrinkage=0.0):
    """S, pair by pair."""
    x = differences(pairs, kinds, 1)
    S = sum(np.outer(row, row) for row in x)
    return (1 - shrinkage) * S + shrinkage * np.trace(S) / len(S) * np.eye(len(S))


def paper_objective(A, pairs, kinds):
    """Σ √(xᵀAx) over the far pairs, one by one."""
    return sum(np.sqrt(x @ A @ x) for x in differences(pairs, kinds, -1))


def proved_bound(A, pairs, kinds, diagonal, shrinkage=0.0):
    """The largest objective that weights w = 1/ℓ allow: √(Σℓ λ_max(S⁻¹ Σ xxᵀ/ℓ)).

    With a shrinkage ρ the share 1 − ρ of it is for the learned part, and the identity has the rest:
    √(Σℓ [(1 − ρ) λ_max + Σ φ‖x‖²/ℓ]) with φ = ρ / tr S. It holds for any ℓ > 0; of ℓ = ‖x‖_A and
    of these lengths held at a small share of their mean it is the lower one.
    """
    x, S = differences(pairs, kinds, -1), near_scatter(pairs, kinds, shrinkage)
    lengths = np.sqrt(np.einsum("ij,jk,ik->i", x, A, x))
    bounds = []
    for held in (lengths, np.maximum(lengths, 0.03 * lengths.mean())):
        W = (x / held[:, None]).T @ x
        top = (np.diag(W) / np.diag(S)).max() if diagonal else linalg.eigh(W, S)[0][-1]
        kept = shrinkage / np.trace(S) * np.sum(x**2 / held[:, None])
        bounds.append(np.sqrt(held.sum() * ((1 - shrinkage) * top + kept)))
    return min(bounds)


@pytest.fixture
def pairs(overlapping):
    """80 near and 80 far pairs of points that overlap."""
    return make_pairs(*overlapping, 80, random_state=0)


# -- what is reported ----------------------------------------------------------------------------


@each_form
@pytest.mark.parametrize("shrinkage", [0.0, 0.2])
@pytest.mark.parametrize("tol", [1e-1, 1e-3, 1e-6])
def test_the_reported_numbers_are_those_of_the_map(form, shrinkage, tol, pairs):
    """Objective, constraint and gap, from ``components_`` and the pairs alone."""
    model = MMC(**form, shrinkage=shrinkage, tol=tol).fit(*pairs)
    A = model.get_mahalanobis_matrix()
    assert np.sum(near_scatter(*pairs, shrinkage) * A) == pytest.approx(1, rel=1e-9)
    assert model.objective_ == pytest.approx(paper_objective(A, *pairs), rel=1e-9)
    bound = proved_bound(A, *pairs, form.get("diagonal"), shrinkage)
    assert model.duality_gap_ == pytest.approx(bound / model.objective_ - 1, abs=1e-7)
    assert model.duality_gap_ <= tol
    assert model.status_ == "converged"


@each_form
def test_no_other_metric_is_above_the_bound(form, pairs, rng):
    """Random metrics that keep the constraint, and the identity."""
    model = MMC(**form, tol=0.1, shrinkage=0).fit(*pairs)
    bound, S = model.objective_ * (1 + model.duality_gap_), near_scatter(*pairs)
    for number in range(50):
        L = np.eye(5) if number == 0 else rng.normal(size=(rng.integers(1, 6), 5))
        A = np.diag((L**2).sum(axis=0)) if form else L.T @ L
        assert paper_objective(A / np.sum(S * A), *pairs) < bound


@each_form
def test_float32_is_proved_in_float64(form, pairs):
    X = np.asarray(pairs[0], dtype=np.float32)
    model = MMC(**form, shrinkage=0).fit(X, pairs[1])
    assert model.components_.dtype == np.float32
    A = model.get_mahalanobis_matrix()
    assert model.objective_ == pytest.approx(paper_objective(A, X, pairs[1]), rel=1e-5)
    bound = proved_bound(A, X, pairs[1], form.get("diagonal"))
    assert model.duality_gap_ == pytest.approx(bound / model.objective_ - 1, abs=1e-5)


def test_history_tells_of_every_iteration(pairs):
    model = MMC(tol=1e-6, shrinkage=0).fit(*pairs)
    assert [record["n_iter"] for record in model.history_] == [*range(1, model.n_iter_ + 1)]
    assert (np.diff([record["objective"] for record in model.history_]) > 0).all()
    assert model.history_[-1]["objective"] == pytest.approx(model.objective_, rel=1e-12)
    assert model.history_[-1]["duality_gap"] == model.duality_gap_ <= 1e-6


def test_a_diagonal_metric_has_a_row_for_each_feature(pairs):
    model = MMC(diagonal=True, shrinkage=0).fit(*pairs)
    assert np.count_nonzero(model.components_) == 5
    assert (np.diff(np.linalg.norm(model.components_, axis=1)) <= 0).all()


def test_the_full_metric_is_at_least_as_good_as_the_diagonal_one(pairs):
    full, diagonal = (
        MMC(tol=1e-6, shrinkage=0).fit(*pairs),
        MMC(diagonal=True, tol=1e-6, shrinkage=0).fit(*pairs),
    )
    assert full.objective_ > 1.01 * diagonal.objective_


# -- forms of input ------------------------------------------------------------------------------


@each_form
def test_labels_are_all_their_pairs(form, overlapping):
    X, y = overlapping
    heads, tails = np.triu_indices(len(X), 1)
    kinds = np.where(y[heads] == y[tails], 1, -1)
    by_labels = MMC(**form, shrinkage=0.2).fit(X, y)
    by_pairs = MMC(**form, shrinkage=0.2).fit(np.stack([X[heads], X[tails]], axis=1), kinds)
    assert by_labels.objective_ == pytest.approx(by_pairs.objective_, rel=1e-9)
    np.testing.assert_array_equal(by_labels.classes_, [0, 1, 2])
    assert not hasattr(by_pairs, "classes_")


def test_tuples_are_their_dense_pairs(pairs):
    by_tuples, dense = (
        MMC(shrinkage=0).fit(*pairs),
        MMC(shrinkage=0).fit(np.asarray(pairs[0]), pairs[1]),
    )
    np.testing.assert_allclose(
        by_tuples.get_mahalanobis_matrix(), dense.get_mahalanobis_matrix(), rtol=1e-6, atol=1e-9
    )


@pytest.mark.parametrize("dense", [False, True])
def test_triplets_are_a_near_and_a_far_pair_each(dense, overlapping):
    triplets = make_triplets(*overlapping, 60, random_state=0)
    a, b, c = triplets.indices.T
    stacked = np.column_stack([np.concatenate([a, a]), np.concatenate([b, c])])
    as_pairs = MMC(shrinkage=0).fit(Tuples(triplets.points, stacked), np.repeat([1, -1], 60))
    model = MMC(shrinkage=0).fit(np.asarray(triplets) if dense else triplets)
    assert model.objective_ == pytest.approx(as_pairs.objective_, rel=1e-9)


def test_drawn_pairs_follow_the_seed(overlapping):
    X, y = overlapping
    one, same, other = (
        MMC(n_pairs=30, random_state=seed, shrinkage=0).fit(X, y) for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(one.components_, same.components_)
    assert one.objective_ != other.objective_


def test_the_order_of_pairs_and_of_their_ends_does_not_matter(pairs, rng):
    tuples, kinds = pairs
    order = rng.permutation(len(kinds))
    turned = Tuples(tuples.points, tuples.indices[order][:, ::-1])
    one, two = (
        MMC(tol=1e-8, shrinkage=0).fit(*pairs),
        MMC(tol=1e-8, shrinkage=0).fit(turned, kinds[order]),
    )
    assert one.objective_ == pytest.approx(two.objective_, rel=1e-8)


def test_a_pair_twice_counts_twice(pairs):
    """Far pairs twice double the objective; near ones halve what A may be, and √2 the objective."""
    tuples, kinds = pairs
    once = MMC(tol=1e-7, shrinkage=0).fit(*pairs)
    for kind, factor in ((-1, 2.0), (1, 0.5**0.5)):
        rows = np.concatenate([np.arange(len(kinds)), np.flatnonzero(kinds == kind)])
        twice = MMC(tol=1e-7, shrinkage=0).fit(tuples[rows], kinds[rows])
        assert twice.objective_ == pytest.approx(factor * once.objective_, rel=1e-6)


@each_form
@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_units_and_an_offset_do_not_matter(form, scale, pairs):
    """A is that over scale²; for a full metric also under any other linear map."""
    tuples, kinds = pairs
    other = Tuples(scale * (np.asarray(tuples.points) + 100), tuples.indices)
    one, two = MMC(**form).fit(*pairs), MMC(**form).fit(other, kinds)
    assert one.objective_ == pytest.approx(two.objective_, rel=1e-6)
    np.testing.assert_allclose(
        one.get_mahalanobis_matrix(),
        scale**2 * two.get_mahalanobis_matrix(),
        atol=1e-4 * np.abs(one.get_mahalanobis_matrix()).max(),
    )


def test_a_linear_map_of_the_data_maps_the_metric(pairs, rng):
    tuples, kinds = pairs
    T = rng.normal(size=(5, 5))
    one = MMC(tol=1e-6, shrinkage=0).fit(*pairs)
    two = MMC(tol=1e-6, shrinkage=0).fit(
        Tuples(np.asarray(tuples.points) @ T, tuples.indices), kinds
    )
    assert one.objective_ == pytest.approx(two.objective_, rel=1e-5)
    A, back = one.get_mahalanobis_matrix(), T @ two.get_mahalanobis_matrix() @ T.T
    np.testing.assert_allclose(A, back, atol=2e-3 * np.abs(A).max())


def test_an_outlier_and_other_units_are_no_trouble(overlapping):
    X, y = overlapping
    X = X * [1e-6, 1.0, 1e6, 1.0, 1.0]
    X[0] *= 1e3
    model = MMC(tol=1e-6, shrinkage=0).fit(X, y)
    assert model.status_ == "converged"
    pairs, kinds = make_pairs(X, y, balanced=False)
    bound = proved_bound(model.get_mahalanobis_matrix(), pairs, kinds, diagonal=False)
    assert bound <= model.objective_ * (1 + 2e-6)


def test_features_twice_and_constant_ones_do_not_matter(pairs):
    tuples, kinds = pairs
    X = np.asarray(tuples.points)
    more = Tuples(np.column_stack([X, X[:, :2], np.full(len(X), 3.0)]), tuples.indices)
    one, two = MMC(tol=1e-6, shrinkage=0).fit(*pairs), MMC(tol=1e-6, shrinkage=0).fit(more, kinds)
    assert one.objective_ == pytest.approx(two.objective_, rel=1e-6)
    assert two.components_.shape[1] == 8


# -- few rows ------------------------------------------------------------------------------------


def test_projection_keeps_the_leading_directions_of_the_full_metric(pairs):
    full, two = (
        MMC(shrinkage=0).fit(*pairs),
        MMC(n_components=2, reduce="project", shrinkage=0).fit(*pairs),
    )
    np.testing.assert_allclose(two.components_, full.components_[:2])
    assert (two.objective_, two.duality_gap_) == (full.objective_, full.duality_gap_)


def test_projection_of_a_diagonal_metric_keeps_the_heaviest_features(pairs):
    full = MMC(diagonal=True, shrinkage=0).fit(*pairs)
    two = MMC(diagonal=True, n_components=2, reduce="project", shrinkage=0).fit(*pairs)
    np.testing.assert_array_equal(two.components_, full.components_[:2])


@pytest.mark.parametrize("rows", [1, 2])
def test_a_learned_map_is_stationary_and_at_least_about_a_projected_one(rows, pairs, rng):
    """Small changes, brought back to the constraint, do not raise its objective."""
    model = MMC(n_components=rows, tol=1e-9, shrinkage=0).fit(*pairs)
    assert model.duality_gap_ is None
    assert model.components_.shape == (rows, 5)
    S = near_scatter(*pairs)

    def objective(L):
        A = L.T @ L
        return paper_objective(A / np.sum(S * A), *pairs)

    L = model.components_
    assert model.objective_ == pytest.approx(objective(L), rel=1e-9)
    projected = MMC(n_components=rows, reduce="project", shrinkage=0).fit(*pairs).components_
    assert objective(L) >= 0.99 * objective(projected)
    full = MMC(tol=1e-6, shrinkage=0).fit(*pairs)
    assert objective(L) <= full.objective_ * (1 + 1e-6)
    for _ in range(20):
        change = 1e-4 * rng.normal(size=L.shape) * np.abs(L).mean()
        assert objective(L + change) < objective(L) * (1 + 1e-8)


@pytest.mark.parametrize("reduce", ["learn", "project"])
def test_all_rows_are_the_full_metric(reduce, pairs):
    full, model = (
        MMC(shrinkage=0).fit(*pairs),
        MMC(n_components=5, reduce=reduce, shrinkage=0).fit(*pairs),
    )
    assert model.duality_gap_ == full.duality_gap_
    np.testing.assert_allclose(
        model.get_mahalanobis_matrix(), full.get_mahalanobis_matrix(), rtol=1e-9
    )


def test_more_rows_than_the_data_have_dimensions_are_zero(pairs):
    tuples, kinds = pairs
    flat = Tuples(np.asarray(tuples.points)[:, [0, 1, 0, 1]], tuples.indices)
    model = MMC(n_components=3, reduce="project", shrinkage=0).fit(flat, kinds)
    assert model.components_.shape == (3, 4)
    np.testing.assert_allclose(model.components_[2], 0, atol=1e-9)


# -- where it starts -----------------------------------------------------------------------------


@each_form
def test_the_start_does_not_change_the_answer(form, pairs, rng):
    expected = MMC(**form, tol=1e-7).fit(*pairs).objective_
    for start in (np.eye(5), np.eye(5)[:1], 1e8 * rng.normal(size=(2, 5))):
        assert MMC(**form, tol=1e-7, init=start).fit(*pairs).objective_ == pytest.approx(
            expected, rel=1e-6
        )


def test_a_learned_map_may_start_anywhere(pairs, rng):
    model = MMC(n_components=2, init=rng.normal(size=(2, 5))).fit(*pairs)
    assert model.objective_ <= MMC(tol=1e-6, shrinkage=0).fit(*pairs).objective_ * (1 + 1e-6)


@pytest.mark.parametrize("parameters", [{}, {"diagonal": True}, {"n_components": 2}])
def test_warm_start_takes_fewer_iterations(parameters, pairs):
    model = MMC(warm_start=True, **parameters).fit(*pairs)
    first = model.n_iter_
    assert model.fit(*pairs).n_iter_ < first


@pytest.mark.parametrize(
    ("init", "message"),
    [
        ("pca", r"init must be one of 'auto' or an array; got 'pca'"),
        (None, r"init must be one of 'auto' or an array; got None"),
        (np.eye(4), r"the map of init must have shape \(rows, 5\) and hold numbers"),
        (np.full((5, 5), np.nan), "the map of init must be finite and not zero"),
        (np.zeros((5, 5)), "the map of init must be finite and not zero"),
    ],
)
def test_unusable_starts_are_an_error(init, message, pairs):
    with pytest.raises(InvalidInputError, match=message):
        MMC(init=init, shrinkage=0).fit(*pairs)


def test_warm_start_with_another_number_of_features_is_an_error(pairs):
    tuples, kinds = pairs
    model = MMC(warm_start=True, shrinkage=0).fit(*pairs)
    fewer = Tuples(np.asarray(tuples.points)[:, :3], tuples.indices)
    with pytest.raises(InvalidInputError, match=r"the map of the last fit must have shape \(rows"):
        model.fit(fewer, kinds)


# -- limits and callbacks ------------------------------------------------------------------------


@pytest.mark.parametrize(("limit", "value"), [("max_iter", 2), ("max_seconds", 1e-9)])
def test_limits_are_warned_of(limit, value, pairs):
    with pytest.warns(ConvergenceWarning, match=rf"MMC stopped before tol=1e-12.*{limit}"):
        model = MMC(tol=1e-12, **{limit: value}).fit(*pairs)
    assert model.status_ == limit
    assert model.n_iter_ == len(model.history_) <= 2
    assert model.duality_gap_ > 1e-12


@pytest.mark.filterwarnings("ignore::nearfar.errors.ConvergenceWarning")
@each_form
def test_no_tolerance_is_too_tight_to_end(form, pairs):
    """It ends by itself, at the best that float64 can tell."""
    model = MMC(**form, tol=0).fit(*pairs)
    assert model.status_ in ("converged", "stalled")
    assert model.n_iter_ < 200
    assert model.duality_gap_ < 1e-8


@needs_callbacks
def test_callbacks_see_a_usable_map_and_may_interrupt(pairs):
    recorder = interrupt_at(2)
    with pytest.warns(ConvergenceWarning, match="MMC was interrupted; the best map so far"):
        model = MMC(tol=1e-9, shrinkage=0).set_callbacks(recorder).fit(*pairs)
    assert (model.status_, model.n_iter_) == ("interrupted", 2)
    assert 0.5 < recorder.models[0].score(*pairs) <= 1
    assert model.objective_ > model.history_[0]["objective"]


# -- what is refused -----------------------------------------------------------------------------


def test_parameters_out_of_range_are_an_error(pairs):
    for parameters, message in [
        ({"shrinkage": -0.1}, "shrinkage must be a number from 0 to below 1, or 'auto'; got -0.1"),
        ({"n_components": 6}, "n_components must be an integer from 1 to 5; got 6"),
        ({"n_components": 0}, "n_components must be an integer from 1 to 5; got 0"),
        ({"reduce": "cut"}, "reduce must be one of 'learn', 'project'; got 'cut'"),
        ({"tol": -1}, "tol must be a number of at least 0; got -1"),
        ({"max_iter": 0}, "max_iter must be an integer of at least 1; got 0"),
        ({"n_pairs": 10}, "n_pairs=10 chooses pairs of labelled points, but X holds tuples"),
        (
            {"diagonal": True, "n_components": 2},
            "diagonal=True cannot learn a map of n_components=2 rows.*Set reduce='project'",
        ),
    ]:
        with pytest.raises(InvalidInputError, match=message):
            MMC(**parameters).fit(*pairs)


@each_form
def test_an_objective_without_a_largest_value_is_an_error_with_remedies(form, rng):
    """A feature that is constant in each class. Regularisation helps, and so does dropping it."""
    y = np.repeat([0, 1], 10)
    X = np.column_stack([rng.normal(size=20), y])
    with pytest.raises(InvalidInputError, match=r"100 of 100 far pairs differ where no near") as e:
        MMC(**form, shrinkage=0).fit(X, y)
    np.testing.assert_array_equal(e.value.indices, np.arange(100))
    for remedy in ("more near pairs", "sklearn.decomposition.PCA", "set shrinkage"):
        assert remedy in str(e.value)
    assert MMC(**form, shrinkage=0.01).fit(X, y).status_ == "converged"
    assert MMC(**form).fit(X[:, :1], y).status_ == "converged"


def test_pairs_that_say_nothing_or_too_much_are_an_error(pairs):
    tuples, kinds = pairs
    with pytest.raises(InvalidInputError, match="near and far pairs are both needed; got 80 near"):
        MMC(shrinkage=0).fit(tuples[kinds == 1], kinds[kinds == 1])
    with pytest.raises(
        InvalidInputError, match=r"y must be \+1 for near pairs and -1 for far ones"
    ):
        MMC(shrinkage=0).fit(tuples, np.where(kinds == 1, 1, 0))
    same = Tuples(tuples.points, np.where(kinds[:, None] == 1, tuples.indices, 3))
    with (
        pytest.warns(DataWarning, match="far pairs of equal points are left out"),
        pytest.raises(InvalidInputError, match="both needed; got 80 near and 0 far ones"),
    ):
        MMC(shrinkage=0).fit(same, kinds)
    itself = Tuples(tuples.points, np.append(tuples.indices, [[5, 5]], axis=0))
    with pytest.warns(DataWarning, match="near pairs of a point with itself say nothing"):
        model = MMC(shrinkage=0).fit(itself, np.append(kinds, 1))
    assert model.objective_ == pytest.approx(MMC(shrinkage=0).fit(*pairs).objective_)


def test_one_class_is_an_error(overlapping):
    X, _ = overlapping
    with pytest.raises(InvalidInputError, match=r"MMC needs .*classes"):
        MMC(shrinkage=0).fit(X, np.zeros(len(X)))


def test_extreme_scales_are_an_error(pairs):
    tuples, kinds = pairs
    with pytest.raises(InvalidInputError, match="squares leave the range of float64"):
        MMC(shrinkage=0).fit(Tuples(1e200 * np.asarray(tuples.points), tuples.indices), kinds)


# -- with scikit-learn, files and tensors --------------------------------------------------------


@pytest.mark.parametrize("dense", [False, True])
def test_a_grid_search_over_pairs(dense, iris):
    tuples, kinds = make_pairs(*iris, 60, random_state=0)
    grid = {"diagonal": [False, True], "shrinkage": [0.0, 0.1]}
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    search = GridSearchCV(MMC(shrinkage=0), grid, cv=folds, error_score="raise")
    search.fit(np.asarray(tuples) if dense else tuples, kinds)
    assert search.best_score_ > 0.9
    assert len(search.cv_results_["params"]) == 4


@pytest.mark.torch
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize(
    ("parameters", "dtype"),
    [
        ({}, np.float32),
        ({}, np.float64),
        ({"diagonal": True}, np.float32),
        ({"n_components": 2}, np.float32),
    ],
)
def test_tensors(parameters, device, dtype, overlapping, pairs, torch):
    X, y = (overlapping[0].astype(dtype), overlapping[1])
    tensor = torch.tensor(X, device=device)
    model, expected = MMC(**parameters).fit(tensor, y), MMC(**parameters).fit(X, y)
    assert isinstance(model.components_, torch.Tensor)
    assert model.components_.device.type == device
    assert model.components_.dtype == tensor.dtype
    loose = 1e-3 if dtype == np.float32 else 1e-6
    assert model.objective_ == pytest.approx(expected.objective_, rel=loose)
    tuples, kinds = Tuples(tensor, pairs[0].indices), pairs[1]
    by_tuples = MMC(**parameters).fit(tuples, kinds)
    dense = MMC(**parameters).fit(tuples.dense(), torch.tensor(kinds))
    assert by_tuples.objective_ == pytest.approx(dense.objective_, rel=loose)
    assert by_tuples.score(tuples, kinds) == pytest.approx(dense.score(tuples, kinds), abs=1e-2)


@pytest.mark.parametrize("model", [MMC(shrinkage=0.1), MMC(diagonal=True, shrinkage=0.1)])
@pytest.mark.filterwarnings("ignore:class 1 has 1 member:nearfar.errors.DataWarning")
def test_a_ridge_of_equal_near_pairs_is_no_remedy(model):
    message = r"problem is unbounded.* Give near pairs of points that differ: all of these"
    with pytest.raises(InvalidInputError, match=message):
        model.fit(np.array([[1.0, 0], [0, 0], [0, 0]]), [1, 0, 0])


def test_equal_points_near_in_one_pair_and_far_in_another_are_ordinary_data():
    """Two features of iris: 150 flowers at 117 places, some places with two species."""
    X, y = load_iris(return_X_y=True)
    with pytest.warns(DataWarning, match="equal points with different labels are not paired"):
        pairs, kinds = make_pairs(X[:, :2], y, 200, random_state=0)
    with pytest.warns(DataWarning, match="^3 pairs of points are given both as near and as far"):
        model = MMC().fit(pairs, kinds)
    assert model.status_ == "converged"
    assert nearfar.verify(model, pairs, kinds).proved
