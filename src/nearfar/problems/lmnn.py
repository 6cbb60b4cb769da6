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
between 0 and 1 keeps some of the old distance. It shrinks the pull towards a multiple of the
identity, as one shrinks a covariance, and M stays above a multiple of the identity, the *floor* φ:

(7) minimise  (1−μ) [Σ_e D_M(e) + r (T/d) tr M] + μ Σ_t [s_t(M)]₊   over M ⪰ φI,
              T = Σ_e ‖x_i − x_j‖²,  r = ρ / (1−ρ),  φ = F r m / T  for m edges

With M = φI + M', M' ⪰ 0, it is (2) again, with P = (1−μ) [Σ_e C_e + r (T/d) I], a constant
φ tr P, and margins b_t = 1 + φ(‖e‖² − ‖p‖²) in place of 1; so the bound is φ tr P + μ Σ_t α_t b_t.
ρ = 0 is (2), and towards ρ = 1 the metric becomes that of the inputs. L below is a factor of M'.

The multipliers a of (4) start at zero and are replaced by α from time to time, which makes (4)
exact in the limit at a fixed width w (a proximal method on the dual). Any α in [0, 1] proves a
bound once scaled by the largest θ ≤ 1 with P − θS ⪰ 0; (6) is how far it is from the objective.

Coordinates: U = (X − centre) B, where B whitens P (and drops directions without variance), so that
the descent is well conditioned; L below acts on U, and L Bᵀ on X. The value does not change.

Costs, with m pairs at hand and edges in triplets with them: a full search O(n² r), a step
O(m r + n d r), a look at the gap O(m d + n d² + d³). The pull of all edges is ⟨P, M⟩.

[JMLR09] Weinberger & Saul, Distance metric learning for large margin nearest neighbor
classification, JMLR 10 (2009).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from types import ModuleType
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy import linalg as scipy_linalg

from nearfar.kernels import Array, check_memory, kernels_for
from nearfar.kernels.tiles import labels_of
from nearfar.linalg import factor_psd, largest_scale, null_tolerance, range_and_null, symmetric
from nearfar.problems.whitening import floored_map, returned_map, rotated_map, whitened

Matrix = NDArray[np.float64]

FEWEST = 8  # directions of a first guess, where there are as many
OPEN = 0.1  # of the mean eigenvalue of a start's metric, for the directions that it lacks
STEP_LIMIT = 4.0  # steps along a direction that a line search may take
PAIR_BYTES, TRIPLET_BYTES = 140, 150  # of all arrays that hold pairs and triplets at a time
FLOOR = 0.5  # F of (7)
CERTIFY_WIDTH = 0.1  # of the smoothed hinge that gives α where there are no multipliers


@dataclass(frozen=True)
class Triplets:
    """The triplets at hand, over pairs (head, tail); ``prox`` holds a of (4) and ``width`` w."""

    heads: Array  # (p,) anchors of the pairs
    tails: Array  # (p,) their impostors
    pair: Array  # (t,) pair of each triplet
    edge: Array  # (t,) target edge of each triplet
    edges: Array  # (q,) the edges that occur, ascending
    near: Array  # (t,) place of each triplet's edge among these
    prox: Array  # (t,) float64
    width: float

    def __len__(self) -> int:
        return len(self.pair)


@dataclass(frozen=True)
class Placement:
    """A factor L with all that its objective depends on."""

    L: Matrix  # (r, d) on the host
    Z: Array  # (n, r) = U Lᵀ
    pull: float  # (1−μ) Σ_e D(e)
    edge_lengths: Array  # (q,) float64, of the edges that occur in triplets
    pair_lengths: Array  # (p,) float64
    triplets: Triplets

    @cached_property
    def slack(self) -> Array:
        """s of (1), (t,)."""
        return 1 + self.edge_lengths[self.triplets.near] - self.pair_lengths[self.triplets.pair]

    @cached_property
    def alpha(self) -> Array:
        """α of (4), (t,)."""
        return (self.triplets.prox + self.slack / self.triplets.width).clip(0, 1)


