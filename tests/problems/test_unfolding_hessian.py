"""The curvature of an unfolding of few columns, and its shifted inverse."""

from itertools import pairwise

import numpy as np
import pytest

from nearfar import NeighborhoodGraph
from nearfar.problems.mvu_low_rank import LowRankProgram
from nearfar.problems.unfolding_hessian import Curvature
from nearfar.problems.variational_mvu import Edges


def example(rng, price=np.inf):
    """A program after an update, a place where some forces are negative, and the graph."""
    n = 25
    points = rng.normal(size=(n, 2))
    graph = NeighborhoodGraph.from_points(points, 4)
    weights = rng.uniform(0.5, 2, graph.n_edges)
    edges, unit = Edges.build(n, graph.heads, graph.tails, graph.lengths, weights, np.empty(0))
    prices = np.full(graph.n_edges, price), np.full(graph.n_edges, price)
    program = LowRankProgram.of_prices(edges, 0.02, prices).for_newton()
    Y = np.column_stack([points / unit, 0.3 * rng.normal(size=n)])
    program = program.successor(program.place(Y + 0.02 * rng.normal(size=Y.shape)))
    at = program.place(Y)
    assert at.forces.min() < 0 < at.forces.max()
    return program, at, Curvature.of(graph, edges.on_host()[1])


@pytest.mark.parametrize("price", [np.inf, 20.0])
def test_the_matrix_is_the_difference_of_gradients(rng, price):
    program, at, curvature = example(rng, price)
    if np.isfinite(price):
        assert (at.forces == program.upper).any()
    P = rng.normal(size=at.Y.shape)
    P -= P.mean(axis=0)
    step = 1e-6
    ahead, behind = (program.place(at.Y + s * P).gradient for s in (step, -step))
    product = curvature.matrix(program, at, 0.0) @ P.ravel()
    np.testing.assert_allclose(
        2 * product.reshape(P.shape), (ahead - behind) / (2 * step), rtol=1e-5, atol=1e-4
    )


def test_the_shift_makes_it_positive_definite_on_vectors_of_mean_zero(rng):
    """The dense matrix has one negative eigenvalue for each column, that of its constants."""
    program, at, curvature = example(rng)
    program = program.continued(1e3 * rng.normal(size=len(at.forces)), program.stiffness)
    at = program.place(at.Y)
    n, r = at.Y.shape
    inverse = curvature.inverse(program, at)
    plain = np.linalg.eigvalsh(curvature.matrix(program, at, 0.0).toarray())
    A = curvature.matrix(program, at, curvature.shift).toarray()
    values = np.linalg.eigvalsh(A)
    assert (plain < 0).sum() > r  # otherwise there is nothing to shift
    assert (values < 0).sum() == r
    np.testing.assert_allclose(values[:r], -program.pull, rtol=1e-6)
    P = rng.normal(size=(n, r))
    P -= P.mean(axis=0)
    np.testing.assert_allclose(inverse((A @ P.ravel()).reshape(n, r)), P, atol=1e-8)


def test_the_next_shift_is_smaller_where_that_is_enough(rng):
    """Forces that are all positive and large need none but the least."""
    program, at, curvature = example(rng)
    program = program.continued(np.full(len(at.forces), 50.0), program.stiffness)
    at = program.place(at.Y)
    shifts = [curvature.shift]
    for _ in range(5):
        curvature.inverse(program, at)
        shifts.append(curvature.shift)
    assert all(later < earlier for earlier, later in pairwise(shifts))
