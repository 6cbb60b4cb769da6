"""Separators part what they should, and do not grow faster than the square root of their part."""

import numpy as np
import pytest
from scipy import sparse

from nearfar import NeighborhoodGraph
from nearfar.graphs.dissection import dissect


def ancestor(level, part, other_level):
    """The part of a higher level that a part belongs to."""
    return part >> np.maximum(level - other_level, 0)


@pytest.mark.parametrize("n", [30, 700, 3000])
def test_edges_join_a_part_only_with_itself_and_with_parts_above(rng, n):
    graph = NeighborhoodGraph.from_points(rng.uniform(size=(n, 2)) * [5, 1], 6)
    found = dissect(graph.laplacian(), 40)
    i, j = graph.heads, graph.tails
    low = np.where(found.level[i] >= found.level[j], i, j)
    high = np.where(found.level[i] >= found.level[j], j, i)
    above = ancestor(found.level[low], found.part[low], found.level[high])
    np.testing.assert_array_equal(above, found.part[high])
    sizes = np.bincount(found.part[found.level == found.depth], minlength=1 << found.depth)
    assert sizes.max() <= 40
    assert len(sizes) == 1 << found.depth


def test_separators_of_a_grid_are_short(rng):
    """A grid of 40 × 40 nodes is halved by a line of 40."""
    line = sparse.diags_array([np.ones(39), np.ones(39)], offsets=[-1, 1])
    unit = sparse.eye_array(40)
    grid = (sparse.kron(line, unit) + sparse.kron(unit, line)).tocsr()
    order = rng.permutation(1600)
    found = dissect(grid[order][:, order], 100)
    for level, most in ((0, 60), (1, 50), (2, 40)):
        sizes = np.bincount(found.part[found.level == level], minlength=1 << level)
        assert sizes.max() <= most


def test_graphs_in_pieces_and_without_edges():
    assert dissect(sparse.csr_array((5, 5)), 10).depth == 0
    found = dissect(sparse.csr_array((100, 100)), 10)
    assert (found.level == found.depth).all()
    assert np.bincount(found.part).max() <= 10
