"""How the command shows a fit while it runs."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from nearfar.cli import tell
from nearfar.progress import progress as show_progress


def progress(model: Any) -> AbstractContextManager[None]:
    """Show the iterations of ``model.fit``; what is no terminal gets lines that obey nothing."""
    return show_progress(model, tell)
