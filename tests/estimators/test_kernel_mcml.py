"""KernelMCML: the metric of MCML in the feature space of a kernel."""

import numpy as np
import pytest
from sklearn.metrics import pairwise_distances
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

import nearfar
from nearfar import MCML, KernelMCML
from nearfar.errors import ConvergenceWarning, DataWarning, InvalidInputError, ModelFileError
from nearfar.estimators import kernel_mcml
from nearfar.problems.kernel_lmnn import KernelSpan
from tests.callbacks import interrupt_at, needs_callbacks

# Parameters of our class, and the same kernel in scikit-learn's words.
KERNELS = {
    "linear": ({}, {}),
    "poly": (
        {"gamma": 0.3, "kernel_params": {"degree": 2, "coef0": 0.5}},
        {"gamma": 0.3, "degree": 2, "coef0": 0.5},
    ),
    "rbf": ({"gamma": 0.1}, {"gamma": 0.1}),
    "cosine": ({}, {}),
    "laplacian": ({"gamma": 0.2}, {"gamma": 0.2}),
}
each_kernel = pytest.mark.parametrize("kernel", KERNELS)


def fitted(kernel, X, y, trace_weight=None, **parameters):
    """A fit, in which the trace has a given weight, the paper's lambda."""
    if trace_weight is not None:
        parameters["shrinkage"] = shrinkage_of(matrix(kernel, X), y, trace_weight)
    return KernelMCML(kernel, **KERNELS[kernel][0], **parameters).fit(X, y)


def shrinkage_of(K, y, trace_weight):
    """The shrinkage r / (1 + r) with r T / 8d = lambda, for d directions and T = tr S(p0).

    Points of a class of n are at a squared distance of 2n / (n - 1) times their variance.
    """
    E, total = KernelSpan.of(K).features, 0.0
    for label in np.unique(y):
        mine = E[y == label]
        if len(mine) > 1:
            total += 2 * len(mine) ** 2 / (len(mine) - 1) * mine.var(axis=0).sum()
    r = 8 * trace_weight * E.shape[1] / total
    return r / (1 + r)


def matrix(kernel, X, Y=None):
    """The kernel by scikit-learn."""
    return pairwise_kernels(X, Y, metric=kernel, **KERNELS[kernel][1])


def squared(images):
    return pairwise_distances(images, metric="sqeuclidean")


@pytest.fixture
def few(rng):
    """Eleven points in two features, in overlapping classes of 5, 4 and 2."""
    y = np.array([0, 1, 0, 2, 1, 0, 1, 0, 2, 1, 0])
    return rng.normal(size=(11, 2)) + 0.7 * rng.normal(size=(3, 2))[y], y


# -- the problem ---------------------------------------------------------------------------------


@pytest.mark.parametrize("data", ["iris", "wine"])
def test_the_linear_kernel_is_mcml(data, request):
    """The feature space is the span of the data, here all of the input space."""
    X, y = request.getfixturevalue(data)
    parameters = {"shrinkage": 0, "tol": 1e-7}
    model, mcml = KernelMCML("linear", **parameters).fit(X, y), MCML(**parameters).fit(X, y)
    assert model.objective_ == pytest.approx(mcml.objective_, rel=1e-6)
    assert model.duality_gap_ <= 1e-7
    M = mcml.get_mahalanobis_matrix()
    np.testing.assert_allclose(model.get_mahalanobis_matrix(), M, atol=1e-3 * abs(M).max())
    new = np.random.default_rng(0).normal(size=(20, 2, X.shape[1]))
    np.testing.assert_allclose(model.pair_distance(new), mcml.pair_distance(new), rtol=2e-3)


@each_kernel
def test_the_objective_is_the_papers_with_kernel_values(kernel, overlapping, mcml_by_loops):
    """Equation 6 in section 4: distances (k_i − k_j)ᵀÂ(k_i − k_j), and a trace of tr(KÂ)."""
    X, y = (array[::2] for array in overlapping)
    model = fitted(kernel, X, y, trace_weight=0.4)
    K = matrix(kernel, X)
    case = mcml_by_loops(K, y, 0.4 * K)
    assert model.objective_ == pytest.approx(case.objective(model.get_kernel_weights()), rel=1e-7)
    assert model.status_ == "converged"
    assert model.duality_gap_ <= model.tol == 1e-3


