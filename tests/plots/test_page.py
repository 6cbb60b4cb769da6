"""The page on plots: its pictures are those that its code draws."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from nearfar import plots

IMAGES = Path(__file__).parents[2] / "docs" / "images"


@pytest.mark.slow
def test_the_page_draws_its_pictures_and_has_them(tmp_path):
    spec = importlib.util.spec_from_file_location("draw_plots", IMAGES / "draw_plots.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    drawn = script.draw(tmp_path)
    assert len(drawn) == len(set(drawn))
    assert sorted(path.name for path in IMAGES.glob("plots_*.svg")) == sorted(drawn)
    for name in drawn:
        assert "<svg " in (tmp_path / name).read_text(encoding="utf-8")


def test_every_display_has_a_section_of_the_page():
    page = (IMAGES.parent / "plots.md").read_text(encoding="utf-8")
    for name in plots.__all__:
        assert f"| [`{name}`](#" in page
        assert f"{name}.from_estimator(" in page
