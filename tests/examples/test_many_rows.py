"""Many rows: certified at every size, less memory than all pairs, better after learning."""

import re

import numpy as np
import pytest

from tests.examples.running import run_example, stand_in_or_data, voted


@pytest.fixture(scope="module", **stand_in_or_data("letter.npz"))
def ran(request):
    return run_example("many_rows", request.param)


def test_every_size_is_certified_and_helps(ran):
    sizes, errors = ran["sizes"], np.array(ran["errors"])
    assert all(ran["models"][n].duality_gap_ <= 1e-2 for n in sizes)
    assert (errors[:, 0] < errors[:, 1]).all()
    assert (errors[-1] < errors[0]).all()


def test_the_error_is_that_of_a_vote(ran):
    """Points at equal distances may be taken in another order."""
    for n, (_, given) in zip(ran["sizes"], ran["errors"], strict=True):
        vote = voted(ran["X_known"][:n], ran["y_known"][:n], ran["X_test"])
        assert given == pytest.approx(100 * np.mean(vote != ran["y_test"]), abs=0.6)


def test_memory_grows_less_than_all_pairs(ran):
    largest, megabytes = ran["sizes"][-1], ran["megabytes"]
    assert megabytes[-1] < 4 * largest**2 / 1e6 / 2
    assert megabytes[-1] / megabytes[0] < largest / ran["sizes"][0]


@pytest.mark.torch
def test_a_tensor_gives_the_same(ran):
    pytest.importorskip("torch", reason="pip install 'nearfar[torch]'")
    there, here = re.search(r"objective ([\d.]+) there, ([\d.]+) by NumPy", ran.text).groups()
    assert float(there) == pytest.approx(float(here), rel=1e-2)
    assert np.isfinite(float(there))