@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "poly"])
@pytest.mark.parametrize("trace_weight", [0.2, 1.5])
def test_the_optimum_is_that_of_a_conic_solver(kernel, trace_weight, few, mcml_by_loops):
    """Theirs is the paper's problem in all of Â, (11, 11), with kernel values for points and
    tr(KÂ) for the trace. Their objective is attained, hence above our bound."""
    X, y = few
    K = matrix(kernel, X)
    optimum, A = mcml_by_loops(K, y, trace_weight * K).by_clarabel()
    assert mcml_by_loops(K, y, trace_weight * K).objective(A) == pytest.approx(optimum, rel=1e-4)
    model = fitted(kernel, X, y, trace_weight, tol=1e-7)
    assert model.status_ == "converged"
    assert model.objective_ == pytest.approx(optimum, rel=1e-5)
    assert model.objective_ - model.duality_gap_ * max(model.objective_, 1) <= optimum * (1 + 1e-6)


@pytest.mark.parametrize("tol", [1e-2, 1e-4])
@each_kernel
def test_the_gap_is_proved_by_the_entropies(kernel, tol, few, mcml_by_loops):
    """A bound of our own, from the soft neighbours of a much better metric, mixed with p0 until
    equation 5 holds in feature space, where points have the coordinates E = VΛ^(1/2). It is
    nearly attained, so that it tells the optimum: the gap that is reported must not be smaller
    than the distance from there."""
    X, y = few
    H = np.eye(11) - 1 / 11
    values, vectors = np.linalg.eigh(H @ matrix(kernel, X) @ H)
    kept = values > 1e-9 * values[-1]
    E = vectors[:, kept] * np.sqrt(values[kept])
    case = mcml_by_loops(E, y, 0.7)
    best = fitted(kernel, X, y, trace_weight=0.7, tol=1e-7)
    to_features = np.linalg.lstsq(E, best.transform(X) - best.transform(X).mean(axis=0))[0]
    p = case.chosen(to_features @ to_features.T)
    share = next(
        share
        for share in [0, *np.logspace(-9, 0, 40)]
        if np.linalg.eigvalsh(case.slack((1 - share) * p + share * case.target))[0] >= 0
    )
    bound = case.bound((1 - share) * p + share * case.target)
    assert bound == pytest.approx(best.objective_, rel=1e-5)
    model = fitted(kernel, X, y, trace_weight=0.7, tol=tol)
    assert model.duality_gap_ <= tol
    claimed = model.objective_ - model.duality_gap_ * max(model.objective_, 1)
    assert claimed <= best.objective_ + 1e-9
    assert bound <= model.objective_


@pytest.mark.parametrize("kernel", ["rbf", "poly"])
def test_few_rows_are_the_projection_of_the_paper(kernel, overlapping):
    """Section 4: with any B such that Â = BᵀB and orthonormal eigenvectors α of BKBᵀ, by falling
    eigenvalue, x goes to the first rows of αBk."""
    X, y = overlapping
    full = fitted(kernel, X, y, rank=8)
    model = fitted(kernel, X, y, rank=8, n_components=2)
    K = matrix(kernel, X)
    values, vectors = np.linalg.eigh(full.get_kernel_weights())
    B = np.sqrt(values[-8:])[:, None] * vectors[:, -8:].T
    B = np.linalg.qr(np.random.default_rng(0).normal(size=(8, 8)))[0] @ B
    alpha = np.linalg.eigh(B @ K @ B.T)[1].T[::-1]
    expected = squared(K @ (alpha @ B)[:2].T)
    np.testing.assert_allclose(squared(model.transform(X)), expected, atol=1e-6 * expected.max())
    np.testing.assert_array_equal(model.dual_coef_, full.dual_coef_[:2])
    assert (model.objective_, model.duality_gap_) == (full.objective_, full.duality_gap_)


@each_kernel
def test_rows_of_the_map_are_orthogonal_in_feature_space(kernel, overlapping):
    """c_r(φ)·c_s(φ) = c_rᵀ K c_s; longest first, the largest coefficient of each positive."""
    X, y = overlapping
    C = fitted(kernel, X, y, rank=6).dual_coef_
    gram = C @ matrix(kernel, X) @ C.T
    lengths = np.diag(gram)
    np.testing.assert_allclose(gram, np.diag(lengths), atol=1e-7 * lengths[0])
    assert (np.diff(lengths) <= 1e-9 * lengths[0]).all()
    assert (C[np.arange(len(C)), np.abs(C).argmax(axis=1)] > 0).all()
    np.testing.assert_allclose(C.sum(axis=1), 0, atol=1e-8 * abs(C).max())


