"""Dual points as a fitted estimator keeps them, in ``proof_``: plain arrays in the user's rows.

`nearfar.verify` checks them; docs/verify.md says what each key holds.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.estimators._tuples import holds_tuples
from nearfar.kernels import to_host
from nearfar.problems.lmnn import Certificate, LMNNProblem
from nearfar.supervision import Pairs, Tuples

Index = NDArray[np.intp]
Matrix = NDArray[np.float64]
Proof = dict[str, NDArray[Any]]


def margin_proof(
    problem: LMNNProblem, certificate: Certificate | None, order: Index, n_rows: int
) -> Proof:
    """For the LMNN family: the target neighbours, and the dual point if there is a certificate.

    ``order`` holds the row of X of each point of the problem, and ``n_rows`` is the number of rows
    of X. Points are numbered by their position among the training rows, which are all rows of X, or
    ``rows`` if some were held out.
    """
    rows = np.sort(order)
    place = np.searchsorted(rows, order)
    heads, tails = (place[to_host(end)] for end in problem.edges)
    proof: Proof = {"targets": _table(heads, tails, len(rows))}
    if len(rows) < n_rows:
        proof["rows"] = rows.astype(np.int32)
    if certificate is not None:
        dual = problem.dual_point(certificate, place)
        proof["triplets"] = dual["triplets"]
        proof["weights"] = np.asarray(dual["weights"], dtype=np.float64)
    return proof


def map_proof(maps: Iterable[Matrix]) -> Proof:
    """The maps whose soft neighbours (MCML), or whose lengths of far pairs (MMC), are a dual point.

    MCML has one or two of them.
    """
    return dict(zip(("components", "nearer"), maps, strict=False))


def drawn_pairs(pairs: Pairs, n_pairs: int | None) -> Proof:
    """The pairs that were drawn from labelled points; nothing if all were taken."""
    if n_pairs is None:
        return {}
    edges = {"near": pairs.near_edges(), "far": pairs.far_edges()}
    return {name: _numbered(pairs, ends) for name, ends in edges.items()}


def weights_proof(pairs: Pairs) -> Proof:
    """The weights of labelled points or of tuples, if they were given."""
    return {} if pairs.given_weights is None else {"sample_weight": pairs.given_weights}


def far_rows(pairs: Pairs, X: Any, y: Any) -> NDArray[np.int32]:
    """The far pairs (m, 2) by row numbers of X, or of the stacked points of dense tuples.

    In ``pairs`` equal points of dense tuples have become one; the order of the far pairs is kept.
    """
    if isinstance(X, Tuples) or not holds_tuples(X):
        return _numbered(pairs, pairs.far_edges())
    m, size = (X.shape if hasattr(X, "shape") else np.shape(X))[:2]
    far = np.arange(m) if size == 3 else np.flatnonzero(to_host(y) != 1)
    if pairs.given_weights is not None:
        far = far[pairs.given_weights[far] > 0]
    return np.stack([size * far, size * far + size - 1], axis=1).astype(np.int32)


def _numbered(pairs: Pairs, edges: tuple[Index, Index]) -> NDArray[np.int32]:
    """Edges (m, 2) by numbers of the user's rows."""
    return pairs.numbers(np.stack(edges, axis=1)).astype(np.int32)


def _table(heads: Index, tails: Index, n: int) -> NDArray[np.int32]:
    """Edges as a table (n, k), a row for each head; -1 where it has fewer tails."""
    by_head = np.argsort(heads, kind="stable")
    heads, tails = heads[by_head], tails[by_head]
    counts = np.bincount(heads, minlength=n)
    table = np.full((n, int(counts.max(initial=0))), -1, dtype=np.int32)
    table[heads, np.arange(len(heads)) - (np.cumsum(counts) - counts)[heads]] = tails
    return table
