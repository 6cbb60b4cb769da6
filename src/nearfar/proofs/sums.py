"""Sums over pairs of points, and coordinates in which their rounding is small."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.spatial.distance import cdist

Matrix = NDArray[np.float64]
Index = NDArray[np.intp]
Pairs = tuple[Index, Index]  # heads and tails
Parts = Callable[[], Iterable[tuple[Pairs, Matrix]]]  # with their weights
Dual = tuple[Index, Matrix]  # triplets (t, 3) and their weights

EPS = float(np.finfo(np.float64).eps)
BLOCK = 1 << 22  # entries of a table that is held at a time
MANY = 32  # pairs to a point
DEAD, RANK = 1e-12, 1e-13  # spread of a feature, variance of a direction, that count as rounding
NULL, REACH = 1e-10, 1e-20  # eigenvalue of BᵀB, square outside of its range, that count as zero
FLOOR = 0.5  # F of (1.4)
TRACE = 0.125  # share of the trace in (2.5)
NEAREST = 3  # of the class, in T of NCA
SHARE = 2e-4  # of the scatter of all points, beside BᵀB


def blocks(n: int, width: int) -> Iterable[Index]:
    """Rows in parts, so that a table of this width stays small."""
    return np.array_split(np.arange(n), 1 + n * width // BLOCK)


def lengths(Z: Matrix, heads: Index, tails: Index) -> Matrix:
    """‖z_h − z_t‖² of each pair."""
    parts = (Z[heads[part]] - Z[tails[part]] for part in blocks(len(heads), Z.shape[1]))
    return np.concatenate([(part * part).sum(axis=1) for part in parts])


def scatter(U: Matrix, heads: Index, tails: Index, weights: Matrix) -> Matrix:
    """Σ w (u_h − u_t)(u_h − u_t)ᵀ over pairs; many pairs of few points by their Laplacian."""
    if len(heads) > MANY * len(U):
        A = coo_array((weights, (heads, tails)), shape=(len(U), len(U))).tocsr()
        flow = U.T @ (A @ U)
        return np.asarray((U.T * (A.sum(axis=0) + A.sum(axis=1))) @ U - flow - flow.T)
    total = np.zeros((U.shape[1],) * 2)
    for part in blocks(len(heads), U.shape[1]):
        difference = U[heads[part]] - U[tails[part]]
        total += (difference.T * weights[part]) @ difference
    return total


def scatter_size(U: Matrix, heads: Index, tails: Index, weights: Matrix) -> float:
    """The size of the numbers that are rounded in a `scatter`, and in the points themselves."""
    norms = np.sqrt((U * U).sum(axis=1))
    ends, apart = norms[heads] + norms[tails], np.sqrt(lengths(U, heads, tails))
    return float(np.abs(weights) @ (ends * (ends if len(heads) > MANY * len(U) else apart)))


def log_det(A: Matrix, rounded: float) -> float:
    """log det A of a symmetric A ≻ 0, or less; −∞ if rounding of numbers of this size hides it."""
    least = np.linalg.eigvalsh(A) - len(A) * EPS * rounded
    return float(np.log(least).sum()) if (least > 0).all() else -np.inf


def about_means(U: Matrix, codes: Index, masses: Matrix | None = None) -> Matrix:
    """Each point less the mean of its class."""
    rows = U.copy()
    for code in np.unique(codes):
        mine = codes == code
        rows[mine] -= np.average(U[mine], axis=0, weights=None if masses is None else masses[mine])
    return rows


def masses_of_others(codes: Index, masses: Matrix) -> Matrix:
    """The weight of the others of each point's class; no difference, which would round to zero."""
    found = np.empty(len(codes))
    for code in np.unique(codes):
        mine = np.flatnonzero(codes == code)
        padded = np.concatenate([[0.0], masses[mine], [0.0]])
        found[mine] = np.cumsum(padded)[:-2] + np.cumsum(padded[::-1])[::-1][2:]
    return found


def soft_neighbors(Z: Matrix, masses: Matrix) -> Iterator[tuple[Index, Matrix, Matrix, Matrix]]:
    """Rows i in parts, with D(i, j) = ‖z_i − z_j‖², p(j|i) = m_j exp(−D(i, j)) / Zᵢ and log Zᵢ."""
    for rows in blocks(len(Z), len(Z)):
        D, itself = cdist(Z[rows], Z, "sqeuclidean"), (np.arange(len(rows)), rows)
        D[itself] = np.inf
        least = D.min(axis=1, keepdims=True)
        p, D[itself] = masses * np.exp(least - D), 0
        yield rows, D, p / p.sum(axis=1, keepdims=True), np.log(p.sum(axis=1)) - least[:, 0]


