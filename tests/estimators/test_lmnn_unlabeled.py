"""LMNN with unlabelled rows: y = -1 with ``unlabeled_weight``."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.metrics import pairwise_distances
from sklearn.neighbors import KNeighborsClassifier

import nearfar
from nearfar import LMNN, EnergyClassifier, NearestNeighborClassifier
from nearfar.errors import DataWarning, InvalidInputError


@pytest.fixture(scope="module")
def half_labelled(iris):
    """Iris with six labels a class, and -1 for the other rows."""
    X, y = iris
    given = np.full(len(y), -1)
    for c in range(3):
        rows = np.flatnonzero(y == c)[::9][:6]
        given[rows] = c
    return X, given


@pytest.fixture(scope="module")
def fitted(half_labelled):
    return LMNN(unlabeled_weight=0.5).fit(*half_labelled)


def test_minus_one_is_a_class_by_default(iris):
    X, y = iris
    two = np.where(y == 0, 1, -1)
    lmnn = LMNN().fit(X, two)
    assert lmnn.classes_.tolist() == [-1, 1]
    assert lmnn.transduction_ is None


def test_the_program_is_that_of_the_spread_labels_and_their_weights(half_labelled, fitted):
    """The labels and weights that it reports give the same fit without unlabelled rows."""
    X, given = half_labelled
    labels, weights = fitted.transduction_, fitted.proof_["sample_weight"]
    known = given != -1
    assert fitted.classes_.tolist() == [0, 1, 2]
    np.testing.assert_array_equal(labels[known], given[known])
    np.testing.assert_array_equal(weights[known], 1)
    assert 0 <= weights[~known].min() < weights[~known].max() <= 0.5
    same = LMNN().fit(X, labels, sample_weight=weights)
    np.testing.assert_array_equal(same.components_, fitted.components_)
    assert same.objective_ == fitted.objective_


def test_objective_and_gap_by_their_definitions(half_labelled):
    """From the labels, the weights and the dual point alone, without shrinkage.

    With masses m of mean 1, targets j of i and impostors l the objective is
    0.5 Σ m_i D(i, j) + 0.5 Σ m_i m_l [1 + D(i, j) - D(i, l)]₊, and α of the proof bounds it by
    0.5 Σ m_i m_l α if Σ_e m_i C_e − Σ m_i m_l α (C_il − C_ij) has no negative eigenvalue.
    """
    X, given = half_labelled
    lmnn = LMNN(unlabeled_weight=0.5, shrinkage=0).fit(X, given)
    m, y = lmnn.proof_["sample_weight"], lmnn.transduction_
    assert (m > 0).all()
    m = m / m.mean()
    D = pairwise_distances(lmnn.transform(X)) ** 2
    targets = lmnn.proof_["targets"]
    near = np.take_along_axis(D, targets, axis=1)
    slack = (1 + near[:, :, None] - D[:, None, :]).clip(0) * m[:, None, None] * m
    push = np.where((y[:, None] == y)[:, None, :], 0, slack).sum()
    objective = 0.5 * (m[:, None] * near).sum() + 0.5 * push
    assert objective == pytest.approx(lmnn.objective_)

    (i, j, far), alpha = lmnn.proof_["triplets"].T, lmnn.proof_["weights"]
    assert (y[i] == y[j]).all()
    assert (y[i] != y[far]).all()
    assert 0 <= alpha.min() <= alpha.max() <= 1
    v = m[i] * m[far] * alpha

    def scatter(a, b, w):
        steps = X[a] - X[b]
        return steps.T @ (w[:, None] * steps)

    heads = np.repeat(np.arange(len(X)), targets.shape[1])
    P = scatter(heads, targets.ravel(), m[heads])
    S = scatter(i, far, v) - scatter(i, j, v)
    assert np.linalg.eigvalsh(P - S).min() >= -1e-9 * np.linalg.eigvalsh(P).max()
    gap = (objective - 0.5 * v.sum()) / max(objective, 1)
    assert -1e-9 <= gap <= 1.01 * lmnn.duality_gap_ + 1e-9
    assert lmnn.duality_gap_ <= 1e-3


def test_verify(half_labelled, fitted):
    X, given = half_labelled
    assert nearfar.verify(fitted, X, given).proved
    other = given.copy()
    other[np.flatnonzero(given == 0)[0]] = 2
    found = nearfar.verify(fitted, X, other)
    assert "the labels are not those of the fit: row 0 has 2, and was learned as 0" in str(found)
    assert not found.proved
    with pytest.raises(InvalidInputError, match="one for each of the 150 rows; got shape"):
        nearfar.verify(fitted, X, given[:10])


def test_a_model_file_keeps_the_labels(half_labelled, fitted, tmp_path):
    X, given = half_labelled
    path = tmp_path / "m.nearfar"
    nearfar.save(fitted, path)
    np.testing.assert_array_equal(nearfar.load(path).transduction_, fitted.transduction_)
    assert nearfar.verify(path, X, given).proved


def test_weights_and_classes(half_labelled):
    """A row of weight 0 spreads nothing, and class weights are those of the spread labels."""
    X, given = half_labelled
    weights = np.ones(len(X))
    weights[given == 2] = 0
    lmnn = LMNN(unlabeled_weight=1, class_weight="balanced").fit(X, given, sample_weight=weights)
    assert lmnn.classes_.tolist() == [0, 1]
    assert set(lmnn.transduction_[given == -1]) == {0, 1}
    assert nearfar.verify(lmnn, X, given).proved


def test_a_row_that_no_label_reaches_is_left_out(rng):
    X = np.r_[rng.standard_normal((40, 2)), rng.standard_normal((20, 2)) + 1e3]
    given = np.r_[np.repeat([0, 1], 5), np.full(50, -1)]
    X[:40, 0] += 8 * (np.arange(40) % 2)
    X[:10, 0] += 8 * (given[:10] - np.arange(10) % 2)
    lmnn = LMNN(unlabeled_weight=1).fit(X, given)
    assert (lmnn.transduction_[40:] == -1).all()
    assert (lmnn.proof_["sample_weight"][40:] == 0).all()
    assert lmnn.classes_.tolist() == [0, 1]


def test_rows_that_would_hurt_are_not_learned_from():
    """Twelve classes of three clusters: dense rows have other near classes than labelled ones."""
    shape = {"n_samples": 700, "n_features": 8, "n_informative": 8, "n_redundant": 0}
    classes = {"n_classes": 12, "n_clusters_per_class": 3, "class_sep": 2}
    X, y = make_classification(**shape, **classes, random_state=1)
    given = np.full(len(y), -1)
    for c in range(12):
        given[np.flatnonzero(y == c)[:10]] = c
    known = given >= 0
    with pytest.warns(
        DataWarning, match=f"{np.sum(~known)} rows without a label are not"
    ) as warned:
        lmnn = LMNN(unlabeled_weight=1).fit(X, given)
    labelled = LMNN().fit(X[known], given[known])
    np.testing.assert_array_equal(lmnn.components_, labelled.components_)
    np.testing.assert_array_equal(lmnn.proof_["sample_weight"], known)
    assert nearfar.verify(lmnn, X, given).proved

    spread = lmnn.transduction_[~known]
    points, new = labelled.transform(X[known]), labelled.transform(X[~known])
    votes = KNeighborsClassifier(3).fit(points, given[known])
    nearest = given[known][votes.kneighbors(new)[1]]
    # Of three different classes the nearest decides, otherwise the majority.
    two = (nearest[:, 1] == nearest[:, 2]) & (nearest[:, 0] != nearest[:, 1])
    contradicted = np.mean(np.where(two, nearest[:, 1], nearest[:, 0]) != spread)
    assert f"instead of {contradicted:.1%}" in str(warned[0].message)


def test_without_unlabelled_rows_it_changes_nothing(iris):
    lmnn = LMNN(unlabeled_weight=1).fit(*iris)
    np.testing.assert_array_equal(lmnn.components_, LMNN().fit(*iris).components_)
    np.testing.assert_array_equal(lmnn.transduction_, iris[1])
    lmnn.set_params(unlabeled_weight=None).fit(*iris)
    assert lmnn.transduction_ is None


def test_a_checkpoint_continues(half_labelled, fitted, tmp_path):
    X, given = half_labelled
    path = tmp_path / "state"
    short = LMNN(unlabeled_weight=0.5, max_iter=3, checkpoint=path)
    with pytest.warns(nearfar.errors.ConvergenceWarning, match="max_iter"):
        short.fit(X, given)
    assert path.exists()
    lmnn = clone(short).set_params(max_iter=1000).fit(X, given)
    assert lmnn.status_ == "converged"
    assert not path.exists()
    assert lmnn.objective_ == pytest.approx(fitted.objective_, rel=2e-3)


def test_few_rows_and_passes(half_labelled):
    X, given = half_labelled
    lmnn = LMNN(n_components=2, n_passes=2, unlabeled_weight=1).fit(X.astype(np.float32), given)
    assert lmnn.components_.shape == (2, 4)
    assert lmnn.components_.dtype == np.float32


def test_sparse_rows(half_labelled):
    """As for dense rows up to the descent, which is not convex."""
    X, given = half_labelled
    lmnn = LMNN(n_components=2, unlabeled_weight=1).fit(sparse.csr_array(X), given)
    assert lmnn.classes_.tolist() == [0, 1, 2]
    np.testing.assert_array_equal(lmnn.transduction_[given != -1], given[given != -1])
    assert set(lmnn.transduction_) == {0, 1, 2}


def test_an_interruption_while_labels_are_learned_from_ends_the_fit(half_labelled, monkeypatch):
    X, given = half_labelled
    monkeypatch.setattr(
        "nearfar.estimators._unlabeled.spread_labels", lambda *_: pytest.fail("went on")
    )
    fit = LMNN.fit

    def interrupted(self, *args, **kwargs):
        if self.unlabeled_weight is not None:
            return fit(self, *args, **kwargs)
        self.status_ = "interrupted"
        return self

    monkeypatch.setattr(LMNN, "fit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        LMNN(unlabeled_weight=1).fit(X, given)


@pytest.mark.parametrize(
    ("params", "y", "message"),
    [
        ({}, lambda y: np.full(len(y), -1), "needs labelled rows; all 150 labels are -1"),
        ({}, lambda y: y.astype(str), "needs labels that are numbers, with -1 for rows without"),
        ({}, lambda y: np.where(y == 0, 0, -1), "at least two classes; y has 1 class, 0"),
        ({"unlabeled_weight": 0}, None, "unlabeled_weight must be a number above 0; got 0"),
        ({"unlabeled_weight": "auto"}, None, "unlabeled_weight must be a number above 0"),
        ({"unlabeled_weight": np.inf}, None, "unlabeled_weight must be finite"),
        ({"validation_fraction": 0.3}, None, "validation_fraction cannot be used with unlabeled"),
    ],
)
def test_errors(half_labelled, params, y, message):
    X, given = half_labelled
    labels = given if y is None else y(given)
    with pytest.raises(InvalidInputError, match=message):
        LMNN(**{"unlabeled_weight": 1} | params).fit(X, labels)


def test_given_targets_and_triplets_are_refused(half_labelled):
    X, given = half_labelled
    lmnn = LMNN(unlabeled_weight=1)
    with pytest.raises(InvalidInputError, match="target_neighbors cannot be used with unlabeled"):
        lmnn.fit(X, given, target_neighbors=np.zeros((len(X), 1), dtype=int))
    with pytest.raises(InvalidInputError, match="unlabeled_weight=1 needs points with labels"):
        lmnn.fit(X[:30].reshape(10, 3, 4))


@pytest.mark.parametrize("classifier", [EnergyClassifier, NearestNeighborClassifier])
def test_a_classifier_needs_all_labels(half_labelled, fitted, classifier):
    X, given = half_labelled
    with pytest.raises(
        InvalidInputError, match="needs a label for every row, but its metric has an"
    ):
        classifier(metric=LMNN(unlabeled_weight=1)).fit(X, given)
    known = given != -1
    model = classifier(metric=fitted).fit(X[known], given[known])
    assert model.classes_.tolist() == [0, 1, 2]


@pytest.mark.torch
def test_tensors(half_labelled, fitted):
    torch = pytest.importorskip("torch")
    X, given = half_labelled
    lmnn = LMNN(unlabeled_weight=0.5).fit(torch.tensor(X), torch.tensor(given))
    np.testing.assert_array_equal(lmnn.transduction_, fitted.transduction_)
    assert lmnn.objective_ == pytest.approx(fitted.objective_, rel=2e-3)
