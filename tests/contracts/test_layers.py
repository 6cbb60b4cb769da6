"""The layers: imports flow one way, and optional packages stay optional.

The rules are data, below. The checker reads the syntax tree of every module, so that it also sees
an import inside a function; imports under `if TYPE_CHECKING:` exist only for the type checker and
are exempt.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "nearfar"

# A layer may import from those before it. `__init__` holds the public names.
LAYERS = (
    "errors",
    "registry",
    "validation",
    "files",
    "limits",
    "progress",
    "linalg",
    "kernels",
    "blocks",
    "supervision",
    "graphs",
    "problems",
    "solvers",
    "estimators",
    "datasets",
    "evaluation",
    "io",
    "proofs",
    "analysis",
    "plots",
    "report",
    "__init__",
    "compat",
    "cli",
    "__main__",
)
# Layers that may import less than what stands before them: a solver knows no problem, a problem
# knows no solver (it stands before them), data knows no method, a proof is checked by nothing that
# made it.
NARROWER = {
    "solvers": {"errors", "files", "limits", "linalg"},
    "datasets": {"errors", "files", "validation"},
    "proofs": {"errors", "io"},
}
# Optional packages, and the modules or packages that exist only for them: only there may the import
# stand at the top of the module. Everywhere else it stands in the function that needs it.
OPTIONAL = {
    "click": {"nearfar.cli"},
    "dask": set(),
    "distributed": set(),
    "faiss": set(),
    "jinja2": set(),
    "matplotlib": set(),
    "onnx": set(),
    "pyarrow": set(),
    "rich": set(),
    "skops": set(),
    "torch": {
        "nearfar.kernels.fused",
        "nearfar.kernels.fused_softmax",
        "nearfar.kernels.gram_torch",
        "nearfar.kernels.on_torch",
        "nearfar.kernels.transfer",
    },
    "triton": {"nearfar.kernels.fused_tiles"},
}
# Packages that only one layer may import at all.
CONFINED = {
    "dask": "blocks",
    "distributed": "blocks",
    "faiss": "estimators",
    "jinja2": "report",
    "matplotlib": "plots",
    "onnx": "estimators",
    "torch": "kernels",
    "triton": "kernels",
}


@dataclass(frozen=True)
class Import:
    """One imported name, absolute: `nearfar.linalg.symmetric`, `torch`."""

    name: str
    line: int
    at_top: bool


def is_type_checking(node: ast.AST) -> bool:
    if not isinstance(node, ast.If):
        return False
    test = node.test
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )


def imports(node: ast.AST, package: str, *, at_top: bool = True) -> Iterator[Import]:
    """All imports at or below a node of a module that belongs to a package."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield Import(alias.name, node.lineno, at_top)
    elif isinstance(node, ast.ImportFrom):
        parents = package.split(".")[: len(package.split(".")) - node.level + 1]
        start = ".".join([*parents, node.module or ""]).rstrip(".") if node.level else node.module
        for alias in node.names:
            yield Import(f"{start}.{alias.name}", node.lineno, at_top)
    elif is_type_checking(node):
        for child in node.orelse:
            yield from imports(child, package, at_top=at_top)
    else:
        inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            yield from imports(child, package, at_top=at_top and not inside)


def layer_of(name: str) -> str:
    """The layer that a dotted name inside nearfar belongs to."""
    second = name.split(".")[1] if "." in name else "__init__"
    return second if second in LAYERS else "__init__"


def violations_in(path: Path, root: Path) -> Iterator[str]:
    """What one module of the package in `root` does against the rules."""
    file = path.relative_to(root).as_posix()
    parts = [root.name, *path.relative_to(root).with_suffix("").parts]
    layer = parts[1]
    if layer not in LAYERS:
        yield f"{file}: belongs to no layer; put it into one of {', '.join(LAYERS)}"
        return
    allowed = {layer, *NARROWER.get(layer, LAYERS[: LAYERS.index(layer)])}
    package = ".".join(parts[:-1])
    module = package if parts[-1] == "__init__" else ".".join(parts)
    for found in imports(ast.parse(path.read_text(encoding="utf-8")), package):
        where = f"{file}:{found.line}"
        top = found.name.split(".")[0]
        if top == root.name and found.name != f"{root.name}.__version__":
            if layer_of(found.name) not in allowed:
                yield f"{where}: {layer} must not import {found.name}"
        elif top in OPTIONAL:
            owned = any(f"{module}.".startswith(f"{owner}.") for owner in OPTIONAL[top])
            if found.at_top and not owned:
                yield f"{where}: import {top} in the function that needs it"
            if top in CONFINED and layer != CONFINED[top]:
                yield f"{where}: only {CONFINED[top]} may import {top}"


def violations(root: Path) -> list[str]:
    """What the modules of the package in `root` do against the rules."""
    return [found for path in sorted(root.rglob("*.py")) for found in violations_in(path, root)]


def test_the_package_keeps_the_rules():
    modules = list(SOURCE.rglob("*.py"))
    assert len(modules) > 1, f"found no modules under {SOURCE}"
    assert violations(SOURCE) == []


