"""Figures on LMNN: the command, quotients of Table 1, the page and the picture."""

import json

import pytest

from benchmarks.papers import lmnn_figures


def test_smoke_run_passes(capsys):
    assert lmnn_figures.main(["--smoke"]) == 0
    printed = capsys.readouterr().out
    for title in (
        "Thesis, Figure 2.4",
        "Thesis, Figure 2.20",
        "Paper, Figure 6",
        "Paper, Figure 9",
    ):
        assert f"## {title}:" in printed
    assert "| 25 |" in printed


def test_what_is_saved_is_left_out_and_drawn(tmp_path, capsys):
    page = tmp_path / "results" / "page.md"
    places = ["--results", str(tmp_path), "--page", str(page), "--machine", "x"]
    assert lmnn_figures.main([*places, "--figures", "2.20"]) == 0
    capsys.readouterr()
    assert lmnn_figures.main([*places, "--figures", "2.20"]) == 0
    assert capsys.readouterr().out == ""
    (row,) = json.loads((tmp_path / "lmnn_figures-x.json").read_text())["rows"]
    found = row["splits"][0][2]
    assert found["PCA"][0] > 0.3  # the first principal component mixes the classes
    assert found["LDA"][0] < 0.05
    assert found["RCA"][1] == pytest.approx(1, abs=1e-3)  # round classes
    assert (tmp_path / "images" / "lmnn_figures.png").stat().st_size < 300_000


def test_quotients_are_of_table_1():
    """MNIST: 1.69 of 1.72 with several passes, 1.18 of 1.72 with several metrics."""
    (data, passes, _), *_ = lmnn_figures.ratios("multi_pass")
    assert data == "mnist"
    assert passes == pytest.approx(1.69 / 1.72)
    assert lmnn_figures.ratios("multi_metric")[0][1] == pytest.approx(1.18 / 1.72)


def test_curves_have_means_errors_and_differences():
    ((size, euclidean, learned, difference),) = lmnn_figures.curves(
        {"25": [[0.10, 0.08], [0.20, 0.16]]}
    )
    assert size == 25
    assert euclidean == pytest.approx((15, 5))
    assert learned == pytest.approx((12, 4))
    assert difference == pytest.approx((-3, 1))
