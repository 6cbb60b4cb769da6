"""Random walks along a graph, and the short circuits that they tell."""

import re

import numpy as np
import pytest
from sklearn.datasets import make_swiss_roll

from nearfar import NeighborhoodGraph
from nearfar.errors import InvalidInputError

SHORT_CIRCUIT = np.pi / 2  # of the angle along the roll: its layers are 2 pi apart


def probabilities_by_steps(graph, steps, sigma):
    """qᵢⱼ + qⱼᵢ, where a walk that has reached j stays there: h ← P h with h_j = 1 kept."""
    W = np.zeros((graph.n_nodes, graph.n_nodes))
    W[graph.heads, graph.tails] = W[graph.tails, graph.heads] = np.exp(-graph.lengths / sigma)
    P = W / W.sum(axis=1, keepdims=True)
    H = np.eye(graph.n_nodes)
    for _ in range(steps):
        H = P @ H
        np.fill_diagonal(H, 1)
    return H[graph.heads, graph.tails] + H[graph.tails, graph.heads]


def short_circuits(graph, angle):
    return np.abs(angle[graph.heads] - angle[graph.tails]) > SHORT_CIRCUIT


@pytest.fixture
def roll(seed):
    return make_swiss_roll(600, noise=0.5, random_state=seed)


# -- probabilities ---------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 7, 8])
@pytest.mark.parametrize("angles", [False, True])
def test_probabilities_are_those_of_a_walk_step_by_step(rng, steps, angles):
    graph = NeighborhoodGraph.from_points(rng.normal(size=(60, 2)), 4, angles=angles)
    for sigma in (0.05, 0.3, 2.0):
        np.testing.assert_allclose(
            graph.edge_probabilities(steps, sigma),
            probabilities_by_steps(graph, steps, sigma),
            rtol=1e-9,
        )


def test_a_path_of_three_nodes():
    """From an end the middle is certain; from the middle an end is reached at once with ½, or
    by way of the other end and back, ½·1·½ more after three steps.
    """
    graph = NeighborhoodGraph.from_edges([0, 1], [1, 2], [1.0, 1.0], 3)
    np.testing.assert_allclose(graph.edge_probabilities(1), [1.5, 1.5])
    np.testing.assert_allclose(graph.edge_probabilities(2), [1.5, 1.5])
    np.testing.assert_allclose(graph.edge_probabilities(3), [1.75, 1.75])


def test_sigma_is_half_the_median_length_by_default(rng):
    graph = NeighborhoodGraph.from_points(rng.normal(size=(60, 2)), 5)
    np.testing.assert_array_equal(
        graph.edge_probabilities(), graph.edge_probabilities(7, 0.5 * np.median(graph.lengths))
    )
    scaled = NeighborhoodGraph.from_points(1e-6 * graph.points, 5)
    np.testing.assert_allclose(scaled.edge_probabilities(), graph.edge_probabilities(), rtol=1e-9)


def test_blocks_change_nothing(rng, monkeypatch):
    graph = NeighborhoodGraph.from_points(rng.normal(size=(200, 2)), 5)
    whole = graph.edge_probabilities()
    monkeypatch.setattr("nearfar.graphs.walks.BLOCK_ENTRIES", 1 << 13)
    np.testing.assert_allclose(graph.edge_probabilities(), whole, rtol=1e-12)


def test_lengths_of_many_sigmas_do_not_vanish():
    graph = NeighborhoodGraph.from_edges([0, 1, 0], [1, 2, 2], [1.0, 1e6, 1e6], 4)
    q = graph.edge_probabilities(7, 1.0)
    assert np.isfinite(q).all()
    assert (q > 0).all()
    assert q[0] > 1.9


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"steps": 0}, "steps must be an integer of at least 1; got 0"),
        ({"steps": 1.5}, "steps must be an integer of at least 1; got 1.5"),
        ({"sigma": 0.0}, "sigma must be a number above 0; got 0.0"),
        ({"sigma": np.nan}, "sigma must be a number above 0; got nan"),
        ({"threshold": -1}, "threshold must be a number of at least 0; got -1"),
    ],
)
def test_bad_arguments(arguments, text):
    graph = NeighborhoodGraph.from_edges([0, 1], [1, 2], [1.0, 1.0], 3)
    with pytest.raises(InvalidInputError, match=re.escape(text)):
        graph.bad_edges(**arguments)


# -- bad edges -------------------------------------------------------------------------------


