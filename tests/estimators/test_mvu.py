"""MVU: what it reports is recomputed from `kernel_` and the graph; what it refuses and warns of.

That an unfolding handles graphs, dtypes, limits and devices is tested in
tests/contracts/test_unfolding.py, the program itself in tests/problems/test_mvu.py.
"""

import re
import warnings

import numpy as np
import pytest
from sklearn.datasets import make_s_curve, make_swiss_roll
from sklearn.metrics import pairwise_distances

import nearfar
from nearfar import MVU, NeighborhoodGraph
from nearfar.errors import ConvergenceWarning, DataWarning, InvalidInputError
from nearfar.estimators import mvu as module
from nearfar.estimators._mvu import PairLimits
from nearfar.solvers import Iterate, Status, run
from nearfar.solvers.interior_point import interior_point
from tests.conic import solve_conic
from tests.problems.test_mvu import Graph, by_clarabel


def swiss_roll(n, rng, noise=0.05):
    """A Swiss roll of one turn with five dimensions of noise, as in the thesis, and its angle.

    Points are near those of a grid, five across, so that their graph is connected.
    """
    along, across = np.divmod(np.arange(n), 5) + rng.uniform(-0.25, 0.25, size=(2, n))
    angle, height = np.pi * (1.5 + 2 * along / (n / 5)), 2.4 * across
    roll = np.stack([angle * np.cos(angle), height, angle * np.sin(angle)], axis=1)
    return np.concatenate([roll, noise * rng.normal(size=(n, 5))], axis=1), angle


@pytest.fixture
def roll(rng, read_only):
    return read_only(swiss_roll(100, rng)[0])


def lengths(K, graph):
    d = np.diag(K)
    return d[graph.heads] + d[graph.tails] - 2 * K[graph.heads, graph.tails]


def change(model):
    """Of all squared lengths, relative, from `kernel_` alone."""
    return lengths(model.kernel_, model.graph_) / model.graph_.lengths**2 - 1


# -- the answer --------------------------------------------------------------------------------


def test_the_numbers_are_those_of_the_kernel(roll):
    model = MVU(n_components=3).fit(roll)
    K, r = model.kernel_, model.n_components
    assert (model.status_, K.dtype, K.shape) == ("converged", np.float64, (100, 100))
    np.testing.assert_allclose(K.sum(axis=0), 0, atol=1e-9 * np.trace(K))
    values = np.linalg.eigvalsh(K)[::-1]
    assert values[-1] >= -1e-10 * values[0]
    np.testing.assert_allclose(model.eigenvalues_, values, atol=1e-9 * values[0])
    best = (K @ model.embedding_) / model.eigenvalues_[:r]
    np.testing.assert_allclose(best, model.embedding_, atol=1e-6 * np.sqrt(values[0]))
    assert model.objective_ == pytest.approx(np.trace(K), rel=1e-12)
    assert model.max_distortion_ == pytest.approx(np.abs(change(model)).max(), abs=1e-12)
    assert model.max_distortion_ <= 1e-6
    assert model.duality_gap_ <= 1e-6
    edge = np.sqrt(np.mean(model.graph_.lengths**2))
    assert edge < 0.5 * np.sqrt(values.sum() / 100)
    assert model.intrinsic_dimension_ == (np.sqrt(values.clip(0) / 100) > edge).sum()
    assert not model.locked_up_


def test_the_certificate_by_the_multipliers_of_the_same_run(roll):
    """S of the final y is positive up to rounding; its bound and the gap are those reported."""
    model = MVU().fit(roll)
    graph = model.graph_
    program = model._program(graph, np.zeros(0), PairLimits.of(None, None, 100))
    solution = run(interior_point(program), tol=1e-6, max_iter=100)
    weights = solution.iterate.state.y / program.squares  # as in Lap(w)
    W = np.zeros((100, 100))
    W[graph.heads, graph.tails] = W[graph.tails, graph.heads] = weights
    S = np.diag(W.sum(axis=0)) - W - np.eye(100) + 1 / 100
    assert np.linalg.eigvalsh(S)[0] >= -1e-9
    bound = weights @ graph.lengths**2
    assert model.history_[-1]["bound"] == pytest.approx(bound, rel=1e-9)
    y = np.abs(weights) * graph.lengths**2
    cost = 2 * (y + y.mean()) @ np.abs(change(model))
    gap = max((bound - np.trace(model.kernel_) + cost) / bound, np.abs(change(model)).max())
    assert model.duality_gap_ == pytest.approx(gap, rel=1e-3, abs=1e-9)


