"""KernelMMC: the metric of MMC in the feature space of a kernel."""

import numpy as np
import pytest
from scipy import linalg
from sklearn.base import clone
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score

from nearfar import MMC, KernelMMC, Tuples, make_pairs, make_triplets
from nearfar.errors import ConvergenceWarning, DataWarning, InvalidInputError
from tests.callbacks import interrupt_at, needs_callbacks

# Parameters of our class, and the same kernel in scikit-learn's words.
KERNELS = {
    "linear": ({}, {}),
    "poly": (
        {"gamma": 0.3, "kernel_params": {"degree": 2, "coef0": 0.5}},
        {"gamma": 0.3, "degree": 2, "coef0": 0.5},
    ),
    "rbf": ({"gamma": 0.1}, {"gamma": 0.1}),
    "laplacian": ({"gamma": 0.2}, {"gamma": 0.2}),
}
each_kernel = pytest.mark.parametrize("kernel", KERNELS)


def values(kernel, X, Y=None):
    return pairwise_kernels(X, Y, metric=kernel, **KERNELS[kernel][1])


def centred(images):
    return images - images.mean(axis=0)


@pytest.fixture
def pairs(overlapping):
    return make_pairs(*overlapping, 50, random_state=0)


# -- the problem ---------------------------------------------------------------------------------


@pytest.mark.parametrize("shrinkage", [0.0, 0.2])
@pytest.mark.parametrize("data", ["iris", "wine"])
def test_the_linear_kernel_is_mmc(data, shrinkage, request):
    """Over all metrics on the span of the data, which for these is the whole space."""
    X, y = request.getfixturevalue(data)
    parameters = {"shrinkage": shrinkage, "tol": 1e-6}
    model, mmc = KernelMMC("linear", **parameters).fit(X, y), MMC(**parameters).fit(X, y)
    assert model.objective_ == pytest.approx(mmc.objective_, rel=1e-5)
    A = mmc.get_mahalanobis_matrix()
    np.testing.assert_allclose(model.get_mahalanobis_matrix(), A, atol=1e-2 * np.abs(A).max())


@each_kernel
@pytest.mark.parametrize("n_components", [None, 2])
def test_the_reported_numbers_are_those_of_kernel_values(kernel, n_components, pairs):
    """Objective, constraint and gap from ``dual_coef_`` and scikit-learn's kernel alone.

    With v = k_a − k_b a pair has D² = vᵀAv, and the metric Σ A_lm φ_l φ_mᵀ the trace ⟨A, K⟩. Over
    the metrics of the span, whose A is any matrix with HAH = A, the largest ⟨Σ_far vvᵀ/D, A⟩ under
    the constraint ⟨Σ_near vvᵀ + c K, A⟩ ≤ 1 is a generalised eigenvalue.
    """
    tuples, kinds = pairs
    parameters = {"n_components": n_components, "shrinkage": 0.3}
    model = KernelMMC(kernel, **KERNELS[kernel][0], **parameters).fit(tuples, kinds)
    fit = model.X_fit_
    assert len(fit) == len(np.unique(tuples.indices))
    K, A = values(kernel, fit), model.get_kernel_weights()
    a, b = (values(kernel, tuples.points[rows], fit) for rows in tuples.indices.T)
    v = a - b
    squares = np.einsum("ij,jk,ik->i", v, A, v)
    near, far = kinds == 1, kinds == -1
    before = [squared_distance(kernel, *pair) for pair in np.asarray(tuples)[near]]
    ridge = 0.3 * np.sum(before) / len(model.eigenvalues_)
    assert 0.7 * squares[near].sum() + ridge * np.sum(A * K) == pytest.approx(1, rel=1e-6)
    assert model.objective_ == pytest.approx(np.sqrt(squares[far]).sum(), rel=1e-6)
    if n_components is not None:
        assert model.duality_gap_ is None
        return
    basis = model.eigenvectors_
    lengths, bounds = np.sqrt(squares[far]), []
    S = basis.T @ (v[near].T @ v[near] + ridge / 0.7 * K) @ basis
    apart = np.array([squared_distance(kernel, *pair) for pair in np.asarray(tuples)[far]])
    for held in (lengths, np.maximum(lengths, 0.03 * lengths.mean())):
        W = basis.T @ (v[far].T / held) @ v[far] @ basis
        kept = 0.3 / np.sum(before) * np.sum(apart / held)  # by the distance in feature space
        bounds.append(np.sqrt(held.sum() * (linalg.eigh(W, S)[0][-1] + kept)))
    assert model.duality_gap_ == pytest.approx(min(bounds) / model.objective_ - 1, abs=1e-5)
    assert model.duality_gap_ <= 1e-3


def squared_distance(kernel, u, v):
    """‖φ(u) − φ(v)‖²."""
    K = values(kernel, np.stack([u, v]))
    return K[0, 0] + K[1, 1] - 2 * K[0, 1]


