"""What leaves the problem as it is leaves the answer as it is, up to the proved gaps.

Rows and features in another order, units that are a power of two times larger, another origin, and
a constant column change no optimum (or change it by a known factor): each answer must lie within
what the other one proves.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.campaign.learners import LEARNERS, Learner, Setting, check_ending
from tests.campaign.profiles import CAMPAIGN
from tests.campaign.strategies import Data, odd_data

TOL = 1e-4
ROUNDING = 1e-8  # relative


def with_rows(setting: Setting, order: np.ndarray) -> Setting:
    """The rows in another order, and the target neighbours with them."""
    place = np.argsort(order)
    edges = sorted((int(place[head]), int(place[tail])) for head, tail in setting.edges)
    data = Data(setting.data.X[order], setting.data.y[order])
    return replace(setting, data=data, edges=tuple(edges))


def with_points(setting: Setting, X: np.ndarray) -> Setting:
    """Other points of the same labels and target neighbours."""
    return replace(setting, data=Data(np.ascontiguousarray(X), setting.data.y))


def moved(setting: Setting) -> Setting:
    """The first point at the origin, where that can be done without rounding."""
    X = setting.data.X
    assume(X.dtype.kind == "f")
    with np.errstate(over="ignore"):
        other = X - X[0]
    exact = X.astype(np.longdouble) - X[0]
    assume(np.isfinite(other).all() and (other == exact).all())
    return with_points(setting, other)


def related(
    learner: Learner, setting: Setting, relation: str, number: int
) -> tuple[Setting, float]:
    """Another form of the problem, and by how much that multiplies the objective."""
    X, random = setting.data.X, np.random.default_rng(number)
    if relation == "rows":
        return with_rows(setting, random.permutation(len(X))), 1.0
    if relation == "features":
        return with_points(setting, X[:, random.permutation(X.shape[1])]), 1.0
    if relation == "origin":
        return moved(setting), 1.0
    if relation == "constant column":
        column = np.full((len(X), 1), number % 7, dtype=X.dtype)
        other = np.insert(X, [number % (X.shape[1] + 1)], column, axis=1)
        return with_points(setting, other), learner.with_dead_column(setting)
    scale = 2.0 ** (number % 41 - 20)
    assume(X.dtype.kind == "f")
    return with_points(setting, X * X.dtype.type(scale)), learner.rescaled(setting, scale)


RELATIONS = ("rows", "features", "units", "origin", "constant column")


@pytest.mark.parametrize("learner", LEARNERS, ids=str)
@given(
    case=odd_data(),
    choice=st.data(),
    relation=st.sampled_from(RELATIONS),
    number=st.integers(0, 999),
)
@CAMPAIGN
def test_relations(learner, case, choice, relation, number):
    check_relation(learner, case, choice.draw(learner.parameters()), relation, number)


def check_relation(learner, case, parameters, relation, number):
    setting = learner.setting(case, parameters)
    assume(learner.keeps(setting, relation))
    other, factor = related(learner, setting, relation, number)
    assume(np.isfinite(factor))
    assume(case.spread == 0 or 1e-120 < case.spread < 1e120)
    fits = [learner.fit(form, TOL) for form in (setting, other)]
    errors = [fit.error for fit in fits]
    if any(errors):
        assert all(errors), f"only one form is refused: {errors}"
        return
    sign, values, bounds, roundings = learner.sense, [], [], []
    for form, fit, share in zip((setting, other), fits, (factor, 1.0), strict=True):
        chosen, model = learner.resolved(form, fit.model)
        check_ending(learner, chosen, replace(fit, model=model), TOL)
        verdict = learner.judged(chosen, model)
        values.append(share * verdict.value)
        bounds.append(share * learner.bound(fit.model))
        roundings.append(share * verdict.rounding)
    room = ROUNDING * learner.size(values[1]) + sum(roundings)
    for value, bound in ((values[0], bounds[1]), (values[1], bounds[0])):
        assert sign * value >= sign * bound - room, (
            f"{relation}: objectives {values!r}, bounds {bounds!r},"
            f" status {[fit.model.status_ for fit in fits]}"
        )
