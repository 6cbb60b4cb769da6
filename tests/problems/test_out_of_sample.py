"""New points: each equation against its definition, the program against another solver."""

import clarabel
import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.manifold._locally_linear import barycenter_weights

from nearfar.problems.out_of_sample import (
    LocalStress,
    Neighborhoods,
    OutOfSampleProgram,
    reconstruction_weights,
)
from nearfar.solvers.batched import bisect_decreasing
from nearfar.solvers.cone_deviations import least_deviations
from tests.conic import solve_conic

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # callers silence them

SIZES = [(1, 3), (2, 5), (2, 8), (3, 4), (5, 12)]  # r and k
ABOVE = np.array([0, 0.1, 1, 2, 3, 4])  # s − ‖y‖²
sizes = pytest.mark.parametrize(("r", "k"), SIZES, ids=[f"r{r}-k{k}" for r, k in SIZES])


def random_case(rng, r, k, m=6, noise=0.3):
    """Neighbours (k, r, m) about their means, and squared distances (k, m) that nearly fit."""
    places = rng.normal(size=(k, r, m))
    places -= places.mean(axis=0)
    d = ((places - rng.normal(size=(r, m))) ** 2).sum(axis=1)
    return places, d * np.exp(noise * rng.normal(size=d.shape))


def matrix_of(y, s):
    """S of (1)."""
    return np.block([[np.eye(len(y)), y[:, None]], [y[None], np.array([[s]])]])


def objective(Y, d, y, s):
    """(3) by the matrix, one neighbour after the other."""
    S, total = matrix_of(y, s), s
    for place, square in zip(Y, d, strict=True):
        hat = np.append(place, -1.0)
        total += abs(hat @ S @ hat - square)
    return total


def by_clarabel(Y, d):
    """Objective and y of the thesis' program as it stands there: over matrices S.

    Clarabel wants b − A v in a cone, here for v = (triangle of S, off-diagonal entries times √2;
    bounds t on |ξ|): the entries of the unit matrix are fixed, −t ≤ ξ ≤ t, S ⪰ 0.
    """
    k, r = Y.shape
    columns, rows = np.tril_indices(r + 1)
    scale = np.where(rows == columns, 1.0, np.sqrt(2))
    size, hats = len(scale), np.column_stack([Y, -np.ones(k)])
    forms = np.array([np.outer(hat, hat)[rows, columns] * scale for hat in hats])
    fixed = np.maximum(rows, columns) < r
    unit = np.eye(size)[fixed]
    A = np.block(
        [
            [unit, np.zeros((len(unit), k))],
            [forms, -np.eye(k)],
            [-forms, -np.eye(k)],
            [-np.eye(size), np.zeros((size, k))],
        ]
    )
    b = np.concatenate([(rows == columns)[fixed], d, -d, np.zeros(size)])
    cost = np.concatenate([np.arange(size) == size - 1, np.ones(k)]).astype(float)
    cones = [
        clarabel.ZeroConeT(len(unit)),
        clarabel.NonnegativeConeT(2 * k),
        clarabel.PSDTriangleConeT(r + 1),
    ]
    solution = solve_conic(cost, A, b, cones)
    last = np.maximum(rows, columns) == r  # y and s
    return solution.obj_val, (np.array(solution.x[:size])[last] / scale[last])[:r]


# -- the program ---


@sizes
def test_value_is_the_objective_of_the_matrix(rng, r, k):
    places, d = random_case(rng, r, k)
    x = rng.normal(size=(r + 1, 6))
    x[r] = (x[:r] ** 2).sum(axis=0) + ABOVE
    value = OutOfSampleProgram.of(places, d).value(x)
    expected = [objective(places[..., i], d[:, i], x[:r, i], x[r, i]) for i in range(6)]
    np.testing.assert_allclose(value, expected, rtol=1e-12)


def test_value_raises_s_into_the_cone(rng):
    places, d = random_case(rng, 2, 5)
    program = OutOfSampleProgram.of(places, d)
    y = rng.normal(size=(2, 6))
    on, below = (np.vstack([y, (y**2).sum(axis=0) - lack]) for lack in (0, 0.5))
    np.testing.assert_allclose(program.value(below), program.value(on), rtol=1e-12)


@sizes
def test_arrays_of_the_solver_say_the_same(rng, r, k):
    """Σ|Ax + b| + cᵀx is the objective, and u₀² − ‖(u₁, …)‖² is s − ‖y‖²."""
    places, d = random_case(rng, r, k)
    program = OutOfSampleProgram.of(places, d)
    x = rng.normal(size=(r + 1, 6))
    x[r] = (x[:r] ** 2).sum(axis=0) + ABOVE
    slack = np.einsum("kvm,vm->km", program.A, x) + program.b
    total = np.abs(slack).sum(axis=0) + (program.c.T @ x)[0]
    np.testing.assert_allclose(total, program.value(x), rtol=1e-12)
    u = program.G @ x + program.h
    np.testing.assert_allclose(u[0] ** 2 - (u[1:] ** 2).sum(axis=0), ABOVE, atol=1e-12)


