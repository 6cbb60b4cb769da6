"""Objective, feasibility and bound of each learner, from points and a dual point alone.

Two pages, to be read beside docs/verify.md, whose equations' numbers end the lines. X are points,
Z images under a map with D(i, j) = ‖z_i − z_j‖², and B rows whose BᵀB limits a metric. Functions
return objective, bound, and what else there is to say. Any coordinates T that span X would do.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import eigh
from scipy.sparse import coo_array
from scipy.spatial.distance import cdist

from nearfar.proofs import sums
from nearfar.proofs.sums import Index, Matrix, Pairs, Parts


def largest_ratio(S: Matrix, B: Matrix, diagonal: bool = False) -> float:
    """The largest eigenvalue of S relative to BᵀB, and what rounding may have taken from it."""
    shape = np.eye(len(S)) if diagonal else 1.0
    top = eigh(shape * S, shape * (B.T @ B), eigvals_only=True)[-1] if len(S) else 0.0
    return float(top + len(S) * sums.EPS * np.linalg.norm(S))


def lmnn(
    X: Matrix, Z: Matrix, metric: Index, codes: Index, mu: float, claim: sums.Claim
) -> tuple[float, float, float]:
    """Also the smallest eigenvalue of (1.2). Distances to l are those of images Z[metric[l]]."""
    targets, m = claim.targets, claim.masses
    i, slot = np.nonzero(targets >= 0)
    j, D, frames, least = targets[i, slot], np.full(targets.shape, -np.inf), [], 0.0
    D[i, slot] = ((Z[metric[j], i] - Z[metric[j], j]) ** 2).sum(axis=1)
    objective = (1 - mu) * (m[i] @ D[i, slot] + claim.ridges @ claim.traces)
    (at, near, far), alpha = claim.dual[0].T, claim.weighted()
    for number, images in enumerate(Z):
        points, mine = np.flatnonzero(metric == number), metric[j] == number
        for rows in sums.blocks(len(X), len(points)):
            table = cdist(images[rows], images[points], "sqeuclidean")
            table[codes[rows][:, None] == codes[points]] = np.inf
            for edges in D[rows].T[:, :, None]:
                objective += mu * m[rows] @ np.maximum(1 + edges - table, 0) @ m[points]  # (1.1)
        B = np.sqrt((1 - mu) * m[i[mine]])[:, None] * (X[i[mine]] - X[j[mine]])
        B = sums.with_ridge(B, (1 - mu) * claim.ridges[number])  # BᵀB = P (1.4)
        T, null = sums.coordinates(X, B, shortest=bool(claim.ridges[number] > 0))
        alpha[(metric[far] == number) & sums.differ_along(null, T, X, at, far)] = 0
        frames.append((X @ T, B @ T))
    for number, (U, B) in enumerate(frames):
        push, pull = metric[far] == number, metric[near] == number
        S = sums.scatter(U, at[push], far[push], mu * alpha[push])
        S -= sums.scatter(U, at[pull], near[pull], mu * alpha[pull])
        least = min(least, 1 - largest_ratio(S, B))  # (1.2)
    bound = max(mu * (alpha * claim.margins(X)).sum() / (1 - least), 0.0)  # (1.3)
    return float(objective), float((1 - mu) * claim.constant(X) + bound), least


def mcml(
    X: Matrix, codes: Index, claim: sums.Collapse, Z: Matrix, duals: list[Matrix]
) -> tuple[float, float]:
    """``duals`` are images whose soft neighbours are p and q of (2.4), of p alone, or none."""
    m, ridge, kept = claim.masses, claim.ridge, X * np.sqrt(claim.floor)  # (2.5)
    counted, found = np.bincount(codes)[codes] > 1, []
    others = np.where(counted, sums.masses_of_others(codes, m), 1)  # N_i − m_i
    objective = ridge * claim.trace - (constant := m @ np.log(others))
    for rows, D, _, logs in sums.soft_neighbors(Z, m):
        near = (D * (codes[rows][:, None] == codes)) @ m / others[rows]
        objective += (m[rows] * (near + logs))[counted[rows]].sum()  # (2.1)
    B, lift = sums.with_ridge(own := sums.pulled(X, codes, m), ridge), (own**2 @ claim.floor).sum()
    T, null = sums.coordinates(X, B, shortest=ridge > 0)
    U, V, B, own = X @ T, 1e8 * (X @ null), B @ T, own @ T  # p keeps to V, which has no limit
    for dual in duals:
        entropy, S = lift - constant, np.zeros((U.shape[1],) * 2)
        for rows, D, p, logs in sums.soft_neighbors(np.hstack([dual, V]), m):
            p, D = p * (m * counted)[rows][:, None], D - cdist(kept[rows], kept, "sqeuclidean")
            entropy += (p * D).sum() + (m * counted)[rows] @ logs
            S += sums.scatter(U, rows[np.nonzero(p)[0]], np.nonzero(p)[1], p[p > 0])
        found.append((entropy, S))
    mixes = (mixed(found[0], q, B) for q in [*found[1:], (0.0, own.T @ own)] if found)
    return float(objective), float(max([0.0, *mixes]))  # (2.2)


def mixed(p: tuple[float, Matrix], q: tuple[float, Matrix], B: Matrix) -> float:
    """The bound of (2.4) with the least ε for which (2.3) holds, and a little more for rounding."""
    lack, left, P = largest_ratio(p[1], B) - 1, 1 - largest_ratio(q[1], B), B.T @ B
    if lack <= 0 or left <= 0:
        return p[0] if lack <= 0 else -np.inf
    most = float(eigh(p[1] - P, P - q[1], eigvals_only=True)[-1])
    share = max(most / (1 + most), 0.0)
    lack = max(largest_ratio((1 - share) * p[1] + share * q[1], B) - 1, 0.0)  # (2.3)
    share += (1 - share) * lack / (lack + left)  # on a chord of a convex function
    return (1 - share) * p[0] + share * q[0]  # (2.4)


def mmc(
    X: Matrix, B: Matrix, far: Parts, Z: Matrix, limits: sums.Limits, dual: Matrix, diagonal: bool
) -> tuple[float, float]:
    """BᵀB is S' of (3.1), and ℓ are the distances of the images ``dual``."""
    (T, null), bound = sums.coordinates(X, B, diagonal, shortest=True), np.inf
    objective = sum(w @ np.sqrt(sums.lengths(Z, *pairs)) for pairs, w in far())  # (3.1)
    mean = np.mean(np.concatenate([np.sqrt(sums.lengths(dual, *pairs)) for pairs, _ in far()]))
    free = any(sums.differ_along(null, T, X, *pairs).any() for pairs, _ in far())
    for floor in () if free or not mean > 0 else (1e-9 * mean, 0.03 * mean):
        total, kept, W = 0.0, 0.0, 0.0 * (T.T @ T)
        for pairs, w in far():
            v = w / (ell := np.maximum(np.sqrt(sums.lengths(dual, *pairs)), floor))  # (3.2)
            total, kept = total + w @ ell, kept + v @ limits.kept(X, pairs)
            W += sums.scatter(X @ T, *pairs, v)
        bound = min(bound, (total * (largest_ratio(W, B @ T, diagonal) + kept)) ** 0.5)  # (3.3)
    return float(objective / max(1, limits.size) ** 0.5), bound


