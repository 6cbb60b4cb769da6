"""Smooth functions on a graph: bottom eigenvectors of its Laplacian, and its inverse.

There are two methods, and where one is slow the other is fast. If the graph is low-dimensional, the
smallest eigenvalues are clustered near zero, but the Laplacian has a sparse factor. If it is
high-dimensional, the factor is dense, but the eigenvalues are well separated, and Lanczos' method
finds the eigenvectors from products with the matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray
from scipy import linalg, sparse
from scipy.sparse.csgraph import breadth_first_order
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh, splu

from nearfar.limits import check_time

Matrix = NDArray[np.float64]

SMALL = 200  # nodes up to which the dense matrix is decomposed
FACTORED = 4000  # nodes up to which any factor is cheap
RESTARTS = 20  # of Lanczos' method, after which the matrix is factored
PATIENCE = 300  # the same if the factor is dense
DENSE = 300  # entries per row of the factor of a part of the graph that mean a dense factor
LEAST_BASIS = 40  # least number of Lanczos vectors
INVERTED = 10  # least number of eigenvectors on which the inverse of Lanczos' method is exact
ACCURACY = 1e-4  # relative error of eigenvalues
SHIFT = 1e-11  # added to a singular matrix before it is factored, relative to its diagonal


@dataclass(frozen=True)
class Spectrum:
    """Smallest eigenvalues of a positive semidefinite matrix, except that of the constants."""

    values: Matrix  # (m,), ascending, all above 0
    vectors: Matrix  # (n, m), orthonormal, each of mean zero
    inverse: Callable[[Matrix], Matrix]  # approximate pseudoinverse times (n, r), centred


def bottom_spectrum(
    A: Any, count: int, random: RandomState, *, by_products: bool = True
) -> Spectrum:
    """The ``count`` < n smallest eigenpairs of a sparse A ⪰ 0 with the constants as null space.

    ``by_products=False`` skips Lanczos' method on A, which never separates the small eigenvalues of
    matrices such as LLE's. Memory is O(n count) plus that of a sparse factor, O(n log n) for a
    two-dimensional graph.
    """
    n = A.shape[0]
    start = random.normal(size=n)
    for restarts in (RESTARTS, PATIENCE) if by_products and n > FACTORED else ():
        try:
            return _by_products(A, count, start, restarts)
        except ArpackNoConvergence:  # eigenvalues are clustered near zero
            if not has_dense_factor(A):
                break
    solve = pseudoinverse(A)
    if n <= SMALL or count >= n - 1:
        values, vectors = linalg.eigh(A.toarray(), subset_by_index=[0, min(count, n - 1)])
        return Spectrum(values[1:], _centred(vectors[:, 1:]), solve)
    check_time()
    inverse = LinearOperator((n, n), matvec=_with_time_check(solve), dtype=np.float64)
    inverses, vectors = eigsh(inverse, count, which="LA", v0=_centred(start), tol=ACCURACY)
    order = np.argsort(-inverses)
    return Spectrum(1 / inverses[order], _centred(vectors[:, order]), solve)


def _with_time_check(product: Callable[[Matrix], Matrix]) -> Callable[[Matrix], Matrix]:
    """A product that raises once the time of the fit is up."""

    def checked(x: Matrix) -> Matrix:
        check_time()
        return product(x)

    return checked


def pseudoinverse(A: Any) -> Callable[[Matrix], Matrix]:
    """The pseudoinverse of a sparse A ⪰ 0 with the constants as null space, by a factor."""
    shift = SHIFT * float(A.diagonal().mean())
    factor = symmetric_factor(A + shift * sparse.eye_array(A.shape[0]))
    return lambda G: _centred(factor(_centred(G)))


def symmetric_factor(A: Any) -> Callable[[Matrix], Matrix]:
    """The inverse of a sparse positive definite matrix, by a factor."""
    solve: Callable[[Matrix], Matrix] = sparse_factor(A).solve
    return solve


def sparse_factor(A: Any) -> Any:
    """SuperLU's factors of a sparse symmetric matrix, without exchanges unless a pivot is 0."""
    return splu(
        A.tocsc(),
        permc_spec="MMD_AT_PLUS_A",
        diag_pivot_thresh=0.0,
        options={"SymmetricMode": True},
    )


def has_dense_factor(A: Any) -> bool:
    """Whether the factor of a graph's matrix is dense, so that a sparse one does not pay."""
    return bool(A.shape[0] > FACTORED) and _sample_fill(A) >= DENSE


def _sample_fill(A: Any) -> float:
    """Entries per row of the factor of a part of the graph: FACTORED nodes around the first."""
    nodes = breadth_first_order(A, 0, directed=False, return_predecessors=False)[:FACTORED]
    part = A[nodes][:, nodes]
    return float(sparse_factor(part + SHIFT * sparse.diags_array(A.diagonal()[nodes])).nnz) / len(
        nodes
    )


def _by_products(A: Any, count: int, start: Matrix, restarts: int) -> Spectrum:
    """Lanczos' method; the inverse is exact on the eigenvectors found, elsewhere a multiple of I.

    The eigenvalue 0 of the constants has no relative error; it is replaced by a large one.
    """
    large, found = 2 * float(A.diagonal().max()), max(count, INVERTED)

    def product(x: Matrix) -> Matrix:
        image: Matrix = A @ x + large * x.mean()
        return image

    values, vectors = eigsh(
        LinearOperator(A.shape, matvec=_with_time_check(product), dtype=np.float64),
        found,
        which="SA",
        v0=start,
        tol=ACCURACY,
        ncv=max(LEAST_BASIS, 2 * found + 1),
        maxiter=restarts,
    )
    order = np.argsort(values)
    values, vectors = values[order], _centred(vectors[:, order])
    beyond = float(values[-1])

    def inverse(G: Matrix) -> Matrix:
        inside = ((1 / values - 1 / beyond) * (vectors.T @ G).T).T
        return _centred(vectors @ inside + G / beyond)

    return Spectrum(values[:count], vectors[:, :count], inverse)


def _centred(X: Matrix) -> Matrix:
    centred: Matrix = X - X.mean(axis=0)
    return centred
