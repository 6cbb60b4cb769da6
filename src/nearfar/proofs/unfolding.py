"""Check of MVU: edge lengths, and the multipliers that bound the variance."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from nearfar.proofs import bounds, claims, sums
from nearfar.proofs.claims import Proof, Refuted, points_of, tolerance
from nearfar.proofs.found import OTHER, SOLVED, Found, edge_codes
from nearfar.proofs.sums import Index, Matrix


def check_mvu(model: Any, proof: Proof, X: Any, _: Any, __: Any) -> Found:
    """MVU."""
    graph, kind = model.graph_, model.constraints
    if model.kernel_ is None:
        factor = claims.as_float64(model.factor_)
        K = factor @ factor.T
    else:
        K = claims.as_float64(model.kernel_)
    n, given, length = graph.n_nodes, _edge_lengths(model, X, model.graph_), graph.lengths
    if K.shape != (n, n) or not np.isfinite(K).all():
        raise Refuted(f"the kernel of the model is not a matrix of the {n} points")
    for e in np.flatnonzero(np.abs(given - length) > tolerance(model) * np.maximum(length, given)):
        raise Refuted(
            f"{OTHER}rows {graph.heads[e]} and {graph.tails[e]} are {given[e]:.6g} apart, the graph"
            f" of the model says {length[e]:.6g}"
        )
    edges = claims.row_numbers(proof, "edges", 2, 0, n).T
    y, thickness = claims.finite_array(proof, "weights", (edges.shape[1], 2)).T
    ends, apart = np.stack([graph.heads, graph.tails]), length > 0
    first, places = np.unique(  # copies are one point
        _components(n, ends[:, ~apart]), return_index=True, return_inverse=True
    )[1:]
    n, K = len(first), K[np.ix_(first, first)]
    held, limits = claims.pair_limits(proof, graph.n_nodes)
    code, kept = np.unique(edge_codes(places[ends[:, apart]], n), return_index=True)
    kept = kept[~np.isin(code, edge_codes(places[held[:, limits[1] > 0]], n))]  # pairs replace them
    code, own = edge_codes(places[ends[:, apart][:, kept]], n), edge_codes(places[edges], n)
    if not np.array_equal(np.sort(own), code):
        raise Refuted("dual point infeasible: its edges are not those of the graph")
    y, thickness, D = y[np.argsort(own)], thickness[np.argsort(own)], length[apart][kept] ** 2
    ends, least = np.stack(divmod(code, n)), np.full(n, np.inf)
    np.minimum.at(least, ends.ravel(), np.tile(D, 2))
    prices = np.tile(claims.slack_prices(kind, model.slack_weight)[:, None], len(D))
    if len(limits[0]):
        held = places[held]
        np.minimum.at(least, held.ravel(), np.tile(limits[0], 2))
        ends, D = np.concatenate([ends, held], axis=1), np.append(D, limits[0])
        y, thickness = np.append(y, limits[3]), np.append(thickness, limits[4])
        prices = np.concatenate([prices, np.where(limits[1:3] > 0, np.inf, 0.0)], axis=1)
    if not (thickness.min(initial=0) >= 0 and thickness.max(initial=0) <= float(model.thickness_)):
        raise Refuted("the proof is about thicker points than the model says")
    D = D + thickness * least[ends].sum(axis=0)
    y = np.where(prices[1] == 0, np.maximum(y, 0), np.where(prices[0] == 0, np.minimum(y, 0), y))
    if ((y > prices[0] * D * (1 + SOLVED)) | (-y > prices[1] * D * (1 + SOLVED))).any():
        raise Refuted("dual point infeasible: a weight is above the price of its edge")
    spectrum = np.linalg.eigvalsh(K)
    if spectrum[0] < -SOLVED * spectrum[-1]:
        raise Refuted(f"infeasible: the kernel has an eigenvalue of {spectrum[0]:.1e}")

    totals, unit, component = np.zeros(4), 0.0, _components(n, ends)
    for nodes in (np.flatnonzero(component == number) for number in np.unique(component)):
        mine, part = np.isin(ends[0], nodes), K[np.ix_(nodes, nodes)]
        if np.abs(part.mean(axis=0)).max() > SOLVED * np.abs(part).max():
            raise Refuted("infeasible: the kernel is not centred")
        if len(nodes) > 1:
            i, j = np.searchsorted(nodes, ends[:, mine])
            sign = 1.0 if model.variance == "max" else -1.0
            *found, worst = bounds.mvu(part, i, j, D[mine], y[mine], sign, prices[:, mine])
            totals = np.append(totals[:3] + found, max(totals[3], worst))
            unit += max(D[mine].mean(), abs(found[1]))
    objective, bound, width, worst = map(float, totals)
    note = f", squared lengths kept to {worst:.1e} of themselves" if np.isinf(prices).any() else ""
    note += f", with {held.shape[1]} limits of pairs" * bool(held.size)
    gap = width / (unit or 1.0) if np.isfinite(width) else np.inf
    return Found(objective, bound, note, own_gap=gap)


def _components(n: int, ends: Index) -> Index:
    """The component of each node of a graph."""
    graph = coo_array((np.ones(ends.shape[1]), (ends[0], ends[1])), shape=(n, n))
    return np.asarray(connected_components(graph, directed=False)[1])


def _edge_lengths(model: Any, X: Any, graph: Any) -> Matrix:
    """The lengths in the table of the edges of a graph."""
    heads, tails = graph.heads, graph.tails
    if hasattr(X, "heads") and hasattr(X, "lengths"):  # a graph itself
        if not (np.array_equal(X.heads, heads) and np.array_equal(X.tails, tails)):
            raise Refuted("the graph is not the one of the fit: it has other edges")
        return claims.as_float64(X.lengths)
    table = claims.as_float64(X.toarray() if hasattr(X, "toarray") else X)
    if table.ndim != 2 or len(table) != graph.n_nodes:
        what = f"it has shape {table.shape}, the graph of the model {graph.n_nodes} nodes"
        raise Refuted(OTHER + what)
    if model.metric == "precomputed":
        there, back = table[heads, tails], table[tails, heads]
        return np.asarray(np.where(np.isfinite(there) & (there > 0), there, back))
    if model.metric == "kernel":
        own = table.diagonal()
        squares = own[heads] + own[tails] - 2 * table[heads, tails]
        return np.asarray(np.sqrt(np.maximum(squares, 0)))
    return np.asarray(np.sqrt(sums.lengths(points_of(table, model), heads, tails)))
