"""The cheapest forces that hold known vectors."""

import numpy as np
import pytest

from nearfar.graphs import NeighborhoodGraph
from nearfar.problems.unfolding_repair import Repair


def chain(n):
    return NeighborhoodGraph.from_edges(range(n - 1), range(1, n), np.ones(n - 1), n)


def energies(graph, m, vectors):
    """xᵀLap(m)x / xᵀx of each column, by the dense matrix."""
    L = graph.laplacian(m).toarray()
    centred = vectors - vectors.mean(axis=0)
    return np.einsum("ik,ij,jk->k", centred, L, centred) / (centred**2).sum(axis=0)


def test_proportional_growth_is_the_cheapest_for_a_smooth_vector():
    """With x the second eigenvector of a chain and m = w = 1, all forces have to be c / λ₂.

    Σ m' x_e² = c xᵀx is one cut, and a = c / λ₂ holds it at the cost (n − 1) c / λ₂. Raising the
    forces by w x_e² / max costs less: the sum Σ x_e⁴ / Σ x_e² is larger than the mean of x_e².
    So the program must not cost more than either.
    """
    graph, n = chain(12), 12
    ones = np.ones(n - 1)
    values, vectors = np.linalg.eigh(graph.laplacian(ones).toarray())
    c = 2 * values[1]
    repair = Repair.of(graph, ones, ones, ones, c)
    repair.cut(vectors[:, [1]])
    found = repair.forces()
    np.testing.assert_allclose(energies(graph, found, vectors[:, [1]]), c)
    x = np.diff(vectors[:, 1]) ** 2
    local = c / (x @ x)  # times x
    assert found.sum() == pytest.approx(min(2.0 * (n - 1), local * x.sum()))


def test_each_cut_is_held_and_costs_no_more_than_one_shift(rng):
    """At m + tw all vectors are held, and it belongs to the family: the program costs no more."""
    graph, n = chain(30), 30
    w, prices = rng.uniform(0.5, 2, n - 1), rng.uniform(1, 3, n - 1)
    m = rng.uniform(-0.2, 1, n - 1)
    vectors = rng.normal(size=(n, 5))
    c = 1.2 * energies(graph, m, vectors).max()
    t = ((c - energies(graph, m, vectors)) / energies(graph, w, vectors)).max()
    repair = Repair.of(graph, m, w, prices, c)
    repair.hold(vectors[:, :2])
    repair.cut(vectors[:, 2:])
    found = repair.forces()
    assert energies(graph, found, vectors).min() >= c * (1 - 1e-6)
    assert prices @ found <= prices @ (m + t * w) * (1 + 1e-9)
    assert prices @ found < 0.9 * (prices @ (m + t * w))
