"""scikit-learn's ``NeighborhoodComponentsAnalysis`` on `nearfar.NCA`.

>>> from nearfar.compat.sklearn_nca import NeighborhoodComponentsAnalysis
>>> from sklearn.datasets import load_iris
>>> X, y = load_iris(return_X_y=True)
>>> NeighborhoodComponentsAnalysis(n_components=2).fit(X, y).transform(X).shape
(150, 2)
"""

from __future__ import annotations

import sys
import time
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

import nearfar
from nearfar.compat.metric_learn._base import (
    has_near_and_far,
    papers_program,
    print_history,
)
from nearfar.compat.metric_learn._input import (
    PeerError,
    auto_init,
    check_initial_map,
    initial_map,
)
from nearfar.validation import check_number

FOUND = {"pca": "principal components", "lda": "most discriminative components"}


class NeighborhoodComponentsAnalysis(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator
):
    """Neighbourhood components analysis with scikit-learn's parameters, learned by `nearfar.NCA`.

    Parameters
    ----------
    n_components : int or None, default=None
        Rows of the map; None takes as many as there are features.
    init : {"auto", "pca", "lda", "identity", "random"} or array, default="auto"
        The map to start from. "auto" is LDA where that has enough directions, else PCA, else the
        identity.
    warm_start : bool, default=False
        Start from the map of the last fit.
    max_iter : int, default=50
        Largest number of iterations.
    tol : float, default=1e-5
        Estimated relative gain that is left at which to stop.
    callback : callable or None, default=None
        Called after each iteration with the map, raveled, and the number of iterations.
    verbose : int, default=0
        Whether to print a line for each iteration, after the fit.
    random_state : int, RandomState instance or None, default=None
        Draws ``init="random"``.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        The map.
    learner_ : NCA
        The estimator of nearfar that learned it, with status and history.
    n_iter_ : int
        Number of iterations.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of str
        Names of the features, if X had any.
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        init: Any = "auto",
        warm_start: bool = False,
        max_iter: int = 50,
        tol: float = 1e-5,
        callback: Any = None,
        verbose: int = 0,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.init = init
        self.warm_start = warm_start
        self.max_iter = max_iter
        self.tol = tol
        self.callback = callback
        self.verbose = verbose
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> NeighborhoodComponentsAnalysis:
        """Learn the map from labelled points."""
        if self.warm_start and hasattr(self, "components_"):
            self._check_warm_start(X)
        X, y = validate_data(self, X, y, ensure_min_samples=2, dtype=[np.float64, np.float32])
        check_classification_targets(y)
        rows = self._rows(X.shape[1])
        start = self._start(X, y, rows)
        if not has_near_and_far(y):
            self.components_, self.n_iter_ = start, 0
            return self
        learner = papers_program(
            nearfar.NCA, n_components=rows, init=start, max_iter=self.max_iter, tol=self.tol
        )
        if self.callback is not None:
            learner.set_callbacks(IterationCallback(self.callback))
        self.learner_ = learner.fit(X, y)
        self.components_, self.n_iter_ = learner.components_, learner.n_iter_
        if self.verbose:
            print_history(self, learner, "NCA")
        return self

    def transform(self, X: Any) -> NDArray[Any]:
        """The images of points."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=[np.float64, np.float32])
        return np.asarray(X @ self.components_.T)

    @property
    def _n_features_out(self) -> int:
        return int(self.components_.shape[0])

    def _check_warm_start(self, X: Any) -> None:
        learned = self.components_.shape[1]
        if np.shape(X)[1:] != (learned,):
            raise PeerError(
                f"The new inputs dimensionality ({np.shape(X)[1]}) does not match the input"
                f" dimensionality of the previously learned transformation ({learned})."
            )

    def _rows(self, d: int) -> int:
        """The number of rows of the map, checked."""
        if self.n_components is not None:
            check_number("n_components", self.n_components, Integral, 1)
            if self.n_components > d:
                raise PeerError(
                    "The preferred dimensionality of the projected space `n_components`"
                    f" ({self.n_components}) cannot be greater than the given data dimensionality"
                    f" ({d})!"
                )
        check_number("max_iter", self.max_iter, Integral, 1)
        check_number("tol", self.tol, Real, 0)
        if isinstance(self.init, np.ndarray):
            check_initial_map(self.init, self.n_components, d)
            return len(self.init)
        return int(self.n_components or d)

    def _start(self, X: Any, y: Any, rows: int) -> NDArray[np.float64]:
        """The map to start from."""
        if self.warm_start and hasattr(self, "components_"):
            return np.array(self.components_, dtype=np.float64)
        init, began = self.init, time.perf_counter()
        if isinstance(init, str) and init == "auto":
            init = auto_init(True, X.shape[1], len(X), rows, len(np.unique(y)))
        start = initial_map(init, rows, X, y, self.random_state)
        if self.verbose and isinstance(init, str) and init in FOUND:
            seconds = time.perf_counter() - began
            sys.stdout.write(f"Finding {FOUND[init]}... done in {seconds:5.2f}s\n")
        return start

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


# ruff: noqa: ARG002 (the callback protocol of scikit-learn fixes the signatures)
class IterationCallback:
    """Calls a function with the map and the number of iterations after each iteration."""

    def __init__(self, function: Any) -> None:
        self.function, self.n_iter = function, 0

    def setup(self, estimator: Any, context: Any) -> None:
        """Nothing to prepare."""

    def teardown(self, estimator: Any, context: Any) -> None:
        """Nothing to end."""

    def on_fit_task_begin(self, estimator: Any, context: Any) -> None:
        """An iteration begins."""

    def on_fit_task_end(
        self, estimator: Any, context: Any, *, fitted_estimator: Any = None
    ) -> bool:
        """An iteration has ended: call the function."""
        if context.task_name == "iteration":
            self.n_iter += 1
            self.function(np.ravel(fitted_estimator.components_), self.n_iter)
        return False
