"""CSV files, good and bad."""

import numpy as np
import pytest

from nearfar.datasets import delimited, load_table
from nearfar.errors import InvalidInputError


@pytest.fixture
def write(tmp_path):
    def write(text, name="table.csv", encoding="utf-8"):
        path = tmp_path / name
        path.write_bytes(text.encode(encoding))
        return path

    return write


def test_numbers_and_string_labels(write):
    table = load_table(write("a,b,kind\n1,2.5,x\n-3,1e2,y\n"), target="kind")
    assert table.feature_names == ("a", "b")
    assert table.target_name == "kind"
    assert table.X.dtype == np.float64
    np.testing.assert_array_equal(table.X, [[1, 2.5], [-3, 100]])
    np.testing.assert_array_equal(table.y, ["x", "y"])


def test_labels_need_a_target(write):
    with pytest.raises(InvalidInputError, match="Choose the target from: a, b"):
        load_table(write("a,b\n1,2\n"))


def test_without_labels_every_column_is_a_feature(write):
    table = load_table(write("a,b\n1,2\n"), labelled=False)
    assert table.y is None
    assert table.target_name is None
    assert table.X.shape == (1, 2)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("table.csv", "\ufeffa,b,c\n1,2,3\n"),
        ("table.csv", "a,b,c\r\n1,2,3\r\n"),
        ("table.csv", "a;b;c\n1;2;3\n"),
        ("table.tsv", "a\tb\tc\n1\t2\t3\n"),
        ("TABLE.CSV", '"a","b","c"\n"1", "2",3\n\n'),
        ("table.csv", " a , b,c\n 1, 2 ,3"),
    ],
    ids=["byte order mark", "windows", "semicolons", "tabs", "quotes", "spaces"],
)
def test_dialects(write, name, text):
    table = load_table(write(text, name), target="c")
    assert table.feature_names == ("a", "b")
    np.testing.assert_array_equal(table.X, [[1, 2]])
    np.testing.assert_array_equal(table.y, [3])


def test_quoted_names_and_labels_may_hold_delimiters_and_line_ends(write):
    table = load_table(write('"a;b;c","k"\n1,"x, y"\n2,"p\nq"\n'), target="k")
    assert table.feature_names == ("a;b;c",)
    assert table.y.tolist() == ["x, y", "p\nq"]


def test_names_may_be_plain_integers_as_pandas_writes_them(write):
    table = load_table(write("0,1,2\n5,6,7\n"), target="2")
    np.testing.assert_array_equal(table.X, [[5, 6]])


def test_features_are_chosen_and_ordered_by_name(write):
    path = write("name,b,kind,a\nann,2,x,1\n")
    table = load_table(path, target="kind", features=["a", "b"])
    assert table.feature_names == ("a", "b")
    np.testing.assert_array_equal(table.X, [[1, 2]])


def test_a_target_that_is_only_left_out_is_not_looked_at(write):
    table = load_table(write("a,price\n1,0.5\n2,\n"), target="price", labelled=False)
    assert table.y is None
    assert table.feature_names == ("a",)


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["1", "2"], np.array([1, 2])),
        (["1.0", "2"], np.array([1, 2])),
        (["True", "False"], np.array([True, False])),
        (["true", "false"], np.array([True, False])),
        (["1", "b"], np.array(["1", "b"])),
        (["2024_1", "2024_2"], np.array(["2024_1", "2024_2"])),
        (["9" * 30, "8" * 30], np.array(["9" * 30, "8" * 30])),
    ],
)
def test_label_types(write, cells, expected):
    y = load_table(write(f"a,y\n0,{cells[0]}\n0,{cells[1]}\n"), target="y").y
    assert y.dtype.kind == expected.dtype.kind
    np.testing.assert_array_equal(y, expected)


