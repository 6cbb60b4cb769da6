"""The README's test command needs no torch: without it the tests that need it are skipped."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
COLLECT = """
import sys
from importlib.machinery import PathFinder

found = PathFinder.find_spec


class WithoutTorch:
    def __call__(self, name, *args):
        return None if name.partition(".")[0] == "torch" else found(name, *args)


PathFinder.find_spec = WithoutTorch()
import pytest

sys.exit(pytest.main(["--collect-only", "-q", "-n0", "-p", "no:cacheprovider"]))
"""


@pytest.mark.slow
def test_every_test_can_be_collected_without_torch():
    run = subprocess.run(
        [sys.executable, "-c", COLLECT], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-2000:]
