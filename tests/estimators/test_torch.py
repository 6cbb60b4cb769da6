"""Tensors in, tensors out on their device; and no torch needed without tensors."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone

from nearfar import LFDA, LMNN, KernelLMNN, NearestNeighborClassifier, Tuples
from nearfar.errors import InvalidInputError

VARIANTS = [{}, {"n_components": 2}, {"n_components": 2, "reduce": "project"}]
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
pytestmark = pytest.mark.torch
each_device = pytest.mark.parametrize("device", DEVICES)


@pytest.fixture
def tensor(torch):
    """Makes tensors."""
    return lambda array, device="cpu": torch.tensor(np.asarray(array), device=device)


@each_device
@pytest.mark.parametrize("parameters", VARIANTS, ids=str)
def test_the_answer_is_that_of_numpy(parameters, device, overlapping, tensor):
    X, y = overlapping
    model = LMNN(**parameters).fit(tensor(X, device), tensor(y, device))
    expected = LMNN(**parameters).fit(X, y)
    assert model.objective_ == pytest.approx(expected.objective_, rel=1e-6)
    np.testing.assert_allclose(model.components_.cpu(), expected.components_, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(
        model.get_mahalanobis_matrix(), expected.get_mahalanobis_matrix(), rtol=1e-3, atol=1e-4
    )


@each_device
def test_float32_stays_float32_and_agrees(device, overlapping, tensor, torch):
    X, y = overlapping
    X = X.astype(np.float32)
    model = LMNN().fit(tensor(X, device), y)
    assert model.components_.dtype == model.transform(tensor(X, device)).dtype == torch.float32
    assert model.objective_ == pytest.approx(LMNN().fit(X, y).objective_, rel=2e-3)


@each_device
def test_results_are_tensors_on_the_device(device, overlapping, tensor, torch):
    X, y = overlapping
    model = LMNN().fit(tensor(X, device), y)
    pairs = tensor(np.stack([X[:20], X[20:40]], axis=1), device)
    results = [
        model.components_,
        model.transform(tensor(X, device)),
        model.pair_distance(pairs),
        model.pair_score(pairs),
    ]
    for result in results:
        assert isinstance(result, torch.Tensor)
        assert result.device.type == device
        assert result.dtype == torch.float64
    assert isinstance(model.classes_, np.ndarray)
    assert isinstance(model.get_mahalanobis_matrix(), np.ndarray)
    metric = model.get_metric()
    expected = [metric(a, b) for a, b in pairs.cpu().numpy()]
    np.testing.assert_allclose(results[2].cpu(), expected, rtol=1e-9)


@each_device
def test_numpy_data_for_a_model_of_tensors_is_an_error(device, overlapping, tensor):
    X, y = overlapping
    model = LMNN().fit(tensor(X, device), y)
    message = f"LMNN was fitted on torch device {device}.* X is on NumPy; .*Move X to torch device"
    with pytest.raises(InvalidInputError, match=message):
        model.transform(X)
    with pytest.raises(InvalidInputError, match=message):
        model.pair_distance(np.stack([X, X], axis=1))


@each_device
def test_tensors_for_a_model_of_numpy_data_are_an_error(device, overlapping, tensor):
    X, y = overlapping
    model = LMNN().fit(X, y)
    with pytest.raises(
        InvalidInputError, match=f"fitted on NumPy and X is on torch device {device}.*fit on torch"
    ):
        model.transform(tensor(X, device))


@pytest.mark.gpu
def test_tensors_of_another_device_are_an_error(overlapping, tensor):
    X, y = overlapping
    model = LMNN().fit(tensor(X, "cuda"), y)
    with pytest.raises(InvalidInputError, match="Move X to torch device cuda"):
        model.transform(tensor(X))


@pytest.mark.gpu
def test_labels_and_neighbours_may_live_elsewhere(overlapping, tensor, nearest_of_class):
    X, y = overlapping
    targets = nearest_of_class(X, y, 3)
    expected = LMNN(shrinkage=0).fit(X, y).objective_  # "auto" chooses others
    for labels in (y, np.array(["a", "b", "c"])[y], tensor(y), tensor(y, "cuda")):
        model = LMNN(shrinkage=0).fit(tensor(X, "cuda"), labels, tensor(targets, "cuda"))
        assert model.objective_ == pytest.approx(expected, rel=1e-6)


# Whole numbers coincide, and booleans above all.
@pytest.mark.filterwarnings("ignore::nearfar.errors.DataWarning")
@pytest.mark.parametrize("kind", ["int16", "int64", "uint8", "bool"])
def test_whole_numbers_become_float64(kind, overlapping, tensor, torch):
    X, y = overlapping
    X = np.clip(np.round(5 * X + 50), 0, 255)
    X = tensor(X > 50) if kind == "bool" else tensor(X).to(getattr(torch, kind))
    model = LMNN(tol=0.1).fit(X, y)
    assert model.components_.dtype == model.transform(X).dtype == torch.float64
    pairs = torch.stack([X[:30], X[30:]], dim=1)
    exact = model.pair_distance(pairs.double())
    np.testing.assert_allclose(model.pair_distance(pairs), exact)


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_half_precision_becomes_float32(kind, overlapping, tensor, torch):
    X, y = overlapping
    half = tensor(X).to(getattr(torch, kind))
    model = LMNN().fit(half, y)
    assert model.components_.dtype == model.transform(half).dtype == torch.float32
    assert model.objective_ == pytest.approx(LMNN().fit(half.float(), y).objective_)


@pytest.mark.parametrize("kind", ["tensor", "list", "strings", "bool tensor"])
def test_labels_of_any_kind(kind, overlapping, tensor):
    X, y = overlapping
    labels = {
        "tensor": tensor(y),
        "list": y.tolist(),
        "strings": np.array(["a", "b", "c"])[y],
        "bool tensor": tensor(y == 1),
    }[kind]
    model = LMNN().fit(tensor(X), labels)
    assert model.classes_.tolist() == np.unique(np.asarray(labels)).tolist()


def test_labels_as_a_tensor_with_numpy_points(overlapping, tensor):
    X, y = overlapping
    model = LMNN().fit(X, tensor(y))
    assert isinstance(model.components_, np.ndarray)
    assert model.objective_ == LMNN().fit(X, y).objective_


def test_a_tensor_with_gradients_is_left_alone(overlapping, tensor, torch):
    X, y = overlapping
    points = tensor(X).requires_grad_()
    model = LMNN().fit(points, y)
    assert not model.components_.requires_grad
    assert points.grad is None
    assert torch.equal(points.detach(), tensor(X))


def test_any_strides(overlapping, tensor):
    X, y = overlapping
    assert LMNN().fit(tensor(X.T).T, y).objective_ == pytest.approx(LMNN().fit(X, y).objective_)


def test_starts_and_neighbours_as_tensors(overlapping, tensor, nearest_of_class):
    X, y = overlapping
    start = np.diag([1.0, 2, 3, 4, 5])
    targets = nearest_of_class(X, y, 2)
    model = LMNN(init=tensor(start)).fit(tensor(X), y, tensor(targets))
    assert model.objective_ == pytest.approx(LMNN(init=start).fit(X, y, targets).objective_)
    assert clone(model).fit(tensor(X), y, targets).objective_ == pytest.approx(model.objective_)


def test_warm_start_across_libraries(overlapping, tensor, torch):
    X, y = overlapping
    model = LMNN(warm_start=True).fit(X, y).fit(tensor(X), y)
    assert isinstance(model.components_, torch.Tensor)


def test_pickle_round_trip(overlapping, tensor, torch):
    X, y = overlapping
    model = LMNN().fit(tensor(X), y)
    copy = pickle.loads(pickle.dumps(model))
    assert torch.equal(copy.transform(tensor(X)), model.transform(tensor(X)))


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((60,), r"shape \(n_samples, n_features\), each at least 1; got \(60,\)\. Reshape"),
        ((60, 2, 2), r"got \(60, 2, 2\)"),
        ((60, 0), r"got \(60, 0\)"),
        ((0, 5), r"got \(0, 5\)"),
    ],
)
def test_other_shapes_are_an_error(shape, message, overlapping, torch):
    _, y = overlapping
    with pytest.raises(InvalidInputError, match=message):
        LMNN().fit(torch.ones(shape), y[: shape[0]])


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nan_and_infinity_are_an_error(value, overlapping, tensor):
    X, y = overlapping
    model = LMNN().fit(tensor(X), y)
    bad = tensor(X)
    bad[3, 2] = value
    with pytest.raises(InvalidInputError, match="LMNN does not accept NaN or infinity in X"):
        LMNN().fit(bad, y)
    with pytest.raises(InvalidInputError, match="does not accept NaN or infinity"):
        model.transform(bad)
    with pytest.raises(ValueError, match=r"NaN|infinity"):
        model.pair_distance(bad[:10].reshape(5, 2, 5))


def test_another_number_of_features_is_an_error(overlapping, tensor):
    X, y = overlapping
    model = LMNN().fit(tensor(X), y)
    with pytest.raises(InvalidInputError, match="X has 4 features, but LMNN is expecting 5"):
        model.transform(tensor(X[:, :4]))


def test_sparse_tensors_are_an_error(overlapping, tensor):
    X, y = overlapping
    with pytest.raises((InvalidInputError, TypeError), match=r"(?i)sparse"):
        LMNN().fit(tensor(X).to_sparse(), y)


def test_complex_tensors_are_an_error(overlapping, tensor):
    X, y = overlapping
    with pytest.raises((InvalidInputError, TypeError), match=r"(?i)complex"):
        LMNN().fit(tensor(X + 0j), y)


# -- inside a torch model ---------------------------------------------------------------------


@each_device
@pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS")  # torch, of its backward thread
@pytest.mark.parametrize("learner", [LMNN(), KernelLMNN(kernel="rbf"), LFDA()], ids=repr)
def test_images_and_distances_keep_the_gradient(learner, device, overlapping, tensor, torch):
    """Against central differences, in float64."""
    X, y = overlapping
    model = clone(learner).fit(tensor(X, device), y)
    points = tensor(X[:4], device).requires_grad_()
    pairs = tensor(X[:4].reshape(2, 2, -1), device).requires_grad_()
    indices = [[0, 1], [2, 3]]
    assert torch.autograd.gradcheck(model.transform, points)
    assert torch.autograd.gradcheck(model.pair_distance, pairs)
    assert torch.autograd.gradcheck(lambda Z: model.pair_distance(Tuples(Z, indices)), points)


def test_a_learned_map_passes_gradients_on_to_the_layer_before(overlapping, tensor, torch):
    """Of ‖A W x‖² / 2 summed over the rows x of X, the gradient to W is AᵀA W XᵀX."""
    X, y = overlapping
    model = LMNN().fit(tensor(X), y)
    layer = torch.nn.Linear(5, 5, bias=False, dtype=torch.float64)
    (0.5 * model.transform(layer(tensor(X))) ** 2).sum().backward()
    expected = model.get_mahalanobis_matrix() @ layer.weight.detach().numpy() @ X.T @ X
    np.testing.assert_allclose(layer.weight.grad, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("as_tuples", [False, True])
def test_the_distance_of_equal_points_has_a_finite_gradient(as_tuples, overlapping, tensor):
    """‖x − x‖ has no derivative; as in torch.linalg.vector_norm the subgradient 0 is taken."""
    X, y = overlapping
    model = LMNN().fit(tensor(X), y)
    points = tensor(X[[0, 0]]).requires_grad_()
    pairs = Tuples(points, [[0, 1]]) if as_tuples else points[None]
    model.pair_distance(pairs).sum().backward()
    assert (points.grad == 0).all()


def test_learning_leaves_gradients_alone(overlapping, tensor):
    X, y = overlapping
    points = tensor(X).requires_grad_()
    model = LMNN().fit(points, y)
    assert not model.components_.requires_grad
    assert points.grad is None
    assert NearestNeighborClassifier(model).fit(points, y).score(points, y) > 0.5


@pytest.mark.parametrize("kind", ["subclass", "parameter"])
def test_subclasses_of_tensors_are_tensors(kind, overlapping, tensor, torch):
    class Marked(torch.Tensor):
        pass

    X, y = overlapping
    points = tensor(X)
    other = points.as_subclass(Marked) if kind == "subclass" else torch.nn.Parameter(points)
    model, expected = LMNN().fit(other, y), LMNN().fit(points, y)
    assert type(model.components_) is torch.Tensor
    assert torch.equal(model.components_, expected.components_)
    assert torch.equal(model.transform(other), expected.transform(points))


def test_a_loader_of_batches_is_an_error(overlapping, tensor, torch):
    X, y = overlapping
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(tensor(X)))
    message = r"X must be an array, a table or a tensor; got a DataLoader, which .* torch\.cat\."
    with pytest.raises(InvalidInputError, match=message):
        LMNN().fit(loader, y)
    with pytest.raises(InvalidInputError, match=message):
        LMNN().fit(tensor(X), y).transform(loader)
