"""Energies of the estimator against the paper's sum in plain loops, decisions and probabilities."""

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.metrics import log_loss

from nearfar import LMNN, EnergyClassifier
from nearfar.errors import InvalidInputError, NearfarWarning
from nearfar.estimators.energy import inverse_temperature
from nearfar.problems.energy import Energy

EQUATION = {"targets": "input", "query_margin": 1}  # the paper's (15)


def energy_by_loops(M, X, y, new, k, mu, space=None, learned=False, query_margin=1):
    """E_t(y) of eq. (15) with D(a, b) = (a − b)ᵀ M (a − b); targets are nearest after ``space``,
    those of new points by D if so asked."""

    def squared(a, b):
        return (a - b) @ M @ (a - b)

    space = np.eye(X.shape[1]) if space is None else space

    def targets(x, label, but=None):
        def apart(j):
            by_metric = learned and but is None
            return squared(x, X[j]) if by_metric else np.sum((space @ (x - X[j])) ** 2)

        mates = [j for j in range(len(X)) if y[j] == label and j != but]
        return sorted(mates, key=apart)[:k]

    table = np.zeros((len(new), y.max() + 1))
    for t, x in enumerate(new):
        for label in range(y.max() + 1):
            for near in [squared(x, X[j]) for j in targets(x, label)]:
                table[t, label] += (1 - mu) * near
                for other in X[y != label]:
                    table[t, label] += mu * max(0, query_margin + near - squared(x, other))
            for i in np.flatnonzero(y != label):
                for j in targets(X[i], y[i], but=i):
                    slack = 1 + squared(X[i], X[j]) - squared(X[i], x)
                    table[t, label] += mu * max(0, slack)
    return table


@pytest.fixture
def split(overlapping, rng):
    """Training rows in random order, and new points."""
    X, y = overlapping
    order = rng.permutation(len(X))
    return X[order[:45]], y[order[:45]], X[order[45:]]


@pytest.mark.parametrize(("k", "mu"), [(3, 0.5), (2, 0.2), (None, None)])
def test_the_energy_is_the_papers(split, k, mu):
    """Rows are not sorted by class; None takes what the metric was learned with."""
    X, y, new = split
    model = EnergyClassifier(
        LMNN(shrinkage=0, n_neighbors=1, push_weight=0.7, tol=0.1),
        n_neighbors=k,
        push_weight=mu,
        **EQUATION,
    ).fit(X, y)
    assert (model.n_neighbors_, model.push_weight_) == (k or 1, mu or 0.7)
    M = model.metric_.get_mahalanobis_matrix()
    expected = energy_by_loops(M, X, y, new, k or 1, mu or 0.7)
    np.testing.assert_allclose(-model.decision_function(new), expected, rtol=1e-9)
    np.testing.assert_array_equal(model.predict(new), expected.argmin(axis=1))


@pytest.mark.parametrize(("options", "margin"), [({}, 0), ({"query_margin": 0.3}, 0.3)])
def test_targets_of_new_points_under_the_metric(split, options, margin):
    """The default, which is what the authors' program does."""
    X, y, new = split
    model = EnergyClassifier(LMNN(shrinkage=0, tol=0.1), **options).fit(X, y)
    M = model.metric_.get_mahalanobis_matrix()
    expected = energy_by_loops(M, X, y, new, 3, 0.5, learned=True, query_margin=margin)
    np.testing.assert_allclose(-model.decision_function(new), expected, rtol=1e-9)


def test_targets_are_chosen_where_the_metric_chose_them(split):
    """Under the map of the last pass, if the metric had several."""
    X, y, new = split
    metric = LMNN(shrinkage=0, tol=0.1).fit(X, y)
    metric.target_components_ = np.diag([0.0, 0.0, 1.0, 0.0, 2.0])
    model = EnergyClassifier(metric, **EQUATION).fit(X, y)
    M = metric.get_mahalanobis_matrix()
    expected = energy_by_loops(M, X, y, new, 3, 0.5, metric.target_components_)
    np.testing.assert_allclose(-model.decision_function(new), expected, rtol=1e-9)


def test_a_metric_may_name_the_space_itself(split):
    X, y, new = split
    metric = LMNN(shrinkage=0, tol=0.1).fit(X, y)
    metric._target_space = lambda points: points[:, :2] * [1.0, 3.0]
    model = EnergyClassifier(metric, **EQUATION).fit(X, y)
    M, space = metric.get_mahalanobis_matrix(), np.diag([1.0, 3.0, 0, 0, 0])
    expected = energy_by_loops(M, X, y, new, 3, 0.5, space)
    np.testing.assert_allclose(-model.decision_function(new), expected, rtol=1e-9)


