"""New points in known embeddings: planes, and a Swiss roll that is laid out by its parameters."""

import warnings

import numpy as np
import pytest
from sklearn.metrics import pairwise_distances

from nearfar.errors import ConvergenceWarning, InvalidInputError
from nearfar.estimators import _out_of_sample
from nearfar.estimators._graph_layout import Layout, Unfolded, graph_input, store_layout
from nearfar.estimators._out_of_sample import METHODS, place_by_neighbors
from nearfar.estimators._unfolding import Unfolding
from nearfar.kernels import batched, kernels_for
from nearfar.solvers import Status

methods = pytest.mark.parametrize("method", METHODS)
by_distances = pytest.mark.parametrize("method", ["sdp", "sdp+cg"])


class Known(Unfolding):
    """An unfolding whose places are given, as the first columns of X or as ``places``."""

    def __init__(
        self,
        places=None,
        n_components=2,
        n_neighbors=5,
        *,
        angles=False,
        metric="euclidean",
        on_disconnected="link",
        tol=1.0,
        max_iter=1,
        max_seconds=None,
        random_state=None,
    ):
        self.places = places
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.angles = angles
        self.metric = metric
        self.on_disconnected = on_disconnected
        self.tol = tol
        self.max_iter = max_iter
        self.max_seconds = max_seconds
        self.random_state = random_state

    def fit(self, X, y=None):  # noqa: ARG002
        layout = Layout(graph_input(self, X), self.n_components, merge=False)
        Y = np.asarray(kernels_for(self.places).to_host(self.places), dtype=np.float64)
        for component in layout.components():
            places = Y[: component.graph.n_nodes]
            unfolded = Unfolded(places, np.ones(1), 0.0, 0.0, None, Status.CONVERGED)
            layout.place(component, unfolded)
        store_layout(self, layout)
        return self


def known(X, Y, **parameters):
    """An estimator fitted so that its places are Y, up to the signs of the columns."""
    return Known(Y, Y.shape[1], **parameters).fit(X)


def in_space(Y, d=6, seed=3):
    """Points of a plane, isometrically in d dimensions and away from the origin."""
    Q = np.linalg.qr(np.random.default_rng(seed).normal(size=(d, Y.shape[1])))[0]
    return Y @ Q.T + 2.0


def signs(estimator, Y):
    """The signs that fit gave to the columns."""
    return np.sign((np.asarray(estimator.embedding_) * Y).sum(axis=0))


def swiss_roll(n, rng):
    """Points, and their places: length along the spiral and height."""
    t, height = 1.5 * np.pi * (1 + 2 * rng.random(n)), 21 * rng.random(n)
    X = np.stack([t * np.cos(t), height, t * np.sin(t)], axis=1)
    return X, np.stack([0.5 * (t * np.sqrt(1 + t**2) + np.arcsinh(t)), height], axis=1)


def nearest(new, X, k):
    D = pairwise_distances(new, X)
    near = np.argsort(D, axis=1, kind="stable")[:, :k]
    return near, np.take_along_axis(D, near, axis=1) ** 2


# -- exact ---


@by_distances
@pytest.mark.parametrize("r", [1, 2, 4])
def test_points_of_a_plane_go_to_their_places(rng, method, r):
    Y, new = rng.normal(size=(80, r)), 0.8 * rng.normal(size=(30, r))
    model = known(in_space(Y), Y)
    found = model.transform(in_space(new), method=method) * signs(model, Y)
    np.testing.assert_allclose(found, new, atol=1e-6)


def test_points_above_a_plane_go_to_their_feet(rng):
    """Their distances are those of the foot and a height, which s takes up; least stress cannot."""
    Y, new = rng.normal(size=(80, 2)), 0.8 * rng.normal(size=(30, 2))
    flat, high = np.zeros((80, 1)), np.full((30, 1), 0.5)
    model = known(np.hstack([Y, flat]), Y)
    X = np.hstack([new, high])
    np.testing.assert_allclose(model.transform(X) * signs(model, Y), new, atol=1e-6)
    moved = model.transform(X, method="sdp+cg") * signs(model, Y)
    assert np.abs(moved - new).max() > 1e-3


