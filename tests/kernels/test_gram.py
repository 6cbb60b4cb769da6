"""Kernels on Gram matrices: each library against plain loops, and what factors must do."""

import numpy as np
import pytest

from nearfar.kernels import gram_kernels_for, gram_numpy, kernels_for


@pytest.fixture(params=[3, 40], ids=lambda n: f"{n}nodes")
def case(request, rng, read_only):
    """Two positive definite matrices and the edges of a graph, some of them parallel."""
    n = request.param
    m = 2 * n
    heads = rng.integers(0, n - 1, m)
    tails = heads + 1 + rng.integers(0, n - 1 - heads)

    def gram():
        A = rng.normal(size=(n, n))
        return read_only(A @ A.T + np.eye(n))

    scale, extra = rng.uniform(0.5, 2, m), rng.uniform(0.1, 1, m)
    return gram(), gram(), heads.astype(np.intp), tails.astype(np.intp), scale, extra


def on(backend, *arrays):
    """Arrays of numbers in the library, and of indices as its kernels want them."""
    reference = backend.asarray(np.zeros(1))
    index = kernels_for(reference).index
    return [
        index(a, reference) if a.dtype == np.intp else backend.asarray(np.array(a)) for a in arrays
    ]


def schur_by_loops(Z, W, heads, tails, scale, extra):
    """M_ef = s_e s_f (b_e' Z b_f)(b_e' W b_f) with b_e = e_h - e_t, plus a diagonal."""
    n, m = len(Z), len(heads)
    B = np.zeros((m, n))
    for e in range(m):
        B[e, heads[e]], B[e, tails[e]] = 1, -1
    M = np.diag(extra).astype(float)
    for e in range(m):
        for f in range(m):
            M[e, f] += scale[e] * scale[f] * (B[e] @ Z @ B[f]) * (B[e] @ W @ B[f])
    return M


def test_lengths_of_edges(case, backend):
    K, _, heads, tails, _, _ = case
    k, i, j = on(backend, K, heads, tails)
    found = backend.to_numpy(gram_kernels_for(k).gram_lengths(k, i, j))
    expected = [K[h, h] - 2 * K[h, t] + K[t, t] for h, t in zip(heads, tails, strict=True)]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("few", [0, 10**6])
def test_lengths_of_a_product(case, backend, rng, monkeypatch, few):
    """By the whole product or by its entries at edges: those of its symmetric part."""
    monkeypatch.setattr(gram_numpy, "_FEW_NODES", few)
    A, _, heads, tails, _, _ = case
    B = rng.normal(size=A.shape)
    a, b, i, j = on(backend, A, B, heads, tails)
    found = backend.to_numpy(gram_kernels_for(a).product_lengths(a, b, i, j))
    P = 0.5 * (A @ B + B.T @ A)
    expected = [P[h, h] - 2 * P[h, t] + P[t, t] for h, t in zip(heads, tails, strict=True)]
    np.testing.assert_allclose(found, expected, atol=1e-11 * np.abs(P).max())


@pytest.mark.parametrize("dense", [0, 10**6])
def test_laplacian(case, backend, monkeypatch, dense):
    """Of parallel edges the weights add up; rows sum to zero."""
    monkeypatch.setattr(gram_numpy, "_DENSE", dense)
    K, _, heads, tails, weights, _ = case
    n = len(K)
    i, j, w = on(backend, heads, tails, weights)
    gram = gram_kernels_for(w)
    found = backend.to_numpy(gram.laplacian(i, j, w, n))
    expected = np.zeros((n, n))
    for h, t, value in zip(heads, tails, weights, strict=True):
        for a, b, sign in ((h, h, 1), (t, t, 1), (h, t, -1), (t, h, -1)):
            expected[a, b] += sign * value
    np.testing.assert_allclose(found, expected, atol=1e-13)
    np.testing.assert_allclose(found.sum(axis=0), 0, atol=1e-13)
    (k,) = on(backend, K)
    sparse = gram.sparse_laplacian(i, j, w, n)
    np.testing.assert_allclose(backend.to_numpy(sparse @ k), expected @ K, atol=1e-11)
    assert gram.inner(k, sparse) == pytest.approx((K * expected).sum(), rel=1e-11)
    assert gram.inner(k, k) == pytest.approx((K * K).sum(), rel=1e-12)


def test_rows_of_edges(case, backend):
    K, _, heads, tails, scale, _ = case
    k, i, j, s = on(backend, K, heads, tails, scale)
    found = backend.to_numpy(gram_kernels_for(k).edge_rows(k, i, j, s))
    np.testing.assert_array_equal(found, scale[:, None] * (K[heads] - K[tails]))
    np.testing.assert_array_equal(backend.to_numpy(k), K)


