"""MVU with distances of chosen pairs, and with two prices: against another solver, and proved."""

import numpy as np
import pytest

from nearfar import MVU, NeighborhoodGraph, verify
from nearfar.errors import InvalidInputError
from tests.conic import solve_conic

FORBIDDEN = np.inf


def optimum(heads, tails, squares, prices, n):
    """The largest trace, by Clarabel and the dual: minimise D'w with Lap(w) - P psd on what 1 is
    normal to, w at most the price of growing and at least minus that of shrinking."""
    import clarabel

    V = np.linalg.qr(np.c_[np.ones(n), np.eye(n)[:, 1:]])[0][:, 1:]
    edges, (up, down), m = V[heads] - V[tails], prices, len(heads)
    columns, rows = np.tril_indices(n - 1)
    root = np.where(rows == columns, 1.0, np.sqrt(2))
    one, high, low = np.eye(m), np.isfinite(up), np.isfinite(down)
    A = [-(edges[:, rows] * edges[:, columns] * root).T, one[high], -one[low]]
    b = [-1.0 * (rows == columns), up[high], down[low]]
    signs = clarabel.NonnegativeConeT(int(high.sum() + low.sum()))
    cones = [clarabel.PSDTriangleConeT(n - 1), signs]
    return solve_conic(squares, np.concatenate(A), np.concatenate(b), cones).obj_val


@pytest.fixture
def X(rng):
    return rng.normal(size=(14, 5)) * [3, 2, 1, 0.5, 0.5]


def distance(model, i, j):
    K = model.kernel_
    return np.sqrt(K[i, i] + K[j, j] - 2 * K[i, j])


def fitted(X, constraints="equal", **limits):
    model = MVU(n_neighbors=3, constraints=constraints, slack_weight=0.9, random_state=0)
    model.set_params(on_disconnected="link").fit(X, **limits)
    assert model.status_ == "converged"
    return model


@pytest.mark.filterwarnings("ignore:the neighbourhood graph has")
@pytest.mark.parametrize("constraints", ["equal", "shrink", "slack"])
@pytest.mark.parametrize("kind", ["equal", "largest", "least", "both"])
def test_the_optimum_with_a_limit_is_that_of_another_solver(X, constraints, kind):
    """The pair that unfolding moves farthest, at nine tenths of that; or, for the least distance,
    the nearest pair of those that are no edges, a little farther away. Proved by `verify`, too."""
    free = fitted(X, constraints)
    graph, n = free.graph_, len(X)
    D = np.array([[distance(free, i, j) for j in range(n)] for i in range(n)])
    D[graph.heads, graph.tails] = D[graph.tails, graph.heads] = np.nan
    np.fill_diagonal(D, np.nan)
    least = kind == "least"
    i, j = np.unravel_index(np.nanargmin(D) if least else np.nanargmax(D), D.shape)
    d = (1.02 if least else 0.9) * D[i, j]
    low, high = {
        "equal": (d, d),
        "largest": (0, d),
        "least": (d, np.inf),
        "both": (0.5 * d, d),
    }[kind]
    model = fitted(X, constraints, pairs=[[i, j]], distances=[[low, high]])
    assert low * (1 - 1e-5) <= distance(model, i, j) <= high * (1 + 1e-5)
    assert model.objective_ < free.objective_ * (1 + 1e-9)
    up, down = {
        "equal": (FORBIDDEN, FORBIDDEN),
        "shrink": (FORBIDDEN, 0.0),
        "slack": (9.0, 9.0),
    }[constraints]
    rows = [(i, j, d**2, 0.0 if least else np.inf, np.inf if kind in ("equal", "least") else 0.0)]
    rows += [(i, j, low**2, 0.0, np.inf)] * (kind == "both")
    i, j, squares, ups, downs = np.array(rows).T
    expected = optimum(
        np.r_[graph.heads, i.astype(int)],
        np.r_[graph.tails, j.astype(int)],
        np.r_[graph.lengths**2, squares],
        (np.r_[np.full(graph.n_edges, up), ups], np.r_[np.full(graph.n_edges, down), downs]),
        n,
    )
    assert model.objective_ == pytest.approx(expected, rel=1e-5)
    found = verify(model, X)
    assert found.proved, found.sentence
    assert f"with {len(rows)} limits of pairs" in found.sentence


