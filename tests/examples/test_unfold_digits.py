"""The unfolded digits: what is printed is what was proved."""

import re

import pytest

from tests.examples.running import run_example


def test_the_numbers_are_those_of_the_model():
    ran = run_example("unfold_digits")
    model = ran["unfolding"]
    whole, plane = map(float, re.findall(r"dimensions: +(\S+)$", ran.text, re.MULTILINE))
    assert whole == pytest.approx(model.whole_gap_, rel=0.05)
    assert plane == pytest.approx(model.duality_gap_, rel=0.05)
    assert whole <= 1e-3 < plane
    assert f"{len(ran['X'])} images, {model.graph_.n_edges} edges" in ran.text
    assert "certified gap" in ran["display"].ax_.get_title()