@dataclass(frozen=True)
class Line:
    """The smoothed objective along L + tΔ: all lengths are quadratic in t, so it costs O(t)."""

    direction: Matrix
    map: Array  # (n, r) = U Δᵀ
    edge_change: tuple[Array, Array]  # lengths change by 2t·first + t²·second
    pair_change: tuple[Array, Array]
    pull: tuple[float, float, float]  # (1−μ) Σ_e D(e), a polynomial in t
    left_out: float  # to subtract from it: what does not change with t
    slack: tuple[Array, Array, Array]  # s_t as a polynomial in t, where it can matter
    prox: Array
    width: float
    push_weight: float
    limit: ClassVar[float] = STEP_LIMIT

    def at(self, t: float) -> tuple[float, float, float]:
        """Value, slope and curvature at t, 0 ≤ t ≤ limit."""
        s0, s1, s2 = self.slack
        slack = s0 + t * (s1 + t * s2)
        rate = s1 + (2 * t) * s2
        alpha = (self.prox + slack / self.width).clip(0, 1)
        offset = alpha - self.prox
        inside = (alpha > 0) & (alpha < 1)
        mu, (p0, p1, p2) = self.push_weight, self.pull
        value = alpha @ slack - (self.width / 2) * (offset @ offset)
        slope = alpha @ rate
        curvature = 2 * (alpha @ s2) + (rate * rate * inside).sum() / self.width
        return (
            p0 + t * (p1 + t * p2) - self.left_out + mu * float(value),
            p1 + 2 * t * p2 + mu * float(slope),
            2 * p2 + mu * float(curvature),
        )


@dataclass(frozen=True)
class Certificate:
    """What is proved of a factor L: its objective, a bound below every objective, and (6)."""

    objective: float
    bound: float
    complementarity: float  # second term of (6)
    n_active: int
    n_coinciding: int  # pairs of equal points of different classes
    ratios: tuple[Matrix, ...]  # of each metric: eigenvalues of S against P, descending; dual
    directions: tuple[Matrix, ...]  # feasible where all are <= 1; and their vectors (d, ·)
    triplets: Triplets
    dual: Array  # (t,) the feasible α of the triplets whose sum is the bound
    free: tuple[Matrix, ...]  # of each metric: directions (d, ·) without pull that part impostors

    @property
    def gap(self) -> float:
        """Objective minus bound, relative to the objective, or to a margin if that is larger."""
        return max(self.objective - self.bound, 0.0) / max(self.objective, 1.0)


