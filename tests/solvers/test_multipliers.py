"""The descent: it ends at the optimum over all metrics, from anywhere, and can be continued."""

import weakref
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from nearfar.kernels import kernels_for
from nearfar.problems.lmnn import LMNNProblem
from nearfar.solvers import Status, multipliers, run
from nearfar.solvers.factor_steps import (
    _of_square,
    at_best_scale,
    newton_direction,
    row_scales,
)
from nearfar.solvers.hinge_problem import TUNING
from nearfar.solvers.multiplier_state import Searches, State
from nearfar.solvers.multipliers import descend_in_both_precisions, proximal_factor_descent
from nearfar.supervision import class_order, nearest_targets

TOL = 1e-3


def problem_of(X, y, push_weight=0.5):
    labels = class_order(y, "LMNN")
    kernels = kernels_for(X)
    X = X[kernels.index(labels.order, X)]
    centre = kernels.double(X).mean(0)
    edges = nearest_targets(X, labels, 3)
    return LMNNProblem.build(X, centre, edges, labels.starts, push_weight)


def solved(problem, L, tol=TOL, **options):
    return run(proximal_factor_descent(problem, L, tol, **options), tol=tol, max_iter=2000)


@pytest.fixture(scope="module")
def problem(wine):
    X, y = wine
    return problem_of(X, y)


@pytest.fixture(scope="module")
def optimum(problem):
    """An objective and a bound with the optimum between them, a thousandth apart."""
    solution = solved(problem, problem.first_guess())
    assert solution.status is Status.CONVERGED
    certificate = solution.iterate.certificate
    assert 0 <= certificate.gap <= TOL
    return certificate


STARTS = {
    "identity": lambda d, _: np.eye(d),
    "one row": lambda d, rng: rng.normal(size=(1, d)),
    "too many rows": lambda d, rng: rng.normal(size=(2 * d, d)),
    "a thousand times too large": lambda d, _: 1e3 * np.eye(d),
    "a thousand times too small": lambda d, _: 1e-3 * np.eye(d),
}


@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS.keys())
def test_every_start_leads_to_the_optimum(problem, optimum, rng, read_only, start, warm):
    """The problem is convex in M: rows of L are added and dropped as its optimum needs. Objectives
    with certified gaps lie above every bound, and within both tolerances of each other."""
    L = read_only(start(problem.basis.shape[1], rng))
    solution = solved(problem, L, warm=warm)
    assert solution.status is Status.CONVERGED
    certificate = solution.iterate.certificate
    assert certificate.gap <= TOL
    assert certificate.objective == solution.iterate.value
    assert certificate.objective >= optimum.bound
    assert optimum.objective >= certificate.bound
    assert certificate.objective == pytest.approx(optimum.objective, rel=2 * TOL)


def test_the_objective_at_hand_is_exact_after_a_search(problem):
    """An iterate that says so has the objective over all triplets; others have at most that."""
    kinds = set()
    for iterate in islice(proximal_factor_descent(problem, problem.first_guess(), TOL), 30):
        objective = problem.certify(iterate.point)[0].objective
        assert iterate.value <= objective * (1 + 1e-9)
        if iterate.exact:
            assert iterate.value == pytest.approx(objective, rel=1e-9)
        assert iterate.info["searched"] == iterate.exact
        kinds.add(iterate.exact)
    assert kinds == {True, False}


def test_a_residual_at_the_tolerance_is_a_certified_gap(wine):
    """In float32 the gap at hand, an estimate, differs from the one that is certified."""
    X, y = wine
    problem = problem_of(X.astype(np.float32), y)
    residuals, estimates = [], []
    for iterate in proximal_factor_descent(problem, problem.first_guess(), 1e-2):
        assert iterate.certified == (iterate.certificate is not None)
        if not iterate.certified:
            estimates.append(iterate.residual)
            continue
        residuals.append(iterate.residual)
        assert iterate.residual == iterate.certificate.gap
        assert iterate.value == iterate.certificate.objective
        again, _ = problem.certify(iterate.point, iterate.state)
        assert again.objective == pytest.approx(iterate.value, rel=1e-12)
        # A mean with the known dual point may prove a little more.
        assert again.bound >= (1 - 1e-12) * iterate.certificate.bound
        assert again.bound == pytest.approx(iterate.certificate.bound, rel=1e-7)
        if iterate.residual <= 1e-2:
            break
    assert residuals[-1] <= 1e-2
    known = [estimate for estimate in estimates if estimate is not None]
    assert 0 < len(known) < len(estimates)
    assert min(known) > 1e-2


