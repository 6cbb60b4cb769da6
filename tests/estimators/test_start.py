"""Where a fit starts does not change the optimum, and wrong starts are refused."""

import numpy as np
import pytest
from scipy.spatial.distance import pdist
from sklearn.base import clone

from nearfar import LMNN
from nearfar.errors import InvalidInputError
from nearfar.estimators._start import _apart

WORDS = ["auto", "identity", "pca", "lda"]


@pytest.mark.parametrize("init", WORDS)
def test_every_start_leads_to_the_optimum(init, overlapping):
    model = LMNN(init=init).fit(*overlapping)
    best = LMNN(tol=1e-4).fit(*overlapping)
    assert model.status_ == "converged"
    assert model.objective_ == pytest.approx(best.objective_, rel=1e-3)


@pytest.mark.parametrize("init", WORDS)
@pytest.mark.parametrize("n_components", [1, 2, 4])
def test_every_start_has_the_rows_asked_for(init, n_components, overlapping):
    """LDA of three classes finds two directions; the others are added."""
    model = LMNN(n_components=n_components, init=init).fit(*overlapping)
    assert model.components_.shape == (n_components, 5)
    assert model.status_ == "converged"


@pytest.mark.parametrize("rows", [1, 3, 5, 7])
def test_an_array_of_any_rows_leads_to_the_optimum_of_the_full_metric(rows, rng, overlapping):
    start = rng.normal(size=(rows, 5))
    model = LMNN(init=start).fit(*overlapping)
    assert model.duality_gap_ <= model.tol
    assert model.objective_ == pytest.approx(LMNN().fit(*overlapping).objective_, rel=2e-3)


@pytest.mark.parametrize("scale", [1e-200, 1e-8, 1e8, 1e200])
def test_the_scale_of_the_start_does_not_matter(scale, overlapping):
    model = LMNN(init=scale * np.eye(5)).fit(*overlapping)
    assert model.objective_ == pytest.approx(LMNN().fit(*overlapping).objective_, rel=2e-3)


def test_the_start_decides_a_learned_map(overlapping):
    """From the converged map itself, nothing is lost."""
    found = LMNN(n_components=2).fit(*overlapping)
    again = LMNN(n_components=2, init=found.components_).fit(*overlapping)
    assert again.objective_ <= found.objective_ * (1 + found.tol)


def test_lists_and_read_only_arrays_are_taken_and_left_alone(overlapping, read_only):
    start = read_only(np.diag([1.0, 2, 3, 4, 5]))
    model = LMNN(init=start).fit(*overlapping)
    assert model.init is start
    np.testing.assert_array_equal(start, np.diag([1.0, 2, 3, 4, 5]))
    assert clone(model).fit(*overlapping).objective_ == model.objective_
    assert LMNN(init=start.tolist()).fit(*overlapping).objective_ == model.objective_


@pytest.mark.parametrize("start", [np.full((5, 5), "a"), 1j * np.eye(5)], ids=["words", "complex"])
def test_a_start_that_is_no_real_matrix_is_an_error(start, overlapping):
    with pytest.raises(InvalidInputError, match="init"):
        LMNN(init=start).fit(*overlapping)


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_classes_that_the_start_maps_to_one_point_are_parted(scale):
    """Four one-hot classes on a line, where the first principal component parts one from the rest.

    The objective is stationary there, far from the optimum, which is 0: all classes apart.
    """
    y = np.repeat(np.arange(4), 8)
    for dtype in (np.float32, np.float64):
        model = LMNN(n_components=1).fit((scale * np.eye(4)[y]).astype(dtype), y)
        assert model.objective_ <= 1e-3


@pytest.mark.parametrize("count", [2, 3, 8])
def test_classes_at_one_point_are_found_among_many(count, rng):
    """Whichever of the nearest two is the class itself."""
    means = rng.normal(size=(40, 3))
    L = np.eye(2, 3)
    assert _apart(L, means) is L
    means[5 : 5 + count, :2] = means[5, :2]
    images = means @ _apart(L, means).T
    assert pdist(images).min() > 0


def test_one_class_needs_no_turn():
    means = np.ones((1, 3))
    L = np.eye(1, 3)
    assert _apart(L, means) is L
