"""LMNN with several metrics against the same in plain loops, and against an independent solver."""

from dataclasses import dataclass, fields, replace

import clarabel
import numpy as np
import pytest
from scipy import linalg, sparse

from nearfar.problems.multi_metric_lmnn import MultiMetricProblem
from nearfar.solvers import Status, run
from nearfar.solvers.multipliers import proximal_factor_descent
from tests.conic import solve_conic

WIDTH = 0.3
TOL = 3e-5  # of the optimum that is compared with an independent solver
EVERYTHING = 1e6  # a margin within which all triplets lie

# The classes have the rows 0-6, 7-12, 13 and 14-16.
PARTITIONS = {
    "class": np.repeat([0, 1, 2, 3], [7, 6, 1, 3]),
    "clusters": np.arange(17) * 7 % 3,
    "a cluster of one point": (np.arange(17) == 8).astype(int),
    "a cluster that is nobody's target": (np.arange(17) == 13).astype(int),
    "a metric without points": 2 * (np.arange(17) % 2),
    "one metric": np.zeros(17, dtype=int),
}


# Neither the weight nor the path should be one at which a mistake would not show.
@pytest.fixture(params=[(0.2, "whitened"), (0.9, "in the geometry of the start")], ids=str)
def setting(request):
    return request.param


@pytest.fixture
def push_weight(setting):
    return setting[0]


def several_of(case, metric_of):
    """The case with a metric for each point, whose numbers may have gaps.

    Its methods take a stack of metrics M or of maps C, and measure by the metric of the second
    point.
    """

    @dataclass(frozen=True)
    class Several(type(case)):
        metric_of: np.ndarray
        n_metrics: int

        def objective(self, M):
            """(1−μ) Σ_ij m_i D(i, j) + μ Σ_ijl m_i m_l [1 + D(i, j) − D(i, l)]₊ as three loops."""
            X, labels, metrics = self.X.astype(np.float64), self.labels, M[self.metric_of]
            m = self.m
            pull = push = 0.0
            for i, j in zip(self.heads, self.tails, strict=True):
                near = (X[i] - X[j]) @ metrics[j] @ (X[i] - X[j])
                pull += m[i] * near
                for k in range(len(X)):
                    if labels[k] != labels[i]:
                        far = (X[i] - X[k]) @ metrics[k] @ (X[i] - X[k])
                        push += m[i] * m[k] * max(0.0, 1 + near - far)
            return (1 - self.push_weight) * pull + self.push_weight * push

        def lengths(self, C, heads, tails):
            difference = self.differences(heads, tails)
            images = np.einsum("prd,pd->pr", C[self.metric_of[tails]], difference)
            return (images**2).sum(axis=1)

        def outer(self, heads, tails, weights):
            """Σ w (x_h − x_t)(x_h − x_t)ᵀ over the pairs of each metric, (metrics, d, d)."""
            mine = self.metric_of[tails] == np.arange(self.n_metrics)[:, None]
            return np.array([super(Several, self).outer(heads, tails, w * weights) for w in mine])

    inherited = {field.name: getattr(case, field.name) for field in fields(case)}
    return Several(**inherited, metric_of=metric_of, n_metrics=int(metric_of.max()) + 1)


@pytest.fixture(params=PARTITIONS.values(), ids=PARTITIONS.keys())
def several(request, case):
    return several_of(case, request.param)


@pytest.fixture
def build_several(build, setting):
    """Makes the problem of a case of several metrics; the start is any metric."""

    def build_several(several, backend=None):
        single, whiten = build(several, backend), setting[1] == "whitened"
        if not whiten:
            single = single.in_geometry_of(single.factor(np.eye(several.X.shape[1])[:2]))
        return MultiMetricProblem.of(single, several.metric_of, several.n_metrics, whiten=whiten)

    return build_several


@pytest.fixture
def problem(several, build_several):
    return build_several(several)