def test_weights_reproduce_what_is_affine(rng):
    """y is then the same combination of the yᵢ as x of the xᵢ, up to the ridge."""
    Y, new = rng.normal(size=(300, 2)), 0.5 * rng.normal(size=(30, 2))
    model = known(in_space(Y), Y, n_neighbors=8)
    found = model.transform(in_space(new), method="lle") * signs(model, Y)
    np.testing.assert_allclose(found, new, atol=0.02)


@methods
def test_training_points_keep_their_places(rng, method):
    X, Y = swiss_roll(60, rng)
    model = known(X, Y)
    np.testing.assert_array_equal(model.transform(X, method=method), model.embedding_)


@methods
def test_a_swiss_roll(rng, method):
    """Chords are shorter than arcs by a share of (distance / radius)²/24: errors stay small."""
    X, Y = swiss_roll(800, rng)
    new, places = swiss_roll(200, rng)
    model = known(X, Y)
    errors = np.linalg.norm(model.transform(new, method=method) * signs(model, Y) - places, axis=1)
    assert np.median(errors) < 0.02
    assert np.mean(errors) < 0.1


def test_the_method_is_the_program_unless_another_is_asked_for(rng):
    X, Y = swiss_roll(100, rng)
    model = known(X, Y)
    new = X[:20] + 0.1
    np.testing.assert_array_equal(model.transform(new), model.transform(new, method="sdp"))
    for other in ("sdp+cg", "lle"):
        assert np.abs(model.transform(new) - model.transform(new, method=other)).max() > 1e-6


# -- neighbourhoods that say little ---


@methods
def test_few_neighbours_on_a_line(method):
    """Two fitted points: a new one goes to its foot on the line through them."""
    X = np.array([[0.0, 0.0, 0.0], [2.0, 0.0, 0.0]])
    Y = np.array([[-1.0], [1.0]])
    new = np.array([[0.5, 0.3, 0.0], [1.0, 0.2, 0.1], [3.0, 0.0, 0.0]])
    found = known(X, Y, n_neighbors=1).transform(new, method=method)[:, 0]
    found = found * np.sign(found[2])
    if method == "sdp+cg":  # the height makes distances longer, and nothing else takes it up
        np.testing.assert_allclose(found[[1, 2]], [0, 2], atol=1e-6)
    else:
        np.testing.assert_allclose(found, [-0.5, 0, 2], atol=1e-6 if method == "sdp" else 0.02)


@methods
def test_neighbours_on_a_line_leave_the_rest_at_zero(method, rng):
    """Neighbours at (t, 2t) and a new point beside the line: its place is on the line too."""
    t = rng.normal(size=(50, 1))
    Y = t * [1.0, 2.0]
    near = np.array([rng.permutation(50)[:6] for _ in range(10)])
    new = rng.normal(size=(10, 2))
    d = ((new[:, None] - Y[near]) ** 2).sum(axis=2)
    found = place_by_neighbors(Y, near, d, method, Y)
    np.testing.assert_allclose(found @ [2.0, -1.0], 0, atol=1e-5)
    assert np.isfinite(found).all()


@methods
def test_one_neighbour_is_all_there_is(method):
    """Its distance tells no direction."""
    Y = np.array([[1.0, 2.0], [0.0, 0.0]])
    found = place_by_neighbors(Y, np.zeros((3, 1), int), np.array([[0.0], [1.0], [1e6]]), method, Y)
    np.testing.assert_array_equal(found, [[1, 2]] * 3)


@methods
def test_neighbours_in_one_place(method, rng):
    """The mean of equal places may be off by rounding, which must not be taken for a direction."""
    Y = np.repeat(rng.normal(size=(1, 3)), 7, axis=0)
    near = np.array([[0, 1, 2, 3, 4, 5, 6]])
    found = place_by_neighbors(
        Y, near, rng.uniform(1, 2, size=(1, 7)), method, rng.normal(size=(7, 3))
    )
    np.testing.assert_allclose(found, Y[:1], rtol=1e-12)


