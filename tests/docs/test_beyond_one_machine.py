"""The program of docs/beyond_one_machine.md runs, from files on disk to a saved model."""

import re
import warnings
from pathlib import Path

import pytest

import nearfar

PAGE = (Path(__file__).parents[2] / "docs" / "beyond_one_machine.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_program_of_the_page(tmp_path, monkeypatch, capsys):
    pytest.importorskip("distributed")
    monkeypatch.chdir(tmp_path)
    (program,) = re.findall(r"^```python\n(?!>>>)(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert "Client(n_workers=2, threads_per_worker=1)" in program
    program = program.replace("threads_per_worker=1", "threads_per_worker=1, processes=False")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Port 8787 is already in use")
        warnings.filterwarnings("ignore", "The inplace keyword")  # of pandas, in Dask's own code
        exec(compile(program, "program.py", "exec"), {"__name__": "__main__"})
    told = re.search(r"converged, shrinkage .*, 3-NN error (.*) %", capsys.readouterr().out)
    assert float(told[1]) < 5
    model = nearfar.load("digits.nearfar")
    assert model.feature_names_in_[0] == "pixel0"
