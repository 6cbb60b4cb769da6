"""Variational unfolding: what it unrolls, what it reports, and that both are true."""

import tracemalloc

import numpy as np
import pytest
from scipy.spatial.distance import pdist
from sklearn.datasets import make_swiss_roll

from nearfar import LandmarkMVU, NeighborhoodGraph, VariationalMVU
from nearfar.errors import InvalidInputError, TimeLimitError
from nearfar.estimators import _small_program as module
from nearfar.limits import fit_clock
from nearfar.problems.unfolding_bound import WholeProgram


@pytest.fixture(scope="module")
def roll():
    """A Swiss roll of 600 points, and where they lie on the sheet."""
    X, t = make_swiss_roll(600, noise=0.05, random_state=0)
    arc = 0.5 * (t * np.sqrt(1 + t * t) + np.arcsinh(t))
    X.setflags(write=False)
    return X, np.column_stack([arc, X[:, 1]])


@pytest.fixture(scope="module")
def unrolled(roll):
    return VariationalMVU(n_neighbors=6, random_state=0).fit(roll[0])


def placing_errors(Y, sheet):
    """Distances to the true places after the best rigid motion, relative to the sheet's length."""
    Y, T = Y - Y.mean(axis=0), sheet - sheet.mean(axis=0)
    left, _, right = np.linalg.svd(Y.T @ T)
    return np.linalg.norm(Y @ (left @ right) - T, axis=1) / np.ptp(sheet[:, 0])


def second_eigenvalue(graph, weights):
    L = np.zeros((graph.n_nodes, graph.n_nodes))
    for i, j, w in zip(graph.heads, graph.tails, weights, strict=True):
        L[[i, j], [i, j]] += w
        L[[i, j], [j, i]] -= w
    return np.linalg.eigvalsh(L)[1]


def objective_by_hand(Y, graph, stretch):
    """2ρλ tr K − Σ w(ℓ − D)² with the weighted mean of D as the unit, and weights of mean 1."""
    w = np.ones(graph.n_edges) if graph.weights is None else graph.weights / graph.weights.mean()
    unit = w @ graph.lengths**2 / w.sum()
    D = graph.lengths**2 / unit
    lengths = np.array(
        [np.sum((Y[i] - Y[j]) ** 2) for i, j in zip(graph.heads, graph.tails, strict=True)]
    )
    trace = np.sum((Y - Y.mean(axis=0)) ** 2) / unit
    pull = 2 * stretch * second_eigenvalue(graph, w)
    return pull * trace - w @ (lengths / unit - D) ** 2


@pytest.mark.parametrize("basis", ["laplacian", "lle"])
@pytest.mark.parametrize("n_eigenvectors", [10, 15])
def test_a_swiss_roll_is_unrolled(roll, basis, n_eigenvectors):
    X, sheet = roll
    model = VariationalMVU(
        n_neighbors=6, n_eigenvectors=n_eigenvectors, basis=basis, random_state=0
    ).fit(X)
    errors = placing_errors(model.embedding_, sheet)
    assert np.median(errors) < 0.01
    assert np.quantile(errors, 0.95) < 0.03
    assert model.status_ == "converged"
    assert model.eigenvalues_[2] < 0.1 * model.eigenvalues_[1]  # the sheet has two dimensions


def test_the_refined_objective_is_that_of_the_embedding(unrolled):
    expected = objective_by_hand(unrolled.embedding_, unrolled.graph_, 0.01)
    assert unrolled.objective_ == pytest.approx(expected, rel=1e-3)  # λ is known to 1e-4
    assert unrolled.history_[-1]["objective"] == pytest.approx(unrolled.objective_, rel=1e-12)


@pytest.mark.parametrize("refine", [True, False])
@pytest.mark.parametrize("estimator", [VariationalMVU, LandmarkMVU])
def test_the_gap_bounds_the_best_points_of_any_dimension(roll, estimator, refine):
    """The best of all are those of the program on all functions."""
    graph = NeighborhoodGraph.from_points(roll[0][:24], 4).linked(random_state=0)
    graph = NeighborhoodGraph.from_edges(graph.heads, graph.tails, graph.lengths, 24)
    settings = {"stretch": 0.05, "random_state": 0}
    model = estimator(2, refine=refine, **settings).fit(graph)
    best = VariationalMVU(2, n_eigenvectors=23, refine=False, tol=1e-6, **settings).fit(graph)
    none = -np.sum((graph.lengths**2 / np.mean(graph.lengths**2)) ** 2)
    gap, objective = model.duality_gap_, model.objective_
    bound = (objective - gap * none) / (1 - gap)
    assert bound >= best.objective_
    assert 1e-4 < gap < (0.2 if refine else 1)
    assert best.duality_gap_ < 1e-3  # at the optimum of all the bound is tight


def test_a_wide_refinement_has_a_small_gap(roll):
    graph = NeighborhoodGraph.from_points(roll[0], 6).linked(random_state=0)
    model = VariationalMVU(8, random_state=0).fit(graph)
    assert model.duality_gap_ < 0.02


