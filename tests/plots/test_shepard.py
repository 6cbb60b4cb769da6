from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from scipy.stats import spearmanr

import nearfar
from nearfar.errors import InvalidInputError
from nearfar.plots import ShepardDisplay


def all_distances(points):
    heads, tails = np.triu_indices(len(points), 1)
    return np.linalg.norm(points[heads] - points[tails], axis=1)


def test_all_pairs_of_few_points(mvu, roll):
    display = ShepardDisplay.from_estimator(mvu)
    np.testing.assert_allclose(display.given, all_distances(roll))
    np.testing.assert_allclose(display.embedded, all_distances(mvu.embedding_))
    expected = spearmanr(all_distances(roll), all_distances(mvu.embedding_)).statistic
    assert display.rank_correlation() == pytest.approx(expected)
    assert f"{expected:.3f}" in display.axes_[0].get_title()


def test_edges_are_those_of_the_graph(mvu):
    lengths, embedded = ShepardDisplay.from_estimator(mvu).edges
    graph, Y = mvu.graph_, mvu.embedding_
    np.testing.assert_array_equal(lengths, graph.lengths)
    expected = np.linalg.norm(Y[graph.heads] - Y[graph.tails], axis=1)
    np.testing.assert_allclose(embedded, expected)


def test_the_changes_of_edges():
    """Edges of length 1 become 2, 1 and 1/2: changes of 100, 0 and -50 per cent."""
    graph = nearfar.NeighborhoodGraph.from_edges([0, 1, 2], [1, 2, 3], [1.0, 1.0, 1.0], 4)
    places = np.array([[0.0], [2.0], [3.0], [3.5]])
    display = ShepardDisplay.from_predictions(None, places, graph=graph, bins=3)
    counts = [patch.get_height() for patch in display.axes_[1].patches]
    assert counts == [1, 1, 1]
    assert display.axes_[1].get_title() == "3 edges: median 50%, most 100%"
    assert len(display.given) == 0


def test_many_pairs_are_sampled(rng):
    X = rng.normal(size=(300, 3))
    display = ShepardDisplay.from_predictions(X, 2 * X, n_pairs=1000, slope=None)
    assert len(display.given) == 1000
    assert display.given.min() > 0
    np.testing.assert_allclose(display.embedded, 2 * display.given)
    line = display.axes_[0].get_lines()[0]
    assert line.get_label() == "factor 2"
    assert len(display.axes_) == 1


@pytest.mark.parametrize("kind", ["dense", "sparse", "kernel"])
def test_distances_and_kernels_that_are_given(kind, roll):
    D = np.linalg.norm(roll[:, None] - roll[None], axis=2)
    if kind == "kernel":
        centred = roll - roll.mean(axis=0)
        given = centred @ centred.T
    else:
        given = D.copy()
        given[0, 1] = given[1, 0] = np.nan
        if kind == "sparse":
            given = sparse.csr_array(np.nan_to_num(given))
    metric = "kernel" if kind == "kernel" else "precomputed"
    display = ShepardDisplay.from_predictions(given, roll, metric=metric)
    np.testing.assert_allclose(display.given, display.embedded, atol=1e-7)
    assert len(display.given) == 100 * 99 // 2 - (kind != "kernel")


def test_a_network_of_known_distances_alone(roll):
    model = nearfar.MetricMDS(metric="precomputed", random_state=0)
    D = np.linalg.norm(roll[:, None] - roll[None], axis=2)
    display = ShepardDisplay.from_estimator(model.fit(D), D)
    np.testing.assert_allclose(display.given, all_distances(roll))
    with pytest.raises(InvalidInputError, match="does not keep what it was fitted on"):
        ShepardDisplay.from_estimator(model)
    graph = nearfar.NeighborhoodGraph.from_distances(D, 6)
    unfolded = nearfar.VariationalMVU(random_state=0).fit(graph)
    assert len(ShepardDisplay.from_estimator(unfolded).given) == 0


def test_only_ranks_count_for_nonmetric_scaling(embeddings, roll):
    display = ShepardDisplay.from_estimator(embeddings["NonmetricMDS"], roll)
    assert display.slope is None
    assert ShepardDisplay.from_estimator(embeddings["MetricMDS"], roll).slope == 1.0


def test_rows_that_do_not_belong_together_are_refused(roll):
    with pytest.raises(InvalidInputError, match="a row for each of the 100 points; it has 99"):
        ShepardDisplay.from_predictions(roll, roll[1:])
