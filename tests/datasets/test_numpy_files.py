"""NPY and NPZ files, good and bad."""

import pickle

import numpy as np
import pytest
from scipy.sparse import csr_array, save_npz

from nearfar.datasets import load_table
from nearfar.errors import InvalidInputError


@pytest.fixture
def npy(tmp_path):
    def npy(values):
        path = tmp_path / "table.npy"
        np.save(path, values)
        return path

    return npy


@pytest.fixture
def npz(tmp_path):
    def npz(**arrays):
        path = tmp_path / "table.npz"
        np.savez(path, **arrays)
        return path

    return npz


def test_npy_takes_the_last_column_as_target(npy):
    table = load_table(npy(np.array([[1.5, 2, 0], [3, 4, 1]])))
    np.testing.assert_array_equal(table.X, [[1.5, 2], [3, 4]])
    np.testing.assert_array_equal(table.y, [0, 1])
    assert table.y.dtype == np.int64
    assert table.feature_names is None
    assert table.target_name == "2"


@pytest.mark.parametrize(("target", "column"), [("0", 0), ("1", 1), ("-1", 2), ("-3", 0)])
def test_npy_target_by_number(npy, target, column):
    values = np.array([[1, 2, 0], [3, 4, 1]])
    table = load_table(npy(values), target)
    np.testing.assert_array_equal(table.y, values[:, column])
    np.testing.assert_array_equal(table.X, np.delete(values, column, axis=1))


def test_npy_without_labels(npy):
    values = np.array([[1.0, 2, 0.5], [3, 4, 1]])
    np.testing.assert_array_equal(load_table(npy(values), labelled=False).X, values)
    dropped = load_table(npy(values), "2", labelled=False)
    np.testing.assert_array_equal(dropped.X, values[:, :2])
    assert dropped.y is None


@pytest.mark.parametrize(
    ("given", "kept"),
    [("f2", "f4"), ("f4", "f4"), (">f4", "f4"), ("f8", "f8"), ("i4", "f8"), ("?", "f8")],
)
def test_dtypes(npz, given, kept):
    X = load_table(npz(X=np.ones((2, 2), given)), labelled=False).X
    assert X.dtype == np.dtype(kept)


def test_npz_holds_x_and_y(npz):
    path = npz(X=np.eye(2), y=np.array(["a", "b"]), other=np.array([b"c", b"d"]))
    assert load_table(path).y.tolist() == ["a", "b"]
    assert load_table(path, "other").y.tolist() == ["c", "d"]
    assert load_table(path, labelled=False).y is None


@pytest.mark.parametrize(
    ("values", "target", "message"),
    [
        (np.arange(3.0), None, "expected one matrix, a row for each point; found shape (3,)"),
        (np.zeros((2, 2, 2)), None, "expected one matrix"),
        (np.zeros((0, 3)), None, "there are no rows"),
        (np.zeros((3, 1)), None, "there are no feature columns"),
        (np.array([["a", "b"]]), None, "must be a matrix of numbers"),
        (np.ones((2, 2), complex), None, "must be a matrix of numbers"),
        (np.array([[1, 0.5]]), None, "target '1' holds measurements"),
        (np.array([[np.nan, 1]]), None, "the value in row 1 of column 1 is missing"),
        (np.ones((2, 2)), "2", "has columns 0 to 1"),
        (np.ones((2, 2)), "kind", "an NPY file has no names"),
    ],
)
def test_bad_npy(npy, values, target, message):
    with pytest.raises(InvalidInputError) as caught:
        load_table(npy(values), target)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("arrays", "target", "message"),
    [
        ({"x": np.eye(2)}, None, "there is no array 'X'. Choose from: x"),
        ({"X": np.eye(2)}, None, "there is no array 'y'. Choose from: X"),
        ({"X": np.eye(2)}, "y", "there is no array 'y'. Choose from: X"),
        ({"X": np.eye(2), "y": np.zeros(3, int)}, None, "X has 2 rows and 'y' has 3"),
        ({"X": np.eye(2), "y": np.eye(2)}, None, "must be a column of class labels"),
        ({"X": np.ones(2), "y": np.zeros(2, int)}, None, "must be a matrix of numbers"),
    ],
)
def test_bad_npz(npz, arrays, target, message):
    with pytest.raises(InvalidInputError) as caught:
        load_table(npz(**arrays), target)
    assert message in str(caught.value)


