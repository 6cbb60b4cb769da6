"""The pages' examples are tests; what builds the site, and what it builds, is not.

Pages whose examples take seconds are slow: `dev.py test` leaves them out, `dev.py docs` does not.
"""

from pathlib import Path

import pytest

SLOW = (
    "algorithms/lmnn",
    "algorithms/mcml",
    "algorithms/mvu",
    "algorithms/variational_mvu",
    "large_data",
    "pairs",
    "plots",
)

collect_ignore = ["_build", "_extensions", "api/generated", "conf.py", "gallery", "images"]


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the examples of these pages as slow."""
    if item.path.relative_to(Path(__file__).parent).with_suffix("").as_posix() in SLOW:
        item.add_marker("slow")
