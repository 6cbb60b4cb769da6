"""
Handwritten digits in five numbers instead of 64
================================================

A search through images is cheaper with short vectors. PCA shortens them so that the images can be
drawn again; :class:`nearfar.LMNN` shortens them so that the nearest images show the same digit.
"""

# %%
# Short, shorter, shortest
# ------------------------
#
# Half of 1797 images of 8 by 8 pixels are learned from, the others are classified by their three
# nearest neighbours among them. LDA knows the labels too. As in the papers, LMNN learns on
# principal components, here the first 30, so that it does not hold on to pixels at the border that
# are hardly ever black.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from nearfar import LMNN
from nearfar.evaluation import knn_error, standard_error
from nearfar.plots import ConvergenceDisplay, MetricDisplay, NeighborsDisplay

X, y = load_digits(return_X_y=True)
rows = train_test_split(np.arange(len(X)), test_size=0.5, stratify=y, random_state=0)
known, new = (np.sort(part) for part in rows)
methods = {
    "PCA": lambda r: PCA(r),
    "LDA": lambda r: LinearDiscriminantAnalysis(n_components=r),
    "LMNN": lambda r: make_pipeline(PCA(30), LMNN(n_components=r)),
}
dimensions = (3, 5, 8)


def error(model):
    """The 3-NN error on the new images."""
    return knn_error(model, X[known], y[known], X[new], y[new])


models = {
    name: {r: method(r).fit(X[known], y[known]) for r in dimensions}
    for name, method in methods.items()
}
print("3-NN error on new images (± standard error)")
print(f"{'dimensions':<12}" + "".join(f"{r:>16}" for r in dimensions))
for name, fitted in models.items():
    errors = [error(model) for model in fitted.values()]
    cells = [f"{100 * e:.1f} ± {100 * standard_error(e, len(new)):.1f} %" for e in errors]
    print(f"{name:<12}" + "".join(f"{cell:>16}" for cell in cells))

# %%
# Without the wish for short vectors there is little to gain on these data: the plain distance errs
# in one image of a hundred, and learning does not change that.

whole = make_pipeline(PCA(30), LMNN()).fit(X[known], y[known])
print(f"64 pixels as they are  {100 * error(None):.1f} %")
print(f"LMNN, not shortened    {100 * error(whole):.1f} %")

# %%
# What stands next to what
# ------------------------
#
# The new images that changed most for the better in five dimensions, with their three nearest known
# ones: by PCA on the left, after LMNN on the right. A dashed frame is a wrong digit. The
# percentages are over all new images.

NeighborsDisplay.from_estimator(
    models["LMNN"][5],
    X,
    y,
    queries=new,
    baseline=models["PCA"][5],
    image_shape=(8, 8),
    show="helped",
    n_rows=5,
    cmap="gray_r",
)

# %%
# What LMNN looks at
# ------------------
#
# Each of the five numbers is a weighted sum of the pixels. The weights can be drawn: ink on red
# raises the number, ink on blue lowers it. Principal components, below, are about where the ink
# varies most; those of LMNN are about what tells digits apart.

MetricDisplay.from_estimator(models["LMNN"][5], X[known], image_shape=(8, 8), n_shown=5)

# %%
# Is it solved?
# -------------
#
# If vectors need not be short, the problem is convex, and a bound from below proves how far the
# solution can be from the best one. A map to few dimensions has no such proof: from another start
# it may end elsewhere.

print(f"not shortened: {whole[-1].status_}, certified gap {whole[-1].duality_gap_:.1e}")
print(f"5 dimensions:  {models['LMNN'][5][-1].status_}, no certificate")
ConvergenceDisplay.from_estimator(whole[-1])
plt.show()
