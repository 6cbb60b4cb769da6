"""Every learner that projects its metric on fewer rows tells the same of it."""

import numpy as np
import pytest
from sklearn.base import clone

from nearfar import MCML, MMC, DMLEig, KernelMCML

LEARNERS = [
    MCML(reduce="project", shrinkage=0),
    MCML(reduce="project", solver="projected-gradient", shrinkage=0),
    MMC(reduce="project", shrinkage=0.1),
    KernelMCML(reduce="project"),
]


@pytest.mark.parametrize("learner", LEARNERS, ids=str)
def test_objective_and_gap_are_those_of_the_full_metric(learner, overlapping):
    X, y = overlapping
    full = clone(learner).fit(X, y)
    projected = clone(learner).set_params(n_components=1).fit(X, y)
    assert projected.objective_ == full.objective_
    assert projected.duality_gap_ == full.duality_gap_ <= full.tol
    np.testing.assert_allclose(projected.transform(X), full.transform(X)[:, :1], rtol=1e-9)


@pytest.mark.parametrize("learner", [MCML(), DMLEig()], ids=str)
def test_above_a_floor_the_rows_are_principal_components_of_the_images(learner, overlapping):
    """There all directions have some weight, and the longest rows need not carry most variance."""
    X, y = overlapping
    full = clone(learner).fit(X, y)
    projected = clone(learner).set_params(n_components=2).fit(X, y)
    assert (projected.objective_, projected.duality_gap_) == (full.objective_, full.duality_gap_)
    Z = full.transform(X) - full.transform(X).mean(axis=0)
    U, sizes, _ = np.linalg.svd(Z, full_matrices=False)
    images = U[:, :2] * sizes[:2]
    found = projected.transform(X) - projected.transform(X).mean(axis=0)
    np.testing.assert_allclose(found @ found.T, images @ images.T, atol=1e-8 * sizes[0] ** 2)
