"""KernelLMNN: the metric of LMNN in the feature space of a kernel."""

import tracemalloc

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

import nearfar
from nearfar import LMNN, KernelLMNN
from nearfar.errors import ConvergenceWarning, DataWarning, InvalidInputError, ModelFileError
from nearfar.estimators import _kernel
from nearfar.estimators._held_out import held_out_rows, votes_under
from nearfar.supervision import class_order
from tests.callbacks import interrupt_at, needs_callbacks

# Parameters of our class, and the same kernel in scikit-learn's words.
KERNELS = {
    "linear": ({}, {}),
    "poly": ({"gamma": 0.3, "kernel_params": {"degree": 2, "coef0": 0.5}}, {"degree": 2}),
    "rbf": ({"gamma": 0.1}, {}),
    "cosine": ({}, {}),
    "laplacian": ({"gamma": 0.2}, {}),
}
each_kernel = pytest.mark.parametrize("kernel", KERNELS)


def fitted(kernel, X, y, **parameters):
    return KernelLMNN(kernel, shrinkage=0, **KERNELS[kernel][0], **parameters).fit(X, y)


def matrix(kernel, X, Y=None):
    """The kernel by scikit-learn."""
    ours, theirs = KERNELS[kernel]
    words = {"gamma": ours["gamma"]} if "gamma" in ours else {}
    words |= {"coef0": 0.5, **theirs} if kernel == "poly" else {}
    return pairwise_kernels(X, Y, metric=kernel, **words)


def squared(images):
    return ((images[:, None] - images[None]) ** 2).sum(axis=2)


# -- the problem ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("data", "push_weight"), [("iris", 0.5), ("wine", 0.2)])
def test_the_linear_kernel_is_lmnn(data, push_weight, request):
    """Over all metrics on the span of the data, which for these is the whole space.

    Points at equal distances are moved a little: which of them is a target neighbour would be
    decided by rounding.
    """
    X, y = request.getfixturevalue(data)
    X = X + 1e-3 * np.random.default_rng(0).normal(size=X.shape)
    parameters = {"push_weight": push_weight, "tol": 1e-6, "max_iter": 5000}
    model, lmnn = (
        KernelLMNN("linear", **parameters, shrinkage=0).fit(X, y),
        LMNN(shrinkage=0, **parameters).fit(X, y),
    )
    assert model.objective_ == pytest.approx(lmnn.objective_, rel=1e-5)
    assert model.duality_gap_ <= 1e-6
    np.testing.assert_allclose(
        model.get_mahalanobis_matrix(), lmnn.get_mahalanobis_matrix(), atol=2e-3
    )
    new = np.random.default_rng(0).normal(size=(20, 2, X.shape[1]))
    np.testing.assert_allclose(model.pair_distance(new), lmnn.pair_distance(new), rtol=2e-3)


@each_kernel
def test_the_objective_is_the_papers_with_kernel_values(
    kernel, overlapping, nearest_of_class, paper_objective
):
    """D_A(a, b) = (k_a − k_b)ᵀA(k_a − k_b), with the nearest of the class in feature space, where
    ‖φ_a − φ_b‖² = k_aa + k_bb − 2 k_ab."""
    X, y = overlapping
    model = fitted(kernel, X, y, rank=6, push_weight=0.3)
    K = matrix(kernel, X)
    targets = nearest_of_class(model._target_space(X), y, 3)
    expected = paper_objective(model.get_kernel_weights(), K, y, targets, 0.3)
    assert model.objective_ == pytest.approx(expected, rel=1e-7)
    assert model.status_ == "converged"
    assert model.duality_gap_ <= model.tol
    everything = fitted(kernel, X, y)._target_space(X)
    exact = np.diag(K)[:, None] + np.diag(K) - 2 * K
    np.testing.assert_allclose(squared(everything), exact, atol=1e-6 * exact.max())


