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


def test_laplacian(case, backend):
    """Of parallel edges the weights add up; rows sum to zero."""
    K, _, heads, tails, weights, _ = case
    n = len(K)
    i, j, w = on(backend, heads, tails, weights)
    found = backend.to_numpy(gram_kernels_for(w).laplacian(i, j, w, n))
    expected = np.zeros((n, n))
    for h, t, value in zip(heads, tails, weights, strict=True):
        for a, b, sign in ((h, h, 1), (t, t, 1), (h, t, -1), (t, h, -1)):
            expected[a, b] += sign * value
    np.testing.assert_allclose(found, expected, atol=1e-13)
    np.testing.assert_allclose(found.sum(axis=0), 0, atol=1e-13)


def test_factors_and_what_is_made_of_them(case, backend, rng):
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
    for transposed in (False, True):
        x = backend.to_numpy(gram.solve_lower(L, right, transposed=transposed))
        np.testing.assert_allclose((lower.T if transposed else lower) @ x, b, atol=1e-10)


def test_a_matrix_that_is_not_definite_has_no_factor(backend):
    A = backend.asarray(np.diag([1.0, -1e-3, 1.0]))
    assert gram_kernels_for(A).cholesky(A) is None


def test_eigenvalues_ascend(case, backend):
    (k,) = on(backend, case[0])
    values, vectors = map(backend.to_numpy, gram_kernels_for(k).eigh(k))
    assert (np.diff(values) >= 0).all()
    np.testing.assert_allclose((vectors * values) @ vectors.T, case[0], atol=1e-10)


@pytest.mark.parametrize("rows", [2, 7, 10**6])
def test_schur_matrix_and_its_factor(case, backend, rng, monkeypatch, rows):
    """Whatever the size of the blocks, which leave a shorter last one."""
    arrays = on(backend, *case)
    gram = gram_kernels_for(arrays[0])
    monkeypatch.setattr(gram, "ROWS", rows)
    found = gram.schur(*arrays)
    M = schur_by_loops(*case)
    x = rng.normal(size=len(M))
    size = np.abs(M).sum(axis=1).max()
    product = backend.to_numpy(found.matvec(*on(backend, x)))
    np.testing.assert_allclose(product, M @ x, atol=1e-11 * size)
    answer = backend.to_numpy(found.solve(*on(backend, M @ x)))
    np.testing.assert_allclose(answer, x, atol=1e-12 * np.linalg.cond(M))


def test_a_singular_schur_matrix_is_raised_a_little_for_product_and_solution(case, backend, rng):
    """Parallel edges without a diagonal of their own: M is singular.

    Both answers are those of the same matrix, which differs from M by at most the largest ridge.
    """
    Z, W, heads, tails, scale, extra = case
    twice = [np.concatenate([a, a]) for a in (heads, tails, scale, 0 * extra)]
    M = schur_by_loops(Z, W, *twice)
    gram = gram_kernels_for(on(backend, Z)[0])
    found = gram.schur(*on(backend, Z, W, *twice))
    x = rng.normal(size=len(M))
    product = backend.to_numpy(found.matvec(*on(backend, x)))
    size = np.diag(M).max() * np.abs(x).max() * len(M)
    np.testing.assert_allclose(product, M @ x, atol=1.1 * max(gram.RIDGES) * size)
    again = backend.to_numpy(found.solve(*on(backend, product)))
    back = backend.to_numpy(found.matvec(*on(backend, again)))
    np.testing.assert_allclose(back, product, atol=1e-6 * np.abs(product).max())


def test_a_schur_matrix_that_no_ridge_makes_definite_is_none(case, backend):
    arrays = on(backend, *case)
    arrays[5] = arrays[5] - 1e6
    assert gram_kernels_for(arrays[0]).schur(*arrays) is None


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
