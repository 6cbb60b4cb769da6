"""Weights of points and of pairs, in the learners from pairs and chunklets, and their proofs."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_wine

import nearfar
from nearfar import GMML, MMC, RCA, DMLEig, Tuples, make_pairs
from nearfar.errors import DataWarning, InvalidInputError

TIGHT = {"tol": 1e-7}
LEARNERS = [
    MMC(**TIGHT),
    MMC(shrinkage=0, **TIGHT),
    MMC(diagonal=True, **TIGHT),
    DMLEig(**TIGHT),
    DMLEig(shrinkage=0.2, **TIGHT),
    GMML(),
    GMML(shrinkage=0),
    RCA(),
    RCA(shrinkage=0),
    RCA(n_components=3, shrinkage=0.2),
    RCA(pca_components=4, shrinkage=0.2),
]
each = pytest.mark.parametrize("learner", LEARNERS, ids=str)
each_of_pairs = pytest.mark.parametrize(
    "learner", [each for each in LEARNERS if not isinstance(each, RCA)], ids=str
)


@pytest.fixture(scope="module")
def wine():
    X, y = load_wine(return_X_y=True)
    return X[::3], y[::3]


@each
def test_integer_weights_are_repeated_points(learner, wine):
    (X, y), counts = wine, np.random.default_rng(0).integers(0, 4, 60)
    weighted = clone(learner).fit(X, y, sample_weight=counts)
    repeated = clone(learner).fit(np.repeat(X, counts, axis=0), np.repeat(y, counts))
    assert weighted.shrinkage_ == repeated.shrinkage_
    assert weighted.objective_ == pytest.approx(repeated.objective_, rel=1e-6)
    some = np.stack([X[:30], X[30:]], axis=1)
    found, expected = weighted.pair_distance(some), repeated.pair_distance(some)
    np.testing.assert_allclose(found, expected, rtol=1e-3)


@each_of_pairs
@pytest.mark.parametrize("dense", [False, True])
def test_integer_weights_are_repeated_pairs(learner, dense, wine):
    pairs, kinds = make_pairs(*wine, 60, random_state=0)
    counts = np.random.default_rng(1).integers(0, 3, 120)
    given = (
        pairs if dense else Tuples(np.asarray(pairs).reshape(-1, 13), np.arange(240).reshape(-1, 2))
    )
    weighted = clone(learner).fit(given, kinds, sample_weight=counts)
    again = np.repeat(np.asarray(pairs), counts, axis=0)
    repeated = clone(learner).fit(again, np.repeat(kinds, counts))
    assert weighted.objective_ == pytest.approx(repeated.objective_, rel=1e-6)
    found, expected = weighted.pair_distance(pairs), repeated.pair_distance(pairs)
    np.testing.assert_allclose(found, expected, rtol=1e-3)


@pytest.mark.parametrize(
    "learner", [MMC(tol=1e-5), MMC(shrinkage=0.1), DMLEig(), DMLEig(shrinkage=0)]
)
def test_weighted_fits_are_proved_from_labels_and_pairs(learner, wine):
    rng = np.random.default_rng(2)
    pairs, kinds = make_pairs(*wine, 60, random_state=0)
    triplets = Tuples(wine[0], [[0, 1, 50], [3, 4, 55], [21, 22, 7], [24, 25, 40], [2, 9, 33]])
    cases = [(*wine, 60), (pairs, kinds, 120)]
    cases += [(triplets, None, 5)] if learner.shrinkage != 0 else []
    for X, y, count in cases:
        weights = rng.uniform(0, 2, count) * (rng.uniform(size=count) > 0.2)
        model = clone(learner).fit(X, y, sample_weight=weights)
        verdict = nearfar.verify(model, X, y)
        assert str(verdict).startswith("proved"), str(verdict)
        np.testing.assert_array_equal(model.proof_["sample_weight"], weights)
        model.proof_["sample_weight"] = weights[::-1]
        assert not str(nearfar.verify(model, X, y)).startswith("proved")


@each
def test_balanced_classes_count_alike(learner, wine):
    """As classes whose points are repeated until they are of one size."""
    X, y = wine[0][:50], np.repeat([0, 1, 2], [10, 20, 20])
    balanced = clone(learner).set_params(class_weight="balanced").fit(X, y)
    times = {0: 2.0, 1: 1.0, 2: 1.0}
    named = clone(learner).set_params(class_weight=times, shrinkage=balanced.shrinkage_)
    W, scale = (getattr(balanced, name, None) for name in ("prior_components_", "feature_scale_"))
    W = np.diag(np.ones(X.shape[1]) if scale is None else scale) if W is None else W
    named.fit(X @ W.T, y)
    some = np.stack([X[:25], X[25:]], axis=1)
    ratio = balanced.pair_distance(some) / named.pair_distance(some @ W.T)
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-3)


def test_rows_without_weight_do_not_matter(wine):
    X, y = wine
    weights = np.ones(60)
    weights[::7] = 0
    kept, wild = weights > 0, X.copy()
    wild[::7] *= 100
    for learner in (MMC(shrinkage=0.2), GMML(), RCA()):
        model = clone(learner).fit(wild, y, sample_weight=weights)
        expected = clone(learner).fit(X[kept], y[kept])
        np.testing.assert_allclose(
            model.get_mahalanobis_matrix(), expected.get_mahalanobis_matrix(), rtol=1e-6, atol=1e-12
        )


def test_a_chunklet_of_copies_counts(wine):
    """One row of weight 3 is a chunklet of three copies: it adds to N and to no deviation."""
    X, ids = wine[0][:7], [0, 0, 0, 1, 1, 2, -1]
    one = RCA(shrinkage=0.5).fit(X, ids, sample_weight=[1, 1, 1, 1, 1, 3, 1])
    again = RCA(shrinkage=0.5).fit(X[[0, 1, 2, 3, 4, 5, 5, 5, 6]], [0, 0, 0, 1, 1, 2, 2, 2, -1])
    assert one.n_chunklets_ == again.n_chunklets_ == 3
    M = again.get_mahalanobis_matrix()
    np.testing.assert_allclose(one.get_mahalanobis_matrix(), M, atol=1e-9 * M.max())
    assert RCA(shrinkage=0.5).fit(X, ids).n_chunklets_ == 2


@each
def test_bad_weights(learner, wine):
    X, y = wine
    for weights, message in [
        (np.ones(59), r"a weight for each of the 60 rows; got sample_weight of shape \(59,\)"),
        (-np.ones(60), "needs finite weights of at least 0; sample_weight is -1 in row 0"),
        (np.zeros(60), "needs a row of positive weight; all 60 weights are zero"),
    ]:
        with pytest.raises(InvalidInputError, match=message):
            clone(learner).fit(X, y, sample_weight=weights)
    pairs, kinds = make_pairs(X, y, 30, random_state=0)
    with pytest.raises(InvalidInputError, match="class_weight needs points with class labels"):
        clone(learner).set_params(class_weight="balanced").fit(pairs, kinds)


def test_weights_must_leave_pairs_of_both_kinds(wine):
    X, y = wine
    with pytest.raises(InvalidInputError, match="Give weight to two points of a class"):
        MMC().fit(X, y, sample_weight=(y == 0).astype(float))


@pytest.mark.parametrize("learner", [MMC, DMLEig])
def test_a_class_without_weight_is_as_if_it_were_not_there(learner, rng):
    X, y = rng.normal(size=(40, 3)), np.append(np.arange(39) % 3, 3)
    weights = np.where(y > 1, 0.0, 1.0 + y)
    kept = np.flatnonzero(weights)
    with pytest.warns(DataWarning, match="class 3 has 1 member"):
        found = learner(shrinkage=0.2, tol=1e-6).fit(X, y, sample_weight=weights)
    expected = learner(shrinkage=0.2, tol=1e-6).fit(X[kept], y[kept], sample_weight=weights[kept])
    assert found.objective_ == pytest.approx(expected.objective_, rel=1e-5)
