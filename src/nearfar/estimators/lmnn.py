"""Large margin nearest neighbours as a scikit-learn transformer."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state

from nearfar.errors import ConvergenceWarning, DataWarning, InvalidInputError, warn
from nearfar.estimators._base import MetricLearner
from nearfar.estimators._callbacks import CallbackObserver, with_callbacks
from nearfar.estimators._parameters import check_choice, check_number
from nearfar.estimators._start import host, projection, robust_centre
from nearfar.estimators._validation import HeldOutError, held_out_rows
from nearfar.kernels import Array, kernels_for, one_pool
from nearfar.linalg import canonical_factor
from nearfar.problems.lmnn import LMNNProblem, Triplets, relative_gap
from nearfar.solvers import Iterate, Observer, Record, Solution, Status, run
from nearfar.solvers.checkpoint import Checkpoint, fingerprint
from nearfar.solvers.multipliers import FIRST_WIDTH, descend
from nearfar.supervision import ClassOrder, class_order, given_targets, nearest_targets
from nearfar.supervision.labels import check_class_sizes

Matrix = NDArray[np.float64]

INITS = ("auto", "identity", "pca", "lda")
RANK_TOLERANCE = 1e-12  # rows of the map shorter than this share of the longest are dropped
UNFINISHED = (Status.MAX_ITER, Status.MAX_SECONDS, Status.STALLED)
WARM_WIDTH = 0.02  # of the smoothed hinge, in margins, near an optimum
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
        has rank. If the metric has less rank than asked for, the last rows are zero.
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
        with one_pool():
            return self._fit(X, y, labels, target_neighbors)

    def _fit(self, X: Array, y: Any, labels: ClassOrder, target_neighbors: Any) -> LMNN:
        began = time.perf_counter()
        start = self._given_start()
        given = target_neighbors is not None
        check_class_sizes(labels, None if given else self.n_neighbors, type(self).__name__)
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

        if level.problem.P.size == 0:
            return self._store_without_variation(level)
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
        if validation is not None and validation.best is not None and validation.best is not kept:
            kept = validation.best
            solution = replace(solution, status=Status.EARLY_STOPPED)
        self._store(level, solution, kept)
        if checkpoint is not None and self.status_ in (Status.CONVERGED, Status.EARLY_STOPPED):
            checkpoint.remove()
        elif checkpoint is not None:
            level.write(checkpoint, solution.iterate, solution.history)
        callbacks.finish(lambda: level.attributes(kept))
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

    def _store(self, level: _Level, solution: Solution, kept: Iterate) -> None:
        problem, certificate = level.problem, kept.certificate
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
        self.components_ = level.attributes(kept)["components_"]
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

    def _store_without_variation(self, level: _Level) -> LMNN:
        """All points are equal: every metric gives each triplet a slack of 1."""
        warn(
            "all points are equal, so that every metric is as good as any other; the identity is"
            " kept. Check X.",
            DataWarning,
        )
        sizes = level.labels.sizes
        heads = host(level.problem.edges[0])
        others = len(level.points) - np.repeat(sizes, sizes)[heads]
        d = self.n_features_in_
        identity = np.eye(self.n_components or d, d)
        self.components_ = kernels_for(level.points).like(identity, level.points)
        self.objective_ = float(self.push_weight * others.sum())
        self.duality_gap_ = 0.0 if self._learns_rows is None else None
        self.status_, self.n_iter_, self.history_ = str(Status.CONVERGED), 0, []
        return self


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
        lengths = np.linalg.norm(components, axis=1)
        rank = max(1, int((lengths > RANK_TOLERANCE * lengths.max(initial=0.0)).sum()))
        wanted = self.owner.n_components or rank
        rows = np.zeros((wanted, components.shape[1]))
        rows[: min(rank, wanted)] = components[: min(rank, wanted)]
        return {"components_": kernels_for(self.points).like(rows, self.points)}

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
        if checkpoint is not None:
            observers = [*observers, self._writer(checkpoint)]
        if saved is not None:
            arrays, values = saved
            start, history = arrays.pop("components"), values["history"]
            triplets = self.problem.with_multipliers(arrays, values["width"])
            began -= history[-1]["seconds"]
            return self._run(start, self.owner.tol, began, observers, history, triplets=triplets)
        if self.owner._continues and start is not None:
            return self._run(start, self.owner.tol, began, observers, warm=True, width=WARM_WIDTH)
        warm = False
        if start is None:
            start, guess = self._first_guess(random, began)
            warm = guess is not None
            if guess is not None and guess.status in (Status.INTERRUPTED, Status.MAX_SECONDS):
                return replace(guess, iterate=Iterate(self.problem.factor(start), np.nan))
        return self._run(start, self.owner.tol, began, observers, warm=warm)

    def _run(
        self,
        start: Matrix,
        tol: float,
        began: float,
        observers: Sequence[Observer] = (),
        history: Sequence[Record] = (),
        *,
        warm: bool = False,
        width: float = FIRST_WIDTH,
        triplets: Triplets | None = None,
    ) -> Solution:
        iterates = descend(
            self.problem,
            self.problem.factor(start),
            tol,
            warm=warm,
            width=width,
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

    def _first_guess(
        self, random: np.random.RandomState, began: float
    ) -> tuple[Matrix, Solution | None]:
        """A map to start from, and the solution on fewer rows if it comes from one."""
        owner, rows = self.owner, self.owner._learns_rows
        n, d = self.points.shape
        if owner.init == "identity":
            return np.eye(rows or d, d), None
        if owner.init != "auto":
            return projection(self.points, self.labels, str(owner.init), rows or d), None
        if rows is not None:
            kind = "lda" if rows < len(self.labels.sizes) else "pca"
            return projection(self.points, self.labels, kind, rows), None
        if n <= 2 * max(COARSE_ROWS, 5 * d) or self.targets is not None:
            return self.problem.components(self.problem.first_guess()), None
        coarse = self._coarser(random)
        start, guess = coarse._first_guess(random, began)
        solution = coarse._run(start, COARSE_TOL, began, warm=guess is not None)
        return coarse.problem.components(solution.iterate.point), solution

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

    def write(self, checkpoint: Checkpoint, iterate: Iterate, trace: list[Record]) -> None:
        """Save what a later fit needs to continue from here."""
        if iterate.state is not None:
            arrays = self.problem.multipliers(iterate.state)
            arrays["components"] = self.problem.components(iterate.point)
            checkpoint.save(arrays, {"history": trace, "width": iterate.state.width})

    def _writer(self, checkpoint: Checkpoint) -> Observer:
        def observe(iterate: Iterate, trace: list[Record]) -> None:
            if checkpoint.due:
                self.write(checkpoint, iterate, trace)

        return observe
