"""What MCML and NCA share: coordinates, sums over soft neighbours, and the first guess."""

import numpy as np
import pytest
from scipy import linalg

from nearfar.kernels import kernels_for, reference
from nearfar.problems.soft_neighbors import (
    OPENING,
    WIDE,
    SoftNeighborsProblem,
    gaussian_guess,
    within_classes,
)

SIZES = (6, 5, 1, 2)  # one point is alone in its class
STARTS = np.cumsum([0, *SIZES])
Y = np.repeat(np.arange(len(SIZES)), SIZES)
N = len(Y)
# p₀: the weight of each pair of a class, with rows that sum to 1, or to 0 for the class of one.
TARGET = np.array(
    [[(Y[i] == Y[j] and i != j) / max(SIZES[Y[i]] - 1, 1) for j in range(N)] for i in range(N)]
)


@pytest.fixture
def X(rng):
    """Points sorted by class, in four features of different units and far from the origin."""
    points = rng.normal(size=(N, 4)) + 0.7 * rng.normal(size=(4, 4))[Y]
    return points * [1.0, 30.0, 0.01, 5.0] + [5.0, -200.0, 0.0, 1e4]


def build(X, regularization=0.0, starts=STARTS):
    centre = kernels_for(X).double(X).mean(0)
    return SoftNeighborsProblem.build(X, centre, starts, regularization)


def spread(X, weights):
    """Σ_ij w_ij (xᵢ − xⱼ)(xᵢ − xⱼ)ᵀ in loops."""
    total = np.zeros((X.shape[1], X.shape[1]))
    for i in range(len(X)):
        for j in range(len(X)):
            total += weights[i, j] * np.outer(X[i] - X[j], X[i] - X[j])
    return total


# -- coordinates -----------------------------------------------------------------------------------


@pytest.mark.parametrize("regularization", [0.0, 0.3])
def test_the_pull_is_that_of_the_wanted_neighbours(X, regularization, backend):
    """P on the features, S(p₀) + λI, is BᵀPB on U."""
    problem = build(backend.asarray(X), regularization)
    pull = spread(X, TARGET) + regularization * np.eye(4)
    B = problem.basis
    np.testing.assert_allclose(problem.P, B.T @ pull @ B, atol=1e-9)
    np.testing.assert_allclose(problem.ridge, regularization * B.T @ B, atol=1e-12)


def test_the_pull_is_near_the_identity(X):
    values = linalg.eigvalsh(build(X).P)
    assert values[0] > 0.2
    assert values[-1] < 2


def test_random_pairs_would_pull_like_this(X):
    """Q is P with p₀ replaced by 1/n for every pair, of the points that are not alone."""
    problem = build(X)
    everyone = np.full((N, N), 1 / N) * (N - 1) / N
    B = problem.basis
    np.testing.assert_allclose(problem.Q, B.T @ spread(X, everyone) @ B, rtol=1e-8, atol=1e-8)


def test_maps_on_the_features_and_on_the_coordinates(X, rng):
    problem = build(X)
    components = rng.normal(size=(2, 4))
    np.testing.assert_allclose(problem.components(problem.factor(components)), components)
    np.testing.assert_allclose(problem.U, (X - X.mean(axis=0)) @ problem.basis, atol=1e-9)
    np.testing.assert_allclose(problem.exact(), problem.U, atol=1e-9)


def test_coordinates_keep_the_dtype(X, dtype, backend):
    problem = build(backend.asarray(X.astype(dtype)))
    assert backend.to_numpy(problem.U).dtype == dtype
    assert backend.to_numpy(problem.exact()).dtype == np.float64


def test_points_less_the_mean_of_their_class(X, backend):
    """Their Gram matrix is S(p₀) = Σ_c n_c/(n_c − 1) 2 Σ (x − mean)(x − mean)ᵀ; one alone is 0."""
    within = backend.to_numpy(within_classes(backend.asarray(X), STARTS))
    np.testing.assert_allclose(within.T @ within, spread(X, TARGET), rtol=1e-9, atol=1e-6)
    assert not within[11].any()


