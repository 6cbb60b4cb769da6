"""``nearfar report``: which rows it tests, what it says of them, and what it refuses.

``nearfar explore`` writes the same page and opens it.
"""

import base64
import html
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

import nearfar
from nearfar.datasets import load_builtin, load_table
from nearfar.evaluation import knn_error, split_points
from nearfar.io import load, read_provenance, save

pytestmark = pytest.mark.usefixtures("folder")

SAME = "They were held out at the fit, by the same split of the same table."


@pytest.fixture
def reported(run):
    """Run the command and return the words of the page, and its data."""

    def reported(*arguments):
        done = run("report", *arguments, "-o", "out.html", "--force")
        assert (done.code, done.err) == (0, "")
        assert re.fullmatch(r"saved out\.html, \d\.\d\d MB: open it in a browser\n", done.out)
        with open("out.html", encoding="utf-8") as stream:
            page = stream.read()
        data = json.loads(re.search(r'id="data">(.*?)</script>', page)[1])
        text = re.sub(r"<(script|style).*?</\1>", " ", page, flags=re.DOTALL)
        return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", text)).split()), data

    return reported


@pytest.fixture(scope="module")
def model_files():
    """What was fitted so far: files by the command and the content of the table."""
    return {}


@pytest.fixture
def fitted(run, model_files):
    """Fit to the iris table and return the model, which does not know its features' names."""

    def fitted(*options, table=("iris.csv", "-t", "species")):
        path = Path(table[0])
        key = (*table, *map(str, options), path.read_bytes() if path.exists() else None)
        if key not in model_files:
            assert run("fit", *table, *options, "--force").code == 0
            model_files[key] = Path("model.nearfar").read_bytes()
        Path("model.nearfar").write_bytes(model_files[key])
        model = load("model.nearfar")
        vars(model).pop("feature_names_in_", None)
        return model

    return fitted


def expected_error(model, table, share, seed, k=3):
    split = split_points(table.X, table.y, share, seed)
    return knn_error(model, split.X_train, split.y_train, split.X_test, split.y_test, k)


@pytest.mark.parametrize(("share", "seed"), [(0.3, 0), (0.4, 7)])
def test_the_rows_that_the_fit_held_out_are_tested(fitted, reported, share, seed):
    model = fitted("--test-share", share, "--seed", seed)
    text, data = reported("model.nearfar", "iris.csv")
    table = load_table("iris.csv", "species")
    error = expected_error(model, table, share, seed)
    before = expected_error(None, table, share, seed)
    assert f"Error after learning {100 * error:.2f} % {100 * before:.2f} % before" in text
    assert SAME in text
    assert f"share {share:g} of the rows tested, seed {seed}" in text
    assert data["firstRow"] == 1
    assert data["labels"]["name"] == "species"
    assert data["labels"]["texts"] == ["setosa", "versicolor", "virginica"]


def test_both_commands_and_versions_are_told(fitted, reported):
    fitted("--neighbors", 5, "--max-iter", 90)
    text, _ = reported("model.nearfar", "iris.csv", "--seed", "0")
    fit = "nearfar fit iris.csv -t species --neighbors 5 --max-iter 90 --force"
    assert fit in text
    assert "nearfar report model.nearfar iris.csv --seed 0 -o out.html --force" in text
    assert text.count(np.__version__) >= 2  # of the fit, and of this report
    assert "n_neighbors=5" in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["iris.csv", "--seed", 3], "The fit had another split of this table."),
        (["iris.csv", "--test-share", 0.5], "The fit had another split of this table."),
        (["iris.csv", "--test-share", 0.3, "--seed", 0], SAME),
        (["test.csv"], "This is not the table of the fit, or it has changed since."),
        (["iris.csv", "--test-share", 0], "No row was held out."),
    ],
)
def test_what_is_known_of_the_split_is_said(fitted, reported, arguments, said):
    fitted()
    text, _ = reported("model.nearfar", *arguments)
    assert said in text
    assert (SAME in text) == (said == SAME)


def test_a_model_fitted_to_all_rows_has_none_held_out(fitted, reported):
    fitted("--test-share", 0)
    text, _ = reported("model.nearfar", "iris.csv")
    assert "No row was held out." in text
    assert "The model was fitted to all rows of this table." in text


