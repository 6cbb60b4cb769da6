"""Without torch its kernels cannot be imported, and there are no examples of theirs to try."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator

import pytest

collect_ignore = (
    []
    if importlib.util.find_spec("torch") is not None
    else ["nearfar/kernels/gram_torch.py", "nearfar/kernels/on_torch.py"]
)


@pytest.fixture(autouse=True)
def _closed_figures() -> Iterator[None]:
    """Close what the example of a display has drawn."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")
