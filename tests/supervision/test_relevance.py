"""Pairs of a query and a relevant document become points, groups and target neighbours."""

import numpy as np
import pytest

from nearfar import LMNN, NCA, LinearMetric, make_relevant_targets
from nearfar.errors import InvalidInputError


@pytest.fixture
def searches(rng):
    """40 queries and documents that agree in two features; the other three are louder and random.

    The nearest document by all features is rarely the relevant one.
    """
    topics = 10 * rng.normal(size=(40, 2))
    queries, documents = (
        np.hstack([topics + 0.1 * rng.normal(size=(40, 2)), 10 * rng.normal(size=(40, 3))])
        for _ in range(2)
    )
    return queries, documents, np.stack([np.arange(40), np.arange(40)], axis=1)


def test_points_groups_and_targets():
    """Query 2 shares document 1 with query 0; query 1 has document 3; document 0 answers none."""
    queries, documents = np.arange(6.0).reshape(3, 2), 10 + np.arange(8.0).reshape(4, 2)
    X, y, targets = make_relevant_targets(
        queries, documents, [[2, 1], [0, 2], [0, 1], [1, 3], [0, 1]]
    )
    np.testing.assert_array_equal(X, np.vstack([queries, documents[1:]]))
    assert y.tolist() == [0, 1, 0, 0, 0, 1]
    assert targets.tolist() == [[3, 4], [5, -1], [3, -1], [-1, -1], [-1, -1], [-1, -1]]


def test_queries_that_no_pair_names_are_left_out():
    X, y, targets = make_relevant_targets(np.eye(4), 2 * np.eye(4), [[3, 0], [1, 2]])
    np.testing.assert_array_equal(X, [*np.eye(4)[[1, 3]], *2 * np.eye(4)[[0, 2]]])
    assert y.tolist() == [0, 1, 1, 0]
    assert targets.tolist() == [[3], [2], [-1], [-1]]


def rank_one(model, queries, documents):
    """The share of queries whose nearest document is the relevant one."""
    Q, D = model.transform(queries), model.transform(documents)
    return np.mean(((Q[:, None] - D) ** 2).sum(axis=2).argmin(axis=1) == np.arange(len(Q)))


def test_lmnn_learns_from_pairs(searches):
    """New queries find their documents by the two features that agree."""
    queries, documents, pairs = searches
    known, new = np.arange(30), np.arange(30, 40)
    found = make_relevant_targets(queries, documents, pairs[known])
    model = LMNN(shrinkage=0.0).fit(*found)
    assert model.duality_gap_ <= model.tol
    assert rank_one(model, queries[new], documents[new]) >= 0.9
    assert rank_one(LinearMetric().fit(queries), queries[new], documents[new]) <= 0.8
    nca = NCA(shrinkage=0).fit(found.X, found.y)
    assert rank_one(nca, queries[new], documents[new]) >= 0.9


def test_the_objective_is_that_of_the_pairs(searches):
    """Pull of the given pairs, and hinges of all rows of other groups, by plain loops."""
    queries, documents, pairs = searches
    X, y, targets = make_relevant_targets(queries[:8], documents[:8], pairs[:8])
    model = LMNN(push_weight=0.3, shrinkage=0.0).fit(X, y, targets)
    Z = model.transform(X)
    value = 0.0
    for i in range(8):
        near = ((Z[i] - Z[8 + i]) ** 2).sum()
        far = [((Z[i] - z) ** 2).sum() for j, z in enumerate(Z) if j not in (i, 8 + i)]
        value += 0.7 * near + 0.3 * sum(max(0.0, 1 + near - f) for f in far)
    assert model.objective_ == pytest.approx(value, rel=1e-9)


@pytest.mark.torch
def test_tensors(backend, searches):
    queries, documents, pairs = searches
    found = make_relevant_targets(backend.asarray(queries), backend.asarray(documents), pairs)
    expected = make_relevant_targets(queries, documents, pairs)
    np.testing.assert_array_equal(backend.to_numpy(found.X), expected.X)
    np.testing.assert_array_equal(found.target_neighbors, expected.target_neighbors)
    assert len(LMNN(n_components=2, shrinkage=0.0).fit(*found).components_) == 2


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([[0, 0], [1, 4]], r"documents 0 to 3; pair 1 is \[1, 4\] \(1 in all\)"),
        ([[-1, 0]], r"queries 0 to 2 and .*pair 0 is \[-1, 0\]"),
        ([[0.5, 1.0]], r"integer array of shape \(n_pairs, 2\).*of float64\. Stack them"),
        ([0, 1], r"integer array of shape \(n_pairs, 2\).*got shape \(2,\)"),
        (np.empty((0, 2), int), r"got shape \(0, 2\)"),
        ([[0, 1], [1, 1], [2, 1]], "into one group, so that nothing is far.*share no document"),
    ],
)
def test_bad_pairs(pairs, message):
    with pytest.raises(InvalidInputError, match=message):
        make_relevant_targets(np.eye(3), np.ones((4, 3)), pairs)


def test_points_that_do_not_belong_together():
    with pytest.raises(InvalidInputError, match=r"with 3 and ndarray with 2 features\. Embed both"):
        make_relevant_targets(np.eye(3), np.eye(2), [[0, 0]])
    with pytest.raises(InvalidInputError, match=r"documents must have shape .*got \(3,\)"):
        make_relevant_targets(np.eye(3), np.ones(3), [[0, 0]])
