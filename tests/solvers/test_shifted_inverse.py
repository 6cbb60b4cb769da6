"""M − w xxᵀ on the cone by a kept inverse: LAPACK's answer, on cases that are hard for either."""

import numpy as np
import pytest
from scipy import linalg

from nearfar.solvers import shifted_inverse
from nearfar.solvers.pola import MarginProjections
from nearfar.solvers.projections import onto_psd_cone
from nearfar.solvers.shifted_inverse import ShiftedInverse

D = 12


@pytest.fixture(autouse=True)
def _at_any_size(monkeypatch):
    monkeypatch.setattr(shifted_inverse, "LAPACK_ROWS", 2)


@pytest.fixture
def lapack_calls(monkeypatch):
    """The values that LAPACK found where Lanczos' method gave up."""
    found, usual = [], shifted_inverse.smallest_eigenpair

    def counted(M):
        found.append(usual(M)[0])
        return usual(M)

    monkeypatch.setattr(shifted_inverse, "smallest_eigenpair", counted)
    return found


def full(M):
    return np.tril(M) + np.tril(M, -1).T


def walk(steps, start):
    """Signed changes (w, x) one after the other; yields ours and the plain projection."""
    ours, plain, kept = np.asfortranarray(start.copy()), start.copy(), ShiftedInverse()
    for weight, x in steps:
        if weight > 0:
            ours = kept.add(ours, weight, x)
            plain = plain + weight * np.outer(x, x)
        else:
            ours = kept.subtract_and_project(ours, -weight, x)
            plain = onto_psd_cone(plain + weight * np.outer(x, x))
        yield full(ours), plain, kept


def random_steps(rng, count, directions=None):
    basis = np.eye(D) if directions is None else directions
    for _ in range(count):
        x = basis @ rng.normal(size=basis.shape[1])
        yield rng.uniform(0.1, 2) * rng.choice([-1, 1]), x


