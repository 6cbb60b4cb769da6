"""The same bits for any number of threads: of every estimator, fitted and used.

A new estimator joins by its entry in `nearfar.registry`. The data is so large that BLAS uses
threads if it may; few iterations are enough, since differences in the first one only grow.
"""

import numpy as np
import pytest
import threadpoolctl
from sklearn.base import clone
from sklearn.datasets import load_digits

from nearfar import (
    LMNN,
    LSML,
    MCML,
    MMC,
    MVU,
    POLA,
    RCA,
    SCML,
    ClassicalMDS,
    DMLEig,
    EnergyClassifier,
    KernelLMNN,
    KernelPOLA,
    LandmarkMVU,
    LocalMDS,
    MetricMDS,
    MultiMetricLMNN,
    NearestNeighborClassifier,
    NonmetricMDS,
    PairClassifier,
    SensorLocalization,
    VariationalMVU,
    make_pairs,
)
from nearfar.kernels import gram_numpy, parallel, single_threaded_blas
from tests.registered import instances

FEW = {"max_iter": 3}
LINKED = {"on_disconnected": "link", "random_state": 0}
SUPERVISED = [
    LMNN(**FEW),
    LMNN(n_components=5, **FEW),
    KernelLMNN(**FEW),
    KernelLMNN("linear", validation_fraction=0.3, random_state=0, **FEW),
    KernelLMNN("poly", kernel_params={"degree": 2}, n_components=3, **FEW),
    MultiMetricLMNN(**FEW),
    MultiMetricLMNN(partition="kmeans", n_metrics=3, random_state=0, **FEW),
    MCML(**FEW),
    MCML(solver="projected-gradient", **FEW),
    MMC(shrinkage=0.01, **FEW),
    SCML(random_state=0, **FEW),
    LSML(violation_weight=100.0, random_state=0, **FEW),
    POLA(n_pairs=500, random_state=0, **FEW),
    KernelPOLA(n_pairs=200, random_state=0, max_iter=1),
    DMLEig(shrinkage=0.01, **FEW),
    DMLEig(solver="lecture", shrinkage=0.01, **FEW),
    RCA(shrinkage=0.1),
    RCA(pca_components=0.9),
    EnergyClassifier(LMNN(**FEW)),
    NearestNeighborClassifier(LMNN(**FEW)),
    PairClassifier(MMC(shrinkage=0.01, **FEW)),
]
UNFOLDINGS = [
    MVU(**LINKED, **FEW),
    VariationalMVU(**LINKED, **FEW),
    LandmarkMVU(**LINKED, **FEW),
    ClassicalMDS(),
    MetricMDS(**FEW),
    NonmetricMDS(**FEW),
    LocalMDS(**LINKED, **FEW),
    SensorLocalization(random_state=0, **FEW),
]
ESTIMATORS = instances(SUPERVISED + UNFOLDINGS, common=FEW)
USES = ("transform", "predict", "decision_function")


@pytest.fixture
def points():
    """300 digits with some noise, so that no two rows are equal, and their labels."""
    X, y = load_digits(return_X_y=True)
    X, y = X[:300] / 16, y[:300]
    return X + 1e-3 * np.random.default_rng(0).normal(size=X.shape), y


@pytest.fixture(autouse=True)
def threads_of_kernels(monkeypatch):
    """The kernels use the threads that they may also where these are not worth it."""
    monkeypatch.setattr(parallel, "THREADED_BYTES", 0)


def data_of(estimator, X, y):
    if isinstance(estimator, PairClassifier):
        return make_pairs(X, y, n_pairs=200, random_state=0)
    if isinstance(estimator, SensorLocalization):
        few = X[:100, 2:5]  # all distances, which are many
        return np.linalg.norm(few[:, None] - few, axis=2), None
    return X, y


def bits(value, name, found):
    """Every number of a fitted estimator by the path to it, as bytes; times are no results."""
    if isinstance(value, np.ndarray) and value.dtype != object:
        found[name] = value.tobytes()
    elif isinstance(value, dict):
        for key, part in value.items():
            if key != "seconds":
                bits(part, f"{name}.{key}", found)
    elif isinstance(value, list | tuple):
        for place, part in enumerate(value):
            bits(part, f"{name}[{place}]", found)
    elif hasattr(value, "__dict__"):
        bits(vars(value), name, found)
    else:
        found[name] = repr(value)


def results(estimator, X, y, n_threads):
    with threadpoolctl.threadpool_limits(n_threads):
        model = clone(estimator).fit(X, y)
        found = {}
        bits({name: value for name, value in vars(model).items() if name[-1] == "_"}, "", found)
        for use in USES:
            if hasattr(model, use):
                bits(getattr(model, use)(X[:50]), f"{use}()", found)
        if hasattr(model, "get_metric"):
            bits(model.get_metric()(X[0], X[1]), "get_metric()", found)
        matrix = "get_kernel_weights" if "kernel" in vars(model) else "get_mahalanobis_matrix"
        if hasattr(model, matrix):
            bits(getattr(model, matrix)(), f"{matrix}()", found)
    return found


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::nearfar.errors.NearfarWarning")
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)
def test_the_same_bits_for_any_number_of_threads(estimator, points):
    X, y = data_of(estimator, *points)
    first, second = (results(estimator, X, y, n_threads) for n_threads in (1, 2))
    assert first.keys() == second.keys()
    assert [name for name in first if first[name] != second[name]] == []


# -- large factorisations --------------------------------------------------------------------


@pytest.fixture
def definite(rng, monkeypatch):
    """A positive definite matrix of more than four panels, which is not a multiple of one."""
    monkeypatch.setattr(gram_numpy, "_PANEL", 16)
    monkeypatch.setattr(gram_numpy, "ROWS", 12)
    A = rng.normal(size=(131, 140))
    return A @ A.T


def factored(A, n_threads):
    array = A.copy()
    with threadpoolctl.threadpool_limits(n_threads), single_threaded_blas():
        return gram_numpy._factor_in_place(array), array


def test_a_matrix_factored_by_panels(definite):
    """The lower half becomes L with LLᵀ = A, the upper half stays, whatever the threads."""
    done, array = factored(definite, 2)
    assert done
    np.testing.assert_allclose(np.tril(array.T), np.linalg.cholesky(definite), rtol=1e-10)
    np.testing.assert_array_equal(np.triu(array.T, 1), np.triu(definite, 1))
    np.testing.assert_array_equal(array, factored(definite, 1)[1])


@pytest.mark.parametrize("row", [3, 70, 130])
def test_a_matrix_that_is_not_definite_has_no_factor(definite, row):
    definite[row, row] = -1.0
    assert not factored(definite, 2)[0]


def test_products_in_blocks(rng):
    A, B = rng.normal(size=(700, 40)), rng.normal(size=(40, 30))
    np.testing.assert_allclose(gram_numpy.product(A, B), A @ B, rtol=1e-12, atol=1e-12)
