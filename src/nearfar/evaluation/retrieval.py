"""How good a search among points is: each query ranks the documents by their distance.

A document is relevant if it has the label of the query. The measures and their conventions are
those of `nearfar.evaluation.rankings`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.blocks import is_dask
from nearfar.blocks.collections import array_of_known_rows, on_this_machine
from nearfar.errors import InvalidInputError
from nearfar.estimators._blocks import lazy_images
from nearfar.evaluation.rankings import Ranked, RetrievalMeasures, check_k, joined
from nearfar.evaluation.retrieval_blocks import searched_in_blocks
from nearfar.graphs.distances import checked_points
from nearfar.kernels import Array, kernels_for, single_threaded_blas
from nearfar.kernels.all_pairs import over_rankings
from nearfar.supervision import class_order

Index = NDArray[np.intp]
Floats = NDArray[np.float64]


@single_threaded_blas()
def retrieval_measures(
    X: Any,
    y: Any,
    queries: Any = None,
    query_labels: Any = None,
    *,
    k: int = 10,
    metric: Any = None,
) -> RetrievalMeasures:
    """Search for the nearest documents of each query, and measure how many have its label.

    Parameters
    ----------
    X : array-like, torch.Tensor or Dask array of shape (n_documents, n_features)
        The documents.
    y : array-like of shape (n_documents,)
        Their labels.
    queries : array-like, torch.Tensor, Dask array (n_queries, n_features) or None, default=None
        What is searched for. None searches for each document among all others: a row is left out of
        its own search, and other rows that equal it are not. With queries given nothing is left
        out, not even a document that equals the query.
    query_labels : array-like of shape (n_queries,) or None, default=None
        The labels of the queries. A query whose label no document has is left out and counted.
    k : int, default=10
        Rank up to which documents count in precision, recall, hit rate and nDCG. There may be
        fewer; precision is then still a share of k.
    metric : fitted transformer or None, default=None
        A learner, or whatever maps points to where distances are Euclidean; None takes the points
        as they are.

    Returns
    -------
    RetrievalMeasures
        Means over the queries with a relevant document. Relevance is binary: nDCG has gains of 1.

    Notes
    -----
    Equally near documents are ranked by their row number, so that the result depends neither on the
    block size nor on the device. Distances are computed in float64 where the points live; only
    labels and the values of the measures are on the host. Mean average precision needs the whole
    ranking, which is made for some queries at a time: O(m n (d + log n)) time for m queries,
    O((m + n) d) memory and a few blocks, never m by n. Documents and queries in Dask arrays are
    compared block by block, where they are; labels are on this machine.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from nearfar import LMNN
    >>> from nearfar.evaluation import retrieval_measures
    >>> X, y = load_wine(return_X_y=True)
    >>> model = LMNN().fit(X[::2], y[::2])
    >>> before = retrieval_measures(X[::2], y[::2], X[1::2], y[1::2])
    >>> after = retrieval_measures(X[::2], y[::2], X[1::2], y[1::2], metric=model)
    >>> before.precision < 0.7 < 0.9 < after.precision
    True
    """
    check_k(k)
    if metric is not None and not hasattr(metric, "transform"):
        raise InvalidInputError(
            "metric must be a fitted transformer, such as LMNN().fit(X, y), or None for the"
            f" Euclidean distance; got {metric!r}."
        )
    if (queries is None) != (query_labels is None):
        raise InvalidInputError(
            "queries and query_labels belong together; got only one of them. Give both, or none to"
            " search for each document among the others."
        )
    documents = _images(X, metric)
    if queries is None:
        codes = _codes(y, len(documents))[0]
        if len(codes) < 2:
            raise InvalidInputError(
                "a search among the documents themselves needs at least 2 of them; there is 1."
                " Add documents, or give queries."
            )
        values = _searched(documents, codes, documents, codes, k, among_themselves=True)
    else:
        asked = _images(queries, metric)
        _check_alike(documents, asked)
        codes, query_codes = _codes(y, len(documents), query_labels, len(asked))
        values = _searched(documents, codes, asked, query_codes, k)
    return RetrievalMeasures.of(values, k)


def _searched(
    documents: Array,
    codes: Index,
    queries: Array,
    query_codes: Index,
    k: int,
    among_themselves: bool = False,
) -> dict[str, Floats]:
    """The measures of each query on the host."""
    if is_dask(documents) or is_dask(queries):
        return searched_in_blocks(documents, codes, queries, query_codes, k, among_themselves)
    kernels, n = kernels_for(documents), len(documents)
    labels, wanted = (kernels.index(numbers, documents) for numbers in (codes, query_codes))
    own = kernels.arange(len(queries), documents)

    def measured(rows: slice, order: Array) -> dict[str, Floats]:
        relevance = labels[order] == wanted[rows, None]
        if among_themselves:
            relevance = relevance[order != own[rows, None]].reshape(len(order), n - 1)
        return Ranked.complete(relevance).values(k)

    return joined(over_rankings(queries, documents, measured))


def _images(points: Any, metric: Any) -> Array:
    if is_dask(points):
        return array_of_known_rows(points if metric is None else lazy_images(metric, points))
    images = checked_points(points if metric is None else metric.transform(points))
    if 0 in images.shape:
        raise InvalidInputError(
            f"a search needs points with features; got shape {tuple(images.shape)}. Check the data."
        )
    return images


def _check_alike(documents: Array, queries: Array) -> None:
    """Refuse queries that cannot be compared with the documents."""
    if documents.shape[1] != queries.shape[1]:
        raise InvalidInputError(
            "queries must have the features of the documents; they have"
            f" {queries.shape[1]} and the documents {documents.shape[1]}. Check that they belong"
            " together."
        )
    if is_dask(documents) or is_dask(queries):
        return
    places = [str(getattr(points, "device", "cpu")) for points in (documents, queries)]
    if kernels_for(documents) is not kernels_for(queries) or places[0] != places[1]:
        kinds = [type(points).__name__ for points in (documents, queries)]
        raise InvalidInputError(
            "queries must be where the documents are; the documents are"
            f" {kinds[0]} on {places[0]} and the queries {kinds[1]} on {places[1]}. Move one of"
            " them."
        )


def _codes(
    y: Any, n_documents: int, query_labels: Any = (), n_queries: int = 0
) -> tuple[Index, Index]:
    """Class numbers of documents and queries."""
    both = []
    for name, labels, rows, count in (
        ("y", y, "documents", n_documents),
        ("query_labels", query_labels, "queries", n_queries),
    ):
        labels = on_this_machine(labels)
        values = np.asarray(kernels_for(labels).to_host(labels))
        if len(values) != count:
            raise InvalidInputError(
                f"{name} must have a label for each of the {count} {rows}; got {len(values)}."
            )
        both.append(values)
    first, second = both
    if n_queries and (first.dtype.kind in "biuf") != (second.dtype.kind in "biuf"):
        raise InvalidInputError(
            f"y is {first.dtype} and query_labels is {second.dtype}: they cannot be compared. Write"
            " the labels the same way in both."
        )
    labels = np.concatenate([first, second]) if n_queries else first
    codes = class_order(labels, "retrieval_measures").codes
    return codes[:n_documents], codes[n_documents:]
