"""Distance metric learning by eigenvalues as a scikit-learn transformer."""

from __future__ import annotations

from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.blocks import Blocks
from nearfar.estimators._base import MetricLearner
from nearfar.estimators._shrinkage import check_shrinkage, in_inputs
from nearfar.estimators._start import check_range, principal_rows
from nearfar.estimators._training import (
    Proof,
    Training,
    check_limits,
    settled,
    store_ending,
    with_callbacks,
)
from nearfar.estimators._tuples import (
    PairLearner,
    drawn_pairs,
    far_rows,
    shrunk_pairs,
    validated_pairs,
    weights_proof,
)
from nearfar.kernels import kernels_for, single_threaded_blas, to_host
from nearfar.limits import fit_clock
from nearfar.linalg import canonical_factor, pad_or_trim_rows
from nearfar.problems.dml_eig import DMLEigProblem
from nearfar.problems.dml_eig_blocks import DMLEigBlocks
from nearfar.solvers import Iterate
from nearfar.solvers.covering import solve_covering_sdp
from nearfar.solvers.frank_wolfe import frank_wolfe
from nearfar.supervision import Pairs
from nearfar.validation import check_choice, check_number

RIDGE = 1e-9  # for shrinkage=0: the share of the mean of H that makes the problem well-posed
AUTO_ROWS = 100  # for each feature, at which shrinkage "auto" is one half: the rank is low
LECTURE_SMOOTHING = 1e-5  # σ for each feature
NO_WEIGHT = 1e-12  # share of the largest dual weight below which a pair is left out of the proof


