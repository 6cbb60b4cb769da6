"""``nearfar map``: coordinates, a picture and a page."""

import re
from pathlib import Path

import numpy as np
import pandas
import pytest

import nearfar
from nearfar import progress
from nearfar.cli.methods import MAPS
from nearfar.datasets import load_builtin, load_table
from nearfar.io import load
from nearfar.registry import ENTRIES

pytestmark = pytest.mark.usefixtures("folder")


def test_coordinates_picture_and_page(run):
    pytest.importorskip("matplotlib", reason="needs the plot extra")
    done = run("map", "iris.csv", "-t", "species", "--neighbors", 8, "--model", "m.nearfar")
    assert done.code == 0, done.err
    assert re.search(r"^VariationalMVU: 150 rows, 4 features to 2 dimensions in ", done.out)
    assert done.out.endswith(
        "saved m.nearfar\nsaved map.csv: 150 rows, 2 columns\nsaved map.png\n"
        "saved map.html: open it in a browser\n"
    )
    points, model = load_table("map.csv", labelled=False), load("m.nearfar")
    assert points.feature_names == ("axis1", "axis2")
    np.testing.assert_array_equal(points.X, model.embedding_)
    assert model.n_neighbors == 8
    assert model.feature_names_in_[0] == "sepal_length"
    assert Path("map.png").read_bytes().startswith(b"\x89PNG")
    page = Path("map.html").read_text()
    assert "VariationalMVU of iris.csv" in page
    assert '"name":"species"' in page
    assert 'id="errors"' not in page  # a map is not judged by classes


@pytest.mark.parametrize("method", MAPS)
def test_every_method_places_points(run, method):
    options = (
        ["--neighbors", 6] if method in ("mvu", "landmark", "local-mds", "variational") else []
    )
    rows = load_table("test.csv", "species").X
    pandas.DataFrame(rows, columns=list("abcd")).to_csv("t.csv", index=False)
    done = run("map", "t.csv", "--method", method, "--no-picture", "--no-report", *options)
    assert done.code == 0, done.err
    assert done.out.startswith(f"{MAPS[method]}: 38 rows, 4 features to 2 dimensions in ")
    assert load_table("map.csv", labelled=False).X.shape == (38, 2)
    assert not Path("map.png").exists()
    assert not Path("map.html").exists()


def test_methods_are_all_that_place_points():
    kinds = {entry.name for entry in ENTRIES if entry.kind in ("unfolding", "scaling")}
    assert set(MAPS.values()) == kinds - {"SensorLocalization"}  # which needs distances


def test_standardised_features(run):
    options = ["--method", "classical-mds", "--no-picture", "--model", "m.nearfar"]
    done = run("map", "wine", *options)
    assert done.err == (
        "standard deviations of features differ by a factor of 2.5e+03: if they have different"
        " units, give --standardise\n"
    )
    done = run("map", "wine", *options, "--standardise", "--force")
    assert (done.code, done.err) == (0, "")
    wine = load_builtin("wine")
    model = load("m.nearfar")
    scaled = (wine.X - wine.X.mean(axis=0)) / wine.X.std(axis=0)
    expected = nearfar.ClassicalMDS().fit(scaled).embedding_
    np.testing.assert_allclose(model[-1].embedding_, expected, atol=1e-8)


def test_numbers_are_colours_too(run):
    rows = load_table("test.csv", "species").X
    pandas.DataFrame(rows, columns=list("abcd")).to_csv("t.csv", index=False)
    done = run("map", "t.csv", "-t", "a", "--method", "mds", "--no-picture")
    assert done.code == 0, done.err
    assert "3 features to 2 dimensions" in done.out
    assert '"name":"a"' in Path("map.html").read_text()


def test_columns_that_are_pixels_are_thumbnails(run):
    digits = load_builtin("digits")
    frame = pandas.DataFrame(digits.X[:60], columns=digits.feature_names)
    frame.assign(digit=digits.y[:60]).to_csv("t.csv", index=False)
    done = run("map", "t.csv", "-t", "digit", "--method", "mds", "--no-picture")
    assert done.code == 0, done.err
    assert '"shape":[8,8]' in Path("map.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["iris.csv", "-o", "map.png", "-t", "species"], "cannot write the format '.png'"),
        (["iris.csv", "-t", "kind"], "there is no column 'kind'"),
        (["iris.csv"], "column 'species'"),
        (["iris", "-t", "species"], "the built-in set iris has its own"),
        (["iris", "--method", "mds", "-k", "3"], "--neighbors does not go with --method mds"),
        (["iris", "--method", "umap"], "'umap' is not one of 'variational', 'mvu'"),
        (["iris", "--image-shape", "3x3"], "the points have 4"),
    ],
)
def test_errors_are_one_line(fails, arguments, message):
    assert message in fails("map", *arguments)
    assert not Path("map.csv").exists()


def test_an_existing_picture_needs_force(fails):
    Path("map.html").write_text("precious")
    assert "map.html exists" in fails("map", "iris")
    assert Path("map.html").read_text() == "precious"


def test_without_matplotlib_nothing_is_begun(fails, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    message = fails("map", "iris")
    assert "matplotlib is not installed; run: pip install " in message
    assert message.endswith(", or leave the picture out with --no-picture.\n")


@pytest.mark.skipif(not hasattr(nearfar.MVU, "set_callbacks"), reason="needs scikit-learn 1.9")
@pytest.mark.parametrize("method", [name for name in MAPS if name != "classical-mds"])
def test_every_method_that_iterates_shows_it(run, method, monkeypatch):
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", 0.0)
    done = run("map", "iris", "--method", method, "--no-picture", "--no-report")
    assert done.code == 0, done.err
    lines = [line for line in done.err.splitlines() if not line.startswith("warning: ")]
    assert lines[0].startswith("#1 objective ")
    assert len(lines) > 1
