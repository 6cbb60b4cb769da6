"""What a report is about: a fitted model, and points with or without labels, on the host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import check_array

from nearfar.errors import InvalidInputError
from nearfar.estimators.nearest import NearestNeighborClassifier
from nearfar.graphs import NeighborhoodGraph
from nearfar.kernels import kernels_for

Index = NDArray[np.intp]
Floats = NDArray[np.floating]

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
    model : the estimator, without a wrapper
    metric : the metric inside a classifier, else the model
    X : the points (n, d); None where the model was made of distances or a graph
    given : X as it was given, for the model's own methods
    images : where the model puts the points (n, r), so that distances are Euclidean; None for
        several metrics, which have no common map
    y : labels (n,), or None
    voters, tested : rows that vote, and rows whose error is measured
    n_test : how many rows could have been tested
    held_out : whether the tested rows do not vote
    n_neighbors : how many neighbours vote
    feature_names : d names
    """

    model: Any
    metric: Any
    X: Floats | None
    given: Any
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
        return _decides(self.model)

    @property
    def maps(self) -> Floats | None:
        """The linear maps (m, r, d) of the metric, one or several; None if it has none."""
        if self.unfolds:
            return None
        components = getattr(self.metric, "components_", None)
        if components is not None:
            maps = host(components)
            return maps if maps.ndim == 3 else maps[None]
        if getattr(self.metric, "kernel", None) != "linear" or self.X is None:
            return None
        values, vectors = np.linalg.eigh(self.metric.get_mahalanobis_matrix())
        root: Floats = (vectors * np.sqrt(values.clip(0))).T
        return root[None]

    @property
    def classes(self) -> tuple[NDArray[Any], Index] | None:
        """The distinct labels, and the number of each row's."""
        return None if self.y is None else np.unique(self.y, return_inverse=True)


