"""metric-learn's and scikit-learn's own tests, run against `nearfar.compat`.

    python -m benchmarks.compat_suites                      # fetches metric-learn's source
    python -m benchmarks.compat_suites --source DIR         # takes a checkout or unpacked source
    python -m benchmarks.compat_suites --suite test_nca     # scikit-learn's tests of its NCA alone

The tests are not part of this repository. They are copied to a temporary folder, beside a package
``metric_learn`` whose names are those of `nearfar.compat.metric_learn`, and run by pytest. Printed
are the counts, of all tests and of those that assert something, and each test that failed with the
reason that is known; the record goes to benchmarks/results/compat_suites.json.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "benchmarks" / "results" / "compat_suites.json"
RELEASE = "metric-learn==0.7.0"
SUITES = ("metric_learn", "test_nca")
PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"

# What fails, by a pattern of the test's name, and why. The first that matches counts.
REASONS = {
    "test_finite_differences|test_toy_example_collapse_points|test_loss_grad|test_toy_ex_lmnn": (
        "calls a private function of the estimator, the loss and its gradient"
    ),
    "test_loss_func": "replaces private methods of LMNN",
    "test_pseudo_inverse_from_eig|test_check_collapsed_pairs|singular_.*_of_non_strict_pd": (
        "calls a private function of metric-learn"
    ),
    "test_triplet_diffs|test_lda_toy|test_lda\\[|_n_basis_lda|test_dimension_reduction_msg": (
        "is about how metric-learn draws the vectors of SCML; nearfar takes those of regions"
    ),
    "test_raise_big_number_of_features": "nearfar's SCML takes fewer triplets than features",
    "metric_learn_test::test_verbose|test_convergence_simple_example|test_verbose_has_not": (
        "expects lines that metric-learn's own iterations print"
    ),
    "test_sdml_.*raises": "a better message: the error names the largest possible balance",
    "test_rank_deficient_returns_warning|test_bad_parameters": (
        "expects a warning of NaN in the map; nearfar's RCA has none, and its own warning"
    ),
    "test_big_n_features": "another optimum: nearfar's SCML has other vectors to combine",
    "metric_learn_test::test_iris": (
        "another optimum: of MMC, metric-learn's full metric is not optimal, and its diagonal one"
        " has the wrong gradient (its own objective is 2015, where nearfar reaches -5.47); of LFDA,"
        " metric-learn takes other scales than the paper's"
    ),
}

# The modules of metric-learn that its tests import, and where their names are in nearfar. A private
# function that nearfar does not have can be imported, but not called.
COMPAT = "nearfar.compat.metric_learn"
ALIASES = {
    "__init__": f"from {COMPAT} import *\nfrom {COMPAT} import __version__\n",
    "constraints": f"from {COMPAT}.constraints import Constraints, wrap_pairs\n",
    "exceptions": f"from {COMPAT}._input import NonPSDError, PreprocessorError\n",
    "base_metric": (
        f"from {COMPAT}._input import ArrayIndexer\n"
        f"from {COMPAT}._base import MahalanobisMixin\n"
        f"from {COMPAT}._base import PairsClassifierMixin as _PairsClassifierMixin\n"
        f"from {COMPAT}._base import TripletsClassifierMixin as _TripletsClassifierMixin\n"
        f"from {COMPAT}._base import QuadrupletsClassifierMixin as _QuadrupletsClassifierMixin\n"
    ),
    "sdml": f"from {COMPAT} import SDML, SDML_Supervised, FitsSDML as _BaseSDML\n",
    "lmnn": f"from {COMPAT} import LMNN\n",
    "_util": (
        f"from {COMPAT}._input import (ArrayIndexer, check_input, check_y_valid_values_for_pairs,\n"
        "    components_from_metric, make_context, make_name, preprocess_points,\n"
        "    preprocess_tuples, validate_vector)\n"
        f"from {COMPAT}._input import auto_init as _auto_select_init\n"
        f"from {COMPAT}._input import check_eigenvalues as _check_sdp_from_eigen\n"
        f"from {COMPAT}._input import check_n_components as _check_n_components\n"
    ),
}
ABSENT = """

def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)

    def absent(*arguments, **options):
        raise NotImplementedError(f"nearfar has no private function {name}")

    return absent
"""
# pytest 7 and older took None for "record all warnings".
CONFTEST = """
import warnings

import pytest

_warns = pytest.warns


def warns(expected_warning=Warning, *arguments, **options):
    if expected_warning is None:
        return warnings.catch_warnings(record=True)
    return _warns(expected_warning, *arguments, **options)


pytest.warns = warns


@pytest.fixture
def global_random_seed():
    return 42
"""


# -- the suites ------------------------------------------------------------------------------------


def metric_learn_source(folder: Path) -> Path:
    """metric-learn's source, fetched and unpacked below a folder."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary"]
    subprocess.run([*command, ":all:", RELEASE, "--dest", str(folder)], check=True)
    (archive,) = folder.glob("metric*learn-*.tar.gz")
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz")


def lay_out_metric_learn(folder: Path, source: Path) -> None:
    """The tests, and a package metric_learn that is nearfar's."""
    shutil.copytree(source / "test", folder / "test")
    (folder / "test" / "__init__.py").touch()
    package = folder / "metric_learn"
    package.mkdir()
    for module, text in ALIASES.items():
        absent = "" if module == "__init__" else ABSENT
        (package / f"{module}.py").write_text(text + absent)
    shutil.copy(source / "metric_learn" / "sklearn_shims.py", package)


