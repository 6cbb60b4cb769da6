"""The devices that torch names are those that tensors can be put on."""

import sys

import numpy as np
import pytest

from nearfar.kernels.devices import on_device, torch_devices


def test_none_without_torch(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert torch_devices() == {}


@pytest.mark.torch
def test_tensors_on_every_device(dtype):
    devices = torch_devices()
    assert next(iter(devices)) == "cpu"
    for device in devices:
        tensor = on_device(np.arange(3, dtype=dtype), device)
        assert str(tensor.device) == device
        assert str(tensor.dtype) == f"torch.{np.dtype(dtype).name}"
        assert tensor.tolist() == [0, 1, 2]


@pytest.mark.gpu
def test_cards_are_named(torch):
    devices = torch_devices()
    assert len(devices) == 1 + torch.cuda.device_count()
    assert devices["cuda:0"].startswith(torch.cuda.get_device_name(0))
    assert devices["cuda:0"].endswith(" GiB")
