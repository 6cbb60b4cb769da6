"""Numbers as supervision: points are near if their numbers are."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import column_or_1d

from nearfar.errors import InvalidInputError
from nearfar.kernels import is_torch, kernels_for, to_host
from nearfar.supervision.pairs import drawn, equal_points
from nearfar.supervision.tuples import Tuples
from nearfar.validation import check_in_memory, check_number

Index = NDArray[np.intp]
Numbers = NDArray[np.float64]


def make_ranked_triplets(
    X: Any, y: Any, n_triplets: int = 10_000, *, random_state: Any = None
) -> Tuples:
    """Draw distinct triplets of points with numbers, by which of two numbers is nearer to a third.

    `LMNN`, `SCML` and `LSML` learn from them a metric under which points with near numbers are
    near, of which only the order of distances counts.

    Parameters
    ----------
    X : array-like, DataFrame or torch.Tensor of shape (n_samples, n_features)
        The points.
    y : array-like of shape (n_samples,)
        A number for each point.
    n_triplets : int, default=10000
        How many, or all if there are fewer.
    random_state : int, RandomState instance or None, default=None
        Draws the triplets and their order.

    Returns
    -------
    Tuples of shape (m, 3, n_features)
        Rows of X, in random order: a point, and two others of which the number of the first is
        nearer to its own. Triplets are left out if both are equally near, or if the first point
        equals one of the others; so there may be fewer than asked for.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from nearfar import make_ranked_triplets
    >>> X, y = load_diabetes(return_X_y=True)
    >>> triplets = make_ranked_triplets(X, y, 100, random_state=0)
    >>> a, b, c = y[triplets.indices].T
    >>> bool((abs(a - b) < abs(a - c)).all())
    True
    """
    name = "make_ranked_triplets"
    check_in_memory(X)
    points = X if is_torch(X) else check_array(X, dtype=[np.float64, np.float32])
    numbers, n = target_numbers(y, len(points), name), len(points)
    check_number("n_triplets", n_triplets, Integral, 1)
    if n < 3:
        raise InvalidInputError(f"{name} needs at least three points; got {n}. Add points.")
    random, each = check_random_state(random_state), (n - 1) * (n - 2) // 2
    codes = random.permutation(drawn(min(n_triplets, n * each), n * each, random))
    first, pair = np.divmod(codes, each)
    others = _pairs_of_rows(pair)  # of the n - 1 rows beside the first
    others += others >= first[:, None]
    lengths = np.abs(numbers[others] - numbers[first][:, None])
    far_first = lengths[:, 0] > lengths[:, 1]
    others[far_first] = others[far_first, ::-1]
    indices = np.column_stack([first, others])
    plain = kernels_for(points).detached(points)
    same = equal_points(plain)[indices]
    useful = (lengths[:, 0] != lengths[:, 1]) & (same[:, :1] != same[:, 1:]).all(axis=1)
    return Tuples(X, indices[useful])


def target_numbers(y: Any, n_points: int, name: str) -> Numbers:
    """Validate a finite number for each point; in float64."""
    if y is None:
        raise InvalidInputError(
            f"{name} requires y to be passed, but the target y is None. Pass a number for each row."
        )
    numbers = column_or_1d(to_host(y), warn=True)
    if len(numbers) != n_points:
        raise InvalidInputError(
            f"{name} needs a number for each row; X has {n_points} rows and y has"
            f" {len(numbers)}. Check that they belong together."
        )
    try:
        numbers = np.asarray(numbers, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"{name} learns from numbers; y holds {numbers.dtype}. For class labels take NCA or"
            " LMNN."
        ) from error
    bad = np.flatnonzero(~np.isfinite(numbers))
    if len(bad):
        raise InvalidInputError(
            f"{name} needs a finite number for every row; y has NaN or infinity in row {bad[0]}"
            f" ({len(bad)} in all). Drop or impute these rows.",
            bad,
        )
    return np.asarray(numbers)


def _pairs_of_rows(codes: Index) -> Index:
    """Rows i < j (m, 2) of the pairs with these numbers, j (j − 1) / 2 + i."""
    high = ((1 + np.sqrt(1 + 8.0 * codes)) / 2).astype(np.intp)
    high -= high * (high - 1) // 2 > codes  # the root may be rounded up
    return np.stack([codes - high * (high - 1) // 2, high], axis=1)
