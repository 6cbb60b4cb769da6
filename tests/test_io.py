"""Model files: round trips, and files that must be refused without running anything."""

import copy
import importlib
import json
import os
import pickle
import warnings
import zipfile
from io import BytesIO
from pathlib import Path

import numpy as np
import pandas
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)

from nearfar import io
from nearfar.errors import DataWarning, ModelFileError
from nearfar.estimators.energy import EnergyClassifier
from nearfar.estimators.kernel_lmnn import KernelLMNN
from nearfar.estimators.lmnn import LMNN
from nearfar.estimators.local_mds import LocalMDS
from nearfar.estimators.nearest import NearestNeighborClassifier
from nearfar.files import atomic_writer
from nearfar.io import TRUSTED_TYPES, load, save
from nearfar.proofs import verify
from nearfar.registry import ENTRIES
from tests.registered import instances

X, Y = load_iris(return_X_y=True)


@pytest.fixture(scope="module")
def fitted():
    return LMNN(random_state=0).fit(X, Y)


@pytest.fixture
def model(fitted):
    return copy.deepcopy(fitted)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.nearfar"


@pytest.fixture
def saved(model, path):
    save(model, path)
    return path


def members(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def rewrite(path, changes, compression=zipfile.ZIP_STORED):
    """Replace members of an archive; None removes one."""
    content = {**members(path), **changes}
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in content.items():
            if data is not None:
                archive.writestr(name, data)


def rewrite_document(path, **changes):
    document = json.loads(members(path)["model.json"])
    rewrite(path, {"model.json": json.dumps({**document, **changes})})


def npy(array):
    stream = BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def assert_same(first, second):
    """Equal values of equal types, all the way down."""
    assert type(first) is type(second)
    if isinstance(first, np.ndarray):
        assert first.dtype == second.dtype
        np.testing.assert_array_equal(first, second)
    elif isinstance(first, dict):
        assert list(first) == list(second)
        for key in first:
            assert_same(first[key], second[key])
    elif isinstance(first, list | tuple):
        assert len(first) == len(second)
        for one, other in zip(first, second, strict=True):
            assert_same(one, other)
    elif isinstance(first, float | np.floating):
        np.testing.assert_equal(second, first)
    else:
        assert first == second


# Round trips


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_fitted_model_comes_back_whole(path, dtype):
    names = ["a", "b", "c", "größe"]
    frame = pandas.DataFrame(X.astype(dtype), columns=names)
    model = LMNN(n_neighbors=2, push_weight=0.3).fit(frame, np.array(["u", "v", "w"])[Y])
    save(model, path)
    twin = load(path)
    assert twin.get_params() == model.get_params()
    assert set(vars(twin)) == set(vars(model))
    for name in vars(model):
        np.testing.assert_equal(vars(twin)[name], vars(model)[name])
    assert twin.components_.dtype == dtype
    assert twin.feature_names_in_.tolist() == names
    np.testing.assert_array_equal(twin.transform(frame), model.transform(frame))
    assert twin.get_feature_names_out().tolist() == model.get_feature_names_out().tolist()


def test_array_parameters_come_back(path):
    init = np.eye(2, 4)
    save(LMNN(n_components=2, init=init).fit(X, Y), path)
    np.testing.assert_array_equal(load(path).init, init)


def test_a_loaded_model_can_be_fitted_and_saved_again(saved, model, tmp_path):
    twin = load(saved).fit(X, Y)
    np.testing.assert_array_equal(twin.components_, model.components_)
    save(twin, tmp_path / "again.nearfar")


PLAIN = [
    None,
    True,
    -7,
    10**30,
    0.1,
    float("nan"),
    float("inf"),
    -float("inf"),
    "größe\n\0",
    np.float32(0.1),
    np.float64("nan"),
    np.int8(-3),
    np.uint64(2**64 - 1),
    np.bool_(True),
    [1, [2.5, None], "a"],
    (1, (2, 3)),
    {"a": {"b": [1.0]}, "c": ()},
    {1: "one", ("x", 2): "pair"},
    {"$array": "not a tag"},
    Path("somewhere") / "else.npz",
    np.zeros((0, 3)),
    np.array(3.5),
    np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    np.arange(6)[::-2],
    np.array([1 + 2j]),
    np.array(["x", "longer"]),
    np.array(["2020-01-01"], dtype="M8[D]"),
    np.array(["x", 1, None, 2.5, True], dtype=object),
    np.array([["a", "b"], ["c", "d"]], dtype=object),
    [{"gap": None, "point": np.arange(3.0)}, {"gap": np.float64(1.0), "point": np.arange(2)}],
]


@pytest.mark.parametrize("value", PLAIN, ids=repr)
def test_plain_values_come_back_with_their_types(model, path, value):
    model.extra_ = value
    save(model, path)
    assert_same(load(path).extra_, value)


@pytest.mark.torch
def test_tensors_come_back_as_arrays(path):
    torch = pytest.importorskip("torch", reason="needs the torch extra")
    model = LMNN().fit(torch.tensor(X, dtype=torch.float32), Y)
    model.extra_ = torch.arange(3.0, requires_grad=True)
    save(model, path)
    twin = load(path)
    assert_same(twin.extra_, np.arange(3, dtype=np.float32))
    expected = model.transform(torch.tensor(X, dtype=torch.float32)).numpy()
    np.testing.assert_allclose(twin.transform(X.astype(np.float32)), expected, rtol=1e-5, atol=1e-5)


def test_callbacks_are_left_behind(model, path):
    callback = pytest.importorskip("sklearn.callback", reason="needs scikit-learn 1.9")
    pytest.importorskip("rich", reason="needs the cli extra")
    save(model.set_callbacks(callback.ProgressBar()), path)
    assert "_skl_callbacks" not in vars(load(path))


def test_output_configuration_is_kept(model, path):
    save(model.set_output(transform="pandas"), path)
    assert isinstance(load(path).transform(X[:2]), pandas.DataFrame)


def test_the_same_model_gives_the_same_bytes(model, saved, tmp_path):
    save(model, tmp_path / "other.nearfar")
    assert saved.read_bytes() == (tmp_path / "other.nearfar").read_bytes()


def test_numpy_opens_the_arrays(saved, model):
    with np.load(saved, allow_pickle=False) as arrays:
        np.testing.assert_array_equal(arrays["components_"], model.components_)


# What cannot be saved


def test_an_unfitted_model_cannot_be_saved(path):
    with pytest.raises(NotFittedError):
        save(LMNN(), path)
    assert not path.exists()


class Subclass(LMNN):
    """A stranger that looks like one of nearfar's estimators."""


Subclass.__name__ = "LMNN"


@pytest.mark.parametrize(
    "steps",
    [
        [StandardScaler()],
        [StandardScaler(with_mean=False)],
        [StandardScaler(with_std=False)],
        [MinMaxScaler()],
        [MaxAbsScaler()],
        [RobustScaler()],
        [StandardScaler(), PCA(2, whiten=True)],
        [TruncatedSVD(2)],
        [Normalizer()],
        ["passthrough"],
        [],
    ],
    ids=str,
)
def test_a_pipeline_is_saved_with_what_its_fit_proved(iris, path, steps):
    X, y = iris
    pipeline = make_pipeline(*steps, LMNN()).fit(X, y)
    save(pipeline, path)
    loaded = load(path)
    assert isinstance(loaded, Pipeline)
    np.testing.assert_array_equal(loaded.transform(X), pipeline.transform(X))
    for name in ("duality_gap_", "objective_", "status_", "n_iter_", "history_"):
        assert getattr(loaded[-1], name) == getattr(pipeline[-1], name)
    assert loaded[-1].get_params() == pipeline[-1].get_params()
    assert [name for name, _ in loaded.steps] == [
        name for name, step in pipeline.steps if step != "passthrough"
    ]
    for (_, step), (_, other) in zip(loaded.steps[:-1], pipeline.steps[:-1], strict=False):
        assert step.get_params() == other.get_params()
    assert verify(loaded, X, y).proved
    assert verify(path, X, y).proved


def test_a_pipeline_keeps_the_names_of_its_features(iris, path):
    X, y = iris
    frame = pandas.DataFrame(X, columns=list("abcd"))
    save(make_pipeline(StandardScaler(), LMNN()).fit(frame, y), path)
    assert load(path).feature_names_in_.tolist() == list("abcd")
    assert load(path).transform(frame).shape[0] == 150


def test_a_large_proof_of_a_pipeline_is_left_out(iris, path):
    X, y = iris
    pipeline = make_pipeline(StandardScaler(), LMNN()).fit(X, y)
    save(pipeline, path, proof=False)
    assert not hasattr(load(path)[-1], "proof_")
    assert hasattr(pipeline[-1], "proof_")


def test_of_other_pipelines_the_remedy_is_named(iris, path):
    X, y = iris
    strange = make_pipeline(QuantileTransformer(n_quantiles=9), LMNN()).fit(X, y)
    with pytest.raises(ModelFileError, match=r"QuantileTransformer \(step 'quantiletransformer'\)"):
        save(strange, path)
    with pytest.raises(
        ModelFileError, match=r"holds StandardScaler, .*as_metric\(pipeline\); .*skops"
    ):
        save(strange, path)
    classifier = make_pipeline(StandardScaler(), LMNN(), KNeighborsClassifier()).fit(X, y)
    with pytest.raises(ModelFileError, match=r"ends in a KNeighborsClassifier .*pipeline\[:-1\]"):
        save(classifier, path)
    save(classifier[:-1], path)  # what the message names works
    with pytest.raises(NotFittedError):
        save(make_pipeline(StandardScaler(), LMNN()), path)


class OwnScaler(StandardScaler):
    """Not scikit-learn's."""


def test_a_subclass_of_a_step_is_not_saved(iris, path):
    X, y = iris
    with pytest.raises(ModelFileError, match="with a OwnScaler"):
        save(make_pipeline(OwnScaler(), LMNN()).fit(X, y), path)


def changed(path, change):
    """Write the file again with another document."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    document = json.loads(members["model.json"])
    change(document)
    members["model.json"] = json.dumps(document).encode()
    zeros = BytesIO()
    np.save(zeros, np.zeros(4))
    members["zeros.npy"] = zeros.getvalue()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def step(document, number=0):
    return document["steps"][number][1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: step(d).update({"class": "system"}), "of class 'system'"),
        (lambda d: step(d).update({"class": "Pipeline"}), "of class 'Pipeline'"),
        (lambda d: step(d)["attributes"].update({"transform": 1}), "sets transform, which"),
        (lambda d: step(d)["parameters"].update({"func": 1}), "sets func, which StandardScaler"),
        (lambda d: step(d)["attributes"].update({"mean_": [1.0]}), "holds mean_ of a StandardSc"),
        (lambda d: step(d)["attributes"].update({"n_features_in_": 7}), r"shape \(7\)"),
        (lambda d: step(d)["attributes"].update({"n_features_in_": "x"}), "number of features"),
        (lambda d: step(d)["attributes"].pop("scale_"), "damaged model file"),
        (lambda d: step(d)["attributes"].update({"scale_": None}), "damaged model file"),
        (lambda d: step(d)["attributes"].update(scale_={"$array": "zeros"}), "maps zero to no"),
        (lambda d: d.update(steps=d["steps"][:1]), "an estimator of nearfar at the end"),
        (lambda d: d.update(steps=[]), "the steps none; expected"),
        (lambda d: d.update(steps=d["steps"] * 2), "expected different names"),
        (lambda d: d.update(steps=5), "damaged model file"),
        (lambda d: d.pop("steps"), "damaged model file"),
    ],
)
def test_a_changed_pipeline_is_refused(iris, path, change, message):
    save(make_pipeline(StandardScaler(), LMNN()).fit(*iris), path)
    changed(path, change)
    with pytest.raises(ModelFileError, match=message):
        load(path)


def test_steps_that_do_not_fit_together_are_refused(iris, path):
    X, y = iris
    save(make_pipeline(PCA(2), LMNN()).fit(X, y), path)
    save(LMNN().fit(X, y), path.with_name("other"))
    with zipfile.ZipFile(path.with_name("other")) as archive:
        components = archive.read("components_.npy")
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members["step1.components_.npy"] = components
    document = json.loads(members["model.json"])
    document["steps"][1][1]["attributes"]["n_features_in_"] = 4
    members["model.json"] = json.dumps(document).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    with pytest.raises(
        ModelFileError, match="'pca' makes 2 features, and whose step 'lmnn' takes 4"
    ):
        load(path)


@pytest.mark.parametrize("stranger", [Subclass(), object()], ids=["subclass", "object"])
def test_only_nearfars_own_classes_are_saved(path, stranger):
    with pytest.raises(ModelFileError, match=r"holds one of .*LMNN, .* not a subclass"):
        save(stranger, path)


@pytest.mark.parametrize(
    "value", [np.random.RandomState(0), lambda: 0, {1, 2}, [object()], np.array([object()])]
)
def test_what_is_not_plain_data_is_named(model, path, value):
    model.random_state = value
    with pytest.raises(ModelFileError, match="random_state cannot be saved"):
        save(model, path)
    assert os.listdir(path.parent) == []


# Writing


def test_a_failed_write_leaves_the_old_file_and_nothing_else(path):
    path.write_text("old")

    def write_and_fail():
        with atomic_writer(path) as stream:
            stream.write(b"half")
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_and_fail()
    assert path.read_text() == "old"
    assert os.listdir(path.parent) == [path.name]


def test_a_link_keeps_pointing_where_it_did(saved, model, tmp_path):
    link = tmp_path / "link.nearfar"
    link.symlink_to(saved)
    saved.write_text("old")
    save(model, str(link))
    assert link.is_symlink()
    load(saved)


def test_a_missing_folder(model, tmp_path):
    with pytest.raises(FileNotFoundError):
        save(model, tmp_path / "nothing" / "model.nearfar")


# What cannot be loaded


def test_a_missing_file(path):
    with pytest.raises(FileNotFoundError):
        load(path)


class Trap:
    """Unpickling an instance creates the file at `path`."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def foreign_files(sprung):
    archive = BytesIO()
    np.savez(archive, X=np.eye(2))
    return {
        "empty": b"",
        "text": b"a,b\n1,2\n",
        "random": np.random.default_rng(0).bytes(1000),
        "pickle": pickle.dumps(Trap(sprung)),
        "npz": archive.getvalue(),
        "zip magic only": b"PK\x03\x04",
        "zip magic and noise": b"PK\x03\x04" + bytes(200),
    }


@pytest.mark.parametrize("kind", foreign_files("unused"))
def test_foreign_files_are_refused_and_run_nothing(path, tmp_path, kind):
    sprung = tmp_path / "sprung"
    path.write_bytes(foreign_files(sprung)[kind])
    with pytest.raises(ModelFileError, match=f"^{path} is (not a|a damaged) model file"):
        load(path)
    assert not sprung.exists()


def test_pickled_objects_inside_are_refused_and_run_nothing(saved, tmp_path):
    sprung = tmp_path / "sprung"
    rewrite(saved, {"components_.npy": npy(np.array([[Trap(sprung)]], dtype=object))})
    with pytest.raises(ModelFileError, match="may carry code"):
        load(saved)
    assert not sprung.exists()


@pytest.mark.parametrize("name", ["os.system", "builtins.eval", "Pipeline", "LMNN2", "", None, []])
def test_classes_outside_the_registry_are_refused(saved, name):
    rewrite_document(saved, **{"class": name})
    with pytest.raises(ModelFileError):
        load(saved)


def test_a_newer_format_asks_for_an_upgrade(saved):
    rewrite_document(saved, format_version=io.archive.FORMAT_VERSION + 1, nearfar_version="99.0")
    with pytest.raises(ModelFileError, match=r"by nearfar 99\.0 .* Upgrade: .*pip install"):
        load(saved)


def test_another_format(saved):
    rewrite_document(saved, format="other")
    with pytest.raises(ModelFileError, match="is not a model file"):
        load(saved)


def test_the_parameter_that_was_called_components(tmp_path):
    """`on_disconnected` of unfoldings had another name before."""
    path = tmp_path / "old.nearfar"
    t = np.linspace(0, 1, 20)
    save(LocalMDS(tol=1).fit(np.column_stack([t, t**2])), path)
    parameters = json.loads(members(path)["model.json"])["parameters"]
    assert parameters.pop("on_disconnected") == "link"
    rewrite_document(path, parameters={**parameters, "components": "raise"})
    message = "sets components, which LocalMDS of .* Load it with .*, or fit and save again"
    with pytest.raises(ModelFileError, match=message):
        load(path)


@pytest.mark.parametrize(
    ("section", "name"),
    [("parameters", "unheard_of"), ("attributes", "transform"), ("attributes", "not a name")],
)
def test_names_that_the_class_does_not_have(saved, section, name):
    document = json.loads(members(saved)["model.json"])
    rewrite_document(saved, **{section: {**document[section], name: 1}})
    with pytest.raises(ModelFileError, match=f"sets {name}, which LMNN"):
        load(saved)


@pytest.mark.parametrize(
    "components", [np.ones(4), np.ones((2, 3)), np.ones((2, 4, 1)), np.ones((2, 4), int)]
)
def test_components_of_the_wrong_shape(saved, components):
    rewrite(saved, {"components_.npy": npy(components)})
    with pytest.raises(ModelFileError, match=r"expected an array of shape \([r2], 4\)"):
        load(saved)


def test_feature_names_of_the_wrong_number(model, path):
    model.feature_names_in_ = np.array(["a", "b"], dtype=object)
    save(model, path)
    with pytest.raises(ModelFileError, match="expected n_features_in_=4 names"):
        load(path)


@pytest.mark.parametrize("name", ["components_.npy", "model.json"])
def test_a_missing_member(saved, name):
    rewrite(saved, {name: None})
    with pytest.raises(ModelFileError):
        load(saved)


@pytest.mark.parametrize(
    "text", ["", "[]", "null", '{"format": NaN}', "[" * 10**5, '{"format": "nearfar-model"}']
)
def test_a_document_that_is_not_one(saved, text):
    rewrite(saved, {"model.json": text})
    with pytest.raises(ModelFileError):
        load(saved)


@pytest.mark.parametrize(
    "value",
    [
        {"$unheard": 1},
        {"$array": "nowhere"},
        {"$array": ["components_"]},
        {"$scalar": "object", "value": 1},
        {"$scalar": "float64", "value": "x"},
        {"$objects": [1, 2], "shape": [3]},
        {"$float": []},
        {"$dict": [1]},
    ],
)
def test_values_that_do_not_decode(saved, value):
    document = json.loads(members(saved)["model.json"])
    rewrite_document(saved, attributes={**document["attributes"], "extra_": value})
    with pytest.raises(ModelFileError, match="damaged"):
        load(saved)


def test_a_member_that_expands_is_not_read(saved):
    rewrite(saved, {"components_.npy": bytes(10**7)}, zipfile.ZIP_DEFLATED)
    with pytest.raises(ModelFileError, match="does not have the size it declares"):
        load(saved)


def test_an_array_header_cannot_ask_for_memory(saved):
    """The header promises 8 TB; the member holds 8 bytes."""
    honest = npy(np.zeros((1, 1)))
    promise = honest.replace(b"(1, 1), }" + 12 * b" ", b"(1000000, 1000000), }")
    assert len(promise) == len(honest)
    assert promise != honest
    rewrite(saved, {"components_.npy": promise})
    with pytest.raises(ModelFileError, match="does not match its bytes"):
        load(saved)


def test_every_truncation_is_noticed(saved):
    content = saved.read_bytes()
    for length in range(0, len(content), 97):
        saved.write_bytes(content[:length])
        with pytest.raises(ModelFileError):
            load(saved)


@pytest.mark.parametrize("seed", range(4))
def test_a_changed_byte_is_noticed_or_harmless(saved, model, seed):
    """Names and data are protected by checksums; the rest of a zip's headers is not read."""
    rng = np.random.default_rng(seed)
    content = saved.read_bytes()
    for position in rng.integers(len(content), size=300):
        changed = bytearray(content)
        changed[position] ^= int(rng.integers(1, 256))
        saved.write_bytes(changed)
        try:
            twin = load(saved)
        except ModelFileError:
            continue
        np.testing.assert_array_equal(twin.components_, model.components_)


# Models inside models


METRICS = {
    "default": lambda: None,
    "unfitted": lambda: LMNN(n_components=2, tol=0.1),
    "fitted": lambda: LMNN(tol=0.1).fit(X, Y),
    "frozen": lambda: FrozenEstimator(LMNN(tol=0.1).fit(X, Y)),
}


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("cls", [EnergyClassifier, NearestNeighborClassifier])
def test_a_classifier_comes_back_with_its_metric(path, cls, metric):
    model = cls(METRICS[metric](), n_neighbors=2).fit(X[::2], np.array(["u", "v", "w"])[Y[::2]])
    save(model, path)
    twin = load(path)
    assert repr(twin) == repr(model)
    assert set(vars(twin)) == set(vars(model)) - {"_prepared"}
    assert type(twin.metric_) is LMNN
    assert set(vars(twin.metric_)) == set(vars(model.metric_))
    np.testing.assert_array_equal(twin.metric_.components_, model.metric_.components_)
    np.testing.assert_array_equal(twin.predict(X), model.predict(X))
    assert twin.fit(X, Y).score(X, Y) > 0.9


def test_a_fitted_metric_given_as_parameter_stays_fitted(path):
    save(EnergyClassifier(LMNN(tol=0.1).fit(X, Y)).fit(X, Y), path)
    assert hasattr(load(path).metric, "components_")
    save(EnergyClassifier(LMNN(tol=0.1)).fit(X, Y), path)
    assert not hasattr(load(path).metric, "components_")


def test_arrays_that_are_shared_are_stored_once(path):
    """The metric is there as parameter and as attribute, its map in one member."""
    save(EnergyClassifier(LMNN(tol=0.1).fit(X, Y)).fit(X, Y), path)
    stored = [name for name in members(path) if name.endswith("components_.npy")]
    assert sorted(stored) == ["metric.components_.npy", "metric.prior_components_.npy"]
    twin = load(path)
    assert twin.metric.components_ is twin.metric_.components_


@pytest.fixture
def saved_classifier(path):
    save(EnergyClassifier(LMNN(tol=0.1)).fit(X, Y), path)
    return path


def test_numpy_opens_the_arrays_of_the_inner_model(saved_classifier):
    with np.load(saved_classifier, allow_pickle=False) as arrays:
        np.testing.assert_array_equal(
            arrays["metric_.components_"], load(saved_classifier).metric_.components_
        )


@pytest.mark.parametrize(
    "metric", [PCA(2), FrozenEstimator(PCA(2).fit(X)), Subclass(tol=0.1)], ids=repr
)
def test_strangers_inside_are_not_saved(path, metric):
    model = NearestNeighborClassifier(metric).fit(X, Y)
    with pytest.raises(ModelFileError, match=r"metric cannot be saved: .* found a \w+"):
        save(model, path)
    assert not path.exists()


def rewrite_inner(path, change):
    """Change what stands for metric_ in a file."""
    document = json.loads(members(path)["model.json"])
    attributes = document["attributes"]
    rewrite_document(path, attributes={**attributes, "metric_": change(attributes["metric_"])})


@pytest.mark.parametrize("name", ["os.system", "Pipeline", "", None, [], "EnergyClassifier"])
def test_inner_classes_outside_the_registry_are_refused(saved_classifier, name):
    """Nor may a classifier stand where the metric should."""
    rewrite_inner(saved_classifier, lambda inner: {"$model": {**inner["$model"], "class": name}})
    with pytest.raises(ModelFileError):
        load(saved_classifier)


@pytest.mark.parametrize(
    "inner",
    [
        None,
        "LMNN",
        {"$model": {"class": "LMNN", "parameters": {}, "attributes": {}}},
        {"$model": {"class": "LMNN"}},
        {"$model": None},
        {"$frozen": "LMNN"},
        {"$array": "points_"},
    ],
    ids=repr,
)
def test_what_is_no_fitted_metric_is_refused(saved_classifier, inner):
    rewrite_inner(saved_classifier, lambda _: inner)
    with pytest.raises(ModelFileError):
        load(saved_classifier)


def test_names_that_the_inner_class_does_not_have(saved_classifier):
    def with_method(inner):
        attributes = {**inner["$model"]["attributes"], "transform": 1}
        return {"$model": {**inner["$model"], "attributes": attributes}}

    rewrite_inner(saved_classifier, with_method)
    with pytest.raises(ModelFileError, match="sets transform, which LMNN"):
        load(saved_classifier)


@pytest.mark.parametrize(
    ("member", "array", "expected"),
    [
        ("points_", np.ones((150, 3)), r"holds points_ of shape \(150, 3\); .* \(150, 4\)"),
        ("points_", np.ones((150, 4), int), "holds points_ of shape"),
        ("labels_", np.ones(149), r"holds labels_ of shape \(149,\); .* \(150\)"),
        ("labels_", np.ones((150, 1)), "holds labels_ of shape"),
        ("metric_.components_", np.ones((2, 3)), r"holds components_ of shape \(2, 3\)"),
    ],
)
def test_arrays_of_a_classifier_of_the_wrong_shape(saved_classifier, member, array, expected):
    rewrite(saved_classifier, {f"{member}.npy": npy(array)})
    with pytest.raises(ModelFileError, match=expected):
        load(saved_classifier)


def test_a_metric_of_other_features_is_refused(saved_classifier):
    def of_three(inner):
        attributes = {**inner["$model"]["attributes"], "n_features_in_": 3}
        return {"$model": {**inner["$model"], "attributes": attributes}}

    rewrite_inner(saved_classifier, of_three)
    rewrite(saved_classifier, {"metric_.components_.npy": npy(np.ones((2, 3)))})
    with pytest.raises(ModelFileError, match="as metric_; expected a fitted metric learner"):
        load(saved_classifier)


def test_pickled_objects_inside_an_inner_model_run_nothing(saved_classifier, tmp_path):
    sprung = tmp_path / "sprung"
    trap = npy(np.array([[Trap(sprung)]], dtype=object))
    rewrite(saved_classifier, {"metric_.components_.npy": trap})
    with pytest.raises(ModelFileError, match="may carry code"):
        load(saved_classifier)
    assert not sprung.exists()


def test_models_within_models_without_end(saved_classifier):
    text = members(saved_classifier)["model.json"].decode()
    inner = '{"$model": {"class": "LMNN", "attributes": {}, "parameters": {"init": '
    text = text.replace('"metric_": ', f'"metric_": {inner * 5000}1{"}}}" * 5000}, "other_": ', 1)
    rewrite(saved_classifier, {"model.json": text})
    with pytest.raises(ModelFileError, match=r"damaged.*RecursionError"):
        load(saved_classifier)


@pytest.mark.torch
def test_classifiers_on_tensors_come_back_as_arrays(path):
    torch = pytest.importorskip("torch", reason="needs the torch extra")
    model = EnergyClassifier(LMNN(tol=0.1)).fit(torch.tensor(X), Y)
    save(model, path)
    twin = load(path)
    np.testing.assert_array_equal(twin.predict(X), model.predict(torch.tensor(X)))


# skops


def test_skops_trusts_exactly_the_list(model, tmp_path):
    skops = pytest.importorskip("skops.io", reason="needs the skops extra")
    file = tmp_path / "model.skops"
    skops.dump(model, file)
    assert set(skops.get_untrusted_types(file=file)) <= set(TRUSTED_TYPES)
    twin = skops.load(file, trusted=TRUSTED_TYPES)
    np.testing.assert_array_equal(twin.transform(X), model.transform(X))


@pytest.mark.parametrize("cls", [EnergyClassifier, NearestNeighborClassifier])
def test_skops_holds_classifiers(cls, tmp_path):
    skops = pytest.importorskip("skops.io", reason="needs the skops extra")
    model = cls(LMNN(tol=0.1)).fit(X, Y)
    file = tmp_path / "model.skops"
    skops.dump(model, file)
    assert set(skops.get_untrusted_types(file=file)) <= set(TRUSTED_TYPES)
    twin = skops.load(file, trusted=TRUSTED_TYPES)
    np.testing.assert_array_equal(twin.predict(X), model.predict(X))


def test_trusted_types_exist_and_are_defined_where_they_say():
    for name in TRUSTED_TYPES:
        module, _, attribute = name.rpartition(".")
        cls = getattr(importlib.import_module(module), attribute)
        assert (cls.__module__, cls.__qualname__) == (module, attribute)
    assert {f"{entry.module}.{entry.name}" for entry in ENTRIES} <= set(TRUSTED_TYPES)


UNFOLDINGS = instances(kind="unfolding", learns_from="neighbours", common={"n_neighbors": 12})


@pytest.mark.parametrize("unfolding", UNFOLDINGS, ids=repr)
def test_skops_holds_unfoldings(unfolding, tmp_path):
    skops = pytest.importorskip("skops.io", reason="needs the skops extra")
    points = np.random.default_rng(0).normal(size=(30, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # so few points lock up
        model = clone(unfolding).fit(points)
    skops.dump(model, tmp_path / "model.skops")
    twin = skops.load(tmp_path / "model.skops", trusted=TRUSTED_TYPES)
    np.testing.assert_array_equal(twin.embedding_, model.embedding_)
    np.testing.assert_array_equal(twin.graph_.lengths, model.graph_.lengths)


@pytest.mark.parametrize("learner", [LMNN(tol=0.1), KernelLMNN(kernel="rbf", tol=0.1)], ids=repr)
def test_skops_holds_the_metric_of_a_classifier_of_another_library(learner, tmp_path):
    skops = pytest.importorskip("skops.io", reason="needs the skops extra")
    metric = clone(learner).fit(X, Y).get_metric()
    model = KNeighborsClassifier(metric=metric, algorithm="brute").fit(X, Y)
    skops.dump(model, tmp_path / "model.skops")
    twin = skops.load(tmp_path / "model.skops", trusted=TRUSTED_TYPES)
    np.testing.assert_array_equal(twin.predict(X[::10]), model.predict(X[::10]))


# -- unfoldings ------------------------------------------------------------------------------


def test_an_unfolding_comes_back_with_its_graph(tmp_path):
    X, _ = load_iris(return_X_y=True)
    model = LocalMDS(n_neighbors=20).fit(X[:60])
    save(model, tmp_path / "model")
    twin = load(tmp_path / "model")
    np.testing.assert_array_equal(twin.embedding_, model.embedding_)
    for name in ("heads", "tails", "lengths", "directions", "points"):
        np.testing.assert_array_equal(getattr(twin.graph_, name), getattr(model.graph_, name))
    np.testing.assert_array_equal(twin.transform(X[60:65]), model.transform(X[60:65]))


def test_provenance_belongs_to_the_file(model, path, tmp_path):
    """It comes back as it was given, is no attribute, and is not passed on by another save."""
    said = {"command": "nearfar fit '🦊'", "seed": 3, "versions": {"numpy": "2"}}
    save(model, path, provenance=said)
    assert io.read_provenance(path) == said
    twin = load(path)
    assert vars(twin).keys() == vars(model).keys()
    save(twin, tmp_path / "twin.nearfar")
    assert io.read_provenance(tmp_path / "twin.nearfar") is None


def test_provenance_of_a_foreign_file_is_refused(saved):
    rewrite(saved, {"model.json": b'{"format": "other"}'})
    with pytest.raises(ModelFileError, match="is not a model file"):
        io.read_provenance(saved)
    saved.write_bytes(b"not a zip")
    with pytest.raises(ModelFileError, match="not a zip archive"):
        io.read_provenance(saved)


def test_provenance_that_is_no_mapping_is_none(saved):
    document = json.loads(members(saved)["model.json"])
    rewrite(saved, {"model.json": json.dumps({**document, "provenance": [1]}).encode()})
    assert io.read_provenance(saved) is None
    load(saved)


def test_a_folder_is_no_model_file(tmp_path):
    with pytest.raises(
        ModelFileError, match=r"is a folder: expected a file that nearfar\.save wrote"
    ):
        load(tmp_path)
