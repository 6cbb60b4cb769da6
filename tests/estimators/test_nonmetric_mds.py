"""Non-metric scaling: only the order counts; stress-1 is recomputed with scikit-learn."""

import numpy as np
import pytest
from scipy import sparse
from scipy.spatial.distance import pdist, squareform
from sklearn.isotonic import IsotonicRegression
from sklearn.manifold import smacof

from nearfar import ClassicalMDS, NeighborhoodGraph, NonmetricMDS


@pytest.fixture
def D(rng):
    """Distances of points in four dimensions."""
    return squareform(pdist(rng.normal(size=(25, 4)) * [2, 2, 1, 1]))


def stress_1(Y, D, W=None, ties="secondary"):
    """Kruskal's stress with scikit-learn's isotonic regression, which keeps ties together."""
    d, delta = pdist(Y), squareform(D, checks=False)
    w = np.ones_like(d) if W is None else squareform(W, checks=False)
    d, delta, w = d[w > 0], delta[w > 0], w[w > 0]
    if ties == "primary":
        order = np.lexsort((d, delta))
        d, delta, w = d[order], np.arange(len(d)), w[order]
    fitted = IsotonicRegression().fit_transform(delta, d, sample_weight=w)
    return np.sqrt(np.sum(w * (d - fitted) ** 2) / np.sum(w * d**2))


@pytest.mark.parametrize("ties", ["primary", "secondary"])
@pytest.mark.parametrize("digits", [0, 12])
def test_the_objective_is_recomputed(D, rng, ties, digits):
    D = np.round(D, digits)
    W = np.triu(rng.uniform(0.1, 2, D.shape), 1)
    W = W + W.T
    for weights in (None, W):
        model = NonmetricMDS(metric="precomputed", ties=ties).fit(D, weights=weights)
        expected = stress_1(model.embedding_, D, weights, ties)
        assert model.objective_ == pytest.approx(expected, rel=1e-6)
        assert model.objective_ < 0.3


def test_the_objective_with_missing_dissimilarities(D, rng):
    known = np.triu(rng.uniform(size=D.shape) < 0.6, 1)
    known[0] = True
    known = np.triu(known, 1)
    known = known | known.T
    partial = np.where(known | np.eye(25, dtype=bool), D, np.nan)
    model = NonmetricMDS(metric="precomputed").fit(partial)
    assert model.objective_ == pytest.approx(stress_1(model.embedding_, D, known.astype(float)))
    by_weights = NonmetricMDS(metric="precomputed").fit(D, weights=known.astype(float))
    assert by_weights.objective_ == pytest.approx(model.objective_, rel=1e-6)
    by_sparse = NonmetricMDS(metric="precomputed").fit(sparse.csr_array(D * known))
    assert by_sparse.objective_ == pytest.approx(model.objective_, rel=1e-6)
    heads, tails = np.nonzero(np.triu(known))
    graph = NeighborhoodGraph.from_edges(heads, tails, D[heads, tails], 25)
    assert NonmetricMDS().fit(graph).objective_ == pytest.approx(model.objective_, rel=1e-6)


@pytest.mark.parametrize("ties", ["primary", "secondary"])
def test_only_the_order_counts(D, rng, ties):
    """From the same start, dissimilarities of the same order give the same answer."""
    D = np.round(D, 1)
    start = rng.normal(size=(25, 2))
    model, bent = (
        NonmetricMDS(metric="precomputed", ties=ties, init=start).fit(X)
        for X in (D, np.expm1(3 * D))
    )
    np.testing.assert_allclose(bent.embedding_, model.embedding_, atol=1e-9)


def test_the_order_of_a_line_is_found():
    """Dissimilarities that no metric space has: cubes of distances."""
    x = np.array([0.0, 1.0, 2.5, 4.5, 7.0, 10.0])
    D = np.abs(np.subtract.outer(x, x)) ** 3
    model = NonmetricMDS(n_components=1, metric="precomputed").fit(D)
    assert model.objective_ < 1e-3
    order = np.argsort(model.embedding_[:, 0])
    assert order.tolist() in ([0, 1, 2, 3, 4, 5], [5, 4, 3, 2, 1, 0])


def test_distances_have_a_mean_square_of_one(D, rng):
    W = np.triu(rng.uniform(0.1, 2, D.shape), 1)
    W = W + W.T
    Y = NonmetricMDS(metric="precomputed").fit_transform(D, weights=W)
    squares, w = pdist(Y) ** 2, squareform(W)
    assert np.sum(w * squares) / np.sum(w) == pytest.approx(1)


def test_stress_is_no_worse_than_that_of_smacof_from_the_same_starts(D, rng):
    """Either may end in a better local minimum; scikit-learn gains nothing from our answer on.

    Starts are far from the answer, but know something of it: see the page for those that do not.
    """
    places = ClassicalMDS(metric="precomputed").fit_transform(D)
    options = {"metric": False, "n_init": 1, "max_iter": 1000, "normalized_stress": True}
    theirs, ours = [], []
    for _ in range(9):
        start = places + rng.normal(size=(25, 2))
        theirs.append(stress_1(smacof(D, init=start, eps=1e-10, **options)[0], D))
        model = NonmetricMDS(metric="precomputed", ties="secondary", init=start, tol=1e-9).fit(D)
        ours.append(model.objective_)
        Y, _ = smacof(D, init=model.embedding_, eps=1e-10, **options)
        assert stress_1(Y, D) >= model.objective_ * (1 - 1e-3)
    assert np.median(ours) < 1.1 * np.median(theirs)


def test_ties_that_may_be_broken_cost_less(D):
    """At the same places the primary approach has the smaller stress."""
    D = np.round(D)
    Y = NonmetricMDS(metric="precomputed").fit_transform(D)
    assert stress_1(Y, D, ties="primary") < stress_1(Y, D, ties="secondary")


@pytest.mark.torch
def test_tensors_are_computed_on_the_host_and_come_back(D, torch):
    model = NonmetricMDS(metric="precomputed").fit(torch.tensor(D, dtype=torch.float32))
    assert isinstance(model.embedding_, torch.Tensor)
    assert model.embedding_.dtype == torch.float32
