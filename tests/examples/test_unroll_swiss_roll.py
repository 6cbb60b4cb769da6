"""The Swiss roll: the sheet is the true one, and the numbers are those of the embeddings."""

import re

import numpy as np
import pytest
from scipy.integrate import quad
from sklearn.manifold import Isomap, LocallyLinearEmbedding
from sklearn.neighbors import NearestNeighbors

from nearfar import VariationalMVU
from tests.examples.running import run_example


@pytest.fixture(scope="module")
def ran():
    return run_example("unroll_swiss_roll")


def off(sheet, embedding):
    """Root mean square distance after the best similarity, relative to the spread of the sheet.

    With both centred and of unit norm, the least of ‖A − s B Q‖² is 1 − (Σ singular values)².
    """
    A, B = (part - part.mean(axis=0) for part in (sheet, embedding))
    A, B = A / np.linalg.norm(A), B / np.linalg.norm(B)
    return np.sqrt(1 - np.linalg.svd(A.T @ B, compute_uv=False).sum() ** 2)


def test_the_sheet_has_the_lengths_of_the_spiral(ran):
    """A step along r = t has length √(1 + t²) dt."""
    X, sheet, angle = ran["X"], ran["sheet"], ran["angle"]
    np.testing.assert_allclose(np.hypot(X[:, 0], X[:, 2]), angle)
    first, second = np.argmin(angle), np.argmax(angle)
    length, _ = quad(lambda t: np.hypot(1, t), angle[first], angle[second])
    assert sheet[second, 0] - sheet[first, 0] == pytest.approx(length)


def test_the_table(ran):
    rows = re.findall(r"^(\w+) +([\d.]+) % +(\d+) %$", ran.text, re.MULTILINE)
    assert [name for name, *_ in rows] == ["PCA", "LLE", "Isomap", "MVU"]
    nearest = NearestNeighbors(n_neighbors=8)
    truth = nearest.fit(ran["sheet"]).kneighbors(return_distance=False)
    for name, missed, kept in rows:
        Y = ran["found"][name]
        found = nearest.fit(Y).kneighbors(return_distance=False)
        share = np.mean([np.isin(a, b).mean() for a, b in zip(truth, found, strict=True)])
        assert float(missed) == pytest.approx(100 * off(ran["sheet"], Y), abs=0.051)
        assert float(kept) == pytest.approx(100 * share, abs=0.51)
    assert float(rows[3][1]) < 1 < 10 < float(rows[2][1])


@pytest.mark.slow
def test_each_method_has_its_best_number_of_neighbours(ran):
    makers = {
        "LLE": lambda k: LocallyLinearEmbedding(n_neighbors=k, n_components=2),
        "Isomap": lambda k: Isomap(n_neighbors=k),
        "MVU": lambda k: VariationalMVU(n_neighbors=k, random_state=0),
    }
    for name, maker in makers.items():
        tried = [off(ran["sheet"], maker(k).fit_transform(ran["X"])) for k in range(5, 11)]
        assert off(ran["sheet"], ran["found"][name]) <= 1.02 * min(tried)
