"""Measures of rankings: by hand, by plain loops, and by other libraries."""

import json
import math

import numpy as np
import pytest
from scipy import sparse
from sklearn.metrics import average_precision_score, ndcg_score

from nearfar.errors import InvalidInputError
from nearfar.evaluation import (
    RetrievalMeasures,
    hit_rate_at_k,
    mean_average_precision,
    mean_reciprocal_rank,
    ndcg_at_k,
    precision_at_k,
    r_precision,
    ranked_relevance,
    ranking_measures,
    recall_at_k,
    relevance,
)

MEASURES = (
    "precision",
    "recall",
    "hit_rate",
    "mean_reciprocal_rank",
    "mean_average_precision",
    "ndcg",
    "r_precision",
)


def by_loops(ranking, gains, k):
    """The measures of one query by their definitions; gains is a mapping of documents."""
    relevant = {document for document, gain in gains.items() if gain > 0}
    first_k = [document for document in list(ranking)[:k] if document >= 0]
    hits = sum(document in relevant for document in first_k)
    ranks = [rank for rank, document in enumerate(ranking, 1) if document in relevant]
    precisions = [sum(other <= rank for other in ranks) / rank for rank in ranks]
    gained = sum(gains.get(d, 0) / math.log2(1 + rank) for rank, d in enumerate(first_k, 1))
    best = sorted(gains.values(), reverse=True)[:k]
    return {
        "precision": hits / k,
        "recall": hits / len(relevant),
        "hit_rate": float(hits > 0),
        "mean_reciprocal_rank": 1 / ranks[0] if ranks else 0.0,
        "mean_average_precision": sum(precisions) / len(relevant),
        "ndcg": gained / sum(gain / math.log2(1 + rank) for rank, gain in enumerate(best, 1)),
        "r_precision": sum(rank <= len(relevant) for rank in ranks) / len(relevant),
    }


def draw(rng, n_queries=40, n_documents=30, depth=20):
    """Rankings that end early, and up to eight documents of gains 1, 2 or 3 for each query."""
    rankings = np.array([rng.permutation(n_documents)[:depth] for _ in range(n_queries)])
    for ranking in rankings:
        ranking[rng.integers(1, depth + 1) :] = -1
    chosen = (rng.permutation(n_documents)[: rng.integers(1, 9)] for _ in range(n_queries))
    return rankings, [
        {int(document): float(rng.integers(1, 4)) for document in each} for each in chosen
    ]


def assert_equal(found, expected):
    """Measures equal those by loops, for each query and in the mean."""
    for name in MEASURES:
        values = [one[name] for one in expected]
        np.testing.assert_allclose(found.per_query[name], values, rtol=1e-12, atol=1e-15)
        assert getattr(found, name) == pytest.approx(np.mean(values), rel=1e-12)


def test_by_hand():
    """Documents 3, 7 and 9 are relevant; the ranking is 7, 1, 3, 2, and the search ended there.

    precision@3 = 2/3, recall@3 = 2/3, a hit, RR = 1, AP = (1/1 + 2/3) / 3 = 5/9,
    DCG@3 = 1 + 1/log2(4) = 3/2, ideal 1 + 1/log2(3) + 1/2, R-precision = 2/3.
    """
    found = ranking_measures([[7, 1, 3, 2]], [[3, 7, 9]], k=3)
    assert found.precision == pytest.approx(2 / 3)
    assert found.recall == pytest.approx(2 / 3)
    assert found.hit_rate == 1
    assert found.mean_reciprocal_rank == 1
    assert found.mean_average_precision == pytest.approx(5 / 9)
    assert found.ndcg == pytest.approx(1.5 / (1.5 + 1 / math.log2(3)))
    assert found.r_precision == pytest.approx(2 / 3)


def test_graded_by_hand():
    """Gains 3, 2, 3, 0, 1, 2 in ranked order, and two more documents of gains 3 and 2 not found.

    DCG@6 = 3 + 2/log2(3) + 3/2 + 0 + 1/log2(6) + 2/log2(7); ideal gains 3, 3, 3, 2, 2, 2.
    The example of Wikipedia's page on discounted cumulative gain: 6.861, 8.740 and 0.785.
    """
    relevance = [[3, 2, 3, 0, 1, 2]]
    ideal = [[3, 3, 2, 2, 1, 0, 3, 2]]
    assert ndcg_at_k(relevance, ideal, 6) == pytest.approx(0.785, abs=5e-4)
    found = ranking_measures(
        [[0, 1, 2, 3, 4, 5]], [{0: 3, 1: 2, 2: 3, 3: 0, 4: 1, 5: 2, 6: 3, 7: 2}], k=6
    )
    assert found.ndcg == ndcg_at_k(relevance, ideal, 6)
    assert found.recall == 5 / 7  # a gain of 0 is not relevant


