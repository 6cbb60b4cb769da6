"""The data that the page draws and searches, as JSON with numbers in base64.

Row numbers are those of the table. Rows that are drawn come first, and among these the ones whose
neighbours are on the page; after them come rows that are only named, as neighbours.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearfar.analysis.comparison import TestedRows
from nearfar.analysis.models import Floats, Index
from nearfar.analysis.neighbors import Neighbors
from nearfar.analysis.study import Study
from nearfar.analysis.suspicion import Suspicion
from nearfar.analysis.transition import STEPS, Between, Transition
from nearfar.analysis.views import View
from nearfar.errors import InvalidInputError

TEXT = 40  # characters of a label or a text cell
COLUMN_VALUES = 400_000  # numbers of the table that travel with the page, 2.1 MB
IMAGE_BYTES = 1_200_000  # 1.6 MB
MOST_COLUMNS = 500
MOST_SHARED = 500  # features up to which their shares in a distance are on the page: d² numbers
GRID = 65535  # places of a view along its longer side


class Listed(NamedTuple):
    """Rows to click through; ``total`` of them there are, and ``said`` is a word on each."""

    name: str
    note: str
    rows: Index
    total: int
    said: list[str] | None = None


@dataclass(frozen=True)
class Material:
    """All that may be drawn, in the order in which rows are left out last.

    ``shown`` are rows; ``before``, ``after`` and ``between`` are the neighbours of the first
    ``n_detailed`` of them. ``path`` has the steps of the slider; without it there are ``views``.
    """

    shown: Index
    n_detailed: int
    lists: list[Listed]
    views: list[View]
    path: Transition | None
    before: Neighbors | None
    after: Neighbors | None
    between: Between | None
    tested: TestedRows | None
    suspects: Suspicion | None
    columns: Mapping[str, NDArray[Any]]  # of all rows, those of the caller
    image_shape: tuple[int, int] | None

    def first(self, count: int) -> Material:
        """The first ``count`` rows only."""
        part = slice(None, count)
        return replace(
            self,
            shown=self.shown[part],
            n_detailed=min(self.n_detailed, count),
            views=[view._replace(places=view.places[part]) for view in self.views],
            path=self.path and self.path._replace(places=self.path.places[:, part]),
            before=self.before and self.before.of_queries(part),
            after=self.after and self.after.of_queries(part),
        )


def payload(study: Study, material: Material, first_row: int, target: str) -> dict[str, Any]:
    """The content of the page's data element."""
    shown, m = material.shown, material.n_detailed
    found = [near.rows.ravel() for near in (material.before, material.after) if near is not None]
    if material.between is not None:
        found.append(material.between.rows[: material.between.starts[m]])
    extra = np.setdiff1d(np.concatenate([shown[:0], *found]), shown)
    stored = np.concatenate([shown, extra])
    place = np.full(len(study), -1, dtype=np.intp)
    place[stored] = np.arange(len(stored))
    columns = _columns(study, material)
    return {
        "nRows": len(study),
        "nShown": len(shown),
        "nDetailed": m,
        "firstRow": first_row,
        "rows": _packed(stored, "<u4"),
        "labels": _labels(study, stored, target),
        "heldOut": _held_out(study, shown),
        "tested": _tested(study, material),
        "slider": _slider(study, material),
        "views": _views(material),
        "neighbors": {
            name: _neighbors(near, place)
            for name, near in (("before", material.before), ("after", material.after))
            if near is not None
        },
        "between": _between(material.between, m, place),
        "lists": [_list(listed, place, len(shown)) for listed in material.lists],
        "columns": columns,
        "metric": _metric(study, material, columns),
        "images": _images(study, material),
    }


def as_script_data(content: Any) -> str:
    """JSON that can stand inside a script element: no text can end the element or start a tag."""
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text.encode("utf-8", "backslashreplace").decode()


def clipped(text: Any, length: int = TEXT) -> str:
    """Text of at most ``length`` characters, the last an ellipsis if some were left out."""
    words = str(text)
    words = words if len(words) <= length else words[: length - 1] + "…"
    return words.encode("utf-8", "replace").decode()  # a half of a pair of surrogates is no text


def checked_image_shape(shape: Any, names: Sequence[str]) -> tuple[int, int] | None:
    """Rows and columns of the pictures that the features are: as given, or as in ``pixel_3_7``."""
    d = len(names)
    if shape is None:
        places = [name.split("_")[1:] for name in names if name.startswith("pixel_")]
        if not names or len(places) < d or not all(len(place) == 2 for place in places):
            return None
        last = places[-1]
        if not (last[0].isdecimal() and last[1].isdecimal()):
            return None
        rows, columns = int(last[0]) + 1, int(last[1]) + 1
        return (rows, columns) if rows * columns == d else None
    rows, columns = (int(size) for size in shape)
    if rows * columns != d or rows < 1:
        raise InvalidInputError(
            f"image_shape={rows} x {columns} is {rows * columns} features; the points have {d}."
            " Give the rows and columns of the pictures."
        )
    return rows, columns


