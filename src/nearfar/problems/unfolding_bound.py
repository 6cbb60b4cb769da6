"""How far an unfolding is from the best one: a bound on all Gram matrices.

With the edges e = (i, j), weights w and squares D of `nearfar.problems.variational_mvu`, c = ρλ,
and K the Gram matrix of any points about their mean, not only of smooth functions:

(1) maximise f(K) = 2c tr K − Σₑ wₑ (ℓₑ − Dₑ)²  over K ⪰ 0, K1 = 0
(2) bound    f* ≤ Σₑ mₑ (2Dₑ + mₑ / wₑ)  for any m with Lap(m) ⪰ cI on vectors of mean zero
(3) choice   m = w (ℓ − D + t) with the lengths ℓ of points Y, and the least t ≥ 0 allowed in (2)
(4) least t  −t = min xᵀSx / xᵀLap(w)x over x of mean zero,  S = Lap(w(ℓ − D)) − cI
(5) gap      (bound − f) / (bound − f(0)),  f(0) = −Σₑ wₑ Dₑ²

To see (2), use wℓ² ≥ w(2ℓa − a²), which holds for any number a: with a = D + m/w, f(K) is at most
the bound minus 2⟨Lap(m) − cI, K⟩. Any points Y give a bound. At a best Y with enough columns t is
0, m is the dual solution, and the bound is the optimum [Boumal].

LOBPCG estimates (4) from above, which proves nothing. So t is raised until a factor proves (2)
[`nearfar.graphs.inertia`]; t = ρ + max(D − ℓ) is always enough. Where the bound is linear in m
[`nearfar.problems.mvu_low_rank`], other forces near m are tried before
[`nearfar.problems.unfolding_repair`]. Rounding m does no harm, since (2)
holds for any m, and its sum is rounded up.

[Boumal] Boumal, Voroninski & Bandeira, Deterministic guarantees for Burer-Monteiro factorizations
of smooth semidefinite programs, Communications on Pure and Applied Mathematics 73, 2020.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray
from scipy import linalg

from nearfar.graphs import NeighborhoodGraph
from nearfar.graphs.inertia import exceeds_identity
from nearfar.graphs.lowest import lowest_pairs
from nearfar.graphs.spectrum import Spectrum, has_dense_factor
from nearfar.kernels import (
    Array,
    gram_kernels_for,
    is_torch,
    kernels_for,
    to_device_of,
    to_host,
)
from nearfar.problems.unfolding_repair import Repair
from nearfar.problems.variational_mvu import Edges

Matrix = NDArray[np.float64]
Limits = tuple[Matrix, Matrix]  # the least and the largest forces

SMALL = 300  # nodes up to which (4) is computed by dense matrices
BLOCK = 4  # vectors of LOBPCG
STEPS, FEWER_STEPS = 60, 15  # of LOBPCG, at first and during a repair
REPAIRS = 4  # linear programs that a repair solves
ACCURACY = 1e-4  # of its residuals, relative to c
MARGIN = 1e-4  # δ of the proof, relative to c
RAISED = (0.003, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0)  # of t, before (4) is taken for wrong
ROUNDED_UP = 1e-12  # relative, of the sum (2)
DENSE_SHARE = 0.5  # of the memory, which a dense factor may take


@dataclass(frozen=True)
class Bound:
    """An upper bound on (1), and what a gap is relative to."""

    value: float
    reached: float  # bound − f(0)

    @classmethod
    def of_misfit(cls, edges: Edges) -> Bound:
        """The bound 0 if c = 0, when f is minus a sum of squares."""
        D, w = edges.on_host()
        return cls(0.0, float(w @ (D * D)))

    @classmethod
    def goal(cls, edges: Edges, objective: float, gap: float) -> float:
        """The largest bound for which the gap (5) of an objective is at most ``gap``."""
        if gap >= 1:
            return np.inf
        return (objective + gap * cls.of_misfit(edges).reached) / (1 - gap)

    def gap(self, objective: float) -> float:
        """(5)."""
        return max(self.value - objective, 0.0) / max(self.reached, np.finfo(float).tiny)


@dataclass(frozen=True)
class Repaired:
    """Forces that are proved to be feasible in (2), if some were found."""

    forces: Matrix | None  # (e,) m
    values: Matrix  # (k,) the lowest of (4) before the repair, estimates from above
    vectors: Matrix  # (n, k)

    @property
    def directions(self) -> Matrix:
        """Vectors that made S negative."""
        return self.vectors[:, self.values < 0]


@dataclass(frozen=True)
class WholeProgram:
    """Equation (1) on the graph of the edges; matrices are on the host."""

    edges: Edges
    graph: NeighborhoodGraph
    spectrum: Spectrum  # of Lap(w)
    pull: float  # 2c

    def bound(self, Y: Matrix, random: RandomState) -> Bound | None:
        """(2) from points Y (n, r); None if a proof would need more memory than there is."""
        if self.pull == 0:
            return Bound.of_misfit(self.edges)
        kernels = kernels_for(self.edges.squares)
        excess = kernels.to_host(self.edges.excess(kernels.like(Y, self.edges.squares)))
        return self.bound_of(self.feasible(self.edges.on_host()[1] * excess, random))

    def bound_of(self, repaired: Repaired | None) -> Bound | None:
        """(2) of forces m."""
        if repaired is None or repaired.forces is None:
            return None
        return self.bound_by(repaired.forces)

    def estimate(self, m: Matrix, repaired: Repaired) -> Bound:
        """About what (2) will be of the forces (3), by estimates of (4): it proves nothing."""
        lowest = min(0.0, float(repaired.values.min()))
        return self.bound_by(m - lowest * self.edges.on_host()[1])

    def bound_by(self, m: Matrix) -> Bound:
        """(2) of forces that were proved to be feasible."""
        D, w = self.edges.on_host()
        terms = m * (2 * D + m / w)
        value = float(terms.sum()) + ROUNDED_UP * float(abs(terms).sum())  # (2)
        return Bound(value, value + Bound.of_misfit(self.edges).reached)

    def feasible(
        self,
        m: Matrix,
        random: RandomState,
        limits: Limits | None = None,
        previous: Repaired | None = None,
        points: Matrix | None = None,
        goal: float = np.inf,
    ) -> Repaired | None:
        """Forces near m, within the ``limits`` if there are any, for which (2) is proved.

        With limits the bound is linear in m. The vectors of a ``previous`` repair are a start
        for those of this one, and ``points`` Y (n, r) vectors that m should hold. Without limits, a
        bound above the ``goal`` is not worth a proof: then there are no forces. None if a proof
        would need more memory than there is. Time is that of some hundreds of products with
        Lap(w)⁺ and of a few factors of a matrix with its sparsity; memory that of two.
        """
        w = self.edges.on_host()[1]
        share = DENSE_SHARE * gram_kernels_for(w).total_memory(w)
        if self.is_dense and 8.0 * self.graph.n_nodes**2 > share:
            return None
        start = random.normal(size=(self.graph.n_nodes, BLOCK))
        values, vectors = self._lowest(m, start if previous is None else previous.vectors)
        near, lowest = m, float(values.min())
        if limits is not None:
            near, lowest = self._cheapest(m, (values, vectors), limits, points)
        for t in self._candidates(near, max(0.0, -lowest), goal):
            repaired = _limited(near + t * w, limits)  # (3)
            if self._is_feasible(repaired):
                return Repaired(repaired, values, vectors)
        return Repaired(None, values, vectors)

    def _cheapest(
        self,
        m: Matrix,
        lowest: tuple[Matrix, Matrix],
        limits: Limits,
        points: Matrix | None,
    ) -> tuple[Matrix, float]:
        """Forces near m with the least bound after (3), and their least value of (4)."""
        (values, vectors), (D, w) = lowest, self.edges.on_host()
        repair = Repair.of(self.graph, m, w, D, 0.5 * self.pull * (1 + 2 * MARGIN))
        if points is not None:
            repair.hold(points)
        least = float(values.min())
        found, near = (self._cost(m, least, limits), m, least), m
        for _ in range(REPAIRS):
            repair.cut(vectors)
            forces = repair.forces()
            if forces is None or found[2] >= 0:
                break
            near = _limited(forces, limits)
            values, vectors = self._lowest(near, vectors, FEWER_STEPS)
            least = float(values.min())
            cost = self._cost(near, least, limits)
            if cost < found[0]:
                found = cost, near, least
        return found[1:]

    def _cost(self, m: Matrix, least: float, limits: Limits) -> float:
        """The bound Σ Dm of m + tw with t = −least."""
        D, w = self.edges.on_host()
        return float(_limited(m + max(0.0, -least) * w, limits) @ D)

    def _is_feasible(self, m: Matrix) -> bool:
        c = 0.5 * self.pull
        return exceeds_identity(
            self.graph.laplacian(m),
            c,
            MARGIN * c,
            dense=self.is_dense,
            structure=self.spectrum.structure,
            reference=self.edges.squares[:0],
        )

    @cached_property
    def is_dense(self) -> bool:
        """Whether factors are dense matrices."""
        return self.spectrum.structure is None and has_dense_factor(self.graph.laplacian())

    def _candidates(self, m: Matrix, estimate: float, goal: float) -> Iterator[float]:
        """Numbers t to try, from the estimate of (4) up to the one that is always feasible.

        If there is a goal, they are two: halfway to the one that meets it, and this one.
        """
        c, least, (D, w) = 0.5 * self.pull, float(self.spectrum.values[0]), self.edges.on_host()
        extra = 2 * MARGIN * c / least  # what δ needs
        if estimate == 0:  # after a repair that has room for δ
            yield 0.0
        if np.isfinite(goal):
            room = goal - self.bound_by(m + (estimate + extra) * w).value
            if room < 0:
                return
            slope = float(w @ (2 * D)) + 2 * float(m.sum()) + 2 * (estimate + extra) * w.sum()
            further = 2 * room / (slope + np.sqrt(slope**2 + 4 * room * w.sum()))
            yield from (estimate + extra + share * further for share in (0.5, 1 - ROUNDED_UP))
            return
        safe = c / least * (1 + MARGIN) + max(0.0, float((-m / w).max())) + extra
        for share in RAISED:
            t = (1 + share) * estimate + extra
            if t >= safe:
                break
            yield t
        yield safe

    def _lowest(self, m: Matrix, start: Matrix, steps: int = STEPS) -> tuple[Matrix, Matrix]:
        """Estimates from above of the lowest values of (4), and their vectors x."""
        n, c, w = self.graph.n_nodes, 0.5 * self.pull, self.edges.on_host()[1]
        if n <= SMALL:
            ones, (A, B) = np.full((n, n), 1.0 / n), map(self.graph.laplacian, (m, w))
            pencil = A.toarray() - c * (np.eye(n) - ones), B.toarray() + ones
            values, vectors = linalg.eigh(*pencil, subset_by_index=[0, min(BLOCK, n) - 1])
            return values, vectors
        large = 2 * float(w.sum()) / n  # the mean of the diagonal of Lap(w)
        product, right = self._product(m), self._product(w)

        def slope(X: Array) -> Array:
            return product(X) - c * (X - X.mean(0))

        def pencil_right(X: Array) -> Array:
            return right(X) + large * X.mean(0)

        def inverse(X: Array) -> Array:
            return self.spectrum.inverse(X) + X.mean(0) / large

        centred = to_device_of(self.edges.squares, start - start.mean(axis=0))
        values, found = lowest_pairs(slope, pencil_right, inverse, centred, steps, ACCURACY * c)
        return values, to_host(found)

    def _product(self, weights: Matrix) -> Callable[[Array], Array]:
        """Products with Lap(weights), where the edges are."""
        edges = self.edges
        if not is_torch(edges.squares):
            A = self.graph.laplacian(weights)
            return lambda X: A @ X
        w = to_device_of(edges.squares, weights)
        return lambda X: kernels_for(X).laplacian_matmul(edges.heads, edges.tails, w, X)


def _limited(m: Matrix, limits: Limits | None) -> Matrix:
    return m if limits is None else np.clip(m, *limits)
