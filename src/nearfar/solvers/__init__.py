"""How problems are solved: generators of iterates, and the one loop that runs them."""

from __future__ import annotations

from nearfar.solvers.run import Iterate, Observer, Record, Solution, Status, run

__all__ = ["Iterate", "Observer", "Record", "Solution", "Status", "run"]
