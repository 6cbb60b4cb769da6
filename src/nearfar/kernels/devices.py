"""The torch devices of this machine."""

from __future__ import annotations

from functools import cache
from typing import Any

from nearfar.kernels import Array


def torch_devices() -> dict[str, str]:
    """Names of the devices, as ``tensor.to`` takes them, with descriptions; empty without torch."""
    try:
        import torch
    except ImportError:
        return {}
    devices = {"cpu": "processor"}
    for number in range(torch.cuda.device_count()):
        card = torch.cuda.get_device_properties(number)
        fault = fused_search_fault(name := f"cuda:{number}")
        search = "fused search" if fault is None else f"no fused search: {fault}"
        devices[name] = f"{card.name}, {card.total_memory / 2**30:.0f} GiB, {search}"
    return devices


@cache
def fused_search_fault(device: str) -> str | None:
    """Why the searches of `nearfar.kernels.fused` cannot run on a CUDA device; None if they can."""
    try:
        from nearfar.kernels import fused
    except ImportError:
        return "triton is not installed"
    try:
        fused.check(device)
    except Exception as error:  # of the compiler, the linker or the driver: any class
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return None


def on_device(X: Any, device: str) -> Array:
    """A NumPy array as a torch tensor on a device, of the same dtype."""
    import torch

    return torch.as_tensor(X, device=device)
