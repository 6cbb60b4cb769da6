"""MMC: every formula against plain loops, finite differences and an independent convex solver."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pytest
from scipy import linalg, optimize

from nearfar.errors import InvalidInputError
from nearfar.kernels import kernels_for
from nearfar.problems import mmc
from nearfar.problems.mmc import DiagonalMMCProblem, MMCProblem
from nearfar.solvers import Status, run
from nearfar.solvers.quasi_newton import ascend
from nearfar.supervision import Pairs, class_order
from nearfar.supervision.pairs import pairs_of_labels
from tests.conic import solve_conic

KINDS = {"full": MMCProblem, "diagonal": DiagonalMMCProblem}
TOL = 1e-7  # so that the proved gap is small against the agreement that is asked, 1e-5


@dataclass(frozen=True)
class Case:
    """Pairs with the sums of the paper, pair by pair; for a floor see test_kept_distance.py."""

    X: np.ndarray
    pairs: Pairs
    shrinkage: float = 0.0

    def differences(self, near):
        chosen = self.pairs.near == near
        return self.X[self.pairs.heads[chosen]] - self.X[self.pairs.tails[chosen]]

    @cached_property
    def S(self):
        total = np.zeros((self.X.shape[1],) * 2)
        for x in self.differences(True):
            total += np.outer(x, x)
        d = len(total)
        rho = self.shrinkage
        return (1 - rho) * total + rho * np.trace(total) / d * np.eye(d)

    def objective(self, A):
        return sum(np.sqrt(x @ A @ x) for x in self.differences(False))

    def build(self, kind, points=None):
        pairs = self.pairs if points is None else replace(self.pairs, points=points)
        kernels = kernels_for(pairs.points)
        centre = kernels.double(pairs.points).mean(0)
        return KINDS[kind].build(pairs, centre, self.shrinkage, floored=False)


def drawn_pairs(X, rng, n_near, n_far):
    heads, tails = rng.integers(0, len(X), (2, n_near + n_far))
    tails = np.where(heads == tails, (tails + 1) % len(X), tails)
    return Pairs(X, heads, tails, np.arange(len(heads)) < n_near)


def matrix(kind, components):
    """A of a map, on the host."""
    A = components.T @ components
    assert kind == "full" or np.array_equal(A, np.diag(np.diag(A)))
    return A


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(params=[0.0, 0.3], ids=lambda value: f"ridge{value}")
def case(rng, request):
    """30 near and 25 far pairs of 20 points in five features of very different units."""
    X = rng.normal(size=(20, 5)) @ rng.normal(size=(5, 5)) * [1.0, 30.0, 0.1, 2.0, 1.0] + 50.0
    return Case(X, drawn_pairs(X, rng, 30, 25), request.param)


@pytest.fixture
def problem(case, kind):
    return case.build(kind)


@pytest.fixture
def factor(problem, kind, rng):
    """Makes factors that are no optimum."""
    k = problem.U.shape[1]
    return lambda: rng.uniform(0.5, 1.5, k) if kind == "diagonal" else rng.normal(size=(3, k))


def far_images(case, problem, kind):
    """u = Rᵀx of every far pair, from the data."""
    x = case.differences(False)
    return x * problem.basis if kind == "diagonal" else x @ problem.basis


def f(L, u, kind):
    """½‖L‖² − Σ ‖Lu‖, one pair at a time."""
    images = [L * row if kind == "diagonal" else L @ row for row in u]
    return 0.5 * np.sum(L**2) - sum(np.linalg.norm(z) for z in images)


# -- coordinates -------------------------------------------------------------------------------


def test_near_pairs_are_whitened(case, problem, kind):
    """RᵀSR = I, or for features alone R² diag(S) = 1."""
    if kind == "diagonal":
        np.testing.assert_allclose(problem.basis**2 * np.diag(case.S), 1, rtol=1e-9)
    else:
        white = problem.basis.T @ case.S @ problem.basis
        np.testing.assert_allclose(white, np.eye(5), atol=1e-9)


def test_the_near_scatter_of_labels_needs_no_pairs(rng, kind):
    X, y = rng.normal(size=(24, 3)), np.repeat([0, 1, 2], [4, 11, 9])
    closed = pairs_of_labels(X, class_order(y, "test"), None, None, "test")
    assert closed.labels is not None
    bases = [Case(X, pairs).build(kind).basis for pairs in (closed, replace(closed, labels=None))]
    np.testing.assert_allclose(np.abs(bases[0]), np.abs(bases[1]), rtol=1e-8)


def test_directions_in_which_no_pair_differs_are_left_out(rng, kind):
    """A feature that is constant, and one that only points without a pair vary in."""
    X = rng.normal(size=(20, 4))
    X[:, 1], X[:15, 2] = 7.0, 0.0
    used = drawn_pairs(X[:15], rng, 30, 25)
    case = Case(X, replace(used, points=X))
    problem = case.build(kind)
    A = matrix(kind, problem.components(problem.start()))
    np.testing.assert_allclose(A[1:3], 0, atol=1e-12 * np.abs(A).max())
    assert np.sum(case.S * A) == pytest.approx(1)


def test_a_ridge_counts_what_lies_in_the_span_of_the_points(rng):
    """Beside a feature x also 3x: as long as √10 x alone, and the ridge is a share of trace / 3."""
    X = rng.normal(size=(20, 2))
    pairs = drawn_pairs(X, rng, 30, 25)
    doubled, scaled = np.column_stack([X, 3 * X[:, 0]]), X * [np.sqrt(10), 1]
    one = Case(doubled, replace(pairs, points=doubled), 3 / 13).build("full")  # ρ/(1 − ρ) = 0.3
    two = Case(scaled, replace(pairs, points=scaled), 1 / 6).build("full")  # and 0.2
    first, second = solved(one), solved(two)
    values = [  # S / (1 − ρ) is the same
        np.sqrt(10 / 13) * first.iterate.value,
        np.sqrt(5 / 6) * second.iterate.value,
    ]
    assert values[0] == pytest.approx(values[1], rel=1e-6)
    A = matrix("full", one.components(first.iterate.point))
    np.testing.assert_allclose(A[2], 3 * A[0], rtol=1e-6)


# -- objective, gradient and line --------------------------------------------------------------


def test_the_objective_is_the_papers(case, problem, kind, factor):
    """Of a factor of any scale: ⟨S, A⟩ = 1, and g(A) as a sum over far pairs."""
    for scale in (1.0, 1e-5, 1e5):
        L = scale * factor()
        certificate = problem.certify(L)
        A = matrix(kind, problem.components(L))
        S = np.diag(np.diag(case.S)) if kind == "diagonal" else case.S
        assert np.sum(S * A) == pytest.approx(1, rel=1e-9)
        assert certificate.objective == pytest.approx(case.objective(A), rel=1e-9)


def test_a_placement_has_the_best_scale(case, problem, kind, factor):
    """Σ ‖Lu‖ = ‖L‖² = g², and f = −g²/2 is below f of other multiples."""
    at = problem.place(factor())
    u = far_images(case, problem, kind)
    g = problem.bound(at).objective
    assert f(at.L, u, kind) == pytest.approx(-0.5 * g**2, rel=1e-9)
    assert at.lengths.sum() == pytest.approx(np.sum(at.L**2), rel=1e-9)
    assert min(f(0.99 * at.L, u, kind), f(1.01 * at.L, u, kind)) > f(at.L, u, kind)


def test_the_gradient_is_that_of_finite_differences(case, problem, kind, factor):
    at = problem.place(factor())
    u, step = far_images(case, problem, kind), 1e-5 * np.linalg.norm(at.L)
    numeric = np.zeros_like(at.L)
    for entry in np.ndindex(at.L.shape):
        change = np.zeros_like(at.L)
        change[entry] = step
        numeric[entry] = (f(at.L + change, u, kind) - f(at.L - change, u, kind)) / (2 * step)
    size = np.linalg.norm(at.L)
    np.testing.assert_allclose(problem.gradient(at), numeric, atol=1e-8 * size)


def test_a_line_is_the_objective_along_it(case, problem, kind, factor):
    at, direction = problem.place(factor()), factor()
    direction *= np.linalg.norm(at.L) / np.linalg.norm(direction)
    line, u = problem.line(at, direction), far_images(case, problem, kind)

    def along(t):
        return f(at.L + t * direction, u, kind)

    for t in (0.0, 0.4, 2.0):
        value, slope, curvature = line.at(t)
        assert value == pytest.approx(along(t), rel=1e-9)
        h = 1e-4
        ahead, behind = along(t + h), along(t - h)
        assert slope == pytest.approx((ahead - behind) / (2 * h), rel=1e-4, abs=1e-4 * abs(value))
        bend = (ahead - 2 * along(t) + behind) / h**2
        assert curvature == pytest.approx(bend, rel=1e-2, abs=1e-2 * abs(value))


def test_differences_and_edges_give_the_same(case, problem, kind, factor, monkeypatch):
    """Also for points so many that their differences are not held."""
    monkeypatch.setattr(mmc, "DIFFERENCE_ENTRIES", 0)
    by_edges = case.build(kind)
    assert problem.edges is None
    assert by_edges.edges is not None
    L, direction = factor(), factor()
    here, there = problem.place(L), by_edges.place(L)
    np.testing.assert_allclose(here.lengths, there.lengths, rtol=1e-9)
    np.testing.assert_allclose(here.W, there.W, rtol=1e-9, atol=1e-9 * np.abs(here.W).max())
    np.testing.assert_allclose(
        problem.line(here, direction).at(0.7), by_edges.line(there, direction).at(0.7), rtol=1e-9
    )
    for share in (mmc.SHORT, 1.0):  # of no far pair, and of about half of them
        monkeypatch.setattr(mmc, "SHORT", share)
        assert problem.certify(L).bound == pytest.approx(by_edges.certify(L).bound, rel=1e-9)


def test_devices_and_single_precision_agree(case, kind, backend, dtype, rng):
    """In float32 the points are those of float32, and the certificate is computed in float64."""
    points = case.X.astype(dtype)
    here = Case(points.astype(np.float64), case.pairs, case.shrinkage)
    reference = here.build(kind, here.X)
    problem = here.build(kind, backend.asarray(points))
    x, C = here.differences(False), np.diag(rng.uniform(0.5, 1.5, 5) / points.std(axis=0))

    def slopes(problem):
        """What the gradient at the metric of C does to far pairs, in any whitened coordinates."""
        if kind == "diagonal":
            L = np.diag(C) / problem.basis
            return problem.certify(L).bound, x * problem.basis * problem.gradient(problem.place(L))
        L = C @ linalg.inv(problem.basis).T
        return problem.certify(L).bound, x @ problem.basis @ problem.gradient(problem.place(L)).T

    (bound, found), (expected_bound, expected) = slopes(problem), slopes(reference)
    loose = 1e-4 if dtype == np.float32 else 1e-9
    np.testing.assert_allclose(found, expected, atol=loose * np.abs(expected).max())
    assert bound == pytest.approx(expected_bound, rel=1e-9)


# -- what is proved ----------------------------------------------------------------------------


def test_the_bound_is_that_of_weights_and_above_every_objective(case, problem, kind, factor, rng):
    """(3) with the better of w = c/‖Lu‖ and w = c/max(‖Lu‖, s), s a small share of the mean, and
    the best c, is the certificate's bound; and (3) holds. One far pair is made so short that the
    second is the better one."""
    L, u = factor(), far_images(case, problem, kind)
    if kind == "full":
        u[0] = 1e-3 * u[0] @ np.linalg.pinv(L) @ L + 3 * linalg.null_space(L)[:, 0]
    problem = replace(problem, U=u, edges=None, exact=lambda: u)
    lengths = np.linalg.norm(u * L if kind == "diagonal" else u @ L.T, axis=1)
    held = np.maximum(lengths, mmc.SHORT * lengths.mean())

    def bound(w):
        moment = np.einsum("i,ij,ik->jk", w, u, u)
        top = np.diag(moment).max() if kind == "diagonal" else np.linalg.eigvalsh(moment)[-1]
        return np.sum(1 / (4 * w)) + top

    plain, better = (
        optimize.minimize_scalar(lambda log, of=of: bound(np.exp(log) / of)).fun
        for of in (lengths, held)
    )
    certificate = problem.certify(L)
    assert certificate.bound == pytest.approx(min(plain, better), rel=1e-6)
    assert kind == "diagonal" or better < 0.9 * plain
    assert certificate.gap == pytest.approx(certificate.bound / certificate.objective - 1)
    for _ in range(20):
        attained = problem.certify(factor()).objective
        assert attained <= certificate.bound
        assert attained <= bound(rng.uniform(0.1, 2.0, len(u)))


def test_far_pairs_of_no_length_spoil_nothing(rng, kind):
    """A start of one row orthogonal to some far pairs: the bound is finite and holds."""
    X = rng.normal(size=(20, 3))
    case = Case(X, drawn_pairs(X, rng, 30, 25))
    problem = case.build(kind)
    flat = np.array([1.0, 0.0, 0.0])
    u = far_images(case, problem, kind)
    u[:5] *= 1 - flat
    problem = replace(problem, U=u, edges=None, exact=lambda: u)
    L = flat if kind == "diagonal" else flat[None]
    at = problem.place(L)
    assert np.count_nonzero(at.lengths == 0) == 5
    optimum = solved(problem).iterate.certificate.objective
    assert np.isfinite(problem.gradient(at)).all()
    assert optimum <= problem.bound(at).bound < np.inf


# -- the optimum -------------------------------------------------------------------------------


def solved(problem, tol=TOL):
    return run(ascend(problem, problem.start(), tol), tol=tol, max_iter=500)


def by_clarabel(case, kind):
    """max Σ t over A and t with t² ≤ xᵀAx for each far pair, ⟨S, A⟩ ≤ 1, A ⪰ 0 or diagonal ≥ 0.

    t² ≤ q is ‖(2t, q − 1)‖ ≤ q + 1, a second-order cone. Clarabel wants b − G v in cones, here for
    v = (entries of A, t). A has its upper triangle by columns, off the diagonal times √2.
    """
    import clarabel

    d, x = case.X.shape[1], case.differences(False)
    columns, rows = np.tril_indices(d)
    if kind == "diagonal":
        columns = rows = np.arange(d)
    weight = np.where(rows == columns, 1.0, np.sqrt(2))
    forms = x[:, rows] * x[:, columns] * weight  # xᵀAx = forms · A
    m, size = forms.shape
    cone = np.zeros((3 * m, size + m))
    cone[0::3, :size] = cone[2::3, :size] = -forms
    cone[1::3, size:] = -2 * np.eye(m)
    trace = np.concatenate([case.S[rows, columns] * weight, np.zeros(m)])
    semidefinite = np.hstack([-np.eye(size), np.zeros((size, m))])
    G = np.vstack([trace, semidefinite, cone])
    b = np.concatenate([[1.0], np.zeros(size), np.tile([1.0, 0.0, -1.0], m)])
    definite = (
        clarabel.NonnegativeConeT(size) if kind == "diagonal" else clarabel.PSDTriangleConeT(d)
    )
    cones = [clarabel.NonnegativeConeT(1), definite, *[clarabel.SecondOrderConeT(3)] * m]
    solution = solve_conic(np.concatenate([np.zeros(size), -np.ones(m)]), G, b, cones)
    A = np.zeros((d, d))
    A[rows, columns] = np.array(solution.x[:size]) / weight
    return -solution.obj_val, A + np.triu(A, 1).T


@pytest.fixture(params=["iris", "wine", "random"])
def small(request, rng):
    """Few far pairs, a scatter of near pairs that is well conditioned, and A of several ranks."""
    if request.param == "random":
        X = rng.normal(size=(40, 4))
        return Case(X, drawn_pairs(X, rng, 40, 30), 0.0)
    X, y = request.getfixturevalue(request.param)
    X = X[::5, [0, 1, 4, 9]] if X.shape[1] > 4 else X[::5]
    pairs = pairs_of_labels(
        X, class_order(y[::5], "test"), 60, np.random.RandomState(rng.integers(1 << 30)), "test"
    )
    return Case(X, pairs, 0.0)


def test_the_optimum_is_that_of_a_convex_solver(small, kind):
    """Their metric is feasible and has the objective that they report; ours agrees with it, and
    their objective, being attained, is below our bound."""
    theirs, A_theirs = by_clarabel(small, kind)
    assert np.linalg.eigvalsh(A_theirs)[0] > -1e-7
    assert np.sum(small.S * A_theirs) <= 1 + 1e-7
    definite = A_theirs + max(0, -np.linalg.eigvalsh(A_theirs)[0]) * np.eye(len(A_theirs))
    assert small.objective(definite) == pytest.approx(theirs, rel=1e-5)

    problem = small.build(kind)
    solution = solved(problem)
    assert solution.status is Status.CONVERGED
    certificate = solution.iterate.certificate
    A = matrix(kind, problem.components(solution.iterate.point))
    assert small.objective(A) == pytest.approx(certificate.objective, rel=1e-9)
    assert certificate.objective == pytest.approx(theirs, rel=1e-5)
    assert certificate.bound >= theirs * (1 - 1e-6)
    assert certificate.gap <= TOL


def test_the_diagonal_problem_of_the_paper_has_half_of_the_answer(small):
    """Its eq. for diagonal A is min Σ_near ‖x‖²_A − log Σ_far ‖x‖_A. Of a multiple s of A with
    ⟨S, A⟩ = 1 that is s − ½ log s − log g(A), least at s = ½ and for the largest g."""
    squares, s = small.differences(False) ** 2, np.diag(small.S)

    def paper(logs):
        a = np.exp(logs)
        return s @ a - np.log(np.sqrt(squares @ a).sum())

    start = -np.log(s)
    theirs = optimize.minimize(paper, start, method="L-BFGS-B", options={"maxiter": 2000})
    problem = small.build("diagonal")
    a = np.diag(matrix("diagonal", problem.components(solved(problem, 1e-10).iterate.point)))
    ours = s @ (a / 2) - np.log(np.sqrt(squares @ (a / 2)).sum())
    assert ours <= theirs.fun + 1e-9
    assert ours == pytest.approx(theirs.fun, abs=1e-4)


def test_one_far_pair_has_its_answer_in_closed_form(rng):
    """g² is the largest xᵀAx, which is xᵀS⁻¹x, for A = S⁻¹xxᵀS⁻¹ / xᵀS⁻¹x."""
    X = rng.normal(size=(12, 3))
    case = Case(X, drawn_pairs(X, rng, 15, 1))
    (x,) = case.differences(False)
    problem = case.build("full")
    solution = solved(problem, 1e-10)
    direction = linalg.solve(case.S, x)
    assert solution.iterate.certificate.objective == pytest.approx(np.sqrt(x @ direction))
    expected = np.outer(direction, direction) / (x @ direction)
    A = matrix("full", problem.components(solution.iterate.point))
    np.testing.assert_allclose(A, expected, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_units_do_not_matter(case, kind, scale):
    """The problem is the same in other units: the objective is, and A is that over scale²."""
    case = replace(case, shrinkage=0.0)
    other = Case(scale * case.X, replace(case.pairs, points=scale * case.X))
    one, two = case.build(kind), other.build(kind)
    first, second = solved(one), solved(two)
    assert first.iterate.value == pytest.approx(second.iterate.value, rel=1e-6)
    A, B = (matrix(kind, p.components(s.iterate.point)) for p, s in ((one, first), (two, second)))
    np.testing.assert_allclose(A, scale**2 * B, atol=1e-3 * np.abs(A).max())


# -- where there is no optimum -----------------------------------------------------------------


def test_far_pairs_that_differ_where_near_pairs_do_not_are_refused(rng, kind, backend):
    """Near pairs never differ in feature 1, and of four far pairs the first and the last do."""
    X = rng.normal(size=(12, 2))
    X[:, 1] = 3.0
    X[10:, 1] = 4.0
    heads, tails = np.array([0, 2, 4, 0, 1, 2, 3]), np.array([1, 3, 5, 10, 4, 6, 11])
    pairs = Pairs(backend.asarray(X), heads, tails, np.arange(7) < 3)
    with pytest.raises(InvalidInputError, match="2 of 4 far pairs differ where no near") as caught:
        KINDS[kind].build(pairs, kernels_for(pairs.points).double(pairs.points).mean(0))
    np.testing.assert_array_equal(caught.value.indices, [0, 3])
    assert KINDS[kind].build(pairs, pairs.points[0], 0.01).U.shape[1] == 2


def test_fewer_near_pairs_than_features_are_refused(rng):
    X = rng.normal(size=(20, 6))
    pairs = drawn_pairs(X, rng, 5, 10)
    with pytest.raises(InvalidInputError, match=r"sklearn.decomposition.PCA first, or set shrink"):
        MMCProblem.build(pairs, X[0])
    assert DiagonalMMCProblem.build(pairs, X[0]).U.shape == (10, 6)


# -- where to start ----------------------------------------------------------------------------


def test_given_components_are_the_start(case, problem, kind, rng):
    """Their metric, but for a ten-thousandth in all directions."""
    C = np.diag(rng.uniform(1, 2, 5)) if kind == "diagonal" else rng.normal(size=(5, 5))
    A = matrix(kind, problem.components(problem.start(None, C)))
    S = np.diag(np.diag(case.S)) if kind == "diagonal" else case.S
    wanted = C.T @ C / np.sum(S * (C.T @ C))
    opened = wanted + 1e-4 / 5 * (np.diag(1 / np.diag(S)) if kind == "diagonal" else linalg.inv(S))
    np.testing.assert_allclose(A, opened / np.sum(S * opened), rtol=1e-6, atol=1e-9 * A.max())


def test_few_rows_start_from_those_that_are_given(case, rng):
    problem, C = case.build("full"), rng.normal(size=(2, 5))
    found = problem.components(problem.start(2, C))
    np.testing.assert_allclose(found / np.linalg.norm(found), C / np.linalg.norm(C), rtol=1e-6)


def test_few_rows_start_near_the_leading_directions_of_the_optimum(small):
    """Their span holds almost as much of the optimal B as that of its own leading directions."""
    problem = small.build("full")
    optimum = solved(problem).iterate.point
    B = optimum.T @ optimum / np.sum(optimum**2)
    for rows in (1, 2):
        L = problem.start(rows)
        np.testing.assert_allclose(L @ L.T, np.eye(rows), atol=1e-9)
        best = np.linalg.eigvalsh(B)[-rows:].sum()
        assert np.trace(L @ B @ L.T) > 0.95 * best


def test_a_start_that_parts_no_far_pair_is_refused(rng, kind):
    X = rng.normal(size=(20, 3))
    X[:, 2] = 1.0
    problem = Case(X, drawn_pairs(X, rng, 30, 25)).build(kind)
    with pytest.raises(InvalidInputError, match="must separate some far pair; it maps each pair"):
        problem.start(None, np.array([[0.0, 0.0, 2.0]]))