def test_a_tighter_tolerance_is_reached(problem, optimum):
    certificate = solved(problem, problem.first_guess(), 1e-5).iterate.certificate
    assert certificate.gap <= 1e-5
    assert optimum.bound <= certificate.objective <= optimum.objective * (1 + 1e-5)


@pytest.mark.parametrize("after", [1, 7, 30])
def test_a_descent_continues_from_its_state(problem, optimum, after):
    """From the point and the multipliers as they went to the host and back."""
    *_, last = islice(proximal_factor_descent(problem, problem.first_guess(), TOL), after)
    found = problem.multipliers(last.state)
    triplets = problem.with_multipliers(found, last.state.width)
    first = next(proximal_factor_descent(problem, last.point, TOL, triplets=triplets))
    assert first.value < 1.1 * problem.certify(last.point)[0].objective
    certificate = solved(problem, last.point, triplets=triplets).iterate.certificate
    assert certificate.gap <= TOL
    assert certificate.objective == pytest.approx(optimum.objective, rel=2 * TOL)


def test_continuing_from_the_answer_ends_at_once(problem):
    solution = solved(problem, problem.first_guess())
    again = solved(problem, solution.iterate.point, triplets=solution.iterate.state)
    assert again.status is Status.CONVERGED
    assert again.n_iter < solution.n_iter / 2


@pytest.mark.parametrize("rows", [1, 2, 13])
def test_a_fixed_rank_is_kept(problem, optimum, rng, rows):
    """No map of fewer rows is below the bound; one with all rows is at the optimum."""
    L = rng.normal(size=(rows, problem.basis.shape[1]))
    iterates = []
    solution = run(
        proximal_factor_descent(problem, L, TOL, fixed_rank=True),
        tol=TOL,
        max_iter=2000,
        observers=[lambda iterate, _: iterates.append(iterate)],
    )
    assert solution.status is Status.CONVERGED
    assert {iterate.point.shape for iterate in iterates} == {L.shape}
    objective = problem.certify(solution.iterate.point)[0].objective
    assert objective == pytest.approx(solution.iterate.value)
    assert objective >= optimum.bound
    if rows == 13:
        assert objective == pytest.approx(optimum.objective, rel=0.01)


class Surprising:
    """A problem whose full search always finds as much again as was known."""

    def __init__(self, problem):
        self._problem = problem

    def __getattr__(self, name):
        return getattr(self._problem, name)

    def certify(self, *given, **options):
        proof, triplets = self._problem.certify(*given, **options)
        return replace(proof, objective=2 * proof.objective), triplets


def test_the_residual_of_a_fixed_rank_contains_what_the_last_search_added(problem):
    """What was not known cannot have been descended on: at least half of the objective is left."""
    iterates = proximal_factor_descent(
        Surprising(problem), problem.first_guess()[:2], 10.0, fixed_rank=True
    )
    residuals = [each.residual for each in islice(iterates, 40) if each.residual is not None]
    assert residuals
    assert min(residuals) >= 0.5


@pytest.mark.parametrize("start", range(4))
def test_a_fixed_rank_ends_where_little_is_left_to_gain(problem, start):
    """Sixty more iterations from there; the residual is an estimate, so ten times it is allowed."""
    L = np.random.default_rng(start).normal(size=(2, problem.basis.shape[1]))
    last = solved(problem, L, fixed_rank=True).iterate
    assert 0 <= last.residual <= TOL
    objective = problem.certify(last.point)[0].objective
    assert last.value == pytest.approx(objective)
    further = proximal_factor_descent(
        problem, last.point, 0.0, triplets=last.state, fixed_rank=True
    )
    lowest = min(problem.certify(each.point)[0].objective for each in islice(further, 0, 60, 5))
    assert lowest > objective * (1 - 10 * TOL)


