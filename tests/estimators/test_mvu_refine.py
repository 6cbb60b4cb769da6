"""MVU with conjugate gradients after the program, and new points with those on their patch."""

import numpy as np
import pytest
from scipy.optimize import minimize

from nearfar import MVU, VariationalMVU, verify
from nearfar.errors import InvalidInputError
from tests.callbacks import interrupt_at, needs_callbacks
from tests.estimators.test_mvu import swiss_roll


def stress(model):
    """Misfit of squared lengths in the embedding, less the variance at a stretch of 0.01, in units
    of the mean squared length, from the graph alone."""
    graph, Y = model.graph_, np.asarray(model.embedding_, dtype=np.float64)
    unit = np.mean(graph.lengths**2)
    squares = np.sum((Y[graph.heads] - Y[graph.tails]) ** 2, axis=1) / unit
    smooth = np.linalg.eigvalsh(graph.laplacian(np.ones(graph.n_edges)).toarray())[1]
    pull = 2 * 0.01 * smooth
    misfit = np.sum((squares - graph.lengths**2 / unit) ** 2)
    return misfit - pull * np.sum((Y - Y.mean(axis=0)) ** 2) / unit


@pytest.fixture
def roll(rng):
    return swiss_roll(100, rng)[0]


def test_a_refinement_lowers_the_stress_and_changes_only_the_embedding(roll):
    plain = MVU(1, 4).fit(roll)
    refined = MVU(1, 4, refine=True).fit(roll)
    assert refined.status_ == "converged"
    assert stress(refined) < stress(plain)
    for name in ("kernel_", "eigenvalues_", "edge_forces_"):
        np.testing.assert_array_equal(getattr(refined, name), getattr(plain, name))
    for name in ("objective_", "duality_gap_", "max_distortion_", "intrinsic_dimension_"):
        assert getattr(refined, name) == getattr(plain, name)
    assert verify(refined, roll).proved
    stages = [record.get("stage") for record in refined.history_]
    assert stages == [None] * plain.n_iter_ + ["refinement"] * (refined.n_iter_ - plain.n_iter_)
    values = [record["objective"] for record in refined.history_[plain.n_iter_ :]]
    assert values[-1] == pytest.approx(-stress(refined), rel=1e-6)
    assert values == sorted(values)


def test_components_copies_and_float32(roll):
    X = np.r_[roll[:60], roll[:50] + 1000, roll[:2]].astype(np.float32)
    model = MVU(2, 4, on_disconnected="separate", refine=True).fit(X)
    assert (model.status_, model.embedding_.dtype) == ("converged", np.float32)
    np.testing.assert_array_equal(model.embedding_[:2], model.embedding_[110:])
    before = MVU(2, 4, on_disconnected="separate").fit(X)
    graph = model.graph_

    def misfit(Y):
        lengths = np.linalg.norm(Y[graph.heads] - Y[graph.tails], axis=1)
        return np.sum((lengths**2 - graph.lengths**2) ** 2)

    assert misfit(model.embedding_) < misfit(before.embedding_)


@needs_callbacks
@pytest.mark.filterwarnings("ignore:MVU")
def test_an_interrupted_refinement_keeps_the_program_and_what_was_reached(roll):
    plain = MVU(2, 4).fit(roll)
    model = MVU(2, 4, refine=True)
    model.set_callbacks(interrupt_at(plain.n_iter_ + 3)).fit(roll)
    assert (model.status_, model.n_iter_) == ("interrupted", plain.n_iter_ + 3)
    assert model.duality_gap_ == plain.duality_gap_
    assert stress(model) < stress(plain)


def test_bad_input(roll):
    with pytest.raises(InvalidInputError, match="refine must be True or False; got 'yes'"):
        MVU(refine="yes").fit(roll)
    with pytest.raises(InvalidInputError, match="a refinement would change the distances of pairs"):
        MVU(refine=True).fit(roll, pairs=[[0, 1]], distances=[1.0])


# -- new points ---------------------------------------------------------------------------------


def patch_by_scipy(model, x):
    """The place of a new point after BFGS over it and its neighbours, all other points fixed."""
    graph, Y = model.graph_, model.embedding_
    far = np.linalg.norm(model.X_fit_ - x, axis=1)
    own = np.argsort(far)[: max(model.n_neighbors, 2 * model.n_components + 1)]
    there = np.isin(graph.heads, own) | np.isin(graph.tails, own)
    heads = np.r_[graph.heads[there], np.full(len(own), len(Y))]
    tails, squares = np.r_[graph.tails[there], own], np.r_[graph.lengths[there], far[own]] ** 2
    moving = np.r_[own, len(Y)]

    def loss(flat):
        places = np.r_[Y, np.zeros((1, Y.shape[1]))]
        places[moving] = flat.reshape(len(moving), -1)
        ahead = places[heads] - places[tails]
        excess = np.sum(ahead**2, axis=1) - squares
        slope = np.zeros_like(places)
        np.add.at(slope, heads, 4 * excess[:, None] * ahead)
        np.add.at(slope, tails, -4 * excess[:, None] * ahead)
        return np.sum(excess**2), slope[moving].ravel()

    start = np.r_[Y[own], model.transform(x[None], method="sdp+cg")].ravel()
    found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"ftol": 1e-15})
    return found.x[-Y.shape[1] :]


@pytest.mark.parametrize("make", [MVU, VariationalMVU])
def test_the_patch_of_a_new_point_settles_where_another_descent_does(roll, make):
    model = make(2, 5, random_state=0).fit(roll[:90])
    found = model.transform(roll[90:], method="sdp+patch")
    expected = np.array([patch_by_scipy(model, x) for x in roll[90:]])
    scale = np.mean(model.graph_.lengths)
    np.testing.assert_allclose(found, expected, atol=0.02 * scale)
    assert np.abs(found - model.transform(roll[90:], method="sdp+cg")).max() > 0.02 * scale
    np.testing.assert_array_equal(
        model.transform(roll[:5], method="sdp+patch"), model.embedding_[:5]
    )


def test_a_point_with_exact_distances_stays_where_it_is(rng):
    """In a flat sheet that is kept as it is nothing has to move."""
    X = np.c_[rng.uniform(size=(60, 2)) * [3, 1]]
    model = VariationalMVU(2, 6, stretch=0.0, random_state=0).fit(X)
    new = rng.uniform(0.3, 0.7, size=(5, 2)) * [3, 1]
    distances = np.linalg.norm(
        model.transform(new, method="sdp+patch")[:, None] - model.embedding_, axis=2
    )
    expected = np.linalg.norm(new[:, None] - X, axis=2)
    np.testing.assert_allclose(distances, expected, atol=0.02)
