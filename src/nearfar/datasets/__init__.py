"""Points with labels: tables from files, built-in sets, and made-up ones."""

from nearfar.datasets.builtin import BUILTIN_NAMES, load_builtin
from nearfar.datasets.files import load_table
from nearfar.datasets.table import Table
from nearfar.datasets.toys import make_concentric_circles, make_half_square, make_zebra_stripes

__all__ = [
    "BUILTIN_NAMES",
    "Table",
    "load_builtin",
    "load_table",
    "make_concentric_circles",
    "make_half_square",
    "make_zebra_stripes",
]
