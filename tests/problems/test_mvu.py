"""The program of maximum variance unfolding: its start, its bound, and its optimum by another.

All that is checked is computed here anew, from K, y and the squared lengths alone.
"""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from nearfar import NeighborhoodGraph
from nearfar.estimators.mvu import iterates_of
from nearfar.kernels import kernels_for
from nearfar.problems.mvu import (
    HIGHER,
    THICKNESS,
    IllConditionedError,
    MVUProgram,
    State,
    UnboundedError,
    edge_prices,
)
from nearfar.solvers import Status, run
from tests.conic import solve_conic

PROGRAMS = {
    "equal": {"constraints": "equal"},
    "shrink": {"constraints": "shrink"},
    "slack": {"constraints": "slack", "slack_weight": 0.9},
    "two-prices": {"constraints": "slack", "slack_weight": (0.9, 0.6)},
    "free-to-shrink": {"constraints": "slack", "slack_weight": (0.9, 0.0)},
    "least": {"constraints": "equal", "maximise": False},
    "least-slack": {"constraints": "slack", "slack_weight": 0.6, "maximise": False},
}
each = pytest.mark.parametrize("name", PROGRAMS)


@dataclass(frozen=True)
class Graph:
    """Edges and squared lengths; its programs, and what they are about in plain NumPy."""

    heads: np.ndarray
    tails: np.ndarray
    squares: np.ndarray
    n: int

    def program(self, backend=None, constraints="equal", slack_weight=0.9, **options):
        reference = np.zeros(0) if backend is None else backend.asarray(np.zeros(0))
        prices = edge_prices(constraints, slack_weight, len(self.heads))
        edges = self.heads, self.tails, self.squares
        return MVUProgram.build(*edges, self.n, reference, prices, **options)

    def lengths(self, K):
        """Squared lengths of the edges."""
        d = np.diag(K)
        return d[self.heads] + d[self.tails] - 2 * K[self.heads, self.tails]

    def slack(self, weights, sign):
        """Lap(w) - sign (I - 11'/n)."""
        S = np.zeros((self.n, self.n))
        for i, j, w in zip(self.heads, self.tails, weights, strict=True):
            S[i, i] += w
            S[j, j] += w
            S[i, j] -= w
            S[j, i] -= w
        return S - sign * (np.eye(self.n) - 1 / self.n)

    def objective(self, K, constraints="equal", slack_weight=0.9, maximise=True):
        """What is maximised, with the thesis' price for a change of a squared length."""
        value = np.trace(K) if maximise else -np.trace(K)
        if constraints == "slack":
            up, down = (w / (1 - w) for w in np.broadcast_to(slack_weight, 2))
            change = self.lengths(K) - self.squares
            value -= up * change.clip(0).sum() - down * change.clip(None, 0).sum()
        return value


@pytest.fixture
def graph(rng):
    """Of 13 points in five dimensions."""
    X = rng.normal(size=(13, 5)) * [3, 2, 1, 0.5, 0.5]
    found = NeighborhoodGraph.from_points(X, 3).linked()
    return Graph(found.heads, found.tails, found.lengths**2, 13)


@pytest.fixture
def contradiction(graph, rng):
    """The same edges, with lengths that no points have."""
    squares = graph.squares * rng.uniform(0.2, 5, len(graph.heads))
    return Graph(graph.heads, graph.tails, squares, 13)


def host(program, state):
    """K and y / D on the host, K in the units of the data, y / D without any."""
    to_host = kernels_for(state.K).to_host
    return program.scale * to_host(state.K), to_host(state.y / program.squares)


def solved(program, tol=1e-7):
    solution = run(iterates_of(program), tol=tol, max_iter=200)
    return solution, *solution.iterate.state


