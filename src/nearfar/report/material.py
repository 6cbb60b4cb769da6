"""Which rows a report draws, and whose neighbours it shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.analysis.comparison import TestedRows, compare_errors
from nearfar.analysis.models import Index, row_numbers, sample_rows
from nearfar.analysis.neighbors import Neighbors
from nearfar.analysis.study import Study
from nearfar.analysis.views import views
from nearfar.errors import InvalidInputError
from nearfar.kernels import to_host
from nearfar.report.payload import Material, checked_image_shape

SHOWN = 3000  # rows that are drawn, at most, besides the chosen ones and their neighbours
NEIGHBORS = 5  # of each row, at least
CHOSEN = 6  # rows whose neighbours are shown from the start, where the caller chooses none
MOST_CHOSEN = 50


def gather(
    study: Study,
    columns: Mapping[str, Any] | None,
    rows: Any,
    image_shape: Any,
    random_state: int,
) -> Material:
    """Draw the rows, find their neighbours and choose what to show first."""
    n, k = len(study), max(NEIGHBORS, study.n_neighbors)
    asked = np.empty(0, dtype=np.intp) if rows is None else row_numbers("rows", rows, n)
    if len(asked) > MOST_CHOSEN:
        raise InvalidInputError(
            f"rows names {len(asked)} rows whose neighbours are to be shown; at most {MOST_CHOSEN}"
            " have room. Name fewer: on the page every drawn row can be selected."
        )
    known = np.arange(n)
    if len(study.tested):
        known = np.union1d(study.voters, study.tested)  # others would have no outcome
    sample = sample_rows(known, SHOWN, random_state)
    sample = np.random.default_rng(random_state).permutation(sample)
    queries = _in_order(study.tested, asked, sample)
    before, after = study.neighbors(queries, k)
    tested = None if after is None else compare_errors(study, before, after)
    chosen = asked if len(asked) else _telling(study, tested, sample, random_state)
    at = _places(chosen, queries)
    near = [found.rows[at].ravel() for found in (before, after) if found is not None]
    shown = _in_order(chosen, *near, sample)
    missing = np.setdiff1d(shown, queries)
    if len(missing):
        more = study.neighbors(missing, k)
        queries = np.concatenate([queries, missing])
        before, after = (_joined(pair) for pair in zip((before, after), more, strict=True))
    at = _places(shown, queries)
    return Material(
        shown,
        len(chosen),
        views(study, shown, random_state),
        before and before.of_queries(at),
        after and after.of_queries(at),
        tested,
        {**_given_columns(columns, n), **_features(study)},
        checked_image_shape(image_shape, study.feature_names if study.X is not None else ()),
    )


def _joined(pair: tuple[Neighbors | None, Neighbors | None]) -> Neighbors | None:
    first, second = pair
    if first is None or second is None:
        return None
    return Neighbors(
        np.concatenate([first.rows, second.rows]),
        np.concatenate([first.distances, second.distances]),
    )


def _telling(study: Study, tested: TestedRows | None, sample: Index, random_state: int) -> Index:
    """Rows that learning fixed or broke, that stayed wrong, and that were right all along."""
    if tested is None:
        return sample[:CHOSEN]
    was, is_wrong = tested.before.wrong, tested.after.wrong
    kinds = [(was & ~is_wrong, 2), (~was & is_wrong, 2), (was & is_wrong, 1), (~was & ~is_wrong, 6)]
    chosen = [sample_rows(study.tested[mask], count, random_state) for mask, count in kinds]
    return np.concatenate(chosen)[:CHOSEN]


def _in_order(*parts: Index) -> Index:
    """All rows of the parts, each once, where it comes first."""
    rows = np.concatenate(parts)
    first = np.sort(np.unique(rows, return_index=True)[1])
    return rows[first]


def _places(rows: Index, among: Index) -> Index:
    order = np.argsort(among)
    return order[np.searchsorted(among, rows, sorter=order)]


def _given_columns(columns: Mapping[str, Any] | None, n: int) -> dict[str, NDArray[Any]]:
    found = {}
    for name, values in (columns or {}).items():
        column = to_host(values)
        if column.ndim != 1 or len(column) != n:
            raise InvalidInputError(
                f"column {name!r} must have a value for each of the {n} rows; it has shape"
                f" {column.shape}."
            )
        found[str(name)] = column
    return found


def _features(study: Study) -> dict[str, NDArray[Any]]:
    """The features, those that count most first."""
    if study.X is None:
        return {}
    shares = study.feature_shares()
    order = np.argsort(-np.var(study.X[study.voters], axis=0)) if shares is None else shares.order
    return {study.feature_names[i]: study.X[:, i] for i in order.tolist()}
