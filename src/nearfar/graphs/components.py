"""Connected components of a graph."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from nearfar.errors import DisconnectedGraphError
from nearfar.graphs.report import format_sizes

Index = NDArray[np.intp]


def component_labels(n: int, heads: Index, tails: Index) -> Index:
    """Component number (n,) of each node; the component of the first node is number 0."""
    ends = heads.astype(np.int32), tails.astype(np.int32)  # scipy 1.13 takes no others
    edges = sparse.csr_array((np.ones(len(heads), dtype=np.int8), ends), shape=(n, n))
    labels: Index = connected_components(edges, directed=False)[1].astype(np.intp)
    return labels


def split_components(labels: Index, heads: Index) -> Iterator[tuple[Index, Index]]:
    """Yield ascending numbers of the nodes and edges of each component, largest component first."""
    sizes = np.bincount(labels)
    nodes = np.split(np.argsort(labels, kind="stable"), np.cumsum(sizes)[:-1])
    counts = np.bincount(labels[heads], minlength=len(sizes))
    edges = np.split(np.argsort(labels[heads], kind="stable"), np.cumsum(counts)[:-1])
    for component in np.argsort(-sizes, kind="stable"):
        yield nodes[component], edges[component]


def check_one_component(labels: Index, name: str, remedy: str) -> None:
    """Raise a `DisconnectedGraphError` that names the estimator if there are several components."""
    if not labels.any():
        return
    sizes = np.bincount(labels)
    shown = np.sort(sizes)[::-1].tolist()
    raise DisconnectedGraphError(
        f"{name} needs a connected neighbourhood graph; this one has {len(sizes)} components,"
        f" of {format_sizes(shown)} nodes. {remedy}",
        np.flatnonzero(labels != sizes.argmax()),
        shown,
    )