@pytest.mark.parametrize("k", [1, 4, 10, 20, 50])
def test_equals_the_loops(backend, rng, k):
    rankings, relevant = draw(rng)
    expected = [by_loops(*one, k) for one in zip(rankings, relevant, strict=True)]
    found = ranking_measures(backend.asarray(rankings), relevant, k)
    assert (found.k, found.n_queries, found.n_without_relevant) == (k, 40, 0)
    assert_equal(found, expected)


def test_one_measure_at_a_time(backend, rng):
    rankings, relevant = draw(rng)
    all_of_them = ranking_measures(rankings, relevant, 5)
    found = ranked_relevance(backend.asarray(rankings), relevant)
    gains, counts, ideal = found.relevance, found.n_relevant, found.ideal
    assert backend.to_numpy(gains).shape == rankings.shape
    one_by_one = {
        "precision": precision_at_k(gains, 5),
        "recall": recall_at_k(gains, counts, 5),
        "hit_rate": hit_rate_at_k(gains, 5),
        "mean_reciprocal_rank": mean_reciprocal_rank(gains),
        "mean_average_precision": mean_average_precision(gains, counts),
        "ndcg": ndcg_at_k(gains, ideal, 5),
        "r_precision": r_precision(gains, counts),
    }
    for name, value in one_by_one.items():
        assert isinstance(value, float)
        assert value == pytest.approx(getattr(all_of_them, name), rel=1e-12), name
    shuffled = np.random.default_rng(0).permuted(backend.to_numpy(ideal), axis=1)
    assert ndcg_at_k(gains, shuffled, 5) == pytest.approx(all_of_them.ndcg, rel=1e-12)
    on_host = backend.to_numpy(counts)
    assert recall_at_k(gains, on_host.tolist(), 5) == one_by_one["recall"]


def test_blocks_do_not_matter(rng, monkeypatch):
    rankings, relevant = draw(rng)
    whole = ranking_measures(rankings, relevant, 5)
    gains = ranked_relevance(rankings, relevant)
    means = ndcg_at_k(gains.relevance, gains.ideal, 5), precision_at_k(gains.relevance, 5)
    monkeypatch.setattr(relevance, "BLOCK_ENTRIES", 60)  # three rows
    found = ranking_measures(rankings, relevant, 5)
    assert found == whole
    for name in MEASURES:
        np.testing.assert_array_equal(found.per_query[name], whole.per_query[name])
    again = ndcg_at_k(gains.relevance, gains.ideal, 5), precision_at_k(gains.relevance, 5)
    assert again == means


def test_equals_scikit_learn(rng):
    """Of complete rankings, which its functions take as scores of all documents."""
    scores = rng.permuted(np.tile(np.arange(50.0), (30, 1)), axis=1)
    graded = rng.integers(0, 4, size=(30, 50))
    rankings = np.argsort(-scores, axis=1)
    found = ranking_measures(rankings, sparse.csr_array(graded), k=10)
    assert found.ndcg == pytest.approx(ndcg_score(graded, scores, k=10), rel=1e-12)
    precisions = [average_precision_score(*one) for one in zip(graded > 0, scores, strict=True)]
    np.testing.assert_allclose(found.per_query["mean_average_precision"], precisions, rtol=1e-12)


def test_equals_trec_eval(rng):
    reason = "pytrec_eval is not installed: pip install pytrec-eval-terrier"
    pytrec_eval = pytest.importorskip("pytrec_eval", reason=reason)
    rankings, relevant = draw(rng)
    names = {
        "P_10": "precision",
        "recall_10": "recall",
        "success_10": "hit_rate",
        "recip_rank": "mean_reciprocal_rank",
        "map": "mean_average_precision",
        "ndcg_cut_10": "ndcg",
        "Rprec": "r_precision",
    }
    judged = {
        str(query): {f"d{document}": int(gain) for document, gain in gains.items()}
        for query, gains in enumerate(relevant)
    }
    run = {
        str(query): {f"d{d}": -float(rank) for rank, d in enumerate(ranking) if d >= 0}
        for query, ranking in enumerate(rankings)
    }
    asked = {"P.10", "recall.10", "success.10", "recip_rank", "map", "ndcg_cut.10", "Rprec"}
    theirs = pytrec_eval.RelevanceEvaluator(judged, asked).evaluate(run)
    found = ranking_measures(rankings, relevant, 10)
    for name, ours in names.items():
        values = [theirs[str(query)][name] for query in range(len(rankings))]
        np.testing.assert_allclose(found.per_query[ours], values, rtol=1e-12, err_msg=name)