PLANTED = [
    # A layer imports from a later one.
    ("linalg.py", "from nearfar.kernels import nearest", "linalg must not import nearfar.kernels"),
    ("linalg.py", "import nearfar.solvers.run", "linalg must not import nearfar.solvers.run"),
    ("linalg.py", "from nearfar import cli", "linalg must not import nearfar.cli"),
    ("linalg.py", "from . import io", "linalg must not import nearfar.io"),
    ("linalg.py", "from .io import load", "linalg must not import nearfar.io.load"),
    ("kernels/__init__.py", "from ..problems import lmnn", "kernels must not import nearfar.prob"),
    ("problems/lmnn.py", "from ..solvers.run import run", "problems must not import nearfar.sol"),
    ("problems/lmnn.py", "def f():\n    import nearfar.io", "problems must not import nearfar.io"),
    ("problems/lmnn.py", "try:\n    import nearfar.io\nexcept ImportError: pass", "nearfar.io"),
    # The public names are made of all layers, so taking one from there closes a circle.
    ("evaluation/knn.py", "from nearfar import LMNN", "evaluation must not import nearfar.LMNN"),
    ("evaluation/knn.py", "import nearfar", "evaluation must not import nearfar"),
    ("__init__.py", "from nearfar.cli import main", "__init__ must not import nearfar.cli.main"),
    # Layers that may import less than what stands before them.
    ("solvers/run.py", "from nearfar.problems.lmnn import LMNNProblem", "solvers must not import"),
    ("solvers/run.py", "from nearfar.kernels import nearest", "solvers must not import"),
    ("datasets/made.py", "from nearfar.linalg import symmetric", "datasets must not import"),
    ("proofs/bounds.py", "from nearfar.linalg import symmetric", "proofs must not import"),
    ("proofs/bounds.py", "from nearfar.kernels import kernels_for", "proofs must not import"),
    # Optional packages.
    ("cli.py", "import rich.table", "import rich in the function that needs it"),
    ("io.py", "if True:\n    from pyarrow import parquet", "import pyarrow in the function"),
    ("plots/metric.py", "class A:\n    import matplotlib", "import matplotlib in the function"),
    ("report/page.py", "def f():\n    import matplotlib", "only plots may import matplotlib"),
    ("kernels/on_numpy.py", "import torch", "import torch in the function that needs it"),
    ("estimators/lmnn.py", "def f():\n    import torch", "only kernels may import torch"),
    ("linalg.py", "def f():\n    from torch.linalg import eigh", "only kernels may import torch"),
    ("estimators/lmnn.py", "import faiss", "import faiss in the function that needs it"),
    ("io.py", "def f():\n    from onnx import helper", "only estimators may import onnx"),
    ("plots/a.py", "def f():\n    import jinja2", "only report may import jinja2"),
    # A module outside the layers.
    ("misc.py", "", "belongs to no layer"),
    ("misc/lists.py", "", "belongs to no layer"),
]


def plant(root: Path, name: str, text: str) -> Path:
    package = root / "nearfar"
    module = package / name
    module.parent.mkdir(parents=True)
    module.write_text(text)
    return package


@pytest.mark.parametrize(("name", "text", "expected"), PLANTED)
def test_a_planted_violation_is_found(tmp_path, name, text, expected):
    (found,) = [
        violation for violation in violations(plant(tmp_path, name, text)) if expected in violation
    ]
    assert name in found


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("linalg.py", "from scipy import linalg\nfrom nearfar.errors import DataWarning"),
        ("kernels/on_numpy.py", "from . import reference\nfrom .. import linalg"),
        ("kernels/on_torch.py", "import torch\nfrom torch import Tensor"),
        ("kernels/__init__.py", "def f():\n    import torch\n    from . import on_torch"),
        ("cli/table.py", "import click\nfrom nearfar.cli import main"),
        ("cli.py", "import click\nimport nearfar\ndef f():\n    import rich"),
        ("io.py", "from nearfar import __version__\nfrom nearfar.estimators import LMNN"),
        ("linalg.py", "if TYPE_CHECKING:\n    import torch\n    from nearfar.io import load"),
        ("linalg.py", "if typing.TYPE_CHECKING:\n    import torch"),
        ("__init__.py", "from nearfar.errors import NearfarError"),
    ],
)
def test_what_the_rules_allow_is_not_reported(tmp_path, name, text):
    assert violations(plant(tmp_path, name, text)) == []


def test_the_else_of_type_checking_is_not_exempt(tmp_path):
    text = "if TYPE_CHECKING:\n    pass\nelse:\n    from nearfar.io import load"
    assert len(violations(plant(tmp_path, "linalg.py", text))) == 1


def loaded_by(statements: str) -> set[str]:
    """The top-level packages that a fresh interpreter has loaded after the statements."""
    program = f"import sys\n{statements}\nprint(*{{name.split('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_import_loads_no_optional_package():
    loaded = loaded_by("import nearfar")
    assert "nearfar" in loaded
    assert loaded.isdisjoint(OPTIONAL)
