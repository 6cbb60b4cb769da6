from __future__ import annotations

import numpy as np
import pytest
from matplotlib.colors import to_hex
from sklearn.metrics import roc_auc_score

import nearfar
from nearfar.errors import InvalidInputError
from nearfar.evaluation import equal_error_rate
from nearfar.plots import DistancesDisplay
from nearfar.plots._canvas import FAR, NEAR


def test_distances_and_curves_of_labelled_points(lmnn, digits):
    X, y = digits
    display = DistancesDisplay.from_estimator(lmnn, X, y, n_pairs=200, random_state=3)
    pairs, kinds = nearfar.make_pairs(X, y, 200, random_state=3)
    dense = np.asarray(pairs)
    Z = dense @ lmnn.components_.T
    for name, points in (("Euclidean distance", dense), ("LMNN", Z)):
        expected = np.linalg.norm(points[:, 0] - points[:, 1], axis=1)
        np.testing.assert_allclose(display.distances[name], expected)
        curve = display.curves[name]
        assert curve.area == pytest.approx(roc_auc_score(kinds, -expected))
        assert curve.equal_error_rate == equal_error_rate(kinds, expected)
    np.testing.assert_array_equal(display.near, kinds > 0)


def test_each_distribution_sums_to_a_hundred_per_cent(rng):
    """Near pairs have distances below 1, far ones from 1 to 2; there are 40 bars up to 2."""
    y = np.repeat([1, -1], [30, 70])
    lengths = rng.uniform(size=100) + (y < 0)
    display = DistancesDisplay.from_predictions(y, np.append(lengths[:-1], 2.0))
    assert [axes.get_title() for axes in display.axes_] == ["distance", "ROC"]
    filled = [patch for patch in display.axes_[0].patches if patch.get_fill()]
    outlines = {to_hex(patch.get_facecolor()): patch.get_xy() for patch in filled}
    for colour, half in ((NEAR, slice(0, 20)), (FAR, slice(20, 40))):
        bars = outlines[colour.lower()][1:80:2, 1]  # a step up or down after each bar
        assert bars[half].sum() == pytest.approx(100)
        assert bars.sum() == pytest.approx(100)


def test_the_threshold_of_a_classifier_is_drawn(iris):
    pairs, kinds = nearfar.make_pairs(*iris, 100, random_state=0)
    model = nearfar.PairClassifier(nearfar.MMC(tol=0.1)).fit(pairs, kinds)
    display = DistancesDisplay.from_estimator(model, pairs, kinds, baseline=False)
    assert list(display.distances) == ["PairClassifier"]
    (line,) = display.axes_[0].get_lines()
    assert line.get_xdata()[0] == model.threshold_
    expected = np.linalg.norm(
        (np.asarray(pairs)[:, 0] - np.asarray(pairs)[:, 1]) @ model.metric_.components_.T, axis=1
    )
    np.testing.assert_allclose(display.distances["PairClassifier"], expected)


def test_foreign_transformers_take_dense_pairs(iris):
    from sklearn.decomposition import PCA

    pairs, kinds = nearfar.make_pairs(*iris, 50, random_state=0)
    pca = PCA(4).fit(iris[0])  # a rotation
    display = DistancesDisplay.from_estimator(pca, np.asarray(pairs), kinds)
    np.testing.assert_allclose(*display.distances.values())


def test_places_of_an_embedding_are_compared(mvu, roll):
    y = np.arange(100) // 50
    display = DistancesDisplay.from_estimator(mvu, y=y, n_pairs=100)
    pairs, _ = nearfar.make_pairs(roll, y, 100, random_state=0)
    heads, tails = pairs.indices.T
    Y = mvu.embedding_
    expected = np.linalg.norm(Y[heads] - Y[tails], axis=1)
    np.testing.assert_allclose(display.distances["MVU"], expected)
    before = np.linalg.norm(roll[heads] - roll[tails], axis=1)
    np.testing.assert_allclose(display.distances["Euclidean distance"], before)


def test_what_is_missing_is_asked_for(lmnn, digits):
    with pytest.raises(InvalidInputError, match="Give class labels of points, or"):
        DistancesDisplay.from_estimator(lmnn, digits[0])
    with pytest.raises(InvalidInputError, match=r"LMNN keeps no points\. Give them as X"):
        DistancesDisplay.from_estimator(lmnn, y=digits[1])
    with pytest.raises(InvalidInputError, match="near and far pairs are both needed"):
        DistancesDisplay.from_predictions([1, 1], [0.0, 1.0])
