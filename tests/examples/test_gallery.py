"""What all examples have in common: the form that the gallery reads."""

import ast

import pytest

from tests.examples.running import FOLDER

PICTURE = "readme_picture"  # a program that draws a file, not part of the gallery
EXAMPLES = sorted(path for path in FOLDER.rglob("*.py") if path.stem != PICTURE)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_has_the_form_of_the_gallery(path):
    source = path.read_text(encoding="utf-8")
    empty, title, line, *_ = ast.get_docstring(ast.parse(source), clean=False).splitlines()
    assert empty == ""
    assert line == "=" * len(title)
    lines = source.splitlines()
    assert lines.count("# %%") >= 3
    assert lines[-1] == "plt.show()"
    for number, text in enumerate(lines):
        if set(text) in ({"#", " ", "-"}, {"#", " ", "="}) and lines[number - 2] == "# %%":
            assert len(text) == len(lines[number - 1])  # of a heading


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_has_a_test(path):
    assert (FOLDER.parent / "tests" / "examples" / f"test_{path.stem}.py").is_file()
