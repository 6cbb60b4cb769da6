"""Large margin nearest neighbours with several metrics, as a scikit-learn classifier."""

from __future__ import annotations

import warnings
from copy import copy
from dataclasses import replace
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from nearfar.errors import InvalidInputError, TimeLimitError
from nearfar.estimators._base import Estimator
from nearfar.estimators._held_out import held_out_rows
from nearfar.estimators._input import (
    check_device,
    drop_rows_without_weight,
    masses_of,
    validated_labels,
    validated_points,
    validated_weights,
    warn_of_coinciding,
)
from nearfar.estimators._large_margin import (
    Descent,
    Split,
    Start,
    check_margin_parameters,
    margin_checkpoint,
    margin_proof,
    objective_without_variation,
    targets_under,
)
from nearfar.estimators._several_metrics import Rows, given_maps, several_lose
from nearfar.estimators._shrinkage import check_shrinkage, chosen_prior, margin_shrinkage
from nearfar.estimators._start import central_point, without_dead_features
from nearfar.estimators._training import (
    Attributes,
    CallbackSupportMixin,
    Proof,
    Saved,
    Training,
    store_ending,
    with_callbacks,
)
from nearfar.estimators.energy import EnergyClassifier
from nearfar.estimators.nearest import NearestNeighborClassifier
from nearfar.kernels import Array, kernels_for, single_threaded_blas, take_rows, to_host
from nearfar.limits import fit_clock
from nearfar.problems.lmnn import LMNNProblem
from nearfar.problems.multi_metric_lmnn import MultiMetricProblem
from nearfar.solvers import Iterate, Solution, Status
from nearfar.supervision import ClassOrder
from nearfar.supervision.clusters import codes_of, made_clusters, nearest_row
from nearfar.supervision.labels import check_class_sizes
from nearfar.validation import check_choice, check_number

Index = NDArray[np.intp]
Matrix = NDArray[np.float64]

PARTITIONS = ("class", "kmeans", "spectral", "given")
LEFT_OUT = 0.3  # share of each class that decides between one metric and several [JMLR09, 5.2]
TRIAL_SHARE = 1 / 3  # of max_seconds, for that decision
SINGLE_TOL = 1e-2  # gap at which the one metric to start from is good enough
START_WIDTH = 0.1  # of the smoothed hinge, in margins
START_MARGIN = 0.5  # the objective falls quickly at first, and other triplets become active
SAME = {"float32": 1e-6, "float64": 1e-12}  # relative difference of metrics that is rounding


def _decides_by(decision: str) -> Any:
    def check(estimator: Any) -> bool:
        if estimator.decision != decision:
            raise AttributeError(
                f"this needs decision={decision!r}; it is {estimator.decision!r}. Set it first."
            )
        return True

    return check


