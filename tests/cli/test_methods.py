"""``--method``: every learner, with the options that apply to it and no others."""

import inspect
import json
import re
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_iris

import nearfar
from nearfar import (
    LMNN,
    RCA,
    LinearMetric,
    MultiMetricLMNN,
    NearestNeighborClassifier,
    PairClassifier,
    make_pairs,
    progress,
)
from nearfar.cli import commands, methods
from nearfar.cli.methods import METHODS, PARAMETERS, make_model, taken_by, written
from nearfar.datasets import load_table
from nearfar.errors import InvalidInputError
from nearfar.estimators._kernel import TAKES
from nearfar.estimators.multi_metric_lmnn import PARTITIONS
from nearfar.evaluation import knn_error, split_points
from nearfar.io import load, save

pytestmark = pytest.mark.usefixtures("folder")
X, Y = load_iris(return_X_y=True)
each_method = pytest.mark.parametrize("method", METHODS)
# A value for each option, as it is typed and as the parameter has it.
VALUES = {
    "push_weight": ("0.3", 0.3),
    "components": ("2", 2),
    "reduce": ("project", "project"),
    "diagonal": (None, True),
    "passes": ("2", 2),
    "partition": ("kmeans", "kmeans"),
    "metrics": ("2", 2),
    "kernel": ("linear", "linear"),
    "gamma": ("0.5", 0.5),
    "rank": ("0.9", 0.9),
    "max_directions": ("9", 9),
    "pca": ("3", 3),
    "shrinkage": ("0", 0.0),
    "pairs": ("50", 50),
    "triplets": ("50", 50),
    "quadruplets": ("50", 50),
    "beta": ("0", 0.0),
    "solver": ("lecture", "lecture"),
    "tol": ("0", 0.0),
    "certificate": ("sample", "sample"),
    "max_iter": ("7", 7),
    "max_seconds": ("9.5", 9.5),
    "validation_fraction": ("0.2", 0.2),
    "checkpoint": ("c.npz", Path("c.npz")),
}


def typed(option):
    value = VALUES[option][0]
    return [written(option)] if value is None else [written(option), value]


def quick(method):
    """Options that make a fit short."""
    limits = {"max_iter": 20, "pairs": 300, "rank": 20, "max_directions": 20}
    if "pola" in method:
        limits["max_iter"] = 1
    chosen = [option for option in limits if option in taken_by(method)]
    return [word for option in chosen for word in (written(option), limits[option])]


@each_method
def test_every_method_learns_saves_and_compares(run, method):
    """The row of the table is the error of the model in the file, found by other means."""
    done = run("fit", "iris", "--method", method, "--seed", 3, "-k", 2, *quick(method))
    assert done.code == 0, done.err
    assert all(line.startswith("warning: ") for line in done.err.splitlines())
    assert f"\n{method}: " in done.out
    for baseline in ("Euclidean", "standardised", "LDA", "shrunk LDA"):
        assert f"  {baseline} " in done.out
    model, split = load("model.nearfar"), split_points(X, Y, 0.3, 3)
    assert type(model).__name__ == METHODS[method]
    assert model.feature_names_in_[0] == "sepal length (cm)"
    del model.feature_names_in_  # else scikit-learn warns that arrays have no names
    if method == "multi-metric-lmnn":
        error = np.mean(model.predict(split.X_test) != split.y_test)
    else:
        error = knn_error(model, split.X_train, split.y_train, split.X_test, split.y_test, 2)
    (line,) = [line for line in done.out.splitlines() if line.split()[:2] == [METHODS[method], "*"]]
    assert f" {100 * error:.2f} ± " in line
    if model.duality_gap_ is None:
        assert ", no certificate\n" in done.out
    else:
        assert f"certified gap {model.duality_gap_:.1e}\n" in done.out
        assert f" {model.duality_gap_:.1e}" in line
    iterations = f"{model.n_iter_} iterations" if model.n_iter_ else "without iterations"
    assert iterations in done.out
    shared = {"n_neighbors": 2, "random_state": 3}
    parameters = model.get_params()
    assert {name: parameters[name] for name in shared if name in parameters} == {
        name: value for name, value in shared.items() if name in parameters
    }


