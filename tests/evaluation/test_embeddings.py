"""Measures of embeddings, against plain loops over points and their neighbours."""

import math

import numpy as np
import pytest
import sklearn.manifold
from sklearn.base import BaseEstimator
from sklearn.datasets import make_swiss_roll
from sklearn.decomposition import PCA

from nearfar.errors import InvalidInputError
from nearfar.evaluation import (
    alignment_error,
    compare_embeddings,
    embeddings,
    local_continuity,
    local_trust,
    measure_embedding,
    neighborhood_intersection,
    out_of_sample_consistency,
    trustworthiness,
)
from nearfar.kernels import all_pairs

MEASURES = [local_continuity, local_trust, neighborhood_intersection, trustworthiness]
each_measure = pytest.mark.parametrize("measure", MEASURES)


class ByLoops:
    """The measures of an input and an embedding, each given by a matrix of distances."""

    def __init__(self, before, after, k):
        self.before, self.after, self.k, self.n = before, after, k, len(before)

    def neighbors(self, D, i):
        others = [j for j in range(self.n) if j != i]
        return sorted(others, key=lambda j: D[i][j])[: self.k]

    def share(self, known, told):
        """1 - min_s sum (s known - told)^2 / sum told^2 over neighbours in what is told."""

        def error(s):
            return sum(
                (s * known[i][j] - told[i][j]) ** 2
                for i in range(self.n)
                for j in self.neighbors(told, i)
            )

        total = error(0.0)
        # A parabola in s: its vertex from three of its values.
        left, middle, right = error(-1.0), error(0.0), error(1.0)
        s = 0.5 * (left - right) / (left - 2 * middle + right)
        return 1 - error(s) / total

    def continuity(self):
        return self.share(self.after, self.before)

    def trust(self):
        return self.share(self.before, self.after)

    def intersection(self):
        count = 0
        for i in range(self.n):
            count += len(set(self.neighbors(self.before, i)) & set(self.neighbors(self.after, i)))
        return count / (self.n * self.k)

    def trustworthiness(self):
        penalty = 0
        for i in range(self.n):
            order = sorted((j for j in range(self.n) if j != i), key=lambda j: self.before[i][j])
            for j in self.neighbors(self.after, i):
                penalty += max(0, order.index(j) + 1 - self.k)
        n, k = self.n, self.k
        return 1 - 2 * penalty / (n * k * (2 * n - 3 * k - 1))


