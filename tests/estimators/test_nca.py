"""NCA: local optima, beside scikit-learn's and scipy's."""

import tracemalloc
import warnings

import numpy as np
import pytest
from scipy import optimize
from sklearn.base import clone
from sklearn.neighbors import NeighborhoodComponentsAnalysis
from threadpoolctl import threadpool_limits

from nearfar import NCA
from nearfar.errors import InvalidInputError


def nca(*rows, **parameters):
    """The paper's program, unless a shrinkage is given."""
    return NCA(*rows, **{"shrinkage": 0, **parameters})


def shares(images, y):
    """Σ p_ij over pairs of a class, with a matrix of all distances."""
    D = ((images[:, None] - images) ** 2).sum(axis=2)
    np.fill_diagonal(D, np.inf)
    p = np.exp(D.min(axis=1, keepdims=True) - D)
    p /= p.sum(axis=1, keepdims=True)
    return float(np.sum(p * (y[:, None] == y)))


# -- the same optimum as scikit-learn's ------------------------------------------------------------


@pytest.mark.parametrize("rows", [2, 13])
@pytest.mark.parametrize("scale", [0.3, 1.0])
def test_from_the_same_start_the_optimum_is_that_of_scikit_learn(rows, scale, wine):
    X, y = wine
    start = scale * np.eye(rows, 13)
    peer = NeighborhoodComponentsAnalysis(rows, init=start, tol=1e-10, max_iter=1000).fit(X, y)
    model = nca(rows, init=start, tol=1e-8, max_iter=1000).fit(X, y)
    theirs = shares(X @ peer.components_.T, y)
    assert theirs > 177
    assert model.objective_ == pytest.approx(theirs, abs=1e-4)


@pytest.mark.parametrize("rows", [1, 2, 4])
def test_an_optimum_of_scikit_learn_is_one_of_ours_and_the_other_way_round(rows, iris):
    """There is more than one; neither leaves that of the other."""
    X, y = iris
    options = {"tol": 1e-10, "max_iter": 1000}
    peer = NeighborhoodComponentsAnalysis(rows, init=np.eye(rows, 4), **options).fit(X, y)
    model = nca(rows, init=peer.components_, tol=1e-6).fit(X, y)
    assert model.objective_ == pytest.approx(shares(X @ peer.components_.T, y), abs=1e-3)
    ours = nca(rows, tol=1e-8, max_iter=1000).fit(X, y)
    back = NeighborhoodComponentsAnalysis(rows, init=ours.components_, **options).fit(X, y)
    assert ours.objective_ == pytest.approx(shares(X @ back.components_.T, y), abs=1e-3)


@pytest.mark.parametrize("data", ["iris", "wine"])
def test_the_default_start_is_a_good_one(data, request):
    """More points choose their own class than without a map, and than at scikit-learn's start by
    PCA, which is the identity for as many rows as features."""
    X, y = request.getfixturevalue(data)
    model = nca(2).fit(X, y)
    assert model.objective_ > 0.97 * len(X)
    assert model.objective_ > shares(X, y) + 5


@pytest.mark.parametrize(
    "learner", [nca(), nca(init="identity"), nca(diagonal=True), nca(n_components=2)], ids=repr
)
def test_classes_whose_means_are_the_same(learner, rng):
    """Two clusters each, on opposite corners of a square, and two features of noise: from a start
    at which points are close together, a descent would see no difference between the classes."""
    corner = np.arange(160) % 4
    X = rng.normal(size=(160, 4)) * [1, 1, 4, 4]
    X[:, :2] += 5 * np.array([[0, 0], [1, 0], [1, 1], [0, 1]])[corner]
    assert clone(learner).fit(X, corner % 2).objective_ > 0.95 * 160


def test_the_gradient_vanishes_at_the_answer(overlapping, nca_by_loops):
    """Along the map itself and along any change of it, relative to the objective."""
    X, y = overlapping
    model = nca(2, tol=1e-10, max_iter=1000).fit(X, y)
    gradient = nca_by_loops.gradient(model.components_, X, y)
    change = np.linalg.norm(gradient) * np.linalg.norm(model.components_)
    assert change < 1e-2 * model.objective_


# -- rows ------------------------------------------------------------------------------------------


def test_no_rows_named_is_all_rows(overlapping):
    X, y = overlapping
    model, named = nca().fit(X, y), nca(n_components=5).fit(X, y)
    np.testing.assert_array_equal(model.components_, named.components_)
    assert model.components_.shape == (5, 5)


# -- a weight for each feature ---------------------------------------------------------------------


@pytest.mark.parametrize("init", ["auto", "identity"])
def test_the_weights_are_those_of_another_descent(init, iris):
    """scipy's, in the logarithms of the weights and with differences for slopes."""
    X, y = iris
    model = nca(diagonal=True, init=init, tol=1e-8).fit(X, y)
    peer = optimize.minimize(lambda s: -shares(X * np.exp(s), y), np.zeros(4), method="L-BFGS-B")
    assert model.objective_ >= -peer.fun * (1 - 1e-4)  # "auto" may find a better optimum
    if init == "identity":
        assert model.objective_ == pytest.approx(-peer.fun, rel=1e-4)


