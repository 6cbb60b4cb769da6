"""Limited-memory BFGS: directions against the textbook's recursion, and two descents by them."""

import itertools
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
from scipy import linalg, optimize

from nearfar.solvers import Status, run
from nearfar.solvers.quasi_newton import FIRST_STEP, LBFGS, ascend, descend

SHAPE = (3, 4)


# -- directions ------------------------------------------------------------------------------------


@pytest.fixture
def quadratic(rng):
    """A positive definite matrix on the entries of a (3, 4) matrix."""
    A = rng.normal(size=(12, 12))
    return A @ A.T + np.eye(12)


def remembered(rng, quadratic, count, memory):
    """A memory after so many random steps on the quadratic, and its pairs."""
    lbfgs, pairs = LBFGS(memory), []
    for _ in range(count):
        step = rng.normal(size=SHAPE)
        change = (quadratic @ step.ravel()).reshape(SHAPE)
        lbfgs.remember(step, change)
        pairs.append((step, change))
    return lbfgs, pairs


def two_loops(pairs, gradient, rows=None):
    """Nocedal & Wright, Numerical Optimization, algorithm 7.4, with H₀ = γ rows and γ = s·y / y·H₀y
    of the last."""
    q, backwards = gradient.copy(), []
    for s, y in reversed(pairs):
        weight = np.vdot(s, q) / np.vdot(s, y)
        q -= weight * y
        backwards.append(weight)
    s, y = pairs[-1]
    rows = np.eye(len(y)) if rows is None else rows
    q = np.vdot(s, y) / np.vdot(y, rows @ y) * (rows @ q)
    for (s, y), weight in zip(pairs, reversed(backwards), strict=True):
        q += (weight - np.vdot(y, q) / np.vdot(s, y)) * s
    return -q