def test_float32_and_devices_reach_the_same_optimum(wine, optimum, backend, dtype):
    X, y = wine
    problem = problem_of(backend.asarray(X.astype(dtype)), y)
    solution = solved(problem, problem.first_guess())
    assert solution.status is Status.CONVERGED
    certificate = solution.iterate.certificate
    assert certificate.objective == pytest.approx(optimum.objective, rel=2 * TOL)
    assert certificate.bound <= optimum.objective * (1 + 1e-6)


@pytest.mark.parametrize("push_weight", [0.05, 0.95])
def test_unequal_weights(iris, push_weight):
    problem = problem_of(*iris, push_weight)
    solution = solved(problem, problem.first_guess(), 1e-4)
    assert solution.status is Status.CONVERGED
    assert solution.iterate.certificate.gap <= 1e-4


def test_the_same_start_gives_the_same_bits(problem):
    one, other = (solved(problem, problem.first_guess()) for _ in range(2))
    assert one.n_iter == other.n_iter
    assert one.iterate.point.tobytes() == other.iterate.point.tobytes()


def test_a_tolerance_that_cannot_be_reached_ends_by_itself_with_a_certificate(iris):
    """Rounding stops the descent; what was proved by then is reported."""
    X, y = iris
    problem = problem_of(X[::5], y[::5])
    solution = solved(problem, problem.first_guess(), 0.0)
    assert solution.status in (Status.STALLED, Status.CONVERGED)
    assert problem.certify(solution.iterate.point, solution.iterate.state)[0].gap < 1e-4


def test_a_coarser_problem_is_a_share_of_the_objective(rng, dtype, monkeypatch):
    """Its objective is that of the chosen edges, of all rows as targets and impostors.

    With the share s of the rows that are kept and c = 1 − μ + μ/s, it is
    [(1−μ) Σ_e D(e) + (μ/s) Σ_t [1 + D(e) − D(p)]₊] / c over the chosen edges, P being a share of
    that of all edges, which is the same in these coordinates.
    """
    monkeypatch.setattr("nearfar.problems.lmnn_points.COARSE_FROM", 100)
    monkeypatch.setattr("nearfar.problems.lmnn_points.EDGES_A_PARAMETER", 1)
    monkeypatch.setattr("nearfar.problems.lmnn_points.COARSER", 3)
    X, y = rng.normal(size=(200, 3)).astype(dtype), np.repeat([0, 1], [120, 80])
    problem = problem_of(X, y, push_weight=0.3)
    coarse, differs = problem.coarser()
    assert differs
    assert coarse.coarser() is not None
    assert type(coarse) is LMNNProblem
    assert len(coarse.edges[0]) == pytest.approx(600 / 3, abs=3)
    assert len(np.unique(coarse.edges[0])) < len(coarse.U) < 200
    L = rng.normal(size=(2, coarse.U.shape[1]))
    Z, labels = coarse.U @ L.T, np.repeat([0, 1], np.diff(coarse.starts))
    push = 0.0
    for i, j in zip(*coarse.edges, strict=True):
        assert labels[i] == labels[j]
        others = ((Z[labels != labels[i]] - Z[i]) ** 2).sum(axis=1)
        push += np.maximum(1 + ((Z[i] - Z[j]) ** 2).sum() - others, 0).sum()
    share, edges = len(coarse.U) / 200, len(coarse.edges[0]) / 600
    total = 0.7 + 0.3 / share
    pull = edges * np.vdot(L @ problem.P, L) / total
    found = coarse.objective(coarse.survey(L, 0.1, 0.1))[0]
    pulled = (
        0.7 / total * sum(((Z[i] - Z[j]) ** 2).sum() for i, j in zip(*coarse.edges, strict=True))
    )
    assert found == pytest.approx(pulled + 0.3 / share / total * push, rel=1e-4)
    assert coarse.objective(coarse.place(L, coarse.search(L, 0.1, 0.1)))[0] == pytest.approx(
        pull + 0.3 / share / total * push, rel=1e-4
    )
    rows = coarse.exact()
    np.testing.assert_allclose(rows, coarse.U, rtol=1e-4, atol=1e-4)


