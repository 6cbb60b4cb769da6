"""What classifiers around a metric share: where the metric comes from, and which it may be."""

import pickle

import numpy as np
import pandas
import pytest
import sklearn
from sklearn.base import BaseEstimator, clone
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from nearfar import LMNN, EnergyClassifier, NearestNeighborClassifier
from nearfar.errors import InvalidInputError
from nearfar.supervision import nearest_under, vote

CLASSIFIERS = [EnergyClassifier, NearestNeighborClassifier]
each_class = pytest.mark.parametrize("cls", CLASSIFIERS)


class SeveralMetrics(BaseEstimator):
    """Metrics drawn at random, one to a class or to a side of the plane x₀ = 0."""

    def __init__(self, partition="class", random_state=0, n_neighbors=2, push_weight=0.3):
        self.partition = partition
        self.random_state = random_state
        self.n_neighbors = n_neighbors
        self.push_weight = push_weight

    def fit(self, X, y):
        rng = np.random.default_rng(self.random_state)
        self.classes_, codes = np.unique(y, return_inverse=True)
        self.n_features_in_ = X.shape[1]
        self.points_, self.labels_ = X, np.asarray(y)
        self.components_ = rng.normal(size=(max(2, len(self.classes_)), 2, X.shape[1]))
        self.metric_of_ = self._metric_of_new(X)[np.arange(len(X)), codes]
        return self

    def _metric_of_new(self, X):
        if self.partition == "class":
            return np.tile(np.arange(len(self.classes_)), (len(X), 1))
        sides = (np.asarray(X)[:, :1] > 0).astype(np.intp)
        return sides + np.zeros((1, len(self.classes_)), dtype=np.intp)


@pytest.fixture(scope="module")
def learned(iris):
    return LMNN().fit(iris[0][::2], iris[1][::2])


# -- where the metric comes from ---


@each_class
def test_without_a_metric_it_is_lmnn(cls, iris):
    X, y = iris
    model = cls().fit(X, y)
    assert isinstance(model.metric_, LMNN)
    assert model.metric is None
    np.testing.assert_array_equal(model.metric_.components_, LMNN().fit(X, y).components_)


@each_class
def test_an_unfitted_metric_is_copied_and_fitted(cls, iris):
    X, y = iris
    metric = LMNN(n_components=2)
    model = cls(metric).fit(X, y)
    assert model.metric is metric
    assert not hasattr(metric, "components_")
    assert model.metric_.components_.shape == (2, 4)


@each_class
@pytest.mark.parametrize("wrap", [lambda metric: metric, FrozenEstimator], ids=["bare", "frozen"])
def test_a_fitted_metric_is_used_as_it_is(cls, wrap, learned, iris):
    X, y = iris
    before = learned.components_.copy()
    model = cls(wrap(learned)).fit(X[1::2], y[1::2])
    assert model.metric_ is learned
    np.testing.assert_array_equal(learned.components_, before)
    np.testing.assert_array_equal(model.points_, X[1::2])
    assert model.score(X[::2], y[::2]) > 0.9


@each_class
def test_a_frozen_metric_stays_fitted_in_cross_validation(cls, learned, iris):
    twin = clone(cls(FrozenEstimator(learned)))
    assert twin.fit(*iris).metric_ is learned
    assert cross_val_score(twin, *iris, cv=3).mean() > 0.9


@each_class
def test_any_transformer_serves(cls, iris):
    X, y = iris
    model = cls(PCA(2)).fit(X[::2], y[::2])
    assert model.score(X[1::2], y[1::2]) > 0.85


@each_class
def test_frames_out_of_the_metric_do_no_harm(cls, learned, iris):
    X, y = iris
    expected = cls(learned).fit(X, y).predict(X)
    with sklearn.config_context(transform_output="pandas"):
        model = cls(learned).fit(X, y)
        np.testing.assert_array_equal(model.predict(X), expected)


@each_class
def test_names_of_features(cls, iris):
    """They are checked by the classifier, and by a metric that knows them, and nobody warns."""
    X, y = iris
    frame = pandas.DataFrame(X, columns=list("abcd"))
    model = cls(LMNN().fit(frame, y)).fit(frame, y)
    assert model.feature_names_in_.tolist() == list("abcd")
    expected = model.predict(frame)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(frame), expected)
    other = frame.rename(columns={"a": "z"})
    with pytest.raises(ValueError, match="unseen at fit time"):
        model.predict(other)
    with pytest.raises(ValueError, match="unseen at fit time"):
        cls(model.metric_).fit(other, y)