@pytest.mark.filterwarnings("ignore:the neighbourhood graph has")
def test_two_prices_are_those_of_growing_and_of_shrinking(X):
    model = MVU(n_neighbors=3, constraints="slack", slack_weight=(0.9, 0.5), random_state=0).fit(X)
    graph, D = model.graph_, model.graph_.lengths**2
    prices = np.full(len(D), 9.0), np.full(len(D), 1.0)
    expected = optimum(graph.heads, graph.tails, D, prices, len(X))
    assert model.objective_ == pytest.approx(expected, rel=1e-5)
    d = np.diag(model.kernel_)
    change = d[graph.heads] + d[graph.tails] - 2 * model.kernel_[graph.heads, graph.tails] - D
    paid = 9 * change.clip(0).sum() - change.clip(None, 0).sum()
    assert model.objective_ == pytest.approx(np.trace(model.kernel_) - paid, rel=1e-9)
    assert verify(model, X).proved
    one = MVU(n_neighbors=3, constraints="slack", slack_weight=(0.9, 0.9), random_state=0).fit(X)
    two = MVU(n_neighbors=3, constraints="slack", slack_weight=0.9, random_state=0).fit(X)
    np.testing.assert_array_equal(one.kernel_, two.kernel_)


def test_a_given_distance_takes_the_place_of_its_edge(X):
    graph = NeighborhoodGraph.from_points(X, 4)
    i, j, d = int(graph.heads[0]), int(graph.tails[0]), 1.02 * graph.lengths[0]
    model = MVU(constraints="shrink").fit(graph, pairs=[[j, i], [i, j]], distances=[d, d])
    assert distance(model, i, j) == pytest.approx(d, rel=1e-5)
    assert verify(model, graph).proved
    model.proof_["limits"][0, 0] *= 0.9
    assert not verify(model, graph).proved


def test_copies_and_components(X):
    """A copy stands for its point; each component has its own pairs."""
    both = np.r_[X, X + 1000, X[:2]]
    model = MVU(n_neighbors=4, constraints="shrink", on_disconnected="separate")
    free = model.fit(both)
    i, j = 28, 5
    d = 0.9 * distance(free, i, j)
    model = model.fit(both, pairs=[[i, j], [i + 1 - 14, j + 14]], distances=[[0, d], [0, 2 * d]])
    assert distance(model, 0, 5) <= d * (1 + 1e-5)
    assert distance(model, 15, 19) <= 2 * d * (1 + 1e-5)
    assert verify(model, both).proved
    with pytest.raises(InvalidInputError, match="rows 0 and 28 are copies of one point"):
        model.fit(both, pairs=[[28, 0]], distances=[1.0])
    with pytest.raises(InvalidInputError, match="rows 0 and 14 are in different components"):
        model.fit(both, pairs=[[0, 14]], distances=[1.0])


def test_distances_that_no_points_have(X):
    with pytest.raises(InvalidInputError, match=r"no points have these distances: .*0-1 "):
        MVU(constraints="shrink").fit(X, pairs=[[0, 1]], distances=[[1e3, np.inf]])


@pytest.mark.parametrize(
    ("pairs", "distances", "message"),
    [
        ([[0, 1]], None, r"got only one of the two\. Pass both\."),
        ([0, 1], [1.0], r"got pairs of int64 and shape \(2,\)"),
        ([[0.5, 1.0]], [1.0], r"got pairs of float64 and shape \(1, 2\)"),
        ([[0, 1]], [1.0, 2.0], r"got float64 of shape \(2, 2\) for 1 pairs"),
        ([[0, 14]], [1.0], "row numbers from 0 to 13; got 0 to 14"),
        ([[0, 1]], [[2.0, 1.0]], r"got 2 and 1 for rows 0 and 1 \(1 such in all\)"),
        ([[0, 1], [1, 0]], [[0, 1.0], [2.0, 3.0]], "got 2 and 1 for rows 0 and 1"),
        ([[0, 1]], [[0.0, np.inf]], "one of them must limit it; got 0 and inf"),
        ([[0, 1]], [0.0], "got 0 and 0 for rows 0 and 1"),
        ([[2, 2]], [1.0], "got 1 and 1 for rows 2 and 2"),
        ([[0, 1]], [np.nan], "got nan and nan for rows 0 and 1"),
    ],
)
def test_bad_limits_are_refused(X, pairs, distances, message):
    with pytest.raises(InvalidInputError, match=message):
        MVU().fit(X, pairs=pairs, distances=distances)


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        ((0.5, 1.0), r"slack_weight\[1\] must be a number between 0 and 1"),
        ((0.0, 0.5), r"slack_weight\[0\] must be a number between 0 and 1"),
        ((0.1, 0.2, 0.3), "slack_weight must be a number between 0 and 1"),
    ],
)
def test_bad_prices_are_refused(X, weight, message):
    with pytest.raises(InvalidInputError, match=message):
        MVU(constraints="slack", slack_weight=weight).fit(X)


def test_the_least_variance_of_lengths_that_shrink_for_nothing_is_refused(X):
    with pytest.raises(InvalidInputError, match="the least variance of lengths that may shrink"):
        MVU(constraints="slack", slack_weight=(0.9, 0.0), variance="min").fit(X)