@each_kernel
def test_images_come_from_kernel_values_only(kernel, overlapping):
    X, y = overlapping
    model = fitted(kernel, X[::2], y[::2], rank=6)
    images = matrix(kernel, X, model.X_fit_) @ model.dual_coef_.T
    shift = model.transform(X) - images
    np.testing.assert_array_equal(model.X_fit_, X[::2])
    np.testing.assert_allclose(shift, np.tile(shift[0], (60, 1)), atol=1e-6)
    if kernel != "linear":  # the linear one is evaluated after centring
        np.testing.assert_allclose(shift, 0, atol=1e-6)
    np.testing.assert_allclose(model.dual_coef_.sum(axis=1), 0, atol=1e-6)


@each_kernel
def test_rows_of_the_map_are_orthogonal_in_feature_space(kernel, overlapping):
    """c_r(φ)·c_s(φ) = c_rᵀ K c_s; longest first, the largest coefficient of each positive."""
    X, y = overlapping
    model = fitted(kernel, X, y, rank=6)
    C = model.dual_coef_
    gram = C @ matrix(kernel, X) @ C.T
    lengths = np.diag(gram)
    np.testing.assert_allclose(gram, np.diag(lengths), atol=1e-7 * lengths[0])
    assert (np.diff(lengths) <= 1e-9 * lengths[0]).all()
    assert (C[np.arange(len(C)), np.abs(C).argmax(axis=1)] > 0).all()


def test_the_weights_are_positive_semidefinite(overlapping):
    X, y = overlapping
    model = fitted("rbf", X, y, rank=6)
    A = model.get_kernel_weights()
    assert A.shape == (60, 60)
    assert np.linalg.eigvalsh(A)[0] > -1e-9 * np.abs(A).max()
    np.testing.assert_allclose(A.sum(axis=0), 0, atol=1e-9 * np.abs(A).max() * 60)


def test_a_matrix_in_the_input_space_exists_for_the_linear_kernel_only(overlapping):
    X, y = overlapping
    M = fitted("linear", X, y).get_mahalanobis_matrix()
    assert M.shape == (5, 5)
    with pytest.raises(
        InvalidInputError, match=r"only kernel='linear' gives .* kernel='rbf'\. Use get_kernel_w"
    ):
        fitted("rbf", X, y).get_mahalanobis_matrix()


def circles(turn=0.0, n=40):
    """n points on each of two circles, as far from their neighbours as 1.25 times the other one."""
    angles = 2 * np.pi * (np.arange(n) + turn) / n
    ring = np.column_stack([np.cos(angles), np.sin(angles)])
    return np.vstack([ring, (1 + 0.8 * 2 * np.pi / n) * ring]), np.repeat([0, 1], n)


@pytest.mark.parametrize(
    "model",
    [
        KernelLMNN("poly", kernel_params={"degree": 2}, shrinkage=0),
        KernelLMNN(shrinkage=0, rank=10),
        KernelLMNN(shrinkage=0, n_components=1, rank=20),
    ],
    ids=repr,
)
def test_circles_that_no_linear_map_can_part(model):
    """The nearest other point of each is on the other circle, and stays there under any linear map
    that is fair to all directions. ‖x‖² is a feature of these kernels, and parts them."""
    X, y = circles()

    def nearest_is_wrong(images):
        D = squared(images)
        np.fill_diagonal(D, np.inf)
        return np.mean(y[D.argmin(axis=1)] != y)

    assert nearest_is_wrong(LMNN(shrinkage=0).fit(X, y).transform(X)) == 1
    model = clone(model).fit(X, y)
    assert nearest_is_wrong(model.transform(X)) == 0
    between, labels = circles(turn=0.5)
    classifier = KNeighborsClassifier(1).fit(model.transform(X), y)
    assert classifier.score(model.transform(between), labels) == 1


def test_a_full_rank_kernel_learns_any_labels(rng):
    """Labels that mean nothing are learned without a slack left; fewer directions cannot."""
    X, y = rng.normal(size=(60, 3)), rng.permutation(np.arange(60) % 3)
    model = KernelLMNN(shrinkage=0, gamma=1.0).fit(X, y)
    assert model.objective_ < 1e-3
    assert model.duality_gap_ <= 1e-3
    assert KernelLMNN(shrinkage=0, gamma=1.0, rank=5).fit(X, y).objective_ > 30


