"""Successive projections onto margins: by generic projections, by the bound, in any coordinates."""

from itertools import islice

import numpy as np
import pytest

from nearfar.errors import InvalidInputError
from nearfar.solvers.pola import GrowingProjections, MarginProjections, epochs
from nearfar.solvers.projections import onto_half_space, onto_psd_cone


def zeros(d):
    return np.zeros((d, d), order="F")


@pytest.fixture
def stream(rng):
    """60 differences in 4 dimensions and random signs, which no metric explains."""
    return rng.normal(size=(60, 4)), rng.choice([-1.0, 1.0], size=60)


def by_projections(X, signs, scale):
    """(M, b) after each pair: one half-space and one cone in the space of (s² M, b).

    There ⟨(s² M, b), (y xxᵀ / s², −y)⟩ = y (xᵀMx − b) ≤ −1 is the margin. The cone is M ⪰ 0, b ≥ 1.
    """
    d = X.shape[1]
    point, found = np.append(np.zeros(d * d), 1.0), []
    for x, y in zip(X, signs, strict=True):
        normal = np.append(y * np.outer(x, x).ravel() / scale**2, -y)
        point = onto_half_space(normal, -1.0)(point)
        M = onto_psd_cone(point[:-1].reshape(d, d))
        point = np.append(M.ravel(), max(point[-1], 1.0))
        found.append((M / scale**2, point[-1]))
    return found


@pytest.mark.parametrize("scale", [1.0, 0.4, 3.0])
def test_a_visit_is_a_half_space_and_a_cone(stream, scale):
    X, signs = stream
    ours = MarginProjections(zeros(4), scale=scale)
    for x, y, (M, b) in zip(X, signs, by_projections(X, signs, scale), strict=True):
        ours.learn(x[None], np.array([y]))
        np.testing.assert_allclose(ours.matrix, M, atol=1e-10)
        assert ours.b == pytest.approx(b, abs=1e-10)
    assert ours.n_seen == 60
    assert 20 < ours.n_updates <= 60


def test_without_a_scale_it_is_the_mean_length_so_far(stream):
    """Each visit equals one with that length as a fixed scale, from the same state."""
    X, signs = stream
    ours = MarginProjections(zeros(4))
    for t, (x, y) in enumerate(zip(X, signs, strict=True), start=1):
        twin = ours.copied()
        twin.scale = np.linalg.norm(X[:t], axis=1).mean()
        for one in (ours, twin):
            one.learn(x[None], np.array([y]))
        np.testing.assert_allclose(ours.matrix, twin.matrix, atol=1e-12)
        assert ours.b == pytest.approx(twin.b)
    assert ours.total_length == pytest.approx(np.linalg.norm(X, axis=1).sum())


@pytest.mark.parametrize("power", [-120, -8, 8, 120])
def test_the_unit_of_the_data_does_not_matter(stream, power):
    X, signs = stream
    ours, other = MarginProjections(zeros(4)), MarginProjections(zeros(4))
    losses = ours.learn(X, signs)
    unit = 10.0**power
    np.testing.assert_allclose(other.learn(unit * X, signs), losses, atol=1e-9)
    np.testing.assert_allclose(unit * other.matrix * unit, ours.matrix, atol=1e-9)
    assert other.b == pytest.approx(ours.b)


def test_losses_are_those_before_the_update(stream):
    X, signs = stream
    ours = MarginProjections(zeros(4))
    for x, y in zip(X, signs, strict=True):
        expected = max(0.0, 1 - y * (ours.b - x @ ours.matrix @ x))
        (loss,) = ours.learn(x[None], np.array([y]))
        assert loss == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("sizes", [[1] * 60, [7, 1, 30, 22], [59, 1]], ids=str)
