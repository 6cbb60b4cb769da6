"""How firmly lengths hold points in place, by the linear elasticity of the graph.

Edges e = (i, j) are springs between points at rest, δₑ = yᵢ − yⱼ, whose stiffness against a change of
the squared length ‖δₑ‖² is the weight wₑ; x (n, r) are small displacements, and ε resists across.

(1) stiffness  xᵀHx = Σₑ 4wₑ (⟨δₑ, xᵢ − xⱼ⟩² + ε ‖δₑ‖² ‖xᵢ − xⱼ‖²)
(2) errors     an error ξₑ of a squared length moves the fit by x = H⁻¹ Σₑ 2wₑ ξₑ δₑ (eᵢ − eⱼ)
(3) compliance Cᵢ = trace of the block of i in H⁻¹, without motions of the whole: the mean of ‖xᵢ‖²
               over x = H⁻¹b, b = Σₑ 2√wₑ (zₑδₑ + √ε ‖δₑ‖ z'ₑ)(eᵢ − eⱼ)ᵀ with normal z and z', so that
               b has the covariance H and x has H⁻¹
(4) looseness  √(Cᵢ Hᵢ) / r with Hᵢ the trace of the block of i in H: about 1 where a point is held
               from all sides by points that are held, 1/√ε where nothing but ε holds it

Points that are fixed do not move: their rows and columns are left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray
from scipy import sparse

Matrix = NDArray[np.float64]
Index = NDArray[np.intp]
Mask = NDArray[np.bool_]

ACROSS = 1e-4  # ε
RANK = 1e-8  # singular value, relative, that is zero


@dataclass(frozen=True)
class Elasticity:
    """Equations (1) to (4), on the host."""

    heads: Index
    tails: Index
    weights: Matrix  # (e,)
    differences: Matrix  # (e, r) δ
    n: int
    free: Matrix  # (n, 1), 0 for fixed nodes and 1 for the others
    motions: Matrix  # (n r, q) orthonormal: those of the whole that leave fixed nodes where they are
    H: sparse.csr_array  # (n r, n r)

    @classmethod
    def build(
        cls, heads: Index, tails: Index, weights: Matrix, Y: Matrix, fixed: Mask
    ) -> Elasticity:
        """Of points Y (n, r). Time and memory O(e r²)."""
        differences = Y[heads] - Y[tails]
        squares = (differences * differences).sum(axis=1)
        r, n = Y.shape[1], len(Y)
        blocks = 4 * weights[:, None, None] * differences[:, :, None] * differences[:, None]
        blocks[:, np.arange(r), np.arange(r)] += (4 * ACROSS * weights * squares)[:, None]
        free = np.where(fixed, 0.0, 1.0)[:, None]
        H = _assembled(n, heads, tails, blocks)
        mask = np.repeat(free[:, 0], r)
        held = sparse.diags_array(mask)
        H = (held @ H @ held + sparse.diags_array(1 - mask)).tocsr()
        return cls(heads, tails, weights, differences, n, free, _motions(Y, fixed), H)

    def product(self, X: Matrix) -> Matrix:
        """H times displacements (n, r, s)."""
        return np.asarray(self.H @ X.reshape(-1, X.shape[2])).reshape(X.shape)

    def moved_by(self, errors: Matrix) -> Matrix:
        """The right sides (n, r, s) of (2) for errors (e, s) of squared lengths."""
        forces = 2 * self.weights[:, None, None] * self.differences[:, :, None] * errors[:, None]
        return self._summed(forces)

    def shaken(self, random: RandomState, count: int) -> Matrix:
        """Right sides b (n, r, count) of (3)."""
        e, r = self.differences.shape
        lengths = np.sqrt((self.differences**2).sum(axis=1))
        along = self.differences[:, :, None] * random.normal(size=(e, 1, count))
        across = ACROSS**0.5 * lengths[:, None, None] * random.normal(size=(e, r, count))
        return self._summed(2 * np.sqrt(self.weights)[:, None, None] * (along + across))

    def squares(self, X: Matrix) -> Matrix:
        """Mean square (n,) of the displacements (n, r, s) of a point, without common motions."""
        n, r, s = X.shape
        flat = X.reshape(n * r, s)
        flat = flat - self.motions @ (self.motions.T @ flat)
        squares: Matrix = (flat.reshape(n, r, s) ** 2).sum(axis=1).mean(axis=1)
        return squares

    def looseness(self, compliance: Matrix) -> Matrix:
        """(4); 0 for fixed nodes."""
        r = self.differences.shape[1]
        stiffness = self.H.diagonal().reshape(-1, r).sum(axis=1)
        loose: Matrix = self.free[:, 0] * np.sqrt(compliance * stiffness) / r
        return loose

    def _summed(self, forces: Matrix) -> Matrix:
        """Σₑ forcesₑ (eᵢ − eⱼ), (n, r, s), on the free nodes."""
        e = len(self.heads)
        ones, edges = np.ones(e), np.arange(e)
        ends = np.concatenate([self.heads, self.tails]), np.concatenate([edges, edges])
        incidence = sparse.csr_array((np.concatenate([ones, -ones]), ends), shape=(self.n, e))
        total = np.asarray(incidence @ forces.reshape(e, -1)).reshape(self.n, *forces.shape[1:])
        return self.free[:, :, None] * total


def core(n: int, heads: Index, tails: Index, least: int, fixed: Mask) -> Mask:
    """Nodes that are left after all with fewer than ``least`` edges are taken out, again and again.

    Fixed nodes stay. Time O(e) a round.
    """
    kept = np.ones(n, dtype=bool)
    while True:
        alive = kept[heads] & kept[tails]
        ends = np.concatenate([heads[alive], tails[alive]])
        few = kept & ~fixed & (np.bincount(ends, minlength=n) < least)
        if not few.any():
            return kept
        kept[few] = False


def _assembled(n: int, heads: Index, tails: Index, blocks: Matrix) -> sparse.csr_array:
    """Σₑ (eᵢ − eⱼ)(eᵢ − eⱼ)ᵀ ⊗ blockₑ."""
    r, nodes = blocks.shape[1], np.arange(n)
    diagonal = np.zeros((n, r, r))
    np.add.at(diagonal, heads, blocks)
    np.add.at(diagonal, tails, blocks)
    rows = np.concatenate([nodes, heads, tails])
    columns = np.concatenate([nodes, tails, heads])
    values = np.concatenate([diagonal, -blocks, -blocks])
    k = np.arange(r)
    shape = values.shape
    down = np.broadcast_to((r * rows)[:, None, None] + k[:, None], shape)
    right = np.broadcast_to((r * columns)[:, None, None] + k, shape)
    entries = values.ravel(), (down.ravel(), right.ravel())
    return sparse.csr_array(entries, shape=(n * r, n * r))


def _motions(Y: Matrix, fixed: Mask) -> Matrix:
    """An orthonormal basis of the shifts and turns of all points that leave fixed ones in place."""
    n, r = Y.shape
    centred = Y - Y.mean(axis=0)
    basis = [np.tile(axis, (n, 1)) for axis in np.eye(r)]
    for i in range(r):
        for j in range(i):
            turn = np.zeros((n, r))
            turn[:, i], turn[:, j] = centred[:, j], -centred[:, i]
            basis.append(turn)
    flat, _ = np.linalg.qr(np.stack([motion.ravel() for motion in basis], axis=1))
    held = flat.reshape(n, r, -1)[fixed].reshape(-1, flat.shape[1])
    if not len(held):
        return flat
    _, sizes, rows = np.linalg.svd(held)
    rank = int((sizes > RANK * max(1.0, sizes.max(initial=0.0))).sum())
    open_ones: Matrix = flat @ rows[rank:].T
    return open_ones
