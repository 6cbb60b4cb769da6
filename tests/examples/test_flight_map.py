"""The map from flight distances."""

import re

import numpy as np
import pytest

from tests.examples.running import run_example, stand_in_or_data


@pytest.fixture(scope="module", **stand_in_or_data("flight_distances.npz"))
def ran(request):
    return run_example("flight_map", request.param)


def great_circles(where, radius):
    latitude, longitude = np.radians(where).T
    cosine = np.sin(latitude)[:, None] * np.sin(latitude)
    cosine += np.outer(np.cos(latitude), np.cos(latitude)) * np.cos(longitude[:, None] - longitude)
    return radius * np.arccos(np.clip(cosine, -1, 1))


def test_the_true_map_has_true_distances_from_its_centre(ran):
    """A degree of latitude is EARTH π/180 miles; one of longitude shrinks by cos 39°."""
    degree = ran["EARTH"] * np.pi / 180
    places = ran["true_map"](np.array([[39.0, -98.0], [40.0, -98.0], [39.0, -97.0]]))
    np.testing.assert_allclose(places[0], 0, atol=1e-9)
    np.testing.assert_allclose(places[1], [0, degree], atol=1e-6)
    assert places[2, 0] == pytest.approx(degree * np.cos(np.radians(39)), rel=1e-3)


def test_the_distances_of_the_cities_are_those_of_their_places(ran):
    """Air miles against great circles: a typing error in the table would stand out."""
    where = np.array([city[1:3] for city in ran["CITIES"]])
    circles = great_circles(where, ran["EARTH"])
    for i, (*_, miles) in enumerate(ran["CITIES"]):
        np.testing.assert_allclose(miles, circles[i, :i], atol=15, rtol=0.01)


def test_known_distances_are_symmetric_and_true(ran):
    D, circles = ran["D"], great_circles(ran["where"], ran["EARTH"])
    np.testing.assert_array_equal(D, D.T)
    known = np.isfinite(D)
    np.testing.assert_allclose(D[known], circles[known], atol=15, rtol=0.02)


def off(truth, Y):
    """Distances from true places after the best similarity: a least-squares fit in both senses."""
    best = None
    for mirror in (1, -1):
        z = (Y[:, 0] + 1j * mirror * Y[:, 1]) - np.mean(Y[:, 0] + 1j * mirror * Y[:, 1])
        w = (truth[:, 0] + 1j * truth[:, 1]) - np.mean(truth[:, 0] + 1j * truth[:, 1])
        misses = np.abs(w - z * (np.vdot(z, w) / np.vdot(z, z)))
        if best is None or (misses**2).sum() < (best**2).sum():
            best = misses
    return best


def test_the_tables(ran):
    rows = re.findall(r"^(\w+(?:MDS|Localization)) +(\d+) +(\d+)$", ran.text, re.MULTILINE)
    assert [name for name, *_ in rows[:3]] == ["ClassicalMDS", "MetricMDS", "NonmetricMDS"]
    assert all(int(largest) < 15 for *_, largest in rows[:3])
    for name, median, largest in rows[3:]:
        compared, *_ = ran["aligned"](ran["maps"][name], ran["where"], ran["D"])
        misses = off(ran["true_map"](ran["where"][compared]), ran["maps"][name][compared])
        assert (int(median), int(largest)) == (round(np.median(misses)), round(misses.max()))
    classical, metric, located = (int(median) for _, median, _ in rows[3:])
    assert located < 10 < metric < classical
