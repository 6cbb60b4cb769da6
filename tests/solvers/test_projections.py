"""Projections by their definition, and the two algorithms against known answers and Clarabel."""

from itertools import islice

import clarabel
import numpy as np
import pytest

from nearfar.errors import InvalidInputError
from nearfar.solvers import Status, run
from nearfar.solvers.projections import (
    alternating_projection,
    gradient_alternating_projection,
    onto_half_space,
    onto_hyperplane,
    onto_psd_cone,
    onto_psd_cone_less,
)
from tests.conic import solve_conic


def symmetric(rng, d):
    A = rng.normal(size=(d, d))
    return A + A.T


# -- the projections ---


def half_space(rng):
    W, c = symmetric(rng, 4), -3.0
    return onto_half_space(W, c), lambda Q: Q - max(0, np.vdot(W, Q) + 4.0) / np.vdot(W, W) * W


def hyperplane(rng):
    W, c = symmetric(rng, 4), 0.7
    return onto_hyperplane(W, c), lambda Q: Q - (np.vdot(W, Q) - c) / np.vdot(W, W) * W


def cone(rng):  # noqa: ARG001 - the other sets are random
    return onto_psd_cone, lambda Q: Q @ Q.T


@pytest.mark.parametrize("make", [half_space, hyperplane, cone])
def test_no_point_of_the_set_is_nearer(make, rng):
    """Π is the projection of P exactly if Π is in the set and ⟨P − Π, Q − Π⟩ ≤ 0 for all its Q."""
    project, inside = make(rng)
    moved = 0
    for _ in range(20):
        P = symmetric(rng, 4)
        nearest = project(P)
        np.testing.assert_allclose(project(nearest), nearest, atol=1e-12)
        moved += np.linalg.norm(P - nearest) > 1e-3
        for _ in range(20):
            Q = inside(symmetric(rng, 4))
            np.testing.assert_allclose(project(Q), Q, atol=1e-10)
            assert np.vdot(P - nearest, Q - nearest) <= 1e-9
    assert moved > 5


def test_half_space_and_hyperplane_by_hand():
    """From (3, 4) to x + y ≤ 1 along (1, 1): 6 too much, over ‖W‖² = 2, is 3 off both."""
    W, P = np.array([1.0, 1.0]), np.array([3.0, 4.0])
    np.testing.assert_allclose(onto_half_space(W, 1.0)(P), [0, 1])
    np.testing.assert_allclose(onto_hyperplane(W, 1.0)(P), [0, 1])
    np.testing.assert_array_equal(onto_half_space(W, 9.0)(P), P)
    np.testing.assert_allclose(onto_hyperplane(W, 9.0)(P), [4, 5])
    np.testing.assert_array_equal(P, [3, 4])


@pytest.mark.parametrize("onto", [onto_half_space, onto_hyperplane])
def test_a_normal_vector_of_zeros_is_an_error(onto):
    with pytest.raises(InvalidInputError, match="needs a normal vector W with an entry other than"):
        onto(np.zeros((2, 2)), 1.0)


@pytest.mark.parametrize("rank", [0, 2, 5], ids=lambda rank: f"rank{rank}")
@pytest.mark.parametrize("weight", [1e-3, 0.1, 10.0])
def test_the_cone_after_a_downdate_is_the_cone(rank, weight, rng):
    """Whether one eigenvalue is negative, as for large weights, or none, as for 1e-3 at rank 5."""
    A = rng.normal(size=(5, rank))
    M, x = A @ A.T, rng.normal(size=5)
    found = onto_psd_cone_less(np.asfortranarray(M.copy()), weight, x)
    expected = onto_psd_cone(M - weight * np.outer(x, x))
    np.testing.assert_allclose(np.tril(found), np.tril(expected), atol=1e-12)


def test_the_cone_after_a_downdate_reads_the_lower_triangle_and_works_in_place(rng):
    A, x = rng.normal(size=(4, 4)), rng.normal(size=4)
    M = np.asfortranarray(A @ A.T)
    expected = np.tril(onto_psd_cone(M - 0.3 * np.outer(x, x)))
    M[np.triu_indices(4, 1)] = 17.0
    found = onto_psd_cone_less(M, 0.3, x)
    np.testing.assert_allclose(np.tril(found), expected, atol=1e-12)
    assert found is M or np.shares_memory(found, M)
    assert (M[np.triu_indices(4, 1)] == 17.0).all()


# -- algorithm 1 ---


def test_two_lines_are_approached_by_the_square_of_the_cosine():
    """From a point of the second line at distance r of the crossing, a round leads to r cos²θ."""
    theta = 0.4
    lines = [np.array([0.0, 1.0]), np.array([np.sin(theta), -np.cos(theta)])]  # their normals
    start = 5 * np.array([np.cos(theta), np.sin(theta)])
    iterates = alternating_projection(start, [onto_hyperplane(W, 0.0) for W in lines])
    distances = [np.linalg.norm(iterate.point) for iterate in islice(iterates, 5)]
    np.testing.assert_allclose(distances, 5 * np.cos(theta) ** (2 * np.arange(1, 6)))


@pytest.fixture
def feasible(rng):
    """Twelve half-spaces and two hyperplanes that hold the same matrix A ⪰ 0, and A."""
    A = rng.normal(size=(4, 4))
    A = A @ A.T
    normals = [symmetric(rng, 4) for _ in range(14)]
    sets = [onto_half_space(W, np.vdot(W, A) + 0.1) for W in normals[:12]]
    sets += [onto_hyperplane(W, np.vdot(W, A)) for W in normals[12:]]
    return [*sets, onto_psd_cone], A


