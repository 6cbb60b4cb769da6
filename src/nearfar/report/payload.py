"""The data that the page draws and searches, as JSON with numbers in base64.

Row numbers are those of the table. Rows that are drawn come first; after them come rows that are
only named, as neighbours of drawn ones.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.analysis.comparison import TestedRows
from nearfar.analysis.models import Floats, Index
from nearfar.analysis.neighbors import Neighbors
from nearfar.analysis.study import Study
from nearfar.analysis.views import View
from nearfar.errors import InvalidInputError

TEXT = 40  # characters of a label or a text cell
COLUMN_VALUES = 250_000  # numbers of the table that travel with the page, 1.3 MB
IMAGE_BYTES = 1_200_000  # 1.6 MB
MOST_COLUMNS = 120
UNKNOWN = -1  # a row that was not tested


@dataclass(frozen=True)
class Material:
    """All that may be drawn, in the order in which rows are left out last.

    ``shown`` are rows, ``before`` and ``after`` their neighbours; ``chosen`` are places in shown.
    """

    shown: Index
    chosen: int
    views: list[View]
    before: Neighbors | None
    after: Neighbors | None
    tested: TestedRows | None
    columns: Mapping[str, NDArray[Any]]  # of all rows: those of the caller, then the features
    image_shape: tuple[int, int] | None

    def first(self, count: int) -> Material:
        """The first ``count`` rows only."""
        part = slice(None, count)
        return replace(
            self,
            shown=self.shown[part],
            chosen=min(self.chosen, count),
            views=[view._replace(places=view.places[part]) for view in self.views],
            before=self.before and self.before.of_queries(part),
            after=self.after and self.after.of_queries(part),
        )


def payload(study: Study, material: Material, first_row: int, target: str) -> dict[str, Any]:
    """The content of the page's data element."""
    shown = material.shown
    found = [near.rows.ravel() for near in (material.before, material.after) if near is not None]
    extra = np.setdiff1d(np.concatenate([shown[:0], *found]), shown)
    stored = np.concatenate([shown, extra])
    return {
        "nRows": len(study),
        "nShown": len(shown),
        "firstRow": first_row,
        "rows": _packed(stored, "<u4"),
        "labels": _labels(study, stored, target),
        "tested": _tested(study, material),
        "views": [
            {"name": view.name, "note": view.note, "places": _packed(view.places, "<f4")}
            for view in material.views
        ],
        "neighbors": {
            name: _neighbors(near, stored)
            for name, near in (("before", material.before), ("after", material.after))
            if near is not None
        },
        "columns": _columns(material),
        "images": _images(study, material),
        "chosen": material.chosen,
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


def _texts(values: NDArray[Any]) -> dict[str, Any]:
    """Distinct texts, and the number of each row's."""
    distinct, codes = np.unique(values, return_inverse=True)
    return {"texts": [clipped(text) for text in distinct.tolist()], "codes": _packed(codes, "<u4")}


def _labels(study: Study, stored: Index, target: str) -> dict[str, Any] | None:
    if study.y is None:
        return None
    return {"name": clipped(target), **_texts(study.y[stored])}


def _tested(study: Study, material: Material) -> dict[str, Any] | None:
    """Of each drawn row what was predicted: a label, or none where it was not tested."""
    tested, classes = material.tested, study.classes
    if tested is None or classes is None:
        return None
    place = {row: i for i, row in enumerate(study.tested.tolist())}
    at = np.array([place.get(row, UNKNOWN) for row in material.shown.tolist()], dtype=np.intp)
    names = np.append(classes[0].astype(str), "unknown")
    predicted = {
        name: [None if i == UNKNOWN else clipped(names[outcome.predicted[i]]) for i in at]
        for name, outcome in (("before", tested.before), ("after", tested.after))
    }
    wrong = {
        f"{name}Wrong": [0 if i == UNKNOWN else int(outcome.wrong[i]) for i in at]
        for name, outcome in (("before", tested.before), ("after", tested.after))
    }
    return {"heldOut": study.held_out, **predicted, **wrong}


def _neighbors(found: Neighbors, stored: Index) -> dict[str, Any]:
    order = np.argsort(stored)
    at = order[np.searchsorted(stored, found.rows, sorter=order)]
    return {
        "count": found.rows.shape[1],
        "rows": _packed(at, "<u4"),
        "distances": _packed(found.distances, "<f4"),
    }


def _columns(material: Material) -> list[dict[str, Any]]:
    shown, found = material.shown, []
    most = min(MOST_COLUMNS, COLUMN_VALUES // max(1, len(shown)))
    if material.image_shape is not None:
        most //= 2
    for name, values in list(material.columns.items())[: max(1, most)]:
        part = values[shown]
        if part.dtype.kind in "biuf":
            with np.errstate(over="ignore"):
                content: dict[str, Any] = {"numbers": _packed(part, "<f4")}
        else:
            content = _texts(part.astype(str))
        found.append({"name": clipped(name), **content})
    return found


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
