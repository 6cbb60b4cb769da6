"""The sets that come with scikit-learn."""

import numpy as np
import pytest

from nearfar.datasets import BUILTIN_NAMES, load_builtin
from nearfar.errors import InvalidInputError

SHAPES = {"breast_cancer": (569, 30), "digits": (1797, 64), "iris": (150, 4), "wine": (178, 13)}


@pytest.mark.parametrize("name", BUILTIN_NAMES)
def test_shapes(name):
    table = load_builtin(name)
    assert table.X.shape == SHAPES[name]
    assert table.X.dtype == np.float64
    assert table.y.shape == SHAPES[name][:1]
    assert table.y.dtype.kind == "i"
    assert len(table.feature_names) == SHAPES[name][1]
    assert all(isinstance(feature, str) for feature in table.feature_names)


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(InvalidInputError, match=r"breast_cancer, digits, iris, wine; did you mean"):
        load_builtin("digit")
