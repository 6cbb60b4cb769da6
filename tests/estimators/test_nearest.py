"""The nearest neighbours' vote, how they are found, and what is returned."""

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.neighbors import KNeighborsClassifier

from nearfar import LMNN, NearestNeighborClassifier
from nearfar.errors import InvalidInputError
from nearfar.evaluation import knn_predict
from nearfar.kernels import search


@pytest.fixture
def line():
    """Labels b c c a a b at 1 … 6 on a line that PCA leaves as it is."""
    X = np.arange(1.0, 7.0)[:, None]
    return X, np.array(["b", "c", "c", "a", "a", "b"])


@pytest.fixture(scope="module")
def learned(iris):
    return LMNN().fit(*iris)


def test_ties_are_broken_by_fewer_neighbours(line):
    """From 0: with k = 6 all tie, with 5 c and a tie, with 4 c leads; with 2 b and c tie, and b is
    nearer."""
    X, y = line
    models = [NearestNeighborClassifier(PCA(), n_neighbors=k).fit(X, y) for k in range(1, 7)]
    assert [model.predict([[0.0]])[0] for model in models] == list("bbcccc")


def test_shares_of_the_votes(line):
    """Of a, b, c. Where all three tie, the winner c has half a vote more; with three neighbours
    nobody ties."""
    X, y = line
    shares = NearestNeighborClassifier(PCA(), n_neighbors=6).fit(X, y).predict_proba([[0.0]])
    np.testing.assert_allclose(shares, [[2 / 6.5, 2 / 6.5, 2.5 / 6.5]])
    shares = NearestNeighborClassifier(PCA(), n_neighbors=3).fit(X, y).predict_proba([[0.0]])
    np.testing.assert_allclose(shares, [[0, 1 / 3, 2 / 3]])


@pytest.mark.parametrize("k", [1, 3, 8])
def test_it_is_the_evaluation_of_the_papers_in_the_learned_space(wine, k):
    X, y = wine
    model = NearestNeighborClassifier(LMNN(n_components=3), n_neighbors=k).fit(X[::2], y[::2])
    images = model.metric_.transform(X)
    expected = knn_predict(images[::2], y[::2], images[1::2], k)
    np.testing.assert_array_equal(model.predict(X[1::2]), expected)


def test_neighbours_are_those_of_scikit_learn(learned, iris):
    X, y = iris
    model = NearestNeighborClassifier(learned).fit(X, y)
    images = learned.transform(X)
    theirs = KNeighborsClassifier(3).fit(images, y)
    distances, rows = model.kneighbors(X[::7] + 0.01, 5)
    expected, _ = theirs.kneighbors(learned.transform(X[::7] + 0.01), 5)
    np.testing.assert_allclose(distances, expected, rtol=1e-9)
    pairs = np.stack([np.repeat(X[::7] + 0.01, 5, axis=0), X[rows.ravel()]], axis=1)
    np.testing.assert_allclose(distances.ravel(), learned.pair_distance(pairs), rtol=1e-9)
    assert model.kneighbors(X[:2], return_distance=False).shape == (2, 3)


def test_no_training_point_is_its_own_neighbour(learned, read_only):
    """Nor where others coincide with it: here each point stands three times."""
    rng = np.random.default_rng(0)
    X = read_only(np.repeat(rng.normal(size=(10, 4)), 3, axis=0))
    model = NearestNeighborClassifier(learned).fit(X, np.arange(30) % 2)
    for k in (1, 2, 5):
        distances, rows = model.kneighbors(None, k)
        assert (rows != np.arange(30)[:, None]).all()
        assert not distances[:, : min(k, 2)].any()
        assert (distances[:, 2:] > 0).all()


@pytest.mark.parametrize("algorithm", ["auto", "ball_tree", "kd_tree", "brute"])
def test_all_algorithms_agree(iris, learned, algorithm, dtype):
    X, y = iris
    X = X.astype(dtype)
    model = NearestNeighborClassifier(learned, algorithm=algorithm).fit(X[::2], y[::2])
    assert model.algorithm_ == ("brute" if algorithm == "auto" else algorithm)
    expected = NearestNeighborClassifier(learned, algorithm="brute").fit(X[::2], y[::2])
    for got, wanted in zip(model.kneighbors(X), expected.kneighbors(X), strict=True):
        np.testing.assert_array_equal(got, wanted)
        assert got.dtype in (dtype, np.int64)


def test_the_choice_is_kept(monkeypatch, iris, learned):
    monkeypatch.setattr(search, "FEWEST_POINTS", 10)
    model = NearestNeighborClassifier(learned).fit(*iris)
    assert model.algorithm_ == "kd_tree"
    monkeypatch.setattr(search, "FEWEST_POINTS", 1000)
    del model._prepared
    assert model.predict(iris[0]).shape == (150,)
    assert model._prepared[0].search.algorithm == "kd_tree"


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_neighbors": 0}, "n_neighbors must be an integer of at least 1; got 0"),
        ({"n_neighbors": 2.0}, "n_neighbors must be an integer"),
        ({"n_neighbors": 151}, "n_neighbors=151 is more than the number of training points, 150"),
        ({"algorithm": "tree"}, "algorithm must be one of 'auto', 'ball_tree', 'kd_tree', 'brute'"),
    ],
)
def test_bad_parameters(parameters, message, iris, learned):
    with pytest.raises(InvalidInputError, match=message):
        NearestNeighborClassifier(learned, **parameters).fit(*iris)


def test_too_many_neighbours_asked_for_later(iris, learned):
    model = NearestNeighborClassifier(learned).fit(*iris)
    with pytest.raises(InvalidInputError, match="n_neighbors=151 is more than the number"):
        model.kneighbors(iris[0], 151)
    with pytest.raises(InvalidInputError, match="n_neighbors must be an integer"):
        model.kneighbors(iris[0], 0)


@pytest.mark.torch
def test_tensors_in_tensors_out(torch, iris, dtype):
    X, y = iris
    data = torch.tensor(X.astype(dtype))
    model = NearestNeighborClassifier().fit(data, y)
    assert model.algorithm_ == "brute"
    distances, rows = model.kneighbors(data)
    assert distances.dtype == data.dtype
    assert rows.dtype == torch.int64
    shares = model.predict_proba(data)
    assert shares.dtype == data.dtype
    np.testing.assert_array_equal(model.classes_[shares.argmax(1)], model.predict(data))


@pytest.mark.torch
def test_a_tree_of_tensors_is_refused(torch, iris):
    X, y = iris
    with pytest.raises(InvalidInputError, match="'ball_tree' searches arrays on the host"):
        NearestNeighborClassifier(algorithm="ball_tree").fit(torch.tensor(X), y)