def by_clarabel(graph, constraints="equal", slack_weight=0.9, maximise=True):
    """Optimum and K by the dual: minimise D'w with V'(Lap(w) -+ P)V psd, V a basis of what sums to
    zero, w >= 0 for "shrink" and |w| within its price for "slack".

    Clarabel minimises c'w with b - A w in a cone; the multiplier of the matrix is K in that basis.
    Its triangle holds entries off the diagonal times the root of 2.
    """
    import clarabel

    V = np.linalg.qr(np.c_[np.ones(graph.n), np.eye(graph.n)[:, 1:]])[0][:, 1:]
    edges = V[graph.heads] - V[graph.tails]
    r, m = V.shape[1], len(edges)
    columns, rows = np.tril_indices(r)
    root = np.where(rows == columns, 1.0, np.sqrt(2))
    A = [-(edges[:, rows] * edges[:, columns] * root).T]
    b = [np.where(rows == columns, -1.0 if maximise else 1.0, 0.0)]
    cones = [clarabel.PSDTriangleConeT(r)]
    if constraints != "equal":
        up, down = (w / (1 - w) for w in np.broadcast_to(slack_weight, 2))
        slack = constraints == "slack"
        A += [-np.eye(m), np.eye(m)] if slack else [-np.eye(m)]
        b += [np.repeat([down, up], m)] if slack else [np.zeros(m)]
        cones.append(clarabel.NonnegativeConeT(sum(map(len, b[1:]))))
    solution = solve_conic(graph.squares, np.concatenate(A), np.concatenate(b), cones)
    Z = np.zeros((r, r))
    Z[rows, columns] = np.array(solution.z[: len(rows)]) / root
    Z = Z + np.triu(Z, 1).T
    return solution.obj_val, V @ Z @ V.T


# -- the start and the parts ------------------------------------------------------------------


@each
def test_the_start_is_inside_both_cones_and_feasible(graph, name, backend):
    program = graph.program(backend, **PROGRAMS[name])
    state = program.start()
    K, weights = host(program, state)
    np.testing.assert_allclose(K.sum(axis=0), 0, atol=1e-10 * np.trace(K))
    assert np.linalg.eigvalsh(K)[1] > 0
    assert np.linalg.eigvalsh(graph.slack(weights, program.sign))[1] > 0
    above, below = (backend.to_numpy(a) for a in (state.above, state.below))
    assert min(above.min(), below.min()) > 0
    np.testing.assert_allclose(graph.lengths(K) / graph.squares, 1 + above - below, rtol=1e-9)
    y, upper, lower = (backend.to_numpy(a) for a in (state.y, program.upper, program.lower))
    assert (y < upper).all()
    assert (y > -lower).all()


@each
def test_the_start_is_near_the_central_path(graph, name):
    """The products x z and the eigenvalues of KS are all about as large as their mean."""
    program = graph.program(**PROGRAMS[name])
    state = program.start()
    values = np.linalg.eigvals(state.K @ program.dual_slack(state.y)).real
    products = np.concatenate(
        [
            np.sort(values)[1:],
            state.above * (program.upper - state.y),
            state.below * (program.lower + state.y),
        ]
    )
    assert products.max() < 100 * products.mean()
    assert products.min() > 1e-3 * products.mean()


def test_lengths_slack_and_projection_are_those_of_plain_loops(graph, backend, rng):
    program = graph.program(backend)
    A = rng.normal(size=(13, 13))
    K = backend.asarray(A @ A.T)
    D = graph.squares / program.scale
    np.testing.assert_allclose(
        backend.to_numpy(program.lengths(K)), graph.lengths(A @ A.T) / D, rtol=1e-10
    )
    y = rng.normal(size=len(D))
    np.testing.assert_allclose(
        backend.to_numpy(program.dual_slack(backend.asarray(y))), graph.slack(y / D, 1), atol=1e-10
    )
    assert program.mean_square == pytest.approx(graph.squares.mean())
    P = np.eye(13) - 1 / 13
    np.testing.assert_allclose(backend.to_numpy(program.projected(K)), P @ A @ A.T @ P, atol=1e-10)


def test_the_pseudoinverse_from_a_factor(graph, rng):
    A = rng.normal(size=(13, 13))
    program = graph.program()
    A = program.projected(A @ A.T)
    inverse = program.inverse(program.cholesky(A))
    np.testing.assert_allclose(inverse, np.linalg.pinv(A, rcond=1e-10), rtol=1e-6, atol=1e-8)
    assert program.cholesky(-A) is None


