"""LMNN from given triplets: the same program, with these in place of all impostors."""

import re

import numpy as np
import pytest
from scipy.optimize import check_grad
from sklearn.utils import get_tags

from nearfar import LMNN, Tuples
from nearfar.errors import DataWarning, InvalidInputError
from nearfar.problems.lmnn_given import GivenLMNNProblem


@pytest.fixture
def answers(rng):
    """Noise-free triplets of 60 objects under a hidden metric, as a function of their number."""
    Z, weights = rng.normal(size=(60, 4)), np.array([3, 1, 0.3, 0.1])

    def lengths(heads, tails):
        return ((Z[heads] - Z[tails]) ** 2) @ weights

    def draw(m):
        T = np.array([rng.permutation(60)[:3] for _ in range(m)])
        wrong = lengths(T[:, 0], T[:, 1]) > lengths(T[:, 0], T[:, 2])
        return Tuples(Z, np.where(wrong[:, None], T[:, [0, 2, 1]], T))

    return draw


def share_held(model, triplets):
    near, far = (
        model.pair_distance(Tuples(triplets.points, triplets.indices[:, columns]))
        for columns in ([0, 1], [0, 2])
    )
    return float(np.mean(near < far))


def plain_objective(model, triplets, push_weight):
    """By its definition, in plain loops."""
    images = triplets.points @ np.asarray(model.components_).T
    length = {}
    for a, b, c in triplets.indices:
        for end in (b, c):
            length[a, end] = float(((images[a] - images[end]) ** 2).sum())
    pull = sum(length[edge] for edge in {(a, b) for a, b, _ in triplets.indices})
    push = sum(max(0.0, 1 + length[a, b] - length[a, c]) for a, b, c in triplets.indices)
    return (1 - push_weight) * pull + push_weight * push


@pytest.mark.parametrize("parameters", [{}, {"push_weight": 0.9}, {"n_components": 2}], ids=str)
def test_the_objective_is_that_of_its_definition(answers, parameters):
    triplets = answers(300)
    model = LMNN(shrinkage=0, **parameters).fit(triplets)
    expected = plain_objective(model, triplets, model.push_weight)
    assert model.objective_ == pytest.approx(expected, rel=1e-9)
    assert model.status_ == "converged"
    assert (model.duality_gap_ is None) == ("n_components" in parameters)


def test_true_answers_are_learned_without_a_warning_however_many(answers):
    """As pairs some would be both near and far; within their triplets none contradicts itself."""
    model = LMNN(push_weight=0.9).fit(answers(400))
    assert model.duality_gap_ <= model.tol
    assert share_held(model, answers(1000)) > 0.9


def test_with_all_triplets_of_the_labels_it_is_lmnn_itself(overlapping, nearest_of_class):
    X, y = overlapping
    targets = nearest_of_class(X, y, 3)
    rows = [(i, j, k) for i in range(len(X)) for j in targets[i] for k in np.flatnonzero(y != y[i])]
    model = LMNN(shrinkage=0, tol=1e-6).fit(Tuples(X, rows))
    expected = LMNN(shrinkage=0, tol=1e-6).fit(X, y)
    assert model.objective_ == pytest.approx(expected.objective_, rel=1e-5)
    np.testing.assert_allclose(
        model.get_mahalanobis_matrix(), expected.get_mahalanobis_matrix(), atol=1e-3
    )


def test_the_gradient_is_that_of_finite_differences(answers, rng):
    triplets = answers(50)
    problem = GivenLMNNProblem.of(triplets.points, triplets.points[0], triplets.indices, 0.7)
    found = problem.search(np.eye(4), 1.0, 0.3)

    def value(L):
        at = problem.place(L.reshape(3, 4), found)
        smooth = at.alpha @ at.slack - 0.15 * (at.alpha @ at.alpha)
        return at.pull + 0.7 * float(smooth)

    def gradient(L):
        return problem.gradient(problem.place(L.reshape(3, 4), found)).ravel()

    assert check_grad(value, gradient, rng.normal(size=12)) < 1e-4


