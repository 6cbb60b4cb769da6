"""The film: lengths are kept, fewer axes than PCA needs, neighbours counted again."""

import re

import numpy as np
import pytest
from sklearn.neighbors import NearestNeighbors

from tests.examples.running import run_example, stand_in_or_data


@pytest.fixture(scope="module", **stand_in_or_data("frey_faces.npz"))
def ran(request):
    return run_example("unfold_faces", request.param)


def test_lengths_of_edges_are_kept(ran):
    mvu, frames = ran["mvu"], ran["X"][ran["some"]]
    K, heads, tails = mvu.kernel_, mvu.graph_.heads, mvu.graph_.tails
    after = K[heads, heads] + K[tails, tails] - 2 * K[heads, tails]
    before = ((frames[heads] - frames[tails]) ** 2).sum(axis=1)
    np.testing.assert_allclose(after, before, rtol=1e-5)
    assert mvu.duality_gap_ < 1e-3


def test_fewer_axes_than_pca(ran):
    frames = ran["X"][ran["some"]]
    variances = np.linalg.svd(frames - frames.mean(axis=0), compute_uv=False) ** 2
    shares = [values[:2].sum() / values.sum() for values in (variances, ran["mvu"].eigenvalues_)]
    assert shares[1] > shares[0] + 0.2


def test_the_neighbours_in_the_table(ran):
    rows = re.findall(r"^(PCA|MVU) +(\d+)% +(\d+)%$", ran.text, re.MULTILINE)
    nearest = NearestNeighbors(n_neighbors=10)
    for name, *shares in rows:
        for share, part in zip(shares, (ran["some"], ran["others"]), strict=True):
            before, after = (
                nearest.fit(points[part]).kneighbors(return_distance=False)
                for points in (ran["X"], ran["planes"][name])
            )
            kept = np.mean([np.isin(a, b).mean() for a, b in zip(before, after, strict=True)])
            assert float(share) == pytest.approx(100 * kept, abs=0.51)
    (_, *pca), (_, *mvu) = rows
    assert all(int(a) > int(b) for a, b in zip(mvu, pca, strict=True))
