"""Objective, gradient, line and working set of LMNN against the same in plain loops."""

from dataclasses import replace

import numpy as np
import pytest

from nearfar.kernels import reference
from nearfar.problems.lmnn import LMNNProblem

WIDTH = 0.3
EVERYTHING = 1e6  # a margin within which all triplets lie


@pytest.fixture
def problem(case, build, backend):
    return build(case, backend)


@pytest.fixture
def host(problem):
    return problem.kernels.to_host


@pytest.fixture
def with_prox(problem, factor):
    """All triplets, with the multipliers of another factor: some are 0, some 1, some between."""
    L = problem.factor(factor())
    at = problem.place(L, problem.search(L, EVERYTHING, 2 * WIDTH))
    triplets = problem.advance_multipliers(at, WIDTH).triplets
    prox = problem.kernels.to_host(triplets.prox)
    assert (prox == 0).any()
    assert (prox == 1).any()
    assert ((prox > 0) & (prox < 1)).any()
    return triplets


# -- objective and gradient ---


@pytest.mark.parametrize("rows", [1, 3, 4, 6])
def test_objective_is_that_of_the_papers(case, problem, factor, rows):
    """With mu != 1/2, so that swapped weights of pull and push are seen."""
    C = factor(rows)
    L = problem.factor(C)
    triplets = problem.search(L, 0.0, WIDTH)
    objective, n_active = problem.objective(problem.place(L, triplets))
    certificate, _ = problem.certify(L, triplets)
    expected = case.objective(C.T @ C)
    assert objective == pytest.approx(expected, rel=1e-11)
    assert certificate.objective == pytest.approx(expected, rel=1e-11)
    assert certificate.n_active == n_active == (case.slacks(C) > 0).sum()


def test_the_factor_of_zero_violates_every_margin(case, problem):
    """D = 0: the objective is mu times the number of triplets, or their weight."""
    L = np.zeros((2, problem.basis.shape[1]))
    value, n_active = problem.objective(problem.place(L, problem.search(L, 0.0, WIDTH)))
    assert n_active == len(case.triplets)
    assert value == pytest.approx(case.push_weight * case.v.sum())


def central_differences(function, at, step):
    """(f(x + h) − f(x − h)) / 2h along each entry of a matrix."""
    slopes = np.empty(at.shape)
    for position in np.ndindex(at.shape):
        change = np.zeros(at.shape)
        change[position] = step
        slopes[position] = (function(at + change) - function(at - change)) / (2 * step)
    return slopes


@pytest.mark.parametrize("push_weight", [0.2, 0.9], indirect=True, ids=["mu0.2", "mu0.9"])
@pytest.mark.parametrize("rows", [2, 4])
def test_gradient_is_that_of_the_smoothed_objective(case, problem, factor, with_prox, host, rows):
    prox = case.spread(with_prox, host(with_prox.prox))
    L = problem.factor(factor(rows))
    gradient = problem.gradient(problem.place(L, with_prox))
    expected = central_differences(
        lambda L: case.smoothed(problem.components(L), prox, WIDTH), L, 1e-6 * np.abs(L).max()
    )
    np.testing.assert_allclose(gradient, expected, rtol=0, atol=1e-6 * np.abs(expected).max())


def test_the_smoothed_objective_is_below_the_objective_by_at_most_half_a_width(case, factor):
    """0 ≤ [s]₊ − smoothed ≤ w/2 for each triplet, with a anywhere in [0, 1]; equal for a = α."""
    C = factor()
    exact, slack = case.objective(C.T @ C), case.slacks(C)
    prox = np.linspace(0, 1, len(slack))
    room = case.push_weight * case.v.sum() * WIDTH / 2
    assert exact - room <= case.smoothed(C, prox, WIDTH) <= exact
    assert case.smoothed(C, (slack > 0).astype(float), WIDTH) == pytest.approx(exact)


def test_alpha_and_complementarity(case, problem, factor, with_prox, host):
    """α = clip(a + s/w, 0, 1), and μ Σ v ([s]₊ − αs)."""
    C = factor()
    at = problem.place(problem.factor(C), with_prox)
    slack = case.slacks(C)
    alpha = np.clip(case.spread(with_prox, host(with_prox.prox)) + slack / WIDTH, 0, 1)
    np.testing.assert_allclose(case.spread(with_prox, host(at.slack)), slack, rtol=0, atol=1e-10)
    np.testing.assert_allclose(case.spread(with_prox, host(at.alpha)), alpha, rtol=0, atol=1e-9)
    expected = case.push_weight * (case.v @ (np.maximum(slack, 0) - alpha * slack))
    assert problem.complementarity(at) == pytest.approx(expected)
    advanced = problem.advance_multipliers(at, 0.1)
    assert advanced.triplets.width == 0.1
    np.testing.assert_array_equal(host(advanced.triplets.prox), host(at.alpha))
    narrowed = problem.narrow(at, 0.1)
    assert narrowed.triplets.width == 0.1
    np.testing.assert_array_equal(host(narrowed.triplets.prox), host(with_prox.prox))


