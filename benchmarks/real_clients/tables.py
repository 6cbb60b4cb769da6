"""Tables and labelled arrays: pandas, polars, pyarrow, xarray, duckdb, dask."""

from __future__ import annotations

from functools import cache

import numpy as np
from sklearn.datasets import load_iris

import nearfar
from benchmarks.real_clients.uses import refusal, use

X, Y = load_iris(return_X_y=True)
NAMES = ["a", "b", "c", "d"]


@cache
def expected():
    """The images of the rows as an array."""
    return nearfar.LMNN().fit(X, Y).transform(X)


def check(table, labels, learner=None):
    """The answer is that of the arrays, and the names of the columns are kept."""
    learner = (nearfar.LMNN() if learner is None else learner).fit(table, labels)
    np.testing.assert_allclose(np.asarray(learner.transform(table)), expected())
    assert list(learner.feature_names_in_) == NAMES
    return learner


@use("pandas")
def pandas_tables():
    """pandas: ordinary columns, categories as labels, set_output."""
    import pandas

    table = pandas.DataFrame(X, columns=NAMES, index=[f"row {i}" for i in range(150)])
    labels = pandas.Series(Y, index=table.index).map({0: "x", 1: "y", 2: "z"}).astype("category")
    learner = check(table, labels).set_output(transform="pandas")
    assert list(learner.transform(table).index) == list(table.index)


@use("pandas")
def nullable_dtypes():
    """pandas: nullable numbers and strings."""
    import pandas

    table = pandas.DataFrame(X, columns=NAMES).convert_dtypes()
    labels = pandas.Series(Y).map({0: "x", 1: "y", 2: "z"}).astype("string")
    check(table, labels)
    check(table, pandas.Series(Y, dtype="Int64"))


@use("pandas", "pyarrow")
def arrow_dtypes():
    """pandas: columns held by pyarrow."""
    import pandas

    table = pandas.DataFrame(X, columns=NAMES).convert_dtypes(dtype_backend="pyarrow")
    check(table, pandas.Series(Y, dtype="int64[pyarrow]"))


@use("pyarrow")
def arrow_tables():
    """pyarrow: a table, and a chunked array of labels."""
    import pyarrow

    table = pyarrow.table(dict(zip(NAMES, X.T, strict=True)))
    learner = nearfar.LMNN().fit(table, pyarrow.chunked_array([Y[:70], Y[70:]]))
    np.testing.assert_allclose(learner.transform(table), expected())


@use("polars")
def polars_tables():
    """polars: a table, labels, set_output; a lazy table is refused with advice."""
    import polars

    table = polars.DataFrame(X, schema=NAMES)
    learner = check(table, polars.Series(Y)).set_output(transform="polars")
    assert isinstance(learner.transform(table), polars.DataFrame)
    assert "Pass X.collect()" in refusal(lambda: learner.fit(table.lazy(), Y))


@use("polars")
def polars_tuples():
    """polars: pairs of rows of a table."""
    import polars

    pairs, kinds = nearfar.make_pairs(polars.DataFrame(X, schema=NAMES), Y, 50, random_state=0)
    learner = nearfar.MMC().fit(pairs, kinds)
    assert list(learner.feature_names_in_) == NAMES


@use("narwhals", "polars")
def narwhals_tables():
    """narwhals: a table over polars."""
    import narwhals
    import polars

    table = narwhals.from_native(polars.DataFrame(X, schema=NAMES))
    np.testing.assert_allclose(nearfar.LMNN().fit(table, Y).transform(table), expected())


@use("xarray")
def xarray_arrays():
    """xarray: a labelled array."""
    import xarray

    table = xarray.DataArray(X, dims=("flower", "feature"))
    np.testing.assert_allclose(nearfar.LMNN().fit(table, Y).transform(table), expected())


@use("duckdb", "pandas")
def duckdb_queries():
    """duckdb: the result of a query, as a table and as arrays."""
    import duckdb
    import pandas

    flowers = pandas.DataFrame(X, columns=NAMES)
    query = duckdb.sql("SELECT * FROM flowers")
    check(query.df(), Y)
    columns = query.fetchnumpy()
    points = np.stack([columns[name] for name in NAMES], axis=1)
    np.testing.assert_allclose(
        nearfar.LMNN().fit(points, Y).transform(flowers.to_numpy()), expected()
    )


@use("dask", "pandas")
def dask_collections():
    """dask: a fit on blocks, and a lazy transform."""
    import dask.array

    blocks = dask.array.from_array(X, chunks=(50, 4))
    learner = nearfar.LMNN().fit(blocks, Y)
    np.testing.assert_allclose(learner.transform(blocks).compute(), learner.transform(X))


@use("dask", "dask_ml")
def parallel_post_fit():
    """dask-ml: ParallelPostFit around a learner and around a classifier."""
    import dask.array
    from dask_ml.wrappers import ParallelPostFit

    blocks = dask.array.from_array(X, chunks=(50, 4))
    learner = ParallelPostFit(nearfar.LMNN()).fit(X, Y)
    np.testing.assert_allclose(learner.transform(blocks).compute(), expected())
    classifier = ParallelPostFit(nearfar.NearestNeighborClassifier()).fit(X, Y)
    assert np.mean(classifier.predict(blocks).compute() == Y) > 0.9


@use("distributed")
def dask_workers():
    """dask.distributed: fits in workers."""
    from distributed import Client

    with Client(
        n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None
    ) as client:
        fits = client.map(lambda k: nearfar.LMNN(n_neighbors=k).fit(X, Y), [1, 3])
        assert client.gather(fits)[1].transform(X).shape == expected().shape


@use("jax")
def jax_arrays():
    """jax: arrays of it, in float32, are copied to NumPy."""
    import jax.numpy

    learner = nearfar.LMNN().fit(jax.numpy.asarray(X), Y)
    assert learner.components_.dtype == np.float32
    assert abs(learner.objective_ / nearfar.LMNN().fit(X, Y).objective_ - 1) < 0.01


@use("array_api_strict")
def strict_arrays():
    """array-api-strict: arrays of it are copied to NumPy."""
    import array_api_strict

    points = array_api_strict.asarray(X)
    np.testing.assert_allclose(nearfar.LMNN().fit(points, Y).transform(points), expected())
