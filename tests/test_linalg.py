"""Small symmetric matrices: each function against its definition."""

import numpy as np
import pytest
from scipy import linalg

from nearfar.errors import TimeLimitError
from nearfar.limits import time_limit
from nearfar.linalg import (
    bounded_leading_eigh,
    canonical_factor,
    factor_psd,
    is_positive_definite,
    largest_scale,
    ldl,
    ldl_solve,
    leading_eigh,
    null_tolerance,
    project_psd,
    range_and_null,
    smat,
    svec,
    symmetric,
    symmetric_kronecker,
    top_of_means,
)


def test_symmetric_is_the_nearest_symmetric_matrix(rng):
    """A − ½(A + Aᵀ) is antisymmetric, so orthogonal to all symmetric matrices."""
    A = rng.normal(size=(4, 4))
    S = symmetric(A)
    np.testing.assert_array_equal(S, S.T)
    np.testing.assert_allclose(A - S, -(A - S).T, atol=1e-15)


# -- factor ---


@pytest.mark.parametrize("shape", [(2, 5), (5, 5), (7, 5)], ids=str)
def test_canonical_factor_gives_the_same_metric(rng, shape):
    L = rng.normal(size=shape)
    C = canonical_factor(L)
    np.testing.assert_allclose(C.T @ C, L.T @ L, atol=1e-12)
    products = C @ C.T
    np.testing.assert_allclose(products, np.diag(np.diag(products)), atol=1e-12)
    assert (np.diff(np.diag(products)) <= 0).all()
    assert (C[np.arange(len(C)), np.abs(C).argmax(axis=1)] > 0).all()


def test_canonical_factor_does_not_depend_on_a_rotation(rng):
    L = rng.normal(size=(3, 5))
    rotation, _ = linalg.qr(rng.normal(size=(3, 3)))
    np.testing.assert_allclose(canonical_factor(rotation @ L), canonical_factor(L), atol=1e-12)
    np.testing.assert_allclose(canonical_factor(-L), canonical_factor(L), atol=1e-12)


def test_canonical_factor_survives_a_failure_of_divide_and_conquer(rng, monkeypatch):
    """LAPACK's default driver does not converge on some matrices near a multiple of I."""
    L, svd = rng.normal(size=(3, 4)), linalg.svd
    expected = canonical_factor(L)

    def failing(A, full_matrices, lapack_driver="gesdd"):
        if lapack_driver == "gesdd":
            raise linalg.LinAlgError
        return svd(A, full_matrices=full_matrices, lapack_driver=lapack_driver)

    monkeypatch.setattr(linalg, "svd", failing)
    np.testing.assert_allclose(canonical_factor(L), expected)


def test_canonical_factor_of_zero_is_zero():
    np.testing.assert_array_equal(canonical_factor(np.zeros((2, 3))), np.zeros((2, 3)))


# -- scale ---


@pytest.mark.parametrize("size", [0.1, 10.0])
def test_largest_scale(rng, size):
    """P − θS ⪰ 0, and for θ < 1 no larger θ will do."""
    R, A = rng.normal(size=(2, 6, 6))
    P, S = R @ R.T + 0.1 * np.eye(6), size * (A + A.T)
    theta, ratios, vectors = largest_scale(range_and_null(P)[0], S, 6)
    smallest = linalg.eigvalsh(P - theta * S)[0]
    if size < 1:
        assert smallest > -1e-10
    else:
        assert theta < 1
        assert smallest == pytest.approx(0, abs=1e-8)
        assert linalg.eigvalsh(P - 1.001 * theta * S)[0] < 0
    assert theta == pytest.approx(1 / max(1.0, ratios[0]))
    assert (np.diff(ratios) <= 0).all()
    np.testing.assert_allclose(S @ vectors, P @ vectors * ratios, atol=1e-8)
    np.testing.assert_allclose(vectors.T @ P @ vectors, np.eye(6), atol=1e-9)


def test_nothing_to_scale(rng):
    """S ⪯ 0 and S = 0 are feasible at any scale, of which 1 is the largest allowed."""
    R = rng.normal(size=(4, 4))
    assert largest_scale(np.eye(4), -R @ R.T, 4)[0] == 1
    assert largest_scale(np.eye(4), np.zeros((4, 4)), 4)[0] == 1


