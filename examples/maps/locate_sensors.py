"""
Locate sensors from noisy distances
===================================

Sensors stand in the largest cities of the United States. Each measures how far those nearby are,
with errors of up to 10 %, and nothing else is known. Where are they? This is the experiment of
Weinberger's thesis (section 3.1.8, Figures 3.19 and 3.21); its network of 20000 sensors is among
the benchmarks.
"""

# %%
# A network
# ---------
#
# Cities are read from ``us_cities.npz`` in the folder that the environment variable
# ``NEARFAR_DATA`` names. Without it, places drawn at random inside a coarse outline of the country
# stand in. The unit of length is the width of the country; sensors hear each other over a tenth of
# it.

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.path import Path as Polygon

from nearfar import NeighborhoodGraph, SensorLocalization, VariationalMVU

OUTLINE = [  # degrees east and north
    (-124, 48), (-95, 49), (-89, 48), (-83, 46), (-82, 42), (-79, 43), (-71, 45), (-67, 47),
    (-67, 45), (-71, 42), (-74, 40), (-76, 35), (-81, 31), (-80, 26), (-82, 28), (-84, 30),
    (-94, 29), (-97, 26), (-101, 30), (-106, 32), (-115, 32), (-118, 34), (-124, 40), (-124, 48),
]  # fmt: skip
RADIUS, NOISE = 0.1, 0.1
BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "0.6"


def cities(folder):
    """Degrees east and north of cities, or of a stand-in, and what they are."""
    path = Path(folder) / "us_cities.npz"
    if path.is_file():
        return np.load(path, allow_pickle=False)["X"][:, ::-1], "cities of the United States"
    drawn = np.random.default_rng(0).uniform((-125, 25), (-66, 50), size=(1000, 2))
    return drawn[Polygon(OUTLINE).contains_points(drawn)], "places drawn at random"


def on_a_map(degrees):
    """Places on a flat map, one unit wide."""
    places = degrees * [np.cos(np.radians(38)), 1]
    return (places - places.min(axis=0)) / np.ptp(places[:, 0])


def network(places, radius, noise, seed):
    """The graph of measured distances, and the places of its largest component."""
    rng = np.random.default_rng(seed)
    near = NeighborhoodGraph.from_points(places, radius=radius, angles=False)
    rows, near = near.separated()[0]
    lengths = near.lengths * rng.uniform(1 - noise, 1 + noise, near.n_edges)
    return NeighborhoodGraph.from_edges(near.heads, near.tails, lengths, len(rows)), places[rows]


degrees, kind = cities(os.environ.get("NEARFAR_DATA", ""))
graph, places = network(on_a_map(degrees), RADIUS, NOISE, seed=0)
print(f"{len(places)} {kind}\n{graph.report()}")

# %%
# Where they are
# --------------
#
# The semidefinite program on ten smooth functions, where `SensorLocalization` starts, finds the
# shape of the network and clumps its borders. A descent on the misfit of squared distances puts
# every sensor in its place. What is found may be turned or mirrored, so it is laid on the true map
# before errors are measured, in per cent of the country's width.


def aligned(found, places):
    """The found places after the rigid motion, mirrored perhaps, that brings them nearest."""
    centre, target = found.mean(axis=0), places.mean(axis=0)
    left, _, right = np.linalg.svd((found - centre).T @ (places - target))
    return (found - centre) @ (left @ right) + target


def errors(found, places):
    """In per cent of the width of the map."""
    return 100 * np.linalg.norm(found - places, axis=1) / np.ptp(places[:, 0])


program = VariationalMVU(n_eigenvectors=10, stretch=0.0, refine=False, random_state=0).fit(graph)
sensors = SensorLocalization(random_state=0).fit(graph)
found = {
    "program alone": aligned(program.embedding_, places),
    "SensorLocalization": aligned(sensors.embedding_, places),
}
for name, Y in found.items():
    error = errors(Y, places)
    print(f"{name:<20} median error {np.median(error):6.2f} %, largest {error.max():6.2f} %")


def draw_map(ax, title, Y=None):
    """True places in grey, found ones in blue, and lines between them."""
    ax.plot(*places.T, ".", color=GREY, markersize=2, label="true")
    if Y is not None:
        ax.add_collection(LineCollection(np.stack([places, Y], axis=1), color=ORANGE, lw=0.6))
        ax.plot(*Y.T, ".", color=BLUE, markersize=2, label="found")
    ax.set(title=title, aspect="equal", xticks=[], yticks=[])


