"""Local Fisher discriminant analysis: Fisher's criterion, by pairs that are near each other.

Points x_i (n, d) with classes y_i of n_c members. Sums run over ordered pairs:

(1) scale      σ_i = ‖x_i − x_i^(k)‖, the distance to the k-th nearest of its class [JMLR07]
(2) affinity   a_ij = exp(−‖x_i − x_j‖² / (σ_i σ_j))                                [JMLR07]
(3) within     S = ½ Σ w_ij (x_i − x_j)(x_i − x_j)ᵀ,  w_ij = a_ij / n_c in a class, else 0 [JMLR07]
(4) between    B = ½ Σ b_ij (x_i − x_j)(x_i − x_j)ᵀ,
               b_ij = a_ij (1/n − 1/n_c) in a class, else 1/n   [JMLR07]
(5) maximise   tr((L S_ρ Lᵀ)⁻¹ L B_ρ Lᵀ)  over L (r, d),                               [JMLR07]
               S_ρ = (1 − ρ) S + ρ (tr S / d) I,  B_ρ = (1 − ρ) B + ρ (tr B / d) I
(6) answer     B_ρ v = λ S_ρ v with vᵀS_ρ v = 1, λ descending: the first r; Σ λ is the maximum
(7) map        rows v ("plain"), √λ v ("weighted"), or an orthonormal basis of the v

ρ = 0 in the paper; towards ρ = 1 all rows together have the distances of the inputs. With all
a_ij = 1, S and B are the scatters within and between classes, and the answer is Fisher's. Since
a_ij <= 1, the weights b_ij are not below Fisher's, so that B ⪰ 0 and λ >= 0.

With Lap_c = diag(a 1) − a of class c, D the sum of (x_i − x_j)(x_i − x_j)ᵀ over unordered pairs of
different classes, and n_i the size of the class of x_i:

(8) sums       S = Σ_c 1/n_c X_cᵀ Lap_c X_c,   B = 1/n (D + Σ_c X_cᵀ Lap_c X_c) − S

For ρ = 0 it is solved with features of deviation 1 where their correlations are well-conditioned,
and otherwise in coordinates in which the points are white, whatever the units of the features are;
for ρ > 0 in those of the d features that vary, so that L also keeps directions in which points do
not differ.

Costs: O(Σ n_c² d + n d² + d³) time and O(n d + d²) memory, and the table of one class.

[JMLR07] Sugiyama, Dimensionality reduction of multimodal labeled data by local Fisher discriminant
analysis, JMLR 8 (2007).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby, pairwise
from types import ModuleType

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from nearfar.kernels import Array
from nearfar.linalg import canonical_factor, leading_eigh, squared_norm, symmetric
from nearfar.problems.covariance import CovarianceProblem
from nearfar.supervision import ClassOrder

Index = NDArray[np.intp]
Matrix = NDArray[np.float64]

LEAST_SCALE = (
    1e-6  # of a point, relative to the largest: k copies of a point have none of their own
)
LARGEST_INVERSE = 1e6  # ‖R⁻¹‖² of a factor of correlations, up to which it resolves them well
STRIPS, STRIP = 4, 64  # parts of a symmetric product, and the least rows of one
FLAT = 1e-10  # share of the variance of a direction that counts as none within classes
NEGLIGIBLE = 1e-12  # λ, relative to the largest, of a direction that separates no classes


@dataclass(frozen=True)
class LFDAProblem:
    """(5) in coordinates u = white x, x = dual u."""

    S: Matrix  # (s, s) S_ρ
    B: Matrix  # (s, s) B_ρ
    total: Matrix  # (s, s) the scatter of all points, or for ρ > 0 its mean along a direction
    white: Matrix  # (s, d)
    dual: Matrix  # (d, s)
    _known: dict[int, tuple[Matrix, Matrix]] = field(default_factory=dict, repr=False)

    @classmethod
    def build(
        cls, kernels: ModuleType, points: Array, labels: ClassOrder, k: int, shrinkage: float
    ) -> LFDAProblem:
        """The problem of points (n, d), some of which differ, with ρ = shrinkage."""
        n, (order, starts) = len(points), by_size(labels)
        # Relative to a point, features that do not vary are zero, and so is their mean.
        centred = kernels.double(points[kernels.index(order, points)])
        centred -= 1 * centred[:1]
        centred -= centred.mean(0)
        size = max(float(centred.max()), -float(centred.min()))
        centred /= size
        single = str(points.dtype).endswith("float32")
        Z = kernels.single(centred) if single else centred
        S, B, total = local_scatters(kernels, centred, starts, k, Z)
        if shrinkage:
            live = np.diag(S + B) > 0
            rows = np.eye(len(live))[live]
            S, B = (size**2 * _shrunk(part[np.ix_(live, live)], shrinkage) for part in (S, B))
            mean = float(np.trace(S + B)) / len(S) * np.eye(len(S))
            return cls(S, B, mean, rows, rows.T)
        scales = np.sqrt(np.diag(total))
        if n > len(total) and scales.all() and _well_conditioned(total / scales / scales[:, None]):
            S, B, total = (symmetric(part / scales / scales[:, None]) for part in (S, B, total))
            return cls(S, B, total, np.diag(1 / (size * scales)), np.diag(size * scales))
        found = _white_problem(kernels, points, size**2 / (n - 1) * total)
        white, rows = found.white, size * found.white
        S, B = (symmetric(rows @ part @ rows.T) for part in (S, B))
        return cls(S, B, (n - 1.0) * np.eye(len(S)), white, found.dual)

    @property
    def rank(self) -> int:
        """Directions in which the points vary."""
        return len(self.S)

    @cached_property
    def n_flat(self) -> int:
        """Directions in which the points vary, but near points of a class do not."""
        try:  # a factor is a proof, in a fifth of the time
            linalg.cholesky(self.S - 2 * FLAT * self.total)
        except linalg.LinAlgError:
            return int((linalg.eigvalsh(self.S, self.total) <= FLAT).sum())
        return 0

    def _directions(self, count: int) -> tuple[Matrix, Matrix]:
        """The first λ of (6), descending, and their v (s, count)."""
        if count not in self._known:
            factor = linalg.cholesky(self.S, lower=True)
            reduced, _ = linalg.lapack.dsygst(self.B, factor, lower=1)  # F⁻¹ B F⁻ᵀ, its lower half
            values, vectors = leading_eigh(reduced, count)
            vectors = linalg.solve_triangular(factor, vectors, trans="T", lower=True)
            self._known[count] = np.maximum(values[::-1], 0.0), vectors[:, ::-1]
        return self._known[count]

    def solution(self, n_components: int | None, embedding: str) -> Matrix:
        """The canonical map of (7), (r, d)."""
        values, vectors = self._directions(min(n_components or self.rank, self.rank))
        if embedding == "plain":
            return canonical_factor(vectors.T @ self.white)
        if embedding == "weighted":
            kept = values > NEGLIGIBLE * values.max(initial=0.0)
            kept[:1] = True
            return canonical_factor((np.sqrt(values) * vectors)[:, kept].T @ self.white)
        basis = linalg.qr((vectors.T @ self.white).T, mode="economic")[0]
        return canonical_factor(basis.T)

    def objective_and_gap(self, L: Matrix) -> tuple[float, float]:
        """(5) at L, and what it lacks of the maximum, relative to it or to 1 if that is larger."""
        rows = L @ self.dual
        basis = linalg.qr(rows.T, mode="economic")[0]
        within, between = (basis.T @ part @ basis for part in (self.S, self.B))
        objective = float(np.trace(linalg.solve(within, between, assume_a="pos")))
        best = float(self._directions(len(L))[0].sum())
        return objective, max(best - objective, 0.0) / max(objective, 1.0)


def by_size(labels: ClassOrder) -> tuple[Index, Index]:
    """Rows sorted by class, small classes first, and where classes start."""
    ranks = np.argsort(labels.sizes, kind="stable")
    rows = [labels.order[labels.starts[c] : labels.starts[c + 1]] for c in ranks]
    return np.concatenate(rows), np.concatenate([[0], np.cumsum(labels.sizes[ranks])])


def local_scatters(
    kernels: ModuleType, centred: Array, starts: Index, k: int, Z: Array | None = None
) -> tuple[Matrix, Matrix, Matrix]:
    """S and B of (8) for centred points in float64, sorted as by `by_size`, and the scatter of all.

    ``Z`` are the same points in the precision of the affinities, if that is another one. With T the
    scatter of all points and W_c that of a class about its mean, D = n T − Σ n_c W_c. About any
    centre the sums are the same, and their rounding is that of its distance from the points.
    """
    n, d = centred.shape
    Z = centred if Z is None else Z
    laplacian = kernels.double(kernels.neighbor_laplacian(Z, starts, k, LEAST_SCALE))  # (1), (2)
    S, local, within, total = np.zeros((4, d, d))
    for size, classes in groupby(pairwise(starts.tolist()), key=lambda ends: ends[1] - ends[0]):
        ends = list(classes)
        rows = slice(ends[0][0], ends[-1][1])
        part = centred[rows]
        product = symmetric_product(kernels, part, laplacian[rows])
        S += product / size  # (8)
        local += product
        scatter = kernels.gram(part, part)
        means = part.reshape(-1, size, d).mean(1)
        within += size * (scatter - size * kernels.gram(means, means))
        total += scatter
    mean = centred.mean(0)[None]
    total -= n * kernels.gram(mean, mean)
    return S, total + (local - within) / n - S, total  # (8)


def symmetric_product(kernels: ModuleType, A: Array, B: Array) -> Matrix:
    """AᵀB (d, d), which is symmetric, from somewhat more than the half of it."""
    d = A.shape[1]
    product, step = np.zeros((d, d)), max(STRIP, -(-d // STRIPS))
    for first in range(0, d, step):
        rows = slice(first, first + step)
        product[rows, first:] = kernels.gram(A[:, rows], B[:, first:])
        product[first:, rows] = product[rows, first:].T
    return product


def _well_conditioned(correlations: Matrix) -> bool:
    """Whether a factor of them is well conditioned, in a tenth of the time of eigenvectors."""
    factor, info = linalg.lapack.dpotrf(correlations, lower=1)
    inverse = linalg.lapack.dtrtri(factor, lower=1)[0] if info == 0 else factor
    return bool(info == 0 and squared_norm(inverse) < LARGEST_INVERSE)


def _white_problem(kernels: ModuleType, points: Array, C: Matrix) -> CovarianceProblem:
    """That of points (n, d) of the covariance C."""
    if len(C) <= len(points):
        return CovarianceProblem.of_covariance(C)
    return CovarianceProblem.build(kernels, points)


def _shrunk(A: Matrix, shrinkage: float) -> Matrix:
    """(1 − ρ) A + ρ (tr A / d) I."""
    return np.asarray((1 - shrinkage) * A + shrinkage * np.trace(A) / len(A) * np.eye(len(A)))
