"""Sensor localisation: true places, anchors, errors, and which nodes are pinned down."""

import inspect
import pickle
import re

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

from nearfar import NeighborhoodGraph, SensorLocalization
from nearfar.errors import (
    ConvergenceWarning,
    DataWarning,
    DisconnectedGraphError,
    InvalidInputError,
)
from tests.callbacks import Recorder, interrupt, needs_callbacks

# -- documentation ---------------------------------------------------------------------------


def test_documented_parameters_and_attributes_are_the_true_ones(field):
    doc = inspect.getdoc(SensorLocalization)
    section = doc.partition("Parameters\n---")[2].partition("\nAttributes\n---")[0]
    documented = dict(re.findall(r"^(\w+) : .*default=(.+)$", section, re.MULTILINE))
    signature = inspect.signature(SensorLocalization).parameters
    assert {name: eval(value, {}) for name, value in documented.items()} == {
        name: p.default for name, p in signature.items()
    }
    section = doc.partition("\nAttributes\n---")[2].partition("\nNotes\n---")[0]
    model = SensorLocalization().fit(field.network(0.1))
    assert {name for name in vars(model) if name.endswith("_")} == set(
        re.findall(r"^(\w+_) : ", section, re.MULTILINE)
    )


# -- where nodes are ---------------------------------------------------------------------------


class Field:
    """Nodes in a unit square, those nearer than the radius joined."""

    def __init__(self, places, radius, rng):
        self.places, self.rng = places, rng
        self.graph = NeighborhoodGraph.from_points(places, radius=radius, angles=False)

    def network(self, noise):
        graph, n = self.graph, len(self.places)
        lengths = graph.lengths * self.rng.uniform(1 - noise, 1 + noise, graph.n_edges)
        return NeighborhoodGraph.from_edges(graph.heads, graph.tails, lengths, n)

    def errors(self, Y):
        """Distances to the true places after the best rigid motion."""
        Y, T = Y - Y.mean(axis=0), self.places - self.places.mean(axis=0)
        left, _, right = np.linalg.svd(Y.T @ T)
        return np.linalg.norm(Y @ (left @ right) - T, axis=1)

    def anchors(self, nodes):
        return {int(node): self.places[node] for node in nodes}


@pytest.fixture
def field(rng):
    return Field(rng.uniform(size=(250, 2)), 0.2, rng)


@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_exact_distances_give_exact_places(rng, dimensions):
    field = Field(rng.uniform(size=(200, dimensions)), [0, 0.1, 0.25, 0.45][dimensions], rng)
    model = SensorLocalization(dimensions, tol=1e-8, max_iter=3000).fit(field.network(0))
    assert field.errors(model.embedding_).max() < 1e-3
    assert model.max_distortion_ < 1e-2
    assert model.objective_ == pytest.approx(0, abs=1e-6)


def test_noisy_distances_give_places_within_a_hundredth_of_the_field(field):
    model = SensorLocalization().fit(field.network(0.1))
    errors = field.errors(model.embedding_)
    assert np.median(errors) < 0.01
    assert model.status_ == "converged"
    assert model.pinned_.mean() > 0.97


def test_the_gap_is_the_misfit_relative_to_that_of_one_place(field):
    network = field.network(0.1)
    model = SensorLocalization().fit(network)
    squares = network.lengths**2
    found = np.sum((model.embedding_[network.heads] - model.embedding_[network.tails]) ** 2, axis=1)
    expected = np.sum((found - squares) ** 2) / np.sum(squares**2)
    assert model.duality_gap_ == pytest.approx(expected, rel=1e-6)


def test_the_misfit_is_not_above_that_of_the_true_places(field):
    """A local minimum that is worse than the truth would be a fold."""
    network = field.network(0.1)
    model = SensorLocalization(tol=1e-6, max_iter=2000).fit(network)

    def misfit(Y):
        D = network.lengths**2 / np.mean(network.lengths**2)
        lengths = np.sum((Y[network.heads] - Y[network.tails]) ** 2, axis=1)
        return np.sum((lengths / np.mean(network.lengths**2) - D) ** 2)

    assert -model.objective_ == pytest.approx(misfit(model.embedding_), rel=1e-9)
    assert -model.objective_ < misfit(field.places)


