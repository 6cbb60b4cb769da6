"""Large margin nearest neighbours as a scikit-learn transformer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from nearfar.blocks import Streamed
from nearfar.blocks.collections import on_this_machine
from nearfar.errors import TimeLimitError
from nearfar.estimators._base import MetricLearner
from nearfar.estimators._held_out import EarlyStopping
from nearfar.estimators._input import warn_of_coinciding
from nearfar.estimators._large_margin import (
    Descent,
    Start,
    margin_checkpoint,
    margin_proof,
    objective_without_variation,
)
from nearfar.estimators._lmnn import (
    Ending,
    Margin,
    Pass,
    Rows,
    before_next,
    build_descent,
    ending_after,
    packed,
    unpacked,
    validated_rows_of_points,
    validated_rows_of_triplets,
)
from nearfar.estimators._shrinkage import margin_shrinkage
from nearfar.estimators._start import given_start, learned_rows, principal_rows
from nearfar.estimators._training import Proof, Saved, Training, store_ending, with_callbacks
from nearfar.estimators._tuples import holds_tuples
from nearfar.kernels import Array, gram_kernels_for, kernels_for, single_threaded_blas, to_host
from nearfar.limits import Stage, fit_clock
from nearfar.linalg import pad_or_trim_rows
from nearfar.problems.lmnn_sampled import CONFIDENCE, Draws
from nearfar.solvers import Status
from nearfar.solvers.checkpoint import Checkpoint

Matrix = NDArray[np.float64]

WARM_WIDTH = 0.02  # of the smoothed hinge, in margins, near an optimum
PASS_WIDTH = 0.1  # the same at the start of a later pass, some of whose targets are new


class LMNN(MetricLearner):
    """Large margin nearest neighbours: a metric for k-nearest-neighbour classification.

    Pulls each point's target neighbours close and pushes points of other classes out of a unit
    margin around them. The metric M = LᵀL minimises
    ``(1 - push_weight) Σ D(i, j) + push_weight Σ [1 + D(i, j) - D(i, l)]₊``, with D the squared
    learned distance, j the target neighbours of i, and l all points of other classes. Instead of
    labels it takes triplets (i, j, l), which say that i is nearer to j than to l.

    For a square metric the problem is convex, and ``duality_gap_`` proves how close the answer is
    to the optimum. See ``docs/algorithms/lmnn.md`` for the mathematics.

    Parameters
    ----------
    n_neighbors : int, default=3
        Target neighbours of each point. A class with fewer members uses what it has. Not used for
        triplets.
    push_weight : float, default=0.5
        Weight of the push against impostors, between 0 and 1 (the papers' mu).
    n_components : int or None, default=None
        Rows of the map. None learns the full metric; its map then has as many rows as the metric
        has rank. If the metric has less rank than asked for, the last rows are zero.
    shrinkage : float or "auto", default="auto"
        How much of a known distance to keep, from 0, the papers' program, to below 1. With few rows
        for the number of features the papers' program stretches noise; shrinkage pulls its answer
        back, and towards 1 the metric becomes the known one. A number keeps the Euclidean distance
        of the inputs; bring features to one scale first. "auto" is 16 d / (16 d + n) for n rows and
        d features, and keeps a mean of distances: of the inputs, of features at one scale, and of
        discriminant analysis of both, weighted by how well each classifies training rows that are
        left out (see ``prior_components_``). A full metric has full rank then; for a learned
        rectangular map only the pull is shrunk. With more than 5000 features "auto" is 0, since a
        metric of full rank would be too large: project them first, for example by PCA.
        Sparse rows keep the distance of the inputs, at any number of features.
    class_weight : dict, "balanced" or None, default=None
        Weights of classes, by which those of their rows are multiplied: "balanced" gives all
        classes the same weight, and classes that a dict does not name have the weight 1. Not for
        triplets.
    unlabeled_weight : float or None, default=None
        Whether to learn from rows without a label, whose y is -1 as in scikit-learn. None: -1 is a
        class like any other. With a number, such as 1, a metric is first learned from the labelled
        rows. Their labels are spread over the graph of nearest neighbours under it. Then the metric
        is learned again from all rows; those without a label weigh this number times the confidence
        in the label that they got. Not with ``validation_fraction`` or ``target_neighbors``, nor
        for triplets.
    reduce : {"learn", "project"}, default="learn"
        How to get fewer rows: "learn" a rectangular map (not convex), or "project" the points that
        the full metric has transformed on their principal components (the papers' LMNN-S).
    n_passes : int, default=1
        How often to learn. Each further pass chooses the target neighbours anew, as the nearest
        of the class under the metric of the previous pass. With ``validation_fraction`` it is the
        most passes that are made: they end when one does not lower the held-out error.
    init : {"auto", "identity", "pca", "lda"} or array of shape (rows, n_features), default="auto"
        Where to start; the map is scaled to its best length first. For a full metric it affects
        only the speed, for a learned rectangular map also the answer. For a full metric, "auto"
        weighs directions by the distances between random points, relative to those between target
        neighbours, or is the identity if held-out rows prefer that. For a rectangular map it is LDA
        if that has enough directions, else PCA; for more than 100 sparse features, discriminants by
        ridge regression, and then PCA.
    validation_fraction : float or None, default=None
        Share of the rows of each class to hold out. Learning stops when their k-nearest-neighbour
        error no longer falls, and the map with the smallest error of all passes is kept.
    tol : float, default=1e-3
        Certified relative duality gap at which to stop; for a learned rectangular map, the
        estimated relative decrease that is left.
    certificate : {"all", "sample"}, default="all"
        What the gap of the answer is computed from: "all" pairs of points, or, if these take too
        long, a "sample" of rows that are compared with all points. The gap then holds with
        a confidence of 99.9 %, see ``sampled_gap_``. A sample pays from some 300,000 rows on at
        tol=1e-2, and later for a smaller ``tol``; where it would need more than a quarter of the
        rows, all pairs are compared. Only for a full metric, and not for triplets.
    max_iter : int, default=1000
        Largest number of iterations, of all passes together.
    max_seconds : float or None, default=None
        Largest time in seconds, of all passes together.
    verbose : int, default=0
        1 shows the iterations while fitting: a bar, or lines if stderr is no terminal.
    memory_limit : float or None, default=None
        Gigabytes that may be used, on a device by all tensors there; None is all memory of the
        machine, or what is free on the device. If the triplets would need more, fewer are kept and
        they are searched more often; if that is not enough, an error is raised before anything is
        allocated.
    warm_start : bool, default=False
        Start from the map of the last fit. The first pass still chooses target neighbours among
        the inputs.
    checkpoint : path or None, default=None
        File to write the state to, about twice a second, and to continue from if it exists. It is
        removed when the fit ends by itself.
    random_state : int, RandomState instance or None, default=None
        Chooses the held-out rows, and the sample of ``certificate="sample"``.

    Attributes
    ----------
    components_ : ndarray or torch.Tensor of shape (n_components, n_features)
        The map L, its rows sorted by decreasing length; with ``reduce="project"``, by decreasing
        variance of the transformed points.
    shrinkage_ : float
        The shrinkage that was used.
    prior_components_ : ndarray of shape (rows, n_features) or None
        The map whose distance ``shrinkage="auto"`` keeps, and that chooses the target neighbours;
        None for the inputs as they are.
    objective_ : float or None
        The papers' objective, with the shrinkage, for weights of mean 1, over all impostors,
        computed in float64; with ``reduce="project"`` that of the full metric. It belongs to the
        target neighbours of the pass whose map is kept, and so does ``duality_gap_``. None,
        like the gap, if it could not be computed within twice ``max_seconds``.
    duality_gap_ : float or None
        Proved bound on (objective − optimum) relative to the objective, or to 1 if that is larger;
        None for a learned rectangular map, and if only ``sampled_gap_`` is known.
    sampled_gap_ : float or None
        With ``certificate="sample"``: what ``duality_gap_`` is at most, with the confidence
        ``gap_confidence_``. ``objective_`` is then a sum over the triplets that were seen, and may
        be too small; the gap allows for those that were not. None if all pairs were compared.
    gap_confidence_ : float or None
        The probability, over the random draws of the fit, that ``sampled_gap_`` holds: 0.999, or
        None without a sampled gap.
    proof_ : dict or None
        What proves ``duality_gap_``, for `nearfar.verify`: the target neighbours, and the triplets
        whose dual weight is not zero with these weights, as arrays of row numbers; and the weights
        of the rows. Without these, None where all points are equal, and for given triplets. It
        takes 20 bytes a triplet.
    status_ : str
        Why the fit ended: "converged", "max_iter", "max_seconds", "stalled", "stopped" (by a
        callback), "early_stopped" (by validation) or "interrupted".
    n_iter_ : int
        Number of iterations, of all passes together.
    n_passes_ : int
        The passes behind ``components_``.
    target_components_ : ndarray, torch.Tensor or None
        The map under which the last of these passes chose the target neighbours, of shape
        (rows, n_features); None for the first pass, which chooses among the inputs as they are
        unless these were scaled.
    history_ : list of dict
        For each iteration: n_iter, seconds, objective (over the triplets at hand; of very many rows
        at first an estimate from some of them), residual (the gap over these, or for a map of few
        rows the estimated relative decrease that is left; None where not computed), duality_gap
        (certified, over all triplets; None where not computed),
        sampled_gap and gap_confidence (where a sample was drawn), active_triplets, searched
        (whether all pairs were searched), pass, and at some iterations rank and validation_error.
        On CUDA the last one has peak_bytes, the most memory that tensors had on the device, the
        data among them.
    classes_ : ndarray
        The labels, if y held any.
    transduction_ : ndarray of shape (n_samples,) or None
        With ``unlabeled_weight`` the label of each row, given or spread; -1 if no label reached it.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of str
        Names of the features, if X had any.

    Notes
    -----
    With n points, d features, rank r and m pairs in the working set, an iteration costs
    O(m r + n d r), a check of the gap every few iterations O(m d + n d² + d³), and a full search,
    which becomes rarer and rarer, O(n² r). Memory is O(n d + d² + m). CSR input, for a map of few
    rows that is learned, is never made dense: a step costs O(m r + z r) for z numbers that are
    stored, and memory is O(z + (n + d) (r + 200) + m).

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
        shrinkage: float | str = "auto",
        class_weight: str | dict[Any, float] | None = None,
        unlabeled_weight: float | None = None,
        reduce: str = "learn",
        n_passes: int = 1,
        init: str | ArrayLike = "auto",
        validation_fraction: float | None = None,
        tol: float = 1e-3,
        certificate: str = "all",
        max_iter: int = 1000,
        max_seconds: float | None = None,
        verbose: int = 0,
        memory_limit: float | None = None,
        warm_start: bool = False,
        checkpoint: Any = None,
        random_state: Any = None,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.push_weight = push_weight
        self.n_components = n_components
        self.shrinkage = shrinkage
        self.class_weight = class_weight
        self.unlabeled_weight = unlabeled_weight
        self.reduce = reduce
        self.n_passes = n_passes
        self.init = init
        self.validation_fraction = validation_fraction
        self.tol = tol
        self.certificate = certificate
        self.max_iter = max_iter
        self.max_seconds = max_seconds
        self.verbose = verbose
        self.memory_limit = memory_limit
        self.warm_start = warm_start
        self.checkpoint = checkpoint
        self.random_state = random_state

    @with_callbacks
    @single_threaded_blas()
    def fit(
        self,
        X: Any,
        y: Any = None,
        target_neighbors: ArrayLike | None = None,
        sample_weight: Any = None,
    ) -> LMNN:
        """Learn the metric.

        Parameters
        ----------
        X : array-like, sparse array, torch.Tensor or Tuples
            Points of shape (n_samples, n_features), or triplets (n_triplets, 3, n_features) of a
            point, a near and a far one. Float32 stays float32; tensors are computed on their
            device. Points may be sparse if ``n_components`` rows are learned.
        y : array-like of shape (n_samples,) or None, default=None
            Class labels of points: numbers, strings, booleans or categories; with
            ``unlabeled_weight`` numbers, and -1 for a row without one. None for triplets.
        target_neighbors : array-like of int of shape (n_samples, k) or None, default=None
            Row numbers of the neighbours that each point should have, of its own class; -1 for
            none. By default the ``n_neighbors`` nearest of the same class, as always after the
            first pass.
        sample_weight : array-like of shape (n_samples,) or None, default=None
            Weights of the rows, of which only ratios matter; a row of weight 0 is dropped. A row
            counts by its weight as a point and as an impostor of others. Not for triplets.

        Returns
        -------
        LMNN
            The fitted estimator.
        """
        self.__dict__.pop("classes_", None)
        self.transduction_: NDArray[Any] | None = None
        y, sample_weight = on_this_machine(y), on_this_machine(sample_weight)
        validated_rows = validated_rows_of_triplets if holds_tuples(X) else validated_rows_of_points
        rows = validated_rows(self, X, y, target_neighbors, sample_weight)
        self.shrinkage_ = margin_shrinkage(
            self.shrinkage, rows.points, shaped=rows.prior is not None
        )
        self.prior_components_ = None if rows.prior is None else rows.prior[0]

        training = Training(self, X, y, checkpoint=self._checkpoint_of(rows))
        previous = None if training.saved is None else unpacked(*training.saved)
        draws = None
        if self.certificate == "sample":
            draws = Draws(self.random_state, sum("sampled_gap" in r for r in training.history))
        descent = self._descent(rows, previous, draws)

        if descent.problem.P.size == 0:
            self._store_without_variation(rows, descent.problem.edges[0])
        else:
            ending = self._learned(training, rows, descent, previous, draws)
            self._store(ending, rows, training)
        training.finish(self.status_, {"components_": self.components_})
        return self

    @property
    def _learns_rows(self) -> int | None:
        """The rows of a map that is learned with a fixed rank, or None for the full metric."""
        return learned_rows(self.n_components, self.reduce, self.n_features_in_)

    def _given_start(self) -> Start | None:
        """The map to start from, if the user gave one."""
        start = given_start(self, self._learns_rows)
        if start is None:
            return None
        if self.warm_start and hasattr(self, "components_"):
            # The map of a later pass belongs to other targets and is not as near.
            width = WARM_WIDTH if self.n_passes_ == 1 else PASS_WIDTH
            return Start.near(start, width)
        return Start(start / np.abs(start).max())

    def _checkpoint_of(self, rows: Rows) -> Checkpoint | None:
        """The file to continue from, for these rows and settings."""
        targets = [] if rows.targets is None else [to_host(end) for end in rows.targets]
        settings = [self.n_components, self.reduce, self.n_passes, self.shrinkage_, rows.masses]
        return margin_checkpoint(self, rows.points, rows.labels, *targets, *settings)

    # -- build -------------------------------------------------------------------------------

    def _descent(self, rows: Rows, previous: Pass | None, draws: Draws | None) -> Descent:
        """The problem of a pass, whose target neighbours the previous one has found."""
        margin = Margin(
            self.n_neighbors, self.push_weight, self.shrinkage_, self.tol, self._learns_rows
        )
        components = None if previous is None else previous.components
        return build_descent(rows, margin, components, draws)

    # -- solve: a loop over passes -----------------------------------------------------------

    def _learned(
        self,
        training: Training,
        rows: Rows,
        descent: Descent,
        previous: Pass | None,
        draws: Draws | None,
    ) -> Ending:
        """Learn in passes, each with the target neighbours that the previous one has found.

        An interruption keeps the pass at hand, or the previous one while there is no iterate, and
        so does the end of the time.
        """
        saved = training.saved
        while True:
            try:
                done = self._pass(training, rows, descent, previous, saved)
                saved = None
                ending = ending_after(
                    done,
                    previous,
                    self.n_passes,
                    self.tol,
                    max_iter_reached=len(training.history) >= self.max_iter,
                )
                if ending is not None:
                    return ending
                previous = done
                fit_clock().stage = Stage.RUN
                descent = self._descent(rows, previous, draws)
            except (KeyboardInterrupt, TimeLimitError) as reason:
                if previous is None:
                    raise
                if isinstance(reason, KeyboardInterrupt):
                    return Ending(previous, Status.INTERRUPTED)
                return Ending(previous, Status.MAX_SECONDS, before_next(previous, self.n_passes))

    def _pass(
        self,
        training: Training,
        rows: Rows,
        descent: Descent,
        previous: Pass | None,
        saved: Saved | None,
    ) -> Pass:
        """Make a pass: from a checkpoint, from a map that was given, or from a first guess."""
        number = 1 if previous is None else previous.number + 1
        if previous is not None:
            start = Start.near(previous.components, PASS_WIDTH)
        else:
            start = self._given_start() or self._first_guess(rows, descent)
        if start.options.get("warm"):  # of the scale of an answer
            start = replace(start, components=descent.problem.above_floor(start.components))
        stopping = None
        if rows.held_out is not None:
            descent = descent.in_geometry_of(start)
            began = sum(record["pass"] < number for record in training.history)
            stopping = self._early_stopping(rows, descent, began)
            stopping.begin(descent.start_iterate(start))
        if saved is not None:
            start = descent.resumed(saved, stopping)

        solution = descent.solve(
            training,
            start,
            lambda iterate: {"components_": self._placed(descent.components(iterate), rows)},
            stopping=stopping,
            marks={"pass": number},
            saved_with=packed(previous),
        )
        certificate = descent.certificate(solution.iterate)
        proved = certificate if descent.rows is None else None
        return Pass(
            components=descent.components(solution.iterate),
            target_components=None if previous is None else previous.components,
            number=number,
            status=descent.settled(solution.status, certificate),
            objective=None if certificate is None else certificate.objective,
            duality_gap=descent.gap(certificate),
            sampled_gap=descent.sampled_gap(certificate),
            n_coinciding=0 if certificate is None else certificate.n_coinciding,
            error=np.inf if stopping is None else stopping.error,
            proof=margin_proof(descent.problem, proved, rows.order, rows.X.shape[0]) | rows.proof,
            unrounded=solution.iterate.value if solution.iterate.exact else None,
        )

    def _first_guess(self, rows: Rows, descent: Descent) -> Start:
        """The map that ``init`` names; with held-out rows, "auto" is what serves them better."""
        if rows.held_out is None or self.init != "auto" or descent.rows is not None:
            return descent.first_guess(str(self.init))
        return descent.better_guess(lambda L: rows.held_out_error(L, self.n_neighbors))

    def _early_stopping(self, rows: Rows, descent: Descent, began: int) -> EarlyStopping:
        """Stops by the error on the held-out rows, in a pass that follows so many iterations."""
        assert rows.held_out is not None
        return EarlyStopping(
            lambda iterate: rows.held_out_votes(descent.components(iterate), self.n_neighbors),
            rows.held_out[1],
            began,
        )

    # -- store -------------------------------------------------------------------------------

    def _placed(self, components: Matrix, rows: Rows) -> Array:
        """A map with the rows that were asked for, of the inputs, where the points live."""
        if self.reduce == "project" and self.n_components is not None:
            components = principal_rows(components, rows.points)
        asked = pad_or_trim_rows(components, self.n_components)
        return kernels_for(rows.points).like(asked, rows.points)

    def _store(self, ending: Ending, rows: Rows, training: Training) -> None:
        kept, chosen_by = ending.kept, ending.kept.target_components
        if chosen_by is None:
            chosen_by = self.prior_components_
        self.components_ = self._placed(kept.components, rows)
        self.n_passes_ = kept.number
        rows.warn_if_worse(to_host(self.components_), self.n_neighbors)
        self.target_components_ = None
        if chosen_by is not None:
            self.target_components_ = kernels_for(rows.points).like(chosen_by, rows.points)
        # `verify` takes labels only
        self.proof_: Proof | None = kept.proof if rows.triplets is None else None
        reference = rows.X.reference if isinstance(rows.X, Streamed) else rows.X
        peak = None
        if not sparse.issparse(rows.X):
            peak = gram_kernels_for(reference).peak_bytes(reference)
        if peak is not None:
            training.history[-1]["peak_bytes"] = peak
        self.sampled_gap_ = kept.sampled_gap
        self.gap_confidence_ = None if kept.sampled_gap is None else CONFIDENCE
        warn_of_coinciding(kept.n_coinciding)
        store_ending(
            self,
            ending.status,
            kept.objective,
            kept.duality_gap,
            training.history,
            ending.unreached,
            unrounded=kept.unrounded,
            points=rows.table,
            sampled_gap=kept.sampled_gap,
        )

    def _store_without_variation(self, rows: Rows, heads: Array) -> None:
        """All points are equal: the identity is as good as any other metric."""
        objective = objective_without_variation(self.push_weight, rows.labels, heads, rows.masses)
        d = self.n_features_in_
        self.components_ = self._placed(np.eye(self.n_components or d, d), rows)
        self.n_passes_, self.target_components_, self.proof_ = 1, None, rows.proof or None
        self.sampled_gap_ = self.gap_confidence_ = None
        gap = 0.0 if self._learns_rows is None else None
        store_ending(self, Status.CONVERGED, objective, gap, [])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.input_tags.sparse = self.n_components is not None and self.reduce == "learn"
        return tags

    def _target_space(self, X: Array) -> Array:
        """Points whose Euclidean distances choose the target neighbours."""
        if self.target_components_ is None:
            return X
        return kernels_for(X).apply(X, to_host(self.target_components_))