@pytest.mark.parametrize("limit", [8, 10, 100])
@pytest.mark.parametrize("constraints", ["equal", "shrink", "slack"])
@pytest.mark.filterwarnings("ignore:MVU stopped before tol")
def test_the_gap_bounds_the_distance_of_what_is_returned_from_the_optimum(constraints, limit):
    """From kernel_ and graph_ alone, with the optimum by another solver, after any number of
    iterations. Weights of 0.99 are a price of 99 for a change of a squared length."""
    for seed in range(3):
        X = np.random.default_rng([seed, limit]).normal(size=(12, 5)) * [3, 2, 1, 0.5, 0.5]
        model = MVU(n_neighbors=3, constraints=constraints, on_disconnected="link", max_iter=limit)
        model.set_params(random_state=0).fit(X)
        graph, K, D = model.graph_, model.kernel_, model.graph_.lengths**2
        assert model.thickness_ == 0
        optimum, _ = by_clarabel(Graph(graph.heads, graph.tails, D, 12), constraints, 0.99)
        slack_cost = 99 * np.abs(lengths(K, graph) - D).sum() if constraints == "slack" else 0.0
        objective = np.trace(K) - slack_cost
        assert model.objective_ == pytest.approx(objective, rel=1e-9)
        unit = max(D.mean(), abs(model.history_[-1]["bound"]))
        assert abs(objective - optimum) <= model.duality_gap_ * unit + 1e-6 * optimum
        growth = {"equal": np.abs(change(model)), "shrink": change(model), "slack": np.zeros(1)}
        assert model.duality_gap_ >= growth[constraints].max() - 1e-12


def laplacian(weights, graph):
    W = np.zeros((graph.n_nodes, graph.n_nodes))
    np.add.at(W, (graph.heads, graph.tails), weights)
    return np.diag(W.sum(axis=0) + W.sum(axis=1)) - W - W.T


@pytest.mark.parametrize(
    ("constraints", "sign"),
    [("equal", 1), ("shrink", 1), ("slack", 1), ("equal", -1), ("slack", -1)],
)
def test_forces_on_edges_balance_the_pull_on_points(roll, constraints, sign):
    """S K = 0 with S = Lap(w) - P: the sum of w (yᵢ - yⱼ) over the edges of a point is yᵢ."""
    model = MVU(n_neighbors=4, constraints=constraints, tol=1e-8)
    model.set_params(variance="max" if sign > 0 else "min").fit(roll)
    K, w = model.kernel_, model.edge_forces_
    assert w.shape == (model.graph_.n_edges,)
    np.testing.assert_allclose(
        laplacian(w, model.graph_) @ K, sign * K, atol=1e-3 * np.abs(K).max()
    )
    if constraints != "slack":
        return
    grown, shrunk = change(model) > 1e-6, change(model) < -1e-6
    np.testing.assert_allclose(w[grown], 99, rtol=1e-3)  # its price
    np.testing.assert_allclose(w[shrunk], -99, rtol=1e-3)


def test_forces_of_lengths_that_may_shrink_are_the_fastest_mixing_process(rng):
    """Rates w >= 0 with D'w <= 1 and the largest second eigenvalue of Lap(w) [Sun et al., 2006]:
    the forces divided by their D'w, the variance, by another solver of that problem itself."""
    import clarabel

    X = rng.normal(size=(14, 5)) * [3, 2, 1, 0.5, 0.5]
    model = MVU(n_neighbors=4, constraints="shrink", tol=1e-8).fit(X)
    graph, D, n = model.graph_, model.graph_.lengths**2, 14
    rates = model.edge_forces_ / (D @ model.edge_forces_)
    assert rates.min() >= 0
    second = np.linalg.eigvalsh(laplacian(rates, graph))[1]
    assert second == pytest.approx(1 / np.trace(model.kernel_), rel=1e-6)
    V = np.linalg.qr(np.c_[np.ones(n), np.eye(n)[:, 1:]])[0][:, 1:]
    edges, m = V[graph.heads] - V[graph.tails], graph.n_edges
    columns, rows = np.tril_indices(n - 1)
    root = np.where(rows == columns, 1.0, np.sqrt(2))
    A = np.block(  # maximise s: Lap(w) - s I psd, w >= 0, D'w <= 1
        [
            [-(edges[:, rows] * edges[:, columns] * root).T, 1.0 * (rows == columns)[:, None]],
            [-np.eye(m), np.zeros((m, 1))],
            [D[None], np.zeros((1, 1))],
        ]
    )
    b = np.r_[np.zeros(len(rows) + m), 1.0]
    cones = [clarabel.PSDTriangleConeT(n - 1), clarabel.NonnegativeConeT(m + 1)]
    found = solve_conic(-np.eye(m + 1)[m], A, b, cones)
    assert -found.obj_val == pytest.approx(second, rel=1e-5)