def test_a_point_of_all_sets_is_found(feasible, rng):
    sets, _ = feasible
    iterates = alternating_projection(10 * symmetric(rng, 4), sets)
    solution = run(iterates, tol=1e-9, max_iter=20000)
    assert solution.status is Status.CONVERGED
    point = solution.iterate.point
    for project in sets:
        assert np.linalg.norm(project(point) - point) <= 1e-6
    assert solution.iterate.value <= 1e-6


def test_every_round_comes_nearer_to_every_common_point(feasible, rng):
    """Lemma 6: the squared distance falls by at least that of each projection."""
    sets, A = feasible
    point = 10 * symmetric(rng, 4)
    for iterate in islice(alternating_projection(point, sets), 30):
        before, after = (np.linalg.norm(end - A) ** 2 for end in (point, iterate.point))
        assert after <= before - iterate.value**2 + 1e-9
        assert iterate.residual == pytest.approx(np.linalg.norm(iterate.point - point))
        point = iterate.point


def test_sets_that_do_not_meet_leave_a_distance():
    """x ≤ 0 and x ≥ 3 in turns: the point comes to rest, three away from the first set."""
    W = np.array([1.0])
    sets = [onto_half_space(W, 0.0), onto_half_space(-W, -3.0)]
    solution = run(alternating_projection(np.array([5.0]), sets), tol=0, max_iter=100)
    assert solution.status is Status.CONVERGED
    assert solution.iterate.point == pytest.approx([3.0])
    assert solution.iterate.value == pytest.approx(3.0)


# -- algorithm 2 ---


def by_clarabel(C, quadratic, equal, below):
    """min ½ quadratic ‖M‖² + ⟨C, M⟩ over M ⪰ 0, ⟨W, M⟩ = c for equal and ≤ c for below.

    Clarabel wants b − A x in a cone, here for x = (M with off-diagonal entries times √2), which
    keeps inner products.
    """
    d = len(C)
    columns, rows = np.tril_indices(d)
    scale = np.where(rows == columns, 1.0, np.sqrt(2))

    def vector(W):
        return W[rows, columns] * scale

    size = len(scale)
    A = np.vstack([*(vector(W) for W, _ in [*equal, *below]), -np.eye(size)])
    constants = np.concatenate([[c for _, c in [*equal, *below]], np.zeros(size)])
    cones = [
        clarabel.ZeroConeT(len(equal)),
        clarabel.NonnegativeConeT(len(below)),
        clarabel.PSDTriangleConeT(d),
    ]
    solution = solve_conic(vector(C), A, constants, cones, quadratic * np.eye(size))
    M = np.zeros((d, d))
    M[rows, columns] = np.array(solution.x) / scale
    return solution.obj_val, M + np.triu(M, 1).T


def unit(d, i, j):
    W = np.zeros((d, d))
    W[i, j] = W[j, i] = 0.5
    return W


@pytest.fixture
def program(rng):
    """A random cost on 4 x 4 matrices of trace 2 with M₀₁ ≤ 0.1 and M₁₂ ≤ −0.2."""
    equal = [(np.eye(4), 2.0)]
    below = [(unit(4, 0, 1), 0.1), (unit(4, 1, 2), -0.2)]
    projections = [onto_hyperplane(*equal[0]), *(onto_half_space(*pair) for pair in below)]
    return symmetric(rng, 4), equal, below, [*projections, onto_psd_cone]


@pytest.mark.parametrize("quadratic", [0.0, 1.0], ids=["linear", "quadratic"])
def test_falling_steps_lead_to_the_optimum_of_a_semidefinite_program(quadratic, program):
    C, equal, below, projections = program
    optimum, M = by_clarabel(C, quadratic, equal, below)

    def value_and_gradient(P):
        return quadratic / 2 * np.vdot(P, P) + np.vdot(C, P), quadratic * P + C

    iterates = gradient_alternating_projection(
        np.zeros((4, 4)), projections, value_and_gradient, lambda t: 1 / t
    )
    early, late = islice(iterates, 499, 4000, 3500)
    for project in projections:
        assert np.linalg.norm(project(late.point) - late.point) <= 5e-3
    assert late.value == pytest.approx(optimum, rel=1e-2)
    assert late.value == pytest.approx(value_and_gradient(late.point)[0])
    assert late.info["distance"] < early.info["distance"] / 5  # like the steps, which are 8 times
    if quadratic:  # strongly convex: the optimum is one point
        np.testing.assert_allclose(late.point, M, atol=2e-2)


def test_smaller_constant_steps_end_nearer_to_the_optimum(program):
    C, equal, below, projections = program
    optimum, _ = by_clarabel(C, 1.0, equal, below)
    errors = []
    for step in (0.02, 0.002):
        iterates = gradient_alternating_projection(
            np.zeros((4, 4)),
            projections,
            lambda P: (np.vdot(P, P) / 2 + np.vdot(C, P), P + C),
            lambda t, step=step: step,  # noqa: ARG005 - the same at every t
        )
        errors.append(abs(run(iterates, tol=1e-12, max_iter=5000).iterate.value - optimum))
    assert errors[1] < errors[0] / 2
    assert errors[0] > 1e-4


def test_without_a_gradient_the_second_algorithm_is_the_first(feasible, rng):
    sets, _ = feasible
    start = symmetric(rng, 4)
    plain = alternating_projection(start, sets)
    zero = gradient_alternating_projection(start, sets, lambda P: (7.0, 0 * P), lambda t: 1 / t)
    for one, other in islice(zip(plain, zero, strict=True), 5):
        np.testing.assert_array_equal(one.point, other.point)
        assert (one.value, one.residual) == (other.info["distance"], other.residual)
        assert other.value == 7.0
