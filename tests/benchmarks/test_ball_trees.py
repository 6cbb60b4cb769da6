"""The benchmark of low dimensions and trees: its command, its record and its page."""

import json

import numpy as np
import pytest

from benchmarks.papers import ball_trees, ball_trees_page

FACTS = {
    "machine": {"cpu": "a chip", "cores": 2, "memory_gb": 8, "system": "Linux x86_64"},
    "versions": {"numpy": "2.4"},
    "seed": 0,
    "date": "today",
    "commit": "abc",
    "points": 60000,
    "queries": 1000,
}
TREES = {"ball_tree": 0.5, "kd_tree": 0.25, "ball_tree built": 1.0, "kd_tree built": 0.1}


@pytest.fixture
def record():
    """1000 queries take 2 s by products in 784 dimensions, 0.5 s by a ball tree in 15."""
    low = {"pca": 3.5, "lmnn_s": 2.5, "lmnn_r": 2.25, "seconds": 4.0, "status": "converged"}
    whole = {"raw": 2.4, "lmnn": 1.7, "lmnn seconds": 3.0, "inputs": 350, "gap": 1e-3, "rank": 90}
    return {
        "search": FACTS
        | {
            "measured": [
                {"dimensions": 784, "products": 2.0},
                {"dimensions": 15, "products": 0.2} | TREES,
            ]
        },
        "impostors": FACTS
        | {
            "measured": [
                {"dimensions": 5, "rank": 5, "impostors": 77, "all pairs": 3.0, "nearfar": 0.5}
                | {"pruned": True, "ball_tree": 1.5, "kd_tree": 6.0}
            ]
        },
        "low-rank": FACTS | {"measured": [{"dimensions": 784} | whole, {"dimensions": 15} | low]},
    }


def test_smoke_run_passes(capsys):
    assert ball_trees.main(["--smoke"]) == 0
    page = capsys.readouterr().out
    for title in ("## 3-NN search", "## Search for impostors", "## Errors in few dimensions"):
        assert title in page
    assert page.count("\n| 5 | ") == 3


def test_data_that_is_missing_is_named(monkeypatch, capsys):
    monkeypatch.delenv("NEARFAR_DATA", raising=False)
    assert ball_trees.main(["--part", "trees"]) == 2
    assert "mnist needs its data file, and NEARFAR_DATA is not set" in capsys.readouterr().err


def test_page_from_a_record(record):
    """2 s / 0.5 s is four times faster, and 0.5 ms a query."""
    page = ball_trees_page.page(json.loads(ball_trees.written(record)))
    assert "| 15 | 0.5 (4 x) | 0.25 (8 x) | 0.2 (10 x) | brute |" in page
    assert "takes 1 s at most" in page
    assert "| 5 | 77 | 3 | 1.5 (2 x) | 6 (0.5 x) | 0.5 (6 x) | blocks |" in page
    assert "| 15 | 3.50 | 2.50 | 2.25 | 2.38 | 4 x | 10 x | 15 x | 4 |" in page


def test_page_is_written_from_the_record_alone(record, tmp_path):
    path, page = tmp_path / "record.json", tmp_path / "page.md"
    del record["search"]
    path.write_text(ball_trees.written(record))
    assert ball_trees.main(["--page", "--results", str(path), "--to", str(page)]) == 0
    assert page.read_text() == ball_trees_page.page(record)
    assert "## 3-NN search" not in page.read_text()
    assert "| 15 | 3.50 | 2.50 | 2.25 | 2.38 |  |  | 15 x | 4 |" in page.read_text()


def test_a_part_replaces_only_itself(record, tmp_path, monkeypatch):
    path = tmp_path / "record.json"
    path.write_text(ball_trees.written(record))
    monkeypatch.setattr(ball_trees, "mnist", lambda _: ball_trees.digits())
    monkeypatch.setattr(ball_trees, "Sizes", lambda: ball_trees.SMOKE)
    places = ["--results", str(path), "--to", str(tmp_path / "page.md")]
    assert ball_trees.main(["--part", "search", *places]) == 0
    found = json.loads(path.read_text())
    assert found["low-rank"] == record["low-rank"]
    assert [row["dimensions"] for row in found["search"]["measured"]] == [64, 2, 5]


def test_rotated_points_keep_their_distances(rng):
    """The axes are orthonormal, and the first has most variance."""
    X = (rng.normal(size=(50, 4)) * [1, 2, 3, 4]).astype(np.float32)
    y = np.zeros(50, dtype=int)
    points = ball_trees.rotated((X, y), (X[:5], y[:5]))
    np.testing.assert_allclose(
        np.linalg.norm(points.train[:5] - points.test[:1], axis=1),
        np.linalg.norm(X[:5] - X[0], axis=1),
        rtol=1e-4,
        atol=1e-4,
    )
    assert (np.diff(points.train.var(axis=0)) < 0).all()


def test_answers_that_differ_end_the_benchmark(monkeypatch):
    """A search that misses a pair is found out."""
    search = ball_trees.on_numpy.impostor_pairs
    monkeypatch.setattr(
        ball_trees.on_numpy,
        "impostor_pairs",
        lambda *arguments: tuple(part[1:] for part in search(*arguments)),
    )
    with pytest.raises(RuntimeError, match="blocks have other impostors in 2 dimensions"):
        list(ball_trees.measure_impostors(ball_trees.digits(), ball_trees.SMOKE))


@pytest.mark.torch
def test_tensors_give_the_errors_of_arrays():
    """As on a GPU; "cpu:0" is torch's name of the host."""
    points = ball_trees.digits()
    arrays, tensors = (
        list(ball_trees.measure_low_rank(points, ball_trees.SMOKE, device))
        for device in ("cpu", "cpu:0")
    )
    for row, other in zip(arrays, tensors, strict=True):
        for name in ("raw", "pca", "lmnn", "lmnn_s", "lmnn_r"):
            if name in row:
                assert other[name] == pytest.approx(row[name], abs=0.6)
