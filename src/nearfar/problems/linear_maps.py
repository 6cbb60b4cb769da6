"""Maps that follow from scatter matrices: standardised features, principal components, LDA.

With n rows in C classes, W their scatter about the means of their classes, B that of these means,
each counted for its rows, and T = W + B the scatter of all rows about their mean:

(1) standardised  L = diag(n / T_jj)^(1/2), and 1 for features that do not vary
(2) principal     T v = (n − 1) λ v with ‖v‖ = 1, λ descending: rows v, or v / √λ if whitened
(3) LDA           B v = μ W v with vᵀWv = n, μ descending: rows v of the C − 1 first

These are the maps of scikit-learn's StandardScaler, PCA and LinearDiscriminantAnalysis, which need
all rows in memory. (Older versions have n − C for n, another unit.)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearfar.blocks.scatter import Scatter
from nearfar.linalg import eigh, symmetric
from nearfar.problems.covariance import CovarianceProblem
from nearfar.problems.rca import leading_directions

Matrix = NDArray[np.float64]

NEGLIGIBLE = 1e-8  # μ, relative to the largest, of directions that separate no classes


def standard_map(rows: Scatter) -> Matrix:
    """(1), for rows in one group."""
    variances = np.diag(rows.within) / rows.weight
    return np.diag(1 / np.sqrt(np.where(variances > 0, variances, 1.0)))


def principal_map(rows: Scatter, n_components: float | None, *, whiten: bool) -> Matrix:
    """(2), for rows in one group: so many rows, or those of a share of the variance below 1."""
    covariance = symmetric(rows.within) / (rows.weight - 1)
    deviations, vectors = leading_directions(covariance, n_components)
    return np.asarray((vectors / deviations if whiten else vectors).T)


def discriminant_map(rows: Scatter, n_components: int | None) -> Matrix:
    """(3), for rows grouped by class."""
    within = symmetric(rows.within) / rows.weight
    white = CovarianceProblem.of_covariance(within, unit_features=True).white
    values, vectors = eigh(symmetric(white @ rows.between @ white.T))
    values, vectors = values[::-1], vectors[:, ::-1]
    most = min(len(rows.groups) - 1, int((values > NEGLIGIBLE * values[0]).sum()))
    kept = most if n_components is None else min(n_components, most)
    return np.asarray(vectors[:, :kept].T @ white)