def test_few_rows_can_be_learned(overlapping, mcml_by_loops):
    """One row that is learned is better than the one that is left of the full metric, and not
    better than the full metric."""
    X, y = (array[::2] for array in overlapping)
    K = matrix("rbf", X)
    case = mcml_by_loops(K, y, K)
    shared = {"trace_weight": 1.0, "tol": 1e-6}
    full, projected = (fitted("rbf", X, y, n_components=rows, **shared) for rows in (None, 1))
    model = fitted("rbf", X, y, n_components=1, reduce="learn", **shared)
    assert (model.status_, model.duality_gap_) == ("converged", None)
    assert model.objective_ == pytest.approx(case.objective(model.get_kernel_weights()), rel=1e-7)
    assert model.objective_ < case.objective(projected.get_kernel_weights())
    assert model.objective_ >= full.objective_ - full.duality_gap_ * full.objective_


@pytest.mark.parametrize("trace_weight", [0.02, 1.0])
def test_the_rows_to_begin_with_do_not_matter(trace_weight, overlapping, monkeypatch):
    """One row lacks others, as few do, which are added; with all rows nothing is."""
    X, y = overlapping
    parameters = {"trace_weight": trace_weight, "tol": 1e-5, "max_iter": 5000}
    expected = fitted("rbf", X, y, **parameters)
    for spare in (-2, 1000):
        monkeypatch.setattr(kernel_mcml, "SPARE_ROWS", spare)
        model = fitted("rbf", X, y, **parameters)
        assert model.status_ == "converged"
        assert model.duality_gap_ <= 1e-5
        assert model.objective_ == pytest.approx(expected.objective_, rel=1e-5)
        assert len(model.dual_coef_) > 1


def test_rows_that_the_metric_lacks_are_zero(overlapping):
    X, y = overlapping
    for reduce in ("learn", "project"):
        model = KernelMCML("linear", n_components=7, reduce=reduce).fit(X, y)
        assert model.dual_coef_.shape == (7, 60)
        assert not model.dual_coef_[5:].any()
        assert model.duality_gap_ <= model.tol


def test_more_shrinkage_means_a_smaller_metric(overlapping):
    """Of two minima of g + λt the one with the larger λ has the smaller t and the larger g."""
    X, y = overlapping
    K, found = matrix("rbf", X), []
    for weight in (0.1, 1.0, 10.0):
        model = fitted("rbf", X, y, trace_weight=weight, tol=1e-5)
        trace = np.sum(K * model.get_kernel_weights())
        found.append((trace, model.objective_ - weight * trace))
    traces, divergences = np.transpose(found)
    assert (np.diff(traces) < 0).all()
    assert (np.diff(divergences) > 0).all()


def test_much_shrinkage_leaves_no_metric(overlapping):
    """With λ above the slope of the divergence at zero, A = 0 is optimal: p(j|i) = 1/59."""
    X, y = overlapping
    model = fitted("rbf", X, y, trace_weight=1e4)
    assert model.objective_ == pytest.approx(60 * np.log(59 / 19), rel=1e-3)
    assert squared(model.transform(X)).max() < 1e-2


def test_a_full_rank_kernel_learns_any_labels(rng):
    """Without shrinkage nothing keeps the classes from collapsing, whatever they are; fewer
    directions do, and so does the trace."""
    X, y = rng.normal(size=(60, 3)), rng.permutation(np.arange(60) % 3)
    model = KernelMCML(gamma=1.0, shrinkage=0).fit(X, y)
    assert 0 <= model.objective_ < 1e-3
    assert 0 <= model.duality_gap_ <= 1e-3
    for held in ({"rank": 5}, {"shrinkage": 0.95, "rank": None}):
        model = KernelMCML(gamma=1.0, **{"shrinkage": 0, **held}).fit(X, y)
        assert model.objective_ > 30
        assert model.duality_gap_ <= 1e-3


