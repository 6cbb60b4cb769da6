"""scikit-learn: searches, ensembles, calibration, unions, columns, clusters, joblib."""

from __future__ import annotations

import tempfile

import joblib
import numpy as np
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.cluster import DBSCAN, HDBSCAN, OPTICS, AgglomerativeClustering, SpectralClustering
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor, make_column_transformer
from sklearn.datasets import (
    load_breast_cancer,
    load_diabetes,
    load_iris,
    load_wine,
    make_classification,
)
from sklearn.decomposition import PCA
from sklearn.ensemble import BaggingClassifier, StackingClassifier, VotingClassifier
from sklearn.experimental import enable_halving_search_cv  # noqa: F401 (HalvingGridSearchCV)
from sklearn.feature_selection import SequentialFeatureSelector
from sklearn.frozen import FrozenEstimator
from sklearn.inspection import permutation_importance
from sklearn.linear_model import LogisticRegression
from sklearn.manifold import Isomap
from sklearn.metrics import pairwise_distances
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    HalvingGridSearchCV,
    RandomizedSearchCV,
    TunedThresholdClassifierCV,
    cross_val_predict,
    cross_val_score,
    cross_validate,
    learning_curve,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.neighbors import (
    KernelDensity,
    KNeighborsClassifier,
    KNeighborsRegressor,
    KNeighborsTransformer,
    RadiusNeighborsClassifier,
)
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.semi_supervised import SelfTrainingClassifier
from sklearn.utils import estimator_html_repr

import nearfar
from benchmarks.real_clients.uses import use

IRIS = load_iris(return_X_y=True)
WINE = load_wine(return_X_y=True)


def knn_pipeline(learner=None):
    """A scaler, a metric learner and a k-NN classifier."""
    return Pipeline(
        [
            ("scale", StandardScaler()),
            ("metric", nearfar.LMNN() if learner is None else learner),
            ("knn", KNeighborsClassifier()),
        ]
    )


@use()
def grid_search():
    """GridSearchCV of a pipeline over learners and their parameters."""
    grid = {"metric": [nearfar.LMNN(), nearfar.NCA(max_iter=30, tol=0.1)], "knn__n_neighbors": [1]}
    search = GridSearchCV(knn_pipeline(), grid, error_score="raise").fit(*WINE)
    assert search.best_score_ > 0.9


@use()
def randomized_search():
    """RandomizedSearchCV of MMC on pairs by their own score."""
    pairs, kinds = nearfar.make_pairs(*WINE, 100, random_state=0)
    search = RandomizedSearchCV(
        nearfar.MMC(), {"shrinkage": np.linspace(0, 0.95, 20)}, n_iter=3, random_state=0
    )
    assert search.set_params(error_score="raise").fit(pairs, kinds).best_score_ > 0.7


@use()
def halving_search():
    """HalvingGridSearchCV of a pipeline."""
    search = HalvingGridSearchCV(
        knn_pipeline(), {"metric__n_neighbors": [1, 3]}, min_resources=90, error_score="raise"
    )
    assert search.set_params(random_state=0).fit(*WINE).best_score_ > 0.9


@use()
def search_on_triplets():
    """GridSearchCV of SCML on triplets, which have no y."""
    triplets = nearfar.make_triplets(*WINE, 200, random_state=0)
    search = GridSearchCV(nearfar.SCML(), {"n_bases": [20, 50]}, cv=3, error_score="raise")
    assert search.fit(triplets).best_score_ > 0.7


@use()
def threshold_search():
    """GridSearchCV of PairClassifier and its inner learner."""
    pairs, kinds = nearfar.make_pairs(*WINE, 100, random_state=0)
    grid = {"metric__shrinkage": [0.0, 0.1], "calibrate": ["accuracy", "equal_error"]}
    search = GridSearchCV(
        nearfar.PairClassifier(nearfar.MMC()), grid, scoring="roc_auc", error_score="raise"
    )
    assert search.fit(pairs, kinds).best_score_ > 0.7


@use()
def stacking():
    """StackingClassifier of pipelines and nearfar's classifiers."""
    parts = [("knn", knn_pipeline()), ("own", nearfar.NearestNeighborClassifier())]
    model = StackingClassifier(parts, LogisticRegression(max_iter=1000)).fit(*WINE)
    assert model.score(*WINE) > 0.9


@use()
def voting():
    """VotingClassifier by probabilities."""
    parts = [
        ("knn", knn_pipeline()),
        ("linear", make_pipeline(StandardScaler(), LogisticRegression())),
    ]
    assert VotingClassifier(parts, voting="soft").fit(*WINE).score(*WINE) > 0.9


@use()
def bagging():
    """BaggingClassifier with resampled rows."""
    model = BaggingClassifier(knn_pipeline(), 3, random_state=0).fit(*WINE)
    assert model.score(*WINE) > 0.9