class Collapse(NamedTuple):
    """What a fit of MCML or NCA says of its program."""

    masses: Matrix  # (n,) weights of the points
    ridge: float  # λ of (2.5)
    floor: Matrix  # (d,) the diagonal of φI
    trace: float  # tr M − tr φI

    @classmethod
    def of(
        cls,
        X: Matrix,
        codes: Index,
        masses: Matrix,
        rho: float,
        trace: float,
        floored: bool,
        rank: int | None = None,
        nearest: int | None = None,
    ) -> Collapse:
        """λ and φ of (2.5) for a shrinkage, from the points and their weights.

        ``rank`` is d for points in the feature space of a kernel, of which rounding hides some;
        T is over so many ``nearest`` of the class, or over all of it.
        """
        none = np.zeros(X.shape[1])
        if nearest is None:
            total = float((pulled(X, codes, masses) ** 2).sum())
        else:
            total = float(masses @ nearest_means(X, codes, nearest))
        if rho == 0 or total == 0:
            return cls(masses, 0.0, none, trace)
        live = differing(X)
        r, counted = rho / (1 - rho), masses[np.bincount(codes)[codes] > 1].sum()
        floor = live * (r * counted / total) if floored else none
        ridge = TRACE * r * total / (live.sum() if rank is None else rank)
        return cls(masses, float(ridge), floor, trace - floor.sum())


def pulled(X: Matrix, codes: Index, masses: Matrix) -> Matrix:
    """Rows whose squares add up to S(p₀)."""
    sizes, share = np.bincount(codes)[codes], masses_of_others(codes, masses)
    share = np.divide(masses, share, where=sizes > 1, out=np.zeros(len(X)))
    whole, shares = (np.bincount(codes, weights)[codes] for weights in (masses, share))
    return np.asarray(
        np.sqrt(whole * share + shares * masses)[:, None] * about_means(X, codes, masses)
    )


def nearest_means(X: Matrix, codes: Index, nearest: int) -> Matrix:
    """The mean squared distance of each point to the nearest of its class that differ, (n,)."""
    means = np.zeros(len(X))
    for code in np.unique(codes):
        mine = np.flatnonzero(codes == code)
        different, which = np.unique(X[mine], axis=0, return_inverse=True)
        k, found = min(nearest + 1, len(different)), np.zeros(len(different))
        for rows in blocks(len(different), len(different)) if k > 1 else ():
            table = cdist(different[rows], different, "sqeuclidean")
            found[rows] = np.partition(table, k - 1, axis=1)[:, :k].sum(axis=1) / (k - 1)
        means[mine] = found[which]
    return means


class Claim(NamedTuple):
    """What a fit of the LMNN family says of its program and its dual point."""

    masses: Matrix  # (n,) weights of the points
    targets: Index  # (n, k), -1 for none
    dual: Dual
    ridges: Matrix  # (c,) r T/d of (1.4), of each metric its share
    floor: Matrix  # (d,) the diagonal of φI
    traces: Matrix  # (c,) tr M of each metric

    def weighted(self) -> Matrix:
        """vα of the triplets."""
        at, _, far = self.dual[0].T
        return np.asarray(self.masses[at] * self.masses[far] * self.dual[1])

    def margins(self, X: Matrix) -> Matrix:
        """1 + φ(‖x_i − x_j‖² − ‖x_i − x_l‖²) of the triplets."""
        (i, j, far), kept = self.dual[0].T, X * np.sqrt(self.floor)
        return np.asarray(1 + lengths(kept, i, j) - lengths(kept, i, far))

    def constant(self, X: Matrix) -> float:
        """φ tr P / (1 − μ)."""
        heads, slot = np.nonzero(self.targets >= 0)
        kept = lengths(X * np.sqrt(self.floor), heads, self.targets[heads, slot])
        return float(self.masses[heads] @ kept + self.ridges.sum() * self.floor.sum())


class Limits(NamedTuple):
    """What near pairs and a shrinkage ρ say of a metric M."""

    size: float  # ⟨S, M⟩ of (3.1), ⟨H, M⟩ of (4.1)
    root: Matrix  # (d,) √φ of (3.1), and of (4.1) divided by d

    def kept(self, X: Matrix, pairs: Pairs) -> Matrix:
        """φ‖x‖² of pairs."""
        return lengths(X * self.root, *pairs)


