"""LMNN on few places that many points share, against optima derived or found independently."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone

from nearfar import LMNN, KernelLMNN, MultiMetricLMNN
from nearfar.errors import DataWarning

TOL = 1e-4
DRAWS = (1, 2, 3, 5, 6, 7, 8)  # that the other solver solves to its full accuracy
FAMILIES = ("few places in many features", "one feature of three levels", "features that sum to 1")


def drawn(family, seed):
    """Points sorted by class, with the sizes of the classes; labels have nothing to do with X."""
    rng = np.random.default_rng(seed)
    places, n, n_classes = rng.integers(3, 8), rng.integers(12, 30), 2 + seed % 3
    if family == "few places in many features":
        X = rng.normal(size=(places, rng.integers(places - 1, places + 3)))
        X = X[rng.integers(0, places, n)]
    elif family == "one feature of three levels":
        X = rng.integers(0, 3, (n, 1)).astype(float)
    else:
        X = rng.dirichlet(np.ones(4), n)[rng.integers(0, n, n)]
    y = np.sort(np.append(np.repeat(np.arange(n_classes), 2), rng.integers(0, n_classes, n))[:n])
    return X, np.bincount(y)


def without_null_space(case):
    """The same optimum, without the directions in which all target edges have no length.

    There a metric grows for free, until all impostors that differ in them are gone. So the optimum
    is that of the span of the target edges, over the triplets whose impostor differs in it only.
    """
    edges = case.differences(case.heads, case.tails)
    _, lengths, directions = np.linalg.svd(edges)
    rank = int((lengths > 1e-10 * lengths.max()).sum())
    span, null = directions[:rank].T, directions[rank:].T
    edge, impostor = case.triplets.T
    beyond = np.abs(case.differences(case.heads[edge], impostor) @ null).max(axis=1, initial=0)
    reduced = replace(case, X=case.X @ span)
    reduced.__dict__["triplets"] = case.triplets[beyond < 1e-10]  # of a cached property
    return reduced


def fitted(X, sizes, **parameters):
    return LMNN(shrinkage=0, **parameters).fit(X, np.repeat(np.arange(len(sizes)), sizes))


@pytest.mark.filterwarnings("ignore::nearfar.errors.DataWarning")
@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("family", FAMILIES)
def test_the_optimum_is_that_of_a_semidefinite_solver(family, draw, make_case, by_clarabel):
    X, sizes = drawn(family, draw)
    case = make_case(X, sizes, 0.5)
    theirs, _ = by_clarabel(without_null_space(case))
    model = fitted(X, sizes, tol=TOL)
    assert model.status_ == "converged"
    M = model.get_mahalanobis_matrix()
    assert case.objective(M) == pytest.approx(model.objective_, rel=1e-6)
    assert model.objective_ == pytest.approx(theirs, rel=2 * TOL)


@pytest.mark.filterwarnings("ignore::nearfar.errors.DataWarning")
@pytest.mark.parametrize("tol", [1e-2, 1e-3, 1e-5, 1e-8])
def test_a_metric_of_no_rows_is_left_again(tol):
    """Two points at 1 and five at 0, with one point of another class at 2.

    With M = m, the two have four edges of length m and the five none, and so do the other edges of
    the two. Half of the pull is 4m/2. The impostor of the two is at m, that of the five at 4m:
    f = 2m + ½(2 [1 − m]₊ + 4 + 15 [1 − 4m]₊), with the slopes −29 below m = ¼, 1 beyond it and 2
    beyond m = 1. The optimum is f(¼) = 3.25, while f(0) = 10.5.

    On the triplets near the start alone m = 0 is the optimum; a factor of zeros has no gradient.
    """
    X = np.array([[2.0], [1.0], [1.0], [0.0], [0.0], [0.0], [0.0], [0.0]])
    with pytest.warns(DataWarning, match="class 0 has 1 member"):
        model = LMNN(shrinkage=0, tol=tol).fit(X, [0] + [1] * 7)
    assert model.status_ == "converged"
    assert 3.25 <= model.objective_ * (1 + 1e-12) <= 3.25 * (1 + tol)
    np.testing.assert_allclose(model.components_, [[0.5]], rtol=np.sqrt(tol))


def test_many_points_at_few_places_in_more_features():
    """20 places in 30 features differ in 19 directions, wherever the centre is that they are
    measured from. The metric of a gap of 1e-3 has a scale like that of the data."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 30))[rng.integers(0, 20, 40)]
    with pytest.warns(DataWarning, match="equal points have different labels"):
        model = LMNN(shrinkage=0).fit(X, rng.integers(0, 2, 40))
    assert model.status_ == "converged"
    assert model.duality_gap_ <= 1e-3
    assert np.abs(model.components_).max() < 1e3


