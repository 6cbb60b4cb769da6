"""Layouts of several components beyond the contract: several runs, endings, copies."""

import numpy as np
import pytest

from nearfar import NeighborhoodGraph
from nearfar.errors import ConvergenceWarning, InvalidInputError
from nearfar.estimators._graph_layout import (
    Layout,
    Unfolded,
    graph_input,
    max_distortion,
    run_component,
    store_layout,
)
from nearfar.estimators._training import Training, store_ending, with_callbacks
from nearfar.estimators._unfolding import Unfolding
from nearfar.limits import fit_clock
from nearfar.solvers import Iterate, Status


class Line(Unfolding):
    """Nodes at their numbers along a line, by two runs of three iterates each.

    ``gaps`` are the gaps and ``ends`` the endings of the components, one after the other.
    """

    n_components = 1
    n_neighbors = 1
    angles = False
    metric = "euclidean"
    merge = True

    def __init__(
        self, on_disconnected="separate", gaps=(0.0, 0.0), ends=None, tol=1e-3, max_iter=5,
        max_seconds=None, random_state=None,
    ):  # fmt: skip
        self.on_disconnected = on_disconnected
        self.gaps = gaps
        self.ends = ends
        self.tol = tol
        self.max_iter = max_iter
        self.max_seconds = max_seconds
        self.random_state = random_state

    @with_callbacks
    def fit(self, X, y=None):
        given = graph_input(self, X)
        training = Training(self, X, y, bounded=False)
        layout = Layout(given, self.n_components, merge=self.merge)
        self.seen = []
        for component in layout.components():
            graph, c = component.graph, component.number
            self.seen.append((graph, fit_clock().seconds))
            places = np.arange(graph.n_nodes, dtype=float)[:, None] - (graph.n_nodes - 1) / 2
            values = np.sum(places**2, axis=0)
            for stage, tol in (("first", 0.5), ("second", 1.0)):
                run_component(
                    training,
                    layout,
                    component,
                    along(places, -values.sum()),
                    lambda iterate: iterate.point,
                    tol=tol,
                    stage=stage,
                )
            unfolded = Unfolded(
                places,
                values,
                max_distortion(places, graph),
                float(values.sum()),
                self.gaps[c],
                Status.CONVERGED if self.ends is None else self.ends[c],
                gap_unit=float(values.sum()),
            )
            layout.place(component, unfolded)
        store_layout(self, layout)
        self.sizes_ = [(len(component.rows), component.number) for component, _ in layout.found]
        status = layout.status(self.tol)
        store_ending(self, status, layout.objective, layout.duality_gap, training.history)
        training.finish(status, layout.attributes())
        return self


def along(places, value):
    for residual in (1.0, 0.1, 0.0):
        yield Iterate(places, value, residual=residual, exact=True)


def path(n, first=0):
    """Edges of a path of n nodes."""
    return np.arange(first, first + n - 1), np.arange(first + 1, first + n)


@pytest.fixture
def two_paths():
    """Paths of 3 and 5 nodes, with edges of length 1 and 2."""
    heads, tails = np.concatenate([path(3), path(5, 3)], axis=1)
    return NeighborhoodGraph.from_edges(heads, tails, [1.0] * 2 + [2.0] * 4, 8)


def test_components_are_unfolded_one_after_the_other_largest_first(two_paths):
    model = Line().fit(two_paths)
    assert model.sizes_ == [(5, 0), (3, 1)]
    np.testing.assert_array_equal(
        np.abs(model.embedding_[:, 0]), np.abs([-1, 0, 1, -2, -1, 0, 1, 2])
    )
    np.testing.assert_array_equal(model.component_labels_, [0] * 3 + [1] * 5)
    np.testing.assert_array_equal(model.eigenvalues_, [12])  # 10 and 2
    assert model.objective_ == 12
    assert model.max_distortion_ == 0.75  # 1 instead of 4


def test_records_of_all_runs_are_kept_with_their_marks(two_paths):
    """Two iterates until the residual is at most 0.5, one until it is at most 1; twice."""
    model = Line().fit(two_paths)
    stages = ["first", "first", "second"]
    assert [(r["component"], r["stage"], r["n_iter"]) for r in model.history_] == [
        *zip([0] * 3, stages, [1, 2, 3], strict=True),
        *zip([1] * 3, stages, [4, 5, 6], strict=True),
    ]
    assert model.n_iter_ == 6
    assert (np.diff([record["seconds"] for record in model.history_]) > 0).all()


def test_max_iter_counts_the_iterations_of_each_run(two_paths):
    model = Line(max_iter=1).fit(two_paths)
    assert [(r["component"], r["stage"]) for r in model.history_] == [
        (0, "first"), (0, "second"), (1, "first"), (1, "second"),
    ]  # fmt: skip