BAD = [
    ("", "the file is empty"),
    ("\n\n", "the file is empty"),
    ("a,y\n", "no rows below it"),
    ("a,b\n1,2\n", "there is no column 'y'. Choose from: a, b"),
    ("a,y\nred,1\n", "column 'a' holds text: 'red' in row 1"),
    ("a,b,y\n1,2,x\n3,4 cm,y\n", "column 'b' holds text: '4 cm' in row 2"),
    ("a,y\n1_000,x\n", "column 'a' holds text: '1_000' in row 1"),
    ('a,y\n"1,5",x\n', "column 'a' holds text: '1,5' in row 1"),
    ("a,y\n1,x\n,x\n", "the value in row 2 of column 'a' is missing"),
    ("a,y\n1,x\nNA,x\n", "the value in row 2 of column 'a' is missing"),
    ("a,y\n1,x\nnan,x\n", "the value in row 2 of column 'a' is missing"),
    ("a,y\n1,x\n-inf,x\n", "the value in row 2 of column 'a' is infinite"),
    ("a,y\n1,x\n2,\n", "the label in row 2 of target 'y' is missing"),
    ("a,y\n1,0.5\n2,1\n", "target 'y' holds measurements, not class labels: 0.5 in row 1"),
    ("a,y\n1,nan\n2,1.5\n", "the label in row 1 of target 'y' is missing"),
    ("a,y\n1,inf\n2,1\n", "target 'y' holds measurements, not class labels: inf in row 1"),
    ("a,a,y\n1,2,3\n", "2 columns are named 'a'"),
    (",a,y\n0,1,2\n", "column 1 has no name"),
    ("a,y\n1,2,3\n", "row 1 has 3 cells; the line of names has 2"),
    ("1.5,2.5,y1\n1,2,3\n", "there is no column 'y'"),
    ("1.5,2.5,3\n1,2,3\n", "the first line holds numbers only (1.5, ...)"),
    ("y\n1\n", "there are no feature columns"),
    ('a,y\n"1,2\n', "this is not a CSV file"),
    ("a,y\n\0,2\n", "holds text"),
]


@pytest.mark.parametrize(("text", "message"), BAD)
def test_bad_files_are_named_with_place_and_remedy(write, text, message):
    path = write(text)
    with pytest.raises(InvalidInputError) as caught:
        load_table(path, target="y")
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)


def test_a_bad_row_is_an_attribute_of_the_error(write):
    with pytest.raises(InvalidInputError, match="row 2") as caught:
        load_table(write("a,y\n1,x\nred,x\n"), target="y")
    np.testing.assert_array_equal(caught.value.indices, [1])


def test_a_misspelt_column_gets_a_suggestion(write):
    with pytest.raises(InvalidInputError, match="did you mean 'species'"):
        load_table(write("length,species\n1,x\n"), target="spezies")


def test_many_columns_are_not_all_listed(write):
    names = ",".join(f"c{i}" for i in range(100))
    with pytest.raises(
        InvalidInputError, match=r"c5, \.\.\., c94, c95, c96, c97, c98, c99 \(100 columns\)"
    ):
        load_table(write(f"{names}\n"), target="label")


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_other_encodings_are_refused(write, encoding):
    with pytest.raises(InvalidInputError, match="not UTF-8 text"):
        load_table(write("größe,y\n1,2\n", encoding=encoding), target="y")


@pytest.mark.parametrize(
    "text",
    [
        "a,b,c\n1,2.5,x\n-3e-7,1e2,y\n",
        "a,b,c\n1, 2 ,x\n0.1,3, y \n",
        '"a,1",b,c\n1,2,"x, or\nnot"\n3,4,y\n',
        "\na,b,c\n1,2,x\n\n3,4,y\n",
        "a,b,c\n0.1,123456789.123456789,1\n1e-320,5,2\n",
    ],
    ids=["plain", "spaces", "quotes", "blank lines", "digits"],
)
def test_lines_read_one_by_one_are_those_that_pyarrow_reads(write, text, monkeypatch):
    path = write(text)
    fast = load_table(path, target="c")
    monkeypatch.setattr(delimited, "_read_by_pyarrow", lambda *_: None)
    slow = load_table(path, target="c")
    np.testing.assert_array_equal(fast.X, slow.X)
    np.testing.assert_array_equal(fast.y, slow.y)
    assert (fast.y.dtype, fast.feature_names) == (slow.y.dtype, slow.feature_names)


def test_pyarrow_reads_plain_numbers(write, monkeypatch):
    """So many that reading them line by line would take long."""
    monkeypatch.setattr(delimited, "_full_rows", None)
    table = load_table(write("a,b,c\n" + "1,2.5,x\n" * 1000), target="c")
    assert table.X.shape == (1000, 2)