def test_circles_that_no_linear_map_can_part():
    """‖x‖² is a feature of the quadratic kernel. The nearest other point is on the other circle."""
    angles = 2 * np.pi * np.arange(40) / 40
    ring = np.column_stack([np.cos(angles), np.sin(angles)])
    X, y = np.vstack([ring, (1 + 0.8 * angles[1]) * ring]), np.repeat([0, 1], 40)

    def nearest_is_wrong(images):
        D = squared(images)
        np.fill_diagonal(D, np.inf)
        return np.mean(y[D.argmin(axis=1)] != y)

    assert nearest_is_wrong(MCML(shrinkage=0).fit_transform(X, y)) > 0.5
    model = KernelMCML("poly", kernel_params={"degree": 2}, n_components=1)
    assert nearest_is_wrong(model.fit_transform(X, y)) == 0


# -- kernels -------------------------------------------------------------------------------------


@each_kernel
def test_a_precomputed_kernel_is_the_kernel(kernel, overlapping):
    X, y = overlapping
    named = fitted(kernel, X, y, tol=1e-6)
    model = KernelMCML("precomputed", tol=1e-6).fit(matrix(kernel, X), y)
    assert model.X_fit_ is None
    assert model.objective_ == pytest.approx(named.objective_, rel=1e-5)
    new = X[:10] + 0.1
    found, expected = (
        squared(model.transform(matrix(kernel, new, X))),
        squared(named.transform(new)),
    )
    np.testing.assert_allclose(found, expected, atol=1e-2 * expected.max())


def test_a_function_is_the_kernel(overlapping, tmp_path):
    X, y = overlapping

    def kernel(a, b, width=1.0):
        return np.exp(-np.sum((a - b) ** 2) / width)

    model = KernelMCML(kernel, kernel_params={"width": 10.0}, tol=1e-8).fit(X[::2], y[::2])
    named = KernelMCML("rbf", 0.1, tol=1e-8).fit(X[::2], y[::2])
    assert model.gamma_ is None
    np.testing.assert_allclose(squared(model.transform(X)), squared(named.transform(X)), atol=1e-6)
    with pytest.raises(ModelFileError, match=r"^kernel cannot be saved: .* found a function"):
        nearfar.save(model, tmp_path / "model.nearfar")


@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_units_do_not_matter(scale, overlapping):
    X, y = overlapping
    model, other = KernelMCML().fit(X, y), KernelMCML().fit(scale * X, y)
    assert other.objective_ == pytest.approx(model.objective_, rel=1e-6)
    np.testing.assert_allclose(
        squared(other.transform(scale * X)), squared(model.transform(X)), rtol=1e-3, atol=1e-4
    )


def test_the_order_of_the_rows_does_not_matter(overlapping):
    X, y = overlapping
    order = np.random.default_rng(3).permutation(60)
    model = KernelMCML(gamma=0.1, tol=1e-6).fit(X, y)  # the order says which rows are left out
    other = KernelMCML(gamma=0.1, tol=1e-6).fit(X[order], y[order])
    assert other.objective_ == pytest.approx(model.objective_, rel=1e-5)
    found, expected = squared(other.transform(X)), squared(model.transform(X))
    np.testing.assert_allclose(found, expected, atol=1e-2 * expected.max())


# -- limits --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("limit", "value"), [("max_iter", 3), ("max_seconds", 1e-9)])
def test_limits_are_warned_of(limit, value, overlapping):
    with pytest.warns(ConvergenceWarning, match=rf"KernelMCML stopped before tol=.*{limit}"):
        model = KernelMCML(tol=1e-10, **{limit: value}).fit(*overlapping)
    assert model.status_ == limit
    assert model.n_iter_ == len(model.history_) <= 3
    assert model.duality_gap_ > 1e-10


def test_a_checkpoint_continues(overlapping, tmp_path):
    X, y = overlapping
    path = tmp_path / "run.npz"
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        first = KernelMCML(max_iter=4, checkpoint=path).fit(X, y)
    model = KernelMCML(checkpoint=path).fit(X, y)
    assert [record["n_iter"] for record in model.history_] == list(range(1, model.n_iter_ + 1))
    objectives = [[record["objective"] for record in fit.history_[:4]] for fit in (model, first)]
    assert objectives[0] == objectives[1]
    assert model.status_ == "converged"
    assert not path.exists()
    assert model.objective_ == pytest.approx(KernelMCML().fit(X, y).objective_, rel=1e-3)


@needs_callbacks
def test_callbacks_see_a_usable_map_and_may_interrupt(overlapping):
    X, y = overlapping
    recorder = interrupt_at(4)
    with pytest.warns(ConvergenceWarning, match="KernelMCML was interrupted; the best map so far"):
        model = KernelMCML().set_callbacks(recorder).fit(X, y)
    assert (model.status_, model.n_iter_) == ("interrupted", 4)
    assert np.isfinite(recorder.models[2].transform(X)).all()
    assert model.transform(X).shape[0] == 60