def test_forces_where_points_have_copies(roll):
    """Edges of copies have none, and those that copies share are counted once."""
    model = MVU(n_neighbors=4).fit(np.r_[roll, roll[:3]])
    graph, first = model.graph_, np.r_[np.arange(100), np.arange(3)]
    assert (model.edge_forces_[graph.lengths == 0] == 0).all()
    W = np.zeros((100, 100))
    np.add.at(W, (first[graph.heads], first[graph.tails]), model.edge_forces_)
    W, K = W + W.T, model.kernel_[:100, :100]
    L = np.diag(W.sum(axis=0)) - W
    np.testing.assert_allclose(L @ K, K, atol=1e-2 * np.abs(K).max())


def test_dimacs_measures(roll):
    """Err 1, 2 and 5 of Mittelmann's survey, in units of the mean squared length; the others are
    of the dual: err3 is zero by construction, err6 at least err5 up to infeasibility."""
    model = MVU().fit(roll)
    D = model.graph_.lengths**2
    unit = D.mean()
    K, size = model.kernel_ / unit, 1 + D.max() / unit
    found = model.dimacs_
    assert set(found) == {f"err{i}" for i in range(1, 7)}
    norm = np.linalg.norm(lengths(K, model.graph_) - D / unit)
    assert found["err1"] == pytest.approx(norm / size, rel=1e-3, abs=1e-12)
    assert found["err2"] == pytest.approx(max(0, -np.linalg.eigvalsh(K)[0]) / size, abs=1e-12)
    bound, trace = model.history_[-1]["bound"] / unit, np.trace(K)
    assert found["err5"] == pytest.approx((bound - trace) / (1 + trace + bound), rel=1e-3)
    assert found["err6"] == pytest.approx(found["err5"], rel=0.1)
    assert max(abs(value) for value in found.values()) < 1e-5


def test_history_tells_objective_bound_violation_and_gap(roll):
    model = MVU().fit(roll)
    assert len(model.history_) == model.n_iter_ < 30
    last = model.history_[-1]
    assert last["objective"] == pytest.approx(model.objective_, rel=1e-9)
    assert last["violation"] == pytest.approx(model.max_distortion_, rel=1e-6, abs=1e-12)
    assert last["duality_gap"] == pytest.approx(model.duality_gap_, rel=1e-3, abs=1e-9)
    assert {"n_iter", "seconds", "mu", "component"} <= set(last)


@pytest.mark.parametrize("n", [120, 200])
def test_a_swiss_roll_unfolds_into_two_dimensions(seed, n):
    """Thesis, Figure 3.5: nearly all variance in two dimensions, of which one is the length along
    the spiral; the points themselves need three."""
    rng = np.random.default_rng([seed, n])
    X, angle = swiss_roll(n, rng)
    model = MVU(on_disconnected="link", random_state=0).fit(X)
    share = model.eigenvalues_[:2].sum() / model.eigenvalues_.sum()
    before = np.linalg.svd(X - X.mean(axis=0), compute_uv=False) ** 2
    assert share > 0.97
    assert before[:2].sum() / before.sum() < 0.9
    along = angle * np.sqrt(1 + angle**2) + np.arcsinh(angle)  # twice the length of the spiral
    Y = model.embedding_
    linear = np.linalg.lstsq(np.c_[Y, np.ones(n)], along, rcond=None)[1][0]
    assert 1 - linear / np.sum((along - along.mean()) ** 2) > 0.95
    assert model.duality_gap_ <= 1e-6


