"""The code of docs/deployment.md that needs more than the test dependencies.

hnswlib has no wheels; `.ci/run` builds it. For pgvector, NEARFAR_TEST_POSTGRES names a database
with the extension, such as "postgresql://user@host/name"; the table made there is dropped again.
"""

import json
import os
import re
import sqlite3
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


def test_hnswlib_of_untouched_documents(names, exact):
    pytest.importorskip("hnswlib", reason="pip install 'nearfar[hnswlib]'")
    names = dict(names) | {"np": np}
    exec(block_with("import hnswlib"), names)
    exec(block_with('space="ip"'), names)
    found = np.take_along_axis(exact, names["found"].astype(int), axis=1)
    last = np.sort(exact, axis=1)[:, 9:10]
    assert np.mean(found <= last * (1 + 1e-3)) > 0.95
    assert (np.diff(found, axis=1) >= -1e-3 * found[:, 1:]).all()


class Connection:
    """psycopg's interface to sqlite, where ``<#>`` is a function, for SQL that both can do."""

    def __init__(self):
        self.database = sqlite3.connect(":memory:")
        self.database.create_function(
            "minus_product", 2, lambda a, b: -float(np.dot(json.loads(a), json.loads(b)))
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def cursor(self):
        return self

    def execute(self, sql, parameters=()):
        return self.database.execute(*self._translated(sql, parameters))

    def executemany(self, sql, rows):
        for parameters in rows:
            self.execute(sql, parameters)

    def _translated(self, sql, parameters):
        sql = re.sub(r"(\w+) <#> %s", r"minus_product(\1, %s)", sql).replace("%s", "?")
        sql = sql.replace("AS MATERIALIZED", "AS")
        vectors = [v.tolist() if isinstance(v, np.ndarray) else v for v in parameters]
        return sql, [json.dumps(v) if isinstance(v, list) else v for v in vectors]


def test_sql_of_untouched_documents(names, exact):
    """The statements rank as the learned distance does, and cost is (D² − qᵀMq) / 2."""
    connection = Connection()
    connection.execute("CREATE TABLE documents (id bigint PRIMARY KEY, embedding text)")
    connection.executemany("INSERT INTO documents VALUES (%s, %s)", enumerate(names["X"]))

    class Psycopg:
        @staticmethod
        def connect(_):
            return connection

    names = {**names, "psycopg": Psycopg, "register_vector": lambda _: None, "address": ""}
    exec(block_with("<#>"), names)
    (statement,) = re.findall(r"^```sql\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    among_candidates = connection.execute(statement, (names["query"],)).fetchall()
    square = 2 * names["model"].document_offsets(names["queries"][:1])[0]
    for found in (names["found"], among_candidates):
        rows, costs = zip(*found, strict=True)
        assert list(costs) == sorted(costs)
        squares = square + 2 * np.array(costs)
        np.testing.assert_allclose(squares, exact[0, list(rows)] ** 2, atol=1e-4 * square)
    assert names["found"][0][0] == exact[0].argmin()


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
