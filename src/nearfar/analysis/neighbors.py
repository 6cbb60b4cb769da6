"""Nearest neighbours among some rows, before and after learning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.analysis.models import Floats, Index, name_of, take_rows
from nearfar.errors import InvalidInputError
from nearfar.estimators.nearest import NearestNeighborClassifier
from nearfar.kernels import to_host
from nearfar.kernels.search import Search


@dataclass(frozen=True)
class Neighbors:
    """The nearest rows of each query (m, k), nearest first, and their distances."""

    rows: Index
    distances: Floats

    def of_queries(self, part: Any) -> Neighbors:
        """The neighbours of some of the queries."""
        return Neighbors(self.rows[part], self.distances[part])


def nearest_rows(points: Floats, queries: Index, among: Index, k: int) -> Neighbors:
    """The k nearest of the rows ``among`` to each of the rows ``queries``, never itself."""
    k, extra = _counts(queries, among, k)
    near, squares = Search.of(points[among]).nearest(points[queries], k + extra)
    return _without_self(queries, among[near], np.sqrt(squares), k)


def nearest_by_own_metrics(
    model: Any, X: Any, labels: NDArray[Any], queries: Index, among: Index, k: int
) -> Neighbors:
    """The same where the distance to a row is measured by the metric of that row."""
    unknown = np.setdiff1d(labels[among], model.classes_)
    if len(unknown):
        raise InvalidInputError(
            f"{name_of(model)} has no class called {unknown[0]!r}, so that no metric measures the"
            " distance to its points. Leave them out of X."
        )
    k, extra = _counts(queries, among, k)
    classifier = NearestNeighborClassifier(model, n_neighbors=k + extra)
    classifier.fit(take_rows(X, among), labels[among])
    distances, near = classifier.kneighbors(take_rows(X, queries), k + extra)
    return _without_self(queries, among[to_host(near)], to_host(distances), k)


def nearest_by_distances(D: Floats, queries: Index, among: Index, k: int) -> Neighbors:
    """The same by distances between all rows (n, n), NaN where they are not known."""
    table = D[np.ix_(queries, among)]
    table[queries[:, None] == among[None]] = np.nan  # which come last
    order = np.argsort(table, axis=1, kind="stable")[:, :k]
    return Neighbors(among[order], np.take_along_axis(table, order, axis=1))


def _counts(queries: Index, among: Index, k: int) -> tuple[int, int]:
    """At most how many neighbours there are, and how many more a search has to find."""
    extra = int(np.isin(queries, among).any())
    return min(k, len(among) - extra), extra


def _without_self(queries: Index, rows: Index, distances: Floats, k: int) -> Neighbors:
    """The first k neighbours of each query that are not the query itself."""
    order = np.argsort(rows == queries[:, None], axis=1, kind="stable")[:, :k]
    near = np.take_along_axis(rows, order, axis=1)
    return Neighbors(near, np.take_along_axis(distances, order, axis=1))
