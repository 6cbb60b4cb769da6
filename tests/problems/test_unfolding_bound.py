"""The bound on all unfoldings, against dense matrices and the program on all functions."""

import numpy as np
import pytest
from scipy import linalg

from nearfar import NeighborhoodGraph
from nearfar.graphs.spectrum import bottom_spectrum
from nearfar.problems import unfolding_bound
from nearfar.problems.unfolding_bound import WholeProgram
from nearfar.problems.variational_mvu import Edges


def whole_program(rng, n=50, stretch=0.02):
    """The program on the graph of random points of a plane, and the points in its unit."""
    points = rng.normal(size=(n, 2))
    graph = NeighborhoodGraph.from_points(points, 6).linked(random_state=0)
    weights = rng.uniform(0.5, 2, graph.n_edges)
    edges, unit = Edges.build(n, graph.heads, graph.tails, graph.lengths, weights, np.empty(0))
    spectrum = bottom_spectrum(graph.laplacian(edges.weights), 3, np.random.RandomState(0))
    return WholeProgram(edges, graph, spectrum, 2 * stretch * spectrum.values[0]), points / unit


def laplacian(program, m):
    B = np.zeros((program.graph.n_edges, program.graph.n_nodes))
    rows = np.arange(len(B))
    B[rows, program.graph.heads], B[rows, program.graph.tails] = 1, -1
    return B.T @ (m[:, None] * B)


def bound_by_hand(program, Y):
    """(2) at the least t of (4), from dense matrices."""
    n, c = program.graph.n_nodes, 0.5 * program.pull
    D, w = program.edges.squares, program.edges.weights
    excess = np.sum((Y[program.graph.heads] - Y[program.graph.tails]) ** 2, axis=1) - D
    P = linalg.null_space(np.ones((1, n)))
    S = P.T @ (laplacian(program, w * excess) - c * np.eye(n)) @ P
    t = max(0.0, -linalg.eigh(S, P.T @ laplacian(program, w) @ P, eigvals_only=True)[0])
    return np.sum(w * (excess + t + D) ** 2) - np.sum(w * D**2)


@pytest.mark.parametrize("small", [True, False])
@pytest.mark.parametrize("noise", [0.0, 0.05, 0.5])
def test_the_bound_is_that_of_dense_matrices_a_little_raised(rng, monkeypatch, small, noise):
    if not small:
        monkeypatch.setattr(unfolding_bound, "SMALL", 0)
    program, points = whole_program(rng)
    Y = points + noise * rng.normal(size=points.shape)
    found = program.bound(Y, np.random.RandomState(0))
    by_hand = bound_by_hand(program, Y)
    assert by_hand < found.value < by_hand + 0.02 * found.reached
    D, w = program.edges.squares, program.edges.weights
    assert found.reached == pytest.approx(found.value + w @ D**2)


def test_no_points_exceed_the_bound(rng):
    program, points = whole_program(rng, n=30)
    bound = program.bound(points, np.random.RandomState(0)).value
    D, w = program.edges.squares, program.edges.weights
    for _ in range(200):
        Y = rng.uniform(0.9, 1.1) * points + 0.05 * rng.normal(size=points.shape)
        lengths = np.sum((Y[program.graph.heads] - Y[program.graph.tails]) ** 2, axis=1)
        value = program.pull * np.sum((Y - Y.mean(axis=0)) ** 2) - w @ (lengths - D) ** 2
        assert value <= bound


def test_a_wrong_estimate_only_raises_the_bound(rng, monkeypatch):
    """An estimate that is far too small, or zero, ends at a t that is proved."""
    program, points = whole_program(rng)
    Y = points + 0.5 * rng.normal(size=points.shape)
    by_hand = bound_by_hand(program, Y)
    for estimate in (0.0, 1e-3):
        found = np.array([-estimate]), np.ones((50, 1))
        monkeypatch.setattr(WholeProgram, "_lowest", lambda *_, found=found: found)
        assert program.bound(Y, np.random.RandomState(0)).value > by_hand


def test_without_a_pull_nothing_is_above_zero(rng):
    program, points = whole_program(rng, stretch=0)
    found = program.bound(points, np.random.RandomState(0))
    assert found.value == 0
    assert found.gap(-0.1 * found.reached) == pytest.approx(0.1)


def test_a_dense_factor_beyond_memory_is_not_tried(rng, monkeypatch):
    program, points = whole_program(rng)
    monkeypatch.setattr(unfolding_bound, "has_dense_factor", lambda _: True)
    assert program.bound(points, np.random.RandomState(0)) is not None
    monkeypatch.setattr(unfolding_bound, "DENSE_SHARE", 0.0)
    assert program.bound(points, np.random.RandomState(0)) is None
