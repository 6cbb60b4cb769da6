"""Resampling, tuning, networks, explanations and active learning by other libraries."""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import (
    load_breast_cancer,
    load_digits,
    load_iris,
    load_wine,
    make_classification,
)
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import nearfar
from benchmarks.real_clients.uses import refusal, use

IRIS = load_iris(return_X_y=True)
WINE = load_wine(return_X_y=True)


def knn_pipeline():
    """A scaler, LMNN and a k-NN classifier."""
    return make_pipeline(StandardScaler(), nearfar.LMNN(), KNeighborsClassifier())


@use("imblearn")
def resampling():
    """imbalanced-learn: its pipeline with SMOTE before LMNN, and balanced bagging."""
    from imblearn.ensemble import BalancedBaggingClassifier
    from imblearn.over_sampling import SMOTE
    from imblearn.pipeline import make_pipeline as sampled_pipeline

    X, y = load_breast_cancer(return_X_y=True)
    rows = np.flatnonzero((y == 1) | (np.arange(len(y)) % 5 == 0))[:250]
    model = sampled_pipeline(
        StandardScaler(), SMOTE(random_state=0), nearfar.LMNN(), KNeighborsClassifier()
    )
    assert cross_val_score(model, X[rows], y[rows], cv=3, scoring="balanced_accuracy").mean() > 0.8
    bagging = BalancedBaggingClassifier(knn_pipeline(), 3, random_state=0)
    assert bagging.fit(X[rows], y[rows]).score(X[rows], y[rows]) > 0.8


@use("imblearn")
def learned_resampling():
    """imbalanced-learn: SMOTE with neighbours by get_metric."""
    from imblearn.over_sampling import SMOTE
    from sklearn.neighbors import NearestNeighbors

    X, y = IRIS[0][:120], IRIS[1][:120]
    metric = nearfar.LMNN().fit(X, y).get_metric()
    more, labels = SMOTE(k_neighbors=NearestNeighbors(n_neighbors=6, metric=metric)).fit_resample(
        X, y
    )
    assert len(more) == 150
    assert set(np.bincount(labels)) == {50}


