"""Pages that are written for a code host, on the site.

A page links to whatever it wants to in the repository, as it has to be on a code host. On the site

- the first page says of which version it is, and where the repository is;
- a page with lists of links is the table of contents of these pages (`index_pages`);
- a Markdown file outside docs/ is a page, where one is kept for it (`shown_files`);
- an example is its page in the gallery;
- a module is a page with its source, and `nearfar.linalg:largest_scale` a line of it;
- `nearfar.LMNN` is its page in the reference.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache, partial, reduce
from pathlib import Path
from typing import Any

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer
from sphinx.application import Sphinx

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SOURCE = ROOT / "src"

FENCED = re.compile(r"(^```.*?^```)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?![a-z]+:|#)([^)#\s]+)(#[^)\s]*)?\)")
CODE = re.compile(r"(?<!\[)`(nearfar[\w.]*):([\w.]+)`")  # `module:name`, not yet a link
NAME = re.compile(r"(?<!\[)`(nearfar\.[\w.]+)`")
PAGE = re.compile(r"``docs/([\w/]+)\.md``")  # in a docstring
# A line that ends with a colon and the list below it, or a list alone
LISTS = re.compile(r"(?:^(\w[^\n]*):\n\n)?((?:^(?:- |  )[^\n]*\n)+)", re.MULTILINE)
LISTED = re.compile(r"^- \[([^]]+)\]\((?![a-z]+:)([^)#\s]+)\)", re.MULTILINE)


# -- Markdown, as it is read -------------------------------------------------------------------


def read_page(app: Sphinx, docname: str, source: list[str]) -> None:
    """Put the file in the place of the page that is kept for it, and make the links those here."""
    origin = DOCS / f"{docname}.md"
    if docname in app.config.shown_files:
        origin = ROOT / app.config.shown_files[docname]
        app.env.note_dependency(origin)
        source[0] = origin.read_text(encoding="utf-8")
    elif not origin.exists():
        return  # made by the gallery or by autosummary

    if docname == "index":
        title, text = source[0].split("\n", maxsplit=1)
        source[0] = f"{title}\n\n{_edition(app.config.release, app.config.repository_url)}\n{text}"
    folder = DOCS / Path(docname).parent
    parts = FENCED.split(source[0])  # prose, fence, prose, ...
    for i, part in enumerate(parts):
        if i % 2:
            parts[i] = part.replace("\n\n```", "\n```")  # doctest needs the empty line
            continue
        part = LINK.sub(partial(_link, app, origin.parent, folder), part)
        part = CODE.sub(partial(_code_link, app, folder), part)
        parts[i] = NAME.sub(_name_link, part)
    if docname in app.config.index_pages:
        parts += [_contents(caption, entries) for caption, entries in LISTS.findall("".join(parts))]
    source[0] = "".join(parts)


def _edition(release: str, url: str | None) -> str:
    """The line of the first page on which version it is of, and where that comes from."""
    links = ["[changes](../CHANGELOG.md)", *([f"[repository]({url})"] if url else [])]
    return " · ".join([f"Version {release}", *links])


def repository_url() -> str | None:
    """Where the repository is: [project.urls] of pyproject.toml, or git's ``origin`` on the web."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    command = ["git", "-C", str(ROOT), "remote", "get-url", "origin"]
    url = project.get("urls", {}).get("Repository")
    if url is None and shutil.which("git"):
        origin = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
        url = re.sub(r"^git@([^:]+):", r"https://\1/", origin).removesuffix(".git")
    return url if url and url.startswith("https://") else None


def _contents(caption: str, entries: str) -> str:
    """A list of links as a table of contents, which only the navigation shows."""
    lines = ["", "```{toctree}", ":hidden:", f":caption: {caption}" if caption else "", ""]
    for title, target in LISTED.findall(entries):
        lines.append(f"{title.replace('`', '')} <{os.path.splitext(target)[0]}>")
    return "\n".join([*lines, "```", ""])


