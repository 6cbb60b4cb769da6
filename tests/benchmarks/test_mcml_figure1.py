"""Figures 1 and 2 of the MCML paper: the command, what is saved, the data, the curves, the page."""

import json
import math

import numpy as np
import pytest

from benchmarks.papers import figure1_data, figure1_methods, figure1_page, mcml_figure1
from benchmarks.papers.figure1_methods import Curve
from nearfar import MCML, MMC


def places(folder):
    return [
        *("--results", str(folder), "--machine", "x"),
        *("--page", str(folder / "page.md"), "--picture", str(folder / "page.png")),
    ]


def row(method, curves, data="iris", spectrum=(0.75, 0.25)):
    splits = [
        [number, 0.5, {str(q): error for q, error in curve.items()}, list(spectrum)]
        for number, curve in enumerate(curves)
    ]
    return {"data": data, "method": method, "stamps": ["abc today cpu"], "splits": splits}


def record(*rows):
    machine = {"cpu": "a chip", "cores": 2, "memory_gb": 8, "system": "Linux x86_64"}
    return {"machine": machine, "versions": {"numpy": "2"}, "rows": list(rows)}


# -- the command ---


def test_smoke_run_passes(capsys, monkeypatch):
    """On one split, without the two slowest methods; CI runs all of it."""
    monkeypatch.delenv("NEARFAR_DATA", raising=False)
    monkeypatch.setitem(mcml_figure1.SMOKE, "splits", 1)
    assert mcml_figure1.main(["--smoke", "--methods", "mcml,mcml_whitened,pca,lda,nmcml,nca"]) == 0
    printed = capsys.readouterr().out
    assert "failed" not in printed
    assert "| dimensions | MCML | MCML, whitened | PCAW | LDA | NMCML | NCA |\n" in printed
    assert "| dimensions | MCML | MCML, whitened | PCAW | LDA |\n" in printed
    assert "| splits | 1 | 1 | 1 | 1 |\n" in printed


def test_an_interrupted_run_goes_on_where_it_was_and_draws(tmp_path, capsys):
    some = [*places(tmp_path), "--data", "iris", "--methods", "mcml,lda"]
    assert mcml_figure1.main([*some, "--splits", "1"]) == 0
    first = json.loads((tmp_path / "mcml_figure1-x.json").read_text())["rows"]
    capsys.readouterr()
    assert mcml_figure1.main([*some, "--splits", "2"]) == 0
    assert capsys.readouterr().out.count("iris ") == 2
    second = json.loads((tmp_path / "mcml_figure1-x.json").read_text())["rows"]
    assert [r["splits"][0] for r in second] == [r["splits"][0] for r in first]
    assert [len(r["splits"]) for r in second] == [2, 2]
    assert "](page.png)" in (tmp_path / "page.md").read_text()
    assert (tmp_path / "page.png").read_bytes().startswith(b"\x89PNG")


def test_processes_give_what_one_gives(tmp_path):
    found = []
    for jobs in ("1", "2"):
        folder = tmp_path / jobs
        some = ["--data", "iris", "--methods", "mcml,pca", "--splits", "2", "--jobs", jobs]
        assert mcml_figure1.main([*places(folder), *some]) == 0
        rows = json.loads((folder / "mcml_figure1-x.json").read_text())["rows"]
        found.append([[split[2] for split in r["splits"]] for r in rows])
    assert found[0] == found[1]


def test_a_failure_is_told_and_not_saved(tmp_path, monkeypatch, capsys):
    def fail(*_):
        raise ValueError("no such luck")

    monkeypatch.setitem(figure1_methods.METHODS, "lda", fail)
    some = ["--data", "iris", "--methods", "pca,lda", "--splits", "1"]
    assert mcml_figure1.main([*places(tmp_path), *some]) == 1
    assert "failed: ValueError: no such luck" in capsys.readouterr().err
    rows = json.loads((tmp_path / "mcml_figure1-x.json").read_text())["rows"]
    assert [r["method"] for r in rows] == ["pca"]


def test_nothing_begins_after_the_last_second(tmp_path):
    assert mcml_figure1.main([*places(tmp_path), "--data", "iris", "--max-seconds", "-1"]) == 0
    assert list(tmp_path.glob("*.json")) == []
    assert (tmp_path / "page.md").read_text() == figure1_page.INTRODUCTION


