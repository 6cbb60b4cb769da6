"""Objective, feasibility and bound of each learner, from points and a dual point alone.

Plain NumPy, and once a sparse matrix: it shares nothing with kernels, problems and solvers.
docs/verify.md has the equations whose numbers end the lines. Points are rows of X; M = LᵀL;
D(a, b) = ‖L(a − b)‖² is the squared distance of images, the rows of Z = XLᵀ; and
C_ab = (a − b)(a − b)ᵀ. Every learner's function answers with objective and bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array

Matrix = NDArray[np.float64]
Index = NDArray[np.intp]
Pairs = tuple[Index, Index]

EPS = float(np.finfo(np.float64).eps)
BLOCK = 1 << 22  # entries of a table of distances that is held at a time
MANY = 32  # pairs to a point
DEAD, RANK = 1e-12, 1e-13  # spread of a feature, variance of a direction, that count as rounding
NULL, REACH = 1e-10, 1e-20  # eigenvalue of a pull, square outside of its range, that count as zero
FAR = 1e8  # weight of the directions that may become as long as one likes at no price


# -- what all need ---------------------------------------------------------------------------


def blocks(n: int, width: int) -> Iterator[Index]:
    """Rows in parts, so that a table of this width stays small."""
    step = max(1, BLOCK // max(width, 1))
    return (np.arange(first, min(first + step, n)) for first in range(0, n, step))


def squares(A: Matrix, B: Matrix) -> Matrix:
    """‖a − b‖² for all rows a and b, from differences, which lose no digits."""
    total = np.zeros((len(A), len(B)))
    for a, b in zip(A.T, B.T, strict=True):
        total += np.subtract.outer(a, b) ** 2
    return total


def lengths(Z: Matrix, heads: Index, tails: Index) -> Matrix:
    """‖z_h − z_t‖² of each pair."""
    parts = (Z[heads[part]] - Z[tails[part]] for part in blocks(len(heads), Z.shape[1]))
    return np.concatenate([(part * part).sum(axis=1) for part in parts] or [np.empty(0)])


def scatter(U: Matrix, heads: Index, tails: Index, weights: Matrix) -> Matrix:
    """Σ w C_ht over pairs; many pairs of few points by their Laplacian, at some rounding."""
    if len(heads) > MANY * len(U):
        A = coo_array((weights, (heads, tails)), shape=(len(U), len(U))).tocsr()
        flow = U.T @ (A @ U)
        return np.asarray((U.T * (A.sum(axis=0) + A.sum(axis=1))) @ U - flow - flow.T)
    total = np.zeros((U.shape[1],) * 2)
    for part in blocks(len(heads), U.shape[1]):
        difference = U[heads[part]] - U[tails[part]]
        total += (difference.T * weights[part]) @ difference
    return total


def class_scatter(U: Matrix, codes: Index, weight: Callable[[int], float]) -> Matrix:
    """Σ_c w(n_c) Σ (u − mean_c)(u − mean_c)ᵀ over the points of each class."""
    total = np.zeros((U.shape[1],) * 2)
    for code in np.unique(codes):
        part = U[codes == code]
        part = part - part.mean(axis=0)
        total += weight(len(part)) * part.T @ part
    return total


def largest(S: Matrix) -> float:
    """The largest eigenvalue, and what rounding may have taken from it."""
    return float(np.linalg.eigvalsh(S)[-1] + len(S) * EPS * np.linalg.norm(S)) if len(S) else 0.0


def coordinates(X: Matrix) -> tuple[Matrix, Matrix]:
    """C (n, k) and N (d, k) with X = C Nᵀ up to rounding, C being of one size in all directions."""
    scale = np.median(np.abs(X), axis=0)
    scale = np.where(scale > 0, scale, np.sqrt((X * X).mean(axis=0)))
    live = scale > DEAD * np.median(scale[scale > 0]) if scale.any() else scale > 0
    unit = X * (live / np.where(live, scale, 1))
    norms = np.linalg.norm(unit, axis=1)
    triangle = np.linalg.qr(unit / np.where(norms > 0, norms, 1)[:, None], mode="r")
    _, sizes, directions = np.linalg.svd(triangle, full_matrices=False)
    V = directions[sizes**2 > RANK * sizes.max(initial=0.0) ** 2].T
    return unit @ V, (live * scale)[:, None] * V


def trace_matrix(N: Matrix, T: Matrix) -> Matrix:
    """TᵀGT with tr M = ⟨G, NᵀMN⟩ for the M of least trace: G = (NᵀN)⁻¹."""
    rows = np.linalg.solve(np.linalg.qr(N)[1].T, T)
    return np.asarray(rows.T @ rows)


def balanced(C: Matrix, pull: Callable[[Matrix], Matrix], weight: float) -> tuple[Matrix, Matrix]:
    """R with RᵀPR = I on the range of P, and its null space, where ``pull(T)`` is TᵀPT.

    P is decomposed again in the coordinates found, until rounding is small in all of them; where it
    is near zero, the scatter of all points (as of pairs of this weight) gives the scale.
    """
    T = np.eye(C.shape[1])
    for _ in range(4):
        U = (C - C.mean(axis=0)) @ T
        values, vectors = np.linalg.eigh(pull(T) + (2e-4 * weight / len(U)) * (U.T @ U))
        T = T @ (vectors / np.sqrt(np.maximum(values, EPS * values.max(initial=0.0))))
    values, vectors = np.linalg.eigh(pull(T))
    kept, T = values > NULL * values.max(initial=0.0), T @ vectors
    return T[:, kept] / np.sqrt(values[kept]), T[:, ~kept]


def reach_null(C: Matrix, R: Matrix, null: Matrix, heads: Index, tails: Index) -> NDArray[np.bool_]:
    """Whether the points of each pair differ along the null space of a pull."""
    if null.shape[1] == 0:
        return np.zeros(len(heads), dtype=bool)
    outside, inside = lengths(C @ null, heads, tails), lengths(C @ R, heads, tails)
    return np.asarray(outside > REACH * (outside + inside))


# -- the learners --------------------------------------------------------------------------------


def lmnn(
    C: Matrix, images: list[Matrix], metric: Index, codes: Index, mu: float,
    targets: Index, triplets: Index, alpha: Matrix,
) -> tuple[float, float, float]:  # fmt: skip
    """Also the smallest eigenvalue of (1.2). A point l is measured by images[metric[l]]."""
    heads, slots = np.nonzero(targets >= 0)
    tails = targets[heads, slots]
    length = np.full(targets.shape, -np.inf)
    for number, Z in enumerate(images):
        mine = metric[tails] == number
        length[heads[mine], slots[mine]] = lengths(Z, heads[mine], tails[mine])
    objective = (1 - mu) * length[heads, slots].sum()  # (1.1), the pull
    for number, Z in enumerate(images):
        points = np.flatnonzero(metric == number)
        for rows in blocks(len(Z), len(points)):
            table = squares(Z[rows], Z[points])
            table[codes[rows][:, None] == codes[points]] = np.inf
            for column in length[rows].T:
                objective += mu * np.maximum(1 + column[:, None] - table, 0).sum()  # the push

    (i, j, far), alpha, frames = triplets.T, alpha.copy(), []
    for number in range(len(images)):
        mine = metric[tails] == number
        near = heads[mine], tails[mine], np.full(mine.sum(), 1 - mu)

        def pull(T: Matrix, near: tuple[Index, Index, Matrix] = near) -> Matrix:
            return scatter(C @ T, *near)  # P of (1.2)

        R, null = balanced(C, pull, float(near[2].sum()))
        alpha[(metric[far] == number) & reach_null(C, R, null, i, far)] = 0
        frames.append(C @ R)
    least = 0.0
    for number, U in enumerate(frames):
        pushed, pulled = metric[far] == number, metric[j] == number
        S = scatter(U, i[pushed], far[pushed], mu * alpha[pushed])
        S -= scatter(U, i[pulled], j[pulled], mu * alpha[pulled])
        least = min(least, 1 - largest(S))  # (1.2), where P is the identity
    return float(objective), float(mu * alpha.sum() / (1 - least)), least  # (1.3)


def soft_neighbors(Z: Matrix, U: Matrix, counted: Index) -> tuple[Matrix, float, Matrix]:
    """log Zᵢ, Σᵢ H[p(·|i)] and S(p) in the coordinates U, i running over the counted points."""
    logs, entropy, degrees, flow = np.zeros(len(Z)), 0.0, np.zeros(len(Z)), np.zeros(U.shape)
    for part in blocks(len(counted), len(Z)):
        rows = counted[part]
        table = squares(Z[rows], Z)
        table[np.arange(len(rows)), rows] = np.inf
        least = table.min(axis=1, keepdims=True)
        p = np.exp(least - table)
        sums = p.sum(axis=1, keepdims=True)
        p /= sums
        logs[rows] = (np.log(sums) - least)[:, 0]
        table[np.arange(len(rows)), rows] = 0
        entropy += float(np.where(p > 0, p * table, 0).sum() + logs[rows].sum())
        degrees[rows] += p.sum(axis=1)
        degrees += p.sum(axis=0)
        flow[rows] += p @ U
    return logs, entropy, (U.T * degrees) @ U - U.T @ flow - flow.T @ U


def mcml(
    C: Matrix, N: Matrix, Z: Matrix, trace: float, codes: Index, ridge: float, duals: list[Matrix]
) -> tuple[float, float]:
    """``duals`` are the images whose soft neighbours are p and q of (2.4), of p alone, or none."""
    sizes = np.bincount(codes)
    counted = np.flatnonzero(sizes[codes] > 1)
    constant = np.log(sizes[codes[counted]] - 1).sum()

    def pull(T: Matrix) -> Matrix:
        extra = ridge * trace_matrix(N, T) if ridge else 0.0
        return class_scatter(C @ T, codes, lambda m: 2 * m / max(m - 1, 1)) + extra

    near = np.trace(class_scatter(Z, codes, lambda m: 2 * m / max(m - 1, 1)))
    logs = soft_neighbors(Z, Z[:, :0], counted)[0]
    objective = near + ridge * trace + logs.sum() - constant  # (2.1)
    R, null = balanced(C, pull, float(len(counted)))
    U, wide = C @ R, FAR * (C @ null)
    found = [soft_neighbors(np.hstack([D, wide]), U, counted)[1:] for D in duals]
    unit = np.eye(R.shape[1])
    wanted = constant, unit - ridge * trace_matrix(N, R) if ridge else unit  # of p₀
    return float(objective), max(
        [0.0, *(_mixed(found[0], q) - constant for q in [*found[1:], wanted] if found)]
    )


def _mixed(p: tuple[float, Matrix], q: tuple[float, Matrix]) -> float:
    """Entropy of (1 − ε)p + εq with a small ε for which (2.3) holds, or −∞ if there is none.

    The smallest eigenvalue is concave in ε: a chord from 0 to where it is positive stays below it.
    """

    def room(share: float) -> float:
        return 1 - largest((1 - share) * p[1] + share * q[1])

    lack, share, left = -room(0.0), 1.0, room(1.0)
    if lack <= 0:
        return p[0]
    if left < 0:
        return -np.inf
    for _ in range(6):
        share, left = share * lack / (lack + left), 0.0
        left = max(room(share), 0.0)
    return (1 - share) * p[0] + share * q[0]  # (2.4)


def mmc(
    C: Matrix, near: Callable[[Matrix], Matrix], weight: float, far: Callable[[], Iterable[Pairs]],
    Z: Matrix, size: float, dual: Matrix, diagonal: Matrix | None,
) -> tuple[float, float]:  # fmt: skip
    """``near(T)`` is the scatter of the near pairs with the ridge, ``size`` is ⟨S, M⟩ of (3.1).

    For a diagonal M, ``diagonal`` is that of S, infinite for features that are left out.
    """
    objective = (
        sum(float(np.sqrt(lengths(Z, *pairs)).sum()) for pairs in far()) / max(1, size) ** 0.5
    )
    n_far = sum(len(heads) for heads, _ in far())
    mean = sum(float(np.sqrt(lengths(dual, *pairs)).sum()) for pairs in far()) / max(n_far, 1)
    if diagonal is None:
        R, null = balanced(C, near, weight)
    else:
        spread = C.std(axis=0)
        limited = diagonal > 2 * NULL * weight * spread**2
        R = np.diag(limited / np.sqrt(np.where(limited, diagonal, 1)))
        null = np.diag(1 / np.where(limited, 1, spread))[:, ~limited]
    if mean <= 0 or any(reach_null(C, R, null, *pairs).any() for pairs in far()):
        return objective, np.inf  # near pairs do not limit all directions
    U, found = C @ R, []
    for floor in (1e-9 * mean, 0.03 * mean):
        total, W = 0.0, np.zeros((U.shape[1],) * 2)
        for pairs in far():
            held = np.maximum(np.sqrt(lengths(dual, *pairs)), floor)
            total += float(held.sum())
            W += scatter(U, *pairs, 1 / held)
        top = largest(W) if diagonal is None else float(np.diag(W).max())
        found.append((total * top) ** 0.5)  # (3.3)
    return objective, min(found)


def dml_eig(
    C: Matrix, near: Callable[[Matrix], Matrix], weight: float, far: Callable[[], Iterable[Pairs]],
    Z: Matrix, size: float, features: int, pairs: Pairs, alpha: Matrix,
) -> tuple[float, float]:  # fmt: skip
    """``near`` and ``size`` as of `mmc`, here of (4.1)."""
    shortest = min(float(lengths(Z, *part).min(initial=np.inf)) for part in far())
    R, null = balanced(C, near, weight)
    if reach_null(C, R, null, *pairs).any():
        return shortest * features / size, np.inf
    top = largest(scatter(C @ R, *pairs, alpha / alpha.sum()))
    return shortest * features / size, features * top  # (4.3)


def nca(Z: Matrix, codes: Index) -> float:
    """The expected number of points whose random neighbour is of their class; there is no bound."""
    total = 0.0
    for rows in blocks(len(Z), len(Z)):
        table = squares(Z[rows], Z)
        table[np.arange(len(rows)), rows] = np.inf
        p = np.exp(table.min(axis=1, keepdims=True) - table)
        same = codes[rows][:, None] == codes
        total += float(((p * same).sum(axis=1) / p.sum(axis=1)).sum())
    return total


def mvu(
    K: Matrix,
    edges: Pairs,
    D: Matrix,
    sign: float,
    price: float,
    dual: Matrix,
) -> tuple[float, float]:
    """Of one connected graph: edges with squared lengths D and dual weights."""
    (heads, tails), own, weights = edges, K.diagonal(), dual / D
    changes = own[heads] + own[tails] - 2 * K[heads, tails] - D
    objective = sign * own.sum() - price * np.abs(changes).sum()  # (5.1)
    S = np.full((len(K), len(K)), 2 / len(K))  # the eigenvalue of 1 is 2, not 0
    for a, b, change in (
        (heads, heads, weights),
        (tails, tails, weights),
        (heads, tails, -weights),
        (tails, heads, -weights),
    ):
        np.add.at(S, (a, b), change)
    least = -largest(-S)  # of Lap(y / D)
    scale = max(-least, 1.0) if sign < 0 else min(least, 1.0)  # (5.2) holds for y / scale
    return float(objective), float(dual.sum() / scale) if scale > 0 else np.inf  # (5.3)