def host(array: Any) -> NDArray[Any]:
    """An array or tensor as a NumPy array."""
    return np.asarray(kernels_for(array).to_host(array))


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
    if isinstance(model, FrozenEstimator):
        model = model.estimator
    model = getattr(model, "best_estimator_", model)  # of a search
    if isinstance(model, Pipeline):
        raise InvalidInputError(
            "a report shows an estimator of nearfar, not a Pipeline. Give as_metric(pipeline) if"
            " all its steps are linear (without a classifier: as_metric(pipeline[:-1])), or the"
            " last step with the points that come to it."
        )
    if not any(hasattr(model, name) for name in FITTED):
        raise NotFittedError(
            f"a report shows a fitted estimator of nearfar; this {type(model).__name__} is not"
            " fitted or is none. Call fit first."
        )
    metric = getattr(model, "metric_", model)
    X, y = _own_points(model, X, y)
    points = _points(metric, X)
    images = _images(metric, X, points)
    n = len(points if images is None else images)  # type: ignore[arg-type]  # one is there
    labels = None if y is None else _labels(y, n, model)
    voters, test_rows, held_out = _split(n, train, test)
    room = max(FEWEST_TESTED, PAIRS // max(1, len(voters)))
    tested = drawn(test_rows, min(TESTED, room), random_state)
    # An unfolding's number makes its graph, and has nothing to do with votes.
    own = None if hasattr(model, "embedding_") else getattr(model, "n_neighbors", None)
    if n_neighbors is not None and n_neighbors != own and _decides(model):
        raise InvalidInputError(
            f"n_neighbors={n_neighbors} does not go with a {type(model).__name__}, which classifies"
            f" by itself with n_neighbors={own}. Leave it out."
        )
    if n_neighbors is not None and not 1 <= n_neighbors < len(voters):
        raise InvalidInputError(
            f"n_neighbors={n_neighbors} must be at least 1 and below the {len(voters)} rows that"
            " vote. Lower it or give more rows."
        )
    k = n_neighbors or min(own or N_NEIGHBORS, len(voters) - 1)
    if labels is None:
        tested = tested[:0]
    d = 0 if points is None else points.shape[1]
    names = _names(model, feature_names, d)
    return Study(
        model, metric, points, X, images, labels, voters, tested, len(test_rows), held_out, k, names
    )


def drawn(rows: Index, count: int, random_state: int) -> Index:
    """So many of the rows at random, in their order; all if there are no more."""
    if len(rows) <= count:
        return rows
    chosen = np.random.default_rng(random_state).choice(len(rows), count, replace=False)
    return rows[np.sort(chosen)]


def several_neighbors(study: Study, queries: Index, k: int) -> tuple[Index, Floats] | None:
    """Of rows the k nearest that vote, each by its own metric; None without labels."""
    if study.y is None:
        return None
    classifier = NearestNeighborClassifier(study.metric, n_neighbors=k)
    classifier.fit(study.given[study.voters], study.y[study.voters])
    distances, near = classifier.kneighbors(study.given[queries], k)
    return host(near), host(distances)


def _decides(model: Any) -> bool:
    return hasattr(model, "points_")


# -- what is given ---------------------------------------------------------------------------------


def _own_points(model: Any, X: Any, y: Any) -> tuple[Any, Any]:
    """X and y, or where X is None the points that the model keeps."""
    if isinstance(X, NeighborhoodGraph):
        X = X.points
    if X is not None:
        return X, y
    for points, labels in (("points_", "labels_"), ("X_fit_", None)):
        kept = getattr(model, points, None)
        if kept is not None:
            return kept, getattr(model, labels) if labels and y is None else y
    if hasattr(model, "embedding_"):
        return None, y
    raise InvalidInputError(
        f"a {type(model).__name__} does not keep the points it was fitted to. Give X, and y if"
        " there are labels."
    )


def _points(metric: Any, X: Any) -> Floats | None:
    """X on the host where it holds points, else None."""
    of_pairs = getattr(metric, "metric", "euclidean") != "euclidean"
    if X is None or of_pairs or getattr(metric, "kernel", None) == "precomputed":
        return None
    points: Floats = check_array(host(X), dtype=[np.float64, np.float32])
    expected = getattr(metric, "n_features_in_", points.shape[1])
    if points.shape[1] != expected:
        raise InvalidInputError(
            f"the {type(metric).__name__} was fitted to {expected} features, and X has"
            f" {points.shape[1]}. Give the features of the fit."
        )
    return points


def _images(metric: Any, X: Any, points: Floats | None) -> Floats | None:
    embedding = getattr(metric, "embedding_", None)
    if embedding is not None:
        return _placed(metric, host(embedding), X, points)
    if not hasattr(metric, "transform"):
        return None
    images = host(metric.transform(X))
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
        same = np.array_equal(points, host(kept))
    if same:
        return embedding
    if not hasattr(metric, "transform"):
        raise InvalidInputError(
            f"a {type(metric).__name__} places the {len(embedding)} points of its fit only; X has"
            f" {n} rows. Give the X of the fit, or none."
        )
    return host(metric.transform(X))


def _labels(y: Any, n: int, model: Any) -> NDArray[Any]:
    labels = host(y)
    if labels.ndim != 1 or len(labels) != n:
        raise InvalidInputError(
            f"there must be a label for each of the {n} rows; y has shape {labels.shape}."
            " Check that they belong together."
        )
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
    test_rows = everyone if test is None else rows_of(test, n, "test")
    if train is not None:
        voters = rows_of(train, n, "train")
    else:
        voters = everyone if test is None else np.setdiff1d(everyone, test_rows)
    if len(voters) < 2 or not len(test_rows):
        raise InvalidInputError(
            f"a report needs at least two rows that vote and one to test; got {len(voters)} and"
            f" {len(test_rows)}. Give more rows, or set fewer apart."
        )
    both = np.intersect1d(voters, test_rows)
    if test is not None and len(both):
        raise InvalidInputError(
            f"row {both[0]} stands in train and in test ({len(both)} in all). A tested row must"
            " not vote: leave it out of one of them.",
            both,
        )
    return voters, test_rows, test is not None


def rows_of(given: Any, n: int, name: str) -> Index:
    """Row numbers, from numbers or from a mask."""
    rows = np.asarray(given)
    if rows.dtype.kind == "b" and rows.shape == (n,):
        return np.flatnonzero(rows)
    if rows.ndim != 1 or (rows.size and rows.dtype.kind not in "iu"):
        raise InvalidInputError(
            f"{name} must be row numbers or a mask of the {n} rows; got an array of shape"
            f" {rows.shape} and dtype {rows.dtype}."
        )
    bad = rows[(rows < 0) | (rows >= n)]
    if len(bad) or len(np.unique(rows)) < len(rows):
        found = f"got {bad[0]}" if len(bad) else "got one of them twice"
        raise InvalidInputError(
            f"{name} must be distinct row numbers from 0 to {n - 1}; {found}. Check them.", bad
        )
    return rows.astype(np.intp)


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
