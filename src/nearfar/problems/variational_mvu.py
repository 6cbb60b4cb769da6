"""Maximum variance unfolding with K = U Z Uᵀ: the size of the program does not grow with n.

U (n, m) is a basis of smooth functions on the graph, wₑ are the weights of its edges e = (i, j), Dₑ
their squared lengths, divided by their weighted mean, and Lap(w) = Σₑ wₑ (eᵢ − eⱼ)(eᵢ − eⱼ)ᵀ.

(1) basis      1ᵀU = 0, UᵀLap(w)U = I, so that K = U Z Uᵀ is centred           [Thesis, eq. 3.25]
(2) lengths    ℓₑ(Z) = uₑᵀ Z uₑ,  uₑ = Uᵢ − Uⱼ
(3) maximise   f(Z) = 2ρλ tr K − Σₑ wₑ (ℓₑ − Dₑ)²  over Z ⪰ 0                   [Thesis, 3.1.8]
(4) slope      −∇f / 2 = S(Z) = Σₑ wₑ (ℓₑ − Dₑ) uₑuₑᵀ − ρλ UᵀU; at the optimum S ⪰ 0, ⟨S, Z⟩ = 0
(5) bound      f* ≤ Σₑ wₑ (ℓₑ + t)² − Σₑ wₑ Dₑ²  for any Z ⪰ 0 and t ≥ 0 with S + tI ⪰ 0
(6) gap        (bound − f) / (bound − f(0)),  f(0) = −Σₑ wₑ Dₑ²
(7) one sum    svec(ℓ's gradients) are rows of A (edges, p), p = m(m + 1)/2; only AᵀwA (p, p), AᵀwD
               and the sums of w and wD² remain of the edges
(8) refined    −f of points Y (n, r) that are free                    [`nearfar.problems.stress`]

λ is the second smallest eigenvalue of Lap(w), and ρ the `stretch`: since λ tr K ≤ Σ wℓ, and
⟨∇f, Z⟩ = 0 at the optimum, the excess of squared lengths is bounded, Σ wℓ(ℓ − D) ≤ ρ Σ wℓ. The
thesis' weight is ω = 1 / (1 + 2ρλ), in units where the mean of D is 1.

[Thesis] Weinberger, Metric learning with convex optimization, University of Pennsylvania 2007.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from nearfar.kernels import Array, kernels_for
from nearfar.linalg import null_tolerance, signed, smat, svec, symmetric

Matrix = NDArray[np.float64]
Index = NDArray[np.intp]

BLOCK_BYTES = 1 << 23  # rows of A held at a time


@dataclass(frozen=True)
class Edges:
    """Edges with squared lengths of mean 1, on the device of the data, in float64."""

    heads: Array  # (e,)
    tails: Array  # (e,)
    squares: Array  # (e,) D
    weights: Array  # (e,) w
    n: int

    @classmethod
    def build(
        cls,
        n: int,
        heads: Index,
        tails: Index,
        lengths: Matrix,
        weights: Matrix | None,
        reference: Array,
    ) -> tuple[Edges, float]:
        """Make edges on the device of the reference; also returns the unit of length."""
        kernels = kernels_for(reference)
        double = kernels.double(reference[:0])
        w = np.ones(len(lengths)) if weights is None else weights
        largest = float(lengths.max())
        scaled = lengths / largest  # squares of tiny lengths would vanish
        unit = largest * float(np.sqrt(w @ scaled**2 / w.sum()))
        edges = cls(
            kernels.index(heads, double),
            kernels.index(tails, double),
            kernels.like((lengths / unit) ** 2, double),
            kernels.like(w / w.mean(), double),
            n,
        )
        return edges, unit

    def on_host(self) -> tuple[Matrix, Matrix]:
        """Squares and weights."""
        kernels = kernels_for(self.squares)
        return kernels.to_host(self.squares), kernels.to_host(self.weights)

    def laplacian_matmul(self, factors: Array, Y: Array) -> Array:
        """Lap(w · factors) Y."""
        product = kernels_for(Y).laplacian_matmul(self.heads, self.tails, self.weights * factors, Y)
        return product

    def excess(self, Y: Array) -> Array:
        """ℓ − D of points Y (n, r)."""
        lengths: Array = kernels_for(Y).sq_lengths(Y, self.heads, self.tails)
        return lengths - self.squares


@dataclass(frozen=True)
class Certificate:
    """The objective of a Z, a bound (5) on all objectives, and the gap (6)."""

    objective: float
    bound: float
    gap: float
    reached: float  # bound − f(0), which the gap is relative to


@dataclass(frozen=True)
class VariationalProgram:
    """Equations (1) to (7); matrices are on the host."""

    edges: Edges
    basis: Array  # (n, m) U
    pull: float  # 2ρλ
    scatter: Matrix  # (m, m) UᵀU
    G: Matrix  # (p, p) AᵀwA
    g: Matrix  # (p,) AᵀwD + svec(pull UᵀU / 2): S(Z) = smat(G svec(Z) − g)
    sums: tuple[float, float]  # of w and of wD²

    @classmethod
    def build(cls, edges: Edges, basis: Matrix, pull: float) -> VariationalProgram:
        """The program for any basis of functions (n, m), which is transformed to satisfy (1).

        Time O(e m⁴ / 4), memory O(n m + m⁴ / 4).
        """
        kernels = kernels_for(edges.squares)
        U = _whitened(edges, kernels.like(basis, edges.squares))
        m = int(U.shape[1])
        i, j = np.triu_indices(m)
        scale = np.where(i == j, 1.0, np.sqrt(2.0))
        first, second = (kernels.index(rows, U) for rows in (i, j))
        scale = kernels.like(scale, U)
        G, AD = np.zeros((len(i), len(i))), np.zeros(len(i))
        step = max(64, BLOCK_BYTES // (8 * len(i)))
        for start in range(0, len(edges.squares), step):
            part = slice(start, start + step)
            u = U[edges.heads[part]] - U[edges.tails[part]]
            A = u[:, first]
            A *= u[:, second]
            A *= scale
            w, D = edges.weights[part], edges.squares[part]
            wA = w[:, None] * A
            G += kernels.gram(A, wA)  # (7)
            AD += kernels.gram(wA, D[:, None])[:, 0]
        w, D = edges.weights, edges.squares
        scatter = symmetric(kernels.gram(U, U))
        return cls(
            edges,
            U,
            pull,
            scatter,
            symmetric(G),
            AD + svec(0.5 * pull * scatter),
            (float(w.sum()), float(w @ (D * D))),
        )

    @property
    def size(self) -> int:
        """Rows m of Z."""
        return len(self.scatter)

    def slope(self, Z: Matrix) -> Matrix:
        """S of (4)."""
        return smat(self.G @ svec(Z) - self.g)

    def certificate(self, Z: Matrix) -> Certificate:
        """(3), (5) and (6) from the sums (7)."""
        z = svec(Z)
        pulled = self.pull * float(np.vdot(self.scatter, Z))
        return _certificate(
            self.slope(Z),
            pulled,
            self.sums,
            (float(np.trace(Z)), float(z @ self.G @ z), float(self.g @ z) - 0.5 * pulled),
        )

    def exact_certificate(self, Z: Matrix) -> Certificate:
        """The same from the edges themselves."""
        edges, kernels = self.edges, kernels_for(self.basis)
        Y = self.embedding(Z)
        excess = edges.excess(Y)
        lengths, w, D = excess + edges.squares, edges.weights, edges.squares
        product = kernels.gram(self.basis, edges.laplacian_matmul(excess, self.basis))
        return _certificate(
            symmetric(product - 0.5 * self.pull * self.scatter),
            self.pull * float((Y * Y).sum()),
            (float(w.sum()), float(w @ (D * D))),
            (float(w @ lengths), float(w @ (lengths * lengths)), float(w @ (lengths * D))),
        )

    def embedding(self, Z: Matrix) -> Array:
        """Points Y (n, m) with K = YYᵀ, along its axes of decreasing variance."""
        values, vectors = linalg.eigh(Z)
        root = vectors * np.sqrt(np.maximum(values, 0.0))  # (m, m), Z = root rootᵀ
        _, axes = linalg.eigh(symmetric(root.T @ self.scatter @ root))
        return kernels_for(self.basis).apply(self.basis, (root @ axes[:, ::-1]).T)


def _certificate(
    S: Matrix, pulled: float, sums: tuple[float, float], lengths: tuple[float, float, float]
) -> Certificate:
    """From S, 2ρλ tr K and the sums of w, wD² and of wℓ, wℓ², wℓD."""
    (w, wDD), (wl, wl2, wlD) = sums, lengths
    objective = pulled - (wl2 - 2 * wlD + wDD)
    t = max(0.0, -float(linalg.eigvalsh(S, subset_by_index=[0, 0])[0]))
    reached = wl2 + 2 * t * wl + t * t * w  # Σ w(ℓ + t)² = bound − f(0)
    bound = reached - wDD  # (5)
    gap = (bound - objective) / max(reached, np.finfo(float).tiny)
    return Certificate(objective, bound, max(gap, 0.0), reached)


def _whitened(edges: Edges, basis: Array) -> Array:
    """(1): a basis of the same functions without constants, orthonormal under Lap(w)."""
    kernels = kernels_for(basis)
    centred = basis - basis.mean(0)
    product = symmetric(
        kernels.gram(centred, edges.laplacian_matmul(0 * edges.weights + 1, centred))
    )
    values, vectors = linalg.eigh(product)
    kept = values > null_tolerance(values)
    axes = signed(vectors[:, kept].T) / np.sqrt(values[kept])[:, None]
    return kernels.apply(centred, axes)
