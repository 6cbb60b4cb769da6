"""``nearfar fit --dask``: Parquet files, a cluster of this machine or of an address, and errors."""

from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas
import pytest
from sklearn.datasets import load_wine

from nearfar import LMNN, RCA
from nearfar.blocks.engine import Threads
from nearfar.io import load

pytest.importorskip("distributed")
pytestmark = pytest.mark.usefixtures("folder")


@pytest.fixture
def tables(folder):  # noqa: ARG001 - the files are written there
    """Wine in three files, in an order in which each has all classes."""
    X, y = load_wine(return_X_y=True)
    table = pandas.DataFrame(X, columns=[f"x{i}" for i in range(13)]).assign(label=y - 1, number=7)
    for part in range(3):
        table[part::3].to_parquet(f"wine{part}.parquet", index=False)
    return table.iloc[np.concatenate([np.arange(part, 178, 3) for part in range(3)])]


@pytest.fixture
def threads(monkeypatch):
    """Threads in place of processes, which take seconds to start; notes what was asked for."""
    asked = []

    @contextmanager
    def cluster(address, n_workers):
        asked.append((address, n_workers))
        yield SimpleNamespace(scheduler_info=lambda: {"workers": [1]}, dashboard_link="none")

    monkeypatch.setattr("nearfar.cli.fit_dask.cluster", cluster)
    return asked


FIT = ("fit", "wine*.parquet", "-t", "label", "--method", "rca", "--drop", "number")


def test_the_model_is_that_of_all_rows(run, tables, threads):
    done = run(*FIT, "--dask", "--test-share", 0)
    assert done.code == 0, done.err
    assert "13 features; rca: converged in" in done.out
    assert done.out.endswith("saved model.nearfar\n")
    assert done.err == "1 workers; dashboard: none\n"
    model = load("model.nearfar")
    assert model.feature_names_in_.tolist() == [f"x{i}" for i in range(13)]
    rows = tables.drop(columns=["label", "number"]).to_numpy()
    expected = RCA().fit(rows, tables["label"].to_numpy() + 5)  # the class -1 is a class
    np.testing.assert_allclose(model.components_, expected.components_, rtol=1e-6, atol=1e-9)
    assert threads[0][0] is None


def test_a_scaler_before_the_metric_and_errors_of_test_rows(run, tables, threads):
    del tables
    done = run(*FIT, "--scheduler", "tcp://somewhere:1", "--standardise", "--shrinkage", 0.1)
    assert done.code == 0, done.err
    assert "test rows: " in done.out
    assert "% by the Euclidean distance" in done.out
    scaler, metric = (step for _, step in load("model.nearfar").steps)
    assert scaler.n_samples_seen_ > 100
    assert metric.shrinkage_ == 0.1
    assert threads == [("tcp://somewhere:1", threads[0][1])]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--method", "lfda"), "--method lfda does not learn from tables in blocks. Choose from"),
        (("--rows", "5"), "--rows draws rows of a table in memory"),
        (("--target", "nothing"), "there is no column 'nothing'. Choose from: x0"),
        (("--drop", "nothing"), "there is no column 'nothing'"),
    ],
)
def test_what_does_not_go_with_a_cluster(run, tables, threads, arguments, message):
    del tables, threads
    done = run(*FIT, "--dask", *arguments)
    assert done.code == 2
    assert message in done.err


def test_columns_of_text_and_other_files_are_refused(run, tables, threads):
    del threads
    tables.assign(name="a").to_parquet("text.parquet")
    done = run("fit", "text.parquet", "-t", "label", "--dask")
    assert (done.code, "column 'name' holds" in done.err) == (2, True)
    done = run("fit", "wine.csv", "-t", "label", "--dask")
    assert (done.code, "--dask reads Parquet files" in done.err) == (2, True)
    done = run("fit", "none*.parquet", "-t", "label", "--dask")
    assert (done.code, "cannot read Parquet files" in done.err) == (2, True)


def test_lmnn_is_the_default_method_and_whole_floats_are_labels(run, folder, threads):
    """Files as pyarrow writes them; labels 0.0, 1.0 and 2.0 are classes."""
    del folder, threads
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow.parquet import write_table

    X, y = load_wine(return_X_y=True)
    for part in range(3):
        columns = {f"x{i}": X[part::3, i].astype(np.float32) for i in (0, 6, 9)}
        write_table(pyarrow.table(columns | {"label": y[part::3] * 1.0}), f"wine{part}.parquet")
    done = run("fit", "wine*.parquet", "-t", "label", "--dask", "--test-share", 0)
    assert done.code == 0, done.err
    assert "3 features; lmnn: converged in" in done.out
    order = np.concatenate([np.arange(part, len(y), 3) for part in range(3)])
    expected = LMNN().fit(X[order][:, [0, 6, 9]].astype(np.float32), y[order])
    assert load("model.nearfar").objective_ == pytest.approx(expected.objective_, rel=1e-3)


def change_columns(tables):
    tables.drop(columns="x3").to_parquet("wine2.parquet")


def change_target(tables):
    tables.drop(columns="label").to_parquet("wine0.parquet")


def change_type(tables):
    tables.astype({"x3": str}).to_parquet("wine1.parquet")


def change_labels(tables):
    for part in range(3):
        tables[part::3].assign(label=tables["label"] + 0.5).to_parquet(f"wine{part}.parquet")


def destroy(tables):
    del tables
    Path("wine1.parquet").write_bytes(b"PAR1, or not")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (change_columns, "wine0.parquet has a column 'x3', and"),
        (change_target, "wine1.parquet has a column 'label', and"),
        (change_type, "'x3' holds double in"),
        (change_labels, "target 'label' holds measurements, not class labels: "),
        (destroy, "wine1.parquet: cannot read Parquet files: "),
    ],
)
def test_files_that_do_not_go_together(run, tables, threads, change, message):
    """Seen before rows are read, but for measurements in place of labels."""
    del threads
    change(tables)
    done = run(*FIT, "--dask")
    assert done.code == 2
    assert message in done.err


def test_missing_values_of_test_rows(run, tables, threads, monkeypatch):
    """The training rows are whole, so that the model is learned and saved before they are seen."""
    del tables, threads

    def split(table, *_):
        return table, table._replace(X=table.X.assign(x3=np.nan))

    monkeypatch.setattr("nearfar.cli.fit_dask.split_table", split)
    done = run(*FIT, "--dask")
    assert done.code == 2
    assert "column 'x3' has missing or infinite values among the test rows" in done.err
    assert load("model.nearfar").n_features_in_ == 13


def test_a_scheduler_that_does_not_answer(run, tables, monkeypatch):
    del tables
    monkeypatch.setattr("nearfar.blocks.clusters.SECONDS", 0.5)
    done = run(*FIT, "--scheduler", "tcp://127.0.0.1:1")
    assert done.code == 2
    assert "no Dask scheduler answers at tcp://127.0.0.1:1" in done.err


def test_ctrl_c_ends_the_command(run, tables, threads, monkeypatch):
    del tables, threads

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Threads, "results", interrupted)
    done = run(*FIT, "--dask")
    assert (done.code, done.err.splitlines()[-1]) == (130, "nearfar: interrupted")


@pytest.mark.slow
def test_a_cluster_of_this_machine(run, tables):
    del tables
    done = run(*FIT, "--dask", "--test-share", 0)
    assert done.code == 0, done.err
    assert "workers; dashboard: http" in done.err
    assert load("model.nearfar").components_.shape == (13, 13)
