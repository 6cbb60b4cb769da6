"""The objective along a line is summed over some triplets at a time."""

import tracemalloc

import numpy as np
import pytest

from nearfar.problems import lmnn_triplets
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
