"""The interior point method: chains have known answers, and every iterate keeps its promises."""

import numpy as np
import pytest

from nearfar import NeighborhoodGraph
from nearfar.problems.mvu import MVUProgram, edge_prices
from nearfar.solvers import Iterate, Status, run
from nearfar.solvers import interior_point as module
from nearfar.solvers.interior_point import interior_point
from nearfar.solvers.predictor_corrector import Share


def program_of(heads, tails, squares, constraints="equal", slack_weight=0.99, **options):
    edges = np.array(heads, dtype=np.intp), np.array(tails, dtype=np.intp)
    n = int(max(map(max, edges))) + 1
    prices = edge_prices(constraints, slack_weight, len(squares))
    squares = np.array(squares, dtype=float)
    return MVUProgram.build(*edges, squares, n, np.zeros(0), prices, **options)


def chain(lengths, **options):
    """Nodes one after the other, joined by edges of these lengths."""
    n = len(lengths)
    return program_of(range(n), range(1, n + 1), np.square(lengths), **options)


@pytest.fixture
def lengths(rng):
    return rng.uniform(0.5, 2, 8)


def until(iterates, tol):
    """Iterates up to the first whose gap is small."""
    for iterate in iterates:
        yield iterate
        if iterate.residual <= tol:
            return


@pytest.mark.parametrize("constraints", ["equal", "shrink"])
def test_a_chain_is_pulled_straight(lengths, constraints):
    """No node is farther from another than the edges between them; a line reaches that for all
    pairs, and the trace is the sum of all squared distances over n."""
    places = np.concatenate([[0], np.cumsum(lengths)])
    program = chain(lengths, constraints=constraints)
    solution = run(interior_point(program), tol=1e-7, max_iter=100)
    assert solution.status is Status.CONVERGED
    straight = np.sum((places - places.mean()) ** 2)
    assert solution.iterate.info["objective"] == pytest.approx(straight, rel=1e-6)
    values = np.linalg.eigvalsh(program.scale * solution.iterate.state.K)
    assert values[-1] == pytest.approx(straight, rel=1e-5)
    assert values[-2] < 1e-3 * straight


def test_a_triangle_is_what_it_is():
    """All distances are given, so that there is a single Gram matrix: that of the triangle."""
    program = program_of([0, 0, 1], [1, 2, 2], [9.0, 25.0, 16.0])
    solution = run(interior_point(program), tol=1e-7, max_iter=100)
    X = np.array([[0, 0], [3, 0], [3, 4.0]])
    X -= X.mean(axis=0)
    np.testing.assert_allclose(program.scale * solution.iterate.state.K, X @ X.T, atol=1e-5)


def test_the_least_variance_of_a_chain_folds_it():
    """Three nodes, edges of length 1: the outer two fall together. With s = 1/3 of the way from
    the middle, the trace is 2 (1/3)^2 + (2/3)^2 = 2/3."""
    solution = run(interior_point(chain([1, 1], maximise=False)), tol=1e-7, max_iter=100)
    assert solution.iterate.info["objective"] == pytest.approx(-2 / 3, rel=1e-6)


@pytest.mark.parametrize("options", [{}, {"constraints": "slack"}, {"maximise": False}])
def test_every_iterate_is_inside_and_bounds_the_optimum(lengths, options):
    """K and S are definite but for 1, x is positive, y within its prices, and lengths are what x
    says; so that its y proves a bound, whenever it is stopped."""
    program = chain(lengths, **options)
    iterates = list(until(interior_point(program), 1e-8))
    optimum = iterates[-1].info["bound"]
    for iterate in iterates:
        state = iterate.state
        assert np.linalg.eigvalsh(state.K)[1] > 0
        assert np.linalg.eigvalsh(program.dual_slack(state.y))[1] > 0
        assert min(state.above.min(), state.below.min()) > 0
        assert (state.y < program.upper).all()
        assert (state.y > -program.lower).all()
        np.testing.assert_allclose(
            program.lengths(state.K), 1 + state.above - state.below, atol=1e-9
        )
        assert iterate.info["bound"] >= optimum - 1e-7 * abs(optimum)
        assert iterate.value == iterate.residual == program.gap(state)
        assert iterate.exact
    assert iterates[-1].info["mu"] < 1e-6 * iterates[0].info["mu"]


def test_few_iterations(lengths):
    """A good start and second-order steps: some twenty, not hundreds."""
    assert len(list(until(interior_point(chain(lengths)), 1e-6))) < 25


def test_a_run_keeps_the_iterate_of_the_least_gap():
    """Rounding may spoil the last ones: `run` compares them by their gap."""
    gaps = [1.0, 1e-3, 5e-3]
    iterates = (Iterate(np.empty(0), gap, gap, exact=True, state=gap) for gap in gaps)
    assert run(iterates, tol=1e-6, max_iter=10).iterate.state == 1e-3


