"""Cells of near rows, one for each block."""

from itertools import pairwise

import numpy as np
import pytest

from nearfar.blocks import Blocks, rows
from nearfar.blocks.cells import _direction, cell_order

da = pytest.importorskip("dask.array")


@pytest.mark.parametrize("shape", [(60, 7), (9, 40), (1, 3)])
def test_the_direction_in_which_rows_vary_most(rng, shape):
    """The leading right singular vector of centred rows, also of fewer rows than features."""
    X = rng.normal(size=shape) * np.arange(1, shape[1] + 1)
    found = _direction(X)
    _, values, vectors = np.linalg.svd(X - X.mean(axis=0))
    assert np.linalg.norm(found @ vectors[1:].T) < 1e-8
    assert abs(found @ vectors[0]) == pytest.approx(float(values[0] > 0))


def test_cells_of_rows_are_those_of_the_identity(monkeypatch, rng):
    """Each block has one cell, sorted by class; cells are halves across the widest direction."""
    monkeypatch.setattr(rows, "BLOCK_ROWS", 20)
    X, codes = rng.normal(size=(80, 3)) * [9, 1, 1], np.sort(rng.integers(4, size=80))
    blocks = Blocks.of(da.from_array(X, chunks=(30, 3)))
    order = cell_order(blocks, codes, None)
    np.testing.assert_array_equal(order, cell_order(blocks, codes, np.eye(3)))
    np.testing.assert_array_equal(np.sort(order), np.arange(80))
    for first, last in pairwise(blocks.starts.tolist()):
        assert (np.diff(codes[order[first:last]]) >= 0).all()
    means = [X[order[first:last], 0].mean() for first, last in pairwise(blocks.starts.tolist())]
    assert len(means) == 4
    assert abs(means[0] - means[-1]) > 9