def test_the_start_is_inside_and_fits_no_multipliers(rng):
    places, d = random_case(rng, 3, 6)
    program = OutOfSampleProgram.of(places, d)
    x, z = program.start()
    u = program.G @ x + program.h
    for point in (u, z):
        assert (point[0] > np.linalg.norm(point[1:], axis=0)).all()
    np.testing.assert_allclose(program.G.T @ z, program.c + np.zeros((1, 6)), atol=1e-15)


@sizes
def test_no_value_is_below_a_bound(rng, r, k):
    places, d = random_case(rng, r, k, m=200, noise=1.0)
    program = OutOfSampleProgram.of(places, d)
    x = rng.normal(size=(r + 1, 200))
    sigma = rng.uniform(-1, 1, size=(k, 200))
    allowed = sigma.sum(axis=0) > -1
    assert allowed.sum() > 50
    assert (program.bound(sigma) <= program.value(x))[allowed].all()
    assert (program.gap(x, sigma) >= 0)[allowed].all()


@pytest.mark.parametrize("noise", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("origin", [0.0, 3.0], ids=["mean", "elsewhere"])
@sizes
def test_the_optimum_is_that_of_a_semidefinite_solver(rng, r, k, noise, origin):
    places, d = random_case(rng, r, k, noise=noise)
    places = places + origin
    unit = np.maximum(d.mean(), (places**2).sum(axis=1).mean()) ** 0.5
    places, d = places / unit, d / unit**2
    found = least_deviations(OutOfSampleProgram.of(places, d), tol=1e-9)
    assert found.gap.max() <= 1e-7
    for i in range(6):
        Y, squares, y = places[..., i], d[:, i], found.x[:r, i]
        optimum, theirs = by_clarabel(Y, squares)
        assert objective(Y, squares, y, found.x[r, i]) == pytest.approx(optimum, abs=1e-6)
        assert np.linalg.eigvalsh(matrix_of(y, found.x[r, i]))[0] >= -1e-9
        np.testing.assert_allclose(y, theirs, atol=1e-3)


@sizes
@pytest.mark.parametrize("height", [0.0, 2.0])
def test_true_distances_give_the_true_place(rng, r, k, height):
    """σ = −1/k proves ξ = 0 optimal about the mean, also for points above the neighbours."""
    places = rng.normal(size=(k, r, 6))
    places -= places.mean(axis=0)
    y = rng.normal(size=(r, 6))
    d = ((places - y) ** 2).sum(axis=1) + height**2
    program = OutOfSampleProgram.of(places, d)
    x = np.vstack([y, (y**2).sum(axis=0) + height**2])
    assert program.gap(x, np.full((k, 6), -1 / k)) == pytest.approx(0, abs=1e-9)
    found = least_deviations(program, tol=1e-9)
    np.testing.assert_allclose(found.x[:r], y, atol=1e-6)


def test_about_another_origin_the_true_place_need_not_be_optimal():
    """Neighbours 9, 10, 11 on a line and y = 10.5: s pulls harder than they can hold.

    Optimality asks for Σσᵢ(yᵢ − y) = y with |σᵢ| ≤ 1; the left side is at most 1.5 + 0.5 + 0.5.
    """
    places = np.array([9.0, 10.0, 11.0]).reshape(3, 1, 1)
    d = (places[:, 0] - 10.5) ** 2
    found = least_deviations(OutOfSampleProgram.of(places, d), tol=1e-9)
    assert found.gap[0] <= 1e-7
    assert found.x[0, 0] < 9
    moved = least_deviations(OutOfSampleProgram.of(places - 10, d), tol=1e-9)
    assert moved.x[0, 0] == pytest.approx(0.5, abs=1e-7)


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_what_neighbours_do_not_span_is_left_at_zero(rng, noise):
    """Neighbours on a line in space: an optimal place moved onto the line stays optimal."""
    direction = np.array([1.0, 2.0, 2.0]) / 3
    places = direction[:, None] * rng.normal(size=(5, 1, 6))
    places -= places.mean(axis=0)
    d = ((places - rng.normal(size=(3, 6))) ** 2).sum(axis=1)
    d = d * np.exp(noise * rng.normal(size=d.shape))
    found = least_deviations(OutOfSampleProgram.of(places, d), tol=1e-9)
    assert found.gap.max() <= 1e-7
    y = found.x[:3]
    np.testing.assert_allclose(y, direction[:, None] * (direction @ y), atol=1e-5)


# -- the least stress ---


def stress(Y, d, y):
    """(5), and its gradient 4Σeᵢ(y − yᵢ) with eᵢ = ‖y − yᵢ‖² − dᵢ."""
    errors = ((y - Y) ** 2).sum(axis=1) - d
    return (errors**2).sum(), 4 * errors @ (y - Y)


def least_stress(places, d):
    local = LocalStress.of(Neighborhoods.of(places, d))
    return local.place(bisect_decreasing(local.surplus, *local.ends()))


@sizes
@pytest.mark.parametrize("noise", [0.0, 0.1, 1.0])
def test_no_descent_finds_less_stress(rng, r, k, noise):
    """Two of the points; what is found for all of them is proved below."""
    places, d = random_case(rng, r, k, noise=noise)
    found = least_stress(places, d)
    for i in range(2):
        Y, squares = places[..., i], d[:, i]
        value, _ = stress(Y, squares, found[:, i])
        starts = 3 * rng.normal(size=(20, r))
        best = min(
            minimize(lambda y: stress(Y, squares, y), start, jac=True).fun  # noqa: B023
            for start in starts
        )
        assert value <= best + 1e-8 * (squares**2).sum()
        if noise == 0:
            assert value == pytest.approx(0, abs=1e-20)


@sizes
def test_the_least_stress_is_proved(rng, r, k):
    """∇f = 4Σeᵢ(y − yᵢ) = 0, and with the multiplier λ = 2Σeᵢ the Lagrangian is convex (6)."""
    places, d = random_case(rng, r, k, noise=0.5)
    y = least_stress(places, d)
    errors = ((y - places) ** 2).sum(axis=1) - d
    gradient = 4 * (errors[:, None] * (y - places)).sum(axis=0)
    np.testing.assert_allclose(gradient, 0, atol=1e-8 * d.max() ** 1.5)
    for i in range(6):
        C = places[..., i].T @ places[..., i]
        assert np.linalg.eigvalsh(4 * C)[0] + 2 * errors[:, i].sum() >= -1e-9 * d.max()


def test_between_mirror_images_the_middle_is_taken():
    """Distances 2 from (−1, 0), (0, 0), (1, 0), 5/3 in the mean less: (0, ±a) are equally good."""
    places = np.array([[-1.0, 0.0], [0.0, 0.0], [1.0, 0.0]])[..., None]
    np.testing.assert_allclose(least_stress(places, np.full((3, 1), 4.0)), 0, atol=1e-12)


@pytest.mark.parametrize("d", [[4.0, 4.0], [1.0, 9.0]], ids=["alike", "unlike"])
def test_neighbours_in_one_place(d):
    """Every direction is as good as any other, so that the point goes to its neighbours."""
    np.testing.assert_array_equal(least_stress(np.zeros((2, 3, 1)), np.array(d)[:, None]), 0)


# -- weights ---


def test_weights_are_those_of_scikit_learn(rng):
    """It adds ρ tr Γ to the diagonal too; the solution is scaled to sum to one."""
    X, new = rng.normal(size=(40, 4)), rng.normal(size=(7, 4))
    near = np.array([rng.permutation(40)[:6] for _ in new])
    d = ((new[:, None] - X[near]) ** 2).sum(axis=2).T
    among = ((X[near][:, :, None] - X[near][:, None]) ** 2).sum(axis=3)
    weights = reconstruction_weights(d, np.moveaxis(among, 0, 2))
    np.testing.assert_allclose(weights.T, barycenter_weights(new, X, near), rtol=1e-8)


@pytest.mark.parametrize("k", [3, 6])
def test_weights_minimise_the_reconstruction_error(rng, k):
    """Moving weight from one neighbour to another changes ‖x − Xᵀω‖² + ρ tr(Γ)‖ω‖² upwards only."""
    X, x = rng.normal(size=(k, 4)), rng.normal(size=4)
    d = ((x - X) ** 2).sum(axis=1)
    among = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    omega = reconstruction_weights(d[:, None], among[..., None])[:, 0]
    assert omega.sum() == pytest.approx(1)

    def error(w):
        return np.sum((x - w @ X) ** 2) + 1e-3 * d.sum() * np.sum(w**2)

    for _ in range(20):
        change = 0.1 * rng.normal(size=k)
        assert error(omega + change - change.mean()) > error(omega)


def test_weights_of_neighbours_that_are_the_point_itself():
    zero = np.zeros((3, 1))
    np.testing.assert_allclose(reconstruction_weights(zero, np.zeros((3, 3, 1))), 1 / 3)


# -- devices ---


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_devices_agree(rng, backend, noise):
    places, d = random_case(rng, 2, 5, m=50, noise=noise)
    here = backend.asarray(places), backend.asarray(d)
    ours, theirs = (
        least_deviations(OutOfSampleProgram.of(*arrays), tol=1e-9) for arrays in ((places, d), here)
    )
    assert backend.to_numpy(theirs.gap).max() <= 1e-8
    np.testing.assert_allclose(backend.to_numpy(theirs.x), ours.x, atol=1e-6)
    np.testing.assert_allclose(
        backend.to_numpy(least_stress(*here)), least_stress(places, d), atol=1e-9
    )
    among = np.abs(rng.normal(size=(5, 5, 50)))
    among = among + among.swapaxes(0, 1) - 2 * among * np.eye(5)[..., None]
    np.testing.assert_allclose(
        backend.to_numpy(reconstruction_weights(here[1], backend.asarray(among))),
        reconstruction_weights(d, among),
        rtol=1e-6,
    )
