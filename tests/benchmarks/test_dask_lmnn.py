"""The benchmark of LMNN on a cluster writes its record and its page."""

import json

import numpy as np
import pytest

from benchmarks.dask import lmnn, workers

pytest.importorskip("distributed")


def on_cluster(path, shape, y, n_workers):
    del path, y
    return {
        "where": "cluster",
        "workers": n_workers,
        "seconds": 30.0 / n_workers,
        "processor_seconds": 31.0,
        "objective": 5.0,
        "gap": 1e-3,
        "iterations": 7,
        "status": "converged",
        "processor_seconds_of_workers": [15.0] * n_workers,
        "megabytes": 4e-6 * shape[0] * shape[1],
        "block_megabytes": 0.1,
        "n_blocks": 3,
        "growth_megabytes": [12.0] * n_workers,
    }


def in_memory(X, y):
    del X, y
    return {
        "where": "memory",
        "seconds": 10.0,
        "processor_seconds": 20.0,
        "objective": 5.0,
        "gap": 1e-3,
        "iterations": 7,
        "status": "converged",
    }


def test_record_and_page_are_written(tmp_path, monkeypatch):
    """The page is that of the record that was read again; two workers take 15 s, memory 10 s."""
    monkeypatch.setattr(lmnn, "on_cluster", on_cluster)
    monkeypatch.setattr(lmnn, "in_memory", in_memory)
    record, page = tmp_path / "record.json", tmp_path / "page.md"
    files = ["--record", str(record), "--page", str(page)]
    lmnn.main(["--data", "wine", "iris", *files])
    saved = json.loads(record.read_text())
    assert [run["data"] for run in saved["runs"]] == ["wine"] * 3 + ["iris"] * 3
    text = page.read_text()
    assert "| 2 workers | 15 | 31 | 1.50 | 1.55 | 7 | 5 | 1.0e-03 | 12 | 0 | 0 |" in text
    assert f"- {saved['runs'][0]['rows']} rows: 2.00 times as fast" in text
    assert f"The load was {saved['facts']['load']:.1f} on" in text
    page.unlink()
    lmnn.main(["--table", *files])
    assert page.read_text() == text


def test_the_peak_of_a_worker_counts_from_the_question_on():
    """An array of 80 MB that was dropped before does not count; one that is made later does."""
    if not workers.STATUS.exists():
        pytest.skip("needs /proc")
    dropped = np.ones(10**7)
    del dropped
    before = workers.memory_now()
    assert workers.peak_memory() - before < 40
    kept = np.ones(10**7)
    assert workers.peak_memory() - before >= 8e-6 * len(kept) - 1