def test_too_few_edges_have_no_coarser_problem(problem, monkeypatch):
    """Wine has 534 target edges for the 91 entries of a metric."""
    monkeypatch.setattr("nearfar.problems.lmnn_points.COARSE_FROM", 0)
    assert problem.coarser() is None


def test_a_coarse_start_leads_to_the_optimum(rng, monkeypatch):
    """It is used where a part of the points determines the metric, and the optimum is the same."""
    X = rng.normal(size=(900, 3)) * [1, 1, 30]
    y = (X[:, 0] + X[:, 1] + 0.5 * rng.normal(size=900) > 0).astype(int)
    problem = problem_of(X, y)
    first = next(proximal_factor_descent(problem, np.eye(3), TOL)).start
    expected = solved(problem, np.eye(3)).iterate.certificate
    assert problem.coarser() is None
    monkeypatch.setattr("nearfar.problems.lmnn_points.COARSE_FROM", 500)
    monkeypatch.setattr("nearfar.problems.lmnn_points.COARSER", 2)
    assert problem.coarser()[0].coarser() is not None
    iterates = proximal_factor_descent(problem, np.eye(3), TOL)
    start = next(iterate.start for iterate in iterates if iterate.start is not None)
    assert start.value < first.value
    solution = solved(problem, np.eye(3))
    assert solution.status is Status.CONVERGED
    found = solution.iterate.certificate
    assert found.gap <= TOL
    assert expected.bound <= found.objective
    assert found.bound <= expected.objective


def test_nothing_to_push(rng):
    """Two classes far apart: a small metric keeps every margin, and the optimum is proved."""
    y = np.repeat([0, 1], 10)
    X = rng.normal(size=(20, 3)) + 100 * y[:, None]
    problem = problem_of(X, y)
    certificate = solved(problem, problem.first_guess()).iterate.certificate
    assert certificate.gap <= TOL
    assert certificate.objective < 1


def test_scaled_steps_do_not_depend_on_the_spread_of_the_rows(rng):
    """For orthogonal rows of L, a step −(LLᵀ)⁻¹ 2LG changes M by −2(ΠG + GΠ) with Π the projection
    on their span, whatever their lengths; the floor of 0.02 leaves some of it."""
    directions, G = np.linalg.qr(rng.normal(size=(6, 3)))[0].T, rng.normal(size=(6, 6))
    G = G + G.T

    def change(lengths):
        L = lengths[:, None] * directions
        step = -row_scales(L) @ (2 * L @ G)
        M = L.T @ step + step.T @ L
        return M / np.linalg.norm(M)

    equal, spread = change(np.ones(3)), change(np.array([1.0, 0.8, 0.5]))
    assert np.vdot(equal, spread) > 0.99
    assert np.isfinite(row_scales(np.zeros((2, 3, 4)))).all()


