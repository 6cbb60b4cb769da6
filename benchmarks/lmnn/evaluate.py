"""The one judge of every method: ``python -m benchmarks.lmnn.evaluate FOLDER L.npy``.

It needs NumPy alone, works in float64 and in blocks, and shares no code with nearfar.

    D_ij = |L x_i - L x_j|^2                                                             (1)
    f(s) = (1-mu) s sum_ij D_ij + mu sum_ijl [1 - s (D_il - D_ij)]_+                     (2)

j runs over the k nearest points of i's class in the input space, never i itself, and l over all
points of other classes. Methods differ in the scale that they give L, so the objective is
min over s >= 0 of f(s). With the margins m_ijl = D_il - D_ij in ascending order, f is convex and
linear between the breakpoints s = 1 / m, and its slope there is

    (1-mu) sum_ij D_ij - mu (sum of all margins below 1/s)                               (3)

so the minimiser is 1 / m for the first positive margin at which the running sum of margins
reaches (1-mu)/mu sum_ij D_ij. Only margins below some window are needed for that.
"""

import argparse
import json
from itertools import pairwise
from pathlib import Path

import numpy as np

N_NEIGHBORS = 3
PUSH_WEIGHT = 0.5

BLOCK = 2**24  # entries of a block of distances: 128 MB
SAMPLE = 2 * 10**7  # margins from which the scale is first estimated
TIE = 1e-6  # relative; given targets may differ by this much from the nearest


def target_neighbors(X, y, k=N_NEIGHBORS):
    """The k nearest points of each point's class; of equally near ones, those that come first.

    Distances count as equal if they agree to 9 digits of the class's mean squared distance.
    """
    targets = np.empty((len(X), k), dtype=np.int64)
    for label in np.unique(y):
        members = np.flatnonzero(y == label)
        size = len(members)
        if size <= k:
            raise ValueError(f"class {label} has {size} points, k={k} targets need {k + 1}")
        points = X[members] - X[members].mean(0)
        sq_norms = (points**2).sum(1)
        unit = 1e-9 * (2 * sq_norms.mean() or 1.0)
        for rows in blocks(0, size, size):
            D = sq_norms[rows, None] + sq_norms - 2 * points[rows] @ points.T
            key = np.rint(D / unit).astype(np.int64) * size + np.arange(size)
            key[np.arange(len(D)), np.arange(rows.start, rows.stop)] = np.iinfo(np.int64).max
            nearest = np.argpartition(key, k - 1, axis=1)[:, :k]
            order = np.argsort(np.take_along_axis(key, nearest, 1), axis=1)
            targets[members[rows]] = members[np.take_along_axis(nearest, order, 1)]
    return targets


def check_targets(X, y, targets):
    """Raise unless ``targets`` are nearest neighbours in class, whatever the order of ties."""
    expected = sq_distances_to(X, target_neighbors(X, y, targets.shape[1]))
    got = np.sort(sq_distances_to(X, targets), axis=1)
    distinct = np.diff(np.sort(targets, axis=1), axis=1).all()
    others = (targets != np.arange(len(X))[:, None]).all()
    if not (distinct and others and (y[targets] == y[:, None]).all()):
        raise ValueError("targets must be distinct other points of the point's own class")
    worst = np.abs(got - expected).max() / (expected.mean() or 1.0)
    if worst > TIE:
        raise ValueError(f"targets are not the nearest in class: distances differ by {worst:.1e}")


def sq_distances_to(Z, targets):
    """D_ij of (1) for every point i (rows) and its targets j (columns)."""
    return np.stack([((Z - Z[column]) ** 2).sum(1) for column in targets.T], axis=1)


def margins_below(window, Z, y, pull, anchors=None):
    """All margins D_il - D_ij < window, unsorted, with i among ``anchors`` (default: all)."""
    order = np.argsort(y, kind="stable")
    Z, y, pull = Z[order], y[order], pull[order]
    chosen = np.ones(len(Z), dtype=bool)
    if anchors is not None:
        chosen = np.isin(order, anchors)
    sq_norms = (Z**2).sum(1)
    left = np.column_stack([-2 * Z, np.ones(len(Z))])
    right = np.column_stack([Z, sq_norms]).T  # left @ right = D_il - |z_i|^2
    edges = [0, *(np.flatnonzero(np.diff(y)) + 1), len(y)]
    found = []
    for start, stop in pairwise(edges):
        members = start + np.flatnonzero(chosen[start:stop])
        for block in blocks(0, len(members), len(Z)):
            rows = members[block]
            D = left[rows] @ right
            D[:, start:stop] = np.inf
            radius = pull[rows].max(1) + window - sq_norms[rows]
            i, other = np.nonzero(radius[:, None] > D)
            far = D[i, other] + sq_norms[rows[i]]
            margins = far[:, None] - pull[rows[i]]
            found.append(margins[margins < window])
    return np.concatenate(found)


