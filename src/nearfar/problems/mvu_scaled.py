"""The program of `nearfar.problems.mvu` in coordinates in which K is the identity.

Near a solution K has eigenvalues from 10⁵ down to 10⁻¹², and S has small eigenvalues where those of
K are large: rounding the largest entries spoils the smallest eigenvalues. In coordinates in which K
is the identity, everything has the same size. With K + t 11ᵀ = F Fᵀ and the rows
c_e = Fᵀ(e_i − e_j) / √D_e of C:

(6) lengths  ℓ_e = c_eᵀ K' c_e  of  F K' Fᵀ, now with K' = I
(7) dual     S' = FᵀSF = Cᵀ diag(y) C − σFᵀPF, which is μI on the central path
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from nearfar.kernels import Array
from nearfar.problems.mvu import MVUProgram, State


@dataclass(frozen=True, kw_only=True)
class ScaledMVUProgram(MVUProgram):
    """The program in the coordinates of (6) and (7), exact where S and K are nearly singular.

    K' and S' are definite: F has the direction of 1, in which S' is given an eigenvalue.
    """

    original: MVUProgram
    basis: Array  # (n, n) F
    rows: Array  # (m, n) C
    spread: Array  # (n, n) FᵀPF
    mean: Array  # (n,) Fᵀ1, of length 1

    @classmethod
    def build_from(cls, program: MVUProgram, basis: Array) -> ScaledMVUProgram:
        """The program in the coordinates of a basis F."""
        ones = basis.sum(0)
        spread = basis.T @ basis - ones[:, None] * (ones / program.n)
        rows = program.gram.edge_rows(basis, program.heads, program.tails, 1 / program.squares**0.5)
        values = {field.name: getattr(program, field.name) for field in fields(MVUProgram)}
        mean = ones / float(ones @ ones) ** 0.5
        return cls(**values, original=program, basis=basis, rows=rows, spread=spread, mean=mean)

    def scaled(self, factor: Array) -> ScaledMVUProgram:
        """The program in coordinates in which the matrix of this factor is the unit matrix."""
        return ScaledMVUProgram.build_from(self.original, self.gram.product(self.basis, factor))

    def plain(self, state: State) -> tuple[MVUProgram, State]:
        """The program (2), and this point of it."""
        product = self.gram.product
        K = self.original.projected(product(self.basis, product(state.K, self.basis.T)))
        return self.original, replace(state, K=0.5 * (K + K.T))

    @property
    def size(self) -> int:
        """Number of products that should become zero, plus the one of 1, which should not."""
        return self.n + 2 * len(self.squares)

    def lengths(self, K: Array) -> Array:
        """ℓ of (6)."""
        return (self.gram.product(self.rows, K) * self.rows).sum(1)

    def product_lengths(self, A: Array, B: Array) -> Array:
        """ℓ of ½(AB + (AB)ᵀ)."""
        return self.lengths(self.gram.product(A, B))

    def projected(self, A: Array) -> Array:
        """The matrix itself."""
        return A

    def change(self, y: Array) -> Array:
        """Cᵀ diag(y) C, by which S' changes with y."""
        return self.gram.product(self.rows.T * y, self.rows)

    def dual_slack(self, y: Array) -> Array:
        """S' of (7), with the mean of its eigenvalues in the direction of 1."""
        S = self.change(y) - self.sign * self.spread
        S = 0.5 * (S + S.T)
        return S + S.diagonal().mean() * self.mean[:, None] * self.mean

    def cholesky(self, A: Array) -> Array | None:
        """The lower factor, or None if the matrix is not definite."""
        return self.gram.cholesky(A)

    def inverse(self, factor: Array) -> Array:
        """The inverse of A from its `cholesky`."""
        return self.gram.cholesky_inverse(factor)

    def schur(
        self,
        K: Array,  # noqa: ARG002 - the identity
        inverse: Array,
        extra: Array,
        single: bool = False,  # noqa: ARG002 - these coordinates are for more precision, not less
    ) -> Array | None:
        """As in plain coordinates, for K' = I, always in double precision."""
        return self.gram.schur_of_rows(self.rows, self.gram.product(self.rows, inverse), extra)
