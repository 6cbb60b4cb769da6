"""Large margin nearest neighbours as a scikit-learn transformer."""

from __future__ import annotations

import time
from dataclasses import replace
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state

from nearfar.errors import ConvergenceWarning, DataWarning, InvalidInputError, warn
from nearfar.estimators._base import MetricLearner
from nearfar.estimators._callbacks import CallbackObserver, with_callbacks
from nearfar.estimators._lmnn_descent import Descent
from nearfar.estimators._parameters import check_choice, check_number
from nearfar.estimators._start import host, robust_centre
from nearfar.estimators._validation import HeldOutError, held_out_rows
from nearfar.kernels import Array, kernels_for, one_pool
from nearfar.linalg import canonical_factor
from nearfar.problems.lmnn import relative_gap
from nearfar.solvers import Iterate, Observer, Solution, Status
from nearfar.solvers.checkpoint import Checkpoint, fingerprint
from nearfar.supervision import ClassOrder, class_order
from nearfar.supervision.labels import check_class_sizes

Matrix = NDArray[np.float64]

INITS = ("auto", "identity", "pca", "lda")
UNFINISHED = (Status.MAX_ITER, Status.MAX_SECONDS, Status.STALLED)


class LMNN(MetricLearner):
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
    init : {"auto", "identity", "pca", "lda"} or array of shape (rows, n_features), default="auto"
        Where to start; it is brought to its best scale first. It decides the speed for a full
        metric, and the answer for a learned rectangular map. "auto" weighs directions by how far
        apart random points are compared with target neighbours for a full metric; for a
        rectangular map it is LDA where that has enough directions, else PCA.
    validation_fraction : float or None, default=None
        Share of the rows of each class to hold out. Learning stops when their k-nearest-neighbour
        error no longer falls, and the map with the smallest error is kept.
    tol : float, default=1e-3
        Certified relative duality gap at which to stop; for a learned rectangular map, the
        estimated relative decrease that is left.
    max_iter : int, default=1000
        Largest number of iterations.
    max_seconds : float or None, default=None
        Largest time in seconds.
    warm_start : bool, default=False
        Start from the map of the last fit.
    checkpoint : path or None, default=None
        File to write the state to, about twice a second, and to continue from if it exists. It is
        removed when the fit ends by itself.
    random_state : int, RandomState instance or None, default=None
        Chooses the held-out rows.

    Attributes
    ----------
    components_ : ndarray or torch.Tensor of shape (n_components, n_features)
        The map L, its rows sorted by decreasing length.
    objective_ : float
        The papers' objective, over all impostors, computed from the data in float64.
    duality_gap_ : float or None
        Proved bound on (objective − optimum) relative to the objective, or to 1 if that is larger;
        None for a learned rectangular map.
    status_ : str
        Why the fit ended: "converged", "max_iter", "max_seconds", "stalled", "stopped" (by a
        callback), "early_stopped" (by validation) or "interrupted".
    n_iter_ : int
        Number of iterations.
    history_ : list of dict
        For each iteration: n_iter, seconds, objective (over the triplets at hand), duality_gap
        (certified; None where not computed), active_triplets, searched (whether all pairs were
        searched), and at some iterations gap_estimate and rank.
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

    _doc_link_module = "nearfar"

    def __init__(
        self,
        n_neighbors: int = 3,
        push_weight: float = 0.5,
        n_components: int | None = None,
        *,
        reduce: str = "learn",
        init: str | ArrayLike = "auto",
        validation_fraction: float | None = None,
        tol: float = 1e-3,
        max_iter: int = 1000,
        max_seconds: float | None = None,
        warm_start: bool = False,
        checkpoint: Any = None,
        random_state: Any = None,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.push_weight = push_weight
        self.n_components = n_components
        self.reduce = reduce
        self.init = init
        self.validation_fraction = validation_fraction
        self.tol = tol
        self.max_iter = max_iter
        self.max_seconds = max_seconds
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
            none. By default the ``n_neighbors`` nearest of the same class.

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
        began = time.perf_counter()
        start = self._given_start()
        if target_neighbors is not None:
            target_neighbors = host(target_neighbors)
        k = self.n_neighbors if target_neighbors is None else None
        check_class_sizes(labels, k, type(self).__name__)
        rows, held_out = np.arange(len(labels.codes)), None
        if self.validation_fraction is not None:
            if target_neighbors is not None:
                raise InvalidInputError(
                    "target_neighbors and validation_fraction cannot be used together: held-out"
                    " rows would be missing from the neighbours. Leave one of them out."
                )
            random = check_random_state(self.random_state)
            rows, held_out = held_out_rows(labels, self.validation_fraction, random)
        part = class_order(labels.codes[rows], type(self).__name__)
        points = X[kernels_for(X).index(rows[part.order], X)]
        checkpoint = self._opened_checkpoint(points, part, target_neighbors)
        descent = Descent.build(self, points, part, robust_centre(points), target_neighbors)

        if descent.problem.P.size == 0:
            return self._store_without_variation(descent)
        callbacks = CallbackObserver(self, X, y, self.max_iter, descent.attributes)
        observers: list[Observer] = [callbacks]
        validation = None
        if held_out is not None:
            validation = HeldOutError(
                (host(points), part.codes[part.order]),
                (host(X)[held_out], labels.codes[held_out]),
                self.n_neighbors,
                lambda iterate: descent.problem.components(iterate.point),
            )
            observers.append(validation)
        solution = descent.solve(start, checkpoint, observers, began)
        kept = solution.iterate
        if validation is not None and validation.best is not None:
            if solution.status is Status.CONVERGED and validation.best is not kept:
                solution = replace(solution, status=Status.EARLY_STOPPED)
            kept = validation.best
        self._store(descent, solution, kept)
        if checkpoint is not None and self.status_ in (Status.CONVERGED, Status.EARLY_STOPPED):
            checkpoint.remove()
        elif checkpoint is not None:
            descent.write(checkpoint, solution.iterate, solution.history)
        callbacks.finish(lambda: descent.attributes(kept))
        return self

    # -- before ------------------------------------------------------------------------------

    def _validated_with_labels(self, X: Any, y: Any) -> tuple[Array, ClassOrder]:
        name = type(self).__name__
        X = self._validated(X, reset=True)
        y = kernels_for(y).to_host(y)
        if y.ndim == 0:
            raise InvalidInputError(
                f"{name} requires y to be passed, but the target y is {y.item()!r}."
                " Pass a label for each row."
            )
        if len(y) != len(X):
            raise InvalidInputError(
                f"{name} needs a label for each row; X has {len(X)} rows and y has {len(y)}."
                " Check that they belong together."
            )
        labels = class_order(y, name)
        self.classes_ = labels.classes
        return X, labels

    def _check_parameters(self) -> None:
        d = self.n_features_in_
        check_number("n_neighbors", self.n_neighbors, Integral, 1, None)
        check_number("push_weight", self.push_weight, Real, 0, 1, open_ends=True)
        if self.n_components is not None:
            check_number("n_components", self.n_components, Integral, 1, d)
        check_choice("reduce", self.reduce, ("learn", "project"))
        if self.validation_fraction is not None:
            check_number(
                "validation_fraction", self.validation_fraction, Real, 0, 1, open_ends=True
            )
        check_number("tol", self.tol, Real, 0, None)
        check_number("max_iter", self.max_iter, Integral, 1, None)
        if self.max_seconds is not None:
            check_number("max_seconds", self.max_seconds, Real, 0, None)
        if isinstance(self.init, str) or self.init is None:
            check_choice("init", self.init, INITS, or_else=" or an array")

    @property
    def _learns_rows(self) -> int | None:
        """The rows of a map that is learned with a fixed rank, or None for the full metric."""
        if self.reduce == "learn" and self.n_components not in (None, self.n_features_in_):
            return int(self.n_components)
        return None

    def _given_start(self) -> Matrix | None:
        """The map to start from, if the user gave one."""
        d, rows = self.n_features_in_, self._learns_rows
        if self._continues:
            given, source, remedy = self.components_, "the last fit", "Set warm_start=False."
        elif not isinstance(self.init, str):
            given, source, remedy = self.init, "init", "Correct it, or leave it out."
        else:
            return None
        start = host(given)
        if (
            start.dtype.kind not in "fiu"
            or start.ndim != 2
            or start.shape[1] != d
            or (rows and len(start) != rows)
        ):
            raise InvalidInputError(
                f"the map of {source} must have shape ({rows or 'rows'}, {d}) and hold numbers;"
                f" it has shape {start.shape} and holds {start.dtype}. {remedy}"
            )
        largest = np.abs(start).max()
        if not np.isfinite(start).all() or largest == 0:
            raise InvalidInputError(f"the map of {source} must be finite and not zero. {remedy}")
        return start.astype(np.float64) if self._continues else start / np.float64(largest)

    @property
    def _continues(self) -> bool:
        """Whether to start from the map of the last fit."""
        return bool(self.warm_start) and hasattr(self, "components_")

    def _opened_checkpoint(
        self, points: Array, labels: ClassOrder, targets: Any
    ) -> Checkpoint | None:
        if self.checkpoint is None:
            return None
        settings = [self.n_neighbors, self.push_weight, self.n_components, self.reduce]
        targets = None if targets is None else host(targets)
        return Checkpoint(
            self.checkpoint, fingerprint(host(points), labels.starts, targets, *settings)
        )

    # -- after -------------------------------------------------------------------------------

    def _store(self, descent: Descent, solution: Solution, kept: Iterate) -> None:
        problem, certificate = descent.problem, kept.certificate
        if certificate is None:
            certificate, _ = problem.certify(kept.point, kept.state)
        objective = certificate.objective
        if self.reduce == "project" and self.n_components is not None:
            components = canonical_factor(problem.components(kept.point))[: self.n_components]
            kept = replace(kept, point=problem.factor(components))
            objective = problem.certify(kept.point)[0].objective
        convex = self._learns_rows is None
        status = solution.status
        if convex and status in UNFINISHED and certificate.gap <= self.tol:
            status = Status.CONVERGED
        self.components_ = descent.attributes(kept)["components_"]
        self.objective_ = float(objective)
        self.duality_gap_ = relative_gap(objective, certificate.bound) if convex else None
        self.status_ = str(status)
        self.n_iter_ = solution.n_iter
        self.history_ = solution.history
        if certificate.n_coinciding:
            warn(
                f"{certificate.n_coinciding} pairs of equal points have different labels: no"
                " metric can part them. Check these labels.",
                DataWarning,
            )
        if status is Status.INTERRUPTED:
            warn("LMNN was interrupted; the best map so far is kept.", ConvergenceWarning)
        elif status in UNFINISHED:
            reached = f", with a duality gap of {certificate.gap:.1e}" if convex else ""
            remedy = "Raise tol." if status is Status.STALLED else f"Raise {status} or tol."
            warn(
                f"LMNN stopped before tol={self.tol:g}: {status.sentence}{reached}. {remedy}",
                ConvergenceWarning,
            )

    def _store_without_variation(self, descent: Descent) -> LMNN:
        """All points are equal: every metric gives each triplet a slack of 1."""
        warn(
            "all points are equal, so that every metric is as good as any other; the identity is"
            " kept. Check X.",
            DataWarning,
        )
        sizes = descent.labels.sizes
        heads = host(descent.problem.edges[0])
        others = len(descent.points) - np.repeat(sizes, sizes)[heads]
        d = self.n_features_in_
        identity = np.eye(self.n_components or d, d)
        self.components_ = kernels_for(descent.points).like(identity, descent.points)
        self.objective_ = float(self.push_weight * others.sum())
        self.duality_gap_ = 0.0 if self._learns_rows is None else None
        self.status_, self.n_iter_, self.history_ = str(Status.CONVERGED), 0, []
        return self
