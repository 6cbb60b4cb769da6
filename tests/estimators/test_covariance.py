"""Covariance as an estimator: whitening, singular covariances and difficult data."""

import numpy as np
import pytest

from nearfar import Covariance
from nearfar.errors import InvalidInputError


def test_images_are_white(overlapping, dtype):
    X, _ = overlapping
    model = Covariance().fit(X.astype(dtype))
    images = model.transform(X.astype(dtype))
    assert images.dtype == dtype
    np.testing.assert_allclose(
        np.cov(images.T), np.eye(5), atol=1e-10 if dtype == np.float64 else 1e-3
    )
    assert (model.status_, model.n_iter_, model.history_) == ("converged", 0, [])
    assert model.duality_gap_ <= (1e-12 if dtype == np.float64 else 1e-6)


def test_labels_are_not_used(overlapping):
    X, y = overlapping
    with_labels, without = Covariance().fit(X, y), Covariance().fit(X)
    np.testing.assert_array_equal(with_labels.components_, without.components_)
    assert not hasattr(with_labels, "classes_")


def test_data_times_any_scale_gives_the_same_distances(overlapping):
    X, _ = overlapping
    images = Covariance().fit_transform(X)
    for scale in (1e-60, 1e60):
        np.testing.assert_allclose(Covariance().fit_transform(scale * X), images, rtol=1e-6)


def test_fewer_rows_are_the_longest_and_more_are_zero(overlapping):
    X, _ = overlapping
    whole, two = Covariance().fit(X), Covariance(2).fit(X)
    np.testing.assert_array_equal(two.components_, whole.components_[:2])
    assert two.objective_ == whole.objective_
    flat = Covariance(5).fit(X * [1, 1, 1, 0, 0])
    assert flat.components_.shape == (5, 5)
    assert not flat.components_[3:].any()


def test_equal_points_are_an_error():
    with pytest.raises(InvalidInputError, match="needs points that differ; all n_samples=4 are"):
        Covariance().fit(np.ones((4, 3)))


def test_a_number_of_rows_out_of_range_is_an_error(overlapping):
    with pytest.raises(InvalidInputError, match="n_components must be an integer from 1 to 5"):
        Covariance(6).fit(overlapping[0])


@pytest.mark.torch
def test_tensors(overlapping, torch):
    X, _ = overlapping
    model, expected = Covariance().fit(torch.tensor(X.copy())), Covariance().fit(X)
    assert isinstance(model.components_, torch.Tensor)
    np.testing.assert_allclose(model.components_.numpy(), expected.components_, rtol=1e-8)
