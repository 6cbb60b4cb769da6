"""What histories tell: a duality gap in them is a proof, and every other residual an estimate.

A certified record bounds the optimum, and so the objective of a fit to a much smaller tolerance
lies within that bound.
"""

from functools import cache

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.metrics import pairwise_distances

import nearfar
from nearfar import (
    ITML,
    LMNN,
    LSML,
    MCML,
    MLKR,
    MMC,
    MVU,
    NCA,
    POLA,
    SCML,
    SDML,
    DMLEig,
    KernelLMNN,
    KernelMCML,
    KernelMMC,
    KernelPOLA,
    LandmarkMVU,
    LocalMDS,
    MetricMDS,
    MultiMetricLMNN,
    NonmetricMDS,
    SensorLocalization,
    VariationalMVU,
)

LOOSE, TIGHT = 0.05, 1e-5
ROUNDING = 1e-7  # relative

MINIMISED = {
    "LMNN": LMNN(),
    "KernelLMNN": KernelLMNN(),
    "MultiMetricLMNN": MultiMetricLMNN(random_state=0),
    "MCML": MCML(),
    "MCML, projected gradient": MCML(solver="projected-gradient"),
    "ITML": ITML(random_state=0),
    "SCML": SCML(random_state=0),
    "SDML": SDML(random_state=0),
    "LSML": LSML(violation_weight=100.0, random_state=0),
    "KernelMCML": KernelMCML(),
    "KernelMCML, linear": KernelMCML("linear"),
}
MAXIMISED = {
    "MMC": MMC(random_state=0),
    "MMC, diagonal": MMC(diagonal=True, random_state=0),
    "KernelMMC": KernelMMC(random_state=0),
    "DMLEig": DMLEig(random_state=0),
    "DMLEig, lecture": DMLEig(solver="lecture", max_iter=20, random_state=0),
}
VARIATIONAL = {
    "VariationalMVU": VariationalMVU(refine=False, random_state=0),
    "LandmarkMVU": LandmarkMVU(refine=False, random_state=0),
}
REFINED = {  # a program that is solved with a proof, and then descents
    "VariationalMVU": VariationalMVU(random_state=0),
    "LandmarkMVU": LandmarkMVU(random_state=0),
    "SensorLocalization": SensorLocalization(random_state=0),
}
LABELLED_WITHOUT_PROOF = {
    "NCA": NCA(),
    "NCA, diagonal": NCA(diagonal=True),
    "MLKR": MLKR(n_components=2),
    "LMNN": LMNN(n_components=2),
    "KernelLMNN": KernelLMNN(n_components=2),
    "MCML": MCML(n_components=2, reduce="learn"),
    "KernelMCML": KernelMCML(n_components=2, reduce="learn"),
    "MMC": MMC(n_components=2, reduce="learn", random_state=0),
    "KernelMMC": KernelMMC(n_components=2, random_state=0),
}
SCALED_WITHOUT_PROOF = {
    "MetricMDS": MetricMDS(random_state=0),
    "NonmetricMDS": NonmetricMDS(random_state=0),
    "LocalMDS": LocalMDS(random_state=0),
}
ONLINE = {"POLA": POLA(random_state=0), "KernelPOLA": KernelPOLA(random_state=0)}
UNFOLDED = {"MVU": MVU(), "MVU, slack": MVU(constraints="slack")}
ALL = (
    *(MINIMISED, MAXIMISED, UNFOLDED, VARIATIONAL, REFINED),
    *(LABELLED_WITHOUT_PROOF, SCALED_WITHOUT_PROOF, ONLINE),
)


def each(models):
    return pytest.mark.parametrize("model", models.values(), ids=models.keys())


@pytest.fixture(scope="module")
def flowers(iris):
    """Half of iris, in float32, whose values float64 has, too."""
    X, y = iris
    return X[::2].astype(np.float32), y[::2]


@pytest.fixture
def points(rng):
    return rng.normal(size=(30, 3)) * [3, 2, 0.1]


def certified(model):
    """The records of a fit that have a duality gap, which is their residual."""
    for record in model.history_:
        assert {"n_iter", "seconds", "objective", "residual", "duality_gap"} <= set(record)
        assert record["duality_gap"] in (None, record["residual"])
    return [record for record in model.history_ if record["duality_gap"] is not None]


@pytest.fixture(scope="module")
def optimum(flowers):
    """The optimum of a model's problem, the same for both types of the points."""
    X, y = flowers
    return cache(
        lambda model: clone(model).set_params(tol=TIGHT).fit(X.astype(float), y).objective_
    )