def test_a_bent_field_is_found_by_its_paths(rng):
    """Most variance would stretch a C out of the plane; a layout by paths keeps it there."""
    U = rng.uniform(size=(900, 2))
    bent = ~((np.abs(U[:, 0] - 0.6) < 0.4) & (np.abs(U[:, 1] - 0.5) < 0.2))
    field = Field(U[bent], 0.14, rng)
    model = SensorLocalization(random_state=0).fit(field.network(0.05))
    assert np.median(field.errors(model.embedding_)) < 0.02


def test_all_forms_of_input_give_the_same(field, backend):
    network = field.network(0.1)
    D = network.adjacency()
    dense = np.full(D.shape, np.nan)
    coo = D.tocoo()
    dense[coo.row, coo.col] = coo.data
    upper = np.triu(dense)
    upper[np.tril_indices(250, -1)] = np.nan
    expected = SensorLocalization(random_state=0).fit(network)
    for X in (D, dense, np.where(np.isnan(dense), np.inf, dense), upper):
        model = SensorLocalization(random_state=0).fit(X)
        np.testing.assert_allclose(model.embedding_, expected.embedding_, atol=1e-9)
    model = SensorLocalization(random_state=0).fit(backend.asarray(dense))
    found = backend.to_numpy(model.embedding_)
    np.testing.assert_allclose(found, expected.embedding_, atol=1e-5)


def test_weights_count(field):
    """Distances that are ten times too long, with weights of nearly nothing."""
    network = field.network(0)
    wrong = np.arange(network.n_edges) % 7 == 0
    lengths = np.where(wrong, 10 * network.lengths, network.lengths)
    weights = np.where(wrong, 1e-9, 1.0)
    graph = NeighborhoodGraph.from_edges(network.heads, network.tails, lengths, 250, weights)
    model = SensorLocalization(tol=1e-7, max_iter=2000).fit(graph)
    assert np.median(field.errors(model.embedding_)) < 0.01


@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_units_do_not_matter(field, scale):
    network = field.network(0.1)
    scaled = NeighborhoodGraph.from_edges(
        network.heads, network.tails, scale * network.lengths, 250
    )
    plain, other = (SensorLocalization(random_state=0).fit(g) for g in (network, scaled))
    np.testing.assert_allclose(other.embedding_ / scale, plain.embedding_, atol=1e-6)
    np.testing.assert_allclose(other.standard_errors_ / scale, plain.standard_errors_, rtol=1e-4)
    np.testing.assert_array_equal(other.pinned_, plain.pinned_)


# -- anchors -----------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["dict", "array"])
def test_anchors_tell_where_the_network_lies(field, form):
    nodes = field.rng.choice(250, 8, replace=False)
    anchors = field.anchors(nodes)
    if form == "array":
        anchors = np.full((250, 2), np.nan)
        anchors[nodes] = field.places[nodes]
    model = SensorLocalization(anchors=anchors).fit(field.network(0.1))
    np.testing.assert_array_equal(model.embedding_[nodes], field.places[nodes])
    errors = np.linalg.norm(model.embedding_ - field.places, axis=1)
    assert np.median(errors) < 0.012
    assert model.pinned_[nodes].all()
    np.testing.assert_array_equal(model.standard_errors_[nodes], 0)
    assert "anchored" in {record["stage"] for record in model.history_}


def test_anchors_far_from_the_origin(field):
    nodes = field.rng.choice(250, 5, replace=False)
    anchors = {int(node): field.places[node] + [1e6, -1e6] for node in nodes}
    model = SensorLocalization(anchors=anchors).fit(field.network(0.05))
    errors = np.linalg.norm(model.embedding_ - [1e6, -1e6] - field.places, axis=1)
    assert np.median(errors) < 0.012


@pytest.mark.parametrize("count", [1, 2])
def test_too_few_anchors_leave_a_motion_open(field, count):
    nodes = np.arange(count)
    with pytest.warns(DataWarning, match=r"1 of 1 components do not .* takes 3 in general"):
        model = SensorLocalization(anchors=field.anchors(nodes)).fit(field.network(0.05))
    np.testing.assert_array_equal(model.embedding_[nodes], field.places[nodes])
    assert np.median(field.errors(model.embedding_)) < 0.01