@pytest.fixture
def maps(factor, several):
    """Makes random maps for all metrics, (metrics, rows, features)."""

    def maps(rows=3):
        return np.array([factor(rows) for _ in range(several.n_metrics)])

    return maps


@pytest.fixture
def with_prox(problem, maps):
    """All triplets, with the multipliers of other maps."""
    L = problem.factor(maps())
    at = problem.place(L, problem.search(L, EVERYTHING, 2 * WIDTH))
    return problem.advance_multipliers(at, WIDTH).triplets


def grams(C):
    """M = CᵀC of each map."""
    return C.transpose(0, 2, 1) @ C


# -- objective, gradient, line and working set ---


@pytest.mark.parametrize("rows", [1, 4])
def test_objective_is_that_of_the_papers(several, problem, maps, rows):
    C = maps(rows)
    L = problem.factor(C)
    np.testing.assert_allclose(problem.components(L), C, rtol=1e-7, atol=1e-12)
    triplets = problem.search(L, 0.0, WIDTH)
    objective, n_active = problem.objective(problem.place(L, triplets))
    certificate, _ = problem.certify(L, triplets)
    expected = several.objective(grams(C))
    assert objective == pytest.approx(expected, rel=1e-10)
    assert certificate.objective == pytest.approx(expected, rel=1e-10)
    assert certificate.n_active == n_active == (several.slacks(C) > 0).sum()


def test_a_distance_is_measured_by_the_metric_of_its_second_point(make_case, build):
    """On a line: class a at 0 and 1 with metric 4, class b at 3 and 4 with metric 1.

    The edges of a have length 4, those of b 1. Impostors of a are of b and measured by 1: 1→3 is
    at 4, which is within 1 + 4, by 1, and the others are at 9 or more. Impostors of b are measured
    by 4: at 16 or more, far beyond 1 + 1. So f = 0.8 (4 + 4 + 1 + 1) + 0.2. By the metrics of the
    first points 1→3 would be at 16 and 3→1 at 4, and no margin violated.
    """
    single = make_case(np.array([[0.0], [1], [3], [4]]), (2, 2), 0.2, k=1)
    problem = MultiMetricProblem.of(build(single), np.array([0, 0, 1, 1]), 2)
    L = problem.factor(np.array([[[2.0]], [[1.0]]]))
    certificate, triplets = problem.certify(L)
    assert certificate.objective == pytest.approx(8.2)
    assert certificate.n_active == 1
    active = np.flatnonzero(problem.place(L, triplets).slack > 0)
    pair = triplets.pair[active]
    assert (triplets.heads[pair].item(), triplets.tails[pair].item()) == (1, 2)


def central_differences(function, at, step):
    """(f(x + h) − f(x − h)) / 2h along each entry of an array."""
    slopes = np.empty(at.shape)
    for position in np.ndindex(at.shape):
        change = np.zeros(at.shape)
        change[position] = step
        slopes[position] = (function(at + change) - function(at - change)) / (2 * step)
    return slopes


