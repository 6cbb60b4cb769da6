"""Bounds on the eigenvalues of Laplacians are proved, and only true ones."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from nearfar import NeighborhoodGraph
from nearfar.graphs.inertia import exceeds_identity


def random_laplacian(rng, n=60, negative=0.1):
    """A Laplacian with some negative weights, and its second eigenvalue."""
    points = rng.normal(size=(n, 2))
    graph = NeighborhoodGraph.from_points(points, 6).linked(cdist(points, points), random_state=0)
    weights = rng.uniform(0.5, 2, graph.n_edges)
    weights[rng.uniform(size=graph.n_edges) < negative] *= -0.1
    L = graph.laplacian(weights)
    values, vectors = np.linalg.eigh(L.toarray())
    constant = np.abs(vectors.sum(axis=0)).argmax()
    return L, float(np.delete(values, constant).min())


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_proved_below_the_eigenvalue_and_nowhere_above(seed, dense):
    L, least = random_laplacian(np.random.default_rng(seed))
    assert least > 0
    margin = 1e-6 * least
    assert exceeds_identity(L, least - 3 * margin, margin, dense=dense)
    assert not exceeds_identity(L, least + 1e-9 * least, margin, dense=dense)
    assert not exceeds_identity(L, 1.5 * least, margin, dense=dense)


@pytest.mark.parametrize("dense", [False, True])
def test_a_negative_eigenvalue_is_no_proof(rng, dense):
    L, least = random_laplacian(rng, negative=0.9)
    assert least < 0
    assert not exceeds_identity(L, 0.0, 1e-9, dense=dense)


@pytest.mark.parametrize("dense", [False, True])
def test_a_margin_below_rounding_proves_nothing(rng, dense):
    L, least = random_laplacian(rng)
    assert not exceeds_identity(L, 0.5 * least, 1e-18, dense=dense)


@pytest.mark.parametrize("dense", [False, True])
def test_the_multiple_may_be_zero(rng, dense):
    L, least = random_laplacian(rng)
    assert exceeds_identity(L, 0.0, 0.1 * least, dense=dense)
