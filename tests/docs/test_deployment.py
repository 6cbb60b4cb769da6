"""The code of docs/deployment.md that needs more than the test dependencies.

hnswlib has no wheels; `.ci/run` builds it. For pgvector, NEARFAR_TEST_POSTGRES names a database
with the extension, such as "postgresql://user@host/name"; the table made there is dropped again.
"""

import os
import re
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from nearfar import LMNN

PAGE = (Path(__file__).parents[2] / "docs" / "deployment.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(?!>>>)(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def names():
    """What the page has defined before: the metric, and vectors to search among and with."""
    X, y = load_digits(return_X_y=True)
    X = X.astype(np.float32)
    model = LMNN(n_components=10).fit(X[:1000], y[:1000])
    return {"model": model, "X": X[:1000], "queries": X[1000:1100]}


@pytest.fixture
def exact(names):
    """Learned distances from each query to each point, (100, 1000)."""
    mapped, asked = (names["model"].transform(names[part]) for part in ("X", "queries"))
    return np.linalg.norm(asked[:, None] - mapped, axis=2)


def block_with(text):
    (found,) = [block for block in BLOCKS if text in block]
    return found


def test_hnswlib(names, exact):
    pytest.importorskip("hnswlib", reason="pip install 'nearfar[hnswlib]'")
    names = dict(names)
    exec(block_with("import hnswlib"), names)
    rows = names["rows"].astype(int)
    np.testing.assert_allclose(
        names["squared_distances"], np.take_along_axis(exact, rows, axis=1) ** 2, rtol=1e-4
    )
    last = np.sort(exact, axis=1)[:, 9:10]
    assert np.mean(np.take_along_axis(exact, rows, axis=1) <= last * (1 + 1e-5)) > 0.99


@pytest.mark.parametrize("indexed", [False, True], ids=["exact", "index"])
def test_pgvector(names, exact, indexed):
    address = os.environ.get("NEARFAR_TEST_POSTGRES")
    if address is None:
        pytest.skip("NEARFAR_TEST_POSTGRES names no database")
    psycopg = pytest.importorskip("psycopg")
    code = block_with("import psycopg")
    if not indexed:
        code = re.sub(r"^.*CREATE INDEX.*\n", "", code, flags=re.MULTILINE)
    names = {**names, "address": address}
    try:
        exec(code, names)
    finally:
        with psycopg.connect(address) as connection:
            connection.execute("DROP TABLE IF EXISTS digits")
    rows, distances = zip(*names["found"], strict=True)
    assert list(distances) == sorted(distances)
    np.testing.assert_allclose(distances, exact[0, list(rows)], rtol=1e-4)
    if not indexed:
        np.testing.assert_array_equal(rows, exact[0].argsort()[:10])
