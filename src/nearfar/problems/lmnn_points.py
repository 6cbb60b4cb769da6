"""Points and target edges of LMNN, in coordinates in which its descent is well conditioned.

Equation numbers are those of `nearfar.problems.lmnn`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from types import ModuleType
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy import linalg as scipy_linalg

from nearfar.kernels import Array, check_memory, is_torch, kernels_for
from nearfar.linalg import bounded_leading_eigh, factor_psd, is_identity, null_tolerance, symmetric
from nearfar.problems.whitening import floored_map, returned_map, rotated_map, whitened

Matrix = NDArray[np.float64]

FEWEST = 8  # directions of a first guess, where there are as many
WIDE = 2.0  # τ of the directions of a first guess, unless these are too few
OPEN = 0.1  # of the mean eigenvalue of a start's metric, for the directions that it lacks
FLOOR = 0.5  # F of (7)
COARSE_FROM = 50_000  # points; fewer are searched in seconds
COARSER = 8  # rows of a problem for each row of a coarser one that has target edges, at least
SAMPLED_ROWS = 500_000  # of a coarser problem on a GPU
EDGES_A_PARAMETER = 16  # target edges for each entry of a metric that determine it well
MAP_BYTES = 32  # for each entry of a map of full rank: W, its inverse and two factors


@dataclass(frozen=True)
class LMNNPoints:
    """Whitened points U, with rows sorted by class, their target edges and the pull of these."""

    U: Array  # (n, d)
    edges: tuple[Array, Array]  # target edges (heads, tails), sorted by head
    first_edge: Array  # (n + 1,) the edges of row i are first_edge[i]:first_edge[i + 1]
    starts: NDArray[np.intp]
    masses: Array | None  # (n,) m of (8), float64; None if all are 1
    push_weight: float
    ridge: float  # (1−μ) r T/k of (7)
    floor: float  # φ of (7)
    prior: Matrix  # (k, features) W of (7); zero columns for features that do not vary
    prior_inverse: Matrix  # (features, k), for these features
    kept: Array | None  # (n, k) points whose squared lengths are φ‖W·‖²; None for φ = 0
    basis: Matrix  # (features, d): U = (X − centre) basis
    dual_basis: Matrix  # (features, d): X − centre = U dual_basisᵀ
    P: Matrix  # (d, d) in the coordinates of U
    Q: Matrix  # (d, d) what P would be if target neighbours were random points
    exact: Callable[[], Array]  # U recomputed from the data in float64
    images: Callable[[Matrix], Array]  # of the points under a map on the features, in float64
    first: Array | None  # (n,) the first of the points that equal each one; None if all differ

    @classmethod
    def build(
        cls,
        X: Array,
        centre: Array,
        edges: tuple[Array, Array],
        starts: NDArray[np.intp],
        push_weight: float,
        shrinkage: float = 0.0,
        *,
        floored: bool = True,
        prior: tuple[Matrix, Matrix] | None = None,
        masses: Matrix | None = None,
    ) -> Self:
        """Whiten the points X (sorted by class, any floating type) by their target edges.

        ``shrinkage`` is ρ of (7), whose φ is 0 unless ``floored``; ``prior`` is W with its inverse
        on the features that vary, or None for the distance of the inputs. ``masses`` are the
        weights m of (8), or None if all are 1.

        ``centre`` is one of the points or their mean: from elsewhere, n points would seem to differ
        in n directions instead of n − 1.
        """
        kernels = kernels_for(X)
        centre = kernels.double(centre)
        points = X - centre
        weight = 1 - float(push_weight)
        placed = None if masses is None else kernels.like(masses, kernels.double(X[:0]))
        edge_weights = _edge_weights(placed, edges)
        total = float(edge_weights.sum())
        if not shrinkage:
            prior = None
        varies = kernels.to_host((points != 0).any(0))
        W, inverse = identity_prior(varies, shrinkage > 0) if prior is None else prior
        framed = points if prior is None else kernels.apply(points, W)
        del points
        unit, floor = _ridge_and_floor(framed, edges, edge_weights, len(W), shrinkage)
        ridge = weight * unit
        if not floored:
            floor = 0.0

        def pull(U: Array) -> Matrix:
            pulled: Matrix = kernels.gram(U, kernels.laplacian_matmul(*edges, edge_weights, U))
            return weight * pulled

        first = kernels.first_equal(X)
        if len(kernels.unique(first)) == len(X):
            first = None

        def images(components: Matrix) -> Array:
            return _with_equal_rows(kernels.apply_centred(X, centre, components), first)

        basis, dual, U, P, Q = whitened(kernels, framed, pull, weight * total, ridge)
        if prior is not None:
            basis, dual = W.T @ basis, inverse @ dual
        U = _with_equal_rows(U, first)
        single = str(X.dtype).endswith("float32")
        kept = images(floor**0.5 * W) if floor else None
        counts = np.bincount(kernels.to_host(edges[0]), minlength=len(X))
        return cls(
            U=kernels.single(U) if single else U,
            edges=edges,
            first_edge=kernels.index(np.concatenate([[0], np.cumsum(counts)]), X),
            starts=starts,
            masses=placed,
            push_weight=float(push_weight),
            ridge=ridge,
            floor=floor,
            prior=W,
            prior_inverse=inverse,
            kept=kernels.single(kept) if single and kept is not None else kept,
            basis=basis,
            dual_basis=dual,
            P=P,
            Q=Q,
            exact=(lambda: images(basis.T)) if single else (lambda: U),
            images=images,
            first=first,
        )

    def in_geometry_of(self, L: Matrix) -> Self:
        """The same problem in coordinates in which the metric of L is the identity.

        Directions that L lacks stay open, at a tenth of the mean of the others.
        A descent from L then stays longer in the directions that L finds good. It is the way to go
        where it will be stopped early; to the optimum it is longer than that of whitened points.
        L = 0 finds none good, and leaves the problem as it is.
        """
        values, vectors = scipy_linalg.eigh(L.T @ L)
        missing = values <= null_tolerance(values)
        if missing.all():
            return self
        roots = np.sqrt(np.where(missing, OPEN * values[~missing].mean(), values))
        frame, inverse = vectors.T * roots[:, None], vectors / roots
        kernels, exact = self.kernels, self.exact
        return replace(
            self,
            U=_with_equal_rows(kernels.apply(self.U, frame), self.first),
            basis=self.basis @ frame.T,
            dual_basis=self.dual_basis @ inverse,
            P=symmetric(frame @ self.P @ frame.T),
            Q=symmetric(frame @ self.Q @ frame.T),
            exact=lambda: _with_equal_rows(kernels.apply(exact(), frame), self.first),
        )

    def sampled(self, rows: int) -> Self:
        """The problem with the target edges of about so many rows, evenly spread; all may invade.

        P is a share of that of all edges.
        """
        kernels, n = self.kernels, len(self.U)
        kept = kernels.flatnonzero(self.edges[0] % max(1, n // rows) == 0)
        if len(kept) in (0, len(self.edges[0])):
            return self
        heads, tails = self.edges[0][kept], self.edges[1][kept]
        share = len(kept) / len(self.edges[0])
        if self.masses is not None:
            share = float(self.masses[heads].sum() / self.masses[self.edges[0]].sum())
        return replace(
            self,
            edges=(heads, tails),
            first_edge=kernels.searchsorted(heads, kernels.arange(n + 1, heads)),
            P=share * self.P,
            ridge=share * self.ridge,
        )

    def coarser(self) -> tuple[Self, bool] | None:
        """A problem of the target edges of some rows, and whether its optimum is only about theirs.

        None if these rows or the points are too few. On a GPU searches take less time beside steps:
        there the rows are compared with all points, and only a sample of millions pays.
        """
        if not is_torch(self.U):
            coarse = self._with_few_impostors()
            return None if coarse is None else (coarse, True)
        some = self.sampled(SAMPLED_ROWS)
        if COARSER * len(some.edges[0]) > len(self.edges[0]):
            return None
        return some, False

    def _with_few_impostors(self) -> Self | None:
        """The problem of the target edges of some rows, with these rows and targets as impostors.

        With a share s of the points as impostors, each counts 1/s times, so that the optimum is
        about the same. None if there are too few edges for that, or points.
        """
        n, d = len(self.U), self.U.shape[-1]
        few = COARSER * EDGES_A_PARAMETER * d * (d + 1) / 2
        if n < COARSE_FROM or d == 0 or len(self.edges[0]) < few:
            return None
        chosen = np.flatnonzero(self.edges[0] % COARSER == 0)
        heads, tails = (end[chosen] for end in self.edges)
        rows = np.unique(np.concatenate([heads, tails]))
        heads, tails = np.searchsorted(rows, heads), np.searchsorted(rows, tails)
        share = len(chosen) / len(self.edges[0])
        if self.masses is not None:
            share = float(self.masses[self.edges[0][chosen]].sum())
            share /= float(self.masses[self.edges[0]].sum())
        push = self.push_weight * n / len(rows)
        total = 1 - self.push_weight + push
        exact, images = self.exact, self.images
        return replace(
            self,
            U=self.U[rows],
            edges=(heads, tails),
            first_edge=np.searchsorted(heads, np.arange(len(rows) + 1)),
            starts=np.searchsorted(rows, self.starts),
            masses=None if self.masses is None else self.masses[rows],
            push_weight=push / total,
            ridge=share / total * self.ridge,
            kept=None if self.kept is None else self.kept[rows],
            P=share / total * self.P,
            exact=lambda: exact()[rows],
            images=lambda components: images(components)[rows],
            first=None,
        )

    @property
    def kernels(self) -> ModuleType:
        """The kernels of the device that holds the points."""
        return kernels_for(self.U)

    @property
    def is_single(self) -> bool:
        """Whether the points are in float32."""
        return str(self.U.dtype).endswith("float32")

    def in_double(self) -> Self:
        """The same problem in float64."""
        U = self.exact()
        return replace(self, U=U, kept=self._exactly_kept, exact=lambda: U)

    def factor(self, components: Matrix) -> Matrix:
        """The factor on U of a factor on the features (exact on the span of the data)."""
        L: Matrix = components @ self.dual_basis
        return L

    def components(self, L: Matrix) -> Matrix:
        """The factor on the features of a factor on U."""
        components: Matrix = L @ self.basis.T
        return components

    @property
    def trace_form(self) -> Matrix:
        """T with tr W⁻ᵀMW⁻¹ = ⟨T, LᵀL⟩ for the metric M of a factor L on U."""
        framed = self.basis.T @ self.prior_inverse
        return symmetric(framed @ framed.T)

    def above_floor(self, components: Matrix) -> Matrix:
        """A map of M' for one of M = φWᵀW + M', both on the features."""
        if self.kept is None:
            return components
        above = components @ self.prior_inverse
        return factor_psd(above.T @ above - self.floor * np.eye(above.shape[1])) @ self.prior

    def returned(self, L: Matrix) -> Matrix:
        """The map on the features that a fit returns for a factor on U."""
        if self.kept is None:
            return returned_map(self.components(L), L, self.U)
        above = self.components(L) @ self.prior_inverse
        return floored_map(above, self.floor, self.prior, self.U)

    def first_guess(self) -> Matrix:
        """Whitened directions, each by how much farther apart random points are than targets.

        M = Σ (1 − 1/τ) v vᵀ over the eigenpairs (τ, v) of Q with τ > 2, or the largest few. Noise,
        along which a target is as far as any point, is left out; the descent adds a direction if
        it is needed after all. It does not depend on the units of the features.
        """
        tau, vectors = scipy_linalg.eigh(self.Q, subset_by_value=(WIDE, np.inf))
        if len(tau) < FEWEST:
            tau, vectors = bounded_leading_eigh(self.Q, FEWEST)
        weights = np.sqrt(np.maximum(1 - 1 / np.maximum(tau, 1.0), 0.01))
        L: Matrix = weights[:, None] * vectors.T
        return L

    def normalised(self, L: Matrix) -> Matrix:
        """L scaled so that target edges have a mean squared length of 1."""
        heads = self.edges[0]
        total = len(heads) if self.masses is None else float(self.masses[heads].sum())
        pull = np.vdot(L @ self.P, L) / ((1 - self.push_weight) * total)
        return L / np.sqrt(pull) if pull > 0 else L

    # -- what several metrics do otherwise (`nearfar.problems.multi_metric_lmnn`) ----------------

    def _map(self, L: Matrix, U: Array) -> Array:
        """The images of the points."""
        return self.kernels.apply(U, L)

    def _with_kept(self, Z: Array, kept: Array | None) -> Array:
        """Images whose squared lengths are those of M: of M' with those of φWᵀW beside them."""
        return Z if kept is None else self.kernels.concatenate([Z.T, kept.T]).T

    @cached_property
    def _exactly_kept(self) -> Array | None:
        """The points whose squared lengths are φ‖W·‖², in float64; None for φ = 0."""
        return None if self.kept is None else self.images(self.floor**0.5 * self.prior)

    @cached_property
    def _constant(self) -> float:
        """The pull of φWᵀW in (7)."""
        if self.kept is None:
            return 0.0
        lengths = self.kernels.sq_lengths(self.kernels.double(self.kept), *self.edges)
        return self._edge_pull(lengths) + self._ridge_of_floor

    def _edge_pull(self, lengths: Array) -> float:
        """The first term of the pull, from the squared lengths of all target edges."""
        total = lengths.sum() if self.masses is None else self.masses[self.edges[0]] @ lengths
        return (1 - self.push_weight) * float(total)

    @property
    def _ridge_of_floor(self) -> float:
        """The second term of the pull in (7), of φWᵀW."""
        return self.ridge * self.floor * len(self.prior)

    def _ridge_of(self, components: Matrix) -> float:
        """The second term of the pull in (7), of the metric of a map on the features."""
        framed = self._relative_to_prior(components)
        return self.ridge * float(np.vdot(framed, framed))

    def _relative_to_prior(self, components: Matrix) -> Matrix:
        """A W⁻¹ for a map A of the features."""
        return components if self._keeps_inputs else components @ self.prior_inverse

    @cached_property
    def _keeps_inputs(self) -> bool:
        """Whether W = I."""
        return is_identity(self.prior_inverse)

    def _images_of(self, components: Matrix) -> Array:
        """The images of the points under a map that is returned, in float64."""
        return self.images(components)

    def _returned_images(self, L: Matrix, U: Array) -> tuple[Array, Array]:
        """Images of the points in float64 under L, rotated, and under the map that is returned."""
        components, rotation = rotated_map(self.components(L), L, self.U)
        return self._map(rotation @ L, U), self.images(components)

    def _nodes(self, heads: Array, tails: Array) -> tuple[Array, Array]:
        """The rows of the images between which the lengths of pairs of points are measured."""
        return heads, tails

    def _pulled_back(self, W: Array) -> Matrix:
        """The adjoint of `_map`: what a change W of the images is for L."""
        product: Matrix = self.kernels.gram(W, self.U)
        return product

    def _lengths(self, Z: Array, heads: Array, tails: Array, kept: Array | None = None) -> Array:
        """Squared lengths of pairs in float64: of images, and of φWᵀW where it is given."""
        kernels = self.kernels
        lengths = kernels.double(kernels.sq_lengths(Z, *self._nodes(heads, tails)))
        if kept is None:
            return lengths
        return lengths + kernels.double(kernels.sq_lengths(kept, heads, tails))

    def _products(self, Z: Array, D: Array, heads: Array, tails: Array) -> tuple[Array, Array]:
        kernels = self.kernels
        cross, square = kernels.edge_products(Z, D, *self._nodes(heads, tails))
        return kernels.double(cross), kernels.double(square)


