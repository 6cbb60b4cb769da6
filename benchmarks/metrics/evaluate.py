"""The one judge of every metric: ``python -m benchmarks.metrics.evaluate TASK FOLDER L.npy``.

It needs NumPy alone, works in float64, and shares no code with nearfar or any peer. With
D_ij = |L x_i - L x_j|^2, A = L'L, and n_c the size of the class of i:

    p_ij(s) = exp(-s D_ij) / sum over k != i of exp(-s D_ik),    p_ii = 0                      (1)
    MCML      f(s) = sum_i sum_j p0_ij log(p0_ij / p_ij(s)),     p0_ij = 1 / (n_c - 1) in class  (2)
              f'(s) = sum_i (E_p0[D_ij] - E_p[D_ij]),   f''(s) = sum_i Var_p[D_ij]              (3)
    NCA       sum_i sum of p_ij(1) over j in the class of i                                     (4)
    MMC       (sum over far of D^1/2) / (sum over near of D)^1/2                                (5)
    DML-eig   d (min over far of D) / (sum over near of D)                                      (6)
    RCA       N (t - log det A),   t = mean over the N points x of chunklets of |L (x - m)|^2    (7)

Each is the objective at the best scalar scale of L, but for NCA, whose scale is learned: (2) is
minimised over s, which is convex; (5) is what is left of the sum over far pairs when the metric is
scaled until the sum over near pairs is 1; (6) is the smallest far distance when M = H^1/2 A H^1/2,
with H the scatter of the near pairs, is scaled until tr M = d; and (7) becomes
N (d + d log(t / d) - log det A), since log det (sA) = d log s + log det A.
"""

import argparse
import json
from pathlib import Path

import numpy as np

from benchmarks.lmnn.evaluate import blocks, knn_error

MOST_ROWS = 20000  # for which the best scale of (2) is looked for
PRECISION = 1e-10  # of that scale, relative


def soft_neighbors(Z, y):
    """Blocks of (D_ij, whether j is another point of i's class, the places of D_ii)."""
    Z = Z - Z.mean(0)
    sq_norms = (Z**2).sum(1)
    for rows in blocks(0, len(Z), 4 * len(Z)):
        D = np.maximum(sq_norms[rows, None] + sq_norms - 2 * Z[rows] @ Z.T, 0)
        same = y[rows, None] == y
        itself = np.arange(len(D)), np.arange(rows.start, rows.stop)
        D[itself], same[itself] = D.max(1), False  # never the nearest
        yield D, same, itself


def weights(D, itself, scale):
    """p_ij(s) of (1) times Z_i, the smallest D_ij, and Z_i; both as if that D_ij were 0."""
    nearest = D.min(1)
    e = np.exp(-scale * (D - nearest[:, None]))
    e[itself] = 0
    return e, nearest, e.sum(1)


def mcml(Z, y, scale=1.0):
    """f(s), f'(s) and f''(s) of (2) and (3); points that are alone in their class do not count."""
    totals = np.zeros(3)
    for D, same, itself in soft_neighbors(Z, y):
        counts = same.sum(1)
        wanted = np.where(same, D, 0).sum(1) / np.maximum(counts, 1)
        e, nearest, Z_i = weights(D, itself, scale)
        mean = (e * D).sum(1) / Z_i
        variance = (e * (D - mean[:, None]) ** 2).sum(1) / Z_i
        value = scale * (wanted - nearest) + np.log(Z_i) - np.log(np.maximum(counts, 1))
        totals += np.stack([value, wanted - mean, variance])[:, counts > 0].sum(1)
    return totals


def best_scale(Z, y):
    """The s >= 0 that minimises (2), by Newton's steps within a shrinking bracket."""
    low, high, scale = 0.0, np.inf, 1.0
    if mcml(Z, y, 0.0)[1] >= 0:
        return 0.0
    for _ in range(100):
        _, slope, curvature = mcml(Z, y, scale)
        if slope > 0:
            high = scale
        else:
            low = scale
        step = slope / curvature if curvature > 0 else np.inf
        following = scale - step
        if not low < following < high:
            following = (low + high) / 2 if high < np.inf else 2 * scale
        if abs(following - scale) <= PRECISION * scale:
            break
        scale = following
    return float(scale)