@each_class
def test_in_a_grid_search_over_the_metric(cls, wine):
    X, y = wine
    pipeline = make_pipeline(StandardScaler(), cls(LMNN(tol=0.1)))
    name = f"{cls.__name__.lower()}__metric__n_components"
    search = GridSearchCV(pipeline, {name: [1, 3]}, cv=2, error_score="raise").fit(X, y)
    assert search.best_params_ == {name: 3}


@each_class
def test_what_predictions_need_is_made_again_where_it_was_left_out(cls, iris):
    X, y = iris
    model = cls().fit(X, y)
    state = model.__getstate__()
    assert "_prepared" in vars(model)
    assert "_prepared" not in state
    twin = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(twin.predict(X), model.predict(X))
    assert twin.fit(X[:, 1:], y).predict(X[:, 1:]).shape == (150,)


# -- several metrics ---


@pytest.fixture(params=["class", "side"])
def several(request):
    return SeveralMetrics(request.param)


def test_neighbours_under_several_metrics(several, overlapping):
    """The same as `nearest_under` and `vote`."""
    X, y = overlapping
    model = NearestNeighborClassifier(several, n_neighbors=4).fit(X[::2], y[::2])
    metric = model.metric_
    expected = nearest_under(X[1::2], X[::2], metric.components_, metric.metric_of_, 4)
    distances, rows = model.kneighbors(X[1::2])
    np.testing.assert_array_equal(rows, expected)
    np.testing.assert_array_equal(model.predict(X[1::2]), vote(y[::2][expected], 3))
    maps = metric.components_[metric.metric_of_[rows]]
    differences = X[1::2][:, None] - X[::2][rows]
    lengths = np.linalg.norm(np.einsum("mkrd,mkd->mkr", maps, differences), axis=2)
    np.testing.assert_allclose(distances, lengths)


@each_class
def test_points_other_than_those_of_the_metric_get_theirs_by_rule(cls, several, overlapping):
    """Fitting to the training points of a fitted metric is the same as fitting it there."""
    X, y = overlapping
    X, y, new = X[::2], y[::2], X[1::2]
    fitted = clone(several).fit(X, y)
    model = cls(fitted).fit(X[5:], y[5:])
    metric_of = model._metric_of_points(model._order)
    np.testing.assert_array_equal(metric_of, fitted.metric_of_[5:])
    whole = cls(fitted).fit(X, y)
    np.testing.assert_array_equal(whole.predict(new), cls(several).fit(X, y).predict(new))


def test_the_metrics_of_the_training_points_are_those_that_were_learned(several, overlapping):
    """They may differ from the rule for new points, as for clusters that the user gave."""
    X, y = overlapping
    fitted = clone(several).fit(X, y)
    fitted.metric_of_ = fitted.metric_of_[::-1]
    model = EnergyClassifier(fitted).fit(X, y)
    np.testing.assert_array_equal(model._metric_of_points(model._order), fitted.metric_of_)
    other = EnergyClassifier(fitted).fit(X, np.roll(y, 1))
    assert not np.array_equal(other._metric_of_points(other._order), fitted.metric_of_)


@each_class
def test_fewer_classes_than_the_metric_knows(cls, overlapping):
    X, y = overlapping
    names = np.array(["a", "b", "c"])[y]
    fitted = SeveralMetrics().fit(X, names)
    model = cls(fitted).fit(X[y != 1], names[y != 1])
    assert set(model.predict(X)) == {"a", "c"}
    np.testing.assert_array_equal(model._metric_of_new(X[:1]), [[0, 2]])


@each_class
def test_more_classes_than_the_metric_knows(cls, overlapping):
    X, y = overlapping
    fitted = SeveralMetrics().fit(X[y != 1], y[y != 1])
    with pytest.raises(InvalidInputError, match=r"fitted to other classes: .* none called .*1"):
        cls(fitted).fit(X, y)


# -- bad input ---


