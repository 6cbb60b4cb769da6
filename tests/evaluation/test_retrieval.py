"""Searches among labelled points, against plain loops over all pairs."""

import math

import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler

from nearfar import LMNN, MultiMetricLMNN
from nearfar.errors import InvalidInputError
from nearfar.evaluation import knn_error, ranking_measures, retrieval_measures
from nearfar.kernels import all_pairs

MEASURES = (
    "precision",
    "recall",
    "hit_rate",
    "mean_reciprocal_rank",
    "mean_average_precision",
    "ndcg",
    "r_precision",
)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Blocks so small that these data fill several."""
    monkeypatch.setattr(all_pairs, "SORTED_HOST_ENTRIES", 250)
    monkeypatch.setattr(all_pairs, "SORTED_DEVICE_ENTRIES", 250)


def by_loops(X, y, queries, query_labels, k, themselves):
    """The measures of each query by their definitions, NaN without a relevant document."""
    rows = []
    for q, (query, label) in enumerate(zip(queries, query_labels, strict=True)):
        others = [i for i in range(len(X)) if not (themselves and i == q)]
        squares = [sum((a - b) ** 2 for a, b in zip(query, x, strict=True)) for x in X]
        ranked = sorted(others, key=squares.__getitem__)
        relevant = [y[i] == label for i in ranked]
        total = sum(relevant)
        if total == 0:
            rows.append([math.nan] * 7)
            continue
        hits = sum(relevant[:k])
        ranks = [rank for rank, one in enumerate(relevant, 1) if one]
        rows.append(
            [
                hits / k,
                hits / total,
                float(hits > 0),
                1 / ranks[0],
                sum(number / rank for number, rank in enumerate(ranks, 1)) / total,
                sum(1 / math.log2(rank + 1) for rank in ranks if rank <= k)
                / sum(1 / math.log2(rank + 1) for rank in range(1, min(total, k) + 1)),
                sum(relevant[:total]) / total,
            ]
        )
    return dict(zip(MEASURES, np.array(rows).T, strict=True))


def assert_equal(found, expected):
    for name in MEASURES:
        values = expected[name]
        np.testing.assert_allclose(found.per_query[name], values, rtol=1e-12, err_msg=name)
        assert getattr(found, name) == pytest.approx(np.nanmean(values), rel=1e-12)
    missing = int(np.isnan(expected["precision"]).sum())
    assert (found.n_queries, found.n_without_relevant) == (len(values) - missing, missing)


@pytest.fixture
def sample(rng):
    """70 points in three dimensions around four centres."""
    y = np.arange(70) % 4
    return rng.normal(size=(70, 3)) + 1.5 * rng.normal(size=(4, 3))[y], y


@pytest.mark.parametrize("k", [1, 10, 200])
def test_equals_the_loops(backend, dtype, sample, k):
    X, y = sample[0].astype(dtype), sample[1]
    documents, queries = backend.asarray(X[:50]), backend.asarray(X[50:])
    found = retrieval_measures(documents, y[:50], queries, y[50:], k=k)
    plain = X.astype(float).tolist()
    assert_equal(found, by_loops(plain[:50], y[:50], plain[50:], y[50:], k, themselves=False))
    found = retrieval_measures(documents, y[:50], k=k)
    assert_equal(found, by_loops(plain[:50], y[:50], plain[:50], y[:50], k, themselves=True))


def test_ties_go_by_row_number(backend, rng):
    """On a small grid most distances are equal, and most points have copies."""
    X, y = rng.integers(0, 3, size=(60, 2)) * 1.0, rng.integers(0, 3, 60)
    found = retrieval_measures(backend.asarray(X), y, k=5)
    assert_equal(found, by_loops(X, y, X, y, 5, themselves=True))


def test_by_hand():
    """On a line: documents at 0, 1, 2, 4 of classes a, b, a, b, and a query of class b at 1.5.

    The nearest are 1 and 2, equally far, of which the first row counts as nearer; then 0, then 4.
    Relevant are the ranks 1 and 4: AP = (1 + 2/4) / 2.
    """
    X, y = [[0.0], [1.0], [2.0], [4.0]], ["a", "b", "a", "b"]
    found = retrieval_measures(X, y, [[1.5]], ["b"], k=2)
    assert (found.precision, found.recall, found.hit_rate) == (0.5, 0.5, 1)
    assert (found.mean_reciprocal_rank, found.mean_average_precision) == (1, 0.75)
    assert found.ndcg == pytest.approx(1 / (1 + 1 / math.log2(3)))
    assert found.r_precision == 0.5
    swapped = retrieval_measures(X[2::-1] + X[3:], y[2::-1] + y[3:], [[1.5]], ["b"], k=2)
    assert swapped.mean_reciprocal_rank == 0.5


def test_a_point_is_left_out_of_its_own_search_and_its_copies_are_not():
    X, y = np.array([[0.0], [0.0], [5.0]]), [0, 0, 1]
    found = retrieval_measures(X, y, k=1)
    np.testing.assert_array_equal(found.per_query["precision"], [1, 1, np.nan])
    assert (found.n_queries, found.n_without_relevant) == (2, 1)
    given = retrieval_measures(X, y, X, y, k=1)  # as queries, all find themselves
    assert (given.n_queries, given.precision) == (3, 1)


def test_a_label_that_no_document_has(sample):
    X, y = sample
    labels = np.where(y[50:] == 3, 99, y[50:])
    found = retrieval_measures(X[:50], y[:50], X[50:], labels)
    assert found.n_without_relevant == (y[50:] == 3).sum()
    without = y[50:] != 3
    kept = retrieval_measures(X[:50], y[:50], X[50:][without], y[50:][without])
    assert found.as_dict() == {**kept.as_dict(), "n_without_relevant": found.n_without_relevant}
    with pytest.raises(InvalidInputError, match="none of 20 queries has one"):
        retrieval_measures(X[:50], y[:50], X[50:], y[50:] + 100)


@pytest.mark.parametrize("kind", ["LMNN", "StandardScaler"])
def test_under_a_learner_it_is_the_search_among_images(sample, kind):
    X, y = sample
    model = (LMNN() if kind == "LMNN" else StandardScaler()).fit(X[:50], y[:50])
    found = retrieval_measures(X[:50], y[:50], X[50:], y[50:], metric=model)
    images = model.transform(X)
    assert found == retrieval_measures(images[:50], y[:50], images[50:], y[50:])
    own = retrieval_measures(X, y, metric=model)
    assert own == retrieval_measures(images, y)


@pytest.mark.torch
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_tensors_under_a_learner(torch, sample, device):
    X, y = sample
    tensor = torch.tensor(X, device=device)
    model = LMNN().fit(tensor, y)
    found = retrieval_measures(tensor, torch.tensor(y, device=device), metric=model)
    images = model.transform(tensor).cpu().numpy()
    assert found.as_dict() == pytest.approx(retrieval_measures(images, y).as_dict(), rel=1e-12)


def test_the_first_neighbour_is_that_of_the_classifier(sample):
    X, y = sample
    found = retrieval_measures(X[:50], y[:50], X[50:], y[50:], k=1)
    error = knn_error(None, X[:50], y[:50], X[50:], y[50:], n_neighbors=1)
    assert found.precision == pytest.approx(1 - error, rel=1e-12)


def test_equals_the_measures_of_the_rankings(sample):
    X, y = sample
    order = np.argsort(((X[50:, None] - X[:50]) ** 2).sum(axis=2), axis=1)
    relevant = [np.flatnonzero(y[:50] == label) for label in y[50:]]
    expected = ranking_measures(order, relevant, k=7)
    found = retrieval_measures(X[:50], y[:50], X[50:], y[50:], k=7)
    assert found.as_dict() == pytest.approx(expected.as_dict(), rel=1e-12)


def test_blocks_do_not_matter_and_inputs_are_not_changed(sample, read_only, monkeypatch):
    X, y = (read_only(part) for part in sample)
    found = retrieval_measures(X, y)
    monkeypatch.setattr(all_pairs, "SORTED_HOST_ENTRIES", 1 << 20)
    assert retrieval_measures(X, y) == found


@pytest.mark.parametrize("k", [0, -1, 1.5, True, "ten"])
def test_k_is_a_rank(sample, k):
    with pytest.raises(InvalidInputError, match="k must be an integer of at least 1; got"):
        retrieval_measures(*sample, k=k)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"query_labels": None}, "queries and query_labels belong together; got only one"),
        ({"queries": None}, "queries and query_labels belong together; got only one"),
        ({"queries": np.ones((5, 2))}, "they have 2 and the documents 3"),
        ({"y": [0, 1]}, "y must have a label for each of the 50 documents; got 2"),
        ({"query_labels": [0]}, "query_labels must have a label for each of the 5 queries; got 1"),
        ({"query_labels": list("abcde")}, "y is int64 and query_labels is <U1: they cannot be"),
        ({"query_labels": [0, 1, 2, 3, np.nan]}, "needs a label for every row"),
        ({"metric": "euclidean"}, "metric must be a fitted transformer.* got 'euclidean'"),
        ({"metric": MultiMetricLMNN()}, "metric must be a fitted transformer.* got MultiMetric"),
    ],
)
def test_errors(sample, change, message):
    X, y = sample
    given = {"X": X[:50], "y": y[:50], "queries": X[50:55], "query_labels": y[50:55], **change}
    with pytest.raises(InvalidInputError, match=message):
        retrieval_measures(**given)


def test_one_document_cannot_be_searched_for_among_others():
    with pytest.raises(InvalidInputError, match="needs at least 2 of them; there is 1"):
        retrieval_measures([[1.0]], [0])
    assert retrieval_measures([[1.0]], [0], [[2.0]], [0]).precision == 0.1


@pytest.mark.torch
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_queries_elsewhere_are_refused(torch, sample, device):
    X, y = sample
    tensor = torch.tensor(X, device=device)
    with pytest.raises(InvalidInputError, match="queries must be where the documents are"):
        retrieval_measures(X, y, tensor, y)
    if device != "cpu":
        with pytest.raises(InvalidInputError, match="are Tensor on cuda:0 and the queries Tensor"):
            retrieval_measures(tensor, y, tensor.cpu(), y)


@pytest.mark.torch
@pytest.mark.parametrize("shape", [(0, 3), (4, 0)])
def test_empty_tensors_are_refused(torch, shape):
    with pytest.raises(InvalidInputError, match=rf"got shape \({shape[0]}, {shape[1]}\)"):
        retrieval_measures(torch.ones(shape), np.zeros(shape[0]))