@pytest.mark.filterwarnings("ignore:unsafe cast")  # numba's, of code inside ranx
def test_equals_ranx(rng):
    ranx = pytest.importorskip("ranx", reason="ranx is not installed: pip install ranx")
    rankings, relevant = draw(rng)
    names = {
        "precision@10": "precision",
        "recall@10": "recall",
        "hit_rate@10": "hit_rate",
        "mrr": "mean_reciprocal_rank",
        "map": "mean_average_precision",
        "ndcg@10": "ndcg",
        "r-precision": "r_precision",
    }
    judged = {
        f"q{query}": {f"d{document}": int(gain) for document, gain in gains.items()}
        for query, gains in enumerate(relevant)
    }
    run = {
        f"q{query}": {f"d{d}": 100 - float(rank) for rank, d in enumerate(ranking) if d >= 0}
        for query, ranking in enumerate(rankings)
    }
    theirs = ranx.evaluate(ranx.Qrels(judged), ranx.Run(run), list(names))
    found = ranking_measures(rankings, relevant, 10)
    for name, ours in names.items():
        assert getattr(found, ours) == pytest.approx(theirs[name], rel=1e-12), name


@pytest.mark.parametrize("form", ["lists", "sets", "mappings", "arrays", "matrix", "sparse"])
def test_what_is_relevant_has_many_forms(form):
    rankings = np.array([[2, 0, 1], [1, 2, 3], [3, 0, 2]])
    listed = [[0, 1], [3, 7], [2, 3]]
    relevant = {
        "lists": listed,
        "sets": [set(each) for each in listed],
        "mappings": [dict.fromkeys(each, 1) for each in listed],
        "arrays": [np.array(each) for each in listed],
        "matrix": np.array(listed),
        "sparse": sparse.csr_array((np.ones(6), ([0, 0, 1, 1, 2, 2], np.ravel(listed)))),
    }[form]
    found = ranked_relevance(rankings, relevant)
    np.testing.assert_array_equal(found.relevance, [[0, 1, 1], [0, 0, 1], [1, 0, 1]])
    np.testing.assert_array_equal(found.n_relevant, [2, 2, 2])
    np.testing.assert_array_equal(found.ideal, np.ones((3, 2)))


def test_fewer_documents_than_k():
    """As in trec_eval, the ranking goes on with irrelevant documents: 2 of 10, not of 3."""
    found = ranking_measures([[5, 1, 2]], [[1, 5]], k=10)
    assert (found.precision, found.recall, found.r_precision) == (0.2, 1.0, 1.0)
    assert precision_at_k([[1, 1, 0]], 10) == 0.2


def test_queries_without_a_relevant_document_are_left_out_and_counted():
    rankings, relevant = [[0, 1], [1, 0], [0, 1]], [[0], [], {1: 1.0, 0: 0.0}]
    found = ranking_measures(rankings, relevant, k=1)
    assert (found.n_queries, found.n_without_relevant) == (2, 1)
    assert (found.precision, found.mean_reciprocal_rank) == (0.5, 0.75)
    for name in MEASURES:
        np.testing.assert_array_equal(np.isnan(found.per_query[name]), [False, True, False])
    ranked = ranked_relevance(rankings, relevant)
    assert recall_at_k(ranked.relevance, ranked.n_relevant, 1) == found.recall
    assert ndcg_at_k(ranked.relevance, ranked.ideal, 1) == found.ndcg
    assert precision_at_k(ranked.relevance, 1) == pytest.approx(1 / 3)  # all queries, as it says
    with pytest.raises(InvalidInputError, match="none of 3 queries has one"):
        ranking_measures(rankings, [[], [], []])
    with pytest.raises(InvalidInputError, match="none of 2 queries has one"):
        recall_at_k([[0, 0], [0, 0]], [0, 0])


def test_what_is_shown():
    rankings, relevant = [[0, 1], [1, 0], [0, 1]], [[0], [], [1]]
    found = ranking_measures(rankings, relevant, k=1)
    assert repr(found) == str(found)
    assert repr(found).splitlines() == [
        "RetrievalMeasures of 2 queries (1 without a relevant document left out)",
        "  precision@1             0.5000",
        "  recall@1                0.5000",
        "  hit_rate@1              0.5000",
        "  mean_reciprocal_rank    0.7500",
        "  mean_average_precision  0.7500",
        "  ndcg@1                  0.5000",
        "  r_precision             0.5000",
    ]
    shown = json.loads(json.dumps(found.as_dict()))
    assert shown["precision@1"] == 0.5
    assert shown["mean_reciprocal_rank"] == 0.75
    assert (shown["n_queries"], shown["n_without_relevant"]) == (2, 1)
    assert isinstance(found, RetrievalMeasures)
    with pytest.raises(AttributeError):
        found.precision = 1.0


