"""LMNN with a shrinkage: the program (7) of `nearfar.problems.lmnn`, recomputed from the answer."""

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.datasets import load_digits, load_wine
from sklearn.neighbors import KNeighborsClassifier

import nearfar
from nearfar import LMNN, KernelLMNN, MultiMetricLMNN
from nearfar.errors import InvalidInputError
from nearfar.estimators._shrinkage import better_scale, chosen_prior, scale_of_pairs
from nearfar.problems.discriminant import discriminant_frame, local_frame


@pytest.fixture(scope="module")
def wine():
    X, y = load_wine(return_X_y=True)
    return (X - X.mean(0)) / X.std(0), y


@pytest.fixture(scope="module")
def few_digits():
    """200 digits of 64 pixels, some of which are always zero, and a thousand to test on."""
    X, y = load_digits(return_X_y=True)
    rows = np.random.default_rng(0).permutation(len(X))
    learned, new = rows[:200], rows[200:1200]
    return X[learned], y[learned], X[new], y[new]


@pytest.mark.parametrize("shrinkage", [0, 0.3, "auto"])
def test_rows_of_the_map_are_orthogonal_and_the_longest_first(few_digits, shrinkage):
    L = LMNN(shrinkage=shrinkage).fit(few_digits[0], few_digits[1]).components_
    squares = L @ L.T
    lengths = np.diag(squares)
    assert (np.diff(lengths) <= 1e-9 * lengths[0]).all()
    np.testing.assert_allclose(squares - np.diag(lengths), 0, atol=1e-9 * lengths[0])


def edges_of(model):
    """Heads and tails of the target edges."""
    heads, slot = np.nonzero(model.proof_["targets"] >= 0)
    return heads, model.proof_["targets"][heads, slot]


def terms(X, heads, tails, rho):
    """Weight of the trace, and the floor, of (7) without the push weight."""
    squares = ((X[heads] - X[tails]) ** 2).sum(1)
    d = int((X[:1] != X).any(0).sum())
    r = rho / (1 - rho)
    return r * squares.sum() / d, 0.5 * r / squares.mean()


def objective(M, X, y, heads, tails, rho, mu=0.5):
    """(7), term by term."""
    ridge, _ = terms(X, heads, tails, rho)
    differences = X[:, None] - X
    D = np.einsum("ija,ab,ijb->ij", differences, M, differences)
    near = D[heads, tails]
    slack = 1 + near[:, None] - D[heads]
    push = np.maximum(slack, 0)[y[heads][:, None] != y].sum()
    return (1 - mu) * (near.sum() + ridge * np.trace(M)) + mu * push


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rho", [0.1, 0.6, 0.95])
def test_objective_and_floor_from_the_map_that_is_returned(wine, rho, dtype):
    X, y = wine[0][::2].astype(dtype), wine[1][::2]
    model = LMNN(shrinkage=rho, tol=1e-4).fit(X, y)
    heads, tails = edges_of(model)
    M = model.get_mahalanobis_matrix()
    found = objective(M, X.astype(float), y, heads, tails, rho)
    assert model.objective_ == pytest.approx(found, rel=1e-5 if dtype is np.float32 else 1e-9)
    _, floor = terms(X.astype(float), heads, tails, rho)
    assert np.linalg.eigvalsh(M)[0] >= floor * (1 - 1e-5)
    assert model.status_ == "converged"
    assert model.duality_gap_ <= 1e-4
    assert model.shrinkage_ == rho