def test_least_variance_is_less_than_the_data_and_most_is_more(roll):
    """The points themselves keep all lengths, so that their variance lies between."""
    own = np.sum((roll - roll.mean(axis=0)) ** 2)
    least, most = MVU(variance="min").fit(roll), MVU().fit(roll)
    assert np.trace(least.kernel_) < own < np.trace(most.kernel_)
    assert least.objective_ == pytest.approx(-np.trace(least.kernel_))
    assert np.abs(change(least)).max() <= 1e-6
    assert not least.locked_up_


def test_shrinking_lengths_give_at_least_the_variance_of_equal_ones(roll):
    model, equal = MVU(constraints="shrink").fit(roll), MVU().fit(roll)
    assert change(model).max() <= 1e-6
    assert change(model).min() < -1e-3
    assert model.max_distortion_ == pytest.approx(-change(model).min())
    assert model.objective_ > equal.objective_


@pytest.mark.parametrize("weight", [0.99, 0.999])
def test_slack_is_paid_at_its_price(roll, weight):
    """Thesis, 3.1.6: (1 - w) tr K - w sum |change| over 1 - w."""
    model = MVU(constraints="slack", slack_weight=weight).fit(roll)
    graph = model.graph_
    changes = np.abs(lengths(model.kernel_, graph) - graph.lengths**2).sum()
    slack_cost = weight / (1 - weight) * changes
    assert model.objective_ == pytest.approx(np.trace(model.kernel_) - slack_cost, rel=1e-9)
    assert model.duality_gap_ <= 1e-6
    bound = model.history_[-1]["bound"]
    assert 0 <= bound - model.objective_ <= 1.01e-6 * bound
    assert bound >= MVU().fit(roll).objective_  # equal lengths pay nothing


def test_neighbours_without_angles_give_more_variance(roll):
    whole, sparse = MVU().fit(roll), MVU(angles=False).fit(roll)
    assert sparse.graph_.n_edges < whole.graph_.n_edges
    assert sparse.objective_ > whole.objective_


@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_the_scale_of_the_data_does_not_matter(roll, scale):
    plain, scaled = MVU().fit(roll), MVU().fit(scale * roll)
    assert scaled.n_iter_ == plain.n_iter_
    np.testing.assert_allclose(
        scaled.embedding_ / scale, plain.embedding_, atol=1e-5 * np.abs(plain.embedding_).max()
    )


def test_every_kind_of_input_gives_the_same_kernel(roll):
    """Distances, a kernel matrix or a graph give what the points give."""
    K = MVU().fit(roll).kernel_
    D = pairwise_distances(roll)
    centred = roll - roll.mean(axis=0)
    atol = 1e-4 * np.trace(K)
    np.testing.assert_allclose(MVU(metric="precomputed").fit(D).kernel_, K, atol=atol)
    np.testing.assert_allclose(MVU(metric="kernel").fit(centred @ centred.T).kernel_, K, atol=atol)
    graph = NeighborhoodGraph.from_points(roll, 5)
    np.testing.assert_allclose(MVU().fit(graph).kernel_, K, atol=atol)


# -- stiff graphs and lock-up ------------------------------------------------------------------


def test_too_many_neighbours_lock_up_and_slack_is_a_remedy(rng):
    """A roll in three dimensions and 8 neighbours with angles: the Gram matrix is that of the
    points, but for their thickness, which the warning says, with its remedies; and one helps."""
    X, _ = swiss_roll(90, rng, noise=0)
    own = np.linalg.svd(X - X.mean(axis=0), compute_uv=False) ** 2
    with pytest.warns(DataWarning, match="locked up.*Lower n_neighbors, .*slack"):
        model = MVU(n_neighbors=8, tol=1e-4).fit(X)
    assert model.locked_up_
    np.testing.assert_allclose(model.eigenvalues_[:3], own[:3], rtol=0.05)
    graph = model.graph_
    price = 1.2 / np.linalg.eigvalsh(graph.laplacian(np.ones(graph.n_edges)).toarray())[1]
    weight = price / (1 + price)  # a little above the least price
    freed = MVU(n_neighbors=8, constraints="slack", slack_weight=weight, tol=1e-4).fit(X)
    assert not freed.locked_up_
    assert freed.eigenvalues_.sum() > 1.1 * own.sum()


