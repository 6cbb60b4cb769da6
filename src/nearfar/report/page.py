"""The page itself: its template, style and program put together."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files
from typing import Any

from nearfar.analysis.study import Study
from nearfar.errors import MissingExtraError
from nearfar.report import sections
from nearfar.report.charts import line_chart
from nearfar.report.origin import VALUE, Origin, reproduce
from nearfar.report.payload import Material, as_script_data, clipped, feature_order, payload
from nearfar.report.progress import panels

PROGRAM = ("data", "colours", "drawing", "details", "selection", "table", "controls")


def describe(
    study: Study, material: Material, title: str, target: str, origin: Origin, random_state: int
) -> dict[str, Any]:
    """All of the page that does not depend on how many rows are drawn."""
    tested = material.tested
    return {
        "title": clipped(title, VALUE),
        "summary": sections.summary(study),
        "learned": sections.learned(study),
        "verdict": sections.verdict(study, tested),
        "cards": sections.cards(study, tested),
        "errors": tested and sections.errors(study, tested, origin),
        "faithful": sections.faithful(study, random_state),
        "target": clipped(target),
        "old": sections.old_distance(study),
        "slider": material.path is not None,
        "curve": sections.curve(material),
        "spectrum": sections.spectrum(study, random_state),
        "features": sections.features(study, material),
        "panels": [
            (panel.lines, line_chart(panel.lines, "seconds", panel.title, log=panel.log))
            for panel in panels(sections.traced(study))
        ],
        "certificate": sections.certificate(study),
        "reproduce": reproduce(study, origin, random_state),
    }


def template() -> Any:
    """The template of the page, which escapes all that it is given."""
    try:
        import jinja2
    except ImportError:
        raise MissingExtraError.for_extra("jinja2", "report") from None
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(_file("page.html"))


def render(
    page: Any,
    description: dict[str, Any],
    study: Study,
    material: Material,
    target: str,
    first_row: int,
) -> str:
    """The page as text, by its template."""
    style, program = _file("page.css"), _program()
    data = payload(study, material, first_row, target)
    text = page.render(
        **description,
        style=style,
        style_hash=_hash(style),
        program=program,
        program_hash=_hash(program),
        data=as_script_data(data),
        sample=sections.sample(study, material),
        n_columns=(len(data["columns"]), len(material.columns) + len(feature_order(study))),
        pairs=data["metric"],
        held_out=data["heldOut"] is not None,
    )
    return str(text)


@cache
def _program() -> str:
    """The files of the program as one, in which they share their names."""
    parts = "".join(_file(f"{name}.js") for name in PROGRAM)
    return f'"use strict";\n(() => {{\n{parts}}})();\n'


@cache
def _file(name: str) -> str:
    return files("nearfar.report").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """Of an element's content, for the page's policy: nothing else may run or set styles."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