def identity_prior(varies: NDArray[np.bool_], shrunk: bool) -> tuple[Matrix, Matrix]:
    """W of (7) for the distance of the inputs, and its inverse: the features that vary, if any."""
    kept = np.flatnonzero(varies & shrunk)
    check_memory(
        MAP_BYTES * len(kept) ** 2,
        f"a metric of full rank on {len(kept)} features",
        "Project the features first, for example by PCA, or set shrinkage=0",
        varies,
    )
    W = np.zeros((len(kept), len(varies)))
    W[np.arange(len(kept)), kept] = 1
    return W, W.T


def _edge_weights(masses: Array | None, edges: tuple[Array, Array]) -> Array:
    """m_i of each target edge (i, j), in float64."""
    if masses is None:
        return kernels_for(edges[0]).double(edges[0]) * 0 + 1
    return masses[edges[0]]


def _ridge_and_floor(
    framed: Array, edges: tuple[Array, Array], weights: Array, n_kept: int, shrinkage: float
) -> tuple[float, float]:
    """r T/k and φ of (7), from the points WX and the weights of the edges."""
    if not shrinkage:
        return 0.0, 0.0
    total = float((weights * kernels_for(framed).sq_lengths(framed, *edges)).sum())
    if not total > 0:
        return 0.0, 0.0
    r = shrinkage / (1 - shrinkage)
    return r * total / n_kept, FLOOR * r * float(weights.sum()) / total


def _with_equal_rows(U: Array, first: Array | None) -> Array:
    """Make rows of U exactly equal where ``first`` says so: a matrix product may round them apart.

    U is changed, and returned.
    """
    if first is not None:
        kernels = kernels_for(U)
        later = kernels.flatnonzero(first != kernels.arange(len(first), first))
        U[later] = U[first[later]]
    return U
