"""Every learner that projects its metric on fewer rows tells the same of it."""

import numpy as np
import pytest
from sklearn.base import clone

from nearfar import MCML, MMC, DMLEig, KernelMCML

LEARNERS = [
    MCML(reduce="project"),
    MCML(reduce="project", solver="projected-gradient"),
    MMC(reduce="project", shrinkage=0.1),
    DMLEig(),
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