def test_a_direction_leaves_nothing_of_the_constraints(lengths, monkeypatch):
    """Even late on the path, where its matrices are large and nearly cancel."""
    program = chain(lengths)
    left, plain = [], module._Newton.direction

    def watched(self, target, predictor):
        step = plain(self, target, predictor)
        rest = program.lengths(step.K) - step.above + step.below - self._lack
        left.append(np.abs(rest).max())
        return step

    monkeypatch.setattr(module._Newton, "direction", watched)
    assert list(until(interior_point(program), 1e-8))[-1].residual <= 1e-8
    assert max(left) <= 1e-9


def roll(n, k):
    """The edges of a thin Swiss roll."""
    rng = np.random.RandomState(0)
    angle, height = 1.5 * np.pi * (1 + 2 * rng.rand(n)), 21 * rng.rand(n)
    points = angle * np.cos(angle), height, angle * np.sin(angle)
    graph = NeighborhoodGraph.from_points(np.column_stack([*points, 0.05 * rng.randn(n, 5)]), k)
    return graph.heads, graph.tails, graph.lengths**2


def test_short_steps_from_the_start_are_no_reason_for_other_coordinates(monkeypatch):
    """K has to grow a hundredfold, and some steps are short; rounding has no part in that."""
    steps, plain = [], module._InteriorPoint.step

    def watched(place, single=False):
        step, left = plain(place, single)
        steps.append(min(step.primal, step.dual))
        assert not place.is_scaled
        return step, left

    monkeypatch.setattr(module._InteriorPoint, "step", watched)
    program = program_of(*roll(120, 5), constraints="shrink")
    *_, last = until(interior_point(program), 1e-5)
    assert last.residual <= 1e-5
    assert min(steps) < module.SHORT


@pytest.mark.parametrize("constraints", ["equal", "slack"])
def test_factors_in_single_precision_lead_to_the_same_end(monkeypatch, constraints):
    """Early steps are refined to the same directions, and later ones are in double precision."""
    program = program_of(*roll(100, 5), constraints=constraints, slack_weight=0.999)
    *_, expected = until(interior_point(program), 1e-7)
    used, schur = [], type(program).schur

    def watched(self, K, inverse, extra, single=False):
        used.append(single)
        return schur(self, K, inverse, extra, single)

    monkeypatch.setattr(type(program), "schur", watched)
    monkeypatch.setattr(program.gram, "SINGLE_ROWS", 100)
    *_, last = until(interior_point(program), 1e-7)
    assert last.residual <= 1e-7
    assert last.info["bound"] == pytest.approx(expected.info["bound"], rel=2e-7)
    assert used[:3] == [True] * 3
    assert not used[-1]
    assert sum(used) + used.count(False) < 30


def test_a_blocked_step_of_a_single_factor_is_made_again_in_double_precision(monkeypatch):
    """A factor with a nearly zero pivot leads far outside the cones, whatever its residual: that is
    no reason for other coordinates, nor to factor in single precision again."""
    program = program_of(*roll(100, 5))
    used, schur = [], type(program).schur

    def with_a_tiny_pivot(self, K, inverse, extra, single=False):
        used.append(single)
        factor = schur(self, K, inverse, extra, single)
        if single:
            factor.lower[-1, -1] *= 1e-4
        return factor

    monkeypatch.setattr(type(program), "schur", with_a_tiny_pivot)
    monkeypatch.setattr(program.gram, "SINGLE_ROWS", 100)
    monkeypatch.setattr(module._InteriorPoint, "scaled", None)
    *_, last = until(interior_point(program), 1e-5)
    assert last.residual <= 1e-5
    assert used == [True] + [False] * (len(used) - 1)


@pytest.mark.slow
def test_where_rounding_stops_the_path_other_coordinates_go_on(monkeypatch):
    """A thin roll: multipliers are large, K and S nearly singular, and plain coordinates end
    before the gap is small."""
    program = program_of(*roll(400, 5))
    ends, scaled = [], module._InteriorPoint.scaled

    def watched(place):
        ends.append(place.iterate().residual)
        return scaled(place)

    monkeypatch.setattr(module._InteriorPoint, "scaled", watched)
    *_, last = until(interior_point(program), 3e-8)
    assert last.residual <= 3e-8 < ends[0]
    assert np.linalg.eigvalsh(last.state.K)[0] > -1e-9
    assert program.gap(last.state) == last.residual


def test_a_path_that_no_longer_falls_ends(lengths, monkeypatch):
    """Steps too short to halve the mean product within a few of them are given up."""
    monkeypatch.setattr(module, "SHARE", Share(0.02))
    solution = run(interior_point(chain(lengths, constraints="slack")), tol=1e-9, max_iter=500)
    assert solution.status is Status.STALLED
    assert solution.n_iter <= 3 * module.PATIENCE