def test_gradient_is_that_of_the_smoothed_objective(several, problem, maps, with_prox):
    prox = several.spread(with_prox, with_prox.prox)
    assert ((prox > 0) & (prox < 1)).any()
    L = problem.factor(maps(2))
    gradient = problem.gradient(problem.place(L, with_prox))
    expected = central_differences(
        lambda L: several.smoothed(problem.components(L), prox, WIDTH), L, 1e-7 * np.abs(L).max()
    )
    np.testing.assert_allclose(gradient, expected, rtol=0, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("t", [0.4, 2.5])
def test_line_is_the_smoothed_objective(several, problem, maps, with_prox, t):
    prox = several.spread(with_prox, with_prox.prox)
    at = problem.place(problem.factor(maps()), with_prox)
    direction = 0.3 * problem.factor(maps())
    along = problem.line(at, direction)

    def smoothed(t):
        return several.smoothed(problem.components(at.L + t * direction), prox, WIDTH)

    value, slope, curvature = along.at(t)
    assert value == pytest.approx(smoothed(t), rel=1e-9)
    assert slope == pytest.approx((smoothed(t + 1e-6) - smoothed(t - 1e-6)) / 2e-6, rel=1e-5)
    rise = along.at(t + 1e-7)[1] - along.at(t - 1e-7)[1]
    assert curvature == pytest.approx(rise / 2e-7, rel=1e-4)
    assert along.at(0.0)[1] == pytest.approx(np.vdot(problem.gradient(at), direction))
    moved, placed = problem.move(at, along, t), problem.place(at.L + t * direction, with_prox)
    for name in ("Z", "edge_lengths", "pair_lengths"):
        got, wanted = getattr(moved, name), getattr(placed, name)
        np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-9 * np.abs(wanted).max())


def test_a_search_of_a_sample_is_that_of_its_rows(problem, maps):
    """Rows without target edges are left out of the search, and have no triplets."""
    some, C = problem.sampled(6), maps()
    rows = {}
    for each in (some, problem):
        found = each.search(each.factor(C), 0.5, WIDTH)
        heads, tails = each.edges
        columns = heads[found.edge], tails[found.edge], found.tails[found.pair]
        rows[each is some] = set(zip(*(column.tolist() for column in columns), strict=True))
    sampled = set(some.edges[0].tolist())
    assert 1 < len(sampled) < 17
    assert rows[True] == {row for row in rows[False] if row[0] in sampled}
    assert rows[True]


@pytest.mark.parametrize("margin", [0.0, 0.5, EVERYTHING])
def test_search_finds_the_triplets_within_the_margin(several, problem, maps, margin):
    C = maps()
    triplets = problem.search(problem.factor(C), margin, WIDTH)
    expected = several.triplets[several.slacks(C) > -margin]
    assert sorted(several.keys(triplets)) == sorted(map(tuple, expected.tolist()))


def test_search_keeps_the_triplets_whose_multipliers_are_used(several, problem, maps, with_prox):
    C, margin = 2 * maps(), 0.1
    before, slack = several.spread(with_prox, with_prox.prox), several.slacks(C)
    triplets = problem.search(problem.factor(C), margin, WIDTH, with_prox)
    expected = several.triplets[(slack > -margin) | (before > 0)]
    assert sorted(several.keys(triplets)) == sorted(map(tuple, expected.tolist()))
    np.testing.assert_array_equal(several.spread(triplets, triplets.prox), before)


def test_normalised_gives_target_edges_a_mean_squared_length_of_one(several, problem, maps):
    C = problem.components(problem.normalised(problem.factor(maps())))
    lengths = several.lengths(C, several.heads, several.tails)
    assert np.average(lengths, weights=several.m[several.heads]) == pytest.approx(1)


# -- what is proved ---


def in_units(P):
    """What brings the diagonal of P to 1, since the features have very different units."""
    return np.diag(1 / np.sqrt(np.where(np.diag(P) > 0, np.diag(P), 1)))


def range_and_null(P):
    """A basis R of the range of P with RᵀPR = I, and one of its null space."""
    units = in_units(P)
    values, vectors = linalg.eigh(units @ P @ units)
    kept = values > 1e-9 * max(values[-1], 1e-300)
    return units @ vectors[:, kept] / np.sqrt(values[kept]), units @ vectors[:, ~kept]


def scales_of(several, alpha):
    """The largest θ ≤ 1 with P_c − θS_c ⪰ 0 of each metric, on the range of P_c."""
    scales = []
    for P, S in zip(several.P, several.S(alpha), strict=True):
        basis, _ = range_and_null(P)
        ratios = linalg.eigvalsh(basis.T @ S @ basis) if basis.size else np.zeros(1)
        scales.append(1 / max(1.0, ratios[-1]))
    return np.array(scales)


