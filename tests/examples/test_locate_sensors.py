"""The example of located sensors: what it says is true, with and without the cities."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "maps" / "locate_sensors.py"
CITIES = Path(os.environ.get("NEARFAR_DATA", "")) / "us_cities.npz"


@pytest.fixture(scope="module")
def ran():
    """All names of the example, run on its stand-in."""
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEARFAR_DATA", "")
        return runpy.run_path(str(SCRIPT))


def test_the_network_is_what_the_sensors_measure(ran):
    graph, places = ran["network"](ran["places"], 0.12, 0.1, seed=1)
    lengths = np.linalg.norm(places[graph.heads] - places[graph.tails], axis=1)
    assert 0.11 < lengths.max() <= 0.12
    ratios = graph.lengths / lengths
    assert 0.9 <= ratios.min() < 0.901
    assert 1.099 < ratios.max() <= 1.1
    assert len(places) > 400


def test_alignment_undoes_a_motion(ran, rng):
    places = rng.normal(size=(20, 2))
    turn = np.array([[0.6, 0.8], [0.8, -0.6]])  # mirrored, too
    np.testing.assert_allclose(ran["aligned"](places @ turn + 7, places), places, atol=1e-12)
    errors = ran["errors"](places + np.array([0, 0.01]), places)
    np.testing.assert_allclose(errors, 1 / np.ptp(places[:, 0]))


def test_what_the_pictures_show(ran):
    """The program clumps, the descent locates, errors are as expected, more functions fit more."""
    places, held = ran["places"], ran["held"]
    program, located = (np.median(ran["errors"](Y, places)) for Y in ran["found"].values())
    assert program > 3
    assert located < 1
    error = np.median(ran["errors"](held.embedding_, places))
    assert 1 / 2 < 100 * np.median(held.standard_errors_) / error < 2
    assert (np.diff(ran["misfits"]) < 0).all()
    assert not ran["loose"].pinned_.all()


@pytest.mark.skipif(not CITIES.is_file(), reason="NEARFAR_DATA has no us_cities.npz")
def test_cities():
    done = subprocess.run(
        [sys.executable, SCRIPT],
        capture_output=True,
        text=True,
        env={**os.environ, "MPLBACKEND": "agg"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("998 cities of the United States")