@pytest.mark.parametrize("few", [0, 10**6])
def test_factors_and_what_is_made_of_them(case, backend, rng, monkeypatch, few):
    monkeypatch.setattr(gram_numpy, "_FEW_NODES", few)
    K = case[0]
    b = rng.normal(size=len(K))
    k, right = on(backend, K, b)
    gram = gram_kernels_for(k)
    L = gram.cholesky(k)
    lower = backend.to_numpy(L)
    np.testing.assert_array_equal(lower, np.tril(lower))
    np.testing.assert_allclose(lower @ lower.T, K, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(
        backend.to_numpy(gram.cholesky_inverse(L)), np.linalg.inv(K), rtol=1e-8, atol=1e-10
    )
    solve = gram.lower_solver(L)
    for transposed in (False, True):
        x = backend.to_numpy(solve(right, transposed))
        np.testing.assert_allclose((lower.T if transposed else lower) @ x, b, atol=1e-10)
    np.testing.assert_allclose(K @ backend.to_numpy(gram.solve_factored(L, right)), b, atol=1e-10)


def test_the_least_eigenvalue_relative_to_another_matrix(case, backend):
    """Of Lap x = λ K x; sparse or not."""
    K, _, heads, tails, weights, _ = case
    k, i, j, w = on(backend, K, heads, tails, weights - weights.mean())
    gram = gram_kernels_for(k)
    lower = gram.cholesky(k)
    L = gram.laplacian(i, j, w, len(K))
    F = np.linalg.inv(backend.to_numpy(lower))
    expected = np.linalg.eigvalsh(F @ backend.to_numpy(L) @ F.T)[0]
    for A in (L, gram.sparse_laplacian(i, j, w, len(K))):
        assert gram.least_relative_eigenvalue(lower)(A) == pytest.approx(expected, abs=1e-12)


def test_a_matrix_that_is_not_definite_has_no_factor(backend):
    A = backend.asarray(np.diag([1.0, -1e-3, 1.0]))
    assert gram_kernels_for(A).cholesky(A) is None


def test_eigenvalues_ascend(case, backend):
    (k,) = on(backend, case[0])
    values, vectors = map(backend.to_numpy, gram_kernels_for(k).eigh(k))
    assert (np.diff(values) >= 0).all()
    np.testing.assert_allclose((vectors * values) @ vectors.T, case[0], atol=1e-10)
    alone = backend.to_numpy(gram_kernels_for(k).eigenvalues(k))
    np.testing.assert_allclose(alone, values, atol=1e-10 * values[-1])


@pytest.mark.parametrize("rows", [2, 10**6])
@pytest.mark.parametrize("dense", [0, 10**6])
def test_a_product_with_a_laplacian(case, backend, monkeypatch, rows, dense):
    """Sparse or dense, whatever the size of the blocks."""
    monkeypatch.setattr(gram_numpy, "_DENSE", dense)
    K, W, heads, tails, weights, _ = case
    k, w, i, j, weight = on(backend, K, W, heads, tails, weights)
    gram = gram_kernels_for(k)
    monkeypatch.setattr(gram, "ROWS", rows)
    expected = backend.to_numpy(gram.laplacian(i, j, weight, len(K))) @ K
    S = gram.sparse_laplacian(i, j, weight, len(K))
    np.testing.assert_allclose(backend.to_numpy(gram.product(S, k)), expected, rtol=1e-12)
    np.testing.assert_allclose(backend.to_numpy(gram.product(w, k)), W @ K, rtol=1e-12)


@pytest.mark.parametrize("rows", [2, 7, 10**6])
@pytest.mark.parametrize("by_rows", [False, True])
def test_factor_of_the_schur_matrix(case, backend, rng, monkeypatch, rows, by_rows):
    """From matrices or from rows, whatever the size of the blocks, which leave a shorter last."""
    Z, W, heads, tails, scale, extra = case
    gram = gram_kernels_for(on(backend, Z)[0])
    monkeypatch.setattr(gram, "ROWS", rows)
    if by_rows:
        C = scale[:, None] ** 0.5 * (np.eye(len(Z))[heads] - np.eye(len(Z))[tails])
        found = gram.schur_of_rows(*on(backend, C, C @ W, extra))
        M = schur_by_loops(np.eye(len(Z)), W, *case[2:])
    else:
        found = gram.schur(*on(backend, *case))
        M = schur_by_loops(*case)
    x = rng.normal(size=len(M))
    answer = backend.to_numpy(gram.solve_factored(found, *on(backend, M @ x)))
    np.testing.assert_allclose(answer, x, atol=1e-12 * np.linalg.cond(M))


def test_a_direction_and_two_results(case, backend, rng):
    inverse, K = case[:2]
    product = rng.normal(size=K.shape)
    arrays = on(backend, inverse, K, product)
    gram = gram_kernels_for(arrays[0])
    found = backend.to_numpy(gram.direction(0.3, *arrays))
    expected = 0.3 * inverse - K - 0.5 * (product + product.T)
    np.testing.assert_allclose(found, expected, atol=1e-12 * np.abs(expected).max())
    for n in (3, 10**4):
        assert list(gram.both(lambda: 1.0, lambda: 2.0, n)) == [1.0, 2.0]


def test_a_factor_in_single_precision(case, backend, rng):
    """Solutions have its relative error, whatever the sizes of rows; the rest is refined away."""
    Z, W, heads, tails, scale, extra = case
    scale = scale * 10.0 ** rng.integers(-8, 8, len(scale))
    extra = extra * scale**2
    arrays = on(backend, Z, W, heads, tails, scale, extra)
    gram = gram_kernels_for(arrays[0])
    found = gram.schur(*arrays, single=True)
    assert "float32" in str(found.lower.dtype)
    M = schur_by_loops(Z, W, heads, tails, scale, extra)
    units = np.diagonal(M) ** -0.5
    condition = np.linalg.cond(M * units * units[:, None])
    x = units * rng.normal(size=len(M))

    def solve(right):
        return backend.to_numpy(gram.solve_factored(found, *on(backend, right)))

    once = solve(M @ x)
    assert 1e-10 < np.abs((once - x) / units).max() <= 1e-6 * condition
    twice = once + solve(M @ (x - once))
    assert np.abs((twice - x) / units).max() < 0.1 * np.abs((once - x) / units).max()
    assert not solve(0 * x).any()
    arrays[5] = arrays[5] - 1e40
    assert gram.schur(*arrays, single=True) is None


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_matrix_is_factored_and_solved_by_panels(rng, monkeypatch, dtype):
    """As LAPACK does it at once; entries below the diagonal stay, whatever they are."""
    monkeypatch.setattr(gram_numpy, "_PANEL", 8)
    monkeypatch.setattr(gram_numpy, "_TILE", 5)
    monkeypatch.setattr(gram_numpy, "_CORNER", 3)
    A = rng.normal(size=(61, 80))
    M = (A @ A.T).astype(dtype)
    U = np.where(np.tri(61, k=-1, dtype=bool), np.nan, M).astype(dtype)
    assert gram_numpy._factor_in_place(U)
    assert np.isnan(U[np.tri(61, k=-1, dtype=bool)]).all()
    upper, error = np.triu(U), 100 * np.finfo(dtype).eps
    np.testing.assert_allclose(upper.T @ upper, M, atol=error * np.abs(M).max())
    x = rng.normal(size=61).astype(dtype)
    found = gram_numpy._solve_by_panels(U, M @ x)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, x, atol=error * np.linalg.cond(M))
    M[40, 40] = -1
    assert not gram_numpy._factor_in_place(M)


