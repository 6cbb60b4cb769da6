"""What every fit claims, checked by definitions that share nothing with nearfar, on odd data.

A fit is refused by an error that says what is so, or it ends with finite numbers and a true
status; the returned map is worth what is reported; no bound is ever beaten, neither by a fit to
another tolerance nor by a general solver; and no simple map is better than the answer.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import currently_in_test_context, event, given
from hypothesis import strategies as st

from tests.campaign.learners import LEARNERS, check_ending, is_solvable, some_shrinkage
from tests.campaign.profiles import CAMPAIGN
from tests.campaign.regressions import REGRESSIONS
from tests.campaign.strategies import odd_data

LOOSE, TIGHT = 1e-2, 1e-5
ROUNDING = 1e-9  # relative: sums of some hundred terms
SOLVER = 1e-5  # relative: what a general solver errs


def note_event(text):
    """For the statistics of hypothesis, where it draws."""
    if currently_in_test_context():
        event(text)


@pytest.mark.parametrize("learner", LEARNERS, ids=str)
@given(case=odd_data(), choice=st.data())
@CAMPAIGN
def test_certificates(learner, case, choice):
    check_certificates(learner, case, choice.draw(learner.parameters(), label="parameters"))


@pytest.mark.parametrize("name", REGRESSIONS)
def test_regressions(name):
    stem, parameters, case = REGRESSIONS[name]
    learner = next(learner for learner in LEARNERS if learner.name == stem)
    check_certificates(learner, case, parameters)


def check_certificates(learner, case, parameters):
    setting = learner.setting(case, parameters)
    fits = {tol: learner.fit(setting, tol) for tol in (LOOSE, TIGHT)}
    errors = {tol: fit.error for tol, fit in fits.items()}
    if any(errors.values()):
        assert all(errors.values()), f"refused at one tolerance only: {errors}"
        for error in errors.values():
            assert learner.may_refuse(some_shrinkage(setting), error), f"refused wrongly: {error!r}"
        note_event("refused")
        return
    judged, sign, asked = {}, learner.sense, setting
    for tol, fit in fits.items():
        setting, model = learner.resolved(asked, fit.model)
        check_ending(learner, setting, replace(fit, model=model), tol)
        note_event(model.status_)
        verdict = judged[tol] = learner.judged(setting, model)
        room = ROUNDING * learner.size(verdict.value) + verdict.rounding
        assert abs(model.objective_ - verdict.value) <= room, (
            f"reported {model.objective_!r}, the returned map is worth {verdict.value!r}"
            f" (rounding {verdict.rounding:.1g})"
        )
        excess = learner.excess(setting, model)
        assert excess <= ROUNDING, f"infeasible by {excess:g}"
        # With a shrinkage, a fit to features of units 1e36 apart may end early, and says how far.
        ended_early = model.status_ != "converged" and setting.parameters.get("shrinkage", 0) > 0
        lack = max(tol, model.duality_gap_) if ended_early else tol
        for name, value in learner.starts(setting, model).items():
            size = max(learner.size(value), learner.size(verdict.value))  # a gap is of the answer
            room = (lack + ROUNDING) * size + verdict.rounding
            assert sign * verdict.value <= sign * value + room, (
                f"{name} is worth {value!r}, the answer {verdict.value!r} ({model.status_})"
            )
    same = learner.same_program(*(fit.model for fit in fits.values()))
    for tol, other in ((LOOSE, TIGHT), (TIGHT, LOOSE)) if same else ():
        bound, verdict = learner.bound(fits[tol].model), judged[other]
        room = ROUNDING * learner.size(verdict.value) + verdict.rounding + judged[tol].rounding
        assert sign * verdict.value >= sign * bound - room, (
            f"the fit to tol={other:g} is worth {verdict.value!r}, beyond the bound {bound!r} of"
            f" that to tol={tol:g}"
        )
    if not is_solvable(case):
        return
    best = learner.optimum(setting, model)
    if best is None:
        return
    note_event("compared with a general solver")
    for tol, fit in fits.items() if same else ((TIGHT, fits[TIGHT]),):
        room = SOLVER * max(1.0, learner.size(best)) + judged[tol].rounding
        bound, value = learner.bound(fit.model), judged[tol].value
        assert sign * value >= sign * best - room, f"{value!r} beats the optimum {best!r}"
        assert sign * best >= sign * bound - room, f"the optimum {best!r} beats the bound {bound!r}"
