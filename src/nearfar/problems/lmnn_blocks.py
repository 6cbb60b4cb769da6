"""LMNN on rows in blocks: the problem of `nearfar.problems.lmnn` as a sum over shards.

The solver sees one problem. What is proved of its answers is here, and its objective in
`nearfar.problems.lmnn_blocks_objective`.

Equation numbers are those of `nearfar.problems.lmnn`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import linalg as scipy_linalg

from nearfar.blocks import Task
from nearfar.linalg import largest_scale, range_and_null, symmetric
from nearfar.problems import lmnn_shard_sums as sums
from nearfar.problems.lmnn import CERTIFY_WIDTH, Certificate, LMNNProblem
from nearfar.problems.lmnn_blocks_objective import Edges, Index, LMNNBlockObjective, Matrix
from nearfar.problems.lmnn_blocks_working import Certified, Placed, Search, Working
from nearfar.problems.lmnn_triplets import Triplets


@dataclass(frozen=True)
class LMNNBlocks(LMNNBlockObjective, LMNNProblem):
    """The program (7) on rows in blocks, with what is proved of its answers."""

    def bound(self, at: Placed) -> tuple[Certificate, Placed]:  # type: ignore[override]
        """The gap of (6) over the triplets at hand, in working precision: a guide, no proof."""
        shared = at.triplets.width, self._ranges[0][1]
        parts = at.after(sums.bounded, *shared, name="bound")
        return self._certificate_of(parts, at.pull), at

    def certify(  # type: ignore[override]
        self, L: Matrix, previous: Working | None = None, *, keep: bool = False
    ) -> tuple[Certificate, Working]:
        """The gap of (6) from the data in float64, over all triplets; previous gives α."""
        width = CERTIFY_WIDTH if previous is None else previous.width
        found = self._searched(self._with_floor(L), width, previous, keep, single=False)
        working = self._assembled(found, L, width, width, keep)
        parts = self._proved(found, L, None, width, keep)
        if self.kept is not None and not keep:
            longest = found.longest_edge(self.engine)
            working.held.certified = Certified(L, longest, found.without_heads())
        return self._certificate_of(parts, self._ridge_pull(L)), working

    def certify_returned(  # type: ignore[override]
        self, L: Matrix, certificate: Certificate | None, triplets: Working | None
    ) -> Certificate:
        """The gap of (6) for the map that a fit returns for L, after rotation and rounding.

        It is proved anew, so that the dual point is brought here once; from what the search for L
        has found, if this has all triplets that are active under the map. None are known of a
        start that there was no time to search for.
        """
        del certificate
        components = self.returned(L)
        width, known = CERTIFY_WIDTH, None
        if triplets is not None:
            width, known = triplets.width, triplets.held.certified
        if known is not None and self._covers_returned(known, L, components, width):
            found = known.found
        else:
            found = self._searched(components, width, triplets, False, single=False)
        parts = self._proved(found, L, components, width, False, with_dual=True)
        return self._certificate_of(parts, self._ridge_of(components), with_dual=True)

    def _covers_returned(
        self, known: Certified, L: Matrix, components: Matrix, width: float
    ) -> bool:
        """As `LMNNProblem._covers_floored`, with the longest target edge in place of all.

        With λ and Λ the least and largest eigenvalues of the map's metric relative to that of L,
        D'(e) ≤ Λ D(e), so that 1 + Λ D(e) ≤ λ(1 + D(e) + w) suffices. It is linear in D(e), and
        holds for all edges if it does for the longest and for length 0.
        """
        if not np.array_equal(known.L, L):
            return False
        above, after = (A @ self.prior_inverse for A in (self.components(L), components))
        M = symmetric(above.T @ above) + self.floor * np.eye(above.shape[1])
        values = scipy_linalg.eigvalsh(symmetric(after.T @ after), M)
        least, largest = float(values[0]), float(values[-1])
        return all(
            1 + largest * length <= least * (1 + length + width) for length in (0.0, known.longest)
        )

    def _proved(
        self,
        searched: Search,
        L: Matrix,
        components: Matrix | None,
        width: float,
        keep: bool,
        with_dual: bool = False,
    ) -> list[Task]:
        """What (6) needs of each shard, in float64."""
        return self.engine.map(
            sums.proved,
            self.rows,
            self.bases,
            searched.found,
            searched.before,
            name="prove",
            shared=(self.shared, L, components, width, keep, self._ranges[0][1], with_dual),
        )

    def _ridge_pull(self, L: Matrix) -> float:
        """The second term of the pull in (7), of φWᵀW and of a factor L."""
        return self._ridge_of_floor + self._ridge_of(self.components(L)) if self.ridge else 0.0

    def _certificate_of(
        self, tasks: list[Task], pull: float, with_dual: bool = False
    ) -> Certificate:
        """The certificate from the parts of the shards, in their order.

        ``pull`` is what they do not know of it.
        """
        parts = self.engine.results(tasks)

        def total(key: str, place: int | None = None) -> Any:
            values = [part[key] if place is None else part[key][place] for part in parts]
            return sum(values[1:], values[0])

        basis, null = self._ranges[0]
        theta, ratios, directions = largest_scale(basis, total("S"), basis.shape[1])
        fixed, scaled = total("bound", 0), total("bound", 1)
        bound = fixed + theta * scaled
        bound = max(bound, 0.0)  # α = 0 proves that
        free, weight = total("free", 0), self.push_weight * total("free", 1)
        if null.shape[1] and weight > 0:
            free = weight**0.5 * null @ range_and_null(symmetric(null.T @ free @ null))[0]
        else:
            free = null[:, :0]
        triplets, dual = _global_triplets(parts, self.offsets, self.edges, theta, with_dual)
        pairs = np.concatenate([part["equal_pairs"] for part in parts])
        return Certificate(
            objective=total("pull") + pull + total("push"),
            bound=self.constant + bound,
            complementarity=total("complementarity"),
            n_active=total("n_active"),
            n_coinciding=len(np.unique(pairs, axis=0)),
            ratios=(ratios,),
            directions=(directions,),
            triplets=triplets,
            dual=dual if bound > 0 else 0 * dual,
            free=(free,),
        )


def _global_triplets(
    parts: list[dict[str, Any]], offsets: Index, edges: Edges, theta: float, with_dual: bool
) -> tuple[Triplets, Matrix]:
    """The triplets with α above zero, by row numbers, and the feasible α; none unless wanted."""
    none = np.empty(0, dtype=np.intp), np.empty(0, dtype=np.intp), np.empty(0), np.empty(0, bool)
    found = [none]
    if with_dual:
        found = [
            (first + edge, tail, alpha, fixed)
            for first, (edge, tail, alpha, fixed) in zip(
                offsets, (part["dual"] for part in parts), strict=True
            )
        ]
    edge, tails, alpha, fixed = (np.concatenate(column) for column in zip(*found, strict=True))
    order = np.arange(len(edge))
    triplets = Triplets(edges[0][edge], tails, order, edge, order, alpha, 1.0)
    return triplets, np.where(fixed, alpha, theta * alpha)
