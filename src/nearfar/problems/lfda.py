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

For ρ = 0 it is solved in coordinates in which the points are white, whatever the units of the
features are; for ρ > 0 in those of the d features that vary, so that L also keeps directions in
which points do not differ.

Costs: O(Σ n_c² d + n d² + d³) time and O(n d + d²) memory: no table of all pairs is kept.

[JMLR07] Sugiyama, Dimensionality reduction of multimodal labeled data by local Fisher discriminant
analysis, JMLR 8 (2007).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from types import ModuleType

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from nearfar.kernels import Array, as_dtype_of
from nearfar.linalg import canonical_factor, symmetric
from nearfar.problems.covariance import CovarianceProblem
from nearfar.problems.gmml import classes_by_size, scatters_of_labels
from nearfar.supervision import ClassOrder

Matrix = NDArray[np.float64]

LEAST_SCALE = (
    1e-6  # of a point, relative to the largest: k copies of a point have none of their own
)
FLAT = 1e-10  # share of the variance of a direction that counts as none within classes
NEGLIGIBLE = 1e-12  # λ, relative to the largest, of a direction that tells no classes apart


@dataclass(frozen=True)
class LFDAProblem:
    """(5) in coordinates u = white x, x = dual u."""

    S: Matrix  # (s, s) S_ρ
    B: Matrix  # (s, s) B_ρ
    scatter: float  # of all points along each direction, or its mean
    white: Matrix  # (s, d)
    dual: Matrix  # (d, s)

    @classmethod
    def build(
        cls, kernels: ModuleType, points: Array, labels: ClassOrder, k: int, shrinkage: float
    ) -> LFDAProblem:
        """The problem of points (n, d), some of which differ, with ρ = shrinkage."""
        n = len(points)
        order = kernels.index(labels.order, points)
        centred = kernels.double(points)
        centred = (centred - centred.mean(0))[order]
        size = float(abs(centred).max())
        centred = centred / size
        single = str(points.dtype).endswith("float32")
        Z = kernels.single(centred) if single else centred
        in_order = ClassOrder(
            labels.classes, labels.codes[labels.order], np.arange(n), labels.starts
        )
        S, B, total = local_scatters(kernels, centred, in_order, k, Z)
        if shrinkage:
            live = np.diag(S + B) > 0
            rows = np.eye(len(live))[live]
            S, B = (size**2 * _shrunk(part[np.ix_(live, live)], shrinkage) for part in (S, B))
            return cls(S, B, float(np.trace(S + B)) / len(S), rows, rows.T)
        if points.shape[1] <= n:
            white = CovarianceProblem.of_covariance(size**2 / (n - 1) * total)
        else:
            white = CovarianceProblem.build(kernels, points)
        rows = size * white.white
        return cls(
            symmetric(rows @ S @ rows.T),
            symmetric(rows @ B @ rows.T),
            n - 1.0,
            white.white,
            white.dual,
        )

    @property
    def rank(self) -> int:
        """Directions in which the points vary."""
        return len(self.S)

    @cached_property
    def n_flat(self) -> int:
        """Directions in which the points vary, but near points of a class do not."""
        least = FLAT * self.scatter
        try:  # a factor is a proof, in a fifth of the time
            linalg.cholesky(self.S - 2 * least * np.eye(len(self.S)))
        except linalg.LinAlgError:
            return int((linalg.eigvalsh(self.S) <= least).sum())
        return 0

    @cached_property
    def _directions(self) -> tuple[Matrix, Matrix]:
        """λ, descending, and V of (6)."""
        values, vectors = linalg.eigh(self.B, self.S)
        return np.maximum(values[::-1], 0.0), vectors[:, ::-1]

    def solution(self, n_components: int | None, embedding: str) -> Matrix:
        """The canonical map of (7), (r, d)."""
        values, vectors = (part[..., :n_components] for part in self._directions)
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
        best = float(self._directions[0][: len(L)].sum())
        return objective, max(best - objective, 0.0) / max(objective, 1.0)


def local_scatters(
    kernels: ModuleType, centred: Array, labels: ClassOrder, k: int, Z: Array | None = None
) -> tuple[Matrix, Matrix, Matrix]:
    """S and B of (8) for centred points in float64, sorted by class, and the scatter of all.

    ``Z`` are the same points in the precision of the affinities, if that is another one.
    """
    n, d = centred.shape
    Z = centred if Z is None else Z
    scales = kernels.kth_squares(Z, labels.starts, k) ** 0.5  # (1)
    scales = scales.clip(LEAST_SCALE * max(float(scales.max()), LEAST_SCALE), None)
    laplacian = kernels.local_laplacian(Z, as_dtype_of(Z, scales), labels.starts)  # (2)
    laplacian = kernels.double(laplacian)
    S, local = np.zeros((2, d, d))
    for members, numbers in classes_by_size(labels):
        of_class = kernels.index(numbers, centred)
        product = symmetric(kernels.gram(centred[of_class], laplacian[of_class]))
        S += product / members  # (8)
        local += product
    near, far = scatters_of_labels(kernels, centred, labels)
    return S, (far + local) / n - S, (near + far) / n  # (8)


def _shrunk(A: Matrix, shrinkage: float) -> Matrix:
    """(1 − ρ) A + ρ (tr A / d) I."""
    return np.asarray((1 - shrinkage) * A + shrinkage * np.trace(A) / len(A) * np.eye(len(A)))