def dml_eig(
    X: Matrix, B: Matrix, far: Parts, Z: Matrix, limits: sums.Limits, pairs: Pairs, alpha: Matrix
) -> tuple[float, float]:
    """BᵀB is H' of (4.1), and alpha are weights of some far pairs."""
    (T, null), d = sums.coordinates(X, B, shortest=True), X.shape[1]
    shortest = min(sums.lengths(Z, *part).min(initial=np.inf) for part, _ in far())  # (4.1)
    top = largest_ratio(sums.scatter(X @ T, *pairs, alpha), B @ T)  # (4.2)
    kept = np.inf if sums.differ_along(null, T, X, *pairs).any() else alpha @ limits.kept(X, pairs)
    return float(shortest * d / limits.size), d * float(top + kept) / alpha.sum()  # (4.3)


def mvu(
    K: Matrix, i: Index, j: Index, D: Matrix, y: Matrix, sign: float, prices: Matrix
) -> tuple[float, float, float, float]:
    """Of a connected graph with edges (i, j); also the width of (5.4), and the largest change.

    ``prices`` (2, m) are those of growing and of shrinking; infinity forbids it.
    """
    own, below = K.diagonal(), max(-np.linalg.eigvalsh(K)[0], 0.0)  # K + below (I − 11ᵀ/n) ⪰ 0
    change, lift = (own[i] + own[j] - 2 * K[i, j] + 2 * below) / D - 1, below * (len(K) - 1)
    sides, no = np.maximum([change, -change], 0), np.isinf(prices)
    value = sign * (own.sum() + lift) - (sides * np.where(no, 0, prices)).sum(axis=0) @ D  # (5.1)
    A = coo_array((y / D, (i, j)), shape=K.shape).toarray()
    A = np.diag((A + A.T).sum(axis=0)) - A - A.T + 2 / len(K)  # the eigenvalue of 1 is 2, not 0
    least = -largest_ratio(-A, np.eye(len(K)))
    scale = max(-least, 1.0) if sign < 0 else min(least, 1.0)  # y / scale meets (5.2)
    high, low = scale * prices * D * (1 + 1e-6)
    y = y / scale if scale > 0 and not ((y > high) | (-y > low)).any() else np.full(len(y), np.inf)
    change = (sides * no).sum(axis=0)  # what is forbidden
    bound, worst = y.sum(), change.max()  # (5.3)
    cost = 2 * (np.abs(y) + np.abs(y).mean()) @ change if worst else 0.0
    if no[0].all() and not prices[1].any():
        cost = value * worst / (1 + worst)  # c of (5.4)
    width = max(bound - value, 0.0) + cost + lift  # (5.4)
    return value - sign * lift, bound, max(width, worst * max(D.mean(), abs(bound))), worst
