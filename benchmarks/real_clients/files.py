"""Files and other processes: pickle and its relatives, skops, ONNX, mlflow, safetensors."""

from __future__ import annotations

import pickle
import tempfile
from pathlib import Path

import joblib
import numpy as np
from sklearn.datasets import load_iris
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import nearfar
from benchmarks.real_clients.uses import use

X, Y = load_iris(return_X_y=True)


def models():
    """Fitted estimators of several kinds."""
    pairs, kinds = nearfar.make_pairs(X, Y, 50, random_state=0)
    return [
        nearfar.LMNN().fit(X, Y),
        nearfar.KernelLMNN(kernel="rbf").fit(X, Y),
        nearfar.NearestNeighborClassifier().fit(X, Y),
        nearfar.PairClassifier().fit(pairs, kinds),
        nearfar.LocalMDS(n_neighbors=60).fit(X),
        make_pipeline(StandardScaler(), nearfar.LMNN(), KNeighborsClassifier()).fit(X, Y),
        KNeighborsClassifier(metric=nearfar.LMNN().fit(X, Y).get_metric()).fit(X, Y),
    ]


def same(model, twin):
    """The twin answers as the model does."""
    if isinstance(model, nearfar.PairClassifier):
        assert model.threshold_ == twin.threshold_
    elif hasattr(model, "predict"):
        np.testing.assert_array_equal(model.predict(X), twin.predict(X))
    else:
        np.testing.assert_array_equal(model.transform(X), twin.transform(X))


@use()
def pickles():
    """pickle of models, metrics, tuples and graphs."""
    for model in models():
        same(model, pickle.loads(pickle.dumps(model)))
    pairs, _ = nearfar.make_pairs(X, Y, 5, random_state=0)
    assert len(pickle.loads(pickle.dumps(pairs))) == 10


@use()
def joblib_files():
    """joblib files, read into memory maps."""
    with tempfile.TemporaryDirectory() as folder:
        for model in models():
            joblib.dump(model, Path(folder) / "model.joblib")
            same(model, joblib.load(Path(folder) / "model.joblib", mmap_mode="r"))


@use("cloudpickle")
def cloudpickles():
    """cloudpickle of models, and of a function that uses one."""
    import cloudpickle

    for model in models():
        same(model, cloudpickle.loads(cloudpickle.dumps(model)))
    learner = nearfar.LMNN().fit(X, Y)
    function = cloudpickle.loads(cloudpickle.dumps(lambda points: learner.transform(points)))
    np.testing.assert_array_equal(function(X), learner.transform(X))


@use("dill")
def dills():
    """dill of models."""
    import dill

    for model in models():
        same(model, dill.loads(dill.dumps(model)))


@use("skops")
def skops_files():
    """skops files of every model, with TRUSTED_TYPES and the trees of scikit-learn."""
    import skops.io

    trees = [
        "sklearn.metrics._dist_metrics.EuclideanDistance64",
        "sklearn.metrics._dist_metrics.PyFuncDistance64",
        "sklearn.neighbors._ball_tree.BallTree",
        "sklearn.neighbors._kd_tree.KDTree",
    ]
    for model in models():
        data = skops.io.dumps(model)
        same(model, skops.io.loads(data, trusted=[*nearfar.TRUSTED_TYPES, *trees]))


@use("onnx", "onnxruntime")
def onnx_models():
    """ONNX: to_onnx, run by onnxruntime."""
    import onnxruntime

    learner = nearfar.LMNN().fit(X.astype(np.float32), Y)
    session = onnxruntime.InferenceSession(learner.to_onnx().SerializeToString())
    (images,) = session.run(None, {"features": X.astype(np.float32)})
    np.testing.assert_allclose(
        images, learner.transform(X.astype(np.float32)), rtol=1e-4, atol=1e-5
    )


@use("skl2onnx", "onnxruntime", theirs="skl2onnx converts the estimators of its own list only")
def skl2onnx_pipelines():
    """skl2onnx: a pipeline with LMNN."""
    from skl2onnx import to_onnx

    to_onnx(make_pipeline(StandardScaler(), nearfar.LMNN()).fit(X, Y), X[:1])


@use("mlflow")
def mlflow_models():
    """mlflow: a pipeline logged and loaded."""
    import mlflow.sklearn

    model = make_pipeline(nearfar.LMNN(), KNeighborsClassifier()).fit(X, Y)
    with tempfile.TemporaryDirectory() as folder:
        mlflow.sklearn.save_model(
            model, str(Path(folder) / "model"), serialization_format="cloudpickle"
        )
        same(model, mlflow.sklearn.load_model(str(Path(folder) / "model")))


@use("safetensors")
def safetensors_files():
    """safetensors: the map, and the same metric from it."""
    from safetensors.numpy import load_file, save_file

    learner = nearfar.LMNN().fit(X, Y)
    with tempfile.TemporaryDirectory() as folder:
        save_file({"components": learner.components_}, Path(folder) / "map.safetensors")
        components = load_file(Path(folder) / "map.safetensors")["components"]
    twin = nearfar.LinearMetric(components).fit(X)
    np.testing.assert_allclose(
        twin.get_mahalanobis_matrix(), learner.get_mahalanobis_matrix(), atol=1e-9
    )
