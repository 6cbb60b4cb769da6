"""The torch devices of this machine."""

from __future__ import annotations

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
        devices[f"cuda:{number}"] = f"{card.name}, {card.total_memory / 2**30:.0f} GiB"
    return devices


def on_device(X: Any, device: str) -> Array:
    """A NumPy array as a torch tensor on a device, of the same dtype."""
    import torch

    return torch.as_tensor(X, device=device)