def test_few_points_of_many_features(rng):
    """2000 features cost what 60 points cost: no matrix of 2000² numbers, which is 32 MB."""
    y = np.repeat([0, 1, 2], 20)
    X = rng.normal(size=(60, 2000)) + 0.15 * rng.normal(size=(3, 2000))[y]
    tracemalloc.start()
    try:
        model = KernelLMNN("linear", rank=20, tol=1e-5, shrinkage=0).fit(X, y)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16e6
    assert (model.status_, model.dual_coef_.shape[1]) == ("converged", 60)
    scores = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
    leading = scores.U[:, :20] * scores.S[:20]
    assert model.objective_ == pytest.approx(
        LMNN(shrinkage=0, tol=1e-5).fit(leading, y).objective_, rel=1e-4
    )


# -- kernels -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "poly"])
def test_gamma_follows_the_spread_of_the_features(kernel, overlapping):
    X, y = overlapping
    model = KernelLMNN(kernel, shrinkage=0, rank=5).fit(X, y)
    assert model.gamma_ == pytest.approx(1 / X.var(axis=0).sum())
    assert KernelLMNN(kernel, 0.25, shrinkage=0, rank=5).fit(X, y).gamma_ == 0.25
    assert KernelLMNN("linear", shrinkage=0).fit(X, y).gamma_ is None


@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_units_do_not_matter(scale, overlapping):
    X, y = overlapping
    model, other = (
        KernelLMNN(shrinkage=0, rank=6).fit(X, y),
        KernelLMNN(shrinkage=0, rank=6).fit(scale * X, y),
    )
    assert other.objective_ == pytest.approx(model.objective_, rel=1e-6)
    np.testing.assert_allclose(
        squared(other.transform(scale * X)), squared(model.transform(X)), rtol=1e-3, atol=1e-4
    )


@pytest.mark.parametrize("kernel", ["linear", "rbf", "laplacian"])
def test_translation_does_not_matter_where_the_kernel_does_not_see_it(kernel, overlapping):
    X, y = overlapping
    X = (X + 1e6) - 1e6  # what is left of the digits, so that both have the same data
    model, other = (
        KernelLMNN(kernel, shrinkage=0, rank=5).fit(X, y),
        KernelLMNN(kernel, shrinkage=0, rank=5).fit(X + 1e6, y),
    )
    assert other.objective_ == pytest.approx(model.objective_, rel=1e-5)
    np.testing.assert_allclose(
        squared(other.transform(X + 1e6)), squared(model.transform(X)), rtol=1e-2, atol=1e-2
    )


@each_kernel
def test_a_precomputed_kernel_is_the_kernel(kernel, overlapping):
    X, y = overlapping
    named = fitted(kernel, X, y, rank=6)
    model = KernelLMNN("precomputed", rank=6, shrinkage=0).fit(matrix(kernel, X), y)
    assert model.X_fit_ is None
    assert model.objective_ == pytest.approx(named.objective_, rel=1e-5)
    new = X[:10] + 0.1
    np.testing.assert_allclose(
        squared(model.transform(matrix(kernel, new, X))), squared(named.transform(new)), atol=1e-2
    )


