"""Without the torch extra, everything works on NumPy arrays."""

import subprocess
import sys

from tests.processes import run_program

PROGRAM = """
import sys

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, NoTorch())
from sklearn.datasets import load_iris
from nearfar import LMNN
X, y = load_iris(return_X_y=True)
model = LMNN().fit(X, y)
assert model.status_ == "converged"
assert model.transform(X).shape[0] == 150
"""
IMPORTS_NO_TORCH = """
import sys
from sklearn.datasets import load_iris
from nearfar import LMNN
LMNN().fit(*load_iris(return_X_y=True))
assert "torch" not in sys.modules
"""


def test_a_fit_needs_no_torch():
    done = run_program(PROGRAM)
    assert done.returncode == 0, done.stderr


def test_a_fit_of_arrays_imports_no_torch():
    program = "import os; os.environ.pop('SCIPY_ARRAY_API', None)\n" + IMPORTS_NO_TORCH
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
