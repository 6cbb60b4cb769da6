"""One list of estimators: what follows from an entry of `nearfar.registry`, and what must match it.

The toy estimator is added to a copy of the package in two steps, its module and one line of the
registry, and is then found wherever estimators are. Pages are written by hand, and so are the
imports that type checkers read: of these a test prints the lines that are missing.
"""

import ast
import importlib
import inspect
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from sklearn.base import ClassifierMixin

import nearfar
from nearfar import estimators, io
from nearfar.cli.methods import METHODS
from nearfar.estimators._base import Metric
from nearfar.estimators._tuples import PairLearner
from nearfar.estimators._unfolding import Unfolding
from nearfar.registry import ENTRIES, Entry, entries
from tests.contracts.test_layers import is_type_checking

ROOT = Path(__file__).parents[2]
SOURCE = Path(nearfar.__file__).parent

each_entry = pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)

# Where the reference lists a class, by what it learns from.
SECTIONS = {
    "labels": "Metrics from labels",
    "pairs": "Metrics from pairs, triplets or chunklets",
    "triplets": "Metrics from pairs, triplets or chunklets",
    "quadruplets": "Metrics from pairs, triplets or chunklets",
    "chunklets": "Metrics from pairs, triplets or chunklets",
    "numbers": "Metrics from points or numbers",
    "points": "Metrics from points or numbers",
    "metric": "Around a metric",
    "neighbours": "Maps from neighbours or distances",
    "distances": "Maps from neighbours or distances",
}


# -- an entry and its class ----------------------------------------------------------------------


def test_every_public_module_of_the_estimators_has_one_entry():
    modules = {path.stem for path in (SOURCE / "estimators").glob("[!_]*.py")}
    stems = [entry.stem for entry in ENTRIES]
    assert sorted(stems) == sorted(modules)
    assert len({entry.name for entry in ENTRIES}) == len(ENTRIES)


@each_entry
def test_an_entry_says_what_its_class_is(entry):
    cls = getattr(importlib.import_module(entry.module), entry.name)
    assert cls.__module__ == entry.module
    is_classifier = issubclass(cls, ClassifierMixin)
    assert is_classifier == (entry.kind == "classifier")
    assert (issubclass(cls, Metric) and not is_classifier) == (entry.kind == "metric")
    assert issubclass(cls, Unfolding) == (entry.kind == "unfolding")
    assert issubclass(cls, PairLearner) == (entry.learns_from in ("pairs", "chunklets"))
    assert ("kernel" in inspect.signature(cls).parameters) == entry.kernel
    # The command learns metrics from tables with labels.
    assert entry.command == (
        entry.learns_from in ("labels", "pairs", "triplets", "quadruplets", "chunklets")
    )


@pytest.mark.parametrize(
    "entry", [entry for entry in ENTRIES if entry.kind in ("unfolding", "scaling")], ids=str
)
def test_the_file_of_an_estimator_contains_its_fit(entry):
    """A reader who opens the file finds the algorithm, and has at most four classes of ours to
    look through for the rest."""
    cls = getattr(importlib.import_module(entry.module), entry.name)
    fit = inspect.unwrap(vars(cls)["fit"])
    assert Path(inspect.getsourcefile(fit)).stem == entry.stem
    own = [base for base in cls.__mro__[1:] if base.__module__.startswith("nearfar.")]
    assert len(own) <= 4


@each_entry
def test_an_entry_makes_its_class_public_storable_and_a_method(entry):
    cls = getattr(importlib.import_module(entry.module), entry.name)
    assert entry.name in nearfar.__all__
    assert getattr(nearfar, entry.name) is getattr(estimators, entry.name) is cls
    assert io.MODEL_CLASSES[entry.name] == entry.module
    assert f"{entry.module}.{entry.name}" in nearfar.TRUSTED_TYPES
    assert (METHODS.get(entry.method) == entry.name) == entry.command


def test_entries_are_selected_by_all_that_is_asked():
    assert entries() == list(ENTRIES)
    assert [entry.name for entry in entries(learns_from="pairs", kernel=True)] == [
        "KernelMMC",
        "KernelPOLA",
    ]
    assert entries(kind="scaling", command=True) == []


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(
        AttributeError, match=r"module 'nearfar.estimators' has no attribute 'LNNM'"
    ):
        _ = estimators.LNNM
    assert {"LMNN", "as_metric"} <= set(dir(estimators))


# -- what type checkers read ---------------------------------------------------------------------


def typed_imports(text):
    """The lines under `if TYPE_CHECKING:` of a module, one for each name."""
    (block,) = [node for node in ast.parse(text).body if is_type_checking(node)]
    return {
        f"    from {node.module} import {alias.name} as {alias.asname}"
        for node in block.body
        for alias in node.names
    }


def expected_imports(homes):
    return {f"    from {module} import {name} as {name}" for name, module in homes.items()}


def test_type_checkers_read_the_same_names():
    found = typed_imports((SOURCE / "__init__.py").read_text(encoding="utf-8"))
    expected = expected_imports(nearfar._HOME)
    missing, surplus = sorted(expected - found), sorted(found - expected)
    assert not missing, "add to src/nearfar/__init__.py:\n" + "\n".join(missing)
    assert not surplus, "remove from src/nearfar/__init__.py:\n" + "\n".join(surplus)


# -- pages ---------------------------------------------------------------------------------------


