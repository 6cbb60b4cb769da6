"""Large margin nearest neighbours: pull target neighbours close, push impostors past a margin.

With D_M(a, b) = (x_a − x_b)ᵀ M (x_a − x_b), M = LᵀL, target edges e = (i, j), pairs p = (i, l) of
different classes, and triplets t = (e, p) that share their first point:

(1) slack     s_t(M) = 1 + D_M(e) − D_M(p)
(2) minimise  f(M) = (1−μ) Σ_e D_M(e) + μ Σ_t [s_t(M)]₊       over M ⪰ 0    [JMLR09, eqs. 13-14]
(3) dual      maximise μ Σ_t α_t  over 0 ≤ α_t ≤ 1  with  P − S(α) ⪰ 0,
              P = (1−μ) Σ_e C_e,  S(α) = μ Σ_t α_t (C_p − C_e),  C_ab = (x_a − x_b)(x_a − x_b)ᵀ
(4) smoothed  [s]₊ ≈ max over 0 ≤ α ≤ 1 of αs − (w/2)(α − a)²,  attained at α = clip(a + s/w, 0, 1)
(5) gradient  ∂f/∂L = 2 L Xᵀ Lap(ω) X,  ω_e = (1−μ) + μ Σ_{t∋e} α_t,  ω_p = −μ Σ_{t∋p} α_t
(6) gap       f(M) − μ Σα = ⟨P − S(α), M⟩ + μ Σ_t ([s_t]₊ − α_t s_t)

With few points P is nearly singular, and the optimum of (2) stretches noise. A *shrinkage* ρ
between 0 and 1 keeps some of a prior distance ‖W(a − b)‖, that of the inputs for W = I. It shrinks
the pull towards a multiple of (WᵀW)⁻¹, as one shrinks a covariance, and M stays above a multiple of
WᵀW, the *floor* φ. With k rows of W and m edges:

(7) minimise  (1−μ) [Σ_e D_M(e) + r (T/k) tr W⁻ᵀMW⁻¹] + μ Σ_t [s_t(M)]₊   over M ⪰ φWᵀW,
              T = Σ_e ‖W(x_i − x_j)‖²,  r = ρ / (1−ρ),  φ = F r m / T

With M = φWᵀW + M', M' ⪰ 0, it is (2) again, with P = (1−μ) [Σ_e C_e + r (T/k) (WᵀW)⁻¹], a constant
φ ⟨P, WᵀW⟩, and margins b_t = 1 + φ(‖We‖² − ‖Wp‖²) in place of 1; so the bound is that constant plus
μ Σ_t α_t b_t. ρ = 0 is (2), and towards ρ = 1 the metric becomes WᵀW. L below is a factor of M'.

With weights of the rows, of mean 1, a target edge (i, j) counts m_i times, and a triplet, or pair
(i, l), as often as there would be pairs of copies of its point and its impostor:

(8) weights   m_i in place of 1 in Σ_e, T and m of (2), (3), (7);  v_t = m_i m_l times [s_t]₊, α_t
              in every Σ_t: α stays in [0, 1], and (4) and the slacks stay as they are

The multipliers a of (4) start at zero and are replaced by α from time to time, which makes (4)
exact in the limit at a fixed width w (a proximal method on the dual). Any α in [0, 1] proves a
bound once scaled by the largest θ ≤ 1 with P − θS ⪰ 0; (6) is how far it is from the objective.

Coordinates: U = (X − centre) B, where B whitens P (and drops directions without variance), so that
the descent is well conditioned; L below acts on U, and L Bᵀ on X. The value does not change.

Costs, with m pairs at hand and edges in triplets with them: a full search O(n² r), a step
O(m r + n d r), a look at the gap O(m d + n d² + d³). The pull of all edges is ⟨P, M⟩.

The points and their coordinates are in `nearfar.problems.lmnn_points`, the objective and its
gradient in `nearfar.problems.lmnn_objective`, triplets and lines in
`nearfar.problems.lmnn_triplets`; what is proved, (3) and (6), is here.

[JMLR09] Weinberger & Saul, Distance metric learning for large margin nearest neighbor
classification, JMLR 10 (2009).
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import MemoryLimitError
from nearfar.kernels import Array, is_torch
from nearfar.linalg import (
    in_basis,
    is_positive_definite,
    largest_scale,
    range_and_null,
    symmetric,
    top_of_means,
)
from nearfar.problems.lmnn_objective import LMNNObjective
from nearfar.problems.lmnn_triplets import DualPoint, Placement, Triplets

Matrix = NDArray[np.float64]

LEADING = 4  # least number of directions in which a bound says how L should grow; of more rows a
# quarter of their number
LAPLACIAN_BYTES = 1 << 27  # about, of the Laplacian of points that is held at a time
CERTIFY_WIDTH = 0.1  # of the smoothed hinge that gives α where there are no multipliers


@dataclass(frozen=True)
class Certificate:
    """What is proved of a factor L: its objective, a bound below every objective, and (6)."""

    objective: float
    bound: float
    complementarity: float  # second term of (6)
    n_active: int
    n_coinciding: int  # pairs of equal points of different classes
    ratios: tuple[Matrix, ...]  # of each metric: largest eigenvalues of S against P, descending;
    directions: tuple[Matrix, ...]  # dual feasible if all are <= 1; and their vectors (d, ·)
    triplets: Triplets
    dual: Array | None  # (t,) the feasible α whose weighted sum is the bound; None of a guide
    free: tuple[Matrix, ...]  # of each metric: directions (d, ·) without pull that part impostors
    unseen: float = 0.0  # that a sample may have missed of the objective, at most
    margin: float | None = None  # up to which triplets were found; None for the width
    confidence: float | None = None  # with which this holds; None if all pairs were compared

    @property
    def gap(self) -> float:
        """Objective minus bound, relative to the objective, or to a margin if that is larger."""
        largest = self.objective + self.unseen
        return max(largest - self.bound, 0.0) / max(largest, 1.0)


@dataclass(frozen=True)
class LMNNProblem(LMNNObjective):
    """The program (7) on points sorted by class, with what is proved of its answers."""

    def bound(self, at: Placement) -> tuple[Certificate, Placement]:
        """The gap of (6) over the triplets at hand, in working precision: a guide, no proof.

        Also the placement with the dual point that was found.
        """
        certificate = replace(self._certificate(at, self.U, self.kept), dual=None)
        return certificate, at.with_best(certificate.triplets.best)

    def certify(
        self, L: Matrix, previous: Triplets | None = None, *, keep: bool = False
    ) -> tuple[Certificate, Triplets]:
        """The gap of (6) from the data in float64, over all triplets; previous gives α."""
        Z = self._map(L, self.exact())
        return self._certified(L, Z, self._exactly_kept, previous, keep)

    def certify_returned(
        self, L: Matrix, certificate: Certificate | None, triplets: Triplets
    ) -> Certificate:
        """The gap of (6) for the map that a fit returns for L, after rotation and rounding.

        ``certificate`` and ``triplets`` are what `certify` said of L; None if it was not asked. The
        bound is one for every metric. All triplets that are active under the returned map are among
        those found for L, within w of their margin, unless it moves points by too much.
        """
        if self.kept is not None:
            components = self.returned(L)
            Z = self._images_of(components)
            if certificate is None:
                return self._certified(L, Z, None, triplets, False, components)[0]
            if self._covers_floored(certificate, L, Z, components):
                return self._with_objective_at(certificate, L, Z, components, triplets)
            at, _ = self._surveyed(L, Z, None, triplets, False, components)
            objective, n_active = self.objective(at)
            return replace(certificate, objective=objective, n_active=n_active)
        before, Z = self._returned_images(L, self.exact())
        if certificate is None or not self._covers(certificate, before, Z):
            found, _ = self._certified(L, Z, None, triplets, False, self.returned(L))
            if certificate is None or found.bound >= certificate.bound:
                return found
            return replace(certificate, objective=found.objective, n_active=found.n_active)
        return self._with_objective_at(certificate, L, Z, self.returned(L), triplets)

    def _with_objective_at(
        self, certificate: Certificate, L: Matrix, Z: Array, components: Matrix, triplets: Triplets
    ) -> Certificate:
        """The certificate with the objective of the map that is returned, with images Z."""
        objective, n_active = self.objective(self._placed_at(L, Z, components, triplets))
        return replace(certificate, objective=objective, n_active=n_active)

    def _placed_at(self, L: Matrix, Z: Array, components: Matrix, triplets: Triplets) -> Placement:
        """L placed with triplets at the images Z of a map on the features."""
        edge_lengths = self._lengths(Z, *self.edges)
        pair_lengths = self._lengths(Z, triplets.heads, triplets.tails)
        pull = self._pull_of(edge_lengths, L, components)
        return Placement(L, Z, pull, edge_lengths[triplets.edges], pair_lengths, triplets)

    def _covers_floored(
        self, certificate: Certificate, L: Matrix, Z: Array, components: Matrix
    ) -> bool:
        """Whether the triplets of the certificate of L hold all that are active at images Z.

        If the map's metric is at least λ times that of L, φWᵀW included, an impostor with
        D'(p) < 1 + D'(e) has λD(p) < 1 + D'(e), and was found if that is at most λ(1 + D(e) + w).
        A Cholesky factor shows it for the least λ that suffices for all e.
        """
        if L.ndim > 2:  # several metrics
            return False
        above, after = (self._relative_to_prior(A) for A in (self.components(L), components))
        M = symmetric(above.T @ above) + self.floor * np.eye(above.shape[1])
        returned = symmetric(after.T @ after)
        lengths = self._lengths(self._map(L, self.exact()), *self.edges, self._exactly_kept)
        reach = 1 + lengths + self._margin_of(certificate)
        needed = float(((1 + self._lengths(Z, *self.edges)) / reach).max())
        return is_positive_definite(returned - needed * M)

    def _covers(self, certificate: Certificate, Z: Array, other: Array) -> bool:
        """Whether the triplets of a certificate at images Z hold all that are active at others.

        If no image moves by more than ε, an impostor with D'(p) < 1 + D'(e) at the other images has
        √D(p) < √(1 + D'(e)) + 2ε, and was found if that is at most √(1 + D(e) + w).
        """
        found = self._margin_of(certificate)
        moved = float(((Z - other) ** 2).sum(1).max()) ** 0.5 if len(Z) else 0.0
        before, after = (self._lengths(images, *self.edges) for images in (Z, other))
        reach = (1 + before + found) ** 0.5
        return bool(((1 + after) ** 0.5 + 2 * moved <= reach).all())

    def _margin_of(self, certificate: Certificate) -> float:
        """w, up to which the triplets of a certificate were found, unless memory held fewer."""
        margin = certificate.margin
        return certificate.triplets.width if margin is None else margin

    def _certified(
        self,
        L: Matrix,
        Z: Array,
        kept: Array | None,
        previous: Triplets | None,
        keep: bool = False,
        components: Matrix | None = None,
    ) -> tuple[Certificate, Triplets]:
        """The gap of (6) for images in float64 as `_survey` takes them; searches all triplets.

        The points in float64 are made again where they are needed, not kept during the search.
        """
        at, margin = self._surveyed(L, Z, kept, previous, keep, components)
        certificate = self._certificate(at, self.exact(), self._exactly_kept)
        return replace(certificate, margin=margin), certificate.triplets

    def _surveyed(
        self,
        L: Matrix,
        Z: Array,
        kept: Array | None,
        previous: Triplets | None,
        keep: bool,
        components: Matrix | None,
    ) -> tuple[Placement, float]:
        """L placed at images in float64, with all triplets up to w outside of their margin.

        If memory holds fewer, without those outside whose α was zero. Also how far was searched.
        """
        width = CERTIFY_WIDTH if previous is None else previous.width
        options: Any = {"screened": self.is_single, "components": components}
        with suppress(MemoryLimitError):
            return self._survey(L, Z, kept, width, width, previous, keep=keep, **options), width
        # The error, which holds what had been found, is gone here.
        return self._survey(L, Z, kept, 0.0, width, previous, **options), 0.0

    def _certificate(self, at: Placement, U: Array, kept: Array | None) -> Certificate:
        """The gap of (6), with the better of α at the placement and its means with the best one.

        One direction in which S(α) is too large scales all of α down. α oscillates from look to
        look in such directions, and a mean of two has less of each.
        """
        mu, slack, triplets = self.push_weight, at.slack, at.triplets
        objective, n_active = self.objective(at)
        alpha = self._annihilate_null_space(triplets, at.alpha, U)
        free = self._free_directions(triplets, at.alpha - alpha, U)
        equal = self._equal_pairs(triplets)
        here = self._dual_point(at, alpha, equal, U, kept)
        most = max(LEADING, at.L.shape[-2] // LEADING)
        scales, ratios, directions = zip(*self._scales_of(here.S, most), strict=True)
        best = here
        if triplets.best is not None:
            best = self._best_mean(at, triplets.best, here, equal, U, kept)
        if best is not here:
            scales = tuple(scale for scale, *_ in self._scales_of(best.S))
        fixed = best.alpha * self._within(equal, at)[triplets.pair]
        dual = fixed + self._feasible(triplets, best.alpha - fixed, scales, U)
        bound = mu * float((triplets.weighted(dual) * self._margins(triplets, kept)).sum())
        if bound < 0:  # α = 0 proves more
            dual, bound = 0 * dual, 0.0
        lost = triplets.weighted(slack.clip(0, None) - alpha * slack)
        best = replace(best, alpha=self._kept_alpha(best.alpha))
        return Certificate(
            objective=objective,
            bound=self._constant + bound,
            complementarity=mu * float(lost.sum()),
            n_active=n_active,
            n_coinciding=self._n_different(triplets, equal),
            ratios=ratios,
            directions=directions,
            triplets=replace(triplets, best=best),
            dual=dual,
            free=free,
        )

    def _dual_point(
        self, at: Placement, alpha: Array, equal: Array, U: Array, kept: Array | None
    ) -> DualPoint:
        """α, which annihilates the null space of P, with S and its share of the bound."""
        triplets = at.triplets
        counted = self.push_weight * triplets.weighted(alpha) * self._margins(triplets, kept)
        fixed = 0.0
        if len(equal):
            fixed = float((counted * self._within(equal, at)[triplets.pair]).sum())
        S = tuple(self._pushes(triplets, alpha, U))
        return DualPoint(alpha, S, float(counted.sum()), fixed)

    def _best_mean(
        self,
        at: Placement,
        known: DualPoint,
        here: DualPoint,
        equal: Array,
        U: Array,
        kept: Array | None,
    ) -> DualPoint:
        """The point between the best one so far and α at the placement that proves most."""
        if known.S is None:
            alpha = self.kernels.double(known.alpha)
            alpha = self._annihilate_null_space(at.triplets, alpha, U)
            known = self._dual_point(at, alpha, equal, U, kept)
        framed = (
            [in_basis(basis, S) for (basis, _), S in zip(self._ranges, point.S or (), strict=True)]
            for point in (known, here)
        )

        def proved(found: tuple[float, float]) -> float:
            w, top = found
            fixed = known.fixed + w * (here.fixed - known.fixed)
            total = known.total + w * (here.total - known.total)
            return fixed + (total - fixed) / max(1.0, top)

        share, _ = max(top_of_means(*framed), key=proved)
        return here if share == 1 else known.towards(here, share)

    def _margins(self, triplets: Triplets, kept: Array | None) -> Array | float:
        """b of (7), (t,), from the points whose squared lengths are those of φWᵀW."""
        if kept is None:
            return 1.0
        kernels = self.kernels
        near = kernels.double(kernels.sq_lengths(kept, *self._near_edges(triplets)))
        far = kernels.double(kernels.sq_lengths(kept, triplets.heads, triplets.tails))
        return 1 + near[triplets.near] - far[triplets.pair]

    def dual_point(
        self, certificate: Certificate, numbers: NDArray[np.intp]
    ) -> dict[str, NDArray[Any]]:
        """The triplets (point, target, impostor) with α above zero, and these α.

        ``numbers`` are the numbers by which the rows are named.
        """
        kernels, triplets = self.kernels, certificate.triplets
        assert certificate.dual is not None
        used = kernels.flatnonzero(certificate.dual > 0)
        edge, impostors = triplets.edge[used], triplets.tails[triplets.pair[used]]
        names = kernels.compact(kernels.index(numbers, self.U), 1 + int(numbers.max(initial=0)))
        rows = (self.edges[0][edge], self.edges[1][edge], impostors)
        found = np.empty((len(used), 3), dtype=np.int32)
        for column, row in enumerate(rows):
            found[:, column] = kernels.to_host(names[row])
        return {"triplets": found, "weights": kernels.to_host(certificate.dual[used])}

    def _feasible(
        self,
        triplets: Triplets,  # noqa: ARG002 - several metrics need it
        alpha: Array,
        scales: tuple[float, ...],
        U: Array,  # noqa: ARG002
    ) -> Array:
        """A dual feasible multiple of α, given the scales of the metrics."""
        return min(scales) * alpha

    def _scales(
        self, triplets: Triplets, alpha: Array, U: Array, count: int = 1
    ) -> list[tuple[float, Matrix, Matrix]]:
        """For each metric the largest θ <= 1 with P − θS(α) ⪰ 0, and where it is tightest."""
        return self._scales_of(self._pushes(triplets, alpha, U), count)

    def _scales_of(
        self, pushes: Iterable[Matrix] | None, count: int = 1
    ) -> list[tuple[float, Matrix, Matrix]]:
        """The same, from S(α) of each metric."""
        assert pushes is not None
        ranges = self._ranges
        return [largest_scale(R, S, count) for (R, _), S in zip(ranges, pushes, strict=True)]

    def _pushes(self, triplets: Triplets, alpha: Array, U: Array) -> list[Matrix]:
        """S(α) of each metric.

        Where few points are in active triplets, only their rows are multiplied. Beside many points
        on the host, their Laplacian is made for some columns at a time.
        """
        kernels = self.kernels
        heads, tails, weights = self._links(triplets, alpha)
        used = kernels.flatnonzero(weights != 0)
        occurs = self.first_edge[1:] < 0
        occurs[heads[used]] = True
        occurs[tails[used]] = True
        nodes = kernels.flatnonzero(occurs)
        rows = U
        if 2 * len(nodes) <= len(U):
            place, rows = kernels.cumsum(occurs) - 1, U[nodes]
            heads, tails, weights = place[heads[used]], place[tails[used]], weights[used]
        del used, occurs, nodes
        d = rows.shape[1]
        count = 1 if is_torch(rows) else max(1, round(rows.nbytes / LAPLACIAN_BYTES))
        step = max(1, -(-d // count))
        parts = [slice(first, first + step) for first in range(0, d, step)]
        pushes = (
            kernels.gram(rows, kernels.laplacian_matmul(heads, tails, weights, rows[:, part]))
            for part in parts
        )
        return [-np.concatenate([np.zeros((d, 0)), *pushes], axis=1)]

    def _free_directions(self, triplets: Triplets, alpha: Array, U: Array) -> tuple[Matrix, ...]:
        """For each metric where S(α) is positive in the null space of P: M grows there for free.

        The directions are so long that they move the impostors by a margin, on average over α.
        """
        nulls = [null for _, null in self._ranges]
        if not any(null.shape[1] for null in nulls):
            return tuple(null[:, :0] for null in nulls)
        weight = self.push_weight * float(triplets.weighted(alpha).sum())
        if not weight > 0:
            return tuple(null[:, :0] for null in nulls)
        pushes = self._pushes(triplets, alpha, U)
        return tuple(
            weight**0.5 * null @ range_and_null(symmetric(null.T @ S @ null))[0]
            for null, S in zip(nulls, pushes, strict=True)
        )

    @cached_property
    def _ranges(self) -> list[tuple[Matrix, Matrix]]:
        """Range and null space of the pull of each metric."""
        return [range_and_null(self.P)]

    def _equal_pairs(self, triplets: Triplets) -> Array:
        """Positions of the pairs of equal points.

        They have C_p = 0, so that their α only adds to P − S and need not be scaled with the rest.
        """
        if self.first is None:
            return triplets.heads[:0]
        same = self.first[triplets.heads] == self.first[triplets.tails]
        pairs: Array = self.kernels.flatnonzero(same)
        return pairs

    def _within(self, pairs: Array, at: Placement) -> Array:
        """Whether each pair at hand is among these."""
        found: Array = at.pair_lengths < 0
        found[pairs] = True
        return found

    def _n_different(self, triplets: Triplets, pairs: Array) -> int:
        """How many of these pairs there are, whatever their order."""
        kernels, n = self.kernels, len(self.U)
        heads, tails = triplets.heads[pairs], triplets.tails[pairs]
        low = (heads + tails - abs(heads - tails)) // 2
        return len(kernels.unique(low * n + heads + tails - low))

    def _annihilate_null_space(self, triplets: Triplets, alpha: Array, U: Array) -> Array:
        """Zero α where an impostor differs along the null space of P, which S must not reach."""
        null = self._ranges[0][1]
        if null.shape[1] == 0:
            return alpha
        return alpha * ~self._reaches(null, triplets.heads, triplets.tails, U)[triplets.pair]

    def _reaches(self, null: Matrix, heads: Array, tails: Array, U: Array) -> Array:
        """Whether each pair differs along the columns of ``null``."""
        kernels = self.kernels
        lengths = kernels.double(kernels.sq_lengths(kernels.apply(U, null.T), heads, tails))
        total = kernels.double(kernels.sq_lengths(U, heads, tails))
        share = 1e-20 if str(U.dtype).endswith("64") else 1e-10
        return (lengths > share * total) & (total > 0)