@pytest.mark.parametrize("rho", [0.2, 0.8])
def test_no_better_metric_is_found_by_another_method(wine, rho):
    """L-BFGS of SciPy on a factor of M - floor, from the answer and from elsewhere."""
    X, y = wine[0][::6, :4], wine[1][::6]
    model = LMNN(n_neighbors=2, shrinkage=rho, tol=1e-5).fit(X, y)
    heads, tails = edges_of(model)
    _, floor = terms(X, heads, tails, rho)

    def value(flat):
        L = flat.reshape(4, 4)
        return objective(L.T @ L + floor * np.eye(4), X, y, heads, tails, rho)

    best = min(
        minimize(value, start.ravel(), method="L-BFGS-B", options={"maxfun": 3000}).fun
        for start in (0.5 * np.eye(4), np.random.default_rng(0).normal(size=(4, 4)))
    )
    bound = model.objective_ * (1 - model.duality_gap_)
    assert bound <= best
    assert model.objective_ <= best * (1 + 1e-3)


def test_zero_is_the_program_of_the_papers(wine):
    X, y = wine
    model = LMNN(shrinkage=0).fit(X, y)
    heads, tails = edges_of(model)
    M = model.get_mahalanobis_matrix()
    assert model.objective_ == pytest.approx(objective(M, X, y, heads, tails, 0.0))
    assert model.shrinkage_ == 0
    assert model.prior_components_ is None
    assert LMNN().get_params()["shrinkage"] == "auto"


def test_towards_one_the_metric_is_that_of_the_inputs(wine):
    model = LMNN(shrinkage=0.9999).fit(*wine)
    values = np.linalg.eigvalsh(model.get_mahalanobis_matrix())
    assert values[-1] / values[0] < 1.05


def test_auto_follows_rows_and_features(wine):
    """Larger where labels have shaped the distance that is kept; triplets have no labels."""
    X, y = wine
    assert LMNN().fit(X, y).shrinkage_ == 16 * 13 / (16 * 13 + 178)
    held_out = LMNN(validation_fraction=0.5, random_state=0).fit(X, y)
    assert held_out.shrinkage_ > 16 * 13 / (16 * 13 + 178)
    triplets = X[np.array([[0, 1, 60], [60, 61, 0], [130, 131, 60]])]
    assert LMNN(tol=0.1).fit(triplets).shrinkage_ == 4 * 13 / (4 * 13 + 9)


def test_few_points_of_many_features(few_digits):
    """Where the papers' program is worse than the inputs, the shrunk one is better."""
    X, y, new, truth = few_digits

    def error(transform):
        voters = KNeighborsClassifier(3).fit(transform(X), y)
        return 1 - voters.score(transform(new), truth)

    inputs = error(lambda X: X)
    assert error(LMNN(shrinkage=0).fit(X, y).transform) > inputs
    assert error(LMNN().fit(X, y).transform) < inputs


def test_features_that_do_not_vary_get_no_weight(few_digits):
    X, y = few_digits[:2]
    constant = ~(X[:1] != X).any(0)
    model = LMNN(shrinkage=0.5).fit(X, y)
    assert constant.any()
    assert not model.components_[:, constant].any()
    assert len(model.components_) == (~constant).sum()


def test_verify_proves_it_and_refutes_what_is_below_the_floor(wine):
    X, y = wine
    model = LMNN(shrinkage=0.4, tol=1e-4).fit(X, y)
    verdict = nearfar.verify(model, X, y)
    assert verdict.proved
    assert verdict.gap == pytest.approx(model.duality_gap_, rel=1e-3, abs=1e-9)
    model.components_[-1] *= 0.9
    assert "below its floor" in str(nearfar.verify(model, X, y))


def test_files_passes_checkpoints_and_tensors(wine, tmp_path):
    torch = pytest.importorskip("torch")
    X, y = wine
    model = LMNN(shrinkage=0.3, n_passes=2, checkpoint=tmp_path / "c").fit(X, y)
    nearfar.save(model, tmp_path / "m.nearfar")
    assert nearfar.load(tmp_path / "m.nearfar").shrinkage_ == 0.3
    tensor = LMNN(shrinkage=0.3, n_passes=2).fit(torch.from_numpy(X), y)
    np.testing.assert_allclose(tensor.objective_, model.objective_, rtol=3e-3)