CASES = {
    "from zero": lambda rng: (random_steps(rng, 300), np.zeros((D, D))),
    "full rank": lambda rng: (random_steps(rng, 300), np.eye(D)),
    "four directions": lambda rng: (
        random_steps(rng, 300, rng.normal(size=(D, 4))),
        np.zeros((D, D)),
    ),
    "equal eigenvalues": lambda _: (
        [(w, row) for w in (1.0, -0.5, -0.5, -0.5, 2.0, -3.0) for row in np.eye(D)],
        np.zeros((D, D)),
    ),
    "the same pair again": lambda rng: (
        [(w, x) for _, x in random_steps(rng, 20) for w in (1.0, -0.7, -0.7, -0.7, 1.0)],
        np.zeros((D, D)),
    ),
    "spread over ten powers of ten": lambda rng: (
        [(w, np.logspace(0, -5, D) * x) for w, x in random_steps(rng, 300)],
        np.diag(np.logspace(0, -10, D)),
    ),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("period", [1, 7, 256])
def test_the_plain_projection(case, period, rng, monkeypatch):
    """Each step to rounding, so that the end of the walk is near the plain one, too."""
    monkeypatch.setattr(shifted_inverse, "PERIOD", period)
    steps, start = CASES[case](rng)
    size = 1.0
    for ours, plain, _ in walk(steps, start):
        size = max(size, abs(plain).max())
        np.testing.assert_allclose(ours, plain, rtol=0, atol=1e-11 * size)
        assert linalg.eigvalsh(ours)[0] >= -1e-12 * size


def test_the_inverse_stays_one(rng):
    """(2), (3) and (5): H (M + σI) = I after many changes, with a null vector and without."""
    projected = 0
    for ours, plain, kept in walk(random_steps(rng, 200), 0.1 * np.eye(D)):
        projected += linalg.eigvalsh(plain)[0] < 1e-12
        if kept.H is not None:
            product = full(kept.H) @ (ours + kept.shift * np.eye(D))
            np.testing.assert_allclose(product, np.eye(D), atol=1e-7)
    assert 20 < projected < 180
    assert kept.n_changes > 50


def test_lanczos_finds_nearly_all(rng, lapack_calls):
    """Of well-conditioned metrics; otherwise the kept inverse would be of no use."""
    for _ in walk(random_steps(rng, 400), np.eye(D)):
        pass
    assert len(lapack_calls) < 20


def test_a_wrong_inverse_is_noticed(rng, lapack_calls):
    """The pair is confirmed by M: with a wrong H the answer is LAPACK's, and H is made anew."""
    A = rng.normal(size=(D, D))
    M, x, kept = A @ A.T, rng.normal(size=D), ShiftedInverse()
    kept.subtract_and_project(np.asfortranarray(M.copy()), 1e-3, x)
    kept.H = np.asfortranarray(kept.H + np.diag(np.linspace(1, 2, D)) * abs(kept.H).max())
    found = kept.subtract_and_project(np.asfortranarray(M.copy()), 1e3, x)
    plain = onto_psd_cone(M - 1e3 * np.outer(x, x))
    np.testing.assert_allclose(full(found), plain, atol=1e-9 * abs(M).max())
    assert len(lapack_calls) == 1
    assert kept.n_changes >= shifted_inverse.PERIOD


def test_a_shift_that_is_the_eigenvalue():
    """1 − w xᵀHx = 0 exactly, where (3) has no value: M = I less 2.5 in one direction, σ = ½."""
    M, x = np.eye(D, order="F"), np.eye(D)[0]
    kept = ShiftedInverse(np.asfortranarray(np.eye(D) / 1.5), 0.5)
    kept.H[0, 0] = 0.5  # of which 2 is the inverse exactly
    found = kept.subtract_and_project(M, 2.0, x)
    np.testing.assert_allclose(full(found), np.diag([0.0, *np.ones(D - 1)]), atol=1e-15)
    assert kept.H is None


def test_growth(rng):
    """A coordinate more in M is one in H."""
    A = rng.normal(size=(D, D))
    M, kept = np.asfortranarray(A @ A.T), ShiftedInverse()
    M = kept.subtract_and_project(M, 1e-3, rng.normal(size=D))
    kept.grow()
    grown = np.zeros((D + 1, D + 1))
    grown[:D, :D] = full(M)
    product = full(kept.H) @ (grown + kept.shift * np.eye(D + 1))
    np.testing.assert_allclose(product, np.eye(D + 1), atol=1e-9)


@pytest.mark.parametrize("power", [-120, 120])
def test_the_unit_of_the_data_does_not_matter(power, rng):
    X, signs = rng.normal(size=(200, D)), rng.choice([-1.0, 1.0], size=200)
    ours, other = (MarginProjections(np.zeros((D, D), order="F")) for _ in range(2))
    unit = 10.0**power
    np.testing.assert_allclose(other.learn(unit * X, signs), ours.learn(X, signs), atol=1e-9)
    np.testing.assert_allclose(unit * other.matrix * unit, ours.matrix, atol=1e-9)
    assert other.inverse.H is not None


def test_a_stream_is_that_of_lapack(rng, monkeypatch):
    """Losses and metric of a long stream, with a copy from which another goes on."""
    X, signs = rng.normal(size=(500, D)), rng.choice([-1.0, 1.0], size=500)
    ours = MarginProjections(np.zeros((D, D), order="F"))
    losses = ours.learn(X[:300], signs[:300])
    twin = ours.copied()
    kept = ours.matrix
    more = twin.learn(X[300:], signs[300:])
    np.testing.assert_array_equal(ours.matrix, kept)
    np.testing.assert_allclose(ours.learn(X[300:], signs[300:]), more, atol=1e-11)
    monkeypatch.setattr(shifted_inverse, "LAPACK_ROWS", D + 1)
    plain = MarginProjections(np.zeros((D, D), order="F"))
    np.testing.assert_allclose(plain.learn(X, signs), [*losses, *more], atol=1e-10)
    np.testing.assert_allclose(twin.matrix, plain.matrix, atol=1e-11)
    assert plain.inverse.H is None
