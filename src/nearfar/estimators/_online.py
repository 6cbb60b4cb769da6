"""What POLA and its kernel version share: pairs one after the other, again and again, or just once.

A learner brings its projections and says how they learn from pairs; here are the input, the
epochs, what is stored of them, and predictions.
"""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if

from nearfar.errors import ConvergenceWarning, InvalidInputError, warn
from nearfar.estimators._base import checked_labels, validated_points
from nearfar.estimators._iterative import UNFINISHED, IterativeLearner
from nearfar.estimators._pairs import PairLearner, holds_tuples, validated_kinds, validated_tuples
from nearfar.estimators._start import robust_centre
from nearfar.kernels import kernels_for, one_pool
from nearfar.limits import fit_clock
from nearfar.linalg import null_tolerance, signed
from nearfar.solvers import Iterate, Solution, Status
from nearfar.solvers.pola import MarginProjections, epochs
from nearfar.supervision import Pairs
from nearfar.supervision.pairs import labelled_edges, pairs_of_labels
from nearfar.validation import check_number

Index = NDArray[np.intp]
Matrix = NDArray[np.float64]

BLOCK = 1 << 14  # pairs at a time


def _learned_from_pairs(learner: Any) -> bool:
    """Whether predictions make sense where scikit-learn expects one for each row of X."""
    if hasattr(learner, "classes_"):
        raise AttributeError(
            f"this {type(learner).__name__} was fitted to labelled points, and predictions are of"
            " pairs. Compare pair_distance with threshold_, or fit it to pairs."
        )
    return True