# -- along a line ---


@pytest.fixture
def line(problem, factor, with_prox):
    at = problem.place(problem.factor(factor()), with_prox)
    direction = 0.3 * problem.factor(factor())
    return at, direction, problem.line(at, direction)


@pytest.mark.parametrize("t", [1e-3, 0.4, 1.0, 2.5, 4.0])
def test_line_is_the_smoothed_objective(case, problem, with_prox, host, line, t):
    """Values, and central differences in t.

    The curvature jumps where a triplet becomes active; the step of 1e-7 is unlikely to meet one.
    """
    at, direction, along = line
    prox = case.spread(with_prox, host(with_prox.prox))

    def smoothed(t):
        return case.smoothed(problem.components(at.L + t * direction), prox, WIDTH)

    value, slope, curvature = along.at(t)
    assert value == pytest.approx(smoothed(t), rel=1e-9)
    assert slope == pytest.approx((smoothed(t + 1e-6) - smoothed(t - 1e-6)) / 2e-6, rel=1e-5)
    step = 1e-7
    rise = along.at(t + step)[1] - along.at(t - step)[1]
    assert curvature == pytest.approx(rise / (2 * step), rel=1e-4)


def test_slope_at_zero_is_the_gradient_along_the_direction(problem, line):
    at, direction, along = line
    assert along.at(0.0)[1] == pytest.approx(np.vdot(problem.gradient(at), direction))


@pytest.mark.parametrize("share", [1.0, -0.6])
def test_rescaling_is_the_line_along_the_factor(problem, line, share):
    at = line[0]
    got, wanted = problem.rescaling(at, share), problem.line(at, share * at.L)
    for t in (0.0, 0.7):
        assert got.at(t) == pytest.approx(wanted.at(t), rel=1e-12)


@pytest.mark.parametrize("t", [0.0, 0.7, 3.0])
def test_move_is_place(problem, host, line, t):
    at, direction, along = line
    moved, placed = problem.move(at, along, t), problem.place(at.L + t * direction, at.triplets)
    for name in ("L", "Z", "pull", "edge_lengths", "pair_lengths"):
        got, wanted = host(getattr(moved, name)), host(getattr(placed, name))
        np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-9 * np.abs(wanted).max())
    assert moved.triplets is at.triplets
    assert moved.Z is along.map  # whose memory it takes


def test_only_edges_that_occur_have_lengths(case, problem, factor, host):
    """Edges without a triplet at hand pull by ⟨P, M⟩ alone."""
    C = factor()
    L = problem.factor(C)
    at = problem.survey(L, 0.0, WIDTH)
    edges = np.unique(host(at.triplets.edge))
    assert 0 < len(edges) < len(case.heads)
    np.testing.assert_array_equal(host(at.triplets.edges), edges)
    np.testing.assert_array_equal(edges[host(at.triplets.near)], host(at.triplets.edge))
    lengths = case.lengths(C, case.heads, case.tails)
    np.testing.assert_allclose(host(at.edge_lengths), lengths[edges], rtol=1e-9)
    assert at.pull == pytest.approx((1 - case.push_weight) * (case.m[case.heads] @ lengths))
    assert problem.place(L, at.triplets).pull == pytest.approx(at.pull)


def test_curvature_is_the_change_of_the_gradient(problem, factor, with_prox):
    """For M + RᵀYR the gradient in Y is R(P − S)Rᵀ, half of what R∂f/∂L is for R = rows · L.

    Factors of M + hRᵀYR and M − hRᵀYR give its change by central differences.
    """
    L = problem.factor(factor(3))
    rows, Y = np.array([[0.5, 0.2, 0.0], [0.1, -0.3, 0.4]]), np.array([[0.7, -0.4], [-0.4, 0.2]])
    R = rows @ L

    def gradient(h):
        square = np.linalg.cholesky(np.eye(3) + h * rows.T @ Y @ rows)  # M + hRᵀYR = Lᵀ(…)L
        moved = problem.gradient(problem.place(square.T @ L, with_prox))
        return 0.5 * rows @ np.linalg.solve(square.T, moved) @ R.T

    product = problem.curvature(problem.place(L, with_prox), rows)(Y)
    expected = (gradient(1e-6) - gradient(-1e-6)) / 2e-6
    np.testing.assert_allclose(product, expected, rtol=0, atol=1e-4 * np.abs(expected).max())


