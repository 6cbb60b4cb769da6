"""How well measured distances determine the positions of nodes, by linear elasticity.

`nearfar.problems.stress` finds the positions; this module estimates their uncertainty. Edges
e = (i, j) are springs at rest, δₑ = yᵢ − yⱼ; the weight wₑ is the stiffness against a change of the
squared length ‖δₑ‖², and ε a small stiffness across. x (n, r) are small displacements.

(1) stiffness  xᵀHx = Σₑ 4wₑ (⟨δₑ, xᵢ − xⱼ⟩² + ε ‖δₑ‖² ‖xᵢ − xⱼ‖²)
(2) errors     an error ξₑ of a squared length moves the fit by x = H⁻¹ Σₑ 2wₑ ξₑ δₑ (eᵢ − eⱼ)
(3) tremor     Cᵢ is the mean of ‖xᵢ‖² over x = H⁻¹b, less common motions, b = Σₑ 2√(wₑε) ‖δₑ‖ zₑ
               (eᵢ − eⱼ)ᵀ with normal zₑ (r,). With Hᵢ the trace of the block of i in H, a point
               that is held in all directions by κ times the mean Hᵢ/r has C = εr³ / (κ + rε)² Hᵢ
(4) looseness  (Cᵢ Hᵢ / ε)^¼ / r^¾, then about κ^(−½): 1 where a point is held from all sides by
               what does not move, and some ε^(−½) where in a direction nothing but ε holds it
(5) mirror     y'ᵢ is the image of yᵢ in the flat that is nearest to its neighbours; where the
               misfit Σ ((ℓ − D) / σD)² of its lengths hardly rises, both places are possible

Fixed points do not move: their rows and columns are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray
from scipy import sparse

Matrix = NDArray[np.float64]
Index = NDArray[np.intp]
Mask = NDArray[np.bool_]

ACROSS = 1e-6  # ε
TRIPLES = 20  # of nodes that are tried for the motion of the largest part
ROUNDS = 3  # of refitting that motion
EXACT = 1e-6  # relative error of squared lengths that counts as zero
UNLIKELY = 9.0  # increase of (5) that rules a place out: three standard deviations
APART = 10.0  # least distance of two places, in standard errors
RANK = 1e-8  # relative singular value that counts as zero
FLAT_ANCHORS = 1e-6  # extent of anchors, relative to the largest, that counts as zero


@dataclass(frozen=True)
class Elasticity:
    """Equations (1) to (4), on the host."""

    heads: Index
    tails: Index
    weights: Matrix  # (e,)
    differences: Matrix  # (e, r) δ
    n: int
    free: Matrix  # (n, 1), 0 for fixed nodes and 1 for the others
    motions: Matrix  # (n r, q) orthonormal: of the whole, with fixed nodes in place
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
        pull = 2 * self.weights[:, None] * self.differences
        return np.stack([self._summed(pull * one[:, None]) for one in errors.T], axis=2)

    def noise_forces(self, random: RandomState, count: int) -> Matrix:
        """Right sides b (n, r, count) of (3)."""
        e, r = self.differences.shape
        lengths = np.sqrt((self.differences**2).sum(axis=1))
        scale = 2 * np.sqrt(self.weights * ACROSS)[:, None] * lengths[:, None]
        samples = (scale * random.normal(size=(e, r)) for _ in range(count))
        return np.stack([self._summed(sample) for sample in samples], axis=2)

    def squares(self, X: Matrix) -> Matrix:
        """Mean square (n,) of the displacements (n, r, s), minus their common rigid motion."""
        n, r, _ = X.shape
        motions = self.motions.reshape(n, r, -1)
        left = X - motions @ np.tensordot(motions, X, axes=((0, 1), (0, 1)))
        squares: Matrix = (left * left).sum(axis=1).mean(axis=1)
        return squares

    def squares_beside_most(self, X: Matrix, random: RandomState) -> Matrix:
        """The same, minus the rigid motion of the largest part that moves as a whole.

        So a part that moves alone does not make the rest seem to move. Candidates are the motions
        of all points and of some triples; the one with the least median of squares is refitted to
        the half of the points that follow it best.
        """
        n, r, count = X.shape
        if not self.motions.shape[1]:
            return self.squares(X)
        motions = self.motions.reshape(n, r, -1)
        triples = [random.choice(n, min(n, 3), replace=False) for _ in range(TRIPLES)]
        total = np.zeros(n)
        for sample in range(count):
            x = X[:, :, sample]
            tried = [_less(x, motions, nodes) for nodes in [np.arange(n), *triples]]
            lengths = [(left * left).sum(axis=1) for left in tried]
            best = lengths[int(np.argmin([np.median(values) for values in lengths]))]
            for _ in range(ROUNDS):
                left = _less(x, motions, np.flatnonzero(best <= np.median(best)))
                best = (left * left).sum(axis=1)
            total += best
        mean: Matrix = total / count
        return mean

    def looseness(self, tremor: Matrix) -> Matrix:
        """(4) from C of (3); 0 for fixed nodes."""
        r = self.differences.shape[1]
        stiffness = self.H.diagonal().reshape(-1, r).sum(axis=1)
        loose: Matrix = self.free[:, 0] * (tremor * stiffness / ACROSS) ** 0.25 / r**0.75
        return loose

    @cached_property
    def _incidence(self) -> sparse.csr_array:
        """(n, e), 1 at the head of an edge and −1 at its tail."""
        e = len(self.heads)
        ones, edges = np.ones(e), np.arange(e)
        ends = np.concatenate([self.heads, self.tails]), np.concatenate([edges, edges])
        return sparse.csr_array((np.concatenate([ones, -ones]), ends), shape=(self.n, e))

    def _summed(self, forces: Matrix) -> Matrix:
        """Σₑ forcesₑ (eᵢ − eⱼ) of forces (e, r), (n, r), on the free nodes."""
        held: Matrix = self.free * (self._incidence @ forces)
        return held


def _less(x: Matrix, motions: Matrix, nodes: Index) -> Matrix:
    """Displacements (n, r) minus the rigid motion that fits some nodes best."""
    basis = motions[nodes].reshape(-1, motions.shape[2])
    found = np.linalg.lstsq(basis, x[nodes].ravel(), rcond=None)[0]
    return x - motions @ found


def core(n: int, heads: Index, tails: Index, least: int, fixed: Mask) -> Mask:
    """The ``least``-core: nodes left after repeatedly removing nodes with fewer edges.

    Fixed nodes stay. Time O(e) per round.
    """
    kept = np.ones(n, dtype=bool)
    while True:
        alive = kept[heads] & kept[tails]
        ends = np.concatenate([heads[alive], tails[alive]])
        few = kept & ~fixed & (np.bincount(ends, minlength=n) < least)
        if not few.any():
            return kept
        kept[few] = False


def has_mirror_image(heads: Index, tails: Index, squares: Matrix, Y: Matrix) -> Mask:
    """Nodes for which a mirror image (5) fits the lengths D nearly as well; σ from all misfits."""
    n, r = Y.shape
    ends, others = np.concatenate([heads, tails]), np.concatenate([tails, heads])
    D = np.concatenate([squares, squares])
    sums = _summed_by_node(ends, others, n)
    counts = np.maximum(sums(np.ones((n, 1))), 1.0)  # (n, 1)
    means = sums(Y) / counts
    outer = sums((Y[:, :, None] * Y[:, None]).reshape(n, -1)) / counts
    scatter = outer.reshape(n, r, r) - means[:, :, None] * means[:, None]
    normal = np.linalg.eigh(scatter)[1][:, :, 0]  # (n, r), of the flat
    image = Y - 2 * ((Y - means) * normal).sum(axis=1, keepdims=True) * normal

    def misfits(places: Matrix) -> Matrix:
        lengths = ((places[ends] - Y[others]) ** 2).sum(axis=1)
        relative: Matrix = (lengths - D) / np.where(D > 0, D, 1.0)
        return relative

    now = misfits(Y)
    sigma = max(float(np.sqrt(np.mean(now * now))), EXACT)
    rise = np.bincount(ends, (misfits(image) ** 2 - now**2) / sigma**2, n)
    error = 0.5 * sigma * np.sqrt(r * np.bincount(ends, D, n)) / counts[:, 0]
    far = np.sqrt(((image - Y) ** 2).sum(axis=1)) > APART * error
    possible: Mask = far & (rise < UNLIKELY)
    return possible


def _summed_by_node(ends: Index, others: Index, n: int) -> Callable[[Matrix], Matrix]:
    """Sums over the neighbours of each node, of values (n, s)."""
    A = sparse.csr_array((np.ones(len(ends)), (ends, others)), shape=(n, n))
    return lambda values: np.asarray(A @ values)


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
    """An orthonormal basis of the rigid motions of all points that leave fixed points in place."""
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


def align_to_anchors(Y: Matrix, fixed: Mask, positions: Matrix) -> Matrix:
    """Y (n, r) after the rigid motion (perhaps with reflection) that fits the anchors best.

    The anchors themselves are put at their positions.
    """
    known, r = positions[fixed], positions.shape[1]
    Y = np.pad(Y, ((0, 0), (0, r - Y.shape[1])))
    centre = Y[fixed].mean(axis=0)
    left, _, right = np.linalg.svd((Y[fixed] - centre).T @ (known - known.mean(axis=0)))
    moved: Matrix = (Y - centre) @ (left @ right) + known.mean(axis=0)
    moved[fixed] = known
    return moved


def affine_rank(points: Matrix) -> int:
    """Dimension of the affine hull of some points."""
    sizes = np.linalg.svd(points - points.mean(axis=0), compute_uv=False)
    return int((sizes > FLAT_ANCHORS * sizes.max(initial=0.0)).sum()) if sizes.any() else 0