def test_the_energy_is_what_the_objective_gains(split):
    """A training point more, with its own targets and those of the others as they were: the sum of
    the objective over the old edges and the new ones, less what it was."""
    X, y, new = split
    model = EnergyClassifier(LMNN(shrinkage=0, tol=0.1), **EQUATION).fit(X, y)
    metric = model.metric_

    def objective(points, labels, edges):
        Z = metric.transform(points)
        total = 0.0
        for i, j in edges:
            near = np.sum((Z[i] - Z[j]) ** 2)
            slack = 1 + near - np.sum((Z[i] - Z[labels != labels[i]]) ** 2, axis=1)
            total += 0.5 * near + 0.5 * slack.clip(0).sum()
        return total

    def nearest(x, label, but=None):
        mates = np.array([j for j in np.flatnonzero(y == label) if j != but])
        return mates[np.argsort(np.sum((X[mates] - x) ** 2, axis=1))[:3]]

    edges = [(i, j) for i in range(len(X)) for j in nearest(X[i], y[i], i)]
    before = objective(X, y, edges)
    for label, energy in enumerate(-model.decision_function(new[:1])[0]):
        points, labels = np.vstack([X, new[:1]]), np.append(y, label)
        own = [(len(X), j) for j in nearest(new[0], label)]
        assert energy == pytest.approx(objective(points, labels, edges + own) - before)


def test_two_classes_have_one_number(split):
    X, y, new = split
    X, y = X[y < 2], np.array(["no", "yes"])[y[y < 2]]
    model = EnergyClassifier().fit(X, y)
    decision, energy = model.decision_function(new), model._energy(new)
    assert decision.shape == (len(new),)
    np.testing.assert_array_equal(decision, energy[:, 0] - energy[:, 1])
    np.testing.assert_array_equal(model.predict(new), np.where(decision > 0, "yes", "no"))


def test_batches_are_as_the_whole(iris):
    X, y = iris
    model = EnergyClassifier().fit(X, y)
    batches = [model.decision_function(X[first : first + 40]) for first in range(0, 150, 40)]
    np.testing.assert_allclose(np.vstack(batches), model.decision_function(X), rtol=1e-9)


@pytest.mark.filterwarnings("ignore::nearfar.errors.DataWarning")  # the metric warns of it
def test_a_class_of_one_point(split):
    """Its point has no perimeter, and new points have one target there."""
    X, y, new = split
    y = np.append(y, 3)
    X = np.vstack([X, 10 + X[:1]])
    model = EnergyClassifier(LMNN(shrinkage=0), **EQUATION).fit(X, y)
    expected = energy_by_loops(model.metric_.get_mahalanobis_matrix(), X, y, new, 3, 0.5)
    np.testing.assert_allclose(-model.decision_function(new), expected, rtol=1e-9)
    assert model.predict(10 + X[:1]) == 3


# -- probabilities ---


def test_probabilities_are_a_softmax_of_the_energies(wine):
    X, y = wine
    papers = LMNN(shrinkage=0)
    model = EnergyClassifier(papers, probability=True, random_state=0).fit(X[::2], y[::2])
    shares = model.predict_proba(X[1::2])
    beta = model.inverse_temperature_
    np.testing.assert_allclose(shares, softmax(-beta * model._energy(X[1::2]), axis=1))
    np.testing.assert_array_equal(shares.argmax(axis=1), model._energy(X[1::2]).argmin(axis=1))
    assert log_loss(y[1::2], shares) < 0.2 < np.log(3)


def test_calibration_changes_neither_the_metric_nor_the_energies(wine):
    X, y = wine
    plain = EnergyClassifier(LMNN(shrinkage=0, tol=0.1)).fit(X, y)
    model = EnergyClassifier(LMNN(shrinkage=0, tol=0.1), probability=True, random_state=1).fit(X, y)
    np.testing.assert_array_equal(model.decision_function(X), plain.decision_function(X))
    assert plain.inverse_temperature_ is None
    again = EnergyClassifier(LMNN(shrinkage=0, tol=0.1), probability=True, random_state=1).fit(X, y)
    assert again.inverse_temperature_ == model.inverse_temperature_


def test_held_out_rows_are_not_compared_with_themselves(wine, monkeypatch):
    """The energies that calibrate are of a fifth of the rows, among the other four fifths."""
    X, y = wine
    seen = []
    of = Energy.of

    def noted(self, points, *rest):
        seen.append((len(points), len(self.points)))
        return of(self, points, *rest)

    monkeypatch.setattr(Energy, "of", noted)
    metric = LMNN(shrinkage=0, tol=0.1).fit(X, y)
    EnergyClassifier(metric, probability=True, random_state=0).fit(X, y)
    assert seen == [(34, 144)]


def test_the_inverse_temperature_has_the_least_log_loss(rng):
    """True labels are drawn with β = ½; the best β on many points is near it, and no other on a
    grid does better by more than the grain of the target."""
    energy = rng.uniform(0, 10, size=(4000, 3))
    shares = softmax(-0.5 * energy, axis=1)
    codes = (rng.uniform(size=(4000, 1)) > shares.cumsum(axis=1)).sum(axis=1)
    beta = inverse_temperature(energy, codes)
    assert beta == pytest.approx(0.5, rel=0.1)
    losses = [log_loss(codes, softmax(-b * energy, axis=1)) for b in beta * 1.1 ** np.arange(-5, 6)]
    assert np.argmin(losses) == 5


