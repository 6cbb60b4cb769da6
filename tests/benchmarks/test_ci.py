"""Benchmarks whose runs start many processes are tried by CI, not by the tests."""

from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / ".ci" / "run"


@pytest.mark.skipif(not SCRIPT.exists(), reason="not in the source archive")
@pytest.mark.parametrize(
    "program",
    ["lmnn", "metrics", "mvu", "dask.rca", "dask.graph", "dask.lmnn", "dask.memory"],
)
def test_ci_runs_the_whole_in_small(program):
    assert f" -m benchmarks.{program} --smoke\n" in SCRIPT.read_text(encoding="utf-8") + "\n"