# -- what is refused, and what is warned of --------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"kernel": "gaussian"}, r"kernel must be one of 'linear', .* or a function of two points"),
        ({"gamma": 0}, "gamma must be a number"),
        ({"kernel": "linear", "gamma": 1.0}, "kernel='linear' takes no gamma; got gamma=1"),
        ({"kernel_params": {"degree": 2}}, "kernel='rbf' may hold nothing; got 'degree'"),
        ({"rank": 0}, "rank must be an integer of at least 1; got 0"),
        ({"rank": 1.0}, "rank, if it is not an integer, must be a number between 0 and 1; got 1.0"),
        ({"shrinkage": -1}, "shrinkage must be a number from 0 to below 1, or 'auto'; got -1"),
        ({"shrinkage": None}, "shrinkage must be a number"),
        ({"n_components": 61}, "n_components must be an integer from 1 to 60"),
        ({"n_components": 0}, "n_components must be an integer"),
        ({"reduce": "cut"}, "reduce must be one of 'learn', 'project'; got 'cut'"),
        ({"tol": -1}, "tol must be"),
        ({"max_iter": 0}, "max_iter must be"),
        ({"max_seconds": -1}, "max_seconds must be"),
    ],
    ids=str,
)
def test_parameters_out_of_range_are_an_error(parameters, message, overlapping):
    with pytest.raises(InvalidInputError, match=message):
        KernelMCML(**parameters).fit(*overlapping)


def test_labels_that_leave_nothing_to_learn_are_an_error(overlapping):
    X, _ = overlapping
    with pytest.raises(InvalidInputError, match=r"KernelMCML needs at least two classes; .* 'a'"):
        KernelMCML().fit(X, ["a"] * 60)
    with pytest.raises(InvalidInputError, match="every class has 1 member"):
        KernelMCML().fit(X[:10], np.arange(10))
    with pytest.raises(InvalidInputError, match="X has 60 rows and y has 59"):
        KernelMCML().fit(X, np.arange(59) % 2)


def test_a_class_of_one_chooses_nobody(overlapping, mcml_by_loops):
    X, y = (array[::2].copy() for array in overlapping)
    y[0] = 7
    with pytest.warns(DataWarning, match="class 7 has 1 member"):
        model = fitted("rbf", X, y, trace_weight=0.6)
    K = matrix("rbf", X)
    expected = mcml_by_loops(K, y, 0.6 * K).objective(model.get_kernel_weights())
    assert model.objective_ == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize("kernel", ["rbf", "linear", "poly"])
def test_equal_points_are_warned_of(kernel, overlapping):
    """Each chooses one of 59 others with equal chances, and should one of 19."""
    _, y = overlapping
    with pytest.warns(DataWarning, match="all points are equal, .* Check X"):
        model = KernelMCML(kernel).fit(np.full((60, 2), 7.0), y)
    assert model.objective_ == pytest.approx(60 * np.log(59 / 19))
    assert (model.status_, model.duality_gap_, model.n_iter_) == ("converged", 0, 0)
    assert model.transform(np.ones((4, 2))).shape == (4, 1)


def test_equal_points_of_different_classes_stay_together(overlapping):
    X, y = (array.copy() for array in overlapping)
    X[0] = X[25]
    with pytest.warns(DataWarning, match="^1 pairs of equal points have different labels"):
        model = KernelMCML().fit(X, y)
    assert model.status_ == "converged"
    assert model.get_metric()(X[0], X[25]) == 0


def test_matrices_that_are_no_kernel_matrices_are_refused(overlapping):
    X, y = overlapping
    K = matrix("rbf", X)
    with pytest.raises(InvalidInputError, match=r"\(n_samples, n_samples\); got \(60, 59\)"):
        KernelMCML("precomputed").fit(K[:, 1:], y)
    with pytest.raises(InvalidInputError, match=r"must be symmetric"):
        KernelMCML("precomputed").fit(K + np.eye(60, k=1) * 0.5, y)
    with pytest.raises(InvalidInputError, match="must have no negative eigenvalue; its smallest"):
        KernelMCML("precomputed").fit(K - 0.5 * np.eye(60), y)