def test_a_file_that_does_not_tell_of_its_fit(fitted, reported):
    save(fitted(), "model.nearfar")
    text, _ = reported("model.nearfar", "iris.csv", "-t", "species")
    assert "The model file does not say which rows the model was fitted to." in text
    assert "The fit nearfar" not in text


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"seed": -1},
        {"seed": "x"},
        {"test_share": 2},
        {"test_share": [1]},
        {"versions": "<script>"},
        {"seed": None},
    ],
)
def test_a_file_that_tells_nonsense_of_its_fit_is_not_believed(fitted, reported, said):
    model = fitted()
    true = read_provenance("model.nearfar")
    save(model, "model.nearfar", provenance={**true, **said} if said else {})
    text, _ = reported("model.nearfar", "iris.csv", "-t", "species")
    assert "does not say which rows" in text


def test_a_test_table(fitted, reported):
    model = fitted("--test-share", 0, table=("train.csv", "-t", "species"))
    text, data = reported("model.nearfar", "train.csv", "--test", "test.csv", "-k", 1)
    train, test = (load_table(f"{name}.csv", "species") for name in ("train", "test"))
    error = knn_error(model, train.X, train.y, test.X, test.y, 1)
    assert f"Error after learning {100 * error:.2f} %" in text
    assert "112 training rows, 38 held out" in text
    assert "They are the rows of test.csv, numbered from 113 here." in text
    assert data["nRows"] == 150


def test_builtin_sets_and_pictures(run, reported):
    run("fit", "digits", "--components", 3, "--max-iter", 3, "--tol", 10, "--test-share", 0.8)
    text, data = reported("model.nearfar", "digits", "--rows", "4,2")
    assert "LMNN on digits" in text
    assert SAME in text
    assert data["images"]["shape"] == [8, 8]
    assert data["lists"][0]["total"] == 2
    rows = np.frombuffer(base64.b64decode(data["rows"]), "<u4")
    assert rows[:2].tolist() == [3, 1]  # as they are numbered from 1
    table = load_builtin("digits")
    assert data["nRows"] == len(table.X)


def test_other_columns_are_shown(fitted, reported, folder):
    fitted()
    lines = (folder / "iris.csv").read_text().splitlines()
    header = f"{lines[0]},garden,height"
    more = [f"{line},garden {i % 7} 🌷,{i / 4}" for i, line in enumerate(lines[1:])]
    (folder / "more.csv").write_text("\n".join([header, *more]), encoding="utf-8")
    _, data = reported("model.nearfar", "more.csv", "--show", "garden", "--show", "height")
    garden, height, *features = data["columns"]
    assert [garden["name"], height["name"]] == ["garden", "height"]
    assert garden["texts"] == [f"garden {i} 🌷" for i in range(7)]
    assert "numbers" in height
    assert len(features) == 4


@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.parametrize("suffix", [".npy", ".npz", ".csv"])
def test_labels_are_found_or_not(fitted, reported, suffix, labelled):
    fitted()
    table = load_table("iris.csv", "species")
    y = np.unique(table.y, return_inverse=True)[1]
    if suffix == ".npz":
        np.savez("new.npz", X=table.X, **({"y": y} if labelled else {}))
    elif suffix == ".npy":
        np.save("new.npy", np.c_[table.X, y] if labelled else table.X)
    else:
        names = [*table.feature_names, *(["species"] if labelled else [])]
        rows = [[*x, label] if labelled else x for x, label in zip(table.X, y, strict=True)]
        with open("new.csv", "w") as stream:
            stream.writelines(",".join(map(str, row)) + "\n" for row in [names, *rows])
    text, data = reported("model.nearfar", f"new{suffix}")
    assert (data["labels"] is not None) == labelled
    assert ("Errors before and after" in text) == labelled


def test_a_model_without_a_table_shows_what_it_keeps(fitted, reported, fails):
    fitted("--method", "multi-metric-lmnn", "--max-iter", 3, "--tol", 10)
    text, data = reported("model.nearfar")
    assert data["nRows"] == 105
    message = "--rows 106: there are 105 rows. Give numbers from 1 to 105."
    assert message in fails("report", "model.nearfar", "--rows", "105,106")
    assert "MultiMetricLMNN learned 3 metrics." in text
    fitted("--max-iter", 3, "--tol", 10)
    message = "model.nearfar: this model keeps no points. Name the table after MODEL."
    assert message in fails("report", "model.nearfar")