figure, axes = plt.subplots(2, 2, figsize=(9, 5.6), layout="constrained", sharex=True, sharey=True)
draw_map(axes[0, 0], "Sensors")
ends = np.stack([places[graph.heads], places[graph.tails]], axis=1)
axes[0, 1].add_collection(LineCollection(ends, color=BLUE, lw=0.1, alpha=0.3, rasterized=True))
axes[0, 1].set(title=f"{graph.n_edges} distances, errors up to {NOISE:.0%}", aspect="equal")
for ax, (name, Y) in zip(axes[1], found.items(), strict=True):
    draw_map(ax, f"{name}: median error {np.median(errors(Y, places)):.1f} %", Y)
axes[1, 1].legend(loc="lower left", markerscale=4, frameon=False)
plt.show()

# %%
# What is known of each sensor
# ----------------------------
#
# ``standard_errors_`` says how far each sensor may be from where it is put, from how badly
# distances fit and how firmly they hold it: relative to the whole network, or to anchors, sensors
# whose position is known. Ten of these tell where the map lies, and no alignment is needed.

chosen = np.random.default_rng(1).permutation(len(places))[:10]
anchors = {int(node): places[node] for node in chosen}
held = SensorLocalization(anchors=anchors, random_state=0).fit(graph)
for name, model, Y in (
    ("no anchors", sensors, found["SensorLocalization"]),
    ("10 anchors", held, held.embedding_),
):
    expected = 100 * model.standard_errors_ / np.ptp(places[:, 0])
    inside = (errors(Y, places) <= 2 * expected).mean()
    typical = np.median(errors(Y, places)), np.median(expected)
    print(
        f"{name}: median error {typical[0]:.2f} %, expected {typical[1]:.2f} %; {inside:.0%} within"
        " two standard errors"
    )

# %%
# A weaker radio leaves sensors that their distances do not pin down: on two or fewer of them, on
# the far side of a hinge, or as well placed on the other side of their neighbours. ``pinned_``
# flags them, and their expected error is infinite.

weak, heard = network(places, 0.6 * RADIUS, NOISE, seed=0)
loose = SensorLocalization(random_state=0).fit(weak)
Y = aligned(loose.embedding_, heard)
for name, nodes in (("pinned down", loose.pinned_), ("not pinned down", ~loose.pinned_)):
    if nodes.any():
        typical = np.median(errors(Y, heard)[nodes])
        print(f"{nodes.sum():4d} sensors {name}: median error {typical:.2f} %")

figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
error, expected = errors(held.embedding_, places), 100 * held.standard_errors_
free = expected > 0
axes[0].loglog(expected[free], error[free], ".", color=BLUE, markersize=3)
span = np.array([expected[free].min(), expected[free].max()])
axes[0].loglog(span, span, color=GREY, lw=1)
axes[0].set(xlabel="expected error, % of the width", ylabel="error, %", title="With 10 anchors")
flags = ((loose.pinned_, BLUE, "pinned down"), (~loose.pinned_, ORANGE, "not pinned down"))
for nodes, color, label in flags:
    axes[1].plot(*heard[nodes].T, ".", color=color, markersize=3, label=label)
axes[1].set(aspect="equal", xticks=[], yticks=[], title=f"Radio of {0.6:.0%} the range")
axes[1].legend(loc="upper center", bbox_to_anchor=(0.5, 0), ncols=2, markerscale=3, frameon=False)
plt.show()

# %%
# How many smooth functions
# -------------------------
#
# The program fits better with more eigenvectors of the graph's Laplacian, and takes longer: as in
# the thesis, about ten are enough to start the descent from.

counts, misfits = (2, 4, 6, 8, 10, 15, 20), []
for count in counts:
    model = VariationalMVU(n_eigenvectors=count, stretch=0.0, refine=False, random_state=0)
    misfits.append(-model.fit(graph).objective_ / graph.n_edges)
    print(f"{count:2d} eigenvectors: misfit {misfits[-1]:.3f}")
figure, ax = plt.subplots(figsize=(5, 3.2), layout="constrained")
ax.plot(counts, misfits, "o-", color=BLUE)
ax.set(xlabel="eigenvectors", ylabel="misfit of a squared distance", xticks=counts)
ax.set_ylim(0, 1.05 * max(misfits))
plt.show()