def test_the_null_space_of_P_is_left_out(rng):
    """P has rank 3 of 5 and S lives in its range, so that θ is that of the range alone."""
    Q, _ = linalg.qr(rng.normal(size=(5, 5)))
    S = rng.normal(size=(3, 3))
    S = 10 * (S + S.T + np.eye(3))
    range_ = Q[:, :3]
    theta, ratios, vectors = largest_scale(
        range_and_null(range_ @ range_.T)[0], range_ @ S @ range_.T, 3
    )
    np.testing.assert_allclose(ratios, linalg.eigvalsh(S)[::-1], atol=1e-9)
    assert theta == pytest.approx(1 / linalg.eigvalsh(S)[-1])
    np.testing.assert_allclose(Q[:, 3:].T @ vectors, np.zeros((2, 3)), atol=1e-12)


def test_a_P_of_zero_has_no_range():
    theta, ratios, vectors = largest_scale(range_and_null(np.zeros((3, 3)))[0], np.zeros((3, 3)), 3)
    assert theta == 1
    assert len(ratios) == 0
    assert vectors.shape == (3, 0)


@pytest.mark.parametrize("values", [[], [0.0, 0.0], [1e-3, 1.0, 1e8]], ids=str)
def test_null_tolerance_is_relative_and_above_rounding(values):
    values = np.array(values)
    largest = values.max(initial=0.0)
    tolerance = null_tolerance(values)
    assert len(values) * np.finfo(np.float64).eps * largest <= tolerance <= 1e-8 * largest


# -- the cone ---


@pytest.fixture
def indefinite(rng):
    """A symmetric matrix with eigenvalues -2, -1, 0, 1 and 3."""
    Q, _ = linalg.qr(rng.normal(size=(5, 5)))
    return (Q * [-2.0, -1.0, 0.0, 1.0, 3.0]) @ Q.T


def test_project_psd_is_the_nearest_of_the_cone(indefinite):
    """B is the projection of A if B ⪰ 0, B − A ⪰ 0 and ⟨B, B − A⟩ = 0: then for every C ⪰ 0,
    ‖C − A‖² = ‖C − B‖² + ‖B − A‖² + 2⟨C, B − A⟩ ≥ ‖B − A‖²."""
    B = project_psd(indefinite)
    np.testing.assert_array_equal(B, B.T)
    assert linalg.eigvalsh(B)[0] > -1e-12
    assert linalg.eigvalsh(B - indefinite)[0] > -1e-12
    assert np.sum(B * (B - indefinite)) == pytest.approx(0, abs=1e-12)
    assert np.linalg.norm(B - indefinite) == pytest.approx(5**0.5)


def test_project_psd_leaves_the_cone_alone(rng):
    R = rng.normal(size=(3, 5))
    np.testing.assert_allclose(project_psd(R.T @ R), R.T @ R, atol=1e-12)
    np.testing.assert_allclose(project_psd(-R.T @ R), 0, atol=1e-12)


def test_project_psd_takes_the_symmetric_part(indefinite, rng):
    skew = np.triu(rng.normal(size=(5, 5)), 1)
    np.testing.assert_allclose(
        project_psd(indefinite + skew - skew.T), project_psd(indefinite), atol=1e-12
    )


@pytest.mark.parametrize("rank", [0, 2, 5])
def test_factor_psd(rng, rank):
    R = rng.normal(size=(rank, 5))
    A = R.T @ R
    L = factor_psd(A)
    assert L.shape == (5, 5)
    np.testing.assert_allclose(L.T @ L, A, atol=1e-12)


def test_factor_psd_drops_what_is_below_zero(indefinite):
    L = factor_psd(indefinite)
    np.testing.assert_allclose(L.T @ L, project_psd(indefinite), atol=1e-12)