def csr_parts(X, **others):
    X = csr_array(X)
    parts = {"data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": X.shape}
    return parts | {"format": b"csr"} | others


@pytest.mark.parametrize(("given", "kept"), [("f4", "f4"), ("f8", "f8"), ("i8", "f8")])
def test_csr_points_as_scipy_saves_them(npz, tmp_path, given, kept):
    X = np.array([[0, 2, 0], [1, 0, 0]], given)
    table = load_table(npz(**csr_parts(X, y=np.array(["a", "b"]))), sparse=True)
    assert isinstance(table.X, csr_array)
    assert table.X.dtype == np.dtype(kept)
    np.testing.assert_array_equal(table.X.toarray(), X)
    assert table.y.tolist() == ["a", "b"]
    save_npz(tmp_path / "saved.npz", csr_array(X))
    saved = load_table(tmp_path / "saved.npz", labelled=False, sparse=True)
    np.testing.assert_array_equal(saved.X.toarray(), X)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"indices": np.array([5, 0])}, "do not fit together"),
        ({"indptr": np.array([0, 1])}, "do not fit together"),
        ({"shape": np.array([2, 3, 4])}, "do not fit together"),
        ({"data": np.array([1.0, np.inf])}, "is infinite"),
        ({"data": np.array(["a", "b"])}, "must be a matrix of numbers"),
        ({"format": b"csc"}, "must be a CSR matrix; found the format b'csc'"),
        ({"y": np.zeros(3, int)}, "X has 2 rows and 'y' has 3"),
        ({"shape": np.array([-1, 3])}, "do not fit together"),
    ],
)
def test_bad_csr(npz, changed, message):
    parts = csr_parts(np.array([[0.0, 2], [1, 0]]), y=np.zeros(2, int)) | changed
    with pytest.raises(InvalidInputError) as caught:
        load_table(npz(**parts), sparse=True)
    assert message in str(caught.value)


def test_csr_is_refused_where_a_dense_table_is_needed(npz):
    with pytest.raises(InvalidInputError, match=r"X is sparse.* or save X\.toarray\(\)"):
        load_table(npz(**csr_parts(np.eye(2))), labelled=False)


class Trap:
    """Unpickling an instance creates the file at `path`."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_pickles_are_never_opened(tmp_path, suffix):
    sprung = tmp_path / "sprung"
    for name, content in {
        "pickle": pickle.dumps(Trap(sprung)),
        "objects": None,
    }.items():
        path = tmp_path / f"{name}{suffix}"
        if content is not None:
            path.write_bytes(content)
        elif suffix == ".npy":
            np.save(path, np.array([[Trap(sprung)]], dtype=object))
        else:
            np.savez(path, X=np.array([[Trap(sprung)]], dtype=object))
        with pytest.raises(InvalidInputError, match="not a readable NumPy file"):
            load_table(path)
    assert not sprung.exists()


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut", b"\x93NUMPY", b"a,b\n1,2\n"])
def test_truncated_and_foreign_files(tmp_path, suffix, content):
    path = tmp_path / f"table{suffix}"
    path.write_bytes(content)
    with pytest.raises(InvalidInputError, match="not a readable NumPy file"):
        load_table(path)


def test_archives_and_arrays_under_each_others_name(tmp_path, npy, npz):
    swapped = tmp_path / "swapped.npz"
    npy(np.eye(2)).rename(swapped)
    with pytest.raises(InvalidInputError, match="found one array"):
        load_table(swapped)
    swapped = tmp_path / "swapped.npy"
    npz(X=np.eye(2)).rename(swapped)
    with pytest.raises(InvalidInputError, match="found an archive"):
        load_table(swapped)
