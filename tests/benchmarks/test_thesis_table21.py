"""Table 2.1 of the thesis: the command, the choices over splits, active constraints, the page."""

import json

import numpy as np
import pytest
from sklearn.datasets import load_iris

from benchmarks.papers import table21_methods, table21_page, thesis_table21
from benchmarks.papers.table21_paper import ACTIVE, DATA, ENERGY, METHODS, TEST, TRAIN
from nearfar import LMNN, MultiMetricLMNN


def test_smoke_run_passes(capsys, monkeypatch):
    monkeypatch.delenv("NEARFAR_DATA", raising=False)
    assert thesis_table21.main(["--smoke"]) == 0
    printed = capsys.readouterr().out
    for data in ("iris", "wine"):
        section = printed.split(f"\n## {data}\n")[1].split("\n## ")[0]
        assert all(f"| {title} |" in section for title in METHODS.values())
    assert "Held-out error by passes" in printed.split("\n## wine\n")[1]


def test_an_interrupted_run_goes_on_where_it_was(tmp_path, capsys):
    places = ["--results", str(tmp_path), "--page", str(tmp_path / "page.md"), "--machine", "x"]
    some = [*places, "--data", "iris", "--methods", "pca,lda"]
    assert thesis_table21.main([*some, "--splits", "1"]) == 0
    capsys.readouterr()
    assert thesis_table21.main([*some, "--splits", "2"]) == 0
    assert capsys.readouterr().out.count("iris ") == 3  # k, PCA and LDA of the second split
    rows = json.loads((tmp_path / "thesis_table21-x.json").read_text())["rows"]
    assert [(row["method"], len(row["splits"])) for row in rows] == [
        ("k", 2),
        ("pca", 2),
        ("lda", 2),
    ]


def test_nothing_is_begun_after_the_deadline(tmp_path, capsys):
    places = ["--results", str(tmp_path), "--page", str(tmp_path / "page.md"), "--machine", "x"]
    assert thesis_table21.main([*places, "--data", "iris", "--max-seconds", "0"]) == 0
    assert capsys.readouterr().out == ""


def test_what_is_measured_is_saved_at_once(tmp_path, monkeypatch):
    """A run that is killed in the second method of a split keeps the first."""

    def measure(*_):
        yield "pca", [1, 0.1, 0.2, 0.3, None, 0.0, ""]
        raise KeyboardInterrupt

    monkeypatch.setattr(table21_methods, "measure", measure)
    places = ["--results", str(tmp_path), "--page", str(tmp_path / "page.md"), "--machine", "x"]
    with pytest.raises(KeyboardInterrupt):
        thesis_table21.main([*places, "--data", "wine", "--splits", "1", "--methods", "pca,lda"])
    rows = json.loads((tmp_path / "thesis_table21-x.json").read_text())["rows"]
    assert [row["method"] for row in rows] == ["k", "pca"]  # and no choice of passes


def test_choices_are_made_by_the_mean_over_splits():
    """The mean of k = 3 is smallest although each split prefers another k."""
    entries = [[0, {"1": 0.1, "3": 0.2, "5": 0.9}], [1, {"1": 0.9, "3": 0.2, "5": 0.1}]]
    assert table21_methods.chosen_k(entries) == 3
    assert table21_methods.chosen_passes([[0, [0.3, 0.2, 0.2]], [1, [0.3, 0.2, 0.2]]]) == 2
    # Ten was clearly too many for one split, which left it out.
    assert table21_methods.chosen_k([[0, {1: 0.1, 3: 0.2}], [1, {1: 0.2, 3: 0.2, 10: 0.1}]]) == 1


@pytest.mark.parametrize("learner", [LMNN(2, shrinkage=0), MultiMetricLMNN(n_neighbors=2)])
def test_active_constraints_are_counted_by_definition(learner):
    X, y = load_iris(return_X_y=True)
    X, y = X[::2], y[::2]
    learner.fit(X, y)
    maps = learner.components_ if learner.components_.ndim == 3 else [learner.components_] * 3
    count = 0
    for i in range(len(X)):
        own = [j for j in range(len(X)) if j != i and y[j] == y[i]]
        own.sort(key=lambda j: np.sum((X[i] - X[j]) ** 2))
        for j in own[:2]:
            reach = 1 + np.sum((maps[y[j]] @ (X[i] - X[j])) ** 2)
            count += sum(
                np.sum((maps[y[r]] @ (X[i] - X[r])) ** 2) < reach
                for r in range(len(X))
                if y[r] != y[i]
            )
    assert table21_methods.active_constraints(learner, X, y, 2) == count


def test_the_page_has_thesis_and_ours():
    splits = [[0, 3, 0.05, 0.04, 0.03, 600, 1.5, ""], [1, 3, 0.05, 0.06, 0.03, 700, 2.5, ""]]
    rows = [
        {"data": "iris", "method": "k", "stamps": ["a b c"], "splits": [[0, {"3": 0.1}]]},
        {"data": "iris", "method": "lmnn", "stamps": ["a b c"], "splits": splits},
    ]
    machine = {"cpu": "a chip", "cores": 2, "memory_gb": 8, "system": "Linux x86_64"}
    text = table21_page.page([{"machine": machine, "versions": {}, "rows": rows}])
    cells = "| PCA-LMNN | 3.28 / 5.00 | 4.08 / 5.00 | 4.00 / **3.00** | 574 / 650 | 1.00 | 2 | 2 |"
    assert cells in text
    assert "Held-out error by k: 3: 10.00. Chosen: 3." in text
    assert "| PCA-LMNN | 4.08 / 5.00 |" in text
    absent = text.split("## Not measured")[1].split("\n## ")[0]
    assert "- **iris**: PCA, LDA, LDA-LMNN, MUL-LMNN, MM-LMNN.\n" in absent
    assert "- **mnist**: all rows.\n" in absent
    rows[1]["data"] = "wine"
    text = table21_page.page([{"machine": machine, "versions": {}, "rows": rows}])
    assert "- **iris**: all rows. Held-out error by k: 3: 10.00. Chosen: 3.\n" in text


def test_the_figures_of_the_thesis_are_complete():
    for table in (TRAIN, TEST, ENERGY):
        assert set(table) == set(METHODS)
        assert all(len(row) == len(DATA) for row in table.values())
    assert all(len(row) == len(DATA) for row in ACTIVE.values())
