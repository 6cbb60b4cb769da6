"""The rows that a fit of LMNN learns from, and those that it validates on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from nearfar.blocks import in_blocks
from nearfar.blocks.cells import cell_order
from nearfar.estimators._block_rows import block_prior, central_row, live_blocks
from nearfar.estimators._early_stopping import votes_under
from nearfar.estimators._large_margin import Split, masses_of
from nearfar.estimators._proofs import Proof
from nearfar.estimators._shrinkage import Prior, chosen_prior, warn_if_worse
from nearfar.estimators._start import (
    central_point,
    check_range,
    robust_centre,
    without_dead_features,
)
from nearfar.kernels import Array, kernels_for, take_rows, to_host
from nearfar.supervision import ClassOrder, vote

Index = NDArray[np.intp]
Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Rows:
    """Points to learn from, sorted by class, with what else is known of them."""

    X: Array  # all rows, as they were validated
    points: Array  # those to learn from
    centre: Array | None  # None of sparse points
    labels: ClassOrder  # of the points
    order: Index  # the row of X of each point
    weights: Matrix | None = None  # of all rows of X, with zeros; None if all are 1
    targets: tuple[Array, Array] | None = None  # edges to target neighbours that the user gave
    held_out: tuple[Array, Index] | None = None  # points to validate on, and their class numbers
    prior: Prior | None = None  # the distance that a shrinkage keeps; None for that of the inputs
    triplets: Index | None = None  # given instead of labels, all points being of one class then

    @property
    def codes(self) -> Index:
        """The class numbers of the points."""
        return self.labels.codes[self.labels.order]

    @property
    def masses(self) -> Matrix | None:
        """The weights of the points, scaled to a mean of 1."""
        return masses_of(self.weights, self.order)

    @property
    def proof(self) -> Proof:
        """What a proof holds of the weights."""
        return {} if self.weights is None else {"sample_weight": self.weights}

    @property
    def table(self) -> Array | None:
        """X, if it is a dense array in memory."""
        return None if sparse.issparse(self.X) or in_blocks(self.X) else self.X

    def held_out_votes(self, components: Matrix, n_neighbors: int) -> Index:
        """The class numbers that the nearest points under a map give to the held-out rows."""
        assert self.held_out is not None
        return votes_under(components, self.points, self.codes, self.held_out[0], n_neighbors)

    def held_out_error(self, components: Matrix, n_neighbors: int) -> float:
        """The share of the held-out rows that these votes misclassify."""
        assert self.held_out is not None
        return float(np.mean(self.held_out_votes(components, n_neighbors) != self.held_out[1]))

    def warn_if_worse(self, components: Matrix, n_neighbors: int) -> None:
        """Warn if the held-out rows, where there are any, are classified better by the inputs."""
        if self.held_out is None:
            return
        new, truth = self.held_out
        near = kernels_for(new).nearest(new, self.points, min(n_neighbors, len(self.codes)))[0]
        warn_if_worse(
            self.held_out_votes(components, n_neighbors),
            vote(self.codes[to_host(near)], int(self.codes.max()) + 1),
            truth,
            n_rows=len(self.codes),
            n_features=self.points.shape[1],
            n_classes=len(self.labels.sizes),
        )


def rows_of_points(
    X: Array,
    counted: Array,
    split: Split,
    weights: Matrix | None,
    targets: tuple[Array, Array] | None,
    n_neighbors: int | None,
) -> Rows:
    """Labelled points; ``counted`` are the rows of X that have a weight, which ``split`` divides.

    So many ``n_neighbors`` of training rows choose the distance to keep; None keeps the inputs'.
    """
    order = np.arange(X.shape[0]) if weights is None else np.flatnonzero(weights)
    if in_blocks(X):
        return _rows_of_blocks(X, counted, split, order, weights, targets, n_neighbors)
    live = without_dead_features(counted)
    points, held_out, prior = take_rows(live, split.order), None, None
    is_sparse = sparse.issparse(points)
    if is_sparse:
        check_range(points)
    elif n_neighbors is not None:
        robust_centre(points)  # refuses what leaves the range of float64
        prior = chosen_prior(points, split.codes, n_neighbors)
    if split.held_out is not None:
        held_out = take_rows(live, split.held_out), split.held_out_codes
    return Rows(
        X,
        points,
        None if is_sparse else central_point(points),
        split.labels,
        order[split.order],
        weights,
        targets,
        held_out,
        prior,
    )


def _rows_of_blocks(
    X: Any,
    counted: Any,
    split: Split,
    order: Index,
    weights: Matrix | None,
    targets: tuple[Array, Array] | None,
    n_neighbors: int | None,
) -> Rows:
    """As `rows_of_points`, of rows in blocks, which are sorted by class where they are.

    Unless target neighbours are given, near points of a class come into the same block.
    """
    blocks, varies = live_blocks(counted, split.order)
    centre, prior = central_row(blocks), None
    if n_neighbors is not None:
        prior = block_prior(blocks, split.codes, n_neighbors, varies)
    labels, order = split.labels, order[split.order]
    if targets is None and varies.any():
        cells = cell_order(blocks, split.codes, None if prior is None else prior[0])
        blocks, order = blocks.reordered(cells), order[cells]
        labels = replace(labels, order=labels.order[cells])
    return Rows(X, blocks, centre, labels, order, weights, targets, None, prior)