@methods
def test_duplicates_of_training_points(rng, method):
    """Copies of one point are one neighbour: others are found all the same."""
    Y = rng.normal(size=(60, 2))
    Y[:10] = Y[0]
    X, new = in_space(Y), 0.5 * rng.normal(size=(20, 2))
    model = known(X, Y)
    found = model.transform(in_space(new), method=method) * signs(model, Y)
    tolerance = {"sdp": 1e-6, "sdp+cg": 1e-6, "sdp+patch": 1e-6, "lle": 0.7}[method]
    np.testing.assert_allclose(found, new, atol=tolerance)
    np.testing.assert_array_equal(model.transform(X, method=method), model.embedding_)


@by_distances
@pytest.mark.parametrize("distance", [1e2, 1e4])
def test_far_away_points_go_far_in_their_direction(rng, method, distance):
    """Exact distances give the exact place, to the digits that d leaves to differences."""
    Y = rng.normal(size=(40, 2))
    angle = rng.uniform(0, 2 * np.pi, size=8)
    new = distance * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    near, d = nearest(new, Y, 5)
    found = place_by_neighbors(Y, near, d, method)
    np.testing.assert_allclose(found, new, rtol=0, atol=1e-3 * distance)


def test_how_far_a_place_can_be_from_the_neighbours(rng):
    """‖y − ȳ‖² ≤ s ≤ the least objective, which is at most that of y = ȳ with any s."""
    X, Y = swiss_roll(100, rng)
    near, d = nearest(100 * rng.normal(size=(50, 3)), X, 5)
    centred = Y[near] - Y[near].mean(axis=1, keepdims=True)
    s = d.min(axis=1, keepdims=True)
    limit = np.abs(s + (centred**2).sum(axis=2) - d).sum(axis=1) + s[:, 0]
    away = ((place_by_neighbors(Y, near, d) - Y[near].mean(axis=1)) ** 2).sum(axis=1)
    assert (away <= (1 + 1e-6) * limit).all()


# -- dtypes, devices, batches, scale ---


@methods
def test_dtype(rng, dtype, method):
    X, Y = swiss_roll(60, rng)
    model = known(X.astype(dtype), Y)
    plain = known(X, Y)
    new = X[:20] + 0.05
    found = model.transform(new.astype(dtype), method=method)
    assert found.dtype == dtype
    expected = plain.transform(new, method=method)
    np.testing.assert_allclose(found, expected, atol=1e-9 if dtype == np.float64 else 0.05)


@methods
def test_devices_agree(rng, backend, method):
    X, Y = swiss_roll(60, rng)
    new = X[:20] + 0.05
    expected = known(X, Y).transform(new, method=method)
    found = known(backend.asarray(X), Y).transform(backend.asarray(new), method=method)
    np.testing.assert_allclose(backend.to_numpy(found), expected, atol=1e-6)


@methods
def test_batches_blocks_and_threads_change_nothing(rng, method, monkeypatch):
    X, Y = swiss_roll(60, rng)
    near, d = nearest(X[:, ::-1], X, 5)
    whole = place_by_neighbors(Y, near, d, method, X)
    parts = [
        place_by_neighbors(Y, near[rows], d[rows], method, X)
        for rows in np.array_split(range(60), 7)
    ]
    np.testing.assert_allclose(np.concatenate(parts), whole, atol=1e-9)
    monkeypatch.setattr(batched, "HOST_ENTRIES", 200)
    np.testing.assert_allclose(place_by_neighbors(Y, near, d, method, X), whole, atol=1e-9)


def test_many_queries_are_searched_in_a_tree(rng, monkeypatch):
    X, Y = swiss_roll(300, rng)
    model, new = known(X, Y), swiss_roll(40, rng)[0]
    expected = model.transform(new)
    monkeypatch.setattr("nearfar.estimators._unfolding.TREE_QUERIES", 1)
    np.testing.assert_array_equal(model.transform(new), expected)


