"""Without torch or Triton their kernels cannot be imported, and have no examples to try."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator

import pytest

NEEDED = {
    "torch": [
        "nearfar/kernels/gram_torch.py",
        "nearfar/kernels/on_torch.py",
        "nearfar/kernels/transfer.py",
    ],
    "triton": [f"nearfar/kernels/fused{part}.py" for part in ("", "_softmax", "_tiles")],
}
collect_ignore = [
    path
    for package, paths in NEEDED.items()
    if importlib.util.find_spec(package) is None
    for path in paths
]


@pytest.fixture(autouse=True)
def _closed_figures() -> Iterator[None]:
    """Close what the example of a display has drawn."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")