def test_extreme_scales_are_an_error(overlapping):
    X, y = overlapping
    with pytest.raises(InvalidInputError, match="its squares leave the range of float64"):
        KernelMCML().fit(1e150 * X, y)


# -- scikit-learn, tensors, files ------------------------------------------------------------------


# It rounds the data to whole numbers, and a rounded kernel matrix is none.
ROUNDED = {"check_estimators_dtypes": "needs a kernel matrix"}


@pytest.mark.filterwarnings("ignore::nearfar.errors.NearfarWarning")
@parametrize_with_checks([KernelMCML("precomputed")], expected_failed_checks=lambda _: ROUNDED)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_cross_validation_slices_a_precomputed_kernel(iris):
    X, y = iris
    pipeline = make_pipeline(KernelMCML("precomputed"), KNeighborsClassifier(3))
    grid = {"kernelmcml__shrinkage": [0.3, 0.9]}
    search = GridSearchCV(pipeline, grid, cv=3, error_score="raise")
    search.fit(pairwise_kernels(X, metric="rbf", gamma=0.25), y)
    best = search.best_params_["kernelmcml__shrinkage"]
    named = make_pipeline(KernelMCML("rbf", 0.25, shrinkage=best), KNeighborsClassifier(3))
    assert search.best_score_ == pytest.approx(cross_val_score(named, X, y, cv=3).mean(), abs=0.01)
    assert search.best_score_ > 0.9


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_float32_in_float32_out(kernel, overlapping):
    X, y = overlapping
    single = X.astype(np.float32)
    model, other = (
        KernelMCML(kernel, tol=1e-5).fit(single, y),
        KernelMCML(kernel, tol=1e-5).fit(X, y),
    )
    images = model.transform(single)
    assert images.dtype == model.X_fit_.dtype == np.float32
    assert model.dual_coef_.dtype == np.float64
    assert model.objective_ == pytest.approx(other.objective_, rel=1e-4)
    expected = squared(other.transform(X))
    np.testing.assert_allclose(squared(images), expected, atol=1e-2 * expected.max())


@pytest.mark.parametrize("kernel", ["rbf", "poly", "precomputed"])
def test_model_files(kernel, overlapping, tmp_path):
    X, y = overlapping
    data = matrix("rbf", X) if kernel == "precomputed" else X
    model = KernelMCML(kernel).fit(data, y)
    nearfar.save(model, tmp_path / "model.nearfar")
    twin = nearfar.load(tmp_path / "model.nearfar")
    assert twin.get_params() == model.get_params()
    assert set(vars(twin)) == set(vars(model))
    np.testing.assert_array_equal(twin.transform(data), model.transform(data))


DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.mark.torch
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kernel", [*KERNELS, "precomputed"])
def test_tensors(kernel, device, overlapping, torch):
    X, y = overlapping
    options = KERNELS[kernel][0] if kernel in KERNELS else {}
    data = matrix("rbf", X) if kernel == "precomputed" else X
    tensor = torch.tensor(data, device=device)
    model = KernelMCML(kernel, tol=1e-5, **options).fit(tensor, y)
    expected = KernelMCML(kernel, tol=1e-5, **options).fit(data, y)
    images = model.transform(tensor)
    assert isinstance(images, torch.Tensor)
    assert images.device.type == device
    assert model.objective_ == pytest.approx(expected.objective_, rel=1e-5)
    assert model.duality_gap_ <= 1e-5
    D = squared(expected.transform(data))
    np.testing.assert_allclose(squared(images.cpu().numpy()), D, atol=1e-2 * D.max())
    pairs = torch.stack([tensor[:20], tensor[20:40]], dim=1)
    np.testing.assert_allclose(
        model.pair_distance(pairs).cpu() ** 2,
        D[np.arange(20), np.arange(20, 40)],
        atol=1e-2 * D.max(),
    )
    assert model.transform(tensor.float()).dtype == torch.float32


@pytest.mark.torch
def test_tensors_and_arrays_do_not_mix(overlapping, torch):
    X, y = overlapping
    with pytest.raises(InvalidInputError, match="KernelMCML was fitted on NumPy and X is on torch"):
        KernelMCML().fit(X, y).transform(torch.tensor(X))
    with pytest.raises(InvalidInputError, match=r"works on NumPy arrays; .*kernel='precomputed'"):
        KernelMCML(np.dot).fit(torch.tensor(X), y)