def test_a_singular_schur_matrix_is_refused_and_by_rows_raised_a_little(case, backend, rng):
    """Parallel edges without a diagonal of their own: M is singular, and known to be so only up to
    rounding. Raised, it is solved for right sides that it has."""
    Z, W, heads, tails, scale, extra = case
    twice = [np.concatenate([a, a]) for a in (heads, tails, scale, 0 * extra)]
    gram = gram_kernels_for(on(backend, Z)[0])
    shifted = twice[-1] - 1e-12
    assert gram.schur(*on(backend, Z, W, *twice[:-1], shifted)) is None
    F = np.linalg.cholesky(Z)
    C = twice[2][:, None] ** 0.5 * (F[twice[0]] - F[twice[1]])
    V = np.linalg.solve(F, np.linalg.solve(F, W).T)  # F V Fᵀ = W
    found = gram.schur_of_rows(*on(backend, C, C @ V, shifted))
    M = schur_by_loops(Z, W, *twice)
    right = M @ rng.normal(size=len(M))
    x = backend.to_numpy(gram.solve_factored(found, *on(backend, right)))
    np.testing.assert_allclose(M @ x, right, atol=1e-3 * np.abs(right).max())


def test_a_schur_matrix_that_no_ridge_makes_definite_is_none(case, backend):
    arrays = on(backend, *case)
    gram = gram_kernels_for(arrays[0])
    arrays[5] = arrays[5] - 1e6
    assert gram.schur(*arrays) is None
    rows = gram.edge_rows(arrays[0], *arrays[2:5])
    assert gram.schur_of_rows(rows, rows, arrays[5] - 1e12) is None


def test_memory_and_unit_matrix(backend):
    reference = backend.asarray(np.zeros(0))
    gram = gram_kernels_for(reference)
    assert gram.total_memory(reference) > 1e8
    np.testing.assert_array_equal(backend.to_numpy(gram.eye(4, reference)), np.eye(4))


@pytest.mark.torch
def test_twins_have_the_same_functions():
    from nearfar.kernels import gram_torch

    def public(module):
        own = {
            k for k, v in vars(module).items() if getattr(v, "__module__", "") == module.__name__
        }
        own |= {k for k in vars(module) if k.isupper()}
        return {name for name in own if not name.startswith("_")}

    assert public(gram_numpy) == public(gram_torch)
