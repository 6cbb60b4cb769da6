"""``nearfar fit`` from every kind of table, and everything that can be wrong with one."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas
import pytest
from sklearn.datasets import load_iris

from nearfar import LMNN, LinearMetric
from nearfar.cli import commands, fit
from nearfar.cli.output import print_comparison
from nearfar.errors import TimeLimitError
from nearfar.evaluation import compare_fitted, knn_error, split_points
from nearfar.io import load
from nearfar.progress import Lines

pytestmark = pytest.mark.usefixtures("folder")
X, Y = load_iris(return_X_y=True)


def test_the_built_in_table(run):
    done = run("fit", "iris", "--output", "iris.nearfar")
    assert done.code == 0
    assert done.err == ""
    assert "105 training and 45 test rows, 4 features, 3 classes" in done.out
    for method in ("Euclidean", "standardised", "LDA", "shrunk LDA", "LMNN *"):
        assert f"\n  {method} " in done.out
    assert "\n  LMNN, standardised " in done.out
    assert done.out.endswith(
        "* LMNN is this model\n"
        "No clear gain: keep the Euclidean distance; neither makes a mistake.\n"
    )
    assert "lmnn: converged after" in done.out
    assert "\nsaved iris.nearfar\n" in done.out
    model = load("iris.nearfar")
    assert model.feature_names_in_[0] == "sepal length (cm)"
    assert model.duality_gap_ <= 1e-3


def test_without_arguments_it_learns_digits(run):
    done = run("fit")
    assert done.code == 0, done.err
    assert "64 features, 10 classes" in done.out
    assert load("model.nearfar").n_features_in_ == 64


def test_the_table_shows_the_error_of_the_saved_model(run):
    done = run("fit", "iris", "--seed", 3, "--neighbors", 2, "--test-share", 0.4)
    split = split_points(X, Y, 0.4, 3)
    model = load("model.nearfar")
    del model.feature_names_in_  # else scikit-learn warns that arrays have no names
    error = knn_error(model, split.X_train, split.y_train, split.X_test, split.y_test, 2)
    (line,) = [line for line in done.out.splitlines() if line.strip().startswith("LMNN *")]
    assert "2-NN error" in done.out
    assert f" {100 * error:.2f} ± " in line
    assert f" {model.duality_gap_:.1e}" in line
    assert model.n_neighbors == 2


def test_options_reach_the_model(run):
    done = run(
        *("fit", "iris", "--components", 2, "--reduce", "project", "--push-weight", 0.3),
        *("--tol", 0.01, "--max-iter", 500, "--max-seconds", 60, "--seed", 5, "--method", "lmnn"),
    )
    assert done.code == 0, done.err
    model = load("model.nearfar")
    assert model.components_.shape == (2, 4)
    expected = {
        "n_components": 2,
        "reduce": "project",
        "push_weight": 0.3,
        "tol": 0.01,
        "max_iter": 500,
        "max_seconds": 60.0,
        "random_state": 5,
    }
    assert {name: getattr(model, name) for name in expected} == expected


def write_parquet(path):
    pytest.importorskip("pyarrow", reason="needs the cli extra")
    frame = pandas.DataFrame(X.astype(np.float32), columns=list("abcd"))
    frame.assign(kind=pandas.Categorical.from_codes(Y, ["u", "v", "w"])).to_parquet(path)


def write_csv(path):
    pandas.DataFrame(X, columns=list("abcd")).assign(kind=Y).to_csv(path, index=False)


@pytest.mark.parametrize(
    ("name", "write", "arguments"),
    [
        ("t.csv", write_csv, ["--target", "kind"]),
        ("t.parquet", write_parquet, ["-t", "kind"]),
        ("t.npy", lambda path: np.save(path, np.c_[X, Y]), []),
        ("first.npy", lambda path: np.save(path, np.c_[Y, X]), ["--target", "0"]),
        ("t.npz", lambda path: np.savez(path, X=X, y=Y), []),
        ("named.npz", lambda path: np.savez(path, X=X, kind=Y), ["--target", "kind"]),
    ],
)
def test_every_format_gives_the_same_metric(run, name, write, arguments):
    run("fit", "iris", "-o", "expected.nearfar")
    write(name)
    done = run("fit", name, *arguments)
    assert done.code == 0, done.err
    model, expected = load("model.nearfar"), load("expected.nearfar")
    np.testing.assert_allclose(
        model.get_mahalanobis_matrix(), expected.get_mahalanobis_matrix(), rtol=0.1, atol=0.5
    )
    assert model.components_.dtype == (np.float32 if "parquet" in name else np.float64)
    assert hasattr(model, "feature_names_in_") == name.endswith((".csv", ".parquet"))


def test_a_learned_rectangular_map_has_no_certificate(run):
    done = run("fit", "iris", "--components", 2, "--reduce", "learn")
    assert done.code == 0, done.err
    assert ", no certificate\n" in done.out
    assert "certified gap" not in done.out


def test_all_rows_without_a_test(run):
    done = run("fit", "iris", "--test-share", 0)
    assert done.code == 0
    assert "150 training and 0 test rows" in done.out
    assert "error" not in done.out


def test_warnings_are_lines_on_stderr(run):
    done = run("fit", "iris", "--max-iter", 1)
    assert done.code == 0
    assert done.err.startswith("warning: ")
    assert done.err.count("\n") == 1
    assert "lmnn: max_iter after 1 iterations" in done.out


def test_an_existing_output_needs_force(run, fails, folder):
    (folder / "model.nearfar").write_text("precious")
    assert "model.nearfar exists" in fails("fit", "iris")
    assert (folder / "model.nearfar").read_text() == "precious"
    assert run("fit", "iris", "--force").code == 0
    load("model.nearfar")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no.csv", "-t", "y"], "no.csv: No such file or directory. Check the path."),
        (["wines"], "wines: there is no such file. Give a file with its suffix, or a built-in set"),
        (["wines"], "breast_cancer, digits, iris, wine; did you mean 'wine'?"),
        (["iris", "-k", "106"], "--neighbors 106 is more than the number of training rows, 105."),
        (["."], "cannot tell the format"),
        (["iris.csv"], "Choose the target from: sepal_length, sepal_width"),
        (["iris.csv", "-t", "specie"], "there is no column 'specie'"),
        (["iris.csv", "-t", "specie"], "did you mean 'species'?"),
        (["iris.csv", "-t", "sepal_length"], "column 'species' holds text: 'setosa' in row 1"),
        (["iris", "-t", "species"], "--target species goes with a file"),
        (["iris", "--reduce", "learn"], "--reduce learn needs --components R"),
        (["iris", "--components", "9"], "9"),
        (["iris", "--test-share", "0.001"], "both sides need one"),
        (["iris.csv", "-t", "species", "-o", "iris.csv", "--force"], "iris.csv is an input too"),
        (["iris", "--checkpoint", "m", "-o", "m"], "m is an input too"),
        (["iris", "--checkpoint", "train.csv"], "'train.csv' is not a checkpoint of nearfar"),
        (["iris", "-o", "no/m.nearfar"], "cannot write to the folder no: No such file"),
        (["iris", "--checkpoint", "no/c.npz"], "cannot write to the folder no: No such file"),
        (["iris", "-o", "."], ". is a folder"),
    ],
)
def test_errors_are_one_line_and_write_nothing(fails, folder, arguments, message):
    before = sorted(os.listdir(folder))
    assert message in fails("fit", *arguments)
    assert sorted(os.listdir(folder)) == before


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.csv", b"", "the file is empty"),
        ("header.csv", b"a,y\n", "no rows below it"),
        ("binary.csv", b"\xff\xfe\x00", "not UTF-8 text"),
        ("text.csv", b"a,y\nred,1\n", "column 'a' holds text: 'red' in row 1"),
        ("hole.csv", b"a,y\n1,1\n,2\n", "the value in row 2 of column 'a' is missing"),
        ("twins.csv", b"a,a,y\n1,2,3\n", "2 columns are named 'a'"),
        ("price.csv", b"a,y\n1,0.5\n2,0.7\n", "holds measurements"),
        ("class.csv", b"a,y\n" + b"1,0\n2,0\n" * 9, "class"),
        ("bad.parquet", b"PAR1", "not a readable Parquet file"),
        ("bad.npy", b"\x93NUMPY", "not a readable NumPy file"),
        ("bad.npz", b"PK", "not a readable NumPy file"),
    ],
)
def test_bad_tables(fails, folder, name, content, message):
    (folder / name).write_bytes(content)
    assert message in fails("fit", name, "--target", "y")
    assert not (folder / "model.nearfar").exists()


def test_a_mistake_in_the_table_is_told_before_an_output_that_exists(fails, folder):
    (folder / "model.nearfar").touch()
    assert "no.csv: No such file or directory" in fails("fit", "no.csv")
    assert "model.nearfar exists" in fails("fit", "iris")
    message = fails("fit", "iris", "--output", "/proc/model.nearfar")
    assert "cannot write to the folder /proc" in message


@pytest.mark.skipif(not hasattr(LMNN, "set_callbacks"), reason="needs scikit-learn 1.9")
def test_an_interruption_saves_the_best_iterate(run, monkeypatch):
    def interrupt(_, text, __):
        if text.startswith("#3 "):
            raise KeyboardInterrupt

    monkeypatch.setattr(Lines, "show", interrupt)
    done = run("fit", "iris", "--tol", 0)
    assert done.code == 130
    assert "lmnn: interrupted after 3 iterations" in done.out
    assert "\nsaved model.nearfar\n" in done.out
    assert done.err.startswith("warning: ")
    assert load("model.nearfar").status_ == "interrupted"


@pytest.mark.skipif(os.name == "nt", reason="sends a POSIX signal")
def test_control_c_ends_the_program_with_130(folder):
    """A first checkpoint shows that the fit has an iterate."""
    options = ["--tol", "0", "--max-iter", "1000000", "--checkpoint", "c.npz"]
    command = [sys.executable, "-m", "nearfar", "fit", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + 60
        while not (folder / "c.npz").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"Traceback" not in err
    assert b"lmnn: interrupted" in out
    assert b"the fit of LMNN was interrupted" in out  # so that no other one follows
    assert load(folder / "model.nearfar").status_ == "interrupted"


def test_a_fit_resumes_from_its_checkpoint(run):
    first = run("fit", "iris", "--checkpoint", "c.npz", "-o", "first.nearfar")
    again = run("fit", "iris", "--checkpoint", "c.npz", "-o", "again.nearfar")
    assert (first.code, again.code) == (0, 0), first.err + again.err
    np.testing.assert_allclose(
        load("again.nearfar").components_, load("first.nearfar").components_, rtol=1e-6
    )


def test_defaults_are_those_of_the_page():
    options = {option.name: option.default for option in commands.fit.params}
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
    for option in ("method", "neighbors", "output", "seed", "test_share"):
        line = re.search(
            rf"^\|.*`--{option.replace('_', '-')}( FILE)?` \| `?(.*?)`? \|", page, re.M
        )
        assert line[2] == str(options[option])


@pytest.mark.skipif(os.name != "posix", reason="needs devices and pipes")
@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("option", ["--output", "--checkpoint"])
@pytest.mark.parametrize(("name", "kind"), [("p", "pipe"), ("link", "device")])
def test_what_is_no_file_is_not_replaced(fails, option, name, kind):
    os.mkfifo("p")
    os.symlink(os.devnull, "link")
    message = fails("fit", "iris", "--force", option, name)
    assert message == f"nearfar: {name} is a {kind}, and only a file is replaced. Name a file.\n"
    assert sorted(os.listdir()) == ["iris.csv", "link", "p", "test.csv", "train.csv"]


@pytest.mark.usefixtures("folder")
def test_results_do_not_go_to_standard_output(fails):
    assert "- is not a file: results are written to files" in fails("fit", "iris", "-o", "-")


@pytest.mark.skipif(os.name != "posix", reason="needs modes")
@pytest.mark.usefixtures("folder")
def test_a_private_model_stays_private(run):
    Path("m.nearfar").touch(0o600)
    assert run("fit", "iris", "-o", "m.nearfar", "--force").code == 0
    assert Path("m.nearfar").stat().st_mode & 0o777 == 0o600


# -- large tables ---


def test_a_large_table_is_told_what_it_costs(run, monkeypatch):
    """What was read and what it will cost comes before learning; the comparison takes a sample."""
    monkeypatch.setattr(fit, "LARGE_FILE", 0.001)
    monkeypatch.setattr(fit, "LARGE_WORK", 1e4)
    monkeypatch.setattr(fit, "operations_per_second", lambda: 441.0)
    monkeypatch.setattr(fit, "COMPARED_PAIRS", 105 * 20)
    monkeypatch.setattr(fit, "LEAST_TESTS", 1)
    done = run("fit", "iris.csv", "-t", "species", "--max-seconds", 60)
    assert done.code == 0, done.err
    first, second, third = done.err.splitlines()
    assert first == "reading iris.csv (0 MB)"
    assert re.fullmatch(r"read 150 rows and 4 features in \d+\.\d s", second)
    assert third == (
        "learning from 100 rows of 105, drawn at random: one look at all 5.0e+03 pairs takes up to"
        " about 91 s here; learning ends after --max-seconds 60, at the latest after twice that"
    )
    assert "; learned from 100 of the training rows\n" in done.out
    assert done.out.index("saved model.nearfar") < done.out.index("compared on 20 of 45 test rows")


def test_a_method_without_pairs_learns_from_all_rows(run, monkeypatch):
    monkeypatch.setattr(fit, "LARGE_WORK", 1.0)
    done = run("fit", "iris", "--method", "rca")
    assert done.code == 0, done.err
    assert "learning from" not in done.err


def test_without_a_limit_it_is_told_how_to_set_one(run, monkeypatch):
    monkeypatch.setattr(fit, "LARGE_WORK", 1e4)
    done = run("fit", "iris.csv", "-t", "species", "--rows", 60)
    assert "learning from 60 rows" in done.err
    assert "set --max-seconds to limit learning, or --rows to learn from fewer rows" in done.err
    assert "compared on" not in done.out


def test_learning_from_some_of_the_rows(run):
    done = run("fit", "iris", "--rows", 60)
    assert done.code == 0, done.err
    assert "105 training and 45 test rows" in done.out
    assert "; learned from 60 of the training rows\n" in done.out
    expected = load("model.nearfar").components_
    assert run("fit", "iris", "--rows", 60, "--force").code == 0
    np.testing.assert_array_equal(load("model.nearfar").components_, expected)
    done = run("fit", "iris", "--rows", 106, "--force")
    assert "learned from" not in done.out
    assert "--rows 106 is more than the 105 training rows: all of them are used" in done.err


def test_a_mistake_in_the_table_is_told_before_a_file_that_exists(fails):
    Path("model.nearfar").touch()
    assert "missing.csv: No such file" in fails("fit", "missing.csv")
    assert "model.nearfar exists. Give another name" in fails("fit", "iris")


def test_too_short_a_limit_is_told_in_a_line(fails, monkeypatch):
    def never(*_):
        raise TimeLimitError("max_seconds=1 is too short. Raise max_seconds, or fit to fewer rows.")

    monkeypatch.setattr(LMNN, "_learned", never)
    monkeypatch.setattr(fit, "operations_per_second", lambda: 4e9)
    assert fails("fit", "iris", "--max-seconds", 1) == (
        "nearfar: --max-seconds 1 is too short for a first answer on 105 rows. Raise it, or learn"
        " from fewer of them, for example --rows 4000.\n"
    )


def test_an_objective_that_is_not_known_in_time(run, monkeypatch):
    from nearfar.problems.lmnn import LMNNProblem

    def never(*_, **__):
        raise TimeLimitError("too late. Raise max_seconds.")

    monkeypatch.setattr(LMNNProblem, "_certified", never)
    done = run("fit", "iris", "--max-seconds", 60)
    assert done.code == 0, done.err
    assert "lmnn: max_seconds after" in done.out
    assert "objective not known in time, no certificate\n" in done.out
    assert load("model.nearfar").objective_ is None


def test_the_verdict_on_a_harmful_model_is_red(monkeypatch, capfd):
    """A learner that maps all points to noise."""
    random = np.random.default_rng(0)
    points = np.r_[random.normal(0, 1, (100, 3)), random.normal(9, 1, (100, 3))]
    split = split_points(points, np.arange(200) // 100, 0.5, 0)
    model = LinearMetric([[1.0, -1.0, 0.0]]).fit(split.X_train)
    print_comparison(compare_fitted(model, split), 3)
    plain = capfd.readouterr().out
    assert "\nDo not use LinearMetric: learning makes it worse, " in plain
    monkeypatch.setattr("click._compat.should_strip_ansi", lambda *_: False)
    monkeypatch.setattr("click.utils.should_strip_ansi", lambda *_: False)
    print_comparison(compare_fitted(model, split), 3)
    assert "\n\x1b[31m\x1b[1mDo not use LinearMetric: " in capfd.readouterr().out


@pytest.mark.parametrize("column", ["2.5", "{}"], ids=["constant", "the class"])
def test_a_baseline_that_cannot_be_computed_is_no_failure(run, column):
    rows = [f"{column.format(i % 3)},1,{i % 3}" for i in range(60)]
    Path("t.csv").write_text("\n".join(["a,b,label", *rows, ""]))
    done = run("fit", "t.csv", "-t", "label")
    assert done.code == 0
    assert "\nsaved model.nearfar\n" in done.out
    assert re.search(r"^  LDA +not computed *$", done.out, re.MULTILINE)
    assert "\nLDA was not computed: no class has two different training rows\n" in done.out


@pytest.mark.parametrize(
    ("option", "value"),
    [("test-share", "nan"), ("tol", "inf"), ("gamma", "inf"), ("max-seconds", "nan")],
)
def test_numbers_that_are_not_finite(fails, option, value):
    message = fails("fit", "iris", "--method", "mcml", f"--{option}", value)
    assert f"Invalid value for '--{option}': {value} is not a finite number." in message
    assert not Path("model.nearfar").exists()


@pytest.mark.parametrize("value", ["1", "-0.1", "nan", "some"])
def test_a_shrinkage_out_of_range(fails, value):
    message = fails("fit", "iris", "--shrinkage", value)
    assert f"'{value}' is neither auto nor a number from 0 to below 1." in message
    assert not Path("model.nearfar").exists()


# -- standardised features, columns ---------------------------------------------------------------


def test_features_in_different_units_are_standardised_aloud(run):
    done = run("fit", "wine")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(
        "standard deviations of features differ by a factor of 2.7e+03: they"
    )
    assert "--no-standardise takes them as they are\n" in done.out
    assert "\n* LMNN, standardised is this model\n" in done.out
    model = load("model.nearfar")
    assert [type(step).__name__ for step in model.named_steps.values()] == [
        "StandardScaler",
        "LMNN",
    ]
    assert model.feature_names_in_[0] == "alcohol"
    assert model[-1].duality_gap_ <= 1e-3
    assert run("verify", "model.nearfar", "wine").out.startswith("proved: ")
    assert run("report", "model.nearfar", "wine").code == 0
    assert run("transform", "model.nearfar", "wine", "-o", "o.npy").code == 0
    assert run("evaluate", "model.nearfar", "wine", "wine", "--retrieval").code == 0


@pytest.mark.parametrize("table", ["iris", "digits"])
def test_features_in_the_same_unit_are_taken_as_they_are(run, table):
    """Pixels differ in scale, too, but dividing by that makes neighbours worse."""
    done = run("fit", table, "--max-iter", 3)
    assert "standard deviations" not in done.out
    assert "\n* LMNN is this model\n" in done.out


@pytest.mark.parametrize(
    ("table", "option", "saved"),
    [("wine", "--no-standardise", False), ("iris", "--standardise", True)],
)
def test_standardising_as_asked(run, table, option, saved):
    done = run("fit", table, option)
    assert "standard deviations" not in done.out
    assert hasattr(load("model.nearfar"), "steps") == saved


def test_a_column_that_looks_like_an_identifier_is_named(run):
    lines = Path("iris.csv").read_text().splitlines()
    numbered = [f"patient no,{lines[0]}", *(f"{i + 7},{line}" for i, line in enumerate(lines[1:]))]
    Path("t.csv").write_text("\n".join(numbered))
    done = run("fit", "t.csv", "-t", "species")
    assert done.err == (
        "warning: column 'patient no' holds different whole numbers in order, as identifiers do,"
        " and would be learned from. Leave it out with --drop 'patient no', unless it is a"
        " measurement.\n"
    )
    done = run("fit", "t.csv", "-t", "species", "--drop", "patient no", "--force")
    assert (done.code, done.err) == (0, "")
    assert load("model.nearfar").n_features_in_ == 4
    done = run("evaluate", "model.nearfar", "train.csv", "test.csv", "-t", "species", "--json")
    assert done.code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["iris.csv", "-t", "species", "--drop", "petal"], "there is no column 'petal'"),
        (
            ["iris", "--drop", "petal"],
            "iris: there is no column 'petal'. Choose from: sepal length",
        ),
        (["t.npz", "--drop", "0"], "its columns have no names, so that 0 cannot be left out"),
    ],
)
def test_a_column_to_drop_must_exist(fails, arguments, message):
    np.savez("t.npz", X=X, y=Y)
    assert message in fails("fit", *arguments)


def test_text_can_be_dropped(run):
    rows = [f"{x[0]},{x[1]},name {i},{y}" for i, (x, y) in enumerate(zip(X, Y, strict=True))]
    Path("t.csv").write_text("\n".join(["a,b,who,kind", *rows, ""]))
    assert run("fit", "t.csv", "-t", "kind", "--drop", "who").code == 0
    assert load("model.nearfar").n_features_in_ == 2


def test_rows_held_out_stop_the_fit_early(run):
    assert run("fit", "iris", "--validation-fraction", 0.2).code == 0
    assert load("model.nearfar").validation_fraction == 0.2