@each(MINIMISED)
def test_the_optimum_is_not_below_what_a_record_proves(model, flowers, optimum, dtype):
    X, y = flowers
    best = optimum(model)
    records = certified(clone(model).set_params(tol=LOOSE).fit(X.astype(dtype), y))
    final = [r for r in records if r.get("metrics") == records[-1].get("metrics")]
    assert final
    for record in final:
        objective = record["objective"]
        bound = objective - record["duality_gap"] * max(objective, 1.0)
        assert bound <= best * (1 + ROUNDING) + ROUNDING


@each(MAXIMISED)
@pytest.mark.filterwarnings("ignore:.*stopped before tol:nearfar.errors.ConvergenceWarning")
def test_the_optimum_is_not_above_what_a_record_proves(model, flowers, optimum, dtype):
    X, y = flowers
    best = optimum(model)
    records = certified(clone(model).set_params(tol=LOOSE).fit(X.astype(dtype), y))
    assert records
    for record in records:
        assert record["objective"] * (1 + record["duality_gap"]) >= best * (1 - ROUNDING)


@each(UNFOLDED)
def test_the_variance_is_not_above_what_a_record_proves(model, points):
    best = clone(model).set_params(tol=TIGHT).fit(points).objective_
    loose = clone(model).set_params(tol=LOOSE).fit(points)
    unit = float((loose.graph_.lengths**2).mean())
    records = certified(loose)
    assert len(records) == loose.n_iter_
    for record in records:
        width = record["duality_gap"] * max(unit, abs(record["bound"]))
        assert record["objective"] + width >= record["bound"] * (1 - ROUNDING)
        assert record["bound"] >= best * (1 - ROUNDING)


@each(VARIATIONAL)
def test_the_program_is_not_above_what_a_record_proves(model, points):
    """A gap is relative to bound − f(0), with one f(0) for all records."""
    best = clone(model).set_params(tol=TIGHT).fit(points).objective_
    records = certified(clone(model).set_params(tol=LOOSE).fit(points))
    at_zero = [r["bound"] - (r["bound"] - r["objective"]) / r["duality_gap"] for r in records]
    np.testing.assert_allclose(at_zero, at_zero[0], rtol=1e-6)
    assert all(record["bound"] >= best * (1 - ROUNDING) for record in records)


@each(REFINED)
def test_records_of_a_refined_fit_are_certified_for_its_program_only(model, points):
    """The gap of the embedding is proved once, at the end, and is in no record."""
    network = isinstance(model, SensorLocalization)
    model = clone(model).fit(pairwise_distances(points) if network else points)
    assert 0 < model.duality_gap_ < 1
    assert model.duality_gap_ not in [record["duality_gap"] for record in model.history_]
    assert {record["stage"] for record in certified(model)} == {"program"}
    refined = [record for record in model.history_ if record["stage"] != "program"]
    assert {record["duality_gap"] for record in refined} == {None}
    assert refined[-1]["residual"] <= model.tol


@each(LABELLED_WITHOUT_PROOF)
def test_without_convexity_all_residuals_are_estimates(model, flowers):
    model = clone(model).fit(*flowers)
    assert model.duality_gap_ is None
    assert certified(model) == []
    assert 0 <= model.history_[-1]["residual"] <= model.tol


@each(SCALED_WITHOUT_PROOF)
def test_of_scalings_all_residuals_are_estimates(model, points):
    model = clone(model).fit(points)
    assert model.duality_gap_ is None
    assert certified(model) == []
    assert 0 <= model.history_[-1]["residual"] <= model.tol


@each(ONLINE)
def test_of_epochs_nothing_is_certified(model, flowers):
    X, y = flowers
    model = clone(model).set_params(beta=1e3).fit(X, y)  # above all losses
    assert certified(model) == []
    assert [record["residual"] for record in model.history_] == [0.0]


def test_every_iterative_estimator_is_listed_and_names_both_numbers():
    documented = {name: getattr(nearfar, name).__doc__ or "" for name in nearfar.__all__}
    iterative = {name for name, text in documented.items() if "history_ : list of dict" in text}
    assert iterative == {name.partition(",")[0] for models in ALL for name in models}
    for name in iterative - {"MultiMetricLMNN"}:
        text = documented[name].partition("history_ : list of dict")[2].partition("_ : ")[0]
        assert "residual (" in text, name
        assert "duality_gap" in text, name
    assert "For each iteration what `LMNN` records" in documented["MultiMetricLMNN"]


def test_a_model_file_without_residuals_claims_no_proof(flowers, tmp_path):
    """In files from before there were two names, duality_gap may be an estimate."""
    model = NCA().fit(*flowers)
    residuals = [record["residual"] for record in model.history_]
    for record in model.history_:
        record["duality_gap"] = record.pop("residual")
    nearfar.save(model, tmp_path / "earlier.nearfar")
    found = nearfar.load(tmp_path / "earlier.nearfar").history_
    assert [record["residual"] for record in found] == residuals
    assert {record["duality_gap"] for record in found} == {None}
