"""Large unfoldings: the judge against sums by hand, networks, a fit in a process, the page."""

import json

import numpy as np
import pytest

from benchmarks import common
from benchmarks.mvu import large, large_fit
from benchmarks.mvu.large_page import page

# -- the judge --


def square(rng):
    """Four corners, their sides and one diagonal, a little wrong."""
    truth = np.array([[0.0, 0], [2, 0], [2, 2], [0, 2]])
    heads, tails = np.array([0, 1, 2, 0, 0]), np.array([1, 2, 3, 3, 2])
    lengths = np.linalg.norm(truth[heads] - truth[tails], axis=1) * rng.uniform(0.9, 1.1, 5)
    return large_fit.Problem(None, heads, tails, lengths, truth)


def test_the_judge_by_hand(rng):
    """The Laplacian of a square with one diagonal has the eigenvalues 0, 2, 4, 4."""
    given, Y = square(rng), rng.normal(size=(4, 2))
    unit = np.mean(given.lengths**2)
    misfit = 0.0
    for i, j, length in zip(given.heads, given.tails, given.lengths, strict=True):
        misfit += ((np.sum((Y[i] - Y[j]) ** 2) - length**2) / unit) ** 2
    spread = sum(np.sum((y - Y.mean(axis=0)) ** 2) for y in Y) / unit
    found = large_fit.judge(given, Y, stretch=0.3, anchored=False)
    assert found["misfit_per_edge"] == pytest.approx(misfit / 5)
    assert large_fit.second_eigenvalue(given) == pytest.approx(2)
    assert found["objective"] == pytest.approx(2 * 0.3 * 2 * spread - misfit)


def test_errors_are_after_the_best_motion_unless_there_are_anchors(rng):
    truth = square(rng).truth
    turn = np.array([[0.6, 0.8], [0.8, -0.6]])
    moved = truth @ turn + 5
    np.testing.assert_allclose(large_fit.placing_errors(moved, truth, False), 0, atol=1e-10)
    np.testing.assert_allclose(
        large_fit.placing_errors(truth + np.array([0, 0.02]), truth, True), 1
    )


def test_a_row_that_does_not_agree_with_the_judge_is_a_fault():
    row = {"name": "x", "method": "sensors", "objective": -5.0, "reported_objective": -5.0}
    assert not list(large.faults(row | {"status": "converged"}))
    assert list(large.faults(row | {"reported_objective": -5.001})) == [
        "x: objective_ is -5.001, the judge finds -5"
    ]
    assert list(large.faults(row | {"status": "max_iter"})) == ["x: max_iter"]


# -- data --


def test_the_network_is_the_thesis_one():
    given = large_fit.problem("square500")
    lengths = np.linalg.norm(given.truth[given.heads] - given.truth[given.tails], axis=1)
    assert lengths.max() <= 0.06 * np.sqrt(20000 / 500)
    ratios = given.lengths / lengths
    assert 0.9 <= ratios.min() < 0.91
    assert 1.09 < ratios.max() <= 1.1
    assert given.n == len(given.truth) == 500
    degrees = np.bincount(np.concatenate([given.heads, given.tails]))
    assert degrees.min() >= 20  # each hears 20, and is heard by others
    assert len(given.heads) <= 20 * 500


def test_the_sheet_is_the_unrolled_roll():
    """Lengths of edges on the sheet are those of the roll, as far as it is flat between them."""
    given = large_fit.problem("roll3000")
    lengths = np.linalg.norm(given.truth[given.heads] - given.truth[given.tails], axis=1)
    assert np.median(given.lengths / lengths) == pytest.approx(1, abs=0.03)
    assert len(given.truth) == given.n == 3000


# -- the command --


def test_a_fit_in_a_process_of_its_own_and_its_page(tmp_path, monkeypatch, capsys):
    tasks = {name: large.SMOKE[name] for name in ("square300 sensors", "square300 program")} | {
        "cities sensors": large.TASKS["cities sensors"]
    }
    monkeypatch.setattr(large, "TASKS", tasks)
    monkeypatch.delenv("NEARFAR_DATA", raising=False)
    arguments = ["--results", str(tmp_path), "--page", str(tmp_path / "page.md"), "--machine", "m"]
    assert large.main(arguments) == 0
    assert "cities sensors: left out: " in capsys.readouterr().out
    record = json.loads((tmp_path / "mvu_large-m.json").read_text())
    rows = {row["name"]: row for row in record["rows"]}
    assert list(rows) == ["square300 sensors", "square300 program"]
    located, program = rows.values()
    assert located["median_error"] < 1.5 < program["median_error"]
    assert located["reported_objective"] == pytest.approx(located["objective"], rel=1e-9)
    assert program["gap"] <= 1e-4
    assert 0.3 < located["expected_error"] / located["median_error"] < 3
    text = (tmp_path / "page.md").read_text()
    assert "| square300 | sensors | 300 |" in text
    assert f"{located['median_error']:.3g}" in text
    assert large.main([*arguments, "--table"]) == 0
    assert (tmp_path / "page.md").read_text() == text


def test_an_unknown_task(capsys):
    with pytest.raises(SystemExit):
        large.parse(["--tasks", "roll7"])
    assert "no task 'roll7'" in capsys.readouterr().err


def test_the_page_in_the_documentation_is_that_of_the_records():
    paths = sorted((common.ROOT / "benchmarks" / "results").glob("mvu_large-*.json"))
    text = (common.ROOT / "docs" / "results" / "mvu_large.md").read_text()
    assert text == page([json.loads(path.read_text()) for path in paths])


def test_the_objective_of_mvu_by_hand():
    """Two points 3 apart, where 2 was given: the variance is 4.5, the change of the square 5."""
    heads, tails = np.array([0]), np.array([1])
    given = large_fit.Problem(np.zeros((2, 1)), heads, tails, np.array([2.0]), None)
    Y = np.array([[0.0], [3.0]])
    assert large_fit.judge_variance(given, Y, "equal") == pytest.approx(4.5)
    assert large_fit.judge_variance(given, Y, "slack") == pytest.approx(4.5 - 999 * 5)


@pytest.mark.parametrize(("bound", "meets"), [(101.0, True), (99.0, False)])
def test_intervals_of_both_solvers_have_to_meet(bound, meets):
    """The exact optimum is 100; a bound of 99 would contradict it."""
    rows = [
        {"name": "mvu9 equal exact", "objective": 100.0, "bound": 100.0, "embedding_gap": 1e-6},
        {"name": "mvu9 equal low rank", "objective": 97.0, "bound": bound, "embedding_gap": 0.1},
    ]
    assert bool(list(large.disagreements(rows))) is not meets


def test_tensors_are_for_large_rolls():
    assert large.tasks_of(large.parse(["--device", "cuda"])) == large.DEVICE_TASKS
    assert large.tasks_of(large.parse([])) == large.TASKS
    chosen = large.parse(["--device", "cuda", "--tasks", "roll10000 gap 1e-02"])
    assert set(chosen.tasks) <= set(large.tasks_of(chosen))
