"""The descent in many columns of an unfolding: its memory, and its checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.estimators._graph_layout import GraphInput
from nearfar.estimators._training import Arrays, Training
from nearfar.files import fingerprint
from nearfar.graphs import NeighborhoodGraph
from nearfar.graphs.fronts import Structure
from nearfar.graphs.spectrum import has_dense_factor
from nearfar.kernels import Array, check_memory, kernels_for, to_host
from nearfar.problems.mvu_low_rank import Evaluation, LowRankProgram
from nearfar.solvers.checkpoint import Checkpoint
from nearfar.solvers.staircase import MEMORY

Matrix = NDArray[np.float64]

NAMES = ("Y", "forces", "stiffness", "feasible")  # of a `Landing`
COLUMNS = 10  # in which the descent begins, at least
FACTOR_ENTRIES = 100  # entries per node of a sparse factor, about
# Parameters that may change between a fit and its continuation; links are part of the graph.
CHANGEABLE = (
    "tol",
    "gap_tol",
    "max_iter",
    "max_seconds",
    "memory_limit",
    "verbose",
    "checkpoint",
    "random_state",
)


def check_staircase_memory(
    graph: NeighborhoodGraph, reference: Array, remedy: str, structure: Structure | None = None
) -> None:
    """Raise if the descent and its proofs need more memory than there may be.

    The ``structure`` is that of a factor in blocks, if it is known.
    """
    n, m = graph.n_nodes, graph.n_edges
    if structure is not None:
        factor = 2 * structure.factor_entries
    else:
        factor = n * n if has_dense_factor(graph.laplacian()) else 2 * FACTOR_ENTRIES * n
    check_memory(
        8.0 * (3 * MEMORY * COLUMNS * n + 30 * m + factor),
        f"low-rank unfolding of {n} points and {m} edges",
        remedy,
        kernels_for(reference).double(reference[:0]),
    )


def open_checkpoint(estimator: Any, given: GraphInput) -> Checkpoint | None:
    """The checkpoint of a fit of this unfolding to this graph; None if there is to be none."""
    if estimator.checkpoint is None:
        return None
    graph, parameters = given.graph, estimator.get_params(deep=False)
    settings = sorted((name, value) for name, value in parameters.items() if name not in CHANGEABLE)
    edges = (graph.heads, graph.tails, graph.lengths, graph.weights)
    return Checkpoint(estimator.checkpoint, fingerprint(*edges, type(estimator).__name__, settings))


@dataclass(frozen=True)
class Landing:
    """A place of the descent from which it continues."""

    Y: Matrix  # (n, r)
    forces: Matrix  # (e,) m, the centre of the next smoothed program
    stiffness: Matrix  # (e,) β
    feasible: Matrix | None  # (e,) forces of the least bound so far

    @classmethod
    def of(cls, at: Evaluation, feasible: Matrix | None) -> Landing:
        """From a place on any device."""
        return cls(to_host(at.Y), to_host(at.forces), to_host(at.stiffness), feasible)

    def program(self, first: LowRankProgram) -> LowRankProgram:
        """The program to continue with; ``first`` is that of the beginning."""
        return first.continued(self.forces, self.stiffness)


class Stairs:
    """The descents of all components of a fit, and its checkpoint."""

    def __init__(self, training: Training) -> None:
        self.training = training
        self.arrays: Arrays = {} if training.saved is None else dict(training.saved[0])

    def of(self, number: int) -> Stair:
        """The descent of a component."""
        return Stair(self, number)


@dataclass(frozen=True)
class Stair:
    """The descent of one component, in the checkpoint of a fit."""

    stairs: Stairs
    number: int

    @property
    def landing(self) -> Landing | None:
        """Where an earlier fit was, or None."""
        found = {name: self.stairs.arrays.get(self._key(name)) for name in NAMES}
        return None if found["Y"] is None else Landing(**found)  # type: ignore[arg-type]

    def save(self, at: Evaluation, feasible: Matrix | None) -> None:
        """Write a place with feasible forces to the checkpoint, if there is one."""
        landing = Landing.of(at, feasible)
        for name in NAMES:
            array = getattr(landing, name)
            if array is not None:
                self.stairs.arrays[self._key(name)] = array
        self.stairs.training.save(self.stairs.arrays, {})

    @contextmanager
    def repeating(self) -> Iterator[None]:
        """What is done again before the descent continues: the history has its records already."""
        training, known = self.stairs.training, self.stairs.training.history
        yield
        if self.landing is not None:
            training.history = known

    def _key(self, name: str) -> str:
        return f"{name}_{self.number}"