def test_without_time_nothing_is_proved(roll, monkeypatch):
    def late(*_args):
        raise TimeLimitError("late")

    monkeypatch.setattr(WholeProgram, "bound", late)
    model = VariationalMVU(n_neighbors=6, random_state=0).fit(roll[0])
    assert (model.duality_gap_, model.status_) == (None, "converged")


def test_the_stages_and_their_records(unrolled):
    stages = [record["stage"] for record in unrolled.history_]
    assert list(dict.fromkeys(stages)) == ["program", "wide", "final"]
    assert unrolled.n_iter_ == len(stages)
    program = [record for record in unrolled.history_ if record["stage"] == "program"]
    assert program[-1]["duality_gap"] <= 1e-4
    assert program[-1]["objective"] == pytest.approx(unrolled.program_objective_, rel=1e-9)
    assert unrolled.program_gap_ <= 1e-4


@pytest.mark.parametrize("weighted", [False, True])
def test_without_refinement_the_program_is_the_answer(roll, rng, weighted):
    """All of its dimensions are in the embedding, so that the objective is that of these points."""
    graph = NeighborhoodGraph.from_points(roll[0][:200], 6).linked(random_state=0)
    weights = rng.uniform(0.5, 2, graph.n_edges) if weighted else None
    graph = NeighborhoodGraph.from_edges(graph.heads, graph.tails, graph.lengths, 200, weights)
    model = VariationalMVU(6, n_eigenvectors=6, stretch=0.05, refine=False, tol=1e-7).fit(graph)
    expected = objective_by_hand(model.embedding_, graph, 0.05)
    assert model.objective_ == model.program_objective_ == pytest.approx(expected, rel=1e-3)
    assert model.program_gap_ <= 1e-7 < model.duality_gap_
    values = np.linalg.eigvalsh(model.embedding_.T @ model.embedding_)[::-1]
    np.testing.assert_allclose(model.eigenvalues_, values, atol=1e-8 * values[0])
    squares = np.sum((model.embedding_[graph.heads] - model.embedding_[graph.tails]) ** 2, axis=1)
    distortion = np.max(np.abs(squares / graph.lengths**2 - 1))
    assert model.max_distortion_ == pytest.approx(distortion)


def test_more_functions_reach_more(roll):
    """Eigenvectors of the Laplacian are nested, and so are the programs on them."""
    graph = NeighborhoodGraph.from_points(roll[0][:200], 6).linked(random_state=0)
    found = [
        VariationalMVU(n_eigenvectors=m, refine=False, tol=1e-6).fit(graph).objective_
        for m in (2, 4, 8, 16)
    ]
    assert (np.diff(found) > 0).all()
    refined = VariationalMVU(4, n_eigenvectors=16).fit(graph)
    assert refined.objective_ > found[-1]


@pytest.mark.parametrize("stretch", [0.01, 0.3])
def test_the_stretch_bounds_the_excess_of_squared_lengths(roll, stretch):
    """Also after the refinement, since scaling the points gains nothing: Σℓ(ℓ − D) ≤ ρ Σℓ."""
    graph = NeighborhoodGraph.from_points(roll[0], 6)
    model = VariationalMVU(stretch=stretch, tol=1e-6, max_iter=2000).fit(graph)
    Y, unit = model.embedding_, np.mean(graph.lengths**2)
    lengths = np.sum((Y[graph.heads] - Y[graph.tails]) ** 2, axis=1) / unit
    excess = lengths @ (lengths - graph.lengths**2 / unit)
    trace = np.sum((Y - Y.mean(axis=0)) ** 2) / unit
    pulled = stretch * second_eigenvalue(graph, np.ones(graph.n_edges)) * trace
    assert excess == pytest.approx(pulled, rel=0.02)
    assert excess <= stretch * lengths.sum()


def test_flat_points_stay_as_they_are(rng):
    """Without stretch nothing but lengths counts, and points of a plane have all of them."""
    sheet = rng.uniform(size=(150, 2))
    X = sheet @ np.linalg.qr(rng.normal(size=(5, 5)))[0][:2]
    model = VariationalMVU(n_neighbors=8, stretch=0.0, tol=1e-9, max_iter=3000).fit(X)
    assert model.objective_ > -1e-6
    np.testing.assert_allclose(pdist(model.embedding_), pdist(sheet), atol=2e-3)


@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_units_do_not_matter(roll, unrolled, scale):
    model = VariationalMVU(n_neighbors=6, random_state=0).fit(scale * roll[0])
    np.testing.assert_allclose(
        model.embedding_ / scale, unrolled.embedding_, atol=1e-3 * np.abs(unrolled.embedding_).max()
    )
    assert model.objective_ == pytest.approx(unrolled.objective_, rel=1e-3)