def test_weights_are_one_to_a_feature_sorted_by_size(overlapping):
    X, y = overlapping
    model = nca(diagonal=True).fit(X, y)
    assert ((model.components_ != 0).sum(axis=1) == 1).all()
    assert ((model.components_ != 0).sum(axis=0) <= 1).all()
    weights = model.components_.max(axis=1)
    assert (np.diff(weights) <= 0).all()
    M = model.get_mahalanobis_matrix()
    np.testing.assert_array_equal(M, np.diag(np.diag(M)))


def test_noise_gets_little_weight(rng):
    """Feature 0 parts the classes, features 1 to 3 are noise of the same spread."""
    y = np.repeat([0, 1], 60)
    X = rng.normal(size=(120, 4))
    X[:, 0] = (X[:, 0] / 3 + 2 * y) / 1.05
    M = nca(diagonal=True).fit(X, y).get_mahalanobis_matrix()
    assert M[0, 0] > 2 * np.diag(M)[1:].max()


def test_random_starts_are_drawn_by_random_state_and_scaled_like_others(iris):
    """Units do not matter: a random map of points in large units is shortened as much."""
    X, y = iris
    first, again, other = (
        NCA(2, init="random", random_state=seed, max_iter=3, tol=1.0, shrinkage=0).fit(X, y)
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first.components_, again.components_)
    assert not np.allclose(first.components_, other.components_)
    large = NCA(2, init="random", random_state=0, max_iter=3, tol=1.0, shrinkage=0)
    large.fit(1024 * X, y)
    np.testing.assert_allclose(1024 * large.components_, first.components_, rtol=1e-8)


def test_the_diagonal_of_an_array_is_where_weights_start(iris):
    X, y = iris
    start = np.array([[1.0, 0, 0, 2], [0, 1, 0, 0], [0, 0, 3, 0]])
    model = nca(diagonal=True, init=start).fit(X, y)
    expected = shares(X * [1, 1, 3, 2], y)
    assert model.history_[0]["objective"] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("init", ["auto", "identity", 0.5 * np.eye(4)], ids=str)
def test_few_rows_of_a_diagonal_metric_are_its_heaviest_features(init, iris):
    X, y = iris
    whole = nca(diagonal=True, init=init).fit(X, y)
    model = nca(2, diagonal=True, init=init).fit(X, y)
    np.testing.assert_array_equal(model.components_, whole.components_[:2])
    assert model.objective_ == whole.objective_


# -- memory ----------------------------------------------------------------------------------------


def peak_of(learner, X, y):
    """The most bytes of arrays that a fit holds."""
    tracemalloc.start()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they are cut off
            learner.fit(X, y)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_is_a_tenth_of_scikit_learns():
    """On 1257 points in 64 features, as the benchmark has of the digits, by two threads."""
    rng = np.random.default_rng(0)
    y = np.arange(1257) % 10
    X = rng.normal(size=(1257, 64)) + rng.normal(size=(10, 64))[y]
    few = {"max_iter": 3, "init": "identity"}
    with threadpool_limits(2):  # each thread has a block of its own
        ours = peak_of(nca(**few), X.astype(np.float32), y)
    theirs = peak_of(NeighborhoodComponentsAnalysis(**few), X, y)
    assert ours < theirs / 10


# -- plateaus --------------------------------------------------------------------------------------


def test_a_start_at_the_maximum_has_converged(rng, recwarn):
    """All choose their own class; no more can be gained, and the gradient vanishes."""
    X = np.vstack([rng.normal(size=(20, 2)), rng.normal(size=(20, 2)) + 100])
    model = nca(init=3 * np.eye(2)).fit(X, np.repeat([0, 1], 20))
    assert (model.status_, model.n_iter_) == ("converged", 1)
    assert model.objective_ == pytest.approx(40, abs=1e-6)
    assert len(recwarn) == 0


def test_at_a_large_scale_every_map_is_a_local_optimum(iris):
    """Each point chooses its nearest, and no small step changes which one that is."""
    X, y = iris
    model = nca(init=1e6 * np.eye(4)).fit(X, y)
    assert model.status_ == "converged"
    assert model.n_iter_ <= 2
    # Squared distances up to 1e13 are rounded by 1e-3, and that divides neighbours that are tied.
    assert model.objective_ == pytest.approx(shares(1e6 * X, y), abs=1e-3)


@pytest.mark.parametrize("learner", [nca(), nca(1), nca(diagonal=True)], ids=repr)
def test_a_start_so_small_that_points_are_not_told_apart_is_an_error(learner, iris):
    X, y = iris
    start = np.eye(learner.n_components or 4, 4)
    with pytest.raises(InvalidInputError, match=r"distance of \de-16, too small.*Scale it up"):
        clone(learner).set_params(init=1e-8 * start).fit(X, y)
    assert clone(learner).set_params(init=1e-5 * start).fit(X, y).objective_ > 120


def test_a_start_on_constant_features_alone_is_an_error(iris):
    X, y = iris
    padded = np.insert(X, 4, 1.0, axis=1)
    with pytest.raises(InvalidInputError, match="too small to separate them"):
        nca(1, init=np.eye(5)[4:]).fit(padded, y)


def test_the_gain_that_is_left_is_told_and_is_no_certificate(overlapping):
    X, y = overlapping
    model = nca(2, tol=1e-5).fit(X, y)
    assert model.duality_gap_ is None
    assert {record["duality_gap"] for record in model.history_} == {None}
    gains = [record["residual"] for record in model.history_]
    assert gains[-1] <= 1e-5 < min(gains[:-1])
    assert gains[0] > 0.1
