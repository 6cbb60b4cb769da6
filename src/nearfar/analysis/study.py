"""A fitted model with the points, and perhaps the labels, on which it is examined."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted

from nearfar.analysis.features import Features, feature_shares
from nearfar.analysis.models import (
    Floats,
    Index,
    checked_labels,
    known_labels,
    known_points,
    linear_maps,
    row_numbers,
    sample_rows,
    unwrapped,
)
from nearfar.analysis.neighbors import Neighbors, nearest_by_own_metrics, nearest_rows
from nearfar.blocks import is_lazy
from nearfar.errors import InvalidInputError
from nearfar.estimators._base import Estimator
from nearfar.estimators.linear_metric import linear_map
from nearfar.evaluation.compare import last_step
from nearfar.graphs import NeighborhoodGraph
from nearfar.kernels import to_host

FITTED = ("components_", "dual_coef_", "embedding_", "metric_")
N_NEIGHBORS = 3  # that vote where neither the caller nor the model says
TESTED = 10_000  # rows whose error is measured, at most
PAIRS = 1_000_000_000  # of a tested and a voting row, at most, unless fewer than
FEWEST_TESTED = 1000


@dataclass(frozen=True)
class Study:
    """A model with what it is shown on.

    Attributes
    ----------
    model : the estimator or pipeline, without a wrapper
    learner : the last step of a pipeline, else the model
    metric : the metric inside a classifier, else the learner
    X : the points (n, d); None where the model was made of distances or a graph
    given : X as it was given, for the model's own methods
    inner : what comes to the learner: X as given, or what the steps before it make of X
    old : ``inner`` on the host where it holds points: the old distance is Euclidean between these
    images : where the model puts the points (n, r), so that distances are Euclidean; None for
        several metrics, which have no common map
    y : labels (n,), or None
    voters, tested : training rows, and rows whose error is measured
    n_test : how many rows could have been tested
    held_out : whether the tested rows are no training rows
    n_neighbors : how many neighbours vote
    feature_names : d names
    """

    model: Any
    learner: Any
    metric: Any
    X: Floats | None
    given: Any
    inner: Any
    old: Floats | None
    images: Floats | None
    y: NDArray[Any] | None
    voters: Index
    tested: Index
    n_test: int
    held_out: bool
    n_neighbors: int
    feature_names: tuple[str, ...]

    def __len__(self) -> int:
        points = self.X if self.images is None else self.images
        assert points is not None  # one of them is there
        return len(points)

    @property
    def unfolds(self) -> bool:
        """Whether the model places points, rather than learning a distance."""
        return hasattr(self.metric, "embedding_")

    @property
    def decides(self) -> bool:
        """Whether the model classifies by itself."""
        return _decides(self.learner)

    @cached_property
    def maps(self) -> Floats | None:
        """The linear maps (m, r, d) of the metric, one or several; None if it has none."""
        linear = getattr(self.metric, "kernel", None) == "linear" and self.X is not None
        if self.unfolds or not (linear or hasattr(self.metric, "components_")):
            return None
        maps, first = linear_maps(self.metric), self.first_map
        return None if first is None else maps if self.model is self.learner else maps @ first

    @cached_property
    def first_map(self) -> Floats | None:
        """The linear map (p, d) of the steps before the learner; None if a step is not linear."""
        if self.model is self.learner:
            return None if self.X is None else np.eye(self.X.shape[1])
        try:
            return linear_map(self.model[:-1])[0]
        except InvalidInputError:
            return None  # a step such as Normalizer

    def neighbors(self, queries: Index, k: int) -> tuple[Neighbors | None, Neighbors | None]:
        """The nearest training rows, before and after learning; None without a distance.

        A row is not its own neighbour.
        """
        k = min(k, len(self.voters) - 1)
        before = None if self.old is None else nearest_rows(self.old, queries, self.voters, k)
        if self.images is not None:
            return before, nearest_rows(self.images, queries, self.voters, k)
        if self.y is None:
            return before, None
        own = (self.metric, self.inner, self.y)
        return before, nearest_by_own_metrics(*own, queries, self.voters, k)

    def feature_shares(self) -> Features | None:
        """What each feature adds to distances; None for a metric that has no linear map.

        Its units are those that come to the learner, so that features that a pipeline standardises
        are equal before learning.
        """
        if self.maps is None or self.X is None or self.first_map is None:
            return None
        variances = np.var(self.X[self.voters], axis=0, dtype=np.float64)
        units = np.linalg.norm(self.first_map, axis=0)
        maps = np.divide(self.maps, units, out=np.zeros_like(self.maps), where=units > 0)
        shares = feature_shares(maps, variances * units**2)
        return shares if shares.after.any(axis=1).all() else None

    @property
    def classes(self) -> tuple[NDArray[Any], Index] | None:
        """The distinct labels, and the number of each row's."""
        return None if self.y is None else np.unique(self.y, return_inverse=True)


