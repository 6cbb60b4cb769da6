"""How estimators are built: few base classes, and no cycle that only a type checker sees."""

import ast
import importlib
from pathlib import Path

import pytest

import nearfar
from nearfar.registry import ENTRIES

ESTIMATORS = Path(nearfar.__file__).parent / "estimators"
MOST_ANCESTORS = 4  # of ours; scikit-learn's mixins do not count


def own_ancestors(cls):
    """The names of the base classes of nearfar, nearest first."""
    return [base.__name__ for base in cls.__mro__[1:] if base.__module__.startswith("nearfar.")]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_a_public_class_has_at_most_four_own_ancestors(entry):
    found = own_ancestors(getattr(importlib.import_module(entry.module), entry.name))
    assert len(found) <= MOST_ANCESTORS, found


def test_own_ancestors_are_counted_without_those_of_scikit_learn():
    assert own_ancestors(nearfar.RCA) == ["PairLearner", "MetricLearner", "Metric", "Estimator"]


def imports_for_type_checkers(text):
    """The names of nearfar's estimator modules that a module imports under TYPE_CHECKING."""
    found = set()
    for block in ast.walk(ast.parse(text)):
        if not isinstance(block, ast.If) or "TYPE_CHECKING" not in ast.unparse(block.test):
            continue
        for node in (node for statement in block.body for node in ast.walk(statement)):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module == "nearfar.estimators":
                found |= {f"nearfar.estimators.{alias.name}" for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                found.add(node.module)
    return {name for name in found if name.startswith("nearfar.estimators.")}


def public_modules(names):
    return {name for name in names if not name.rpartition(".")[2].startswith("_")}


def test_no_private_module_knows_a_public_one_for_its_types():
    """It would read the attributes of the class that calls it, and the two be one knot."""
    private = sorted(ESTIMATORS.glob("_[a-z]*.py"))
    assert len(private) > 1, f"found no private modules in {ESTIMATORS}"
    for path in private:
        found = public_modules(imports_for_type_checkers(path.read_text(encoding="utf-8")))
        assert not found, f"{path.name} imports {found} under TYPE_CHECKING"


@pytest.mark.parametrize(
    "text",
    [
        "if TYPE_CHECKING:\n    from nearfar.estimators.lmnn import LMNN",
        "if typing.TYPE_CHECKING:\n    import nearfar.estimators.lmnn",
        "if TYPE_CHECKING:\n    from nearfar.estimators import lmnn",
    ],
)
def test_a_planted_import_is_found(text):
    assert public_modules(imports_for_type_checkers(text)) == {"nearfar.estimators.lmnn"}


def test_imports_of_private_and_other_modules_are_allowed():
    text = (
        "from nearfar.estimators.lmnn import LMNN\nif TYPE_CHECKING:\n    import faiss\n"
        "    from nearfar.estimators._base import Metric\nelse:\n    import nearfar.estimators.nca"
    )
    assert public_modules(imports_for_type_checkers(text)) == set()