def test_an_unfolding_has_a_report(reported):
    X = np.random.default_rng(0).normal(size=(40, 3))
    save(nearfar.VariationalMVU(n_neighbors=8, random_state=0).fit(X), "model.nearfar")
    text, data = reported("model.nearfar")
    assert "VariationalMVU laid out 40 points in 2 dimensions." in text
    assert data["nRows"] == 40


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no.nearfar", "iris.csv"], "no.nearfar: No such file"),
        (["model.nearfar", "no.csv"], "no.csv: No such file"),
        (["model.nearfar", "iris.csv", "-t", "kind"], "there is no column 'kind'"),
        (["model.nearfar", "iris.csv", "-o", "iris.csv"], "iris.csv is an input too"),
        (["model.nearfar", "iris.csv", "-o", "model.nearfar"], "model.nearfar is an input too"),
        (["model.nearfar", "iris.csv", "-o", "test.csv"], "test.csv exists"),
        (["model.nearfar", "iris.csv", "-o", "no/out.html"], "cannot write to the folder no"),
        (["model.nearfar", "wine"], "the model has 4 features, the table has 13"),
        (["model.nearfar", "iris.csv", "--rows", "0"], "'0' is not a list of row numbers from 1"),
        (
            ["model.nearfar", "iris.csv", "--rows", "151"],
            "--rows 151: there are 150 rows. Give numbers",
        ),
        (["model.nearfar", "iris.csv", "--rows", "7,7"], "got one of them twice. Check them."),
        (["model.nearfar", "iris.csv", "--image-shape", "8"], "'8' is not two sizes"),
        (["model.nearfar", "iris.csv", "--image-shape", "3x2"], "image_shape=3 x 2 is 6 features"),
        (["model.nearfar", "iris.csv", "--show", "age"], "there is no column 'age'"),
        (["model.nearfar", "iris", "--show", "age"], "whose columns have names"),
        (["model.nearfar", "-t", "species"], "--target goes with TABLE"),
        (["model.nearfar", "--show", "age"], "--show goes with TABLE"),
        (["model.nearfar", "--test-share", "0.5"], "--test-share goes with TABLE"),
        (
            ["model.nearfar", "iris.csv", "--test", "test.csv", "--test-share", "0.5"],
            "--test and --test-share both say which rows are tested",
        ),
        (["model.nearfar", "iris.csv", "-k", "150"], "n_neighbors=150 must be at least 1"),
    ],
)
def test_errors_are_one_line_and_write_nothing(fitted, fails, folder, arguments, message):
    fitted()
    before = sorted(os.listdir(folder))
    assert message in fails("report", *arguments)
    assert sorted(os.listdir(folder)) == before


def test_test_labels_must_be_comparable(fitted, fails, folder):
    fitted()
    text = (folder / "test.csv").read_text()
    (folder / "numbers.csv").write_text(re.sub("[a-z]+$", "1", text, flags=re.MULTILINE))
    header = text.splitlines()[0]
    fixed = (folder / "numbers.csv").read_text().splitlines()[1:]
    (folder / "numbers.csv").write_text("\n".join([header, *fixed]))
    arguments = ["model.nearfar", "iris.csv", "--test", "numbers.csv", "-t", "species"]
    assert "they cannot be compared" in fails("report", *arguments)
    bare = [line.rsplit(",", 1)[0] for line in text.splitlines()]
    (folder / "bare.csv").write_text("\n".join(bare))
    assert "--test needs labels in both tables" in fails(
        "report", "model.nearfar", "iris.csv", "--test", "bare.csv"
    )


@pytest.fixture
def browser(monkeypatch):
    """Addresses that were opened; the stand-in for a browser can be absent."""

    class Browser(list):
        found = True

        def open(self, address):
            self.append(address)
            return self.found

    browser = Browser()
    monkeypatch.setattr("nearfar.cli.report.webbrowser.open", browser.open)
    return browser


def test_explore_opens_a_temporary_page(fitted, run, browser, monkeypatch, tmp_path):
    fitted()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    done = run("explore", "model.nearfar", "iris.csv")
    assert (done.code, done.err) == (0, "")
    (page,) = tmp_path.glob("nearfar-*/explore.html")
    assert browser == [page.as_uri()]
    assert re.fullmatch(rf"saved {page}, \d\.\d\d MB: opened in the browser\n", done.out)
    assert "<h2>Explore the rows</h2>" in page.read_text(encoding="utf-8")


def test_explore_to_a_named_file_without_a_browser(fitted, run, browser, folder, fails):
    fitted()
    done = run("explore", "model.nearfar", "iris.csv", "-o", "out.html", "--no-open")
    assert done.out.endswith("MB: open it in a browser\n")
    assert browser == []
    assert "out.html exists" in fails("explore", "model.nearfar", "iris.csv", "-o", "out.html")
    browser.found = False
    done = run("explore", "model.nearfar", "iris.csv", "-o", "out.html", "--force")
    assert done.out.endswith("MB: open it in a browser\n")
    assert browser == [(folder / "out.html").resolve().as_uri()]
