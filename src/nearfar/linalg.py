"""Dense linear algebra of small symmetric matrices, on the host in float64; `ldl` anywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.sparse.linalg import ArpackError, eigsh

from nearfar.limits import check_cost

Matrix = NDArray[np.float64]

EIGH_OPERATIONS = 10  # times n³, at the speed of a matrix product, for eigenvectors of n rows
BOUNDED_OPERATIONS = 3  # the same for few of them by Lanczos' method, and the proof of the largest
FEW = 8  # of so many eigenvectors one, or fewer, are found faster than all
MIX_STEPS = 4  # eigenvectors between those of two matrices, for the best mean of both
LANCZOS_ROWS = 500  # from which Lanczos' method finds the top of a mean faster than LAPACK,
LANCZOS_TOL = 1e-4  # to this relative accuracy
PROVED_TOL = 1e-7  # the same where the top is proved to be near, at most
PROVED_ABOVE = 1e-9  # so much above, relatively
RESTARTS = 10  # of Lanczos' method, before LAPACK takes over
NULL_TOLERANCE = 1e-10  # of the largest eigenvalue; above the rounding of a sum over many rows


def symmetric(A: Matrix) -> Matrix:
    """½(A + Aᵀ)."""
    return 0.5 * (A + A.T)


def squared_norm(L: Matrix) -> float:
    """‖L‖² = tr LᵀL."""
    return float(np.vdot(L, L))


def eigh(A: Matrix, driver: str = "evr") -> tuple[Matrix, Matrix]:
    """Eigenvalues, ascending, and vectors; also of no rows at all, which scipy 1.13 refuses.

    The driver "evd" takes about two thirds of the time and twice the memory.
    """
    if not len(A):
        return np.empty(0), np.empty((0, 0))
    check_eigh(len(A))
    values, vectors = linalg.eigh(A, driver=driver)
    return values, vectors


def leading_eigh(A: Matrix, count: int) -> tuple[Matrix, Matrix]:
    """The ``count`` largest eigenvalues, ascending, and their vectors; all if A has no more.

    Of a large matrix a few take a third of the time of all.
    """
    n = len(A)
    if FEW * count > n:
        values, vectors = eigh(A)
        return values[-count:], vectors[:, -count:]
    check_eigh(n)
    values, vectors = linalg.eigh(A, subset_by_index=(n - count, n - 1))
    if len(values) < count:  # LAPACK may lose one of several that are equal up to rounding
        values, vectors = linalg.eigh(A)
    return values[-count:], vectors[:, -count:]


def bounded_leading_eigh(A: Matrix, count: int) -> tuple[Matrix, Matrix]:
    """As `leading_eigh`, where of a large matrix only the largest value is proved.

    It is not below the largest eigenvalue, and above it by PROVED_ABOVE. The others may lack copies
    of equal ones. Lanczos' method finds them, and a Cholesky factor of λI − A proves λ: a third of
    the time of LAPACK, or less.
    """
    n = len(A)
    if n < LANCZOS_ROWS or FEW * count > n or not A.any():  # ARPACK refuses zero
        return leading_eigh(A, count)
    check_cost(BOUNDED_OPERATIONS * float(n) ** 3, f"the largest eigenvalue of a {n} x {n} matrix")
    start = np.random.default_rng(0).normal(size=n)  # the same each time
    try:
        values, vectors = eigsh(A, count, which="LA", v0=start, tol=PROVED_TOL, maxiter=RESTARTS)
    except ArpackError:
        return leading_eigh(A, count)
    top = values[-1] + PROVED_ABOVE * abs(values[-1])
    if not is_positive_definite(top * np.eye(n) - A):
        return leading_eigh(A, count)
    return np.append(values[:-1], top), vectors


def check_eigh(n: int) -> None:
    """Raise `TimeLimitError` if the eigenvectors of a matrix of n rows would come too late."""
    check_cost(EIGH_OPERATIONS * float(n) ** 3, f"the eigenvectors of a {n} x {n} matrix")


def canonical_rotation(L: Matrix) -> Matrix:
    """R with orthonormal rows: those of RL are orthogonal, longest first, and RL gives LᵀL."""
    try:
        rotation = linalg.svd(L, full_matrices=False)[0]
    except linalg.LinAlgError:  # LAPACK's divide and conquer fails on some multiples of I
        rotation = linalg.svd(L, full_matrices=False, lapack_driver="gesvd")[0]
    return np.asarray(rotation.T)


def canonical_factor(L: Matrix) -> Matrix:
    """The factor of LᵀL with orthogonal rows, longest first, each with a positive largest entry.

    It gives the same distances as L and does not depend on a rotation of L's rows. The rows of L
    are rotated, and not replaced by singular values times vectors: the rounding errors of those are
    relative to the largest entry of L, and those of a rotation to the largest of each column. So
    the distances are kept also where columns, the units of features, differ by many powers of ten.
    """
    return signed(canonical_rotation(L) @ L)


def canonical_regular_factor(L: Matrix) -> Matrix:
    """As `canonical_factor` for L of as many rows as it has rank, in about half of the time.

    The rotation is by the eigenvectors of LLᵀ. It keeps the distances as well; rows are orthogonal
    up to rounding relative to the longest.
    """
    _, vectors = eigh(symmetric(L @ L.T), driver="evd")
    rows = vectors.T @ L
    return signed(rows[np.argsort(-np.linalg.norm(rows, axis=1), kind="stable")])


def row_signs(rows: Matrix) -> Matrix:
    """For each row the sign, (r, 1), that makes its largest entry positive."""
    largest = np.abs(rows).argmax(axis=1)
    negative = rows[np.arange(len(rows)), largest] < 0
    return np.where(negative, -1.0, 1.0)[:, None]


def signed(rows: Matrix) -> Matrix:
    """The rows, each with the sign that makes its largest entry positive."""
    return row_signs(rows) * rows


def pad_or_trim_rows(components: Matrix, wanted: int | None) -> Matrix:
    """The first ``wanted`` rows, with zeros where there are fewer; all rows for None."""
    if wanted is None:
        return components
    rows = np.zeros((wanted, components.shape[1]))
    rows[: len(components)] = components[:wanted]
    return rows


def is_identity(A: Matrix) -> bool:
    """Whether A is exactly I, in O(n²), so that products with it can be left out."""
    return A.ndim == 2 and bool(np.array_equal(A, np.eye(len(A))))


def is_positive_definite(A: Matrix) -> bool:
    """Whether a symmetric A has a Cholesky factor: much faster than its eigenvalues.

    Not if an entry is NaN or infinite, at which LAPACK may go on: its column then has such a pivot.
    """
    try:
        factor = linalg.cholesky(A, check_finite=False)
    except linalg.LinAlgError:
        return False
    return bool(np.isfinite(np.diag(factor)).all())


def range_and_null(P: Matrix) -> tuple[Matrix, Matrix]:
    """For P ⪰ 0 a basis R of its range with RᵀPR = I, and an orthonormal one of its null space."""
    if is_identity(P):
        return P, P[:, :0]
    values, vectors = eigh(P)
    kept = values > null_tolerance(values)
    return vectors[:, kept] / np.sqrt(values[kept]), vectors[:, ~kept]


def in_basis(basis: Matrix, S: Matrix) -> Matrix:
    """RᵀSR for a basis R, in no time if R = I."""
    framed: Matrix = S if is_identity(basis) else basis.T @ S @ basis
    return framed


def largest_scale(basis: Matrix, S: Matrix, count: int) -> tuple[float, Matrix, Matrix]:
    """The largest θ <= 1 with P − θS ⪰ 0, for P ⪰ 0 whose null space S annihilates.

    P is given by a ``basis`` R of its range with RᵀPR = I. Also returns the ``count`` largest
    eigenvalues λ (descending) and vectors b of S b = λ P b on the range of P, scaled to bᵀPb = 1;
    θ = 1 / max(1, λ₁).
    """
    ratios, rotation = bounded_leading_eigh(symmetric(in_basis(basis, S)), count)
    top = ratios[-1] if len(ratios) else 0.0
    directions = rotation if is_identity(basis) else basis @ rotation
    return float(1.0 / max(1.0, top)), ratios[::-1], directions[:, ::-1]


def top_of_means(first: list[Matrix], second: list[Matrix]) -> list[tuple[float, float]]:
    """Shares w in [0, 1], each with the top eigenvalue of A + w(B − A), near its least one.

    A and B are block diagonal, given by their blocks. The eigenvalue is convex in w, and each
    eigenvector gives a line below it: a step goes to where the lines of both ends meet. Of large
    matrices the eigenvalues are lower estimates, to a relative accuracy of LANCZOS_TOL.
    """

    def line(w: float) -> tuple[float, float]:
        """The top eigenvalue at w, and its slope there."""
        found = [(0.0, 0.0)]
        for A, B in zip(first, second, strict=True):
            if len(A):
                value, v = _top(A + w * (B - A))
                found.append((value, float(v @ (B - A) @ v)))
        return max(found)

    ends = [(w, *line(w)) for w in (0.0, 1.0)]
    found = [end[:2] for end in ends]
    for _ in range(MIX_STEPS):
        (left, low, falls), (right, high, rises) = ends
        if falls >= 0 or rises <= 0:  # the least one is at an end
            break
        w = left + (high - low - rises * (right - left)) / (falls - rises)
        value, slope = line(w)
        found.append((w, value))
        ends[slope > 0] = (w, value, slope)
    return found


def _top(A: Matrix) -> tuple[float, Matrix]:
    """The largest eigenvalue and its vector; of a large matrix an estimate."""
    if len(A) >= LANCZOS_ROWS and A.any():  # ARPACK refuses zero
        start = np.random.default_rng(0).normal(size=len(A))  # the same each time
        try:
            values, vectors = eigsh(A, 1, which="LA", v0=start, tol=LANCZOS_TOL)
            return float(values[0]), np.asarray(vectors[:, 0])
        except ArpackError:
            pass
    values, vectors = leading_eigh(A, 1)
    return float(values[-1]), vectors[:, -1]


def null_tolerance(values: Matrix) -> float:
    """The size below which eigenvalues of a positive semidefinite matrix count as zero."""
    return NULL_TOLERANCE * float(values.max(initial=0.0))


def project_psd(A: Matrix) -> Matrix:
    """The positive semidefinite matrix nearest to a symmetric A: negative eigenvalues become 0."""
    values, vectors = eigh(symmetric(A))
    kept = values > 0
    return symmetric((vectors[:, kept] * values[kept]) @ vectors[:, kept].T)


def factor_psd(A: Matrix) -> Matrix:
    """L with LᵀL = A for A ⪰ 0, of as many rows as A has; what is below zero counts as zero."""
    values, vectors = eigh(A)
    return np.sqrt(np.maximum(values, 0))[:, None] * vectors.T


def svec(A: Matrix) -> Matrix:
    """The upper triangle of a symmetric matrix, so scaled that products of matrices are kept.

    ⟨A, B⟩ = svec(A) · svec(B).
    """
    i, j = np.triu_indices(len(A))
    return A[i, j] * np.where(i == j, 1.0, np.sqrt(2.0))


def smat(vector: Matrix) -> Matrix:
    """The symmetric matrix of an `svec`."""
    m = round((np.sqrt(8 * len(vector) + 1) - 1) / 2)
    i, j = np.triu_indices(m)
    A = np.zeros((m, m))
    A[i, j] = vector * np.where(i == j, 1.0, np.sqrt(0.5))
    A[j, i] = A[i, j]
    return A


def symmetric_kronecker(A: Matrix, B: Matrix) -> Matrix:
    """The matrix of X → ½(AXB + BXA) on `svec`, A and B symmetric."""
    i, j = np.triu_indices(len(A))
    scale = np.where(i == j, 1.0, np.sqrt(2.0))

    def products(F: Matrix, G: Matrix) -> Matrix:
        return F[np.ix_(i, i)] * G[np.ix_(j, j)] + F[np.ix_(i, j)] * G[np.ix_(j, i)]

    whole: Matrix = 0.25 * (products(A, B) + products(B, A)) * np.outer(scale, scale)
    return whole


def ldl(A: Any) -> Any:
    """The factors of A = LDLᵀ for many definite matrices (v, v, m), in one array.

    D is the diagonal, and L, whose diagonal is 1, is below it. The last axis counts the matrices,
    so that NumPy and torch run along it. Where a pivot is zero the result is not finite.
    """
    F = 1 * A
    for j in range(len(F) - 1):
        column = F[j + 1 :, j] / F[j, j]
        F[j + 1 :, j + 1 :] -= column[:, None] * F[j, None, j + 1 :]
        F[j + 1 :, j] = column
    return F


def ldl_solve(F: Any, b: Any) -> Any:
    """A⁻¹b (v, m) for many matrices from `ldl` and vectors (v, m)."""
    x = 1 * b
    for j in range(len(x) - 1):
        x[j + 1 :] -= F[j + 1 :, j] * x[j]
    for j in range(len(x)):
        x[j] /= F[j, j]
    for j in reversed(range(len(x) - 1)):
        x[j] -= (F[j + 1 :, j] * x[j + 1 :]).sum(0)
    return x
