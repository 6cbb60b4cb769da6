"""What a shard of LMNN adds to sums over all triplets, and how it changes between two sums.

All functions here are tasks: pure functions of their arguments. Equation numbers are those of
`nearfar.problems.lmnn`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.kernels import Array
from nearfar.problems.lmnn_shard_rows import Base, Coordinates, Multipliers
from nearfar.problems.lmnn_shard_search import Found
from nearfar.problems.lmnn_shards import Shard, ShardProblem, assembled
from nearfar.problems.lmnn_triplets import Placement, Triplets

Matrix = NDArray[np.float64]


def shard_of(*args: Any) -> Shard:
    """The shard of `assembled`, without the pull."""
    shard = assembled(*args)
    return shard.placed_at(replace(shard.at, pull=0.0))


def counted(shard: Shard) -> int:
    """How many triplets there are."""
    return len(shard.at.triplets)


def collected(shard: Shard, keep: bool) -> Multipliers:
    """The triplets whose multipliers are not zero, or all with ``keep``, on the host."""
    triplets, kernels = shard.at.triplets, shard.problem.kernels
    columns = triplets.edge, triplets.pair, triplets.prox
    if not keep:
        used = kernels.flatnonzero(triplets.prox > 0)
        columns = tuple(column[used] for column in columns)
    edge, tail, prox = map(kernels.to_host, (columns[0], triplets.tails[columns[1]], columns[2]))
    numbers = (_short(shard.edges[edge]), _short(shard.ids[tail]))
    return Multipliers(*numbers, np.asarray(prox, dtype=np.float64))


def _short(numbers: NDArray[Any]) -> NDArray[Any]:
    """Numbers in 32 bits where they suffice: they travel between machines."""
    return numbers.astype(np.int32) if numbers.max(initial=0) < 2**31 else numbers


def placed(shard: Shard, L: Matrix) -> Shard:
    """The shard at L."""
    return shard.placed_at(replace(shard.problem.place(L, shard.at.triplets), pull=0.0))


def moved(shard: Shard, direction: Matrix, width: float, t: float) -> Shard:
    """The shard after a step t along a direction."""
    line = shard.line(direction, width)
    shard.forget()  # no further round is along this line
    return shard.placed_at(replace(shard.problem.move(shard.at, line, t), pull=0.0))


def advanced(shard: Shard, width: float) -> Shard:
    """The shard with a of (4) replaced by α."""
    return shard.placed_at(shard.problem.advance_multipliers(shard.with_width(width), width))


def measured(shard: Shard, width: float) -> tuple[Any, ...]:
    """Push of (2), second term of (6), number of active triplets, and gradient of the push."""
    problem, at = shard.problem, shard.with_width(width)
    push, n_active = problem.objective(at)
    lap = problem._laplacian(at.triplets, at.alpha, at.Z)
    return push, problem.complementarity(at), n_active, 2 * problem._pulled_back(lap)


def along(shard: Shard, direction: Matrix, width: float, steps: tuple[float, ...]) -> Matrix:
    """Value, slope and curvature of the push of (4) at steps along a direction, (steps, 3)."""
    line = shard.line(direction, width)
    return np.array([line.at(step) for step in steps])


def curved(shard: Shard, rows: Matrix, width: float, Y: Matrix) -> Matrix:
    """The product of `LMNNObjective.curvature` with Y."""
    known = shard._curvature
    if known is None or not np.array_equal(known[0], rows):
        known = rows, shard.problem.curvature(shard.with_width(width), rows)
        shard._curvature = known
    product: Matrix = known[1](Y)
    return product


def bounded(shard: Shard, width: float, null: Matrix) -> dict[str, Any]:
    """What (6) needs of a shard."""
    part = _bounded(shard, shard.with_width(width), null)
    del part["dual"]
    return part | {"pull": 0.0}


def proved(
    X: Array,
    base: Base,
    found: list[Found],
    previous: Multipliers,
    at: Coordinates,
    L: Matrix,
    components: Matrix | None,
    margin: float,
    keep: bool,
    null: Matrix,
    with_dual: bool,
) -> dict[str, Any]:
    """What (6) needs of a shard in float64, at L or at the map that is returned for it."""
    shard = assembled(
        X, base, found, previous, at, L, components, margin, margin, keep, single=False
    )
    part = _bounded(shard, shard.at, null) | {"pull": shard.at.pull}
    if not with_dual:
        del part["dual"]
    return part


def _bounded(shard: Shard, at: Placement, null: Matrix) -> dict[str, Any]:
    """Sums of objective, bound and complementarity; S(α); and α where it is not zero.

    ``null`` spans the null space of P, which S must not reach: α is zero there. Pairs of equal rows
    have C_p = 0, so that their α need not be scaled with the rest.
    """
    problem, triplets = shard.problem, at.triplets
    kernels, mu, slack = problem.kernels, problem.push_weight, at.slack
    push, n_active = problem.objective(replace(at, pull=0.0))
    alpha, free, freed = at.alpha, np.zeros(null.shape), 0.0
    if null.shape[1]:
        reaches = problem._reaches(null, triplets.heads, triplets.tails, problem.U)
        blocked = alpha * reaches[triplets.pair]
        free, freed = _push(problem, triplets, blocked), float(triplets.weighted(blocked).sum())
        alpha = alpha - blocked
    fixed = alpha * shard.equal[triplets.pair]
    margins = problem._margins(triplets, problem.kept)
    sums = (float((triplets.weighted(part) * margins).sum()) for part in (fixed, alpha - fixed))
    lost = triplets.weighted(slack.clip(0, None) - alpha * slack)
    used = kernels.flatnonzero(alpha > 0)
    chosen = triplets.edge[used], triplets.tails[triplets.pair[used]], alpha[used]
    edge, tail, values = map(kernels.to_host, chosen)
    equal = kernels.flatnonzero(shard.equal)
    pairs = (shard.ids[kernels.to_host(end[equal])] for end in (triplets.heads, triplets.tails))
    return {
        "push": push,
        "n_active": n_active,
        "bound": tuple(mu * part for part in sums),  # of equal pairs, and of all others
        "complementarity": mu * float(lost.sum()),
        "S": _push(problem, triplets, alpha),
        "free": (free, freed),
        "equal_pairs": np.sort(np.stack(list(pairs), axis=1), axis=1),
        "dual": (shard.edges[edge], shard.ids[tail], values, kernels.to_host(fixed[used]) > 0),
    }


def _push(problem: ShardProblem, triplets: Triplets, alpha: Array) -> Matrix:
    """S(α)."""
    S: Matrix = -problem.kernels.gram(problem.U, problem._laplacian(triplets, alpha, problem.U))
    return S
