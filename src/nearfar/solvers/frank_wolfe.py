"""Frank-Wolfe ascent to the metric that makes the shortest of many vectors as long as possible.

For problems max over M ⪰ 0, tr M = d of min_t ⟨Aₜ, M⟩ with Aₜ = uₜuₜᵀ + cₜI (see
`nearfar.problems.dml_eig`). The gradient of the smoothed minimum is the mean of Aₜ with weights α.
Over matrices of trace d, a linear function is largest at d vvᵀ with v the leading eigenvector, and
M moves towards that matrix.

References
----------
Phillips, Data mining: algorithms, geometry, and probability, lecture 15, algorithm 15.3.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from nearfar.solvers.covering import ManyConstraints, Weights
from nearfar.solvers.run import Iterate

Array = Any
Matrix = NDArray[np.float64]


class SmoothedMinimum(ManyConstraints, Protocol):
    """What the solver needs of a problem; see `nearfar.problems.dml_eig`."""

    def soft_weights(self, lengths: Array, smoothing: float) -> Array: ...  # noqa: D102
    def scatter(self, weights: Array) -> Matrix: ...  # noqa: D102


def frank_wolfe(problem: SmoothedMinimum, smoothing: float) -> Iterator[Iterate[None, Weights]]:
    """Algorithm 15.3.1: M₀ = I, and Mₜ = (1 − 1/t) Mₜ₋₁ + (d/t) vvᵀ; the point is a factor of Mₜ.

    The lecture writes vvᵀ without the factor d, which would leave the matrices of trace d; the
    factor keeps M there. Lengths are linear in M, so a step costs one gradient and the lengths
    along one direction.

    The residual is the certified gap: the difference of the smallest bound d λ_max(G(α)) so far and
    the value, relative to the value. It need not go to zero, since α are the weights of a smoothed
    problem. The certificate is the α of that bound.
    """
    d, k = problem.trace, problem.size
    L = np.sqrt(d / k) * np.eye(k)
    lengths = problem.lengths(L)
    bound, best = np.inf, None
    for t in count(1):
        alpha = problem.soft_weights(lengths, smoothing)
        top, v = linalg.eigh(problem.scatter(alpha), subset_by_index=(k - 1, k - 1))
        if d * top[0] < bound:
            bound, best = d * float(top[0]), alpha
        L = np.vstack([np.sqrt(1 - 1 / t) * L, np.sqrt(d / t) * v.T])
        if len(L) > 2 * k:
            L = linalg.qr(L, mode="r")[0][:k]
        lengths = (1 - 1 / t) * lengths + d / t * problem.lengths(v.T)
        value = float(lengths.min())
        gap = max(bound / value - 1, 0.0) if value > 0 else np.inf
        info = {"objective": value}
        yield Iterate(L, -value, gap, True, info, certificate=Weights(best, None), certified=True)