def study(
    model: Any,
    X: Any = None,
    y: Any = None,
    *,
    train: Any = None,
    test: Any = None,
    n_neighbors: int | None = None,
    feature_names: Any = None,
    random_state: int = 0,
) -> Study:
    """Check what was given; the parameters are those of `write_report`."""
    model = unwrapped(model)
    learner = last_step(model)
    if not any(hasattr(learner, name) for name in FITTED) or not isinstance(learner, Estimator):
        raise NotFittedError(_not_shown(model, learner))
    metric = getattr(learner, "metric_", learner)
    if model is learner:
        X, y = _own_points(learner, X, y)
        points, inner = _points(metric, X, metric), X
    else:
        check_is_fitted(model)
        if X is None:
            raise InvalidInputError(
                "a pipeline does not keep the points it was fitted to. Give X, and y if there are"
                " labels."
            )
        points = _points(metric, X, model)
        inner = model[:-1].transform(X)
    old = points if model is learner else _points(metric, inner, metric)
    images = _images(metric, inner, old)
    n = len(points if images is None else images)  # type: ignore[arg-type]  # one is there
    labels = None if y is None else _labels(y, n, learner)
    voters, test_rows, held_out = _split(n, train, test)
    room = max(FEWEST_TESTED, PAIRS // max(1, len(voters)))
    tested = sample_rows(test_rows, min(TESTED, room), random_state)
    # An unfolding's number makes its graph, and has nothing to do with votes.
    own = None if hasattr(learner, "embedding_") else getattr(learner, "n_neighbors", None)
    if n_neighbors is not None and n_neighbors != own and _decides(learner):
        raise InvalidInputError(
            f"n_neighbors={n_neighbors} does not go with a {type(learner).__name__}, which"
            f" classifies by itself with n_neighbors={own}. Leave it out."
        )
    if n_neighbors is not None and not 1 <= n_neighbors < len(voters):
        raise InvalidInputError(
            f"n_neighbors={n_neighbors} must be at least 1 and below the {len(voters)} training"
            " rows. Lower it or give more rows."
        )
    k = n_neighbors or min(own or N_NEIGHBORS, len(voters) - 1)
    if labels is None:
        tested = tested[:0]
    d = 0 if points is None else points.shape[1]
    names = _names(model, feature_names, d)
    return Study(
        model=model,
        learner=learner,
        metric=metric,
        X=points,
        given=X,
        inner=inner,
        old=old,
        images=images,
        y=labels,
        voters=voters,
        tested=tested,
        n_test=len(test_rows),
        held_out=held_out,
        n_neighbors=k,
        feature_names=names,
    )


def _not_shown(model: Any, learner: Any) -> str:
    """Why there is nothing to report on a model."""
    if model is not learner and not isinstance(learner, Estimator):
        return (
            f"a report shows a pipeline that ends in a fitted estimator of nearfar; this one ends"
            f" in a {type(learner).__name__}. Give pipeline[:-1], or end it in"
            " nearfar.NearestNeighborClassifier."
        )
    return (
        f"a report shows a fitted estimator of nearfar; this {type(learner).__name__} is not"
        " fitted or is none. Call fit first."
    )


def _decides(model: Any) -> bool:
    return hasattr(model, "points_")


# -- what is given ---------------------------------------------------------------------------------


def _own_points(model: Any, X: Any, y: Any) -> tuple[Any, Any]:
    """X and y, or where X is None the points that the model keeps."""
    if isinstance(X, NeighborhoodGraph):
        X = X.points
    if X is not None:
        return X, y
    kept = known_points(model)
    if kept is not None:
        return kept, known_labels(model) if y is None else y
    if hasattr(model, "embedding_"):
        return None, y
    raise InvalidInputError(
        f"a {type(model).__name__} does not keep the points it was fitted to. Give X, and y if"
        " there are labels."
    )


def _points(metric: Any, X: Any, model: Any) -> Floats | None:
    """X on the host where it holds points, with as many features as the model has, else None."""
    of_pairs = getattr(metric, "metric", "euclidean") != "euclidean"
    if X is None or of_pairs or getattr(metric, "kernel", None) == "precomputed":
        return None
    points: Floats = check_array(to_host(X), dtype=[np.float64, np.float32])
    expected = getattr(model, "n_features_in_", points.shape[1])
    if points.shape[1] != expected:
        raise InvalidInputError(
            f"the {type(model).__name__} was fitted to {expected} features, and X has"
            f" {points.shape[1]}. Give the features of the fit."
        )
    return points


def _images(metric: Any, X: Any, points: Floats | None) -> Floats | None:
    embedding = getattr(metric, "embedding_", None)
    if embedding is not None:
        return _placed(metric, to_host(embedding), X, points)
    if not hasattr(metric, "transform"):
        return None
    images = to_host(metric.transform(X))
    if not np.isfinite(images).all():
        raise InvalidInputError(
            f"the {type(metric).__name__} maps some rows to numbers that are not finite. Check the"
            " scale of the features, and fit again."
        )
    return images


def _placed(metric: Any, embedding: Floats, X: Any, points: Floats | None) -> Floats:
    """Where an unfolding puts X: the points of its fit where they were, others beside them."""
    if X is None:
        return embedding
    n, kept = X.shape[0] if hasattr(X, "shape") else len(X), getattr(metric, "X_fit_", None)
    if kept is None or points is None:
        same = n == len(embedding)  # of distances nothing is kept to compare with
    else:
        same = not is_lazy(kept) and np.array_equal(points, to_host(kept))
    if same:
        return embedding
    if not hasattr(metric, "transform"):
        raise InvalidInputError(
            f"a {type(metric).__name__} places the {len(embedding)} points of its fit only; X has"
            f" {n} rows. Give the X of the fit, or none."
        )
    return to_host(metric.transform(X))


def _labels(y: Any, n: int, model: Any) -> NDArray[Any]:
    labels = checked_labels(y, n)
    assert labels is not None
    labels = labels.astype(str) if labels.dtype.kind == "O" else labels
    if _decides(model) and (labels.dtype.kind in "biuf") != (model.classes_.dtype.kind in "biuf"):
        raise InvalidInputError(
            f"labels are {labels.dtype}, and the {type(model).__name__} predicts"
            f" {model.classes_.dtype}: they cannot be compared. Write the labels as for the fit."
        )
    return labels


def _split(n: int, train: Any, test: Any) -> tuple[Index, Index, bool]:
    """Rows that vote, rows to test, and whether these two have none in common."""
    everyone = np.arange(n)
    test_rows = everyone if test is None else row_numbers("test", test, n)
    if train is not None:
        voters = row_numbers("train", train, n)
    else:
        voters = everyone if test is None else np.setdiff1d(everyone, test_rows)
    if len(voters) < 2 or not len(test_rows):
        raise InvalidInputError(
            f"a report needs at least two training rows and one to test; got {len(voters)} and"
            f" {len(test_rows)}. Give more rows, or set fewer apart."
        )
    both = np.intersect1d(voters, test_rows)
    if test is not None and len(both):
        raise InvalidInputError(
            f"row {both[0]} stands in train and in test ({len(both)} in all). A tested row must"
            " not be a training row: leave it out of one of them.",
            both,
        )
    return voters, test_rows, test is not None


def _names(model: Any, given: Any, d: int) -> tuple[str, ...]:
    names = getattr(model, "feature_names_in_", None) if given is None else given
    if names is None:
        return tuple(f"feature {i}" for i in range(d))
    if d and len(names) != d:
        raise InvalidInputError(
            f"there must be a name for each of the {d} features; got {len(names)}."
            " Check feature_names."
        )
    return tuple(map(str, names))
