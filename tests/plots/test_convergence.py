from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import nearfar
from nearfar.errors import InvalidInputError
from nearfar.plots import ConvergenceDisplay


def test_lines_are_the_history(lmnn):
    display = ConvergenceDisplay.from_estimator(lmnn, x="n_iter")
    assert display.panels_ == ("objective", "active_triplets", "duality_gap")
    for axes, panel in zip(display.axes_, display.panels_, strict=True):
        rows = [row for row in lmnn.history_ if row[panel] is not None]
        line = axes.get_lines()[0]
        np.testing.assert_array_equal(line.get_xdata(), [row["n_iter"] for row in rows])
        np.testing.assert_array_equal(line.get_ydata(), [row[panel] for row in rows])
        assert axes.get_xlabel() == "iterations"
    assert display.axes_[2].get_yscale() == "log"
    assert display.figure_.get_suptitle().endswith(f", certified gap {lmnn.duality_gap_:.1e}")
    assert [text.get_text() for text in display.axes_[2].texts] == ["tol=0.1"]


def test_all_panels_have_the_same_seconds(lmnn):
    display = ConvergenceDisplay.from_estimator(lmnn)
    spans = {axes.get_xlim() for axes in display.axes_}
    assert len(spans) == 1
    start, end = spans.pop()
    assert start == 0
    assert end > lmnn.history_[-1]["seconds"]


def test_the_bound_stands_beside_the_objective(mvu):
    display = ConvergenceDisplay.from_estimator(mvu)
    lines = {line.get_label(): line for line in display.axes_[0].get_lines()}
    bounds = [row["bound"] for row in mvu.history_]
    np.testing.assert_array_equal(lines["bound"].get_ydata(), bounds)


def test_a_gain_that_is_no_bound_is_not_called_certified(embeddings):
    display = ConvergenceDisplay.from_estimator(embeddings["MetricMDS"])
    assert display.panels_ == ("objective", "residual")
    assert display.axes_[-1].get_title() == "estimated gain left"
    first, *residuals = [row["residual"] for row in embeddings["MetricMDS"].history_]
    assert np.isinf(first)  # which cannot be drawn
    np.testing.assert_array_equal(display.axes_[-1].get_lines()[0].get_ydata(), residuals)


def test_estimates_are_dashed_beside_certified_gaps(digits):
    lmnn = nearfar.LMNN(tol=0.1, shrinkage=0).fit(*digits)
    axes = ConvergenceDisplay.from_estimator(lmnn, x="n_iter").axes_[-1]
    assert axes.get_title() == "certified gap"
    line = {line.get_label(): line for line in axes.get_lines()}["estimate"]
    rows = [row for row in lmnn.history_ if row["duality_gap"] is None]
    rows = [row for row in rows if row["residual"] is not None]
    assert rows
    assert line.get_linestyle() == "--"
    np.testing.assert_array_equal(line.get_xdata(), [row["n_iter"] for row in rows])
    np.testing.assert_array_equal(line.get_ydata(), [row["residual"] for row in rows])


def test_what_is_proved_of_a_program_is_not_said_of_its_refinement(embeddings):
    axes = ConvergenceDisplay.from_estimator(embeddings["VariationalMVU"]).axes_[-1]
    assert axes.get_title() == "certified gap of the program"
    assert "estimate" in [line.get_label() for line in axes.get_lines()]


def test_where_all_gaps_are_certified_there_is_no_estimate(mvu):
    axes = ConvergenceDisplay.from_estimator(mvu).axes_[-1]
    assert axes.get_title() == "certified gap"
    assert "estimate" not in [line.get_label() for line in axes.get_lines()]


def test_a_residual_that_is_only_ever_zero_has_no_panel():
    common = {"n_iter": 1, "seconds": 0.1, "objective": 2.0, "duality_gap": None}
    assert ConvergenceDisplay([common | {"residual": 0.0}]).plot().panels_ == ("objective",)


def test_stages_are_marked(embeddings):
    model = embeddings["VariationalMVU"]
    stages = [row["stage"] for row in model.history_]
    turns = sum(a != b for a, b in pairwise(stages))
    assert turns > 0
    axes = ConvergenceDisplay.from_estimator(model, panels=["objective"]).axes_[0]
    assert sum(line.get_linestyle() == ":" for line in axes.get_lines()) == turns


def test_held_out_errors_have_a_panel(iris):
    model = nearfar.LMNN(validation_fraction=0.3, random_state=0).fit(*iris)
    assert "validation_error" in ConvergenceDisplay.from_estimator(model).panels_


@pytest.mark.parametrize("names", [["loose", "tight"], ["tight", "loose"]])
def test_two_fits_in_one_picture(iris, names):
    """Neither is cut off, whichever took longer."""
    fits = {
        name: nearfar.LMNN(tol=tol).fit(*iris) for name, tol in (("loose", 0.3), ("tight", 1e-4))
    }
    assert fits["tight"].n_iter_ > fits["loose"].n_iter_ + 1
    first, second = names
    display = ConvergenceDisplay.from_estimator(fits[first], label=first, x="n_iter")
    ConvergenceDisplay.from_estimator(
        fits[second], ax=display.axes_, label=second, color="black", x="n_iter"
    )
    assert [text.get_text() for text in display.axes_[0].get_legend().get_texts()] == names
    assert display.axes_[0].get_xlim()[1] > fits["tight"].n_iter_


def test_panels_may_be_chosen(mvu, plt):
    display = ConvergenceDisplay.from_estimator(mvu, panels=["violation"], ax=plt.figure().gca())
    assert display.axes_[0].get_title() == "violation of the constraints"
    with pytest.raises(InvalidInputError, match="no numbers called 'warmth'; it has objective"):
        ConvergenceDisplay.from_estimator(mvu, panels=["warmth"])
    with pytest.raises(InvalidInputError, match=r"2 panels \(objective, duality_gap\) and 1 axes"):
        ConvergenceDisplay.from_estimator(mvu, ax=plt.figure().gca())
    with pytest.raises(InvalidInputError, match="x must be one of 'seconds', 'n_iter'"):
        ConvergenceDisplay.from_estimator(mvu, x="epochs")


@pytest.mark.parametrize("seconds", [0.0008, 0.004])
def test_seconds_have_room_for_their_numbers(seconds):
    history = [
        {"n_iter": n, "seconds": n * seconds, "objective": 1 / n, "duality_gap": 1 / n}
        for n in range(1, 9)
    ]
    display = ConvergenceDisplay(history).plot()
    display.figure_.canvas.draw()
    for axes in display.axes_:
        low, high = axes.get_xlim()
        assert sum(low <= tick <= high for tick in axes.get_xticks()) <= 6  # at most 5 steps


def test_a_logarithmic_axis_keeps_its_ticks(lmnn, plt):
    axes = plt.subplots(1, 3)[1]
    for ax in axes:
        ax.set_xscale("log")
    ConvergenceDisplay.from_estimator(lmnn, x="n_iter", ax=axes)
    assert {ax.get_xscale() for ax in axes} == {"log"}


def test_one_iteration_is_drawn():
    display = ConvergenceDisplay([{"n_iter": 1, "seconds": 0.1, "objective": 2.0}]).plot()
    display.figure_.canvas.draw()
    assert display.panels_ == ("objective",)


def test_a_model_without_history_is_refused(iris):
    from sklearn.decomposition import PCA

    with pytest.raises(InvalidInputError, match="fit of PCA keeps no history_"):
        ConvergenceDisplay.from_estimator(PCA().fit(iris[0]))