@pytest.mark.parametrize("count", [1, 2, 5, 9])
def test_direction_is_that_of_the_two_loops(rng, quadratic, count):
    """A memory of 5 pairs: of 9, the last 5 count."""
    lbfgs, pairs = remembered(rng, quadratic, count, 5)
    assert len(lbfgs) == min(count, 5)
    gradient = rng.normal(size=SHAPE)
    expected = two_loops(pairs[-5:], gradient)
    np.testing.assert_allclose(lbfgs.direction(gradient), expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("before", [0, 2, 7])
def test_a_preconditioner_is_the_first_guess(rng, quadratic, before):
    """Given before some of 7 steps, or after them; it turns with no rotation, but is dropped."""
    A = rng.normal(size=(3, 3))
    rows = A @ A.T + np.eye(3)
    lbfgs, pairs = remembered(rng, quadratic, before, 5)
    lbfgs.precondition(partial(np.matmul, rows))
    gradient = rng.normal(size=SHAPE)
    for _ in range(before, 7):
        step = rng.normal(size=SHAPE)
        pairs.append((step, (quadratic @ step.ravel()).reshape(SHAPE)))
        lbfgs.remember(*pairs[-1])
    expected = two_loops(pairs[-5:], gradient, rows)
    np.testing.assert_allclose(lbfgs.direction(gradient), expected, rtol=1e-8, atol=1e-10)
    lbfgs.transform(np.eye(3))
    expected = two_loops(pairs[-5:], gradient)
    np.testing.assert_allclose(lbfgs.direction(gradient), expected, rtol=1e-8, atol=1e-10)


def test_without_memory_a_preconditioner_multiplies_steepest_descent(rng):
    lbfgs, gradient = LBFGS(5), rng.normal(size=SHAPE)
    lbfgs.precondition(partial(np.matmul, np.diag([1.0, 2.0, 4.0])))
    np.testing.assert_allclose(lbfgs.direction(gradient), -gradient * [[1], [2], [4]])


def test_direction_obeys_the_secant_equation(rng, quadratic):
    """H y = s for the last pair, so that −Hy = −s."""
    lbfgs, pairs = remembered(rng, quadratic, 4, 5)
    step, change = pairs[-1]
    np.testing.assert_allclose(lbfgs.direction(change), -step, rtol=1e-8)


def test_exact_steps_end_on_a_quadratic_after_as_many_steps_as_it_has_dimensions(rng, quadratic):
    """BFGS with exact steps makes conjugate directions: 12 steps reach the minimum, 11 do not."""
    lbfgs, x, target = LBFGS(12), np.zeros(12), rng.normal(size=12)
    norms = []
    for _ in range(12):
        gradient = quadratic @ (x - target)
        norms.append(np.linalg.norm(gradient))
        direction = lbfgs.direction(gradient)
        step = -(gradient @ direction) / (direction @ quadratic @ direction) * direction
        lbfgs.remember(step, quadratic @ step)
        x = x + step
    assert norms[-1] > 1e-6 * norms[0]
    assert np.linalg.norm(quadratic @ (x - target)) < 1e-7 * norms[0]


def test_without_memory_the_direction_is_steepest_descent(rng, quadratic):
    lbfgs, _ = remembered(rng, quadratic, 3, 5)
    lbfgs.forget()
    assert len(lbfgs) == 0
    gradient = rng.normal(size=SHAPE)
    np.testing.assert_array_equal(lbfgs.direction(gradient), -gradient)


@pytest.mark.parametrize("sign", [-1, 0])
def test_pairs_without_positive_curvature_are_not_kept(rng, quadratic, sign):
    lbfgs, _ = remembered(rng, quadratic, 2, 5)
    gradient = rng.normal(size=SHAPE)
    before = lbfgs.direction(gradient)
    step = rng.normal(size=SHAPE)
    lbfgs.remember(step, sign * step)
    assert len(lbfgs) == 2
    np.testing.assert_array_equal(lbfgs.direction(gradient), before)


def test_a_step_of_another_size_starts_anew(rng, quadratic):
    lbfgs, _ = remembered(rng, quadratic, 3, 5)
    step = rng.normal(size=(2, 4))
    lbfgs.remember(step, 2 * step)
    assert len(lbfgs) == 1
    np.testing.assert_allclose(lbfgs.direction(step), -0.5 * step)


def test_what_is_remembered_is_a_copy(rng, quadratic):
    lbfgs, pairs = remembered(rng, quadratic, 1, 5)
    gradient = rng.normal(size=SHAPE)
    before = lbfgs.direction(gradient)
    for part in pairs[0]:
        part[:] = 0
    np.testing.assert_array_equal(lbfgs.direction(gradient), before)


def test_a_rotation_of_the_rows_rotates_directions(rng, quadratic):
    """H turns with the variables: direction(Qg) = Q direction(g)."""
    lbfgs, _ = remembered(rng, quadratic, 4, 5)
    rotation, _ = linalg.qr(rng.normal(size=(3, 3)))
    gradient = rng.normal(size=SHAPE)
    expected = rotation @ lbfgs.direction(gradient)
    lbfgs.transform(rotation)
    assert len(lbfgs) == 4
    np.testing.assert_allclose(lbfgs.direction(rotation @ gradient), expected, atol=1e-10)


def test_new_rows_have_no_memory(rng, quadratic):
    """Along rows that no step has touched, H is γI, as in the recursion with padded pairs."""
    lbfgs, pairs = remembered(rng, quadratic, 4, 5)
    old = lbfgs.direction(gradient := rng.normal(size=SHAPE))
    lbfgs.transform(np.vstack([np.eye(3), np.zeros((2, 3))]))
    new = rng.normal(size=(2, 4))
    step, change = pairs[-1]
    gamma = np.vdot(step, change) / np.vdot(change, change)
    expected = np.vstack([old, -gamma * new])
    np.testing.assert_allclose(lbfgs.direction(np.vstack([gradient, new])), expected, atol=1e-10)


def test_dropped_rows_leave_the_memory_of_the_others(rng, quadratic):
    """The recursion on what is left of each pair, where that has positive curvature."""
    lbfgs, pairs = remembered(rng, quadratic, 4, 5)
    kept = linalg.qr(rng.normal(size=(3, 3)))[0][:2]
    lbfgs.transform(kept)
    left = [(kept @ s, kept @ y) for s, y in pairs]
    left = [(s, y) for s, y in left if np.vdot(s, y) > 0]
    assert len(lbfgs) == len(left)
    gradient = rng.normal(size=(2, 4))
    np.testing.assert_allclose(lbfgs.direction(gradient), two_loops(left, gradient), atol=1e-10)


def test_nothing_is_transformed_without_memory(rng):
    lbfgs = LBFGS(3)
    lbfgs.transform(np.eye(2))
    gradient = rng.normal(size=(2, 2))
    np.testing.assert_array_equal(lbfgs.direction(gradient), -gradient)


@pytest.mark.parametrize("size", [1e-140, 1e-150, 1e-161, 1e-170])
@pytest.mark.parametrize("curvature", [1e-20, 1.0, 1e20])
def test_steps_whose_products_vanish_are_not_kept(rng, size, curvature):
    """Their squares are no normal numbers, and the direction would not be finite."""
    lbfgs = LBFGS(5)
    for _ in range(5):
        step = size * rng.normal(size=SHAPE)
        lbfgs.remember(step, curvature * step * rng.uniform(0.5, 2, SHAPE))
    assert np.isfinite(lbfgs.direction(np.ones(SHAPE))).all()


# -- descent ---


@dataclass(frozen=True)
class Evaluated:
    L: np.ndarray
    value: float
    gradient: np.ndarray


def by_gain(at, gain):
    """The gain to expect, relative to the value or 1."""
    return gain / max(abs(at.value), 1.0)


@pytest.fixture
def bowl(rng):
    """½‖R(L − M)‖² with a condition number of about 1e4, and its minimiser M."""
    R = np.diag(np.geomspace(1, 100, 12)) @ np.linalg.qr(rng.normal(size=(12, 12)))[0]
    minimiser = rng.normal(size=SHAPE)

    def evaluate(L):
        residual = R @ (L - minimiser).ravel()
        return Evaluated(L, 0.5 * residual @ residual, (R.T @ residual).reshape(SHAPE))

    return evaluate, minimiser


def rosenbrock(L):
    """Of the four numbers of a (2, 2) matrix; its minimum is 0, where all are 1."""
    x = L.ravel()
    return Evaluated(L, float(optimize.rosen(x)), optimize.rosen_der(x).reshape(2, 2))


# -- descent: minima -------------------------------------------------------------------------------


def test_a_quadratic(bowl):
    evaluate, minimiser = bowl
    solution = run(descend(evaluate, np.ones(SHAPE), by_gain), tol=1e-14, max_iter=200)
    assert solution.status is Status.CONVERGED
    np.testing.assert_allclose(solution.iterate.point, minimiser, atol=1e-5)
    assert solution.n_iter < 100


def test_the_inverse_hessian_as_preconditioner_leads_there_in_one_step(bowl):
    evaluate, minimiser = bowl
    origin = evaluate(np.zeros(SHAPE)).gradient
    columns = [evaluate(e.reshape(SHAPE)).gradient - origin for e in np.eye(12)]
    inverse = np.linalg.inv(np.array([column.ravel() for column in columns]))

    def newton(_):
        return lambda gradient: (inverse @ gradient.ravel()).reshape(SHAPE)

    iterates = descend(evaluate, np.ones(SHAPE), by_gain, preconditioner=newton)
    _, second = itertools.islice(iterates, 2)
    np.testing.assert_allclose(second.point, minimiser, atol=1e-9)


def test_a_curved_valley():
    """As scipy's L-BFGS does, within twice as many iterations."""
    start = np.array([[-1.2, 1.0], [-1.2, 1.0]])
    solution = run(descend(rosenbrock, start, by_gain), tol=1e-16, max_iter=500)
    np.testing.assert_allclose(solution.iterate.point, np.ones((2, 2)), atol=1e-6)
    peer = optimize.minimize(
        optimize.rosen, start.ravel(), jac=optimize.rosen_der, method="L-BFGS-B"
    )
    assert solution.n_iter <= 2 * peer.nit + 10


def test_values_fall(bowl):
    evaluate, _ = bowl
    iterates = list(itertools.islice(descend(evaluate, np.ones(SHAPE), by_gain), 30))
    values = [iterate.value for iterate in iterates]
    assert all(after < before for before, after in itertools.pairwise(values))
    assert values == [evaluate(iterate.point).value for iterate in iterates]


def test_a_wall_is_not_crossed():
    """x − log x is infinite below 0; its minimum is at 1, far from a start at 1e-3."""

    def evaluate(L):
        x = L[0, 0]
        value = x - np.log(x) if x > 0 else np.inf
        return Evaluated(L, float(value), np.array([[1 - 1 / x if x > 0 else -np.inf]]))

    with np.errstate(invalid="ignore"):
        solution = run(descend(evaluate, np.array([[1e-3]]), by_gain), tol=1e-12, max_iter=100)
    assert solution.iterate.point[0, 0] == pytest.approx(1, abs=1e-4)


def test_a_slope_that_misleads_the_memory_is_followed_anew(bowl):
    """Gradients that are turned by half a circle for a while: no step of theirs lowers the value,
    and the descent ends; from there a new one with true gradients goes on."""
    evaluate, minimiser = bowl

    def turned(L):
        at = evaluate(L)
        return Evaluated(L, at.value, -at.gradient)

    stuck = list(descend(turned, np.ones(SHAPE), by_gain))
    assert len(stuck) == 2
    assert stuck[1].residual > 1e-3
    solution = run(descend(evaluate, stuck[0].point, by_gain), tol=1e-14, max_iter=200)
    np.testing.assert_allclose(solution.iterate.point, minimiser, atol=1e-5)


@pytest.mark.parametrize("factor", [1.0, -1e40], ids=["uphill", "too far"])
def test_memory_that_misleads_is_forgotten(bowl, monkeypatch, factor):
    """Its third direction is replaced; steepest descent and a new memory follow."""
    evaluate, minimiser = bowl
    direction, calls = LBFGS.direction, []

    def misled(memory, gradient):
        calls.append(len(memory))
        return factor * gradient if len(calls) == 3 else direction(memory, gradient)

    monkeypatch.setattr(LBFGS, "direction", misled)
    iterates = list(itertools.islice(descend(evaluate, np.ones(SHAPE), by_gain), 150))
    values = [iterate.value for iterate in iterates[:-1]]
    assert calls[:5] == [1, 2, 3, 1, 2]
    assert all(after < before for before, after in itertools.pairwise(values))
    np.testing.assert_allclose(iterates[-1].point, minimiser, atol=1e-5)


# -- descent: what is told -------------------------------------------------------------------------


def test_the_start_is_told_first_with_nothing_known_of_the_gain(bowl):
    evaluate, _ = bowl
    gains = []
    first = next(descend(evaluate, np.ones(SHAPE), lambda _, gain: gains.append(gain)))
    np.testing.assert_array_equal(first.point, np.ones(SHAPE))
    assert first.residual is None
    assert gains == [np.inf]


def test_the_gain_is_at_least_that_of_the_step_before(bowl):
    evaluate, _ = bowl
    gains = []
    iterates = descend(evaluate, np.ones(SHAPE), lambda _, gain: gains.append(gain))
    values = [iterate.value for iterate in itertools.islice(iterates, 20)]
    for gain, (before, after) in zip(gains[1:], itertools.pairwise(values), strict=True):
        assert gain >= before - after


def test_info_is_passed_on(bowl):
    evaluate, _ = bowl
    first = next(descend(evaluate, np.ones(SHAPE), by_gain, lambda at: {"double": 2 * at.value}))
    assert first.info == {"double": 2 * first.value}


def test_the_first_step_is_short_compared_with_the_start(bowl):
    """A line search begins at a tenth of the length of the start, whatever the gradient's is."""
    evaluate, _ = bowl
    asked = []

    def counted(L):
        asked.append(L)
        return evaluate(L)

    start = np.ones(SHAPE)
    next(iterates := descend(counted, start, by_gain))
    next(iterates)
    assert np.linalg.norm(asked[1] - start) == pytest.approx(FIRST_STEP * np.linalg.norm(start))


# -- descent: the end ------------------------------------------------------------------------------


def test_it_ends_by_itself_at_the_rounding_of_the_minimum(bowl):
    """The last iterate is told again, with what its slope alone lets expect: next to nothing."""
    evaluate, minimiser = bowl
    iterates = list(itertools.islice(descend(evaluate, np.ones(SHAPE), by_gain), 2000))
    assert len(iterates) < 2000
    np.testing.assert_allclose(iterates[-1].point, minimiser, atol=1e-8)
    np.testing.assert_array_equal(iterates[-1].point, iterates[-2].point)
    assert iterates[-1].residual < 1e-12


def test_it_ends_at_once_where_the_gradient_vanishes():
    """A start at the minimum: there is no gain of a step before, and none is left by the slope."""
    iterates = list(descend(rosenbrock, np.ones((2, 2)), by_gain))
    assert [iterate.residual for iterate in iterates] == [np.inf, 0.0]


def test_a_start_so_near_the_minimum_that_a_usual_step_is_far_too_long():
    """A narrow valley far from the origin: x = 1e6 + 1e-3, y = 1 beside a minimum at (1e6, 0)."""
    centre, widths = np.array([[1e6, 0.0]]), np.array([[1e4, 1.0]])

    def evaluate(L):
        x = (L - centre) * widths
        return Evaluated(L, 0.5 * float(np.sum(x**2)), x * widths)

    start = centre + np.array([[1e-3, 1.0]])
    solution = run(descend(evaluate, start, by_gain), tol=1e-9, max_iter=100)
    assert solution.status is Status.CONVERGED
    assert solution.iterate.value < 1e-6


def test_rounding_that_hides_the_gain_is_a_stall():
    """x² in steps of 1e-3: where no step is seen to lower it, the slope is still large."""

    def evaluate(L):
        return Evaluated(L, float(np.round((L**2).sum(), 3)), 2 * L)

    solution = run(descend(evaluate, np.array([[1.0, 0.5]]), by_gain), tol=1e-9, max_iter=100)
    assert solution.status in (Status.STALLED, Status.CONVERGED)
    assert solution.iterate.value <= 1e-3


@pytest.mark.parametrize("count", [1, 2, 7, 30])
def test_a_descent_continues_from_an_iterate_as_if_it_had_not_ended(count):
    """With the memory the same steps follow; without it, others."""
    start = np.array([[-1.2, 1.0], [-1.2, 1.0]])
    whole = list(itertools.islice(descend(rosenbrock, start, by_gain), count + 10))
    last = whole[count - 1]
    rest = descend(rosenbrock, last.point, by_gain, memory=last.state)
    for iterate, expected in zip(rest, whole[count - 1 :], strict=False):
        np.testing.assert_array_equal(iterate.point, expected.point)
        assert (iterate.value, iterate.residual) == (expected.value, expected.residual)
    anew = list(itertools.islice(descend(rosenbrock, last.point, by_gain), 3))
    if count > 1:
        assert not np.array_equal(anew[2].point, whole[count + 1].point)


# -- ascent ---


@dataclass(frozen=True)
class Proof:
    objective: float
    gap: float


@dataclass(frozen=True)
class Point:
    L: np.ndarray


@dataclass(frozen=True)
class Along:
    direction: np.ndarray
    at: object
    limit: float = 10.0


class Widths:
    """max Σ ‖l ∘ u‖ over l of length 1, by f(l) = ½‖l‖² − Σ ‖l ∘ u‖, u the rows of a table.

    The bound: with B = l² in the simplex it is concave, so that the optimum is at most
    ½ objective + ½ max_j Σ u_j² / ‖l ∘ u‖ for l of length 1.
    """

    def __init__(self, rng):
        self.squares = rng.uniform(0.1, 2.0, (20, 4)) ** 2
        self.certified = 0

    def place(self, L):
        L = L / np.linalg.norm(L)
        return Point(L * np.sqrt(self.squares @ L**2).sum())

    def gradient(self, at):
        return at.L - at.L * (self.squares / np.sqrt(self.squares @ at.L**2)[:, None]).sum(axis=0)

    def line(self, at, direction):
        def f(t):
            L = at.L + t * direction
            lengths = np.sqrt(self.squares @ L**2)
            slope = L - L * (self.squares / lengths[:, None]).sum(axis=0)
            rates = self.squares @ (L * direction) / lengths
            bends = (self.squares @ direction**2 - rates**2) / lengths
            value = 0.5 * L @ L - lengths.sum()
            return value, slope @ direction, direction @ direction - bends.sum()

        return Along(direction, f)

    def bound(self, at):
        unit = at.L / np.linalg.norm(at.L)
        lengths = np.sqrt(self.squares @ unit**2)
        top = (self.squares / lengths[:, None]).sum(axis=0).max()
        objective = lengths.sum()
        return Proof(objective, 0.5 * (objective + top) / objective - 1)

    def certify(self, L):
        self.certified += 1
        return self.bound(Point(L))


@pytest.fixture
def widths(rng):
    return Widths(rng)


@pytest.fixture
def optimum(widths):
    def minus(logs):
        B = np.exp(logs) / np.exp(logs).sum()
        return -np.sqrt(widths.squares @ B).sum()

    return -optimize.minimize(minus, np.zeros(4), options={"gtol": 1e-9}).fun


def test_reaches_the_optimum_with_a_proof(widths, optimum):
    solution = run(ascend(widths, np.ones(4), 1e-6), tol=1e-6, max_iter=200)
    assert solution.status is Status.CONVERGED
    assert solution.iterate.residual <= 1e-6
    assert solution.iterate.certificate.objective == pytest.approx(optimum, rel=2e-6)
    assert solution.iterate.value == -solution.iterate.certificate.objective
    assert widths.certified == 1
    gaps = [record["duality_gap"] for record in solution.history]
    assert gaps == [None] * (solution.n_iter - 1) + [solution.iterate.residual]
    assert None not in [record["residual"] for record in solution.history]


def test_the_trace_has_the_objective_which_grows(widths):
    solution = run(ascend(widths, np.ones(4), 1e-6), tol=1e-6, max_iter=200)
    objectives = [record["objective"] for record in solution.history]
    assert objectives[0] == widths.bound(Point(np.ones(4))).objective
    assert (np.diff(objectives) > 0).all()
    assert solution.n_iter > 2


def test_ends_by_itself_with_a_proof_where_rounding_allows_no_more(widths, optimum):
    iterates = list(ascend(widths, np.ones(4), 0.0))
    assert iterates[-1].certificate.objective == pytest.approx(optimum, rel=1e-7)
    assert iterates[-1].residual < 1e-9
    assert widths.certified == sum(iterate.certified for iterate in iterates) >= 1
    assert iterates[-1].certified


def test_a_fixed_rank_stops_by_what_a_step_promises(widths, optimum):
    """Without certificates; the gain that was left is no more than twice the promise."""
    solution = run(ascend(widths, np.ones(4), 1e-4, fixed_rank=True), tol=1e-4, max_iter=200)
    assert solution.status is Status.CONVERGED
    assert widths.certified == 0
    assert {record["duality_gap"] for record in solution.history} == {None}
    left = optimum / solution.iterate.certificate.objective - 1
    assert left < 1e-4


def test_a_start_at_the_optimum_is_one_iterate(widths):
    first = run(ascend(widths, np.ones(4), 1e-8), tol=1e-8, max_iter=200)
    again = run(ascend(widths, first.iterate.point, 1e-6), tol=1e-6, max_iter=200)
    assert again.n_iter == 1


def test_pairs_that_a_preconditioner_makes_vanish_are_dropped(rng):
    memory = LBFGS(5)
    gradient = rng.normal(size=4)
    assert memory.remember(np.ones(4), np.arange(1.0, 5.0))
    memory.precondition(lambda x: 1e-320 * x)
    assert len(memory) == 0
    assert np.array_equal(memory.direction(gradient), -1e-320 * gradient)