def test_blocks_do_not_matter_at_all(stream, sizes):
    X, signs = stream
    whole, parts = MarginProjections(zeros(4)), MarginProjections(zeros(4))
    losses = whole.learn(X, signs)
    ends = np.cumsum(sizes)
    pieces = [parts.learn(X[e - s : e], signs[e - s : e]) for s, e in zip(sizes, ends, strict=True)]
    np.testing.assert_array_equal(np.concatenate(pieces), losses)
    np.testing.assert_array_equal(parts.matrix, whole.matrix)
    assert (parts.b, parts.squared_loss) == (whole.b, whole.squared_loss)


def test_losses_up_to_beta_are_let_be(stream):
    X, signs = stream
    ours = MarginProjections(zeros(4), beta=0.8)
    losses = ours.learn(X, signs)
    assert ours.n_updates == (losses > 0.8).sum() < (losses > 0).sum()
    assert ours.squared_loss == pytest.approx((losses[losses > 0.8] ** 2).sum())


# -- the bound ---


@pytest.fixture
def separable(rng):
    """2000 pairs whose margins (M*, b*) keeps, half of them near, and (M*, b*)."""
    A = rng.normal(size=(2, 6))
    M, b = A.T @ A, 3.0
    X = rng.normal(size=(20000, 6)) * rng.uniform(0.1, 2, size=(20000, 1))
    margins = b - np.vecdot(X @ M, X)
    near, far = np.flatnonzero(margins >= 1)[:1000], np.flatnonzero(margins <= -1)[:1000]
    rows = rng.permutation(np.concatenate([near, far]))
    assert len(rows) == 2000
    return X[rows], np.sign(margins[rows]), M, b


@pytest.mark.parametrize("scale", [0.5, 1.0, 4.0])
def test_the_mistake_bound(separable, scale):
    """(6): Σ ℓ² ≤ (R⁴/s⁴ + 1) (s⁴‖M*‖² + (b* − 1)²), and every step of its proof."""
    X, signs, M, b = separable

    def distance(ours):
        return scale**4 * np.sum((ours.matrix - M) ** 2) + (ours.b - b) ** 2

    ours = MarginProjections(zeros(6), scale=scale)
    first, total, steps = distance(ours), 0.0, 0
    for x, y in zip(X, signs, strict=True):
        before, steps_before = distance(ours), ours.n_updates
        (loss,) = ours.learn(x[None], np.array([y]))
        total += loss**2
        gained = loss**2 / ((x @ x) ** 2 / scale**4 + 1)
        assert distance(ours) <= before - gained + 1e-9 * first
        steps += ours.n_updates > steps_before
    largest = np.linalg.norm(X, axis=1).max()
    assert total <= (largest**4 / scale**4 + 1) * first
    assert ours.squared_loss == pytest.approx(total)
    assert 0 < steps < 2000


# -- coordinates that grow ---


@pytest.mark.parametrize("beta", [0.0, 0.5])
@pytest.mark.parametrize("sizes", [[60], [1] * 60, [13, 47]], ids=len)
def test_products_say_all(stream, beta, sizes):
    """By inner products of the pairs alone, the metric on them is that of the vectors."""
    X, signs = stream
    plain, ours = MarginProjections(zeros(4), beta=beta), GrowingProjections(beta=beta)
    losses, found, taken, first = plain.learn(X, signs), [], np.zeros((0, 4)), 0
    for size in sizes:
        block = X[first : first + size]
        part, joined = ours.learn_from_products(
            block @ taken.T, block @ block.T, signs[first : first + size]
        )
        taken = np.vstack([taken, block[joined]])
        found.append(part)
        first += size
    np.testing.assert_allclose(np.concatenate(found), losses, atol=1e-9)
    np.testing.assert_allclose(ours.L @ ours.L.T, taken @ taken.T, atol=1e-10)
    basis = np.linalg.solve(ours.L, taken)
    np.testing.assert_allclose(basis.T @ ours.matrix @ basis, plain.matrix, atol=1e-9)
    assert len(ours.L) <= 4
    for name in ("b", "total_length", "n_seen", "n_updates", "squared_loss"):
        assert getattr(ours, name) == pytest.approx(getattr(plain, name))


