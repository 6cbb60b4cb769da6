"""Wrong labels on a small set."""

import json

import numpy as np

from benchmarks import suspicious_labels


def test_two_per_cent_of_the_labels_are_spoiled():
    y = np.arange(200) % 3
    labels, wrong = suspicious_labels.spoiled(y, 0)
    assert wrong.sum() == 4
    np.testing.assert_array_equal(labels != y, wrong)
    assert set(labels) <= {0, 1, 2}


def test_the_whole(tmp_path, capsys):
    places = ["--record", str(tmp_path / "r.json"), "--page", str(tmp_path / "p.md")]
    assert suspicious_labels.main([*places, "--sets", "wine", "--draws", "2"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    runs = json.loads((tmp_path / "r.json").read_text())["runs"]
    text = (tmp_path / "p.md").read_text()
    assert "| ranking | wine, 178 rows |" in text
    mean = 100 * np.mean([run["dual weights"] for run in runs])
    assert f"| dual weights | {mean:.1f} ± " in text
    (tmp_path / "p.md").unlink()
    assert suspicious_labels.main([*places, "--table"]) == 0
    assert (tmp_path / "p.md").read_text() == text