@each_method
@pytest.mark.parametrize("option", PARAMETERS)
def test_an_option_reaches_the_model_or_is_refused(method, option, fails, folder):
    value = VALUES[option][1]
    if option in taken_by(method):
        model = make_model(method, {option: value}, 4, 5)
        assert getattr(model, PARAMETERS[option]) == value
        return
    message = fails("fit", "iris", "--method", method, *typed(option))
    assert f"{written(option)} does not go with --method {method}, which takes " in message
    assert message.count(" and --") == (len(taken_by(method)) > 1)
    for other in taken_by(method):
        assert written(other) in message
    assert not (folder / "model.nearfar").exists()


@pytest.mark.parametrize(
    ("takes", "expected"),
    [
        ([], "which takes no such option. Leave it out"),
        (["tol"], "which takes --tol. Leave it out"),
        (["tol", "rank"], "which takes --tol and --rank. Leave it out"),
        (["tol", "rank", "beta"], "which takes --tol, --rank and --beta. Leave it out"),
    ],
)
def test_the_message_for_a_method_with_few_options(monkeypatch, takes, expected):
    monkeypatch.setattr(methods, "taken_by", lambda _: {option: option for option in takes})
    with pytest.raises(InvalidInputError, match=re.escape(expected)):
        make_model("rca", {"pca": 2}, 3, 0)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ["rca", "--components", "2", "--pca", "0.9", "--shrinkage", "0.1"],
            {"n_components": 2, "pca_components": 0.9, "shrinkage": 0.1},
        ),
        (["rca", "--pca", "3", "--shrinkage", "auto"], {"pca_components": 3, "shrinkage": "auto"}),
        (["nca", "--diagonal", "--tol", "0.01"], {"diagonal": True, "tol": 0.01}),
        (["mmc", "--pairs", "60", "--seed", "4"], {"n_pairs": 60, "random_state": 4}),
        (["pola", "--pairs", "60", "--max-iter", "2"], {"n_pairs": 60, "max_iter": 2}),
        (["scml", "--triplets", "60"], {"n_triplets": 60}),
        (["lsml", "--quadruplets", "60"], {"n_quadruplets": 60}),
        (
            ["kernel-lmnn", "--kernel", "rbf", "--gamma", "0.2", "--rank", "5", "--tol", "0.1"],
            {"kernel": "rbf", "gamma": 0.2, "rank": 5, "tol": 0.1},
        ),
        (
            ["multi-metric-lmnn", "--partition", "kmeans", "--metrics", "2", "--tol", "0.5"],
            {"partition": "kmeans", "n_metrics": 2, "n_neighbors": 3},
        ),
        (["lmnn", "--tol", "0", "--max-iter", "3"], {"tol": 0.0, "max_iter": 3}),
        (["dml-eig", "--solver", "lecture", "--max-iter", "3"], {"solver": "lecture"}),
    ],
)
def test_what_is_typed_is_what_is_saved(run, arguments, expected):
    done = run("fit", "iris", "--method", *arguments)
    assert done.code == 0, done.err
    model = load("model.nearfar")
    assert {name: getattr(model, name) for name in expected} == expected
    assert all(type(getattr(model, name)) is type(value) for name, value in expected.items())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["lda"], "'lda' is not one of 'lmnn', 'multi-metric-lmnn', 'kernel-lmnn'"),
        (["rca", "--tol", "1", "--pairs", "3"], "--pairs and --tol do not go with --method rca"),
        (["rca", "--tol", "1", "--pairs", "3"], "Leave them out"),
        (["rca", "--pca", "0"], "'0' is neither a count from 1 nor a share between 0 and 1"),
        (["rca", "--pca", "1.5"], "'1.5' is neither a count"),
        (["kernel-mmc", "--rank", "few"], "'few' is neither a count"),
        (["kernel-mmc", "--kernel", "precomputed"], "'precomputed' is not one of 'linear'"),
        (["mcml", "--solver", "magic"], "solver must be one of"),
        (["mcml", "--reduce", "learn"], "--reduce learn needs --components R"),
        (["rca", "--pca", "5"], "pca_components must be an integer from 1 to 4; got 5"),
    ],
)
def test_wrong_options_are_one_line(fails, folder, arguments, message):
    assert message in fails("fit", "iris", "--method", *arguments)
    assert not (folder / "model.nearfar").exists()


def test_choices_are_those_of_the_library():
    choices = {option.name: getattr(option.type, "choices", None) for option in commands.fit.params}
    assert set(choices["kernel"]) == set(TAKES)
    assert set(choices["partition"]) == set(PARTITIONS) - {"given"}