def test_a_flat_sheet_is_not_locked_up(rng):
    """Points that lie in as many dimensions as asked for are what they should be."""
    X = rng.uniform(size=(40, 2)) * [3, 1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        assert not MVU(n_neighbors=6, tol=1e-4, on_disconnected="link").fit(X).locked_up_


@pytest.mark.parametrize("make", [make_s_curve, make_swiss_roll])
def test_a_stiff_graph_gets_points_of_some_thickness(make):
    """Cliques of five points in three dimensions leave no interior. So each point i gets a
    dimension of its own, of the hundredth part of t_i, its least squared distance."""
    X, _ = make(120, noise=0.05, random_state=0)
    model = MVU(on_disconnected="link", random_state=0).fit(X)
    assert (model.status_, model.thickness_) == ("converged", 0.01)
    graph, D = model.graph_, model.graph_.lengths**2
    least = np.array(
        [D[(graph.heads == node) | (graph.tails == node)].min() for node in range(len(X))]
    )
    wanted = D + 0.01 * (least[graph.heads] + least[graph.tails])
    np.testing.assert_allclose(lengths(model.kernel_, graph), wanted, rtol=1e-6)
    assert model.max_distortion_ == pytest.approx(np.abs(change(model)).max(), rel=1e-6)
    assert model.max_distortion_ <= 0.02 + 1e-6
    assert model.duality_gap_ <= 1e-6


@pytest.mark.filterwarnings(
    "ignore:squared lengths could be kept only to:nearfar.errors.DataWarning"
)
def test_exact_lengths_of_a_stiff_graph_are_kept_as_far_as_rounding_allows():
    X, _ = make_s_curve(120, noise=0.05, random_state=0)
    with pytest.warns(ConvergenceWarning, match="before tol=1e-05: rounding errors .* Raise tol"):
        exact = MVU(constraints="exact", tol=1e-5, on_disconnected="link", random_state=0).fit(X)
    assert (exact.status_, exact.thickness_) == ("stalled", 0)
    assert exact.max_distortion_ == pytest.approx(np.abs(change(exact)).max(), rel=1e-6)
    assert exact.max_distortion_ <= 1e-5
    assert exact.duality_gap_ <= 0.1
    thicker = MVU(on_disconnected="link", random_state=0).fit(X)
    own = np.sum((X - X.mean(axis=0)) ** 2)
    assert own < exact.objective_ < thicker.objective_


def test_exact_lengths_are_equal_ones_where_the_graph_is_not_stiff(roll):
    model, plain = MVU(constraints="exact").fit(roll), MVU().fit(roll)
    np.testing.assert_array_equal(model.kernel_, plain.kernel_)
    assert model.thickness_ == plain.thickness_ == 0


# -- what is refused ---------------------------------------------------------------------------


def test_contradictory_distances_are_refused_with_the_edges():
    """A triangle with sides 1, 1 and 3, beside edges that are sound."""
    heads, tails = [0, 0, 1, 2, 3], [1, 2, 2, 3, 4]
    graph = NeighborhoodGraph.from_edges(heads, tails, [1.0, 1.0, 3.0, 1.0, 1.0], 5)
    with pytest.raises(InvalidInputError) as caught:
        MVU().fit(graph)
    text = str(caught.value)
    assert re.search(r"no points have these distances: \d of 5 edges would have to change", text)
    assert re.search(r"1-2 \(-\d+\.\d%\)", text)
    assert "constraints='slack' or 'shrink'" in text
    assert {1, 2} <= set(caught.value.indices) <= {0, 1, 2}
    for constraints in ("slack", "shrink"):
        assert MVU(constraints=constraints).fit(graph).status_ == "converged"


def test_slack_that_is_too_cheap_is_refused_with_the_least_weight(roll):
    with pytest.raises(InvalidInputError, match="grows without bound") as caught:
        MVU(constraints="slack", slack_weight=0.01).fit(roll)
    least = float(re.search(r"must be above (\d\.\d+)", str(caught.value)).group(1))
    graph = NeighborhoodGraph.from_points(roll, 5)
    second = np.linalg.eigvalsh(graph.laplacian(np.ones(graph.n_edges)).toarray())[1]
    assert least == pytest.approx(1 / (1 + second), rel=1e-4)
    assert MVU(constraints="slack", slack_weight=0.01, variance="min").fit(roll).n_iter_ > 1


class Chained:
    """A program that has a successor, which has a third, which has none."""

    def __init__(self, number=0):
        self.number = number

    def raised(self, _):
        return None

    def hidden(self, _):
        return 0.01

    def successor(self, state):
        assert state == f"last of {self.number}"
        return Chained(self.number + 1) if self.number < 2 else None


def test_programs_follow_in_turn(monkeypatch):
    """Each iterate carries the program that it belongs to; the last state chooses the next one."""
    gaps = {0: [1.0, 0.1, 0.3], 1: [2.0, 0.2], 2: [0.05]}

    def path(program, start):
        assert start is None
        values = gaps[program.number]
        for left, gap in zip(reversed(range(len(values))), values, strict=True):
            state = "" if left else f"last of {program.number}"
            yield Iterate(np.empty(0), gap, gap, exact=True, state=state)

    monkeypatch.setattr(module, "interior_point", path)
    iterates = list(module.iterates_of(Chained()))
    assert [it.residual for it in iterates] == [it.value + 0.01 for it in iterates]
    found = [(it.state[0].number, it.value) for it in iterates]
    assert found == [(number, gap) for number, values in gaps.items() for gap in values]


def test_too_little_memory_is_refused_before_any_work(roll, monkeypatch):
    def work(*_):
        raise AssertionError("it has begun")

    monkeypatch.setattr(module.MVUProgram, "build", work)
    monkeypatch.setattr(module, "interior_point", work)
    with pytest.raises(InvalidInputError) as caught:
        MVU(memory_limit=1e-4).fit(roll)
    text = str(caught.value)
    m = NeighborhoodGraph.from_points(roll, 5).n_edges
    needed = (8 * m**2 + 24 * m * 100 + 100 * 100**2) / 1e9
    assert f"100 points and {m} edges needs about {needed:.2g} GB, above the limit of" in text
    assert "VariationalMVU or LandmarkMVU" in text
    monkeypatch.setattr(module.gram_kernels_for(roll), "total_memory", lambda _: 1e5)
    with pytest.raises(InvalidInputError, match="VariationalMVU"):
        MVU().fit(roll)


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"constraints": "none"}, "constraints must be one of 'equal', 'exact', 'shrink', 'slack'"),
        ({"slack_weight": 1.0}, "slack_weight must be"),
        ({"slack_weight": 0.0}, "slack_weight must be"),
        ({"slack_weight": (0.9, 2)}, r"slack_weight\[1\] must be a number between 0 and 1; got 2"),
        ({"verbose": "loud"}, "verbose must be an integer of at least 0; got 'loud'"),
        ({"variance": "mean"}, "variance must be one of 'max', 'min'"),
        ({"variance": "min", "constraints": "shrink"}, "least variance .* is zero"),
        ({"memory_limit": 0}, "memory_limit must be"),
    ],
)
def test_bad_parameters(roll, parameters, text):
    with pytest.raises(InvalidInputError, match=text):
        MVU(**parameters).fit(roll)


