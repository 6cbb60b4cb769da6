"""The metric that a learner stays near to: the identity, the inverse covariance, or one given."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from nearfar.errors import InvalidInputError
from nearfar.kernels import Array, kernels_for, to_host
from nearfar.linalg import symmetric
from nearfar.problems.covariance import CovarianceProblem
from nearfar.validation import check_choice

Matrix = NDArray[np.float64]

PRIORS = ("identity", "covariance")
ASYMMETRY = 1e-6  # of a given matrix, relative to its largest entry; float32 rounds less


def check_prior(prior: Any, d: int) -> None:
    """Raise unless prior is a word of PRIORS or a positive definite matrix (d, d)."""
    if isinstance(prior, str) or prior is None:
        check_choice("prior", prior, PRIORS, or_else=" or an array")
        return
    A = to_host(prior)
    if A.shape != (d, d) or A.dtype.kind not in "fiu":
        raise InvalidInputError(
            f"prior must be a matrix of numbers of shape ({d}, {d}); got shape {A.shape} of"
            f" {A.dtype}. Give a metric between the features, or one of"
            f" {', '.join(map(repr, PRIORS))}."
        )
    good = bool(np.isfinite(A).all()) and np.abs(A - A.T).max() <= ASYMMETRY * np.abs(A).max()
    if not good or linalg.eigvalsh(symmetric(A.astype(np.float64)))[0] <= 0:
        raise InvalidInputError(
            "prior must be symmetric and positive definite, and finite; the given matrix is not."
            " Add a multiple of the identity, or take the symmetric part."
        )


def prior_map(prior: Any, points: Array) -> Matrix:
    """A map (s, d) whose metric is the checked prior, in float64 on the host.

    It has d rows, or of a singular covariance as many as the points have rank.
    """
    if not isinstance(prior, str):
        return np.asarray(linalg.cholesky(symmetric(to_host(prior).astype(np.float64))))
    if prior == "identity":
        return np.eye(points.shape[1])
    return CovarianceProblem.build(kernels_for(points), points).solution()


def prior_matrix(prior: Any, points: Array) -> Matrix:
    """The matrix (d, d) of a checked prior, in float64 on the host."""
    L = prior_map(prior, points)
    return symmetric(L.T @ L)