def test_data_without_its_file_is_left_out(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("NEARFAR_DATA", raising=False)
    assert mcml_figure1.main([*places(tmp_path), "--data", "balance"]) == 0
    assert "balance: left out: balance_scale needs its data file" in capsys.readouterr().out


@pytest.mark.parametrize("option", ["--data", "--methods"])
def test_an_unknown_name_is_told(option, capsys):
    with pytest.raises(SystemExit, match="2"):
        mcml_figure1.parse([option, "mnsit"])
    assert "no 'mnsit'; expected some of" in capsys.readouterr().err


# -- the data and the curves ---


def test_splits_have_the_papers_sizes():
    """70 % of 150; 1000 of 70 % of 1797. Features are standardised, pixels are not."""
    iris, digits = figure1_data.load("iris", 3), figure1_data.load("digits", 3)
    assert (len(iris.X_train), len(iris.X_test)) == (105, 45)
    assert (len(digits.X_train), len(digits.X_test)) == (1000, 540)
    np.testing.assert_allclose(iris.X_train.std(axis=0), 1)
    assert digits.X_train.min() == 0
    assert digits.X_train.max() == 1
    assert figure1_data.small("iris")
    assert not figure1_data.small("digits")


def test_halved_images_are_means_of_blocks(rng):
    image = rng.normal(size=(16, 16))
    small = figure1_data.halved(image.reshape(1, -1)).reshape(8, 8)
    assert small[3, 5] == pytest.approx(image[6:8, 10:12].mean())


def test_dimensions_end_with_all_of_them():
    assert figure1_data.dimensions(4) == (1, 2, 3, 4)
    assert figure1_data.dimensions(13)[-2:] == (12, 13)
    assert figure1_data.dimensions(34)[-3:] == (20, 28, 34)


@pytest.mark.parametrize("method", ["mcml", "pca", "mmc"])
def test_a_curve_ends_where_the_whole_map_does(method):
    """On all dimensions the error is that of all rows, by plain differences."""
    split = figure1_data.load("iris", 1)
    curve = figure1_methods.METHODS[method]("iris", split)
    if method == "pca":
        deviations = np.linalg.cholesky(np.linalg.inv(np.cov(split.X_train.T)))
        train, test = split.X_train @ deviations, split.X_test @ deviations
    else:
        learner = MCML(shrinkage=0) if method == "mcml" else MMC(shrinkage=0)
        learner.fit(split.X_train, split.y_train)
        train, test = learner.transform(split.X_train), learner.transform(split.X_test)
    nearest = ((test[:, None] - train) ** 2).sum(2).argmin(1)
    assert curve.errors[4] == pytest.approx(np.mean(split.y_train[nearest] != split.y_test))
    assert list(curve.errors) == [1, 2, 3, 4]
    assert sum(curve.spectrum) == pytest.approx(0 if method == "pca" else 1)


def test_whitening_changes_the_order_of_directions_but_not_the_metric():
    split = figure1_data.load("iris", 1)
    plain, whitened = (
        figure1_methods.METHODS[method]("iris", split) for method in ("mcml", "mcml_whitened")
    )
    assert whitened.errors[4] == plain.errors[4]
    assert max(abs(a - b) for a, b in zip(plain.spectrum, whitened.spectrum, strict=True)) > 0.001


def test_a_map_of_few_rows_has_a_level_curve():
    """LDA of three classes has two directions."""
    curve = figure1_methods.lda("iris", figure1_data.load("iris", 0))
    assert curve.errors[2] == curve.errors[3] == curve.errors[4]
    assert isinstance(curve, Curve)


# -- the page ---


def test_curve_is_the_mean_with_its_standard_error():
    """2, 4 and 6 %: 4, and a deviation of 2 over the root of 3."""
    found = figure1_page.curve(row("mcml", [{1: 0.02}, {1: 0.04}, {1: 0.06}]))
    assert found == [(1, pytest.approx(4), pytest.approx(2 / math.sqrt(3)))]


def test_verdicts_compare_split_by_split():
    """Lower by 1 % on every split, about equal (+1 and -1 %), and higher by 2 and 3 %."""
    ours = row("mcml", [{1: 0.01, 2: 0.05, 3: 0.07}, {1: 0.05, 2: 0.05, 3: 0.09}])
    theirs = row("lda", [{1: 0.02, 2: 0.04, 3: 0.05}, {1: 0.06, 2: 0.06, 3: 0.06}])
    assert figure1_page.verdicts(ours, theirs) == [1, 1, 1]


def test_page_from_records():
    ours = row("mcml", [{1: 0.02, 2: 0.01}, {1: 0.04, 2: 0.01}])
    theirs = row("lda", [{1: 0.1, 2: 0.1}, {1: 0.1, 2: 0.1}])
    page = figure1_page.page([record(ours, theirs), record(row("mcml", [{1: 0.9}]))], "p.png")
    assert "| dimensions | MCML | LDA |" in page
    assert "| 1 | 3.0 ± 1.0 | 10.0 ± 0.0 |" in page
    assert "| LDA | 2 | 0 | 0 |" in page
    assert "| iris | 0.750 | 0.250 | 0.000 |" in page
    assert "![Errors by projection dimension](p.png)" in page


def test_every_method_has_a_title_and_a_style_and_every_data_set_a_note():
    assert set(figure1_methods.METHODS) == set(figure1_page.TITLES) == set(figure1_page.STYLES)
    assert set(figure1_data.NOTES) == set(figure1_data.NAMES)
