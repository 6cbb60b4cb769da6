"""Searches, maps and clusters by other libraries, on images or by get_metric."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits
from sklearn.neighbors import NearestNeighbors

import nearfar
from benchmarks.real_clients.uses import use

X, Y = load_digits(return_X_y=True)
X, Y = X[:600], Y[:600]


def learned():
    """A metric of the digits, its images, and the nearest of each image."""
    learner = nearfar.LMNN(tol=0.1).fit(X, Y)
    images = learner.transform(X)
    nearest = NearestNeighbors(n_neighbors=2).fit(images).kneighbors(return_distance=False)
    return learner, images, nearest


def agrees(rows, nearest, share=0.95):
    """The first neighbours found are mostly the exact ones."""
    assert np.mean(np.asarray(rows) == nearest[:, 0]) > share


@use("umap")
def umap_images():
    """umap: a map of the images, and new points in it."""
    import umap

    _, images, _ = learned()
    model = umap.UMAP(n_epochs=20, random_state=0).fit(images[:400])
    assert model.transform(images[400:]).shape == (200, 2)


@use("umap")
def umap_metric():
    """umap: get_metric as its metric."""
    import umap

    learner, _, _ = learned()
    model = umap.UMAP(metric=learner.get_metric(), n_epochs=20, random_state=0)
    assert model.fit_transform(X).shape == (600, 2)


@use("pynndescent")
def pynndescent_metric():
    """pynndescent: get_metric as its metric, compiled."""
    import pynndescent

    learner, _, nearest = learned()
    index = pynndescent.NNDescent(X, metric=learner.get_metric(), n_neighbors=10, random_state=0)
    rows, _ = index.neighbor_graph
    agrees(rows[:, 1], nearest)


@use("pynndescent")
def pynndescent_transformer():
    """pynndescent: its transformer between LMNN and a k-NN classifier."""
    import pynndescent
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.pipeline import make_pipeline

    model = make_pipeline(
        nearfar.LMNN(tol=0.1),
        pynndescent.PyNNDescentTransformer(n_neighbors=10, random_state=0),
        KNeighborsClassifier(metric="precomputed"),
    )
    assert model.fit(X, Y).score(X, Y) > 0.9


@use("hdbscan")
def hdbscan_clusters():
    """hdbscan: clusters of images, and by get_metric."""
    import hdbscan

    learner, images, _ = learned()
    assert hdbscan.HDBSCAN(min_cluster_size=10).fit(images).labels_.max() > 3
    model = hdbscan.HDBSCAN(min_cluster_size=10, metric=learner.get_metric())
    assert len(model.fit(X[:200]).labels_) == 200


@use("fast_hdbscan")
def fast_hdbscan_clusters():
    """fast_hdbscan: clusters of images."""
    import fast_hdbscan

    _, images, _ = learned()
    assert len(fast_hdbscan.HDBSCAN(min_cluster_size=10).fit(images[:, :5]).labels_) == 600


@use("faiss")
def faiss_index():
    """faiss: to_faiss, exact and by a graph."""
    learner, _, nearest = learned()
    for kind in (None, "HNSW32"):
        index = learner.to_faiss(X, kind)
        agrees(index.search(X.astype(np.float32), 2)[1][:, 1], nearest)


@use("hnswlib")
def hnswlib_index():
    """hnswlib: an index of images."""
    import hnswlib

    _, images, nearest = learned()
    index = hnswlib.Index("l2", images.shape[1])
    index.init_index(len(images), random_seed=0)
    index.add_items(images)
    agrees(index.knn_query(images, 2)[0][:, 1], nearest)


@use("annoy")
def annoy_index():
    """annoy: an index of images."""
    import annoy

    _, images, nearest = learned()
    index = annoy.AnnoyIndex(images.shape[1], "euclidean")
    for row, image in enumerate(images):
        index.add_item(row, image)
    index.build(20)
    agrees([index.get_nns_by_item(row, 2)[1] for row in range(len(images))], nearest, 0.8)


@use("usearch")
def usearch_index():
    """usearch: an index of images."""
    from usearch.index import Index

    _, images, nearest = learned()
    index = Index(ndim=images.shape[1], metric="l2sq")
    index.add(np.arange(len(images)), images.astype(np.float32))
    agrees(index.search(images.astype(np.float32), 2).keys[:, 1], nearest)


@use("voyager")
def voyager_index():
    """voyager: an index of images."""
    import voyager

    _, images, nearest = learned()
    index = voyager.Index(voyager.Space.Euclidean, images.shape[1])
    index.add_items(images.astype(np.float32))
    agrees(index.query(images.astype(np.float32), 2)[0][:, 1], nearest)


@use("openTSNE")
def opentsne_map():
    """openTSNE: a map of the images, and new points in it."""
    import openTSNE

    _, images, _ = learned()
    model = openTSNE.TSNE(n_iter=20, early_exaggeration_iter=20, random_state=0).fit(images[:400])
    assert model.transform(images[400:]).shape == (200, 2)


@use("pacmap")
def pacmap_map():
    """pacmap: a map of the images."""
    import pacmap

    _, images, _ = learned()
    assert pacmap.PaCMAP(random_state=0).fit_transform(images).shape == (600, 2)
