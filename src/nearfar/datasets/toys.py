"""The made-up sets on which the papers show what a learned metric can and cannot do.

[weinberger2009] prints the pictures and the errors, not every constant. What it leaves open was
chosen here so that its statements hold for every seed; each function says which constants these
are.

[weinberger2009] Weinberger & Saul, Distance metric learning for large margin nearest neighbor
classification, JMLR 10 (2009).
[weinberger2007] Weinberger, Metric learning with convex optimization, PhD thesis, 2007.
"""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from nearfar.errors import InvalidInputError
from nearfar.validation import check_number

Points = NDArray[np.float64]
Labels = NDArray[np.int64]

N_ARCS = 3  # of each circle, as many as the metrics that separate the circles
HALF_ARC = np.radians(12)
RADIUS_STEP = 0.83  # between the circles, in steps between neighbours on the inner one
JITTER = 0.025  # of the angles, in steps
STRIPE_WIDTH = 0.5  # of the distance between stripes, which is 1
STRIPE_HEIGHT = 100.0
SIDE = 10.0  # of the square


def make_concentric_circles(
    n_samples: int = 48, *, random_state: Any = None
) -> tuple[Points, Labels]:
    """Two circles so close that no single linear metric tells them apart.

    Each point is nearer to the other circle than to its neighbours on its own, so the
    leave-one-out 1-nearest-neighbour error is 100 %. Metrics of their own for two or three
    clusters bring it down to about 21 % and to 0 [weinberger2009, section 5.2 and Fig. 7;
    weinberger2007, Fig. 2.10].

    Parameters
    ----------
    n_samples : int, default=48
        Number of points, a multiple of 6 and at least 12: they are shared out evenly among both
        circles and three arcs.
    random_state : int, RandomState instance or None, default=None
        Turns the circles and jitters the angles.

    Returns
    -------
    X : ndarray of shape (n_samples, 2)
        The points.
    y : ndarray of shape (n_samples,)
        0 on the inner circle, 1 on the outer.

    Notes
    -----
    Chosen here: the points lie on three arcs of 24° with gaps between them, at the same angles on
    both circles, evenly spaced but for a jitter of 2.5 %; the radii differ by 0.83 of the spacing.
    The gaps are needed. On circles without gaps, k-means with two clusters cuts along a diameter,
    the halves are mirror images and the optimal metrics equal, so that two metrics would be no
    better than one.
    """
    check_number("n_samples", n_samples, Integral, 4 * N_ARCS)
    if n_samples % (2 * N_ARCS) != 0:
        raise InvalidInputError(
            f"n_samples must be a multiple of {2 * N_ARCS}; got {n_samples}. Take"
            f" {n_samples - n_samples % (2 * N_ARCS)}."
        )
    random = check_random_state(random_state)
    offsets, step = np.linspace(-HALF_ARC, HALF_ARC, n_samples // (2 * N_ARCS), retstep=True)
    centres = 2 * np.pi * np.arange(N_ARCS) / N_ARCS + random.uniform(0, 2 * np.pi)
    y = np.repeat([0, 1], n_samples // 2)
    angles = np.tile((centres[:, None] + offsets).ravel(), 2)
    angles += step * random.uniform(-JITTER, JITTER, n_samples)
    radii = 1 + RADIUS_STEP * step * y
    return radii[:, None] * np.column_stack([np.cos(angles), np.sin(angles)]), y


def make_zebra_stripes(
    n_samples: int = 2000,
    *,
    n_stripes: int = 10,
    offset: float = 400.0,
    random_state: Any = None,
) -> tuple[Points, Labels]:
    """Vertical stripes of alternating class, in two sets that lie far apart.

    Within a class the horizontal variance is by far the largest, but only the horizontal position
    tells the classes apart. A metric that draws whole classes together (LDA, RCA, MMC) shrinks it
    and is worse than the Euclidean one; one that looks at neighbours (LMNN, NCA) stretches it
    [weinberger2009, section 3.3 and Fig. 2].

    Parameters
    ----------
    n_samples : int, default=2000
        Number of points.
    n_stripes : int, default=10
        Stripes of each set.
    offset : float, default=400.0
        Horizontal distance between the two sets.
    random_state : int, RandomState instance or None, default=None
        Draws set, stripe and position of each point.

    Returns
    -------
    X : ndarray of shape (n_samples, 2)
        The points.
    y : ndarray of shape (n_samples,)
        0 in every other stripe, 1 in those between.

    Notes
    -----
    Chosen here: ten stripes at a distance of 1, each 0.5 wide and 100 high, uniformly filled.
    """
    check_number("n_samples", n_samples, Integral, 1)
    check_number("n_stripes", n_stripes, Integral, 2)
    random = check_random_state(random_state)
    side = random.randint(2, size=n_samples)
    stripe = random.randint(n_stripes, size=n_samples)
    across = random.uniform(0, STRIPE_WIDTH, n_samples)
    along = random.uniform(0, STRIPE_HEIGHT, n_samples)
    return np.column_stack([offset * side + stripe + across, along]), stripe % 2


def make_half_square(n_samples: int = 1000, *, random_state: Any = None) -> tuple[Points, Labels]:
    """Uniform points in [0, 10]², labelled by the half that they lie in, lower or upper.

    Only the vertical direction tells the classes apart. At 1000 points LMNN with one target
    neighbour stretches it by about 2.2 and the horizontal one by about 1.4, and at every number
    of points it misclassifies less of the square than the Euclidean 1-nearest-neighbour rule
    [weinberger2007, Figs. 2.3 and 2.4].

    Parameters
    ----------
    n_samples : int, default=1000
        Number of points.
    random_state : int, RandomState instance or None, default=None
        Draws the points.

    Returns
    -------
    X : ndarray of shape (n_samples, 2)
        The points.
    y : ndarray of shape (n_samples,)
        0 in the lower half, 1 in the upper.
    """
    check_number("n_samples", n_samples, Integral, 1)
    X = check_random_state(random_state).uniform(0, SIDE, (n_samples, 2))
    return X, (X[:, 1] > SIDE / 2).astype(np.int64)
