"""Unfoldings and scalings on odd data: a correct answer, or one clear error.

Of data of any scale the answer is that of the data itself, up to the scale, or it is refused. There
is no other exception, no warning of NumPy (warnings are errors), no infinity and no NaN.
"""

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.metrics import pairwise_distances

from nearfar import (
    MVU,
    ClassicalMDS,
    LandmarkMVU,
    LocalMDS,
    MetricMDS,
    NonmetricMDS,
    SensorLocalization,
    VariationalMVU,
)
from nearfar.errors import InvalidInputError, NearfarWarning

ESTIMATORS = {
    "MVU": MVU(n_neighbors=3),
    "MVU-exact": MVU(n_neighbors=2, constraints="exact"),
    "MVU-shrink": MVU(n_neighbors=3, constraints="shrink"),
    "MVU-slack": MVU(n_neighbors=3, constraints="slack", slack_weight=0.999),
    "MVU-separate": MVU(n_neighbors=3, on_disconnected="separate"),
    "LandmarkMVU": LandmarkMVU(n_neighbors=4, n_landmarks=5, random_state=0),
    "VariationalMVU": VariationalMVU(n_neighbors=4, n_eigenvectors=5, random_state=0),
    "VariationalMVU-program": VariationalMVU(
        n_neighbors=4, n_eigenvectors=5, refine=False, random_state=0
    ),
    "SensorLocalization": SensorLocalization(max_iter=100, random_state=0),
    "ClassicalMDS": ClassicalMDS(),
    "ClassicalMDS-distances": ClassicalMDS(metric="precomputed"),
    "MetricMDS": MetricMDS(random_state=0),
    "MetricMDS-sstress": MetricMDS(loss="sstress", random_state=0),
    "MetricMDS-random": MetricMDS(init="random", random_state=0),
    "MetricMDS-distances": MetricMDS(metric="precomputed", random_state=0),
    "NonmetricMDS": NonmetricMDS(random_state=0),
    "LocalMDS": LocalMDS(n_neighbors=4, random_state=0),
}
each = pytest.mark.parametrize("name", ESTIMATORS)

# The scales of the data below, in powers of ten, that must work; squares and fourth powers leave
# the range of float64 at 154 and 77.
RANGES = {"ClassicalMDS": 68, "MetricMDS-sstress": 68, "NonmetricMDS": 300}
RANGE = 138
BEYOND = {68: (77, 300), 138: (154, 170, 300), 300: ()}


def exponents(name):
    """Where fourth powers just leave the range of float64, the last that work, and others."""
    last = RANGES.get(name.removesuffix("-distances"), RANGE)
    inside = {last} if last < 77 else {77, last}
    return [sign * size for sign in (-1, 1) for size in sorted(inside.union(BEYOND[last]))]


@pytest.fixture
def points(rng):
    """16 points, mostly in a plane."""
    return rng.normal(size=(16, 5)) * [5, 3, 0.5, 0.4, 0.3]


def fitted(name, X):
    """The estimator, fitted to X or to its distances; warnings other than ours are errors."""
    model = clone(ESTIMATORS[name])
    if name == "SensorLocalization" or getattr(model, "metric", "") == "precomputed":
        X = np.asarray(X, dtype=np.float64)
        spread = np.abs(X - X[0]).max() or 1.0
        X = pairwise_distances(X / spread) * spread
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", NearfarWarning)
        return model.fit(X)


def answer(name, X):
    """The fitted estimator with all its numbers finite, or None if X is refused."""
    try:
        model = fitted(name, X)
    except InvalidInputError:
        return None
    numbers = [model.embedding_, model.objective_, getattr(model, "eigenvalues_", 0.0)]
    numbers += [getattr(model, "max_distortion_", 0.0), model.duality_gap_ or 0.0]
    numbers += [getattr(model, "kernel_", 0.0)]
    assert all(np.isfinite(number).all() for number in numbers)
    return model


