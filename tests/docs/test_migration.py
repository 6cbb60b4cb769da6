"""The page for people who come from another library: every line of nearfar's side runs."""

import ast
import re
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

from nearfar.compat import metric_learn
from nearfar.errors import CompatibilityWarning, ConvergenceWarning

PAGE = (Path(__file__).parents[2] / "docs" / "migration.md").read_text(encoding="utf-8")
BEFORE = re.search(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[1]
ROW = re.compile(r"^\| `(.+?)` \| `(.+?)` \|$", re.MULTILINE)
SECTIONS = {
    section.splitlines()[0]: ROW.findall(section) for section in PAGE.split("\n## From ")[1:]
}


def run(lines):
    """The names after the lines before the tables and these; what each line is worth, by line."""
    names, values = {}, {}
    exec(BEFORE, names)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # few iterations are asked for
        for line in lines:
            if isinstance(ast.parse(line).body[0], ast.Expr):
                values[line] = eval(line, names)
            else:
                exec(line, names)
    return names, values


def test_there_is_a_table_for_each_library():
    assert list(SECTIONS) == ["metric-learn", "pylmnn", "scikit-learn's NCA"]
    assert all(len(rows) >= 8 for rows in SECTIONS.values())


@pytest.mark.parametrize("library", SECTIONS)
def test_every_line_of_nearfar_runs(library):
    names, values = run([line for _, line in SECTIONS[library]])
    points = names["X"]
    for line, value in values.items():
        if line.endswith(".transform(X)"):
            assert value.shape[0] == len(points)
        elif line.endswith(".predict(pairs)"):
            assert set(value) <= {-1, 1}
        elif "get_metric" in line:
            assert isinstance(value.fit(points, names["y"]), KNeighborsClassifier)


def test_every_line_of_scikit_learn_runs():
    names, _ = run([line for line, _ in SECTIONS["scikit-learn's NCA"]])
    assert names["nca"].components_.shape == (2, 13)


def test_every_line_of_metric_learn_runs_with_another_import(monkeypatch):
    monkeypatch.setitem(sys.modules, "metric_learn", metric_learn)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CompatibilityWarning)  # of learn_rate
        names, values = run([line for line, _ in SECTIONS["metric-learn"]])
    assert names["lmnn"].components_.shape == (13, 13)
    assert set(values["mmc.predict(pairs)"]) <= {-1, 1}


@pytest.mark.parametrize("library", SECTIONS)
def test_every_line_of_the_other_library_is_python(library):
    for line, _ in SECTIONS[library]:
        ast.parse(line)


def test_pair_score_is_minus_the_distance_as_the_names_promise():
    _, values = run([line for _, line in SECTIONS["metric-learn"]])
    np.testing.assert_array_equal(
        values["lmnn.pair_score(pairs)"], -values["lmnn.pair_distance(pairs)"]
    )