def test_at_its_limit_the_metric_is_projected_onto_the_span(stream):
    """P half-space, then onto the metrics of the first two directions (B N Bᵀ), then the cone."""
    X, signs = stream
    ours = GrowingProjections(limit=2, scale=1.3)
    losses, joined = ours.learn_from_products(np.zeros((60, 0)), X @ X.T, signs)
    assert len(joined) == 2
    span = np.linalg.qr(X[joined].T)[0]
    onto = span @ span.T
    M, b = np.zeros((4, 4)), 1.0
    for t, (x, y) in enumerate(zip(X, signs, strict=True)):
        loss = max(0.0, 1 - y * (b - x @ M @ x))
        assert losses[t] == pytest.approx(loss, abs=1e-9)
        alpha = loss / ((x @ x) ** 2 / 1.3**4 + 1)
        inner = onto if t >= joined[-1] else np.eye(4)  # the span is not full before
        M = onto_psd_cone(inner @ (M - y * alpha * np.outer(x, x) / 1.3**4) @ inner)
        b = max(1.0, b + y * alpha)
    assert ours.b == pytest.approx(b)


def test_products_of_no_kernel_are_an_error(stream):
    _, signs = stream
    with pytest.raises(InvalidInputError, match="must not give a negative squared length"):
        GrowingProjections().learn_from_products(np.zeros((60, 0)), -np.eye(60), signs)


# -- epochs ---


def test_epochs_end_where_no_loss_exceeds_beta(separable):
    X, signs, M, b = separable
    ours = MarginProjections(zeros(6), scale=1.0, beta=0.2)
    for iterate in islice(epochs(ours, lambda: [ours.learn(X, signs)]), 500):
        if iterate.residual is not None:
            break
    losses = 1 - signs * (ours.b - np.vecdot(X @ ours.matrix, X))
    assert iterate.residual == 0
    assert losses.max() <= 0.2 + 1e-12
    assert iterate.info["n_updates"] == 0
    assert iterate.info["largest_loss"] == pytest.approx(losses.max())
    assert iterate.value == pytest.approx(losses.clip(0).sum())
    # The bound on the number of updates, each of a squared loss above beta².
    limit = (np.vecdot(X, X).max() ** 2 + 1) * (np.sum(M**2) + (b - 1) ** 2)
    assert 0.2**2 * ours.n_updates < ours.squared_loss <= limit


def test_an_iterate_is_not_changed_by_the_next(stream):
    X, signs = stream
    ours = MarginProjections(zeros(4))
    iterates = epochs(
        ours, lambda: [ours.learn(X[:30], signs[:30]), ours.learn(X[30:], signs[30:])]
    )
    first = next(iterates)
    kept, b = first.state.matrix, first.state.b
    second = next(iterates)
    np.testing.assert_array_equal(first.state.matrix, kept)
    assert first.state.b == b
    assert not np.array_equal(second.state.matrix, kept)
    assert second.state.n_seen == 120
    assert second.info["n_updates"] == second.state.n_updates - first.state.n_updates


def test_a_pair_of_length_zero_moves_the_threshold_alone():
    """At b = 3 a far pair of length 0 has the loss 1 + 3, and b falls to max(1, 3 - 4)."""
    stream = MarginProjections(np.eye(2, order="F"), b=3.0)
    losses = stream.learn(np.zeros((1, 2)), np.array([-1.0]))
    np.testing.assert_array_equal(losses, [4.0])
    np.testing.assert_array_equal(stream.matrix, np.eye(2))
    assert stream.b == 1.0


def test_a_scale_far_below_the_lengths():
    """(length / s)⁴ is infinite, and the metric stays finite."""
    stream = MarginProjections(zeros(2), scale=1e-100)
    stream.learn(np.ones((1, 2)), np.array([-1.0]))
    assert np.isfinite(stream.matrix).all()