@use()
def calibration():
    """CalibratedClassifierCV of a k-NN pipeline and of NearestNeighborClassifier."""
    for model in (knn_pipeline(), nearfar.NearestNeighborClassifier(nearfar.LMNN())):
        calibrated = CalibratedClassifierCV(model, cv=3).fit(*WINE)
        np.testing.assert_allclose(calibrated.predict_proba(WINE[0]).sum(axis=1), 1)


@use()
def pair_calibration():
    """CalibratedClassifierCV of PairClassifier: the probability that a pair is near."""
    pairs, kinds = nearfar.make_pairs(*WINE, 100, random_state=0)
    for X in (pairs.dense(), pairs):
        calibrated = CalibratedClassifierCV(nearfar.PairClassifier(), cv=3).fit(X, kinds)
        assert calibrated.predict_proba(X).shape == (200, 2)


@use()
def tuned_threshold():
    """TunedThresholdClassifierCV of PairClassifier."""
    pairs, kinds = nearfar.make_pairs(*WINE, 100, random_state=0)
    model = TunedThresholdClassifierCV(nearfar.PairClassifier(), cv=3, scoring="accuracy")
    assert model.fit(pairs.dense(), kinds).score(pairs.dense(), kinds) > 0.6


@use()
def several_scores():
    """cross_validate with several scores, groups and the fitted estimators."""
    found = cross_validate(
        knn_pipeline(),
        *WINE,
        groups=np.arange(178) % 20,
        cv=GroupKFold(3),
        scoring=["accuracy", "f1_macro", "neg_log_loss"],
        return_estimator=True,
        return_train_score=True,
        error_score="raise",
    )
    assert found["test_accuracy"].mean() > 0.9
    assert found["estimator"][0]["metric"].status_ == "converged"


@use()
def predictions_and_curves():
    """cross_val_predict and learning_curve."""
    assert cross_val_predict(knn_pipeline(), *WINE, method="predict_proba").shape == (178, 3)
    sizes, *_ = learning_curve(knn_pipeline(), *WINE, train_sizes=[0.5, 1.0], shuffle=True, cv=3)
    assert len(sizes) == 2


@use()
def union():
    """FeatureUnion of a learned map and PCA."""
    model = FeatureUnion([("near", nearfar.LMNN(n_components=2)), ("pca", PCA(2))])
    assert model.fit_transform(*IRIS).shape == (150, 4)
    assert list(model.get_feature_names_out())[:1] == ["near__lmnn0"]


@use()
def columns_by_number():
    """ColumnTransformer that learns from some columns."""
    model = ColumnTransformer(
        [("near", nearfar.LFDA(n_components=1), [0, 1])], remainder="passthrough"
    )
    assert model.fit_transform(*IRIS).shape == (150, 3)


@use()
def function_transformer():
    """A learned map as the function of a FunctionTransformer."""
    learner = nearfar.LMNN().fit(*IRIS)
    images = FunctionTransformer(learner.transform).fit_transform(IRIS[0])
    np.testing.assert_array_equal(images, learner.transform(IRIS[0]))


@use()
def clones():
    """clone, get_params and set_params of nested estimators."""
    model = nearfar.NearestNeighborClassifier(nearfar.LMNN(n_neighbors=2))
    twin = clone(model).set_params(metric__n_neighbors=4)
    assert (model.metric.n_neighbors, twin.get_params()["metric__n_neighbors"]) == (2, 4)
    assert not hasattr(clone(nearfar.LMNN(init=np.eye(4)).fit(*IRIS)), "components_")


@use()
def callable_metric():
    """KNeighborsClassifier and RadiusNeighborsClassifier with get_metric and two jobs."""
    X, y = IRIS
    learner = nearfar.LMNN().fit(X, y)
    expected = KNeighborsClassifier().fit(learner.transform(X), y).predict(learner.transform(X))
    for algorithm in ("brute", "ball_tree"):
        model = KNeighborsClassifier(metric=learner.get_metric(), algorithm=algorithm, n_jobs=2)
        assert np.mean(model.fit(X, y).predict(X) == expected) > 0.99
        clone(model).fit(X, y)
    RadiusNeighborsClassifier(3.0, metric=learner.get_metric()).fit(X, y).predict(X[:5])


@use()
def pairwise():
    """pairwise_distances with get_metric, in two processes."""
    learner = nearfar.MMC().fit(*IRIS)
    D = pairwise_distances(IRIS[0], metric=learner.get_metric(), n_jobs=2)
    np.testing.assert_allclose(D, pairwise_distances(learner.transform(IRIS[0])), atol=1e-6)


@use()
def density():
    """KernelDensity on learned distances, by images and by get_metric."""
    learner = nearfar.LMNN().fit(*IRIS)
    images = learner.transform(IRIS[0])
    by_images = KernelDensity().fit(images).score_samples(images)
    tree = KernelDensity(
        metric="pyfunc", metric_params={"func": learner.get_metric()}, algorithm="ball_tree"
    ).fit(IRIS[0])
    differences = tree.score_samples(IRIS[0][:20]) - by_images[:20]
    assert np.ptp(differences) < 1e-6  # the volume of the kernel differs by a constant


