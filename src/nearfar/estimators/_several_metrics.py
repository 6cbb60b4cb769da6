"""Rows of a fit with several metrics, maps to start from, and whether one metric would do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import InvalidInputError
from nearfar.estimators._held_out import EarlyStopping, votes_under
from nearfar.estimators._large_margin import Split
from nearfar.estimators._shrinkage import Prior, is_worse, warn_if_worse
from nearfar.estimators._start import central_point
from nearfar.kernels import Array, to_host
from nearfar.problems.lmnn import LMNNProblem
from nearfar.solvers import Iterate

Index = NDArray[np.intp]
Matrix = NDArray[np.float64]

NO_LENGTH = 1e-12  # share of the largest possible length of an image that counts as none


@dataclass(frozen=True)
class Rows:
    """What a fit learns from, and what it validates on."""

    points: Array  # to learn from, sorted by class
    split: Split
    metric_of: Index  # the metric of each point
    held_out: Array | None  # points to validate on
    masses: Matrix | None  # weights of the points, of mean 1; None if all are 1
    n_neighbors: int  # that vote

    def problem(
        self, edges: tuple[Array, Array], push_weight: float, shrinkage: float, prior: Prior | None
    ) -> LMNNProblem:
        """The problem with one metric for all rows, which keeps the distance of ``prior``."""
        return LMNNProblem.build(
            self.points,
            central_point(self.points),
            edges,
            self.split.labels.starts,
            push_weight,
            shrinkage,
            prior=prior,
            masses=self.masses,
        )

    def votes(self, maps: Matrix, metric_of: Index) -> Index:
        """The class numbers that the nearest points under these maps give to the held-out rows."""
        points, codes = self.points, self.split.codes
        return votes_under(maps, points, codes, self.held_out, self.n_neighbors, metric_of)

    def early_stopping(self, problem: LMNNProblem, began: int) -> EarlyStopping:
        """Stops by these votes; ``began`` iterations were made before."""

        def predict(iterate: Iterate) -> Index:
            point, metric_of = iterate.point, self.metric_of
            floored = problem.kept is not None
            maps = problem.returned(point) if floored else problem.components(point)
            if maps.ndim == 2:
                maps, metric_of = maps[None], np.zeros_like(metric_of)
            return self.votes(maps, metric_of)

        return EarlyStopping(predict, self.split.held_out_codes, began)

    def warn_if_worse(self, maps: Matrix) -> None:
        """Warn if the held-out rows, where there are any, are classified better by the inputs."""
        if self.held_out is None:
            return
        d = self.points.shape[1]
        warn_if_worse(
            self.votes(maps, self.metric_of),
            self.votes(np.eye(d)[None], np.zeros_like(self.metric_of)),
            self.split.held_out_codes,
            n_rows=len(self.points),
            n_features=d,
            n_classes=len(self.split.labels.sizes),
        )


def several_lose(trial: Any, codes: Index, unseen: Array, truth: Index, n_neighbors: int) -> bool:
    """Whether several metrics misclassify more unseen points than the one, by more than chance.

    ``trial`` was fitted to points of these class ``codes``; without a single metric to keep, there
    is no choice. Warns if the inputs are better than the better of the two.
    """
    one = trial.prior_components_
    if one is None:
        return False
    d, none = unseen.shape[1], np.zeros(len(codes), dtype=np.intp)

    def votes(maps: Array, metric_of: Index) -> Index:
        return votes_under(to_host(maps), trial.points_, codes, unseen, n_neighbors, metric_of)

    single, several = votes(one[None], none), votes(trial.components_, trial.metric_of_)
    lose = is_worse(several != truth, single != truth)
    warn_if_worse(
        single if lose else several,
        votes(np.eye(d)[None], none),
        truth,
        n_rows=len(codes),
        n_features=d,
        n_classes=int(codes.max()) + 1,
        standard_errors=2.0,  # nobody asked for this check: it should not cry wolf
    )
    return lose


def given_maps(init: Any, n_metrics: int, single: LMNNProblem, n_features: int) -> Matrix:
    """The maps of ``init``, an array or a fitted metric, at any scale; raise if they are unfit."""
    given = to_host(getattr(init, "components_", init))
    d = n_features
    if (
        given.dtype.kind not in "fiu"
        or given.ndim not in (2, 3)
        or given.shape[-1] != d
        or (given.ndim == 3 and len(given) != n_metrics)
        or not np.isfinite(given).all()
        or not given.any()
    ):
        raise InvalidInputError(
            "init must be a fitted LMNN, or finite numbers of shape (rows, n_features) or"
            f" (n_metrics, rows, n_features), here (rows, {d}) or ({n_metrics}, rows, {d});"
            f" got {given.dtype} of shape {given.shape}. Correct it, or leave it out."
        )
    maps: Matrix = given / np.float64(np.abs(given).max())
    smallest = NO_LENGTH * np.abs(single.dual_basis).max()
    if not np.abs(single.factor(maps)).max() > smallest:
        raise InvalidInputError(
            "init maps all points to one: along its rows X does not vary. Correct it, or leave"
            " it out."
        )
    return maps
