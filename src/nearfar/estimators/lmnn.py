"""Large margin nearest neighbours as a scikit-learn transformer."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

from nearfar.errors import ConvergenceWarning, DataWarning, InvalidInputError
from nearfar.estimators._base import MetricLearner
from nearfar.estimators._callbacks import CallbackObserver, with_callbacks
from nearfar.estimators._parameters import check_choice, check_number
from nearfar.estimators._start import host, projection, robust_centre
from nearfar.estimators._validation import HeldOutError, held_out_rows
from nearfar.kernels import Array, is_torch, kernels_for
from nearfar.linalg import canonical_factor
from nearfar.problems.lmnn import LMNNProblem, Triplets
from nearfar.solvers import Iterate, Observer, Record, Solution, Status, run
from nearfar.solvers.checkpoint import Checkpoint, fingerprint
from nearfar.solvers.multipliers import descend
from nearfar.supervision import ClassOrder, class_order, given_targets, nearest_targets
from nearfar.supervision.labels import check_class_sizes

Matrix = NDArray[np.float64]

INITS = ("auto", "identity", "pca", "lda")
COARSE_FACTOR, COARSE_ROWS, COARSE_TOL = 8, 1000, 0.2  # a first guess from every eighth row


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
        has rank.
    reduce : {"learn", "project"}, default="learn"
        How to get fewer rows: "learn" a rectangular map (not convex), or "project" the full
        metric on its leading directions.
    init : {"auto", "identity", "pca", "lda"} or array of shape (rows, n_features), default="auto"
        Where to start; it is brought to its best scale first. It decides the speed for a full
        metric, and the answer for a learned rectangular map. "auto" weighs directions by how far
        apart random points are compared with target neighbours for a full metric (on large data,
        the answer on every eighth row); else LDA where it has enough directions, else PCA.
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
        Chooses the held-out rows, and the rows of the first guess on large data.

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
    With n points, d features, rank r and m pairs at hand: a full search costs O(n² r) and happens
    ever more rarely; an iteration costs O(m r + n d r). Memory is O(n d + m). Labels in blocks of
    rows and classes of any size are fine; sparse input is refused.

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
        with kernels_for(X).one_pool():
            return self._fit(X, y, labels, target_neighbors)

    def _fit(self, X: Array, y: Any, labels: ClassOrder, target_neighbors: Any) -> LMNN:
        began = time.perf_counter()
        start = self._given_start()
        check_class_sizes(labels, self.n_neighbors, type(self).__name__)
        random = check_random_state(self.random_state)
        rows, held_out = np.arange(len(labels.codes)), None
        if self.validation_fraction is not None:
            if target_neighbors is not None:
                raise InvalidInputError(
                    "target_neighbors and validation_fraction cannot be used together: held-out"
                    " rows would be missing from the neighbours. Leave one of them out."
                )
            rows, held_out = held_out_rows(labels, self.validation_fraction, random)
        part = class_order(labels.codes[rows], type(self).__name__)
        points = X[kernels_for(X).index(rows[part.order], X)]
        level = _Level.build(self, points, part, robust_centre(points), target_neighbors)

        callbacks = CallbackObserver(self, X, y, self.max_iter, level.attributes)
        observers: list[Observer] = [callbacks]
        validation = None
        if held_out is not None:
            validation = HeldOutError(
                (host(points), part.codes[part.order]),
                (host(X)[held_out], labels.codes[held_out]),
                self.n_neighbors,
                lambda iterate: level.problem.components(iterate.point),
            )
            observers.append(validation)
        checkpoint = self._opened_checkpoint(points, part, target_neighbors)
        solution = level.solve(start, checkpoint, observers, random, began)
        kept = solution.iterate
        if validation is not None and validation.best is not None:
            kept = validation.best
        self._store(level, solution, kept)
        if checkpoint is not None and solution.status in (Status.CONVERGED, Status.EARLY_STOPPED):
            checkpoint.remove()
        callbacks.finish(lambda: level.attributes(kept))
        return self

    # -- before ------------------------------------------------------------------------------

    def _validated_with_labels(self, X: Any, y: Any) -> tuple[Array, ClassOrder]:
        name = type(self).__name__
        if is_torch(X):
            X = self._validated(X, reset=True)
            y = kernels_for(X).to_host(y)
            if len(y) != len(X):
                raise InvalidInputError(
                    f"X and y need the same number of rows; X has {len(X)}, y has {len(y)}."
                )
        else:
            X, y = validate_data(self, X, y, dtype=[np.float64, np.float32], ensure_min_samples=1)
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
            return int(self.n_components)  # type: ignore[arg-type]
        return None

    def _given_start(self) -> Matrix | None:
        """The map to start from, if the user gave one."""
        d, rows = self.n_features_in_, self._learns_rows
        if self.warm_start and hasattr(self, "components_"):
            start = host(self.components_)
            source, remedy = "the last fit", "Set warm_start=False."
        elif not isinstance(self.init, str):
            start = np.array(host(self.init), dtype=np.float64)
            source, remedy = "init", "Give a map of that shape."
        else:
            return None
        expected = f"({rows or 'rows'}, {d})"
        if start.ndim != 2 or start.shape[1] != d or (rows and len(start) != rows):
            raise InvalidInputError(
                f"the map of {source} must have shape {expected}; it has {start.shape}. {remedy}"
            )
        if not np.isfinite(start).all() or not start.any():
            raise InvalidInputError(f"the map of {source} must be finite and not zero. {remedy}")
        return start

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

    def _store(self, level: _Level, solution: Solution, kept: Iterate) -> None:
        problem, point, certificate = level.problem, kept.point, kept.certificate
        if self.reduce == "project" and self.n_components is not None:
            components = canonical_factor(problem.components(point))[: self.n_components]
            point, certificate = problem.factor(components), None
        if certificate is None:
            certificate, _ = problem.certify(point, kept.state)
        convex = self._learns_rows is None
        self.components_ = level.attributes(replace(kept, point=point))["components_"]
        self.objective_ = float(certificate.objective)
        self.duality_gap_ = float(certificate.gap) if convex else None
        self.status_ = str(solution.status.value)
        self.n_iter_ = solution.n_iter
        self.history_ = solution.history
        if certificate.n_coinciding:
            warnings.warn(
                f"{certificate.n_coinciding} pairs of equal points have different labels: no"
                " metric can part them. Check these labels.",
                DataWarning,
                stacklevel=3,
            )
        if solution.status in (Status.MAX_ITER, Status.MAX_SECONDS, Status.STALLED):
            reached = f"a duality gap of {self.duality_gap_:.1e}" if convex else "no stationarity"
            warnings.warn(
                f"LMNN did not converge: {solution.status.sentence}, with {reached} where"
                f" tol={self.tol:g} was asked. Raise max_iter or max_seconds, or tol.",
                ConvergenceWarning,
                stacklevel=3,
            )
        elif solution.status is Status.INTERRUPTED:
            warnings.warn(
                "LMNN was interrupted; the best map so far is kept.",
                ConvergenceWarning,
                stacklevel=3,
            )


@dataclass(frozen=True)
class _Level:
    """The problem on some of the rows, sorted by class; coarser levels give a first guess."""

    owner: LMNN
    points: Array
    labels: ClassOrder
    centre: Array
    targets: Any
    problem: LMNNProblem

    @classmethod
    def build(
        cls, owner: LMNN, points: Array, labels: ClassOrder, centre: Array, targets: Any
    ) -> _Level:
        if targets is None:
            edges = nearest_targets(points, labels, owner.n_neighbors)
        else:
            edges = given_targets(targets, labels, points)
        problem = LMNNProblem.build(points, centre, edges, labels.starts, owner.push_weight)
        return cls(owner, points, labels, centre, targets, problem)

    def attributes(self, iterate: Iterate) -> dict[str, Any]:
        """The fitted attributes that ``transform`` needs."""
        components = canonical_factor(self.problem.components(iterate.point))
        return {"components_": kernels_for(self.points).like(components, self.points)}

    def solve(
        self,
        start: Matrix | None,
        checkpoint: Checkpoint | None,
        observers: list[Observer],
        random: np.random.RandomState,
        began: float,
    ) -> Solution:
        """Run the descent from a checkpoint, from a given start, or from a first guess."""
        saved = None if checkpoint is None else checkpoint.load()
        triplets, history, warm = None, [], False
        if saved is not None:
            arrays, values = saved
            start = arrays.pop("components")
            triplets = self.problem.with_multipliers(arrays, values["width"])
            history = values["history"]
            began -= history[-1]["seconds"]
        elif start is None:
            start, warm = self._first_guess(random, began)
        if checkpoint is not None:
            observers = [*observers, _writer(checkpoint, self.problem)]
        return self._run(start, self.owner.tol, began, observers, history, warm, triplets)

    def _run(
        self,
        start: Matrix,
        tol: float,
        began: float,
        observers: list[Observer],
        history: list[Record],
        warm: bool,
        triplets: Triplets | None,
    ) -> Solution:
        iterates = descend(
            self.problem,
            self.problem.factor(start),
            tol,
            warm=warm,
            triplets=triplets,
            fixed_rank=self.owner._learns_rows is not None,
        )
        return run(
            iterates,
            tol=tol,
            max_iter=self.owner.max_iter,
            max_seconds=self.owner.max_seconds,
            observers=observers,
            seconds=time.perf_counter() - began,
            history=history,
        )

    def _first_guess(self, random: np.random.RandomState, began: float) -> tuple[Matrix, bool]:
        """A map to start from, and whether its scale is about right."""
        owner, rows = self.owner, self.owner._learns_rows
        n, d = self.points.shape
        if owner.init == "identity":
            return np.eye(rows or d, d), False
        if owner.init != "auto":
            return projection(self.points, self.labels, str(owner.init), rows or d), False
        if rows is not None:
            kind = "lda" if rows < len(self.labels.sizes) else "pca"
            return projection(self.points, self.labels, kind, rows), False
        if n > 2 * max(COARSE_ROWS, 5 * d) and self.targets is None:
            coarse = self._coarser(random)
            guess, warm = coarse._first_guess(random, began)
            solution = coarse._run(guess, COARSE_TOL, began, [], [], warm, None)
            return coarse.problem.components(solution.iterate.point), True
        return self.problem.components(self.problem.first_guess()), False

    def _coarser(self, random: np.random.RandomState) -> _Level:
        """The level of every eighth row."""
        kept = [
            np.sort(first + random.permutation(size)[: self._coarse_size(size)])
            for first, size in zip(self.labels.starts, self.labels.sizes, strict=False)
        ]
        labels = class_order(np.repeat(np.arange(len(kept)), list(map(len, kept))), "LMNN")
        rows = kernels_for(self.points).index(np.concatenate(kept), self.points)
        return _Level.build(self.owner, self.points[rows], labels, self.centre, None)

    def _coarse_size(self, size: int) -> int:
        return max(size // COARSE_FACTOR, self.owner.n_neighbors + 1)


def _writer(checkpoint: Checkpoint, problem: LMNNProblem) -> Observer:
    """Write what a later fit needs to continue."""

    def write(iterate: Iterate, trace: list[Record]) -> None:
        if checkpoint.due:
            arrays = problem.multipliers(iterate.state)
            arrays["components"] = problem.components(iterate.point)
            checkpoint.save(arrays, {"history": trace, "width": iterate.state.width})

    return write
