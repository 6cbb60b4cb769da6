"""What the torch kernels promise beyond their contract."""

import numpy as np
import pytest

from nearfar.kernels import reference

pytestmark = pytest.mark.torch


def test_impostors_are_right_where_reduced_precision_is_allowed(torch, rng):
    """With TF32 products have 11 bits; the screen is then lowered by that much more.

    On a CPU the products stay exact, so that this shows only that the setting costs no pair; on
    CUDA it shows that the bound holds.
    """
    from nearfar.kernels import on_torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    Z = rng.normal(size=(80, 20)).astype(np.float32)
    starts = np.array([0, 40, 80])
    reach = reference.sq_lengths(Z, np.arange(80), rng.permutation(80)).astype(np.float64)
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        assert on_torch._matmul_eps(torch.zeros(1)) == 2.0**-8
        assert on_torch._matmul_eps(torch.zeros(1, dtype=torch.float64)) < 1e-15
        found = on_torch.impostor_pairs(
            torch.tensor(Z, device=device), torch.tensor(reach, device=device), starts
        )
    finally:
        torch.set_float32_matmul_precision(before)
    lengths = ((Z[:, None] - Z[None]).astype(np.float64) ** 2).sum(2)
    near = lengths < reach[:, None]
    near[:40, :40] = near[40:, 40:] = False
    sure = np.abs(lengths - reach[:, None]) > 1e-5
    got = np.zeros_like(near)
    got[tuple(part.cpu().numpy() for part in found)] = True
    np.testing.assert_array_equal(got[sure], near[sure])


@pytest.mark.gpu
def test_tiles_fit_the_card(torch):
    from nearfar.kernels import on_torch

    free, _ = torch.cuda.mem_get_info()
    assert 24 * on_torch._tile(torch.zeros((1, 1), device="cuda")) ** 2 <= free


def test_tensors_that_ask_for_gradients_come_to_the_host(torch):
    from nearfar.kernels import on_torch

    tensor = torch.ones(3, requires_grad=True)
    np.testing.assert_array_equal(on_torch.to_host(tensor), np.ones(3))
    np.testing.assert_array_equal(on_torch.to_host([1, 2]), [1, 2])