def allowed(several, alpha):
    """α where no impostor differs along the null space of its metric's pull, else 0."""
    alpha = alpha.copy()
    edge, impostor = several.triplets.T
    for metric, P in enumerate(several.P):
        along = several.differences(several.heads[edge], impostor) @ range_and_null(P)[1]
        differs = (np.abs(along) > 1e-7).any(axis=1)
        alpha[differs & (several.metric_of[impostor] == metric)] = 0
    return alpha


@pytest.fixture
def certified(several, problem, maps):
    """Maps, their certificate, and α of all triplets as it was used."""
    L = problem.factor(maps(4))
    at = problem.place(L, problem.search(L, 0.1, WIDTH))
    at = problem.advance_multipliers(at, 0.5 * WIDTH)
    L = L + 0.1 * problem.factor(maps(4))
    certificate, triplets = problem.certify(L, at.triplets)
    alpha = several.spread(triplets, problem.place(L, triplets).alpha)
    return problem.components(L), certificate, allowed(several, alpha)


def test_the_bound_is_that_of_a_point_feasible_for_every_metric(several, certified):
    """First each α is scaled for its impostor's metric, then all by what is still missing; or all
    by the smallest scale, if that is better. What comes out is in [0, 1], and P_c − S_c ⪰ 0."""
    _, certificate, alpha = certified
    assert (alpha >= 0).all()
    assert (alpha <= 1).all()
    own = scales_of(several, alpha)
    twice = alpha * own[several.metric_of[several.triplets[:, 1]]]
    twice *= scales_of(several, twice).min()
    best = max(own.min() * alpha, twice, key=lambda dual: several.v @ dual)
    assert certificate.bound == pytest.approx(several.push_weight * (several.v @ best), rel=1e-7)
    for P, S in zip(several.P, several.S(best), strict=True):
        assert linalg.eigvalsh(in_units(P) @ (P - S) @ in_units(P))[0] > -1e-8


def test_the_gap_is_its_formula(several, certified):
    """f(M) − μΣvα = Σ_c ⟨P_c − S_c, M_c⟩ + μΣv([s]₊ − αs)."""
    C, certificate, alpha = certified
    M, mu, slack = grams(C), several.push_weight, several.slacks(C)
    complementarity = mu * (several.v @ (np.maximum(slack, 0) - alpha * slack))
    assert certificate.complementarity == pytest.approx(complementarity, rel=1e-9)
    objective = several.objective(M)
    assert certificate.objective == pytest.approx(objective, rel=1e-10)
    product = np.vdot(several.P - several.S(alpha), M)
    assert objective - mu * (several.v @ alpha) == pytest.approx(
        product + complementarity, rel=1e-9
    )
    gap = (objective - certificate.bound) / max(objective, 1)
    assert certificate.gap == pytest.approx(gap, rel=1e-9)


def test_the_bound_is_below_every_objective(several, certified, rng):
    _, certificate, _ = certified
    for rank in (1, 4):
        for scale in (0.0, 0.03, 0.3, 3.0):
            C = rng.normal(size=(several.n_metrics, rank, 4)) / several.X.std(axis=0)
            assert certificate.bound <= several.objective(grams(scale * C))


def test_ratios_and_directions_show_which_metric_is_not_feasible(several, problem, certified):
    """bᵀS_c b = λ and bᵀP_c b = 1 in the coordinates of the features."""
    _, certificate, alpha = certified
    P, S = several.P, several.S(alpha)
    for metric in range(several.n_metrics):
        ratios = certificate.ratios[metric]
        assert (np.diff(ratios) <= 1e-9).all()
        B = problem.basis @ problem.frames[metric].T @ certificate.directions[metric]
        identity = np.eye(len(ratios))
        np.testing.assert_allclose(B.T @ S[metric] @ B, np.diag(ratios), atol=1e-6)
        np.testing.assert_allclose(B.T @ P[metric] @ B, identity, atol=1e-8)


