"""Arrays of every layout and dtype, and those that are refused."""

import numpy as np
import pandas
import polars
import pytest
from scipy import sparse

from nearfar import (
    LMNN,
    MCML,
    MVU,
    KernelLMNN,
    MultiMetricLMNN,
    NearestNeighborClassifier,
    NeighborhoodGraph,
    Tuples,
    make_pairs,
)
from nearfar.errors import InvalidInputError


def memory_map(X, folder):
    np.save(folder / "X.npy", X)
    return np.load(folder / "X.npy", mmap_mode="r")


LAYOUTS = {
    "read-only": lambda X, _: X,
    "memory map": memory_map,
    "Fortran order": lambda X, _: np.asfortranarray(X),
    "negative strides": lambda X, _: X[::-1, ::-1].copy()[::-1, ::-1],
    "strides": lambda X, _: np.repeat(np.repeat(X, 2, axis=0), 3, axis=1)[::2, ::3],
    "big-endian": lambda X, _: X.astype(">f8"),
    "unaligned": lambda X, _: (
        np.frombuffer(b"." + X.tobytes(), np.uint8)[1:].view(np.float64).reshape(X.shape)
    ),
    "list": lambda X, _: X.tolist(),
    "objects": lambda X, _: X.astype(object),
    "pandas": lambda X, _: pandas.DataFrame(X),
    "polars": lambda X, _: polars.DataFrame(X),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_give_the_same_answer(layout, overlapping, tmp_path):
    X, y = overlapping
    data = LAYOUTS[layout](X, tmp_path)
    before = np.array(data)
    model = LMNN().fit(data, y)
    expected = LMNN().fit(X, y)
    np.testing.assert_allclose(model.components_, expected.components_, rtol=1e-9)
    np.testing.assert_allclose(
        np.asarray(model.transform(data)), expected.transform(X), rtol=1e-9, atol=1e-9
    )
    np.testing.assert_array_equal(np.array(data), before)


# Whole numbers coincide, and booleans above all.
@pytest.mark.filterwarnings("ignore::nearfar.errors.DataWarning")
@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.uint16, bool, np.float16, np.longdouble])
def test_other_numbers_become_float64(dtype, overlapping):
    X, y = overlapping
    X = (20 * X > 0) if dtype is bool else np.abs(20 * X).astype(dtype)
    model = LMNN(tol=0.1).fit(X, y)
    assert model.components_.dtype == np.float64
    assert model.transform(X).dtype == np.float64
    assert model.objective_ == LMNN(tol=0.1).fit(X.astype(np.float64), y).objective_


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_are_an_error(value, overlapping):
    X, y = overlapping
    model = LMNN().fit(X, y)
    X = X.copy()
    X[3, 2] = value
    match = "LMNN does not accept missing values" if np.isnan(value) else "contains infinity"
    with pytest.raises(ValueError, match=match):
        LMNN().fit(X, y)
    with pytest.raises(ValueError, match=r"contains (NaN|infinity)"):
        model.transform(X)


@pytest.mark.parametrize("form", [sparse.csr_matrix, sparse.csr_array, sparse.coo_array])
def test_sparse_points_are_mapped_but_not_learned_from(form, overlapping):
    X, y = overlapping
    model = LMNN().fit(X, y)
    with pytest.raises(InvalidInputError, match=r"LMNN needs dense points.*TruncatedSVD"):
        LMNN().fit(form(X), y)
    np.testing.assert_allclose(model.transform(form(X)), model.transform(X), atol=1e-12)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((60,), "Expected 2D array, got 1D array instead"),
        (
            (60, 2, 2),
            r"LMNN takes triplets of shape .*; got \(60, 2, 2\)\. For pairs take ITML",
        ),
        ((60, 0), r"0 feature\(s\)"),
        ((0, 3), r"0 sample\(s\)"),
    ],
)
def test_other_shapes_are_an_error(shape, message, overlapping):
    _, y = overlapping
    with pytest.raises(ValueError, match=message):
        LMNN().fit(np.ones(shape), y[: shape[0]])


@pytest.mark.parametrize(
    "learner", [MCML(), KernelLMNN(), MultiMetricLMNN(), NearestNeighborClassifier(LMNN())]
)
def test_every_learner_from_labels_says_who_learns_from_pairs(learner, overlapping):
    X, y = overlapping
    message = f"{type(learner).__name__} learns from points .* For pairs take MMC, DMLEig, POLA"
    with pytest.raises(InvalidInputError, match=message):
        learner.fit(np.stack([X, X], axis=1), y)


def test_a_tensor_of_pairs_is_refused_alike(overlapping, torch):
    X, y = overlapping
    with pytest.raises(InvalidInputError, match=r"got \(\d+, 2, 3\)\. For pairs"):
        LMNN().fit(torch.ones(len(X), 2, 3), y)


def test_complex_numbers_and_words_are_an_error(overlapping):
    X, y = overlapping
    with pytest.raises(ValueError, match="Complex data not supported"):
        LMNN().fit(X + 0j, y)
    with pytest.raises(ValueError, match="could not convert string to float"):
        LMNN().fit(np.full(X.shape, "word"), y)


def test_one_row_is_an_error():
    with pytest.raises(ValueError, match="LMNN needs at least two classes; y has 1 class"):
        LMNN().fit([[1.0, 2.0]], [0])


def test_a_lazy_table_is_an_error_that_says_how_to_read_it(overlapping):
    X, y = overlapping
    model, lazy = LMNN().fit(X, y), polars.LazyFrame(X)
    calls = {
        "X": [
            lambda: LMNN().fit(lazy, y),
            lambda: model.transform(lazy),
            lambda: MVU().fit(lazy),
            lambda: NeighborhoodGraph.from_points(lazy),
            lambda: make_pairs(lazy, y),
        ],
        "points": [lambda: Tuples(lazy, [[0, 1]])],
        "pairs": [lambda: model.pair_distance(lazy)],
    }
    for name, calls_of_name in calls.items():
        message = rf"rows of {name} must be in memory; got a LazyFrame, .* Pass {name}\.collect\(\)"
        for call in calls_of_name:
            with pytest.raises(InvalidInputError, match=message):
                call()


def test_a_stream_of_rows_is_an_error(overlapping):
    X, y = overlapping
    message = "X must be an array, a table or a tensor; got a generator, which gives rows one after"
    with pytest.raises(InvalidInputError, match=message):
        LMNN().fit((row for row in X), y)
