"""What all checks share: the numbers that were recomputed, and comparisons."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nearfar.proofs.claims import Refuted
from nearfar.proofs.sums import Index, Matrix

SOLVED = 1e-6  # relative excess of a constraint that is rounding
OTHER = "the table is not the training table: "


@dataclass(frozen=True)
class Found:
    """What was recomputed; ``note`` is to be said with the gap."""

    objective: float
    bound: float | None  # None where there is no dual point
    note: str = ""
    maximises: bool = False
    own_gap: float | None = None  # where it is not the distance of objective and bound alone

    def gap(self, objective: float) -> float | None:
        """How far an objective is from the optimum at most, relative as ``duality_gap_`` is."""
        if self.bound is None or self.own_gap is not None:
            return self.own_gap
        if self.maximises:
            return max(self.bound / objective - 1, 0.0) if objective > 0 else np.inf
        return max((objective - self.bound) / max(abs(objective), 1.0), 0.0)


def no_variation(objective: float) -> Found:
    """All points are equal, and every metric is as good as any other."""
    return Found(objective, objective, ": all points are equal", own_gap=0.0)


def check_floor(L: Matrix, floor: Matrix, share: float) -> None:
    """Refute a metric that is not above diag(floor)."""
    least = float(np.linalg.eigvalsh(L.T @ L - np.diag(floor))[0])
    if least < -share * float(np.linalg.norm(L) ** 2):
        raise Refuted(f"the metric is below its floor: smallest eigenvalue {least:.0e}")


def edge_codes(ends: Index, n: int) -> Index:
    """A number for each pair of n points, whatever its order."""
    return np.asarray(ends.min(axis=0) * n + ends.max(axis=0))
