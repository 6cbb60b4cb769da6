"""The pseudo-metric online learning algorithm, as a transformer that learns from a stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.estimators._base import MetricLearner, as_dtype_of
from nearfar.estimators._callbacks import with_callbacks
from nearfar.estimators._online import OnlinePairLearner, factor
from nearfar.kernels import kernels_for
from nearfar.problems.pola import POLAProblem
from nearfar.solvers.pola import MarginProjections
from nearfar.supervision import Pairs

Index = NDArray[np.intp]
Matrix = NDArray[np.float64]

AT_A_TIME = 64  # pairs between two looks at the clock


class POLA(OnlinePairLearner, MetricLearner):
    """Pseudo-metric online learning: a metric and a threshold from near and far pairs.

    Looks at one pair after another. Near pairs should have a squared distance of at most b − 1 and
    far ones of at least b + 1; where a pair breaks this, the metric and b move by the least that
    mends it, and then back to the positive semidefinite matrices. `partial_fit` does so once for
    each pair of a stream of any length, `fit` again and again for pairs that are all at hand. See
    ``docs/algorithms/pola.md`` for the mathematics.

    If some metric keeps all margins, the sum of squared losses on a stream of any length is bounded
    (``squared_loss_``, with a fixed ``scale``). Where none does, as in most real data, the answer
    follows the last pairs: it depends on their order.

    Parameters
    ----------
    beta : float or None, default=None
        Largest loss that is let be, both in `fit` and in `partial_fit`; `fit` ends when no pair has
        a larger one. None corrects any loss, and lets `fit` make ``max_iter`` epochs without a
        warning.
    scale : float or None, default=None
        The length of a pair that weighs the metric and the threshold alike: corrections of longer
        ones change the threshold less. None takes the mean length of the pairs so far, which makes
        the unit of the features indifferent; the paper has 1.
    n_pairs : int or None, default=None
        How many near and far pairs to draw where X are points with labels; None takes all.
    shuffle : bool, default=True
        Whether each epoch of `fit` takes the pairs in a new random order, and `partial_fit` those
        that it makes from labels. Given pairs are never shuffled in `partial_fit`.
    max_iter : int, default=5
        Largest number of epochs of `fit`.
    max_seconds : float or None, default=None
        Largest time of `fit` in seconds. It may end an epoch before all pairs were looked at.
    random_state : int, RandomState instance or None, default=0
        Draws and shuffles pairs. None does so in another way each time.

    Attributes
    ----------
    components_ : ndarray or torch.Tensor of shape (n_components, n_features)
        The map L, its rows sorted by decreasing length, as many as the metric has rank. In a stream
        their number may change.
    matrix_ : ndarray of shape (n_features, n_features)
        M = LᵀL in float64, from which `partial_fit` goes on.
    threshold_ : float
        The distance √b up to which `predict` calls a pair near.
    squared_threshold_ : float
        b.
    n_pairs_seen_ : int
        How many pairs were looked at since learning began, in `fit` once for each epoch.
    n_updates_ : int
        How many of them changed the metric.
    squared_loss_ : float
        Sum of their squared losses, each before its correction: what the mistake bound bounds. A
        pair on the wrong side of the threshold adds at least 1.
    total_length_ : float
        Sum of the lengths of the pairs that were looked at.
    objective_ : float or None
        Sum of the losses of all pairs under the answer, computed in float64. This and what follows,
        up to ``history_``, are there after `fit` only.
        None, as the gap, if it could not be computed within twice ``max_seconds``.
    duality_gap_ : float or None
        0.0 where the objective is zero, which is the least it can be: all margins are kept.
        Otherwise None, because nothing is proved.
    status_ : str
        Why the fit ended: "converged" (no loss above beta), "max_iter", "max_seconds", "stopped"
        (by a callback) or "interrupted".
    n_iter_ : int
        Number of epochs.
    history_ : list of dict
        For each epoch: n_iter, seconds, objective (the sum of the losses when their pairs were
        looked at), largest_loss (of these), n_updates, squared_threshold, residual (0
        where no loss is above beta, else None) and duality_gap, which is None.
    classes_ : ndarray
        The labels, after a fit to labelled points.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of str
        Names of the features, if X had any.

    Notes
    -----
    A pair costs O(d²), a near pair with a loss O(d³) for one eigenvector: about 4 and 70
    microseconds at d = 50. Memory is O(d²) beside the pairs. The work is sequential and happens on
    the host in float64; torch tensors are brought there a few megabytes at a time, and the map goes
    back to their device. Sparse input is refused.

    References
    ----------
    Shalev-Shwartz, Singer & Ng, Online and batch learning of pseudo-metrics, ICML 2004; Weinberger,
    Metric learning with convex optimization, thesis, University of Pennsylvania, 2007, section 2.2.

    Examples
    --------
    >>> import numpy as np
    >>> from nearfar import POLA
    >>> rng = np.random.default_rng(0)
    >>> pairs = rng.normal(size=(500, 2, 5))
    >>> y = np.where(abs(pairs[:, 0, 0] - pairs[:, 1, 0]) < 1, 1, -1)
    >>> model = POLA()
    >>> for first in range(0, 400, 50):  # a stream
    ...     model = model.partial_fit(pairs[first : first + 50], y[first : first + 50])
    >>> model.score(pairs[400:], y[400:]) > 0.9
    True
    """

    def __init__(
        self,
        beta: float | None = None,
        *,
        scale: float | None = None,
        n_pairs: int | None = None,
        shuffle: bool = True,
        max_iter: int = 5,
        max_seconds: float | None = None,
        random_state: Any = 0,
    ) -> None:
        self.beta = beta
        self.scale = scale
        self.n_pairs = n_pairs
        self.shuffle = shuffle
        self.max_iter = max_iter
        self.max_seconds = max_seconds
        self.random_state = random_state

    @with_callbacks
    def fit(self, X: Any, y: Any = None) -> POLA:
        """Learn from pairs that are all at hand; what was learned before is forgotten.

        Parameters
        ----------
        X : array-like, torch.Tensor or Tuples
            Points of shape (n_samples, n_features), pairs of shape (n_pairs, 2, n_features) or
            triplets of shape (n_triplets, 3, n_features), whose first two points are near and
            whose outer two are far.
        y : array-like or None, default=None
            Class labels of points; +1 for near and −1 for far pairs; None for triplets.

        Returns
        -------
        POLA
            The fitted estimator.
        """
        self._fit(X, y)
        return self

    def partial_fit(self, X: Any, y: Any = None) -> POLA:
        """Learn from the next pairs of a stream, each once and in the given order.

        One call with all pairs and a call for each give exactly the same answer. If a call fails or
        is interrupted, nothing of it is learned. The pairs of a call may all be near or far, and
        may contradict earlier ones.

        Parameters
        ----------
        X : array-like, torch.Tensor or Tuples
            As in `fit`; a triplet is its near pair and then its far pair.
        y : array-like or None, default=None
            As in `fit`.

        Returns
        -------
        POLA
            The estimator.
        """
        self._learn(X, y)
        return self

    def _begin(self, pairs: Pairs) -> MarginProjections:
        d = pairs.points.shape[1]
        return MarginProjections(np.zeros((d, d), order="F"), **self._settings())

    def _resume(self, pairs: Pairs) -> MarginProjections:  # noqa: ARG002 - others need them
        return MarginProjections(self.matrix_.copy(order="F"), **self._memory())

    def _visit(self, stream: MarginProjections, pairs: Pairs, order: Index) -> Iterator[Matrix]:
        for X, signs in _problem(pairs).blocks(order):
            for first in range(0, len(X), AT_A_TIME):
                block = slice(first, first + AT_A_TIME)
                yield stream.learn(X[block], signs[block])

    def _attributes(self, stream: MarginProjections, pairs: Pairs) -> dict[str, Any]:
        points = pairs.points[:0]
        kernels = kernels_for(points)
        components = kernels.like(factor(stream.matrix), kernels.double(points))
        return {"components_": as_dtype_of(points, components)}

    def _losses(self, pairs: Pairs) -> Matrix:
        return _problem(pairs).losses(self.matrix_, self.squared_threshold_)


def _problem(pairs: Pairs) -> POLAProblem:
    return POLAProblem(pairs.points, pairs.heads, pairs.tails, pairs.near)
