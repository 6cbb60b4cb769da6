"""DMLEig: what it learns from labels, pairs, triplets and Tuples, and what it refuses."""

import numpy as np
import pytest
from scipy import linalg
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

import nearfar
from nearfar import MMC, DMLEig, Tuples, make_pairs, make_triplets
from nearfar.errors import ConvergenceWarning, DataWarning, InvalidInputError
from nearfar.estimators import dml_eig
from tests.callbacks import interrupt_at, needs_callbacks

SOLVERS = ["interior-point", "lecture"]
each_solver = pytest.mark.parametrize("solver", SOLVERS)


def differences(pairs, kinds, kind):
    pairs = np.asarray(pairs, dtype=np.float64)[np.asarray(kinds) == kind]
    return pairs[:, 0] - pairs[:, 1]


def near_scatter(pairs, kinds, shrinkage=0.0):
    """H, pair by pair."""
    H = sum(np.outer(x, x) for x in differences(pairs, kinds, 1))
    return (1 - shrinkage) * H + shrinkage * np.trace(H) / len(H) * np.eye(len(H))


def closest(A, pairs, kinds):
    """The smallest xᵀAx of the far pairs, one by one."""
    return min(x @ A @ x for x in differences(pairs, kinds, -1))


def lecture_matrix(A, H):
    """M = H^(1/2) A H^(1/2)."""
    root = linalg.sqrtm(H).real
    return root @ A @ root


@pytest.fixture
def pairs(overlapping):
    """80 near and 80 far pairs of points that overlap."""
    return make_pairs(*overlapping, 80, random_state=0)


@pytest.fixture
def by_lecture():
    """The lecture's solver with few steps; it does not get far, which is warned of."""
    return DMLEig(solver="lecture", max_iter=300, shrinkage=0)


# -- what is reported ----------------------------------------------------------------------------


@pytest.mark.parametrize("shrinkage", [0.0, 0.2])
@pytest.mark.parametrize("tol", [0.5, 1e-3, 1e-7])
def test_the_reported_numbers_are_those_of_the_map(shrinkage, tol, pairs):
    """Objective and trace from ``components_`` and the pairs alone; the optimum of a tighter fit
    lies within the gap."""
    model = DMLEig(shrinkage=shrinkage, tol=tol).fit(*pairs)
    A, H = model.get_mahalanobis_matrix(), near_scatter(*pairs, shrinkage)
    assert np.trace(lecture_matrix(A, H)) == pytest.approx(5, rel=1e-8)
    assert model.objective_ == pytest.approx(closest(A, *pairs), rel=1e-9)
    assert (model.status_, model.duality_gap_ <= tol) == ("converged", True)
    best = DMLEig(shrinkage=shrinkage, tol=1e-10).fit(*pairs).objective_
    assert model.objective_ * (1 - 1e-9) <= best
    assert best <= model.objective_ * (1 + model.duality_gap_) * (1 + 1e-9)


def test_the_gap_is_proved_by_weights_of_the_far_pairs(pairs, monkeypatch):
    """d λ_max(Σ α H^(-1/2) xxᵀ H^(-1/2)) from the weights that the solver left, pair by pair."""
    seen = []
    solve = dml_eig.solve_covering_sdp

    def watched(problem, tol):
        for iterate in solve(problem, tol):
            seen.append(iterate.certificate)
            yield iterate

    monkeypatch.setattr(dml_eig, "solve_covering_sdp", watched)
    model = DMLEig(tol=1e-4, shrinkage=0.01).fit(*pairs)
    weights, numbers = seen[-1]
    alpha = weights / weights.sum()
    x, H = differences(*pairs, -1)[numbers], near_scatter(*pairs, 0.01)
    assert (weights > 0).all()
    G = sum(w * np.outer(row, row) for w, row in zip(weights / weights.sum(), x, strict=True))
    kept = 0.01 / np.trace(H) * alpha @ (x**2).sum(axis=1)  # what the inputs' distance adds
    bound = 5 * (0.99 * linalg.eigh(G, H)[0][-1] + kept)  # the eigenvalues of H^(-1/2) G H^(-1/2)
    assert model.duality_gap_ == pytest.approx(bound / model.objective_ - 1, abs=1e-9)


