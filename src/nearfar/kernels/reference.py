"""The kernels as plain loops: what the fast versions must equal."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]
Index = NDArray[np.intp]


def first_equal(X: Floats) -> Index:
    """The number of the first row that equals each row; −0 equals 0."""
    return np.array([next(j for j in range(i + 1) if (X[j] == X[i]).all()) for i in range(len(X))])


def kth_squares(X: Floats, starts: Index, k: int) -> NDArray[np.float64]:
    """Squared distances to the k-th nearest others of the class (n,), in float64.

    A point of a smaller class has the largest, and one alone has 0.
    """
    X, out = X.astype(np.float64), np.zeros(len(X))
    for first, last in pairwise(starts):
        for i in range(first, last):
            squares = sorted(np.sum((X[i] - X[j]) ** 2) for j in range(first, last) if j != i)
            out[i] = squares[min(k, len(squares)) - 1] if squares else 0.0
    return out


def nearest_in_class(X: Floats, starts: Index, k: int) -> tuple[Index, Index]:
    """Edges from each point to its k nearest others of its class, nearest first, ties by number.

    A class of m < k + 1 points gives each of its points m − 1 edges.
    """
    heads, tails = [], []
    for first, last in pairwise(starts):
        for i in range(first, last):
            others = [j for j in range(first, last) if j != i]
            others.sort(key=lambda j: float(np.sum((X[i] - X[j]) ** 2)))
            for j in others[:k]:
                heads.append(i)
                tails.append(j)
    return np.array(heads, dtype=np.intp), np.array(tails, dtype=np.intp)


def impostor_pairs(Z: Floats, reach: Floats, starts: Index) -> tuple[Index, Index]:
    """All (i, l) of different classes with ‖zᵢ − z_l‖² < reachᵢ, by i and then by l."""
    labels = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    heads, tails = [], []
    for i in range(len(Z)):
        for j in range(len(Z)):
            if labels[i] != labels[j] and np.sum((Z[i] - Z[j]) ** 2) < reach[i]:
                heads.append(i)
                tails.append(j)
    return np.array(heads, dtype=np.intp), np.array(tails, dtype=np.intp)


def cross_impostor_pairs(
    Q: Floats, reach: Floats, Z: Floats, labels: Index, others: Index
) -> tuple[Index, Index]:
    """All (i, l) with ‖qᵢ − z_l‖² < reachᵢ and different labels, by i and then by l."""
    heads, tails = [], []
    for i in range(len(Q)):
        for j in range(len(Z)):
            if labels[i] != others[j] and np.sum((Q[i] - Z[j]) ** 2) < reach[i]:
                heads.append(i)
                tails.append(j)
    return np.array(heads, dtype=np.intp), np.array(tails, dtype=np.intp)


def mutual_impostor_pairs(
    Q: Floats, reach: Floats, Z: Floats, others_reach: Floats, labels: Index, others: Index
) -> tuple[tuple[Index, Index], tuple[Index, Index]]:
    """`cross_impostor_pairs` of Q among Z, and of Z among Q."""
    return (
        cross_impostor_pairs(Q, reach, Z, labels, others),
        cross_impostor_pairs(Z, others_reach, Q, others, labels),
    )


def sq_lengths(Z: Floats, heads: Index, tails: Index) -> Floats:
    """‖z_h − z_t‖² along each edge."""
    return np.array([np.sum((Z[h] - Z[t]) ** 2) for h, t in zip(heads, tails, strict=True)])


def edge_products(Z: Floats, D: Floats, heads: Index, tails: Index) -> tuple[Floats, Floats]:
    """(z_h − z_t)·(d_h − d_t) and ‖d_h − d_t‖² along each edge."""
    pairs = list(zip(heads, tails, strict=True))
    return (
        np.array([(Z[h] - Z[t]) @ (D[h] - D[t]) for h, t in pairs]),
        np.array([(D[h] - D[t]) @ (D[h] - D[t]) for h, t in pairs]),
    )


def laplacian_matmul(heads: Index, tails: Index, weights: Floats, Z: Floats) -> Floats:
    """Lap(w) Z, where Lap(w) = Σₑ wₑ (e_h − e_t)(e_h − e_t)ᵀ."""
    out = np.zeros_like(Z)
    for h, t, w in zip(heads, tails, weights, strict=True):
        out[h] += w * (Z[h] - Z[t])
        out[t] -= w * (Z[h] - Z[t])
    return out


def apply_centred(X: Floats, centre: Floats, L: Floats) -> NDArray[np.float64]:
    """(X − centre) Lᵀ in float64."""
    return np.array([[row @ (x.astype(np.float64) - centre) for row in L] for x in X])


def edge_scatter(
    Z: Floats, heads: Index, tails: Index, weights: Floats | None = None
) -> NDArray[np.float64]:
    """Σ w (z_h − z_t)(z_h − z_t)ᵀ over the edges, in float64; w = 1 without weights."""
    total = np.zeros((Z.shape[1],) * 2)
    for edge, (h, t) in enumerate(zip(heads, tails, strict=True)):
        difference = Z[h].astype(np.float64) - Z[t]
        weight = 1.0 if weights is None else weights[edge]
        total += weight * np.outer(difference, difference)
    return total


def group_scatter(Z: Floats, rows: Index, starts: Index) -> NDArray[np.float64]:
    """Σ (z − m)(z − m)ᵀ over groups of rows, in float64, m being the mean of the group of z.

    Group g is ``rows[starts[g]:starts[g + 1]]``, which is not empty.
    """
    total = np.zeros((Z.shape[1],) * 2)
    for first, last in pairwise(starts):
        members = Z[rows[first:last]].astype(np.float64)
        for deviation in members - members.mean(axis=0):
            total += np.outer(deviation, deviation)
    return total


def segment_sum(index: Index, weights: Floats, size: int) -> Floats:
    """Sum of the weights that share an index, for indices 0 … size − 1."""
    out = np.zeros(size)
    for position, weight in zip(index, weights, strict=True):
        out[position] += weight
    return out


def nearest(Q: Floats, Z: Floats, k: int) -> tuple[Index, Floats]:
    """Rows (m, k) of Z nearest to each row of Q, nearest first, and their squared distances.

    Ties are ordered by row number; k is at most n. Distances are computed in float64; the order of
    two that differ only by rounding depends on the order of summation.
    """
    near = np.empty((len(Q), k), dtype=np.intp)
    lengths = np.empty((len(Q), k))
    for t in range(len(Q)):
        every = [float(np.sum((Q[t].astype(np.float64) - z) ** 2)) for z in Z]
        near[t] = sorted(range(len(Z)), key=every.__getitem__)[:k]
        lengths[t] = [every[j] for j in near[t]]
    return near, lengths


def nearest_of_classes(Q: Floats, X: Floats, starts: Index, k: int) -> Index:
    """Rows (m, C, k) of each class of X nearest to each row of Q, −1 where a class has fewer."""
    near = np.full((len(Q), len(starts) - 1, k), -1)
    for c, (first, last) in enumerate(pairwise(starts)):
        count = min(k, last - first)
        near[:, c, :count] = first + nearest(Q, X[first:last], count)[0]
    return near


def hinge_sums(
    Q: Floats, Z: Floats, starts: Index, reach: Floats, radius: Floats
) -> tuple[Floats, Floats]:
    """Sums of hinges between queries and classes, in float64, with D(t, l) = ‖q_t − z_l‖².

    The first, (m, C), is Σⱼ Σ_l [reach_tcj − D(t, l)]₊ over all l that are not of class c, and the
    second, (m, C), is Σ_l Σⱼ [radius_lj − D(t, l)]₊ over all l of class c. ``reach`` is (m, C, k)
    and ``radius`` (n, k'); −inf adds nothing, and k or k' may be zero.
    """
    outside = np.zeros((len(Q), len(starts) - 1))
    inside = np.zeros((len(Q), len(starts) - 1))
    for t in range(len(Q)):
        for own, (first, last) in enumerate(pairwise(starts)):
            for row in range(first, last):
                square = float(np.sum((Q[t].astype(np.float64) - Z[row]) ** 2))
                inside[t, own] += np.maximum(radius[row] - square, 0).sum()
                for c in range(len(starts) - 1):
                    if c != own:
                        outside[t, c] += np.maximum(reach[t, c] - square, 0).sum()
    return outside, inside


def similarities(
    X: Floats, Y: Floats, kernel: str, gamma: float = 1.0, degree: int = 3, coef0: float = 1.0
) -> Floats:
    """k(x, y) for each row x of X and y of Y, (m, n), by the formulas of scikit-learn."""
    formulas = {
        "linear": lambda x, y: x @ y,
        "poly": lambda x, y: (gamma * (x @ y) + coef0) ** degree,
        "rbf": lambda x, y: np.exp(-gamma * np.sum((x - y) ** 2)),
        "sigmoid": lambda x, y: np.tanh(gamma * (x @ y) + coef0),
        "cosine": lambda x, y: x @ y / ((np.linalg.norm(x) or 1) * (np.linalg.norm(y) or 1)),
        "laplacian": lambda x, y: np.exp(-gamma * np.sum(np.abs(x - y))),
    }
    return np.array([[formulas[kernel](x, y) for y in Y] for x in X], dtype=X.dtype)


def softmax_neighbors(
    Z: Floats,
    Y: Floats,
    starts: Index,
    own: bool = False,
    both: bool = False,
    masses: NDArray[np.float64] | None = None,
) -> tuple[Floats, Floats, Floats, Floats, Floats | None]:
    """Sums over the soft neighbours p_ij = exp(−‖zᵢ − zⱼ‖²) / Σ_{l≠i} exp(−‖zᵢ − z_l‖²), j ≠ i.

    Returns the logarithm of the denominator (n,), the share of the own class in it (n,), and for
    the weights w_ij = p_ij, or with ``own`` w_ij = p_ij ([yᵢ = yⱼ] − shareᵢ), the degrees
    Σⱼ (w_ij + w_ji) (n,), the product W Y (n, c), and Wᵀ Y (n, c) if ``both``, else None. A point
    alone in its class has weights of zero. All but the products are in float64; n is at least 2.

    With ``masses`` m (n,), which are positive, point j counts m_j times as a neighbour, so that
    p_ij = m_j exp(−‖zᵢ − zⱼ‖²) / Σ_{l≠i} m_l exp(−‖zᵢ − z_l‖²), and w_ij is multiplied by mᵢ.
    """
    n, labels = len(Z), np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    Z, masses = Z.astype(np.float64), np.ones(n) if masses is None else masses
    logs, shares, W = np.empty(n), np.empty(n), np.zeros((n, n))
    for i in range(n):
        others = [j for j in range(n) if j != i]
        exponents = np.array([np.log(masses[j]) - np.sum((Z[i] - Z[j]) ** 2) for j in others])
        logs[i] = exponents.max() + np.log(np.exp(exponents - exponents.max()).sum())
        p = np.exp(exponents - logs[i])
        same = labels[others] == labels[i]
        shares[i] = p[same].sum()
        if same.any():
            W[i, others] = masses[i] * (p * (same - shares[i]) if own else p)
    degrees = W.sum(axis=0) + W.sum(axis=1)
    forward = (W @ Y).astype(Y.dtype)
    return logs, shares, degrees, forward, (W.T @ Y).astype(Y.dtype) if both else None


def image_squares(U: Floats, L: NDArray[np.float64]) -> Floats:
    """‖L u‖² for each row u of U, in its dtype; L is on the host."""
    return np.array([np.sum((L @ u.astype(np.float64)) ** 2) for u in U], dtype=U.dtype)


def kernel_regression(
    Z: Floats, U: Floats, y: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Leave-one-out estimates from soft neighbours, and the scatter in the gradient of their error.

    Returns ŷᵢ = Σⱼ p_ij yⱼ (n,), with the p_ij of `softmax_neighbors`, and the scatter
    Σᵢⱼ w_ij (uᵢ − uⱼ)(uᵢ − uⱼ)ᵀ (s, s) with w_ij = 2 (ŷᵢ − yᵢ)(ŷᵢ − yⱼ) p_ij. These and y (n,) are
    in float64, on the host; n is at least 2.
    """
    n = len(Z)
    P = softmax_neighbors(Z, np.eye(n), np.array([0, n]))[3]
    estimates, U = P @ y, U.astype(np.float64)
    scatter = np.zeros((U.shape[1], U.shape[1]))
    for i in range(n):
        for j in range(n):
            weight = 2 * (estimates[i] - y[i]) * (estimates[i] - y[j]) * P[i, j]
            scatter += weight * np.outer(U[i] - U[j], U[i] - U[j])
    return estimates, scatter


def local_laplacian(Z: Floats, scales: Floats, starts: Index) -> Floats:
    """Σⱼ aᵢⱼ (zᵢ − zⱼ) over the class of i (n, r), with aᵢⱼ = exp(−‖zᵢ − zⱼ‖² / (sᵢ sⱼ))."""
    Z, out = Z.astype(np.float64), np.zeros(Z.shape)
    for first, last in pairwise(starts.tolist()):
        for i in range(first, last):
            for j in range(first, last):
                difference = Z[i] - Z[j]
                exponent = -np.sum(difference**2) / (float(scales[i]) * float(scales[j]))
                out[i] += np.exp(exponent) * difference
    return out


def neighbor_laplacian(Z: Floats, starts: Index, k: int, least: float) -> Floats:
    """`local_laplacian` with √`kth_squares`, at least ``least`` of the largest, as scales."""
    scales = np.sqrt(kth_squares(Z, starts, k))
    return local_laplacian(Z, np.maximum(scales, least * max(scales.max(), least)), starts)
