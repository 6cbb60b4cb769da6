"""Table 3.2 of the thesis: the command, what is saved, the embeddings, the page."""

import json

import numpy as np
import pytest
from scipy.stats import spearmanr

from benchmarks.papers import mvu_table32, table32_methods, table32_page, table32_paper
from benchmarks.papers.table32_paper import AVERAGE, MEASURES, METHODS, PAPER, PROTOCOLS


def places(folder):
    return ["--results", str(folder), "--machine", "x", "--page", str(folder / "page.md")]


def row(data, method, value, remark="k = 15"):
    measures = dict.fromkeys(MEASURES, value) | {"trustworthiness": 0.5}
    split = [0, 1.5, measures, remark]
    return {"data": data, "method": method, "stamps": ["abc today cpu"], "splits": [split]}


def record(*rows):
    machine = {"cpu": "a chip", "cores": 2, "memory_gb": 8, "system": "Linux x86_64"}
    return {"machine": machine, "versions": {"numpy": "2"}, "rows": list(rows)}


# -- the command ---


def test_smoke_run_passes(capsys, monkeypatch):
    monkeypatch.delenv("NEARFAR_DATA", raising=False)
    assert mvu_table32.main(["--smoke"]) == 0
    printed = capsys.readouterr().out
    assert "failed" not in printed
    for method in METHODS:
        assert f"swiss_roll  {method} " in printed
    assert "|  | Swiss roll |\n" in printed
    assert "/ –" not in printed