def test_a_triplet_that_is_given_twice_counts_twice(answers):
    """Twice in the push, while a near pair is pulled once."""
    triplets = answers(100)
    twice = Tuples(triplets.points, np.concatenate([triplets.indices] * 2))
    model = LMNN(shrinkage=0).fit(twice)
    assert model.objective_ == pytest.approx(plain_objective(model, twice, 0.5), rel=1e-9)
    assert model.duality_gap_ <= model.tol


def test_dense_triplets_tensors_and_float32(answers, backend, dtype):
    triplets = answers(200)
    expected = LMNN(shrinkage=0, tol=1e-5).fit(triplets).objective_
    points = backend.asarray(triplets.points.astype(dtype))
    dense = backend.asarray(triplets.dense().astype(dtype))
    for X in (Tuples(points, triplets.indices), dense):
        model = LMNN(shrinkage=0, tol=1e-4).fit(X)
        assert backend.to_numpy(model.components_).dtype == dtype
        assert model.objective_ == pytest.approx(expected, rel=1e-3)


def test_by_default_some_of_the_inputs_distance_is_kept(answers):
    """As of labels, but for the choice of that distance, which needs them."""
    triplets = answers(100)
    model = LMNN().fit(triplets)
    n, d = triplets.points.shape
    assert model.shrinkage_ == 4 * d / (4 * d + n)
    assert model.prior_components_ is None
    assert model.duality_gap_ <= model.tol
    assert np.linalg.eigvalsh(model.get_mahalanobis_matrix())[0] > 0


def test_a_warm_start_begins_at_the_answer(answers):
    triplets = answers(300)
    model = LMNN(warm_start=True).fit(triplets)
    before = model.n_iter_
    assert model.fit(triplets).n_iter_ <= before
    assert LMNN(init=np.asarray(model.components_)).fit(triplets).status_ == "converged"


def test_labels_of_an_earlier_fit_are_forgotten(overlapping, answers):
    model = LMNN().fit(*overlapping)
    model.fit(answers(50))
    assert not hasattr(model, "classes_")
    assert (model.n_passes_, model.target_components_, model.proof_) == (1, None, None)
    assert get_tags(model).input_tags.three_d_array


@pytest.mark.parametrize(
    "parameters",
    [
        {"n_passes": 2},
        {"validation_fraction": 0.2},
        {"checkpoint": "file"},
        {"init": "lda"},
    ],
    ids=str,
)
def test_what_needs_labels_is_an_error(parameters, answers):
    (name, value), *_ = parameters.items()
    message = f"^{name}={re.escape(repr(value))} needs points with labels, but X holds triplets"
    with pytest.raises(InvalidInputError, match=message):
        LMNN(**parameters).fit(answers(20))


def test_input_that_is_no_triplets_is_an_error(answers):
    triplets = answers(20)
    with pytest.raises(InvalidInputError, match="takes triplets without y"):
        LMNN().fit(triplets, np.ones(20))
    with pytest.raises(InvalidInputError, match=r"target_neighbors=.* needs points with labels"):
        LMNN().fit(triplets, None, [[1]])
    with pytest.raises(InvalidInputError, match=r"takes triplets of shape .*; got \(20, 2, 4\)"):
        LMNN().fit(Tuples(triplets.points, triplets.indices[:, :2]), np.ones(20))
    with pytest.raises(InvalidInputError, match=r"first and last .* are equal in all 20"):
        LMNN().fit(Tuples(triplets.points, triplets.indices[:, [0, 1, 0]]))


def test_a_last_point_equal_to_the_first_is_left_out_with_a_warning(answers):
    triplets = answers(100)
    rows = np.array(triplets.indices)
    rows[7, 2] = rows[7, 0]
    with pytest.warns(
        DataWarning, match=r"far pairs of equal points are left out.*triplet 7 \(1 in"
    ):
        model = LMNN().fit(Tuples(triplets.points, rows))
    expected = LMNN().fit(Tuples(triplets.points, np.delete(rows, 7, axis=0)))
    assert model.objective_ == pytest.approx(expected.objective_, rel=1e-9)
