"""The data sets of the thesis' figures on MVU, and the unfoldings that several figures share."""

from functools import cache

import numpy as np
from sklearn.metrics import pairwise_distances

from benchmarks import common
from benchmarks.mvu.data import swiss_roll
from benchmarks.papers.table1_data import thirds
from benchmarks.papers.table32_methods import on_device
from nearfar import MVU

POINTS, SMOKE_POINTS = 250, 40
FILES = {
    "twos": "usps",
    "twos and threes": "usps",
    "faces": "frey_faces",
    "olivetti": "orl_faces",
    "fives": "mnist",
    "teapots": "teapots_100",
}
NEIGHBORS = {"teapots": 3, "olivetti": 5}  # else 4, as in the thesis
SEED = 0
SIGMA_NEIGHBORS = 4  # whose deviation is the width of the Gaussian kernel


class Sets:
    """At most ``most`` points of each set; MVU on a device."""

    def __init__(self, most, device="cpu"):
        self.most, self.device = most, device

    @cache  # noqa: B019 - one object for a run
    def points(self, name):
        """The points of a set, (n, d), in [0, 1] where they are images."""
        if name == "roll":
            return swiss_roll(self.most, SEED)
        with np.load(common.data_file(FILES[name]), allow_pickle=False) as archive:
            X = archive["X"]
            if name in ("twos", "twos and threes", "fives"):
                digits = {"twos": [2], "fives": [5]}.get(name, [2, 3])
                rows = archive["train"]
                X = X[rows[np.isin(archive["y"][rows], digits)]].astype(np.float64)
                X = (X + 1) / 2 if name != "fives" else X / 255
            elif name == "olivetti":
                X = thirds(X.reshape(-1, *archive["image_shape"]).astype(np.float64)) / 255
                X = X.reshape(len(X), -1)
            else:
                X = X / (archive["scale"] if name == "teapots" else 255)
        step = max(1, len(X) // self.most) if name == "faces" else 1  # a film: over all of it
        return X if name == "teapots" else X[::step][: self.most]

    def shape(self, name):
        """The rows and columns of an image."""
        return {"olivetti": (38, 31), "faces": (28, 20), "teapots": (38, 50)}.get(name, (16, 16))

    @cache  # noqa: B019 - one object for a run
    def unfolded(self, name, constraints="equal"):
        """MVU of all points of a set, all dimensions kept."""
        X, k = self.points(name), NEIGHBORS.get(name, 4)
        most = min(len(X), 20)
        learner = MVU(most, k, constraints=constraints, on_disconnected="link", random_state=SEED)
        return learner.fit(on_device(X, self.device))


def kernels(X):
    """The centred linear, polynomial and Gaussian kernel matrices of points."""
    X = X - X.mean(axis=0)
    linear = X @ X.T
    unit = linear / np.abs(linear).max()
    matrices = {"linear": linear, "polynomial": (1 + unit) ** 4, "Gaussian": gaussian(X)}
    return {name: centred(K) for name, K in matrices.items()}


def gaussian(X):
    """The Gaussian kernel matrix, as wide as the distances of the 4 nearest."""
    squares = pairwise_distances(X, metric="sqeuclidean")
    near = np.sort(squares, axis=1)[:, 1 : SIGMA_NEIGHBORS + 1]
    return np.exp(-squares / (2 * near.mean()))


def centred(K):
    """K with means of zero, equation 3.49."""
    H = np.eye(len(K)) - 1 / len(K)
    return H @ K @ H


def spectrum(K):
    """Eigenvalues, those of largest magnitude first."""
    values = np.linalg.eigvalsh((K + K.T) / 2)
    return values[np.argsort(-np.abs(values))]


def leading_components(K, r=2):
    """The r leading principal components of a kernel matrix."""
    values, vectors = np.linalg.eigh((K + K.T) / 2)
    return vectors[:, ::-1][:, :r] * np.sqrt(np.maximum(values[::-1][:r], 0))
