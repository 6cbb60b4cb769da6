"""The recipe for the number of neighbours: outcomes, the recommendation, and what it says."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.decomposition import PCA
from sklearn.metrics import pairwise_distances

from nearfar import MVU, NeighborhoodGraph
from nearfar.errors import DataWarning, InvalidInputError, warn
from nearfar.evaluation import NeighborChoice, choose_n_neighbors, measure_embedding


def bent(n, rng):
    """A strip bent by three quarters of a turn, three points across, with noise in five dimensions.

    Points are near those of a grid, so that their graph is connected.
    """
    t, height = np.divmod(np.arange(n), 3) + rng.uniform(-0.2, 0.2, size=(2, n))
    angle = 1.5 * np.pi * t / (n / 3)
    strip = np.stack([np.cos(angle), np.sin(angle), 0.2 * height], axis=1)
    return np.concatenate([strip, 0.01 * rng.normal(size=(n, 5))], axis=1)


@pytest.fixture
def strip(rng, read_only):
    return read_only(bent(60, rng))


class Fake(BaseEstimator):
    """An unfolding whose outcome is planned: noise is added to the points, or nothing is done."""

    def __init__(self, n_neighbors=3, n_components=2, metric="euclidean", plan=None):
        self.n_neighbors, self.n_components = n_neighbors, n_components
        self.metric, self.plan = metric, plan

    def fit(self, X):
        todo = self.plan[self.n_neighbors]
        if todo == "refuse":
            raise InvalidInputError("no memory for this")
        if todo == "split":
            NeighborhoodGraph.from_edges([0, 2], [1, 3], [1.0, 1.0], 4).check_connected("Fake")
        if todo == "lock":
            self.eigenvalues_ = np.linalg.svd(X - X.mean(axis=0), compute_uv=False) ** 2
            self.embedding_ = PCA(2).fit_transform(X)
            return self
        noise = np.random.default_rng(0).normal(size=(len(X), 2))
        if todo == "bulge":
            self.embedding_, self.eigenvalues_ = X[:, :2], np.array([2.0, 2.0, 1.0])
            return self
        if todo > 0.3:
            warn("much noise", DataWarning)
        self.embedding_ = X[:, :2] + todo * noise
        self.eigenvalues_ = np.array([2.0, 2.0, todo])
        return self


@pytest.fixture
def sheet(rng):
    """Flat but for a third dimension that is in the way."""
    return rng.uniform(size=(50, 3)) * [2, 1, 0.5]


# -- with planned outcomes ---------------------------------------------------------------------


def test_the_best_mean_among_those_that_unfolded(sheet):
    plan = {3: "split", 4: 0.5, 5: 0.05, 6: 0.4, 7: "refuse", 8: "lock", 9: 0.0}
    choice = choose_n_neighbors(sheet, Fake(plan=plan), [9, 8, 7, 6, 5, 4, 3, 3])
    assert isinstance(choice, NeighborChoice)
    outcomes = {trial.n_neighbors: trial.outcome for trial in choice.trials}
    assert outcomes == {
        3: "disconnected",
        4: "unfolded",
        5: "unfolded",
        6: "unfolded",
        7: "refused",
        8: "locked up",
    }
    assert choice.n_neighbors == 5
    assert choice.best.model.n_neighbors == 5
    reasons = {trial.n_neighbors: trial.reason for trial in choice.trials}
    assert "2 components" in reasons[3]
    assert reasons[4] == "much noise"
    assert reasons[5] == ""
    assert reasons[7] == "no memory for this"


def test_what_has_unfolded_far_goes_before_what_keeps_neighbours(sheet):
    """4 has the best mean, but only 80 % of the variance in two dimensions, 5 has 99 %."""
    choice = choose_n_neighbors(sheet, Fake(plan={4: "bulge", 5: 0.05, 6: 0.4}), (4, 5, 6))
    means, shares = ([getattr(t, name) for t in choice.trials] for name in ("mean", "share"))
    assert max(means) == means[0]
    assert shares == pytest.approx([4 / 5, 4 / 4.05, 4 / 4.4])
    assert choice.n_neighbors == 5


def test_numbers_beyond_lock_up_are_tried_on_demand(sheet):
    plan = {3: 0.4, 4: "lock", 5: "lock"}
    short = choose_n_neighbors(sheet, Fake(plan=plan), (3, 4, 5))
    whole = choose_n_neighbors(sheet, Fake(plan=plan), (3, 4, 5), beyond_lock_up=True)
    assert [trial.n_neighbors for trial in short.trials] == [3, 4]
    assert [trial.n_neighbors for trial in whole.trials] == [3, 4, 5]
    assert short.n_neighbors == whole.n_neighbors == 3


def test_of_equal_means_the_smallest_number(sheet):
    choice = choose_n_neighbors(sheet, Fake(plan={3: 0.3, 4: 1e-3, 5: 0.0}), (3, 4, 5))
    means = [trial.mean for trial in choice.trials]
    assert means[0] < means[1] - 0.01
    assert 0 < abs(means[1] - means[2]) <= 0.01
    assert choice.n_neighbors == 4


def test_the_measures_are_those_of_the_embedding(sheet):
    choice = choose_n_neighbors(sheet, Fake(plan={4: 0.2}), [4], measured=7)
    (trial,) = choice.trials
    expected = measure_embedding(sheet, trial.model.embedding_, 7, name="n_neighbors=4")
    assert trial.measures == expected
    assert trial.mean == expected.harmonic_mean
    np.testing.assert_allclose(trial.spectrum, np.array([2, 2, 0.2]) / 4.2)
    assert trial.share == pytest.approx(4 / 4.2)


def test_nothing_unfolded(sheet):
    for todo, remedy in (
        ("split", "Try larger numbers"),
        ("lock", "constraints='slack'"),
        ("refuse", "reasons of the trials"),
    ):
        choice = choose_n_neighbors(sheet, Fake(plan={3: todo}), [3])
        assert (choice.n_neighbors, choice.best) == (None, None)
        assert "recommended: none" in str(choice)
        assert remedy in str(choice)


class Linking(Fake):
    """A fake that links components where its plan is a split, with little noise."""

    def __init__(
        self, n_neighbors=3, n_components=2, metric="euclidean", plan=None, on_disconnected="link"
    ):
        super().__init__(n_neighbors, n_components, metric, plan)
        self.on_disconnected = on_disconnected

    def fit(self, X):
        if self.plan[self.n_neighbors] == "split" and self.on_disconnected == "link":
            warn("linked", DataWarning)
            return Fake.fit(self.set_params(plan={self.n_neighbors: 0.01}), X)
        return super().fit(X)


def test_components_are_linked_only_if_no_number_connects_them(sheet):
    """The linked graph would keep more neighbours than the connected one of noise 0.4."""
    connected = choose_n_neighbors(sheet, Linking(plan={3: "split", 4: 0.4}), (3, 4))
    assert [trial.outcome for trial in connected.trials] == ["disconnected", "unfolded"]
    assert connected.n_neighbors == 4
    linked = choose_n_neighbors(sheet, Linking(plan={3: "split", 4: "lock"}), (3, 4))
    assert [trial.outcome for trial in linked.trials] == ["unfolded", "locked up"]
    assert (linked.n_neighbors, linked.best.reason) == (3, "linked")
    for choice in (connected, linked):
        assert choice.best.model.on_disconnected == "link"
    strict = choose_n_neighbors(sheet, Linking(plan={3: "split"}, on_disconnected="error"), [3])
    assert [trial.outcome for trial in strict.trials] == ["disconnected"]
    assert str(strict).endswith("Try larger numbers, or on_disconnected='link'.")


def test_a_table_for_people(sheet):
    choice = choose_n_neighbors(sheet, Fake(plan={3: "split", 4: 0.1, 5: "lock"}), (3, 4, 5))
    lines = str(choice).splitlines()
    head = ["k", "outcome", "share", "contin.", "trust", "inters.", "mean", "seconds"]
    assert lines[0].split() == head
    assert lines[1].split()[:7] == ["3", "disconnected", "-", "-", "-", "-", "-"]
    trial = choice.trials[1]
    assert lines[2].split()[:3] == ["4", "unfolded", f"{trial.share:.2f}"]
    assert lines[2].split()[6] == f"{trial.mean:.2f}"
    assert lines[3].startswith("  5 locked up")
    assert lines[4] == ("recommended: n_neighbors=4, with 98% of the variance in 2 dimensions")


# -- with MVU ----------------------------------------------------------------------------------


def test_a_bent_strip(strip):
    """It locks up at last; what is recommended does not, and keeps its neighbours."""
    choice = choose_n_neighbors(strip, MVU(tol=1e-4), (3, 4, 25))
    outcomes = [trial.outcome for trial in choice.trials]
    assert outcomes[-1] == "locked up"
    assert "unfolded" in outcomes
    assert choice.n_neighbors in (3, 4)
    assert choice.best.mean > choice.trials[-1].mean
    assert choice.best.model.embedding_.shape == (60, 2)


def test_distances_and_kernel_give_the_same_choice(strip):
    numbers = (3, 4, 5)
    plain = choose_n_neighbors(strip, MVU(tol=1e-4), numbers)
    D = pairwise_distances(strip)
    by_distances = choose_n_neighbors(D, MVU(metric="precomputed", tol=1e-4), numbers)
    by_kernel = choose_n_neighbors(strip @ strip.T, MVU(metric="kernel", tol=1e-4), numbers)
    for other in (by_distances, by_kernel):
        assert other.n_neighbors == plain.n_neighbors
        for mine, theirs in zip(plain.trials, other.trials, strict=True):
            assert theirs.outcome == mine.outcome
            assert theirs.mean == pytest.approx(mine.mean, abs=1e-2)


def test_partial_distances_are_chosen_by_the_spectra(strip):
    """There is nothing to measure against: the largest share in two dimensions wins."""
    D = pairwise_distances(strip)
    known = sparse.csr_array(np.where(np.quantile(D, 0.5) > D, D, 0))
    choice = choose_n_neighbors(known, MVU(metric="precomputed", tol=1e-4), (4, 5))
    unfolded = [trial for trial in choice.trials if trial.outcome == "unfolded"]
    assert all(trial.measures is None for trial in unfolded)
    assert choice.n_neighbors == max(unfolded, key=lambda trial: trial.share).n_neighbors


@pytest.mark.torch
def test_tensors(strip, torch):
    plain = choose_n_neighbors(strip, MVU(tol=1e-4), [4])
    found = choose_n_neighbors(torch.tensor(np.array(strip)), MVU(tol=1e-4), [4])
    assert found.n_neighbors == plain.n_neighbors == 4
    assert found.best.mean == pytest.approx(plain.best.mean, abs=1e-3)


# -- what is refused ---------------------------------------------------------------------------


def test_bad_input(strip):
    with pytest.raises(InvalidInputError, match="a graph has its neighbours already"):
        choose_n_neighbors(NeighborhoodGraph.from_points(strip, 4))
    with pytest.raises(InvalidInputError, match="PCA has no parameter n_neighbors"):
        choose_n_neighbors(strip, PCA())
    with pytest.raises(InvalidInputError, match="at least one number; got none"):
        choose_n_neighbors(strip, n_neighbors=[])
    with pytest.raises(InvalidInputError, match="n_neighbors must be an integer"):
        choose_n_neighbors(strip, n_neighbors=[2.5])
    with pytest.raises(InvalidInputError, match="measured must be an integer"):
        choose_n_neighbors(strip, measured=0)


def test_arguments_in_the_wrong_order_are_told():
    X = np.zeros((5, 2))
    message = r"points first and the unfolding second; got MVU and ndarray\. Write"
    with pytest.raises(InvalidInputError, match=message):
        choose_n_neighbors(MVU(), X)
    with pytest.raises(InvalidInputError, match="got ndarray and type"):
        choose_n_neighbors(X, MVU)
