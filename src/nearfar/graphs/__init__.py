"""Who is a neighbour of whom: the neighbourhood graph, and what can be done to it."""

from __future__ import annotations

from nearfar.graphs.neighborhood import NeighborhoodGraph
from nearfar.graphs.report import GraphReport

__all__ = ["GraphReport", "NeighborhoodGraph"]
