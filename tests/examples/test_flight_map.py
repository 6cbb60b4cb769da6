"""The example that draws maps from flight distances."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples" / "flight_map.py"
DATA = Path(os.environ.get("NEARFAR_DATA", "")) / "flight_distances.npz"


@pytest.fixture(scope="module")
def example():
    from examples import flight_map

    return flight_map


def run(*arguments, folder=""):
    command = [sys.executable, "-W", "error", SCRIPT, *arguments]
    environment = {**os.environ, "NEARFAR_DATA": str(folder), "MPLBACKEND": "agg"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return done.stdout


def rows(text):
    """Stress and miles of each method."""
    found = re.findall(r"^  (\w+MDS) +(\d\.\d+) +(\d+) miles$", text, re.MULTILINE)
    return [(name, float(stress), int(miles)) for name, stress, miles in found]


def test_the_true_map_has_true_distances_from_its_centre(example):
    """A degree of latitude is EARTH π/180 miles; one of longitude shrinks by cos 39°."""
    degree = example.EARTH * np.pi / 180
    where = np.array([[39.0, -98.0], [40.0, -98.0], [39.0, -97.0]])
    places = example.true_map(where)
    np.testing.assert_allclose(places[0], 0, atol=1e-9)
    np.testing.assert_allclose(places[1], [0, degree], atol=1e-6)
    assert places[2, 0] == pytest.approx(degree * np.cos(np.radians(39)), rel=1e-3)


def test_the_distances_of_the_cities_are_those_of_their_places(example):
    """Air miles against great circles: a typing error in the table would stand out."""
    _, where, D = example.cities()
    latitude, longitude = np.radians(where).T
    cosine = np.sin(latitude)[:, None] * np.sin(latitude) + np.cos(latitude)[:, None] * np.cos(
        latitude
    ) * np.cos(longitude[:, None] - longitude)
    circles = example.EARTH * np.arccos(np.clip(cosine, -1, 1))
    np.testing.assert_allclose(D, circles, atol=15, rtol=0.01)


def test_the_stress_does_not_depend_on_the_scale(example):
    _, _, D = example.cities()
    Y = example.embeddings(D)["ClassicalMDS"]
    assert example.stress(1000 * Y, D) == pytest.approx(example.stress(Y, D))
    assert 0 < example.stress(Y, D) < 0.01


def test_the_whole_without_data(tmp_path):
    text = run("--picture", tmp_path / "map.png")
    assert "cities: 10 places, 45 of 45 distances" in text
    assert "airports: left out" in text
    assert [name for name, _, _ in rows(text)] == ["ClassicalMDS", "MetricMDS", "NonmetricMDS"]
    assert all(stress < 0.01 and miles < 15 for _, stress, miles in rows(text))
    assert (tmp_path / "map.png").stat().st_size > 1000


@pytest.mark.skipif(not DATA.is_file(), reason="NEARFAR_DATA has no flight_distances.npz")
def test_the_whole_with_data():
    text = run(folder=DATA.parent)
    assert "airports: 229 places, 1720 of 26106 distances" in text
    classical, metric, _ = rows(text)[3:]
    assert metric[1] < 0.02 < classical[1]
    assert metric[2] < classical[2]