def test_in_coordinates_of_its_own_the_program_is_the_same(graph, backend, rng):
    """Lengths, S, its inverse and the products of constraints are those of plain coordinates, and
    a point is carried back."""
    program = graph.program(backend)
    state = program.start()
    to = backend.to_numpy
    K, y = to(state.K), to(state.y)
    factor = program.cholesky(state.K)
    scaled, F = program.scaled(factor), to(factor)
    unit = backend.asarray(np.eye(graph.n))
    np.testing.assert_allclose(to(scaled.lengths(unit)), to(program.lengths(state.K)), rtol=1e-9)
    ones = F.T @ np.ones(graph.n)
    S, extra = F.T @ to(program.dual_slack(state.y)) @ F, np.outer(ones, ones) / (ones @ ones)
    np.testing.assert_allclose(
        to(scaled.dual_slack(state.y)),
        S + np.trace(S) / graph.n * extra,
        atol=1e-9 * np.abs(S).max(),
    )
    change = rng.normal(size=len(y))
    np.testing.assert_allclose(
        to(scaled.change(backend.asarray(change))),
        F.T @ graph.slack(change / to(program.squares), 0) @ F,
        atol=1e-9,
    )
    there = replace(state, K=unit)
    original, back = scaled.plain(there)
    assert original is program
    np.testing.assert_allclose(to(back.K), K, atol=1e-10 * np.abs(K).max())
    twice = scaled.scaled(backend.asarray(2 * np.eye(graph.n)))
    np.testing.assert_allclose(to(twice.plain(there)[1].K), 4 * K, atol=1e-9 * np.abs(K).max())
    weights = backend.asarray(rng.uniform(1, 2, len(y)))
    right = backend.asarray(rng.normal(size=len(y)))
    found = []
    for at, point in ((program, state), (scaled, there)):
        inverse = at.inverse(at.cholesky(at.dual_slack(point.y)))
        M = at.schur(point.K, inverse, weights)
        found.append(to(at.gram.solve_factored(M, right)))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-7, atol=1e-9)


# -- the bound --------------------------------------------------------------------------------


@each
def test_weak_duality_for_all_points_that_are_feasible(graph, name, rng):
    """Any dual point, and any K with what it has to pay: (2) is never above the sum of y."""
    program = graph.program(**PROGRAMS[name])
    for _ in range(20):
        share = 0.9 * rng.uniform(size=len(program.first))
        y = program.first + share * (program.upper - program.first)
        assert np.linalg.eigvalsh(program.dual_slack(y))[1] > 0
        A = rng.normal(size=(13, rng.integers(1, 8)))
        K = program.projected(A @ A.T) * rng.uniform(0.01, 3)
        state = State(K, y, None, None)
        assert program.variance(state) - program.slack_cost(state) <= program.bound(state)


def test_what_is_paid_is_the_price_of_the_changes(graph, rng):
    program = graph.program(**PROGRAMS["slack"])
    A = rng.normal(size=(13, 4))
    K = program.projected(A @ A.T)
    state = State(K, program.first, None, None)
    expected = graph.objective(program.scale * K, **PROGRAMS["slack"])
    assert program.variance(state) - program.slack_cost(state) == pytest.approx(expected, rel=1e-10)


@each
def test_the_gap_is_that_of_the_solution(graph, name, backend):
    """Recomputed from K and y: feasible, and as near to the bound as the gap says."""
    options = PROGRAMS[name]
    solution, program, state = solved(graph.program(backend, **options))
    assert solution.status is Status.CONVERGED
    K, weights = host(program, state)
    assert np.linalg.eigvalsh(K)[0] >= -1e-12 * np.trace(K)
    S = graph.slack(weights, program.sign)
    assert np.linalg.eigvalsh(S)[0] >= -1e-11 * np.abs(S).max()
    change = graph.lengths(K) / graph.squares - 1
    if options["constraints"] == "equal":
        assert np.abs(change).max() <= 1e-7
    if options["constraints"] == "shrink":
        assert change.max() <= 1e-7
        assert weights.min() >= 0
    if options["constraints"] == "slack":
        up, down = (w / (1 - w) for w in np.broadcast_to(options["slack_weight"], 2))
        assert (weights <= up).all()
        assert (weights >= -down).all()
    bound, objective = weights @ graph.squares, graph.objective(K, **options)
    assert solution.iterate.info["bound"] == pytest.approx(bound, rel=1e-10)
    assert abs(bound - objective) <= 1.01e-7 * abs(bound)


