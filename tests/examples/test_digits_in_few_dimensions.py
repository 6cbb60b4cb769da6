"""Digits in few dimensions: the table is true and LMNN better by more than chance."""

import re

import numpy as np
import pytest

from tests.examples.running import run_example, voted


@pytest.fixture(scope="module")
def ran():
    return run_example("digits_in_few_dimensions")


def test_known_and_new_images_are_different_ones(ran):
    assert len(np.union1d(ran["known"], ran["new"])) == 1797
    assert len(np.intersect1d(ran["known"], ran["new"])) == 0


def test_the_table(ran):
    X, y, known, new = (ran[name] for name in ("X", "y", "known", "new"))
    rows = {
        name: np.array(re.findall(r"([\d.]+) ± ([\d.]+) %", line), dtype=float)
        for name in ("PCA", "LDA", "LMNN")
        for line in ran.text.splitlines()
        if line.startswith(name + " ")
    }
    for name, row in rows.items():
        for (error, standard_error), model in zip(row, ran["models"][name].values(), strict=True):
            vote = voted(model.transform(X[known]), y[known], model.transform(X[new]))
            assert error == pytest.approx(100 * np.mean(vote != y[new]), abs=0.051)
            spread = np.sqrt(error / 100 * (1 - error / 100) / len(new))
            assert standard_error == pytest.approx(100 * spread, abs=0.06)
    five = {name: row[1] for name, row in rows.items()}
    for other in ("PCA", "LDA"):
        gain = five[other][0] - five["LMNN"][0]
        assert gain > 2 * np.hypot(five[other][1], five["LMNN"][1])


def test_not_shortened_is_no_better(ran):
    plain, learned = re.findall(r"^(?:64 pixels.*|LMNN, not.*) ([\d.]+) %$", ran.text, re.MULTILINE)
    assert abs(float(plain) - float(learned)) < 0.7
    assert re.search(r"not shortened: converged, certified gap \d\.\de-0[4-9]", ran.text)
    assert ran["models"]["LMNN"][5][-1].duality_gap_ is None