def test_a_sample_has_the_edges_of_some_rows(case, problem, factor, host):
    """Every third row: 1/3 of the edges or about, each with all of its triplets."""
    rows = len(case.X) // 3
    sampled = problem.sampled(rows)
    kept = case.heads % 3 == 0
    np.testing.assert_array_equal(host(sampled.edges[1]), case.tails[kept])
    share = np.average(kept, weights=case.m[case.heads])
    np.testing.assert_allclose(sampled.P, share * problem.P)
    C = factor()
    found = sampled.survey(problem.factor(C), 0.0, WIDTH)
    slack = case.slacks(C)[kept[case.triplets[:, 0]]]
    assert len(found.triplets) == (slack > 0).sum() > 0
    assert problem.sampled(len(case.X)) is problem


def test_normalised_gives_target_edges_a_mean_squared_length_of_one(case, problem, factor):
    L = problem.normalised(problem.factor(factor()))
    lengths = case.lengths(problem.components(L), case.heads, case.tails)
    assert np.average(lengths, weights=case.m[case.heads]) == pytest.approx(1)


def test_normalised_leaves_a_factor_that_maps_all_targets_to_one_point(problem):
    L = np.zeros((1, problem.basis.shape[1]))
    np.testing.assert_array_equal(problem.normalised(L), L)


# -- the working set ---


@pytest.mark.parametrize("margin", [0.0, 0.1, 2.0, EVERYTHING])
def test_search_finds_the_triplets_within_the_margin(case, problem, factor, host, margin):
    C = factor()
    triplets = problem.search(problem.factor(C), margin, WIDTH)
    expected = case.triplets[case.slacks(C) > -margin]
    assert sorted(case.keys(triplets)) == sorted(map(tuple, expected.tolist()))
    assert not host(triplets.prox).any()
    assert triplets.width == WIDTH
    assert len(triplets) == len(expected)


def test_search_keeps_the_triplets_whose_multipliers_are_used(
    case, problem, factor, with_prox, host
):
    """Those within the margin, and those with a > 0 wherever they are now; each with its own a."""
    C, margin = 2 * factor(), 0.1
    before = case.spread(with_prox, host(with_prox.prox))
    slack = case.slacks(C)
    assert ((before > 0) & (slack < -margin)).any()
    triplets = problem.search(problem.factor(C), margin, WIDTH, with_prox)
    expected = case.triplets[(slack > -margin) | (before > 0)]
    assert sorted(case.keys(triplets)) == sorted(map(tuple, expected.tolist()))
    np.testing.assert_array_equal(case.spread(triplets, host(triplets.prox)), before)


def test_search_can_keep_the_triplets_of_all_pairs_at_hand(case, problem, factor, host):
    """A wide search, then a narrow one at a larger scale: what was there stays, used or not."""
    L = problem.factor(factor())
    before = problem.search(L, 2.0, WIDTH)
    C = 2 * factor()
    kept = problem.search(problem.factor(C), 0.0, WIDTH, before, keep=True)
    keys = case.keys(kept)
    assert len(set(keys)) == len(keys)
    pairs = {(case.heads[edge], impostor) for edge, impostor in case.keys(before)}
    expected = [
        (edge, impostor)
        for (edge, impostor), slack in zip(case.triplets.tolist(), case.slacks(C), strict=True)
        if slack > 0 or (case.heads[edge], impostor) in pairs
    ]
    assert sorted(keys) == expected
    assert not host(kept.prox).any()


def test_search_without_violations_finds_nothing(build, make_case, rng):
    """Two classes 100 apart, each within a unit: at this scale no impostor is near any margin."""
    X = rng.uniform(size=(10, 2)) + np.repeat([[0.0], [100.0]], 5, axis=0)
    case = make_case(X, (5, 5), 0.3)
    problem = build(case)
    L = problem.factor(np.eye(2))
    at = problem.place(L, problem.search(L, 1.0, WIDTH))
    assert len(at.triplets) == 0
    pull = case.lengths(np.eye(2), case.heads, case.tails).sum()
    assert problem.objective(at) == (pytest.approx(0.7 * pull), 0)
    gradient = problem.gradient(at)
    np.testing.assert_allclose(gradient, 2 * L @ problem.P, atol=1e-9 * np.abs(gradient).max())
    assert problem.line(at, L).at(1.0)[0] == pytest.approx(4 * 0.7 * pull)


