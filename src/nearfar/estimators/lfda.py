"""Local Fisher discriminant analysis as a scikit-learn transformer."""

from __future__ import annotations

from numbers import Integral
from typing import Any

from nearfar.errors import InvalidInputError
from nearfar.estimators._base import MetricLearner
from nearfar.estimators._input import validated_labels, validated_points
from nearfar.estimators._shrinkage import better_scale, check_shrinkage, shrinkage_for
from nearfar.estimators._start import all_equal, check_range, without_dead_features
from nearfar.estimators._training import Callbacks, store_ending, with_callbacks
from nearfar.kernels import Array, kernels_for, single_threaded_blas, to_host
from nearfar.linalg import canonical_factor, pad_or_trim_rows
from nearfar.problems.lfda import LFDAProblem
from nearfar.problems.whitening import rounded_like
from nearfar.solvers import Status
from nearfar.supervision import ClassOrder
from nearfar.supervision.labels import check_near_and_far
from nearfar.validation import check_choice, check_number

EMBEDDINGS = ("weighted", "orthonormalized", "plain")
NEIGHBORS = 3  # whose errors decide whether features are scaled


class LFDA(MetricLearner):
    """Local Fisher discriminant analysis: classes apart, near points of a class together.

    Fisher's discriminant pulls all points of a class together, also if the class lies in several
    pieces. Here pairs of a class count by ``exp(-‖a - b‖² / (σ_a σ_b))``, with σ the distance of a
    point to its k-th nearest neighbour in its class, so that only near ones are pulled. One
    generalised eigenproblem gives the solution. See ``docs/algorithms/lfda.md`` for the
    mathematics.

    Parameters
    ----------
    n_components : int or None, default=None
        Rows of the map: the directions that separate classes best. None keeps all. If there are
        fewer than asked for, the last rows are zero.
    n_neighbors : int, default=7
        The scale of a point is its distance to the neighbour of this number in its class. In a
        smaller class it is the distance to the farthest member.
    embedding_type : {"weighted", "orthonormalized", "plain"}, default="weighted"
        The lengths of the directions: "plain" has unit local scatter within classes along each,
        "weighted" is longer where classes are farther apart, by the root of the eigenvalue, and
        "orthonormalized" has orthonormal rows.
    shrinkage : float or "auto", default="auto"
        How much of the inputs' distance to keep, from 0 to below 1: the local scatters S within and
        B between classes become ``(1 - shrinkage) S + shrinkage (tr S / d) I``, and B likewise. 0
        is the paper's program, which needs near points of a class that differ in every direction in
        which points differ. "auto" is 4 d / (4 d + n) for n points and d features; it also brings
        features to one scale where that classifies better (see ``feature_scale_``).

    Attributes
    ----------
    components_ : ndarray or torch.Tensor of shape (n_components, n_features)
        The map L, its rows sorted by decreasing length.
    shrinkage_ : float
        The shrinkage that was used.
    feature_scale_ : ndarray of shape (n_features,) or None
        What ``shrinkage="auto"`` multiplied features by, powers of two; None for ones.
        ``components_`` are for the features as they were given.
    objective_ : float
        ``tr((L S Lᵀ)⁻¹ L B Lᵀ)`` of features that are multiplied by ``feature_scale_``: the
        local scatter between classes relative to that within them, computed from the data in
        float64; what is maximised.
    duality_gap_ : float
        Bound on (optimum − objective) relative to the objective, or to 1 if that is larger. The
        solution has a closed form, so the gap only shows rounding errors.
    status_ : str
        "converged".
    n_iter_ : int
        0, since there is a closed form.
    history_ : list
        Empty.
    classes_ : ndarray
        The labels.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of str
        Names of the features, if X had any.

    Notes
    -----
    With classes of m points and d features the time is O(Σ m² d + n d² + d³), and the memory
    O(n d + d²): pairs are taken in blocks. `fit` refuses sparse input.

    References
    ----------
    Sugiyama, Dimensionality reduction of multimodal labeled data by local Fisher discriminant
    analysis, JMLR 8 (2007).

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from nearfar import LFDA
    >>> X, y = load_iris(return_X_y=True)
    >>> LFDA(n_components=2).fit(X, y).transform(X).shape
    (150, 2)
    """

    def __init__(
        self,
        n_components: int | None = None,
        n_neighbors: int = 7,
        *,
        embedding_type: str = "weighted",
        shrinkage: float | str = "auto",
    ) -> None:
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.embedding_type = embedding_type
        self.shrinkage = shrinkage

    @with_callbacks
    def fit(self, X: Any, y: Any = None) -> LFDA:
        """Learn the metric.

        Parameters
        ----------
        X : array-like or torch.Tensor of shape (n_samples, n_features)
            The points. Float32 stays float32; tensors are computed on their device.
        y : array-like of shape (n_samples,)
            Class labels.

        Returns
        -------
        LFDA
            The fitted estimator.
        """
        points = validated_points(self, X, reset=True)
        self._check_parameters()
        labels = validated_labels(self, points, y)
        check_near_and_far(labels, type(self).__name__)
        callbacks = Callbacks(self, X, y)
        with single_threaded_blas():
            problem = self._posed(points, labels)
            L = rounded_like(problem.solution(self.n_components, self.embedding_type), points)
            scale = self.feature_scale_
            scaled = L if scale is None else canonical_factor(L * scale)
            components = pad_or_trim_rows(scaled, self.n_components)
            self.components_ = kernels_for(points).like(components, points)
            objective, gap = problem.objective_and_gap(L)
        store_ending(self, Status.CONVERGED, objective, gap, [])
        callbacks.finish({"components_": self.components_})
        return self

    def _posed(self, points: Array, labels: ClassOrder) -> LFDAProblem:
        """The problem of scaled points; sets ``shrinkage_`` and ``feature_scale_``."""
        check_range(points)
        if all_equal(points):
            raise InvalidInputError(
                f"LFDA needs points that differ; all n_samples={len(points)} are equal. Check X."
            )
        points, kernels = without_dead_features(points), kernels_for(points)
        scale = None
        if isinstance(self.shrinkage, str):
            scale = better_scale(points, labels.codes, NEIGHBORS)
            points = points if scale is None else points * scale
        self.feature_scale_ = None if scale is None else to_host(scale)
        d = int(kernels.to_host((points != points[:1]).any(0)).sum())
        self.shrinkage_ = shrinkage_for(self.shrinkage, len(points), d)
        problem = LFDAProblem.build(kernels, points, labels, self.n_neighbors, self.shrinkage_)
        flat, rank = problem.n_flat, problem.rank
        if flat and self.shrinkage_:
            raise InvalidInputError(
                f"shrinkage={self.shrinkage_:g} is lost in the rounding of the scatter within"
                " classes. Raise it, for example to 0.1."
            )
        if flat:
            raise InvalidInputError(
                f"shrinkage=0 needs near points of a class that differ in all {rank} directions in"
                f" which points differ; they differ in {rank - flat}, and the criterion has no"
                f" maximum in the other {flat}. Set shrinkage='auto' or a number, use PCA first, or"
                " add points."
            )
        return problem

    def _check_parameters(self) -> None:
        if self.n_components is not None:
            check_number("n_components", self.n_components, Integral, 1, self.n_features_in_)
        check_number("n_neighbors", self.n_neighbors, Integral, 1, None)
        check_choice("embedding_type", self.embedding_type, EMBEDDINGS)
        check_shrinkage(self.shrinkage)
