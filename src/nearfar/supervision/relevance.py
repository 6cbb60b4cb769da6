"""Queries and the documents that answer them, as points with target neighbours."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from nearfar.errors import InvalidInputError
from nearfar.kernels import Array, is_torch, kernels_for, take_rows, to_host

Index = NDArray[np.intp]


class RelevantTargets(NamedTuple):
    """Points, labels and target neighbours for ``LMNN().fit``; see `make_relevant_targets`."""

    X: Array  # (n, d)
    y: Index  # (n,)
    target_neighbors: Index  # (n, k), -1 for none


def make_relevant_targets(queries: Any, documents: Any, pairs: Any) -> RelevantTargets:
    """Turn pairs of a query and a relevant document into what LMNN learns from.

    ``LMNN().fit(*make_relevant_targets(queries, documents, pairs))`` pulls each query towards its
    documents, and pushes away the other rows of the batch: everything that no chain of pairs links
    with the query. A document of another query that shares an answer with this one may be relevant
    too, and is left alone.

    Parameters
    ----------
    queries : array-like or torch.Tensor of shape (n_queries, n_features)
        The queries.
    documents : array-like or torch.Tensor of shape (n_documents, n_features)
        The documents, of the same features.
    pairs : array-like of int of shape (n_pairs, 2)
        Row numbers of a query and of a document that is relevant to it.

    Returns
    -------
    X : ndarray or torch.Tensor of shape (n_samples, n_features)
        The queries that a pair names, then the documents that a pair names, each once and in their
        order.
    y : ndarray of int of shape (n_samples,)
        The groups of rows that pairs link, numbered from 0: the labels.
    target_neighbors : ndarray of int of shape (n_samples, k)
        The relevant documents of each query by their rows in X, filled up with -1; documents have
        none.

    Notes
    -----
    Queries of other groups are pushed away as well as their documents. NCA, MCML and other learners
    of labels can be fitted to X and y, but treat a group as a class. If one chain of pairs links
    everything, nothing is known to be far, which is an error.

    Examples
    --------
    >>> from nearfar import LMNN, make_relevant_targets
    >>> queries, documents = [[0.0, 1.0], [4.0, 0.0]], [[0.0, 3.0], [9.0, 9.0], [4.0, 3.0]]
    >>> found = make_relevant_targets(queries, documents, [[0, 0], [1, 2]])
    >>> found.y
    array([0, 1, 0, 1])
    >>> found.target_neighbors.ravel()
    array([ 2,  3, -1, -1])
    >>> model = LMNN(n_components=1).fit(*found)
    >>> abs(model.components_).argmax()  # the first feature tells them apart
    np.int64(0)
    """
    first, second = _checked_rows(queries, "queries"), _checked_rows(documents, "documents")
    if is_torch(first) != is_torch(second) or first.shape[1] != second.shape[1]:
        raise InvalidInputError(
            "queries and documents must be arrays or tensors of the same features; got"
            f" {type(first).__name__} with {first.shape[1]} and {type(second).__name__} with"
            f" {second.shape[1]} features. Embed both in the same way."
        )
    named = _checked_pairs(pairs, len(first), len(second))
    asked, heads = np.unique(named[:, 0], return_inverse=True)
    answers, tails = np.unique(named[:, 1], return_inverse=True)
    tails = tails + len(asked)
    n = len(asked) + len(answers)
    links = coo_array((np.ones(len(heads)), (heads, tails)), shape=(n, n))
    n_groups, groups = connected_components(links, directed=False)
    if n_groups == 1:
        raise InvalidInputError(
            "pairs link all queries and documents into one group, so that nothing is far from a"
            " query. Give pairs of queries that share no document."
        )
    kernels = kernels_for(first)
    X = kernels.concatenate([take_rows(first, asked), take_rows(second, answers)])
    return RelevantTargets(X, groups.astype(np.intp), _table(heads, tails, n))


def _table(heads: Index, tails: Index, n: int) -> Index:
    """The tails of each head in a row of (n, k), filled up with −1; heads ascend."""
    counts = np.bincount(heads, minlength=n)
    table = np.full((n, counts.max()), -1, dtype=np.intp)
    table[heads, np.arange(len(heads)) - (np.cumsum(counts) - counts)[heads]] = tails
    return table


def _checked_rows(points: Any, name: str) -> Array:
    """Points of shape (n, d)."""
    array = points if is_torch(points) else np.asarray(points)
    if array.ndim != 2:
        raise InvalidInputError(
            f"{name} must have shape (n_{name}, n_features); got {tuple(array.shape)}. Give a row"
            " for each."
        )
    return array


def _checked_pairs(pairs: Any, n_queries: int, n_documents: int) -> Index:
    """Distinct pairs of row numbers, sorted."""
    rows = np.asarray(to_host(pairs))
    if rows.ndim != 2 or rows.shape[1] != 2 or len(rows) == 0 or rows.dtype.kind not in "iu":
        raise InvalidInputError(
            "pairs must be an integer array of shape (n_pairs, 2): row numbers of a query and of a"
            f" document that is relevant to it; got shape {rows.shape} of {rows.dtype}. Stack them"
            " with numpy.stack([query_rows, document_rows], axis=1)."
        )
    bad = np.flatnonzero(((rows < 0) | (rows >= (n_queries, n_documents))).any(axis=1))
    if len(bad):
        raise InvalidInputError(
            f"pairs must name queries 0 to {n_queries - 1} and documents 0 to {n_documents - 1};"
            f" pair {bad[0]} is {rows[bad[0]].tolist()} ({len(bad)} in all). Count rows from 0.",
            bad,
        )
    distinct: Index = np.unique(rows.astype(np.intp), axis=0)
    return distinct
