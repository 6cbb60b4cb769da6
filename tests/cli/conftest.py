"""A way to run the command, and small tables to run it on."""

from dataclasses import dataclass

import numpy as np
import pytest
from sklearn.datasets import load_iris

from nearfar.cli import main


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


@pytest.fixture
def run(capsys):
    def run(*arguments):
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        return Done(code, *capsys.readouterr())

    return run


@pytest.fixture
def fails(run):
    """Run a command that must end with one line, which is returned, and exit code 2."""

    def fails(*arguments):
        done = run(*arguments)
        assert done.code == 2
        assert done.out == ""
        assert done.err.startswith("nearfar: ")
        assert done.err.count("\n") == 1
        return done.err

    return fails


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder to work in, with the iris table in it, of which every fourth row is for testing."""
    monkeypatch.chdir(tmp_path)
    X, y = load_iris(return_X_y=True)
    names = ["setosa", "versicolor", "virginica"]
    lines = [",".join([*map(str, x), names[label]]) for x, label in zip(X, y, strict=True)]
    header = "sepal_length,sepal_width,petal_length,petal_width,species"
    is_test = np.arange(len(lines)) % 4 == 0
    for file, rows in {"iris": is_test | True, "train": ~is_test, "test": is_test}.items():
        chosen = [line for line, wanted in zip(lines, rows, strict=True) if wanted]
        (tmp_path / f"{file}.csv").write_text("\n".join([header, *chosen, ""]))
    return tmp_path