@each_class
@pytest.mark.parametrize("metric", ["euclidean", LMNN, 3], ids=repr)
def test_a_metric_that_is_none(cls, metric, iris):
    with pytest.raises(InvalidInputError, match=r"metric must be a metric learner .* got"):
        cls(metric).fit(*iris)


@each_class
@pytest.mark.parametrize("method", ["predict", "kneighbors", "decision_function", "predict_proba"])
def test_unfitted_is_an_error(cls, method, iris):
    model = cls(probability=True) if cls is EnergyClassifier else cls()
    if not hasattr(model, method):
        assert (cls, method) in [
            (EnergyClassifier, "kneighbors"),
            (NearestNeighborClassifier, "decision_function"),
        ]
        return
    with pytest.raises(NotFittedError, match="is not fitted yet"):
        getattr(model, method)(iris[0])


@each_class
def test_labels_for_each_row(cls, iris):
    X, y = iris
    with pytest.raises(InvalidInputError, match="X has 150 rows and y has 149"):
        cls().fit(X, y[1:])
    with pytest.raises(InvalidInputError, match=f"{cls.__name__} needs at least two|LMNN needs"):
        cls().fit(X, np.zeros(150))
    with pytest.raises(ValueError, match="requires y to be passed"):
        cls().fit(X, None)


@each_class
def test_a_metric_of_other_features(cls, learned, iris):
    X, y = iris
    with pytest.raises(ValueError, match="X has 3 features, but LMNN is expecting 4"):
        cls(learned).fit(X[:, :3], y)


@each_class
def test_other_features_than_in_fit(cls, iris):
    X, y = iris
    model = cls().fit(X, y)
    with pytest.raises(ValueError, match=f"X has 3 features, but {cls.__name__} is expecting 4"):
        model.predict(X[:, :3])
    with pytest.raises(ValueError, match="NaN"):
        model.predict(np.full((1, 4), np.nan))


# -- precision and devices ---


@each_class
def test_float32_stays_float32_and_other_queries_are_converted(cls, dtype, iris):
    X, y = iris
    model = cls().fit(X.astype(dtype), y)
    assert model.points_.dtype == dtype
    assert model.metric_.components_.dtype == dtype
    single, double = (model.predict(X.astype(kind)) for kind in (np.float32, np.float64))
    np.testing.assert_array_equal(single, double)


@pytest.mark.torch
@each_class
def test_tensors(cls, dtype, torch, iris):
    X, y = iris
    X, new = X[::2].astype(dtype), X[1::2].astype(dtype)
    metric = LMNN().fit(X, y[::2])
    expected = cls(metric).fit(X, y[::2])
    metric.components_ = torch.tensor(metric.components_)
    model = cls(metric).fit(torch.tensor(X), torch.tensor(y[::2]))
    assert isinstance(model.points_, torch.Tensor)
    predicted = model.predict(torch.tensor(new))
    assert isinstance(predicted, np.ndarray)
    metric.components_ = metric.components_.numpy()
    np.testing.assert_array_equal(predicted, expected.predict(new))


@pytest.mark.torch
@each_class
def test_data_elsewhere_is_an_error(cls, torch, iris):
    X, y = iris
    model = cls().fit(torch.tensor(X), y)
    with pytest.raises(InvalidInputError, match=f"{cls.__name__} was fitted on torch device cpu"):
        model.predict(X)
    with pytest.raises(InvalidInputError, match="LMNN was fitted on torch device cpu and X is on"):
        cls(model.metric_).fit(X, y)


@pytest.mark.torch
@each_class
def test_several_metrics_on_tensors(cls, several, torch, overlapping):
    X, y = overlapping
    fitted = clone(several).fit(X[::2], y[::2])
    expected = cls(fitted).fit(X[::2], y[::2]).predict(X[1::2])
    fitted.components_ = torch.tensor(fitted.components_)
    fitted.points_ = torch.tensor(fitted.points_)
    model = cls(fitted).fit(torch.tensor(X[::2]), y[::2])
    np.testing.assert_array_equal(model.predict(torch.tensor(X[1::2])), expected)
    with pytest.raises(InvalidInputError, match="SeveralMetrics was fitted on torch device cpu"):
        cls(fitted).fit(X, y)