def test_multipliers_survive_the_journey_to_the_host(problem, factor, with_prox, case, host):
    found = problem.multipliers(with_prox)
    assert {type(values) for values in found.values()} == {np.ndarray}
    assert (found["prox"] > 0).all()
    again = problem.with_multipliers(found, WIDTH)
    assert again.width == WIDTH
    before = case.spread(with_prox, host(with_prox.prox))
    np.testing.assert_array_equal(case.spread(again, host(again.prox)), before)
    L = problem.factor(factor())
    continued = problem.search(L, 0.1, WIDTH, again)
    original = problem.search(L, 0.1, WIDTH, with_prox)
    assert case.keys(continued) == case.keys(original)
    np.testing.assert_array_equal(host(continued.prox), host(original.prox))


def test_no_multipliers_at_all(problem, factor, case):
    """A run that was stopped before its multipliers advanced."""
    L = problem.factor(factor())
    fresh = problem.search(L, 0.1, WIDTH)
    empty = problem.with_multipliers(problem.multipliers(fresh), WIDTH)
    assert len(empty) == 0
    assert case.keys(problem.search(L, 0.1, WIDTH, empty)) == case.keys(fresh)


# -- coordinates ---


def sq_distances(points):
    return ((points[:, None] - points[None]) ** 2).sum(axis=2)


@pytest.mark.parametrize("kind", ["full", "constant feature", "wide", "repeated feature"])
def test_factors_on_points_and_on_features_measure_the_same(build, make_case, rng, kind):
    """U Lᵀ for L = factor(C), X Cᵀ, and X components(L)ᵀ have the same distances."""
    X = rng.normal(size=(12, 30 if kind == "wide" else 4))
    if kind == "constant feature":
        X[:, 2] = 7.0
    if kind == "repeated feature":
        X[:, 3] = -5 * X[:, 0]
    problem = build(make_case(X, (6, 6), 0.3))
    C = rng.normal(size=(3, X.shape[1]))
    L = problem.factor(C)
    expected = sq_distances(X @ C.T)
    np.testing.assert_allclose(sq_distances(problem.U @ L.T), expected, atol=1e-9)
    np.testing.assert_allclose(sq_distances(X @ problem.components(L).T), expected, atol=1e-9)


@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_the_first_guess_does_not_depend_on_units(build, make_case, points, scale):
    X, sizes = points
    units = scale ** np.array([1.0, -0.5, 0.3, 0.0])
    case = make_case(X, sizes, 0.4)
    distances = []
    for data in (X, X * units):
        problem = build(replace(case, X=data))
        distances.append(sq_distances(data @ problem.components(problem.first_guess()).T))
    np.testing.assert_allclose(distances[1], distances[0], rtol=1e-5)


def test_the_first_guess_gives_noise_little_weight(build, make_case, rng):
    """Whitening alone gives each direction a pull of 1. Targets are the next of the class, so that
    in feature 1, which knows nothing of the class, they are as far apart as any points: τ ≈ 1, and
    it gets 1 − 1/τ ≈ 0. In feature 0 random points have 100 times their squared length: 0.99."""
    y = np.repeat([0, 1], 100)
    X = np.column_stack([20 * y + rng.normal(size=200), 20 * rng.normal(size=200)])
    case = make_case(X, (100, 100), 0.5, k=1)
    case = replace(case, tails=np.concatenate([np.roll(np.arange(100), -1) + c for c in (0, 100)]))
    problem = build(case)
    C = problem.components(problem.first_guess())
    pulls = np.diag(C.T @ C) * np.diag(case.P)
    assert 0.9 < pulls[0] < 1.1
    assert pulls[1] < 0.4


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_returned_map_of_a_shrunk_metric_needs_no_further_search(monkeypatch, rng, dtype):
    """Rounding hardly changes the metric: the triplets of the certificate are all there are."""
    y = np.arange(120) % 3
    X = (rng.normal(size=(120, 4)) + 0.5 * y[:, None]).astype(dtype)
    order = np.argsort(y, kind="stable")
    X, starts = X[order], np.array([0, 40, 80, 120])
    edges = reference.nearest_in_class(X, starts, 3)
    problem = LMNNProblem.build(X, X.mean(0), edges, starts, 0.3, 0.2)
    L = problem.first_guess()
    certificate, triplets = problem.certify(L)
    searched = problem.certify_returned(L, None, triplets)
    searches = []
    survey = LMNNProblem._survey
    monkeypatch.setattr(
        LMNNProblem, "_survey", lambda *a, **k: searches.append(1) or survey(*a, **k)
    )
    found = problem.certify_returned(L, certificate, triplets)
    assert not searches
    assert found.objective == pytest.approx(searched.objective, rel=1e-12)
    assert found.n_active == searched.n_active
    returned = LMNNProblem.returned
    monkeypatch.setattr(LMNNProblem, "returned", lambda self, L: 0.8 * returned(self, L))
    shorter = problem.certify_returned(L, certificate, triplets)
    assert searches
    assert shorter.n_active > found.n_active
