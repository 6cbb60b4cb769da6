"""Figures on MVU: the command, what is not at hand, spectra, the page and the pictures."""

import json

import numpy as np
import pytest

from benchmarks import common
from benchmarks.papers import mvu_figures, mvu_figures_measured, mvu_figures_page
from benchmarks.papers.mvu_figures_data import Sets, centred, kernels, spectrum


@pytest.fixture(autouse=True)
def no_data(monkeypatch):
    monkeypatch.delenv("NEARFAR_DATA", raising=False)


def test_smoke_run_passes(capsys):
    assert mvu_figures.main(["--smoke"]) == 0
    printed = capsys.readouterr().out
    assert "Figure 3.12: left out: the 900 images of a rotating globe are not public" in printed
    assert "Figure 3.11: left out: usps needs its data file" in printed
    for name in mvu_figures_measured.FIGURES:
        assert f"## Figure {name}: " in printed
    assert "| dimensions of 95 %, linear | 3 | 3 | yes |" in printed


def test_what_is_saved_is_left_out_and_drawn(tmp_path, capsys):
    page = tmp_path / "results" / "page.md"
    places = ["--results", str(tmp_path), "--page", str(page), "--machine", "x", "--points", "40"]
    assert mvu_figures.main([*places, "--figures", "3.32,3.36"]) == 0
    capsys.readouterr()
    assert mvu_figures.main([*places, "--figures", "3.36"]) == 0
    assert capsys.readouterr().out == ""
    rows = json.loads((tmp_path / "mvu_figures-x.json").read_text())["rows"]
    assert [row["data"] for row in rows] == ["3.32", "3.36"]
    for picture in ("kernels", "planes"):
        assert (tmp_path / "images" / f"mvu_figures_{picture}.png").stat().st_size < 300_000


def test_every_figure_has_a_title_and_a_picture():
    assert set(mvu_figures_page.TITLES) == set(mvu_figures_measured.FIGURES)
    shown = {name for names in mvu_figures_page.PICTURES.values() for name in names}
    assert shown == set(mvu_figures_measured.FIGURES) - {"3.12"}


def test_dimensions_hold_most_of_the_variance():
    assert mvu_figures_measured.dimensions([60, 35, 5]) == 2
    assert mvu_figures_measured.dimensions([5, -1, 90]) == 2  # in any order, without negative ones
    assert mvu_figures_measured.shares([1, -3, 3]).tolist() == [0.75, 0.25, 0.0]


def test_kernel_matrices_are_centred(rng):
    for K in kernels(rng.normal(size=(12, 3))).values():
        np.testing.assert_allclose(K.sum(axis=0), 0, atol=1e-9)


def test_eigenvalues_are_sorted_by_magnitude():
    assert spectrum(np.diag([1.0, -3.0, 2.0])).tolist() == [-3.0, 2.0, 1.0]


def test_isomap_of_a_line_is_the_line():
    """Shortest paths along a line are its distances: one eigenvalue, none negative."""
    X = np.arange(8.0)[:, None]
    values = spectrum(mvu_figures_measured.isomap_kernel(X, 2))
    assert values[0] == pytest.approx(np.sum((X - X.mean()) ** 2))
    np.testing.assert_allclose(values[1:], 0, atol=1e-9)
    with pytest.raises(common.UnavailableError, match="in pieces"):
        mvu_figures_measured.isomap_kernel(np.array([[0.0], [1.0], [100.0], [101.0]]), 1)


def test_unfoldings_are_shared():
    sets = Sets(30)
    assert sets.unfolded("roll") is sets.unfolded("roll")
    assert len(centred(np.eye(3))) == 3
