"""The choice of target neighbours and push weight for LMNN on held-out rows.

The thesis sets the number of target neighbours by validation [weinberger2007, section 2.1.6]. To
compare errors on held-out rows, a metric near the optimum is enough, and metrics of different
numbers of target neighbours differ less than the votes of as many neighbours. So one metric is
learned for all numbers, to a large gap and from few rows, since the search for impostors grows with
their square; all rows vote. What seems best by its votes is learned itself, until the best is one
that was. Such a trial begins where the one before ended, and learns from a few of the k target
neighbours of each row, drawn at random: the objective is a sum over target neighbours, and these
few give an unbiased estimate of it up to a factor.

[weinberger2007] Weinberger, Metric learning with convex optimization, PhD thesis, 2007.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils import check_random_state

from nearfar.errors import InvalidInputError, NearfarWarning
from nearfar.estimators._input import class_weight_among, validated_points
from nearfar.estimators._shrinkage import framed
from nearfar.estimators._start import central_point
from nearfar.evaluation.knn import mistakes_of_counts
from nearfar.evaluation.split import Split, split_points
from nearfar.kernels import take_rows, to_host
from nearfar.supervision import class_order, target_table
from nearfar.validation import check_number

Index = NDArray[np.intp]
Mask = NDArray[np.bool_]

TRIED = (1, 3, 5, 10)
LOOSE = 0.3  # relative gap that is enough to compare errors on held-out rows
DRAWN = 3  # target neighbours of each row from which a trial learns
LEARNED_ROWS = 1000  # a trial learns from at least so many rows, if there are as many,
LEARNED_SHARE = 0.1  # from at least this share of them,
LEARNED_PER_FEATURE = 8  # and from at least so many for each feature
SEEDS = 2**31 - 1


@dataclass(frozen=True)
class TargetTrial:
    """One pair of parameters.

    Attributes
    ----------
    n_neighbors : target neighbours of each point, and neighbours that vote
    push_weight : weight of the push against impostors
    error : share of the held-out rows that are classified wrongly, the mean over the splits
    learned : whether a metric was learned with them; if not, neighbours voted under the metric
        for another number of targets, and made no fewer errors than the best
    """

    n_neighbors: int
    push_weight: float
    error: float
    learned: bool = True


@dataclass(frozen=True)
class TargetChoice:
    """What was tried, and the learner with the best parameters; ``str`` shows it as a table.

    Attributes
    ----------
    trials : one for each pair of parameters that was tried
    best : the trial with the smallest error
    learner : a copy of the learner with these parameters, fitted to all rows unless ``refit=False``
    """

    trials: tuple[TargetTrial, ...]
    best: TargetTrial
    learner: Any

    def __str__(self) -> str:
        lines = [f"{'n_neighbors':>11} {'push_weight':>11} {'error':>7}"]
        lines += [
            f"{trial.n_neighbors:>11} {trial.push_weight:>11.2g} {trial.error:>7.2%}"
            + ("  <- best" if trial is self.best else "" if trial.learned else "  not learned")
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
    refit: bool = True,
    random_state: Any = None,
) -> TargetChoice:
    """Choose the target neighbours of LMNN, and its push weight, on held-out rows.

    For each push weight, a metric is learned from the other rows, roughly: to a gap of 0.3, with
    the number of target neighbours that is closest to 3, and from a tenth of the rows, but at least
    1000 and at least 8 for each feature, drawn at random. The held-out rows are then classified by
    each number of neighbours, among all rows that are not held out. Then a metric is
    learned with the best pair of parameters itself, from 3 of the target neighbours of each row,
    and its error replaces the first one. This is repeated until the best pair has an error that was
    measured so. Of equal errors the smaller number of neighbours wins, then the push weight closest
    to one half. Finally the learner is fitted with these to all rows, as by its own ``fit``.

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
    refit : bool, default=True
        Whether to fit the learner with the best parameters to all rows.
    random_state : int, RandomState instance or None, default=None
        Chooses the rows that are held out, and draws rows and target neighbours to learn from.

    Returns
    -------
    TargetChoice
        The errors, the best parameters and the learner with them.

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
    if learner.unlabeled_weight is not None:
        raise InvalidInputError(
            "the learner has an unlabeled_weight, and rows without a label cannot be classified"
            " rightly or wrongly. Set it to None and pass the labelled rows."
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
    points = validated_points(clone(learner), X, reset=True)
    labels, random = np.asarray(to_host(y)), check_random_state(random_state)
    rows = np.arange(len(labels))
    splits = [
        split_points(rows, labels, validation_fraction, random.randint(SEEDS))
        for _ in range(n_splits)
    ]
    paths = [_Path(points, split, learner, numbers[-1], random) for split in splits]
    trials, best = _tried(paths, numbers, weights)
    chosen = clone(learner).set_params(n_neighbors=best.n_neighbors, push_weight=best.push_weight)
    return TargetChoice(trials, best, chosen.fit(X, labels) if refit else chosen)


def _tried(
    paths: list[_Path], numbers: list[int], weights: list[float]
) -> tuple[tuple[TargetTrial, ...], TargetTrial]:
    """All trials in the order of ``numbers`` and ``weights``, and the best of them."""
    usual = min(numbers, key=lambda k: (abs(k - DRAWN), k))
    trials: dict[tuple[int, float], TargetTrial] = {}
    for weight in weights:
        for k, error in zip(numbers, _errors(paths, usual, weight, numbers), strict=True):
            trials[k, weight] = TargetTrial(k, weight, error, learned=k == usual)
    while True:
        best = min(
            trials.values(),
            key=lambda t: (t.error, t.n_neighbors, abs(t.push_weight - 0.5), t.push_weight),
        )
        if best.learned:
            return tuple(trials[k, weight] for k in numbers for weight in weights), best
        k, weight = best.n_neighbors, best.push_weight
        trials[k, weight] = TargetTrial(k, weight, _errors(paths, k, weight, [k])[0])


def _errors(paths: list[_Path], k: int, weight: float, voters: list[int]) -> list[float]:
    """Mean errors by the votes of so many neighbours under the metrics with k targets."""
    for path in paths:
        path.learn(k, weight)
    found = [
        np.concatenate(masks) for masks in zip(*(p.mistakes(voters) for p in paths), strict=True)
    ]
    return [float(mistakes.mean()) for mistakes in found]


class _Path:
    """The trials on one split: each starts from the metric of the one before."""

    def __init__(self, X: Any, rows: Split, learner: Any, most: int, random: Any) -> None:
        """``rows`` are row numbers of X, and ``most`` is the largest number of neighbours."""
        self.X_train, self.X_test = take_rows(X, rows.X_train), take_rows(X, rows.X_test)
        self.y_train, self.y_test = rows.y_train, rows.y_test
        self.learned = np.arange(len(self.y_train))
        n, d = len(self.y_train), self.X_train.shape[-1]
        count = max(LEARNED_ROWS, round(n * LEARNED_SHARE), LEARNED_PER_FEATURE * d)
        if count < n:
            few = split_points(self.learned, self.y_train, 1 - count / n, random.randint(SEEDS))
            self.learned = few.X_train
        self.model = clone(learner).set_params(
            tol=max(learner.tol, LOOSE),
            checkpoint=None,
            class_weight=class_weight_among(learner.class_weight, self.y_train[self.learned]),
        )
        self.most, self.random = most, random
        self.nearest: Index | None = None  # of the same class, (n, most)

    def learn(self, k: int, weight: float) -> None:
        """A metric with k targets, from the one before if there is one."""
        if self.model.warm_start:
            self._in_prior()
        X, y = take_rows(self.X_train, self.learned), self.y_train[self.learned]
        self.model.set_params(n_neighbors=k, push_weight=weight)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NearfarWarning)  # the fit to all rows warns of the same
            targets = self._drawn(X, y, k) if self.model.warm_start and k > DRAWN else None
            self.model.fit(X, y, target_neighbors=targets)
        self.model.set_params(warm_start=True)

    def mistakes(self, voters: list[int]) -> list[Mask]:
        """The held-out rows that so many neighbours under the last metric misclassify."""
        mapped, new = (to_host(self.model.transform(part)) for part in (self.X_train, self.X_test))
        return mistakes_of_counts(mapped, self.y_train, new, self.y_test, voters)

    def _in_prior(self) -> None:
        """Take the points where the distance that the last trial kept is Euclidean.

        That distance takes longer to choose than a trial to learn.
        """
        prior = self.model.prior_components_
        if prior is None:
            return
        centre = to_host(central_point(self.X_train))
        self.X_train, self.X_test = (framed(X, prior, centre) for X in (self.X_train, self.X_test))
        components = to_host(self.model.components_) @ np.linalg.pinv(prior)
        self.model.set_params(shrinkage=self.model.shrinkage_)
        self.model.components_, self.model.prior_components_ = components, None

    def _drawn(self, X: Any, y: Any, k: int) -> Index:
        """Row numbers of a few of the k nearest of the same class, (n, DRAWN); -1 for none."""
        if self.nearest is None:
            self.nearest = target_table(X, class_order(y, "LMNN"), self.most)
        nearest = self.nearest[:, :k]
        keys = np.where(nearest < 0, np.inf, self.random.uniform(size=nearest.shape))
        return np.take_along_axis(nearest, np.argsort(keys, axis=1)[:, :DRAWN], axis=1)