@dataclass(frozen=True)
class LMNNProblem:
    """The objective (2) on whitened points U, with rows sorted by class."""

    U: Array  # (n, d)
    edges: tuple[Array, Array]  # target edges (heads, tails), sorted by head
    first_edge: Array  # (n + 1,) the edges of row i are first_edge[i]:first_edge[i + 1]
    starts: NDArray[np.intp]
    push_weight: float
    ridge: float  # (1−μ) r T/d of (7)
    floor: Matrix  # (features,) the diagonal of φI in (7); zero for features that do not vary
    kept: Array | None  # (n, features) points whose squared lengths are φ‖·‖²; None for φ = 0
    basis: Matrix  # (features, d): U = (X − centre) basis
    dual_basis: Matrix  # (features, d): X − centre = U dual_basisᵀ
    P: Matrix  # (d, d) in the coordinates of U
    Q: Matrix  # (d, d) what P would be if target neighbours were random points
    exact: Callable[[], Array]  # U recomputed from the data in float64
    images: Callable[[Matrix], Array]  # of the points under a map on the features, in float64
    first: Array | None  # (n,) the first of the points that equal each one; None if all differ

    @classmethod
    def build(
        cls,
        X: Array,
        centre: Array,
        edges: tuple[Array, Array],
        starts: NDArray[np.intp],
        push_weight: float,
        shrinkage: float = 0.0,
        *,
        floored: bool = True,
    ) -> LMNNProblem:
        """Whiten the points X (sorted by class, any floating type) by their target edges.

        ``shrinkage`` is ρ of (7), whose φ is 0 unless ``floored``.

        ``centre`` is one of the points or their mean: from elsewhere, n points would seem to differ
        in n directions instead of n − 1.
        """
        kernels = kernels_for(X)
        points = kernels.double(X) - centre
        weight = 1 - float(push_weight)
        ones = kernels.double(edges[0]) * 0 + 1
        ridge, floor = 0.0, np.zeros(X.shape[1])
        total = float(kernels.sq_lengths(points, *edges).sum()) if shrinkage else 0.0
        if total > 0:
            varies = kernels.to_host(abs(points).sum(0)) > 0
            r = shrinkage / (1 - shrinkage)
            ridge = weight * r * total / int(varies.sum())
            if floored:
                floor[varies] = FLOOR * r * len(ones) / total

        def pull(U: Array) -> Matrix:
            pulled: Matrix = kernels.gram(U, kernels.laplacian_matmul(*edges, ones, U))
            return weight * pulled

        first = kernels.first_equal(X)
        if len(kernels.unique(first)) == len(X):
            first = None

        def images(components: Matrix) -> Array:
            return _with_equal_rows(kernels.apply(kernels.double(X) - centre, components), first)

        basis, dual, U, P, Q = whitened(kernels, points, pull, weight * len(ones), ridge)
        U = _with_equal_rows(U, first)
        single = str(X.dtype).endswith("float32")
        kept = images(np.diag(floor**0.5)) if floor.any() else None
        counts = np.bincount(kernels.to_host(edges[0]), minlength=len(X))
        return cls(
            U=kernels.single(U) if single else U,
            edges=edges,
            first_edge=kernels.index(np.concatenate([[0], np.cumsum(counts)]), X),
            starts=starts,
            push_weight=float(push_weight),
            ridge=ridge,
            floor=floor,
            kept=kernels.single(kept) if single and kept is not None else kept,
            basis=basis,
            dual_basis=dual,
            P=P,
            Q=Q,
            exact=lambda: images(basis.T),
            images=images,
            first=first,
        )

    def in_geometry_of(self, L: Matrix) -> LMNNProblem:
        """The same problem in coordinates in which the metric of L is the identity.

        Directions that L lacks stay open, at a tenth of the mean of the others.
        A descent from L then stays longer in the directions that L finds good. It is the way to go
        where it will be stopped early; to the optimum it is longer than that of whitened points.
        """
        values, vectors = scipy_linalg.eigh(L.T @ L)
        missing = values <= null_tolerance(values)
        roots = np.sqrt(np.where(missing, OPEN * values[~missing].mean(), values))
        frame, inverse = vectors.T * roots[:, None], vectors / roots
        kernels, exact = self.kernels, self.exact
        return replace(
            self,
            U=_with_equal_rows(kernels.apply(self.U, frame), self.first),
            basis=self.basis @ frame.T,
            dual_basis=self.dual_basis @ inverse,
            P=symmetric(frame @ self.P @ frame.T),
            Q=symmetric(frame @ self.Q @ frame.T),
            exact=lambda: _with_equal_rows(kernels.apply(exact(), frame), self.first),
        )

    def sampled(self, rows: int) -> LMNNProblem:
        """The problem with the target edges of about so many rows, evenly spread; all may invade.

        P is a share of that of all edges.
        """
        kernels, n = self.kernels, len(self.U)
        kept = kernels.flatnonzero(self.edges[0] % max(1, n // rows) == 0)
        if len(kept) in (0, len(self.edges[0])):
            return self
        heads, tails = self.edges[0][kept], self.edges[1][kept]
        share = len(kept) / len(self.edges[0])
        return replace(
            self,
            edges=(heads, tails),
            first_edge=kernels.searchsorted(heads, kernels.arange(n + 1, heads)),
            P=share * self.P,
            ridge=share * self.ridge,
        )

    @property
    def kernels(self) -> ModuleType:
        """The kernels of the device that holds the points."""
        return kernels_for(self.U)

    @property
    def is_single(self) -> bool:
        """Whether the points are in float32."""
        return str(self.U.dtype).endswith("float32")

    def in_double(self) -> Self:
        """The same problem in float64."""
        kept = None if self.kept is None else self._whole(self.U[:, :0], exact=True)
        return replace(self, U=self.exact(), kept=kept)

    def factor(self, components: Matrix) -> Matrix:
        """The factor on U of a factor on the features (exact on the span of the data)."""
        L: Matrix = components @ self.dual_basis
        return L

    def components(self, L: Matrix) -> Matrix:
        """The factor on the features of a factor on U."""
        components: Matrix = L @ self.basis.T
        return components

    def above_floor(self, components: Matrix) -> Matrix:
        """A map of M' for one of M = φI + M', both on the features."""
        if self.kept is None:
            return components
        return factor_psd(components.T @ components - np.diag(self.floor))

    def returned(self, L: Matrix) -> Matrix:
        """The map on the features that a fit returns for a factor on U."""
        if self.kept is None:
            return returned_map(self.components(L), L, self.U)
        return floored_map(self.components(L), self.floor, self.U)

    def first_guess(self) -> Matrix:
        """Whitened directions, each by how much farther apart random points are than targets.

        M = Σ (1 − 1/τ) v vᵀ over the eigenpairs (τ, v) of Q with τ ≥ 2, or the largest few. Noise,
        along which a target is as far as any point, is left out; the descent adds a direction if
        it is needed after all. It does not depend on the units of the features.
        """
        tau, vectors = scipy_linalg.eigh(self.Q)
        kept = tau >= min(2.0, np.sort(tau)[-FEWEST:][0])
        weights = np.sqrt(np.maximum(1 - 1 / np.maximum(tau[kept], 1.0), 0.01))
        L: Matrix = weights[:, None] * vectors[:, kept].T
        return L

    def normalised(self, L: Matrix) -> Matrix:
        """L scaled so that target edges have a mean squared length of 1."""
        pull = np.vdot(L @ self.P, L) / ((1 - self.push_weight) * len(self.edges[0]))
        return L / np.sqrt(pull) if pull > 0 else L

    # -- what several metrics do otherwise (`nearfar.problems.multi_metric_lmnn`) ----------------

    def _map(self, L: Matrix, U: Array) -> Array:
        """The images of the points."""
        return self.kernels.apply(U, L)

    def _whole(self, Z: Array, *, exact: bool = False) -> Array:
        """Images whose squared lengths are those of M: of M' with those of φI beside them."""
        if self.kept is None:
            return Z
        kept = self.images(np.diag(self.floor**0.5)) if exact else self.kept
        return self.kernels.concatenate([Z.T, kept.T]).T

    @property
    def _constant(self) -> float:
        """The pull of φI, φ tr P in (7)."""
        if self.kept is None:
            return 0.0
        kept = self.kernels.double(self.kept)
        lengths = self.kernels.sq_lengths(kept, *self._nodes(*self.edges))
        pull = (1 - self.push_weight) * float(lengths.sum())
        return pull + self.ridge * float(self.floor.sum())

    def _returned_images(self, L: Matrix, U: Array) -> tuple[Array, Array]:
        """Images of the points in float64 under L, rotated, and under the map that is returned."""
        components, rotation = rotated_map(self.components(L), L, self.U)
        return self._map(rotation @ L, U), self.images(components)

    def _nodes(self, heads: Array, tails: Array) -> tuple[Array, Array]:
        """The rows of the images between which the lengths of pairs of points are measured."""
        return heads, tails

    def _impostor_pairs(self, Z: Array, reach: Array, screen: Array | None) -> tuple[Array, Array]:
        """All pairs of points of different classes that are closer than the first one's reach."""
        kernels = self.kernels
        rows = kernels.flatnonzero(reach > -np.inf)
        if 2 * len(rows) > len(reach):
            pairs: tuple[Array, Array] = kernels.impostor_pairs(Z, reach, self.starts, screen)
            return pairs
        labels = kernels.index(labels_of(self.starts), Z)
        rounded = None if screen is None else (screen[rows], screen)
        heads, tails = kernels.cross_impostor_pairs(
            Z[rows], reach[rows], Z, labels[rows], labels, rounded
        )
        return rows[heads], tails

    def _pulled_back(self, W: Array) -> Matrix:
        """The adjoint of `_map`: what a change W of the images is for L."""
        product: Matrix = self.kernels.gram(W, self.U)
        return product

    def _lengths(self, Z: Array, heads: Array, tails: Array) -> Array:
        kernels = self.kernels
        return kernels.double(kernels.sq_lengths(Z, *self._nodes(heads, tails)))

    def _products(self, Z: Array, D: Array, heads: Array, tails: Array) -> tuple[Array, Array]:
        kernels = self.kernels
        cross, square = kernels.edge_products(Z, D, *self._nodes(heads, tails))
        return kernels.double(cross), kernels.double(square)

    # -- the working set ---------------------------------------------------------------------

    def search(
        self,
        L: Matrix,
        margin: float,
        width: float,
        previous: Triplets | None = None,
        *,
        keep: bool = False,
    ) -> Triplets:
        """All triplets with slack above −margin at L, and those of ``previous`` in use.

        ``keep`` also keeps the triplets of all pairs of ``previous``.
        """
        return self.survey(L, margin, width, previous, keep=keep).triplets

    def survey(
        self,
        L: Matrix,
        margin: float,
        width: float,
        previous: Triplets | None = None,
        *,
        keep: bool = False,
    ) -> Placement:
        """L placed with the triplets that `search` finds."""
        Z = self._whole(self._map(L, self.U))
        return self._survey(L, Z, margin, width, previous, keep=keep)

    def _survey(
        self,
        L: Matrix,
        Z: Array,
        margin: float,
        width: float,
        previous: Triplets | None,
        *,
        keep: bool = False,
        screen: Array | None = None,
        components: Matrix | None = None,
    ) -> Placement:
        """L placed at images under M, which begin with those of M'; ``components`` are M's."""
        kernels, n = self.kernels, len(self.U)
        edge_lengths = self._lengths(Z, *self.edges)
        reach = kernels.segment_max(self.edges[0], edge_lengths, n) + (1 + margin)
        heads, tails = self._impostor_pairs(Z, reach, screen)
        known = heads[:0]
        if previous is not None:
            known = previous.heads * n + previous.tails
            if not keep:  # only pairs whose multipliers are not zero
                known = known[previous.pair[kernels.flatnonzero(previous.prox > 0)]]
            code = kernels.unique(kernels.concatenate([heads * n + tails, known]))
            heads, tails = code // n, code % n
        count = self.first_edge[heads + 1] - self.first_edge[heads]
        self._check_memory(len(heads), int(count.sum()))
        pair_lengths = self._lengths(Z, heads, tails)
        pair = kernels.repeat(kernels.arange(len(heads), heads), count)
        offset = kernels.cumsum(count) - count
        edge = kernels.arange(len(pair), heads) - offset[pair] + self.first_edge[heads[pair]]
        slack = 1 + edge_lengths[edge] - pair_lengths[pair]
        prox = slack * 0
        if previous is not None:
            prox = self._carried(previous, edge * n + tails[pair], prox)
        wanted = (slack > -margin) | (prox > 0)
        if keep and len(known):
            known = kernels.unique(known)
            code = heads * n + tails
            at = kernels.searchsorted(known, code).clip(0, len(known) - 1)
            wanted = wanted | (known[at] == code)[pair]
        kept = kernels.flatnonzero(wanted)
        triplets = self._triplets(heads, tails, pair[kept], edge[kept], prox[kept], width)
        pull = self._pull_of(edge_lengths, L, components)
        if self.kept is not None:
            Z = Z[:, : len(L)]
        return Placement(L, Z, pull, edge_lengths[triplets.edges], pair_lengths, triplets)

    def _pull_of(self, edge_lengths: Array, L: Matrix, components: Matrix | None = None) -> float:
        """The pull of (7) from the lengths of all target edges; components are those of M."""
        pull = (1 - self.push_weight) * float(edge_lengths.sum())
        if not self.ridge:
            return pull
        trace = 0.0
        if components is None:
            components, trace = self.components(L), float(self.floor.sum())
        return pull + self.ridge * (trace + float(np.vdot(components, components)))

    def _check_memory(self, n_pairs: int, n_triplets: int) -> None:
        """Refuse more pairs and triplets than memory holds."""
        check_memory(
            PAIR_BYTES * n_pairs + TRIPLET_BYTES * n_triplets,
            f"learning from {len(self.U)} points with {n_triplets} triplets at a time",
            "Fit to fewer rows, lower n_neighbors",
            self.U,
        )

    def _triplets(
        self, heads: Array, tails: Array, pair: Array, edge: Array, prox: Array, width: float
    ) -> Triplets:
        """Triplets with the edges that occur in them."""
        kernels = self.kernels
        occurs = self.edges[0] < 0
        occurs[edge] = True
        near = (kernels.cumsum(occurs) - 1)[edge]
        return Triplets(heads, tails, pair, edge, kernels.flatnonzero(occurs), near, prox, width)

    def _carried(self, previous: Triplets, code: Array, prox: Array) -> Array:
        """The multipliers of ``previous`` at the triplets given by code = edge n + tail."""
        kernels, n = self.kernels, len(self.U)
        used = kernels.flatnonzero(previous.prox > 0)
        if len(used) == 0:
            return prox
        known = previous.edge[used] * n + previous.tails[previous.pair[used]]
        order = known.argsort()
        known, values = known[order], previous.prox[used][order]
        at = kernels.searchsorted(known, code).clip(0, len(known) - 1)
        return prox + values[at] * (known[at] == code)

    def multipliers(self, triplets: Triplets) -> dict[str, NDArray[Any]]:
        """The multipliers that are not zero, on the host: enough to continue from them."""
        kernels = self.kernels
        used = kernels.flatnonzero(triplets.prox > 0)
        found = {
            "edge": triplets.edge[used],
            "tail": triplets.tails[triplets.pair[used]],
            "prox": triplets.prox[used],
        }
        return {name: kernels.to_host(values) for name, values in found.items()}

    def with_multipliers(self, found: dict[str, NDArray[Any]], width: float) -> Triplets:
        """Triplets that hold the given multipliers, and no others."""
        kernels = self.kernels
        edge, tails = (kernels.index(found[name], self.U) for name in ("edge", "tail"))
        prox = kernels.like(found["prox"], kernels.double(self.U[:0]))
        pair = kernels.arange(len(edge), edge)
        return self._triplets(self.edges[0][edge], tails, pair, edge, prox, width)

    # -- objective, gradient and line ----------------------------------------------------------

    def place(self, L: Matrix, triplets: Triplets) -> Placement:
        """Compute all lengths at L."""
        Z = self._map(L, self.U)
        whole = self._whole(Z)
        edge_lengths = self._lengths(whole, *self._near_edges(triplets))
        pair_lengths = self._lengths(whole, triplets.heads, triplets.tails)
        pull = self._pull(L, L) + self._constant
        return Placement(L, Z, pull, edge_lengths, pair_lengths, triplets)

    def _near_edges(self, triplets: Triplets) -> tuple[Array, Array]:
        """The target edges that occur in triplets."""
        return self.edges[0][triplets.edges], self.edges[1][triplets.edges]

    @cached_property
    def _root(self) -> Matrix:
        """F with FFᵀ = P: where targets hardly differ, rounding must not make ⟨P, M⟩ negative."""
        values, vectors = np.linalg.eigh(self.P)
        root: Matrix = vectors * np.sqrt(np.maximum(values, 0))[..., None, :]
        return root

    def _pull(self, L: Matrix, other: Matrix) -> float:
        """⟨P, LᵀL'⟩."""
        return float(np.vdot(L @ self._root, other @ self._root))

    def objective(self, at: Placement) -> tuple[float, int]:
        """f of (2) over the triplets at hand, and how many of them are active."""
        slack = at.slack
        value = at.pull + self.push_weight * float(slack.clip(0, None).sum())
        return value, int((slack > 0).sum())

    def complementarity(self, at: Placement) -> float:
        """The second term of (6) with α of (4)."""
        slack = at.slack
        return self.push_weight * float((slack.clip(0, None) - at.alpha * slack).sum())

    def gradient(self, at: Placement) -> Matrix:
        """(5) with α of (4)."""
        lap = self._laplacian(at.triplets, at.alpha, at.Z)
        pull = at.L @ self._root @ np.swapaxes(self._root, -1, -2)
        return 2 * (pull + self._pulled_back(lap))

    def _weights(self, triplets: Triplets, alpha: Array) -> tuple[Array, Array]:
        """Multiples of C_e and C_p in −S(α)."""
        kernels, mu = self.kernels, self.push_weight
        return (
            mu * kernels.segment_sum(triplets.near, alpha, len(triplets.edges)),
            -mu * kernels.segment_sum(triplets.pair, alpha, len(triplets.heads)),
        )

    def _links(self, triplets: Triplets, alpha: Array) -> tuple[Array, Array, Array]:
        """Heads and tails of the edges and pairs in triplets, and their weights in −S(α)."""
        kernels, near = self.kernels, self._near_edges(triplets)
        heads = kernels.concatenate([near[0], triplets.heads])
        tails = kernels.concatenate([near[1], triplets.tails])
        return heads, tails, kernels.concatenate(list(self._weights(triplets, alpha)))

    def _laplacian(self, triplets: Triplets, alpha: Array, Z: Array) -> Array:
        """Lap(ω) Z with the weights of −S(α)."""
        heads, tails, weights = self._links(triplets, alpha)
        return self.kernels.laplacian_matmul(*self._nodes(heads, tails), weights, Z)

    def curvature(self, at: Placement, rows: Matrix) -> Callable[[Matrix], Matrix]:
        """The Hessian of the smoothed objective in Y at Y = 0, for M + RᵀYR with R = rows · L.

        Y is mapped to μ/w Σ_t ⟨A_t, Y⟩ A_t over the triplets with 0 < α < 1, A_t = R(C_p − C_e)Rᵀ.
        With c of these and k rows it costs O(c k²), and O(n k r) before.
        """
        kernels, triplets = self.kernels, at.triplets
        curved = kernels.flatnonzero((at.alpha > 0) & (at.alpha < 1))
        pair, edge = triplets.pair[curved], triplets.edge[curved]
        images = kernels.apply(at.Z, rows)
        far = images[triplets.heads[pair]] - images[triplets.tails[pair]]
        near = images[self.edges[0][edge]] - images[self.edges[1][edge]]
        weight = self.push_weight / triplets.width

        def product(Y: Matrix) -> Matrix:
            placed = kernels.like(Y, images)
            change = ((far @ placed * far).sum(1) - (near @ placed * near).sum(1))[:, None]
            total: Matrix = kernels.gram(far, change * far) - kernels.gram(near, change * near)
            return weight * total

        return product

    def line(self, at: Placement, direction: Matrix) -> Line:
        """The smoothed objective along L + t · direction."""
        triplets, mu = at.triplets, self.push_weight
        map_ = self._map(direction, self.U)
        e1, e2 = self._products(at.Z, map_, *self._near_edges(triplets))
        p1, p2 = self._products(at.Z, map_, triplets.heads, triplets.tails)
        near, pair = triplets.near, triplets.pair
        s0, s1, s2 = at.slack, 2 * (e1[near] - p1[pair]), e2[near] - p2[pair]
        highest = s0 + STEP_LIMIT * (s1.clip(0, None) + STEP_LIMIT * s2.clip(0, None))
        matter = self.kernels.flatnonzero(highest > -triplets.width * triplets.prox)
        prox = triplets.prox[matter]
        left_out = float(triplets.prox @ triplets.prox) - float(prox @ prox)  # their α stays 0
        return Line(
            direction=direction,
            map=map_,
            edge_change=(e1, e2),
            pair_change=(p1, p2),
            pull=(at.pull, 2 * self._pull(at.L, direction), self._pull(direction, direction)),
            left_out=mu * triplets.width / 2 * left_out,
            slack=(s0[matter], s1[matter], s2[matter]),
            prox=prox,
            width=triplets.width,
            push_weight=mu,
        )

    def move(self, at: Placement, line: Line, t: float) -> Placement:
        """The placement at L + tΔ; lengths follow without touching the points again."""
        (e1, e2), (p1, p2) = line.edge_change, line.pair_change
        pull, pull1, pull2 = line.pull
        return Placement(
            at.L + t * line.direction,
            at.Z + t * line.map,
            pull + t * (pull1 + t * pull2),
            at.edge_lengths + t * (2 * e1 + t * e2),
            at.pair_lengths + t * (2 * p1 + t * p2),
            at.triplets,
        )

    def advance_multipliers(self, at: Placement, width: float) -> Placement:
        """Replace a of (4) by α, and set the width."""
        return replace(at, triplets=replace(at.triplets, prox=at.alpha, width=width))

    def narrow(self, at: Placement, width: float) -> Placement:
        """Set the width of (4) and leave its multipliers."""
        return replace(at, triplets=replace(at.triplets, width=width))

    # -- what is proved --------------------------------------------------------------------------

    def bound(self, at: Placement) -> Certificate:
        """The gap of (6) over the triplets at hand, in working precision: a guide, no proof."""
        return self._certificate(at, self.U, self.kept)

    def certify(
        self, L: Matrix, previous: Triplets | None = None, *, keep: bool = False
    ) -> tuple[Certificate, Triplets]:
        """The gap of (6) from the data in float64, over all triplets; previous gives α."""
        U = self.exact()
        return self._certified(L, self._whole(self._map(L, U), exact=True), U, previous, keep)

    def certify_returned(
        self, L: Matrix, certificate: Certificate | None, triplets: Triplets
    ) -> Certificate:
        """The gap of (6) for the map that a fit returns for L, after rotation and rounding.

        ``certificate`` and ``triplets`` are what `certify` said of L; None if it was not asked. The
        bound is one for every metric. All triplets that are active under the returned map are among
        those found for L, within w of their margin, unless it moves points by too much.
        """
        U = self.exact()
        if self.kept is not None:
            components = self.returned(L)
            found, _ = self._certified(L, self.images(components), U, triplets, False, components)
            if certificate is None or found.bound >= certificate.bound:
                return found
            return replace(certificate, objective=found.objective, n_active=found.n_active)
        before, Z = self._returned_images(L, U)
        if certificate is None or not self._covers(triplets, before, Z):
            found, _ = self._certified(L, Z, U, triplets, False, self.returned(L))
            if certificate is None or found.bound >= certificate.bound:
                return found
            return replace(certificate, objective=found.objective, n_active=found.n_active)
        edge_lengths = self._lengths(Z, *self.edges)
        pair_lengths = self._lengths(Z, triplets.heads, triplets.tails)
        pull = self._pull_of(edge_lengths, L, self.returned(L))
        at = Placement(L, Z, pull, edge_lengths[triplets.edges], pair_lengths, triplets)
        objective, n_active = self.objective(at)
        return replace(certificate, objective=objective, n_active=n_active)

    def _covers(self, triplets: Triplets, Z: Array, other: Array) -> bool:
        """Whether the triplets found at images Z hold all that are active at other images.

        If no image moves by more than ε, an impostor with D'(p) < 1 + D'(e) at the other images has
        √D(p) < √(1 + D'(e)) + 2ε, and was found if that is at most √(1 + D(e) + w).
        """
        moved = float(((Z - other) ** 2).sum(1).max()) ** 0.5 if len(Z) else 0.0
        before, after = (self._lengths(images, *self.edges) for images in (Z, other))
        reach = (1 + before + triplets.width) ** 0.5
        return bool(((1 + after) ** 0.5 + 2 * moved <= reach).all())

    def _certified(
        self,
        L: Matrix,
        Z: Array,
        U: Array,
        previous: Triplets | None,
        keep: bool = False,
        components: Matrix | None = None,
    ) -> tuple[Certificate, Triplets]:
        """The gap of (6) for images Z in float64, by a search for all triplets."""
        width = CERTIFY_WIDTH if previous is None else previous.width
        screen = self.kernels.single(Z) if self.is_single else None
        at = self._survey(
            L, Z, width, width, previous, keep=keep, screen=screen, components=components
        )
        kept = None if self.kept is None else self._whole(U[:, :0], exact=True)
        return self._certificate(at, U, kept), at.triplets

    def _certificate(self, at: Placement, U: Array, kept: Array | None) -> Certificate:
        mu = self.push_weight
        slack, alpha = at.slack, at.alpha
        objective, n_active = self.objective(at)
        feasible = self._annihilate_null_space(at.triplets, alpha, U)
        free = self._free_directions(at.triplets, alpha - feasible, U)
        alpha = feasible
        scales, ratios, directions = zip(*self._scales(at.triplets, alpha, U), strict=True)
        equal = self._equal_pairs(at.triplets)
        fixed = alpha * self._within(equal, at)[at.triplets.pair]
        dual = fixed + self._feasible(at.triplets, alpha - fixed, scales, U)
        bound = mu * float((dual * self._margins(at.triplets, kept)).sum())
        if bound < 0:  # α = 0 proves more
            dual, bound = 0 * dual, 0.0
        return Certificate(
            objective=objective,
            bound=self._constant + bound,
            complementarity=mu * float((slack.clip(0, None) - alpha * slack).sum()),
            n_active=n_active,
            n_coinciding=self._n_different(at.triplets, equal),
            ratios=ratios,
            directions=directions,
            triplets=at.triplets,
            dual=dual,
            free=free,
        )

    def _margins(self, triplets: Triplets, kept: Array | None) -> Array | float:
        """b of (7), (t,), from the points whose squared lengths are those of φI."""
        if kept is None:
            return 1.0
        near = self._lengths(kept, *self._near_edges(triplets))
        far = self._lengths(kept, triplets.heads, triplets.tails)
        return 1 + near[triplets.near] - far[triplets.pair]

    def dual_point(self, certificate: Certificate) -> dict[str, NDArray[Any]]:
        """The triplets (point, target, impostor) with α above zero, by row, and these α."""
        kernels, triplets = self.kernels, certificate.triplets
        used = kernels.flatnonzero(certificate.dual > 0)
        edge, impostors = triplets.edge[used], triplets.tails[triplets.pair[used]]
        rows = (self.edges[0][edge], self.edges[1][edge], impostors)
        return {
            "triplets": np.stack([kernels.to_host(row) for row in rows], axis=1),
            "weights": kernels.to_host(certificate.dual[used]),
        }

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
        self, triplets: Triplets, alpha: Array, U: Array
    ) -> list[tuple[float, Matrix, Matrix]]:
        """For each metric the largest θ <= 1 with P − θS(α) ⪰ 0, and where it is tight."""
        pushes = self._pushes(triplets, alpha, U)
        return [largest_scale(basis, S) for (basis, _), S in zip(self._ranges, pushes, strict=True)]

    def _pushes(self, triplets: Triplets, alpha: Array, U: Array) -> list[Matrix]:
        """S(α) of each metric."""
        return [-self.kernels.gram(U, self._laplacian(triplets, alpha, U))]

    def _free_directions(self, triplets: Triplets, alpha: Array, U: Array) -> tuple[Matrix, ...]:
        """For each metric where S(α) is positive in the null space of P: M grows there for free.

        The directions are so long that they move the impostors by a margin, on average over α.
        """
        nulls = [null for _, null in self._ranges]
        if not any(null.shape[1] for null in nulls) or not float(alpha.sum()) > 0:
            return tuple(null[:, :0] for null in nulls)
        pushes, weight = self._pushes(triplets, alpha, U), self.push_weight * float(alpha.sum())
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


def _with_equal_rows(U: Array, first: Array | None) -> Array:
    """U with exactly equal rows where ``first`` says so: a matrix product may round them apart."""
    return U if first is None else U[first]