class MultiMetricLMNN(CallbackSupportMixin, ClassifierMixin, Estimator):
    """Large margin nearest neighbours with a metric for each class or cluster.

    The distance to a training point is measured by the metric of its class or cluster. All metrics
    are learned together, in one convex program, so that their distances can be compared; and
    ``duality_gap_`` proves how close the answer is to the optimum. See
    ``docs/algorithms/multi_metric_lmnn.md`` for the mathematics.

    Parameters
    ----------
    partition : {"class", "kmeans", "spectral", "given"}, default="class"
        What has a metric of its own: a class, a cluster of the points by k-means or by spectral
        clustering, or a cluster that is given to ``fit``.
    n_metrics : int or None, default=None
        Clusters to make by "kmeans" or "spectral"; None for as many as there are classes.
    n_neighbors : int, default=3
        Target neighbours of each point, and neighbours that vote.
    push_weight : float, default=0.5
        Weight of the push against impostors, between 0 and 1 (the papers' mu).
    shrinkage : float or "auto", default="auto"
        How much of a single metric for all points to keep, from 0, the papers' program, to below 1;
        towards 1 all metrics become the single one. It is learned first, as `LMNN` with this
        shrinkage would. "auto" is 4 d / (4 d + m) for d features and m rows a metric (all rows for
        the single metric), or 0 for more than 5000 features. "auto" also decides whether several
        metrics are better, unless ``init`` or ``validation_fraction`` is given. They and the single
        metric are learned from 70 % of the rows first. The single metric is kept if several
        misclassify more of the other rows, by more than a standard error (see ``single_metric_``).
        With ``init``, the distance that `LMNN` would keep replaces the single metric.
    decision : {"knn", "energy"}, default="knn"
        How ``predict`` decides: by the vote of the nearest neighbours, or by the least energy; see
        `NearestNeighborClassifier` and `EnergyClassifier`.
    init : LMNN, array of shape (rows, n_features) or (n_metrics, rows, n_features), or None, \
default=None
        Where to start: a fitted learner, one map or a map for each metric, of any scale. None
        learns a single metric first. (A learner that was copied by ``clone``, as in cross
        validation, is not fitted: give its map there.)
    validation_fraction : float or None, default=None
        Share of the rows of each class to hold out. Learning stops when their k-nearest-neighbour
        error no longer falls, and the metrics with the smallest error are kept. Recommended, since
        several metrics overfit more than one. In ``predict`` all rows vote.
    tol : float, default=1e-2
        Certified relative duality gap at which to stop.
    max_iter : int, default=1000
        Largest number of iterations, those for the one metric to start from included.
    max_seconds : float or None, default=None
        Largest time in seconds.
    verbose : int, default=0
        1 shows the iterations while fitting: a bar, or lines if stderr is no terminal.
    checkpoint : path or None, default=None
        File to write the state to, about twice a second, and to continue from if it exists. It is
        removed when the fit ends by itself. It is written after the single metric was learned.
    random_state : int, RandomState instance or None, default=None
        Chooses the held-out rows and the clusters.

    Attributes
    ----------
    components_ : ndarray or torch.Tensor of shape (n_metrics, rows, n_features)
        The maps L of the metrics, the rows of each sorted by decreasing length; the last are zero
        where a metric has less rank than others.
    metric_of_ : ndarray of shape (n_samples,)
        The metric of each row; here and below, without the rows of weight 0.
    shrinkage_ : float
        The shrinkage of the joint program.
    prior_components_ : ndarray of shape (rows, n_features) or None
        The map whose distance the shrinkage keeps: that of one metric for all. None for the inputs.
    single_metric_ : bool
        Whether all metrics are the single one that was learned first, because it classifies rows
        that were left out or held out better.
    target_components_ : ndarray of shape (rows, n_features) or None
        The map under which target neighbours are the nearest of the class; None for the inputs.
    centers_ : ndarray of shape (n_metrics, n_features) or None
        The centres of the clusters of "kmeans". A new point has the metric of the nearest one; for
        other clusters, of the nearest row.
    objective_ : float or None
        The objective over all impostors, computed from the data in float64.
        None, like the gap, if it could not be computed within twice ``max_seconds``.
    duality_gap_ : float
        Proved bound on (objective − optimum) of the joint program, relative to the objective, or
        to 1 if that is larger.
    proof_ : dict or None
        What proves ``duality_gap_``, for `nearfar.verify`: as of `LMNN`. Without weights, None
        where all points are equal.
    status_ : str
        Why the fit ended: "converged", "max_iter", "max_seconds", "stalled", "stopped" (by a
        callback), "early_stopped" (by validation, or with the one metric) or "interrupted".
    n_iter_ : int
        Number of iterations.
    history_ : list of dict
        For each iteration what `LMNN` records, and metrics, their number: 1 while the start is
        learned.
    points_ : ndarray or torch.Tensor of shape (n_samples, n_features)
        The points that vote.
    labels_ : ndarray of shape (n_samples,)
        Their labels.
    classes_ : ndarray
        The distinct labels.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of str
        Names of the features, if X had any.

    Notes
    -----
    With C metrics, n points, d features, rank r and m pairs at hand: an iteration costs
    O(m r + C n d r), a check of the gap every few iterations O(m d + C n d² + C d³), and a full
    search O(n² r). Memory is O(n d + C (n r + d²) + m).

    References
    ----------
    Weinberger & Saul, Distance metric learning for large margin nearest neighbor classification,
    JMLR 10 (2009), section 5.2.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from nearfar import MultiMetricLMNN
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MultiMetricLMNN().fit(X[::2], y[::2])
    >>> model.components_.shape[0], model.duality_gap_ <= 1e-2
    (3, True)
    >>> model.score(X[1::2], y[1::2]) > 0.9
    True
    """

    components_: Array
    _axes: ClassVar[dict[str, str]] = {
        "components_": "mrd",
        "metric_of_": "n",
        "points_": "nd",
        "labels_": "n",
    }

    def __init__(
        self,
        partition: str = "class",
        n_metrics: int | None = None,
        *,
        n_neighbors: int = 3,
        push_weight: float = 0.5,
        shrinkage: float | str = "auto",
        decision: str = "knn",
        init: Any = None,
        validation_fraction: float | None = None,
        tol: float = 1e-2,
        max_iter: int = 1000,
        max_seconds: float | None = None,
        verbose: int = 0,
        checkpoint: Any = None,
        random_state: Any = None,
    ) -> None:
        self.partition = partition
        self.n_metrics = n_metrics
        self.n_neighbors = n_neighbors
        self.push_weight = push_weight
        self.shrinkage = shrinkage
        self.decision = decision
        self.init = init
        self.validation_fraction = validation_fraction
        self.tol = tol
        self.max_iter = max_iter
        self.max_seconds = max_seconds
        self.verbose = verbose
        self.checkpoint = checkpoint
        self.random_state = random_state

    @with_callbacks
    @single_threaded_blas()
    def fit(
        self, X: Any, y: Any, clusters: ArrayLike | None = None, sample_weight: Any = None
    ) -> MultiMetricLMNN:
        """Learn the metrics.

        Parameters
        ----------
        X : array-like or torch.Tensor of shape (n_samples, n_features)
            The points. Float32 stays float32; tensors are computed on their device.
        y : array-like of shape (n_samples,)
            Class labels: numbers, strings, booleans or categories.
        clusters : array-like of shape (n_samples,) or None, default=None
            The cluster of each row, of any labels, for ``partition="given"``.
        sample_weight : array-like of shape (n_samples,) or None, default=None
            Weights of the rows, of which only ratios matter; a row of weight 0 is dropped. A row
            counts by its weight as a point and as an impostor of others; in ``predict`` all rows
            that are left have one vote.

        Returns
        -------
        MultiMetricLMNN
            The fitted estimator.
        """
        table = validated_points(self, X, reset=True)
        labels = validated_labels(self, table, y)
        weights = validated_weights(self, len(table), sample_weight, labels)
        counted = np.arange(len(table)) if weights is None else np.flatnonzero(weights)
        X, labels, learned = drop_rows_without_weight(self, table, labels, weights)
        self._check_parameters(labels, clusters)
        if clusters is not None:
            clusters = codes_of(clusters, len(table))[counted]
        self.__dict__.pop("components_", None)
        self._classifiers: dict[str, Any] = {}  # by decision, each made when it is first asked
        rows = self._rows(X, labels, clusters, learned)

        points, part = rows.points, rows.split.labels
        weights_given: Proof = {} if weights is None else {"sample_weight": weights}
        single = self._single(rows)
        settings = [rows.metric_of, self.shrinkage, rows.masses]
        checkpoint = margin_checkpoint(self, points, part, *settings)
        training = Training(self, table, y, checkpoint=checkpoint)
        if single.P.size == 0:
            self._store_without_variation(rows, single.edges[0])
            self.proof_: Proof | None = weights_given or None
            training.finish(self.status_, {"components_": self.components_})
            return self

        components, ended = self._start(training, rows, single)
        if ended is None and self._chooses and self._loses(X, labels, clusters, learned):
            ended = Status.EARLY_STOPPED
        joint = self._shrunk_towards(components, rows, single)
        descent, solution = self._solved(training, rows, joint, components, ended)
        certificate = descent.certificate(solution.iterate)

        self.components_ = self._placed(descent.problem, solution.iterate)
        self._store_if_single()
        status, objective = descent.settled(solution.status, certificate), None
        if certificate is not None:
            objective = certificate.objective
            warn_of_coinciding(certificate.n_coinciding)
        order = counted[rows.split.order]
        self.proof_ = margin_proof(descent.problem, certificate, order, len(table)) | weights_given
        store_ending(
            self,
            status,
            objective,
            descent.gap(certificate),
            training.history,
            unrounded=solution.iterate.value if solution.iterate.exact else None,
            points=table,
        )
        rows.warn_if_worse(to_host(self.components_))
        training.finish(status, {"components_": self.components_})
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """The label of each point, by the rule that ``decision`` names, as an array on the host.

        Parameters
        ----------
        X : array-like or torch.Tensor of shape (m, n_features)
            The points.
        """
        labels: NDArray[Any] = self._decide("predict", X)
        return labels

    @available_if(_decides_by("knn"))
    def predict_proba(self, X: Any) -> Any:
        """The share of the nearest neighbours that have each label, with ``decision="knn"``."""
        return self._decide("predict_proba", X)

    @available_if(_decides_by("energy"))
    def decision_function(self, X: Any) -> Any:
        """Minus the energy of each label, with ``decision="energy"``; see `EnergyClassifier`."""
        return self._decide("decision_function", X)

    def get_mahalanobis_matrix(self) -> Matrix:
        """M = LᵀL of each metric, (n_metrics, n_features, n_features), on the host in float64."""
        check_is_fitted(self, "components_")
        components = to_host(self.components_).astype(np.float64)
        return components.transpose(0, 2, 1) @ components

    def _decide(self, method: str, X: Any) -> Any:
        """What the classifier of ``decision`` says; it is left out of files and copies."""
        check_is_fitted(self, "components_")
        X = validated_points(self, X, reset=False)
        check_device(self, X, self.points_)
        known = self.__dict__.setdefault("_classifiers", {})
        if self.decision not in known:
            rule: Any = EnergyClassifier(copy(self))
            if self.decision == "knn":
                most = min(self.n_neighbors, len(self.points_))
                rule = NearestNeighborClassifier(copy(self), n_neighbors=most)
            known[self.decision] = rule.fit(self.points_, self.labels_)
        return getattr(known[self.decision], method)(X)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        state.pop("_classifiers", None)
        return state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    # -- before ------------------------------------------------------------------------------

    def _check_parameters(self, labels: ClassOrder, clusters: Any) -> None:
        check_margin_parameters(self)
        check_shrinkage(self.shrinkage)
        check_choice("partition", self.partition, PARTITIONS)
        check_choice("decision", self.decision, ("knn", "energy"))
        if self.n_metrics is not None:
            check_number("n_metrics", self.n_metrics, Integral, 1, None)
            if self.partition in ("class", "given"):
                raise InvalidInputError(
                    f"n_metrics={self.n_metrics} cannot be used with partition={self.partition!r},"
                    " whose parts are counted. Leave it out, or use partition='kmeans'."
                )
        if (clusters is not None) != (self.partition == "given"):
            raise InvalidInputError(
                "clusters belong to partition='given', and only to it; got"
                f" partition={self.partition!r} {'with' if clusters is not None else 'without'}"
                " clusters. Set partition='given' and give fit the cluster of each row."
            )
        check_class_sizes(labels, self.n_neighbors, type(self).__name__)

    def _rows(self, X: Array, labels: ClassOrder, clusters: Any, weights: Matrix | None) -> Rows:
        """The rows to learn from and to validate on; stores what votes in ``predict``."""
        split = Split.of(labels, self.validation_fraction, self.random_state, type(self).__name__)
        points = take_rows(without_dead_features(X), split.order)
        self.points_, self.labels_ = X, labels.classes[labels.codes]
        self.metric_of_, self.centers_ = self._partitioned(X, labels, split.order, clusters)
        held_out = None if split.held_out is None else take_rows(X, split.held_out)
        masses = masses_of(weights, split.order)
        metric_of = self.metric_of_[split.order]
        return Rows(points, split, metric_of, held_out, masses, self.n_neighbors)

    def _partitioned(
        self, X: Array, labels: ClassOrder, learned: Index, clusters: Any
    ) -> tuple[Index, Matrix | None]:
        """The metric of each row, and the centres of its clusters where they have any.

        Clusters are made of the rows that are learned from.
        """
        if self.partition == "class":
            return labels.codes, None
        if self.partition == "given":
            return codes_of(clusters, len(labels.codes)), None
        seed = check_random_state(self.random_state).randint(2**31 - 1)
        count = self.n_metrics or len(labels.classes)
        return made_clusters(self.partition, to_host(X), learned, count, seed)

    @property
    def _n_metrics(self) -> int:
        return int(self.metric_of_.max()) + 1

    def _metric_of_new(self, X: Array) -> Index:
        """The metric that each new point would have with each label, (m, n_classes)."""
        n_classes = len(self.classes_)
        if self.partition == "class":
            return np.tile(np.arange(n_classes), (len(X), 1))
        if self.centers_ is not None:
            found = nearest_row(to_host(X), self.centers_)
        else:
            found = self.metric_of_[nearest_row(to_host(X), to_host(self.points_))]
        return np.repeat(found[:, None], n_classes, axis=1)

    # -- one metric, or all ------------------------------------------------------------------

    @property
    def _chooses(self) -> bool:
        """Whether rows that are left out decide between one metric and several."""
        return self.shrinkage == "auto" and self.init is None and self.validation_fraction is None

    def _loses(self, X: Array, labels: ClassOrder, clusters: Any, weights: Matrix | None) -> bool:
        """Whether several metrics misclassify more of the rows that are left out than the one.

        All are learned from the other rows for that, and the difference must be more than chance.
        If there are too few rows to leave any out, several count as worse; without a distance to
        keep, or the time, there is no choice.
        """
        if int(LEFT_OUT * labels.sizes.max()) == 0 or labels.sizes.max() < 3:
            return True
        rows, new = held_out_rows(labels, LEFT_OUT, np.random.RandomState(0))
        seconds = None if self.max_seconds is None else TRIAL_SHARE * self.max_seconds
        settings = self.get_params(deep=False) | {"checkpoint": None, "max_seconds": seconds}
        parts = [None if part is None else part[rows] for part in (clusters, weights)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the fit to all rows repeats what matters
            try:
                trial = _Trial(**settings).fit(take_rows(X, rows), labels.codes[rows], *parts)
            except TimeLimitError:
                return False
        unseen, truth = take_rows(X, new), labels.codes[new]
        return several_lose(trial, labels.codes[rows], unseen, truth, self.n_neighbors)

    def _single(self, rows: Rows) -> LMNNProblem:
        """The problem with one metric for all."""
        points, part, prior = rows.points, rows.split.labels, None
        centre = central_point(points)  # refuses what leaves the range of float64
        if self.shrinkage == "auto":
            prior = chosen_prior(points, rows.split.codes, self.n_neighbors)
        self.shrinkage_ = margin_shrinkage(self.shrinkage, points)
        self.prior_components_ = self.target_components_ = None if prior is None else prior[0]
        chosen_by = self.target_components_
        edges = targets_under(chosen_by, points, centre, part, self.n_neighbors)
        return rows.problem(edges, self.push_weight, self.shrinkage_, prior)

    def _shrunk_towards(self, components: Matrix, rows: Rows, single: LMNNProblem) -> LMNNProblem:
        """The problem of one metric that keeps the distance of a learned one, to be divided.

        A start that was given need not have full rank: the distance that ``single`` keeps stays.
        """
        self.shrinkage_ = margin_shrinkage(self.shrinkage, rows.points, self._n_metrics)
        if not single.ridge:
            return single
        prior = single.prior, single.prior_inverse
        if self.init is None:
            inverse = single.prior_inverse @ np.linalg.inv(components @ single.prior_inverse)
            prior = components, inverse
            self.prior_components_ = components
        return rows.problem(single.edges, self.push_weight, self.shrinkage_, prior)

    def _start(
        self, training: Training, rows: Rows, single: LMNNProblem
    ) -> tuple[Matrix, Status | None]:
        """The maps to start from: of a checkpoint, given, or one metric that is learned first.

        The status is why the fit must end with them; None if it goes on.
        """
        if training.saved is not None:
            return training.saved[0]["start"], None
        if self.init is not None:
            return given_maps(self.init, self._n_metrics, single, self.n_features_in_), None
        descent = Descent(single, rows.points, rows.split.labels, SINGLE_TOL)
        start, stopping = descent.first_guess(), None
        if rows.held_out is not None:
            measured = rows.early_stopping(single, 0).measured
            start = descent.better_guess(lambda L: measured(Iterate(single.factor(L), np.inf)))
            descent = descent.in_geometry_of(start)
            stopping = rows.early_stopping(descent.problem, 0)
            stopping.begin(descent.start_iterate(start))
        solution = descent.solve(
            training,
            start,
            lambda iterate: self._attributes(descent.problem, iterate),
            stopping=stopping,
            marks={"metrics": 1},
            saved_with=None,
        )
        status: Status | None = solution.status
        if status in (Status.CONVERGED, Status.STALLED, Status.EARLY_STOPPED):
            status = Status.MAX_ITER if len(training.history) >= self.max_iter else None
        if single.kept is not None:
            return descent.components(solution.iterate), status
        return descent.problem.components(solution.iterate.point), status

    def _solved(
        self,
        training: Training,
        rows: Rows,
        single: LMNNProblem,
        components: Matrix,
        ended: Status | None,
    ) -> tuple[Descent, Solution]:
        """Learn all metrics from these maps, unless the fit has ended."""
        # Where learning is stopped early the path matters, else only its end: see the problem.
        early = rows.held_out is not None and components.ndim == 2
        if early:
            single = single.in_geometry_of(single.factor(components))
        problem = MultiMetricProblem.of(single, rows.metric_of, self._n_metrics, whiten=not early)
        descent = Descent(problem, rows.points, rows.split.labels, self.tol)
        start = Start.near(components, START_WIDTH, START_MARGIN)
        if self.init is not None or single.kept is not None:  # of any scale
            start = replace(start, options=start.options | {"warm": False})
        n_single = len(training.history)  # iterations for the one metric
        if training.saved is not None:
            n_single = training.saved[1]["n_single"]
        saved_with: Saved = {"start": components}, {"n_single": n_single}
        stopping = None
        if rows.held_out is not None:
            stopping = rows.early_stopping(problem, n_single)
            stopping.begin(descent.start_iterate(start))
        if ended is not None:
            unscaled = Iterate(problem.factor(components), np.inf)
            last = fit_clock().in_time(lambda: descent.start_iterate(start)) or unscaled
            descent.save(training, last, stopping, saved_with)
            history, seconds = training.history, fit_clock().seconds
            return descent, Solution(last, ended, len(history), seconds, history)
        if training.saved is not None:
            start = descent.resumed(training.saved, stopping)
        solution = descent.solve(
            training,
            start,
            lambda iterate: self._attributes(problem, iterate),
            stopping=stopping,
            marks={"metrics": problem.n_metrics},
            saved_with=saved_with,
        )
        return descent, solution

    # -- after -------------------------------------------------------------------------------

    def _attributes(self, problem: LMNNProblem, iterate: Iterate) -> Attributes:
        return {"components_": self._placed(problem, iterate)}

    def _placed(self, problem: LMNNProblem, iterate: Iterate) -> Array:
        """The maps at an iterate, each in its canonical form, where the points live."""
        maps = problem.returned(iterate.point)
        maps = np.array(np.broadcast_to(maps, (self._n_metrics, *maps.shape[-2:])))
        return kernels_for(self.points_).like(maps, self.points_)

    def _store_if_single(self) -> None:
        """Set ``single_metric_``; equal metrics get one map, whatever the rotations of theirs."""
        metrics = self.get_mahalanobis_matrix()
        precision = str(self.components_.dtype).removeprefix("torch.")
        tolerance = SAME[precision] * np.abs(metrics).max(initial=0.0)
        self.single_metric_ = bool(np.abs(metrics - metrics[:1]).max(initial=0.0) <= tolerance)
        if self.single_metric_:
            self.components_ = self.components_[[0] * len(metrics)]

    def _store_without_variation(self, rows: Rows, heads: Array) -> None:
        """All points are equal: identities are as good as any other metrics."""
        labels, mu = rows.split.labels, self.push_weight
        objective = objective_without_variation(mu, labels, heads, rows.masses)
        identities = np.array([np.eye(self.n_features_in_)] * self._n_metrics)
        self.components_ = kernels_for(rows.points).like(identities, rows.points)
        self.single_metric_ = True
        store_ending(self, Status.CONVERGED, objective, 0.0, [])


class _Trial(MultiMetricLMNN):
    """Learns several metrics without a choice, to compare them with the one."""

    @property
    def _chooses(self) -> bool:
        return False
