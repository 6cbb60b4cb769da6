"""mypy in its strict mode: the sources, and a user's program that names the public classes.

One run for both, since most of its time goes into NumPy's types. `dev.py lint` runs mypy on the
sources, with the same settings and cache.
"""

import importlib.resources
import importlib.util
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
from sklearn.base import BaseEstimator

import nearfar

ROOT = Path(__file__).parents[2]
ESTIMATORS = [
    name
    for name in nearfar.__all__
    if inspect.isclass(cls := getattr(nearfar, name)) and issubclass(cls, BaseEstimator)
]
PROGRAM = """\
import numpy as np
from numpy.typing import NDArray

import nearfar
from nearfar import LMNN, MVU, PairClassifier, RCA, Tuples, as_metric, load, make_pairs, save
from nearfar.evaluation import knn_error

X: NDArray[np.float64] = np.zeros((6, 2))
y = np.array([0, 0, 0, 1, 1, 1])

model = LMNN(n_neighbors=2, tol=1e-3).fit(X, y)
gap: float | None = model.duality_gap_
numbers: tuple[float | None, str, int] = (model.objective_, model.status_, model.n_iter_)
seconds: list[float] = [record["seconds"] for record in model.history_]
M: NDArray[np.float64] = model.get_mahalanobis_matrix()
distance: float = model.get_metric()(X[0], X[1], squared=True)
save(model, "model.nearfar")
images: NDArray[np.float64] = load("model.nearfar").transform(X)
threshold: float = PairClassifier(RCA()).fit(*make_pairs(X, y, 4)).threshold_
tuples: Tuples = make_pairs(X, y, 4)[0]
error: float = knn_error(as_metric(model), X, y, X, y, 3)
embedding: NDArray[np.float64] = MVU(n_neighbors=2).fit_transform(X)

LMNN(n_neighbours=3)
LMNN(tol="small")
nearfar.LNNM
wrong: str = model.n_iter_
""" + "".join(f"reveal_type(nearfar.{name}().fit(X, y))\n" for name in ESTIMATORS)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="mypy is not installed")
def test_the_sources_and_a_program_in_strict_mode(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "src", program], cwd=ROOT, capture_output=True, text=True
    )
    mistakes = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert [line for line in mistakes if "program.py" not in line] == [], done.stdout
    assert [re.search(r"\[([\w-]+)\]$", line)[1] for line in mistakes] == [
        "call-arg",
        "arg-type",
        "attr-defined",
        "assignment",
    ], done.stdout
    revealed = re.findall(r'Revealed type is "nearfar\.[\w.]+\.(\w+)"', done.stdout)
    assert revealed == ESTIMATORS


def test_the_marker_is_there():
    assert (importlib.resources.files("nearfar") / "py.typed").is_file()
