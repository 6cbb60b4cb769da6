"""The warning that a learned distance is worse than the inputs, on rows that were held out."""

import warnings

import numpy as np
import pytest

from nearfar.errors import DataWarning, WorseThanInputsWarning
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