def test_a_rectangular_map_has_no_floor(wine):
    X, y = wine
    model = LMNN(n_components=2, shrinkage=0.5).fit(X, y)
    assert model.components_.shape == (2, 13)
    assert model.duality_gap_ is None


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_auto_keeps_a_discriminant_distance_where_it_classifies_better(dtype):
    """(7) is recomputed in coordinates Wx, where it is about the identity."""
    X, y = load_wine(return_X_y=True)  # one feature is a hundred times larger than the others
    X = X.astype(dtype)
    learned, new = np.arange(0, 178, 2), np.arange(1, 178, 2)
    model = LMNN(tol=1e-4).fit(X[learned], y[learned])
    W = model.prior_components_
    assert W.shape == (13, 13)
    np.testing.assert_allclose(model.target_components_, W, rtol=1e-6)
    heads, tails = edges_of(model)
    inverse, framed = np.linalg.inv(W), X[learned].astype(float) @ W.T
    M = inverse.T @ model.get_mahalanobis_matrix() @ inverse
    found = objective(M, framed, y[learned], heads, tails, model.shrinkage_)
    assert model.objective_ == pytest.approx(found, rel=1e-5 if dtype is np.float32 else 1e-9)
    _, floor = terms(framed, heads, tails, model.shrinkage_)
    assert np.linalg.eigvalsh(M)[0] >= floor * (1 - 1e-5)
    assert nearfar.verify(model, X[learned], y[learned]).proved

    def error(transform):
        voters = KNeighborsClassifier(3).fit(transform(X[learned]), y[learned])
        return 1 - voters.score(transform(X[new]), y[new])

    assert error(model.transform) < 0.2 * error(lambda X: X)


def test_verify_refutes_a_metric_below_the_floor_of_another_distance():
    X, y = load_wine(return_X_y=True)
    model = LMNN().fit(X, y)
    model.components_[-1] *= 0.5
    assert "below its floor" in str(nearfar.verify(model, X, y))
    model = LMNN().fit(X, y)
    model.prior_components_ = 2 * model.prior_components_
    assert nearfar.verify(model, X, y).proved  # (7) does not depend on the scale of W
    model.prior_components_ = np.eye(13)
    assert not nearfar.verify(model, X, y).proved