def test_a_function_is_the_kernel(overlapping):
    X, y = overlapping

    def kernel(a, b, width=1.0):
        return np.exp(-np.sum((a - b) ** 2) / width)

    model = KernelLMNN(kernel, shrinkage=0, kernel_params={"width": 10.0}, rank=6).fit(
        X[::2], y[::2]
    )
    named = KernelLMNN("rbf", 0.1, rank=6, shrinkage=0).fit(X[::2], y[::2])
    assert model.gamma_ is None
    np.testing.assert_allclose(model.transform(X), named.transform(X), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(model.get_metric()(X[0], X[1]), named.get_metric()(X[0], X[1]))


def test_a_function_cannot_be_saved(overlapping, tmp_path):
    X, y = overlapping
    model = KernelLMNN(lambda a, b: a @ b, shrinkage=0, rank=3).fit(X[::3], y[::3])
    with pytest.raises(
        ModelFileError, match=r"^kernel cannot be saved: .* found a function.*'precomp"
    ):
        nearfar.save(model, tmp_path / "model.nearfar")


@pytest.mark.parametrize("rank", [1, 4, 0.5, 0.95])
def test_rank_keeps_the_leading_directions(rank, overlapping):
    X, y = overlapping
    everything = KernelLMNN("rbf", shrinkage=0).fit(X, y).eigenvalues_
    share = np.cumsum(everything) / everything.sum()
    expected = rank if isinstance(rank, int) else int((share < rank).sum()) + 1
    model = KernelLMNN("rbf", rank=rank, shrinkage=0).fit(X, y)
    np.testing.assert_allclose(model.eigenvalues_, everything[:expected])
    assert model.eigenvectors_.shape == (60, expected)
    assert model._target_space(X).shape == (60, expected)
    assert len(model.dual_coef_) <= expected


def test_transform_goes_in_blocks(overlapping, monkeypatch):
    X, y = overlapping
    model = KernelLMNN(shrinkage=0, rank=6).fit(X, y)
    whole = model.transform(X)
    monkeypatch.setattr(_kernel, "BLOCK_VALUES", 7 * 60)
    np.testing.assert_allclose(model.transform(X), whole, rtol=1e-9, atol=1e-12)


# -- few rows, validation, limits ------------------------------------------------------------------


def test_few_rows_are_learned(overlapping):
    X, y = overlapping
    full, model = (
        KernelLMNN(shrinkage=0, rank=8).fit(X, y),
        KernelLMNN(shrinkage=0, rank=8, n_components=2).fit(X, y),
    )
    assert model.dual_coef_.shape == (2, 60)
    assert model.duality_gap_ is None
    assert model.objective_ >= full.objective_ * (1 - full.duality_gap_)


def test_rows_that_the_metric_lacks_are_zero(overlapping):
    X, y = overlapping
    model = KernelLMNN("linear", n_components=7, shrinkage=0).fit(X, y)
    assert model.dual_coef_.shape == (7, 60)
    assert not model.dual_coef_[5:].any()
    assert model.duality_gap_ <= model.tol


@pytest.mark.parametrize("kernel", ["rbf", "precomputed"])
def test_held_out_rows_are_no_part_of_the_map(kernel, overlapping):
    X, y = overlapping
    data = X if kernel == "rbf" else matrix("rbf", X)
    gamma = 0.1 if kernel == "rbf" else None
    model = KernelLMNN(kernel, gamma, shrinkage=0, validation_fraction=0.3, random_state=3).fit(
        data, y
    )
    train, held_out = held_out_rows(class_order(y, "KernelLMNN"), 0.3, np.random.RandomState(3))
    if kernel == "rbf":
        np.testing.assert_array_equal(model.X_fit_, X[train])
    else:
        assert not model.dual_coef_[:, held_out].any()
    errors = [r["validation_error"] for r in model.history_ if "validation_error" in r]
    images = model.transform(data)
    votes = votes_under(np.eye(images.shape[1]), images[train], y[train], images[held_out], 3)
    assert np.mean(votes != y[held_out]) <= min(errors)
    assert model.status_ in ("converged", "early_stopped")


@pytest.mark.parametrize("random_state", range(4))
def test_validation_begins_at_the_distance_of_the_kernel(random_state, iris):
    """What is kept is never worse on the held-out rows, also with a kernel of full rank, whose
    optimum fits everything."""
    X, y = iris
    model = KernelLMNN(
        shrinkage=0, gamma=0.5, validation_fraction=0.3, random_state=random_state
    ).fit(X, y)
    random = np.random.RandomState(random_state)
    train, held_out = held_out_rows(class_order(y, "KernelLMNN"), 0.3, random)
    errors = []
    for images in (model.transform(X), model._target_space(X)):
        votes = votes_under(np.eye(images.shape[1]), images[train], y[train], images[held_out], 3)
        errors.append(np.mean(votes != y[held_out]))
    assert len(model.eigenvalues_) > 100
    assert errors[0] <= errors[1]


@pytest.mark.parametrize(("limit", "value"), [("max_iter", 3), ("max_seconds", 1e-9)])
def test_limits_are_warned_of(limit, value, overlapping):
    with pytest.warns(ConvergenceWarning, match=rf"KernelLMNN stopped before tol=.*{limit}"):
        model = KernelLMNN(shrinkage=0, rank=8, tol=1e-8, **{limit: value}).fit(*overlapping)
    assert model.status_ == limit
    assert model.n_iter_ == len(model.history_) <= 3


@needs_callbacks
def test_callbacks_see_a_usable_map_and_may_interrupt(overlapping):
    X, y = overlapping
    recorder = interrupt_at(4)
    with pytest.warns(ConvergenceWarning, match="KernelLMNN was interrupted; the best map so far"):
        model = KernelLMNN(shrinkage=0, rank=8).set_callbacks(recorder).fit(X, y)
    assert (model.status_, model.n_iter_) == ("interrupted", 4)
    assert np.isfinite(recorder.models[2].transform(X)).all()
    assert recorder.models[3].transform(X).shape[0] == 60


# -- what is refused -----------------------------------------------------------------------------


def test_a_matrix_with_a_negative_eigenvalue_is_refused(overlapping):
    """diag(1, …, 1, -5), centred: the smallest eigenvalue is reported."""
    _, y = overlapping
    K = np.eye(60)
    K[-1, -1] = -5
    H = np.eye(60) - 1 / 60
    smallest = np.linalg.eigvalsh(H @ K @ H)[0]
    with pytest.raises(
        InvalidInputError, match=rf"negative eigenvalue; its smallest is {smallest:.2g}, .* zero\."
    ):
        KernelLMNN("precomputed", shrinkage=0).fit(K, y)


def test_an_indefinite_kernel_is_refused(iris):
    with pytest.raises(InvalidInputError, match=r"negative eigenvalue; .* Take another kernel"):
        KernelLMNN("sigmoid", shrinkage=0).fit(*iris)


def test_a_negative_eigenvalue_by_rounding_is_not(overlapping):
    X, y = overlapping
    K = matrix("linear", X).astype(np.float32)
    assert np.linalg.eigvalsh(K.astype(np.float64))[0] < 0
    assert KernelLMNN("precomputed", shrinkage=0).fit(K, y).status_ == "converged"


def test_matrices_that_are_no_kernel_matrices_are_refused(overlapping):
    X, y = overlapping
    K = matrix("rbf", X)
    with pytest.raises(InvalidInputError, match=r"\(n_samples, n_samples\); got \(60, 59\)"):
        KernelLMNN("precomputed", shrinkage=0).fit(K[:, 1:], y)
    with pytest.raises(InvalidInputError, match=r"must be symmetric; .* up to 0\.5\. Check the or"):
        KernelLMNN("precomputed", shrinkage=0).fit(K + np.eye(60, k=1) * 0.5, y)
    model = KernelLMNN("precomputed", shrinkage=0).fit(K, y)
    with pytest.raises(ValueError, match="X has 59 features, but KernelLMNN is expecting 60"):
        model.transform(K[:, 1:])


def test_kernel_values_that_overflow_are_refused(overlapping):
    X, y = overlapping
    with (
        np.errstate(over="ignore"),
        pytest.raises(InvalidInputError, match=r"kernel values must be finite; .* Scale your data"),
    ):
        KernelLMNN("poly", 1e10, kernel_params={"degree": 40}, shrinkage=0).fit(X, y)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"kernel": "gaussian"}, r"kernel must be one of 'linear', .* or a function of two points"),
        ({"kernel": None}, "kernel must be one of"),
        ({"gamma": 0}, "gamma must be a number"),
        ({"gamma": "scale"}, "gamma must be a number"),
        ({"kernel": "linear", "gamma": 1.0}, "kernel='linear' takes no gamma; got gamma=1"),
        ({"kernel": "precomputed", "gamma": 1.0}, "kernel='precomputed' takes no gamma"),
        pytest.param(
            {"kernel": np.dot, "gamma": 1.0},
            "takes no gamma.*put it into kernel_params",
            id="a function with gamma",  # its text has an address in it
        ),
        ({"kernel_params": {"degree": 2}}, "kernel='rbf' may hold nothing; got 'degree'"),
        (
            {"kernel": "poly", "kernel_params": {"gamma": 2.0, "order": 1}},
            "may hold degree and coef0; got 'gamma', 'order'",
        ),
        ({"kernel": "poly", "kernel_params": {"degree": 0}}, r"kernel_params\['degree'\] must be"),
        ({"kernel": "poly", "kernel_params": {"coef0": "a"}}, r"kernel_params\['coef0'\] must be"),
        ({"kernel_params": [1]}, "kernel_params must be a dict or None"),
        ({"rank": 0}, "rank must be an integer of at least 1; got 0"),
        ({"rank": 1.0}, "rank, if it is not an integer, must be a number between 0 and 1; got 1.0"),
        ({"rank": "all"}, "rank, if it is not an integer, must be"),
        ({"rank": True}, "rank must be an integer"),
        ({"n_components": 61}, "n_components must be an integer from 1 to 60"),
        ({"n_neighbors": 0}, "n_neighbors must be"),
        ({"push_weight": 1.0}, "push_weight must be"),
        ({"validation_fraction": 0}, "validation_fraction must be"),
        ({"tol": -1}, "tol must be"),
        ({"max_iter": 0}, "max_iter must be"),
        ({"max_seconds": -1}, "max_seconds must be"),
    ],
    ids=str,
)
def test_parameters_out_of_range_are_an_error(parameters, message, overlapping):
    with pytest.raises(InvalidInputError, match=message):
        KernelLMNN(shrinkage=0, **parameters).fit(*overlapping)


