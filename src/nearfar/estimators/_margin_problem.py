"""Builds the problem of LMNN that suits the rows: dense, sparse, in blocks, or given triplets."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from nearfar.blocks import Blocks
from nearfar.blocks.neighbors import nearest_in_class
from nearfar.estimators._large_margin import Descent, targets_under
from nearfar.estimators._margin_rows import Rows
from nearfar.problems.lmnn import LMNNProblem
from nearfar.problems.lmnn_blocks import LMNNBlocks
from nearfar.problems.lmnn_given import GivenLMNNProblem
from nearfar.problems.lmnn_sampled import Draws, SampledLMNNProblem
from nearfar.problems.lmnn_sparse import SparseLMNNProblem
from nearfar.problems.sparse_points import SparsePoints

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Margin:
    """The numbers that define the problem."""

    n_neighbors: int
    push_weight: float
    shrinkage: float
    tol: float
    learned_rows: int | None  # of a map that is learned with a fixed rank; None for all metrics


def build_descent(
    rows: Rows, margin: Margin, previous: Matrix | None = None, draws: Draws | None = None
) -> Descent:
    """The problem of a pass: its target neighbours, and the points whitened by these.

    ``previous`` is the map of the previous pass, which chooses the target neighbours; without it
    they are those that the user gave, or the nearest by the distance that is kept. With ``draws``,
    certificates are from samples of the rows.
    """
    points, labels = rows.points, rows.labels
    edges, chosen_by = rows.targets, None if rows.prior is None else rows.prior[0]
    if previous is not None:
        edges, chosen_by = None, previous
    problem: LMNNProblem
    if rows.triplets is not None:
        problem = GivenLMNNProblem.of(
            points,
            rows.centre,
            rows.triplets,
            margin.push_weight,
            margin.shrinkage,
            floored=margin.learned_rows is None,
        )
    elif isinstance(points, Blocks):
        centre, codes = np.asarray(rows.centre), rows.codes
        if edges is None:
            edges = nearest_in_class(points, codes, margin.n_neighbors, chosen_by, centre)
        problem = LMNNBlocks.of(
            points,
            centre,
            edges,
            codes,
            margin.push_weight,
            margin.shrinkage,
            floored=margin.learned_rows is None,
            prior=rows.prior,
            masses=rows.masses,
        )
    else:
        if edges is None:
            edges = targets_under(chosen_by, points, rows.centre, labels, margin.n_neighbors)
        if sparse.issparse(points):
            assert margin.learned_rows is not None
            source = SparsePoints(points, margin.learned_rows)
            settings = margin.push_weight, margin.shrinkage, rows.masses
            problem = SparseLMNNProblem.of(source, edges, labels.starts, *settings)
        else:
            problem = LMNNProblem.build(
                points,
                rows.centre,
                edges,
                labels.starts,
                margin.push_weight,
                margin.shrinkage,
                floored=margin.learned_rows is None,
                prior=rows.prior,
                masses=rows.masses,
            )
    if draws is not None:
        problem = SampledLMNNProblem.of(problem, draws, margin.tol)
    return Descent(problem, points, labels, margin.tol, margin.learned_rows)
