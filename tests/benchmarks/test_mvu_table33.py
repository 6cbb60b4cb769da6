"""Table 3.3 of the thesis: the command, what is saved, the machines, the page."""

import json

import numpy as np
import pytest
from sklearn.svm import SVC

from benchmarks.papers import mvu_table33, table33_methods, table33_page
from benchmarks.papers.table33_paper import KERNELS, PAPER


def row(digits, kernel, errors, remark=""):
    splits = [[number, error, remark] for number, error in enumerate(errors)]
    return {"data": digits, "method": kernel, "stamps": ["abc today cpu"], "splits": splits}


def record(*rows):
    machine = {"cpu": "a chip", "cores": 2, "memory_gb": 8, "system": "Linux x86_64"}
    return {"machine": machine, "versions": {"numpy": "2"}, "rows": list(rows)}


def test_smoke_run_passes(capsys, monkeypatch):
    monkeypatch.delenv("NEARFAR_DATA", raising=False)
    assert mvu_table33.main(["--smoke"]) == 0
    printed = capsys.readouterr().out
    for kernel in KERNELS:
        assert printed.count(f"1v2 {kernel} ") == 2
    assert "of the variance in 10 dimensions" in printed


def test_what_is_saved_is_left_out(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(mvu_table33, "images", lambda *_: table33_methods.images("1v2", True))
    monkeypatch.setattr(
        mvu_table33,
        "kernel_matrix",
        lambda kernel, digits, *_: table33_methods.kernel_matrix(kernel, digits, True),
    )
    monkeypatch.setattr(table33_methods, "check", lambda _: None)
    places = ["--results", str(tmp_path), "--machine", "x", "--page", str(tmp_path / "page.md")]
    assert mvu_table33.main([*places, "--digits", "1v2", "--splits", "1"]) == 0
    capsys.readouterr()
    assert mvu_table33.main([*places, "--digits", "1v2", "--splits", "2"]) == 0
    assert capsys.readouterr().out.count("1v2") == len(KERNELS)
    rows = json.loads((tmp_path / "mvu_table33-x.json").read_text())["rows"]
    assert [len(r["splits"]) for r in rows] == [2] * len(KERNELS)


def test_data_without_its_file_is_left_out(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("NEARFAR_DATA", raising=False)
    places = ["--results", str(tmp_path), "--machine", "x", "--page", str(tmp_path / "page.md")]
    assert mvu_table33.main([*places, "--digits", "1v2"]) == 0
    assert "1v2: left out: usps needs its data file" in capsys.readouterr().out
    assert (tmp_path / "page.md").read_text() == table33_page.INTRODUCTION


def test_images_are_drawn_in_equal_numbers_and_have_unit_length():
    X, y = table33_methods.images("1v8", smoke=True)
    assert np.bincount(y).tolist() == [0, 60, *[0] * 6, 60]
    np.testing.assert_allclose((X**2).sum(1), 1)


def test_kernels_by_hand():
    X, _ = table33_methods.images("1v8", smoke=True)
    a, b = X[3], X[70]
    entries = {
        "linear": a @ b,
        "polynomial": (1 + a @ b) ** 2,
        "gaussian": np.exp(-((a - b) ** 2).sum() / 2),
    }
    for kernel, expected in entries.items():
        K, remark = table33_methods.kernel_matrix(kernel, "1v8", smoke=True)
        assert K[3, 70] == pytest.approx(expected)
        assert remark == ""


def test_the_error_does_not_depend_on_scale_and_shift_of_the_points():
    X, y = table33_methods.images("1v8", smoke=True)
    errors = [table33_methods.error(Z @ Z.T, y, 3) for Z in (X, 100 * X)]
    assert errors[0] == errors[1]


def test_the_error_is_that_of_a_machine_on_the_held_out_part(monkeypatch):
    """With one penalty there is nothing to choose."""
    monkeypatch.setattr(table33_methods, "PENALTIES", [1.0])
    generator = np.random.default_rng(0)
    X, y = generator.normal(size=(80, 2)), np.repeat([0, 1], 40)
    X[y == 1] += 1
    K = X @ X.T
    K /= np.diagonal(K).mean() - K.mean()
    train, test = table33_methods.train_test_split(
        np.arange(80), test_size=0.1, stratify=y, random_state=5
    )
    model = SVC(kernel="precomputed", C=1.0).fit(K[np.ix_(train, train)], y[train])
    expected = np.mean(model.predict(K[np.ix_(test, train)]) != y[test])
    assert table33_methods.error(X @ X.T, y, 5) == pytest.approx(expected)
    assert len(test) == 8


def test_page_has_thesis_and_ours_side_by_side():
    rows = [row("2v8", "linear", [0.02, 0.03]), row("2v8", "mvu", [0.04], "9.0 s")]
    page = table33_page.page([record(*rows)])
    assert "| 2 vs 8 | 2.18 / 2.50 | 1.12 / – | 0.63 / – | 3.37 / 4.00 |" in page
    assert "- 2v8: 9.0 s" in page
    assert all(len(figures) == len(KERNELS) for figures in PAPER.values())
