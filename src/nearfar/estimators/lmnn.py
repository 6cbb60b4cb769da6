"""Large margin nearest neighbours as a scikit-learn transformer."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearfar.errors import InvalidInputError
from nearfar.estimators._base import MetricLearner
from nearfar.estimators._callbacks import CallbackObserver, with_callbacks
from nearfar.estimators._large_margin import LargeMarginLearner, taken, warn_of_coinciding
from nearfar.estimators._lmnn_descent import Start
from nearfar.estimators._lmnn_passes import PASS_WIDTH, Passes
from nearfar.estimators._proofs import Proof
from nearfar.estimators._start import given_map, host, without_dead_features
from nearfar.kernels import Array, kernels_for, one_pool
from nearfar.linalg import pad_or_trim_rows
from nearfar.solvers import Iterate, Status
from nearfar.supervision import ClassOrder
from nearfar.supervision.labels import check_class_sizes
from nearfar.validation import check_choice, check_number

Matrix = NDArray[np.float64]

INITS = ("auto", "identity", "pca", "lda")
WARM_WIDTH = 0.02  # of the smoothed hinge, in margins, near an optimum


class LMNN(LargeMarginLearner, MetricLearner):
    """Large margin nearest neighbours: a metric for k-nearest-neighbour classification.

    Pulls each point's target neighbours close and pushes points of other classes out of a unit
    margin around them: the minimum over M = LᵀL of
    ``(1 - push_weight) Σ D(i, j) + push_weight Σ [1 + D(i, j) - D(i, l)]₊`` with D the squared
    learned distance, j the target neighbours of i, and l all points of other classes.

    For a square metric the problem is convex, and ``duality_gap_`` proves how close the answer is
    to the optimum. See ``docs/algorithms/lmnn.md`` for the mathematics.

    Parameters
    ----------
    n_neighbors : int, default=3
        Target neighbours of each point. A class with fewer members uses what it has.
    push_weight : float, default=0.5
        Weight of the push against impostors, between 0 and 1 (the papers' mu).
    n_components : int or None, default=None
        Rows of the map. None learns the full metric; its map then has as many rows as the metric
        has rank. If the metric has less rank than asked for, the last rows are zero.
    reduce : {"learn", "project"}, default="learn"
        How to get fewer rows: "learn" a rectangular map (not convex), or "project" the full
        metric on its leading directions.
    n_passes : int, default=1
        How often to learn. Each further pass chooses the target neighbours anew, as the nearest
        of the class under the metric of the pass before. With ``validation_fraction`` it is the
        most passes that are made: they end when one does not lower the held-out error.
    init : {"auto", "identity", "pca", "lda"} or array of shape (rows, n_features), default="auto"
        Where to start; it is brought to its best scale first. It decides the speed for a full
        metric, and the answer for a learned rectangular map. "auto" weighs directions by how far
        apart random points are compared with target neighbours for a full metric, or is the
        identity if held-out rows prefer that; for a rectangular map it is LDA where that has enough
        directions, else PCA.
    validation_fraction : float or None, default=None
        Share of the rows of each class to hold out. Learning stops when their k-nearest-neighbour
        error no longer falls, and the map with the smallest error of all passes is kept.
    tol : float, default=1e-3
        Certified relative duality gap at which to stop; for a learned rectangular map, the
        estimated relative decrease that is left.
    max_iter : int, default=1000
        Largest number of iterations, of all passes together.
    max_seconds : float or None, default=None
        Largest time in seconds, of all passes together.
    memory_limit : float or None, default=None
        Gigabytes that may be used; None is all memory of the machine or the device. What needs
        more is refused before it is allocated.
    warm_start : bool, default=False
        Start from the map of the last fit; its first pass chooses target neighbours among the
        inputs, as always.
    checkpoint : path or None, default=None
        File to write the state to, about twice a second, and to continue from if it exists. It is
        removed when the fit ends by itself.
    random_state : int, RandomState instance or None, default=None
        Chooses the held-out rows.

    Attributes
    ----------
    components_ : ndarray or torch.Tensor of shape (n_components, n_features)
        The map L, its rows sorted by decreasing length.
    objective_ : float or None
        The papers' objective, over all impostors, computed from the data in float64; with
        ``reduce="project"`` that of the full metric. It belongs to the target neighbours of the
        pass whose map is kept, and so does ``duality_gap_``.
        None, as the gap, if it could not be computed within twice ``max_seconds``.
    duality_gap_ : float or None
        Proved bound on (objective − optimum) relative to the objective, or to 1 if that is larger;
        None for a learned rectangular map.
    proof_ : dict or None
        What proves ``duality_gap_``, for `nearfar.verify`: the target neighbours, and the triplets
        whose dual weight is not zero with these weights, as arrays of row numbers. None where all
        points are equal. It takes 20 bytes a triplet.
    status_ : str
        Why the fit ended: "converged", "max_iter", "max_seconds", "stalled", "stopped" (by a
        callback), "early_stopped" (by validation) or "interrupted".
    n_iter_ : int
        Number of iterations, of all passes together.
    n_passes_ : int
        The passes behind ``components_``.
    target_components_ : ndarray, torch.Tensor or None
        The map under which the last of these passes chose the target neighbours, of shape
        (rows, n_features); None for the first pass, which chooses among the inputs.
    history_ : list of dict
        For each iteration: n_iter, seconds, objective (over the triplets at hand), residual (the
        gap over these, or for a map of few rows the estimated relative decrease that is left; None
        where not computed), duality_gap (certified, over all triplets; None where not computed),
        active_triplets, searched (whether all pairs were searched), pass, and at some iterations
        rank and validation_error.
    classes_ : ndarray
        The labels.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of str
        Names of the features, if X had any.

    Notes
    -----
    With n points, d features, rank r and m pairs at hand: an iteration costs O(m r + n d r), a
    look at the gap every few iterations O(m d + n d² + d³), and a full search, ever more rarely,
    O(n² r). Memory is O(n d + d² + m). Sparse input is refused.

    References
    ----------
    Weinberger & Saul, Distance metric learning for large margin nearest neighbor classification,
    JMLR 10 (2009).

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from nearfar import LMNN
    >>> X, y = load_iris(return_X_y=True)
    >>> lmnn = LMNN().fit(X, y)
    >>> lmnn.status_, lmnn.duality_gap_ <= 1e-3
    ('converged', True)
    >>> lmnn.transform(X).shape[0]
    150
    """

    def __init__(
        self,
        n_neighbors: int = 3,
        push_weight: float = 0.5,
        n_components: int | None = None,
        *,
        reduce: str = "learn",
        n_passes: int = 1,
        init: str | ArrayLike = "auto",
        validation_fraction: float | None = None,
        tol: float = 1e-3,
        max_iter: int = 1000,
        max_seconds: float | None = None,
        memory_limit: float | None = None,
        warm_start: bool = False,
        checkpoint: Any = None,
        random_state: Any = None,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.push_weight = push_weight
        self.n_components = n_components
        self.reduce = reduce
        self.n_passes = n_passes
        self.init = init
        self.validation_fraction = validation_fraction
        self.tol = tol
        self.max_iter = max_iter
        self.max_seconds = max_seconds
        self.memory_limit = memory_limit
        self.warm_start = warm_start
        self.checkpoint = checkpoint
        self.random_state = random_state

    @with_callbacks
    def fit(self, X: Any, y: Any, target_neighbors: ArrayLike | None = None) -> LMNN:
        """Learn the metric.

        Parameters
        ----------
        X : array-like or torch.Tensor of shape (n_samples, n_features)
            The points. Float32 stays float32; tensors are computed on their device.
        y : array-like of shape (n_samples,)
            Class labels: numbers, strings, booleans or categories.
        target_neighbors : array-like of int of shape (n_samples, k) or None, default=None
            Row numbers of the neighbours that each point should have, of its own class; -1 for
            none. By default the ``n_neighbors`` nearest of the same class, as always after the
            first pass.

        Returns
        -------
        LMNN
            The fitted estimator.
        """
        X, labels = self._validated_with_labels(X, y)
        self._check_parameters()
        with one_pool():
            return self._fit(X, y, labels, target_neighbors)

    def _fit(self, X: Array, y: Any, labels: ClassOrder, target_neighbors: Any) -> LMNN:
        given = self._given_start()
        if target_neighbors is not None:
            target_neighbors = host(target_neighbors)
            if self.validation_fraction is not None:
                raise InvalidInputError(
                    "target_neighbors and validation_fraction cannot be used together: held-out"
                    " rows would be missing from the neighbours. Leave one of them out."
                )
        chooses = target_neighbors is None or self.n_passes > 1
        check_class_sizes(labels, self.n_neighbors if chooses else None, type(self).__name__)
        order, part, held_out = self._split_rows(labels)
        live = without_dead_features(X)
        points = taken(live, order)
        settings = [target_neighbors, self.n_components, self.reduce, self.n_passes]
        checkpoint = self._opened_checkpoint(self.checkpoint, points, part, *settings)
        validate = None if held_out is None else (taken(live, held_out), labels.codes[held_out])
        passes = Passes(self, points, part, target_neighbors, validate, checkpoint, order)
        if passes.descent.problem.P.size == 0:
            return self._store_without_variation(points, part, passes.descent.problem.edges[0])

        def attributes(iterate: Iterate) -> dict[str, Any]:
            return {"components_": self._placed(passes.descent.components(iterate), points)}

        callbacks = CallbackObserver(self, X, y, self.max_iter, attributes)
        ending = passes.run(given, [callbacks])
        kept = ending.kept
        self.components_ = self._placed(kept.components, points)
        self.n_passes_, self.target_components_ = kept.number, None
        if kept.target_components is not None:
            self.target_components_ = kernels_for(points).like(kept.target_components, points)
        self.proof_: Proof | None = kept.proof
        warn_of_coinciding(kept.n_coinciding)
        self._store_ending(
            ending.status, kept.objective, kept.duality_gap, ending.history, ending.before
        )
        if checkpoint is not None and ending.status in (Status.CONVERGED, Status.EARLY_STOPPED):
            checkpoint.remove()
        callbacks.finish(lambda: {"components_": self.components_})
        return self

    # -- before ------------------------------------------------------------------------------

    def _check_parameters(self) -> None:
        d = self.n_features_in_
        self._check_shared_parameters()
        if self.n_components is not None:
            check_number("n_components", self.n_components, Integral, 1, d)
        check_choice("reduce", self.reduce, ("learn", "project"))
        check_number("n_passes", self.n_passes, Integral, 1, None)
        if isinstance(self.init, str) or self.init is None:
            check_choice("init", self.init, INITS, or_else=" or an array")

    @property
    def _learns_rows(self) -> int | None:
        """The rows of a map that is learned with a fixed rank, or None for the full metric."""
        if self.reduce == "learn" and self.n_components not in (None, self.n_features_in_):
            return int(self.n_components)
        return None

    def _given_start(self) -> Start | None:
        """The map to start from, if the user gave one."""
        d, rows = self.n_features_in_, self._learns_rows
        continues = bool(self.warm_start) and hasattr(self, "components_")
        if continues:
            given, source, remedy = self.components_, "the last fit", "Set warm_start=False."
        elif not isinstance(self.init, str):
            given, source, remedy = self.init, "init", "Correct it, or leave it out."
        else:
            return None
        start = given_map(given, rows, d, source, remedy)
        if continues:  # the map of a later pass is that of other targets, and not as near
            width = WARM_WIDTH if self.n_passes_ == 1 else PASS_WIDTH
            return Start.near(start, width)
        return Start(start / np.abs(start).max())

    # -- after -------------------------------------------------------------------------------

    def _placed(self, components: Matrix, points: Array) -> Array:
        """A map with the rows that were asked for, where the points live."""
        return kernels_for(points).like(pad_or_trim_rows(components, self.n_components), points)

    def _store_without_variation(self, points: Array, labels: ClassOrder, heads: Array) -> LMNN:
        """All points are equal: the identity is as good as any other metric."""
        objective = self._objective_without_variation(labels, heads)
        d = self.n_features_in_
        identity = np.eye(self.n_components or d, d)
        self.components_ = kernels_for(points).like(identity, points)
        self.n_passes_, self.target_components_, self.proof_ = 1, None, None
        gap = 0.0 if self._learns_rows is None else None
        self._store_ending(Status.CONVERGED, objective, gap, [])
        return self

    def _target_space(self, X: Array) -> Array:
        """Points whose Euclidean distances choose the target neighbours."""
        if self.target_components_ is None:
            return X
        return kernels_for(X).apply(X, host(self.target_components_))
