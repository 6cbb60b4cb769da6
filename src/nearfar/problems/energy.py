"""Energy: the amount that a new point with a given label would add to the objective of LMNN.

L_c is the map of metric c. The targets j ⇝ i are the k points of i's class that are nearest to i
before learning. The targets j ⇝ t of a new point t with the label y are the k nearest points of
class y:

(1) distance  D(a, b) = ‖L_c (x_a − x_b)‖², where c is the metric of b        [JMLR09, eq. 16]
(2) energy    E_t(y) = (1−μ) Σ_{j⇝t} D(t, j)
                     + μ Σ_{j⇝t} Σ_{l: y_l ≠ y} [m_t + D(t, j) − D(t, l)]₊
                     + μ Σ_{i: y_i ≠ y} Σ_{j⇝i} [1 + D(i, j) − D(i, t)]₊      [JMLR09, eq. 15]
(3) decision  y_t = argmin_y E_t(y)

The margin m_t of the new point is 1 in the paper, and 0 in the program that its authors published.

In the last distance, t has the metric that it would have with the label y. A class of fewer than k
points gives t fewer targets.

Shapes: n training points sorted by class, C classes, m new points, M metrics of r rows.

Costs, for one metric: targets O(m n s) in a space of s dimensions, energies O(m n (r + k + log n)),
both as matrix products in tiles; for M metrics with a table for each, O(m n M r). Nothing of size
m × n is held.

[JMLR09] Weinberger & Saul, Distance metric learning for large margin nearest neighbor
classification, JMLR 10 (2009).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from nearfar.kernels import Array, kernels_for
from nearfar.supervision.neighbors import merged, metric_groups

Index = NDArray[np.intp]
Matrix = NDArray[np.float64]

BLOCK = 8192  # new points at a time


@dataclass(frozen=True)
class Energy:
    """The energy (2) of new points among training points, which are sorted by class."""

    points: Array  # (n, d)
    space: Array  # (n, s): Euclidean distances here choose the targets
    starts: Index
    n_neighbors: int
    push_weight: float
    query_margin: float  # m_t
    components: Matrix | None  # (M, r, d) on the host; None if D is Euclidean on the points
    metric_of: Index  # (n,) on the host
    radius: Array  # (n, k) 1 + D(i, j) for each target of i; −inf where there are fewer

    @classmethod
    def build(
        cls,
        points: Array,
        space: Array,
        starts: Index,
        n_neighbors: int,
        push_weight: float,
        components: Array | None = None,
        metric_of: Array | None = None,
        query_margin: float = 1.0,
    ) -> Energy:
        """Choose the targets of the training points and measure them.

        Without components the points must be images under the one metric.
        """
        kernels, n = kernels_for(points), len(points)
        if components is not None:
            components = np.asarray(kernels.to_host(components), dtype=np.float64)
        metrics = np.zeros(n, dtype=np.intp) if metric_of is None else kernels.to_host(metric_of)
        radius = kernels.double(kernels.like(np.full((n, n_neighbors), -np.inf), points))
        mu, margin = float(push_weight), float(query_margin)
        energy = cls(points, space, starts, n_neighbors, mu, margin, components, metrics, radius)
        heads, tails = kernels.nearest_in_class(space, starts, n_neighbors)
        place = kernels.arange(len(heads), heads) - kernels.searchsorted(heads, heads)
        radius[heads, place] = 1 + energy._squares(points, heads, tails)
        return energy

    @property
    def kernels(self) -> ModuleType:
        """The kernels of the device that holds the points."""
        return kernels_for(self.points)

    def of(self, points: Array, space: Array | None, metric_of: Array | None = None) -> Array:
        """E_t(y) of new points for each label, (m, C) in float64.

        Parameters
        ----------
        points : array of shape (m, d)
            The new points; images if there are no components.
        space : array of shape (m, s) or None
            The new points in the space in which targets are chosen; None chooses targets by D.
        metric_of : integers of shape (m, C), or None for one metric
            The metric that each new point would have with each label.
        """
        metrics = None if metric_of is None else np.asarray(self.kernels.to_host(metric_of))
        blocks = [slice(first, first + BLOCK) for first in range(0, max(len(points), 1), BLOCK)]
        return self.kernels.concatenate(
            [
                self._of(
                    points[rows],
                    None if space is None else space[rows],
                    None if metrics is None else metrics[rows],
                )
                for rows in blocks
            ]
        )

    def _of(self, points: Array, space: Array | None, metric_of: Index | None) -> Array:
        kernels, mu = self.kernels, self.push_weight
        targets = self._targets(points, space)
        m, n_classes, k = targets.shape
        tails = targets.reshape(-1)
        heads = kernels.arange(m * n_classes * k, tails) // (n_classes * k)
        lengths = self._squares(points, heads, tails.clip(0, None)).reshape(targets.shape)
        lengths[targets < 0] = -np.inf
        reach = self.query_margin + lengths  # (m, C, k)
        if self.components is None:
            hinges = kernels.hinge_sums(points, self.points, self.starts, reach, self.radius)
            invading, invaded = hinges
            invaded = _without_own(kernels, invaded)
        else:
            invading = self._invading(points, reach)
            invaded = self._invaded(points, metric_of)
        pull = lengths.clip(0, None).sum(2)
        return (1 - mu) * pull + mu * invading + mu * invaded  # (2)

    def _targets(self, points: Array, space: Array | None) -> Array:
        """The rows of the targets of new points in each class, (m, C, k), −1 where it has fewer."""
        kernels, k = self.kernels, self.n_neighbors
        if space is not None:
            return kernels.nearest_of_classes(space, self.space, self.starts, k)
        targets = np.full((len(points), len(self.starts) - 1, k), -1)
        for c, (first, last) in enumerate(pairwise(self.starts.tolist())):
            parts = []
            for metric, rows in metric_groups(self.metric_of[first:last]):
                some = kernels.index(first + rows, points)
                near, squares = kernels.nearest(
                    self._images(points, metric),
                    self._images(self.points[some], metric),
                    min(k, len(rows)),
                )
                parts.append((first + rows, (kernels.to_host(near), kernels.to_host(squares))))
            targets[:, c, : last - first] = merged(parts, k)[0]
        return kernels.index(targets, points)

    def _invading(self, points: Array, reach: Array) -> Array:
        """Σⱼ Σ_l [reach − D(t, l)]₊ over l of other classes, each under its own metric, (m, C)."""
        kernels, total = self.kernels, 0.0
        for metric, rows in metric_groups(self.metric_of):
            some = kernels.index(rows, self.points)
            sums, _ = kernels.hinge_sums(
                self._images(points, metric),
                self._images(self.points[some], metric),
                np.searchsorted(rows, self.starts),
                reach,
                self.radius[some, :0],
            )
            total = total + sums
        return total

    def _invaded(self, points: Array, metric_of: Index | None) -> Array:
        """Σ_i Σⱼ [radius_ij − D(i, t)]₊ over i of other classes than y, for each y, (m, C)."""
        assert metric_of is not None  # several metrics: each new point has one for each label
        kernels = self.kernels
        total = np.zeros(metric_of.shape)
        for metric in np.unique(metric_of).tolist():
            rows = np.flatnonzero((metric_of == metric).any(axis=1))
            queries = self._images(points[kernels.index(rows, points)], metric)
            images = self._images(self.points, metric)
            nothing = kernels.double(kernels.like(np.empty((*metric_of[rows].shape, 0)), points))
            _, sums = kernels.hinge_sums(queries, images, self.starts, nothing, self.radius)
            sums = kernels.to_host(_without_own(kernels, sums))
            total[rows] += sums * (metric_of[rows] == metric)
        return kernels.like(total, self.radius)

    def _images(self, points: Array, metric: int) -> Array:
        """Images of points under a metric, between which distances are Euclidean."""
        if self.components is None:
            return points
        return self.kernels.apply(points, self.components[metric])

    def _squares(self, points: Array, heads: Array, tails: Array) -> Array:
        """D (1) from given points to training points, in float64."""
        kernels = self.kernels
        if self.components is None:
            stack = kernels.concatenate([self.points, points])
            return kernels.double(kernels.sq_lengths(stack, len(self.points) + heads, tails))
        out = kernels.double(kernels.like(np.zeros(len(heads)), self.points))
        metrics = kernels.index(self.metric_of, self.points)[tails]
        for metric, rows in metric_groups(self.metric_of):
            some = kernels.index(rows, self.points)
            chosen = kernels.flatnonzero(metrics == metric)
            stack = kernels.concatenate([self.points[some], points])
            place = kernels.searchsorted(some, tails[chosen])
            images = self._images(stack, metric)
            out[chosen] = kernels.double(
                kernels.sq_lengths(images, len(rows) + heads[chosen], place)
            )
        return out


def _without_own(kernels: ModuleType, sums: Array) -> Array:
    """From sums over each class (m, C), those over all other classes."""
    others = 1 - np.eye(sums.shape[1])
    return sums @ kernels.like(others, sums)
