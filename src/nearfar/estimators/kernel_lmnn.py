"""Large margin nearest neighbours in the feature space of a kernel, as a transformer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.estimators._held_out import EarlyStopping, votes_under
from nearfar.estimators._input import validated_labels, validated_points, warn_of_coinciding
from nearfar.estimators._kernel import Expansion, KernelMetricLearner
from nearfar.estimators._large_margin import (
    Descent,
    Split,
    check_margin_parameters,
    margin_proof,
    objective_without_variation,
)
from nearfar.estimators._shrinkage import check_shrinkage, margin_shrinkage, warn_if_worse
from nearfar.estimators._training import Proof, Training, store_ending, with_callbacks
from nearfar.kernels import single_threaded_blas, take_rows
from nearfar.problems.lmnn import LMNNProblem
from nearfar.solvers import Iterate, Status
from nearfar.supervision import ClassOrder, nearest_targets
from nearfar.supervision.labels import check_class_sizes

Index = NDArray[np.intp]
Matrix = NDArray[np.float64]


class KernelLMNN(KernelMetricLearner):
    """Large margin nearest neighbours in the feature space of a kernel.

    Learns ``M = Σ A_lm φ(x_l) φ(x_m)ᵀ`` with A ⪰ 0 over the training points: the metric of `LMNN`
    after the map φ of a kernel, which is used through kernel values only. The problem is convex,
    and ``duality_gap_`` proves how close the answer is to the optimum. With the linear kernel it
    is `LMNN`. See ``docs/algorithms/kernel_lmnn.md`` for the mathematics.

    With a kernel matrix of full rank, such as that of an RBF kernel, some metric maps every class
    of the training points to one point: the papers' objective falls to zero whatever the labels
    are. ``shrinkage`` keeps some of the kernel's own distance; or keep few directions (``rank``),
    few rows (``n_components``) or hold rows out (``validation_fraction``).

    Parameters
    ----------
    kernel : str or callable, default="rbf"
        "linear", "poly", "rbf", "sigmoid", "cosine" or "laplacian", by the formulas of
        scikit-learn; "precomputed" for kernel matrices in place of points, of shape (n, n) in
        ``fit`` and (m, n) afterwards; or a function of two vectors that returns a number.
    gamma : float or None, default=None
        Parameter of the kernels poly, rbf, sigmoid and laplacian. None means 1 over the sum of the
        variances of the features. For labelled points, an RBF kernel and ``shrinkage="auto"`` it
        is three tenths of that for points Wx, with W as ``kernel_components_`` says.
    kernel_params : dict or None, default=None
        Parameters of the kernels poly ("degree", default 3, and "coef0", default 1) and sigmoid
        ("coef0"); for a function, its further arguments.
    rank : int, float or None, default=None
        Number of leading principal directions in feature space to learn on; a number below 1 is the
        share of the variance that they carry. None takes all that are not rounding errors.
    n_neighbors : int, default=3
        Target neighbours of each point, the nearest of its class in feature space. A class with
        fewer members uses fewer.
    push_weight : float, default=0.5
        Weight of the push against impostors, between 0 and 1 (the papers' mu).
    shrinkage : float or "auto", default="auto"
        How much of the kernel's own distance to keep, from 0, the papers' program, to below 1,
        towards which the metric becomes that of the kernel. "auto" is 4 r / (4 r + n) for n rows in
        r directions, 16 r / (16 r + n) where it chose ``kernel_components_``, or 0 for more than
        5000 directions. A full metric has rank r then; for a map of few rows only the pull is
        shrunk.
    n_components : int or None, default=None
        Rows of the map. None learns the full metric; its map then has as many rows as the metric
        has rank. A smaller number learns a map of so many rows, which is not convex.
    validation_fraction : float or None, default=None
        Share of the rows of each class to hold out. Learning stops when their k-nearest-neighbour
        error no longer falls, and the map with the smallest error is kept.
    tol : float, default=1e-3
        Certified relative duality gap at which to stop; for a learned map of few rows, the
        estimated relative decrease that is left.
    max_iter : int, default=1000
        Largest number of iterations.
    max_seconds : float or None, default=None
        Largest time in seconds.
    verbose : int, default=0
        1 shows the iterations while fitting: a bar, or lines if stderr is no terminal.
    memory_limit : float or None, default=None
        Gigabytes that may be used; None is all memory of the machine or the device. If more is
        needed, an error is raised before it is allocated.
    random_state : int, RandomState instance or None, default=None
        Chooses the held-out rows.

    Attributes
    ----------
    dual_coef_ : ndarray or torch.Tensor of shape (n_components, n_fit)
        The map: a point x goes to ``dual_coef_ @ k`` with k its kernel values to the rows of
        ``X_fit_``. Rows are orthogonal in feature space, longest first, and sum to zero. Float64.
    X_fit_ : ndarray, torch.Tensor or None, of shape (n_fit, n_features)
        The points that were learned from: all but those held out, in the given order. None for
        precomputed kernels, where n_fit is the number of all training points.
    eigenvalues_ : ndarray of shape (rank,)
        Of the centred kernel matrix, descending: n_fit times the variances in feature space.
    eigenvectors_ : ndarray of shape (n_fit, rank)
        Their vectors, the principal directions in feature space.
    gamma_ : float or None
        The gamma that was used; None for kernels without one.
    kernel_components_ : ndarray of shape (n_features, n_features) or None
        W, if the kernel is k(Wx, Wx'): the distance inside it is then a mean of those of the
        inputs, of features at one scale, and of discriminant analysis of both, weighted by how
        well each classifies rows that are left out. None for k(x, x').
    shrinkage_ : float
        The shrinkage that was used.
    objective_ : float or None
        The papers' objective, over all impostors, computed in float64.
        None, like the gap, if it could not be computed within twice ``max_seconds``.
    duality_gap_ : float or None
        Proved bound on (objective − optimum) relative to the objective, or to 1 if that is larger;
        None for a learned map of few rows.
    proof_ : dict or None
        What proves ``duality_gap_``, for `nearfar.verify`: as of `LMNN`. None where all points are
        equal.
    status_ : str
        Why the fit ended: "converged", "max_iter", "max_seconds", "stalled", "stopped" (by a
        callback), "early_stopped" (by validation) or "interrupted".
    n_iter_ : int
        Number of iterations.
    history_ : list of dict
        For each iteration: n_iter, seconds, objective (over the triplets at hand), residual (the
        gap over these, or for a map of few rows the estimated relative decrease that is left; None
        where not computed), duality_gap (certified, over all triplets; None where not computed),
        active_triplets, searched (whether all pairs were searched), and at some iterations rank
        and validation_error.
    classes_ : ndarray
        The labels.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of str
        Names of the features, if X had any.

    Notes
    -----
    With n points and d features, the kernel matrix costs O(n² d) for the named kernels, its
    eigenvectors O(n³), and the learning what `LMNN` costs on ``rank`` features. Memory is O(n²).
    A new point costs O(n d). The number of features matters only for the kernel, so that few
    points of many features are cheap. Kernel values are float64 in any case, since small
    eigenvalues need their digits; float32 in gives float32 out. `fit` refuses sparse input.

    References
    ----------
    Weinberger & Saul, Distance metric learning for large margin nearest neighbor classification,
    JMLR 10 (2009), section 5.3; Torresani & Lee, Large margin component analysis, NIPS 2006.

    Examples
    --------
    >>> from sklearn.datasets import make_circles
    >>> from nearfar import KernelLMNN
    >>> X, y = make_circles(200, noise=0.05, factor=0.8, random_state=0)
    >>> model = KernelLMNN(rank=20).fit(X, y)
    >>> model.status_, model.duality_gap_ <= 1e-3
    ('converged', True)
    >>> model.transform(X).shape[0]
    200
    """

    def __init__(
        self,
        kernel: str | Callable[..., float] = "rbf",
        gamma: float | None = None,
        *,
        kernel_params: dict[str, Any] | None = None,
        rank: int | float | None = None,
        n_neighbors: int = 3,
        push_weight: float = 0.5,
        shrinkage: float | str = "auto",
        n_components: int | None = None,
        validation_fraction: float | None = None,
        tol: float = 1e-3,
        max_iter: int = 1000,
        max_seconds: float | None = None,
        verbose: int = 0,
        memory_limit: float | None = None,
        random_state: Any = None,
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.kernel_params = kernel_params
        self.rank = rank
        self.n_neighbors = n_neighbors
        self.push_weight = push_weight
        self.shrinkage = shrinkage
        self.n_components = n_components
        self.validation_fraction = validation_fraction
        self.tol = tol
        self.max_iter = max_iter
        self.max_seconds = max_seconds
        self.verbose = verbose
        self.memory_limit = memory_limit
        self.random_state = random_state

    @with_callbacks
    @single_threaded_blas()
    def fit(self, X: Any, y: Any) -> KernelLMNN:
        """Learn the metric.

        Parameters
        ----------
        X : array-like or torch.Tensor of shape (n_samples, n_features)
            The points, or with ``kernel="precomputed"`` their kernel matrix. Tensors are computed
            on their device, except for the eigenvectors of the kernel matrix.
        y : array-like of shape (n_samples,)
            Class labels: numbers, strings, booleans or categories.

        Returns
        -------
        KernelLMNN
            The fitted estimator.
        """
        X = validated_points(self, X, reset=True)
        labels = validated_labels(self, X, y)
        check_margin_parameters(self)
        check_shrinkage(self.shrinkage)
        self._checked_kernel(X)
        check_class_sizes(labels, self.n_neighbors, type(self).__name__)
        split = Split.of(labels, self.validation_fraction, self.random_state, type(self).__name__)

        points = self._expansion(X, np.sort(split.order), labels.codes)
        shaped = points.kernel.components is not None
        self.shrinkage_ = margin_shrinkage(self.shrinkage, points.coordinates, shaped=shaped)
        training = Training(self, X, y)
        if len(points.span.values) == 0:
            self._store_without_variation(points, split.labels)
            training.finish(self.status_, self._zero_map(points))
            return self
        descent = self._descent(points, split.labels)

        start, stopping = descent.first_guess(), None
        if split.held_out is not None:  # the path matters: it begins at the kernel's own distance
            if descent.rows is None:
                start = descent.first_guess("identity")
            descent = descent.in_geometry_of(start)
            stopping = self._early_stopping(descent, points, labels.codes, split.held_out)
            stopping.begin(descent.start_iterate(start))

        def attributes(iterate: Iterate) -> dict[str, Any]:
            return self._map(points, descent.components(iterate))

        solution = descent.solve(training, start, attributes, stopping=stopping)
        certificate = descent.certificate(solution.iterate)

        self._store(attributes(solution.iterate))
        proved = certificate if descent.rows is None else None
        self.proof_: Proof | None = margin_proof(descent.problem, proved, split.order, len(X))
        status, objective = descent.settled(solution.status, certificate), None
        if certificate is not None:
            objective = certificate.objective
            warn_of_coinciding(certificate.n_coinciding)
        store_ending(self, status, objective, descent.gap(certificate), training.history)
        if split.held_out is not None:
            self._warn_if_worse(
                descent.components(solution.iterate), points, labels, split.held_out
            )
        training.finish(status, attributes(solution.iterate))
        return self

    def _descent(self, points: Expansion, labels: ClassOrder) -> Descent:
        """The problem on the features of the points."""
        E = take_rows(points.coordinates, labels.order)
        edges = nearest_targets(E, labels, self.n_neighbors)
        learns = self.n_components is not None and self.n_components < E.shape[1]
        problem = LMNNProblem.build(
            E,
            E[0] * 0,
            edges,
            labels.starts,
            self.push_weight,
            self.shrinkage_,
            floored=not learns,
        )
        problem = replace(
            problem,
            images=lambda components: take_rows(points.images(components), labels.order),
        )
        return Descent(problem, E, labels, self.tol, self.n_components if learns else None)

    def _early_stopping(
        self, descent: Descent, points: Expansion, codes: Index, held_out: Index
    ) -> EarlyStopping:
        """Stops by the error on the held-out rows."""
        old, new, k = points.features(points.rows), points.features(held_out), self.n_neighbors
        known = codes[points.rows]
        return EarlyStopping(
            lambda iterate: votes_under(descent.components(iterate), old, known, new, k),
            codes[held_out],
        )

    def _warn_if_worse(
        self, components: Matrix, points: Expansion, labels: ClassOrder, held_out: Index
    ) -> None:
        """Warn if the held-out rows are classified better by the kernel's own distance."""
        old, new, known = points.features(points.rows), points.features(held_out), labels.codes
        learned, before = (
            votes_under(L, old, known[points.rows], new, self.n_neighbors)
            for L in (components, np.eye(components.shape[1]))
        )
        warn_if_worse(
            learned,
            before,
            known[held_out],
            n_rows=len(points.rows),
            n_features=components.shape[1],
            n_classes=len(labels.classes),
        )

    def _store_without_variation(self, points: Expansion, labels: ClassOrder) -> None:
        """All points are equal in feature space: no map can separate them, so zero is kept."""
        heads, _ = nearest_targets(np.zeros((len(labels.codes), 1)), labels, self.n_neighbors)
        objective = objective_without_variation(self.push_weight, labels, heads)
        self._store(self._zero_map(points))
        self.proof_ = None
        store_ending(self, Status.CONVERGED, objective, 0.0, [])