def objective(Z, y, targets, mu=PUSH_WEIGHT, scale=1.0):
    """f(scale) of (2)."""
    pull = sq_distances_to(Z, targets)
    margins = margins_below(1 / scale, Z, y, pull)
    return (1 - mu) * scale * pull.sum() + mu * (1 - scale * margins).sum()


def best_scale(Z, y, targets, mu=PUSH_WEIGHT, sample=SAMPLE):
    """The s that minimises (2), and f(s)."""
    pull = sq_distances_to(Z, targets)
    n_anchors = int(sample / (len(Z) * targets.shape[1]))
    window = np.inf
    if n_anchors < len(Z):
        anchors = np.linspace(0, len(Z) - 1, max(n_anchors, 1)).astype(int)
        margins = margins_below(np.inf, Z, y, pull, anchors)
        scale = _breakpoint(margins, (1 - mu) / mu * pull[anchors].sum())
        window = 1.5 / scale if scale else np.inf
    while True:
        margins = margins_below(window, Z, y, pull)
        scale = _breakpoint(margins, (1 - mu) / mu * pull.sum())
        if scale or window == np.inf:
            break
        window *= 2
    active = 1 - scale * margins
    value = (1 - mu) * scale * pull.sum() + mu * active[active > 0].sum()
    return float(scale), float(value)


def _breakpoint(margins, pull):
    """1 / m for the first positive margin where the running sum reaches ``pull``, see (3).

    0 if there is none.
    """
    margins.sort()
    first = np.searchsorted(margins, 0, side="right")
    total = margins[:first].sum() + np.cumsum(margins[first:])
    position = np.searchsorted(total, pull)
    return 1 / margins[first + position] if position < len(total) else 0.0


def knn_error(Z_train, y_train, Z_test, y_test, k=3):
    """The share of test points that their k nearest training points get wrong.

    Where classes have equally many votes, the one with the nearest of those points wins.
    """
    sq_norms = (Z_train**2).sum(1)
    wrong = 0
    for rows in blocks(0, len(Z_test), len(Z_train)):
        D = sq_norms - 2 * Z_test[rows] @ Z_train.T
        nearest = np.argpartition(D, k - 1, axis=1)[:, :k]
        order = np.argsort(np.take_along_axis(D, nearest, 1), axis=1, kind="stable")
        labels = y_train[np.take_along_axis(nearest, order, 1)]
        votes = (labels[:, :, None] == labels[:, None, :]).sum(2)
        predicted = labels[np.arange(len(labels)), votes.argmax(1)]
        wrong += (predicted != y_test[rows]).sum()
    return float(wrong / len(Z_test))


def blocks(start, stop, width):
    step = max(1, BLOCK // max(width, 1))
    return [slice(at, min(at + step, stop)) for at in range(start, stop, step)]


def evaluate(folder, L, targets=None):
    """The judgement of L on the data in ``folder`` as a dict.

    ``objective_as_given`` is f(1) with the method's own ``targets``: where several points are
    equally near, methods may rightly differ in their choice.
    """
    train, test = np.load(folder / "train.npz"), np.load(folder / "test.npz")
    X, y = train["X"], train["y"]
    mean = X.mean(0)
    Z_train, Z_test = (X - mean) @ L.T, (test["X"] - mean) @ L.T
    own = target_neighbors(X, y)
    scale, value = best_scale(Z_train, y, own)
    result = {
        "objective": value,
        "scale": scale,
        "test_error": knn_error(Z_train, y, Z_test, test["y"]),
    }
    if targets is not None:
        check_targets(X, y, targets)
        result["objective_as_given"] = float(objective(Z_train, y, targets))
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="holds train.npz and test.npz")
    parser.add_argument("components", type=Path, help="L as a .npy file, r x d")
    parser.add_argument("--targets", type=Path, help="the method's own targets, n x k, .npy")
    parser.add_argument("--output", type=Path, help="a JSON file instead of the terminal")
    arguments = parser.parse_args()
    targets = np.load(arguments.targets) if arguments.targets else None
    L = np.load(arguments.components).astype(np.float64)
    text = json.dumps(evaluate(arguments.folder, L, targets))
    if arguments.output:
        arguments.output.write_text(text)
    else:
        print(text)


if __name__ == "__main__":
    main()