@pytest.mark.parametrize("kernel", ["rbf", "linear", "poly"])
def test_equal_points_are_warned_of(kernel, overlapping):
    """Each point has 3 targets and 40 impostors with a slack of 1 each."""
    _, y = overlapping
    with pytest.warns(DataWarning, match="all points are equal, .* Check X"):
        model = KernelLMNN(kernel).fit(np.full((60, 2), 7.0), y)
    assert model.objective_ == 0.5 * 60 * 3 * 40
    assert (model.status_, model.duality_gap_, model.n_iter_) == ("converged", 0, 0)
    assert model.transform(np.ones((4, 2))).shape == (4, 1)


@pytest.mark.parametrize("kernel", ["rbf", "poly", "precomputed"])
def test_equal_points_with_different_labels_are_warned_of(kernel, overlapping):
    X, y = (array.copy() for array in overlapping)
    X[0] = X[25]
    if kernel == "precomputed":
        X = matrix("rbf", X)
        X[0], X[:, 0] = X[25], X[:, 25]
        X[0, 0] = X[25, 0]
    with pytest.warns(DataWarning, match="^1 pairs of equal points have different labels"):
        KernelLMNN(kernel, shrinkage=0, rank=10).fit(X, y)


def test_extreme_scales_are_an_error(overlapping):
    X, y = overlapping
    with pytest.raises(InvalidInputError, match="its squares leave the range of float64"):
        KernelLMNN(shrinkage=0).fit(1e150 * X, y)


