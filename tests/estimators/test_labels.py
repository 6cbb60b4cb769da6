"""Labels of every kind, and those that are refused."""

import numpy as np
import pandas
import polars
import pytest
from sklearn.exceptions import DataConversionWarning

from nearfar import LMNN
from nearfar.errors import InvalidInputError

# What is tested is how labels are read, so the fits may be rough.
NAMES = np.array(["setosa", "versicolor", "virginica"])
STRINGS = {
    "strings": lambda y: NAMES[y],
    "list": lambda y: NAMES[y].tolist(),
    "tuple": lambda y: tuple(NAMES[y]),
    "objects": lambda y: NAMES[y].astype(object),
    "pandas string": lambda y: pandas.Series(NAMES[y], dtype="string"),
    "pandas category": lambda y: pandas.Series(NAMES[y], dtype="category"),
    "pandas Categorical": lambda y: pandas.Categorical(NAMES[y]),
    "pandas shuffled index": lambda y: pandas.Series(NAMES[y], index=np.arange(len(y))[::-1]),
    "polars string": lambda y: polars.Series(NAMES[y]),
    "polars categorical": lambda y: polars.Series(NAMES[y].tolist(), dtype=polars.Categorical),
    "polars enum": lambda y: polars.Series(NAMES[y].tolist(), dtype=polars.Enum(NAMES.tolist())),
}
NUMBERS = {
    "int8": lambda y: y.astype(np.int8) - 1,
    "whole floats": lambda y: y - 1.0,
    "pandas": lambda y: pandas.Series(y - 1),
    "pandas Int64": lambda y: pandas.Series(y - 1, dtype="Int64"),
    "pandas category": lambda y: pandas.Series(y - 1, dtype="category"),
    "polars": lambda y: polars.Series(y - 1),
    "read-only memory map": lambda y: np.asarray(y - 1).view(np.memmap),
}
BOOLEANS = {
    "bools": lambda y: y == 1,
    "list": lambda y: (y == 1).tolist(),
    "pandas": lambda y: pandas.Series(y == 1),
    "polars": lambda y: polars.Series(y == 1),
}
MISSING = {
    "None": [None, "a", "b"],
    "NaN among strings": [np.nan, "a", "b"],
    "pandas string": pandas.Series([pandas.NA, "a", "b"], dtype="string"),
    "pandas objects": pandas.Series([pandas.NA, "a", "b"], dtype=object),
    "pandas category": pandas.Series([None, "a", "b"], dtype="category"),
    "pandas Int64": pandas.Series([pandas.NA, 1, 2], dtype="Int64"),
    "polars string": polars.Series([None, "a", "b"]),
    "polars int": polars.Series([None, 1, 2]),
    "NaN": np.array([np.nan, 1, 2]),
}


EACH_LIBRARY = ["numpy", pytest.param("torch", marks=pytest.mark.torch)]


@pytest.fixture(params=EACH_LIBRARY)
def data(request, overlapping):
    """Points, as an array and as a tensor, and labels."""
    X, y = overlapping
    if request.param == "torch":
        import torch

        X = torch.tensor(X)
    return X, y


def each(kinds):
    """Labels of each kind beside an array, and of the first two beside a tensor."""
    cases = [("numpy", kind) for kind in kinds]
    cases += [pytest.param("torch", kind, marks=pytest.mark.torch) for kind in [*kinds][:2]]
    return pytest.mark.parametrize(("data", "kind"), cases, indirect=["data"])


@each(STRINGS)
def test_strings(kind, data):
    X, y = data
    model = LMNN(tol=0.5).fit(X, STRINGS[kind](y))
    assert isinstance(model.classes_, np.ndarray)
    assert model.classes_.tolist() == NAMES.tolist()
    assert model.objective_ == LMNN(tol=0.5).fit(X, y).objective_


@each(NUMBERS)
def test_numbers(kind, data):
    X, y = data
    model = LMNN(tol=0.5).fit(X, NUMBERS[kind](y))
    assert model.classes_.tolist() == [-1, 0, 1]
    assert model.objective_ == LMNN(tol=0.5).fit(X, y).objective_


@each(BOOLEANS)
def test_booleans(kind, data):
    X, y = data
    model = LMNN(tol=0.5).fit(X, BOOLEANS[kind](y))
    assert model.classes_.tolist() == [False, True]
    assert model.classes_.dtype == bool
    assert model.objective_ == LMNN(tol=0.5).fit(X, 1 * (y == 1)).objective_


def test_an_unused_category_is_no_class(data):
    X, y = data
    model = LMNN(tol=0.5).fit(X, pandas.Categorical(NAMES[y], categories=["other", *NAMES]))
    assert model.classes_.tolist() == NAMES.tolist()


def test_a_column_is_flattened_with_a_warning(data):
    X, y = data
    with pytest.warns(DataConversionWarning, match="column-vector y was passed"):
        model = LMNN(tol=0.5).fit(X, y[:, None])
    assert model.objective_ == LMNN(tol=0.5).fit(X, y).objective_


def test_mixed_kinds_are_an_error(data):
    X, y = data
    labels = np.array([0, "one", 2], dtype=object)[y]
    with pytest.raises(
        InvalidInputError, match=r"LMNN needs labels of one kind; y mixes int and str\. Convert"
    ):
        LMNN(tol=0.5).fit(X, labels)


@pytest.mark.parametrize("kind", MISSING)
def test_missing_labels_are_an_error(kind, data):
    X, y = data
    labels = MISSING[kind]
    if isinstance(labels, pandas.Series):
        labels = labels.iloc[y].reset_index(drop=True)
    elif isinstance(labels, polars.Series):
        labels = labels[y.tolist()]
    else:
        labels = np.array(labels, dtype=getattr(labels, "dtype", object))[y]
    with pytest.raises(ValueError, match=r"contains NaN|needs a label for every row; .* row 0 \("):
        LMNN(tol=0.5).fit(X, labels)


def test_missing_labels_are_listed(overlapping):
    X, y = overlapping
    labels = NAMES[y].astype(object)
    labels[[4, 9]] = None
    with pytest.raises(InvalidInputError, match=r"row 4 \(2 in all\)\. Drop") as caught:
        LMNN(tol=0.5).fit(X, labels)
    assert caught.value.indices.tolist() == [4, 9]


def test_infinite_labels_are_an_error(data):
    X, y = data
    with pytest.raises(ValueError, match=r"y contains infinity|infinity or no value in row 0"):
        LMNN(tol=0.5).fit(X, np.where(y == 0, np.inf, y))


def test_continuous_labels_are_an_error(data):
    X, y = data
    with pytest.raises(ValueError, match="Unknown label type: continuous"):
        LMNN(tol=0.5).fit(X, y + 0.5)


def test_two_columns_of_labels_are_an_error(data):
    X, y = data
    with pytest.raises(ValueError, match=r"y should be a 1d array, got .* shape \(60, 2\)"):
        LMNN(tol=0.5).fit(X, np.column_stack([y, y]))


def test_no_labels_are_an_error(data):
    X, _ = data
    with pytest.raises(ValueError, match="requires y to be passed, but the target y is None"):
        LMNN(tol=0.5).fit(X, None)


@pytest.mark.parametrize("rows", [59, 61])
def test_another_number_of_labels_is_an_error(rows, data):
    X, y = data
    with pytest.raises(ValueError, match=rf"(?s)60.*{rows}"):
        LMNN(tol=0.5).fit(X, np.resize(y, rows))
