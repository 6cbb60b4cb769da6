"""The objective along a line is summed over some triplets at a time."""

import tracemalloc

import numpy as np
import pytest

from nearfar.problems import lmnn_objective, lmnn_triplets
from nearfar.problems.lmnn import LMNNProblem
from nearfar.problems.lmnn_triplets import Line

COUNT = 50_000


@pytest.fixture(params=[False, True], ids=["without weights", "with weights"])
def line(request, rng):
    s0, s1, s2, prox, weights = rng.random((5, COUNT))
    return Line(
        direction=np.eye(2),
        map=np.eye(2),
        edge_change=(s0, s0),
        pair_change=(s0, s0),
        pull=(1.0, 2.0, 3.0),
        left_out=0.5,
        slack=(s0 - 0.7, s1 - 0.5, s2 - 0.5),
        prox=prox,
        weights=weights if request.param else None,
        width=0.1,
        push_weight=0.3,
    )


def test_sums_do_not_depend_on_how_many_are_summed_at_a_time(line, monkeypatch):
    whole = line.at(0.7)
    monkeypatch.setattr(lmnn_triplets, "TRIPLETS_AT_A_TIME", 777)
    assert line.at(0.7) == pytest.approx(whole, rel=1e-11)


def test_memory_is_that_of_some_triplets(line, monkeypatch):
    """Less than one array as long as the triplets, where a value needs five and more."""
    monkeypatch.setattr(lmnn_triplets, "TRIPLETS_AT_A_TIME", COUNT // 50, raising=False)
    line.at(0.7)
    tracemalloc.start()
    try:
        line.at(0.7)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * COUNT


def test_parts_of_a_line_are_let_go_as_they_are_joined(rng, monkeypatch):
    """A line holds four numbers of a triplet, and one more while its parts are joined."""
    n = 300
    X, starts = rng.normal(size=(n, 3)), np.array([0, n // 2, n])
    heads = np.repeat(np.arange(n), 2)
    tails = np.array(
        [(i + k) % (n // 2) + i // (n // 2) * (n // 2) for i in range(n) for k in (1, 2)]
    )
    problem = LMNNProblem.build(X, X.mean(axis=0), (heads, tails), starts, 0.5)
    at = problem.survey(0.1 * np.eye(3), 1.0, 0.1)
    direction = rng.normal(size=(3, 3))
    count, pairs = len(at.triplets), len(at.triplets.heads)
    monkeypatch.setattr(lmnn_objective, "TRIPLETS_AT_A_TIME", count // 50)
    assert len(problem.line(at, direction).prox) == count  # all of them matter
    tracemalloc.start()
    try:
        problem.line(at, direction)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * 5 * count + 8 * 6 * pairs
