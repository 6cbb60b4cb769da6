"""Rows that lie in blocks on other machines: where tasks run, and what one pass over rows sums.

The only layer that imports Dask, and only in functions: nothing here needs it for data in memory.
"""

from nearfar.blocks.chosen import LazyRows, is_lazy
from nearfar.blocks.engine import Engine, Sized, Task, current_engine, is_dask
from nearfar.blocks.rows import Blocks
from nearfar.blocks.streamed import Streamed, in_blocks

__all__ = [
    "Blocks",
    "Engine",
    "LazyRows",
    "Sized",
    "Streamed",
    "Task",
    "current_engine",
    "in_blocks",
    "is_dask",
    "is_lazy",
]