def test_auto_brings_features_to_one_scale_where_that_classifies_better():
    """Two classes of different spread about one mean: discriminant analysis has nothing to see."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 60)
    X = rng.normal(size=(120, 3)) * np.where(y, 1.0, 5.0)[:, None]
    X[:, 2] = rng.normal(size=120)
    X = X * np.array([1.0, 1.0, 1000.0])
    W = LMNN().fit(X, y).prior_components_
    spread = (X @ W.T).std(0)
    assert spread.max() < 2 * spread.min()


def mean_of_frames(X, y, voters, n_folds):
    """The metric (d, d) to keep and the mistakes of its parts, for features of one scale."""
    d, centred = X.shape[1], X - X.mean(0)
    metrics, mistakes = [], []
    for frame_of in (None, discriminant_frame, local_frame):
        M = np.eye(d) if frame_of is None else frame_of(centred, y, d).metric(None)
        metrics.append(M / np.trace(M @ np.cov(centred.T, bias=True)))
        some, truth, wrong = centred[voters], y[voters], 0.0
        for fold in range(n_folds):
            new = np.arange(len(some)) % n_folds == fold
            A = np.eye(d) if frame_of is None else frame_of(some[~new], truth[~new], d).A
            known, asked = some[~new] @ A.T, some[new] @ A.T
            for k in (1, 3):
                vote = KNeighborsClassifier(k).fit(known, truth[~new])
                wrong += 0.5 * (vote.predict(asked) != truth[new]).sum()
        mistakes.append(wrong)
    weights = np.exp((min(mistakes) - np.array(mistakes)) / 4)
    return sum(w * M for w, M in zip(weights, metrics, strict=True)), mistakes


def test_the_kept_distance_is_a_mean_weighted_by_rows_that_are_left_out():
    """Recomputed from the frames of the inputs; features of one scale have no second set of them.

    With fewer rows than features the frames are of the span of the points.
    """
    rng = np.random.default_rng(1)
    y = np.repeat([0, 1], 12)
    X = np.sign(rng.normal(size=(24, 30))) + 0.4 * rng.normal(size=(2, 30))[y]
    X *= X.std() / X.std(0)
    W, inverse = chosen_prior(X, y, 3)
    expected, mistakes = mean_of_frames(X, y, slice(None), 10)
    assert len(set(mistakes)) > 1
    np.testing.assert_allclose(W.T @ W, expected, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(W @ inverse, np.eye(30), atol=1e-9)


@pytest.mark.parametrize(("n_rows", "step"), [(None, 2), (24_000, 1)])
def test_a_twelfth_of_many_rows_votes_on_the_kept_distance(n_rows, step):
    """A thousand of the 2000 rows vote, but all of them if they are a sample of 24000."""
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=2000)
    X = rng.normal(size=(2000, 3)) + 1.5 * y[:, None] * [1.0, 0.0, 0.0]
    X *= X.std() / X.std(0)
    W, _ = chosen_prior(X, y, 3, n_rows=n_rows)
    expected, mistakes = mean_of_frames(X, y, slice(None, None, step), 5)
    assert len(set(mistakes)) > 1
    np.testing.assert_allclose(W.T @ W, expected, rtol=1e-8, atol=1e-9)


def test_more_features_than_rows_keep_a_distance_in_all_directions():
    """Beyond the span of the training points the prior distance goes on."""
    rng = np.random.default_rng(0)
    y = np.arange(30) % 3
    X = rng.normal(size=(30, 60)) + 5 * rng.normal(size=(30, 4)) @ rng.normal(size=(4, 60))
    X[:, :2] += 8 * np.array([[0, 0], [1, 0], [0, 1]])[y]
    model = LMNN().fit(X, y)
    assert model.components_.shape == (60, 60)
    assert model.prior_components_.shape == (60, 60)
    assert np.linalg.matrix_rank(model.prior_components_) == 60
    assert nearfar.verify(model, X, y).proved


@pytest.mark.parametrize("unit", [1e200, 1e-200])
def test_auto_refuses_data_whose_squares_are_no_floats(wine, unit):
    X, y = wine
    with pytest.raises(InvalidInputError, match=r"its squares leave the range .* Scale your data"):
        LMNN().fit(unit * X, y)


def test_a_warm_start_and_a_given_start_are_of_the_inputs():
    X, y = load_wine(return_X_y=True)
    model = LMNN(warm_start=True, tol=1e-5).fit(X, y)
    first, objective_ = model.n_iter_, model.objective_
    model.fit(X, y)
    assert model.n_iter_ < first
    assert model.objective_ == pytest.approx(objective_, rel=2e-5)
    given = LMNN(init=model.components_, tol=1e-5).fit(X, y)
    assert given.objective_ == pytest.approx(objective_, rel=2e-5)


@pytest.mark.parametrize(
    ("shrinkage", "message"),
    [
        (-0.1, "shrinkage must be a number from 0 to below 1, or 'auto'; got -0.1"),
        (1.5, "shrinkage must be a number from 0 to below 1, or 'auto'; got 1.5"),
        (1, "shrinkage must be below 1"),
        (np.nan, "shrinkage must be"),
        ("oas", "shrinkage must be one of 'auto' or a number from 0 to below 1; got 'oas'"),
        (None, "shrinkage must be a number"),
    ],
)
def test_bad_shrinkage(wine, shrinkage, message):
    with pytest.raises(InvalidInputError, match=message):
        LMNN(shrinkage=shrinkage).fit(*wine)


def test_very_many_features_are_not_shrunk_by_themselves():
    """A metric of full rank on 5001 features would be a map of 0.2 GB."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(12, 5001)), np.arange(12) % 2
    model = LMNN(n_neighbors=1).fit(X, y)
    assert model.shrinkage_ == 0
    assert len(model.components_) < 12
    message = (
        "a metric of full rank on 5001 features needs about 0.8 GB, above the limit of 0.5 GB."
        " Project the features first, for example by PCA, or set shrinkage=0, or raise"
        " memory_limit."
    )
    with pytest.raises(InvalidInputError, match=message):
        LMNN(n_neighbors=1, shrinkage=0.5, memory_limit=0.5).fit(X, y)


