"""Factors in blocks against dense inverses, and proofs by fronts against dense eigenvalues."""

import numpy as np
import pytest
from scipy import sparse

from nearfar import NeighborhoodGraph
from nearfar.graphs import fronts
from nearfar.graphs.front_proof import has_one_negative
from nearfar.graphs.fronts import analyse
from nearfar.graphs.inertia import exceeds_identity
from nearfar.graphs.multifrontal import Multifrontal


def graph_of(rng, n):
    return NeighborhoodGraph.from_points(rng.uniform(size=(n, 2)) * [4, 1], 6).linked(
        random_state=0
    )


@pytest.mark.parametrize(("n", "leaf"), [(9, 20), (120, 20), (900, 20), (900, 150)])
def test_the_inverse_is_that_of_the_dense_matrix(rng, backend, n, leaf):
    graph = graph_of(rng, n)
    A = graph.laplacian(rng.uniform(0.5, 2, graph.n_edges)) + 0.01 * sparse.eye_array(n)
    G = rng.normal(size=(n, 3))
    solve = Multifrontal(A, backend.asarray(np.empty(0)), analyse(A, leaf))
    found = backend.to_numpy(solve(backend.asarray(G)))
    np.testing.assert_allclose(found, np.linalg.solve(A.toarray(), G), atol=1e-10)


def test_a_structure_serves_other_entries(rng):
    """Also if some are zero, which SciPy leaves out."""
    graph = graph_of(rng, 300)
    structure = analyse(graph.laplacian(), 30)
    weights = rng.uniform(0.5, 2, graph.n_edges) * (np.arange(graph.n_edges) % 7 > 0)
    A = (graph.laplacian(weights) + sparse.eye_array(300)).tocsr()
    A.eliminate_zeros()
    G = rng.normal(size=(300, 2))
    found = Multifrontal(A, np.empty(0), structure)(G)
    np.testing.assert_allclose(found, np.linalg.solve(A.toarray(), G), atol=1e-10)


def test_what_is_not_positive_definite_is_refused(rng):
    A = graph_of(rng, 300).laplacian() - 0.1 * sparse.eye_array(300)
    with pytest.raises(np.linalg.LinAlgError):
        Multifrontal(A, np.empty(0), analyse(A, 30))


def test_fronts_are_made_in_parts(rng, monkeypatch):
    A = graph_of(rng, 600).laplacian() + sparse.eye_array(600)
    G, structure = rng.normal(size=(600, 2)), analyse(A, 30)
    whole = Multifrontal(A, np.empty(0), structure)(G)
    monkeypatch.setattr(fronts, "HOST_BYTES", 1)
    np.testing.assert_allclose(Multifrontal(A, np.empty(0), structure)(G), whole, rtol=1e-12)


@pytest.mark.parametrize("n", [100, 800])
def test_a_proof_is_found_just_below_the_second_eigenvalue(rng, backend, n):
    """And none above it; forces may be negative."""
    graph = graph_of(rng, n)
    m = rng.uniform(-0.02, 1, graph.n_edges)
    L, structure = graph.laplacian(m), analyse(graph.laplacian(), 30)
    second = np.linalg.eigvalsh(L.toarray())[1]
    reference = backend.asarray(np.empty(0))
    for share, expected in ((0.5, True), (0.9999, True), (1.0001, False), (1.5, False)):
        proved = exceeds_identity(
            L,
            share * second,
            1e-6 * second,
            dense=False,
            structure=structure,
            reference=reference,
        )
        assert proved is expected


def test_rounding_counts(rng):
    """Nothing is proved to less than the errors of the factor."""
    graph = graph_of(rng, 400)
    L, structure = graph.laplacian(), analyse(graph.laplacian(), 30)
    second = np.linalg.eigvalsh(L.toarray())[1]
    A = L - 0.9 * second * sparse.eye_array(400)
    assert has_one_negative(A, structure, 1e-10, np.empty(0))
    assert not has_one_negative(A, structure, 1e-17, np.empty(0))


def test_two_negative_eigenvalues_and_none(rng):
    """With none, the constants do not make the root's front negative."""
    graph = graph_of(rng, 400)
    L, structure = graph.laplacian(), analyse(graph.laplacian(), 30)
    second, third = np.linalg.eigvalsh(L.toarray())[1:3]
    unit = sparse.eye_array(400)
    assert not has_one_negative(L - 0.5 * (second + third) * unit, structure, 1e-9, np.empty(0))
    assert not has_one_negative(L + second * unit, structure, 1e-9, np.empty(0))
