"""Maps by several methods: the command, what is left out, the measures, page and picture."""

import json

import numpy as np
import pytest

from benchmarks import common, maps


def test_smoke_run_passes(capsys, monkeypatch):
    monkeypatch.delenv("NEARFAR_DATA", raising=False)
    assert maps.main(["--smoke", "--methods", "variational_mvu,isomap,lle"]) == 0
    printed = capsys.readouterr().out
    assert "teapots: left out: teapots_100 needs its data file" in printed
    assert "| VariationalMVU |" in printed.split("## Digits")[1]
    assert "off the truth" in printed.split("## Swiss roll")[1].split("## ")[0]
    assert "1-NN error" in printed.split("## Digits")[1]


def test_a_peer_that_is_not_installed_is_left_out(capsys, monkeypatch, tmp_path):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(maps, "import_module", missing)
    places = ["--results", str(tmp_path), "--page", str(tmp_path / "results" / "page.md")]
    assert maps.main([*places, "--data", "digits", "--methods", "umap,pymde"]) == 0
    printed = capsys.readouterr().out
    assert "umap: left out: UMAP is not installed; pip install umap-learn" in printed
    assert "pymde: left out: PyMDE is not installed; pip install pymde" in printed


def test_the_page_and_the_picture_are_of_the_record(tmp_path, monkeypatch):
    monkeypatch.setattr(maps, "POINTS", 60)
    page = tmp_path / "results" / "page.md"
    places = ["--results", str(tmp_path), "--page", str(page), "--machine", "x"]
    assert maps.main([*places, "--data", "swiss_roll", "--methods", "isomap"]) == 0
    (row,) = json.loads((tmp_path / "maps-x.json").read_text())["rows"]
    _, _, (trust, *_), coordinates = row["splits"][0]
    assert f"| Isomap | {trust:.3f} |" in page.read_text()
    assert np.shape(coordinates) == (60, 2)
    assert (tmp_path / "images" / "maps.png").stat().st_size < 300_000
    assert maps.main([*places, "--table"]) == 0


def test_the_sheet_itself_is_the_truth():
    X, values, truth = maps.load("swiss_roll", 80)
    turned = 3 * truth @ np.array([[0.6, 0.8], [-0.8, 0.6]]) + 1
    trust, continuity, off, wrong = maps.measures(X, turned, values, truth)
    assert off == pytest.approx(0, abs=1e-3)
    assert wrong is None
    near = np.argsort(np.sum((X - X[0]) ** 2, axis=1))[1]
    along = np.linalg.norm(truth[near] - truth[0])
    assert along == pytest.approx(np.linalg.norm(X[near] - X[0]), rel=0.1)  # arc length
    assert trust > 0.8
    assert continuity > 0.8


def test_a_map_by_class_has_no_nearest_neighbour_error():
    X, y, truth = maps.load("digits", 100)
    Y = np.column_stack([y * 10.0, np.random.default_rng(0).normal(size=100)])
    assert truth is None
    assert maps.measures(X, Y, y, None)[2:] == [None, 0.0]


def test_unknown_data_is_refused():
    with pytest.raises(common.UnavailableError, match="teapots_100 needs"):
        maps.check("teapots")


@pytest.fixture(autouse=True)
def no_data(monkeypatch):
    monkeypatch.delenv("NEARFAR_DATA", raising=False)
