"""What fits with kernels report, from ``transform`` and ``dual_coef_`` and their definitions alone.

The data have small eigenvalues in feature space, where kernel values round otherwise than the
coordinates in which these fits compute.
"""

import numpy as np
import pytest

from nearfar import KernelLMNN, KernelMCML, KernelMMC, verify

N, CLASSES = 30, 3
Y = np.arange(N) % CLASSES
SAME = Y[:, None] == Y
MATES = SAME & ~np.eye(N, dtype=bool)
SPREAD = np.array([1e4, 1, 1, 0.3])
KINDS = {
    "mixed scales": lambda X, _: X * SPREAD,
    "one large": lambda X, _: X * [1, 1e-4, 1e-4, 1e4],
    "duplicates": lambda X, rng: (X * SPREAD)[rng.integers(0, N, N)],
    "far from the origin": lambda X, _: X + 1e6,
    "an outlier": lambda X, _: np.vstack([X[:1] + 1e5, X[1:]]),
}


@pytest.fixture(params=KINDS)
def X(request, rng):
    points = rng.normal(size=(N, 4))
    points[:, 0] += Y
    return KINDS[request.param](points, rng)


@pytest.fixture(params=["linear", "rbf"])
def kernel(request):
    return request.param


def squares(Z):
    """Squared distances of all points, by differences."""
    return np.sum((Z[:, None] - Z) ** 2, axis=2)


def inside(model, X):
    """The points as the kernel sees them: relative to their mean, mapped by W if there is one."""
    W = model.kernel_components_
    X = X - X.mean(axis=0)
    return X if W is None else X @ W.T


def kernel_matrix(model, X):
    X = inside(model, X)
    return X @ X.T if model.kernel == "linear" else np.exp(-model.gamma_ * squares(X))


def trace(model, X):
    """tr(K CᵀC), C the coefficients."""
    C = model.dual_coef_
    return np.sum((C @ kernel_matrix(model, X)) * C)


def near_total(model, X):
    """Σ ‖φ(a) − φ(b)‖² over the pairs of a class."""
    X = inside(model, X)
    found = squares(X) if model.kernel == "linear" else -2 * np.expm1(-model.gamma_ * squares(X))
    return found[MATES].sum() / 2


@pytest.mark.filterwarnings("ignore:.*stopped before tol:nearfar.errors.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:.*have different labels:nearfar.errors.DataWarning")
def test_kernel_lmnn(X, kernel):
    """½ Σ D(i, j) + ½ Σ [1 + D(i, j) − D(i, l)]₊, all of a class being neighbours."""
    model = KernelLMNN(kernel, n_neighbors=N // CLASSES - 1, shrinkage=0, tol=1e-4).fit(X, Y)
    D = squares(model.transform(X))
    push = sum(np.maximum(1 + D[i][MATES[i], None] - D[i][~SAME[i]], 0).sum() for i in range(N))
    assert model.objective_ == pytest.approx(0.5 * D[MATES].sum() + 0.5 * push, rel=1e-9)


@pytest.mark.filterwarnings("ignore:.*stopped before tol:nearfar.errors.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:.*have different labels:nearfar.errors.DataWarning")
def test_kernel_mcml(X, kernel):
    """Σ KL[p0(·|i) ‖ p(·|i)] + λ · tr(K CᵀC) with λ = r T / 8d, r = 0.6 / 0.4 and T = Σ p0 D."""
    model = KernelMCML(kernel, shrinkage=0.6, tol=1e-4).fit(X, Y)
    energies = -squares(model.transform(X))
    np.fill_diagonal(energies, -np.inf)
    logs = energies - np.logaddexp.reduce(energies, axis=1, keepdims=True)
    collapse = -np.sum(logs[MATES] + np.log(N // CLASSES - 1)) / (N // CLASSES - 1)
    total = 2 * near_total(model, X) / (N // CLASSES - 1)
    expected = collapse + 1.5 * total / 8 / len(model.eigenvalues_) * trace(model, X)
    assert model.objective_ == pytest.approx(expected, rel=1e-9)


@pytest.mark.filterwarnings("ignore:.*stopped before tol:nearfar.errors.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:.*equal points:nearfar.errors.DataWarning")
def test_kernel_mmc(X, kernel):
    """Σ_far D under (1 − ρ) Σ_near D² + ρ (T / r) tr(K CᵀC) = 1."""
    model = KernelMMC(kernel, tol=1e-4).fit(X, Y)
    D = squares(model.transform(X))
    assert model.objective_ == pytest.approx(np.sqrt(D[~SAME]).sum() / 2, rel=1e-9)
    rho = model.shrinkage_
    ridge = rho * near_total(model, X) / len(model.eigenvalues_)
    size = (1 - rho) * D[MATES].sum() / 2 + ridge * trace(model, X)
    # Of many small directions; the wide kernel that labels choose has smaller ones.
    assert size == pytest.approx(1, rel=1e-8 if model.kernel_components_ is None else 1e-7)


@pytest.mark.filterwarnings("ignore:class 1 has 1 member:nearfar.errors.DataWarning")
@pytest.mark.parametrize("last", [[0, 0, 0, 1], [0, 0, 1, 0.5]])
def test_near_pairs_that_hardly_differ_have_their_ridge(last):
    """About along (1, 1, 1, 1)/2, the only direction that is left beside an outlier of 1e6, far
    pairs have lengths 2e6 but for ½ Σ last, and three near pairs have T = 3‖last‖² in all."""
    X, y = np.zeros((5, 4)), np.array([1, 0, 0, 0, 0])
    X[0], X[4] = 1e6, last
    model = KernelMMC("linear", shrinkage=0.1).fit(X, y)
    along, total = np.sum(last) / 2, 3 * np.sum(np.square(last))
    size = 0.9 * 3 * along**2 + 0.1 * total  # of the constraint, for a metric of trace 1
    expected = (4 * 2e6 - along) / np.sqrt(size)
    assert len(model.eigenvalues_) == 1
    assert model.objective_ == pytest.approx(expected, rel=1e-6)
    assert str(verify(model, X, y)).startswith("proved")


@pytest.mark.filterwarnings("ignore:class 1 has 1 member:nearfar.errors.DataWarning")
def test_near_pairs_that_differ_elsewhere_have_their_ridge():
    """The near pair differs in the second feature alone, which the first one hides: a metric of
    trace 1 along the first has lengths of 1e6, and the constraint is 0.1 · T = 0.1."""
    X = np.array([[1e6, 0], [0, 0], [0, 1]])
    model = KernelMMC("linear", shrinkage=0.1).fit(X, [1, 0, 0])
    assert model.objective_ == pytest.approx(2e6 / np.sqrt(0.1), rel=1e-9)
    assert str(verify(model, X, [1, 0, 0])).startswith("proved")
