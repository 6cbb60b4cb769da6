"""Smooth functions on a graph: bottom eigenvectors of its Laplacian, and its inverse.

There are two methods, and where one is slow the other is fast. If the graph is low-dimensional, the
smallest eigenvalues are clustered near zero, but the Laplacian has a sparse factor; that of many
nodes is kept on the device of the data. If it is high-dimensional, the factor is dense, but the
eigenvalues are well separated, and Lanczos' method finds the eigenvectors from products.
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

from nearfar.graphs.fronts import Structure, analyse
from nearfar.graphs.multifrontal import Multifrontal
from nearfar.kernels import Array, is_torch, kernels_for, to_device_of, to_host
from nearfar.limits import check_time

Matrix = NDArray[np.float64]
Inverse = Callable[[Array], Array]

HOST = np.empty(0)  # a reference

SMALL = 200  # nodes up to which the dense matrix is decomposed
FACTORED = 4000  # nodes up to which any factor is cheap
MANY = 20000  # nodes from which on Lanczos' method is not tried if the factor is sparse
RESTARTS = 20  # of Lanczos' method, after which the matrix is factored
PATIENCE = 300  # the same if the factor is dense
DENSE = 300  # entries per row of the factor of a part of the graph that mean a dense factor
LEAST_BASIS = 40  # least number of Lanczos vectors
INVERTED = 10  # least number of eigenvectors on which the inverse of Lanczos' method is exact
ACCURACY = 1e-4  # relative error of eigenvalues
SHIFT = 1e-11  # added to a singular matrix before it is factored, relative to its diagonal
SHIFTS = (SHIFT, 1e-9, 1e-7)  # until its factor exists


@dataclass(frozen=True)
class Spectrum:
    """Smallest eigenvalues of a positive semidefinite matrix, except that of the constants."""

    values: Matrix  # (m,), ascending, all above 0
    vectors: Matrix  # (n, m), orthonormal, each of mean zero
    inverse: Inverse  # approximate pseudoinverse times (n, r), centred
    structure: Structure | None = None  # of a factor in blocks, if there is one


def bottom_spectrum(
    A: Any,
    count: int,
    random: RandomState,
    reference: Array = HOST,
    *,
    by_products: bool = True,
) -> Spectrum:
    """The ``count`` < n smallest eigenpairs of a sparse A ⪰ 0 with the constants as null space.

    ``by_products=False`` skips Lanczos' method on A, which never separates the small eigenvalues of
    matrices such as LLE's. The inverse takes arrays on the host or on the device of the reference,
    which is of float64, and returns them there. Memory is O(n count) plus that of a sparse factor,
    O(n log n) for a two-dimensional graph.
    """
    n = A.shape[0]
    start = random.normal(size=n)
    sparse_factored = n > MANY and not has_dense_factor(A)
    for restarts in (RESTARTS, PATIENCE) if by_products and n > FACTORED else ():
        if sparse_factored:
            break
        try:
            return _by_products(A, count, start, restarts, reference)
        except ArpackNoConvergence:  # eigenvalues are clustered near zero
            sparse_factored = not has_dense_factor(A)
    structure = analyse(A) if by_products and sparse_factored else None
    solve = pseudoinverse(A, reference, structure)
    if n <= SMALL or count >= n - 1:
        values, vectors = linalg.eigh(A.toarray(), subset_by_index=[0, min(count, n - 1)])
        return Spectrum(values[1:], _centred(vectors[:, 1:]), solve, structure)
    check_time()
    inverse = LinearOperator((n, n), matvec=_with_time_check(solve), dtype=np.float64)
    inverses, vectors = eigsh(inverse, count, which="LA", v0=_centred(start), tol=ACCURACY)
    order = np.argsort(-inverses)
    return Spectrum(1 / inverses[order], _centred(vectors[:, order]), solve, structure)


def _with_time_check(product: Callable[[Matrix], Matrix]) -> Callable[[Matrix], Matrix]:
    """A product that raises once the time of the fit is up."""

    def checked(x: Matrix) -> Matrix:
        check_time()
        return product(x)

    return checked


def pseudoinverse(A: Any, reference: Array = HOST, structure: Structure | None = None) -> Inverse:
    """The pseudoinverse of a sparse A ⪰ 0 with the constants as null space, by a factor.

    If the ``structure`` of A is given, the factor is on the device of the reference, else on the
    host.
    """
    unit, mean = sparse.eye_array(A.shape[0]), float(A.diagonal().mean())
    if structure is None:
        factor = symmetric_factor(A + SHIFT * mean * unit)
        return _on_either(lambda G: _centred(factor(_centred(G))), HOST)
    for shift in SHIFTS:
        try:
            solve = Multifrontal(A + shift * mean * unit, reference, structure)
        except np.linalg.LinAlgError:  # rounding made it indefinite
            if shift == SHIFTS[-1]:
                raise
        else:
            break
    return _on_either(lambda G: _centred(solve(_centred(G))), reference)


def _on_either(product: Inverse, reference: Array) -> Inverse:
    """A product on the device of the reference, for arrays there or on the host."""

    def apply(G: Array) -> Array:
        if is_torch(G) == is_torch(reference):
            return product(G.reshape(len(G), -1)).reshape(G.shape)
        image = product(to_device_of(reference, to_host(G)).reshape(len(G), -1)).reshape(G.shape)
        return kernels_for(G).like(to_host(image), G)

    return apply


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


def _by_products(A: Any, count: int, start: Matrix, restarts: int, reference: Array) -> Spectrum:
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
    V, scale = (to_device_of(reference, part) for part in (vectors, 1 / values - 1 / beyond))

    def inverse(G: Array) -> Array:
        return _centred(V @ (scale[:, None] * (V.T @ G)) + G / beyond)

    return Spectrum(values[:count], vectors[:, :count], _on_either(inverse, reference))


def _centred(X: Array) -> Array:
    return X - X.mean(0)
