"""A learned map in faiss and ONNX gives the distances and the images that nearfar gives."""

import gc
import json
import pickle
import sys

import faiss
import numpy as np
import onnx
import onnxruntime
import pandas
import pytest
from onnx import helper, numpy_helper
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler

import nearfar
from nearfar.errors import InvalidInputError, MissingExtraError
from nearfar.estimators import LMNN, KernelLMNN
from nearfar.estimators._deploy import ONNX_IR_VERSION, ONNX_OPSET

FLOAT32 = 3e-5  # relative; sums of a few products of numbers that carry 6e-8

MODELS = [
    LMNN(max_iter=20, tol=0.1),
    LMNN(n_components=2),
    LMNN(n_components=3, reduce="project"),
]
each_model = pytest.mark.parametrize("model", MODELS, ids=["full", "learned", "projected"])


@pytest.fixture
def fitted(overlapping):
    """A map of 2 rows for vectors of length 5."""
    return LMNN(n_components=2).fit(*overlapping)


def squared_distances(model, queries, found):
    """pair_distance² between each query and each of the points found for it, (m, k)."""
    m, k, d = found.shape
    pairs = np.stack([np.broadcast_to(queries[:, None], found.shape), found], axis=2)
    return model.pair_distance(pairs.reshape(m * k, 2, d)).reshape(m, k) ** 2


def run(model, X):
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (answer,) = session.run(None, {"features": X})
    return answer


# -- faiss -----------------------------------------------------------------------------------


@each_model
def test_faiss_returns_the_nearest_points_and_their_squared_learned_distances(
    model, overlapping, dtype
):
    """float64 is rounded to float32 on its way into the index, the distances with it."""
    X, y = overlapping[0].astype(dtype), overlapping[1]
    fitted = clone(model).fit(X, y)
    squared, rows = fitted.to_faiss(X[10:]).search(X[:10], 4)
    everyone = np.broadcast_to(X[10:], (10, len(X) - 10, 5))
    expected = squared_distances(fitted, X[:10], everyone)
    np.testing.assert_array_equal(rows, expected.argsort(axis=1)[:, :4])
    np.testing.assert_allclose(squared, np.sort(expected, axis=1)[:, :4], rtol=FLOAT32)


def test_the_default_index_is_empty_exact_and_takes_original_vectors(fitted):
    index = fitted.to_faiss()
    assert isinstance(index, faiss.IndexPreTransform)
    assert isinstance(faiss.downcast_index(index.index), faiss.IndexFlatL2)
    assert (index.d, index.index.d, index.ntotal, index.is_trained) == (5, 2, 0, True)


def test_the_index_lives_longer_than_what_it_was_made_of(overlapping):
    X, y = overlapping
    model = LMNN(n_components=2).fit(X, y)
    expected = model.to_faiss(X).search(X, 3)
    index = model.to_faiss(X, index=faiss.IndexFlatL2(2))
    del model
    gc.collect()
    for kept in (index, faiss.deserialize_index(faiss.serialize_index(index))):
        for got, wanted in zip(kept.search(X, 3), expected, strict=True):
            np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("factory", ["HNSW16", "SQfp16", "PCA2,Flat", "IDMap,Flat"])
def test_a_factory_string_chooses_what_searches_among_the_images(fitted, overlapping, factory):
    X, _ = overlapping
    index = fitted.to_faiss(index=factory)
    if factory.startswith("IDMap"):
        index.add_with_ids(X, np.arange(1000, 1000 + len(X)))
        _, rows = index.search(X, 1)
        rows -= 1000
    else:
        _, rows = fitted.to_faiss(X, index=factory).search(X, 1)
    assert np.mean(rows[:, 0] == np.arange(len(X))) > 0.95


def test_an_index_that_needs_training_is_trained_on_the_images(fitted, overlapping):
    """With as many probes as cells IVF is exact."""
    X, _ = overlapping
    exact = fitted.to_faiss(X).search(X[:5], 3)
    with_points = fitted.to_faiss(X, index="IVF2,Flat")
    later = fitted.to_faiss(index="IVF2,Flat")
    assert not later.is_trained
    later.train(X)
    later.add(X)
    for index in (with_points, later):
        faiss.extract_index_ivf(index).nprobe = 2
        for got, wanted in zip(index.search(X[:5], 3), exact, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=FLOAT32)


