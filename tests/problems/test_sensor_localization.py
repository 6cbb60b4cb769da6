"""Elasticity of a graph: its matrix by loops, and nodes whose firmness is known."""

import numpy as np
import pytest

from nearfar.problems.sensor_localization import ACROSS, Elasticity, core, has_mirror_image


def complete(n):
    heads, tails = np.triu_indices(n, 1)
    return heads.astype(np.intp), tails.astype(np.intp)


@pytest.fixture
def frame(rng):
    """Fifteen points in the plane, near ones joined."""
    Y = rng.normal(size=(15, 2))
    heads, tails = complete(15)
    near = np.linalg.norm(Y[heads] - Y[tails], axis=1) < 2
    heads, tails = heads[near], tails[near]
    return heads, tails, rng.uniform(0.5, 2, len(heads)), Y


def solved(elasticity, right):
    """By the dense pseudoinverse, with all common motions left out."""
    n, r, s = right.shape
    return (np.linalg.pinv(elasticity.H.toarray()) @ right.reshape(n * r, s)).reshape(n, r, s)


def test_the_stiffness_by_loops(frame, rng):
    heads, tails, weights, Y = frame
    x = rng.normal(size=Y.shape)
    total = 0.0
    for i, j, w in zip(heads, tails, weights, strict=True):
        delta, change = Y[i] - Y[j], x[i] - x[j]
        total += 4 * w * ((delta @ change) ** 2 + ACROSS * (delta @ delta) * (change @ change))
    elasticity = Elasticity.build(heads, tails, weights, Y, np.zeros(15, dtype=bool))
    product = elasticity.product(x[:, :, None])[:, :, 0]
    assert np.vdot(x, product) == pytest.approx(total, rel=1e-12)


def test_fixed_nodes_are_left_out(frame, rng):
    heads, tails, weights, Y = frame
    fixed = np.isin(np.arange(15), [2, 11])
    whole = Elasticity.build(heads, tails, weights, Y, np.zeros(15, dtype=bool)).H.toarray()
    held = Elasticity.build(heads, tails, weights, Y, fixed)
    free = np.repeat(~fixed, 2)
    H = held.H.toarray()
    np.testing.assert_allclose(H[np.ix_(free, free)], whole[np.ix_(free, free)], atol=1e-12)
    np.testing.assert_array_equal(H[~free][:, free], 0)
    assert (held.moved_by(rng.normal(size=(len(heads), 2)))[fixed] == 0).all()
    assert (held.noise_forces(np.random.RandomState(0), 2)[fixed] == 0).all()


def test_common_motions_are_those_that_lengths_do_not_feel(frame):
    heads, tails, weights, Y = frame
    free = Elasticity.build(heads, tails, weights, Y, np.zeros(15, dtype=bool))
    assert free.motions.shape == (30, 3)
    np.testing.assert_allclose(free.motions.T @ free.motions, np.eye(3), atol=1e-12)
    for motion in free.motions.T.reshape(3, 15, 2):
        change = np.sum((Y[heads] - Y[tails]) * (motion[heads] - motion[tails]), axis=1)
        np.testing.assert_allclose(change, 0, atol=1e-12)
    counts = []
    for anchors in ([], [4], [4, 9], [4, 9, 1]):
        fixed = np.isin(np.arange(15), anchors)
        counts.append(Elasticity.build(heads, tails, weights, Y, fixed).motions.shape[1])
    assert counts == [3, 1, 0, 0]


def test_errors_of_lengths_move_the_fit_as_predicted(rng):
    """By a Gauss-Newton step on the squared misfits, without the resistance across."""
    Y, (heads, tails) = rng.normal(size=(15, 2)), complete(15)
    weights = rng.uniform(0.5, 2, len(heads))
    errors = 1e-3 * rng.normal(size=len(heads))
    J = np.zeros((len(heads), 15, 2))
    J[np.arange(len(heads)), heads] = 2 * (Y[heads] - Y[tails])
    J[np.arange(len(heads)), tails] = -2 * (Y[heads] - Y[tails])
    J = np.sqrt(weights)[:, None] * J.reshape(len(heads), 30)
    expected = np.linalg.lstsq(J, np.sqrt(weights) * errors, rcond=None)[0]
    elasticity = Elasticity.build(heads, tails, weights, Y, np.zeros(15, dtype=bool))
    found = solved(elasticity, elasticity.moved_by(errors[:, None])).ravel()
    motions = elasticity.motions
    found, expected = (x - motions @ (motions.T @ x) for x in (found, expected))
    np.testing.assert_allclose(found, expected, atol=2e-2 * np.abs(expected).max())


