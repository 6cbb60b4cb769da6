"""Computation follows the data: which module computes where an array lives."""

import sys

import numpy as np
import pytest

from nearfar.kernels import is_torch, kernels_for, on_numpy


def test_the_module_of_each_library(backend):
    array = backend.asarray(np.ones(2))
    assert is_torch(array) == (backend.name == "torch")
    assert kernels_for(array).__name__ == f"nearfar.kernels.on_{backend.name}"


@pytest.mark.torch
def test_subclasses_are_tensors_and_other_objects_of_torch_are_not(torch):
    class Marked(torch.Tensor):
        pass

    assert is_torch(torch.ones(2).as_subclass(Marked))
    assert is_torch(torch.nn.Parameter(torch.ones(2)))
    for other in (torch.utils.data.DataLoader([1.0]), torch.float32, torch.nn.Linear(1, 1)):
        assert not is_torch(other)


def test_asking_does_not_import_torch(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)  # an import would raise
    assert not is_torch(np.ones(1))
    assert not is_torch([1.0])
    assert kernels_for(np.ones(1)) is on_numpy
