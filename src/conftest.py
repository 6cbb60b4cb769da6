"""Without torch its kernels cannot be imported, and there are no examples of theirs to try."""

from __future__ import annotations

import importlib.util

collect_ignore = (
    [] if importlib.util.find_spec("torch") is not None else ["nearfar/kernels/on_torch.py"]
)