@each_kernel
def test_images_come_from_kernel_values_only(kernel, overlapping, pairs):
    """But for a common shift."""
    X, _ = overlapping
    model = KernelMMC(kernel, **KERNELS[kernel][0]).fit(*pairs)
    images = values(kernel, X, model.X_fit_) @ model.dual_coef_.T
    np.testing.assert_allclose(centred(model.transform(X)), centred(images), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(model.dual_coef_.sum(axis=1), 0, atol=1e-9)


def test_circles_that_no_linear_map_can_part():
    """Near pairs within each of two circles, far ones between them: the radius tells."""
    angles = 2 * np.pi * np.arange(30) / 30
    ring = np.column_stack([np.cos(angles), np.sin(angles)])
    X, y = np.vstack([ring, 2 * ring]), np.repeat([0, 1], 30)
    assert MMC(shrinkage=0).fit(X, y).score(X, y) < 0.7
    assert KernelMMC("poly", kernel_params={"degree": 2}).fit(X, y).score(X, y) > 0.99
    assert KernelMMC("rbf", shrinkage=0.5).fit(X, y).score(X, y) > 0.99


def test_a_full_rank_kernel_needs_regularisation(overlapping):
    """Near pairs do not differ in the class indicators, and far pairs do."""
    X, y = overlapping
    with pytest.raises(InvalidInputError, match="the problem is unbounded"):
        KernelMMC("laplacian", shrinkage=0.0).fit(X, y)
    assert KernelMMC("laplacian", shrinkage=0.0, rank=5).fit(X, y).status_ == "converged"
    small, large = (
        KernelMMC("laplacian", shrinkage=value).fit(X, y).objective_ for value in (1e-3, 0.5)
    )
    assert small > 2 * large


# -- forms of input ------------------------------------------------------------------------------


@each_kernel
def test_a_precomputed_kernel_is_the_kernel(kernel, overlapping, pairs):
    """With labels, and as the points of Tuples, where unused points get no weight."""
    X, y = overlapping
    K, options = values(kernel, X), KERNELS[kernel][0]
    model, expected = KernelMMC("precomputed").fit(K, y), KernelMMC(kernel, **options).fit(X, y)
    assert model.objective_ == pytest.approx(expected.objective_, rel=1e-6)
    assert model.X_fit_ is None
    found, wanted = centred(model.transform(K)), centred(expected.transform(X))
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3 * np.abs(wanted).max())
    tuples, kinds = pairs
    few = kinds.cumsum() + 2 * np.arange(len(kinds)) < 40
    part = Tuples(tuples.points, tuples.indices[few]), kinds[few]
    model = KernelMMC("precomputed").fit(Tuples(K, part[0].indices), part[1])
    expected = KernelMMC(kernel, **options).fit(*part)
    assert model.objective_ == pytest.approx(expected.objective_, rel=1e-6)
    unused = np.setdiff1d(np.arange(len(X)), part[0].indices)
    assert len(unused) > 5
    assert not model.dual_coef_[:, unused].any()


def test_dense_pairs_and_triplets_are_tuples(overlapping, pairs):
    by_tuples, dense = KernelMMC().fit(*pairs), KernelMMC().fit(np.asarray(pairs[0]), pairs[1])
    assert dense.objective_ == pytest.approx(by_tuples.objective_, rel=1e-6)
    triplets = make_triplets(*overlapping, 40, random_state=0)
    model, other = KernelMMC().fit(triplets), KernelMMC().fit(np.asarray(triplets))
    assert model.objective_ == pytest.approx(other.objective_, rel=1e-6)


def test_labels_are_all_their_pairs(overlapping):
    X, y = overlapping
    model = KernelMMC(gamma=0.1)  # else labels choose the distance inside the kernel
    by_labels, by_pairs = clone(model).fit(X, y), model.fit(*make_pairs(X, y, balanced=False))
    assert by_labels.objective_ == pytest.approx(by_pairs.objective_, rel=1e-6)
    np.testing.assert_array_equal(by_labels.classes_, [0, 1, 2])


def test_drawn_pairs_follow_the_seed(overlapping):
    X, y = overlapping
    one, same, other = (KernelMMC(n_pairs=30, random_state=seed).fit(X, y) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one.dual_coef_, same.dual_coef_)
    assert one.objective_ != other.objective_


def test_a_function_is_the_kernel(overlapping):
    X, y = overlapping
    model = KernelMMC(lambda u, v: float(u @ v)).fit(X, y)
    assert model.objective_ == pytest.approx(KernelMMC("linear").fit(X, y).objective_, rel=1e-6)


def test_rank_keeps_the_leading_directions(overlapping):
    X, y = overlapping
    model = KernelMMC(rank=4).fit(X, y)
    assert len(model.eigenvalues_) == 4
    assert model.objective_ < KernelMMC(rank=20, shrinkage=0.0).fit(X, y).objective_


def test_few_rows_are_learned(overlapping):
    X, y = overlapping
    model = KernelMMC(n_components=1, shrinkage=0.01).fit(X, y)
    full = KernelMMC(shrinkage=0.01, tol=1e-6).fit(X, y)
    assert model.transform(X).shape == (60, 1)
    # The full metric keeps 1 % of its budget for the distance in feature space.
    assert 0.9 * full.objective_ < model.objective_ <= full.objective_ * (1 + 0.01)