def distances(points):
    return np.array([[math.dist(a, b) for b in points] for a in points])


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Blocks so small that these data fill several."""
    monkeypatch.setattr(all_pairs, "HOST_ENTRIES", 100)
    monkeypatch.setattr(embeddings, "BLOCK_ENTRIES", 100)


@pytest.fixture
def sample(rng):
    """40 points in four dimensions, and two of these."""
    X = rng.normal(size=(40, 4)) * [3, 2, 1, 1]
    return X, X[:, 1:3] + 0.1 * rng.normal(size=(40, 2))


@pytest.mark.parametrize("k", [1, 4, 12])
def test_equals_the_loops(backend, dtype, sample, k):
    X, Y = (points.astype(dtype) for points in sample)
    expected = ByLoops(distances(X.astype(float)), distances(Y.astype(float)), k)
    X, Y = backend.asarray(X), backend.asarray(Y)
    assert local_continuity(X, Y, k) == pytest.approx(expected.continuity(), rel=1e-9)
    assert local_trust(X, Y, k) == pytest.approx(expected.trust(), rel=1e-9)
    assert neighborhood_intersection(X, Y, k) == pytest.approx(expected.intersection(), rel=1e-12)
    assert trustworthiness(X, Y, k) == pytest.approx(expected.trustworthiness(), rel=1e-12)


@each_measure
def test_a_matrix_of_distances_is_as_good_as_points(backend, sample, measure):
    X, Y = sample
    D = backend.asarray(distances(X))
    assert measure(D, Y, 7, metric="precomputed") == pytest.approx(measure(X, Y, 7), rel=1e-12)


def test_distances_of_no_points(rng):
    """Any symmetric matrix will do; here one that violates the triangle inequality."""
    D = rng.uniform(0.1, 10, size=(25, 25))
    D = np.triu(D, 1) + np.triu(D, 1).T
    Y = rng.normal(size=(25, 2))
    expected = ByLoops(D, distances(Y), 5)
    found = measure_embedding(D, Y, 5, metric="precomputed")
    assert found.local_continuity == pytest.approx(expected.continuity())
    assert found.local_trust == pytest.approx(expected.trust())
    assert found.neighborhood_intersection == pytest.approx(expected.intersection())
    assert found.trustworthiness == pytest.approx(expected.trustworthiness())


@pytest.mark.parametrize("k", [2, 5, 19])
def test_trustworthiness_is_that_of_scikit_learn(sample, k):
    X, Y = sample
    expected = sklearn.manifold.trustworthiness(X, Y, n_neighbors=k)
    assert trustworthiness(X, Y, k) == pytest.approx(expected, rel=1e-12)


def test_trustworthiness_with_ties_goes_by_number():
    """Points 1 and 2 are equally far from 0; in the embedding 2 is the nearer one.

    Its rank is 2, one more than k = 1. The others keep their nearest neighbour: 1 has 0, 2 has 0
    and 3 has 2. So there is one intruder with an excess of 1: 1 − 2 / (4 (8 − 3 − 1)).
    """
    X, Y = np.array([[0.0], [1.0], [-1.0], [-3.0]]), np.array([[0.0], [1.5], [-1.0], [-3.0]])
    assert trustworthiness(X, Y, 1) == 1 - 2 / 16
    assert trustworthiness(distances(X), Y, 1, metric="precomputed") == 1 - 2 / 16


@each_measure
def test_a_scaled_and_rotated_copy_is_perfect(rng, sample, measure):
    X, _ = sample
    Q, _ = np.linalg.qr(rng.normal(size=(4, 4)))
    assert measure(X, 1e-3 * X @ Q + 5, 6) == pytest.approx(1, abs=1e-12)


@each_measure
@pytest.mark.parametrize("factor", [1e-150, 1e150])
def test_the_unit_does_not_matter(sample, measure, factor):
    X, Y = sample
    assert measure(X, factor * Y, 6) == pytest.approx(measure(X, Y, 6), rel=1e-9)


@each_measure
def test_a_far_offset_does_not_matter(sample, measure):
    """Rounding to the offset apart: distances of the rounded points are those that count."""
    X, Y = sample
    moved = Y + 1e7
    assert measure(X, moved, 6) == pytest.approx(measure(X, moved - 1e7, 6), rel=1e-12)


def test_a_collapsed_embedding_has_neither_continuity_nor_trust(sample):
    X, _ = sample
    Y = np.zeros((40, 2))
    assert local_continuity(X, Y) == 0
    assert local_trust(X, Y) == 0
    assert measure_embedding(X, Y).harmonic_mean == 0


def test_an_embedding_at_random_shares_neighbours_by_chance(rng):
    X, Y = rng.normal(size=(2, 400, 3))
    assert neighborhood_intersection(X, Y, 20) == pytest.approx(20 / 399, abs=0.01)


def test_a_projection_has_high_continuity_and_low_trust():
    """As the thesis says below (3.28), and as its Table 3.2 shows: 0.836 and 0.389."""
    X, _ = make_swiss_roll(1000, random_state=0)
    Y = PCA(2).fit_transform(X)
    assert 0.75 < local_continuity(X, Y) < 0.95
    assert local_trust(X, Y) < 0.55


def test_all_measures_of_several_embeddings(backend, sample):
    X, Y = (backend.asarray(points) for points in sample)
    rows = compare_embeddings(X, {"two": Y, "same": X}, 6)
    assert [row.name for row in rows] == ["two", "same"]
    first = rows[0]
    assert first == measure_embedding(X, Y, 6, name="two")
    values = [measure(X, Y, 6) for measure in MEASURES]
    assert values == [
        first.local_continuity,
        first.local_trust,
        first.neighborhood_intersection,
        first.trustworthiness,
    ]
    assert first.harmonic_mean == pytest.approx(3 / sum(1 / value for value in values[:3]))
    assert rows[1].harmonic_mean == pytest.approx(1)
    assert first.n_neighbors == 6


def test_no_trustworthiness_for_too_many_neighbours(sample):
    X, Y = sample
    assert measure_embedding(X, Y, 20).trustworthiness is None
    with pytest.raises(InvalidInputError, match=r"more than 2 \* n_neighbors = 40 points; got 40"):
        trustworthiness(X, Y, 20)


# -- consistency -------------------------------------------------------------------------------


def test_the_alignment_error_is_what_no_linear_map_explains(rng):
    """The residual of each column of A after projection onto the columns of B, by Gram-Schmidt."""
    A, B = rng.normal(size=(30, 2)), rng.normal(size=(30, 3))
    basis = []
    for column in B.T:
        for unit in basis:
            column = column - (unit @ column) * unit
        basis.append(column / np.linalg.norm(column))
    rest = A - sum(np.outer(unit, unit @ A) for unit in basis)
    assert alignment_error(A, B) == pytest.approx(np.linalg.norm(rest), rel=1e-12)


def test_a_linear_image_is_aligned_and_a_moved_one_is_not(backend, rng):
    A = rng.normal(size=(30, 2))
    B = A @ [[1.0, 2.0], [0.5, -3.0]]
    assert alignment_error(backend.asarray(A), backend.asarray(B)) < 1e-12
    assert alignment_error(A, B + 5) > 0.1


class Whitened(BaseEstimator):
    """Whitens what it is fitted on, and maps other points by their nearest fitted one."""

    def fit(self, X, y=None):  # noqa: ARG002 - scikit-learn's signature
        self.X_ = X
        self.embedding_ = PCA(2, whiten=True).fit_transform(X)
        return self

    def transform(self, X):
        nearest = [np.argmin(((self.X_ - x) ** 2).sum(axis=1)) for x in X]
        return self.embedding_[nearest]


def test_consistency_by_hand(rng):
    X = rng.normal(size=(60, 3)) * [5, 3, 0.5]
    order = np.random.RandomState(4).permutation(60)
    A, B, C = order[:15], order[15:30], order[30:]
    mapped = [Whitened().fit(X[part]).transform(X[C]) for part in (A, B)]
    fitted = [Whitened().fit(np.vstack([X[part], X[C]])).embedding_[15:] for part in (A, B)]
    expected = alignment_error(*mapped) / alignment_error(*fitted)
    found = out_of_sample_consistency(Whitened(), X, held_out=0.5, random_state=4)
    assert found == pytest.approx(expected)
    assert found > 1


@pytest.mark.parametrize("held_out", [0.0, 1.0, "half"])
def test_a_share_outside_of_0_and_1_is_an_error(rng, held_out):
    with pytest.raises(InvalidInputError, match="held_out must be a number between 0 and 1"):
        out_of_sample_consistency(Whitened(), rng.normal(size=(30, 3)), held_out=held_out)


def test_too_few_points_to_split_are_an_error(rng):
    with pytest.raises(InvalidInputError, match="leaves fewer than 2 of 5 points to a part"):
        out_of_sample_consistency(Whitened(), rng.normal(size=(5, 3)))


def test_alignment_of_different_points_is_an_error(rng):
    with pytest.raises(InvalidInputError, match="they have 5 and 6 rows"):
        alignment_error(rng.normal(size=(5, 2)), rng.normal(size=(6, 2)))


# -- bad input ---------------------------------------------------------------------------------


@each_measure
def test_bad_input(sample, measure):
    X, Y = sample
    with pytest.raises(InvalidInputError, match="n_neighbors=40 needs at least 41 points"):
        measure(X, Y, 40)
    with pytest.raises(InvalidInputError, match="n_neighbors must be an integer of at least 1"):
        measure(X, Y, 0)
    with pytest.raises(InvalidInputError, match="a row for each of the 40 points; it has 39"):
        measure(X, Y[1:], 5)
    with pytest.raises(InvalidInputError, match="metric must be one of 'euclidean', 'precomp"):
        measure(X, Y, 5, metric="cosine")
    with pytest.raises(ValueError, match="NaN"):
        measure(np.full((40, 2), np.nan), Y, 5)


@each_measure
def test_bad_distances(sample, measure):
    X, Y = sample
    D = distances(X)
    D[3, 7] = D[7, 3] = np.nan
    with pytest.raises(InvalidInputError, match="that of points 3 and 7 is not known") as caught:
        measure(D, Y, 5, metric="precomputed")
    np.testing.assert_array_equal(caught.value.indices, [[3, 7], [7, 3]])
    D = distances(X)
    D[3, 7] += 1
    with pytest.raises(InvalidInputError, match="must be symmetric"):
        measure(D, Y, 5, metric="precomputed")
    with pytest.raises(InvalidInputError, match="square matrix"):
        measure(X, Y, 5, metric="precomputed")
    with pytest.raises(InvalidInputError, match="must not be negative"):
        measure(-distances(X), Y, 5, metric="precomputed")