def test_a_given_index_is_filled(fitted, overlapping):
    X, _ = overlapping
    given = faiss.IndexFlatL2(2)
    fitted.to_faiss(X, index=given)
    np.testing.assert_allclose(given.reconstruct_n(0, len(X)), fitted.transform(X), atol=1e-5)


@pytest.mark.parametrize("more", [0, 1], ids=["zero rows", "dependent rows"])
def test_a_map_of_deficient_rank_is_as_good_as_any(fitted, overlapping, more):
    X, _ = overlapping
    fitted.components_ = np.vstack([fitted.components_, more * fitted.components_])
    squared, rows = fitted.to_faiss(X).search(X[:5], 4)
    expected = squared_distances(fitted, X[:5], X[rows])
    np.testing.assert_allclose(squared, expected, rtol=FLOAT32)
    np.testing.assert_allclose(run(fitted.to_onnx(), X), fitted.transform(X), rtol=1e-9)


def test_points_that_the_metric_does_not_tell_apart_have_distance_zero(fitted, overlapping):
    """Moving along the null space of the map changes nothing."""
    X, _ = overlapping
    null = np.linalg.svd(fitted.components_)[2][-1]
    squared, _ = fitted.to_faiss(X).search(X[:5] + 3 * null, 1)
    np.testing.assert_allclose(squared, 0, atol=1e-9 * np.square(fitted.transform(X)).max())


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (faiss.IndexFlatL2(5), r"vectors of length 2, .* it takes 5\. Make it with d = 2"),
        (faiss.IndexFlatIP(2), r"by faiss.METRIC_L2, .* metric_type is 0\. Make it with METRIC_L2"),
        (faiss.IndexBinaryFlat(8), r"a faiss.Index or None; got IndexBinaryFlat\. Leave it out"),
        (3, r"got int\. Leave it out"),
        ("Flatt", r"cannot make 'Flatt' for vectors of length 2: .* Try 'Flat'"),
    ],
    ids=["length", "inner product", "binary", "number", "string"],
)
def test_an_index_that_cannot_hold_the_images_is_an_error(fitted, index, message):
    with pytest.raises(InvalidInputError, match=message):
        fitted.to_faiss(index=index)


def test_too_few_points_to_train_an_index_are_an_error(fitted, overlapping):
    X, _ = overlapping
    with pytest.raises(InvalidInputError, match=r"train 'IVF100,Flat' on 60 rows: .* Give more"):
        fitted.to_faiss(X, index="IVF100,Flat")


def test_points_that_transform_refuses_are_refused(fitted, overlapping):
    X, _ = overlapping
    with pytest.raises(ValueError, match="X has 4 features, but LMNN is expecting 5"):
        fitted.to_faiss(X[:, :4])
    with pytest.raises(ValueError, match="contains NaN"):
        fitted.to_faiss(np.where(X > 1, np.nan, X))


def test_numbers_that_float32_cannot_hold_are_an_error(fitted, overlapping):
    X, _ = overlapping
    with pytest.raises(InvalidInputError, match=r"X does not fit into float32: .* 1e\+40\. Scale"):
        fitted.to_faiss(np.where(X > 2, 1e40, X))
    fitted.components_ = fitted.components_ * 1e40
    with pytest.raises(InvalidInputError, match="components_ does not fit into float32"):
        fitted.to_faiss()
    with pytest.raises(InvalidInputError, match="components_ does not fit into float32"):
        fitted.to_onnx(dtype="float32")
    np.testing.assert_allclose(run(fitted.to_onnx(), X), fitted.transform(X))


# -- ONNX ------------------------------------------------------------------------------------