def test_the_page_tells_options_and_defaults_of_every_method():
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
    missing = []
    for method, name in METHODS.items():
        parameters, cells = inspect.signature(getattr(nearfar, name)).parameters, []
        for option, parameter in taken_by(method).items():
            default = parameters[parameter].default
            shown = "" if default is None or default is False else f" {default}"
            cells.append(f"`{written(option)}{shown}`")
        row = f"| `{method}` | `{name}` | {' '.join(cells)} |\n"
        missing += [] if row in page else [row]
    assert not missing, "add to docs/cli.md:\n" + "".join(missing)
    for option in PARAMETERS:
        assert f"`{written(option)}" in page.partition("| option | meaning |")[2]


def test_rca_learns_from_labels_that_mean_none_elsewhere(run):
    """-1 and +1 are two classes, though chunklet -1 is none."""
    kinds = np.where(Y[:100] == 0, -1, 1)
    np.savez("t.npz", X=X[:100], y=kinds)
    done = run("fit", "t.npz", "--method", "rca", "--test-share", 0)
    assert done.code == 0, done.err
    assert "4 features, 2 classes" in done.out
    model = load("model.nearfar")
    assert model.n_chunklets_ == 2
    np.testing.assert_allclose(model.components_, RCA().fit(X[:100], Y[:100]).components_)


@pytest.mark.skipif(not hasattr(LMNN, "set_callbacks"), reason="needs scikit-learn 1.9")
@pytest.mark.parametrize("method", [name for name in METHODS if "max_iter" in taken_by(name)])
def test_every_method_that_iterates_shows_it(run, method, monkeypatch):
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", 0.0)
    done = run("fit", "iris", "--method", method, "--test-share", 0, *quick(method))
    lines = [line for line in done.err.splitlines() if not line.startswith("warning: ")]
    assert len(lines) == load("model.nearfar").n_iter_
    assert lines[0].startswith("#1 objective ")


# -- what the models are for ---------------------------------------------------------------------


@pytest.fixture
def tables():
    """The training and the test table."""
    return [load_table(f"{name}.csv", "species") for name in ("train", "test")]


EVALUATE = ["evaluate", "m.nearfar", "train.csv", "test.csv", "-t", "species"]


def evaluated(run, *options):
    done = run(*EVALUATE, "--json", *options)
    assert done.code == 0, done.err
    return json.loads(done.out)


def test_evaluate_a_model_without_a_number_of_neighbours(run, tables):
    train, test = tables
    save(RCA().fit(train.X, train.y), "m.nearfar")
    report = evaluated(run)
    assert report["n_neighbors"] == 3
    expected = knn_error(RCA().fit(train.X, train.y), train.X, train.y, test.X, test.y, 3)
    assert report["rows"][4]["error"] == expected
    assert evaluated(run, "-k", 5)["n_neighbors"] == 5


@pytest.mark.parametrize(
    "classifier",
    [MultiMetricLMNN(n_neighbors=2, tol=0.1), NearestNeighborClassifier(LMNN(tol=0.1))],
)
def test_evaluate_a_classifier(run, fails, tables, classifier):
    train, test = tables
    classifier.fit(train.X, train.y)
    save(classifier, "m.nearfar")
    row = evaluated(run)["rows"][4]
    assert row["method"] == type(classifier).__name__
    assert row["error"] == np.mean(classifier.predict(test.X) != test.y)
    assert evaluated(run, "-k", classifier.n_neighbors)["rows"][4] == row
    assert "--neighbors 7 does not go with a" in fails(*EVALUATE, "-k", 7)
    message = fails("transform", "m.nearfar", "test.csv", "-o", "o.csv")
    assert f"m.nearfar: a {type(classifier).__name__} has no map of all points" in message


def test_evaluate_a_classifier_of_other_labels(fails, tables):
    train, _ = tables
    codes = np.unique(train.y, return_inverse=True)[1]
    save(NearestNeighborClassifier(LinearMetric()).fit(train.X, codes), "m.nearfar")
    message = fails(*EVALUATE)
    assert "none of its labels is known to the model, which predicts 0, 1, 2" in message


def test_a_classifier_of_pairs_lends_its_metric(run, tables):
    train, test = tables
    pairs, kinds = make_pairs(train.X, train.y, 200, random_state=0)
    classifier = PairClassifier(RCA()).fit(pairs, kinds)
    save(classifier, "m.nearfar")
    assert evaluated(run)["rows"][4]["method"] == "RCA"
    assert run("transform", "m.nearfar", "test.csv", "-o", "o.npy", "-t", "species").code == 0
    np.testing.assert_allclose(np.load("o.npy"), classifier.metric_.transform(test.X))