@pytest.mark.parametrize("v", [1, 2, 5])
def test_many_factors_solve_many_systems(rng, backend, v):
    R = rng.normal(size=(7, v + 2, v))
    A, b = np.einsum("mkv,mkw->vwm", R, R), rng.normal(size=(v, 7))
    given = backend.asarray(A)
    F = ldl(given)
    np.testing.assert_array_equal(backend.to_numpy(given), A)
    found = backend.to_numpy(ldl_solve(F, backend.asarray(b)))
    F = backend.to_numpy(F)
    for i in range(7):
        L, D = np.tril(F[..., i], -1) + np.eye(v), np.diag(np.diag(F[..., i]))
        np.testing.assert_allclose(L @ D @ L.T, A[..., i], atol=1e-12)
        np.testing.assert_allclose(A[..., i] @ found[:, i], b[:, i], atol=1e-9)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_zero_pivot_is_not_finite():
    A = np.stack([np.ones((2, 2)), np.eye(2)], axis=2)
    x = ldl_solve(ldl(A), np.ones((2, 2)))
    assert not np.isfinite(x[:, 0]).any()
    np.testing.assert_array_equal(x[:, 1], 1)


def test_svec_keeps_products_and_smat_undoes_it(rng):
    A, B = (M + M.T for M in rng.normal(size=(2, 4, 4)))
    assert svec(A) @ svec(B) == pytest.approx(np.vdot(A, B))
    np.testing.assert_allclose(smat(svec(A)), A, atol=1e-15)
    np.testing.assert_array_equal(smat(np.array([3.0])), [[3]])


def test_the_symmetric_kronecker_product_is_that_of_matrices(rng):
    A, B, X = (M + M.T for M in rng.normal(size=(3, 4, 4)))
    expected = svec(0.5 * (A @ X @ B + B @ X @ A))
    np.testing.assert_allclose(symmetric_kronecker(A, B) @ svec(X), expected, atol=1e-12)


@pytest.mark.parametrize("n", [5, 40])
def test_only_the_largest_ratios_are_found(rng, n):
    """Of many eigenpairs LAPACK finds a few by themselves, of few all, of which the rest drop."""
    S = rng.normal(size=(n, n))
    S = S + S.T
    theta, ratios, vectors = largest_scale(np.eye(n), S, 3)
    np.testing.assert_allclose(ratios, linalg.eigvalsh(S)[: -3 - 1 : -1], atol=1e-12)
    np.testing.assert_allclose(S @ vectors, vectors * ratios, atol=1e-12)
    assert theta == 1 / ratios[0]


def test_more_eigenpairs_than_there_are_rows():
    """All of them are returned."""
    values, vectors = leading_eigh(np.diag([2.0, 1.0]), 4)
    np.testing.assert_allclose(values, [1.0, 2.0])
    assert vectors.shape == (2, 2)


def test_the_range_of_the_identity_needs_no_eigenvectors(monkeypatch):
    monkeypatch.setattr("nearfar.linalg.eigh", None)
    basis, null = range_and_null(np.eye(3))
    np.testing.assert_array_equal(basis, np.eye(3))
    assert null.shape == (3, 0)


def test_top_of_means_is_near_the_least_top_eigenvalue(rng):
    """A grid of shares finds none that is much smaller; ends are among the shares."""
    first, second = ([symmetric(rng.normal(size=(size, size))) for size in (5, 3)] for _ in "ab")
    found = top_of_means(first, second)
    assert [w for w, _ in found[:2]] == [0, 1]

    def top(w):
        return max(
            np.linalg.eigvalsh(A + w * (B - A))[-1] for A, B in zip(first, second, strict=True)
        )

    for w, value in found:
        assert value == pytest.approx(top(w))
    least = min(top(w) for w in np.linspace(0, 1, 201))
    worst = max(top(0), top(1))
    assert min(value for _, value in found) <= least + 0.05 * (worst - least)


def test_top_of_means_of_large_matrices(rng, monkeypatch):
    """Lanczos' method finds the eigenvalues from below, to its tolerance."""
    first, second = ([symmetric(rng.normal(size=(60, 60)))] for _ in "ab")
    exact = top_of_means(first, second)
    monkeypatch.setattr("nearfar.linalg.LANCZOS_ROWS", 50)
    found = top_of_means(first, second)
    assert found == top_of_means(first, second)
    assert len(found) == len(exact)
    for (w, value), (other, top) in zip(found, exact, strict=True):
        assert w == pytest.approx(other, abs=1e-3)
        assert top * (1 - 1e-3) <= value <= top * (1 + 1e-3)
    for w, value in found:
        top = np.linalg.eigvalsh(first[0] + w * (second[0] - first[0]))[-1]
        assert (1 - 1e-3) * top <= value <= (1 + 1e-12) * top


