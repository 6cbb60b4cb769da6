"""The devices that torch names are those that tensors can be put on."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from nearfar import kernels
from nearfar.kernels.devices import fused_search_fault, on_device, torch_devices


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
    assert " GiB, " in devices["cuda:0"]
    assert devices["cuda:0"].endswith("fused search") == (fused_search_fault("cuda:0") is None)


def test_why_there_is_no_fused_search(monkeypatch):
    monkeypatch.setitem(sys.modules, "nearfar.kernels.fused", None)
    assert fused_search_fault.__wrapped__("cuda:0") == "triton is not installed"


@pytest.mark.torch
def test_faults_of_the_compiler_are_told(monkeypatch):
    def check(device):
        raise RuntimeError(f"no C compiler for {device}\nsecond line")

    module = SimpleNamespace(check=check)
    monkeypatch.setitem(sys.modules, "nearfar.kernels.fused", module)
    monkeypatch.setattr(kernels, "fused", module, raising=False)
    fault = fused_search_fault.__wrapped__("cuda:0")
    assert fault == "RuntimeError: no C compiler for cuda:0"