# -- scikit-learn, tensors, files ------------------------------------------------------------------


# It rounds the data to whole numbers, and a rounded kernel matrix is none.
ROUNDED = {"check_estimators_dtypes": "needs a kernel matrix"}


@pytest.mark.filterwarnings("ignore::nearfar.errors.NearfarWarning")
@parametrize_with_checks(
    [KernelLMNN("precomputed", shrinkage=0)], expected_failed_checks=lambda _: ROUNDED
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_cross_validation_slices_a_precomputed_kernel(iris):
    X, y = iris
    pipeline = make_pipeline(KernelLMNN("precomputed", shrinkage=0), KNeighborsClassifier(3))
    grid = {"kernellmnn__rank": [3, 10]}
    search = GridSearchCV(pipeline, grid, cv=3, error_score="raise")
    search.fit(pairwise_kernels(X, metric="rbf", gamma=0.25), y)
    named = make_pipeline(
        KernelLMNN("rbf", 0.25, rank=search.best_params_["kernellmnn__rank"], shrinkage=0),
        KNeighborsClassifier(3),
    )
    assert search.best_score_ == pytest.approx(cross_val_score(named, X, y, cv=3).mean(), abs=0.01)
    assert search.best_score_ > 0.9


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_float32_in_float32_out(kernel, overlapping):
    X, y = overlapping
    single = X.astype(np.float32)
    model, other = (
        KernelLMNN(kernel, shrinkage=0, rank=5).fit(single, y),
        KernelLMNN(kernel, shrinkage=0, rank=5).fit(X, y),
    )
    assert model.transform(single).dtype == np.float32
    assert model.X_fit_.dtype == np.float32
    assert model.dual_coef_.dtype == np.float64
    assert model.objective_ == pytest.approx(other.objective_, rel=1e-3)
    np.testing.assert_allclose(model.transform(single), other.transform(X), rtol=0.1, atol=0.05)


@pytest.mark.parametrize("kernel", [*KERNELS, "precomputed"])
def test_model_files(kernel, overlapping, tmp_path):
    X, y = overlapping
    data = matrix("rbf", X) if kernel == "precomputed" else X
    options = KERNELS[kernel][0] if kernel in KERNELS else {}
    model = KernelLMNN(kernel, shrinkage=0, rank=5, **options).fit(data, y)
    nearfar.save(model, tmp_path / "model.nearfar")
    twin = nearfar.load(tmp_path / "model.nearfar")
    assert twin.get_params() == model.get_params()
    assert set(vars(twin)) == set(vars(model))
    np.testing.assert_array_equal(twin.transform(data), model.transform(data))


DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.mark.torch
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kernel", KERNELS)
def test_tensors(kernel, device, overlapping, torch):
    X, y = overlapping
    tensor = torch.tensor(X, device=device)
    model, expected = fitted(kernel, tensor, y, rank=5), fitted(kernel, X, y, rank=5)
    images = model.transform(tensor)
    assert isinstance(images, torch.Tensor)
    assert images.device.type == device
    assert model.objective_ == pytest.approx(expected.objective_, rel=1e-6)
    np.testing.assert_allclose(images.cpu(), expected.transform(X), rtol=1e-3, atol=1e-3)
    pairs = torch.stack([tensor[:20], tensor[20:40]], dim=1)
    np.testing.assert_allclose(
        model.pair_distance(pairs).cpu(),
        [expected.get_metric()(a, b) for a, b in pairs.cpu().numpy()],
        rtol=1e-3,
        atol=1e-3,
    )
    np.testing.assert_allclose(
        squared(model._target_space(tensor).cpu().numpy()),
        squared(expected._target_space(X)),
        atol=1e-6,
    )
    assert model.transform(tensor.float()).dtype == torch.float32


@pytest.mark.torch
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("validation_fraction", [None, 0.3])
def test_a_precomputed_tensor(device, validation_fraction, overlapping, torch):
    X, y = overlapping
    K = matrix("rbf", X)
    parameters = {"rank": 5, "validation_fraction": validation_fraction, "random_state": 0}
    model = KernelLMNN("precomputed", **parameters, shrinkage=0).fit(
        torch.tensor(K, device=device), y
    )
    expected = KernelLMNN("precomputed", **parameters, shrinkage=0).fit(K, y)
    assert model.objective_ == pytest.approx(expected.objective_, rel=1e-6)
    assert isinstance(model.transform(torch.tensor(K, device=device)), torch.Tensor)


@pytest.mark.torch
def test_tensors_and_arrays_do_not_mix(overlapping, torch):
    X, y = overlapping
    with pytest.raises(InvalidInputError, match="KernelLMNN was fitted on NumPy and X is on torch"):
        KernelLMNN(shrinkage=0, rank=5).fit(X, y).transform(torch.tensor(X))
    with pytest.raises(InvalidInputError, match=r"works on NumPy arrays; .*kernel='precomputed'"):
        KernelLMNN(np.dot).fit(torch.tensor(X), y)


def test_points_that_an_outlier_hides_are_warned_of():
    """Inner products with 1e9 have no digits left for the others."""
    X, y = np.array([[1e9], [0.0], [1.0], [2.0], [3.0]]), [0, 0, 1, 0, 1]
    with pytest.warns(DataWarning, match=r"^4 of 5 points differ from others, but not in the"):
        KernelLMNN("linear", n_neighbors=1, shrinkage=0).fit(X, y)