def test_no_more_functions_than_a_small_graph_has():
    """A chain of four nodes has three, and can be drawn straight."""
    chain = NeighborhoodGraph.from_edges([0, 1, 2], [1, 2, 3], [1.0, 2.0, 1.0], 4)
    model = VariationalMVU(n_components=1, stretch=0.001, tol=1e-8, max_iter=2000).fit(chain)
    np.testing.assert_allclose(np.abs(np.diff(model.embedding_[:, 0])), [1, 2, 1], rtol=1e-2)


def test_interrupted_in_the_middle_of_a_refinement(roll, monkeypatch):
    """The limit of seconds is met after the program; the points then are the best so far."""
    seconds = []

    def out_of_time(*arguments, refine=module.refine):
        seconds.append(True)
        fit_clock().max_seconds = 0.0
        return refine(*arguments)

    monkeypatch.setattr(module, "refine", out_of_time)
    model = VariationalMVU(n_neighbors=6)
    with pytest.warns(UserWarning, match="reached max_seconds"):
        model.fit(roll[0])
    assert seconds
    assert model.status_ == "max_seconds"
    assert {record["stage"] for record in model.history_} == {"program", "wide"}
    assert model.embedding_.shape == (600, 2)
    expected = objective_by_hand(model.embedding_, model.graph_, 0.01)
    assert model.objective_ == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"n_eigenvectors": 1}, "n_eigenvectors must be at least n_components=2; got 1"),
        ({"n_eigenvectors": 2.5}, "n_eigenvectors must be an integer of at least 1; got 2.5"),
        ({"basis": "fourier"}, "basis must be one of 'laplacian', 'lle'; got 'fourier'"),
        ({"stretch": -0.1}, "stretch must be a number of at least 0; got -0.1"),
        ({"refine": "yes"}, "refine must be True or False; got 'yes'"),
    ],
)
def test_bad_parameters(roll, parameters, text):
    with pytest.raises(InvalidInputError, match=text):
        VariationalMVU(**parameters).fit(roll[0][:50])


def test_reconstruction_needs_points():
    graph = NeighborhoodGraph.from_edges([0, 1], [1, 2], [1.0, 1.0], 3)
    with pytest.raises(InvalidInputError, match=r"got only distances. Set basis='laplacian'"):
        VariationalMVU(n_components=1, basis="lle").fit(graph)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::nearfar.errors.ConvergenceWarning")
def test_no_array_has_an_entry_for_each_pair():
    """All arrays of a fit together take less than a quarter of n² numbers."""
    X = make_swiss_roll(5000, noise=0.05, random_state=0)[0]
    graph = NeighborhoodGraph.from_points(X, 5).linked(random_state=0)
    tracemalloc.start()
    VariationalMVU(max_iter=5).fit(graph)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * 5000**2 / 4


# -- the gap over all points -------------------------------------------------------------------


@pytest.mark.parametrize("estimator", [VariationalMVU, LandmarkMVU])
def test_gap_tol_is_reached_and_no_points_are_better(roll, estimator):
    """The bound holds for points of any dimension: those of a longer descent are below it."""
    X = roll[0][:150]
    model = estimator(n_neighbors=6, gap_tol=2e-3, random_state=0).fit(X)
    assert model.status_ == "converged"
    assert model.whole_gap_ <= 2e-3
    assert model.whole_gap_ <= model.duality_gap_
    whole = [record for record in model.history_ if record.get("stage") == "whole"]
    assert whole[-1]["duality_gap"] <= 2e-3
    graph = model.graph_
    mean = np.mean(graph.lengths**2)
    reached = np.sum((graph.lengths**2 / mean) ** 2)  # -f(0)
    gap = model.duality_gap_
    bound = (model.objective_ + gap * reached) / (1 - gap)  # (5), solved for the bound
    longer = estimator(n_neighbors=6, gap_tol=2e-4, random_state=1).fit(X)
    assert longer.objective_ <= bound * (1 + 1e-9)
    assert longer.whole_gap_ <= 2e-4


def test_gap_tol_needs_a_refinement_that_maximises_variance(roll):
    for parameters in ({"refine": False}, {"stretch": 0.0}):
        with pytest.raises(InvalidInputError, match="needs refine=True and stretch above 0"):
            VariationalMVU(gap_tol=1e-3, **parameters).fit(roll[0])
    with pytest.raises(InvalidInputError, match="gap_tol must be"):
        VariationalMVU(gap_tol=-1).fit(roll[0])


def test_a_descent_that_ends_early_has_a_gap(roll):
    """One round of steps: the best points so far are kept, and proved as far as they go."""
    model = VariationalMVU(n_neighbors=6, gap_tol=0.0, max_iter=4, tol=1e-1, random_state=0)
    with pytest.warns(UserWarning, match="reached max_iter"):
        model.fit(roll[0][:150])
    assert model.status_ == "max_iter"
    assert 0 < model.whole_gap_ < 1
    assert 0 < model.duality_gap_ < 1
