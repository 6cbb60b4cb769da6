"""Every public estimator works as it is constructed by default.

The estimators are found among the public names. None of scikit-learn's checks is expected to fail,
but for those of EXPECTED, and none may be skipped. Other ways of working are checked in the modules
of each kind.
"""

import inspect

import pytest
from sklearn.base import BaseEstimator
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import check_estimator

import nearfar
import nearfar.estimators
from tests.documented import documented_defaults

PUBLIC = {
    value
    for module in (nearfar, nearfar.estimators)
    for value in (getattr(module, name) for name in module.__all__)
    if isinstance(value, type) and issubclass(value, BaseEstimator)
}
# scikit-learn makes no pairs of points; `tests/estimators/test_pair_classifier.py` has its checks.
PAIRS = {nearfar.PairClassifier}
# Of two equal rows each is a neighbour of the other; one row of weight 2 is not its own.
EXPECTED = {
    cls: {"check_sample_weight_equivalence_on_dense_data": "a row is not its own neighbour"}
    for cls in (nearfar.LMNN, nearfar.MultiMetricLMNN, nearfar.MCML, nearfar.NCA)
} | {
    # 15 points in 30 features: rows of a map beyond their span are of one length, and any rotation
    # of them has the same distances, which tests/estimators/test_weighted_pairs.py compares.
    cls: {"check_sample_weight_equivalence_on_dense_data": "maps are unique up to a rotation"}
    for cls in (nearfar.DMLEig, nearfar.GMML, nearfar.MMC, nearfar.RCA)
}
LEAST = 40  # checks of an estimator of points
SLOW = {  # whose checks take more than a second; those of LMNN do, too
    nearfar.DMLEig,
    nearfar.EnergyClassifier,
    nearfar.ITML,
    nearfar.KernelLMNN,
    nearfar.KernelPOLA,
    nearfar.LandmarkMVU,
    nearfar.MMC,
    nearfar.MultiMetricLMNN,
    nearfar.MVU,
    nearfar.NCA,
    nearfar.NearestNeighborClassifier,
    nearfar.POLA,
    nearfar.SCML,
    nearfar.SDML,
    nearfar.SensorLocalization,
    nearfar.VariationalMVU,
}

each_class = pytest.mark.parametrize("cls", sorted(PUBLIC, key=lambda cls: cls.__name__))


def test_every_model_class_is_public():
    assert {cls.__name__ for cls in PUBLIC} == set(nearfar.io.MODEL_CLASSES)


@each_class
def test_documented_defaults_are_the_true_ones(cls):
    """Values are compared, not their spelling: `1e-3` is 0.001."""
    true = {name: p.default for name, p in inspect.signature(cls).parameters.items()}
    assert documented_defaults(cls) == true


# Of the checks' data some graphs are not connected and some classes have one or two points, which
# is warned of.
@pytest.mark.filterwarnings("ignore::nearfar.errors.NearfarWarning")
@pytest.mark.filterwarnings("ignore:Can't test estimator:sklearn.exceptions.SkipTestWarning")
@pytest.mark.parametrize(
    "cls",
    [
        pytest.param(cls, marks=pytest.mark.slow) if cls in SLOW else cls
        for cls in sorted(PUBLIC, key=lambda cls: cls.__name__)
    ],
)
def test_check_estimator_passes(cls):
    results = check_estimator(cls(), on_skip=None, on_fail=None)
    failed = {r["check_name"]: r["exception"] for r in results if r["status"] != "passed"}
    assert failed.keys() == EXPECTED.get(cls, {}).keys(), failed
    assert [r["check_name"] for r in results if r["expected_to_fail"]] == []
    if cls in PAIRS:
        return
    names, tags = {r["check_name"] for r in results}, get_tags(cls())
    assert len(results) >= LEAST
    if hasattr(cls, "transform") and tags.transformer_tags.preserves_dtype:
        assert "check_transformer_preserve_dtypes" in names
    if tags.classifier_tags:
        assert "check_classifiers_train" in names
    if hasattr(cls, "set_callbacks"):  # since scikit-learn 1.9
        assert "check_array_api_input" in names