def test_newtons_direction_solves_for_the_leading_rows(problem):
    """LᵀΔ + ΔᵀL = RᵀYR with HY = −G, up to a tenth of G, and R(∂f/∂M)Rᵀ = G = ½ rows ∂f/∂L Rᵀ."""
    *_, last = islice(proximal_factor_descent(problem, problem.first_guess(), 1e-9), 22)
    at = problem.survey(last.point, 0.1, last.state.width, last.state)
    gradient = problem.gradient(at)
    direction = newton_direction(problem, at, gradient)
    assert np.vdot(gradient, direction) < 0
    values, left = np.linalg.eigh(at.L @ at.L.T)
    leading = values > TUNING.leading * values[-1]
    assert 1 < leading.sum() < problem.basis.shape[1]
    rows = left[:, leading].T / np.sqrt(values[leading])[:, None]
    R, change = rows @ at.L, at.L.T @ direction + direction.T @ at.L
    Y = R @ change @ R.T
    np.testing.assert_allclose(change, R.T @ Y @ R, rtol=0, atol=1e-9 * np.abs(change).max())
    G = 0.5 * rows @ gradient @ R.T
    left_over = problem.curvature(at, rows)(Y) + 0.5 * (G + G.T)
    assert np.linalg.norm(left_over) < 0.11 * np.linalg.norm(G)


def test_without_curvature_there_is_no_newton_direction(rng):
    """Two classes far apart, and no triplet."""
    y = np.repeat([0, 1], 10)
    problem = problem_of(rng.normal(size=(20, 3)) + 100 * y[:, None], y)
    at = problem.survey(problem.normalised(problem.first_guess()), 0.0, 0.1)
    assert len(at.triplets) == 0
    assert newton_direction(problem, at, problem.gradient(at)) is None


@pytest.mark.parametrize("tau", [0.0, 0.2, 0.3, 1.7])
def test_a_function_of_the_square_of_a_step(tau):
    """f(t) = (t² − 0.3)² is g(τ) = (τ − 0.3)² in τ = t², with g' = 2(τ − 0.3) and g'' = 2; at 0,
    where t has no say in τ, g'' is not needed and given as 0."""

    def along(t):
        return (t * t - 0.3) ** 2, 4 * t * (t * t - 0.3), 12 * t * t - 1.2

    expected = (tau - 0.3) ** 2, 2 * (tau - 0.3), 2.0 if tau else 0.0
    assert _of_square(along)(tau) == pytest.approx(expected)


class Counting:
    """A problem that counts its searches; samples of it do so, too."""

    def __init__(self, problem, counts):
        self._problem, self.counts = problem, counts

    def sampled(self, rows):
        return Counting(self._problem.sampled(rows), self.counts)

    def survey(self, *arguments, **options):
        at = self._problem.survey(*arguments, **options)
        self.counts.append(len(at.triplets))
        return at

    def __getattr__(self, name):
        return getattr(self._problem, name)


def test_where_the_kept_distance_suffices_the_scale_falls_to_nothing_in_few_searches(rng):
    """Classes are a hundred margins apart under φI already, so that the pull alone is left: M' is
    zero at the optimum. Halving the squared scale would take 53 searches."""
    y = np.repeat([0, 1, 2], 20)
    X = rng.normal(size=(60, 4)) + 100 * np.eye(4)[y]
    labels = class_order(y, "LMNN")
    edges = nearest_targets(X, labels, 3)
    problem = LMNNProblem.build(X, X.mean(0), edges, labels.starts, 0.5, 0.5)
    L = problem.normalised(problem.first_guess())
    counts = []
    found = at_best_scale(Counting(problem, counts), L)
    assert not any(counts)
    assert len(counts) < 15
    assert np.linalg.norm(found) < 1e-7 * np.linalg.norm(L)


def test_a_scale_that_is_far_too_large_is_left_in_few_searches(rng):
    """Classes are 1e5 apart in units of their spread, so that no triplet is active until the scale
    is about 1e-5 of the start's. The search passes over that scale, and comes back to the best one,
    here by a grid."""
    y = np.repeat([0, 1], 30)
    X = rng.normal(size=(60, 4)) + 1e5 * np.eye(4)[y]
    problem = problem_of(X, y)
    counts = []
    found = at_best_scale(Counting(problem, counts), problem.factor(np.eye(4)))
    assert counts[:2] == [0, 0]
    assert len(counts) < 15

    def value(share):
        return problem.objective(problem.survey(share * found, 0.0, 0.1))[0]

    assert value(1.0) <= 1.1 * min(value(share) for share in np.geomspace(1e-4, 1e4, 161))


