"""
Unfold handwritten digits, with a proof
=======================================

Images of the same digit form a surface: slants, widths and loops change from one writer to the
next. Maximum variance unfolding lays that surface out. Two questions remain open with most maps:
could a better one exist, and how much does the plane leave out? Here both have an answer in
numbers.
"""

# %%
# A map, and what is proved of it
# -------------------------------
#
# The graph joins each image with its five nearest ones. ``gap_tol`` lets the unfolding go on, in
# more dimensions than the map has, until a point of the dual program proves that no points of any
# dimension reach an objective that is better by more than this. With ``mnist.npz`` in the folder
# that ``NEARFAR_DATA`` names, these are the 12,089 twos and threes of MNIST, which takes minutes
# and 3 GB; without it, the small digits of scikit-learn.

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from nearfar import VariationalMVU
from nearfar.plots import EmbeddingDisplay, SpectrumDisplay

mnist = Path(os.environ.get("NEARFAR_DATA", "")) / "mnist.npz"
if mnist.is_file():
    with np.load(mnist) as archive:
        X, y = archive["X"][archive["train"]] / 255.0, archive["y"][archive["train"]]
    shape, gap_tol = (28, 28), 1e-2
else:
    X, y = load_digits(return_X_y=True)
    shape, gap_tol = (8, 8), 1e-3
X, y = X[np.isin(y, [2, 3])], y[np.isin(y, [2, 3])]
unfolding = VariationalMVU(n_neighbors=5, gap_tol=gap_tol, random_state=0).fit(X)

print(f"{len(X)} images, {unfolding.graph_.n_edges} edges")
print(f"gap of the points in all their dimensions: {unfolding.whole_gap_:.1e}")
print(f"gap of the map in two dimensions:          {unfolding.duality_gap_:.1e}")

# %%
# The first number says that the program is solved. The second is larger: the best points need more
# than two dimensions, and the plane cannot keep all distances. The title says how much of the
# variance it shows.

display = EmbeddingDisplay.from_estimator(unfolding, y=y, image_shape=shape, thumbnail_size=0.05)

# %%
# What the plane leaves out
# -------------------------
#
# The spectrum of the unfolded points tells how many dimensions these images have.

SpectrumDisplay.from_estimator(unfolding, name="unfolded digits", kind="stacked")
plt.show()
