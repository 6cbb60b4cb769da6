"""MCML on rows in blocks: `nearfar.problems.mcml` with the sums of `soft_neighbors_blocks`.

Objective, gradient and dual bound need the sums over soft neighbours alone, so that nothing else
changes: certificates are proved from the distributed rows in float64, and the proof that a model
keeps, the maps of its dual point, is as small as in memory.
"""

from __future__ import annotations

from nearfar.problems.mcml import MCMLProblem
from nearfar.problems.soft_neighbors_blocks import SoftNeighborBlocks


class MCMLBlocks(SoftNeighborBlocks, MCMLProblem):
    """The program of MCML on rows in blocks, sorted by class."""
