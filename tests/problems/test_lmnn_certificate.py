"""What LMNN proves, recomputed from the original data as dense sums over all triplets."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import linalg

from nearfar.problems import lmnn

WIDTH = 0.3
EVERYTHING = 1e6


@pytest.fixture
def problem(case, build, backend):
    return build(case, backend)


@pytest.fixture
def certified(case, problem, factor):
    """A factor on the features, its certificate, and α of all triplets as it was used."""
    L = problem.factor(factor(4))
    at = problem.place(L, problem.search(L, 0.1, WIDTH))
    at = problem.advance_multipliers(at, 0.5 * WIDTH)
    L = L + 0.1 * problem.factor(factor(4))
    certificate, triplets = problem.certify(L, at.triplets)
    alpha = problem.kernels.to_host(problem.place(L, triplets).alpha)
    return problem.components(L), certificate, case.spread(triplets, alpha)


def scale_of(case, alpha):
    """The largest θ ≤ 1 with P − θS ⪰ 0: 1 over the largest eigenvalue of S against P, if > 1."""
    return 1 / max(1.0, linalg.eigh(case.S(alpha), case.P, eigvals_only=True)[-1])


def test_the_bound_is_that_of_the_scaled_multipliers(case, certified):
    """μθΣvα with the largest θ that keeps P − θS ⪰ 0, all summed from the original features."""
    _, certificate, alpha = certified
    assert (alpha >= 0).all()
    assert (alpha <= 1).all()
    theta = scale_of(case, alpha)
    assert theta < 1, "the scaling is not tested"
    assert certificate.bound == pytest.approx(case.push_weight * theta * (case.v @ alpha), rel=1e-9)
    assert smallest_eigenvalue(case, theta, alpha) == pytest.approx(0, abs=1e-9)
    assert smallest_eigenvalue(case, 1.01 * theta, alpha) < -1e-4


def test_the_laplacian_may_be_made_for_some_columns_at_a_time(problem, factor, monkeypatch):
    L = problem.factor(factor(4))
    whole, triplets = problem.certify(L, problem.search(L, 0.1, WIDTH))
    monkeypatch.setattr(lmnn, "LAPLACIAN_BYTES", 100)
    parts, _ = problem.certify(L, triplets)
    assert parts.bound == pytest.approx(whole.bound, rel=1e-9)
    assert parts.gap == pytest.approx(whole.gap, rel=1e-9)


def smallest_eigenvalue(case, theta, alpha):
    """Of P − θS against P, which does not depend on the units of the features."""
    return linalg.eigh(case.P - theta * case.S(alpha), case.P, eigvals_only=True)[0]


def test_the_gap_is_its_formula(case, certified):
    """f(M) − μΣvα = ⟨P − S, M⟩ + μΣv([s]₊ − αs), and the gap is relative to f or to one margin."""
    C, certificate, alpha = certified
    M = C.T @ C
    slack = case.slacks(C)
    complementarity = case.push_weight * (case.v @ (np.maximum(slack, 0) - alpha * slack))
    assert certificate.complementarity == pytest.approx(complementarity, rel=1e-9)
    objective = case.objective(M)
    assert certificate.objective == pytest.approx(objective, rel=1e-11)
    product = np.vdot(case.P - case.S(alpha), M)
    dual = case.push_weight * (case.v @ alpha)
    assert objective - dual == pytest.approx(product + complementarity, rel=1e-9)
    gap = (objective - certificate.bound) / max(objective, 1)
    assert certificate.gap == pytest.approx(gap, rel=1e-9)


def test_a_gap_of_a_small_objective_is_relative_to_one_margin(certified):
    _, certificate, _ = certified
    assert replace(certificate, objective=0.5, bound=0.2).gap == pytest.approx(0.3)
    assert replace(certificate, objective=5.0, bound=2.0).gap == pytest.approx(0.6)


def test_the_bound_is_below_every_objective(case, certified, rng):
    """Weak duality, at metrics of all ranks and scales."""
    _, certificate, _ = certified
    for rank in (1, 2, 4):
        for scale in (0.0, 0.03, 0.1, 0.3, 1.0, 3.0):
            C = scale * rng.normal(size=(rank, 4)) / case.X.std(axis=0)
            assert certificate.bound <= case.objective(C.T @ C)


def test_ratios_and_directions_show_where_the_dual_is_not_feasible(case, problem, certified):
    """S b = λ P b with bᵀPb = 1, descending; in the features b is B⁻ᵀ b, so λ is the same."""
    _, certificate, alpha = certified
    ratios = linalg.eigh(case.S(alpha), case.P, eigvals_only=True)[::-1]
    np.testing.assert_allclose(certificate.ratios[0], ratios, rtol=1e-8, atol=1e-9)
    directions = problem.basis @ certificate.directions[0]  # (features, ·)
    np.testing.assert_allclose(
        directions.T @ case.S(alpha) @ directions, np.diag(ratios), atol=1e-7
    )
    np.testing.assert_allclose(directions.T @ case.P @ directions, np.eye(4), atol=1e-8)


def test_the_guide_is_the_certificate_when_all_triplets_are_at_hand(problem, factor):
    L = problem.factor(factor(4))
    triplets = problem.search(L, EVERYTHING, WIDTH)
    guide, proof = problem.bound(problem.place(L, triplets))[0], problem.certify(L, triplets)[0]
    for name in ("objective", "bound", "complementarity", "gap"):
        assert getattr(guide, name) == pytest.approx(getattr(proof, name), rel=1e-9)


def test_the_best_mean_of_dual_points_proves_as_much_as_each(case, problem, factor):
    """Any mean of dual points is one. Its bound is summed from the original features, too."""
    first, second = (problem.factor(factor(4)) for _ in range(2))
    triplets = problem.search(first, EVERYTHING, WIDTH)
    alone = [problem.bound(problem.place(L, triplets))[0] for L in (first, second)]
    at = problem.place(second, problem.bound(problem.place(first, triplets))[1].triplets)
    both, _ = problem.bound(at)
    proved, found = problem.certify(second, at.triplets)
    assert both.bound >= (1 - 1e-12) * max(each.bound for each in alone)  # but for rounding
    assert proved.bound >= (1 - 1e-9) * both.bound
    assert proved.ratios[0] == pytest.approx(alone[1].ratios[0]), "those of α at the placement"
    dual = case.spread(found, problem.kernels.to_host(proved.dual))
    assert proved.bound == pytest.approx(case.push_weight * (case.v @ dual), rel=1e-9)
    assert smallest_eigenvalue(case, 1.0, dual) >= -1e-9


def test_a_certificate_needs_no_complete_working_set(problem, factor):
    """With none of the triplets at hand, the full search finds them all again."""
    L = problem.factor(factor(4))
    complete = problem.search(L, 0.0, WIDTH)
    empty = problem.with_multipliers(problem.multipliers(complete), WIDTH)
    assert len(empty) == 0
    expected = problem.certify(L, complete)[0]
    got = problem.certify(L, empty)[0]
    assert (got.objective, got.bound) == pytest.approx((expected.objective, expected.bound))


@pytest.mark.parametrize("push_weight", [0.3], indirect=True)
def test_float32_is_certified_from_the_data_in_float64(case, build, backend, factor):
    """The objective of the rounded data, to more digits than float32 has."""
    single = replace(case, X=case.X.astype(np.float32))
    problem = build(single, backend)
    assert backend.to_numpy(problem.U).dtype == np.float32
    C = factor(4)
    L = problem.factor(C)
    certificate, triplets = problem.certify(L, problem.search(L, 0.1, WIDTH))
    assert certificate.objective == pytest.approx(single.objective(C.T @ C), rel=1e-11)
    alpha = np.clip(single.slacks(C) / WIDTH, 0, 1)
    expected = scale_of(single, alpha) * case.push_weight * (case.v @ alpha)
    assert certificate.bound == pytest.approx(expected, rel=1e-9)
    assert backend.to_numpy(triplets.prox).dtype == np.float64


def test_directions_in_which_targets_coincide_prove_nothing(points, make_case, build, rng):
    """Feature 3 is the class number, so that targets do not differ in it: P is singular, M may grow
    along it at no cost, and no multiplier of a pair that differs along it is feasible. Classes 0
    and 3 share their number, so that some multipliers count."""
    X, sizes = points
    X = X.copy()
    X[:, 3] = np.repeat([0.0, 1.0, 2.0, 0.0], sizes)
    case = make_case(X, sizes, 0.3)
    problem = build(case)
    L = problem.factor(0.3 * np.eye(4) / X.std(axis=0))
    certificate, triplets = problem.certify(L, problem.search(L, 0.1, WIDTH))
    alpha = case.spread(triplets, problem.place(L, triplets).alpha)
    edge, impostor = case.triplets.T
    alpha[X[case.heads[edge], 3] != X[impostor, 3]] = 0
    P, S = case.P[:3, :3], case.S(alpha)[:3, :3]
    theta = 1 / max(1.0, linalg.eigh(S, P, eigvals_only=True)[-1])
    assert certificate.bound > 0
    assert certificate.bound == pytest.approx(0.3 * theta * alpha.sum(), rel=1e-7)
    for scale in (0.0, 0.1, 1.0):
        C = np.diag([*scale * rng.uniform(size=3) / X.std(axis=0)[:3], 100.0])
        assert certificate.bound <= case.objective(C)


def test_coinciding_points_of_different_classes_are_counted(points, make_case, build):
    X, sizes = points
    case = make_case(X, sizes, 0.3)
    X = X.copy()
    X[0] = X[8]
    twin = replace(case, X=X)
    for data, found in ((case, False), (twin, True)):
        problem = build(data)
        L = problem.factor(np.eye(4))
        assert (problem.certify(L, problem.search(L, 0.1, WIDTH))[0].n_coinciding > 0) == found


@pytest.mark.parametrize("active", [0, 1, 4])
def test_few_active_triplets_push_as_in_sums_over_all_points(problem, factor, active):
    """S(α) is summed over the points of active triplets alone where these are few."""
    kernels = problem.kernels
    L = problem.factor(factor(4))
    triplets = problem.search(L, EVERYTHING, WIDTH)
    alpha = kernels.double(triplets.edge) * 0
    alpha[:active] = 0.7
    heads, tails, weights = problem._links(triplets, alpha)
    nodes = {int(end[at]) for end in (heads, tails) for at in kernels.flatnonzero(weights != 0)}
    assert 2 * len(nodes) <= len(problem.U)
    (found,) = problem._pushes(triplets, alpha, problem.U)
    whole = -kernels.gram(problem.U, problem._laplacian(triplets, alpha, problem.U))
    np.testing.assert_allclose(found, whole, rtol=1e-12, atol=1e-12 * np.abs(whole).max())
