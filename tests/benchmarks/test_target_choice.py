"""The cost of a choice of target neighbours, on a small set."""

import json

import pytest

from benchmarks import target_choice
from nearfar import LMNN
from nearfar.evaluation import knn_error


@pytest.mark.slow
def test_the_whole(tmp_path, capsys):
    places = ["--record", str(tmp_path / "r.json"), "--page", str(tmp_path / "p.md")]
    assert target_choice.main([*places, "--sets", "digits", "--draws", "1"]) == 0
    (run,) = json.loads((tmp_path / "r.json").read_text())["runs"]
    assert run == json.loads(capsys.readouterr().out)
    X, y, X_test, y_test = target_choice.load("digits", 0)
    assert (run["rows"], run["features"]) == X.shape
    k = run["chosen"]
    model = LMNN(n_neighbors=k).fit(X, y)
    error = 100 * knn_error(model, X, y, X_test, y_test, n_neighbors=k)
    assert run["test errors"][str(k)] == pytest.approx(error, abs=1e-3)
    text = (tmp_path / "p.md").read_text()
    ratio = run["seconds"]["trials"] / run["seconds"]["usual fit"]
    assert f"| {ratio:.2f} |" in text
    assert f"| {error:.2f} |" in text
    assert target_choice.main([*places, "--table"]) == 0
    assert (tmp_path / "p.md").read_text() == text