def lay_out_test_nca(folder: Path) -> None:
    """scikit-learn's tests of its NCA, with another import."""
    import sklearn.neighbors

    file = Path(sklearn.neighbors.__file__).parent / "tests" / "test_nca.py"
    text = file.read_text()
    old = "from sklearn.neighbors import NeighborhoodComponentsAnalysis"
    assert old in text
    new = "from nearfar.compat.sklearn_nca import NeighborhoodComponentsAnalysis"
    (folder / "test").mkdir()
    (folder / "test" / "test_nca.py").write_text(text.replace(old, new))


def asserting(folder: Path) -> set[tuple[str, str]]:
    """File and name of each test function that asserts something."""
    found = set()
    for file in folder.glob("*test*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, ast.FunctionDef) or not node.name.startswith("test"):
                continue
            text = ast.unparse(node)
            if re.search(r"\bassert|\.assert|pytest\.(raises|warns)|\bcheck_\w+\(", text):
                found.add((file.stem, node.name))
    return found


def outcomes(folder: Path, options: list[str]) -> list[dict[str, str]]:
    """File, name, outcome and first line of the message of each test."""
    (folder / "conftest.py").write_text(CONFTEST)
    report = folder / "report.xml"
    paths = [str(folder), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    command = [sys.executable, "-m", "pytest", "test", "-q", "-W", "ignore"]
    command += ["-p", "no:xdist", "-p", "no:cacheprovider"]
    subprocess.run(
        [*command, f"--junitxml={report}", f"--rootdir={folder}", *options],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        stdout=subprocess.DEVNULL,
        check=False,  # tests that fail are what is counted
    )
    found = []
    for case in ElementTree.parse(report).iter("testcase"):
        children = {child.tag: child for child in case}
        bad = children.get("failure", children.get("error"))
        outcome = FAILED if bad is not None else SKIPPED if "skipped" in children else PASSED
        modules = re.findall(r"test_\w+|\w+_test", case.get("classname", ""))
        message = "" if bad is None else (bad.get("message") or "").strip().split("\n")[0]
        found.append(
            {
                "file": modules[0] if modules else "",
                "name": case.get("name", ""),
                "outcome": outcome,
                "message": message[:200],
            }
        )
    return found


def reason(test: dict[str, str]) -> str | None:
    """Why a test is known to fail."""
    name = f"{test['file']}::{test['name']}"
    return next((why for pattern, why in REASONS.items() if re.search(pattern, name)), None)


def summary(suite: str, tests: list[dict[str, str]], checked: set[tuple[str, str]]) -> dict:
    """Counts of all tests and of those that assert, and what failed."""
    counted = [test for test in tests if test["outcome"] != SKIPPED]
    strong = [t for t in counted if (t["file"], t["name"].partition("[")[0]) in checked]
    failed = [test | {"reason": reason(test)} for test in counted if test["outcome"] == FAILED]
    return {
        "suite": suite,
        "tests": len(counted),
        "passed": sum(test["outcome"] == PASSED for test in counted),
        "asserting": len(strong),
        "asserting_passed": sum(test["outcome"] == PASSED for test in strong),
        "skipped": len(tests) - len(counted),
        "failed": failed,
    }


# -- the report ------------------------------------------------------------------------------------


def show(found: dict) -> None:
    print(f"\n{found['suite']}")
    for kind, passed in (("tests", "passed"), ("asserting", "asserting_passed")):
        share = 100 * found[passed] / max(found[kind], 1)
        print(f"  {kind:<10} {found[passed]:>5} of {found[kind]:>5} pass ({share:.1f} %)")
    print(f"  skipped    {found['skipped']:>5}")
    groups = Counter(test["reason"] or "no reason is known" for test in found["failed"])
    for why, count in groups.most_common():
        print(f"\n  {count} fail: {why}")
        for test in found["failed"]:
            if (test["reason"] or "no reason is known") == why:
                print(f"    {test['file']}::{test['name']}: {test['message']}")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--suite", choices=SUITES, help="one of them; both by default")
    parser.add_argument("--source", type=Path, help="metric-learn's source, instead of PyPI's")
    parser.add_argument("--output", type=Path, default=RECORD, help="the record")
    parser.add_argument("pytest", nargs="*", help="options of pytest, after --")
    options = parser.parse_args(arguments)
    found = []
    for suite in [options.suite] if options.suite else SUITES:
        with tempfile.TemporaryDirectory() as name:
            folder, fetched = Path(name, "suite"), Path(name, "source")
            folder.mkdir()
            fetched.mkdir()
            if suite == "metric_learn":
                lay_out_metric_learn(folder, options.source or metric_learn_source(fetched))
            else:
                lay_out_test_nca(folder)
            checked = asserting(folder / "test")
            found.append(summary(suite, outcomes(folder, options.pytest), checked))
            show(found[-1])
    options.output.write_text(json.dumps(record(found), indent=1) + "\n")


def record(found: list[dict]) -> dict:
    from benchmarks.common import commit, machine, now

    return {"commit": commit(), "date": now(), "machine": machine(), "suites": found}


if __name__ == "__main__":
    main()