# -- sums ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 2, 4, 6])
@pytest.mark.parametrize("own", [False, True], ids=["all", "own class"])
def test_sums_are_those_of_the_loops(X, rng, rows, own, backend):
    """S(w) on U from the plain kernel: Σ_ij w_ij (uᵢ − uⱼ)(uᵢ − uⱼ)ᵀ by the weights' Laplacian."""
    problem = build(backend.asarray(X))
    L = rng.normal(size=(rows, 4))
    sums = problem.sums(L, own=own)
    U = backend.to_numpy(problem.U)
    logs, shares, degrees, W, _ = reference.softmax_neighbors(U @ L.T, np.eye(N), STARTS, own=own)
    np.testing.assert_allclose(sums.logs, logs, rtol=1e-9)
    np.testing.assert_allclose(sums.shares, shares, rtol=1e-9)
    expected = spread(U, W)
    np.testing.assert_allclose(expected, U.T @ (np.diag(degrees) - W - W.T) @ U, atol=1e-9)
    np.testing.assert_allclose(sums.product, L @ expected, atol=1e-9)
    if rows == 1:
        assert sums.spread is None
    else:
        np.testing.assert_allclose(sums.spread, expected, atol=1e-9)


def test_few_rows_give_the_same_product(X, rng):
    """A map of one row, and the same with rows of zeros, which takes the other way."""
    problem = build(X)
    L = rng.normal(size=(1, 4))
    few, many = problem.sums(L), problem.sums(np.vstack([L, np.zeros((3, 4))]))
    assert few.spread is None
    assert many.spread is not None
    np.testing.assert_allclose(few.product, many.product[:1], atol=1e-10)
    np.testing.assert_allclose(few.logs, many.logs)


@pytest.mark.parametrize("scale", [1.0, 1e3, 1e6])
def test_the_error_of_the_logarithms_is_of_the_order_that_is_told(X, dtype, scale):
    """Distances by products err by the squares of lengths; those by differences hardly do."""
    problem = build(X.astype(dtype))
    L = scale * np.eye(4)
    sums, Z = problem.sums(L), problem.U.astype(np.float64) @ L
    exact = reference.softmax_neighbors(Z, Z, STARTS)[0]
    error = abs(sums.logs.sum() - exact.sum())
    assert error <= 3 * sums.rounding + 100 * np.finfo(dtype).eps
    assert sums.rounding <= 50 * np.finfo(dtype).eps * np.sum(Z**2)


# -- where to start --------------------------------------------------------------------------------


def test_the_first_guess_is_the_closed_form(X):
    """¼ n Σ (1 − 1/τ) v vᵀ over the generalised eigenvectors of what random pairs pull and what
    pairs of a class do, both on the features; n counts the points that are not alone."""
    problem = build(X)
    components = problem.components(problem.first_guess())
    everyone = np.full((N, N), 1 / N) * (N - 1) / N
    tau, v = linalg.eigh(spread(X, everyone), spread(X, TARGET))
    expected = 0.25 * (N - 1) * (v * np.maximum(1 - 1 / np.maximum(tau, 1), 0.02)) @ v.T
    units = np.outer(X.std(axis=0), X.std(axis=0))
    metric, expected = components.T @ components * units, expected * units
    np.testing.assert_allclose(metric, expected, atol=1e-2 * np.abs(expected).max())


def test_the_mean_distance_is_that_of_all_pairs(X, rng):
    problem = build(X)
    L = rng.normal(size=(2, 4))
    Z = problem.U @ L.T
    expected = ((Z[:, None] - Z) ** 2).sum(axis=2).mean()
    assert problem.mean_distance(L) == pytest.approx(expected)