def test_anchors_in_line_leave_a_mirror_image_open(field):
    places = np.array([[0.1, 0.1], [0.5, 0.5], [0.9, 0.9]])
    field.places[:3] = places
    field = Field(field.places, 0.2, field.rng)
    with pytest.warns(DataWarning, match="mirrored networks fit as well"):
        SensorLocalization(anchors=field.anchors(range(3))).fit(field.network(0.05))


def test_a_component_without_anchors_is_told(rng):
    first, second = rng.uniform(size=(2, 80, 2))
    field = Field(np.vstack([first, second + 5]), 0.3, rng)
    network = field.network(0)
    text = "2 components, of 80 and 80 nodes. Measure more distances, or set on_disconnected='sep"
    with pytest.raises(DisconnectedGraphError, match=text):
        SensorLocalization().fit(network)
    with pytest.warns(DataWarning, match="1 of 2 components do not determine how these lie"):
        model = SensorLocalization(anchors=field.anchors(range(4)), on_disconnected="separate").fit(
            network
        )
    np.testing.assert_allclose(model.embedding_[:80], first, atol=0.01)
    assert model.pinned_[:80].all()
    assert not model.pinned_[80:].any()
    assert np.isinf(model.standard_errors_[80:]).all()


def test_a_lonely_anchor_stays_where_it_is(rng):
    field = Field(np.vstack([rng.uniform(size=(60, 2)), [[9, 9]]]), 0.35, rng)
    anchors = field.anchors([0, 1, 2, 3, 60])
    model = SensorLocalization(anchors=anchors, on_disconnected="separate").fit(field.network(0))
    np.testing.assert_array_equal(model.embedding_[60], [9, 9])


@pytest.mark.parametrize(
    ("anchors", "text"),
    [
        ({250: [0, 0]}, "node numbers, from 0 to 249, to positions; got the node 250"),
        ({"a": [0, 0]}, "got the node 'a'. Count nodes from 0"),
        ({3: [0, 0, 0]}, "must be n_components=2 finite numbers; node 3 has"),
        ({3: [0, np.nan]}, "must be n_components=2 finite numbers; node 3 has"),
        (np.zeros((4, 2)), r"an array of shape \(250, 2\) .* got shape \(4, 2\)"),
        ("half", "known in all its 2 coordinates or not at all; node 7 has"),
    ],
)
def test_what_are_no_anchors(field, anchors, text):
    if isinstance(anchors, str):
        anchors = np.full((250, 2), np.nan)
        anchors[7, 0] = 1.0
    with pytest.raises(InvalidInputError, match=text):
        SensorLocalization(anchors=anchors).fit(field.network(0.1))


# -- what is known of each node ------------------------------------------------------------------


@pytest.mark.parametrize("anchored", [False, True])
def test_standard_errors_are_about_the_true_errors(rng, anchored):
    """Their root mean squares, within a factor of two."""
    field = Field(rng.uniform(size=(600, 2)), 0.13, rng)
    anchors = field.anchors(range(12)) if anchored else None
    model = SensorLocalization(anchors=anchors, random_state=0).fit(field.network(0.1))
    Y = model.embedding_
    errors = np.linalg.norm(Y - field.places, axis=1) if anchored else field.errors(Y)
    good = model.pinned_ & (np.arange(600) >= 12)
    ratio = np.sqrt(np.mean(model.standard_errors_[good] ** 2) / np.mean(errors[good] ** 2))
    assert 0.5 < ratio < 2
    assert good.mean() > 0.9


