"""Clustering with side information: the index, the table, where it helps."""

import re
from itertools import combinations

import numpy as np
import pytest

from tests.examples.running import run_example


@pytest.fixture(scope="module")
def ran():
    return run_example("cluster_with_side_information")


def rand_index(y, clusters):
    """Pairs that classes and clusters agree on, less those of chance, over the most that can be."""
    first, second = np.array(list(combinations(range(len(y)), 2))).T
    same, joined = y[first] == y[second], clusters[first] == clusters[second]
    chance = same.sum() * joined.sum() / len(first)
    return ((same & joined).sum() - chance) / ((same.sum() + joined.sum()) / 2 - chance)


def test_the_index_is_the_adjusted_rand_index(ran):
    X, y = ran["SETS"]["wine"](return_X_y=True)
    standardised, metric = ran["told"](X, y, 1)
    spaces = (X, standardised, metric.transform(standardised))
    expected = [rand_index(y, ran["clustered"](points, y, 1)) for points in spaces]
    np.testing.assert_allclose(ran["indices"]["wine"][1], expected)


def test_only_as_many_pairs_are_told_as_it_says(ran, monkeypatch):
    told, make = [], ran["make_pairs"]

    def counting(X, y, n_pairs, **options):
        told.append(n_pairs)
        return make(X, y, n_pairs, **options)

    monkeypatch.setitem(ran["told"].__globals__, "make_pairs", counting)
    ran["told"](*ran["SETS"]["iris"](return_X_y=True), 0)
    assert told == [45]


def test_the_table_and_where_it_helps(ran):
    for name, helped in {"iris": 5, "wine": 0, "breast cancer": 5, "digits": 0}.items():
        line = next(line for line in ran.text.splitlines() if line.startswith(name + " "))
        means = [float(mean) for mean in re.findall(r"(\d\.\d+) ±", line)]
        np.testing.assert_allclose(means, ran["indices"][name].mean(axis=0), atol=5e-4)
        assert (means[2] > max(means[:2])) == (helped == 5)
        assert line.endswith(f"{helped} of 5")