@pytest.mark.parametrize("name", ["equal", "shrink", "slack"])
@pytest.mark.parametrize("number", range(4))
def test_the_gap_of_every_iterate_bounds_its_distance_from_the_optimum(name, number):
    """Equation (8) in plain NumPy, and the optimum of another solver in it: early iterates keep
    lengths badly, and then their variance alone may be above the optimum or below."""
    rng, options = np.random.default_rng(number), PROGRAMS[name]
    found = NeighborhoodGraph.from_points(rng.normal(size=(11, 4)) * [3, 2, 1, 0.5], 3).linked()
    graph = Graph(found.heads, found.tails, found.lengths**2, 11)
    optimum, narrowest = by_clarabel(graph, **options)[0], np.inf
    for iterate in iterates_of(graph.program(**options)):
        program, state = iterate.state
        assert program.thickness == 0
        K, weights = host(program, state)
        y = weights * graph.squares
        change = graph.lengths(K) / graph.squares - 1
        objective, bound, cost, violation = graph.objective(K, **options), y.sum(), 0.0, 0.0
        if options["constraints"] == "equal":
            violation = np.abs(change).max()
            cost = 2 * (np.abs(y) + np.abs(y).mean()) @ np.abs(change)
        if options["constraints"] == "shrink":
            violation = max(change.max(), 0)
            cost = objective * violation / (1 + violation)
        unit = max(graph.squares.mean(), abs(bound))
        gap = max((max(bound - objective, 0) + cost) / unit, violation)
        assert iterate.residual - program.hidden(state) == pytest.approx(gap, rel=1e-6, abs=1e-12)
        assert abs(objective - optimum) <= gap * unit + 1e-6 * abs(optimum)
        narrowest = min(narrowest, gap)
    assert narrowest <= 1e-7


# -- against another solver -------------------------------------------------------------------


@each
def test_the_optimum_is_that_of_a_general_solver(graph, name):
    """Their K has the objective that they report, which lies below our bound; ours agrees."""
    options = PROGRAMS[name]
    theirs, K_theirs = by_clarabel(graph, **options)
    assert graph.objective(K_theirs, **options) == pytest.approx(theirs, rel=1e-5)
    _, program, state = solved(graph.program(**options))
    K, _ = host(program, state)
    assert graph.objective(K, **options) == pytest.approx(theirs, rel=1e-5)
    assert program.bound(state) >= theirs - 1e-5 * abs(theirs)


@pytest.mark.parametrize("name", ["shrink", "slack", "two-prices", "least-slack"])
def test_the_optimum_for_distances_that_no_points_have(contradiction, name):
    options = PROGRAMS[name]
    theirs, _ = by_clarabel(contradiction, **options)
    _, program, state = solved(contradiction.program(**options))
    K, _ = host(program, state)
    assert contradiction.objective(K, **options) == pytest.approx(theirs, rel=1e-5)


def test_contradictory_lengths_stay_changed_whatever_the_price(contradiction):
    """The penalty is exact where there is a solution; here there is none."""
    _, program, state = solved(contradiction.program(), tol=1e-5)
    assert program.violation(state) > 1e-2
    assert program.thickness == 0


def test_lengths_that_are_too_different_for_a_start_are_told():
    """Squared lengths of 1e-40 beside 1: no digits are left of the others in a Laplacian."""
    heads, tails = np.array([0, 1, 2, 0]), np.array([1, 2, 3, 3])
    graph = Graph(heads, tails, np.array([1e-40, 1.0, 1.0, 1e-40]), 4)
    with pytest.raises(IllConditionedError):
        graph.program().start()


# -- prices, thickness, scale -------------------------------------------------------------------


def test_slack_between_points_that_nearly_coincide(rng):
    """Squared lengths of seven orders of magnitude: the start weighs them by what they cost."""
    places = np.concatenate([rng.normal(size=20), [0, 1e-3, 1, 1.001]])
    found = NeighborhoodGraph.from_points(places[:, None], 4).linked()
    squares = found.lengths**2
    assert squares.max() > 1e5 * squares.min()
    graph = Graph(found.heads, found.tails, squares, len(places))
    program = graph.program(constraints="slack", slack_weight=0.999)
    assert solved(program, tol=1e-6)[0].status is Status.CONVERGED