# -- limits, copies, components, devices, files ------------------------------------------------


def test_an_interruption_keeps_the_best_iterate(roll, monkeypatch):
    """Ctrl-C in the tenth iteration: what is kept has the least gap so far."""

    def interrupted(program, start):
        for number, iterate in enumerate(interior_point(program, start)):
            if number == 10:
                raise KeyboardInterrupt
            yield iterate

    monkeypatch.setattr(module, "interior_point", interrupted)
    with pytest.warns(ConvergenceWarning, match="was interrupted"):
        model = MVU().fit(roll)
    assert (model.status_, model.n_iter_) == ("interrupted", 10)
    best = min(record["duality_gap"] for record in model.history_)
    assert model.duality_gap_ == pytest.approx(best, rel=1e-6)
    values = np.linalg.eigvalsh(model.kernel_)
    assert values[0] >= -1e-10 * values[-1]


def test_limits_warn_and_leave_a_certificate(roll):
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        model = MVU(max_iter=12).fit(roll)
    assert model.status_ == str(Status.MAX_ITER)
    assert 1e-6 < model.duality_gap_ < 1


def test_copies_have_equal_rows_in_the_kernel(roll):
    model = MVU().fit(np.concatenate([roll, roll[[3, 3, 50]]]))
    K = model.kernel_
    assert K.shape == (103, 103)
    np.testing.assert_array_equal(K[[100, 101]], K[[3, 3]])
    np.testing.assert_array_equal(K[102], K[50])
    plain = MVU().fit(roll)
    np.testing.assert_allclose(
        K[:100, :100], plain.kernel_, atol=1e-4 * np.abs(plain.kernel_).max()
    )


