"""Pairs, triplets and chunklets of partly labelled points, as metric-learn names them."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.neighbors import NearestNeighbors
from sklearn.utils import check_random_state

from nearfar.compat.metric_learn._input import PeerError
from nearfar.supervision.chunklets import make_chunklets
from nearfar.supervision.labels import class_order
from nearfar.supervision.pairs import LabelledPairs, drawn

Index = NDArray[np.intp]


class Constraints:
    """Draws pairs, triplets and chunklets from labels.

    Parameters
    ----------
    partial_labels : array-like of int, of shape (n_samples,)
        Labels; negative ones are unknown.
    """

    def __init__(self, partial_labels: Any) -> None:
        self.partial_labels = np.asanyarray(partial_labels, dtype=int)

    @property
    def _known(self) -> Index:
        return np.flatnonzero(self.partial_labels >= 0)

    def positive_negative_pairs(
        self, n_constraints: int, same_length: bool = False, random_state: Any = None
    ) -> tuple[Index, Index, Index, Index]:
        """Rows a, b of pairs of one class each, and c, d of pairs of two classes, in random order.

        There are n_constraints of either kind, or all if there are fewer, with a warning;
        ``same_length`` takes as many of one kind as of the other.
        """
        known, random = self._known, check_random_state(random_state)
        possible = LabelledPairs(class_order(self.partial_labels[known], type(self).__name__))
        numbers = []
        for kind, total in (("positive", possible.n_near), ("negative", possible.n_far)):
            count = min(n_constraints, total)
            if count < n_constraints:
                warnings.warn(
                    f"Only generated {count} {kind} constraints (requested {n_constraints})",
                    stacklevel=2,
                )
            numbers.append(drawn(count, total, random))
        heads, tails, near = possible.edges(*numbers)
        order = random.permutation(len(near))
        pairs, near = known[np.stack([heads, tails], axis=1)[order]], near[order]
        positive, negative = pairs[near], pairs[~near]
        if same_length:
            shorter = min(len(positive), len(negative))
            positive, negative = positive[:shorter], negative[:shorter]
        return positive[:, 0], positive[:, 1], negative[:, 0], negative[:, 1]

    def generate_knntriplets(self, X: Any, k_genuine: int, k_impostor: int) -> Index:
        """Rows (m, 3) of all points, each with its k nearest of the class and of other classes.

        Where a class has too few points, all of them are taken, with a warning.
        """
        known, X = self._known, np.asarray(X)
        labels, triplets = self.partial_labels[known], []
        for label in np.unique(labels):
            own, others = known[labels == label], known[labels != label]
            n_genuine, n_impostors = min(k_genuine, len(own) - 1), min(k_impostor, len(others))
            if n_genuine < k_genuine:
                warnings.warn(
                    f"The class {label} has {len(own)} elements, which is not sufficient to"
                    f" generate {k_genuine + 1} genuine neighbors as specified by k_genuine. Will"
                    f" generate {n_genuine} genuine neighbors instead.\n",
                    stacklevel=2,
                )
            if n_impostors < k_impostor:
                warnings.warn(
                    f"The class {label} has {len(others)} elements of other classes, which is not"
                    f" sufficient to generate {k_impostor} impostor neighbors as specified by"
                    f" k_impostor. Will generate {n_impostors} impostor neighbors instead.\n",
                    stacklevel=2,
                )
            if not n_genuine or not n_impostors:
                continue
            near = own[_nearest(X[own], None, n_genuine)]
            far = others[_nearest(X[others], X[own], n_impostors)]
            shape = (len(own), n_genuine, n_impostors)
            axes = own[:, None, None], near[:, :, None], far[:, None, :]
            parts = [np.broadcast_to(part, shape).ravel() for part in axes]
            triplets.append(np.stack(parts, axis=1))
        return np.concatenate(triplets) if triplets else np.empty((0, 3), dtype=np.intp)

    def chunks(self, n_chunks: int = 100, chunk_size: int = 2, random_state: Any = None) -> Index:
        """The number of each point's chunklet, -1 for none; its points are of one class."""
        known, chunks = self._known, np.full(len(self.partial_labels), -1)
        labels = self.partial_labels[known]
        possible = int((np.unique(labels, return_counts=True)[1] // chunk_size).sum())
        if possible < n_chunks:
            raise PeerError(
                f"Not enough possible chunks of {chunk_size} elements in each class to form"
                f" expected {n_chunks} chunks - maximum number of chunks is {possible}"
            )
        chunks[known] = make_chunklets(
            labels, n_chunks, chunklet_size=chunk_size, random_state=random_state
        )
        return chunks


def _nearest(points: Any, queries: Any, count: int) -> Index:
    """The rows (n, count) of the points nearest to queries, or to each other for None."""
    search = NearestNeighbors(n_neighbors=count).fit(points)
    return np.asarray(search.kneighbors(queries, return_distance=False))


def wrap_pairs(X: Any, constraints: Any) -> tuple[Any, NDArray[np.int64]]:
    """Pairs (m, 2, d) and their kinds, of the four arrays of ``positive_negative_pairs``."""
    a, b, c, d = map(np.asarray, constraints)
    rows = np.concatenate([np.stack([a, b], axis=1), np.stack([c, d], axis=1)])
    return X[rows], np.repeat([1, -1], [len(a), len(c)])