class DMLEig(PairLearner, MetricLearner):
    """Distance metric learning by eigenvalues: the closest far pair as far apart as possible.

    Learns the metric A = LᵀL with the largest ``min (a - b)ᵀA(a - b)`` over the far pairs, among
    all with a sum of squared distances ``Σ (a - b)ᵀA(a - b)`` over the near pairs equal to the
    number of features.

    The problem is convex, and ``duality_gap_`` proves how close the answer is to the optimum. See
    ``docs/algorithms/dml_eig.md`` for the mathematics.

    Parameters
    ----------
    n_components : int or None, default=None
        Rows of the map: the points that the full metric has transformed are projected on their
        principal components. None keeps the full metric; its map then has as many rows as the
        metric has rank. If the metric has less rank than asked for, the last rows are zero.
    shrinkage : float or "auto", default="auto"
        How much of the inputs' distance to keep, from 0 to below 1: with d features and T the sum
        of squared Euclidean distances over the near pairs, the scatter H of the near pairs becomes
        ``(1 - shrinkage) H + shrinkage (T / d) I``, and A stays above ``shrinkage d / T`` times
        the identity. 0 is the lecture's program, up to 1e-9 of the mean of H on its diagonal; a
        warning says where nothing else limits the metric. From pairs "auto" is
        4 d / (4 d + n) for n near pairs, or points, if these are fewer, and brings features to one
        scale where that separates near from far better (see ``feature_scale_``). From n labelled
        points it is 100 d / (100 d + n), and keeps a mean of distances instead: of the inputs, of
        features at one scale, and of discriminant analysis of both, weighted by how well each
        classifies points that are left out (see ``prior_components_``).
    solver : {"interior-point", "lecture"}, default="interior-point"
        "interior-point" adds far pairs as they are needed, and reaches small gaps in few
        iterations. "lecture" is the Frank-Wolfe method of the lecture with smoothing 1e-5 d and
        steps 1/t. Its best iterate is kept, whose gap is seldom below 0.1.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes of labelled points, by which ``sample_weight`` is multiplied:
        "balanced" gives all classes the same weight, and classes that a dict does not name have
        the weight 1.
    n_pairs : int or None, default=None
        For class labels: how many near and how many far pairs to draw. None takes all.
    tol : float, default=1e-3
        Certified relative duality gap at which to stop.
    max_iter : int, default=1000
        Largest number of iterations.
    max_seconds : float or None, default=None
        Largest time in seconds.
    verbose : int, default=0
        1 shows the iterations while fitting: a bar, or lines if stderr is no terminal.
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
        The smallest squared learned distance of a far pair, before ``n_components`` cut off rows,
        computed in float64.
        None, like the gap, if it could not be computed within twice ``max_seconds``.
    duality_gap_ : float
        Proved bound on (optimum − objective) relative to the objective.
    proof_ : dict or None
        What proves ``duality_gap_``, for `nearfar.verify`: the far pairs whose dual weight is not
        zero, their weights, and all pairs if they were drawn.
    status_ : str
        Why the fit ended: "converged", "max_iter", "max_seconds", "stalled", "stopped" (by a
        callback) or "interrupted".
    n_iter_ : int
        Number of iterations, each with a pass over all far pairs.
    history_ : list of dict
        For each iteration: n_iter, seconds, objective, duality_gap (certified) and residual (the
        same), and for the interior-point method pairs_at_hand and newton_steps.
    classes_ : ndarray
        The labels, if y held class labels.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of str
        Names of the features, if X had any.

    Notes
    -----
    Let there be n points, d features, m far pairs and rank r. The interior-point method works on k
    of the far pairs, those that are nearly the closest, often about d of them. An iteration costs
    O(n d r + m r) for a pass over all pairs and O(k² d + k³) for each of a few steps. An iteration
    of the lecture's method costs O(n d² + m d + d³). Memory is O(n d + m + k²), or O(m d) where
    pairs do not share points. Sparse input is refused.

    References
    ----------
    Phillips, Data mining: algorithms, geometry, and probability, lecture 15, metric learning.
    Ying & Li, Distance metric learning with eigenvalue optimization, JMLR 13 (2012).

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from nearfar import DMLEig
    >>> X, y = load_iris(return_X_y=True)
    >>> metric = DMLEig().fit(X, y)
    >>> metric.status_, metric.duality_gap_ <= 1e-3
    ('converged', True)

    From pairs, +1 near and -1 far:

    >>> from nearfar import make_pairs
    >>> pairs, kinds = make_pairs(X, y, 50, random_state=0)
    >>> metric = DMLEig().fit(pairs, kinds)
    >>> closest = metric.pair_distance(pairs[kinds == -1]).min()
    >>> bool(abs(closest**2 / metric.objective_ - 1) < 1e-9)
    True
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        shrinkage: float | str = "auto",
        solver: str = "interior-point",
        class_weight: str | dict[Any, float] | None = None,
        n_pairs: int | None = None,
        tol: float = 1e-3,
        max_iter: int = 1000,
        max_seconds: float | None = None,
        verbose: int = 0,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.shrinkage = shrinkage
        self.solver = solver
        self.class_weight = class_weight
        self.n_pairs = n_pairs
        self.tol = tol
        self.max_iter = max_iter
        self.max_seconds = max_seconds
        self.verbose = verbose
        self.random_state = random_state

    @with_callbacks
    @single_threaded_blas()
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> DMLEig:
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
            points is the product of theirs, so that integers count as repeated points. Of far
            pairs only whether they have weight matters, since the closest one counts.

        Returns
        -------
        DMLEig
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
        check_range(pairs.points)

        inputs = pairs.points
        pairs, prior = shrunk_pairs(self, pairs, AUTO_ROWS)
        points, scale = pairs.points, self.feature_scale_
        problem = self._problem(pairs)
        if isinstance(points, Blocks):  # differences are in shards: rows may be freed
            inputs, pairs = None, replace(pairs, points=None)
            points = None if self.n_components is None else points
        if self.solver == "lecture":
            iterates = frank_wolfe(problem, LECTURE_SMOOTHING * problem.trace)
        else:
            iterates = solve_covering_sdp(problem, self.tol)

        def attributes(iterate: Iterate) -> dict[str, Any]:
            components = problem.returned(iterate.point)
            if self.n_components is not None:
                rows = principal_rows(components, points)[: self.n_components]
                components = canonical_factor(rows)
            components = in_inputs(components, scale, prior)
            components = pad_or_trim_rows(components, self.n_components)
            of_points = problem.points
            return {"components_": kernels_for(of_points).like(components, of_points)}

        training = Training(self, X, y)
        solution = training.run(iterates, attributes)

        best = solution.iterate
        fitted = attributes(best)
        self.components_ = fitted["components_"]
        certificate = fit_clock().in_time(lambda: problem.certify(best.point, *best.certificate))
        objective, gap = None, None
        self.proof_: Proof | None = None
        if certificate is not None:
            objective, gap = certificate.objective, certificate.gap
            dual_point = _dual_point(far_rows(pairs, X), *best.certificate)
            self.proof_ = dual_point | drawn_pairs(pairs, self.n_pairs) | weights_proof(pairs)
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
        return self

    def _problem(self, pairs: Pairs) -> DMLEigProblem:
        in_blocks = isinstance(pairs.points, Blocks)
        build = DMLEigBlocks.of if in_blocks else DMLEigProblem.build
        return build(pairs, self.shrinkage_ or RIDGE, floored=self.shrinkage_ > 0)

    def _check_parameters(self) -> None:
        check_limits(self)
        if self.n_components is not None:
            check_number("n_components", self.n_components, Integral, 1, self.n_features_in_)
        check_shrinkage(self.shrinkage)
        check_choice("solver", self.solver, ("interior-point", "lecture"))


def _dual_point(far: NDArray[np.int32], weights: Any, numbers: Any = None) -> Proof:
    """The far pairs (m, 2) of positive weight, and these weights.

    Weights are those of all far pairs, or of the pairs with these numbers.
    """
    weights = np.asarray(to_host(weights), dtype=np.float64)
    used = np.flatnonzero(weights > NO_WEIGHT * weights.max())
    return {"pairs": far[used if numbers is None else numbers[used]], "weights": weights[used]}