def test_short_circuits_of_the_swiss_roll_are_cut(roll):
    """Thesis, Fig. 3.29: n = 600 with noise and k = 7, t = 7. All short circuits are among the
    edges that are cut, these are few, and the roll stays in one piece.
    """
    X, angle = roll
    graph = NeighborhoodGraph.from_points(X, 7, angles=False)
    wrong = short_circuits(graph, angle)
    bad = graph.bad_edges()
    assert set(np.flatnonzero(wrong)) <= set(bad)
    assert len(bad) < 0.02 * graph.n_edges
    cut = graph.cut_bad_edges()
    assert not short_circuits(cut, angle).any()
    assert cut.n_edges == graph.n_edges - len(bad)
    assert cut.report().connected


def test_the_least_likely_edges_are_the_short_circuits():
    """Thesis: σ = 1, for which both of the short circuits of this roll come before all others."""
    X, angle = make_swiss_roll(600, noise=0.5, random_state=0)
    graph = NeighborhoodGraph.from_points(X, 7, angles=False)
    q = graph.edge_probabilities(7, 1.0)
    wrong = short_circuits(graph, angle)
    assert wrong.sum() == 2
    assert wrong[np.argsort(q)[:2]].all()


def test_angles_go_with_the_edges_that_gave_rise_to_them(roll):
    """Each angle that is left lies between two edges that are left at the same node."""
    X, angle = roll
    graph = NeighborhoodGraph.from_points(X, 7)
    plain = NeighborhoodGraph.from_points(X, 7, angles=False)
    bad = graph.bad_edges()
    np.testing.assert_array_equal(
        np.stack([graph.heads[bad], graph.tails[bad]]),
        np.stack([plain.heads[plain.bad_edges()], plain.tails[plain.bad_edges()]]),
    )
    cut = graph.cut_bad_edges()
    assert not short_circuits(cut, angle).any()
    again = plain.cut_bad_edges().with_angles()
    keys = [g.heads * 600 + g.tails for g in (cut, again, graph)]
    gone = keys[2][bad]
    np.testing.assert_array_equal(keys[0], np.setdiff1d(keys[1], gone))


def test_what_holds_the_graph_together_is_not_cut(rng):
    """Two clouds joined by one long edge: unlikely, but the only way."""
    X = np.concatenate([rng.normal(size=(40, 2)), rng.normal(size=(40, 2)) + 30])
    graph = NeighborhoodGraph.from_points(X, 6, angles=False).linked(random_state=0)
    assert graph.report().connected
    link = np.flatnonzero(graph.lengths > 15)
    assert len(link) == 1
    assert graph.edge_probabilities()[link] < np.quantile(graph.edge_probabilities(), 0.1)
    assert link[0] not in graph.bad_edges(threshold=0.0)
    assert graph.cut_bad_edges(threshold=0.0).report().connected


def test_of_several_ways_the_likeliest_is_kept(rng):
    """Of two long edges between the clouds the shorter stays."""
    X = np.concatenate([rng.normal(size=(40, 2)), rng.normal(size=(40, 2)) + 30])
    graph = NeighborhoodGraph.from_points(X, 6, angles=False)
    D = np.linalg.norm(X[:40, None] - X[40:], axis=2)
    near, far = np.divmod([D.argmin(), D.argmax()], 40)
    lengths = [D.min(), D.max()]
    graph = NeighborhoodGraph.from_edges(
        np.append(graph.heads, near),
        np.append(graph.tails, far + 40),
        np.append(graph.lengths, lengths),
        80,
    )
    left = graph.cut_bad_edges(threshold=0.5)
    np.testing.assert_allclose(left.lengths[left.lengths > 15], [D.min()])


def test_no_edges_are_no_bad_edges():
    assert len(NeighborhoodGraph.from_edges([], [], [], 3).bad_edges()) == 0
    copies = NeighborhoodGraph.from_edges([0], [1], [0.0], 2)
    assert len(copies.bad_edges()) == 0


def test_copies_neither_help_nor_hurt(roll):
    X, _ = roll
    graph = NeighborhoodGraph.from_points(X, 7, angles=False)
    more = NeighborhoodGraph.from_points(np.concatenate([X, X[:50]]), 7, angles=False)
    assert (more.lengths[more.bad_edges()] > 0).all()
    bad = [
        set(zip(g.heads[e], g.tails[e], strict=True))
        for g, e in ((graph, graph.bad_edges()), (more, more.bad_edges()))
    ]
    assert bad[0] == bad[1]