def test_the_gap_is_that_of_the_sum(two_paths):
    """Gaps of 0.1 of 10 and 0.2 of 2 are 1.4 of 12; a node without edges adds nothing."""
    assert Line(gaps=(0.1, 0.2)).fit(two_paths).duality_gap_ == pytest.approx(1.4 / 12)
    assert Line(gaps=(0.1, None)).fit(two_paths).duality_gap_ is None
    edges = two_paths.heads, two_paths.tails, two_paths.lengths
    model = Line(gaps=(0.1, 0.2)).fit(NeighborhoodGraph.from_edges(*edges, 9))
    assert model.duality_gap_ == pytest.approx(1.4 / 12)


def test_components_that_stalled_are_converged_as_a_whole_if_their_gap_is():
    """0.002 of 2 and 0.0001 of 10 are 0.005 of 12, below a tolerance of 0.001."""
    heads, tails = np.concatenate([path(3), path(5, 3)], axis=1)
    graph = NeighborhoodGraph.from_edges(heads, tails, [1.0] * 6, 8)
    ends = (Status.CONVERGED, Status.STALLED)
    model = Line(gaps=(1e-4, 2e-3), ends=ends).fit(graph)
    assert (model.status_, model.duality_gap_) == ("converged", pytest.approx(5e-3 / 12))
    with pytest.warns(ConvergenceWarning, match=r"with a duality gap of 1\.0e-02"):
        assert Line(gaps=(0.0, 0.06), ends=ends).fit(graph).status_ == "stalled"


@pytest.mark.parametrize(
    ("ends", "told"),
    [
        ((Status.CONVERGED, Status.MAX_ITER), "max_iter"),
        ((Status.MAX_ITER, Status.CONVERGED), "max_iter"),
        ((Status.MAX_SECONDS, Status.STALLED), "max_seconds"),
    ],
)
def test_the_worst_ending_is_told(two_paths, ends, told):
    with pytest.warns(ConvergenceWarning, match="Line stopped before tol=0.001"):
        assert Line(ends=ends).fit(two_paths).status_ == told


def test_after_a_stop_the_other_components_stay_at_the_origin(two_paths):
    model = Line(ends=(Status.STOPPED, None)).fit(two_paths)
    assert model.status_ == "stopped"
    assert np.abs(model.embedding_[3:]).max() == 2
    np.testing.assert_array_equal(model.embedding_[:3], 0)
    assert [graph.n_nodes for graph, _ in model.seen] == [5]
    assert model.duality_gap_ is None  # nothing is known of the others
    assert model.max_distortion_ == 1  # whose lengths are now 0


def test_the_clock_runs_through_all_components(two_paths):
    model = Line(max_seconds=100).fit(two_paths)
    first, second = (seconds for _, seconds in model.seen)
    assert 0 < first < second


def test_copies_are_merged_unless_the_fit_says_otherwise():
    """Nodes 1 and 2 are at distance 0 on a path of four nodes."""
    graph = NeighborhoodGraph.from_edges(*path(4), [1.0, 0.0, 1.0], 4)
    model = Line("error").fit(graph)
    np.testing.assert_array_equal(np.abs(model.embedding_[:, 0]), [1, 0, 0, 1])
    assert model.max_distortion_ == 0
    assert model.seen[0][0].n_nodes == 3
    assert model.graph_ is graph
    apart = type("Apart", (Line,), {"merge": False})("error").fit(graph)
    np.testing.assert_array_equal(np.abs(apart.embedding_[:, 0]), [1.5, 0.5, 0.5, 1.5])
    assert apart.seen[0][0].n_nodes == 4


def test_contradicting_copies_are_refused():
    graph = NeighborhoodGraph.from_edges([0, 0, 1], [1, 2, 2], [0.0, 1.0, 2.0], 3)
    with pytest.raises(InvalidInputError, match="differs in length from an edge between copies"):
        Line().fit(graph)


def test_distortion_is_of_squares_and_ignores_copies():
    """Lengths 1 and 2 become 2 and 1: squares 4 instead of 1, and 1 instead of 4."""
    graph = NeighborhoodGraph.from_edges([0, 1, 2], [1, 2, 3], [1.0, 2.0, 0.0], 4)
    assert max_distortion(np.array([[0.0], [2.0], [3.0], [9.0]]), graph) == 3.0
    assert max_distortion(np.array([[0.0], [1.0], [2.0], [9.0]]), graph) == 0.75
    assert max_distortion(np.zeros((2, 1)), NeighborhoodGraph.from_edges([], [], [], 2)) == 0


def test_more_dimensions_than_there_are_become_columns_of_zero(two_paths):
    wide = type("Wide", (Line,), {"n_components": 3})().fit(two_paths)
    assert wide.embedding_.shape == (8, 3)
    np.testing.assert_array_equal(wide.embedding_[:, 1:], 0)
