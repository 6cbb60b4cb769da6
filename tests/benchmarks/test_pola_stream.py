"""The benchmark of streams: its command and its record."""

import json

from benchmarks import pola_stream


def test_smoke_run_passes(capsys):
    assert pola_stream.main(["--smoke"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["stream"] for row in rows] == list(pola_stream.KINDS)


def test_the_record_names_what_was_measured(tmp_path, capsys):
    path = tmp_path / "record.json"
    assert pola_stream.main(["--pairs", "250", "--batch", "100", "--out", str(path)]) == 0
    record = json.loads(path.read_text())
    assert {"machine", "threads", "dtype", "versions", "seed", "commit", "date"} < set(record)
    for row in record["measured"]:
        assert (row["pairs"], row["features"], row["batch"]) == (250, 50, 100)
        assert 0 < row["updates"] <= 250
        assert 0 <= row["auc"] <= 1
    assert capsys.readouterr().out.count("\n") == 3