def test_near_pairs_have_a_sum_of_squares_of_the_number_of_features(pairs):
    model = DMLEig(shrinkage=0).fit(*pairs)
    tuples, kinds = pairs
    distances = model.pair_distance(tuples[kinds == 1])
    assert np.sum(distances**2) == pytest.approx(5, rel=1e-6)
    assert model.pair_distance(tuples[kinds == -1]).min() ** 2 == pytest.approx(model.objective_)


def test_no_other_metric_is_above_the_bound(pairs, rng):
    model = DMLEig(tol=0.3, shrinkage=0).fit(*pairs)
    bound, H = model.objective_ * (1 + model.duality_gap_), near_scatter(*pairs)
    for number in range(50):
        L = np.eye(5) if number == 0 else rng.normal(size=(rng.integers(1, 6), 5))
        A = L.T @ L
        assert closest(5 * A / np.sum(H * A), *pairs) < bound


def test_history_tells_of_every_iteration(pairs):
    model = DMLEig(tol=1e-6, shrinkage=0).fit(*pairs)
    assert [record["n_iter"] for record in model.history_] == [*range(1, model.n_iter_ + 1)]
    assert (np.diff([record["objective"] for record in model.history_]) >= 0).all()
    assert (np.diff([record["duality_gap"] for record in model.history_]) <= 0).all()
    assert model.history_[-1]["objective"] == pytest.approx(model.objective_, rel=1e-9)
    assert model.history_[-1]["duality_gap"] == pytest.approx(model.duality_gap_, abs=1e-9)
    assert all(record["pairs_at_hand"] <= 80 for record in model.history_)


# -- the lecture's solver ------------------------------------------------------------------------


def test_the_lecture_takes_its_own_smoothing_and_steps(pairs, by_lecture):
    """Algorithm 15.3.1 with σ = d 1e-5 in plain NumPy; the best of its iterates is kept."""
    H = near_scatter(*pairs, by_lecture.shrinkage)
    inverse = np.linalg.inv(linalg.sqrtm(H).real)
    u = differences(*pairs, -1) @ inverse
    sigma, M, values = 5 * 1e-5, np.eye(5), []
    best = M
    for t in range(1, 301):
        lengths = np.einsum("ij,jk,ik->i", u, M, u)
        weights = np.exp(-(lengths - lengths.min()) / sigma)
        G = u.T @ (weights[:, None] * u) / weights.sum()
        v = np.linalg.eigh(G)[1][:, -1]
        M = (t - 1) / t * M + 5 / t * np.outer(v, v)
        values.append(np.einsum("ij,jk,ik->i", u, M, u).min())
        best = M if values[-1] >= max(values) else best
    with pytest.warns(
        ConvergenceWarning, match="DMLEig stopped before tol=0.001: reached max_iter"
    ):
        model = by_lecture.fit(*pairs)
    found = [record["objective"] for record in model.history_]
    np.testing.assert_allclose(found[:20], values[:20], rtol=1e-5)
    assert model.objective_ == pytest.approx(max(values), rel=0.02)
    assert model.objective_ == pytest.approx(closest(model.get_mahalanobis_matrix(), *pairs))
    assert np.trace(lecture_matrix(model.get_mahalanobis_matrix(), H)) == pytest.approx(5)


@pytest.mark.filterwarnings("ignore::nearfar.errors.ConvergenceWarning")
def test_the_default_solver_is_better_and_the_gaps_agree(pairs, by_lecture):
    """Each bound is above what the other reached."""
    slow, fast = by_lecture.fit(*pairs), DMLEig(tol=1e-6, shrinkage=0).fit(*pairs)
    assert slow.objective_ < fast.objective_
    assert fast.objective_ < slow.objective_ * (1 + slow.duality_gap_) * (1 + 1e-9)
    assert slow.objective_ < fast.objective_ * (1 + fast.duality_gap_)
    assert 0.001 < slow.duality_gap_ < 1


# -- forms of input ------------------------------------------------------------------------------


def test_labels_are_all_their_pairs(overlapping):
    X, y = overlapping
    heads, tails = np.triu_indices(len(X), 1)
    kinds = np.where(y[heads] == y[tails], 1, -1)
    by_labels = DMLEig(tol=1e-7, shrinkage=0).fit(X, y)
    by_pairs = DMLEig(tol=1e-7, shrinkage=0).fit(np.stack([X[heads], X[tails]], axis=1), kinds)
    assert by_labels.objective_ == pytest.approx(by_pairs.objective_, rel=1e-6)
    np.testing.assert_array_equal(by_labels.classes_, [0, 1, 2])
    assert not hasattr(by_pairs, "classes_")


