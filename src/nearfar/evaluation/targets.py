"""The choice of target neighbours and push weight for LMNN on held-out rows.

The thesis sets the number of target neighbours by validation [weinberger2007, section 2.1.6]. Fits
along the grid begin where the one before ended, so that all of them together cost little more than
one.

[weinberger2007] Weinberger, Metric learning with convex optimization, PhD thesis, 2007.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils import check_random_state

from nearfar.errors import InvalidInputError, NearfarWarning
from nearfar.evaluation.knn import knn_error
from nearfar.evaluation.split import split_points
from nearfar.kernels import is_torch, take_rows, to_host
from nearfar.validation import check_number

TRIED = (1, 3, 5, 10)
LOOSE = 1e-2  # relative gap that is enough to compare errors on held-out rows
SEEDS = 2**31 - 1


@dataclass(frozen=True)
class TargetTrial:
    """One pair of parameters.

    Attributes
    ----------
    n_neighbors : target neighbours of each point, and neighbours that vote
    push_weight : weight of the push against impostors
    error : share of the held-out rows that are classified wrongly, the mean over the splits
    """

    n_neighbors: int
    push_weight: float
    error: float


@dataclass(frozen=True)
class TargetChoice:
    """What was tried, and the learner with the best parameters; ``str`` shows it as a table.

    Attributes
    ----------
    trials : one for each pair of parameters
    best : the trial with the smallest error
    learner : a copy of the learner, fitted with these parameters to all rows
    """

    trials: tuple[TargetTrial, ...]
    best: TargetTrial
    learner: Any

    def __str__(self) -> str:
        lines = [f"{'n_neighbors':>11} {'push_weight':>11} {'error':>7}"]
        lines += [
            f"{trial.n_neighbors:>11} {trial.push_weight:>11.2g} {trial.error:>7.2%}"
            + ("  <- best" if trial is self.best else "")
            for trial in self.trials
        ]
        return "\n".join(lines)


def choose_targets(
    X: Any,
    y: Any,
    learner: Any = None,
    n_neighbors: Iterable[int] = TRIED,
    push_weight: Iterable[float] = (0.5,),
    *,
    validation_fraction: float = 0.3,
    n_splits: int = 1,
    random_state: Any = None,
) -> TargetChoice:
    """Choose the target neighbours of LMNN, and its push weight, on held-out rows.

    For each pair of parameters, the metric is learned from the other rows, to a gap of 1e-2, and
    the held-out rows are classified by as many neighbours as there were targets. Of equal errors
    the smaller number of neighbours wins, then the push weight closest to one half. The learner is
    then fitted to all rows, starting from the metric that was best.

    Parameters
    ----------
    X : array-like or torch.Tensor of shape (n_samples, n_features)
        The points.
    y : array-like of shape (n_samples,)
        Class labels.
    learner : LMNN or None, default=None
        What is copied and fitted; its other parameters are kept. None is ``LMNN()``.
    n_neighbors : iterable of int, default=(1, 3, 5, 10)
        The numbers of target neighbours to try.
    push_weight : iterable of float, default=(0.5,)
        The push weights to try.
    validation_fraction : float, default=0.3
        Share of the rows to hold out.
    n_splits : int, default=1
        How often to hold rows out; errors are means over the splits. Each costs as much as the
        first.
    random_state : int, RandomState instance or None, default=None
        Chooses the rows that are held out.

    Returns
    -------
    TargetChoice
        The errors, the best parameters and the fitted learner.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from nearfar.evaluation import choose_targets
    >>> X, y = load_iris(return_X_y=True)
    >>> choice = choose_targets(X, y, n_neighbors=(1, 3, 5), random_state=0)
    >>> len(choice.trials), choice.learner.n_neighbors == choice.best.n_neighbors
    (3, True)
    """
    from nearfar.estimators.lmnn import LMNN

    learner = LMNN() if learner is None else learner
    if not isinstance(learner, LMNN):
        raise InvalidInputError(
            f"learner must be an LMNN; got {type(learner).__name__}. The order is"
            " choose_targets(X, y, learner)."
        )
    if learner.validation_fraction is not None:
        raise InvalidInputError(
            "the learner has a validation_fraction of its own, which would hold rows out twice. Set"
            " it to None."
        )
    tried: dict[str, Any] = {"n_neighbors": n_neighbors, "push_weight": push_weight}
    for name, values in tried.items():
        if not isinstance(values, Iterable) or isinstance(values, str):
            raise InvalidInputError(
                f"{name} must hold the numbers to try; got {values!r}. Pass a tuple, such as"
                f" {name}=({values!r},)."
            )
    numbers, weights = sorted(set(n_neighbors)), sorted(set(push_weight))
    if not numbers or not weights:
        raise InvalidInputError(
            "n_neighbors and push_weight must each name at least one number. Pass some, such as"
            " n_neighbors=(1, 3, 5) and push_weight=(0.5,)."
        )
    for number in numbers:
        check_number("n_neighbors", number, Integral, 1, None)
    for weight in weights:
        check_number("push_weight", weight, Real, 0, 1, open_ends=True)
    check_number("validation_fraction", validation_fraction, Real, 0, 1, open_ends=True)
    check_number("n_splits", n_splits, Integral, 1, None)
    grid = list(product(numbers, weights))

    points = X if is_torch(X) else np.asarray(X)
    labels, random = np.asarray(to_host(y)), check_random_state(random_state)
    errors = np.zeros(len(grid))
    best_maps: list[Any] = [None] * len(grid)
    for _ in range(n_splits):
        drawn = split_points(
            np.arange(len(labels)), labels, validation_fraction, random.randint(SEEDS)
        )
        for place, (error, components) in enumerate(_path(points, drawn, learner, grid)):
            errors[place] += error / n_splits
            best_maps[place] = components
    trials = [TargetTrial(k, w, float(e)) for (k, w), e in zip(grid, errors, strict=True)]
    best = min(
        range(len(grid)),
        key=lambda i: (errors[i], trials[i].n_neighbors, abs(trials[i].push_weight - 0.5)),
    )
    k, weight = grid[best]
    fitted = clone(learner).set_params(n_neighbors=k, push_weight=weight)
    given = fitted.init
    fitted.set_params(init=best_maps[best]).fit(X, labels)
    return TargetChoice(tuple(trials), trials[best], fitted.set_params(init=given))


def _path(
    X: Any, drawn: Any, learner: Any, grid: list[tuple[int, float]]
) -> Iterator[tuple[float, Any]]:
    """For each pair of parameters, the error on the held-out rows, and the map."""
    X_train, X_test = take_rows(X, drawn.X_train), take_rows(X, drawn.X_test)
    model = clone(learner).set_params(tol=max(learner.tol, LOOSE), checkpoint=None)
    for k, weight in grid:
        model.set_params(n_neighbors=k, push_weight=weight)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NearfarWarning)  # the fit to all rows warns of the same
            model.fit(X_train, drawn.y_train)
        mapped, new = (to_host(model.transform(part)) for part in (X_train, X_test))
        voters = min(k, len(mapped))
        error = knn_error(None, mapped, drawn.y_train, new, drawn.y_test, voters)
        yield error, model.components_
        model.set_params(warm_start=True)
