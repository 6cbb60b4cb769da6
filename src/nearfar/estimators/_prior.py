"""The metric that a learner stays near to, and the solution of a problem beside it."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from nearfar.errors import InvalidInputError
from nearfar.estimators._shrinkage import AUTO_OF_PRIOR, chosen_prior
from nearfar.estimators._training import Training
from nearfar.kernels import Array, kernels_for, take_rows, to_host
from nearfar.limits import fit_clock
from nearfar.linalg import pad_or_trim_rows, symmetric
from nearfar.problems.covariance import CovarianceProblem
from nearfar.problems.logdet import LogDetProblem
from nearfar.problems.whitening import rounded_like
from nearfar.solvers import Iterate, Status
from nearfar.solvers.newton_cg import newton_cg
from nearfar.supervision import ClassOrder
from nearfar.validation import check_choice, check_number

Matrix = NDArray[np.float64]

PRIORS = ("identity", "covariance")
VOTERS = 3  # neighbours whose mistakes choose it by labels
ASYMMETRY = 1e-6  # of a given matrix, relative to its largest entry; float32 rounds less


def check_prior(prior: Any, d: int, *others: str) -> None:
    """Raise unless prior is a word of PRIORS, or another, or a positive definite matrix (d, d)."""
    words = (*others, *PRIORS)
    if isinstance(prior, str) or prior is None:
        check_choice("prior", prior, words, or_else=" or an array")
        return
    A = to_host(prior)
    if A.shape != (d, d) or A.dtype.kind not in "fiu":
        raise InvalidInputError(
            f"prior must be a matrix of numbers of shape ({d}, {d}); got shape {A.shape} of"
            f" {A.dtype}. Give a metric between the features, or one of"
            f" {', '.join(map(repr, words))}."
        )
    good = bool(np.isfinite(A).all()) and np.abs(A - A.T).max() <= ASYMMETRY * np.abs(A).max()
    if not good or linalg.eigvalsh(symmetric(A.astype(np.float64)))[0] <= 0:
        raise InvalidInputError(
            "prior must be symmetric and positive definite, and finite; the given matrix is not."
            " Add a multiple of the identity, or take the symmetric part."
        )


def prior_of_labels(prior: Any, points: Array, labels: ClassOrder | None) -> Matrix | None:
    """For "auto" and labelled points a map (d, d) of the distance of `chosen_prior`, else None.

    It is scaled so that the diagonal of its inverse metric has a mean of 1, as that of the identity
    has, and features that do not vary have a row of the identity.
    """
    if not (isinstance(prior, str) and prior == "auto") or labels is None:
        return None
    chosen = chosen_prior(take_rows(points, labels.order), labels.codes[labels.order], VOTERS)
    if chosen is None:
        return None
    W, inverse = chosen
    live = np.abs(W).max(axis=0) > 0
    unit = np.sqrt((inverse[live] ** 2).sum(axis=1).mean())
    return np.vstack([W * unit, np.eye(len(live))[~live]])


def check_violation_weight(weight: Any) -> None:
    """Raise unless it is "auto" or a number above 0."""
    if isinstance(weight, str):
        check_choice("violation_weight", weight, ("auto",), or_else=" or a number above 0")
    else:
        check_number("violation_weight", weight, Real, 0, None, open_ends=True)


def weight_beside_prior(n: int, pull: float) -> float:
    """The weight of a loss beside a divergence from a prior that labels chose; 1 for no pull.

    ``pull`` is the sum of slope times length over the near pairs at the prior, so that their pull
    on a metric is pull / d times that of the prior in each of d directions. It becomes n / 16d
    times, as for the learners that keep a share of that distance: however many pairs n points have,
    they know no more.
    """
    return n / (AUTO_OF_PRIOR * pull) if pull > 0 else 1.0


def prior_map(prior: Any, points: Array, weights: Matrix | None = None) -> Matrix:
    """A map (s, d) whose metric is the checked prior, in float64 on the host; I for "auto".

    Weights of the points count in their covariance. The map has d rows, or of a singular covariance
    as many as the points have rank.
    """
    if not isinstance(prior, str):
        return np.asarray(linalg.cholesky(symmetric(to_host(prior).astype(np.float64))))
    if prior in ("auto", "identity"):
        return np.eye(points.shape[1])
    return CovarianceProblem.build(kernels_for(points), points, weights).solution()


def map_near_prior(
    prior: Any, points: Array, labels: ClassOrder | None
) -> tuple[Matrix, Matrix | None]:
    """`prior_of_labels`, else `prior_map`; and the former alone, which may be None."""
    chosen = prior_of_labels(prior, points, labels)
    return prior_map(prior, points) if chosen is None else chosen, chosen


def prior_matrix(prior: Any, points: Array, weights: Matrix | None = None) -> Matrix:
    """The matrix (d, d) of a checked prior, in float64 on the host."""
    L = prior_map(prior, points, weights)
    return symmetric(L.T @ L)


def solve_near_prior(
    problem: LogDetProblem, points: Array, training: Training, n_components: int | None
) -> tuple[dict[str, Any], Matrix, Status, float | None, float | None]:
    """Newton's method on a problem near a prior.

    Returns the attribute ``components_``, the map with all its rows, why the run ended, and
    objective and gap of that map, as it was rounded to the type of the points; None if there was no
    time for them.
    """

    def fitted(L: Matrix) -> dict[str, Any]:
        rows = pad_or_trim_rows(L, n_components)
        return {"components_": kernels_for(points).like(rows, points)}

    def attributes(iterate: Iterate) -> dict[str, Any]:
        return fitted(problem.components(iterate.point))

    start = problem.start
    solution = training.run(newton_cg(problem, start), attributes, start=Iterate(start, np.inf))
    whole = rounded_like(problem.components(solution.iterate.point), points)
    found = fit_clock().in_time(lambda: problem.objective_and_gap(whole)) or (None, None)
    return fitted(whole), whole, solution.status, *found
