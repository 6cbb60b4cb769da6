"""LMNN with a shrinkage: the program (7) of `nearfar.problems.lmnn`, recomputed from the answer."""

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.datasets import load_digits, load_wine
from sklearn.neighbors import KNeighborsClassifier

import nearfar
from nearfar import LMNN
from nearfar.errors import InvalidInputError
from nearfar.estimators._shrinkage import better_scale


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
    plain, zero = LMNN().fit(X, y), LMNN(shrinkage=0).fit(X, y)
    assert plain.shrinkage_ == 0
    np.testing.assert_array_equal(plain.components_, zero.components_)
    assert plain.get_params()["shrinkage"] == 0


def test_towards_one_the_metric_is_that_of_the_inputs(wine):
    model = LMNN(shrinkage=0.9999).fit(*wine)
    values = np.linalg.eigvalsh(model.get_mahalanobis_matrix())
    assert values[-1] / values[0] < 1.05


def test_auto_follows_rows_and_features(wine):
    X, y = wine
    assert LMNN(shrinkage="auto").fit(X, y).shrinkage_ == 4 * 13 / (4 * 13 + 178)
    held_out = LMNN(shrinkage="auto", validation_fraction=0.5, random_state=0).fit(X, y)
    assert held_out.shrinkage_ > 4 * 13 / (4 * 13 + 178)


def test_few_points_of_many_features(few_digits):
    """Where the papers' program is worse than the inputs, the shrunk one is better."""
    X, y, new, truth = few_digits

    def error(transform):
        voters = KNeighborsClassifier(3).fit(transform(X), y)
        return 1 - voters.score(transform(new), truth)

    inputs = error(lambda X: X)
    assert error(LMNN().fit(X, y).transform) > inputs
    assert error(LMNN(shrinkage="auto").fit(X, y).transform) < inputs


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


def test_auto_keeps_scaled_features_where_units_differ():
    X, y = load_wine(return_X_y=True)  # one feature is a hundred times larger than the others
    learned, new = np.arange(0, 178, 2), np.arange(1, 178, 2)
    model = LMNN(shrinkage="auto", tol=1e-4).fit(X[learned], y[learned])
    scale = model.feature_scale_
    np.testing.assert_array_equal(np.log2(scale), np.round(np.log2(scale)))
    assert ((X[learned] * scale).std(0) < 2).all()
    assert ((X[learned] * scale).std(0) > 0.7).all()
    np.testing.assert_array_equal(model.target_components_, np.diag(scale))
    heads, tails = edges_of(model)
    M = model.get_mahalanobis_matrix() / np.outer(scale, scale)
    found = objective(M, X[learned] * scale, y[learned], heads, tails, model.shrinkage_)
    assert model.objective_ == pytest.approx(found, rel=1e-9)
    assert nearfar.verify(model, X[learned], y[learned]).proved

    def error(transform):
        voters = KNeighborsClassifier(3).fit(transform(X[learned]), y[learned])
        return 1 - voters.score(transform(X[new]), y[new])

    assert error(model.transform) < 0.5 * error(lambda X: X)
    whole = LMNN(shrinkage=model.shrinkage_, tol=1e-4).fit(X[learned] * scale, y[learned])
    np.testing.assert_array_equal(whole.components_ * scale, model.components_)


def test_auto_keeps_the_inputs_where_scaling_does_not_help(few_digits):
    assert LMNN(shrinkage="auto").fit(*few_digits[:2]).feature_scale_ is None


@pytest.mark.parametrize("unit", [1e200, 1e-200])
def test_auto_refuses_data_whose_squares_are_no_floats(wine, unit):
    X, y = wine
    with pytest.raises(InvalidInputError, match=r"its squares leave the range .* Scale your data"):
        LMNN(shrinkage="auto").fit(unit * X, y)


def test_a_warm_start_and_a_given_start_are_of_the_inputs():
    X, y = load_wine(return_X_y=True)
    model = LMNN(shrinkage="auto", warm_start=True).fit(X, y)
    first, objective_ = model.n_iter_, model.objective_
    model.fit(X, y)
    assert model.n_iter_ < first
    assert model.objective_ == pytest.approx(objective_, rel=2e-3)
    given = LMNN(shrinkage="auto", init=model.components_).fit(X, y)
    assert given.objective_ == pytest.approx(objective_, rel=2e-3)


@pytest.mark.parametrize(
    ("shrinkage", "message"),
    [
        (-0.1, "shrinkage must be a number from 0 to 1; got -0.1"),
        (1.5, "shrinkage must be a number from 0 to 1; got 1.5"),
        (1, "shrinkage must be below 1"),
        (np.nan, "shrinkage must be"),
        ("oas", "shrinkage must be one of 'auto' or a number from 0 to below 1; got 'oas'"),
        (None, "shrinkage must be a number"),
    ],
)
def test_bad_shrinkage(wine, shrinkage, message):
    with pytest.raises(InvalidInputError, match=message):
        LMNN(shrinkage=shrinkage).fit(*wine)


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