def test_nodes_that_hang_on_too_few_distances_are_flagged(rng):
    """On one, two and three distances, on three with one to the fifth, and that on one more."""
    field = Field(rng.uniform(size=(150, 2)), 0.25, rng)
    network, more = field.network(0), []
    centre = np.argsort(np.linalg.norm(field.places - 0.5, axis=1))[:12:4]
    for new, nodes in enumerate(
        [centre[:1], centre[:2], centre[:3], [154, *centre[:2]], centre[:1]], 150
    ):
        more += [(node, new) for node in nodes]
    extra = [[0.5, 0.6], [0.45, 0.57], [0.55, 0.58], [0.5, 0.4], [0.4, 0.5]]
    places = np.vstack([field.places, extra])
    heads, tails = np.array(more).T
    lengths = np.linalg.norm(places[heads] - places[tails], axis=1)
    graph = NeighborhoodGraph.from_edges(
        np.r_[network.heads, heads],
        np.r_[network.tails, tails],
        np.r_[network.lengths, lengths],
        155,
    )
    model = SensorLocalization(random_state=0, max_iter=2000).fit(graph)
    np.testing.assert_array_equal(model.pinned_[150:], [False, False, True, False, False])
    np.testing.assert_array_equal(np.isinf(model.standard_errors_), ~model.pinned_)
    assert model.looseness_[150] > 50


def test_a_part_on_a_hinge_is_flagged_and_an_anchor_in_it_helps(rng):
    """It shares one node with the rest, about which it may turn; two anchors hold it."""
    body, flap = rng.uniform(size=(150, 2)), rng.uniform(size=(30, 2)) * 0.3 + [1.05, 0.4]
    places = np.vstack([body, flap])
    hinge = int(np.argmax(body[:, 0]))
    parts = [np.arange(150), np.r_[hinge, np.arange(150, 180)]]
    edges = []
    for members, radius in zip(parts, (0.25, 0.6), strict=True):
        graph = NeighborhoodGraph.from_points(places[members], radius=radius, angles=False)
        edges.append((members[graph.heads], members[graph.tails], graph.lengths))
    graph = NeighborhoodGraph.from_edges(*map(np.concatenate, zip(*edges, strict=True)), 180)
    model = SensorLocalization(random_state=0).fit(graph)
    assert model.pinned_[:150].mean() > 0.95
    assert not model.pinned_[150:].any()
    anchors = {node: places[node] for node in (0, 1, 2, 160, 170)}
    held = SensorLocalization(anchors=anchors, random_state=0).fit(graph)
    assert held.pinned_[150:].mean() > 0.9


def test_a_part_on_a_bridge_is_pinned_down(rng):
    """Two squares and a strip between them: it bends, but lengths hold it, and errors say so."""
    one, two = rng.uniform(size=(2, 200, 2))
    strip = rng.uniform(size=(80, 2)) * [0.6, 0.3] + [1, 0.35]
    field = Field(np.vstack([one, two + np.array([1.6, 0]), strip]), 0.2, rng)
    model = SensorLocalization(random_state=0).fit(field.network(0.05))
    assert model.pinned_.mean() > 0.98
    errors, expected = field.errors(model.embedding_), model.standard_errors_
    pinned = model.pinned_
    ratio = np.sqrt(np.mean(expected[pinned] ** 2) / np.mean(errors[pinned] ** 2))
    assert 1 / 3 < ratio < 3  # one soft motion, that is one draw, makes most of the errors


# -- new sensors, files, limits ------------------------------------------------------------------


@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_new_sensors_are_placed_by_the_distances_that_they_know(field, form):
    model = SensorLocalization(anchors=field.anchors(range(6)), tol=1e-8, max_iter=3000)
    model.fit(field.network(0))
    new = field.rng.uniform(0.2, 0.8, size=(20, 2))
    D = np.linalg.norm(new[:, None] - field.places, axis=2)
    D[D > 0.2] = np.nan
    X = D if form == "dense" else sparse.csr_array(np.nan_to_num(D))
    np.testing.assert_allclose(model.transform(X), new, atol=0.01)
    D[3] = np.nan
    with pytest.raises(InvalidInputError, match=r"needs distances .* row 3 has none \(1 in all"):
        model.transform(D)


def test_pickle_round_trip_and_clone(field):
    model = SensorLocalization(anchors=field.anchors(range(4))).fit(field.network(0.1))
    twin = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(twin.embedding_, model.embedding_)
    assert clone(model).anchors.keys() == model.anchors.keys()


def test_a_seed_fixes_everything(field):
    network = field.network(0.1)
    one, other = (SensorLocalization(random_state=3).fit(network) for _ in range(2))
    np.testing.assert_array_equal(one.embedding_, other.embedding_)
    np.testing.assert_array_equal(one.standard_errors_, other.standard_errors_)


