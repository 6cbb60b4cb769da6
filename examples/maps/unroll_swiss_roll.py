"""
Unroll a Swiss roll with a hole
===============================

A sheet of paper with a window in it is rolled up. Can it be laid out flat again, from the places of
its points in space alone? Maximum variance unfolding keeps the distances between neighbours and
pulls everything else apart. It is compared with PCA, locally linear embedding and Isomap of
scikit-learn, and since this roll is made up, with the sheet itself.
"""

# %%
# The roll
# --------
#
# The points lie on a spiral. The length along it, up to the angle of a point, is the coordinate
# that the point had on the sheet; its height is the other one.

import matplotlib.pyplot as plt
import numpy as np
from scipy.spatial import procrustes
from sklearn.datasets import make_swiss_roll
from sklearn.decomposition import PCA
from sklearn.manifold import Isomap, LocallyLinearEmbedding

from nearfar import VariationalMVU
from nearfar.evaluation import neighborhood_intersection
from nearfar.plots import EmbeddingDisplay, SpectrumDisplay

X, angle = make_swiss_roll(1000, hole=True, random_state=0)
along = (angle * np.sqrt(1 + angle**2) + np.arcsinh(angle)) / 2  # of the spiral r = angle
sheet = np.column_stack([along, X[:, 1]])

figure = plt.figure(figsize=(9, 3.6), layout="constrained")
space = figure.add_subplot(1, 2, 1, projection="3d")
space.scatter(*X.T, c=along, s=8)
space.view_init(elev=12, azim=-72)
space.set_title("the roll: all that the methods see")
flat = figure.add_subplot(1, 2, 2)
EmbeddingDisplay.from_predictions(
    sheet, along, name="the sheet: what they should find", ax=flat, names="none"
)
flat.set(xlabel="along the sheet", ylabel="height")

# %%
# Four ways to flatten it
# -----------------------
#
# Each method gets the number of neighbours, out of 5 to 10, with which it comes closest to the
# sheet. On data without a known answer one would have to guess it, or look at
# :func:`nearfar.evaluation.choose_n_neighbors`.

methods = {
    "PCA": PCA(n_components=2),
    "LLE": LocallyLinearEmbedding(n_neighbors=9, n_components=2),
    "Isomap": Isomap(n_neighbors=10),
    "MVU": VariationalMVU(n_neighbors=10, random_state=0),
}
found = {name: method.fit_transform(X) for name, method in methods.items()}

# %%
# *Off the sheet* is the root mean square distance of a point from its true place, in per cent of
# the spread of all points, after the best shift, rotation and scale. *Neighbours* is how many of
# the eight nearest points on the sheet are among the eight nearest of the embedding.

print(f"{'':<8}{'off the sheet':>15}{'neighbours':>13}")
aligned = {}
for name, embedding in found.items():
    truth, aligned[name], left = procrustes(sheet, embedding)
    kept = neighborhood_intersection(sheet, embedding, n_neighbors=8)
    print(f"{name:<8}{100 * np.sqrt(left):>13.1f} %{100 * kept:>11.0f} %")

# %%
# PCA looks at the roll from one side. LLE only asks that each point be the same mixture of its
# neighbours as before, which leaves it free to squeeze one direction. Isomap measures the way from
# each point to each other one along the sheet; around the window that is a detour, so the window
# swells. MVU asks for nothing but the distances between neighbours, which a window does not change.

# sphinx_gallery_thumbnail_number = 2
figure, axes = plt.subplots(2, 2, figsize=(9, 5.2), layout="constrained")
for ax, (name, embedding) in zip(axes.flat, aligned.items(), strict=True):
    EmbeddingDisplay.from_predictions(embedding, along, name=name, ax=ax, names="none")
    ax.set_axis_off()

# %%
# How many dimensions are there?
# ------------------------------
#
# MVU also says that the sheet is a plane. Its variance lies along two axes, as the squares of the
# sides of the sheet, while the roll fills three.

SpectrumDisplay.from_estimator(methods["MVU"], name="MVU", kind="stacked")
plt.show()
