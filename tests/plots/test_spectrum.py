from __future__ import annotations

import numpy as np
import pytest
from sklearn.decomposition import PCA

import nearfar
from nearfar.errors import InvalidInputError
from nearfar.plots import SpectrumDisplay


def test_shares_of_the_inputs_and_of_the_unfolding(mvu, roll):
    display = SpectrumDisplay.from_estimator(mvu)
    expected = PCA().fit(roll).explained_variance_ratio_
    np.testing.assert_allclose(display.spectra["PCA of the inputs"], expected)
    values = np.linalg.eigvalsh(mvu.kernel_)[::-1].clip(0, None)
    np.testing.assert_allclose(display.spectra["MVU"], values / values.sum(), atol=1e-10)


def test_shares_of_a_learned_metric_are_those_of_the_images(lmnn, digits):
    X, _ = digits
    display = SpectrumDisplay.from_estimator(lmnn, X)
    expected = PCA().fit(lmnn.transform(X)).explained_variance_ratio_
    np.testing.assert_allclose(display.spectra["LMNN"][: len(expected)], expected, atol=1e-12)


def test_more_features_than_points(rng):
    X = rng.normal(size=(10, 50))
    display = SpectrumDisplay.from_estimator(nearfar.LinearMetric().fit(X), X)
    first, second = display.spectra.values()
    np.testing.assert_allclose(first, second, atol=1e-12)
    np.testing.assert_allclose(first[:9], PCA().fit(X).explained_variance_ratio_[:9])


def test_an_embedding_of_distances_has_its_own_spectrum_only(roll):
    D = np.linalg.norm(roll[:, None] - roll[None], axis=2)
    display = SpectrumDisplay.from_estimator(nearfar.ClassicalMDS(metric="precomputed").fit(D))
    assert list(display.spectra) == ["ClassicalMDS"]


def test_bars_are_as_high_as_the_shares():
    display = SpectrumDisplay.from_predictions({"a": [6.0, 3.0, 1.0], "b": [1.0, 1.0]})
    heights = [patch.get_height() for patch in display.ax_.patches]
    np.testing.assert_allclose(heights, [60, 30, 10, 0, 50, 50, 0, 0])  # and one that is empty
    assert [text.get_text() for text in display.ax_.get_legend().get_texts()] == ["a", "b"]


def test_stacks_are_as_long_as_the_shares():
    display = SpectrumDisplay.from_predictions({"a": [6.0, 3.0, 1.0]}, kind="stacked")
    ends = [patch.get_x() + patch.get_width() for patch in display.ax_.patches]
    np.testing.assert_allclose(ends[:3], [60, 90, 100])
    assert [text.get_text() for text in display.ax_.texts] == ["60", "30", "10"]


def test_lines_are_sums():
    display = SpectrumDisplay.from_predictions([1.0, 6.0, 3.0], kind="cumulative", n_values=2)
    (line,) = display.ax_.get_lines()
    np.testing.assert_allclose(line.get_ydata(), [60, 90])


def test_negative_eigenvalues_count_as_none():
    display = SpectrumDisplay.from_predictions([3.0, 1.0, -4.0])
    np.testing.assert_allclose(display.spectra[""], [0.75, 0.25, 0.0])


@pytest.mark.parametrize("values", [[], [0.0, 0.0], [1.0, np.nan]], ids=["none", "zero", "nan"])
def test_eigenvalues_without_variance_are_refused(values):
    with pytest.raises(InvalidInputError, match="eigenvalues of a must be finite and one of them"):
        SpectrumDisplay.from_predictions({"a": values})


def test_an_unknown_kind_is_refused():
    with pytest.raises(InvalidInputError, match="kind must be one of 'bars', 'stacked'"):
        SpectrumDisplay.from_predictions([1.0], kind="pie")
