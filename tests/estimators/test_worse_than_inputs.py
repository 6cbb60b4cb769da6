"""The warning that a learned distance is worse than the inputs, on rows that were held out."""

import warnings

import numpy as np
import pytest

import nearfar
from nearfar import ITML, MMC, SCML, SDML
from nearfar.errors import DataWarning, WorseThanInputsWarning
from nearfar.estimators import _held_out
from nearfar.estimators._held_out import votes_under
from nearfar.estimators._shrinkage import warn_if_worse

TRUTH = np.repeat([0, 1], 20)


def with_mistakes(*rows):
    votes = TRUTH.copy()
    votes[list(rows)] = 1 - votes[list(rows)]
    return votes


def test_a_worse_distance_is_warned_of_with_both_errors_and_the_cause():
    """Six rows of 40 are broken and one is mended: 5 more, where chance allows for sqrt(7)."""
    learned, inputs = with_mistakes(1, 2, 3, 4, 5, 6), with_mistakes(0)
    message = (
        r"^the learned distance is worse than the inputs: of 40 rows that were not learned from,"
        r" nearest neighbours misclassify 15\.0 % under it, and 2\.5 % with the inputs as they"
        r" are\. 30 rows minus 2 classes are fewer than 29 features: the learned distance fits"
        r" noise\. Use the inputs, a larger shrinkage, more rows, or fewer features\.$"
    )
    with pytest.warns(WorseThanInputsWarning, match=message):
        warn_if_worse(learned, inputs, TRUTH, n_rows=30, n_features=29, n_classes=2)
    assert issubclass(WorseThanInputsWarning, DataWarning)


def test_with_enough_rows_no_cause_is_named():
    with pytest.warns(WorseThanInputsWarning) as caught:
        warn_if_worse(
            with_mistakes(1, 2, 3), with_mistakes(), TRUTH, n_rows=30, n_features=28, n_classes=2
        )
    assert "fits noise" not in str(caught[0].message)


@pytest.mark.parametrize(
    ("learned", "inputs"),
    [
        ((), (1, 2, 3)),  # better
        ((1, 2), (1, 2)),  # the same rows
        ((1,), ()),  # one more is chance
        ((1, 2, 3, 4), (5, 6, 7)),  # so is one more of seven
    ],
)
def test_what_is_chance_or_no_loss_is_not_warned_of(learned, inputs):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_if_worse(
            with_mistakes(*learned),
            with_mistakes(*inputs),
            TRUTH,
            n_rows=5,
            n_features=100,
            n_classes=2,
        )


# -- learners that try themselves on parts of the rows --------------------------------------------


def spread_over_noise(n=120):
    """Two classes that differ in a small feature; the others, with larger variance, are noise."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], n // 2)
    X = rng.normal(size=(n, 30))
    X[:, 0] += 3 * y
    return X, np.array(["a", "b"])[y]


class Stretching(SDML):
    """Learns nothing but noise: the map keeps a feature that does not tell the classes apart."""

    def fit(self, X, y=None):
        super().fit(X, y)
        return self

    @property
    def components_(self):
        return self._noise

    @components_.setter
    def components_(self, value):
        self._noise = np.zeros_like(value)
        self._noise[0, -1] = 1.0


def test_trials_on_parts_of_the_rows_warn():
    """Every row is left out by one of the three trials."""
    X, y = spread_over_noise()
    with pytest.warns(WorseThanInputsWarning, match="of 120 rows that were not learned from"):
        Stretching().fit(X, y)


@pytest.mark.parametrize("options", [{"balance": 1e-6}, {"max_seconds": 100}, {"n_components": 2}])
def test_no_trials_where_the_user_chose_or_time_is_limited(options):
    X, y = spread_over_noise()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Stretching(**options).fit(X, y)


@pytest.mark.parametrize("learner", [ITML, MMC, SCML, SDML])
def test_trials_leave_the_fit_as_it_is(learner, monkeypatch):
    """Three more fits, of parts of the rows, without trials of their own; the answer stays."""
    X, y = spread_over_noise()
    fitted, plain = [], learner.fit

    def fit(self, X, *labels, **options):
        fitted.append(len(X))
        return plain(self, X, *labels, **options)

    monkeypatch.setattr(learner, "fit", fit)
    random = np.random.RandomState(0)
    found = learner(random_state=random).fit(X, y)
    assert fitted == [120, 80, 80, 80]
    after = random.random_sample()
    random.seed(0)
    same = learner(random_state=random, max_seconds=1000).fit(X, y)
    assert fitted == [120, 80, 80, 80, 120]
    np.testing.assert_array_equal(found.components_, same.components_)
    assert random.random_sample() == after


@pytest.mark.parametrize("weights", [(None, 9.0), (2.0, 9.0), (1.0, 1.0, 5.0)])
def test_trials_weigh_the_classes_that_the_user_named(weights, monkeypatch):
    """A class of one row is missing from the trial that leaves it out, and its weight is, too."""
    rng = np.random.default_rng(0)
    codes = np.append(np.arange(40) % 2, 2)
    X = rng.normal(size=(41, 3)) + codes[:, None]

    def maps(names):
        found = []
        monkeypatch.setattr(
            _held_out, "votes_under", lambda L, *rest: found.append(L) or votes_under(L, *rest)
        )
        given = {name: w for name, w in zip(names, weights, strict=False) if w is not None}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            MMC(class_weight=given).fit(X, np.array(names)[codes])
        return found

    expected = maps([0, 1, 2])
    assert len(expected) == 2 * _held_out.FOLDS
    for names in (["a", "b", "c"], [1, 2, 7]):
        np.testing.assert_allclose(maps(names), expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("learner", [ITML, MMC, SCML, SDML])
def test_no_trial_of_few_rows_or_of_tuples(learner, monkeypatch):
    X, y = spread_over_noise(20)
    monkeypatch.setattr("nearfar.estimators._held_out.votes_under", None)  # would raise if called
    learner().fit(X, y)
    X, y = spread_over_noise()
    triplets = nearfar.make_triplets(X, y, 3, random_state=0)
    learner().fit(triplets)
