"""Tensors on their way between host memory and a device."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor


class Transfer:
    """Copies of tensors, made by one thread while another computes.

    ``reference`` is an empty tensor on the device. On CUDA, host memory is pinned, and copies to
    the device have a stream of their own.
    """

    def __init__(self, device: str) -> None:
        self.device = torch.device(device)
        self.is_cuda = self.device.type == "cuda"
        self.reference = torch.empty(0, device=self.device)
        self._stream = torch.cuda.Stream(self.device) if self.is_cuda else None

    def beside(self) -> Any:
        """A context whose copies do not wait for what the device computes."""
        return torch.cuda.stream(self._stream) if self.is_cuda else nullcontext()

    def is_away(self, x: Tensor) -> bool:
        """Whether a tensor is not on the device."""
        return bool(x.device.type != self.device.type)

    def load(self, x: Tensor) -> Tensor:
        """The tensor on the device."""
        return x.to(self.device, non_blocking=True) if self.is_away(x) else x

    def unload(self, x: Tensor) -> Tensor:
        """The tensor in host memory."""
        if not self.is_cuda:
            return x
        out = torch.empty(x.shape, dtype=x.dtype, pin_memory=True)
        out.copy_(x, non_blocking=True)
        return out

    def host_rows(self, X: Any) -> Tensor:
        """Rows of an array in host memory from which they are copied fast."""
        rows = torch.as_tensor(X)
        return rows.pin_memory() if self.is_cuda else rows

    def wait(self) -> None:
        """Wait for the copies and computations of this thread."""
        if self.is_cuda:
            torch.cuda.current_stream(self.device).synchronize()