def test_top_of_means_of_equal_eigenvalues():
    """LAPACK's search for the largest one alone may find none."""
    unit = np.eye(4)
    assert top_of_means([unit], [2 * unit]) == [(0, 1), (1, 2)]
    assert top_of_means([np.empty((0, 0))], [np.empty((0, 0))]) == [(0, 0), (1, 0)]


LARGE = {
    "any": lambda rng: symmetric(rng.normal(size=(60, 60))),
    "negative": lambda rng: -np.diag(rng.uniform(1, 2, size=60)),
    "much below": lambda rng: np.diag(np.append(-1e9 * rng.uniform(1, 2, size=59), 1.0)),
    "equal": lambda _: np.diag(np.repeat([1.0, 0.5], 30)),
    "nearly equal": lambda rng: np.diag(1 + 1e-9 * rng.uniform(size=60)),
    "few rows": lambda _: np.diag(np.append(np.zeros(58), [1.0, 2.0])),
    "zero": lambda _: np.zeros((60, 60)),
    "identity": lambda _: np.eye(60),
}


@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("make", LARGE.values(), ids=LARGE.keys())
def test_the_largest_of_the_leading_eigenvalues_is_not_below_it(rng, monkeypatch, make, count):
    """Whether Lanczos' method converges or not, and a little above it at most; where eigenvalues
    are apart, the others are those of LAPACK, and the vectors fit."""
    monkeypatch.setattr("nearfar.linalg.LANCZOS_ROWS", 10)
    A = make(rng)
    largest = float(np.linalg.eigvalsh(A)[-1])
    values, vectors = bounded_leading_eigh(A, count)
    assert values.shape == (count,)
    assert vectors.shape == (60, count)
    rounding = 1e-14 * np.abs(A).max()
    assert largest - rounding <= values[-1] <= largest + 2e-9 * abs(largest) + rounding
    errors = np.linalg.norm(A @ vectors - values * vectors, axis=0)
    assert errors.max() <= 1e-5 * np.abs(A).max() + rounding


def test_a_largest_eigenvalue_that_is_missed_is_found_by_lapack(monkeypatch):
    """Lanczos' method never leaves the directions of its start and their images."""
    monkeypatch.setattr("nearfar.linalg.LANCZOS_ROWS", 10)
    asked = []

    def blind(_, count, **__):
        asked.append(count)
        return np.array([1.0]), np.eye(60)[:, :1]

    monkeypatch.setattr("nearfar.linalg.eigsh", blind)
    A = np.diag(np.append(np.linspace(1, 0, 59), 1.0001))
    values, vectors = bounded_leading_eigh(A, 1)
    assert asked == [1]
    assert values[0] == pytest.approx(1.0001, rel=1e-12)
    assert abs(vectors[-1, 0]) == pytest.approx(1.0)


def test_the_largest_eigenvalue_is_not_begun_where_time_is_short(monkeypatch):
    monkeypatch.setattr("nearfar.linalg.LANCZOS_ROWS", 10)
    monkeypatch.setattr("nearfar.limits.operations_per_second", lambda: 1.0)
    monkeypatch.setattr("nearfar.limits.CHEAP", 0)
    with time_limit(1.0), pytest.raises(TimeLimitError, match="largest eigenvalue of a 60 x 60"):
        bounded_leading_eigh(np.diag(np.arange(60.0)), 1)


@pytest.mark.parametrize("n", [2, 40, 300])
def test_what_is_positive_definite(n):
    identity = np.eye(n)
    assert is_positive_definite(identity)
    assert not is_positive_definite(-identity)
    for entry in (np.nan, np.inf, -np.inf):
        for row, column in ((0, 0), (0, n - 1), (n - 1, n - 1)):
            A = identity.copy()
            A[row, column] = A[column, row] = entry
            assert not is_positive_definite(A), (entry, row, column)


def test_top_of_means_of_zero(monkeypatch):
    """ARPACK refuses a matrix of zeros: no triplet is active where several looks agree on α = 0."""
    monkeypatch.setattr("nearfar.linalg.LANCZOS_ROWS", 4)
    zero = np.zeros((5, 5))
    assert top_of_means([zero], [zero])[0] == (0, 0)
