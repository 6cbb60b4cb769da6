"""Shared by the LMNN family: rows to learn from, starts, and the descent of one problem."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import check_random_state

from nearfar.blocks import Blocks
from nearfar.errors import InvalidInputError
from nearfar.estimators._blocks import block_fingerprint
from nearfar.estimators._held_out import EarlyStopping, held_out_rows
from nearfar.estimators._input import warn_of_no_variation
from nearfar.estimators._start import projection, sparse_projection
from nearfar.estimators._training import (
    Arrays,
    Attributes,
    Proof,
    Saved,
    Training,
    check_limits,
    settled,
)
from nearfar.files import fingerprint
from nearfar.kernels import Array, kernels_for, to_host
from nearfar.limits import fit_clock
from nearfar.problems.lmnn import Certificate, LMNNProblem
from nearfar.problems.lmnn_sparse import SparseLMNNProblem
from nearfar.problems.sparse_points import SKETCH
from nearfar.solvers import Iterate, Solution, Status
from nearfar.solvers.checkpoint import Checkpoint
from nearfar.solvers.factor_steps import at_best_scale
from nearfar.solvers.hinge_problem import SEARCH_MARGIN, WIDTH
from nearfar.solvers.multipliers import descend_in_both_precisions
from nearfar.supervision import ClassOrder, class_order, given_targets, nearest_targets
from nearfar.validation import check_number

Index = NDArray[np.intp]
Matrix = NDArray[np.float64]

ROUNDING_SHARE = 1e-3  # of the tolerance, that is left for rounding the map to float32
MULTIPLIERS = ("components", "edge", "tail", "prox")  # arrays of an iterate in a checkpoint


# -- before ------------------------------------------------------------------------------------


def check_margin_parameters(estimator: Any) -> None:
    """Validate the parameters that all learners of the family have."""
    check_number("n_neighbors", estimator.n_neighbors, Integral, 1, None)
    check_number("push_weight", estimator.push_weight, Real, 0, 1, open_ends=True)
    fraction = estimator.validation_fraction
    if fraction is not None:
        check_number("validation_fraction", fraction, Real, 0, 1, open_ends=True)
    check_limits(estimator)


@dataclass(frozen=True)
class Split:
    """Rows to learn from, sorted by class, and rows to validate on."""

    order: Index  # rows of X to learn from, sorted by class
    labels: ClassOrder  # theirs, in the order of X
    held_out: Index | None  # rows of X to validate on
    held_out_codes: Index  # their class numbers

    @classmethod
    def of(cls, labels: ClassOrder, fraction: float | None, random_state: Any, name: str) -> Split:
        """Hold out this share of each class, or none."""
        if fraction is None:
            return cls(labels.order, labels, None, labels.codes[:0])
        rows, held_out = held_out_rows(labels, fraction, check_random_state(random_state))
        part = class_order(labels.codes[rows], name)
        return cls(rows[part.order], part, held_out, labels.codes[held_out])

    @property
    def codes(self) -> Index:
        """The class numbers of the rows to learn from, sorted."""
        return self.labels.codes[self.labels.order]


def margin_checkpoint(
    estimator: Any, points: Array, labels: ClassOrder, *settings: Any
) -> Checkpoint | None:
    """The checkpoint of a fit to these points with these settings, arrays or plain values."""
    if estimator.checkpoint is None:
        return None
    shared = [estimator.n_neighbors, estimator.push_weight]
    if isinstance(points, Blocks):
        rows: Any = block_fingerprint(points)
    else:
        rows = points if sparse.issparse(points) else to_host(points)
    parts = [rows, labels.starts, *settings, *shared]
    return Checkpoint(estimator.checkpoint, fingerprint(*parts))


def targets_under(
    components: Matrix | None, points: Array, centre: Array, labels: ClassOrder, n_neighbors: int
) -> tuple[Array, Array]:
    """Edges to the nearest of the same class under a map; None is for the points as they are.

    Sparse points have no centre, None.
    """
    if components is None:
        return nearest_targets(points, labels, n_neighbors)
    kernels = kernels_for(points)
    if centre is None:
        images = kernels.apply(kernels.double(points), components)
    else:
        images = kernels.apply_centred(points, centre, components)
    return nearest_targets(images, labels, n_neighbors)


def given_edges(
    targets: NDArray[Any], labels: ClassOrder, X: Array, weights: Matrix | None
) -> tuple[Array, Array]:
    """Edges of the target neighbours that a user gave, of rows of positive weight sorted by class.

    ``targets`` and ``labels`` are about all rows of X; edges that begin or end at a row without
    weight are left out.
    """
    edges = given_targets(targets, labels, X)
    if weights is None:
        return edges
    counted = weights[labels.order] > 0
    place = np.cumsum(counted) - 1
    heads, tails = (to_host(end) for end in edges)
    both = np.flatnonzero(counted[heads] & counted[tails])
    if len(both) == 0:
        raise InvalidInputError(
            "target_neighbors names no two rows of positive weight. Name other neighbours, or"
            " correct sample_weight and class_weight."
        )
    kernels = kernels_for(X)
    return kernels.index(place[heads[both]], X), kernels.index(place[tails[both]], X)


# -- the descent -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Start:
    """A map to start from, and what the descent should know of it."""

    components: Matrix
    options: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def near(cls, components: Matrix, width: float, margin: float = SEARCH_MARGIN) -> Start:
        """A map near the optimum, not to be left for that of a hinge smoother than this width.

        Triplets up to ``margin`` outside of their margin are at hand at first.
        """
        return cls(components, {"warm": True, "width": width, "margin": margin})


@dataclass(frozen=True)
class Descent:
    """One LMNN problem on points sorted by class, and how to solve it."""

    problem: LMNNProblem
    points: Array
    labels: ClassOrder
    tol: float
    rows: int | None = None  # of a map learned with a fixed rank; None for all metrics

    # Where to start

    def first_guess(self, init: str = "auto") -> Start:
        """The map that a word names, at an unknown scale."""
        rows, d = self.rows, self.points.shape[1]
        if init == "auto":
            if rows is None:
                return Start(self.problem.components(self.problem.first_guess()))
            wide = isinstance(self.problem, SparseLMNNProblem) and d > SKETCH
            init = "lda" if wide or rows < len(self.labels.sizes) else "pca"
        if init == "identity":
            return Start(np.eye(rows or d, d))
        if isinstance(self.problem, SparseLMNNProblem) and rows is not None:
            return Start(sparse_projection(self.problem.source, self.labels, init, rows))
        return Start(projection(self.points, self.labels, init, rows or d))

    def better_guess(self, error: Callable[[Matrix], float]) -> Start:
        """Of the closed form and the distance to keep, the one with the smaller held-out error.

        The closed form does not depend on units, but it fits the training rows where they are few.
        """
        kept = self.problem.prior
        guesses = (
            self.first_guess("auto"),
            Start(kept) if len(kept) else self.first_guess("identity"),
        )
        return min(guesses, key=lambda start: error(start.components))

    def in_geometry_of(self, start: Start) -> Descent:
        """The same descent along a path that suits a stop before its end."""
        L = self.problem.factor(start.components)
        return replace(self, problem=self.problem.in_geometry_of(L))

    def start_iterate(self, start: Start) -> Iterate:
        """The start as an iterate, at its best scale and without multipliers."""
        none = np.empty(0, dtype=np.intp)
        empty = {"edge": none, "tail": none, "prox": np.empty(0)}
        problem, width = self.problem, start.options.get("width", WIDTH)
        warm = start.options.get("warm", False)
        L = at_best_scale(problem, problem.factor(start.components), warm=warm, width=width)
        return Iterate(L, np.inf, state=problem.with_multipliers(empty, width))

    # The way

    def solve(
        self,
        training: Training,
        start: Start,
        attributes: Callable[[Iterate], Attributes],
        *,
        stopping: EarlyStopping | None = None,
        marks: dict[str, Any] | None = None,
        saved_with: Saved | None = ({}, {}),
    ) -> Solution:
        """Run from the start until the tolerance, a limit, or the held-out error ends it.

        ``saved_with`` are arrays and values that a checkpoint needs beside the iterate; None keeps
        none.
        """

        def save(iterate: Iterate) -> None:
            if saved_with is not None:
                self.save(training, iterate, stopping, saved_with)

        L = self.problem.factor(start.components)
        single = str(self.points.dtype).endswith("float32")
        tol = self.tol * (1 - ROUNDING_SHARE) if single else self.tol
        solution = training.run(
            descend_in_both_precisions(
                self.problem, L, tol, fixed_rank=self.rows is not None, **start.options
            ),
            attributes,
            start=Iterate(L, np.inf),
            tol=tol,
            marks=marks,
            observers=[] if stopping is None else [stopping],
            save=save,
        )
        solution = self._challenged(solution)
        save(solution.iterate)
        return solution if stopping is None else stopping.kept(solution)

    def _challenged(self, solution: Solution) -> Solution:
        """The solution, or a later iterate if a full search finds that it is better."""
        challenger = solution.challenger
        if challenger is None or solution.status is Status.EARLY_STOPPED:  # which has its own best
            return solution
        found = fit_clock().in_time(
            lambda: self.problem.certify(challenger.point, challenger.state)
        )
        if found is None or found[0].objective + found[0].unseen >= solution.iterate.value:
            return solution
        proof, triplets = found
        proved = replace(challenger, value=proof.objective, exact=True)
        return replace(solution, iterate=replace(proved, state=triplets, certificate=proof))

    # What is kept

    def components(self, iterate: Iterate) -> Matrix:
        """The map on the features that a fit returns for an iterate."""
        return self.problem.returned(iterate.point)

    def certificate(self, iterate: Iterate) -> Certificate | None:
        """What is proved of the map that is returned, over all triplets, in float64.

        None if there is no time for that.
        """
        point, known, triplets = iterate.point, iterate.certificate, iterate.state
        return fit_clock().in_time(lambda: self.problem.certify_returned(point, known, triplets))

    def gap(self, certificate: Certificate | None) -> float | None:
        """The proved gap; None without a proof, and for a map of fixed rank, which has none."""
        sampled = certificate is not None and certificate.confidence is not None
        return None if sampled else self._any_gap(certificate)

    def sampled_gap(self, certificate: Certificate | None) -> float | None:
        """The gap that holds with a confidence below one; None where all pairs were compared."""
        sampled = certificate is not None and certificate.confidence is not None
        return self._any_gap(certificate) if sampled else None

    def _any_gap(self, certificate: Certificate | None) -> float | None:
        return None if certificate is None or self.rows is not None else certificate.gap

    def settled(self, status: Status, certificate: Certificate | None) -> Status:
        """Converged if, and only if, the gap of a full metric meets the tolerance."""
        return settled(status, self._any_gap(certificate), self.tol)

    # What a checkpoint holds

    def _packed(self, iterate: Iterate) -> tuple[Arrays, float]:
        """An iterate as arrays, its width apart: enough to continue from it."""
        multipliers = self.problem.multipliers(iterate.state)
        components = self.problem.components(iterate.point)
        return {"components": components, **multipliers}, float(iterate.state.width)

    def save(
        self,
        training: Training,
        iterate: Iterate,
        stopping: EarlyStopping | None,
        saved_with: Saved = ({}, {}),
    ) -> None:
        """Write an iterate, and the best one of the held-out rows, to the checkpoint."""
        if iterate.state is None:
            return
        arrays, width = self._packed(iterate)
        values: dict[str, Any] = {"width": width}
        if stopping is not None and stopping.best is not None:
            best, width = self._packed(stopping.best)
            arrays |= {f"best_{name}": array for name, array in best.items()}
            values["best"] = [width, stopping.error, stopping.resting]
        training.save(arrays | saved_with[0], values | saved_with[1])

    def _unpacked(self, arrays: Arrays, width: float) -> Start:
        triplets = self.problem.with_multipliers(arrays, width)
        return Start(arrays["components"], {"triplets": triplets})

    def resumed(self, saved: Saved, stopping: EarlyStopping | None) -> Start:
        """Where to continue from what `save` wrote; early stopping continues, too."""
        arrays, values = saved
        if stopping is not None and "best" in values:
            width, stopping.error, stopping.resting = values["best"]
            best = self._unpacked({name: arrays[f"best_{name}"] for name in MULTIPLIERS}, width)
            point = self.problem.factor(best.components)
            stopping.best = Iterate(point, np.nan, state=best.options["triplets"])
        return self._unpacked(arrays, values["width"])


# -- after -------------------------------------------------------------------------------------


def objective_without_variation(
    push_weight: float, labels: ClassOrder, heads: Array, masses: Matrix | None = None
) -> float:
    """All points are equal, so that every triplet has a slack of 1 whatever the metric.

    ``masses`` are the weights of the points, sorted by class; None if all are 1.
    """
    warn_of_no_variation()
    m = np.ones(len(labels.codes)) if masses is None else masses
    classes = np.add.reduceat(m, labels.starts[:-1])
    others = m * (m.sum() - np.repeat(classes, labels.sizes))
    return float(push_weight * others[to_host(heads)].sum())


# -- after -------------------------------------------------------------------------------------


def margin_proof(
    problem: LMNNProblem, certificate: Certificate | None, order: Index, n_rows: int
) -> Proof:
    """For the LMNN family: the target neighbours, and the dual point if there is a certificate.

    ``order`` holds the row of X of each point of the problem, and ``n_rows`` is the number of rows
    of X. Points are numbered by their position among the training rows, which are all rows of X, or
    ``rows`` if some were held out.
    """
    rows = np.sort(order)
    place = np.searchsorted(rows, order)
    heads, tails = (place[to_host(end)] for end in problem.edges)
    proof: Proof = {"targets": _table(heads, tails, len(rows))}
    if len(rows) < n_rows:
        proof["rows"] = rows.astype(np.int32)
    if certificate is not None:
        dual = problem.dual_point(certificate, place)
        proof["triplets"] = dual["triplets"]
        proof["weights"] = np.asarray(dual["weights"], dtype=np.float64)
    return proof


def _table(heads: Index, tails: Index, n: int) -> NDArray[np.int32]:
    """Edges as a table (n, k), a row for each head; -1 where it has fewer tails."""
    by_head = np.argsort(heads, kind="stable")
    heads, tails = heads[by_head], tails[by_head]
    counts = np.bincount(heads, minlength=n)
    table = np.full((n, int(counts.max(initial=0))), -1, dtype=np.int32)
    table[heads, np.arange(len(heads)) - (np.cumsum(counts) - counts)[heads]] = tails
    return table
