"""Labels made wrong on purpose, and dual weights summed by hand."""

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from nearfar import LMNN, RCA, MultiMetricLMNN, load, save
from nearfar.errors import InvalidInputError
from nearfar.evaluation import suspicious_labels


@pytest.fixture(scope="module")
def clouds():
    """Three clouds far apart; rows 5 and 51 have the label of another cloud."""
    rng = np.random.default_rng(3)
    truth = np.arange(90) % 3
    X = rng.normal(size=(90, 2)) + 12 * np.eye(3, 2)[truth]
    y = truth.copy()
    y[[5, 51]] = (truth[[5, 51]] + 1) % 3
    return X, y


def test_wrong_labels_come_first(clouds):
    """All ten neighbours of rows 5 and 51 have another label: score 1; others have at most 2."""
    X, y = clouds
    found = suspicious_labels(LMNN().fit(X, y), X, y)
    assert set(found.order[:2]) == {5, 51}
    np.testing.assert_array_equal(found.scores[[5, 51]], 1.0)
    np.testing.assert_array_equal(found.scores, (found.before + found.after) / 2)
    assert np.delete(found.scores, [5, 51]).max() <= 0.2
    assert sorted(found.order) == list(range(90))


def test_shares_are_of_the_neighbours_by_sorting_all_distances(clouds):
    X, y = clouds
    model = LMNN().fit(X, y)
    found = suspicious_labels(model, X, y, n_neighbors=4)
    for points, shares in ((X, found.before), (model.transform(X), found.after)):
        D = np.linalg.norm(points[:, None] - points[None], axis=2)
        np.fill_diagonal(D, np.inf)
        near = np.argsort(D, axis=1)[:, :4]
        np.testing.assert_array_equal(shares, (y[near] != y[:, None]).mean(axis=1))


def test_weights_are_sums_over_the_triplets_of_the_proof(clouds, tmp_path):
    X, y = clouds
    pipeline = make_pipeline(StandardScaler(), LMNN()).fit(X, y)
    save(pipeline, tmp_path / "m.nearfar")
    model = load(tmp_path / "m.nearfar")
    found = suspicious_labels(model, X, y)
    expected = np.zeros(90)
    proof = pipeline[-1].proof_
    for (point, _, impostor), weight in zip(proof["triplets"], proof["weights"], strict=True):
        expected[point] += weight
        expected[impostor] += weight
    np.testing.assert_allclose(found.weights, expected)
    assert set(np.argsort(-expected)[:2]) == {5, 51}
    Z = pipeline[0].transform(X)  # neighbours before learning are those of the scaled inputs
    np.testing.assert_array_equal(found.before, suspicious_labels(pipeline[-1], Z, y).before)


def test_ties_are_broken_by_weights(clouds):
    X, y = clouds
    found = suspicious_labels(LMNN().fit(X, y), X, y)
    keys = [(-found.scores[i], -found.weights[i]) for i in found.order]
    assert keys == sorted(keys)


def test_rows_held_out_for_validation_have_no_weight(clouds):
    X, y = clouds
    model = LMNN(validation_fraction=0.2, random_state=0).fit(X, y)
    held_out = np.setdiff1d(np.arange(90), model.proof_["rows"])
    weights = suspicious_labels(model, X, y).weights
    assert len(held_out) > 5
    assert not weights[held_out].any()
    assert weights.any()


def test_a_model_without_triplets_ranks_by_neighbours(clouds):
    X, y = clouds
    found = suspicious_labels(RCA().fit(X, y), X, y)
    assert found.weights is None
    assert set(found.order[:2]) == {5, 51}


def test_what_does_not_fit_is_refused(clouds):
    X, y = clouds
    model = LMNN().fit(X, y)
    for part in (slice(None, None, -1), slice(60)):
        with pytest.raises(InvalidInputError, match=r"the labels contradict its triplets\. Give"):
            suspicious_labels(model, X[part], y[part])
    with pytest.raises(InvalidInputError, match="X has 90 rows and y has 60"):
        suspicious_labels(model, X, y[:60])
    with pytest.raises(InvalidInputError, match="n_neighbors must be an integer of at least 1"):
        suspicious_labels(model, X, y, n_neighbors=0)
    several = MultiMetricLMNN(max_iter=2, tol=10.0).fit(X, y)
    with pytest.raises(InvalidInputError, match="MultiMetricLMNN has no transform"):
        suspicious_labels(several, X, y)