def test_slack_that_is_too_cheap_is_told_with_the_least_weight(graph):
    """The variance is bounded if some y below the price of D w/(1 - w) has a positive S, that is,
    if w/(1 - w) times the second eigenvalue of Lap(1) is above 1."""
    second = np.linalg.eigvalsh(graph.slack(np.ones(len(graph.heads)), 0))[1]
    least = 1 / (1 + second)
    with pytest.raises(UnboundedError) as caught:
        graph.program(constraints="slack", slack_weight=0.999 * least)
    assert caught.value.least == pytest.approx(least)
    graph.program(constraints="slack", slack_weight=1.001 * least).start()
    graph.program(constraints="slack", slack_weight=0.5 * least, maximise=False).start()


def test_thick_lengths_are_those_of_points_with_a_dimension_each(graph, rng):
    """(5): K + thickness P diag(t) P has the new lengths, and is positive definite."""
    program = graph.program()
    thick = program.with_thickness(0.005)
    at = [(graph.heads == node) | (graph.tails == node) for node in range(13)]
    least = np.array([program.given[edges].min() for edges in at])
    A = rng.normal(size=(13, 3))
    K = program.projected(A @ A.T)
    more = K + thick.thickness * program.projected(np.diag(least))
    np.testing.assert_allclose(
        thick.lengths(more) * thick.squares,
        program.lengths(K) * program.squares + (thick.squares - program.squares),
        rtol=1e-10,
    )
    assert np.linalg.eigvalsh(more)[1] > 0
    growth = thick.squares / program.squares - 1
    assert growth.min() > 0
    assert growth.max() <= 2 * thick.thickness * (1 + 1e-12)
    np.testing.assert_allclose(
        thick.changes(more), graph.lengths(program.scale * more) / graph.squares - 1
    )


def test_prices_rise_and_then_points_get_a_thickness_where_that_is_wanted(graph):
    """A state at its price asks for a higher one; one that is stuck otherwise, for (5)."""
    program = graph.program(may_thicken=True)
    state = program.start()
    bought = replace(state, y=0.95 * program.upper)
    higher = program.successor(bought)
    assert (higher.higher_penalty, higher.thickness) == (True, 0)
    for name in ("upper", "lower", "first"):
        np.testing.assert_array_equal(getattr(higher, name), HIGHER * getattr(program, name))
    thick = higher.successor(state)
    assert (thick.higher_penalty, thick.thickness) == (True, THICKNESS)
    np.testing.assert_array_equal(thick.upper, higher.upper)
    np.testing.assert_array_equal(program.successor(state).upper, higher.upper)
    assert thick.successor(state) is None
    assert graph.program().successor(state) is None
    assert graph.program().successor(bought).higher_penalty


def test_prices_rise_on_the_way_without_leaving_the_path(graph):
    """Once some y is near its price, K, y and all products remain, and the price is higher; below
    it, or at the higher prices, nothing happens."""
    program = graph.program()
    state = program.start()
    assert program.raised(state) is None
    bought = replace(state, y=state.y + 0.9 * (program.upper - state.y))
    higher, point = program.raised(bought)
    np.testing.assert_array_equal(higher.upper, HIGHER * program.upper)
    assert point.K is bought.K
    assert point.y is bought.y
    for at, there in ((program, bought), (higher, point)):
        products = there.above * (at.upper - there.y), there.below * (at.lower + there.y)
        if at is program:
            expected = products
    np.testing.assert_allclose(products, expected, rtol=1e-12)
    assert higher.raised(replace(point, y=0.95 * higher.upper)) is None
    outside = replace(bought, K=-bought.K)
    assert program.raised(outside) is None


def test_a_program_with_a_small_gap_is_left_as_it_is(graph):
    solution, program, state = solved(graph.program(may_thicken=True), tol=1e-6)
    assert solution.status is Status.CONVERGED
    assert program.successor(state) is None


