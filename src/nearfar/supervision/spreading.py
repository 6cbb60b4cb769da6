"""Labels of unlabelled points, spread from the labelled ones over a graph of nearest neighbours.

With A the symmetric graph in which each of n points is joined to its k nearest others, D its
degrees, and Y (n, C) the labels as rows of zeros and a one, rows of zeros for unlabelled points:

(1) F = α S F + (1−α) Y,  S = D^−½ A D^−½                                    [ZBLWS04, section 2]

The label of a point is the largest entry of its row of F, and the *confidence* the difference of
the two largest shares of the row's sum: 1 if only one class reaches it, and 0 if two tie.

[ZBLWS04] Zhou, Bousquet, Lal, Weston & Schölkopf, Learning with local and global consistency,
NIPS 16 (2004).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from nearfar.kernels import Array, check_memory, kernels_for, to_host
from nearfar.limits import check_time

Index = NDArray[np.intp]
Matrix = NDArray[np.float64]

NEIGHBORS = 7  # k, as in scikit-learn's LabelSpreading
ALPHA = 0.9  # how much of a point's label its neighbours decide
STEPS = 100  # after which a part of 3e-5 of F is missing
COPIES = 3  # of F at a time


def spread_labels(points: Array, codes: Index, n_classes: int) -> tuple[Index, Matrix]:
    """A class number for every point, and the confidence in it.

    ``codes`` are the class numbers of the labelled points, and −1 for the others. A point that no
    label reaches keeps −1, with confidence 0. Labelled points keep their number, with confidence 1.
    Time is O(n² d) for the graph and O(n k C) for each of 100 steps, memory O(n (k + C)).
    """
    n = len(points)
    check_memory(
        8 * COPIES * n * n_classes,
        f"labels of {n} rows spread over {n_classes} classes",
        "Leave out unlabelled rows",
        codes,
    )
    S = _normalised_graph(points)
    Y = np.zeros((n, n_classes))
    known = np.flatnonzero(codes >= 0)
    Y[known, codes[known]] = 1
    F = Y
    for _ in range(STEPS):
        check_time()
        F = ALPHA * (S @ F) + (1 - ALPHA) * Y  # (1)
    total = F.sum(axis=1)
    second, first = np.partition(F, n_classes - 2, axis=1)[:, -2:].T
    confidence = (first - second) / np.where(total > 0, total, 1)
    spread = np.where(total > 0, F.argmax(axis=1), -1)
    spread[known], confidence[known] = codes[known], 1
    return spread, confidence


def _normalised_graph(points: Array) -> sparse.csr_array:
    """S of (1), (n, n)."""
    n = len(points)
    near = to_host(kernels_for(points).nearest(points, points, min(NEIGHBORS + 1, n))[0])
    heads, tails = np.repeat(np.arange(n), near.shape[1]), near.ravel()
    # Of several equal points a row need not be among its own nearest.
    other = (heads != tails) & (
        np.cumsum(near != np.arange(n)[:, None], axis=1) <= NEIGHBORS
    ).ravel()
    one_way = sparse.csr_array((np.ones(other.sum()), (heads[other], tails[other])), shape=(n, n))
    A = one_way.maximum(one_way.T)
    scale = sparse.diags_array(1 / np.sqrt(np.maximum(A.sum(axis=1), 1)))
    return scale @ A @ scale
