"""Reports to look at: read back as data, or opened in a real browser."""

from __future__ import annotations

import base64
import importlib.util
import json
import re
import shutil
from dataclasses import dataclass, field
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits, load_wine

from nearfar import LMNN
from nearfar.report import write_report

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@dataclass(frozen=True)
class Written:
    """A report as a program reads it."""

    html: str

    @property
    def data(self) -> dict[str, Any]:
        element = re.search(r'<script type="application/json" id="data">(.*?)</script>', self.html)
        return json.loads(element[1])

    def numbers(self, text: str, dtype: str) -> np.ndarray:
        return np.frombuffer(base64.b64decode(text), dtype=dtype)

    def codes(self, packed: dict[str, str]) -> np.ndarray:
        ((kind, text),) = packed.items()
        return self.numbers(text, f"<{kind}")

    def places(self, view: dict[str, Any]) -> np.ndarray:
        grid = self.numbers(view["places"], "<u2").reshape(-1, 2)
        return view["low"] + view["unit"] * grid

    @property
    def rows(self) -> np.ndarray:
        return self.numbers(self.data["rows"], "<u4")

    @property
    def text(self) -> str:
        """The words of the page, in one line."""
        body = re.sub(r"<(script|style).*?</\1>", " ", self.html, flags=re.DOTALL)
        return " ".join(unescape(re.sub(r"<[^>]*>", " ", body)).split())


@pytest.fixture
def written(tmp_path):
    """Write a report and read it back."""

    def written(*arguments, **options):
        path = tmp_path / "report.html"
        model, *rest = arguments
        write_report(model, path, *rest, **options)
        return Written(path.read_text(encoding="utf-8"))

    return written


@dataclass(frozen=True)
class Example:
    """A model with its rows, a third of them held out."""

    model: Any
    X: np.ndarray
    y: np.ndarray
    test: np.ndarray
    names: list[str] = field(default_factory=list)


def example(load, n, **parameters) -> Example:
    data = load()
    X, y = data.data[:n], data.target[:n]
    test = np.arange(len(X)) % 3 == 0
    model = LMNN(random_state=0, **parameters).fit(X[~test], y[~test])
    return Example(model, X, y, test, list(data.feature_names))


@pytest.fixture(scope="session")
def wine_report_example() -> Example:
    return example(load_wine, None)


@pytest.fixture(scope="session")
def digits_report_example() -> Example:
    return example(load_digits, 300, n_components=10, max_iter=30, tol=1.0)


# -- a browser ------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def browser():
    """Chromium without a window."""
    if importlib.util.find_spec("playwright") is None:
        pytest.skip("playwright is not installed: pip install playwright")
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip("no Chromium: apt-get install chromium, or the like")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Its sandbox does not work for root, as in containers; the pages are our own.
        opened = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def opened(browser, tmp_path):
    """Write a report and open it; at the end there must be no error and no request elsewhere."""
    contexts, complaints = [], []

    def opened(model, X=None, y=None, *, color_scheme="light", width=1200, **options):
        path = Path(tmp_path) / f"report{len(contexts)}.html"
        write_report(model, path, X, y, **options)
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme=color_scheme,
            reduced_motion="reduce",
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(30_000)
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: (complaints.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: asked(request.url, path.as_uri()))
        page.goto(path.as_uri())
        return page

    def asked(url, own):
        if url != own and not url.startswith("data:"):
            complaints.append(f"a request to {url}")

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []
