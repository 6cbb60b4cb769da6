"""Draw the pictures of the page on reports, as a browser shows them.

python docs/images/draw_report.py [FOLDER]

needs playwright and Chromium and writes the files beside this one, or into FOLDER.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from sklearn.datasets import load_digits, load_wine

from nearfar import LMNN
from nearfar.evaluation import split_points
from nearfar.report import write_report

HERE = Path(__file__).resolve().parent


def report(folder: Path, name: str, load: Any, target: str, **options: Any) -> str:
    """Fit to a built-in set as `nearfar fit` does, write its report, and return its address."""
    data = load()
    rows = split_points(range(len(data.data)), data.target, 0.3, 0)
    model = LMNN(random_state=0).fit(data.data[rows.X_train], data.target[rows.X_train])
    write_report(
        model,
        folder / f"{name}.html",
        data.data,
        data.target,
        train=rows.X_train,
        test=rows.X_test,
        feature_names=data.feature_names,
        target_name=target,
        title=f"LMNN on {name}",
        **options,
    )
    return (folder / f"{name}.html").as_uri()


def draw(folder: Path) -> list[str]:
    """Write the pictures into the folder, and return their names."""
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium") or shutil.which("google-chrome")
    with tempfile.TemporaryDirectory() as temporary, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1200, "height": 820}, reduced_motion="reduce")

        page.goto(report(Path(temporary), "wine", load_wine, "cultivar"))
        page.screenshot(path=folder / "report_errors.png")

        page.goto(report(Path(temporary), "digits", load_digits, "digit", rows=[1038, 813]))
        page.fill("#search", "1038")
        page.press("#search", "Enter")
        page.fill("#search", "")
        page.locator("#plot").focus()
        page.evaluate(
            """() => {
                document.querySelector("nav").style.position = "static";
                for (const section of document.querySelectorAll("section")) {
                    section.style.padding = "1.5rem 0.5rem";
                    section.style.border = "0";
                }
            }"""
        )
        page.locator("#map").screenshot(path=folder / "report_map.png")
        page.locator("#neighbors").screenshot(path=folder / "report_neighbors.png")
        browser.close()
    return ["report_errors.png", "report_map.png", "report_neighbors.png"]


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