@pytest.mark.filterwarnings("ignore:MVU has locked up")
def test_separate_components_are_blocks_of_the_kernel(roll):
    X = np.concatenate([roll[:60], 1e3 + roll[:40]])
    model = MVU(on_disconnected="separate", tol=1e-5).fit(X)
    labels = model.component_labels_
    assert sorted(np.bincount(labels)) == [40, 60]
    assert not model.kernel_[labels == 0][:, labels == 1].any()
    assert np.abs(change(model)).max() <= 1e-5
    assert model.objective_ == pytest.approx(np.trace(model.kernel_))


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_the_gap_of_separate_components_is_that_of_their_sum(roll, scale):
    """Each converged, so that their sum did: in any unit, with nodes that stand alone."""
    X = scale * np.concatenate([roll[:60], 1e3 + roll[:40], [roll[0] - 1e4]])
    D = pairwise_distances(X)
    D[500 * scale < D] = np.nan
    model = MVU(on_disconnected="separate", metric="precomputed", tol=1e-5).fit(D)
    assert sorted(np.bincount(model.component_labels_)) == [1, 40, 60]
    assert model.status_ == "converged"
    assert model.duality_gap_ <= 1e-5
    ends = [
        [record for record in model.history_ if record["component"] == number][-1]
        for number in range(2)
    ]
    bound = sum(record["bound"] for record in ends)
    assert (bound - np.trace(model.kernel_)) / bound <= model.duality_gap_
    gaps = sum(record["duality_gap"] * record["bound"] for record in ends) / bound
    assert model.duality_gap_ == pytest.approx(gaps, rel=1e-2)


@pytest.mark.parametrize("constraints", ["equal", "exact", "shrink"])
@pytest.mark.parametrize("far", [1e8, 1e9, 1e12, 1e15])
def test_an_outlier_so_far_that_rounding_changes_short_lengths_is_told(roll, constraints, far):
    """The points have these distances: it is not they that contradict each other."""
    X = np.concatenate([roll, roll[:1] + far * np.sqrt(100)])
    model = MVU(constraints=constraints, on_disconnected="link", random_state=0)
    with pytest.raises(InvalidInputError, match="so different that rounding") as caught:
        model.fit(X)
    assert re.search(
        r"edge \d+-100 [\d.]+e\+\d+\. Leave out outliers, .*'slack'", str(caught.value)
    )
    assert 100 in caught.value.indices
    if constraints == "equal":  # with "slack" it is the same fit for all of them
        model.set_params(constraints="slack", slack_weight=0.999)
        assert model.fit(X).status_ == "converged"


def test_points_that_are_nearly_copies_are_told(roll):
    with pytest.raises(InvalidInputError, match=r"edge 0-100 is .*e-1. long.* make points equal"):
        MVU().fit(np.concatenate([roll, roll[:1] + 1e-10]))


def test_the_warning_of_changed_lengths_names_an_outlier(roll):
    X = np.concatenate([roll[:20], roll[:1] + 4e6])
    with (
        pytest.warns(ConvergenceWarning, match="rounding errors"),
        pytest.warns(DataWarning, match="rounding changes the short ones. Leave out outliers, or"),
    ):
        MVU(on_disconnected="link", random_state=0).fit(X)


def test_float32_in_float32_out_and_the_kernel_in_float64(roll):
    single, double = MVU().fit(roll.astype(np.float32)), MVU().fit(roll)
    assert (single.embedding_.dtype, single.kernel_.dtype) == (np.float32, np.float64)
    assert single.duality_gap_ <= 1e-6
    assert single.objective_ == pytest.approx(double.objective_, rel=1e-3)


def test_tensors_give_what_arrays_give(roll, backend):
    model, plain = MVU().fit(backend.asarray(roll)), MVU().fit(roll)
    K = backend.to_numpy(model.kernel_)
    np.testing.assert_allclose(K, plain.kernel_, atol=1e-4 * np.trace(K))
    assert model.objective_ == pytest.approx(plain.objective_, rel=2e-6)
    assert model.dimacs_["err1"] < 1e-7


