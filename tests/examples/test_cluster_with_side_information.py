"""The example of clustering with side information, on few draws of pairs."""

import re
import subprocess
import sys
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_iris

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples" / "cluster_with_side_information.py"


@pytest.fixture(scope="module")
def example():
    from examples import cluster_with_side_information

    return cluster_with_side_information


def test_the_index_is_the_adjusted_rand_index(example, rng):
    """Pairs that classes and clusters agree on, less those of chance, over the most that can be.

    Points in two heaps of which one holds a wrong class.
    """
    y = np.repeat([0, 1], [9, 6])
    heaps = np.where(np.arange(15) < 7, 0, 1)
    points = 100.0 * heaps[:, None] + rng.normal(size=(15, 2))
    pairs = np.array([(y[i] == y[j], heaps[i] == heaps[j]) for i, j in combinations(range(15), 2)])
    together, same, clustered = pairs.all(axis=1).sum(), *pairs.sum(axis=0)
    chance = same * clustered / len(pairs)
    expected = (together - chance) / ((same + clustered) / 2 - chance)
    assert example.agreement(points, y, 0) == pytest.approx(expected)


def test_side_information_improves_the_clusters_of_iris(example):
    X, y = load_iris(return_X_y=True)
    found = np.array([example.compared(X, y, 0.3, seed) for seed in range(3)])
    assert found.shape == (3, 3)
    assert (found[:, 2] > found[:, :2].max(axis=1) + 0.05).all()


def test_the_whole():
    command = [sys.executable, "-W", "error", SCRIPT, "--data", "iris", "wine", "--seeds", "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    iris, wine = done.stdout.splitlines()[-2:]
    assert iris.startswith("iris              2 x 45")
    assert iris.endswith("100%")
    means = [float(mean) for mean in re.findall(r"(\d\.\d+) ±", wine)]
    assert means[0] < means[2] < means[1]  # as given, after MMC, standardised