def test_the_inverse_temperature_is_finite_where_nobody_errs():
    energy = np.array([[0.0, 5.0], [7.0, 0.0], [1.0, 8.0]])
    beta = inverse_temperature(energy, np.array([0, 1, 0]))
    shares = softmax(-beta * energy, axis=1).max(axis=1)
    assert (shares > 0.6).all()
    assert (shares < 0.95).all()


@pytest.mark.parametrize("scale", [1e-9, 1e9])
def test_the_inverse_temperature_follows_the_scale(rng, scale):
    energy, codes = rng.uniform(size=(50, 4)), rng.integers(4, size=50)
    energy[np.arange(50), codes] -= 0.5
    beta = inverse_temperature(energy, codes)
    assert inverse_temperature(scale * energy, codes) == pytest.approx(beta / scale, rel=1e-3)


def test_equal_energies_give_equal_probabilities():
    beta = inverse_temperature(np.ones((4, 2)), np.array([0, 1, 0, 1]))
    assert np.isfinite(beta)


def test_without_probability_there_is_no_predict_proba(iris):
    model = EnergyClassifier().fit(*iris)
    assert not hasattr(model, "predict_proba")
    with pytest.raises(AttributeError, match="has no attribute 'predict_proba'") as error:
        model.predict_proba(iris[0])
    assert "probability=True" in str(error.value.__cause__)


def test_probability_set_after_the_fit(iris):
    model = EnergyClassifier().fit(*iris).set_params(probability=True)
    with pytest.raises(InvalidInputError, match="it was set later"):
        model.predict_proba(iris[0])


def test_too_few_rows_to_hold_any_out(iris):
    X, y = iris
    rows = np.r_[0:4, 50:54, 100:104]
    with pytest.raises(InvalidInputError, match=r"the largest class has 4 members\. Add rows"):
        EnergyClassifier(LMNN(shrinkage=0, n_neighbors=1), probability=True).fit(X[rows], y[rows])


# -- parameters and tensors ---


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_neighbors": 0}, "n_neighbors must be an integer of at least 1; got 0"),
        ({"targets": "near"}, "targets must be one of 'input', 'learned'; got 'near'"),
        ({"push_weight": 1}, "push_weight must be a number between 0 and 1; got 1"),
        ({"query_margin": -1}, "query_margin must be a number of at least 0; got -1"),
    ],
)
def test_bad_parameters(parameters, message, iris):
    with pytest.raises(InvalidInputError, match=message):
        EnergyClassifier(**parameters).fit(*iris)


def test_one_class_is_an_error_also_for_a_fitted_metric(iris):
    X, y = iris
    metric = LMNN(shrinkage=0, tol=0.1).fit(X, y)
    with pytest.raises(InvalidInputError, match="needs at least two classes; y has 1 class"):
        EnergyClassifier(metric).fit(X, np.zeros(150))


@pytest.mark.torch
def test_tensors_in_tensors_out(torch, wine, dtype):
    X, y = wine
    data = torch.tensor(X.astype(dtype))
    model = EnergyClassifier(LMNN(shrinkage=0, tol=0.1), probability=True, random_state=0).fit(
        data, y
    )
    decision, shares = model.decision_function(data), model.predict_proba(data)
    assert isinstance(decision, torch.Tensor)
    assert decision.dtype == shares.dtype == torch.float64
    np.testing.assert_allclose(shares.sum(1), 1)
    twin = LMNN(shrinkage=0, tol=0.1).fit(X.astype(dtype), y)
    twin.components_ = model.metric_.components_.numpy()
    expected = EnergyClassifier(twin).fit(X.astype(dtype), y).decision_function(X.astype(dtype))
    np.testing.assert_allclose(decision, expected, rtol=3000 * np.finfo(dtype).eps)


def test_more_neighbours_than_points_are_an_error_before_the_metric_is_learned(iris):
    X, y = iris
    model = EnergyClassifier(
        LMNN(shrinkage=0, tol=-1), n_neighbors=10**12
    )  # whose fit would be refused
    with pytest.raises(
        InvalidInputError, match=r"=1000000000000 is more than the number of training points, 150"
    ):
        model.fit(X, y)


def test_the_metric_may_have_more_neighbours_than_there_are_points(iris):
    X, y = iris
    metric = LMNN(shrinkage=0, n_neighbors=10**12, max_iter=2)
    with pytest.warns(NearfarWarning):
        model = EnergyClassifier(metric).fit(X[::5], y[::5])
    assert model.n_neighbors_ == 30
    assert model.predict(X).shape == (150,)
