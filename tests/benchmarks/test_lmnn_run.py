"""The benchmark's command, its processes, and what it reads out of a history."""

import json
import os
import sys
from pathlib import Path

import pytest

from benchmarks import common, tables
from benchmarks.lmnn import table
from benchmarks.lmnn.__main__ import main

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def command(monkeypatch, capsys):
    """Runs the benchmark without data files: its exit code, and what it prints and tells."""
    monkeypatch.setenv("NEARFAR_DATA", "")

    def command(*arguments):
        capsys.readouterr()
        return main([*arguments]), *capsys.readouterr()

    return command


def nearfar_run(**facts):
    history = {
        "n_iter": [0, 1, 2, 3],
        "seconds": [0.1, 0.2, 0.3, 0.5],
        "objective": [90.0, 40.0, 50.0, 41.0],
        "duality_gap": [None, None, 0.2, 0.01],
        "active_triplets": [9, 8, 7, 6],
        "searched": [True, False, True, True],
    }
    return {
        "data": "iris",
        "program": "nearfar",
        "method": "nearfar, tol 1e-3",
        "options": {"tol": 1e-3},
        "rows": 105,
        "columns": 4,
        "status": "converged",
        "seconds": 0.6,
        "duality_gap": 0.001,
        "objective": 41.0,
        "commit": "abc",
        "date": "today",
        "dtype": "float32",
        "history": history,
        **facts,
    }


def peer_run(**facts):
    return {
        **nearfar_run(),
        "program": "pylmnn",
        "method": "pylmnn, 50 iterations",
        "seconds": 6.0,
        "objective": 50.0,
        "duality_gap": None,
        **facts,
    }


def test_unknown_peer_is_named(command, capsys):
    with pytest.raises(SystemExit, match="2"):
        command("--peers", "shogun")
    told = capsys.readouterr().err
    assert "no peer 'shogun'; expected some of pylmnn, metric-learn, mlpack" in told


def test_data_set_without_its_file_is_left_out_with_the_reason(command, tmp_path):
    places = ["--results", str(tmp_path), "--page", str(tmp_path / "page.md")]
    code, printed, _ = command("--data", "letter", "--peers", "", *places)
    assert code == 0
    assert "letter: left out: letter needs its data file, and NEARFAR_DATA is not set" in printed


def test_seconds_at_an_iteration_count_what_fit_does_outside_of_them():
    """fit took 0.6 s, its last iteration ended at 0.5 s: 0.1 s belong to every iteration."""
    run = nearfar_run()
    assert tables.first_at_or_below(run["history"], 50.0) == 1
    assert tables.first_at_or_below(run["history"], 1.0) is None
    assert tables.seconds_at(run, 1) == pytest.approx(0.3)
    assert tables.seconds_at(run, 3) == pytest.approx(0.6)


def test_seconds_to_gap():
    """0.2 and 0.01 are in the history; 0.001 is proved only by the end of fit."""
    run = nearfar_run()
    assert table.seconds_to_gap(run, 0.2) == pytest.approx(0.4)
    assert table.seconds_to_gap(run, 0.01) == pytest.approx(0.6)
    assert table.seconds_to_gap(run, 0.001) == 0.6
    assert table.seconds_to_gap(run, 1e-4) is None


def test_cost_between_searches():
    """One iteration made no search: from 0.1 s to 0.2 s. Two made one: 0.1 s and 0.2 s."""
    found = table.between_searches(nearfar_run()["history"])
    assert found["seconds"] == pytest.approx(0.1)
    assert found["active_triplets"] == 8
    assert found["search_seconds"] == pytest.approx(0.15)
    assert found["searches"] == 2


def test_page_from_a_record():
    """The peer's 50 in 6 s are reached after 0.3 s: 20 times faster."""
    reached = {"n_iter": 1, "seconds": 0.3, "objective": 49.5}
    killed = {"status": "killed", "limit": 240, "method": "mlpack, L-BFGS", "program": "mlpack"}
    over = {key: value for key, value in peer_run(**killed).items() if key != "objective"}
    record = {
        "machine": {"cpu": "a chip", "cores": 2, "memory_gb": 8, "system": "Linux x86_64"},
        "threads": 2,
        "seed": 0,
        "limit": 240,
        "runs": [peer_run(nearfar=reached), over, nearfar_run()],
        "scaling": [nearfar_run()],
    }
    page = table.page([json.loads(json.dumps(record))])
    assert "| iris 105 x 4 | mlpack, L-BFGS | over 240 |" in page
    assert "| **pylmnn, 50 iterations** | **50** | **6** | **0.3** | **20 x** | **49.5** |" in page
    assert "| iris | 0.6 | 0.6 | 0.6 | 1.0e-03 |" in page


def test_table_is_written_from_the_records_alone(command, tmp_path):
    page = tmp_path / "page.md"
    code, _, _ = command("--table", "--results", str(tmp_path), "--page", str(page))
    assert code == 0
    assert page.read_text() == table.INTRODUCTION


def measured(tmp_path, code, limit):
    return common.run_measured(
        [sys.executable, "-c", code],
        log=tmp_path / "log",
        started=tmp_path / "started",
        limit=limit,
        environment=dict(os.environ),
    )


def test_process_past_its_limit_is_killed(tmp_path):
    started = str(tmp_path / "started")
    ended = tmp_path / "ended"
    code = (
        f"import pathlib, time; pathlib.Path({started!r}).touch(); time.sleep(60);"
        f" pathlib.Path({str(ended)!r}).touch()"
    )
    outcome = measured(tmp_path, code, limit=0.5)
    assert outcome.killed
    assert not ended.exists()


def test_measured_process_answers_with_its_peak_and_exit_code(tmp_path):
    """300 MB are held at once, so the peak is larger; the exit code is the process's own."""
    outcome = measured(tmp_path, "x = bytearray(b'1') * 300_000_000; raise SystemExit(3)", limit=60)
    assert not outcome.killed
    assert outcome.returncode == 3
    assert outcome.peak_mb > 300


@pytest.mark.parametrize(
    ("version", "pin", "expected"),
    [
        ("2.4.6", "2.4.*", True),
        ("2.40.1", "2.4.*", False),
        ("1.2.2", "1.2.2", True),
        ("1", "*", True),
    ],
)
def test_pins(version, pin, expected):
    assert common._matches(version, pin) is expected
