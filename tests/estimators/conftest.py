"""Data for the tests of estimators, and plain computations to compare with."""

import numpy as np
import pytest


@pytest.fixture
def overlapping(rng, read_only):
    """Three classes of 20 points in 5 dimensions that overlap; no two distances are equal."""
    y = np.repeat(np.arange(3), 20)
    centres = rng.normal(size=(3, 5)) * [1.5, 1.5, 0.2, 0.2, 0.2]
    X = (centres[y] + rng.normal(size=(60, 5))) @ rng.normal(size=(5, 5))
    return read_only(X), read_only(y)


@pytest.fixture
def weights(overlapping, rng):
    """Of the rows of `overlapping`: integers from 0 to 3."""
    return rng.integers(0, 4, len(overlapping[1]))


@pytest.fixture(scope="session")
def nearest_of_class():
    """The k nearest others of each row's class, -1 where there are fewer, by plain loops."""

    def search(X, y, k):
        table = np.full((len(X), k), -1)
        for i in range(len(X)):
            others = [j for j in range(len(X)) if j != i and y[j] == y[i]]
            others.sort(key=lambda j: np.sum((X[i] - X[j]) ** 2))
            for position, j in enumerate(others[:k]):
                table[i, position] = j
        return table

    return search


@pytest.fixture(scope="session")
def paper_objective():
    """(1-mu) Σ D(i, j) + mu Σ [1 + D(i, j) - D(i, l)]₊ with D = (a-b)ᵀM(a-b), by plain loops."""

    def objective(M, X, y, targets, push_weight):
        def squared(a, b):
            return (a - b) @ M @ (a - b)

        X = np.asarray(X, dtype=np.float64)
        total = 0.0
        for i in range(len(X)):
            for j in targets[i]:
                if j == -1:
                    continue
                near = squared(X[i], X[j])
                total += (1 - push_weight) * near
                for far in range(len(X)):
                    if y[far] != y[i]:
                        total += push_weight * max(0.0, 1 + near - squared(X[i], X[far]))
        return total

    return objective


@pytest.fixture(autouse=True)
def one_thread_of_torch(request):
    """Several threads on tiny tensors cost more than they gain, much more on a busy machine."""
    if request.node.get_closest_marker("torch") is not None:
        import torch

        torch.set_num_threads(1)
