"""Which rows a report draws, which of them have neighbours on the page, and which are listed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.analysis.comparison import TestedRows, compare_errors
from nearfar.analysis.models import Index, row_numbers, sample_rows
from nearfar.analysis.study import Study
from nearfar.analysis.suspicion import Suspicion, suspicion
from nearfar.analysis.transition import between, transition
from nearfar.analysis.views import views
from nearfar.errors import InvalidInputError
from nearfar.kernels import to_host
from nearfar.report.payload import Listed, Material, checked_image_shape

SHOWN = 100_000  # rows that are drawn, at most, besides the listed ones
DETAILED = 3000  # rows whose neighbours are on the page, at most, besides the listed ones
NEIGHBORS = 5  # of each row, at least
CHOSEN = 6  # rows that are listed first, where the caller chooses none
MOST_CHOSEN = 50
LISTED = 300  # rows of each list, at most


def gather(
    study: Study,
    columns: Mapping[str, Any] | None,
    rows: Any,
    image_shape: Any,
    random_state: int,
) -> Material:
    """Draw the rows, find their neighbours and make the lists."""
    n, k = len(study), max(NEIGHBORS, study.n_neighbors)
    asked = np.empty(0, dtype=np.intp) if rows is None else row_numbers("rows", rows, n)
    if len(asked) > MOST_CHOSEN:
        raise InvalidInputError(
            f"rows names {len(asked)} rows whose neighbours are to be shown; at most {MOST_CHOSEN}"
            " have room. Name fewer: on the page every drawn row can be selected."
        )
    sample = sample_rows(np.arange(n), SHOWN, random_state)
    sample = np.random.default_rng(random_state).permutation(sample)
    suspects = suspicion(study, random_state)
    suspicious = sample[:0] if suspects is None else suspects.rows[:LISTED]
    queries = _in_order(study.tested, asked, suspicious, sample[:DETAILED])
    before, after = study.neighbors(queries, k)
    tested = None if after is None else compare_errors(study, before, after)
    chosen = asked if len(asked) else _telling(study, tested, sample, random_state)
    lists = _lists(study, tested, suspects, chosen, bool(len(asked)), random_state)
    detailed = _in_order(*(found.rows for found in lists), sample[:DETAILED])
    at = _places(detailed, queries)
    ends = [found.of_queries(at) for found in (before, after) if found is not None]
    near = [found.rows[: len(chosen)].ravel() for found in ends]
    shown = _in_order(detailed, *near, sample)
    path = None
    if before is not None and after is not None:
        path = transition(study, shown, queries, before, after, random_state)
    return Material(
        shown=shown,
        n_detailed=len(detailed),
        lists=lists,
        views=[] if path is not None else views(study, shown, random_state),
        path=path,
        before=before and before.of_queries(at),
        after=after and after.of_queries(at),
        between=None
        if path is None or before is None or after is None
        else between(study, path, detailed, at, (before, after)),
        tested=tested,
        suspects=suspects,
        columns=_given_columns(columns, n),
        image_shape=checked_image_shape(
            image_shape, study.feature_names if study.X is not None else ()
        ),
    )


def _telling(study: Study, tested: TestedRows | None, sample: Index, random_state: int) -> Index:
    """Rows that learning fixed or broke, that stayed wrong, and that were right all along."""
    if tested is None:
        return sample[:CHOSEN]
    was, is_wrong = tested.before.wrong, tested.after.wrong
    kinds = [(was & ~is_wrong, 2), (~was & is_wrong, 2), (was & is_wrong, 1), (~was & ~is_wrong, 6)]
    chosen = [sample_rows(study.tested[mask], count, random_state) for mask, count in kinds]
    return np.concatenate(chosen)[:CHOSEN]


def _lists(
    study: Study,
    tested: TestedRows | None,
    suspects: Suspicion | None,
    chosen: Index,
    asked: bool,
    random_state: int,
) -> list[Listed]:
    """The lists of the page; those of errors hold a sample if there are many."""
    found = [Listed("chosen" if asked else "examples", "", chosen, len(chosen))]
    if tested is not None:
        was, is_wrong = tested.before.wrong, tested.after.wrong
        for name, note, mask in (
            ("fixed", "Wrong before learning, right after it.", was & ~is_wrong),
            ("newly wrong", "Right before learning, wrong after it.", ~was & is_wrong),
            ("errors", "Wrong after learning.", is_wrong),
        ):
            rows = study.tested[mask]
            found.append(Listed(name, note, sample_rows(rows, LISTED, random_state), len(rows)))
    if suspects is not None:
        found.append(suspects_list(suspects))
    return found


def suspects_list(suspects: Suspicion) -> Listed:
    """Training rows whose labels are likely to be wrong, the most likely first."""
    rows = suspects.rows[:LISTED]
    note = (
        f"Training rows of whose {suspects.n_neighbors} nearest rows at least half have other"
        " labels, on average before and after learning; the percentage is their share."
    )
    if suspects.weights is not None:
        note += " Ties are in the order of the dual weights of their triplets."
    note += " Worth a look; they need not be wrong."
    if suspects.n_searched < suspects.n_rows:
        note += f" {suspects.n_searched:,} of {suspects.n_rows:,} training rows were examined."
    said = [f"{share:.0%}" for share in suspects.scores[: len(rows)].tolist()]
    return Listed("suspicious labels", note, rows, len(suspects.rows), said)


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
