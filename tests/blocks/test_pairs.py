"""Pair learners of Dask arrays that gather the rows that pairs name, and fit as before."""

import dask.array as da
import numpy as np
import pytest

import nearfar
from nearfar import GMML, ITML, LSML, MMC, POLA, SDML, DMLEig, Tuples
from nearfar.errors import InvalidInputError, MemoryLimitError
from tests.blocks.arrays import untouchable

LEARNERS = [GMML(), ITML(), SDML()]


@pytest.fixture
def pairs(wine):
    """Points, of which pairs name about a third, the pairs, and their kinds."""
    X, y = wine
    rng = np.random.default_rng(0)
    edges = rng.choice(np.arange(0, len(X), 3), size=(80, 2))
    edges = edges[edges[:, 0] != edges[:, 1]]
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    return X, edges, np.where(y[edges[:, 0]] == y[edges[:, 1]], 1, -1)


@pytest.mark.parametrize("learner", LEARNERS, ids=lambda learner: type(learner).__name__)
def test_pairs_of_a_dask_array_are_learned_from_as_of_an_array(pairs, learner):
    X, edges, kinds = pairs
    named = np.unique(edges)
    small = Tuples(X[named], np.searchsorted(named, edges))
    lazy = Tuples(da.from_array(X, chunks=(50, 4)), edges)
    expected = type(learner)(**learner.get_params()).fit(small, kinds)
    model = learner.fit(lazy, kinds)
    np.testing.assert_array_equal(model.components_, expected.components_)
    np.testing.assert_array_equal(model.pair_distance(lazy), expected.pair_distance(small))
    assert model.score(lazy, kinds) == expected.score(small, kinds)
    assert lazy.shape == (len(edges), 2, 13)
    assert lazy.dtype == np.float64


@pytest.mark.parametrize("learner", [MMC, DMLEig, ITML])
def test_proofs_name_the_rows_of_the_array(pairs, wine, learner):
    X, y = pairs[0], wine[1]
    lazy = da.from_array(X, chunks=(50, 13))
    model = learner(n_pairs=60, random_state=0).fit(lazy, da.from_array(y, chunks=70))
    expected = learner(n_pairs=60, random_state=0).fit(X, y)
    for name in ("near", "far"):
        np.testing.assert_array_equal(model.proof_[name], expected.proof_[name])
    assert nearfar.verify(model, X, y)


def test_all_pairs_of_labelled_rows_and_dense_lazy_pairs_are_refused(pairs):
    X, edges, kinds = pairs
    lazy = da.from_array(X, chunks=50)
    with pytest.raises(InvalidInputError, match="n_pairs=None takes all pairs"):
        MMC().fit(lazy, np.arange(len(X)) % 2)
    with pytest.raises(InvalidInputError, match="needs rows in memory here"):
        GMML().fit(da.stack([lazy, lazy], axis=1), np.ones(len(X)))
    with pytest.raises(InvalidInputError, match=r"POLA does not learn from Dask arrays.*stream"):
        POLA().fit(Tuples(lazy, edges), kinds)
    with pytest.raises(InvalidInputError, match="LSML does not learn from Dask arrays"):
        LSML().fit(Tuples(lazy, np.hstack([edges, edges[::-1]])))


def test_rows_that_do_not_fit_are_refused_before_they_are_read():
    """Three rows of 24 bytes are named, by two pairs, whose differences are held twice."""
    pairs, kinds = Tuples(untouchable((4000, 3)), [[0, 1], [1, 2]]), [1, -1]
    with pytest.raises(MemoryLimitError, match=r"the 3 rows that are named.* of 2 pairs"):
        MMC(memory_limit=167e-9).fit(pairs, kinds)
    with pytest.raises(AssertionError, match="a block was computed"):
        MMC(memory_limit=169e-9).fit(pairs, kinds)