def test_a_search_covers_the_maps_near_its_own_above_a_floor(iris):
    """The triplets found for L are all that are active under a map that hardly differs, and where
    that is not shown, they need not be: half of the map has many more."""
    X, y = iris
    labels = class_order(y, "LMNN")
    X = X[labels.order]
    edges = nearest_targets(X, labels, 3)
    problem = LMNNProblem.build(X, X.mean(0), edges, labels.starts, 0.5, 0.2)
    L = solved(problem, problem.first_guess()).iterate.point
    certificate, triplets = problem.certify(L)
    covered = {}
    for share in (1.0, 1 - 1e-9, 0.999, 0.99, 0.9, 0.5):
        components = share * problem.returned(L)
        Z = problem._images_of(components)
        covered[share] = problem._covers_floored(certificate, L, Z, components)
        known = problem.objective(problem._placed_at(L, Z, components, triplets))[1]
        found, _ = problem._surveyed(L, Z, None, triplets, False, components)
        missing = problem.objective(found)[1] - known
        assert missing == 0 or not covered[share]
    assert covered[1.0]
    assert covered[1 - 1e-9]
    assert not covered[0.5]
    assert missing > 0


def test_late_searches_do_not_widen_without_bound():
    """Where memory narrows each of them, a wider one finds no more."""
    searches = Searches(1.0, 0.1, 3, 3)
    for n_iter in range(100):
        searches.record(n_iter, 1.0, 2.0)
    assert searches.margin == TUNING.widest
    wide = Searches(1.0, 10.0, 3, 3)
    wide.record(1, 1.0, 2.0)
    assert wide.margin == 10.0


def test_a_search_that_kept_all_triplets_is_soon_followed_by_one_that_drops_them():
    """Otherwise many that never matter take time in all iterations between the two."""
    searches = Searches(1.0, 0.1, 3, 3)
    searches.record(10, 1.0, 2.0)  # half of the objective was missed
    assert searches.keeps_triplets
    searches.record(13, 1.0, 1.0)  # nothing was, after a search that kept all
    assert searches.interval == int(TUNING.search_growth * TUNING.first_search) + 1
    while searches.keeps_triplets:
        searches.record(searches.next_one, 1.0, 1.0)
    last = searches.last
    searches.record(searches.next_one, 1.0, 1.0)
    assert searches.interval == min(
        int(TUNING.rare_growth * (searches.last - last)) + 1, TUNING.last_search
    )


# -- memory ---


def test_images_of_the_old_rows_are_gone_before_those_of_the_new_ones(problem, monkeypatch):
    """They are as large as the points, and there are three of them in a step already."""
    place, left = LMNNProblem.place, []

    def watched(self, L, triplets):
        if watched.at is not None:
            left.append(watched.at())
        return place(self, L, triplets)

    watched.at = None
    adapt = State._adapt_rank

    def watching(self, certificate):
        watched.at = weakref.ref(self.at.Z)
        adapt(self, certificate)
        watched.at = None

    monkeypatch.setattr(LMNNProblem, "place", watched)
    monkeypatch.setattr(State, "_adapt_rank", watching)
    solved(problem, np.eye(problem.basis.shape[1]))
    assert left
    assert left == [None] * len(left)


def test_triplets_of_float32_are_gone_once_float64_has_its_own(wine, monkeypatch):
    X, y = wine
    problem = problem_of(X.astype(np.float32), y)
    in_double, doubled = LMNNProblem.in_double, []

    def watched(self):
        doubled.append(in_double(self))
        return doubled[-1]

    monkeypatch.setattr(LMNNProblem, "in_double", watched)
    monkeypatch.setattr(multipliers, "TUNING", replace(TUNING, most_looks=1))
    held = None
    for iterate in descend_in_both_precisions(problem, problem.first_guess(), 0.0):
        if doubled:
            break
        held = weakref.ref(iterate.state.heads)
    assert held is not None
    assert held() is None
    assert doubled[0].exact() is doubled[0].U  # not computed again