@use("optuna")
def tuning():
    """optuna: a study over learners and parameters."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)

    def objective(trial):
        model = knn_pipeline().set_params(
            lmnn__n_neighbors=trial.suggest_int("k", 1, 4),
            lmnn__push_weight=trial.suggest_float("push", 0.2, 0.8),
        )
        return cross_val_score(model, *WINE, cv=3).mean()

    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=0))
    study.optimize(objective, n_trials=4)
    assert study.best_value > 0.9


@use("optuna", "sklearn.callback")
def pruning():
    """optuna: trials pruned by a callback that sees each iteration of the fit."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)

    class Report:
        """Passes each record to the trial, and ends the fit of a trial without promise."""

        def __init__(self, trial):
            self.trial, self.pruned = trial, False

        def setup(self, estimator, context):
            pass

        def teardown(self, estimator, context):
            pass

        def on_fit_task_begin(self, estimator, context):
            pass

        def on_fit_task_end(self, estimator, context, *, fitted_estimator=None):  # noqa: ARG002
            if context.task_name != "iteration":
                return False
            record = estimator.history_[-1]
            self.trial.report(record["objective"], record["n_iter"])
            self.pruned = self.trial.should_prune()
            return self.pruned

    def objective(trial):
        report = Report(trial)
        learner = nearfar.NCA(
            2, max_iter=30, tol=1e-9, init=trial.suggest_categorical("init", ["pca", "lda"])
        )
        learner.set_callbacks(report)
        learner.fit(*WINE)
        if report.pruned:
            raise optuna.TrialPruned
        return learner.objective_

    pruner = optuna.pruners.MedianPruner(n_startup_trials=1, n_warmup_steps=2)
    study = optuna.create_study(
        direction="maximize", pruner=pruner, sampler=optuna.samplers.RandomSampler(0)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", nearfar.errors.ConvergenceWarning)  # that is what limits do
        study.optimize(objective, n_trials=5)
    states = {trial.state.name for trial in study.trials}
    assert "COMPLETE" in states
    assert states <= {"COMPLETE", "PRUNED"}


@use("skopt")
def bayesian_search():
    """scikit-optimize: BayesSearchCV of a pipeline."""
    from skopt import BayesSearchCV

    search = BayesSearchCV(knn_pipeline(), {"lmnn__n_neighbors": (1, 4)}, n_iter=3, cv=3)
    assert search.fit(*WINE).best_score_ > 0.9


@use("torch")
def torch_module():
    """torch: a learned map as the last layer of a network that is trained."""
    import torch

    X, y = (torch.tensor(values) for values in WINE)
    X = (X - X.mean(0)) / X.std(0)
    learner = nearfar.LMNN(n_components=3).fit(X, y)

    class Network(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.before = torch.nn.Linear(13, 13, dtype=torch.float64)
            self.after = torch.nn.Linear(3, 3, dtype=torch.float64)

        def forward(self, points):
            return self.after(learner.transform(torch.relu(self.before(points))))

    torch.manual_seed(0)
    network = Network()
    optimizer, losses = torch.optim.Adam(network.parameters(), 0.05), []
    for _ in range(30):
        loss = torch.nn.functional.cross_entropy(network(X), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert network.before.weight.grad.abs().max() > 0
    assert losses[-1] < losses[0] / 2


@use("torch")
def torch_batches():
    """torch: batches of a DataLoader are mapped; the loader itself is refused."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    X, y = (torch.tensor(values) for values in IRIS)
    learner, loader = nearfar.LMNN().fit(X, y), DataLoader(TensorDataset(X, y), batch_size=50)
    images = torch.cat([learner.transform(points) for points, _ in loader])
    torch.testing.assert_close(images, learner.transform(X))
    assert "torch.cat" in refusal(lambda: learner.transform(loader))


@use("skorch", "torch", "pkg_resources")
def skorch_network():
    """skorch: a network behind LMNN in a pipeline."""
    import torch
    from skorch import NeuralNetClassifier

    torch.manual_seed(0)
    net = NeuralNetClassifier(
        lambda: torch.nn.Sequential(torch.nn.LazyLinear(3)),
        max_epochs=20,
        lr=0.1,
        verbose=0,
        criterion=torch.nn.CrossEntropyLoss,
        train_split=None,
    )
    X, y = WINE[0].astype(np.float32), WINE[1].astype(np.int64)
    model = make_pipeline(StandardScaler(), nearfar.LMNN(), net)
    assert model.fit(X, y).score(X, y) > 0.8


@use("pytorch_metric_learning", "torch")
def deep_metric_learning():
    """pytorch-metric-learning: a loss on images whose gradient reaches the inputs."""
    import torch
    from pytorch_metric_learning.losses import TripletMarginLoss

    X, y = (torch.tensor(values) for values in IRIS)
    learner = nearfar.LMNN().fit(X, y)
    points = X.clone().requires_grad_()
    TripletMarginLoss(margin=5.0)(learner.transform(points), y).backward()
    assert points.grad.abs().max() > 0


@use("captum", "torch")
def attributions():
    """captum: integrated gradients through a learned map."""
    import torch
    from captum.attr import IntegratedGradients

    X, y = (torch.tensor(values) for values in IRIS)
    learner = nearfar.LMNN().fit(X, y)
    found = IntegratedGradients(lambda points: learner.transform(points)[:, 0]).attribute(X[:5])
    torch.testing.assert_close(found.sum(1), learner.transform(X[:5])[:, 0])


@use("shap")
def explanations():
    """shap: a kernel explainer of a pipeline."""
    import shap

    model = knn_pipeline().fit(*IRIS)
    explainer = shap.KernelExplainer(model.predict_proba, shap.sample(IRIS[0], 10))
    assert np.asarray(explainer.shap_values(IRIS[0][:2], silent=True)).size == 2 * 4 * 3


@use("mlxtend")
def step_by_step():
    """mlxtend: sequential selection of features around a pipeline."""
    from mlxtend.feature_selection import SequentialFeatureSelector

    data = make_classification(100, 4, n_redundant=0, random_state=0)
    model = SequentialFeatureSelector(knn_pipeline(), k_features=2, cv=2).fit(*data)
    assert len(model.k_feature_idx_) == 2


@use("mapie")
def conformal():
    """mapie: conformal sets of labels by a classifier of nearfar."""
    from mapie.classification import SplitConformalClassifier

    X, y = IRIS
    model = SplitConformalClassifier(knn_pipeline(), confidence_level=0.9, prefit=False)
    model.fit(X[::2], y[::2]).conformalize(X[1::2], y[1::2])
    assert model.predict_set(X)[1].shape[0] == 150


@use("cleanlab")
def wrong_labels():
    """cleanlab: labels that a nearfar pipeline finds doubtful."""
    from cleanlab.classification import CleanLearning

    y = np.array(IRIS[1])
    y[:3] = 2
    issues = CleanLearning(knn_pipeline()).find_label_issues(IRIS[0], y)
    assert issues["is_label_issue"][:3].any()


@use("modAL", theirs="modAL 0.4 passes force_all_finite, which scikit-learn 1.8 removed")
def active_learning():
    """modAL: an active learner around NearestNeighborClassifier."""
    from modAL.models import ActiveLearner

    X, y = IRIS
    learner = ActiveLearner(
        nearfar.NearestNeighborClassifier(), X_training=X[::10], y_training=y[::10]
    )
    query, _ = learner.query(X)
    learner.teach(X[query], y[query])
    assert learner.score(X, y) > 0.8


@use("category_encoders", "pandas")
def encoders():
    """category_encoders: encoded columns before LMNN."""
    import pandas
    from category_encoders import TargetEncoder

    table = pandas.DataFrame(IRIS[0], columns=list("abcd"))
    table["kind"] = np.array(["x", "y", "z"])[(IRIS[1] + (np.arange(150) % 7 == 0)) % 3]
    model = make_pipeline(TargetEncoder(cols=["kind"]), StandardScaler(), nearfar.LMNN())
    assert model.fit(table, IRIS[1]).transform(table).shape[0] == 150


@use("feature_engine", "pandas")
def engineered_features():
    """feature_engine: a wrapper around LMNN for some columns of a table."""
    import pandas
    from feature_engine.wrappers import SklearnTransformerWrapper

    table = pandas.DataFrame(IRIS[0], columns=list("abcd"))
    model = make_pipeline(
        SklearnTransformerWrapper(StandardScaler(), variables=["a", "b"]), nearfar.LMNN()
    )
    assert model.fit(table, IRIS[1]).transform(table).shape[0] == 150


@use("xgboost")
def boosting():
    """xgboost: trees on images, in a pipeline."""
    from xgboost import XGBClassifier

    model = make_pipeline(nearfar.LMNN(), XGBClassifier(n_estimators=10))
    assert model.fit(*WINE).score(*WINE) > 0.9


@use("lightgbm")
def light_boosting():
    """lightgbm: trees on images, stacked with a k-NN pipeline."""
    from lightgbm import LGBMClassifier
    from sklearn.ensemble import StackingClassifier

    parts = [("trees", LGBMClassifier(n_estimators=5, verbose=-1)), ("near", knn_pipeline())]
    model = StackingClassifier(parts, LogisticRegression(max_iter=1000), cv=2)
    assert model.fit(*WINE).score(*WINE) > 0.9


@use("bertopic", "pandas")
def topics():
    """BERTopic: LMNN as the reduction of embeddings, with labels."""
    from bertopic import BERTopic

    X, y = load_digits(return_X_y=True)
    X, y = X[:300], y[:300]
    words = [f"digit{label} pixel{label} number" for label in y]
    model = BERTopic(umap_model=nearfar.LMNN(tol=0.1), hdbscan_model=KMeans(10, random_state=0))
    found, _ = model.fit_transform(words, embeddings=X, y=list(y))
    assert len(set(found)) == 10


@use(
    "yellowbrick",
    theirs="yellowbrick takes no pipeline of scikit-learn 1.6 and later as a classifier",
)
def yellowbrick_pictures():
    """yellowbrick: a report of a pipeline."""
    import matplotlib

    matplotlib.use("Agg")
    from yellowbrick.classifier import ClassificationReport

    picture = ClassificationReport(knn_pipeline())
    picture.fit(*WINE)
    assert picture.score(*WINE) > 0.9


@use("skore")
def reports():
    """skore: the report of a fitted pipeline."""
    import skore

    X, y = WINE
    report = skore.EstimatorReport(
        knn_pipeline(), X_train=X[::2], y_train=y[::2], X_test=X[1::2], y_test=y[1::2]
    )
    assert report.metrics.accuracy() > 0.9