def test_saved_and_loaded(roll, tmp_path):
    model = MVU(constraints="slack", tol=1e-4).fit(roll)
    nearfar.save(model, tmp_path / "roll.nearfar")
    twin = nearfar.load(tmp_path / "roll.nearfar")
    assert twin.get_params() == model.get_params()
    np.testing.assert_array_equal(twin.kernel_, model.kernel_)
    np.testing.assert_array_equal(twin.graph_.lengths, model.graph_.lengths)
    assert (twin.dimacs_, twin.history_) == (model.dimacs_, model.history_)
    np.testing.assert_array_equal(twin.transform(roll + 0.01), model.transform(roll + 0.01))


@pytest.mark.parametrize("constraints", ["equal", "exact", "shrink", "slack"])
@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_a_regular_simplex_is_as_large_as_it_is(n, constraints):
    """All distances 1: the Gram matrix is (I − 11ᵀ/n) / 2, of trace (n − 1) / 2."""
    model = MVU(1, None, metric="precomputed", constraints=constraints, slack_weight=0.999)
    model.fit(np.ones((n, n)) - np.eye(n))
    assert model.status_ == "converged"
    assert np.trace(model.kernel_) == pytest.approx((n - 1) / 2, rel=2e-2)


@pytest.mark.parametrize("constraints", ["shrink", "slack"])
def test_changes_that_are_allowed_are_no_dimacs_error(roll, constraints):
    model = MVU(constraints=constraints, slack_weight=0.999).fit(roll)
    assert np.abs(change(model)).max() > 1e-4
    assert abs(model.dimacs_["err1"]) < 1e-6


def test_new_points_are_refused_after_a_fit_on_a_kernel(roll):
    centred = roll - roll.mean(axis=0)
    model = MVU(metric="kernel").fit(centred @ centred.T)
    with pytest.raises(InvalidInputError, match=r"do not determine the distances.*'precomputed'"):
        model.transform(centred[:3] @ centred.T)


# -- the dimension -----------------------------------------------------------------------------


def full_roll(n, seed):
    """The thesis' roll of two turns, as long as four times its width, with five noisy features."""
    roll, _ = make_swiss_roll(n, random_state=seed)
    noise = 0.05 * np.random.default_rng(seed).normal(size=(n, 5))
    return np.concatenate([roll, noise], axis=1)


def half_circle(n, seed, angle=np.pi):
    random = np.random.default_rng(seed)
    t = np.linspace(0, angle, n)
    return np.c_[np.cos(t), np.sin(t), 0.01 * random.normal(size=(n, 10))]


@pytest.mark.parametrize(
    ("X", "k", "dimension"),
    [
        (full_roll(300, 0), 4, 2),  # shares 0.952 0.042 0.004: the widest gap is the first
        pytest.param(full_roll(300, 0), 5, 2, marks=pytest.mark.slow),
        (half_circle(100, 0), 4, 1),
        (half_circle(100, 0, 2 * np.pi), 4, 2),  # a closed curve needs two dimensions
        (np.random.default_rng(0).normal(size=(60, 6)), 4, 6),  # no sheet: 95 % of the variance
    ],
    ids=["roll, 4", "roll, 5", "half circle", "circle", "noise"],
)
def test_the_dimension_counts_axes_that_are_longer_than_an_edge(X, k, dimension):
    assert MVU(n_neighbors=k, tol=1e-4).fit(X).intrinsic_dimension_ == dimension


def test_edges_to_an_outlier_hide_no_dimension(rng):
    """They are longer than the sheet is wide. Where it lies is a third dimension."""
    sheet = np.c_[rng.uniform(size=(100, 2)) * [20, 10], np.zeros(100)]
    model = MVU(n_neighbors=5, tol=1e-3).fit(np.r_[sheet, [[0, 0, 300]]])
    assert model.intrinsic_dimension_ == 3


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_third_axis_shorter_than_an_edge_is_none(seed):
    """Some edges join layers of these rolls, and a third axis holds up to 7 % of the variance."""
    roll, _ = make_swiss_roll(300, noise=0.3, random_state=seed)
    assert MVU(n_neighbors=5, constraints="shrink", tol=1e-4).fit(roll).intrinsic_dimension_ == 2