def _link(app: Sphinx, origin: Path, folder: Path, match: re.Match[str]) -> str:
    """A link to a file of the repository, seen from where the page is on the site."""
    pages = {ROOT / file: DOCS / f"{page}.md" for page, file in app.config.shown_files.items()}
    pages[ROOT / "README.md"] = DOCS / "index.md"
    pages[ROOT / "examples"] = DOCS / "gallery" / "index.rst"
    target = (origin / match[1]).resolve()
    target = pages.get(target, target)
    if target.suffix == ".py" and target.is_relative_to(SOURCE):
        return f"]({_listing(app, folder, target)}){{.external}}"
    if target.suffix == ".py" and target.is_relative_to(ROOT / "examples"):
        target = DOCS / "gallery" / target.relative_to(ROOT / "examples").with_suffix(".rst")
    return f"]({os.path.relpath(target, folder)}{match[2] or ''})"


def _code_link(app: Sphinx, folder: Path, match: re.Match[str]) -> str:
    """A link to the line where a name is defined; constants have none, and stay as they are."""
    found = _definition(match[1], match[2])
    if found is None:
        return match[0]
    file, line = found
    return f"[{match[0]}]({_listing(app, folder, file)}#line-{line}){{.external}}"


@cache
def _definition(module: str, name: str) -> tuple[Path, int] | None:
    """The file and the line of a class or function."""
    found = reduce(getattr, name.split("."), importlib.import_module(module))
    found = inspect.unwrap(getattr(found, "fget", None) or getattr(found, "func", found))
    if not (inspect.isclass(found) or inspect.isroutine(found)):
        return None
    return Path(inspect.getsourcefile(found)), inspect.getsourcelines(found)[1]


def _name_link(match: re.Match[str]) -> str:
    """A link to the reference, which has every public name."""
    module, _, name = match[1].rpartition(".")
    try:
        public = name in importlib.import_module(module).__all__
    except (ImportError, AttributeError):
        public = False
    return f"{{py:obj}}{match[0]}" if public else match[0]


# -- source files as pages ---------------------------------------------------------------------


def _listing(app: Sphinx, folder: Path, file: Path) -> str:
    """The address of the page with a module's source, which is made because of this."""
    app.env.repository_listings.add(file)
    return os.path.relpath(DOCS / _page_of(file), folder) + ".html"


def _page_of(file: Path) -> str:
    return f"listings/{file.relative_to(SOURCE).with_suffix('')}"


def remember_listings(_app: Sphinx, env: Any, _docnames: list[str]) -> None:
    """Keep the modules that pages link to from one build to the next."""
    if not hasattr(env, "repository_listings"):
        env.repository_listings = set()


def listings(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """A page with the source of each module that is linked to."""
    formatter = HtmlFormatter(linespans="line")
    for file in sorted(app.env.repository_listings):
        name = str(file.relative_to(SOURCE))
        body = highlight(file.read_text(encoding="utf-8"), PythonLexer(), formatter)
        context = {"title": name, "body": f"<h1><code>{name}</code></h1>\n{body}"}
        yield _page_of(file), context, "page.html"


# -- the reference -----------------------------------------------------------------------------


def skip_member(
    _app: Sphinx, _what: str, _name: str, member: Any, _skip: bool, _options: Any
) -> bool | None:
    """Leave out what a class has from elsewhere: scikit-learn documents its own methods."""
    function = getattr(member, "fget", member)  # of a property
    home = getattr(function, "__objclass__", function)  # of a method that is written in C
    module = getattr(home, "__module__", None) or ""
    return True if inspect.isroutine(function) and not module.startswith("nearfar") else None


def link_pages(
    _app: Sphinx, _what: str, _name: str, _member: Any, _options: Any, lines: list[str]
) -> None:
    """Make the pages that a docstring names links."""
    lines[:] = [PAGE.sub(r":doc:`/\1`", line) for line in lines]


def setup(app: Sphinx) -> dict[str, bool]:
    """Tell Sphinx."""
    app.add_config_value("index_pages", [], "env")
    app.add_config_value("shown_files", {}, "env")
    app.add_config_value("repository_url", repository_url(), "env")
    app.connect("env-before-read-docs", remember_listings)
    app.connect("source-read", read_page)
    app.connect("html-collect-pages", listings)
    app.connect("autodoc-process-docstring", link_pages)
    app.connect("autodoc-skip-member", skip_member)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