def test_float32_is_certified_from_the_data_in_float64(several, build_several, maps):
    """The objective and the bound of the rounded data, to more digits than float32 has."""
    rounded = replace(several, X=several.X.astype(np.float32))
    problem = build_several(rounded)
    assert problem.U.dtype == np.float32
    C = maps(4)
    L = problem.factor(C)
    certificate, _ = problem.certify(L, problem.search(L, 0.1, WIDTH))
    assert certificate.objective == pytest.approx(rounded.objective(grams(C)), rel=1e-10)
    exact = build_several(replace(several, X=rounded.X.astype(np.float64)))
    L = exact.factor(C)
    expected, _ = exact.certify(L, exact.search(L, 0.1, WIDTH))
    assert certificate.bound == pytest.approx(expected.bound, rel=1e-9)


@pytest.mark.parametrize(
    "several", [PARTITIONS[name] for name in ("class", "clusters")], indirect=True, ids=["a", "b"]
)
def test_everything_is_the_same_on_tensors(several, problem, build_several, backend, maps):
    """Each in its own coordinates, whose signs may differ."""
    C, change, results = maps(), maps(), []
    for each in (problem, build_several(several, backend)):
        L, direction = each.factor(C), each.factor(change)
        at = each.place(L, each.search(L, 0.5, WIDTH))
        certificate, triplets = each.certify(L + 0.1 * direction, at.triplets)
        results.append(
            {
                "triplets": several.keys(at.triplets),
                "certified": several.keys(triplets),
                "objective": each.objective(at),
                "slope": np.vdot(each.gradient(at), direction),
                "line": each.line(at, direction).at(0.7),
                "rescaling": each.rescaling(at, -0.6).at(0.7),
                "bound": (certificate.objective, certificate.bound, certificate.complementarity),
                "ratios": np.concatenate(certificate.ratios),
            }
        )
    assert backend.to_numpy(at.Z).shape == (17 * several.n_metrics, 3)
    expected, got = results
    for name, values in expected.items():
        scale = np.abs(values).max()
        np.testing.assert_allclose(got[name], values, rtol=1e-8, atol=1e-9 * scale, err_msg=name)


# -- one metric only ---


@pytest.mark.parametrize("several", [PARTITIONS["one metric"]], indirect=True, ids=["one"])
def test_one_metric_is_lmnn(several, problem, build, maps):
    """The same objective, triplets, line and certificate, in other coordinates."""
    single = build(several)
    C = maps(4)
    ours, theirs = problem.factor(C), single.factor(C[0])
    found, expected = problem.search(ours, 0.5, WIDTH), single.search(theirs, 0.5, WIDTH)
    assert several.keys(found) == several.keys(expected)
    at, other = problem.place(ours, found), single.place(theirs, expected)
    assert problem.objective(at) == pytest.approx(single.objective(other), rel=1e-12)
    change = maps(4)
    lines = problem.line(at, problem.factor(change)), single.line(other, single.factor(change[0]))
    for t in (0.0, 0.5, 3.0):
        assert lines[0].at(t) == pytest.approx(lines[1].at(t), rel=1e-9)
    proved, known = problem.certify(ours, found)[0], single.certify(theirs, expected)[0]
    for name in ("objective", "bound", "complementarity", "n_active", "n_coinciding"):
        assert getattr(proved, name) == pytest.approx(getattr(known, name), rel=1e-9), name
    np.testing.assert_allclose(proved.ratios[0], known.ratios[0], rtol=1e-7, atol=1e-8)


# -- the optimum ---


def svec(A):
    """The upper triangles of symmetric matrices (m, d, d) by columns, off the diagonal times √2, so
    that ⟨A, B⟩ = svec(A)·svec(B)."""
    columns, rows = np.tril_indices(A.shape[-1])
    return A[..., rows, columns] * np.where(rows == columns, 1.0, np.sqrt(2))


