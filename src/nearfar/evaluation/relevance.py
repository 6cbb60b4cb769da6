"""Which documents of a ranking are relevant: document numbers in, gains out."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sized
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from nearfar.errors import InvalidInputError
from nearfar.kernels import Array, is_torch, kernels_for

Floats = NDArray[np.float64]
Index = NDArray[np.intp]

BLOCK_ENTRIES = 1 << 20  # of a matrix of rankings at a time


@dataclass(frozen=True)
class RankedRelevance:
    """Rankings as gains instead of documents: what the measures of rankings take.

    Attributes
    ----------
    relevance : gains (m, depth) of the documents of each ranking, in its order
    n_relevant : how many documents (m,) are relevant to each query, found or not
    ideal : the gains (m, most relevant) of these, largest first, then zeros
    """

    relevance: Array
    n_relevant: Array
    ideal: Array


def ranked_relevance(rankings: Any, relevant: Any) -> RankedRelevance:
    """Look up which documents of some rankings are relevant.

    Parameters
    ----------
    rankings : array-like or torch.Tensor of shape (n_queries, depth)
        Document numbers from 0, the best first, as a search returns them; -1 where it returned
        nothing.
    relevant : sequence of length n_queries, or sparse array of shape (n_queries, n_documents)
        What is relevant to each query: the numbers of documents, or a mapping of numbers to gains.
        The entries of a sparse array are gains.

    Returns
    -------
    RankedRelevance
        In float64, where the rankings are.

    Examples
    --------
    >>> from nearfar.evaluation import mean_average_precision, ranked_relevance
    >>> found = ranked_relevance([[4, 0, 2], [1, 3, -1]], [{0, 2}, {1: 3.0, 5: 1.0}])
    >>> found.relevance
    array([[0., 1., 1.],
           [3., 0., 0.]])
    >>> mean_average_precision(found.relevance, found.n_relevant)  # (7 / 12 + 1 / 2) / 2
    0.5416666666666666
    """
    numbers = _checked_rankings(rankings)
    kernels, (m, depth) = kernels_for(numbers), numbers.shape
    queries, documents, gains = _judgements(relevant, m)
    reference = kernels.double(numbers[:1])
    # A document of a query as one code; column 0 is -1, which is relevant to nobody.
    width = max(int(numbers.max()), int(documents.max(initial=-1))) + 2
    codes = kernels.index(np.append(queries * width + documents + 1, m * width), reference)
    values = kernels.like(np.append(gains, 0.0), reference)
    asked = kernels.arange(m, reference)[:, None] * width + numbers + 1
    place = kernels.searchsorted(codes, asked.reshape(-1))
    relevance = (values[place] * (codes[place] == asked.reshape(-1))).reshape(m, depth)

    counts = np.bincount(queries[gains > 0], minlength=m)
    order = np.lexsort((-gains, queries))
    column = np.arange(len(order)) - np.searchsorted(queries, queries)
    ideal = np.zeros((m, max(1, int(counts.max()))))
    kept = column < ideal.shape[1]  # the others have no gain
    ideal[queries[kept], column[kept]] = gains[order][kept]
    return RankedRelevance(
        relevance, kernels.like(counts, reference), kernels.like(ideal, reference)
    )


def row_blocks(matrix: Array) -> Iterator[slice]:
    """Ranges of rows of a matrix that fill a block."""
    step = max(1, BLOCK_ENTRIES // matrix.shape[1])
    for first in range(0, len(matrix), step):
        yield slice(first, first + step)


def checked_gains(values: Any, name: str, reference: Array | None = None) -> Array:
    """Gains (m, depth) in float64 where they live; as many rows, and there, as the reference."""
    if not is_torch(values):
        values = np.asarray(values)
        if values.dtype.kind not in "biuf":
            raise InvalidInputError(
                f"{name} must hold gains, that is, numbers; got dtype {values.dtype}. For document"
                " numbers, take ranking_measures."
            )
    if reference is not None and getattr(values, "device", None) != getattr(
        reference, "device", None
    ):
        values = kernels_for(reference).like(kernels_for(values).to_host(values), reference)
    values, shape = kernels_for(values).double(values), tuple(values.shape)
    if len(shape) != 2 or 0 in shape or (reference is not None and shape[0] != len(reference)):
        rows = "n_queries" if reference is None else len(reference)
        raise InvalidInputError(
            f"{name} must have shape ({rows}, depth), a row of gains for each query; got {shape}."
        )
    wrong = kernels_for(values).flatnonzero(~((values >= 0) & (values < np.inf)).reshape(-1))
    if len(wrong):
        row, column = divmod(int(wrong[0]), shape[1])
        raise InvalidInputError(
            f"gains must be finite and not negative; {name}[{row}, {column}] is"
            f" {float(values[row, column])} ({len(wrong)} in all). Replace them, by 0 where nothing"
            " is known.",
            kernels_for(values).to_host(wrong) // shape[1],
        )
    return values


def checked_counts(n_relevant: Any, gains: Array) -> Array:
    """How many documents are relevant to each query, in float64 beside the gains."""
    counts, m = np.asarray(kernels_for(n_relevant).to_host(n_relevant)), len(gains)
    if counts.shape != (m,) or counts.dtype.kind not in "iuf" or not _whole(counts).all():
        raise InvalidInputError(
            f"n_relevant must hold a whole number for each of the {m} queries; got"
            f" {counts.dtype} of shape {counts.shape}."
        )
    found = kernels_for(gains).to_host((gains > 0).sum(1))
    wrong = np.flatnonzero(counts < found)
    if len(wrong):
        row = wrong[0]
        raise InvalidInputError(
            f"n_relevant must count all relevant documents; query {row} has {found[row]} in its"
            f" ranking and n_relevant is {counts[row]} ({len(wrong)} queries in all)."
            " Count those that were found, too.",
            wrong,
        )
    return kernels_for(gains).like(counts, gains)


def _checked_rankings(rankings: Any) -> Array:
    """Document numbers (m, depth) where they live, none twice for a query."""
    if not is_torch(rankings):
        lengths = {len(row) if isinstance(row, Sized) else 1 for row in rankings}
        rankings = np.asarray(rankings) if len(lengths) == 1 else np.empty(0, dtype=object)
    shape, integers = tuple(rankings.shape), "int" in str(rankings.dtype)
    if len(shape) != 2 or 0 in shape or not integers:
        raise InvalidInputError(
            "rankings must be integers of shape (n_queries, depth), the numbers of documents; got"
            f" {rankings.dtype} of shape {shape}. Fill short rankings up with -1."
        )
    host = kernels_for(rankings).to_host(rankings).astype(np.intp)
    for rows in row_blocks(host):
        ordered = np.sort(host[rows], axis=1)
        twice = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
        wrong = rows.start + np.flatnonzero(twice.any(axis=1) | (ordered[:, 0] < -1))
        if len(wrong):
            raise InvalidInputError(
                "a ranking must list each document once, by its number from 0, and -1 where there"
                f" is none; that of query {wrong[0]} begins with {host[wrong[0], :10].tolist()}."
                " Keep the first of repeated documents.",
                wrong,
            )
    return rankings.long() if is_torch(rankings) else host


def _judgements(relevant: Any, m: int) -> tuple[Index, Index, Floats]:
    """Queries, documents and gains of all that is relevant, sorted by query and document."""
    if sparse.issparse(relevant):
        entries = sparse.coo_array(relevant)
        entries.sum_duplicates()
        count, (queries, documents), gains = relevant.shape[0], entries.coords, entries.data
    else:
        count, queries, documents, gains = _listed(relevant)
    if count != m:
        raise InvalidInputError(
            f"relevant must say for each query what is relevant to it; there are {m} rankings and"
            f" relevant has {count} entries. Give an empty list where nothing is."
        )
    good = _whole(documents) & (documents >= 0) & (gains >= 0) & (gains < np.inf)
    wrong = np.flatnonzero(~good)
    if len(wrong):
        first = wrong[0]
        raise InvalidInputError(
            "relevant must hold document numbers from 0, with finite gains that are not negative;"
            f" query {queries[first]} has document {documents[first]:g} with gain"
            f" {gains[first]:g}. Correct or drop it.",
            queries[wrong],
        )
    order = np.lexsort((documents, queries))
    queries, documents = queries[order].astype(np.intp), documents[order].astype(np.intp)
    twice = np.flatnonzero((np.diff(queries) == 0) & (np.diff(documents) == 0))
    if len(twice):
        raise InvalidInputError(
            f"relevant must name a document once; query {queries[twice[0]]} has document"
            f" {documents[twice[0]]} twice. Drop one of them; for a matrix of gains, pass"
            " scipy.sparse.csr_array(matrix).",
            queries[twice],
        )
    return queries, documents, gains[order].astype(np.float64)


def _whole(values: NDArray[Any]) -> NDArray[np.bool_]:
    whole: NDArray[np.bool_] = np.isfinite(values) & (values == np.floor(values))
    return whole


def _listed(relevant: Any) -> tuple[int, Index, Floats, Floats]:
    """The number of entries, and their queries, documents and gains."""
    entries = list(kernels_for(relevant).to_host(relevant) if is_torch(relevant) else relevant)
    documents, gains = [np.empty(0)], [np.empty(0)]
    for query, entry in enumerate(entries):
        if isinstance(entry, str | bytes) or not isinstance(entry, Collection):
            raise InvalidInputError(
                "relevant must have a list, set or mapping of document numbers for each query; that"
                f" of query {query} is {entry!r}. Write [{entry!r}] for a single document."
            )
        try:
            documents.append(np.fromiter(entry, np.float64, len(entry)))
            weights = entry.values() if isinstance(entry, Mapping) else [1.0] * len(entry)
            gains.append(np.fromiter(weights, np.float64, len(entry)))
        except (TypeError, ValueError) as error:
            raise InvalidInputError(
                "relevant must hold document numbers, the rows of the documents; that of query"
                f" {query} cannot be read as such ({error}). Replace names by numbers."
            ) from None
    queries = np.repeat(np.arange(len(entries)), [len(entry) for entry in entries])
    return len(entries), queries, np.concatenate(documents), np.concatenate(gains)
