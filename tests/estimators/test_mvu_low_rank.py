"""The low-rank solver of MVU: it agrees with the interior point method up to its certified gap."""

import numpy as np
import pytest

import nearfar
from nearfar import MVU, NeighborhoodGraph
from nearfar.errors import InvalidInputError
from nearfar.estimators import _mvu as low_rank
from nearfar.estimators import mvu as module


@pytest.fixture(scope="module")
def strip():
    """Points near a bent strip, in five dimensions."""
    random = np.random.RandomState(0)
    t = np.sort(random.uniform(0, 3, 70))
    X = np.column_stack([np.cos(t), np.sin(t), random.uniform(0, 0.7, 70)])
    X = np.hstack([4 * X, 0.05 * random.normal(size=(70, 2))])
    X.setflags(write=False)
    return X


FORMS = {"shrink": (60, 8e-3), "slack": (60, 5e-3), "equal": (60, 0.01)}  # iterations, gap


@pytest.fixture(scope="module", params=FORMS)
def both(request, strip):
    """The same program by both solvers."""
    form, (max_iter, tol) = request.param, FORMS[request.param]
    options = {"constraints": form, "n_neighbors": 4, "random_state": 0}
    low = MVU(solver="low_rank", tol=tol, max_iter=max_iter, **options).fit(strip)
    return low, MVU(solver="interior_point", **options).fit(strip)


def test_the_optimum_lies_in_the_interval_that_is_proved(both):
    """The bound is above the optimum, and the objective, less what violations gained, below."""
    low, exact = both
    assert low.status_ == "converged"
    assert low.duality_gap_ <= low.tol
    unit = max(np.mean(exact.graph_.lengths**2), abs(low.proof_["weights"][:, 0].sum()))
    bound = low.proof_["weights"][:, 0].sum()
    assert bound >= exact.objective_ * (1 - 1e-5)
    assert low.objective_ - low.duality_gap_ * unit <= exact.objective_ * (1 + 1e-5)
    if low.constraints != "equal":
        assert low.objective_ <= exact.objective_ * (1 + 1e-5)


def test_objective_and_dual_point_by_hand(both):
    """From `factor_`, `edge_forces_` and the graph alone."""
    low, _ = both
    Y, graph, D = low.factor_, low.graph_, low.graph_.lengths**2
    change = ((Y[graph.heads] - Y[graph.tails]) ** 2).sum(axis=1) - D
    objective = np.sum((Y - Y.mean(axis=0)) ** 2)
    price = 0.99 / 0.01
    if low.constraints == "slack":
        objective -= price * np.abs(change).sum()
    assert low.objective_ == pytest.approx(objective, rel=1e-9)
    m = low.edge_forces_
    L = np.zeros((len(Y), len(Y)))
    for i, j, force in zip(graph.heads, graph.tails, m, strict=True):
        L[[i, j], [i, j]] += force
        L[[i, j], [j, i]] -= force
    assert np.linalg.eigvalsh(L)[1 if low.constraints == "shrink" else 0] >= -1e-9
    centred = np.eye(len(Y)) - 1 / len(Y)
    assert np.linalg.eigvalsh(L - centred)[0] >= -1e-9
    if low.constraints == "shrink":
        assert m.min() >= 0
        assert change.max() <= 1e-9 * D.max()
    elif low.constraints == "slack":
        assert np.abs(m).max() <= price * (1 + 1e-12)
    if low.constraints != "equal":  # which is thicker
        np.testing.assert_allclose(low.proof_["weights"][:, 0], m * D)


def test_attributes_and_verification(both, strip):
    low, exact = both
    assert low.kernel_ is None
    assert exact.factor_ is None
    assert low.dimacs_ == {}
    assert low.thickness_ == exact.thickness_ == (0.01 if low.constraints == "equal" else 0)
    assert low.embedding_.shape == (70, 2)
    np.testing.assert_allclose(np.abs(low.embedding_), np.abs(low.factor_[:, :2]), atol=1e-9)
    np.testing.assert_allclose(low.eigenvalues_, (low.factor_**2).sum(axis=0))
    assert abs(np.corrcoef(low.embedding_[:, 0], exact.embedding_[:, 0])[0, 1]) > 0.99
    assert {record["stage"] for record in low.history_} == {"program", "low rank"}
    assert nearfar.verify(low, strip).proved
    assert low.transform(strip[:3]).shape == (3, 2)


def test_auto_is_the_interior_point_method_unless_there_are_many_points(strip, monkeypatch):
    options = {"constraints": "shrink", "n_neighbors": 4, "tol": 0.1, "max_iter": 40}
    assert MVU(**options).fit(strip).kernel_ is not None
    monkeypatch.setattr(module, "LARGEST", 50)
    assert MVU(**options, random_state=0).fit(strip).kernel_ is None
    least = {**options, "constraints": "equal", "variance": "min"}
    assert MVU(**least).fit(strip).kernel_ is not None
    pairs = {"pairs": [[0, 69]], "distances": [[0.0, 9.0]]}
    assert MVU(**options).fit(strip, **pairs).kernel_ is not None


def test_components_and_copies(strip):
    """Two far strips, one with copies: each is unfolded by itself, and copies stay together."""
    X = np.vstack([strip, strip[:5], strip[::2] + 100])
    model = MVU(
        n_neighbors=4,
        constraints="shrink",
        solver="low_rank",
        on_disconnected="separate",
        tol=0.1,
        max_iter=40,
        random_state=0,
    ).fit(X)
    assert model.status_ == "converged"
    np.testing.assert_array_equal(model.factor_[:5], model.factor_[70:75])
    assert model.duality_gap_ <= 0.1
    assert nearfar.verify(model, X).proved


def test_a_factor_of_the_curvature_that_is_too_large_is_done_without(strip, monkeypatch):
    """Then steps are preconditioned by Lap(w): farther from the optimum, but certified."""
    monkeypatch.setattr(low_rank, "ENTRIES", 0)
    monkeypatch.setattr(low_rank.Curvature, "inverse", None)
    options = {"constraints": "slack", "n_neighbors": 4, "random_state": 0}
    model = MVU(solver="low_rank", tol=0.02, max_iter=60, **options).fit(strip)
    assert model.duality_gap_ <= 0.02
    assert nearfar.verify(model, strip).proved


def test_a_fit_that_ends_early_keeps_its_points_and_proves_them(strip):
    model = MVU(n_neighbors=4, solver="low_rank", max_iter=2, tol=1e-9, random_state=0)
    with pytest.warns(UserWarning, match="reached max_iter"):
        model.fit(strip)
    assert model.status_ == "max_iter"
    assert 0 < model.duality_gap_ < np.inf


def test_what_it_refuses(strip):
    low = {"solver": "low_rank", "n_neighbors": 4}
    with pytest.raises(InvalidInputError, match="solver must be one of 'auto', 'interior_point'"):
        MVU(solver="simplex").fit(strip)
    with pytest.raises(InvalidInputError, match="Set solver='interior_point'"):
        MVU(variance="min", **low).fit(strip)
    with pytest.raises(InvalidInputError, match="knows the edges of the graph alone"):
        MVU(**low).fit(strip, pairs=[[0, 69]], distances=[3.0])
    with pytest.raises(InvalidInputError, match=r"low-rank unfolding of 70 points .* memory_limit"):
        MVU(memory_limit=1e-5, **low).fit(strip)
    chain = NeighborhoodGraph.from_edges(range(40), range(1, 41), np.ones(40), 41)
    with pytest.raises(InvalidInputError, match="the variance grows without bound; on this graph"):
        MVU(constraints="slack", **low).fit(chain)
