"""The record of MVU's dimension: a smoke run, and its measures on spectra and sheets."""

import json

import numpy as np

from benchmarks import mvu_dimension


def test_a_smoke_run(capsys):
    assert mvu_dimension.main(["--smoke"]) == 0
    row = json.loads(capsys.readouterr().out.splitlines()[0])
    assert (row["neighbors"], row["status"]) == (4, "converged")


def test_the_widest_gap_and_the_error(rng):
    assert mvu_dimension.widest_gap(np.array([8.0, 7.0, 0.1, 0.09, 0.0])) == 4
    assert mvu_dimension.widest_gap(np.array([8.0, 7.0, 0.1, 0.09, 0.05])) == 2
    sheet = rng.normal(size=(2, 20)) * [[5], [1]]
    turned = sheet.T @ np.array([[0.6, 0.8], [-0.8, 0.6]]) + 3
    assert mvu_dimension.sheet_error(turned, sheet) < 1e-12


def test_the_summary_leaves_out_rolls_that_did_not_unfold():
    row = {"neighbors": 4, "dimension": 2, "widest_gap": 1, "error": 0.1}
    found = mvu_dimension.summary([row, row | {"error": 0.9, "dimension": 3}])
    assert found["4 neighbors"]["rolls"] == 2
    assert found["4 neighbors"]["unfolded"] == 1
    assert (found["4 neighbors"]["dimension_is_2"], found["4 neighbors"]["widest_gap_is_2"]) == (
        1,
        0,
    )