@each_model
@pytest.mark.parametrize("rows", [0, 1, 60])
def test_onnx_is_transform_for_any_number_of_rows(model, overlapping, dtype, rows):
    X, y = overlapping[0].astype(dtype), overlapping[1]
    fitted = clone(model).fit(X, y)
    images = run(fitted.to_onnx(), X[:rows])
    assert images.dtype == dtype
    assert images.shape == (rows, len(fitted.components_))
    if rows:
        accuracy = FLOAT32 if dtype == np.float32 else 1e-12
        scale = np.abs(fitted.transform(X)).max()
        np.testing.assert_allclose(images, fitted.transform(X[:rows]), atol=accuracy * scale)


def test_onnx_is_one_matmul_with_named_ends(fitted):
    model = fitted.to_onnx()
    (node,), (matrix,) = model.graph.node, model.graph.initializer
    assert (node.op_type, list(node.input), list(node.output)) == (
        "MatMul",
        ["features", "map"],
        ["transformed"],
    )
    np.testing.assert_array_equal(numpy_helper.to_array(matrix), fitted.components_.T)
    shapes = {
        end.name: [side.dim_param or side.dim_value for side in end.type.tensor_type.shape.dim]
        for end in (*model.graph.input, *model.graph.output)
    }
    assert shapes == {"features": ["rows", 5], "transformed": ["rows", 2]}


def test_the_opset_is_the_one_where_matmul_last_changed():
    assert onnx.defs.get_schema("MatMul").since_version == ONNX_OPSET
    opset = helper.make_opsetid("", ONNX_OPSET)
    assert helper.find_min_ir_version_for([opset]) == ONNX_IR_VERSION


def test_the_metadata_say_where_a_model_comes_from(overlapping):
    X, y = overlapping
    names = ["malic acid", "ash", "é", "d", "e"]
    model = LMNN(n_components=2).fit(pandas.DataFrame(X, columns=names), y).to_onnx()
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    assert json.loads(metadata.pop("feature_names")) == names
    assert metadata == {"class": "LMNN", "nearfar_version": nearfar.__version__}
    assert (model.producer_name, model.producer_version) == ("nearfar", nearfar.__version__)
    assert (model.opset_import[0].version, model.ir_version) == (ONNX_OPSET, ONNX_IR_VERSION)


def test_without_names_there_are_none_in_the_metadata(fitted):
    assert {entry.key for entry in fitted.to_onnx().metadata_props} == {"class", "nearfar_version"}