# -- limits, and what is refused -----------------------------------------------------------------


@pytest.mark.parametrize(("limit", "value"), [("max_iter", 2), ("max_seconds", 1e-9)])
def test_limits_are_warned_of(limit, value, overlapping):
    with pytest.warns(ConvergenceWarning, match=rf"KernelMMC stopped before tol=.*{limit}"):
        model = KernelMMC(rank=8, tol=1e-12, **{limit: value}).fit(*overlapping)
    assert model.status_ == limit
    assert model.n_iter_ == len(model.history_) <= 2


@needs_callbacks
def test_callbacks_see_a_usable_map_and_may_interrupt(overlapping):
    X, y = overlapping
    recorder = interrupt_at(2)
    with pytest.warns(ConvergenceWarning, match="KernelMMC was interrupted; the best map so far"):
        model = KernelMMC(rank=8, tol=1e-9).set_callbacks(recorder).fit(X, y)
    assert (model.status_, model.n_iter_) == ("interrupted", 2)
    assert np.isfinite(recorder.models[0].transform(X)).all()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"shrinkage": -1}, "shrinkage must be a number from 0 to below 1, or 'auto'; got -1"),
        ({"kernel": "rbg"}, "kernel must be one of 'linear', 'poly'.*got 'rbg'"),
        ({"gamma": -1.0}, "gamma must be a number"),
        ({"rank": 0}, "rank must be an integer of at least 1; got 0"),
        ({"n_components": 0}, "n_components must be an integer from 1 to 60; got 0"),
        ({"tol": -1}, "tol must be a number of at least 0; got -1"),
        ({"kernel": "precomputed"}, r"needs the kernel matrix of the training points, of shape"),
    ],
)
def test_parameters_out_of_range_are_an_error(parameters, message, overlapping):
    with pytest.raises(InvalidInputError, match=message):
        KernelMMC(**parameters).fit(*overlapping)


def test_dense_pairs_of_a_precomputed_kernel_are_an_error(overlapping, pairs):
    K = values("rbf", overlapping[0])
    with pytest.raises(InvalidInputError, match=r"which rows of the kernel matrix.*Tuples\(K, ind"):
        KernelMMC("precomputed").fit(np.asarray(Tuples(K, pairs[0].indices)), pairs[1])


def test_equal_points_in_feature_space_are_warned_of(overlapping):
    """A kernel that sees no difference: no metric can separate the points, and the map is zero."""
    X, y = overlapping
    with pytest.warns(DataWarning, match="all points are equal in feature space"):
        model = KernelMMC(lambda *_: 1.0).fit(X, y)
    assert (model.status_, model.objective_) == ("converged", 0.0)
    np.testing.assert_array_equal(model.transform(X), np.zeros((60, 1)))


# -- with scikit-learn, files and tensors --------------------------------------------------------


def test_cross_validation_slices_a_precomputed_kernel(iris):
    X, y = iris
    K = pairwise_kernels(X, metric="rbf", gamma=0.2)
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    ours = cross_val_score(KernelMMC(gamma=0.2), X, y, cv=folds)
    theirs = cross_val_score(KernelMMC("precomputed"), K, y, cv=folds)
    np.testing.assert_allclose(ours, theirs, atol=1e-3)
    assert ours.min() > 0.8


def test_a_grid_search_over_pairs(iris):
    pairs, kinds = make_pairs(*iris, 60, random_state=0)
    search = GridSearchCV(KernelMMC(), {"shrinkage": [0.01, 0.5]}, error_score="raise")
    assert search.fit(pairs, kinds).best_score_ > 0.8


@each_kernel
def test_float32_in_float32_out(kernel, overlapping):
    X, y = overlapping
    single = X.astype(np.float32)
    model = KernelMMC(kernel, **KERNELS[kernel][0]).fit(single, y)
    double = clone(model).fit(single.astype(np.float64), y)
    assert model.transform(single).dtype == np.float32
    assert model.objective_ == pytest.approx(double.objective_, rel=1e-5)


@pytest.mark.torch
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@each_kernel
def test_tensors(kernel, device, overlapping, pairs, torch):
    X, y = overlapping
    tensor, options = torch.tensor(X, device=device), KERNELS[kernel][0]
    model, expected = KernelMMC(kernel, **options).fit(tensor, y), KernelMMC(kernel, **options)
    expected.fit(X, y)
    images = model.transform(tensor)
    assert isinstance(images, torch.Tensor)
    assert images.device.type == device
    assert model.objective_ == pytest.approx(expected.objective_, rel=1e-6)
    tuples, kinds = pairs
    by_tuples = KernelMMC(kernel, **options).fit(Tuples(tensor, tuples.indices), kinds)
    other = KernelMMC(kernel, **options).fit(tuples, kinds)
    assert by_tuples.objective_ == pytest.approx(other.objective_, rel=1e-6)
