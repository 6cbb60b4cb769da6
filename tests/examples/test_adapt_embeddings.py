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
    X, y, metric = ran["X"], ran["y"], ran["metric"]
    Z = metric.transform(X)
    rows = rng.permutation(len(X))
    few, some, others = rows[:20], rows[:100], rows[20:]
    for queries, catalogue in ((few, others), (some, some)):
        right = []
        for query in queries:
            left = catalogue[catalogue != query]
            near = left[np.argsort(((Z[left] - Z[query]) ** 2).sum(axis=1))[:10]]
            right.append(np.mean(y[near] == y[query]))
        asked = () if catalogue is queries else (queries,)
        assert ran["measures"](metric, catalogue, *asked)[0] == pytest.approx(np.mean(right))


def test_it_is_never_below_the_embeddings_in_a_new_catalogue(ran):
    """In precision, MRR and nDCG; and from ten labels on shrunk LDA is no better on average.

    The sentences are those of the packages that are installed, so single figures differ.
    """
    embeddings, lda, lmnn = np.moveaxis(ran["means"], 1, 0)  # each (labels, catalogues, measures)
    assert (lmnn[:, 0] > embeddings[:, 0]).all()
    assert (lmnn[:, 1, [0, 2]] > embeddings[:, 1, [0, 2]]).all()
    assert (lmnn[2:, 1] > embeddings[2:, 1]).all()
    assert (lmnn[2:] - lda[2:]).mean() > 0
    assert np.isnan(lda[0]).all()
    cells = re.findall(r"^LMNN .*?([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+)$", ran.text, re.MULTILINE)
    printed = np.array(cells, dtype=float).reshape(2, 3, 4)
    np.testing.assert_allclose(printed, 100 * np.moveaxis(lmnn, 0, 2), atol=0.051)


def test_strangers_are_not_harmed(ran):
    strange = ran["strange"]
    assert np.mean(strange[:, 1] - strange[:, 0]) > -0.02


def test_documents_can_stay_as_they_are(ran):
    """The best score is the nearest document."""
    X, new, known, metric = (ran[name] for name in ("X", "new", "known", "metric"))
    Z = metric.transform(X)
    nearest = np.linalg.norm(Z[known] - Z[new[0]], axis=1).argmin()
    assert ran["scores"].argmax() == nearest
    assert str(ran["texts"][known[nearest]]) in ran.text
