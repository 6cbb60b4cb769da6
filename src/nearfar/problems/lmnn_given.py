"""Large margin nearest neighbours with given triplets in place of all impostors.

A triplet t = (a, b, c) says that a is nearer to b than to c; the distances of other triplets are
not compared with its own. With D_M(a, b) = (x_a − x_b)ᵀ M (x_a − x_b):

(1) minimise  f(M) = (1−μ) Σ_e D_M(e) + μ Σ_t [1 + D_M(a, b) − D_M(a, c)]₊   over M ⪰ 0,

where e runs over the different pairs (a, b) of the triplets. It is the program (2) of
`nearfar.problems.lmnn` with e as target edges and (a, c) as pairs, and its dual, its shrinkage and
its certificate are the same. With all triplets of a point, a target neighbour and a point of
another class it is LMNN itself. A triplet that is given twice counts twice.

All triplets are at hand all the time: with m of them a step costs O(m r + n d r).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Self

import numpy as np
from numpy.typing import NDArray

from nearfar.kernels import Array, free_memory, kernels_for
from nearfar.problems.lmnn import LMNNProblem
from nearfar.problems.lmnn_triplets import DualPoint, Placement, Triplets

Index = NDArray[np.intp]
Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class GivenTriplets:
    """Triplets (t,) over far pairs (p,) and target edges."""

    heads: Array  # (p,) a of each far pair
    tails: Array  # (p,) c of each far pair
    pair: Array  # (t,) far pair of each triplet
    edge: Array  # (t,) target edge of each triplet


@dataclass(frozen=True)
class GivenLMNNProblem(LMNNProblem):
    """The program (1)."""

    given: GivenTriplets

    @classmethod
    def of(
        cls,
        X: Array,
        centre: Array,
        triplets: Index,
        push_weight: float,
        shrinkage: float = 0.0,
        *,
        floored: bool = True,
    ) -> Self:
        """From points X and rows (m, 3) of triplets; the rest is as in `LMNNPoints.build`."""
        kernels, n = kernels_for(X), len(X)
        near, edge = np.unique(triplets[:, 0] * n + triplets[:, 1], return_inverse=True)
        far, pair = np.unique(triplets[:, 0] * n + triplets[:, 2], return_inverse=True)
        given = (far // n, far % n, pair, edge)
        whole = LMNNProblem.build(
            X,
            centre,
            (kernels.index(near // n, X), kernels.index(near % n, X)),
            np.array([0, n]),
            push_weight,
            shrinkage,
            floored=floored,
        )
        parts = {field.name: getattr(whole, field.name) for field in fields(whole)}
        return cls(**parts, given=GivenTriplets(*(kernels.index(rows, X) for rows in given)))

    def sampled(self, rows: int) -> Self:  # noqa: ARG002 - no search has to be saved
        """The problem itself."""
        return self

    def coarser(self) -> None:
        """None: no search has to be saved."""

    def _survey(
        self,
        L: Matrix,
        Z: Array,
        kept: Array | None,
        margin: float,  # noqa: ARG002 - all triplets are at hand
        width: float,
        previous: Triplets | None,
        *,
        keep: bool = False,  # noqa: ARG002
        screened: bool = False,  # noqa: ARG002
        components: Matrix | None = None,
    ) -> Placement:
        given = self.given
        self._check_memory(len(given.heads), len(given.pair), free_memory(Z))
        edge_lengths = self._lengths(Z, *self.edges, kept)
        pair_lengths = self._lengths(Z, given.heads, given.tails, kept)
        prox, best = 0 * edge_lengths[given.edge], None
        rows = given.heads, given.tails, given.pair, given.edge
        if previous is not None:
            places = self._places(previous, given.heads, given.tails)
            prox, best = self._carried(previous, places, given.pair, given.edge)
        point = None if best is None else DualPoint(best)
        triplets = self._triplets(*rows, prox, width, point)
        pull = self._pull_of(edge_lengths, L, components)
        return Placement(L, Z, pull, edge_lengths[triplets.edges], pair_lengths, triplets)
