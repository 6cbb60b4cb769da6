"""Draw the pictures of the page on plots: each is the display of the code before it.

python docs/images/draw_plots.py [FOLDER]

needs matplotlib and writes the files, with style.mplstyle, beside this one, or into FOLDER.
"""

from __future__ import annotations

import doctest
import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "plots.md"
CODE = r"^```python\n(?P<code>.*?)^```"
IMAGE = r"^!\[[^\n]*\]\(images/(?P<image>[^)\n]*)\)$"
PART = re.compile(f"{CODE}|{IMAGE}", re.MULTILINE | re.DOTALL)


def draw(folder: Path) -> list[str]:
    """Run the code of the page, write its pictures into the folder, and return their names."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    names: dict[str, Any] = {}
    drawn = []
    with plt.style.context(HERE / "style.mplstyle"):
        for part in PART.finditer(PAGE.read_text(encoding="utf-8")):
            if part["image"] is None:
                for example in doctest.DocTestParser().get_examples(part["code"]):
                    exec(compile(example.source, str(PAGE), "single"), names)
            else:
                figure = names["display"].figure_
                figure.savefig(folder / part["image"], metadata={"Date": None})
                plt.close(figure)
                drawn.append(part["image"])
    return drawn


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
