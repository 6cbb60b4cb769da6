"""Adapted embeddings, on the stand-in for the encoder."""

import re

import numpy as np
import pytest

from tests.examples.running import run_example


@pytest.fixture(scope="module")
def ran():
    return run_example("adapt_embeddings")


def test_sentences_are_short_different_and_labelled(ran):
    texts, y = ran["texts"], ran["y"]
    assert ran["encoded_by"] == "weighted counts of words"
    assert len(np.unique(texts)) > 0.98 * len(texts)  # some are in two subpackages
    names, counts = np.unique(y, return_counts=True)
    assert len(names) == 12
    assert counts.max() == 60
    assert counts.min() >= 30
    assert all(4 <= len(text.split()) <= 30 for text in texts)


def test_the_precision_is_that_of_the_ten_nearest_others(ran, rng):
    """By sorting all distances of some queries, in a catalogue with and without them."""
    X, y = ran["X"], ran["y"]
    rows = rng.permutation(len(X))
    few, some, others = rows[:20], rows[:100], rows[20:]
    for queries, catalogue in ((few, others), (some, some)):
        right = []
        for query in queries:
            left = catalogue[catalogue != query]
            near = left[np.argsort(((X[left] - X[query]) ** 2).sum(axis=1))[:10]]
            right.append(np.mean(y[near] == y[query]))
        asked = () if catalogue is queries else (queries,)
        assert ran["precision"](X, catalogue, *asked) == pytest.approx(np.mean(right))


def test_it_helps_among_its_own_kind_and_harms_among_strangers(ran):
    measured = ran["measured"]
    gains = measured[..., 1] - measured[..., 0]
    assert (gains[:, 0] > 0.1).all()
    assert gains[:, 1].mean() > 0.03
    assert gains[:, 2].mean() < -0.1
    cells = re.findall(r"(\d+) ± (\d+) %", ran.text)
    means = [int(mean) for mean, _ in cells]
    assert means == [round(100 * value) for value in measured.mean(axis=0).ravel()]


def test_both_steps_are_one_matrix(ran):
    """It gives the distances of the two, whose axes may point the other way."""
    X, L = ran["X"], ran["metric"].components_
    images = ran["model"].transform(X)
    one, two = (np.linalg.norm(Z - Z[0], axis=1) for Z in (X @ L.T, images))
    np.testing.assert_allclose(one, two, atol=1e-6)