@methods
@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_units_do_not_matter(rng, method, scale):
    X, Y = swiss_roll(60, rng)
    near, d = nearest(X[:, ::-1], X, 5)
    found = place_by_neighbors(scale * Y, near, scale**2 * d, method, scale * X) / scale
    np.testing.assert_allclose(found, place_by_neighbors(Y, near, d, method, X), atol=1e-7)


@by_distances
def test_moving_and_turning_the_embedding_moves_and_turns_the_places(rng, method):
    X, Y = swiss_roll(60, rng)
    near, d = nearest(X[:, ::-1], X, 5)
    Q = np.linalg.qr(rng.normal(size=(2, 2)))[0]
    found = place_by_neighbors(Y @ Q + 50.0, near, d, method)
    np.testing.assert_allclose(found, place_by_neighbors(Y, near, d, method) @ Q + 50.0, atol=1e-4)


# -- distances, components, refusals ---


@by_distances
def test_from_distances(rng, method):
    X, Y = swiss_roll(60, rng)
    new = X[:10] + 0.1
    model = known(pairwise_distances(X), Y, metric="precomputed")
    found = model.transform(pairwise_distances(new, X), method=method)
    np.testing.assert_allclose(found, known(X, Y).transform(new, method=method), atol=1e-6)


def test_weights_need_points(rng):
    X, Y = swiss_roll(30, rng)
    model = known(pairwise_distances(X), Y, metric="precomputed")
    with pytest.raises(InvalidInputError, match="'lle' weighs neighbours by their points"):
        model.transform(pairwise_distances(X + 0.1, X), method="lle")


@pytest.mark.parametrize("method", ["cg", "SDP", 1, ["sdp"]], ids=str)
def test_unknown_methods(rng, method):
    X, Y = swiss_roll(30, rng)
    with pytest.raises(InvalidInputError, match=r"method must be one of 'sdp', .*, or None; got"):
        known(X, Y).transform(X, method=method)


@methods
def test_a_component_has_neighbours_of_its_own_only(rng, method):
    """Two planes that lie on each other after the fit: places come from the nearer one alone."""
    Y = rng.normal(size=(20, 2))
    X = np.vstack([in_space(Y), in_space(Y) + 100.0])
    model = Known(Y, n_neighbors=8, on_disconnected="separate").fit(X)
    new = in_space(0.5 * rng.normal(size=(5, 2)))
    alone = Known(Y, n_neighbors=8).fit(X[:20])
    for part in (new, new + 100.0):
        np.testing.assert_allclose(
            model.transform(part, method=method), alone.transform(new, method=method), atol=1e-6
        )


def test_a_component_with_fewer_points_than_neighbours(rng):
    Y = rng.normal(size=(20, 2))
    X = np.vstack([in_space(Y), in_space(Y[:3]) + 100.0])
    model = Known(Y, n_neighbors=2, on_disconnected="separate").fit(X)
    new = Y[:3].mean(axis=0, keepdims=True)
    found = model.transform(in_space(new) + 100.0) - model.embedding_[20:].mean(axis=0)
    np.testing.assert_allclose(found, 0, atol=1e-6)


def test_a_place_that_is_not_proved_is_told(rng, monkeypatch):
    X, Y = swiss_roll(30, rng)
    near, d = nearest(X + 0.1, X, 5)
    monkeypatch.setattr(_out_of_sample, "TRUSTED", -1.0)
    with pytest.warns(ConvergenceWarning, match="places of 30 of 30 new points are not proved"):
        place_by_neighbors(Y, near, d)


def test_nothing_is_told_of_places_that_are_proved(rng):
    X, Y = swiss_roll(200, rng)
    near, d = nearest(20 * rng.normal(size=(500, 3)), X, 6)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isfinite(place_by_neighbors(Y, near, d)).all()


def test_no_new_points():
    found = place_by_neighbors(np.zeros((4, 2)), np.zeros((0, 3), int), np.zeros((0, 3)))
    assert found.shape == (0, 2)
