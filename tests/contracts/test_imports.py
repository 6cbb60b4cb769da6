"""Imports are cheap: measured by what is loaded, which unlike seconds is the same everywhere.

``import nearfar`` alone takes a millisecond, because names are loaded when they are first used. All
of them take about 0.1 s beyond what scikit-learn's own neighbours load.
"""

import subprocess
import sys

from nearfar.registry import ENTRIES


def loaded_after(*statements):
    """The modules that each statement adds, in an interpreter of its own."""
    program = "import sys\nseen = set(sys.modules)\n" + "".join(
        f"{statement}\nprint(*(set(sys.modules) - seen))\nseen = set(sys.modules)\n"
        for statement in statements
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [set(line.split()) for line in done.stdout.splitlines()]


def test_the_package_itself_loads_nothing_but_the_list_of_estimators():
    (own,) = loaded_after("import nearfar")
    assert {name for name in own if "." not in name} - set(sys.stdlib_module_names) == {"nearfar"}
    assert {name for name in own if name.startswith("nearfar.")} == {"nearfar.registry"}


def test_one_estimator_loads_no_other_and_all_of_them_little_beside_scikit_learn():
    theirs, one, rest = loaded_after(
        "import sklearn.neighbors",
        "from nearfar import RCA",
        "import nearfar\nfor name in nearfar.__all__: getattr(nearfar, name)",
    )
    assert one & {entry.module for entry in ENTRIES} == {"nearfar.estimators.rca"}
    own = one | rest
    assert len({name for name in own if name.startswith("nearfar.")}) > 50
    foreign = {name for name in own if not name.startswith("nearfar")}
    packages = {name.partition(".")[0] for name in foreign} - set(sys.stdlib_module_names)
    assert packages <= {"sklearn"}
    assert len(foreign) <= 10, sorted(foreign)
    assert "sklearn" in theirs
    assert theirs.isdisjoint({"torch", "matplotlib"})