def test_a_program_begins_with_thickness_where_a_clique_is_flat(rng):
    """Five points in space, all joined, are one more than their dimension needs; four are not."""
    heads, tails = np.triu_indices(5, 1)
    X = rng.normal(size=(5, 3))
    flat = Graph(heads, tails, np.sum((X[heads] - X[tails]) ** 2, axis=1), 5)
    assert flat.program(may_thicken=True).thickness == THICKNESS
    assert flat.program().thickness == 0
    four = (heads < 4) & (tails < 4)
    firm = Graph(heads[four], tails[four], flat.squares[four], 4)
    assert firm.program(may_thicken=True).thickness == 0


def test_the_certificate_counts_what_rounding_took_out_of_the_cones(graph):
    """At an iterate inside both cones its gap is (8). A K with an eigenvalue of -d in the units of
    the program is moved back by d P, which is in err2 and adds (n - 1) d to the variance."""
    _, program, state = solved(graph.program())
    unit, bound = program.scale, program.bound(state)
    values, vectors = np.linalg.eigh(state.K)
    inside = program.certificate(state, unit * values)
    assert inside.gap == pytest.approx(program.gap(state), rel=1e-6)
    assert inside.objective == program.variance(state)
    assert inside.dimacs["err2"] < 1e-12
    v = np.linalg.qr(np.c_[np.ones(13), vectors[:, 1]])[0][:, 1]
    d = 1e-3
    spoiled = replace(state, K=state.K - (v @ state.K @ v + d) * np.outer(v, v))
    eigenvalues = unit * np.linalg.eigvalsh(spoiled.K)
    found = program.certificate(spoiled, eigenvalues)
    below = -eigenvalues.min() / unit
    assert below == pytest.approx(d)
    assert found.dimacs["err2"] == pytest.approx(below / (1 + program.squares.max()))
    moved = replace(spoiled, K=spoiled.K + below * program.projected(np.eye(13)))
    expected = program.gap(moved) + 12 * below * unit / max(unit, abs(bound))
    assert found.gap == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("thin", [0, 1e-4])
def test_flat_cliques_are_solved_by_thickness(rng, thin):
    """Cliques of six points in a plane, or nearly so, have no interior; with lengths of thick
    points they have one, and what the path ends with is a solution for these."""
    X = rng.normal(size=(30, 2)) @ rng.normal(size=(2, 3)) + thin * rng.normal(size=(30, 3))
    found = NeighborhoodGraph.from_points(X, 5).linked()
    graph = Graph(found.heads, found.tails, found.lengths**2, 30)
    solution, program, state = solved(graph.program().with_thickness(), tol=1e-6)
    assert solution.status is Status.CONVERGED
    K, weights = host(program, state)
    thick = program.scale * program.squares
    np.testing.assert_allclose(graph.lengths(K), thick, rtol=1e-6)
    assert np.abs(graph.lengths(K) / graph.squares - 1).max() <= 2.01 * THICKNESS
    assert np.linalg.eigvalsh(graph.slack(weights, 1))[0] >= -1e-9 * np.abs(weights).max()
    assert abs(weights @ thick - np.trace(K)) <= 1e-6 * (weights @ thick)
    own = np.sum((X - X.mean(axis=0)) ** 2)
    assert weights @ graph.squares >= own * (1 - 1e-9)  # the points themselves are feasible


@pytest.mark.parametrize("power", [-16, 16])
@each
def test_the_scale_of_the_data_does_not_matter(graph, name, power):
    scaled = Graph(graph.heads, graph.tails, graph.squares * 10.0**power, graph.n)
    plain, other = (solved(g.program(**PROGRAMS[name]))[0] for g in (graph, scaled))
    assert abs(other.n_iter - plain.n_iter) <= 3
    ratio = other.iterate.info["objective"] / plain.iterate.info["objective"]
    assert ratio == pytest.approx(10.0**power, rel=1e-6)


@pytest.mark.parametrize("unit", [1.0, 3e10, 7e-31])
def test_units_are_changed_without_rounding(unit):
    """The program is in units of a power of two, so that what it says of K holds for scale · K."""
    heads, tails, squares = np.array([0, 1, 2]), np.array([1, 2, 3]), np.array([1.0, 2.5, 3.1])
    program = Graph(heads, tails, unit * squares, 4).program()
    assert np.frexp(program.scale)[0] == 0.5
    np.testing.assert_array_equal(program.scale * program.given, unit * squares)
    assert program.mean_square == pytest.approx(unit * squares.mean())