@each
def test_data_of_any_scale_gives_the_same_answer_up_to_it_or_is_refused(points, name):
    plain = answer(name, points)
    last = RANGES.get(name.removesuffix("-distances"), RANGE)
    for exponent in exponents(name):
        scale = 10.0**exponent
        model = answer(name, scale * points)
        assert (model is not None) == (abs(exponent) <= last), exponent
        if model is not None:
            Y = model.embedding_ / (1.0 if name == "NonmetricMDS" else scale)
            np.testing.assert_allclose(Y, plain.embedding_, atol=1e-4 * np.abs(Y).max())
            assert model.status_ == plain.status_


@each
@pytest.mark.parametrize("exponent", [6, 7, 8, 9, 12, 15])
def test_one_outlier(points, name, exponent):
    """It lies far from all others, or the data is refused; only MVU that keeps lengths may."""
    X = points.copy()
    X[7] += 10.0**exponent
    model = answer(name, X)
    if model is None:
        assert name.startswith("MVU")
        assert name != "MVU-slack"
        assert exponent >= 7
        return
    if name in ("LandmarkMVU", "VariationalMVU-program"):
        return  # on smooth functions no point is far from its neighbours
    others = np.delete(model.embedding_, 7, axis=0)
    far = np.linalg.norm(others - model.embedding_[7], axis=1).min()
    assert far > 2 * np.linalg.norm(others - others.mean(axis=0), axis=1).mean()


ODD = {
    "duplicates": lambda X, rng: X[rng.integers(0, 9, 20)],
    "all twice": lambda X, _: np.repeat(X, 2, axis=0),
    "collinear": lambda *_: np.outer(np.arange(14) ** 1.5, [1.0, 2.0, 3.0]),
    "evenly spaced": lambda *_: np.outer(np.arange(12.0), [1.0, 0.0]),
    "a grid": lambda *_: np.stack(np.meshgrid(np.arange(4.0), np.arange(4.0)), -1).reshape(-1, 2),
    "two points": lambda X, _: X[:2],
    "three points": lambda X, _: X[:3],
    "constant": lambda *_: np.ones((12, 3)),
    "two places": lambda X, rng: X[rng.integers(0, 2, 12)],
    "more features than points": lambda _, rng: rng.normal(size=(12, 40)),
    "integers": lambda _, rng: rng.integers(0, 9, (16, 4)),
    "unsigned integers": lambda _, rng: rng.integers(0, 256, (16, 4)).astype(np.uint8),
    "bits": lambda _, rng: rng.integers(0, 2, (16, 6)).astype(bool),
    "float32": lambda X, _: X.astype(np.float32),
    "last digits": lambda _, rng: 1 + 2.0**-52 * rng.integers(0, 9, (14, 3)),
    "far from the origin": lambda X, _: X + 1e9,
    "features of mixed scales": lambda X, _: X * 10.0 ** np.array([0, -5, 5, -100, 10]),
    "points of mixed scales": lambda X, rng: X * 10.0 ** rng.integers(-200, 60, (len(X), 1)),
    "a near copy": lambda X, _: np.vstack([X, X[:1] + 1e-9]),
    "a nearer copy": lambda X, _: np.vstack([X, X[:1] * (1 + 1e-15)]),
    "two clusters": lambda X, _: np.vstack([X, X + 1e5]),
    "subnormal differences": lambda X, _: np.vstack([X, np.zeros(5), np.full(5, 5e-324)]),
}


@each
@pytest.mark.parametrize("kind", ODD)
def test_odd_data_gives_numbers_or_one_clear_error(points, name, kind, rng):
    model = answer(name, ODD[kind](points, rng))
    easy = ("duplicates", "all twice", "collinear", "a grid", "integers", "float32", "bits")
    assert model is not None or kind not in easy


@each
@pytest.mark.parametrize("exponent", [-30, -60, -75, -130, -200])
def test_two_points_that_are_nearly_one(points, name, exponent):
    """The ratio of distances alone, at scale 1."""
    X = np.vstack([points - points[0], np.zeros(5)])
    X[-1, 0] = 10.0**exponent
    answer(name, X)
