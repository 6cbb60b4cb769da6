"""``nearfar doctor``: it finds what is missing, old, broken or wrong, and exits accordingly."""

import importlib
import importlib.metadata
import re
import shutil
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
import sklearn

from nearfar import LMNN, __version__
from nearfar.cli import doctor
from nearfar.errors import install_command

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]


def found(section, name):
    """What a section of the report says of a name."""
    (finding,) = [finding for finding in section() if finding.name == name]
    return finding


def test_all_is_well_here(run):
    done = run("doctor")
    assert done.code == 0, done.out
    assert done.err == ""
    assert done.out.startswith(f"nearfar {__version__} · Python {sys.version.split()[0]}\n")
    assert done.out.endswith("\nAll is well.\n")
    assert re.search(rf"scikit-learn +{re.escape(sklearn.__version__)}\n", done.out)
    assert re.search(r"BLAS +\w+ .*, \d+ threads?, from ", done.out)
    assert re.search(r"LMNN, float64 +certified gap \d\.\de-0[4-9], ", done.out)
    assert re.search(r"MVU +certified gap \d\.\de-", done.out)
    assert re.search(r"LMNN on digits +(converged|max_seconds), certified gap ", done.out)


def test_packages_are_those_of_the_project():
    named = re.compile(r"([\w-]+)>=([\d.]+)")
    needed = {named.match(line).groups() for line in PROJECT["dependencies"]}
    extras = {
        extra: {found.groups() for line in lines if (found := named.match(line))}
        for extra, lines in PROJECT["optional-dependencies"].items()
    }
    told = {(package.name, package.oldest): package for package in doctor.PACKAGES}
    assert set(told) == needed.union(*extras.values())
    for key, package in told.items():
        assert key in (needed if package.extra is None else extras[package.extra])


def test_trouble_is_marked_and_ends_with_1(run, monkeypatch):
    trouble = doctor.Finding("LMNN", "failed", False)
    monkeypatch.setattr(doctor, "_tests", lambda: iter([trouble, doctor.Finding("MVU", "right")]))
    done = run("doctor")
    assert done.code == 1
    assert re.search(r"\n! LMNN +failed\n  MVU +right\n", done.out)
    assert done.out.endswith("\n1 of these needs attention: LMNN.\n")


def test_a_missing_package_comes_with_its_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    _, text, well = found(doctor._packages, "onnx")
    assert text == f"not installed, for to_onnx: {install_command('onnx')}"
    assert well


def test_an_old_package(monkeypatch):
    real = importlib.metadata.version
    monkeypatch.setattr(
        importlib.metadata, "version", lambda name: "1.9.3" if name == "scipy" else real(name)
    )
    _, text, well = found(doctor._packages, "scipy")
    assert text == "1.9.3, older than 1.13: pip install --upgrade scipy"
    assert not well


def test_a_broken_package(monkeypatch):
    real = importlib.import_module

    def import_module(name):
        if name == "pyarrow":
            raise OSError("libstdc++.so.6: version not found")
        return real(name)

    monkeypatch.setattr(importlib, "import_module", import_module)
    _, text, well = found(doctor._packages, "pyarrow")
    assert text == "cannot be imported: libstdc++.so.6: version not found"
    assert not well


def test_a_package_under_another_name(monkeypatch):
    """As faiss-gpu, which brings the module of faiss-cpu."""
    monkeypatch.setattr(
        doctor, "PACKAGES", [doctor.Package("sklearn-gpu", "sklearn", "1.7", "x", "y")]
    )
    assert found(doctor._packages, "sklearn-gpu") == ("sklearn-gpu", sklearn.__version__, True)


def test_an_answer_that_is_wrong(wine):
    """A fit that claims a small gap at an objective that is not the optimum."""
    model = LMNN(shrinkage=0).fit(*wine)
    assert doctor._certified(model, doctor.WINE_OPTIMUM).startswith("certified gap ")
    model.objective_ *= 1.01
    with pytest.raises(ArithmeticError, match=r"is 208\.911, but the fit found 211\.0"):
        doctor._certified(model, doctor.WINE_OPTIMUM)


def test_a_test_that_fails_is_told(monkeypatch):
    class Elsewhere:
        def transform(self, X):
            return np.zeros_like(X)

    monkeypatch.setattr(doctor, "SECONDS_ON_DIGITS", 0.01)
    monkeypatch.setattr(doctor.nearfar, "load", lambda _: Elsewhere(), raising=False)
    _, text, well = found(doctor._tests, "model file")
    assert text.startswith("failed: ArithmeticError: the model that was read maps points elsewhere")
    assert not well


def test_the_optimum_is_the_optimum(wine):
    """To 1e-6, which is what the doctor allows beside the gap."""
    model = LMNN(shrinkage=0, tol=1e-6, max_iter=100_000).fit(*wine)
    assert model.objective_ >= doctor.WINE_OPTIMUM * (1 - 1e-7)
    assert model.objective_ * (1 - model.duality_gap_) <= doctor.WINE_OPTIMUM


@pytest.mark.torch
def test_torch_is_tested_on_each_device(monkeypatch):
    monkeypatch.setattr(doctor, "SECONDS_ON_DIGITS", 0.01)
    _, text, well = found(doctor._tests, "LMNN, torch on cpu")
    assert text.startswith("certified gap ")
    assert well


def test_devices_without_torch(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert doctor.torch_devices() == {}
    assert found(doctor._machine, "GPU").text == "needs torch"


def test_a_card_that_torch_cannot_use(monkeypatch):
    monkeypatch.setattr(doctor, "torch_devices", lambda: {"cpu": "processor"})
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert found(doctor._machine, "GPU").text == "none that torch can use"
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    assert "install torch with CUDA" in found(doctor._machine, "GPU").text


def test_limits_of_threads_are_told(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert "OMP_NUM_THREADS=3" in found(doctor._machine, "cores").text


@pytest.mark.parametrize(
    ("older", "newer"), [("1.9.3", "1.13"), ("1.13.0rc1", "1.13.1"), ("2.4.1+cpu", "2.13.0+cu126")]
)
def test_versions_are_compared_by_numbers(older, newer):
    assert doctor._numbers(older) < doctor._numbers(newer)
