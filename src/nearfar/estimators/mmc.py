"""Mahalanobis metric for clustering as a scikit-learn transformer."""

from __future__ import annotations

from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearfar.blocks import Blocks, is_dask
from nearfar.errors import InvalidInputError
from nearfar.estimators._base import MetricLearner
from nearfar.estimators._held_out import warn_if_trials_are_worse
from nearfar.estimators._shrinkage import check_shrinkage, in_inputs, of_points
from nearfar.estimators._start import check_range, given_start, learned_rows, robust_centre
from nearfar.estimators._training import (
    Proof,
    Training,
    check_limits,
    map_proof,
    settled,
    store_ending,
    with_callbacks,
)
from nearfar.estimators._tuples import (
    PairLearner,
    drawn_pairs,
    shrunk_pairs,
    validated_pairs,
    weights_proof,
)
from nearfar.kernels import kernels_for, single_threaded_blas
from nearfar.limits import fit_clock
from nearfar.linalg import pad_or_trim_rows
from nearfar.problems.mmc import DiagonalMMCProblem, MMCProblem
from nearfar.problems.mmc_blocks import DiagonalMMCBlocks, MMCBlocks
from nearfar.solvers import Iterate
from nearfar.solvers.quasi_newton import ascend
from nearfar.supervision import Pairs
from nearfar.validation import check_choice, check_number

Matrix = NDArray[np.float64]

AUTO_ROWS = 100  # for each feature, at which shrinkage "auto" is one half: the rank is low


