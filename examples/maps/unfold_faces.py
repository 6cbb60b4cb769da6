"""
One face, many moods: a film unfolded
=====================================

A film of one face is a curve through a space of as many dimensions as there are pixels. What moves
is little, the head to the left and right and the face between sad and glad. Maximum variance
unfolding finds the few axes along which the frames differ, without being told what they are.

Where the environment variable ``NEARFAR_DATA`` names a folder with frey_faces.npz, the film is
Brendan Frey's, 1965 frames of 20 by 28 pixels. Elsewhere a drawn face stands in, which turns its
head and changes its mood as it likes.
"""

# %%
# The film
# --------

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.decomposition import PCA

from nearfar import MVU
from nearfar.evaluation import neighborhood_intersection
from nearfar.plots import EmbeddingDisplay, SpectrumDisplay


def drawn_faces(n=1200, shape=(28, 20)):
    """A face that turns (to the left and right) and smiles (or not), by a slow random walk."""
    random = np.random.default_rng(0)
    steps = random.normal(size=(n, 2)).cumsum(axis=0)
    turn, smile = np.sin(0.12 * steps.T)
    down, across = np.mgrid[-1 : 1 : shape[0] * 1j, -0.7 : 0.7 : shape[1] * 1j]
    x = across - 0.12 * turn[:, None, None]

    def spot(left, top, width, height):
        return np.exp(-(((x - left) / width) ** 2) - ((down - top) / height) ** 2)

    mouth = 0.45 - 0.12 * smile[:, None, None] * (1 - (x / 0.3) ** 2)
    faces = 0.85 * np.exp(-((np.hypot(across / 0.55, down / 0.85)) ** 8))
    faces = faces - 0.6 * (spot(-0.2, -0.25, 0.1, 0.08) + spot(0.2, -0.25, 0.1, 0.08))
    faces -= 0.3 * spot(0.06 * turn[:, None, None], 0.1, 0.06, 0.16)
    faces -= 0.6 * np.exp(-(((down - mouth) / 0.07) ** 2) - (x / 0.28) ** 4)
    faces += random.normal(0, 0.01, faces.shape)
    return faces.reshape(n, -1), shape


path = Path(os.environ.get("NEARFAR_DATA", "")) / "frey_faces.npz"
if path.is_file():
    with np.load(path, allow_pickle=False) as data:
        X, shape = data["X"] / 255.0, tuple(data["image_shape"])
    print("Frey faces,", end=" ")
else:
    X, shape = drawn_faces()
    print("drawn faces,", end=" ")
print(f"{len(X)} frames of {X.shape[1]} pixels")

figure, axes = plt.subplots(2, 12, figsize=(9, 2.4), layout="constrained")
for ax, frame in zip(axes.flat, np.linspace(0, len(X) - 1, axes.size).astype(int), strict=True):
    ax.imshow(X[frame].reshape(shape), cmap="gray")
    ax.set_title(frame, fontsize="small")
    ax.set_axis_off()

# %%
# Unfold some frames, place the others
# ------------------------------------
#
# :class:`nearfar.MVU` solves a semidefinite program, and 250 frames are enough to span the film.
# Its certified gap proves that no other unfolding of these frames that keeps the distances between
# neighbours has more variance, but for that share of it. The other frames are placed among these,
# each as the mixture of its nearest ones that it is in the film.

some = np.linspace(0, len(X) - 1, 250).astype(int)
mvu = MVU(n_neighbors=4, tol=1e-3).fit(X[some])
places = mvu.transform(X, method="lle")
print(f"{mvu.graph_.n_edges} squared distances kept to {mvu.max_distortion_:.0e} of themselves")
print(f"{mvu.status_} after {mvu.n_iter_} iterations, certified gap {mvu.duality_gap_:.1e}")

# %%
# The map of the film
# -------------------
#
# Every dot is a frame. Neighbours on the map look alike, and going across it the face changes
# little by little.

# sphinx_gallery_thumbnail_number = 2
display = EmbeddingDisplay.from_predictions(
    places, images=X, image_shape=shape, thumbnail_size=0.06
)
display.figure_.set_size_inches(9, 6.5)
display.ax_.set_title("every frame of the film, unfolded by MVU")

# %%
# Fewer dimensions than PCA
# -------------------------
#
# PCA needs many axes, since pixels do not move along straight lines when a head turns. The map of
# MVU needs fewer for the same film.

SpectrumDisplay.from_estimator(mvu, kind="stacked")

# %%
# A plane does not hold all of it, but more than that of PCA: of the ten nearest frames so many are
# still among the ten nearest, for the frames that were unfolded and for those that were placed.

others = np.setdiff1d(np.arange(len(X)), some)
planes = {"PCA": PCA(2).fit(X[some]).transform(X), "MVU": places}
print(f"{'':<5}{'unfolded':>10}{'placed':>10}")
for name, plane in planes.items():
    kept = [neighborhood_intersection(X[part], plane[part], 10) for part in (some, others)]
    print(f"{name:<5}" + "".join(f"{share:>10.0%}" for share in kept))

plt.show()