class OnlinePairLearner(PairLearner, IterativeLearner):
    """A mixin beside a form of metric; see the head of this module."""

    beta: float | None
    scale: float | None
    shuffle: bool
    squared_threshold_: float
    threshold_: float
    n_pairs_seen_: int
    n_updates_: int
    squared_loss_: float
    total_length_: float
    tol = 0.0  # the criterion is beta; the residual is zero where it is met

    # -- what a learner brings -----------------------------------------------------------------

    def _begin(self, pairs: Pairs) -> MarginProjections:
        """Projections that have seen nothing."""
        raise NotImplementedError

    def _resume(self, pairs: Pairs) -> MarginProjections:
        """Projections in the state that the fitted attributes tell."""
        raise NotImplementedError

    def _visit(self, stream: Any, pairs: Pairs, order: Index) -> Iterator[Matrix]:
        """Let the projections learn from the pairs in this order; losses, block by block."""
        raise NotImplementedError

    def _attributes(self, stream: Any, pairs: Pairs) -> dict[str, Any]:
        """The form of metric that the projections have reached."""
        raise NotImplementedError

    def _losses(self, pairs: Pairs) -> Matrix:
        """Of all pairs under the stored metric."""
        raise NotImplementedError

    # -- learning ------------------------------------------------------------------------------

    @one_pool()
    def _fit(self, X: Any, y: Any) -> None:
        """Epochs over all pairs until no loss exceeds beta."""
        self._check_parameters()
        pairs = self._validated_pairs(X, y)
        robust_centre(pairs.points)  # refuses what leaves the range of float64
        random, everything = check_random_state(self.random_state), np.arange(len(pairs))
        stream = self._begin(pairs)

        def once() -> Iterator[Matrix]:
            order = random.permutation(everything) if self.shuffle else everything
            return self._visit(stream, pairs, order)

        def attributes(iterate: Iterate) -> dict[str, Any]:
            return self._stored(iterate.state, pairs)

        solution = self._run(epochs(stream, once), X, y, attributes)
        self._store(attributes(solution.iterate))
        losses = fit_clock().in_time(lambda: self._losses(pairs))
        self._store_solution(solution, None if losses is None else float(losses.sum()))

    @one_pool()
    def _learn(self, X: Any, y: Any) -> None:
        """Each pair once, in the given order, from where the last call ended."""
        self._check_parameters()
        known = hasattr(self, "squared_threshold_")
        pairs = self._arrived_pairs(X, y, reset=not known)
        robust_centre(pairs.points)
        stream = self._resume(pairs) if known else self._begin(pairs)
        for _ in self._visit(stream, pairs, np.arange(len(pairs))):
            pass
        self._store(self._stored(stream, pairs))
        for name in ("objective_", "duality_gap_", "status_", "n_iter_", "history_"):
            vars(self).pop(name, None)  # they belong to the metric of a fit
        if holds_tuples(X):
            vars(self).pop("classes_", None)

    def _arrived_pairs(self, X: Any, y: Any, reset: bool) -> Pairs:
        """The pairs of a part of a stream, which may be all near or far, and contradict others."""
        if not holds_tuples(X):
            points = validated_points(self, X, reset)
            labels, random = checked_labels(self, points, y), check_random_state(self.random_state)
            if len(labels.classes) > 1:
                name = type(self).__name__
                pairs = pairs_of_labels(points, labels, self.n_pairs, random, name)
            else:
                pairs = Pairs(points, *labelled_edges(labels, self.n_pairs, random))
            order = random.permutation(len(pairs)) if self.shuffle else slice(None)
            return Pairs(points, pairs.heads[order], pairs.tails[order], pairs.near[order])
        points, indices = validated_tuples(self, X, reset)
        near = validated_kinds(self, indices, y)
        rows = np.arange(len(indices))
        if near is None:  # (a, b, c): a and b are near, a and c are far
            rows = np.repeat(rows, 2)
            near = np.tile([True, False], len(indices))
            indices = np.column_stack([indices[rows, 0], indices[:, 1:].ravel()])
        pairs = Pairs(points, indices[:, 0], indices[:, 1], near)
        wrong = rows[_far_and_equal(pairs)]
        if len(wrong):
            raise InvalidInputError(
                f"a far pair needs two different points; tuple {wrong[0]} has the same point twice"
                f" ({len(wrong)} in all), which no metric parts. Drop them.",
                wrong,
            )
        return pairs

    def _check_parameters(self) -> None:
        self._check_limits()
        if self.beta is not None:
            check_number("beta", self.beta, Real, 0, None)
        if self.scale is not None:
            check_number("scale", self.scale, Real, 0, None, open_ends=True)
        if not isinstance(self.shuffle, bool | np.bool_):
            raise InvalidInputError(f"shuffle must be True or False; got {self.shuffle!r}.")
        if self.n_pairs is not None:
            check_number("n_pairs", self.n_pairs, Integral, 1, None)

    # -- what is stored ------------------------------------------------------------------------

    def _stored(self, stream: MarginProjections, pairs: Pairs) -> dict[str, Any]:
        """All fitted attributes that the projections determine."""
        return {
            **self._attributes(stream, pairs),
            "matrix_": stream.matrix,
            "squared_threshold_": stream.b,
            "threshold_": stream.b**0.5,
            "n_pairs_seen_": stream.n_seen,
            "n_updates_": stream.n_updates,
            "squared_loss_": stream.squared_loss,
            "total_length_": stream.total_length,
        }

    def _memory(self) -> dict[str, Any]:
        """What projections need beside their matrix to go on."""
        return {
            "b": self.squared_threshold_,
            "total_length": self.total_length_,
            "n_seen": self.n_pairs_seen_,
            "n_updates": self.n_updates_,
            "squared_loss": self.squared_loss_,
            **self._settings(),
        }

    def _settings(self) -> dict[str, Any]:
        return {"scale": self.scale, "beta": self.beta or 0.0}

    def _store(self, attributes: dict[str, Any]) -> None:
        for name, value in attributes.items():
            setattr(self, name, value)

    def _store_solution(self, solution: Solution, objective: float | None) -> None:
        """Store the ending, and warn if it is not where the fit should get.

        Without beta, that is the last epoch. No objective is below zero, so that zero is proved to
        be the least one, and no other is.
        """
        status, name = solution.status, type(self).__name__
        self.objective_ = objective
        self.duality_gap_ = 0.0 if objective == 0 else None
        self.status_, self.n_iter_ = str(status), solution.n_iter
        self.history_ = solution.history
        if status is Status.INTERRUPTED:
            warn(
                f"{name} was interrupted; the last whole epoch is kept. Fit again to finish.",
                ConvergenceWarning,
            )
        elif status in UNFINISHED and not (self.beta is None and status is Status.MAX_ITER):
            largest = solution.history[-1]["largest_loss"]
            unknown = (
                "" if objective is not None else ", too soon to know objective_, which is None"
            )
            goal, remedy = "max_iter epochs", f"Raise {status}."
            if self.beta is not None:
                goal = f"every loss was at most beta={self.beta:g}"
                remedy = (
                    f"Raise {status} or beta; pairs that no metric parts with a margin need"
                    " beta=None."
                )
            warn(
                f"{name} stopped before {goal}: {status.sentence}, with a largest loss of"
                f" {largest:.2g}{unknown}. {remedy}",
                ConvergenceWarning,
            )

    # -- predictions ---------------------------------------------------------------------------

    @available_if(_learned_from_pairs)
    def predict(self, pairs: Any) -> NDArray[np.intp]:
        """+1 for pairs within ``threshold_`` of each other, −1 for others.

        Parameters
        ----------
        pairs : array-like, torch.Tensor or Tuples of shape (n_pairs, 2, n_features)
            The pairs.

        Returns
        -------
        ndarray of shape (n_pairs,)
            On the host. After a fit to labelled points the method is hidden, because scikit-learn
            would take it for a prediction for each point.
        """
        distances = self.pair_distance(pairs)  # type: ignore[attr-defined]
        return np.where(kernels_for(distances).to_host(distances) <= self.threshold_, 1, -1)


def _far_and_equal(pairs: Pairs) -> NDArray[np.bool_]:
    """Which far pairs are of equal points."""
    kernels, found = kernels_for(pairs.points), [np.zeros(0, dtype=bool)]
    for first in range(0, len(pairs), BLOCK):
        block = slice(first, first + BLOCK)
        ends = (kernels.index(end[block], pairs.points) for end in (pairs.heads, pairs.tails))
        head, tail = (pairs.points[end] for end in ends)
        found.append(~pairs.near[block] & ~kernels.to_host((head != tail).any(1)))
    return np.concatenate(found)


def factor(M: Matrix) -> Matrix:
    """The canonical F with M = FᵀF for M ⪰ 0, of as many rows as M has rank, at least one."""
    values, vectors = linalg.eigh(M)
    rank = max(1, int((values > null_tolerance(values)).sum()))
    leading = np.sqrt(values[: -rank - 1 : -1].clip(0))  # sorted up, so taken from the end
    rows: Matrix = leading[:, None] * signed(vectors[:, : -rank - 1 : -1].T)
    return rows