def test_standard_errors():
    """Precisions 1, 0, 0 and 1 deviate by sqrt(1/3): over the root of four, sqrt(1/12)."""
    found = ranking_measures([[0], [1], [1], [0]], [[0]] * 4, k=1)
    assert found.standard_errors["precision"] == pytest.approx(12**-0.5)
    alone = ranking_measures([[0]], [[0]], k=1)
    assert all(np.isnan(error) for error in alone.standard_errors.values())
    assert repr(alone).startswith("RetrievalMeasures of 1 query\n")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ranking_measures([[0]], [[0]], k=0), "k must be an integer of at least 1; got 0"),
        (lambda: precision_at_k([[1.0]], 2.5), "k must be an integer of at least 1; got 2.5"),
        (
            lambda: ranking_measures([[0, 0]], [[0]]),
            "must list each document once.* query 0 begins",
        ),
        (lambda: ranking_measures([[0, 1], [0, -2]], [[0]] * 2), r"query 1 begins with \[0, -2\]"),
        (lambda: ranking_measures([[0, 1], [0]], [[0]] * 2), "Fill short rankings up with -1"),
        (
            lambda: ranking_measures([0, 1], [[0]]),
            r"must be integers of shape \(n_queries, depth\)",
        ),
        (lambda: ranking_measures([[0.5, 1]], [[0]]), "must be integers .* got float64"),
        (lambda: ranking_measures(np.empty((0, 3), int), []), r"must be integers of shape"),
        (lambda: ranking_measures([[0]], [[0], [1]]), "1 rankings and relevant has 2 entries"),
        (lambda: ranking_measures([[0]], [3]), r"relevant must have a list.*Write \[3\]"),
        (lambda: ranking_measures([[0]], ["d3"]), "relevant must have a list, set or mapping"),
        (lambda: ranking_measures([[0]], [["d3"]]), "Replace names by numbers"),
        (lambda: ranking_measures([[0]], [[1, 1]]), "query 0 has document 1 twice"),
        (lambda: ranking_measures([[0]], [[-1]]), "query 0 has document -1 with gain 1"),
        (lambda: ranking_measures([[0]], [[0.5]]), "query 0 has document 0.5 with gain 1"),
        (lambda: ranking_measures([[0]], [{1: -2}]), "query 0 has document 1 with gain -2"),
        (lambda: ranking_measures([[0]], [{1: np.inf}]), "document 1 with gain inf"),
        (lambda: precision_at_k([1, 0]), r"relevance must have shape \(n_queries, depth\).*\(2,\)"),
        (lambda: precision_at_k(np.empty((3, 0))), "relevance must have shape"),
        (lambda: precision_at_k([["a"]]), "relevance must hold gains, that is, numbers"),
        (lambda: precision_at_k([[1, 0], [0, -1]]), r"relevance\[1, 1\] is -1.0 \(1 in all\)"),
        (lambda: precision_at_k([[1, np.nan]]), r"relevance\[0, 1\] is nan"),
        (lambda: recall_at_k([[1, 1]], [1]), "query 0 has 2 in its ranking and n_relevant is 1"),
        (lambda: recall_at_k([[1, 1]], [2, 2]), "whole number for each of the 1 queries"),
        (lambda: recall_at_k([[1, 1]], [2.5]), "whole number for each of the 1 queries"),
        (lambda: recall_at_k([[1, 1]], [np.nan]), "whole number for each of the 1 queries"),
        (lambda: recall_at_k([[1, 1]], [np.inf]), "whole number for each of the 1 queries"),
        (lambda: ndcg_at_k([[1, 1]], [[1], [1]]), r"ideal must have shape \(1, depth\)"),
        (lambda: ndcg_at_k([[1, 0], [1, 1]], [[1], [1]]), "query 1 gains more than it allows"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_errors(call, message):
    with pytest.raises(InvalidInputError, match=message):
        call()


def test_errors_name_the_queries():
    with pytest.raises(InvalidInputError) as caught:
        ranking_measures([[0, 1], [2, 2], [3, 3]], [[0]] * 3)
    np.testing.assert_array_equal(caught.value.indices, [1, 2])
    with pytest.raises(InvalidInputError) as caught:
        precision_at_k([[0, 1], [2, -2], [3, 3]])
    np.testing.assert_array_equal(caught.value.indices, [1])