@pytest.mark.parametrize("wanted", ["float32", np.float32, np.dtype("float64")])
def test_the_dtype_of_the_model_can_be_chosen(fitted, overlapping, wanted):
    X = overlapping[0].astype(wanted)
    images = run(fitted.to_onnx(dtype=wanted), X)
    assert images.dtype == X.dtype
    np.testing.assert_allclose(images, fitted.transform(X), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("wanted", ["float16", int, "wide"])
def test_another_dtype_is_an_error(fitted, wanted):
    with pytest.raises(InvalidInputError, match="dtype must be float32, float64 or None; got"):
        fitted.to_onnx(dtype=wanted)


def test_the_file_is_the_model(fitted, overlapping, tmp_path):
    path = tmp_path / "metric.onnx"
    path.write_text("older")
    model = fitted.to_onnx(path)
    assert onnx.load(path) == model
    assert [file.name for file in tmp_path.iterdir()] == ["metric.onnx"]
    X, _ = overlapping
    np.testing.assert_array_equal(run(onnx.load(path), X), run(model, X))


def test_a_path_that_cannot_become_a_file_is_an_error(fitted, tmp_path):
    with pytest.raises(InvalidInputError, match=r"is a folder\. Name a file in it"):
        fitted.to_onnx(tmp_path)
    file = tmp_path / "file"
    file.touch()
    for parent in (tmp_path / "missing", file):
        with pytest.raises(InvalidInputError, match=r"does not exist\. Create it first"):
            fitted.to_onnx(parent / "metric.onnx")
    assert list(tmp_path.iterdir()) == [file]


# -- queries alone -----------------------------------------------------------------------------


def inner_product_index(X):
    index = faiss.IndexFlatIP(X.shape[1])
    index.add(np.asarray(X, dtype=np.float32))
    return index


@each_model
def test_mapped_queries_and_offsets_give_learned_distances(model, overlapping, dtype):
    """qᵀMq − 2 [(Mq)·x − ½ xᵀMx] = D(q, x)², with qᵀMq = 2 offset(q)."""
    X, y = overlapping
    X = X.astype(dtype)
    model = clone(model).fit(X, y)
    queries, documents = X[:7], X[7:]
    mapped, offsets = model.map_queries(queries), model.document_offsets(documents)
    assert (mapped.dtype, offsets.dtype) == (dtype, np.float64)
    assert mapped.shape == queries.shape
    M = model.get_mahalanobis_matrix()
    precision = 1e-4 if dtype == np.float32 else 1e-10
    np.testing.assert_allclose(mapped, queries @ M, rtol=precision, atol=precision * M.max())
    scores = mapped @ documents.T - offsets
    squares = 2 * model.document_offsets(queries)[:, None] - 2 * scores
    found = np.broadcast_to(documents, (7, *documents.shape))
    expected = squared_distances(model, queries, found)
    np.testing.assert_allclose(squares, expected, rtol=0, atol=precision * expected.max())


@each_model
@pytest.mark.parametrize("k", [1, 5])
def test_a_query_index_returns_what_an_index_of_images_returns(model, overlapping, k):
    X, y = overlapping
    model = clone(model).fit(X, y)
    untouched = inner_product_index(X)
    searched = model.query_index(untouched, model.document_offsets(X))
    squared, rows = searched.search(X[:20] + 0.1, k)
    expected, _ = model.to_faiss(X).search(X[:20] + 0.1, k)
    scale = model.document_offsets(X).max()
    np.testing.assert_allclose(squared, expected, rtol=1e-4, atol=1e-5 * scale)
    assert (np.diff(squared, axis=1) >= 0).all()
    found = squared_distances(model, X[:20] + 0.1, X[rows])
    np.testing.assert_allclose(squared, found, rtol=1e-4, atol=1e-5 * scale)
    np.testing.assert_array_equal(untouched.reconstruct_n(0, len(X)), X.astype(np.float32))


class CountedIndex:
    """An index that notes how many candidates it was asked for, and of how many queries."""

    def __init__(self, index):
        self.index, self.asked = index, []
        self.ntotal, self.d, self.metric_type = index.ntotal, index.d, index.metric_type

    def search(self, vectors, k):
        self.asked.append((len(vectors), k))
        return self.index.search(vectors, k)


def test_candidates_grow_only_for_queries_that_need_more(rng):
    """M = I. Documents e₁ … e₈ at lengths 1 … 40: long ones have the largest products with any
    query, and are not the nearest. A query far out along the longest is answered at once.
    """
    metric = nearfar.LinearMetric().fit(np.eye(3))
    X = np.abs(rng.normal(size=(64, 3))) + 0.1
    X *= np.linspace(1, 40, 64)[:, None] / np.linalg.norm(X, axis=1, keepdims=True)
    near, far = X[3] * 1.01, X[63] * 10
    index = CountedIndex(inner_product_index(X))
    squared, rows = metric.query_index(index, metric.document_offsets(X)).search([near, far], 1)
    assert rows[:, 0].tolist() == [3, np.linalg.norm(X - far, axis=1).argmin()]
    np.testing.assert_allclose(squared[0, 0], ((near - X[3]) ** 2).sum(), atol=1e-5)
    assert index.asked == [(2, 4), (1, 8), (1, 16), (1, 32), (1, 64)]


def test_an_approximate_index_may_return_fewer(rng):
    X = rng.normal(size=(300, 4))
    metric = nearfar.LinearMetric(2 * np.eye(4)).fit(X)
    index = faiss.index_factory(4, "IVF10,Flat", faiss.METRIC_INNER_PRODUCT)
    index.train(X.astype(np.float32))
    index.add(X.astype(np.float32))
    squared, rows = metric.query_index(index, metric.document_offsets(X)).search(X[:5], 250)
    assert (rows[:, -1] == -1).all()
    assert np.isinf(squared[:, -1]).all()
    assert np.isfinite(squared[:, 0]).all()


def test_a_query_index_without_the_offsets_of_its_documents_is_an_error(fitted, overlapping):
    X, _ = overlapping
    index = inner_product_index(X)
    with pytest.raises(InvalidInputError, match=r"needs the offset of each.*document_offsets\(X\)"):
        fitted.query_index(index)
    offsets = fitted.document_offsets(X)
    message = f"each of the {len(X)} documents of the index, in their order; got shape"
    with pytest.raises(InvalidInputError, match=message):
        fitted.query_index(index, offsets[:-1])
    with pytest.raises(InvalidInputError, match=r"finite and not negative.*got -1\.0"):
        fitted.query_index(index, np.r_[offsets[:-1], -1.0])


def test_an_index_that_does_not_hold_the_documents_is_an_error(fitted, overlapping):
    X, _ = overlapping
    offsets = fitted.document_offsets(X)
    by_distance = faiss.IndexFlatL2(5)
    by_distance.add(X.astype(np.float32))
    with pytest.raises(InvalidInputError, match=r"METRIC_INNER_PRODUCT.*its metric_type is 1"):
        fitted.query_index(by_distance, offsets)
    images = inner_product_index(fitted.transform(X))
    with pytest.raises(InvalidInputError, match=r"vectors of length 5, .*have length 2.*to_faiss"):
        fitted.query_index(images, offsets)
    with pytest.raises(InvalidInputError, match=r"faiss\.Index of the documents.*got ndarray"):
        fitted.query_index(X, offsets)


def test_bad_searches_of_a_query_index_are_errors(fitted, overlapping):
    X, _ = overlapping
    searched = fitted.query_index(inner_product_index(X), fitted.document_offsets(X))
    with pytest.raises(InvalidInputError, match=r"k must be an integer"):
        searched.search(X[:2], 0)
    with pytest.raises(InvalidInputError, match=r"queries must have shape \(n_queries, 5\)"):
        searched.search(X[:2, :4], 3)


@pytest.mark.torch
def test_queries_and_offsets_of_tensors(backend, overlapping):
    X, y = overlapping
    on_device = LMNN(n_components=2).fit(backend.asarray(X), y)
    host = nearfar.LinearMetric(backend.to_numpy(on_device.components_)).fit(X)
    for method in ("map_queries", "document_offsets"):
        found = backend.to_numpy(getattr(on_device, method)(backend.asarray(X)))
        np.testing.assert_allclose(found, getattr(host, method)(X), rtol=1e-8, atol=1e-10)
    offsets = on_device.document_offsets(backend.asarray(X))
    searched = on_device.query_index(inner_product_index(X), offsets)
    assert searched.search(backend.asarray(X[:3]), 1)[1][:, 0].tolist() == [0, 1, 2]


# -- both ------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["to_faiss", "to_onnx"])
def test_unfitted_is_an_error(method):
    with pytest.raises(NotFittedError, match="is not fitted yet"):
        getattr(LMNN(), method)()


@pytest.mark.parametrize("method", ["map_queries", "document_offsets", "query_index"])
def test_unfitted_queries_are_an_error(method):
    with pytest.raises(NotFittedError, match="is not fitted yet"):
        getattr(LMNN(), method)([[0.0]])


@pytest.mark.parametrize("package", ["faiss", "onnx"])
def test_a_missing_package_is_named_with_the_line_that_installs_it(fitted, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"pip install .*\[{package}\]"):
        getattr(fitted, f"to_{package}")()


@pytest.mark.torch
def test_tensors_come_to_the_host(backend, overlapping):
    X, y = overlapping
    on_device = LMNN(n_components=2).fit(backend.asarray(X), y)
    squared, rows = on_device.to_faiss(backend.asarray(X)).search(X[:5], 3)
    pairs = np.stack([np.repeat(X[:5], 3, axis=0), X[rows.ravel()]], axis=1)
    expected = backend.to_numpy(on_device.pair_distance(backend.asarray(pairs))) ** 2
    np.testing.assert_allclose(squared.ravel(), expected, rtol=FLOAT32)
    images = backend.to_numpy(on_device.transform(backend.asarray(X)))
    np.testing.assert_allclose(run(on_device.to_onnx(), X), images, atol=1e-12)
    # An array can be indexed although transform would refuse it beside a map on a device.
    np.testing.assert_array_equal(on_device.to_faiss(X).search(X[:5], 3)[1], rows)


# -- numba ------------------------------------------------------------------------------------


def test_compiled_code_calls_the_metric(overlapping):
    numba = pytest.importorskip("numba", reason="needs numba")
    X, y = overlapping
    model = LMNN().fit(X, y)
    metric = model.get_metric()

    @numba.njit
    def compared(distance, points):
        return distance(points[0], points[1])

    assert compared(metric, X) == pytest.approx(metric(X[0], X[1]), rel=1e-12)
    assert pickle.loads(pickle.dumps(metric))(X[0], X[1]) == metric(X[0], X[1])


def test_compiled_code_cannot_call_the_metric_of_a_kernel(overlapping):
    """numba asks for the attribute, whether or not it is installed here."""
    X, y = overlapping
    metric = KernelLMNN(kernel="rbf").fit(X, y).get_metric()
    with pytest.raises(TypeError, match=r"cannot call a KernelDistance; .* images transform\(X\)"):
        _ = metric._numba_type_


# -- pipelines ------------------------------------------------------------------------------------


@pytest.fixture
def pipeline(wine):
    return make_pipeline(StandardScaler(), PCA(5), LMNN()).fit(*wine)


def test_a_pipeline_is_one_matrix_and_one_offset_in_onnx(pipeline, wine, tmp_path):
    X = wine[0]
    model = nearfar.to_onnx(pipeline, tmp_path / "model.onnx")
    assert [node.op_type for node in model.graph.node] == ["MatMul", "Add"]
    assert [tuple(part.dims) for part in model.graph.initializer] == [(13, 5), (5,)]
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    (images,) = session.run(None, {"features": X})
    np.testing.assert_allclose(images, pipeline.transform(X), atol=1e-12)
    small = nearfar.to_onnx(pipeline, dtype=np.float32)
    assert numpy_helper.to_array(small.graph.initializer[0]).dtype == np.float32


def test_a_pipeline_searches_in_faiss_by_its_own_distance(pipeline, wine):
    X = wine[0]
    squares, rows = nearfar.to_faiss(pipeline, X).search(X[:9].astype(np.float32), 4)
    images = pipeline.transform(X)
    expected = ((images[:9, None] - images[rows]) ** 2).sum(axis=2)
    np.testing.assert_allclose(squares, expected, atol=1e-3 * expected.max())
    assert rows[:, 0].tolist() == list(range(9))


def test_the_functions_take_a_metric_alone(wine):
    X, y = wine
    model = LMNN(max_iter=20, tol=0.1).fit(X, y)
    assert nearfar.to_onnx(model) == model.to_onnx()
    for index in (nearfar.to_faiss(model, X), model.to_faiss(X)):
        assert index.ntotal == len(X)


def test_a_pipeline_that_is_not_linear_is_refused(wine, pipeline):
    X, y = wine
    strange = make_pipeline(StandardScaler(), Normalizer(), LMNN(max_iter=2, tol=9.0)).fit(X, y)
    message = "its step 'normalizer' is not linear. Apply that step to the vectors first"
    for export in (nearfar.to_onnx, nearfar.to_faiss):
        with pytest.raises(InvalidInputError, match=message):
            export(strange)
    with pytest.raises(InvalidInputError, match=r"ends in a classifier give pipeline\[:-1\]"):
        nearfar.to_onnx(make_pipeline(StandardScaler(), KNeighborsClassifier()).fit(X, y))
    with pytest.raises(InvalidInputError, match="X has 4 features, the model has 13"):
        nearfar.to_faiss(pipeline, X[:, :4])
    with pytest.raises(NotFittedError):
        nearfar.to_onnx(make_pipeline(StandardScaler(), LMNN()))