def test_what_is_saved_is_left_out(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(
        table32_methods, "load", lambda *_: np.random.default_rng(0).normal(size=(60, 3))
    )
    some = [*places(tmp_path), "--data", "swiss_roll", "--methods"]
    assert mvu_table32.main([*some, "pca"]) == 0
    first = json.loads((tmp_path / "mvu_table32-x.json").read_text())["rows"]
    capsys.readouterr()
    assert mvu_table32.main([*some, "pca,lle"]) == 0
    assert capsys.readouterr().out.count("swiss_roll") == 1
    second = json.loads((tmp_path / "mvu_table32-x.json").read_text())["rows"]
    assert [r["method"] for r in second] == ["pca", "lle"]
    assert second[0] == first[0]
    assert "| PCA | 0.836 / " in (tmp_path / "page.md").read_text()


def test_a_failure_is_told_and_not_saved(tmp_path, monkeypatch, capsys):
    def fail(*_):
        raise ValueError("no such luck")

    monkeypatch.setitem(table32_methods.METHODS, "lle", fail)
    monkeypatch.setattr(
        table32_methods, "load", lambda *_: np.random.default_rng(0).normal(size=(60, 3))
    )
    some = [*places(tmp_path), "--data", "swiss_roll", "--methods", "pca,lle"]
    assert mvu_table32.main(some) == 1
    assert "failed: ValueError: no such luck" in capsys.readouterr().err
    rows = json.loads((tmp_path / "mvu_table32-x.json").read_text())["rows"]
    assert [r["method"] for r in rows] == ["pca"]


def test_data_without_its_file_is_left_out(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("NEARFAR_DATA", raising=False)
    assert mvu_table32.main([*places(tmp_path), "--data", "frey_faces"]) == 0
    assert "frey_faces: left out: frey_faces needs its data file" in capsys.readouterr().out
    assert (tmp_path / "page.md").read_text() == table32_page.INTRODUCTION


def test_groups_are_all_methods(capsys):
    assert mvu_table32.parse(["--methods", "nearfar,scikit-learn"]).methods == list(METHODS)
    with pytest.raises(SystemExit, match="2"):
        mvu_table32.parse(["--methods", "tsne"])
    assert "no 'tsne'; expected some of nearfar, scikit-learn, mvu" in capsys.readouterr().err


# -- the embeddings ---


def test_the_roll_is_the_thesis():
    X = table32_methods.load("swiss_roll")
    assert X.shape == (2000, 3)
    assert len(table32_methods.load("swiss_roll", 50)) == 50


def test_the_measures_are_those_of_a_perfect_embedding(monkeypatch):
    """Of points in a plane, PCA keeps everything, and every method tells its neighbours."""
    plane = np.random.default_rng(3).normal(size=(80, 2)) @ np.array([[1.0, 0, 2], [0, 1, -1]])
    monkeypatch.setattr(table32_methods, "load", lambda *_: plane)
    found = table32_methods.measure("swiss_roll", "pca")
    assert found.measures == pytest.approx(dict.fromkeys(found.measures, 1.0))
    assert "k = 15" in table32_methods.measure("swiss_roll", "isomap").remark
    remark = table32_methods.measure("swiss_roll", "mvu").remark
    assert remark.startswith("k = 5, ")
    assert "gap" in remark


@pytest.mark.parametrize(("dimensions", "neighbors", "expected"), [(2, 3, 6), (3, 15, 15)])
def test_hessian_lle_gets_as_many_neighbours_as_it_needs(rng, dimensions, neighbors, expected):
    protocol = table32_paper.Protocol("", 60, 4, dimensions, neighbors, 5, "")
    Y, remark = table32_methods.hessian_lle(rng.normal(size=(60, 4)), protocol, "cpu")
    assert Y.shape == (60, dimensions)
    assert remark == f"k = {expected}"


# -- the page ---


def test_every_method_has_a_title_and_all_but_kernel_pca_are_in_the_paper():
    assert set(table32_methods.METHODS) == set(METHODS)
    for measure, figures in PAPER.items():
        assert [*figures] == [method for method in METHODS if method != "kernel_pca"]
        assert table32_paper.paper(measure, "kernel_pca", "teapots") is None
        assert all(len(values) == len(PROTOCOLS) + 1 for values in figures.values())
    assert list(PAPER) == list(MEASURES)


def test_the_papers_averages_are_those_of_its_figures():
    for figures in PAPER.values():
        for *values, average in figures.values():
            assert average == pytest.approx(np.mean(values), abs=0.002)


def test_page_has_thesis_and_ours_side_by_side():
    rows = [row(data, "mvu", 0.5 + 0.1 * i) for i, data in enumerate(PROTOCOLS)]
    page = table32_page.page([record(*rows, row("teapots", "pca", 0.9))])
    assert "| MVU | 0.772 / **0.500** | **0.974** / 0.600 | **1.000** / **0.700** |" in page
    assert "| **0.883** / **0.650** |" in page
    assert "| PCA | 0.854 / – | 0.702 / **0.900** | 0.836 / – | 0.842 / – | 0.809 / – |" in page
    assert "| MVU | teapots | 1.5 | 0.500 | k = 15 |" in page
    assert "A reduced set" in page


def test_a_column_without_a_record_is_left_out():
    page = table32_page.page([record(row("teapots", "pca", 0.9))])
    assert "|  | teapots |\n" in page
    assert "Swiss roll |" not in page


def test_order_is_spearmans(rng):
    pairs = [*zip(rng.integers(5, size=9), rng.integers(5, size=9), strict=True)]
    expected = spearmanr(*zip(*pairs, strict=True)).statistic
    assert table32_page.agreement([*pairs, (3, None)]) == pytest.approx(expected)
    assert table32_page.agreement([(1, 2), (2, 3)]) is None
    assert table32_page.agreement([(1, 2), (2, 2), (3, 2)]) is None


def test_ours_is_averaged_only_over_all_data():
    rows = {(data, "mvu"): row(data, "mvu", 0.5) for data in PROTOCOLS}
    assert table32_page.ours(rows, "local_trust", "mvu", AVERAGE) == 0.5
    del rows["teapots", "mvu"]
    assert table32_page.ours(rows, "local_trust", "mvu", AVERAGE) is None