def test_tuples_are_their_dense_pairs(pairs):
    by_tuples = DMLEig(tol=1e-8, shrinkage=0).fit(*pairs)
    dense = DMLEig(tol=1e-8, shrinkage=0).fit(np.asarray(pairs[0]), pairs[1])
    A = by_tuples.get_mahalanobis_matrix()
    np.testing.assert_allclose(A, dense.get_mahalanobis_matrix(), atol=1e-3 * np.abs(A).max())
    assert by_tuples.objective_ == pytest.approx(dense.objective_, rel=1e-7)


@pytest.mark.parametrize("dense", [False, True])
def test_triplets_are_a_near_and_a_far_pair_each(dense, overlapping):
    triplets = make_triplets(*overlapping, 60, random_state=0)
    a, b, c = triplets.indices.T
    stacked = np.column_stack([np.concatenate([a, a]), np.concatenate([b, c])])
    as_pairs = DMLEig(tol=1e-7, shrinkage=0).fit(
        Tuples(triplets.points, stacked), np.repeat([1, -1], 60)
    )
    model = DMLEig(tol=1e-7, shrinkage=0).fit(np.asarray(triplets) if dense else triplets)
    assert model.objective_ == pytest.approx(as_pairs.objective_, rel=1e-6)


def test_drawn_pairs_follow_the_seed(overlapping):
    X, y = overlapping
    one, same, other = (
        DMLEig(n_pairs=30, random_state=seed, shrinkage=0).fit(X, y) for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(one.components_, same.components_)
    assert one.objective_ != other.objective_


def test_a_far_pair_twice_counts_once_and_near_pairs_twice_halve_the_squares(pairs):
    tuples, kinds = pairs
    once = DMLEig(tol=1e-7, shrinkage=0).fit(*pairs)
    for kind, factor in ((-1, 1.0), (1, 0.5)):
        rows = np.concatenate([np.arange(len(kinds)), np.flatnonzero(kinds == kind)])
        twice = DMLEig(tol=1e-7, shrinkage=0).fit(tuples[rows], kinds[rows])
        assert twice.objective_ == pytest.approx(factor * once.objective_, rel=1e-6)


@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_units_and_an_offset_do_not_matter(scale, pairs):
    tuples, kinds = pairs
    other = Tuples(scale * (np.asarray(tuples.points) + 100), tuples.indices)
    one, two = (
        DMLEig(tol=1e-7, shrinkage=0).fit(*pairs),
        DMLEig(tol=1e-7, shrinkage=0).fit(other, kinds),
    )
    assert one.objective_ == pytest.approx(two.objective_, rel=1e-6)
    A = one.get_mahalanobis_matrix()
    np.testing.assert_allclose(
        A, scale**2 * two.get_mahalanobis_matrix(), atol=1e-2 * np.abs(A).max()
    )


def test_a_linear_map_of_the_data_does_not_change_the_optimum(pairs, rng):
    tuples, kinds = pairs
    T = rng.normal(size=(5, 5))
    one = DMLEig(tol=1e-7, shrinkage=0).fit(*pairs)
    mapped = Tuples(np.asarray(tuples.points) @ T, tuples.indices)
    two = DMLEig(tol=1e-7, shrinkage=0).fit(mapped, kinds)
    assert one.objective_ == pytest.approx(two.objective_, rel=1e-6)


def test_constant_features_get_no_weight(pairs):
    tuples, kinds = pairs
    X = np.asarray(tuples.points)
    more = Tuples(np.column_stack([X, np.full(len(X), 3.0)]), tuples.indices)
    one, two = (
        DMLEig(tol=1e-8, shrinkage=0).fit(*pairs),
        DMLEig(tol=1e-8, shrinkage=0).fit(more, kinds),
    )
    assert two.objective_ == pytest.approx(6 / 5 * one.objective_, rel=1e-6)  # the trace is 6
    np.testing.assert_allclose(two.components_[:, 5], 0, atol=1e-9)


# -- arrays --------------------------------------------------------------------------------------


@each_solver
def test_float32_is_proved_in_float64(solver, pairs):
    X = np.asarray(pairs[0], dtype=np.float32)
    model = DMLEig(solver=solver, tol=0.5, shrinkage=0).fit(X, pairs[1])
    double = DMLEig(solver=solver, tol=0.5, shrinkage=0).fit(X.astype(np.float64), pairs[1])
    assert model.components_.dtype == np.float32
    assert model.objective_ == pytest.approx(double.objective_, rel=1e-6)
    A = model.get_mahalanobis_matrix()
    assert model.objective_ == pytest.approx(closest(A, X, pairs[1]), rel=1e-12)


@pytest.mark.torch
@each_solver
@pytest.mark.parametrize("form", ["labels", "dense", "tuples"])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_tensors_give_the_answer_of_arrays(solver, form, device, overlapping, pairs, torch):
    """The lecture's steps magnify rounding errors: sharp smoothing picks one pair or another."""
    tuples, kinds = pairs
    X, y = {
        "labels": overlapping,
        "dense": (np.asarray(tuples), kinds),
        "tuples": (tuples.points, kinds),
    }[form]
    tensor = torch.tensor(np.asarray(X), device=device)
    model = DMLEig(solver=solver, tol=0.5, n_components=3, shrinkage=0)
    if form == "tuples":
        X, tensor = tuples, Tuples(tensor, tuples.indices)
    expected = DMLEig(solver=solver, tol=0.5, n_components=3, shrinkage=0).fit(X, y)
    model.fit(tensor, torch.tensor(np.asarray(y), device=device))
    assert isinstance(model.components_, torch.Tensor)
    assert model.components_.device.type == device
    assert model.components_.shape == (3, 5)
    rel = 0.1 if solver == "lecture" else 1e-6
    assert model.objective_ == pytest.approx(expected.objective_, rel=rel)


@pytest.mark.parametrize("shrinkage", ["auto", 0.3])
def test_few_rows_are_principal_components_of_the_transformed_points(iris, shrinkage):
    """By scikit-learn's PCA; "auto" keeps another distance, and the map is of the inputs."""
    X, y = iris
    full, two = (DMLEig(rows, shrinkage=shrinkage).fit(X, y) for rows in (None, 2))
    assert (two.prior_components_ is None) == (shrinkage == 0.3)
    images = PCA(2).fit_transform(full.transform(X))
    found = two.transform(X) - two.transform(X).mean(axis=0)
    np.testing.assert_allclose(found @ found.T, images @ images.T, atol=1e-9 * images.max() ** 2)
    assert (two.objective_, two.duality_gap_) == (full.objective_, full.duality_gap_)
    assert nearfar.verify(two, X, y).proved


def test_more_rows_than_the_rank_are_zero(pairs):
    full, wide = DMLEig(shrinkage=0).fit(*pairs), DMLEig(n_components=5, shrinkage=0).fit(*pairs)
    M, rank = full.get_mahalanobis_matrix(), len(full.components_)
    np.testing.assert_allclose(wide.get_mahalanobis_matrix(), M, atol=1e-12 * M.max())
    assert not wide.components_[rank:].any()


# -- limits and callbacks ------------------------------------------------------------------------


@each_solver
@pytest.mark.parametrize(("limit", "value"), [("max_iter", 2), ("max_seconds", 1e-9)])
def test_limits_are_warned_of(solver, limit, value, pairs):
    with pytest.warns(ConvergenceWarning, match=rf"DMLEig stopped before tol=1e-12.*{limit}"):
        model = DMLEig(solver=solver, tol=1e-12, **{limit: value}).fit(*pairs)
    assert model.status_ == limit
    assert model.n_iter_ == len(model.history_) <= 2
    assert model.duality_gap_ > 1e-12


@pytest.mark.filterwarnings("ignore::nearfar.errors.ConvergenceWarning")
def test_no_tolerance_is_too_tight_to_end(pairs):
    model = DMLEig(tol=0, shrinkage=0).fit(*pairs)
    assert model.status_ in ("converged", "stalled")
    assert model.n_iter_ < 100
    assert model.duality_gap_ < 1e-8


@each_solver
@needs_callbacks
def test_callbacks_see_a_usable_map_and_may_interrupt(solver, pairs):
    recorder = interrupt_at(3)
    with pytest.warns(ConvergenceWarning, match="DMLEig was interrupted; the best map so far"):
        model = DMLEig(solver=solver, tol=1e-9, shrinkage=0).set_callbacks(recorder).fit(*pairs)
    assert (model.status_, model.n_iter_) == ("interrupted", 3)
    assert 0 < recorder.models[0].score(*pairs) <= 1
    assert model.objective_ == pytest.approx(
        max(record["objective"] for record in model.history_), rel=1e-6
    )


# -- what is refused -----------------------------------------------------------------------------


def test_parameters_out_of_range_are_an_error(pairs):
    for parameters, message in [
        ({"shrinkage": -0.1}, "shrinkage must be a number from 0 to below 1, or 'auto'; got -0.1"),
        ({"n_components": 6}, "n_components must be an integer from 1 to 5; got 6"),
        ({"n_components": 0}, "n_components must be an integer from 1 to 5; got 0"),
        ({"solver": "newton"}, "solver must be one of 'interior-point', 'lecture'; got 'newton'"),
        ({"tol": -1}, "tol must be a number of at least 0; got -1"),
        ({"max_iter": 0}, "max_iter must be an integer of at least 1; got 0"),
        ({"max_seconds": -1}, "max_seconds must be a number of at least 0; got -1"),
        ({"n_pairs": 10}, "n_pairs=10 chooses pairs of labelled points, but X holds tuples"),
    ]:
        with pytest.raises(InvalidInputError, match=message):
            DMLEig(**parameters).fit(*pairs)


def test_singular_near_pairs(rng):
    """A feature that is constant in each class: warned of, or shrunk away."""
    y = np.repeat([0, 1], 10)
    X = np.column_stack([rng.normal(size=20), y])
    message = r"in 1 of 2 directions, along which 100 of 100 far .* Set shrinkage='auto'"
    with pytest.warns(DataWarning, match=message):
        model = DMLEig(shrinkage=0).fit(X, y)
    assert model.status_ == "converged"
    assert DMLEig(shrinkage=0.01).fit(X, y).status_ == "converged"
    assert DMLEig(shrinkage=0).fit(X[:, :1], y).status_ == "converged"


def test_near_pairs_of_equal_points_are_an_error():
    """H is zero, and no share of it is anything."""
    X, y = np.repeat(np.eye(3), 4, axis=0), np.repeat([0, 1, 2], 4)
    with pytest.raises(InvalidInputError, match="problem is unbounded"):
        DMLEig(shrinkage=0).fit(X, y)


def test_extreme_scales_are_an_error(pairs):
    tuples, kinds = pairs
    with pytest.raises(InvalidInputError, match="squares leave the range of float64"):
        DMLEig(shrinkage=0).fit(Tuples(1e200 * np.asarray(tuples.points), tuples.indices), kinds)


# -- real data -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["iris", "wine"])
def test_all_pairs_of_small_sets(name, request):
    X, y = request.getfixturevalue(name)
    model = DMLEig(tol=1e-6, shrinkage=0).fit(X, y)
    assert model.status_ == "converged"
    assert model.n_iter_ < 30
    assert model.objective_ == pytest.approx(
        closest(model.get_mahalanobis_matrix(), *make_pairs(X, y)), rel=1e-6
    )


def test_drawn_pairs_of_digits():
    X, y = load_digits(return_X_y=True)
    model = DMLEig(n_pairs=5000, random_state=0, shrinkage=0).fit(X, y)
    assert model.status_ == "converged"
    assert model.duality_gap_ <= 1e-3
    assert len(model.components_) < 64


@pytest.mark.parametrize("learner", [DMLEig, MMC])
def test_near_pairs_of_equal_points_limit_nothing(learner):
    """The mean of three equal numbers may be rounded, and what points differ by from it was taken
    for what near pairs differ by: a metric of 1e42 with a gap of 3e10 came out."""
    X = np.array([[-0.502, -0.282, -0.478], [0.646, -0.128, -1.287], [0.1, 0.841, -0.184]])
    rows = np.array([0, 0, 0, 1, 1, 1, 2, 2, 2])
    with pytest.raises(InvalidInputError, match=r"27 of 27 far pairs .* points that differ"):
        learner(shrinkage=1e-9).fit(X[rows], rows)
