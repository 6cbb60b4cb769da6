"""What MVU says of itself."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from nearfar.proofs import bounds
from nearfar.proofs.bounds import Index, Matrix
from nearfar.proofs.claims import (
    SOLVED,
    Found,
    Proof,
    Refuted,
    finite_array,
    points_of,
    row_numbers,
    to_host,
    tolerance,
)


def check_mvu(model: Any, proof: Proof, X: Any, _: Any, __: Any) -> Found:
    """MVU."""
    graph, K = model.graph_, np.asarray(to_host(model.kernel_), dtype=np.float64)
    n = graph.n_nodes
    given = _edge_lengths(model, X, graph)
    if K.shape != (n, n) or not np.isfinite(K).all():
        raise Refuted(f"the kernel of the model is no matrix of the {n} points")
    apart = np.abs(given - graph.lengths) > tolerance(model) * np.maximum(graph.lengths, given)
    if apart.any():
        e = int(np.flatnonzero(apart)[0])
        raise Refuted(
            f"the table is not the training table: rows {graph.heads[e]} and {graph.tails[e]} are"
            f" {given[e]:.6g} apart, the graph of the model says {graph.lengths[e]:.6g}"
        )
    same = _pieces(n, graph.heads[graph.lengths == 0], graph.tails[graph.lengths == 0])
    first, places = np.unique(same, return_index=True, return_inverse=True)[1:]
    K, lengths = K[np.ix_(first, first)], graph.lengths[graph.lengths > 0]
    ends = places[graph.heads][graph.lengths > 0], places[graph.tails][graph.lengths > 0]
    code = np.minimum(*ends) * len(first) + np.maximum(*ends)
    code, kept = np.unique(code, return_index=True)
    heads, tails, D = code // len(first), code % len(first), lengths[kept] ** 2

    edges = places[row_numbers(proof, "edges", 2, 0, n)]
    values = finite_array(proof, "weights", (len(edges), 2))
    own = edges.min(axis=1) * len(first) + edges.max(axis=1)
    order = np.argsort(own)
    if not np.array_equal(own[order], code):
        raise Refuted("dual point infeasible: its edges are not those of the graph")
    dual, thickness = values[order].T
    if not (thickness.min(initial=0) >= 0 and thickness.max(initial=0) <= float(model.thickness_)):
        raise Refuted("the proof is about thicker points than the model says")
    least = np.full(len(first), np.inf)
    np.minimum.at(least, np.concatenate([heads, tails]), np.tile(D, 2))
    D = D + thickness * (least[heads] + least[tails])
    omega, slack = float(model.slack_weight), model.constraints == "slack"
    price = omega / (1 - omega) if slack else 0.0
    if model.constraints == "shrink":
        dual = np.maximum(dual, 0)
    if slack and (np.abs(dual) > price * D * (1 + SOLVED)).any():
        raise Refuted("dual point infeasible: a weight is above the price of its edge")

    spectrum = np.linalg.eigvalsh(K)
    if spectrum[0] < -SOLVED * spectrum[-1]:
        raise Refuted(f"infeasible: the kernel has an eigenvalue of {spectrum[0]:.1e}")
    changes = (K.diagonal()[heads] + K.diagonal()[tails] - 2 * K[heads, tails]) / D - 1
    changes = {"shrink": np.maximum(changes, 0), "slack": 0 * changes}.get(
        model.constraints, np.abs(changes)
    )
    objective = bound = 0.0
    component = _pieces(len(first), heads, tails)
    for number in np.unique(component):
        nodes, mine = np.flatnonzero(component == number), component[heads] == number
        part = K[np.ix_(nodes, nodes)]
        if np.abs(part.mean(axis=0)).max() > SOLVED * np.abs(part).max():
            raise Refuted("infeasible: the kernel is not centred")
        if len(nodes) > 1:
            inside = np.searchsorted(nodes, heads[mine]), np.searchsorted(nodes, tails[mine])
            sign = 1.0 if model.variance == "max" else -1.0
            found = bounds.mvu(part, inside, D[mine], sign, price, dual[mine])
            objective, bound = objective + found[0], bound + found[1]
    violation = float(changes.max(initial=0.0))
    note = f", squared lengths kept to {violation:.1e} of themselves" if not slack else ""
    unit = float(D.mean()) if len(D) else 1.0
    return Found(objective, bound, note, unit=unit, violation=violation)


def _pieces(n: int, heads: Index, tails: Index) -> Index:
    """The component of each node of a graph."""
    graph = coo_array((np.ones(len(heads)), (heads, tails)), shape=(n, n))
    found: Index = connected_components(graph, directed=False)[1]
    return found


def _edge_lengths(model: Any, X: Any, graph: Any) -> Matrix:
    """The lengths in the table of the edges of a graph."""
    heads, tails = graph.heads, graph.tails
    if hasattr(X, "heads") and hasattr(X, "lengths"):  # a graph itself
        if not (np.array_equal(X.heads, heads) and np.array_equal(X.tails, tails)):
            raise Refuted("the graph is not the one of the fit: it has other edges")
        return np.asarray(X.lengths, dtype=np.float64)
    table = X.toarray() if hasattr(X, "toarray") else to_host(X)
    table = np.asarray(table, dtype=np.float64)
    if table.ndim != 2 or len(table) != graph.n_nodes:
        raise Refuted(
            f"the table is not the training table: it has shape {table.shape}, the graph of the"
            f" model {graph.n_nodes} nodes"
        )
    if model.metric == "precomputed":
        both = np.stack([table[heads, tails], table[tails, heads]])
        return np.asarray(np.where(np.isfinite(both[0]) & (both[0] > 0), both[0], both[1]))
    if model.metric == "kernel":
        own = table.diagonal()
        squares = np.maximum(own[heads] + own[tails] - 2 * table[heads, tails], 0)
    else:
        squares = bounds.lengths(points_of(table, model), heads, tails)
    return np.asarray(np.sqrt(squares))