def _packed(array: NDArray[Any], dtype: str) -> str:
    return base64.b64encode(np.ascontiguousarray(array, dtype=dtype).tobytes()).decode()


def _codes(codes: Index) -> dict[str, str]:
    """Numbers from 0 in as few bytes as they need; the page reads which by the name."""
    most = int(codes.max(initial=0))
    kind = "u1" if most < 2**8 else "u2" if most < 2**16 else "u4"
    return {kind: _packed(codes, f"<{kind}")}


def _texts(values: NDArray[Any]) -> dict[str, Any]:
    """Distinct texts, and the number of each row's."""
    distinct, codes = np.unique(values, return_inverse=True)
    return {"texts": [clipped(text) for text in distinct.tolist()], "codes": _codes(codes)}


def _labels(study: Study, stored: Index, target: str) -> dict[str, Any] | None:
    if study.y is None:
        return None
    return {"name": clipped(target), **_texts(study.y[stored])}


def _held_out(study: Study, shown: Index) -> dict[str, str] | None:
    """Whether a drawn row is no training row; None if none was held out."""
    if not study.held_out:
        return None
    return _codes(np.isin(shown, study.voters, invert=True).astype(np.intp))


def _at_tested(study: Study, shown: Index, count: int) -> tuple[Index, Index]:
    """The drawn rows that are among the first ``count`` tested ones, and where among them."""
    place = np.full(len(study), -1, dtype=np.intp)
    place[study.tested[:count]] = np.arange(min(count, len(study.tested)))
    drawn = np.flatnonzero(place[shown] >= 0)
    return drawn, place[shown[drawn]]


def _tested(study: Study, material: Material) -> dict[str, Any] | None:
    """What was predicted for drawn rows: the number of a text, 0 for rows that were not tested."""
    tested, classes = material.tested, study.classes
    if tested is None or classes is None:
        return None
    names = np.append(classes[0].astype(str), "unknown")
    drawn, at = _at_tested(study, material.shown, len(study.tested))
    outcomes = {"before": tested.before, "after": tested.after}
    used, found = np.unique(
        [outcome.predicted[at] for outcome in outcomes.values()], return_inverse=True
    )
    predicted = np.zeros((2, len(material.shown)), dtype=np.intp)
    predicted[:, drawn] = 1 + found.reshape(2, -1)
    wrong = np.zeros((2, len(material.shown)), dtype=np.intp)
    wrong[:, drawn] = [outcome.wrong[at] for outcome in outcomes.values()]
    return {
        "texts": ["", *(clipped(name) for name in names[used])],
        **{name: _codes(codes) for name, codes in zip(outcomes, predicted, strict=True)},
        **{f"{name}Wrong": _codes(codes) for name, codes in zip(outcomes, wrong, strict=True)},
    }


def _slider(study: Study, material: Material) -> dict[str, Any] | None:
    """The steps, the error at each, and for drawn rows a bit for each step at which it is wrong."""
    path = material.path
    if path is None:
        return None
    found: dict[str, Any] = {"steps": STEPS.tolist(), "errors": None}
    if path.wrong is not None:
        drawn, at = _at_tested(study, material.shown, path.wrong.shape[1])
        bits = np.zeros((2, len(material.shown)), dtype=np.intp)
        bits[0, drawn] = 1
        bits[1, drawn] = (path.wrong[:, at] << np.arange(len(STEPS))[:, None]).sum(axis=0)
        found |= {
            "errors": path.wrong.mean(axis=1).round(6).tolist(),
            "count": path.wrong.shape[1],
            "known": _packed(bits[0], "u1"),
            "wrong": _packed(bits[1], "<u2"),
        }
    return found


def _views(material: Material) -> list[dict[str, Any]]:
    """Places on a grid: those of the slider's steps, or the views."""
    found = material.views
    if material.path is not None:
        found = [
            View(f"t = {t:g}", places, f"{100 * share:.0f} % of the variance")
            for t, places, share in zip(
                STEPS.tolist(), material.path.places, material.path.shares, strict=True
            )
        ]
    return [{"name": view.name, "note": view.note, **_on_grid(view.places)} for view in found]


def _on_grid(places: Floats) -> dict[str, Any]:
    """Places as whole multiples of a unit above the lowest corner."""
    low = places.min(axis=0)
    unit = float((places.max(axis=0) - low).max()) / GRID or 1.0
    return {
        "low": [float(number) for number in low],
        "unit": unit,
        "places": _packed(np.round((places - low) / unit), "<u2"),
    }


def _neighbors(found: Neighbors, place: Index) -> dict[str, Any]:
    return {
        "count": found.rows.shape[1],
        "rows": _packed(place[found.rows], "<u4"),
        "distances": _packed(found.distances, "<f4"),
    }