def test_a_feature_that_varies_in_few_of_many_rows_is_kept():
    """The distance to keep is computed from a tenth of the rows; here none of them shows it."""
    rng = np.random.default_rng(0)
    y = np.sort(np.arange(20010) % 2)
    X = np.column_stack([y + rng.normal(size=len(y)), rng.normal(size=len(y)), 0 * y])
    X[1, 2] = 1.0
    W, inverse = chosen_prior(X * [1.0, 1000.0, 1.0], y, 3)
    assert W.shape == (3, 3)
    np.testing.assert_allclose(W @ inverse, np.eye(3), atol=1e-9)


def test_constant_features_are_not_scaled(rng):
    """Their mean is rounded, and that of 0.1 would be seen as a spread of 1e-17."""
    X, y = rng.normal(size=(60, 3)) * [1, 1, 1e4], np.arange(60) % 2
    X[:, 0] += 4 * y
    wide = np.column_stack([X, np.full(60, 0.1)])
    assert better_scale(wide, y, 3)[3] >= 1e-4
    assert np.array_equal(better_scale(wide, y, 3)[:3], better_scale(X, y, 3))


def test_units_that_features_share_do_not_matter(rng):
    X, y = rng.normal(size=(60, 3)) * [1, 0.7, 1e4], np.arange(60) % 2
    X[:, 0] += 4 * y
    plain, scaled = better_scale(X, y, 3), better_scale(1.4 * X, y, 3)
    assert len(np.unique(plain / scaled)) == 1


def test_features_are_compared_on_rows_of_all_classes_whatever_their_order(rng):
    """Of 4000 rows every other one suffices: of alternating labels these were one class."""
    y = np.arange(4000) % 2
    X = rng.normal(size=(4000, 3)) * [1, 1, 60]
    X[:, 0] += 2 * y
    expected = better_scale(X, y, 3)
    assert expected is not None
    for order in (np.argsort(y, kind="stable"), rng.permutation(4000)):
        assert np.array_equal(better_scale(X[order], y[order], 3), expected)


def test_features_are_compared_on_near_pairs_of_all_classes_whatever_their_order(rng):
    """The second feature varies in the second class alone, and half of its pairs come last."""
    y = np.arange(400) % 2
    X = np.column_stack([3 * y + rng.normal(size=400), 60 * y * rng.normal(size=400)])
    near = np.concatenate([rng.choice(np.flatnonzero(y == label), (11_000, 2)) for label in (0, 1)])
    far = np.column_stack([rng.choice(np.flatnonzero(y == label), 400) for label in (0, 1)])
    pairs, kinds = np.concatenate([near, far]), np.arange(22_400) < 22_000
    expected = scale_of_pairs(X, *pairs.T, kinds)
    order, rows = rng.permutation(len(pairs)), rng.permutation(400)
    moved = np.argsort(rows)[pairs[order]]
    assert expected is not None
    assert np.array_equal(scale_of_pairs(X[rows], *moved.T, kinds[order]), expected)


# -- several metrics, and kernels ----------------------------------------------------------------


