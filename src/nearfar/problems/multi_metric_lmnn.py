"""Large margin nearest neighbours with several metrics, learned together.

Each point b has one of C metrics, c(b): the metric of its class or of its cluster. The metric of b
measures the distance from a to b, which is therefore not symmetric:

(1) distance  D(a, b) = (x_a − x_b)ᵀ M_c(b) (x_a − x_b)                           [JMLR09, eq. 16]
(2) minimise  f(M) = (1−μ) Σ_e D(e) + μ Σ_t [1 + D(e) − D(p)]₊   over M_1, …, M_C ⪰ 0
              with target edges e = (i, j), pairs p = (i, l), triplets t = (e, p) as for one metric
(3) dual      maximise μ Σ_t α_t  over 0 ≤ α_t ≤ 1  with  P_c − S_c(α) ⪰ 0 for every c,
              P_c = (1−μ) Σ_{e: c(j)=c} C_e,  S_c(α) = μ Σ_t α_t ([c(l)=c] C_p − [c(j)=c] C_e)
(4) gap       f(M) − μ Σα = Σ_c ⟨P_c − S_c(α), M_c⟩ + μ Σ_t ([s_t]₊ − α_t s_t)

Everything else, weights of the rows included, is as for one metric (`nearfar.problems.lmnn`), on
images of the points under all metrics: row i C + c of Z is L_c F_c u_i. A pair (a, b) is the edge
between rows a C + c(b) and b C + c(b), so lengths, gradients and lines are those of one metric on
C n points.

F_c determines the path, not the optimum. It whitens P_c (stabilised by a share of the pull of all
metrics), which is the fastest way to the optimum. Or it is the identity on a problem in the
geometry of the start (`LMNNProblem.in_geometry_of`), which suits early stopping, since C metrics
overfit along the directions of little pull.

Costs: C times those of one metric, except for the search, which is twice that.

[JMLR09] Weinberger & Saul, Distance metric learning for large margin nearest neighbor
classification, JMLR 10 (2009), section 5.2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from nearfar.kernels import Array
from nearfar.kernels.tiles import labels_of
from nearfar.linalg import pad_or_trim_rows, range_and_null, symmetric
from nearfar.problems.lmnn import LMNNProblem, Matrix
from nearfar.problems.lmnn_triplets import Triplets
from nearfar.problems.whitening import FLOOR, floored_map, returned_map, rotated_map

STEADY = 1e-3  # share of the pull of all metrics in the whitening of each


@dataclass(frozen=True)
class MultiMetricProblem(LMNNProblem):
    """The objective (2). Factors have the shape (C, r, d); P holds P_c in the coordinates F_c U."""

    metric_of: Array  # (n,) metric of each row of U
    shares: Matrix  # (C,) of the target edges that each metric measures; that of one if of none
    frames: Matrix  # (C, d, d): F_c
    inverse_frames: Matrix  # (C, d, d)

    @classmethod
    def of(
        cls,
        single: LMNNProblem,
        metric_of: NDArray[np.intp],
        n_metrics: int,
        *,
        whiten: bool = True,
    ) -> MultiMetricProblem:
        """The same points and target edges with several metrics; each row has a metric number.

        Without ``whiten`` all metrics keep the coordinates of the problem with one metric.
        """
        kernels, U = single.kernels, single.exact()
        on_device = kernels.index(metric_of, single.U)
        pulls, frames, inverses, shares = [], [], [], []
        masses = single.masses
        for metric in range(n_metrics):
            mine = kernels.flatnonzero(on_device[single.edges[1]] == metric)
            # From differences, so that it vanishes where all edges do, in all coordinates.
            heads, tails = (end[mine] for end in single.edges)
            weights = None if masses is None else masses[heads]
            scatter = kernels.edge_scatter(U, heads, tails, weights)
            share = max(len(mine), 1) / len(single.edges[0])
            if masses is not None and len(mine):
                share = float(masses[heads].sum() / masses[single.edges[0]].sum())
            P = (1 - single.push_weight) * symmetric(scatter)
            if single.ridge:
                P = P + share * single.ridge * single.trace_form
            steadied = P + STEADY * share * (single.P + FLOOR * single.Q)
            frame, inverse = _whitening(steadied) if whiten else (np.eye(len(P)), np.eye(len(P)))
            shares.append(share)
            frames.append(frame)
            inverses.append(inverse)
            pulls.append(symmetric(frame @ P @ frame.T))
        inherited = {field.name: getattr(single, field.name) for field in fields(LMNNProblem)}
        return cls(
            **inherited | {"P": np.array(pulls)},
            metric_of=on_device,
            shares=np.array(shares),
            frames=np.array(frames),
            inverse_frames=np.array(inverses),
        )

    @property
    def n_metrics(self) -> int:
        """C."""
        return len(self.frames)

    def coarser(self) -> None:
        """None: each metric has few edges."""

    def factor(self, components: Matrix) -> Matrix:
        """The factors of maps of the features, (C, r, features), or of one map for all metrics."""
        return components @ self.dual_basis @ self.inverse_frames

    def components(self, L: Matrix) -> Matrix:
        """The maps of the features, (C, r, features), of factors."""
        return L @ self.frames @ self.basis.T

    def above_floor(self, components: Matrix) -> Matrix:
        """Maps of M'_c for those of M_c = φWᵀW + M'_c, or one for all metrics."""
        if components.ndim == 2:
            return super().above_floor(components)
        return _padded([super(MultiMetricProblem, self).above_floor(L) for L in components])

    def returned(self, L: Matrix) -> Matrix:
        """The maps of the features that a fit returns, padded with rows of zeros."""
        if self.kept is not None:
            above = self.components(L) @ self.prior_inverse
            return np.array([floored_map(A, self.floor, self.prior, self.U) for A in above])
        maps = [
            returned_map(components, factor, self.U)
            for components, factor in zip(self.components(L), L @ self.frames, strict=True)
        ]
        return _padded(maps)

    # -- images under all metrics --------------------------------------------------------------

    def _map(self, L: Matrix, U: Array) -> Array:
        stacked = (L @ self.frames).reshape(-1, L.shape[2])
        return self.kernels.apply(U, stacked).reshape(len(U) * self.n_metrics, L.shape[1])

    def _returned_images(self, L: Matrix, U: Array) -> tuple[Array, Array]:
        parts = zip(self.components(L), L @ self.frames, strict=True)
        found = [rotated_map(components, factor, self.U) for components, factor in parts]
        maps, rotations = (np.array(part) for part in zip(*found, strict=True))
        images = self.images(maps.reshape(-1, maps.shape[2]))
        return self._map(rotations @ L, U), images.reshape(-1, maps.shape[1])

    def _images_of(self, components: Matrix) -> Array:
        images = self.images(components.reshape(-1, components.shape[2]))
        return images.reshape(-1, components.shape[1])

    @property
    def _ridge_of_floor(self) -> float:
        return self.ridge * self.floor * len(self.prior) * float(self.shares.sum())

    def _ridge_of(self, components: Matrix) -> float:
        framed = components @ self.prior_inverse
        return self.ridge * float(self.shares @ (framed * framed).sum(axis=(1, 2)))

    def _pulled_back(self, W: Array) -> Matrix:
        rows = W.shape[1]
        product = self.kernels.gram(W.reshape(len(self.U), -1), self.U)
        pulled: Matrix = product.reshape(self.n_metrics, rows, -1) @ self.frames.transpose(0, 2, 1)
        return pulled

    def _nodes(self, heads: Array, tails: Array) -> tuple[Array, Array]:
        metric = self.metric_of[tails]
        return heads * self.n_metrics + metric, tails * self.n_metrics + metric

    def _impostor_pairs(
        self, Z: Array, kept: Array | None, reach: Array, *, screened: bool
    ) -> tuple[Array, Array]:
        kernels, n = self.kernels, len(self.U)
        labels = kernels.index(labels_of(self.starts), self.U)
        rows = kernels.flatnonzero(reach > -np.inf)  # few of a sample
        codes = [labels[:0]]
        for metric in range(self.n_metrics):
            points = kernels.flatnonzero(self.metric_of == metric)
            images = self._with_kept(Z[metric :: self.n_metrics], kept)
            screen = kernels.single(images) if screened else None
            heads, tails = kernels.cross_impostor_pairs(
                images[rows],
                reach[rows],
                images[points],
                labels[rows],
                labels[points],
                None if screen is None else (screen[rows], screen[points]),
            )
            codes.append(rows[heads] * n + points[tails])
        code = kernels.unique(kernels.concatenate(codes))
        return code // n, code % n

    # -- certificate -----------------------------------------------------------------------------

    def _pushes(self, triplets: Triplets, alpha: Array, U: Array) -> list[Matrix]:
        kernels = self.kernels
        heads, tails, weights = self._links(triplets, alpha)
        pushes = []
        for metric, mine in enumerate(self._by_metric(tails)):
            nodes = kernels.unique(kernels.concatenate([heads[mine], tails[mine]]))
            ends = (kernels.searchsorted(nodes, side[mine]) for side in (heads, tails))
            lap = kernels.laplacian_matmul(*ends, weights[mine], U[nodes])
            frame = self.frames[metric]
            pushes.append(-frame @ kernels.gram(U[nodes], lap) @ frame.T)
        return pushes

    @cached_property
    def _ranges(self) -> list[tuple[Matrix, Matrix]]:
        return [range_and_null(P) for P in self.P]

    def _feasible(
        self, triplets: Triplets, alpha: Array, scales: tuple[float, ...], U: Array
    ) -> Array:
        """Scale α of each triplet for the metric of its impostor, then all α until feasible.

        So a constraint that one metric violates costs only the triplets that involve it.
        """
        kernels = self.kernels
        own = kernels.like(scales, kernels.double(self.U[:0]))
        scaled = alpha * own[self.metric_of[triplets.tails[triplets.pair]]]
        rest = min(scale for scale, _, _ in self._scales(triplets, scaled, U))
        found = min(scales) * alpha, rest * scaled
        return max(found, key=lambda dual: float(triplets.weighted(dual).sum()))

    def _annihilate_null_space(self, triplets: Triplets, alpha: Array, U: Array) -> Array:
        kernels = self.kernels
        flags = kernels.double(triplets.heads) * 0
        for metric, mine in enumerate(self._by_metric(triplets.tails)):
            null = self._ranges[metric][1]
            if null.shape[1]:
                null = self.frames[metric].T @ null
                reaches = self._reaches(null, triplets.heads[mine], triplets.tails[mine], U)
                flags[mine] = kernels.double(reaches)
        return alpha * (flags[triplets.pair] == 0)

    def _by_metric(self, tails: Array) -> Iterator[Array]:
        """For each metric the positions of the pairs that it measures."""
        of_pair = self.metric_of[tails]
        return (self.kernels.flatnonzero(of_pair == metric) for metric in range(self.n_metrics))


def _padded(maps: list[Matrix]) -> Matrix:
    """Maps with as many rows as the longest has, the last of them zero."""
    rows = max(len(components) for components in maps)
    return np.array([pad_or_trim_rows(components, rows) for components in maps])


def _whitening(pull: Matrix) -> tuple[Matrix, Matrix]:
    """F with F pull Fᵀ = I, and its inverse; the identity if there is no pull."""
    values, vectors = linalg.eigh(pull)
    if not values.max(initial=0.0) > 0:
        return np.eye(len(pull)), np.eye(len(pull))
    roots = np.sqrt(np.maximum(values, np.finfo(float).eps * values.max(initial=0.0)))
    return vectors.T / roots[:, None], vectors * roots