def shrunk(
    X: Matrix, masses: Matrix, targets: Index, rho: float, *, framed: bool
) -> tuple[float, Matrix]:
    """rT/d and the diagonal of φI of (1.4), from the points, their weights and their targets.

    Points that are ``framed`` by a W count in all coordinates, others in those that vary.
    """
    heads, slot = np.nonzero(targets >= 0)
    total = float(masses[heads] @ lengths(X, heads, targets[heads, slot]))
    if rho == 0 or not total > 0:
        return 0.0, np.zeros(X.shape[1])
    live = differing(X) | framed
    r = rho / (1 - rho)
    return r * total / float(live.sum()), live * (FLOOR * r * masses[heads].sum() / total)


def right_inverse(W: Matrix) -> Matrix:
    """The inverse of W on the features that it does not leave out, whatever their units."""
    units = np.abs(W).max(axis=0, initial=0.0)
    live = units > 0
    inverse = np.zeros(W.T.shape)
    inverse[live] = np.linalg.pinv(W[:, live] / units[live]) / units[live][:, None]
    return inverse


def varying(X: Matrix) -> NDArray[np.bool_]:
    """Features that differ between points by more than rounding."""
    spread = np.abs(X - X[:1]).mean(axis=0)
    return np.asarray(spread > DEAD * np.median(spread[spread > 0])) if spread.any() else spread > 0


def differing(X: Matrix) -> NDArray[np.bool_]:
    """Features that differ between points, of those that are not rounding."""
    return np.asarray((X[:1] != X).any(axis=0))


def with_ridge(B: Matrix, ridge: float) -> Matrix:
    """Rows whose squares add up to BᵀB + ridge I."""
    return np.vstack([B, np.sqrt(ridge) * np.eye(B.shape[1])]) if ridge else B


def span(X: Matrix, diagonal: bool, shortest: bool) -> Matrix:
    """T (d, k) with XT of one size in all directions in which points differ.

    Columns are multiples of features if ``diagonal``; if ``shortest``, none gets shorter by adding
    what X does not see.
    """
    scale = np.median(np.abs(X), axis=0)
    scale = np.where(scale > 0, scale, np.sqrt((X * X).mean(axis=0)))
    live = scale > DEAD * np.median(scale[scale > 0]) if scale.any() else scale > 0
    inverse = live / np.where(live, scale, 1)
    if diagonal:
        return np.diag(inverse)
    unit = X * inverse
    norms = np.linalg.norm(unit, axis=1)
    unit /= np.where(norms > 0, norms, 1)[:, None]
    _, sizes, directions = np.linalg.svd(np.linalg.qr(unit, mode="r"), full_matrices=False)
    V = directions[sizes**2 > RANK * sizes.max(initial=0.0) ** 2].T
    if shortest and V.shape[1] < len(V):
        Q, triangle = np.linalg.qr((live * scale)[:, None] * V)
        return np.asarray(np.linalg.solve(triangle, Q.T).T)
    return np.asarray(inverse[:, None] * V)


def coordinates(
    X: Matrix, B: Matrix, diagonal: bool = False, shortest: bool = False
) -> tuple[Matrix, Matrix]:
    """T (d, r) with TᵀBᵀBT = I up to rounding, and a basis of what B does not see of the points.

    BᵀB is decomposed again in the coordinates found, until rounding is small in all of them; where
    it is near zero, the scatter of all points gives the scale.
    """
    T = span(X, diagonal, shortest)
    shape = np.eye(T.shape[1]) if diagonal else 1.0
    spread = np.sqrt(SHARE * max(len(B), 1) / len(X)) * (X - X.mean(axis=0))
    for _ in range(4):
        U, V = B @ T, spread @ T
        values, vectors = np.linalg.eigh(shape * (U.T @ U + V.T @ V))
        T = T @ (vectors / np.sqrt(np.maximum(values, EPS * values.max(initial=0.0))))
    U = B @ T
    values, vectors = np.linalg.eigh(shape * (U.T @ U))
    kept, T = values > NULL * values.max(initial=0.0), T @ vectors
    return T[:, kept] / np.sqrt(values[kept]), T[:, ~kept]


def differ_along(
    null: Matrix, T: Matrix, X: Matrix, heads: Index, tails: Index
) -> NDArray[np.bool_]:
    """Whether the points of each pair differ along ``null``; equal points do not."""
    found = np.zeros(len(heads), dtype=bool)
    for part in blocks(len(heads), X.shape[1]) if null.size else ():
        difference = X[heads[part]] - X[tails[part]]
        outside, inside = (((difference @ basis) ** 2).sum(axis=1) for basis in (null, T))
        found[part] = outside > REACH * (outside + inside)
    return found
