"""Local Fisher discriminant analysis as a scikit-learn transformer."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

from nearfar.errors import DataWarning, InvalidInputError, warn
from nearfar.estimators._base import MetricLearner
from nearfar.estimators._input import validated_labels, validated_points
from nearfar.estimators._start import check_spread, without_dead_features
from nearfar.estimators._training import Callbacks, store_ending, with_callbacks
from nearfar.kernels import Array, kernels_for, single_threaded_blas
from nearfar.linalg import pad_or_trim_rows
from nearfar.problems.lfda import LFDAProblem
from nearfar.problems.whitening import rounded_like
from nearfar.solvers import Status
from nearfar.supervision import ClassOrder
from nearfar.supervision.labels import check_near_and_far
from nearfar.validation import check_choice, check_number

EMBEDDINGS = ("weighted", "orthonormalized", "plain")
STEADYING = 0.1  # regularization where classes leave directions open


class LFDA(MetricLearner):
    """Local Fisher discriminant analysis: classes apart, near points of a class together.

    Fisher's discriminant pulls all points of a class together, also if the class lies in several
    pieces. Here pairs of a class count by ``exp(-‖a - b‖² / (σ_a σ_b))``, with σ the distance of a
    point to its k-th nearest neighbour in its class, so that only near ones are pulled. The answer
    is that of one generalised eigenproblem. See ``docs/algorithms/lfda.md`` for the mathematics.

    Parameters
    ----------
    n_components : int or None, default=None
        Rows of the map: the directions that tell classes apart best. None keeps all. If there are
        fewer than asked for, the last rows are zero.
    n_neighbors : int, default=7
        The neighbour whose distance is the scale of a point. A class with fewer members uses its
        farthest.
    embedding_type : {"weighted", "orthonormalized", "plain"}, default="weighted"
        The lengths of the directions: "plain" has unit local scatter within classes along each,
        "weighted" is longer where classes are farther apart, by the root of the eigenvalue, and
        "orthonormalized" has orthonormal rows.
    regularization : float, default=0.0
        The scatter of each feature times this is added to the diagonal of the scatter within
        classes. Where it is 0 and points vary in directions in which those of a class do not, 0.1
        is used, with a warning.

    Attributes
    ----------
    components_ : ndarray or torch.Tensor of shape (n_components, n_features)
        The map L, its rows sorted by decreasing length.
    regularization_ : float
        The regularization that was used.
    objective_ : float
        ``tr((L S Lᵀ)⁻¹ L B Lᵀ)``, the local scatter between classes relative to that within them,
        computed from the data in float64; what is maximised.
    duality_gap_ : float
        Bound on (optimum − objective) relative to the objective, or to 1 if that is larger. It is
        rounding, and tells how much.
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
    O(n d + d²): pairs are taken in blocks. Sparse input is refused.

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
        regularization: float = 0.0,
    ) -> None:
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.embedding_type = embedding_type
        self.regularization = regularization

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
            components = pad_or_trim_rows(L, self.n_components)
            self.components_ = kernels_for(points).like(components, points)
            objective, gap = problem.objective_and_gap(L)
        store_ending(self, Status.CONVERGED, objective, gap, [])
        callbacks.finish({"components_": self.components_})
        return self

    def _posed(self, points: Array, labels: ClassOrder) -> LFDAProblem:
        """The problem in coordinates in which it can be solved; sets ``regularization_``."""
        check_spread(float(points.max()) - float(points.min()))
        if not bool((points != points[:1]).any()):
            raise InvalidInputError(
                f"LFDA needs points that differ; all n_samples={len(points)} are equal. Check X."
            )
        points, kernels = without_dead_features(points), kernels_for(points)
        self.regularization_ = float(self.regularization)
        problem = LFDAProblem.build(kernels, points, labels, self.n_neighbors, self.regularization_)
        flat, rank = problem.n_flat, problem.rank
        if flat and self.regularization_:
            raise InvalidInputError(
                f"regularization={self.regularization:g} is lost in the rounding of the scatter"
                " within classes. Raise it, for example to 0.1."
            )
        if flat:
            self.regularization_ = STEADYING
            warn(
                f"the points vary in {rank} directions, but near points of a class in"
                f" {rank - flat} only: the criterion has no maximum in the other {flat}, and"
                f" regularization={STEADYING:g} is used. Set it, use PCA first, or add points.",
                DataWarning,
            )
            problem = LFDAProblem.build(kernels, points, labels, self.n_neighbors, STEADYING)
        return problem

    def _check_parameters(self) -> None:
        if self.n_components is not None:
            check_number("n_components", self.n_components, Integral, 1, self.n_features_in_)
        check_number("n_neighbors", self.n_neighbors, Integral, 1, None)
        check_choice("embedding_type", self.embedding_type, EMBEDDINGS)
        check_number("regularization", self.regularization, Real, 0, None)