def _between(found: Between | None, count: int, place: Index) -> dict[str, Any] | None:
    if found is None:
        return None
    end = int(found.starts[count])
    return {
        "starts": _packed(found.starts[: count + 1], "<u4"),
        "rows": _packed(place[found.rows[:end]], "<u4"),
        "before": _packed(found.before[:end], "<f4"),
        "after": _packed(found.after[:end], "<f4"),
        "exact": _packed(found.exact[:count], "u1"),
    }


def _list(listed: Listed, place: Index, n_shown: int) -> dict[str, Any]:
    """A list, without rows that are not drawn."""
    at = place[listed.rows]
    drawn = (at >= 0) & (at < n_shown)
    said = listed.said and [word for word, kept in zip(listed.said, drawn, strict=True) if kept]
    return {
        "name": listed.name,
        "note": listed.note,
        "rows": at[drawn].tolist(),
        "total": listed.total,
        "said": said,
    }


def feature_order(study: Study) -> list[int]:
    """The features, those that count most first."""
    if study.X is None:
        return []
    shares = study.feature_shares()
    order = np.argsort(-np.var(study.X[study.voters], axis=0)) if shares is None else shares.order
    return [int(i) for i in order]


def _columns(study: Study, material: Material) -> list[dict[str, Any]]:
    """The caller's columns, then the features that count most, as many as have room."""
    shown = material.shown
    most = min(MOST_COLUMNS, COLUMN_VALUES // max(1, len(shown)))
    if material.image_shape is not None:
        most //= 2
    most = max(1, most)
    found = [
        {"name": clipped(name), **_cells(values[shown])}
        for name, values in list(material.columns.items())[:most]
    ]
    for i in feature_order(study)[: most - len(found)]:
        assert study.X is not None  # it has features
        values = study.X[shown, i]
        found.append({"name": clipped(study.feature_names[i]), "feature": i, **_cells(values)})
    return found


def _cells(values: NDArray[Any]) -> dict[str, Any]:
    if values.dtype.kind not in "biuf":
        return _texts(values.astype(str))
    with np.errstate(over="ignore"):
        return {"numbers": _packed(values, "<f4")}


def _metric(
    study: Study, material: Material, columns: list[dict[str, Any]]
) -> dict[str, Any] | None:
    """What the share of each feature in a distance is computed from; None without one linear map.

    Matrices are for features in units of their standard deviations. ``values`` are these features
    of the first rows; None where all of them are among the columns.
    """
    maps, first = study.maps, study.first_map
    if maps is None or len(maps) != 1 or study.X is None or first is None:
        return None
    d = study.X.shape[1]
    if d > MOST_SHARED:
        return None
    scales = study.X[study.voters].std(axis=0, dtype=np.float64)
    before, after = ((L * scales).T @ (L * scales) for L in (first, maps[0]))
    sizes = [float(np.abs(matrix).max()) for matrix in (before, after)]
    if not all(0 < size < np.inf for size in sizes):
        return None
    carried = {column["feature"]: at for at, column in enumerate(columns) if "feature" in column}
    found: dict[str, Any] = {
        "names": [clipped(name) for name in study.feature_names],
        "scales": [float(scale) for scale in scales],
        "before": _packed(before / sizes[0], "<f4"),
        "after": _packed(after / sizes[1], "<f4"),
        "columns": None,
        "count": len(material.shown),
    }
    if len(carried) == d:
        return found | {"columns": [carried[i] for i in range(d)]}
    count = min(len(material.shown), max(2, COLUMN_VALUES // d))
    centred = study.X[material.shown[:count]] - study.X[study.voters].mean(axis=0)
    values = np.divide(centred, scales, out=np.zeros_like(centred), where=scales > 0)
    return found | {"count": count, "values": _packed(values, "<f4")}


def _images(study: Study, material: Material) -> dict[str, Any] | None:
    """Pictures of the drawn rows in grey, made smaller if there are many."""
    if material.image_shape is None or study.X is None:
        return None
    pictures = study.X[material.shown].reshape(-1, *material.image_shape)
    pictures = _reduced(pictures, IMAGE_BYTES / max(1, len(pictures)))
    low, high = float(pictures.min()), float(pictures.max())
    grey = np.round(255 * (pictures - low) / ((high - low) or 1))
    return {"shape": list(pictures.shape[1:]), "grey": _packed(grey, "u1")}


def _reduced(pictures: Floats, most_pixels: float) -> Floats:
    """Means over square blocks, the smallest that leave at most ``most_pixels``."""
    _, rows, columns = pictures.shape
    size = max(1, math.ceil(math.sqrt(rows * columns / most_pixels)))
    if size == 1:
        return pictures
    while math.ceil(rows / size) * math.ceil(columns / size) > most_pixels:
        size += 1
    padding = ((0, 0), (0, -rows % size), (0, -columns % size))
    whole = np.pad(pictures, padding, mode="edge")
    blocks = whole.reshape(len(whole), whole.shape[1] // size, size, whole.shape[2] // size, size)
    means: Floats = blocks.mean(axis=(2, 4))
    return means
