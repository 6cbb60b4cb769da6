"""What notebooks show: the diagram of scikit-learn with the facts of the fit, escaped."""

import html
import inspect
import re

import numpy as np
import pytest
import sklearn
from sklearn.base import BaseEstimator
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import estimator_html_repr

import nearfar
from nearfar import (
    LMNN,
    MCML,
    MVU,
    NCA,
    RCA,
    EnergyClassifier,
    LinearMetric,
    MultiMetricLMNN,
    NearestNeighborClassifier,
    PairClassifier,
)
from nearfar.estimators._base import Estimator, fit_facts

CLASSES = [
    cls
    for cls in (getattr(nearfar, name) for name in nearfar.__all__)
    if inspect.isclass(cls) and issubclass(cls, BaseEstimator)
]


def shown(estimator):
    """The HTML that a notebook shows."""
    return estimator._repr_mimebundle_()["text/html"]


def captions(estimator):
    """What stands below the names in the diagram."""
    return [
        html.unescape(text) for text in re.findall(r'class="caption">([^<]*)<', shown(estimator))
    ]


@pytest.mark.parametrize("cls", CLASSES)
def test_every_estimator_shows_its_facts(cls):
    assert issubclass(cls, Estimator)
    assert cls._repr_html_inner is BaseEstimator._repr_html_inner
    assert captions(cls()) == []


def test_the_link_to_a_page_that_is_not_scikit_learns():
    """scikit-learn has no page of our classes, so none is linked."""
    assert all(cls()._get_doc_link() == "" for cls in CLASSES)


def test_facts_of_a_certified_fit(iris):
    model = LMNN().fit(*iris)
    assert captions(model) == [
        f"converged · certified gap {model.duality_gap_:.1e} · objective {model.objective_:.4g}"
        f" · {model.n_iter_} iterations · {model.history_[-1]['seconds']:.2g} s"
    ]
    assert model._repr_html_().count("certified gap") == 1


def test_facts_of_a_fit_that_was_cut_short(iris):
    with pytest.warns(nearfar.errors.ConvergenceWarning):
        model = NCA(max_iter=1).fit(*iris)
    status, certificate, _, iterations, _ = fit_facts(model)
    assert (status, certificate, iterations) == ("max_iter", "no certificate", "1 iteration")


def test_facts_of_a_closed_form(iris):
    model = RCA().fit(*iris)
    assert fit_facts(model) == ["converged", "exact", f"objective {model.objective_:.4g}"]


def test_nothing_minimised_has_no_facts(iris):
    assert fit_facts(LinearMetric().fit(*iris)) == []


def test_facts_of_an_unfolding():
    angles = np.linspace(0, 3, 20)
    model = MVU(n_neighbors=2).fit(np.stack([np.cos(angles), np.sin(angles)], axis=1))
    assert captions(model)[0].startswith("converged · certified gap ")


@pytest.mark.parametrize("classifier", [NearestNeighborClassifier, EnergyClassifier])
@pytest.mark.parametrize("metric", [None, MCML()])
def test_a_classifier_shows_the_metric_that_it_learned(classifier, metric, iris):
    model = classifier(metric)
    assert captions(model) == []
    model.fit(*iris)
    assert captions(model) == [" · ".join(fit_facts(model.metric_))]
    assert f"metric: {type(model.metric_).__name__}" in shown(model)


def test_a_classifier_of_pairs_shows_its_metric(iris):
    pairs, kinds = nearfar.make_pairs(*iris, 100, random_state=0)
    model = PairClassifier(RCA()).fit(pairs, kinds)
    assert captions(model) == [" · ".join(fit_facts(model.metric_))]


def test_a_learner_that_starts_from_another_shows_its_own_facts(iris):
    model = MultiMetricLMNN(init=LMNN(tol=0.1).fit(*iris), tol=0.1).fit(*iris)
    assert captions(model) == [" · ".join(fit_facts(model))]


def test_a_class_in_place_of_an_estimator_can_be_shown():
    """Fit will refuse it."""
    assert "NearestNeighborClassifier" in shown(NearestNeighborClassifier(LMNN))


def test_facts_inside_a_pipeline_and_a_search(iris):
    pipeline = make_pipeline(StandardScaler(), LMNN(tol=0.1), KNeighborsClassifier(3))
    search = GridSearchCV(pipeline, {"lmnn__push_weight": [0.3, 0.5]}, cv=2).fit(*iris)
    best = search.best_estimator_
    assert captions(best) == captions(search) == [" · ".join(fit_facts(best[1]))]


def test_what_a_user_wrote_is_escaped(iris):
    """Names of features, labels and parameters may hold anything."""
    import pandas

    evil = "<script>alert('x')</script>"
    X = pandas.DataFrame(iris[0], columns=[evil, "a & b", '"quoted"', "🙂"])
    model = LMNN(tol=0.1).fit(X, np.array([evil, "b", "c"])[iris[1]])
    for estimator in (model, LMNN(init=evil), NearestNeighborClassifier(model).fit(X, iris[1])):
        assert evil not in shown(estimator)


def test_a_scikit_learn_that_draws_otherwise_still_draws(iris, monkeypatch):
    """The diagram is then scikit-learn's own."""
    from sklearn.utils._repr_html import estimator as drawing

    model = LMNN(tol=0.1).fit(*iris)
    monkeypatch.setattr(Estimator, "_sk_visual_block_", lambda _: 1 / 0)
    assert "LMNN" in estimator_html_repr(model)
    assert captions(model) == []
    assert hasattr(drawing, "_VisualBlock")


def test_no_diagram_where_text_was_asked_for(iris):
    model = LMNN(tol=0.1).fit(*iris)
    with sklearn.config_context(display="text"):
        assert model._repr_mimebundle_() == {"text/plain": "LMNN(tol=0.1)"}