def test_features_that_sum_to_one_are_one_too_many():
    """The last is one less the others, so that it adds nothing: the optima are the same. The median
    of such features does not sum to one, and from there the points seem to share a direction."""
    rng = np.random.default_rng(1)
    y = np.repeat([0, 1, 2], 20)
    X = rng.gamma(1 + y[:, None] * np.arange(5) / 3)
    X /= X.sum(axis=1, keepdims=True)
    rows = np.arange(60)
    targets = np.array([rng.choice(rows[(y == y[row]) & (rows != row)], 3, False) for row in rows])
    all_of_them = LMNN(shrinkage=0, tol=1e-6).fit(X, y, targets)
    but_one = LMNN(shrinkage=0, tol=1e-6).fit(X[:, :-1], y, targets)
    assert all_of_them.status_ == but_one.status_ == "converged"
    assert all_of_them.objective_ == pytest.approx(but_one.objective_, rel=2e-6)


@pytest.mark.parametrize("rows", [7, 40])
def test_equal_points_stay_equal_in_the_coordinates(rows, make_case, build, backend, rng):
    """Matrix products may round equal rows apart; a pair of equal points must have no length."""
    X = rng.normal(size=(3, rows))[np.arange(24) % 3]
    problem = build(make_case(X, (12, 12), 0.5), backend)
    for U in (problem.U, problem.exact(), problem.in_geometry_of(np.eye(2)).U):
        U = problem.kernels.to_host(U)
        np.testing.assert_array_equal(U, U[np.arange(24) % 3])


def test_directions_that_are_free_to_grow_are_told(make_case, build):
    """In feature 0 the targets coincide and all impostors differ, in feature 1 the reverse."""
    X = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    problem = build(make_case(X, (2, 2), 0.5))
    certificate, _ = problem.certify(np.zeros((1, 2)))
    (free,) = certificate.free
    assert free.shape[1] == 1
    along = problem.components(free.T)[0]
    assert abs(along[1]) < 1e-9 * abs(along[0])


@pytest.mark.filterwarnings("ignore::nearfar.errors.DataWarning")
@pytest.mark.parametrize("partition", [{}, {"partition": "kmeans", "n_metrics": 2}])
@pytest.mark.parametrize("draw", range(5))
@pytest.mark.parametrize("family", FAMILIES)
def test_several_metrics_on_repeated_rows(family, draw, partition):
    """The gap is a proof; a metric of a class whose targets coincide grows for free."""
    X, sizes = drawn(family, draw)
    y = np.repeat(np.arange(len(sizes)), sizes)
    model = MultiMetricLMNN(shrinkage=0, random_state=0, **partition).fit(X, y)
    assert model.status_ == "converged"
    assert model.duality_gap_ <= model.tol


def test_several_metrics_where_all_targets_coincide():
    """Without pull every metric is free: all margins are kept."""
    X = np.repeat([[0.0], [1.0], [2.0]], 4, axis=0)
    model = MultiMetricLMNN(shrinkage=0).fit(X, np.repeat([0, 1, 0], 4))
    assert model.objective_ == pytest.approx(0, abs=1e-9)


@pytest.mark.filterwarnings("ignore::nearfar.errors.DataWarning")
@pytest.mark.parametrize(
    "learner",
    [KernelLMNN(shrinkage=0), LMNN(shrinkage=0, n_passes=3), LMNN(shrinkage=0, n_components=1)],
)
@pytest.mark.parametrize("draw", range(3))
def test_other_learners_of_the_family(learner, draw):
    X, sizes = drawn("few places in many features", draw)
    model = clone(learner).fit(X, np.repeat(np.arange(len(sizes)), sizes))
    assert model.status_ == "converged"


def test_a_map_of_one_row_where_classes_have_no_variance():
    """Their variance is a rounding error, of which discriminants must not be made."""
    places = np.array([[0.1, 0.7, 0.3], [0.9, 0.2, 1.1]])
    model = LMNN(shrinkage=0, n_components=1).fit(places[np.arange(14) % 2], np.arange(14) % 2)
    assert model.objective_ == pytest.approx(0, abs=1e-9)
    assert np.abs(model.components_).max() < 100


@pytest.mark.filterwarnings("ignore:.*have different labels:nearfar.errors.DataWarning")
@pytest.mark.filterwarnings("ignore:class 2 has 1 member:nearfar.errors.DataWarning")
def test_steps_do_not_stay_as_short_as_the_first_one():
    """The first step ends where the objective is no longer curved: what it says of the length of
    steps is forgotten there. The optimum is the one found from another start."""
    X = [[0, 1, 2, 1, 1], [0, 0, 1, 1, 1], [1, 1, 0, 2, 2], [0, 0, 1, 1, 1], [0, 2, 1, 1, 0]]
    options = {"n_neighbors": 1, "push_weight": 0.9, "tol": TOL}
    found = [
        LMNN(shrinkage=0, init=init, **options).fit(X, [0, 1, 2, 0, 1])
        for init in ("auto", "identity")
    ]
    assert [model.status_ for model in found] == ["converged"] * 2
    assert found[1].n_iter_ < 100
    assert found[1].objective_ == pytest.approx(found[0].objective_, rel=TOL)
