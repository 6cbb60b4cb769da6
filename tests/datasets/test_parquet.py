"""Parquet files, good and bad."""

import builtins
import datetime
import decimal

import numpy as np
import pandas
import pytest

from nearfar.datasets import load_table
from nearfar.errors import InvalidInputError, MissingExtraError

pyarrow = pytest.importorskip("pyarrow", reason="needs the cli extra")
parquet = pytest.importorskip("pyarrow.parquet", reason="needs the cli extra")


@pytest.fixture
def write(tmp_path):
    def write(columns):
        path = tmp_path / "table.parquet"
        table = columns if isinstance(columns, pyarrow.Table) else pyarrow.table(columns)
        parquet.write_table(table, path)
        return path

    return write


@pytest.mark.parametrize(
    ("columns", "dtype"),
    [
        ({"a": np.float32([1, 2]), "b": np.float32([3, 4])}, np.float32),
        ({"a": np.float16([1, 2]), "b": np.float32([3, 4])}, np.float32),
        ({"a": np.float32([1, 2]), "b": np.float64([3, 4])}, np.float64),
        ({"a": np.float32([1, 2]), "b": np.int8([3, 4])}, np.float64),
        ({"a": np.uint64([1, 2]), "b": [decimal.Decimal(3), decimal.Decimal(4)]}, np.float64),
    ],
)
def test_dtypes(write, columns, dtype):
    table = load_table(write(columns), labelled=False)
    assert table.X.dtype == dtype
    np.testing.assert_array_equal(table.X, [[1, 3], [2, 4]])
    assert table.feature_names == ("a", "b")


def test_booleans_are_features(write):
    np.testing.assert_array_equal(
        load_table(write({"a": [True, False]}), labelled=False).X, [[1], [0]]
    )


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["x", "y"], ["x", "y"]),
        ([1, 2], [1, 2]),
        ([1.0, 2.0], [1, 2]),
        ([True, False], [True, False]),
        (pandas.Categorical(["x", "y"]), ["x", "y"]),
        (pandas.Categorical([7, 3]), [7, 3]),
    ],
)
def test_label_types(write, labels, expected):
    frame = pandas.DataFrame({"a": [0.0, 1.0], "y": labels})
    table = load_table(write(pyarrow.Table.from_pandas(frame)), target="y")
    assert table.y.dtype.kind == np.array(expected).dtype.kind
    np.testing.assert_array_equal(table.y, expected)


def test_the_index_that_pandas_stores_is_no_feature(write):
    frame = pandas.DataFrame({"a": [0.0, 1.0]}, index=["row", "other"])
    table = load_table(write(pyarrow.Table.from_pandas(frame)), labelled=False)
    assert table.feature_names == ("a",)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"a": ["1", "red"], "y": [1, 2]}, "column 'a' holds string values: '1' in row 1"),
        (
            {"a": [datetime.date(2020, 1, 1)], "y": [1]},
            "column 'a' holds date32[day] values: '2020-01-01' in row 1",
        ),
        ({"a": [1, None], "y": [1, 2]}, "the value in row 2 of column 'a' is missing"),
        ({"a": [1, np.nan], "y": [1, 2]}, "the value in row 2 of column 'a' is missing"),
        ({"a": [1, 2], "y": ["x", None]}, "the label in row 2 of target 'y' is missing"),
        ({"a": [1, 2], "y": [0.5, 1]}, "holds measurements"),
        ({"a": [1, 2]}, "there is no column 'y'. Choose from: a"),
        ({"y": [1, 2]}, "there are no feature columns"),
        ({"a": np.array([]), "y": np.array([])}, "there are no rows"),
        (
            {"a": [1], "y": [datetime.date(2020, 1, 1)]},
            "target 'y' must be a column of class labels",
        ),
    ],
)
def test_bad_columns_are_named_with_place_and_remedy(write, columns, message):
    path = write(columns)
    with pytest.raises(InvalidInputError) as caught:
        load_table(path, target="y")
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)


def test_columns_of_the_same_name(write):
    table = pyarrow.Table.from_arrays([pyarrow.array([1]), pyarrow.array([2])], names=["a", "a"])
    with pytest.raises(InvalidInputError, match="2 columns are named 'a'"):
        load_table(write(table), target="a")


@pytest.mark.parametrize("content", [b"", b"PAR1 and then nothing", b"a,b\n1,2\n"])
def test_a_foreign_or_truncated_file(tmp_path, content):
    path = tmp_path / "table.parquet"
    path.write_bytes(content)
    with pytest.raises(InvalidInputError, match="not a readable Parquet file"):
        load_table(path)


def test_without_pyarrow_the_error_names_the_extra(tmp_path, monkeypatch):
    real_import = builtins.__import__

    def without_pyarrow(name, *args, **kwargs):
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_pyarrow)
    with pytest.raises(MissingExtraError, match=r"pip install .*\[cli\]"):
        load_table(tmp_path / "table.parquet")
