"""The benchmark's data sets: ``python -m benchmarks.lmnn.data NAME FOLDER``.

FOLDER receives train.npz and test.npz with float64 ``X`` and integer ``y``, and shape.json with
the training part's rows and columns. iris, wine and digits
come with scikit-learn; letter, isolet and MNIST are read from the folder that the environment
variable NEARFAR_DATA names, one ``<name>.npz`` each with ``X``, ``y`` and, where there is an
official split, the row numbers ``train`` and ``test``.
"""

import json
import re
import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.model_selection import train_test_split

from benchmarks import common

SEED = 0
PCA_DIMENSIONS = {"isolet": 172, "mnist": 164}


def load(name):
    """X_train, X_test, y_train, y_test of a data set, as the benchmark uses it."""
    if name == "iris":
        return _split(*load_iris(return_X_y=True))
    if name == "digits":
        X, y = load_digits(return_X_y=True)
        return _split(X / 16, y)
    if name == "wine":
        train, test, *labels = _split(*load_wine(return_X_y=True))
        mean, deviation = train.mean(0), train.std(0)
        return (train - mean) / deviation, (test - mean) / deviation, *labels
    if name == "letter":
        archive = read_archive("letter")
        return _split(archive["X"].astype(np.float64), archive["y"])
    if name == "isolet":
        archive = read_archive("isolet")
        return _reduce(np.round(archive["X"].astype(np.float64), 4), archive, "isolet")
    size = re.fullmatch(r"mnist([0-9]+)", name)
    if size is None:
        raise SystemExit(
            f"no data set {name!r}; expected iris, wine, digits, letter, isolet or mnist<rows>, "
            "such as mnist2000"
        )
    archive = read_archive("mnist")
    train, test, y_train, y_test = _reduce(archive["X"] / 255.0, archive, "mnist")
    rows = np.random.default_rng(SEED).permutation(len(train))[: int(size[1])]
    return train[rows], test, y_train[rows], y_test


def _split(X, y):
    return train_test_split(X, y, test_size=0.3, random_state=SEED)


def read_archive(name):
    try:
        return np.load(common.data_file(name), allow_pickle=False)
    except common.UnavailableError as error:
        raise SystemExit(str(error)) from error


def _reduce(X, archive, name):
    """The official split on the leading principal components of its training part."""
    train, test = X[archive["train"]], X[archive["test"]]
    mean = train.mean(0)
    train, test = train - mean, test - mean
    axes = np.linalg.eigh(train.T @ train)[1][:, ::-1][:, : PCA_DIMENSIONS[name]]
    y = archive["y"]
    return train @ axes, test @ axes, y[archive["train"]], y[archive["test"]]


def main(name, folder):
    X_train, X_test, y_train, y_test = load(name)
    np.savez(Path(folder) / "train.npz", X=X_train, y=y_train)
    np.savez(Path(folder) / "test.npz", X=X_test, y=y_test)
    (Path(folder) / "shape.json").write_text(json.dumps(X_train.shape))


if __name__ == "__main__":
    main(*sys.argv[1:])