def missing_in_pages(entry):
    """What the pages lack of an entry: the file, and the line to add to it."""
    link, name = Path(entry.path), f"`{entry.name}`"

    def text(page):
        return (ROOT / page).read_text(encoding="utf-8")

    if not (ROOT / link).is_file():
        yield f"{entry.path}: write the page, see 'Adding an algorithm' in CONTRIBUTING.md"
    if link.parent.name == "algorithms" and f"]({link.name})" not in text(
        "docs/algorithms/index.md"
    ):
        yield f"docs/algorithms/index.md: add '- [{entry.name}]({link.name}): …'"
    section = SECTIONS[entry.learns_from]
    listed = text("docs/api/index.md").partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    if f"\n   {entry.name}\n" not in listed:
        yield f"docs/api/index.md, {section}: add '   {entry.name}'"
    # The tables name some classes together, under one link.
    if not (name in text("README.md") and f"]({entry.path})" in text("README.md")):
        yield f"README.md, What is in it: add '| … | [{name}]({entry.path}) | … |'"
    if entry.learns_from != "metric" and name not in text("docs/choosing.md"):
        yield (
            f"docs/choosing.md: add '| … | [{name}]({link.relative_to('docs').as_posix()}) | … |'"
        )
    if entry.learns_from in ("pairs", "chunklets") and name not in text("docs/pairs.md"):
        yield f"docs/pairs.md: add {name} to what it can be fitted to"


@each_entry
def test_an_entry_is_in_the_pages(entry):
    assert list(missing_in_pages(entry)) == []


# -- a toy estimator -----------------------------------------------------------------------------

TOY = """
from nearfar.estimators.linear_metric import LinearMetric


class Toy(LinearMetric):
    pass
"""
ENTRY = Entry("Toy", "toy", "metric", "labels", command=True)
LINE = '    Entry("Toy", "toy", "metric", "labels", command=True),\n'
PROGRAM = """
import json, sys
from sklearn.datasets import load_iris
import nearfar, nearfar.estimators
from nearfar.cli import main
from nearfar.cli.commands import fit
from nearfar.cli.methods import make_model
import benchmarks.choosing
import tests.contracts.test_classifiers, tests.contracts.test_estimators
import tests.contracts.test_threads, tests.plots.test_displays
import tests.report.test_write

X, y = load_iris(return_X_y=True)
model = nearfar.Toy().fit(X, y)
nearfar.save(model, "model.nearfar")
twin = nearfar.load("model.nearfar")
(method,) = [option for option in fit.params if option.name == "method"]

def is_toy(estimator):
    return type(estimator) is nearfar.Toy

found = {
    "copy": nearfar.__file__,
    "public": "Toy" in nearfar.__all__ and "Toy" in dir(nearfar),
    "lazy": nearfar.Toy is nearfar.estimators.Toy,
    "file": is_toy(twin) and bool((twin.transform(X) == model.transform(X)).all()),
    "skops": "nearfar.estimators.toy.Toy" in nearfar.TRUSTED_TYPES,
    "choices": "toy" in method.type.choices,
    "model": is_toy(make_model("toy", {}, 3, 0)),
    "command": main(["fit", "iris", "--method", "toy", "--output", "other.nearfar"]) == 0
    and is_toy(nearfar.load("other.nearfar")),
    "contract": any(map(is_toy, tests.contracts.test_estimators.ESTIMATORS)),
    "other contract": not any(map(is_toy, tests.contracts.test_classifiers.CLASSIFIERS)),
    "threads": any(map(is_toy, tests.contracts.test_threads.ESTIMATORS)),
    "plots": "Toy" in tests.plots.test_displays.METRICS,
    "reports": "Toy" in tests.report.test_write.MODELS,
    "choosing": "Toy" in benchmarks.choosing.LEARNERS,
}
with open("found.json", "w") as stream:
    json.dump(found, stream)
"""


@pytest.fixture
def package(tmp_path):
    """A folder with a copy of the package that has the toy: its module, and one entry."""
    package = tmp_path / "src" / "nearfar"
    shutil.copytree(SOURCE, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "estimators" / "toy.py").write_text(TOY)
    registry = package / "registry.py"
    text, start = registry.read_text(encoding="utf-8"), "ENTRIES: tuple[Entry, ...] = (\n"
    assert text.count(start) == 1
    registry.write_text(text.replace(start, start + LINE), encoding="utf-8")
    return tmp_path / "src"


@pytest.mark.slow
def test_one_entry_takes_an_estimator_everywhere(package, tmp_path):
    paths = os.pathsep.join([str(package), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    assert Path(found.pop("copy")).is_relative_to(package)
    assert [where for where, is_there in found.items() if is_there is not True] == []


def test_missing_pages_are_told_with_the_lines_to_add():
    assert list(missing_in_pages(ENTRY)) == [
        "docs/algorithms/toy.md: write the page, see 'Adding an algorithm' in CONTRIBUTING.md",
        "docs/algorithms/index.md: add '- [Toy](toy.md): …'",
        "docs/api/index.md, Metrics from labels: add '   Toy'",
        "README.md, What is in it: add '| … | [`Toy`](docs/algorithms/toy.md) | … |'",
        "docs/choosing.md: add '| … | [`Toy`](algorithms/toy.md) | … |'",
    ]


def test_a_missing_import_for_type_checkers_is_told():
    text = (SOURCE / "__init__.py").read_text(encoding="utf-8")
    expected = expected_imports(nearfar._HOME | {ENTRY.name: ENTRY.module})
    assert expected - typed_imports(text) == {"    from nearfar.estimators.toy import Toy as Toy"}
