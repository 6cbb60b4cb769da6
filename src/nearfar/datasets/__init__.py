"""Tables of points: read from files, or built in."""

from nearfar.datasets.builtin import BUILTIN_NAMES, load_builtin
from nearfar.datasets.files import load_table
from nearfar.datasets.table import Table

__all__ = ["BUILTIN_NAMES", "Table", "load_builtin", "load_table"]
