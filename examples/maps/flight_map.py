"""
A map from flight distances alone
=================================

How far cities are from each other says where they are, but for where north is. First all distances
between ten cities are known, as in Figure 3.3 of Weinberger's thesis, then only some: where the
environment variable ``NEARFAR_DATA`` names a folder with flight_distances.npz, those that were
flown between 229 airports, one in fifteen; elsewhere two thirds of those between the ten cities.
"""

# %%
# Ten cities
# ----------
#
# Air miles between American cities, as R has them (UScitiesD). The coordinates serve to judge the
# maps, and for nothing else.

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from scipy.sparse.csgraph import shortest_path
from scipy.spatial import procrustes

from nearfar import ClassicalMDS, MetricMDS, NeighborhoodGraph, NonmetricMDS, SensorLocalization
from nearfar.plots import ShepardDisplay

# Name, latitude, longitude, and the air miles to the cities before it.
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
CENTRE = (39.0, -98.0)  # of the true map, in degrees north and east
CORNERS = ((24, -125), (50, -66))  # of the part that is compared, since a map is flat
PINNED = 3  # known distances that a place in the plane needs

names = [city[0] for city in CITIES]
where = np.array([city[1:3] for city in CITIES])
D = np.zeros((len(CITIES), len(CITIES)))
for i, (*_, miles) in enumerate(CITIES):
    D[i, :i] = D[:i, i] = miles


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


def aligned(Y, where, D):
    """The rows that are compared, their true map, and the embedding turned upon it, in miles.

    Distances alone do not say where north is, and a place with fewer than three known ones may lie
    on either side of them.
    """
    (south, west), (north, east) = CORNERS
    inside = (where > [south, west]).all(axis=1) & (where < [north, east]).all(axis=1)
    rows = np.flatnonzero(inside & (np.isfinite(D).sum(axis=1) > PINNED))  # its own among them
    truth = true_map(where[rows])
    scale = np.linalg.norm(truth - truth.mean(axis=0))
    first, second, _ = procrustes(truth, Y[rows])
    return rows, scale * first, scale * second


def compare(embeddings, where, D):
    """Print how far places are off the true map."""
    print(f"{'':<20}{'median':>8}{'largest':>9}   miles off the true map")
    for method, Y in embeddings.items():
        _, truth, places = aligned(Y, where, D)
        off = np.linalg.norm(truth - places, axis=1)
        print(f"{method:<20}{np.median(off):>8.0f}{off.max():>9.0f}")


# %%
# Classical scaling takes the distances for those of points in a plane; metric scaling finds the
# points whose distances miss the given ones by the least squares; non-metric scaling looks only at
# which distances are larger than which others.

maps = {
    "ClassicalMDS": ClassicalMDS(metric="precomputed").fit_transform(D),
    "MetricMDS": MetricMDS(metric="precomputed").fit_transform(D),
    "NonmetricMDS": NonmetricMDS(metric="precomputed").fit_transform(D),
}
compare(maps, where, D)

_, truth, places = aligned(maps["MetricMDS"], where, D)
figure, ax = plt.subplots(figsize=(8, 4.8), layout="constrained")
ax.plot(*truth.T, "o", markersize=11, markerfacecolor="none", color="#8a8a8a", label="true place")
ax.plot(*places.T, "o", markersize=5, color="#0072B2", label="from distances alone")
for name, (east, north) in zip(names, places, strict=True):
    side = -1 if name in ("San Francisco", "Los Angeles", "Seattle", "Denver") else 1
    aligned_to = "right" if side < 0 else "left"
    ax.annotate(
        name, (east, north), (9 * side, 0), textcoords="offset points", va="center", ha=aligned_to
    )
ax.set(aspect="equal", xlabel="miles east", ylabel="miles north")
ax.set_xlim(truth[:, 0].min() - 750, truth[:, 0].max() + 500)  # room for the names
ax.legend(frameon=False, loc="lower left")
ax.spines[["top", "right"]].set_visible(False)

# %%
# Some distances only
# -------------------
#
# Nobody flies between most airports. Classical scaling needs all distances, and takes the shortest
# sequence of flights for those that are missing, which is a detour. Metric scaling uses those that
# there are, from where classical scaling has put the places, and leaves some on the wrong side of
# their neighbours. :class:`nearfar.SensorLocalization` is made for such graphs: it starts from a
# semidefinite program, looks for what may be on the wrong side and brings it home.

path = Path(os.environ.get("NEARFAR_DATA", "")) / "flight_distances.npz"
if path.is_file():
    with np.load(path, allow_pickle=False) as data:
        names, where = data["airport"].tolist(), data["X"]
        heads, tails = data["edges"].T.astype(int)
        D = np.full((len(names), len(names)), np.nan)
        D[heads, tails] = D[tails, heads] = data["distance_miles"]
    np.fill_diagonal(D, 0)
else:
    heads, tails = np.triu_indices(len(D), 1)
    forgotten = np.random.default_rng(0).permutation(len(heads))[: len(heads) // 3]
    D[heads[forgotten], tails[forgotten]] = D[tails[forgotten], heads[forgotten]] = np.nan
known = np.isfinite(D[np.triu_indices(len(D), 1)])
print(f"{len(D)} places, {known.sum()} of {known.size} distances")

detours = shortest_path(np.where(np.isnan(D), 0, D), directed=False)
filled = np.where(np.isnan(D), detours, D)
located = SensorLocalization(random_state=0).fit(NeighborhoodGraph.from_distances(D))
maps = {
    "ClassicalMDS": ClassicalMDS(metric="precomputed").fit_transform(filled),
    "MetricMDS": MetricMDS(metric="precomputed").fit_transform(D),
    "SensorLocalization": located.embedding_,
}
compare(maps, where, D)

# %%
# Lines lead from the true places to those that were found. Drawn and compared are places in the
# contiguous states with three or more known distances.

# sphinx_gallery_thumbnail_number = 2
figure, axes = plt.subplots(1, 3, figsize=(12, 4), layout="constrained", sharex=True, sharey=True)
for ax, (method, Y) in zip(axes, maps.items(), strict=True):
    _, truth, places = aligned(Y, where, D)
    lines = np.stack([truth, places, np.full_like(truth, np.nan)], axis=1).reshape(-1, 2)
    ax.plot(*lines.T, color="#D55E00", linewidth=1)
    ax.plot(*truth.T, "o", markersize=4, markerfacecolor="none", color="#8a8a8a", label="true")
    ax.plot(*places.T, ".", markersize=4, color="#0072B2", label="found")
    ax.set(aspect="equal", title=method, xlabel="miles east")
    ax.spines[["top", "right"]].set_visible(False)
axes[0].set(ylabel="miles north")
axes[2].legend(frameon=False, loc="lower left")

# %%
# The Shepard diagram shows every known distance against that on the map: it looks right also where
# the map is wrong, since a place on the wrong side of its neighbours is as far from them.

figure, axes = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
for ax, method in zip(axes, ("MetricMDS", "SensorLocalization"), strict=True):
    ShepardDisplay.from_predictions(D, maps[method], metric="precomputed", name=method, ax=ax)

# %%
# Without a true map one would rather know which places to trust. ``pinned_`` says which ones the
# distances hold in place; the others could be elsewhere without changing any by much.

print(f"pinned: {located.pinned_.sum()} of {len(D)} places")
plt.show()