def test_the_leading_rows_are_those_that_tell_classes_apart(X):
    problem = build(X)
    guess = problem.first_guess()
    np.testing.assert_array_equal(problem.first_guess(2), guess[:2])
    ratios = np.diag(guess @ problem.Q @ guess.T) / np.diag(guess @ problem.P @ guess.T)
    assert (np.diff(ratios) <= 1e-9).all()


@pytest.mark.parametrize("distance", [1e3, 1e6])
@pytest.mark.parametrize("wide", [1, 3])
def test_classes_far_apart_start_no_farther_than_needed(rng, distance, wide):
    """Between random points, D = ⟨2 Cov, A⟩ = ¼ WIDE along the directions that part them."""
    y = np.repeat(np.arange(8), 6)
    X = rng.normal(size=(48, 5))
    X[:, :wide] += distance * rng.normal(size=(8, wide))[y]
    problem = build(X, starts=np.arange(0, 49, 6))
    C = problem.components(problem.first_guess())
    mean = 2 * np.trace(C @ np.cov(X.T, bias=True) @ C.T)
    assert mean == pytest.approx(WIDE / 4, rel=0.2)


@pytest.mark.parametrize("shape", [(12, 30), (12, 11), (12, 3)], ids=str)
@pytest.mark.parametrize("shift", [0.0, 1e3])
def test_n_points_differ_in_at_most_n_less_one_directions(rng, shape, shift):
    """Some directions may have no pull; D under the guess is at most of the order of 100."""
    X = rng.normal(size=shape) + shift
    problem = SoftNeighborsProblem.build(X, X[5], np.array([0, 6, 12]))
    assert problem.U.shape == (12, min(shape[1], 11))
    guess = problem.first_guess()
    assert len(guess) == min(shape[1], 11)
    Z = problem.U @ guess.T
    assert 0 < ((Z[:, None] - Z) ** 2).sum(axis=2).max() < 1000


def test_classes_that_are_points_have_no_pull():
    """P = 0, and the guess parts them."""
    X = np.repeat(np.eye(3), 4, axis=0)
    problem = build(X, starts=np.array([0, 4, 8, 12]))
    np.testing.assert_allclose(problem.P, 0, atol=1e-12)
    Z = problem.U @ problem.first_guess().T
    distances = ((Z[:, None] - Z) ** 2).sum(axis=2)
    np.testing.assert_allclose(distances[:4, :4], 0, atol=1e-9)
    assert distances[:4, 4:].min() > 20


@pytest.mark.parametrize("rows", [1, 3])
def test_what_a_start_lacks_is_opened(X, rng, rows):
    """A metric of full rank, that of the start and a little of the guess."""
    problem = build(X)
    L, guess = rng.normal(size=(rows, 4)), problem.first_guess()
    full = problem.opened(L)
    assert full.shape == (4, 4)
    expected = L.T @ L + OPENING**2 * guess.T @ guess
    np.testing.assert_allclose(full.T @ full, expected, atol=1e-10)


@pytest.mark.parametrize("rows", [4, 6])
def test_a_start_that_lacks_nothing_is_left_alone(X, rng, rows):
    L = rng.normal(size=(rows, 4))
    assert build(X).opened(L) is L


@pytest.mark.parametrize("rows", [1, 3, None])
@pytest.mark.parametrize("scale", [1.0, 1e5])
def test_the_first_guess_where_the_pull_is_the_identity(rng, rows, scale):
    """It is (4), by the eigenvectors of Q alone, though most τ are wide: the same as for a pull
    that is the identity up to rounding, whose directions are looked for."""
    root = rng.normal(size=(40, 40))
    Q = scale * root @ root.T
    found = gaussian_guess(np.eye(40), Q, 100.0, rows)
    other = gaussian_guess((1 + 1e-15) * np.eye(40), Q, 100.0, rows)
    assert found.shape == (rows or 40, 40)
    np.testing.assert_allclose(found.T @ found, other.T @ other, rtol=1e-9, atol=1e-9 * scale)