@pytest.mark.usefixtures("stopped_clock")
@pytest.mark.parametrize(
    ("parameters", "status"), [({"max_iter": 2}, "max_iter"), ({"max_seconds": 0}, "max_seconds")]
)
def test_limits_keep_the_best_and_warn(field, parameters, status):
    with pytest.warns(ConvergenceWarning, match=f"stopped before tol=.* Raise {status}"):
        model = SensorLocalization(anchors=field.anchors(range(4)), **parameters).fit(
            field.network(0.1)
        )
    assert model.status_ == status
    assert np.isfinite(model.embedding_).all()
    np.testing.assert_array_equal(model.embedding_[:4], field.places[:4])


class InterruptAtStage(Recorder):
    """Acts like Ctrl-C at the first iteration of a stage."""

    def __init__(self, stage):
        super().__init__(act=interrupt)
        self.stage = stage

    def is_due(self):
        return self.records[-1]["stage"] == self.stage


@needs_callbacks
@pytest.mark.parametrize("stage", ["program", "wide", "final", "anchored"])
def test_an_interruption_keeps_the_best_so_far(field, stage):
    recorder = InterruptAtStage(stage)
    model = SensorLocalization(anchors=field.anchors(range(4))).set_callbacks(recorder)
    with pytest.warns(ConvergenceWarning, match="was interrupted; the best"):
        model.fit(field.network(0.1))
    assert model.status_ == "interrupted"
    assert model.history_[-1]["stage"] == stage
    assert all(step.embedding_.shape == (250, 2) for step in recorder.models)
    np.testing.assert_array_equal(model.embedding_[:4], field.places[:4])
    assert np.isfinite(model.embedding_).all()


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"n_components": 0}, "n_components must be an integer of at least 1; got 0"),
        ({"n_eigenvectors": 1}, "n_eigenvectors must be an integer of at least 2; got 1"),
        ({"on_disconnected": "all"}, "on_disconnected must be one of 'link', 'error', 'separate'"),
        ({"tol": -1}, "tol must be a number of at least 0; got -1"),
    ],
)
def test_bad_parameters(field, parameters, text):
    with pytest.raises(InvalidInputError, match=text):
        SensorLocalization(**parameters).fit(field.network(0.1))


@pytest.mark.parametrize(
    ("entries", "text"),
    [
        (
            {(2, 5): -1.0, (5, 2): -1.0},
            "Negative values in data: .* not the points themselves; the smallest entry is -1",
        ),
        ({(2, 5): 7.0, (5, 2): 8.0}, "must be symmetric; from node 2 to 5 it is 7, and back"),
        ({(4, 4): 1.0}, "distance of a node to itself must be 0; that of node 4 is 1"),
    ],
)
def test_what_are_no_distances(field, entries, text):
    D = np.linalg.norm(field.places[:, None] - field.places, axis=2)
    for entry, value in entries.items():
        D[entry] = value
    with pytest.raises(ValueError, match=text):
        SensorLocalization().fit(D)


def test_distances_of_zero(field):
    """Sensors in one place are located there; if all are in one place there is nothing to find."""
    places = field.places[:60].copy()
    places[7] = places[3]
    D = np.linalg.norm(places[:, None] - places, axis=2)
    Y = SensorLocalization(tol=1e-8).fit(D).embedding_
    np.testing.assert_allclose(np.linalg.norm(Y[:, None] - Y, axis=2), D, atol=1e-3)
    text = "all distances between 5 nodes are 0, .* Leave out all but one"
    with pytest.raises(InvalidInputError, match=text):
        SensorLocalization().fit(np.zeros((5, 5)))


@pytest.mark.parametrize("n_nodes", [2, 3])
def test_as_many_nodes_as_dimensions_are_pinned_to_nothing(n_nodes):
    """Distances hold, but where the nodes are relative to a field of so many dimensions is open."""
    model = SensorLocalization(n_nodes - 1).fit(1 - np.eye(n_nodes))
    assert model.max_distortion_ < 0.01
    assert not model.pinned_.any()
    assert np.isinf(model.standard_errors_).all()