@use()
def clusters():
    """DBSCAN, OPTICS, HDBSCAN, agglomerative and spectral clustering on learned distances."""
    learner = nearfar.LMNN().fit(*IRIS)
    D = pairwise_distances(learner.transform(IRIS[0]))
    for model in (
        DBSCAN(eps=1.0, metric="precomputed"),
        OPTICS(metric="precomputed"),
        HDBSCAN(metric="precomputed", copy=True),
        AgglomerativeClustering(3, metric="precomputed", linkage="average"),
    ):
        assert len(model.fit_predict(D)) == 150
    assert len(DBSCAN(eps=1.0, metric=learner.get_metric()).fit_predict(IRIS[0])) == 150
    affinity = np.exp(-(D**2))
    assert len(SpectralClustering(3, affinity="precomputed").fit_predict(affinity)) == 150


@use()
def feature_selection():
    """SequentialFeatureSelector and permutation_importance around a pipeline."""
    X, y = make_classification(100, 4, n_redundant=0, random_state=0)
    SequentialFeatureSelector(knn_pipeline(), n_features_to_select=2, cv=2).fit(X, y)
    model = knn_pipeline().fit(X, y)
    assert permutation_importance(model, X, y, n_repeats=2).importances.shape == (4, 2)


@use()
def regression():
    """MLKR before a k-NN regressor with a transformed target."""
    X, y = load_diabetes(return_X_y=True)
    inner = make_pipeline(nearfar.MLKR(2, max_iter=20, tol=0.1), KNeighborsRegressor())
    model = TransformedTargetRegressor(inner, func=np.log, inverse_func=np.exp)
    assert model.fit(X[:200], y[:200]).score(X[:200], y[:200]) > 0.3


@use()
def cache():
    """Pipeline with a cache on disk: the second fit is read from it."""
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(2):
            model = make_pipeline(nearfar.LMNN(), KNeighborsClassifier(), memory=folder)
            assert model.fit(*IRIS).score(*IRIS) > 0.9


@use()
def neighbor_graphs():
    """KNeighborsTransformer before MVU, LocalMDS and, for comparison, Isomap."""
    X = np.random.default_rng(0).normal(size=(60, 2)) @ np.ones((2, 5)) / 2
    X = X + np.random.default_rng(1).normal(size=X.shape)
    for unfolding in (
        nearfar.MVU(metric="precomputed"),
        nearfar.LocalMDS(metric="precomputed"),
        Isomap(metric="precomputed"),
    ):
        graph = KNeighborsTransformer(n_neighbors=8)
        assert make_pipeline(graph, unfolding).fit_transform(X).shape == (60, 2)


@use()
def one_against_the_rest():
    """OneVsRestClassifier and SelfTrainingClassifier."""
    model = OneVsRestClassifier(nearfar.NearestNeighborClassifier()).fit(*IRIS)
    assert model.score(*IRIS) > 0.9
    some = np.where(np.arange(150) % 3 == 0, IRIS[1], -1)
    model = SelfTrainingClassifier(knn_pipeline()).fit(IRIS[0], some)
    assert model.score(*IRIS) > 0.9


@use()
def frozen():
    """FrozenEstimator keeps a learned metric through clones and searches."""
    learner = nearfar.LMNN().fit(*IRIS)
    model = make_pipeline(FrozenEstimator(learner), KNeighborsClassifier())
    assert cross_val_score(model, *IRIS).mean() > 0.9
    assert model[0].estimator is learner


@use()
def diagrams():
    """The diagram of a fitted pipeline in a notebook."""
    assert "converged" in estimator_html_repr(knn_pipeline().fit(*IRIS))


@use()
def two_classes():
    """A binary pipeline by ROC curves, with labels as text."""
    X, y = load_breast_cancer(return_X_y=True)
    names = np.array(["benign", "malignant"])[y]
    scores = cross_val_score(knn_pipeline(nearfar.GMML()), X, names, scoring="roc_auc", cv=3)
    assert scores.mean() > 0.9


@use()
def joblib_backends():
    """cross_val_score in the backends loky, threading and multiprocessing."""
    found = []
    for backend in ("loky", "threading", "multiprocessing"):
        with joblib.parallel_config(backend, n_jobs=2):
            found.append(cross_val_score(knn_pipeline(), *WINE, cv=3))
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


@use("pandas")
def mixed_columns():
    """make_column_transformer with names, one-hot columns, and output as a table."""
    import pandas

    X = pandas.DataFrame(IRIS[0], columns=list("abcd"))
    X["kind"] = np.array(["x", "y"])[np.arange(150) % 2]
    model = make_column_transformer(
        (nearfar.LMNN(), ["a", "b", "c"]), ("drop", ["kind"]), remainder="passthrough"
    ).set_output(transform="pandas")
    table = model.fit_transform(X, IRIS[1])
    assert table.columns[0] == "lmnn__lmnn0"