def by_clarabel(several):
    """min Σ_c ⟨P_c, M_c⟩ + μ Σ vξ over M_c ⪰ 0, ξ ≥ 0, ξ_t ≥ 1 + ⟨C_ij, M_c(j)⟩ − ⟨C_il, M_c(l)⟩.

    Clarabel wants b − A x in a cone, here for x = (svec M_1, svec M_2, …, ξ).
    """
    edge, impostor = several.triplets.T
    m, d, n_metrics = len(edge), several.X.shape[1], several.n_metrics

    def products(tails):
        """⟨C, M⟩ of each triplet as a matrix on all svec M."""
        difference = several.differences(several.heads[edge], tails)
        outer = svec(difference[:, :, None] * difference[:, None, :])
        mine = several.metric_of[tails] == np.arange(n_metrics)[:, None]
        return np.hstack([rows[:, None] * outer for rows in mine])

    slack = sparse.csc_matrix(products(several.tails[edge]) - products(impostor))
    eye, size = sparse.eye(m), slack.shape[1]
    constraints = sparse.bmat([[slack, -eye], [None, -eye], [-sparse.eye(size), None]], "csc")
    constants = np.concatenate([-np.ones(m), np.zeros(m + size)])
    cost = np.concatenate([svec(several.P).ravel(), several.push_weight * several.v])
    cones = [clarabel.NonnegativeConeT(2 * m)]
    cones += [clarabel.PSDTriangleConeT(d) for _ in range(n_metrics)]
    solution = solve_conic(cost, constraints, constants, cones)
    triangles = np.array(solution.x[:size]).reshape(n_metrics, -1)
    columns, rows = np.tril_indices(d)
    M = np.zeros((n_metrics, d, d))
    M[:, rows, columns] = triangles / np.where(rows == columns, 1.0, np.sqrt(2))
    return solution.obj_val, M + np.triu(M, 1).transpose(0, 2, 1)


@pytest.mark.parametrize(
    ("partition", "weighted", "push_weight"),
    [
        ("class", False, 0.2),
        ("class", True, 0.9),
        ("clusters", False, 0.9),
        ("clusters", True, 0.2),
    ],
)
def test_the_optimum_is_that_of_a_semidefinite_solver(
    partition, weighted, push_weight, iris, make_case, build, rng
):
    """Every fifth point of iris. Their metrics are feasible and have the objective that they
    report; ours agrees with it on both paths, and theirs, being attained, is above our bound."""
    X, y = iris
    X, y = X[::5], y[::5]
    metric_of = y if partition == "class" else np.arange(len(y)) % 2
    case, masses = make_case(X, np.bincount(y), push_weight), rng.uniform(0.5, 2, len(y))
    case = replace(case, masses=masses / masses.mean()) if weighted else case
    several = several_of(case, metric_of)
    theirs, M = by_clarabel(several)
    assert np.linalg.eigvalsh(M).min() > -1e-7
    assert several.objective(M) == pytest.approx(theirs, rel=1e-6)
    single = build(several)
    components = single.components(single.first_guess())
    for start in (single, single.in_geometry_of(single.first_guess())):
        problem = MultiMetricProblem.of(start, metric_of, several.n_metrics, whiten=start is single)
        solution = run(
            proximal_factor_descent(problem, problem.factor(components), TOL),
            tol=TOL,
            max_iter=3000,
        )
        assert solution.status is Status.CONVERGED
        certificate = solution.iterate.certificate
        C = problem.components(solution.iterate.point)
        assert several.objective(grams(C)) == pytest.approx(certificate.objective, rel=1e-10)
        assert certificate.objective == pytest.approx(theirs, rel=2 * TOL)
        assert certificate.bound <= theirs * (1 + 1e-7)
        assert certificate.gap <= TOL
