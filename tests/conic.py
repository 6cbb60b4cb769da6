"""Cone programs solved by Clarabel, an independent solver, and judged by their own residuals."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Vector = NDArray[np.float64]

ACCURACY = (
    5e-5  # of an optimum, by the worst case of its residuals; mostly it is a hundredth of that
)


def solve_conic(cost: Vector, A: Any, b: Vector, cones: list[Any], quadratic: Any = None) -> Any:
    """Clarabel's solution of min ½ vᵀPv + c · v with b − Av in cones, which must be accurate."""
    solution, error = attempt_conic(cost, A, b, cones, quadratic)
    assert error <= ACCURACY, (str(solution.status), error)
    return solution


def attempt_conic(
    cost: Vector, A: Any, b: Vector, cones: list[Any], quadratic: Any = None
) -> tuple[Any, float]:
    """The same, and how far ``obj_val`` may be from the optimum, relative to it or to 1.

    Whether Clarabel calls a solution "Solved" or "AlmostSolved" depends on rounding, and so on the
    processor. So it is judged by its own numbers. With Av + s = b, s in cones, and a dual point z
    in their duals, weak duality holds up to the residuals r = Av + s − b and t = Pv + c + Aᵀz: the
    optimum is off by at most |vᵀPv + c · v + b · z| + |r| |z| + |t| |v|. Where an infimum is
    approached as v grows without limit, the last term grows with it, and tells.
    """
    import clarabel

    n = len(cost)
    P = sparse.csc_matrix((n, n) if quadratic is None else np.triu(quadratic))
    A, cost = sparse.csc_matrix(A), np.asarray(cost, dtype=float)
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    solution = clarabel.DefaultSolver(P, cost, A, b, cones, settings).solve()
    if str(solution.status) not in ("Solved", "AlmostSolved"):
        return solution, np.inf
    v, s, z = (np.array(part) for part in (solution.x, solution.s, solution.z))
    Pv = P @ v + P.T @ v - P.diagonal() * v  # P is the upper triangle
    error = abs(v @ Pv + cost @ v + b @ z)
    error += np.linalg.norm(A @ v + s - b) * np.linalg.norm(z)
    error += np.linalg.norm(Pv + cost + A.T @ z) * np.linalg.norm(v)
    return solution, float(error / max(1.0, abs(solution.obj_val)))
