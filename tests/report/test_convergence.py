"""How a report tells what was proved from what was estimated."""

import numpy as np
import pytest
from sklearn.datasets import make_swiss_roll

from nearfar import LMNN, NCA, POLA, VariationalMVU
from nearfar.report.progress import panels


def lines(model):
    """The lines about what is left to gain, by name."""
    return {line.name: line for panel in panels(model) for line in panel.lines if left(line.name)}


def left(name):
    return name.startswith(("certified", "estimated"))


def test_certified_gaps_stand_beside_estimates(wine):
    model = LMNN().fit(*wine)
    found = lines(model)
    assert set(found) == {"certified gap", "estimated gain left"}
    for name, certified in (("certified gap", True), ("estimated gain left", False)):
        rows = [row for row in model.history_ if (row["duality_gap"] is not None) == certified]
        expected = [row["residual"] for row in rows if row["residual"] is not None]
        np.testing.assert_array_equal(found[name].y, expected)


@pytest.mark.parametrize("model", [NCA(), LMNN(n_components=2)], ids=["NCA", "LMNN"])
def test_what_is_not_convex_has_estimates_only(model, wine):
    assert set(lines(model.fit(*wine))) == {"estimated gain left"}


def test_what_is_proved_of_a_program_is_not_said_of_its_refinement():
    model = VariationalMVU(random_state=0).fit(make_swiss_roll(200, random_state=0)[0])
    found = lines(model)
    assert set(found) == {"certified gap of the program", "estimated gain left"}
    program = [row for row in model.history_ if row["stage"] == "program"]
    assert len(found["certified gap of the program"].y) == len(program)


def test_the_page_calls_an_estimate_so(wine, written):
    text = written(NCA().fit(*wine), *wine).text
    assert "There is no certificate: nothing proves how far this is from the best answer;" in text
    assert "the gain that is left is an estimate." in text
    assert "estimated gain left" in text
    assert "certified gap" not in text.lower()


def test_the_page_of_a_proof(wine, written):
    text = written(LMNN().fit(*wine), *wine).text
    assert "The certified gap is" in text
    assert "estimated gain left certified gap" in text  # the key of the chart


def test_the_page_of_a_fit_that_estimates_nothing(wine, written):
    text = written(POLA(beta=1e3, random_state=0).fit(*wine), *wine).text
    assert "There is no certificate: nothing proves how far this is from the best answer." in text
    assert "estimate" not in text