def joint_objective(model, X, y, mu=0.5):
    """(7) of several metrics, term by term: each has the share of the trace of its edges."""
    heads, tails = edges_of(model)
    W = np.eye(X.shape[1]) if model.prior_components_ is None else model.prior_components_
    ridge, _ = terms(X @ W.T, heads, tails, model.shrinkage_)
    metrics, of = model.get_mahalanobis_matrix(), model.metric_of_
    differences = X[:, None] - X
    D = np.empty((len(X), len(X)))
    for c, M in enumerate(metrics):
        part = differences[:, of == c]
        D[:, of == c] = np.einsum("ija,ab,ijb->ij", part, M, part)
    inverse = np.linalg.inv(W)
    shares = np.bincount(of[tails]) / len(tails)
    traces = np.array([np.trace(inverse.T @ M @ inverse) for M in metrics])
    slack = 1 + D[heads, tails][:, None] - D[heads]
    push = np.maximum(slack, 0)[y[heads][:, None] != y].sum()
    return (1 - mu) * (D[heads, tails].sum() + ridge * (shares @ traces)) + mu * push


@pytest.mark.parametrize("parameters", [{}, {"shrinkage": 0.3}, {"init": np.eye(13)}])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_several_metrics_keep_the_single_one(wine, parameters, dtype):
    X, y = wine[0].astype(dtype), wine[1]
    model = MultiMetricLMNN(tol=1e-3, **parameters).fit(X, y)
    found = joint_objective(model, X.astype(float), y)
    assert model.objective_ == pytest.approx(found, rel=1e-5 if dtype is np.float32 else 1e-9)
    assert model.duality_gap_ <= 1e-3
    verdict = nearfar.verify(model, X, y)
    assert verdict.proved
    heads, tails = edges_of(model)
    framed = X.astype(float) @ model.prior_components_.T if "init" not in parameters else None
    if framed is not None:
        _, floor = terms(framed, heads, tails, model.shrinkage_)
        inverse = np.linalg.inv(model.prior_components_)
        for M in model.get_mahalanobis_matrix():
            assert np.linalg.eigvalsh(inverse.T @ M @ inverse)[0] >= floor * (1 - 1e-4)
    model.components_[1] *= 0.9
    assert not nearfar.verify(model, X, y).proved


def test_towards_one_all_metrics_are_the_single_one(wine):
    X, y = wine
    model = MultiMetricLMNN(shrinkage=0.999).fit(X, y)
    W = model.prior_components_
    for M in model.get_mahalanobis_matrix():
        ratio = np.linalg.eigvals(np.linalg.solve(W.T @ W, M)).real
        assert ratio.max() / ratio.min() < 1.05


def test_several_metrics_of_few_points_do_no_harm(few_digits):
    """Where the papers' program errs on every third point, the default is no worse than the inputs.

    The rule for the shrinkage counts the rows of each metric: 20 rows, and 61 pixels that vary.
    """
    X, y, new, truth = few_digits
    papers, model = MultiMetricLMNN(shrinkage=0).fit(X, y), MultiMetricLMNN().fit(X, y)
    inputs = KNeighborsClassifier(3).fit(X, y).score(new, truth)
    assert papers.score(new, truth) < inputs - 0.1
    assert model.score(new, truth) >= inputs
    assert model.shrinkage_ == 4 * 64 / (4 * 64 + 200 / 10)


def test_several_metrics_from_a_checkpoint_and_under_validation(wine, tmp_path):
    X, y = wine
    path = tmp_path / "c"
    with pytest.warns(nearfar.errors.ConvergenceWarning, match="max_iter"):
        cut = MultiMetricLMNN(tol=1e-4, max_iter=30, checkpoint=path).fit(X, y)
    assert cut.n_iter_ == 30  # enough for the one metric that is learned first
    resumed = MultiMetricLMNN(tol=1e-4, checkpoint=path).fit(X, y)
    whole = MultiMetricLMNN(tol=1e-4).fit(X, y)
    assert resumed.objective_ == pytest.approx(whole.objective_, rel=2e-4)
    held_out = MultiMetricLMNN(validation_fraction=0.3, random_state=0).fit(X, y)
    assert nearfar.verify(held_out, X, y).proved