def nca(Z, y):
    """(4)"""
    total = 0.0
    for D, same, itself in soft_neighbors(Z, y):
        e, _, Z_i = weights(D, itself, 1.0)
        total += (np.where(same, e, 0).sum(1) / Z_i).sum()
    return float(total)


def pair_lengths(Z, rows):
    """D of the pairs (m, 2), from their differences."""
    parts = [rows[part] for part in blocks(0, len(rows), Z.shape[1])]
    return np.concatenate([((Z[a] - Z[b]) ** 2).sum(1) for a, b in (part.T for part in parts)])


def all_lengths(Z, y):
    """D of all near and of all far pairs by label, from their differences."""
    near, far = [], []
    for i in range(len(Z) - 1):
        D = ((Z[i + 1 :] - Z[i]) ** 2).sum(1)
        same = y[i + 1 :] == y[i]
        near.append(D[same])
        far.append(D[~same])
    return np.concatenate(near), np.concatenate(far)


def mmc(near, far):
    """(5) at the best scale, the sum over far pairs as given, and that over near ones."""
    total = near.sum()
    given = np.sqrt(far).sum()
    return given / np.sqrt(total), given, total


def dml_eig(near, far, d):
    """(6) at the best scale, the smallest far distance as given, and tr M / d."""
    trace = near.sum() / d
    return far.min() / trace, far.min(), trace


def rca(X, chunklets, L):
    """(7) at the best scale, and as given; infinite for an L without an inverse."""
    d = X.shape[1]
    if L.shape[0] < d:
        return np.inf, np.inf
    rows = np.flatnonzero(chunklets >= 0)
    _, codes, counts = np.unique(chunklets[rows], return_inverse=True, return_counts=True)
    points = X[rows]
    means = np.zeros((len(counts), d))
    np.add.at(means, codes, points)
    within = points - (means / counts[:, None])[codes]
    t = ((within @ L.T) ** 2).sum() / len(rows)
    log_det = 2 * np.log(np.abs(np.diag(np.linalg.qr(L, mode="r")))).sum()
    return len(rows) * (d + d * np.log(t / d) - log_det), len(rows) * (t - log_det)


def judged(task, folder, X, y, L):
    """The objective at the best scale, that of L as given, and how far L is from feasible."""
    Z = X @ L.T
    if task == "mcml":
        given = mcml(Z, y)[0]
        best = mcml(Z, y, best_scale(Z, y))[0] if len(X) <= MOST_ROWS else given
        return best, given, 0.0
    if task == "nca":
        value = nca(Z, y)
        return value, value, 0.0
    if task == "rca":
        return *rca(X, np.load(folder / "chunklets.npy"), L), 0.0
    if task == "dml-eig":
        near, far = all_lengths(Z, y)
    else:
        pairs = np.load(folder / "pairs.npz")
        far_rows = pairs["far"][:1] if task == "dml-eig-one" else pairs["far"]
        near, far = pair_lengths(Z, pairs["near"]), pair_lengths(Z, far_rows)
    if task == "mmc":
        value, given, total = mmc(near, far)
        return value, given, total - 1
    value, given, trace = dml_eig(near, far, X.shape[1])
    return value, given, trace - 1


def evaluate(task, folder, L, facts):
    """The judgement of L on the data in ``folder`` as a dict.

    ``facts`` are what a program tells of itself; only nearfar reports an objective, and
    ``objective_as_given`` is what it has to be.
    """
    train, test = np.load(folder / "train.npz"), np.load(folder / "test.npz")
    X, y = train["X"], train["y"]
    mean = X.mean(0)
    X = X - mean
    value, given, excess = judged(task, folder, X, y, L)
    result = {
        "objective": float(value),
        "test_error": knn_error(X @ L.T, y, (test["X"] - mean) @ L.T, test["y"]),
    }
    if "reported_objective" in facts:
        result |= {"objective_as_given": float(given), "excess": float(excess)}
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task")
    parser.add_argument("folder", type=Path, help="holds train.npz and test.npz")
    parser.add_argument("answer", type=Path, help="holds L.npy, r x d, and result.json")
    parser.add_argument("--output", type=Path, required=True, help="a JSON file")
    arguments = parser.parse_args()
    L = np.load(arguments.answer / "L.npy").astype(np.float64)
    facts = json.loads((arguments.answer / "result.json").read_text())
    judgement = evaluate(arguments.task, arguments.folder, L, facts)
    arguments.output.write_text(json.dumps(judgement))


if __name__ == "__main__":
    main()
