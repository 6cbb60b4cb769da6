"""The rows of Table 3.2 of the thesis: data sets, embeddings and their measures.

The Swiss roll is made here; the other sets are read from the folder that the environment variable
NEARFAR_DATA names, one ``<name>.npz`` each with ``X``.
"""

import time
import warnings
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from sklearn.decomposition import PCA, KernelPCA
from sklearn.manifold import Isomap, LocallyLinearEmbedding, SpectralEmbedding
from sklearn.metrics import pairwise_distances

from benchmarks import common
from benchmarks.mvu.data import swiss_roll
from benchmarks.papers.table1_data import thirds
from benchmarks.papers.table32_paper import PROTOCOLS
from nearfar import MVU, VariationalMVU
from nearfar.evaluation import measure_embedding

FILES = {"olivetti": "orl_faces", "teapots": "teapots_100", "frey_faces": "frey_faces"}
EIGENVECTORS = 10
SEED = 0


@dataclass(frozen=True)
class Result:
    """The measures of an embedding, seconds to find it, and what is to be known of it."""

    measures: dict[str, float]
    seconds: float
    remark: str


def check(data):
    """Raise `common.UnavailableError` where the file of a data set is missing."""
    if data in FILES:
        common.data_file(FILES[data])


@lru_cache(maxsize=1)
def load(data, most=None):
    """The points of a data set; with ``most``, so many of them at most."""
    if data == "swiss_roll":
        return swiss_roll(most or PROTOCOLS[data].points, SEED, noise=0)[:, :3]
    with np.load(common.data_file(FILES[data]), allow_pickle=False) as archive:
        X = archive["X"].astype(np.float64)
        if data == "olivetti":
            X = thirds(X.reshape(-1, *archive["image_shape"])).reshape(len(X), -1)
        X /= archive["scale"] if data == "teapots" else 255
    return X if most is None else X[:most]


def on_device(X, device):
    if device == "cpu":
        return X
    import torch

    return torch.from_numpy(X).to(device)


def mvu(X, protocol, device):
    learner = MVU(
        n_components=protocol.components,
        n_neighbors=protocol.mvu_neighbors,
        on_disconnected="link",
        random_state=SEED,
    )
    return _unfolded(learner, X, device)


def variational(basis, refine):
    def embed(X, protocol, device):
        learner = VariationalMVU(
            n_components=protocol.components,
            n_neighbors=protocol.neighbors,
            n_eigenvectors=EIGENVECTORS,
            basis=basis,
            refine=refine,
            on_disconnected="link",
            random_state=SEED,
        )
        return _unfolded(learner, X, device)

    return embed


def _unfolded(learner, X, device):
    learner.fit(on_device(X, device))
    Y = learner.embedding_
    remark = f"k = {learner.n_neighbors}, {learner.status_}"
    if learner.duality_gap_ is not None:
        remark += f", gap {learner.duality_gap_:.0e}"
    remark += f", distortion {learner.max_distortion_:.0e}"
    if getattr(learner, "locked_up_", False):
        remark += ", locked up"
    return (Y if device == "cpu" else Y.cpu().numpy()), remark


def pca(X, protocol, _):
    return PCA(protocol.components, random_state=SEED).fit_transform(X), ""


def kernel_pca(X, protocol, _):
    """With a Gaussian kernel as wide as the median distance."""
    width = np.median(pairwise_distances(X))
    learner = KernelPCA(
        protocol.components, kernel="rbf", gamma=1 / (2 * width**2), random_state=SEED
    )
    return learner.fit_transform(X), f"Gaussian, σ = {width:.3g}"


def isomap(X, protocol, _):
    return _embedded(Isomap, X, protocol.neighbors, protocol.components)


def hessian_lle(X, protocol, _):
    """It needs more neighbours than there are second derivatives and axes."""
    r = protocol.components
    k = max(protocol.neighbors, r * (r + 3) // 2 + 1)
    options = {"method": "hessian", "eigen_solver": "dense"}
    return _embedded(LocallyLinearEmbedding, X, k, r, **options)


def laplacian_eigenmaps(X, protocol, _):
    options = {"affinity": "nearest_neighbors", "random_state": SEED}
    return _embedded(SpectralEmbedding, X, protocol.neighbors, protocol.components, **options)


def lle(X, protocol, _):
    options = {"eigen_solver": "dense"}
    return _embedded(LocallyLinearEmbedding, X, protocol.neighbors, protocol.components, **options)


def _embedded(learner, X, k, r, **options):
    Y = learner(n_neighbors=k, n_components=r, **options).fit_transform(X)
    return Y, f"k = {k}"


METHODS = {
    "mvu": mvu,
    "variational_mvu_cg_lle": variational("lle", refine=True),
    "variational_mvu_cg_laplacian": variational("laplacian", refine=True),
    "variational_mvu_lle": variational("lle", refine=False),
    "variational_mvu_laplacian": variational("laplacian", refine=False),
    "pca": pca,
    "kernel_pca": kernel_pca,
    "isomap": isomap,
    "hessian_lle": hessian_lle,
    "laplacian_eigenmaps": laplacian_eigenmaps,
    "lle": lle,
}
GROUPS = {
    "nearfar": [name for name in METHODS if "mvu" in name],
    "scikit-learn": [name for name in METHODS if "mvu" not in name],
}


def measure(data, method, device="cpu", most=None):
    """The Result of a method on a data set, or the error's text."""
    X = load(data, most)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what they say of nearfar stands in the remark
        begin = time.perf_counter()
        try:
            Y, remark = METHODS[method](X, PROTOCOLS[data], device)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        seconds = time.perf_counter() - begin
    found = measure_embedding(X, Y, PROTOCOLS[data].measured)
    measures = {
        "local_continuity": found.local_continuity,
        "local_trust": found.local_trust,
        "local_intersection": found.neighborhood_intersection,
        "trustworthiness": found.trustworthiness,
    }
    return Result(measures, seconds, remark)
