"""``nearfar fit --dask``: Parquet files, a cluster of this machine or of an address, and errors."""

from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pandas
import pytest
from sklearn.datasets import load_wine

from nearfar import RCA
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


def test_a_cluster_of_this_machine(run, tables):
    del tables
    done = run(*FIT, "--dask", "--test-share", 0)
    assert done.code == 0, done.err
    assert "workers; dashboard: http" in done.err
    assert load("model.nearfar").components_.shape == (13, 13)
