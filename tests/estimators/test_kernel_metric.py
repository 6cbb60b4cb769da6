"""KernelMetric against linear methods and scikit-learn, and the kernel that labels choose."""

import numpy as np
import pytest
from sklearn.datasets import load_wine
from sklearn.decomposition import PCA, KernelPCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LinearRegression
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.preprocessing import QuantileTransformer, StandardScaler

from nearfar import (
    RCA,
    KernelLMNN,
    KernelMCML,
    KernelMetric,
    KernelMMC,
    as_metric,
    load,
    make_pairs,
    save,
    verify,
)
from nearfar.errors import DataWarning, InvalidInputError, ModelFileError
from nearfar.estimators._kernel import Expansion, Kernel
from nearfar.problems.kernel_lmnn import KernelSpan

X, Y = load_wine(return_X_y=True)
X = StandardScaler().fit_transform(X)[::2]
Y = Y[::2]


def squares(Z):
    return np.sum((Z[:, None] - Z) ** 2, axis=2)


def test_without_a_learner_it_is_the_distance_of_the_feature_space():
    model = KernelMetric(gamma=0.1).fit(X)
    expected = 2 - 2 * np.exp(-0.1 * squares(X))
    np.testing.assert_allclose(squares(model.transform(X)), expected, atol=1e-9)


@pytest.mark.parametrize("whiten", [False, True])
def test_kernel_pca_is_that_of_scikit_learn(whiten):
    model = KernelMetric(PCA(3, whiten=whiten), gamma=0.1).fit(X[:60])
    theirs = KernelPCA(3, kernel="rbf", gamma=0.1).fit(X[:60])
    found, expected = model.transform(X), theirs.transform(X)
    if whiten:
        expected = expected / expected[:60].std(axis=0, ddof=1)
    np.testing.assert_allclose(squares(found), squares(expected), rtol=1e-6, atol=1e-8)
    assert model.dual_coef_.shape == (3, 60)


@pytest.mark.parametrize(
    "learner", [PCA(4, whiten=True), LinearDiscriminantAnalysis(), RCA(shrinkage=0)], ids=repr
)
def test_with_a_linear_kernel_it_is_the_linear_method(learner):
    model = KernelMetric(learner, "linear").fit(X, Y)
    linear = as_metric(learner.fit(X, Y))
    expected = squares(linear.transform(X))
    np.testing.assert_allclose(squares(model.transform(X)), expected, atol=1e-6 * expected.max())
    np.testing.assert_allclose(
        model.get_mahalanobis_matrix(), linear.get_mahalanobis_matrix(), atol=1e-6
    )


def test_kernel_lda_by_the_features_of_the_kernel_itself():
    """Of a polynomial of degree 2 in two features: LDA on the monomials, in their span."""
    points = X[:, :2]
    kernel = {"kernel_params": {"degree": 2, "coef0": 1.0}, "gamma": 1.0}
    model = KernelMetric(LinearDiscriminantAnalysis(), "poly", **kernel).fit(points, Y)
    a, b = points.T
    root = np.sqrt(2)
    monomials = np.column_stack([root * a, root * b, a * a, b * b, root * a * b])
    expected = squares(LinearDiscriminantAnalysis().fit(monomials, Y).transform(monomials))
    np.testing.assert_allclose(
        squares(model.transform(points)), expected, rtol=1e-5, atol=1e-6 * expected.max()
    )


def test_a_precomputed_kernel_and_fewer_rows():
    K = np.exp(-0.1 * squares(X))
    own = KernelMetric(RCA(), "precomputed", rank=8, n_components=2).fit(K, Y)
    named = KernelMetric(RCA(), gamma=0.1, rank=8, n_components=2).fit(X, Y)
    assert own.dual_coef_.shape == (2, len(X))
    np.testing.assert_allclose(squares(own.transform(K)), squares(named.transform(X)), rtol=1e-6)


def test_bad_learners():
    with pytest.raises(InvalidInputError, match=r"learner must be a transformer .*got LinearReg"):
        KernelMetric(LinearRegression()).fit(X, Y)
    with pytest.raises(InvalidInputError, match="linear up to a shift"):
        KernelMetric(QuantileTransformer(n_quantiles=20), rank=5).fit(X)


def test_equal_points():
    with pytest.warns(DataWarning, match="all points are equal"):
        model = KernelMetric(PCA()).fit(np.ones((5, 2)))
    assert not model.transform(np.ones((3, 2))).any()


def test_the_coefficients_of_a_map_are_computed_once(rng, monkeypatch):
    """A fit asks for those of the map that it returns several times, each time as another array;
    a map that differs in one entry has its own."""
    points = Expansion.of(
        Kernel.of("rbf", None, None), rng.normal(size=(12, 3)), np.arange(12), None
    )
    L = rng.normal(size=(4, len(points.span.values)))
    first = points.attributes(L)["dual_coef_"]
    asked, coefficients = [], KernelSpan.coefficients.fget
    counted = property(lambda span: asked.append(1) or coefficients(span))
    monkeypatch.setattr(KernelSpan, "coefficients", counted)
    np.testing.assert_array_equal(points.attributes(L.copy())["dual_coef_"], first)
    assert not asked
    L[0, 0] += 1
    changed = points.attributes(L.copy())["dual_coef_"]
    assert len(asked) == 1
    assert np.abs(changed - first).max() > 0


# -- the distance inside an RBF kernel, which labels choose ---------------------------------------

LEARNERS = [KernelLMNN, KernelMCML, KernelMMC]


@pytest.mark.parametrize("learner", LEARNERS)
def test_labels_choose_the_distance_inside_an_rbf_kernel(learner, wine):
    """It is the kernel of points Wx, with three tenths of the usual gamma."""
    X, y = wine
    model = learner(tol=1e-5).fit(X, y)
    W = model.kernel_components_
    spread = ((X - X.mean(axis=0)) @ W.T).var(axis=0).sum()
    assert model.gamma_ == pytest.approx(0.3 / spread, rel=1e-9)
    K = pairwise_kernels(X @ W.T, metric="rbf", gamma=model.gamma_)
    twin = learner("precomputed", shrinkage=model.shrinkage_, tol=1e-5).fit(K, y)
    assert twin.objective_ == pytest.approx(model.objective_, rel=1e-4)
    assert verify(model, X, y).proved
    model.kernel_components_ = 1.1 * W
    assert not verify(model, X, y).proved


@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize(
    "given", [{"gamma": 0.1}, {"shrinkage": 0.5}, {"kernel": "linear"}, {"kernel": "laplacian"}]
)
def test_what_is_given_is_the_kernel_of_the_inputs(learner, given, iris):
    assert learner(**given).fit(*iris).kernel_components_ is None


def test_pairs_choose_no_distance(iris):
    model = KernelMMC().fit(*make_pairs(*iris, 60, random_state=0))
    assert model.kernel_components_ is None


def test_a_file_without_the_distance_inside_loads_and_one_of_a_wrong_shape_does_not(wine, tmp_path):
    """Older files have none; a matrix that does not fit the features is refused."""
    X, y = wine
    model, path = KernelMCML(gamma=1e-3).fit(X, y), tmp_path / "model.nearfar"
    del model.kernel_components_
    save(model, path)
    np.testing.assert_array_equal(load(path).transform(X), model.transform(X))
    model.kernel_components_ = np.eye(12)
    save(model, path)
    with pytest.raises(ModelFileError, match="holds kernel_components_ of shape"):
        load(path)
