"""A map from flight distances: where cities lie, from how far they are from each other.

Classical scaling, metric and non-metric scaling draw ten cities from all their air distances, as
Figure 3.3 of Weinberger's thesis does, and compare them with a true map::

    python examples/flight_map.py
    python examples/flight_map.py --picture map.png

Where the environment variable NEARFAR_DATA names a folder with flight_distances.npz, so are 229
airports, of which only the 1720 distances that were flown are known, one in fifteen. Classical
scaling needs all of them and takes the shortest sequence of flights for the others. The map is
turned, shifted and scaled onto the true one, since distances alone do not say where north is. An
airport with one or two flights may lie on either side of them, or anywhere around: only those with
three or more are compared, and only in the contiguous states, since a map is flat.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np
from scipy.sparse.csgraph import shortest_path
from scipy.spatial import procrustes
from scipy.spatial.distance import pdist, squareform

from nearfar import ClassicalMDS, MetricMDS, NonmetricMDS

# Name, latitude, longitude, and the air miles to the cities before it (UScitiesD of R).
CITIES = [
    ("Atlanta", 33.75, -84.39, []),
    ("Chicago", 41.88, -87.63, [587]),
    ("Denver", 39.74, -104.99, [1212, 920]),
    ("Houston", 29.76, -95.37, [701, 940, 879]),
    ("Los Angeles", 34.05, -118.24, [1936, 1745, 831, 1374]),
    ("Miami", 25.76, -80.19, [604, 1188, 1726, 968, 2339]),
    ("New York", 40.71, -74.01, [748, 713, 1631, 1420, 2451, 1092]),
    ("San Francisco", 37.77, -122.42, [2139, 1858, 949, 1645, 347, 2594, 2571]),
    ("Seattle", 47.61, -122.33, [2182, 1737, 1021, 1891, 959, 2734, 2408, 678]),
    ("Washington", 38.91, -77.04, [543, 597, 1494, 1220, 2300, 923, 205, 2442, 2329]),
]
EARTH = 3959.0  # miles, its radius
CENTRE = (39.0, -98.0)  # of the true map
CORNERS = ((24, -125), (50, -66))  # of the part that is compared
PINNED = 3  # known distances that a place in the plane needs


def cities():
    """Names, latitudes and longitudes, and all distances."""
    D = np.zeros((len(CITIES), len(CITIES)))
    for i, (*_, miles) in enumerate(CITIES):
        D[i, :i] = D[:i, i] = miles
    names = [city[0] for city in CITIES]
    return names, np.array([city[1:3] for city in CITIES]), D


def airports(folder):
    """The same of airports, with NaN for distances that nobody flew."""
    with np.load(Path(folder) / "flight_distances.npz", allow_pickle=False) as data:
        names, where = data["airport"].tolist(), data["X"]
        heads, tails = data["edges"].T.astype(int)
        D = np.full((len(names), len(names)), np.nan)
        D[heads, tails] = D[tails, heads] = data["distance_miles"]
    np.fill_diagonal(D, 0)
    return names, where, D


def true_map(where):
    """Miles east and north of the centre: straight lines through it have their true length."""
    latitude, longitude = np.radians(where).T
    north, west = np.radians(CENTRE)
    angle = longitude - west
    cosine = np.sin(north) * np.sin(latitude) + np.cos(north) * np.cos(latitude) * np.cos(angle)
    far = np.arccos(np.clip(cosine, -1, 1))
    stretch = EARTH * far / np.where(far > 0, np.sin(far), 1)
    east = np.cos(latitude) * np.sin(angle)
    up = np.cos(north) * np.sin(latitude) - np.sin(north) * np.cos(latitude) * np.cos(angle)
    return stretch[:, None] * np.column_stack([east, up])


def paths(D):
    """Distances, with the shortest sequence of flights where there is no direct one."""
    whole = shortest_path(np.where(np.isnan(D), 0, D), directed=False)
    return np.where(np.isnan(D), whole, D)


def embeddings(D):
    """The places by three methods."""
    return {
        "ClassicalMDS": ClassicalMDS(metric="precomputed").fit_transform(paths(D)),
        "MetricMDS": MetricMDS(metric="precomputed").fit_transform(D),
        "NonmetricMDS": NonmetricMDS(metric="precomputed").fit_transform(D),
    }


def stress(Y, D):
    """√(Σ (δ − s d)² / Σ δ²) over known distances, with the scale s that makes it least."""
    d, delta = pdist(Y), squareform(D, checks=False)
    known = ~np.isnan(delta)
    d, delta = d[known], delta[known]
    return np.sqrt(1 - (d @ delta) ** 2 / ((d @ d) * (delta @ delta)))


def aligned(Y, where, D):
    """The true map of the compared part and the embedding upon it, both in miles."""
    (south, west), (north, east) = CORNERS
    inside = (where > [south, west]).all(axis=1) & (where < [north, east]).all(axis=1)
    inside &= np.isfinite(D).sum(axis=1) > PINNED  # one of which is the distance to itself
    truth = true_map(where[inside])
    scale = np.linalg.norm(truth - truth.mean(axis=0))
    first, second, _ = procrustes(truth, Y[inside])
    return scale * first, scale * second


def report(title, where, D):
    found = embeddings(D)
    known = np.isfinite(D[np.triu_indices(len(D), 1)])
    print(f"{title}: {len(D)} places, {known.sum()} of {known.size} distances")
    print(f"  {'':<14} stress  off the map (median)")
    for name, Y in found.items():
        truth, places = aligned(Y, where, D)
        off = np.median(np.linalg.norm(truth - places, axis=1))
        print(f"  {name:<14} {stress(Y, D):6.4f}  {off:5.0f} miles")
    return found


def draw(path, names, where, D, Y):
    import matplotlib.pyplot as plt

    truth, places = aligned(Y, where, D)
    figure, axes = plt.subplots(figsize=(8, 5))
    axes.plot(*truth.T, "o", mfc="none", color="0.6", label="true")
    axes.plot(*places.T, ".", label="from distances")
    if len(names) == len(places) <= 20:
        for name, place in zip(names, places, strict=True):
            axes.annotate(name, place)
    axes.set_aspect("equal")
    axes.legend()
    figure.savefig(path)
    plt.close(figure)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--picture", type=Path, help="draw the last metric map to this file")
    options = parser.parse_args(arguments)
    names, where, D = cities()
    found = report("cities", where, D)
    folder = os.environ.get("NEARFAR_DATA", "")
    if folder and (Path(folder) / "flight_distances.npz").exists():
        names, where, D = airports(folder)
        found = report("airports", where, D)
    else:
        print("airports: left out, since NEARFAR_DATA names no folder with flight_distances.npz")
    if options.picture is not None:
        draw(options.picture, names, where, D, found["MetricMDS"])


if __name__ == "__main__":
    main()
