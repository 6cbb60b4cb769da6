"""LMNN(certificate="sample"): what a fit reports of a gap that is not certain, and where."""

import numpy as np
import pytest

from nearfar import LMNN, load, save, verify
from nearfar.analysis.convergence import Trace, proved_gap
from nearfar.errors import ConvergenceWarning, InvalidInputError
from nearfar.kernels import to_host
from nearfar.problems import lmnn_sampled
from nearfar.progress import describe


def overlapping_classes(n, d=6, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 4, n)
    return rng.normal(size=(n, d)) + 1.5 * rng.normal(size=(4, d))[y], y


@pytest.fixture
def always_sampled(monkeypatch):
    monkeypatch.setattr(lmnn_sampled, "MOST", 2.0)


@pytest.mark.usefixtures("always_sampled")
def test_fit_reports_a_sampled_gap_and_never_calls_it_certified():
    X, y = overlapping_classes(1500)
    exact = LMNN(tol=0.02, shrinkage=0).fit(X, y)
    model = LMNN(tol=0.05, shrinkage=0, certificate="sample", random_state=0).fit(X, y)
    assert model.status_ == "converged"
    assert model.duality_gap_ is None
    assert model.gap_confidence_ == 0.999
    assert model.sampled_gap_ <= 0.05
    optimum = exact.objective_ * (1 - exact.duality_gap_)
    assert model.objective_ * (1 - model.sampled_gap_) <= optimum * (1 + 1e-9)
    assert all(record["duality_gap"] is None for record in model.history_)
    assert model.history_[-1]["sampled_gap"] == model.sampled_gap_
    assert (exact.sampled_gap_, exact.gap_confidence_) == (None, None)


def test_small_data_are_compared_with_all_points():
    X, y = overlapping_classes(400)
    model = LMNN(certificate="sample", shrinkage=0, random_state=0).fit(X, y)
    assert model.duality_gap_ <= 1e-3
    assert model.sampled_gap_ is None


@pytest.mark.usefixtures("always_sampled")
@pytest.mark.parametrize("options", [{}, {"class_weight": {0: 2.0}}, {"n_passes": 2}])
def test_sampled_fits_of_the_default_shrinkage(options):
    X, y = overlapping_classes(1200)
    model = LMNN(tol=0.05, certificate="sample", random_state=1, **options)
    model.fit(X.astype(np.float32), y)
    assert model.status_ == "converged"
    assert model.sampled_gap_ <= 0.05


@pytest.mark.torch
@pytest.mark.usefixtures("always_sampled")
def test_tensors_give_the_same_gap():
    torch = pytest.importorskip("torch")
    X, y = overlapping_classes(1000)
    model = LMNN(tol=0.05, certificate="sample", shrinkage=0, random_state=0)
    here = model.fit(X, y).sampled_gap_
    there = model.fit(torch.as_tensor(X), torch.as_tensor(y))
    assert there.sampled_gap_ == pytest.approx(here, rel=1e-6)
    assert to_host(there.components_).shape == model.components_.shape


@pytest.fixture
def sampled(always_sampled):  # noqa: ARG001 - it is in force during the fit
    X, y = overlapping_classes(1000)
    return LMNN(tol=0.05, certificate="sample", shrinkage=0, random_state=0).fit(X, y), X, y


def test_words_name_the_confidence(sampled):
    model, _, _ = sampled
    words = f"gap at most {model.sampled_gap_:.1e} with 99.9% confidence"
    assert proved_gap(model) == words
    assert words in describe(model.history_[-1], None)
    trace = Trace(model.history_)
    assert trace.title("sampled_gap") == "gap from a sample, 99.9% confidence"
    assert len(trace.line("duality_gap").y) == 0
    assert len(trace.estimates().y) == sum(
        bool(r["residual"]) and "sampled_gap" not in r for r in model.history_
    )


def test_plot_names_the_confidence(sampled):
    pytest.importorskip("matplotlib")
    from nearfar.plots import ConvergenceDisplay

    display = ConvergenceDisplay.from_estimator(sampled[0])
    title = display.figure_.get_suptitle() + " ".join(a.get_title() for a in display.axes_.flat)
    assert "99.9% confidence" in title
    assert "certified" not in title


def test_report_names_the_confidence(sampled, tmp_path):
    pytest.importorskip("jinja2")
    from nearfar.report import write_report

    model, X, y = sampled
    write_report(model, tmp_path / "report.html", X, y)
    text = " ".join((tmp_path / "report.html").read_text().split())
    assert "With 99.9% confidence the gap is at most" in text
    assert "ertified gap" not in text


def test_verify_compares_all_pairs_and_model_files_keep_the_gap(sampled, tmp_path):
    model, X, y = sampled
    verdict = verify(model, X, y)
    assert verdict.proved
    assert verdict.gap <= model.sampled_gap_
    save(model, tmp_path / "model.nearfar")
    again = load(tmp_path / "model.nearfar")
    assert (again.sampled_gap_, again.gap_confidence_) == (model.sampled_gap_, 0.999)
    model.sampled_gap_ = 1e-9
    said = verify(model, X, y)
    assert not said.proved
    assert "the model says 1.0e-09 with 99.9% confidence" in said.sentence
    model.sampled_gap_, model.objective_ = 0.05, 2 * model.objective_
    assert "the table is not the training table" in verify(model, X, y).sentence


@pytest.mark.usefixtures("always_sampled")
def test_a_fit_that_ends_early_warns_with_the_confidence():
    X, y = overlapping_classes(1000)
    model = LMNN(tol=1e-3, certificate="sample", shrinkage=0, random_state=0, max_iter=4)
    with pytest.warns(
        ConvergenceWarning, match=r"a duality gap of at most .* \(99\.9% confidence\)"
    ):
        model.fit(X, y)
    assert model.status_ == "max_iter"
    assert model.sampled_gap_ > 1e-3


def test_contradictions_raise():
    X, y = overlapping_classes(60)
    with pytest.raises(InvalidInputError, match="needs a full metric; n_components=2"):
        LMNN(certificate="sample", n_components=2).fit(X, y)
    with pytest.raises(InvalidInputError, match="given triplets are all at hand"):
        LMNN(certificate="sample").fit(np.stack([X[:10], X[10:20], X[20:30]], axis=1))
    with pytest.raises(InvalidInputError, match="certificate"):
        LMNN(certificate="some").fit(X, y)


def test_dask_arrays_are_refused():
    array = pytest.importorskip("dask.array")
    X, y = overlapping_classes(60)
    with pytest.raises(InvalidInputError, match="needs rows in memory, not in blocks"):
        LMNN(certificate="sample").fit(array.from_array(X, chunks=(20, 6)), y)
