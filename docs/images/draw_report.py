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

from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from nearfar import LMNN
from nearfar.evaluation import split_points
from nearfar.report import write_report

HERE = Path(__file__).resolve().parent
# A header that stays would lie over the pictures, and the table under the map would make them long.
PLAIN = """() => {
    document.querySelector("nav").style.position = "static";
    for (const section of document.querySelectorAll("section")) {
        section.style.padding = "1.5rem 0.5rem";
        section.style.border = "0";
    }
    document.querySelector(".table-scroll").style.maxHeight = "9rem";
    document.querySelector(".side").style.maxHeight = "52rem";
    document.querySelector(".side").style.overflow = "hidden";
}"""


def report(folder: Path, name: str, load: Any, target: str, *steps: Any, **options: Any) -> str:
    """Fit to a built-in set as `nearfar fit` does, write its report, and return its address."""
    data = load()
    labels = data.target_names[data.target]
    rows = split_points(range(len(data.data)), labels, 0.3, 0)
    model = make_pipeline(*steps, LMNN(random_state=0)) if steps else LMNN(random_state=0)
    model.fit(data.data[rows.X_train], labels[rows.X_train])
    write_report(
        model,
        folder / f"{name}.html",
        data.data,
        labels,
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
        page = browser.new_page(viewport={"width": 1200, "height": 860}, reduced_motion="reduce")

        page.goto(report(Path(temporary), "wine", load_wine, "cultivar"))
        page.screenshot(path=folder / "report_errors.png")

        page.goto(report(Path(temporary), "digits", load_digits, "digit"))
        page.evaluate(PLAIN)
        page.click("#lists button >> text=fixed")
        page.click("#found button")
        page.locator("#map").screenshot(path=folder / "report_map.png")

        scaled = (load_breast_cancer, "diagnosis", StandardScaler())
        page.goto(report(Path(temporary), "tumours", *scaled))
        page.evaluate(PLAIN)
        page.locator("#pair").screenshot(path=folder / "report_pair.png")
        browser.close()
    return ["report_errors.png", "report_map.png", "report_pair.png"]


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
