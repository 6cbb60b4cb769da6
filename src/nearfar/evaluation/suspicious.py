"""Which labels are likely to be wrong, by the neighbours of a row and by the proof of a fit.

With o_b and o_a the shares of other labels among the k nearest rows before and after learning, and
w_ijl the dual weights of LMNN's triplets (point, target, impostor),

(1) score_i  = ½ (o_b(i) + o_a(i))
(2) weight_i = Σ_jl w_ijl + Σ_aj w_aji,  as the point and as the impostor.

Rows are ranked by (1), and by (2) where that is equal. (2) alone finds fewer of the labels that
were made wrong on purpose (docs/results/suspicious_labels.md), so that it only breaks ties.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array

from nearfar.errors import InvalidInputError
from nearfar.evaluation.compare import last_step
from nearfar.kernels import to_host
from nearfar.kernels.search import Search
from nearfar.validation import check_number

Floats = NDArray[np.float64]
Index = NDArray[np.intp]


@dataclass(frozen=True)
class SuspiciousLabels:
    """Rows by how suspicious their labels are.

    Attributes
    ----------
    order : ndarray of shape (n_rows,)
        Row numbers, the most suspicious first.
    scores : ndarray of shape (n_samples,)
        The mean of ``before`` and ``after``, from 0 to 1, in the order of the rows of X.
    before, after : ndarray of shape (n_samples,)
        The share of other labels among the nearest rows, by the inputs and by the model.
    weights : ndarray of shape (n_samples,) or None
        The dual weights of the triplets in which a row is the point or the impostor; None for a
        model without them.
    """

    order: Index
    scores: Floats
    before: Floats
    after: Floats
    weights: Floats | None


def suspicious_labels(model: Any, X: Any, y: Any, n_neighbors: int = 10) -> SuspiciousLabels:
    """Rank the training rows by how likely their labels are wrong.

    A label is suspicious if most of the nearest rows have another one, before and after learning.
    Ties are broken by the dual weights of the triplets in which the row is the point or the
    impostor, if the model is an `LMNN` or `KernelLMNN` and has them in ``proof_``: the optimum
    pays most for these rows. It is a list of rows to look at, not a proof that they are wrong.

    Parameters
    ----------
    model : estimator or pipeline
        A fitted model with ``transform``.
    X, y : array-like of shapes (n_samples, n_features) and (n_samples,)
        The rows and labels that it was fitted to, in the same order.
    n_neighbors : int, default=10
        How many neighbours are compared with; fewer if there are no more rows.

    Returns
    -------
    SuspiciousLabels
        Its ``order`` has the row numbers, the most suspicious first.

    Notes
    -----
    Two searches of all rows among all rows: O(n² (d + r)) time.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from nearfar import LMNN
    >>> from nearfar.evaluation import suspicious_labels
    >>> X, y = load_iris(return_X_y=True)
    >>> y[7] = 2  # a setosa that is called virginica
    >>> int(suspicious_labels(LMNN().fit(X, y), X, y).order[0])
    7
    """
    check_number("n_neighbors", n_neighbors, Integral, 1)
    if not hasattr(model, "transform"):
        raise InvalidInputError(
            f"suspicious_labels needs a model that maps rows; {type(model).__name__} has no"
            " transform. Give a learner of one metric, such as LMNN."
        )
    _, codes = np.unique(to_host(y), return_inverse=True)
    inputs = model[:-1].transform(X) if len(getattr(model, "steps", ())) > 1 else X
    points = [check_array(to_host(part), dtype=float) for part in (inputs, model.transform(X))]
    if len(points[0]) != len(codes):
        raise InvalidInputError(
            f"X has {len(points[0])} rows and y has {len(codes)}. Give every row one label."
        )
    weights = triplet_weights(model, codes)
    if weights is None and _has_triplets(model):
        raise InvalidInputError(
            "X and y are not the rows that the model was fitted to: the labels contradict its"
            " triplets. Give the training rows in the order of the fit."
        )
    rows = np.arange(len(codes))
    before, after = (other_labels(part, codes, rows, rows, n_neighbors) for part in points)
    return SuspiciousLabels(*ranked(before, after, weights), before, after, weights)


def ranked(before: Floats, after: Floats, weights: Floats | None) -> tuple[Index, Floats]:
    """The order and the scores (1), ties by the weights (2)."""
    scores = (before + after) / 2  # (1)
    ties = np.zeros(len(scores)) if weights is None else weights
    return np.lexsort((-ties, -scores)), scores


def other_labels(points: Floats, codes: Index, queries: Index, among: Index, k: int) -> Floats:
    """The share of other labels among the k nearest of the rows ``among`` to each query."""
    k = min(k, len(among) - 1)
    near, _ = Search.of(points[among]).nearest(points[queries], k + 1)
    near = among[near]
    first = np.argsort(near == queries[:, None], axis=1, kind="stable")[:, :k]  # never itself
    near = np.take_along_axis(near, first, axis=1)
    shares: Floats = (codes[near] != codes[queries, None]).mean(axis=1)
    return shares


def triplet_weights(model: Any, codes: Index) -> Floats | None:
    """(2) for rows with these class numbers; None if the model has no dual weights for them."""
    if not _has_triplets(model):
        return None
    proof = last_step(model).proof_
    if "targets" not in proof:  # triplets of another kind
        return None
    rows = proof.get("rows", np.arange(len(proof["targets"])))
    if rows.max(initial=-1) >= len(codes) or ("rows" not in proof and len(rows) != len(codes)):
        return None
    point, target, impostor = rows[proof["triplets"]].T
    if (codes[point] != codes[target]).any() or (codes[point] == codes[impostor]).any():
        return None  # other rows than those of the fit, or in another order
    found = np.zeros(len(codes))
    for end in (point, impostor):
        found += np.bincount(end, proof["weights"], minlength=len(codes))  # (2)
    return found


def _has_triplets(model: Any) -> bool:
    return "triplets" in (getattr(last_step(model), "proof_", None) or {})
