"""Which Swiss rolls are unfolded, and by whom.

Only the standard library is imported here, for the reason that `benchmarks.common` gives.
"""

import re

SMALL = ("roll50k4", "roll100k4")  # for all programs
MIDDLE = ("roll200k4", "roll400k4", "roll800k4", "roll1000k4")  # for CSDP and nearfar
LARGE = ("roll2000k5",)  # for nearfar alone
DEVICE = ("roll400k4", "roll1000k4", "roll2000k5", "roll5000k5", "roll10000k5")
SMOKE = ("roll50k4", "roll100k4")
GAP = VIOLATION = 1e-6  # the accuracy that is asked of all programs

METHODS = (
    ("CSDP", "csdp", {"centre": "objective"}),
    ("CSDP, as in the thesis", "csdp", {"centre": "constraint"}),
    ("Clarabel", "clarabel", {}),
    ("SCS", "scs", {}),
    ("nearfar", "nearfar", {"tol": GAP}),
)
PEERS = ("csdp", "clarabel", "scs")
MOST = {"CSDP": 1000, "CSDP, as in the thesis": 400, "Clarabel": 100, "SCS": 100}  # points


def size_of(name):
    """Points and neighbours of a data set such as roll400k4."""
    found = re.fullmatch(r"roll([0-9]+)k([0-9]+)", name)
    if found is None:
        raise SystemExit(
            f"no data set {name!r}; expected roll<points>k<neighbours>, such as roll400k4"
        )
    return int(found[1]), int(found[2])


def data_of(arguments):
    """The names of the programs that a run solves."""
    if arguments.data:
        return arguments.data
    if arguments.smoke:
        return SMOKE
    return DEVICE if arguments.device != "cpu" else SMALL + MIDDLE + LARGE


def methods_of(name, peers):
    """The methods that solve a program: of the peers, only those that its size allows."""
    points, _ = size_of(name)
    for method, program, options in METHODS:
        if program == "nearfar" or (program in peers and points <= MOST[method]):
            yield method, program, options
