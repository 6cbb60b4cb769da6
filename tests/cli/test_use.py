"""``nearfar transform`` and ``nearfar evaluate``."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from sklearn.preprocessing import StandardScaler

import nearfar
from nearfar import MetricMDS, NonmetricMDS
from nearfar.datasets import load_builtin, load_table
from nearfar.evaluation import knn_error, retrieval_measures
from nearfar.io import load, read_provenance, save

pytestmark = pytest.mark.usefixtures("folder", "model")


@pytest.fixture
def model(run):
    """The model file of the training table, and the model without the names of its features."""
    assert run("fit", "train.csv", "-t", "species", "--test-share", 0).code == 0
    model = load("model.nearfar")
    del model.feature_names_in_
    return model


@pytest.fixture
def test_points():
    return load_table("test.csv", "species")


@pytest.mark.parametrize("suffix", [".csv", ".npy", ".npz", ".parquet"])
@pytest.mark.parametrize("options", [[], ["--target", "species"]])
def test_transform_writes_every_format(run, model, test_points, suffix, options):
    done = run("transform", "model.nearfar", "test.csv", "-o", f"out{suffix}", *options)
    assert (done.code, done.err) == (0, "")
    rank = len(model.components_)
    assert done.out == f"saved out{suffix}: 38 rows, {rank} columns\n"
    written = load_table(f"out{suffix}", labelled=False)
    np.testing.assert_array_equal(written.X, model.transform(test_points.X))
    if suffix in (".csv", ".parquet"):
        assert written.feature_names == tuple(f"lmnn{i}" for i in range(rank))


def test_columns_are_found_by_name(run, model, test_points, folder):
    """The same columns in another order, among others."""
    order = [2, 0, 3, 1]
    names = [test_points.feature_names[i] for i in order]
    rows = [["id", *names], *([f"row_{i}", *x] for i, x in enumerate(test_points.X[:, order]))]
    text = "\n".join(",".join(map(str, row)) for row in rows)
    (folder / "mixed.csv").write_text(text)
    assert run("transform", "model.nearfar", "mixed.csv", "-o", "out.npy").code == 0
    np.testing.assert_array_equal(np.load("out.npy"), model.transform(test_points.X))


def test_tables_without_names_are_matched_by_position(run, model, test_points):
    np.save("bare.npy", test_points.X)
    np.save("labelled.npy", np.c_[test_points.X, np.zeros(38)])
    assert run("transform", "model.nearfar", "bare.npy", "-o", "one.npy").code == 0
    done = run("transform", "model.nearfar", "labelled.npy", "-o", "two.npy", "--target", "-1")
    assert done.code == 0, done.err
    np.testing.assert_array_equal(np.load("one.npy"), model.transform(test_points.X))
    np.testing.assert_array_equal(np.load("two.npy"), np.load("one.npy"))


def test_a_model_without_names_takes_every_column(run, test_points):
    np.savez("train.npz", X=test_points.X, y=test_points.y)
    run("fit", "train.npz", "--test-share", 0)
    done = run("transform", "model.nearfar", "test.csv", "-t", "species", "-o", "out.npy")
    assert done.code == 0, done.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["model.nearfar", "no.csv", "-o", "o.csv"], "no.csv: No such file"),
        (["no.nearfar", "test.csv", "-o", "o.csv"], "no.nearfar: No such file"),
        (["test.csv", "test.csv", "-o", "o.csv"], "test.csv is not a model file"),
        (["model.nearfar", "test.csv", "-o", "o.xlsx"], "cannot write the format '.xlsx'"),
        (["model.nearfar", "test.csv", "-o", "train.csv"], "train.csv exists"),
        (["model.nearfar", "test.csv", "-o", "no/o.csv"], "cannot write to the folder no"),
        (["model.nearfar", "test.csv", "-o", "test.csv", "--force"], "is an input too"),
        (["model.nearfar", "test.csv", "-o", "model.nearfar", "--force"], "is an input too"),
        (["model.nearfar", "test.csv", "-o", "o.nearfar"], "cannot write the format '.nearfar'"),
        (["model.nearfar", "other.csv", "-o", "o.csv"], "there is no column 'sepal_width'"),
        (["model.nearfar", "wide.npy", "-o", "o.csv"], "model has 4 features, the table has 5"),
        (["model.nearfar", "test.csv", "-o", "o.csv", "-t", "kind"], "there is no column 'kind'"),
    ],
)
def test_transform_errors_are_one_line_and_write_nothing(fails, folder, arguments, message):
    (folder / "other.csv").write_text("sepal_length,sepal_widht\n1,2\n")
    np.save("wide.npy", np.ones((3, 5)))
    before = sorted(os.listdir(folder))
    assert message in fails("transform", *arguments)
    assert sorted(os.listdir(folder)) == before


def test_built_in_sets_are_tables(run, fails, model):
    iris = load_builtin("iris")
    assert run("transform", "model.nearfar", "iris", "-o", "out.npy").code == 0
    np.testing.assert_array_equal(np.load("out.npy"), model.transform(iris.X))
    report = json.loads(run("evaluate", "model.nearfar", "iris", "iris", "--json").out)
    expected = knn_error(model, iris.X, iris.y, iris.X, iris.y, model.n_neighbors)
    assert (report["n_test"], report["rows"][4]["error"]) == (150, expected)
    for arguments in (
        ["transform", "model.nearfar", "iris", "-o", "o.npy"],
        ["evaluate", "model.nearfar", "iris", "iris"],
    ):
        assert "the built-in set iris has its own" in fails(*arguments, "-t", "species")


def test_transform_replaces_with_force(run):
    assert run("transform", "model.nearfar", "test.csv", "-o", "o.csv").code == 0
    assert run("transform", "model.nearfar", "test.csv", "-o", "o.csv").code == 2
    assert run("transform", "model.nearfar", "test.csv", "-o", "o.csv", "--force").code == 0


@pytest.mark.parametrize("n_neighbors", [None, 5])
def test_evaluate(run, model, test_points, n_neighbors):
    train = load_table("train.csv", "species")
    options = [] if n_neighbors is None else ["--neighbors", n_neighbors]
    arguments = ["evaluate", "model.nearfar", "train.csv", "test.csv", "-t", "species", *options]
    report = json.loads(run(*arguments, "--json").out)
    k = n_neighbors or model.n_neighbors
    expected = [
        knn_error(one, train.X, train.y, test_points.X, test_points.y, k) for one in (None, model)
    ]
    assert report["n_neighbors"] == k
    assert (report["n_train"], report["n_test"]) == (112, 38)
    rows = report["rows"]
    assert [row["method"] for row in rows] == [
        *("Euclidean", "standardised", "LDA", "shrunk LDA"),
        *("LMNN", "LMNN, standardised"),
    ]
    assert [rows[0]["error"], rows[4]["error"]] == expected
    assert rows[4]["duality_gap"] == model.duality_gap_
    assert report["verdict"]["kind"] == "keep"
    done = run(*arguments)
    assert done.code == 0
    assert f"{k}-NN error" in done.out
    assert f"{100 * expected[1]:.2f} ± " in done.out
    assert done.out.endswith(f"\n{report['verdict']['sentence']}\n")
    assert done.err == ""


@pytest.mark.parametrize(
    ("train", "test", "reason"),
    [
        ("train.csv", "train.csv", "100% of the test rows are training rows"),
        ("iris.csv", "iris.csv", "100% of the test rows are training rows"),
        ("test.csv", "train.csv", "the model learned from 100% of the test rows"),
        ("test.csv", "iris.csv", "the model learned from 75% of the test rows"),
    ],
)
def test_rows_that_the_model_has_seen_give_no_verdict(run, train, test, reason):
    done = run("evaluate", "model.nearfar", train, test, "-t", "species")
    assert done.code == 0
    assert done.err.startswith(f"warning: {test}: {reason}, and errors on them are too small.")
    assert done.out.endswith(f"\nNo verdict: {reason}.\n")


def test_of_many_learned_rows_the_smallest_hashes_suffice(run, monkeypatch, model):
    """Of twenty hashes, those of other rows that are below the largest can be told."""
    said = read_provenance("model.nearfar")
    said["learned_rows"] = said["learned_rows"][:20]
    monkeypatch.setattr("nearfar.cli.use.KEPT_HASHES", 20)
    save(model, "fewer.nearfar", provenance=said)
    done = run("evaluate", "fewer.nearfar", "test.csv", "train.csv", "-t", "species")
    assert "the model learned from 100% of the test rows" in done.err
    done = run("evaluate", "fewer.nearfar", "train.csv", "test.csv", "-t", "species")
    assert done.err == ""


@pytest.mark.parametrize("said", ["all", [-1], [2**64], [0.5], ["a"], [True], {}])
def test_hashes_that_make_no_sense_are_none(run, model, said):
    save(model, "odd.nearfar", provenance={"learned_rows": said})
    done = run("evaluate", "odd.nearfar", "test.csv", "train.csv", "-t", "species")
    assert (done.code, done.err) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train.csv", "test.csv"], "train.csv: no target is named"),
        (["train.csv", "test.csv", "-t", "kind"], "train.csv: there is no column 'kind'"),
        (["train.csv", "numbers.csv", "-t", "species"], "they cannot be compared"),
        (["train.csv", "test.csv", "-t", "species", "-k", "113"], "the 112 training points"),
    ],
)
def test_evaluate_errors_are_one_line(fails, folder, arguments, message):
    header = (folder / "test.csv").read_text().splitlines()[0]
    (folder / "numbers.csv").write_text(f"{header}\n1,2,3,4,0\n")
    assert message in fails("evaluate", "model.nearfar", *arguments)


@pytest.mark.parametrize("cls", [MetricMDS, NonmetricMDS])
def test_a_model_that_places_no_other_points_cannot_be_evaluated(fails, test_points, cls):
    save(cls(max_iter=500).fit(test_points.X), "mds.nearfar")
    message = fails("evaluate", "mds.nearfar", "train.csv", "test.csv", "-t", "species")
    assert f"mds.nearfar: a {cls.__name__} places the points of its fit and no others" in message
    assert "Give the model of another method, such as lmnn." in message


# -- evaluate --retrieval ----------------------------------------------------------------------


def test_retrieval_searches_for_test_rows_among_training_rows(run, model, test_points):
    train = load_table("train.csv", "species")
    arguments = ["evaluate", "model.nearfar", "train.csv", "test.csv", "-t", "species"]
    report = json.loads(run(*arguments, "--retrieval", "--json").out)
    assert (report["k"], report["n_train"], report["n_test"]) == (10, 112, 38)
    assert (report["n_without_relevant"], report["among_themselves"]) == (0, False)
    assert [row["method"] for row in report["rows"]] == ["as they are", "standardised", "LMNN"]
    for row, metric in zip(
        report["rows"], (None, StandardScaler().fit(train.X), model), strict=True
    ):
        expected = retrieval_measures(
            train.X, train.y, test_points.X, test_points.y, k=10, metric=metric
        )
        for title, value in expected.as_dict().items():
            assert title.startswith("n_") or row[title] == value
        assert row["standard_errors"]["precision@10"] == expected.standard_errors["precision"]
    assert [row["dimensions"] for row in report["rows"]] == [4, 4, len(model.components_)]

    done = run(*arguments, "--retrieval", "-k", 5)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("38 test rows are searched for among 112 training rows\n")
    found = retrieval_measures(train.X, train.y, test_points.X, test_points.y, k=5, metric=model)
    lines = {
        title.strip(): cells.split("   ")
        for title, cells in (
            (line[:26], line[26:]) for line in done.out.splitlines() if " ± " in line
        )
    }
    assert list(lines) == [
        "precision@5",
        "recall@5",
        "hit rate@5",
        "mean reciprocal rank",
        "mean average precision",
        "nDCG@5",
        "R-precision",
    ]
    error = found.standard_errors["mean_average_precision"]
    cell = f"{found.mean_average_precision:.3f} ± {error:.3f}"
    assert lines["mean average precision"][-1].strip() == cell


def test_a_table_given_twice_is_searched_for_among_itself(run, model, test_points):
    arguments = ["evaluate", "model.nearfar", "test.csv", "./test.csv", "-t", "species"]
    report = json.loads(run(*arguments, "--retrieval", "--json").out)
    expected = retrieval_measures(test_points.X, test_points.y, metric=model)
    assert report["among_themselves"]
    assert report["rows"][2]["mean_average_precision"] == expected.mean_average_precision
    assert run(*arguments, "--retrieval").out.startswith("each of 38 rows is searched for among")
    built_in = json.loads(
        run("evaluate", "model.nearfar", "iris", "iris", "--retrieval", "--json").out
    )
    assert (built_in["among_themselves"], built_in["n_test"]) == (True, 150)


def test_rows_without_a_match_are_left_out_and_counted(run, folder):
    lines = (folder / "test.csv").read_text().splitlines()
    (folder / "few.csv").write_text("\n".join([*lines[:2], "1,2,3,4,unknown", "4,3,2,1,other"]))
    arguments = ["evaluate", "model.nearfar", "train.csv", "few.csv", "-t", "species"]
    done = run(*arguments, "--retrieval")
    assert (done.code, done.err) == (0, "")
    assert "left out, since no other row has their label: 2\n" in done.out
    assert "±" not in done.out  # of one query
    report = json.loads(run(*arguments, "--retrieval", "--json").out)
    assert report["n_without_relevant"] == 2
    assert report["rows"][0]["standard_errors"]["recall@10"] is None


def test_retrieval_needs_a_map(run, fails):
    table = ["train.csv", "-t", "species"]
    assert run("fit", *table, "--method", "multi-metric-lmnn", "-o", "m.nearfar").code == 0
    message = fails("evaluate", "m.nearfar", "train.csv", "test.csv", *table[1:], "--retrieval")
    assert "m.nearfar: a MultiMetricLMNN has no map of all points" in message
    assert "Leave --retrieval out" in message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train.csv", "test.csv"], "train.csv: no target is named"),
        (["train.csv", "numbers.csv", "-t", "species"], "they cannot be compared"),
        (["train.csv", "others.csv", "-t", "species"], "none of 1 queries has one"),
    ],
)
def test_retrieval_errors_are_one_line(fails, folder, arguments, message):
    header = (folder / "test.csv").read_text().splitlines()[0]
    (folder / "numbers.csv").write_text(f"{header}\n1,2,3,4,0\n")
    (folder / "others.csv").write_text(f"{header}\n1,2,3,4,unknown\n")
    assert message in fails("evaluate", "model.nearfar", *arguments, "--retrieval")


def test_the_example_of_the_page(run):
    """Its columns that do not depend on what was learned."""
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
    shown = page.partition("$ nearfar evaluate wine.nearfar wine wine --retrieval\n")[2]
    assert run("fit", "wine", "-o", "wine.nearfar").code == 0
    printed = run("evaluate", "wine.nearfar", "wine", "wine", "--retrieval").out
    columns = [
        [line[:58].rstrip() for line in text.partition("```")[0].splitlines()]
        for text in (shown, printed)
    ]
    assert [line for line in columns[0] if line] == [line for line in columns[1] if line]


@pytest.mark.parametrize("name", ["LMNN", "NCA", "RCA"])
def test_sparse_tables_and_models_of_sparse_points(run, name):
    """Transformed, and verified where there is a proof; what needs a dense table says so."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 12)
    X = sparse.random_array((36, 40), density=0.1, rng=rng, format="csr")
    X = sparse.csr_array(X + np.eye(40)[3 * y])
    model = getattr(nearfar, name)(n_components=2).fit(X, y)
    save(model, "sparse.nearfar")
    parts = {part: getattr(X, part) for part in ("data", "indices", "indptr", "shape")}
    np.savez("sparse.npz", **parts, y=y)
    done = run("transform", "sparse.nearfar", "sparse.npz", "-o", "images.npy")
    assert done.code == 0, done.err
    np.testing.assert_allclose(np.load("images.npy"), model.transform(X), atol=1e-12)
    done = run("verify", "sparse.nearfar", "sparse.npz")
    expected = "no proof: verify cannot check RCA" if name == "RCA" else "the objective is right"
    assert expected in done.out
    for command in (
        ("fit", "sparse.npz"),
        ("evaluate", "sparse.nearfar", "sparse.npz", "sparse.npz"),
    ):
        done = run(*command)
        assert done.code == 2
        assert "X is sparse: the file holds the arrays of a CSR matrix" in done.err
