"""How good rankings are, given which documents are relevant: the measures of information retrieval.

A ranking lists documents for a query, the best first. With gᵢ >= 0 the gain of the document at rank
i = 1, 2, ... (in the binary case 1 if it is relevant and 0 if not), rᵢ = 1 if gᵢ > 0 and else 0, R
the number of documents that are relevant to the query, found or not, and g*₁ >= g*₂ >= ... their
gains:

(1) precision@k          Pₖ = Σ_{i<=k} rᵢ / k                                       [manning, 8.4]
(2) recall@k             Σ_{i<=k} rᵢ / R                                            [manning, 8.4]
(3) hit rate@k           1 if Σ_{i<=k} rᵢ > 0, else 0; "success" in trec_eval       [trec_eval]
(4) reciprocal rank      1 / min {i: rᵢ = 1}, or 0 if there is none                 [voorhees]
(5) average precision    Σᵢ rᵢ Pᵢ / R                                               [buckley]
(6) nDCG@k               Σ_{i<=k} gᵢ / log₂(i + 1)  /  Σ_{i<=k} g*ᵢ / log₂(i + 1)   [jarvelin]
(7) R-precision          P_R                                                        [buckley]

The measures of a set of queries are the means of these; that of (4) is the mean reciprocal rank,
MRR, that of (5) the mean average precision, MAP. Conventions are those of trec_eval:

- A ranking of fewer than k documents counts as one that goes on with irrelevant ones, so that (1)
  divides by k all the same. Relevant documents that a ranking does not list count in R.
- A query without a relevant document is left out, as trec_eval leaves out a query that its file of
  judgements does not name: (2), (5), (6) and (7) would be 0 / 0, and no ranking could be right. How
  many were left out is reported.
- A document may stand in a ranking once.

In (6) gains are taken as they are, and ranks are discounted from the second on, as in trec_eval;
[jarvelin] divide by log₂ i from the third on. For the gains of [burges] pass 2**g − 1 in place of
g.

[manning] Manning, Raghavan & Schütze, Introduction to information retrieval, 2008.
[trec_eval] Buckley, trec_eval, the evaluation tool of the Text REtrieval Conference, m_success.c.
[voorhees] Voorhees, The TREC-8 question answering track report, 1999.
[buckley] Buckley & Voorhees, Retrieval system evaluation, in: TREC, experiment and evaluation in
information retrieval, 2005.
[jarvelin] Järvelin & Kekäläinen, Cumulated gain-based evaluation of IR techniques, ACM TOIS 20,
2002.
[burges] Burges et al., Learning to rank using gradient descent, ICML 2005.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import InvalidInputError
from nearfar.evaluation.relevance import (
    checked_counts,
    checked_gains,
    ranked_relevance,
    row_blocks,
)
from nearfar.kernels import Array, kernels_for
from nearfar.validation import check_number

Floats = NDArray[np.float64]

MEASURES = (
    "precision",
    "recall",
    "hit_rate",
    "mean_reciprocal_rank",
    "mean_average_precision",
    "ndcg",
    "r_precision",
)
AT_K = ("precision", "recall", "hit_rate", "ndcg")  # of the first k documents
ROUNDING = 1e-9  # of a sum of gains, relative and at most


@dataclass(frozen=True)
class RetrievalMeasures:
    """How good the rankings of some queries are; 1 is perfect in each number.

    Attributes
    ----------
    k : rank up to which documents count in precision, recall, hit rate and nDCG
    n_queries : how many queries have a relevant document; the measures are means over these
    n_without_relevant : how many have none and were left out
    precision, recall, hit_rate, ndcg : of the first k documents
    mean_reciprocal_rank, mean_average_precision, r_precision : of the whole rankings
    per_query : the values of each query by these names, NaN where it was left out
    """

    k: int
    n_queries: int
    n_without_relevant: int
    precision: float
    recall: float
    hit_rate: float
    mean_reciprocal_rank: float
    mean_average_precision: float
    ndcg: float
    r_precision: float
    per_query: dict[str, Floats] = field(compare=False)

    @classmethod
    def of(cls, per_query: Mapping[str, Floats], k: int) -> RetrievalMeasures:
        """The means of values by query, which are NaN where a query has no relevant document."""
        known = ~np.isnan(per_query["precision"])
        means = {name: _mean_value(values[known], len(known)) for name, values in per_query.items()}
        return cls(
            k=int(k),
            n_queries=int(known.sum()),
            n_without_relevant=int((~known).sum()),
            per_query=dict(per_query),
            **means,
        )

    @property
    def standard_errors(self) -> dict[str, float]:
        """Of each mean, by its name: the deviation of the queries over the root of their number.

        NaN for a single query.
        """
        root = self.n_queries**0.5
        return {
            name: float(np.std(values[~np.isnan(values)], ddof=1) / root)
            if self.n_queries > 1
            else float("nan")
            for name, values in self.per_query.items()
        }

    def as_dict(self) -> dict[str, float]:
        """The measures and the numbers of queries as one level of names and numbers, as for JSON.

        The rank k is part of the names: "precision@10".
        """
        means = {self.title(name): getattr(self, name) for name in MEASURES}
        counts = {"n_queries": self.n_queries, "n_without_relevant": self.n_without_relevant}
        return {**means, **counts}

    def title(self, name: str) -> str:
        """The name of a measure with its rank k: "precision@10"."""
        return f"{name}@{self.k}" if name in AT_K else name

    def __repr__(self) -> str:
        noun = "query" if self.n_queries == 1 else "queries"
        lines = [f"RetrievalMeasures of {self.n_queries} {noun}"]
        if self.n_without_relevant:
            lines[0] += f" ({self.n_without_relevant} without a relevant document left out)"
        lines += [f"  {self.title(name):<24}{getattr(self, name):.4f}" for name in MEASURES]
        return "\n".join(lines)


def ranking_measures(rankings: Any, relevant: Any, k: int = 10) -> RetrievalMeasures:
    """All measures of rankings by document numbers.

    Parameters
    ----------
    rankings : array-like or torch.Tensor of shape (n_queries, depth)
        Document numbers from 0, the best first, as a search returns them; -1 where it returned
        nothing. Reciprocal rank, average precision and R-precision are of all of them, and take
        documents that are not listed for not found.
    relevant : sequence of length n_queries, or sparse array of shape (n_queries, n_documents)
        What is relevant to each query: the numbers of documents, or a mapping of numbers to gains.
        The entries of a sparse array are gains.
    k : int, default=10
        Rank up to which documents count in precision, recall, hit rate and nDCG.

    Returns
    -------
    RetrievalMeasures
        Means over the queries with a relevant document.

    Examples
    --------
    >>> from nearfar.evaluation import ranking_measures
    >>> ranking_measures([[4, 0, 2], [1, 3, 0]], [{0, 2}, {1: 3.0, 5: 1.0}], k=2)
    RetrievalMeasures of 2 queries
      precision@2             0.5000
      recall@2                0.5000
      hit_rate@2              1.0000
      mean_reciprocal_rank    0.7500
      mean_average_precision  0.5417
      ndcg@2                  0.6065
      r_precision             0.5000
    """
    check_k(k)
    found = ranked_relevance(rankings, relevant)
    parts = [
        Ranked(found.relevance[rows], found.n_relevant[rows]).values(k, found.ideal[rows])
        for rows in row_blocks(found.relevance)
    ]
    return RetrievalMeasures.of(joined(parts), k)


def precision_at_k(relevance: Any, k: int = 10) -> float:
    """The share of the first k documents that is relevant, eq. (1).

    Parameters
    ----------
    relevance : array-like or torch.Tensor of shape (n_queries, depth)
        Gains of the documents in the order of their ranking; above 0 is relevant.
    k : int, default=10
        Rank up to which documents count.

    Returns
    -------
    float
        The mean over all queries. Leave out those that have no relevant document.
    """
    check_k(k)
    return _mean(relevance, lambda ranked: ranked.precision(k))


def recall_at_k(relevance: Any, n_relevant: Any, k: int = 10) -> float:
    """The share of the relevant documents that is among the first k, eq. (2).

    Parameters
    ----------
    relevance : array-like or torch.Tensor of shape (n_queries, depth)
        Gains of the documents in the order of their ranking; above 0 is relevant.
    n_relevant : array-like of shape (n_queries,)
        How many documents are relevant to each query, found or not.
    k : int, default=10
        Rank up to which documents count.

    Returns
    -------
    float
        The mean over the queries with a relevant document.
    """
    check_k(k)
    return _mean(relevance, lambda ranked: ranked.recall(k), n_relevant)


def hit_rate_at_k(relevance: Any, k: int = 10) -> float:
    """The share of the queries with a relevant document among the first k, eq. (3).

    Parameters
    ----------
    relevance : array-like or torch.Tensor of shape (n_queries, depth)
        Gains of the documents in the order of their ranking; above 0 is relevant.
    k : int, default=10
        Rank up to which documents count.

    Returns
    -------
    float
        The mean over all queries. Leave out those that have no relevant document.
    """
    check_k(k)
    return _mean(relevance, lambda ranked: ranked.hit_rate(k))


def mean_reciprocal_rank(relevance: Any) -> float:
    """One over the rank of the first relevant document, eq. (4).

    Parameters
    ----------
    relevance : array-like or torch.Tensor of shape (n_queries, depth)
        Gains of the documents in the order of their ranking; above 0 is relevant. For the mean
        reciprocal rank at k, pass the first k columns.

    Returns
    -------
    float
        The mean over all queries. Leave out those that have no relevant document.
    """
    return _mean(relevance, lambda ranked: ranked.reciprocal_rank())


def mean_average_precision(relevance: Any, n_relevant: Any) -> float:
    """The mean of the precisions at the ranks of the relevant documents, eq. (5).

    Parameters
    ----------
    relevance : array-like or torch.Tensor of shape (n_queries, depth)
        Gains of the documents in the order of their ranking; above 0 is relevant.
    n_relevant : array-like of shape (n_queries,)
        How many documents are relevant to each query, found or not. Those that the rankings do not
        list count with a precision of 0.

    Returns
    -------
    float
        The mean over the queries with a relevant document.
    """
    return _mean(relevance, lambda ranked: ranked.average_precision(), n_relevant)


def ndcg_at_k(relevance: Any, ideal: Any, k: int = 10) -> float:
    """The discounted gain of the first k documents, relative to the best order of all, eq. (6).

    Parameters
    ----------
    relevance : array-like or torch.Tensor of shape (n_queries, depth)
        Gains of the documents in the order of their ranking.
    ideal : array-like of shape (n_queries, any)
        Gains of all documents that are relevant to each query, found or not, in any order, filled
        up with zeros. If the rankings list them all, it is ``relevance`` itself.
    k : int, default=10
        Rank up to which documents count.

    Returns
    -------
    float
        The mean over the queries with a relevant document.
    """
    check_k(k)
    gains = checked_gains(relevance, "relevance")
    ideal = checked_gains(ideal, "ideal", gains)
    each, values = kernels_for(gains).arange(len(gains), gains)[:, None], []
    for rows in row_blocks(ideal):
        best = ideal[each[rows], (-ideal[rows]).argsort(1)]
        value = Ranked.complete(gains[rows]).ndcg(k, best)
        if float(value.max()) > 1 + ROUNDING:
            raise InvalidInputError(
                "ideal must hold the gains of all relevant documents; query"
                f" {rows.start + int(value.argmax())} gains more than it allows. Add the gains of"
                " those that were found."
            )
        values.append(value)
    return _mean_of(values, ideal.sum(1))


def r_precision(relevance: Any, n_relevant: Any) -> float:
    """The precision among as many documents as are relevant, eq. (7).

    Parameters
    ----------
    relevance : array-like or torch.Tensor of shape (n_queries, depth)
        Gains of the documents in the order of their ranking; above 0 is relevant.
    n_relevant : array-like of shape (n_queries,)
        How many documents are relevant to each query, found or not.

    Returns
    -------
    float
        The mean over the queries with a relevant document.
    """
    return _mean(relevance, lambda ranked: ranked.r_precision(), n_relevant)


# -- the formulas, on a block of queries ------------------------------------------------------


@dataclass(frozen=True)
class Ranked:
    """Gains in the order of rankings, where they live. The value of a measure is an array (m,)."""

    gains: Array  # (m, depth), float64, depth >= 1
    n_relevant: Array  # (m,) R in float64

    @classmethod
    def complete(cls, relevance: Array) -> Ranked:
        """Of gains or truth values (m, depth) of rankings that list all relevant documents."""
        double = kernels_for(relevance).double
        return cls(double(relevance), double((relevance > 0).sum(1)))

    @property
    def depth(self) -> int:
        """How many documents each ranking lists."""
        return int(self.gains.shape[1])

    @cached_property
    def relevant(self) -> Array:
        """The rᵢ (m, depth) as floats: torch divides integers in single precision."""
        return kernels_for(self.gains).double(self.gains > 0)

    @cached_property
    def hits(self) -> Array:
        """Σ_{j<=i} rⱼ (m, depth)."""
        return self.relevant.cumsum(1)

    def hits_at(self, k: int) -> Array:
        """Σ_{i<=k} rᵢ; beyond the end of a ranking nothing is relevant."""
        return self.hits[:, min(k, self.depth) - 1]

    def precision(self, k: int) -> Array:
        """Pₖ."""
        return self.hits_at(k) / k  # (1)

    def recall(self, k: int) -> Array:
        """Σ_{i<=k} rᵢ / R."""
        return self.hits_at(k) / _or_one(self.n_relevant)  # (2)

    def hit_rate(self, k: int) -> Array:
        """Whether some rᵢ is 1 for i <= k, as a float."""
        return self.hits_at(k).clip(0, 1)  # (3)

    def reciprocal_rank(self) -> Array:
        """1 / min {i: rᵢ = 1}."""
        before = (self.hits == 0).sum(1)  # documents before the first relevant one
        return self.hits[:, -1].clip(0, 1) / (before + 1)  # (4)

    def average_precision(self) -> Array:
        """Σᵢ rᵢ Pᵢ / R."""
        precisions = self.hits / self._ranks
        return (self.relevant * precisions).sum(1) / _or_one(self.n_relevant)  # (5)

    def ndcg(self, k: int, ideal: Array) -> Array:
        """``ideal`` holds the gains of the relevant documents, largest first."""
        return _discounted(self.gains, k) / _or_one(_discounted(ideal, k))  # (6)

    def r_precision(self) -> Array:
        """P_R."""
        among_first = self._ranks <= self.n_relevant[:, None]
        return (self.relevant * among_first).sum(1) / _or_one(self.n_relevant)  # (7)

    def values(self, k: int, ideal: Array | None = None) -> dict[str, Floats]:
        """All measures on the host; NaN where there is no relevant document.

        Without ``ideal`` gains, those of all R relevant documents are 1.
        """
        kernels = kernels_for(self.gains)
        if ideal is None:
            depth = min(k, max(1, int(self.n_relevant.max())))
            ideal = kernels.double(_arange(depth, self.gains) < self.n_relevant[:, None])
        found = (
            self.precision(k),
            self.recall(k),
            self.hit_rate(k),
            self.reciprocal_rank(),
            self.average_precision(),
            self.ndcg(k, ideal),
            self.r_precision(),
        )
        none = kernels.to_host(self.n_relevant) == 0
        values = (np.where(none, np.nan, kernels.to_host(value)) for value in found)
        return dict(zip(MEASURES, values, strict=True))

    @property
    def _ranks(self) -> Array:
        return _arange(self.depth, self.gains) + 1


def _discounted(gains: Array, k: int) -> Array:
    """Σ_{i<=k} gᵢ / log₂(i + 1)."""
    discount = 1 / np.log2(2.0 + np.arange(min(k, gains.shape[1])))
    # Not a product of matrices, whose last digits depend on how many rows there are.
    return (gains[:, : len(discount)] * kernels_for(gains).like(discount, gains)).sum(1)


def _arange(size: int, reference: Array) -> Array:
    return kernels_for(reference).like(np.arange(size), reference)


def _or_one(totals: Array) -> Array:
    """Totals to divide by; 1 for a query without a relevant document."""
    return totals + (totals == 0)


def joined(parts: Sequence[Mapping[str, Floats]]) -> dict[str, Floats]:
    """The values of several blocks of queries."""
    return {name: np.concatenate([part[name] for part in parts]) for name in MEASURES}


def check_k(k: Any) -> None:
    """Raise unless k is a rank."""
    check_number("k", k, Integral, 1, None)


def _mean_value(values: Floats, n_queries: int) -> float:
    """The mean of the values that are known of so many queries, rounded once."""
    if len(values) == 0:
        raise InvalidInputError(
            f"there must be a query with a relevant document; none of {n_queries} queries has one."
            " Check that queries and documents belong together."
        )
    return math.fsum(values) / len(values)


def _mean(relevance: Any, measure: Callable[[Ranked], Array], n_relevant: Any = None) -> float:
    """The mean over all queries; over those with a relevant document where R is given."""
    gains = checked_gains(relevance, "relevance")
    totals = None if n_relevant is None else checked_counts(n_relevant, gains)
    values = [
        measure(
            Ranked.complete(gains[rows]) if totals is None else Ranked(gains[rows], totals[rows])
        )
        for rows in row_blocks(gains)
    ]
    return _mean_of(values, totals)


def _mean_of(blocks: list[Array], totals: Array | None) -> float:
    """The mean of the values of all queries, or of those whose total is not 0."""
    to_host = kernels_for(blocks[0]).to_host
    values = np.concatenate([to_host(block) for block in blocks])
    known = values if totals is None else values[to_host(totals) > 0]
    return _mean_value(known, len(values))