@pytest.mark.parametrize(
    "parameters",
    [{}, {"rank": 20}, {"gamma": 0.1}, {"kernel": "poly", "shrinkage": 0.4}],
    ids=str,
)
def test_a_kernel_keeps_its_own_distance(wine, parameters):
    X, y = wine
    model = KernelLMNN(**parameters).fit(X, y)
    n, r = model.eigenvectors_.shape
    rows = 4 if model.kernel_components_ is None else 16  # where labels shaped what is kept
    assert model.shrinkage_ == parameters.get("shrinkage", rows * r / (rows * r + n))
    assert len(model.dual_coef_) == r
    assert nearfar.verify(model, X, y).proved
    model.dual_coef_[-1] *= 0.5
    assert "below its floor" in str(nearfar.verify(model, X, y))


def test_the_linear_kernel_is_the_metric_of_the_points(wine):
    X, y = wine
    model = KernelLMNN("linear", shrinkage=0.4, tol=1e-5).fit(X, y)
    expected = LMNN(shrinkage=0.4, tol=1e-5).fit(X, y)
    assert model.objective_ == pytest.approx(expected.objective_, rel=2e-5)


def test_a_kernel_map_of_few_rows_has_no_floor(wine):
    model = KernelLMNN(n_components=2).fit(*wine)
    assert model.dual_coef_.shape == (2, 178)
    assert model.duality_gap_ is None


# -- difficult data under the default --------------------------------------------------------------


def difficult(name):
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    X = rng.normal(size=(60, 5)) + y[:, None] * [2, 1, 0, 0, 0]
    if name == "constant and repeated features":
        X = np.column_stack([X, X[:, 0], np.full(60, 3.0)])
    elif name == "more features than rows":
        X = np.column_stack([X, rng.normal(size=(60, 100))])
    elif name == "units":
        X = X * 10.0 ** np.array([-8, 0, 3, 6, 8])
    elif name == "an outlier":
        X[7, 2] = 1e5
    elif name == "few places":
        X = np.round(X[:, :2])
    elif name == "far from the origin":
        X = X + 1e6
    elif name == "one feature":
        X = X[:, :1]
    return X, y


@pytest.mark.parametrize(
    "name",
    [
        "constant and repeated features",
        "more features than rows",
        "units",
        "an outlier",
        "few places",
        "far from the origin",
        "one feature",
    ],
)
@pytest.mark.filterwarnings("ignore:.*(have different labels|outlier)")
@pytest.mark.parametrize("learner", [LMNN(), MultiMetricLMNN()], ids=["one", "several"])
def test_the_default_is_proved_on_difficult_data(name, learner):
    X, y = difficult(name)
    model = learner.fit(X, y)
    assert model.status_ == "converged"
    assert np.isfinite(model.components_).all()
    assert nearfar.verify(model, X, y).proved


@pytest.mark.parametrize("learner", [MultiMetricLMNN, KernelLMNN])
@pytest.mark.parametrize("shrinkage", [-0.1, 1, "oas"])
def test_bad_shrinkage_of_the_family(wine, learner, shrinkage):
    with pytest.raises(InvalidInputError, match="shrinkage must be"):
        learner(shrinkage=shrinkage).fit(*wine)


@pytest.mark.parametrize(
    "learner",
    [
        LMNN(init=np.eye(1, 13), n_components=1),
        MultiMetricLMNN(shrinkage=0, init=np.eye(1, 13)),
        KernelLMNN("linear", shrinkage=0, n_components=1),
    ],
    ids=["LMNN", "MultiMetricLMNN", "KernelLMNN"],
)
def test_held_out_rows_that_are_worse_are_warned_of(wine, learner):
    """One direction from a bad start, cut at once: the inputs hardly err on wine."""
    X, y = wine
    learner.set_params(validation_fraction=0.4, random_state=0, max_iter=1)
    with pytest.warns(nearfar.errors.NearfarWarning) as caught:
        learner.fit(X, y)
    worse = [w for w in caught if w.category is nearfar.errors.WorseThanInputsWarning]
    assert len(worse) == 1
    assert "with the inputs as they are" in str(worse[0].message)