class MMC(PairLearner, MetricLearner):
    """Mahalanobis metric for clustering: far pairs as far apart as near pairs allow.

    Learns the metric A = LᵀL with the largest sum of distances ``Σ ‖a - b‖_A`` over the far pairs,
    among all with a sum of squared distances ``Σ ‖a - b‖²_A`` over the near pairs of at most 1.

    The problem is convex, and ``duality_gap_`` proves how close the answer is to the optimum. The
    metric often has low rank, even rank one. See ``docs/algorithms/mmc.md`` for the mathematics.

    Parameters
    ----------
    n_components : int or None, default=None
        Rows of the map. None learns the full metric; its map then has as many rows as the metric
        has rank. If the rank of the metric is lower, the last rows are zero.
    diagonal : bool, default=False
        Whether to learn a weight for each feature instead, a diagonal A.
    reduce : {"learn", "project"}, default="learn"
        How to get fewer rows: "learn" a rectangular map (not convex), or "project" the metric on
        its leading directions, or a diagonal metric on the features of largest weight.
    shrinkage : float or "auto", default="auto"
        How much of the inputs' distance to keep, from 0 to below 1. With d features and T the sum
        of squared Euclidean distances over the near pairs, the constraint is
        ``(1 - shrinkage) Σ ‖a - b‖²_A + shrinkage (T / d) trace(A) <= 1``, and A stays above
        ``shrinkage / T`` times the identity, unless a map of few rows is learned. 0 is the paper's
        program, which needs near pairs that differ in all directions in which far pairs differ.
        From pairs "auto" is 4 d / (4 d + n) for n near pairs, or points, if these are fewer, and
        brings features to one scale where that separates near from far better (see
        ``feature_scale_``). From n labelled points it is 100 d / (100 d + n), and keeps a mean of
        distances instead: of the inputs, of features at one scale, and of discriminant analysis of
        both, weighted by how well each classifies points that are left out (see
        ``prior_components_``); with ``diagonal``, features are as they are, or at one scale.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes of labelled points, by which ``sample_weight`` is multiplied:
        "balanced" gives all classes the same weight, and classes that a dict does not name have
        the weight 1.
    n_pairs : int or None, default=None
        For class labels: how many near and how many far pairs to draw. None takes all.
    init : "auto" or array of shape (rows, n_features), default="auto"
        The map to start from; "auto" whitens the near pairs. It decides the speed, and the answer
        only for a learned rectangular map.
    tol : float, default=1e-3
        Certified relative duality gap at which to stop; for a learned rectangular map, the
        estimated relative gain that is left.
    max_iter : int, default=1000
        Largest number of iterations.
    max_seconds : float or None, default=None
        Largest time in seconds.
    verbose : int, default=0
        1 shows the iterations while fitting: a bar, or lines if stderr is no terminal.
    memory_limit : float or None, default=None
        Gigabytes that may be used; None is all memory of the machine or the device. If more is
        needed, an error is raised before it is allocated.
    warm_start : bool, default=False
        Start from the map of the last fit.
    random_state : int, RandomState instance or None, default=None
        Draws the pairs.

    Attributes
    ----------
    components_ : ndarray or torch.Tensor of shape (n_components, n_features)
        The map L, its rows sorted by decreasing length.
    shrinkage_ : float
        The shrinkage that was used.
    feature_scale_ : ndarray of shape (n_features,) or None
        What ``shrinkage="auto"`` multiplied features by for the distance that it keeps, powers of
        two; None for ones. ``components_`` are for the features as they were given.
    prior_components_ : ndarray of shape (n_features, n_features) or None
        The map W whose distance ``shrinkage="auto"`` keeps of labelled points: the program is about
        points W x. None for the inputs, or scaled features.
    objective_ : float or None
        The sum of the learned distances over the far pairs, before rows were cut off by
        ``reduce="project"``, computed from the data in float64.
        None, like the gap, if it could not be computed within twice ``max_seconds``.
    duality_gap_ : float or None
        Proved bound on (optimum − objective) relative to the objective; None for a learned
        rectangular map.
    proof_ : dict or None
        What proves ``duality_gap_``, for `nearfar.verify`: the map under which the lengths
        of the far pairs are the dual point, and the pairs if they were drawn.
    status_ : str
        Why the fit ended: "converged", "max_iter", "max_seconds", "stalled", "stopped" (by a
        callback) or "interrupted".
    n_iter_ : int
        Number of iterations.
    history_ : list of dict
        For each iteration: n_iter, seconds, objective, residual (the gap in working precision, or
        for a learned rectangular map the estimated relative gain that is left) and
        duality_gap (certified; None where not computed).
    classes_ : ndarray
        The labels, if y held class labels.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of str
        Names of the features, if X had any.

    Notes
    -----
    With n points, d features and m far pairs an iteration costs O(m d² + d³) for few features, and
    O(m d + n d² + d³) for many; a fit takes about ten. Memory is O(n d + d² + m), and up to 100 MB
    more for few features. A diagonal metric costs O(m d) an iteration. `fit` refuses sparse input.

    References
    ----------
    Xing, Ng, Jordan & Russell, Distance metric learning with application to clustering with
    side-information, NIPS 15 (2002).

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from nearfar import MMC
    >>> X, y = load_iris(return_X_y=True)
    >>> mmc = MMC().fit(X, y)
    >>> mmc.status_, mmc.duality_gap_ <= 1e-3
    ('converged', True)

    From pairs, +1 near and -1 far:

    >>> from nearfar import make_pairs
    >>> pairs, kinds = make_pairs(X, y, 50, random_state=0)
    >>> MMC().fit(pairs, kinds).transform(X).shape[0]
    150
    """

    def __init__(
        self,
        n_components: int | None = None,
        diagonal: bool = False,
        *,
        reduce: str = "learn",
        shrinkage: float | str = "auto",
        class_weight: str | dict[Any, float] | None = None,
        n_pairs: int | None = None,
        init: str | ArrayLike = "auto",
        tol: float = 1e-3,
        max_iter: int = 1000,
        max_seconds: float | None = None,
        verbose: int = 0,
        memory_limit: float | None = None,
        warm_start: bool = False,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.diagonal = diagonal
        self.reduce = reduce
        self.shrinkage = shrinkage
        self.class_weight = class_weight
        self.n_pairs = n_pairs
        self.init = init
        self.tol = tol
        self.max_iter = max_iter
        self.max_seconds = max_seconds
        self.verbose = verbose
        self.memory_limit = memory_limit
        self.warm_start = warm_start
        self.random_state = random_state

    @with_callbacks
    @single_threaded_blas()
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> MMC:
        """Learn the metric.

        Parameters
        ----------
        X : array-like, torch.Tensor, Tuples or Dask array
            Points of shape (n_samples, n_features), pairs (n_pairs, 2, n_features), triplets
            (n_triplets, 3, n_features) of a point, a near and a far one, or `Tuples`. Float32 stays
            float32; tensors are computed on their device, and pairs of a Dask array in shards, on
            the cluster of the current client if there is one. Points of it need ``n_pairs``.
        y : array-like or None, default=None
            Class labels of points; +1 for near and -1 for far pairs; None for triplets.
        sample_weight : array-like or None, default=None
            Weights of labelled points, or of pairs or triplets. The weight of a pair of labelled
            points is the product of theirs, so that integers count as repeated points.

        Returns
        -------
        MMC
            The fitted estimator.
        """
        pairs = validated_pairs(
            self,
            X,
            y,
            self.n_pairs,
            self.random_state,
            sample_weight=sample_weight,
            drop_dead=True,
            sharded=True,
            check=self._check_parameters,
        )
        self._check_parameters()
        rows = learned_rows(self.n_components, self.reduce, self.n_features_in_)
        given = given_start(self, rows)
        if given is not None:
            given = np.asarray(given / np.abs(given).max())

        inputs = pairs.points
        pairs, prior = shrunk_pairs(self, pairs, AUTO_ROWS, diagonal=self.diagonal)
        scale = self.feature_scale_
        if given is not None:
            given = of_points(given, scale, prior)
        problem = self._problem(pairs, floored=rows is None)
        if isinstance(pairs.points, Blocks):  # differences are in shards: rows may be freed
            inputs, pairs = None, replace(pairs, points=None)
        start = problem.start(rows, given)

        def attributes(iterate: Iterate) -> dict[str, Any]:
            components = in_inputs(problem.returned(iterate.point), scale, prior)
            components = pad_or_trim_rows(components, self.n_components)
            return {"components_": kernels_for(problem.U).like(components, problem.U)}

        training = Training(self, X, y)
        iterates = ascend(problem, start, self.tol, fixed_rank=rows is not None)
        solution = training.run(iterates, attributes, start=Iterate(start, np.inf))

        L = solution.iterate.point
        fitted = attributes(solution.iterate)
        self.components_ = fitted["components_"]
        certificate = fit_clock().in_time(lambda: problem.certify(L))
        objective, gap = None, None
        self.proof_: Proof | None = None
        if certificate is not None:
            objective, gap = certificate.objective, certificate.gap if rows is None else None
            self.proof_ = (
                map_proof([problem.components(L)])
                | drawn_pairs(pairs, self.n_pairs)
                | weights_proof(pairs)
            )
        status = settled(solution.status, gap, self.tol)
        labelled = pairs.labels is not None  # else rows of the points are not those of X
        store_ending(
            self,
            status,
            objective,
            gap,
            training.history,
            points=inputs if labelled else None,
        )
        training.finish(status, fitted)
        if self.shrinkage == "auto" and sample_weight is None and not is_dask(X):
            warn_if_trials_are_worse(self, inputs, pairs.labels)
        return self

    def _problem(self, pairs: Pairs, *, floored: bool) -> MMCProblem:
        points = pairs.points
        if isinstance(points, Blocks):
            check_range(points)
            of_blocks = DiagonalMMCBlocks if self.diagonal else MMCBlocks
            return of_blocks.of(pairs, self.shrinkage_, floored=floored)
        kind = DiagonalMMCProblem if self.diagonal else MMCProblem
        return kind.build(pairs, robust_centre(points), self.shrinkage_, floored=floored)

    def _check_parameters(self) -> None:
        n_features = self.n_features_in_
        check_limits(self)
        check_shrinkage(self.shrinkage)
        if self.n_components is not None:
            check_number("n_components", self.n_components, Integral, 1, n_features)
        check_choice("reduce", self.reduce, ("learn", "project"))
        if self.diagonal and learned_rows(self.n_components, self.reduce, n_features) is not None:
            raise InvalidInputError(
                f"diagonal=True cannot learn a map of n_components={self.n_components} rows: to"
                " choose features is another problem. Set reduce='project' to keep the features of"
                " largest weight, or n_components=None."
            )
        if isinstance(self.init, str) or self.init is None:
            check_choice("init", self.init, ("auto",), or_else=" or an array")