def test_tremors_have_the_covariance_of_the_resistance_across(frame):
    """Of right sides b the covariance is ε Σ 4w‖δ‖² (eᵢ − eⱼ)(eᵢ − eⱼ)ᵀ ⊗ I."""
    heads, tails, weights, Y = frame
    elasticity = Elasticity.build(heads, tails, weights, Y, np.zeros(15, dtype=bool))
    b = elasticity.noise_forces(np.random.RandomState(0), 40000)[:, 0]
    expected = np.zeros((15, 15))
    for i, j, w in zip(heads, tails, weights, strict=True):
        s = 4 * ACROSS * w * np.sum((Y[i] - Y[j]) ** 2)
        expected[[i, j], [i, j]] += s
        expected[[i, j], [j, i]] -= s
    np.testing.assert_allclose(np.cov(b), expected, atol=0.05 * expected.max())


def looseness(heads, tails, Y, fixed=(), most=True):
    elasticity = Elasticity.build(
        heads, tails, np.ones(len(heads)), Y, np.isin(np.arange(len(Y)), fixed)
    )
    X = solved(elasticity, elasticity.noise_forces(np.random.RandomState(0), 200))
    random = np.random.RandomState(1)
    return elasticity.looseness(
        elasticity.squares_beside_most(X, random) if most else elasticity.squares(X)
    )


def test_a_node_held_from_all_sides_has_looseness_one():
    """By fixed nodes on a circle, so that what holds it is the same in all directions."""
    angles = 2 * np.pi * np.arange(8) / 8
    Y = np.vstack([[0, 0], np.column_stack([np.cos(angles), np.sin(angles)])])
    found = looseness(np.zeros(8, dtype=np.intp), np.arange(1, 9), Y, fixed=np.arange(1, 9))
    assert found[0] == pytest.approx(1, rel=0.1)
    assert (found[1:] == 0).all()


def test_a_node_on_a_single_length_is_held_by_the_resistance_alone():
    """Across the length 1 the tremor is 4ε and the stiffness 4ε, so that C is 4ε / (4ε)², H is 4,
    and (CH/ε)^¼ = ε^(−½)."""
    Y = np.array([[0.0, 0], [1, 0]])
    found = looseness(np.array([0]), np.array([1]), Y, fixed=[0])
    assert found[1] == pytest.approx(ACROSS**-0.5 / 2**0.75, rel=0.1)


def test_a_flap_on_a_hinge_is_loose_and_the_rest_is_not(rng):
    """Twenty points, and eight that share one node with them."""
    body, flap = rng.uniform(size=(20, 2)), rng.uniform(size=(8, 2)) * 0.5 + [1.1, 0.3]
    Y = np.vstack([body, flap])
    hinge = int(np.argmax(body[:, 0]))
    members = np.r_[hinge, np.arange(20, 28)]
    heads, tails = complete(20)
    more_heads, more_tails = (members[rows] for rows in complete(9))
    heads, tails = np.r_[heads, more_heads], np.r_[tails, more_tails]
    found = looseness(heads, tails, Y)
    assert found[:20].max() < 5
    assert found[20:].min() > 10
    assert looseness(heads, tails, Y, most=False)[:20].max() > 10  # the whole would move with it


def test_the_core_is_what_remains():
    """A square with both diagonals, a node on three of its corners, a chain of two on one."""
    heads = np.array([0, 0, 0, 1, 1, 2, 4, 4, 4, 5, 6])
    tails = np.array([1, 2, 3, 2, 3, 3, 0, 1, 2, 3, 5])
    nobody = np.zeros(7, dtype=bool)
    np.testing.assert_array_equal(
        core(7, heads, tails, 3, nobody), [True, True, True, True, True, False, False]
    )
    assert not core(7, heads, tails, 5, nobody).any()
    fixed = np.arange(7) == 6
    kept = core(7, heads, tails, 2, fixed)
    assert kept[5]  # between a corner and a fixed node
    assert kept[6]


def test_a_mirror_image_that_fits_as_well_is_told():
    """Five points on a line and one beside it; then one of the five steps aside."""
    Y = np.array([[0.0, 0], [1, 0], [2, 0], [3, 0], [4, 0], [2, 1]])
    heads, tails = complete(6)
    squares = np.sum((Y[heads] - Y[tails]) ** 2, axis=1)
    assert has_mirror_image(heads, tails, squares, Y)[5]
    Y[2, 1] = -1
    squares = np.sum((Y[heads] - Y[tails]) ** 2, axis=1)
    assert not has_mirror_image(heads, tails, squares, Y).any()


def test_noise_hides_which_side_a_node_is_on():
    """The neighbours are so nearly in line that errors of 5 % are larger than the difference."""
    Y = np.array([[0.0, 0], [1, 0.02], [2, -0.02], [3, 0.01], [4, 0], [2, 1]])
    heads, tails = np.arange(5), np.full(5, 5)
    squares = np.sum((Y[heads] - Y[tails]) ** 2, axis=1)
    assert not has_mirror_image(heads, tails, squares, Y)[5]
    assert has_mirror_image(heads, tails, squares * [1.1, 0.9, 1.1, 0.9, 1.1], Y)[5]
