"""The neighbourhood graph, and operations on it."""

from __future__ import annotations

from nearfar.graphs.neighborhood import NeighborhoodGraph
from nearfar.graphs.report import GraphReport

__all__ = ["GraphReport", "NeighborhoodGraph"]
