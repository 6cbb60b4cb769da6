"""Forces on the edges of a graph that hold all vectors, from forces that miss a few.

Given are m (e,) with Lap(m) ⋡ cI, weights w, and prices p of a force, all (e,). Vectors x that m
does not hold, xᵀLap(m)x < c xᵀx, are known; x_e = xᵢ − xⱼ is their difference along an edge.

(1) family    m' = a m + t w + Σⱼ tⱼ w xⱼ²,  a, t, tⱼ ≥ 0: all forces grow in proportion, or by the
              same amount, or where xⱼ changes most
(2) cheapest  minimise Σₑ pₑ m'ₑ  so that  Σₑ m'ₑ xₑ² ≥ c xᵀx  for all known x

(2) is a linear program of few variables. Its m' may miss other vectors: these join the known ones,
and it is solved again (cutting planes). A smooth x is held most cheaply by a larger a, and one that
lives on a few nodes by its own tⱼ: one t for all edges would have to be larger than either.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from nearfar.graphs import NeighborhoodGraph

Matrix = NDArray[np.float64]

MOST = 40  # vectors xⱼ in (1)


@dataclass
class Repair:
    """The linear program (2), which grows by its cuts. Memory O(e MOST)."""

    graph: NeighborhoodGraph
    family: list[Matrix]  # (e,) each: m, w and the local ones
    prices: Matrix  # (e,) p
    pull: float  # c
    cuts: list[Matrix] = field(default_factory=list)  # (e,) each: xₑ² / xᵀx

    @classmethod
    def of(
        cls, graph: NeighborhoodGraph, m: Matrix, w: Matrix, prices: Matrix, pull: float
    ) -> Repair:
        """The program without vectors."""
        return cls(graph, [m, w], prices, pull)

    def hold(self, vectors: Matrix) -> None:
        """Hold the vectors (n, k)."""
        heads, tails = self.graph.heads, self.graph.tails
        for column in vectors.T:
            x = column - column.mean()
            size = float(x @ x)
            if size > 0:
                self.cuts.append((x[heads] - x[tails]) ** 2 / size)

    def cut(self, vectors: Matrix) -> None:
        """Hold the vectors (n, k), which become part of the family."""
        known, w = len(self.cuts), self.family[1]
        self.hold(vectors)
        for squares in self.cuts[known : known + MOST + 2 - len(self.family)]:
            self.family.append(w * squares / squares.max())

    def forces(self) -> Matrix | None:
        """The cheapest m' of (2), or None if no finite one was found."""
        rows = np.array([[cut @ member for member in self.family] for cut in self.cuts])
        costs = np.array([self.prices @ member for member in self.family])
        unit = np.maximum(abs(rows).max(axis=0), np.finfo(float).tiny)  # of the variables
        found = linprog(
            costs / unit * (unit[0] / max(abs(costs[0]), np.finfo(float).tiny)),
            A_ub=-rows / unit / self.pull,
            b_ub=-np.ones(len(rows)),
            method="highs",
        )
        if found.x is None:
            return None
        return np.asarray(np.tensordot(found.x / unit, np.array(self.family), axes=1))
