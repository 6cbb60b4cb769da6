"""The program of few columns: derivatives, the line, and the update of multipliers."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from nearfar import NeighborhoodGraph
from nearfar.problems.mvu_low_rank import (
    FASTER,
    FIRST,
    STIFFER,
    STIFFEST,
    LowRankProgram,
)
from nearfar.problems.stress import Stress
from nearfar.problems.variational_mvu import Edges


def edges_of(rng, n=20):
    points = rng.normal(size=(n, 2))
    graph = NeighborhoodGraph.from_points(points, 4)
    weights = rng.uniform(0.5, 2, graph.n_edges)
    edges, unit = Edges.build(n, graph.heads, graph.tails, graph.lengths, weights, np.empty(0))
    return edges, points / unit


def program_of(rng, form):
    edges, points = edges_of(rng)
    if form == "squares":
        return LowRankProgram.of_squares(edges, 0.02), points
    up, down = {"equal": (np.inf, np.inf), "shrink": (np.inf, 0.0), "slack": (12.0, 7.0)}[form]
    prices = np.full(len(edges.squares), up), np.full(len(edges.squares), down)
    program = LowRankProgram.of_prices(edges, 0.02, prices)
    at = program.place(points + 0.1 * rng.normal(size=points.shape))
    return program.successor(at), points


@pytest.mark.parametrize("form", ["squares", "equal", "shrink", "slack"])
def test_gradient_and_line_are_those_of_finite_differences(rng, form):
    program, points = program_of(rng, form)
    Y = np.column_stack([points, rng.normal(size=(len(points), 1))])
    P = rng.normal(size=Y.shape)
    at, step = program.place(Y), 1e-6
    ahead, behind = program.place(Y + step * P), program.place(Y - step * P)
    slope = (ahead.value - behind.value) / (2 * step)
    assert np.vdot(at.gradient, P) == pytest.approx(slope, rel=1e-5)
    line = program.line(at, P)
    for t in (0.0, 0.3):
        value, slope, curvature = line.at(t)
        moved = program.moved(at, line, t)
        assert value == pytest.approx(moved.value)
        assert moved.value == pytest.approx(program.place(Y + t * P).value)
        assert slope == pytest.approx(np.vdot(moved.gradient, P))
        slopes = [line.at(t + h)[1] for h in (step, -step)]
        assert curvature == pytest.approx((slopes[0] - slopes[1]) / (2 * step), rel=1e-4)


def test_squares_are_half_the_stress_and_have_no_successor(rng):
    edges, points = edges_of(rng)
    Y = 1.1 * points
    at, stress = LowRankProgram.of_squares(edges, 0.02).place(Y), Stress(edges, 0.04).place(Y)
    assert at.value == pytest.approx(0.5 * stress.value)
    np.testing.assert_allclose(at.gradient, 0.5 * stress.gradient, atol=1e-12)
    program = LowRankProgram.of_squares(edges, 0.02)
    assert program.successor(at) is program


def test_forces_are_the_maximum_of_the_smoothed_price(rng):
    """(3) by a search on the interval of each edge."""
    program, points = program_of(rng, "slack")
    at = program.place(1.2 * points)
    y, stiffness, total = program.centre, program.stiffness, 0.0
    for e, x in enumerate(at.excess):
        found = minimize_scalar(
            lambda m, e=e, x=x: (m - y[e]) ** 2 / (2 * stiffness[e]) - m * x,
            bounds=(program.lower[e], program.upper[e]),
            method="bounded",
            options={"xatol": 1e-10},
        )
        assert at.forces[e] == pytest.approx(found.x, abs=1e-6)
        total -= found.fun
    centred = at.Y - at.Y.mean(axis=0)
    assert at.value == pytest.approx(total - 0.02 * np.sum(centred**2))


def test_an_update_keeps_forces_and_stiffens_what_is_forbidden(rng):
    for form, growth in (("shrink", STIFFER), ("slack", 1.0)):
        program, points = program_of(rng, form)
        at = program.place(1.1 * points)
        after = program.successor(at)
        np.testing.assert_array_equal(after.centre, at.forces)
        np.testing.assert_allclose(after.stiffness, growth * program.stiffness)


def test_stiffness_for_newton_grows_up_to_its_limit(rng):
    """In units of 1000 c = 20, or of the price of 12 c = 0.24."""
    for form, unit in (("equal", 20.0), ("slack", 0.24)):
        program, points = program_of(rng, form)
        program, w = program.for_newton(), program.edges.weights
        np.testing.assert_allclose(program.stiffness, FIRST * unit * w)
        at = program.place(1.01 * points)
        after = program.successor(at)
        np.testing.assert_allclose(after.stiffness, FASTER * program.stiffness)
        resumed = program.continued(at.forces, program.stiffness)
        np.testing.assert_array_equal(resumed.stiffness, after.stiffness)
        for _ in range(20):
            after = after.successor(at)
        np.testing.assert_allclose(after.stiffness, STIFFEST * unit * w)
