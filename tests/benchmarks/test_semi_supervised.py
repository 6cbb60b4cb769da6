"""Ten labels a class and many rows without one."""

import numpy as np
import pytest

from benchmarks import semi_supervised


def test_draws_hold_ten_labels_a_class_and_no_row_twice():
    X, given, truth, X_new, y_new = semi_supervised.draw("digits", 1, None)
    known = given >= 0
    assert np.bincount(given[known]).tolist() == [10] * 10
    np.testing.assert_array_equal(given[known], truth[known])
    assert len(X) + len(X_new) == 1797
    assert len(np.unique(np.concatenate([X, X_new]), axis=0)) == 1797
    assert len(y_new) == len(X_new) == 565


def test_the_page_compares_the_same_draws_and_marks_what_is_worse():
    """Errors of the draws 0 and 1 differ by +2 and +4 points: +3 ± 1; the third is not shared."""
    methods = list(semi_supervised.METHODS)
    splits = {
        method: [[0, 0.10, 0.1, 0.1, 0.1, 1.0, 0.05], [1, 0.20, 0.2, 0.2, 0.2, 1.0, 0.05]]
        for method in methods
    }
    splits["inputs"] = [[0, 0.12, 0.1, 0.1, 0.1, 0.0, None], [1, 0.24, 0.2, 0.2, 0.2, 0.0, None]]
    splits["inputs"].append([2, 0.9, 0.9, 0.9, 0.9, 0.0, None])
    rows = [
        {"data": "usps", "method": method, "stamps": ["abc 2026-01-01 cpu"], "splits": found}
        for method, found in splits.items()
    ]
    machine = {"cpu": "a processor", "cores": 2, "memory_gb": 8, "system": "Linux"}
    text = semi_supervised.page([{"machine": machine, "versions": {"numpy": "2"}, "rows": rows}])
    assert "### usps, 2 draws" in text
    assert "| inputs | **18.0 (+3.0 ± 1.0)** | 15.0 (+0.0 ± 0.0) |" in text
    assert "| LMNN(), labelled rows | 15.0 | 15.0 | 15.0 | 15.0 | 1.0 |" in text
    assert "Of the 4 errors on 1 of the sets with many unlabelled rows" in text
    assert "lower 0 by more than a standard error, and raise 0; the mean change is +0.0" in text
    assert "wrong in 5.0 % of the unlabelled rows" in text
    assert "### digits" not in text
    assert "abc 2026-01-01 cpu" in text


def test_the_whole(tmp_path, capsys):
    places = ["--results", str(tmp_path), "--page", str(tmp_path / "p.md"), "--machine", "x"]
    some = [*places, "--sets", "iris,texts", "--draws", "1"]
    assert semi_supervised.main(some) == 0
    assert "texts: left out: --texts must name" in capsys.readouterr().out
    assert "### iris, 1 draws" in (tmp_path / "p.md").read_text()
    (tmp_path / "p.md").unlink()
    assert semi_supervised.main([*places, "--table"]) == 0
    assert "### iris, 1 draws" in (tmp_path / "p.md").read_text()
    with pytest.raises(SystemExit):
        semi_supervised.main(["--sets", "none"])
