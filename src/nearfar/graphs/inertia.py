"""Whether a weighted graph Laplacian is at least a multiple of the unit matrix: proved in float64.

Lap(m) = Σₑ mₑ (eᵢ − eⱼ)(eᵢ − eⱼ)ᵀ has the constants as null space; its weights m may be negative.
It should be proved that Lap(m) ⪰ cI on vectors of mean zero. An eigenvalue that an iterative method
finds lies above the least one, so it proves nothing; a factor does. A = Lap(m) − (c + δ)I has the
eigenvalue −c − δ for the constants. With L, U and the diagonal d of U from a factorisation without
exchanges of rows

(1) A = L diag(d) Lᵀ + E,   |E| ≤ γ |L||U| + |L||U − diag(d)Lᵀ|,   γ = ku / (1 − ku)

with the unit roundoff u and k the largest number of products in a sum [Higham, theorem 9.3]. So A
has no more eigenvalues below −‖E‖ than d has negative entries (Sylvester, Weyl). If that is one,
and ‖E‖ ≤ δ, it belongs to the constants, and all others are at least −δ: Lap(m) ⪰ cI.

With the structure of a factor in blocks, errors are summed block by block, where the data is
[`nearfar.graphs.front_proof`]. If the factor is dense, A + s11ᵀ is made positive definite instead,
and a Cholesky factorisation that ends proves that no eigenvalue is below −γ tr(A + s11ᵀ), k = n + 2
[Rump, theorem 2.3].

[Higham] Accuracy and stability of numerical algorithms, 2nd edition, SIAM 2002.
[Rump] Verification of positive definiteness, BIT 46, 2006.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse

from nearfar.graphs.front_proof import has_one_negative
from nearfar.graphs.fronts import Structure
from nearfar.graphs.spectrum import HOST, sparse_factor
from nearfar.kernels import Array
from nearfar.limits import check_cost, check_time

Matrix = NDArray[np.float64]

ROUNDOFF = float(np.finfo(np.float64).eps) / 2
ROOM = 1.01  # for rounding in the computed bounds themselves


def exceeds_identity(
    laplacian: Any,
    multiple: float,
    margin: float,
    *,
    dense: bool,
    structure: Structure | None = None,
    reference: Array = HOST,
) -> bool:
    """Whether Lap(m) ⪰ ``multiple`` I is proved on vectors of mean zero.

    ``margin`` is δ, by how much more the least eigenvalue may have to be. With ``dense`` the factor
    is a dense matrix; with the ``structure`` of the graph it is made of blocks, where the reference
    is.
    """
    n = laplacian.shape[0]
    check_time()
    rows = np.asarray(abs(laplacian).sum(axis=1)).ravel()
    terms = int(np.diff(laplacian.tocsr().indptr).max()) + 2
    error = _gamma(terms) * float(rows.max())  # sums on the diagonal, and c + δ taken from it
    error += 2 * ROUNDOFF * (multiple + margin)
    A = laplacian - (multiple + margin) * sparse.eye_array(n)
    rest = margin - ROOM * error
    if not rest > 0:
        return False
    if structure is not None:
        return has_one_negative(A, structure, rest, reference)
    return _by_dense_factor(A, rest) if dense else _by_sparse_factor(A, rest)


def _by_sparse_factor(A: Any, allowed: float) -> bool:
    """Whether A has at most one eigenvalue below −``allowed``, by (1)."""
    factor = sparse_factor(A)
    if not np.array_equal(factor.perm_r, factor.perm_c):
        return False
    L, U = factor.L.tocsr(), factor.U.tocsr()
    d = U.diagonal()
    if int((d <= 0).sum()) > 1:
        return False
    check_time()
    ones = np.ones(len(d))
    asymmetry = abs(U - (sparse.diags_array(d) @ L.T).tocsr()) @ ones
    size = abs(U) @ ones
    terms = int(np.diff(L.indptr).max()) + 1
    error = abs(L) @ (_gamma(terms) * size + asymmetry + 2 * ROUNDOFF * size)  # (1)
    return ROOM * float(error.max()) <= allowed


def _by_dense_factor(A: Any, allowed: float) -> bool:
    """The same by Cholesky's factor of A + s11ᵀ. Memory 8n² bytes."""
    n = A.shape[0]
    check_cost(n**3 / 3, "the proof of the gap")
    whole = A.toarray(order="F")
    whole += float(A.diagonal().mean()) / n
    error = _gamma(n + 2) * float(np.trace(whole)) + 2 * n * ROUNDOFF * float(abs(whole).max())
    if ROOM * error > allowed:
        return False
    try:
        linalg.cholesky(whole, lower=True, overwrite_a=True, check_finite=False)
    except linalg.LinAlgError:
        return False
    return True


def _gamma(k: int) -> float:
    return k * ROUNDOFF / (1 - k * ROUNDOFF)
