"""The gap of a sample on a small set."""

import json

import numpy as np
import pytest

from benchmarks import sampled_gap


def test_the_whole(tmp_path, capsys):
    places = ["--record", str(tmp_path / "r.json"), "--page", str(tmp_path / "p.md")]
    assert sampled_gap.main([*places, "--smoke"]) == 0
    capsys.readouterr()
    runs = json.loads((tmp_path / "r.json").read_text())["runs"]
    assert {run["missing"] for run in runs} == set(sampled_gap.MISSING)
    assert all(run["covered"] == 5 for run in runs)
    assert all(run["median_gap"] >= run["exact_gap"] for run in runs)
    text = (tmp_path / "p.md").read_text()
    (tmp_path / "p.md").unlink()
    assert sampled_gap.main([*places, "--table"]) == 0
    assert (tmp_path / "p.md").read_text() == text


def test_losses_by_definition():
    rng = np.random.default_rng(0)
    Z, y, targets = rng.normal(size=(30, 2)), np.arange(30) % 2, np.arange(30)[:, None] - 2
    loss, costs = sampled_gap.losses(Z, y, targets)
    squares = ((Z[:, None] - Z) ** 2).sum(axis=2)
    near = squares[np.arange(30), targets[:, 0]]
    expected = np.where(y[:, None] == y, 0, 1 + near[:, None] - squares).clip(0)
    assert loss.toarray() == pytest.approx(expected)
    assert costs == pytest.approx(1 + near)
