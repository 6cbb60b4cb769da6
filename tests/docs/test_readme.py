"""The README and the pages say what is so: code runs, commands parse, names exist."""

import importlib
import re
import subprocess
import sys
import tomllib
from functools import reduce
from pathlib import Path

import pytest

from nearfar.cli.commands import nearfar

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
PYTHON = [text for language, text in BLOCKS if language == "python"]
PLAIN = [text for language, text in BLOCKS if language == ""]
COMMANDS = [line.partition("#")[0].split() for block in PLAIN for line in block.splitlines()]

ALGORITHMS = sorted(set(DOCS.glob("algorithms/*.md")) - {DOCS / "algorithms" / "index.md"})
# Pages of methods that minimise nothing, or several things
NO_PROBLEM = {"linear_metric", "mds", "nearest", "projections"}
# `nearfar.linalg:largest_scale`, a module and a name in it
REFERENCE = re.compile(r"`(nearfar[\w.]*):([\w.]+)`")
GAP = re.compile(r"gap (\S+)")


def references():
    for page in ALGORITHMS:
        for module, name in REFERENCE.findall(page.read_text(encoding="utf-8")):
            yield pytest.param(module, name, id=f"{page.stem}-{module}:{name}")


# -- the README ---


def test_the_ten_lines_are_ten_and_print_what_is_shown(capsys):
    """All but the gap, whose digits depend on the linear algebra library; it is within tol."""
    assert len(PYTHON[0].replace("\n\n", "\n").splitlines()) == 10
    exec(PYTHON[0], {})
    printed, shown = capsys.readouterr().out, PLAIN[0]
    assert GAP.sub("", printed) == GAP.sub("", shown)
    for text in (printed, shown):
        assert 0 <= float(GAP.search(text)[1]) <= 1e-3


@pytest.mark.torch
def test_the_lines_for_a_gpu_run_on_any_device(torch, capsys):
    names = {}
    exec(PYTHON[0], names)
    exec(PYTHON[1].replace('"cuda"', '"cpu"'), names)
    assert capsys.readouterr().out.count("\n") == 1
    assert names["mapped"].dtype == torch.float32
    assert len(names["mapped"]) == len(names["X"])


@pytest.mark.parametrize(
    "words", [words[1:] for words in COMMANDS if words[:1] == ["nearfar"]], ids=" ".join
)
def test_the_lines_of_the_command_parse(words):
    command = nearfar.commands[words[0]]
    assert command.make_context(words[0], words[1:]).params


def test_the_jobs_of_dev_exist():
    jobs = {words[2] for words in COMMANDS if words[:2] == ["python", "dev.py"]}
    usage = subprocess.run(
        [sys.executable, ROOT / "dev.py", "--help"], capture_output=True, text=True, check=True
    ).stdout
    assert jobs == {"demo", "test"}
    assert jobs <= set(re.search(r"\{(.+?)\}", usage)[1].split(","))


def test_every_extra_is_named_and_exists():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = set(project["optional-dependencies"])
    installed = re.search(r"'\.\[(.+)\]'", README)[1].split(",")
    assert set(installed) <= extras
    assert {extra for extra in extras if f"`{extra}`" in README} == extras


@pytest.mark.slow
def test_the_picture_can_be_drawn_anew(tmp_path):
    script = ROOT / "examples" / "readme_picture.py"
    drawn = tmp_path / "wine.svg"
    subprocess.run([sys.executable, "-W", "error", script, drawn], check=True, capture_output=True)
    shown = ROOT / re.search(r"!\[.+?\]\((.+?)\)", README)[1]
    for picture in (drawn.read_text(encoding="utf-8"), shown.read_text(encoding="utf-8")):
        assert "<svg " in picture
        assert len(picture) < 150_000


def test_the_errors_of_wine_are_those_of_the_picture():
    """Matplotlib writes the title of each panel as a comment, too."""
    shown = (DOCS / "images" / "wine.svg").read_text(encoding="utf-8")
    errors = [float(error) for error in re.findall(r"3-NN error (\S+) %", shown)]
    sentence = r"3-NN error from (\d+) % to (\d+) %, and LMNN after it to (\d+) %"
    words = re.search(sentence, " ".join(README.split()))
    assert [round(error) for error in errors] == list(map(int, words.groups()))


# -- the pages ---


@pytest.mark.parametrize(("module", "name"), list(references()))
def test_the_code_that_a_page_names_exists(module, name):
    reduce(getattr, name.split("."), importlib.import_module(module))


@pytest.mark.parametrize(
    "page",
    [page for page in ALGORITHMS if page.stem not in NO_PROBLEM],
    ids=lambda page: page.stem,
)
def test_a_page_has_the_equations_of_its_problem(page):
    """The numbers of the docstring, of the formulas and of the table are the same.

    What a user needs stands before the derivation, so formulas need not be in the order of numbers.
    """
    parts = [page.stem, *{"mvu": ["mvu_scaled"]}.get(page.stem, [])]
    problems = [importlib.import_module(f"nearfar.problems.{part}") for part in parts]
    text = page.read_text(encoding="utf-8")
    docstrings = "\n".join(problem.__doc__ for problem in problems)
    numbers = sorted(re.findall(r"^\((\d+)\) ", docstrings, re.MULTILINE), key=int)
    assert numbers
    assert sorted(re.findall(r"\\tag\{(\d+)\}", text), key=int) == numbers
    rows = [line for line in text.splitlines() if re.match(r"\| \(\d+\) ", line)]
    assert [re.match(r"\| \((\d+)\)", row)[1] for row in rows] == numbers
    assert all(REFERENCE.search(row) for row in rows)
