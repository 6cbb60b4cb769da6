"""The rows of Table 2.1: leave-one-out, test and energy errors, and active constraints.

The number of neighbours k, of targets and of votes, and the number of passes are chosen once for a
data set, by the mean error on held-out rows over its splits. So a split is measured in turns: first
its held-out errors for each k, then for each number of passes, then the rows of the table.
"""

import time
import warnings

import numpy as np

from benchmarks.papers import table1_data
from benchmarks.papers.table1_methods import MOST_PASSES, VALIDATION, Learners, discriminants
from benchmarks.papers.table21_paper import VALIDATED
from nearfar import LMNN, EnergyClassifier, LinearMetric
from nearfar.evaluation import choose_targets
from nearfar.kernels import kernels_for, to_host
from nearfar.supervision import class_order, target_table, vote

GRID = {"iris": (1, 3, 5, 7, 9, 11, 15), "olivetti": (1, 2, 3, 4)}
GRID |= dict.fromkeys(("balance", "wine"), GRID["iris"])
USUAL_GRID = (1, 3, 5, 10)
ROUGH = 1e-2  # gap of the passes on whose held-out errors their number depends
BLOCK = 2000  # rows whose distances to all others are held


def split_learners(data, split, device, k):
    """The learners of a split with k target neighbours."""
    task = table1_data.load(data, split, thesis=True)
    return Learners(task, device, k, stops=data in VALIDATED)


def errors_by_k(data, split, device):
    """Held-out errors {k: error}, of metrics that are stopped early where the thesis did so."""
    learners = split_learners(data, split, device, 1)
    grid = GRID.get(data, USUAL_GRID)
    if data not in VALIDATED:
        choice = choose_targets(
            *(learners.train, learners.y_train, LMNN(**learners.options), grid),
            validation_fraction=VALIDATION,
            refit=False,
            random_state=split,
        )
        return {trial.n_neighbors: round(trial.error, 6) for trial in choice.trials}
    found = {}
    for k in grid:
        learner = learners.fitted(LMNN(**learners.single | {"n_neighbors": k}))[0]
        seen = [record.get("validation_error") for record in learner.history_]
        found[k] = round(min(error for error in seen if error is not None), 6)
    return found


def errors_by_passes(data, split, device, k):
    """Held-out errors after one pass, two passes and so on."""
    errors = split_learners(data, split, device, k).pass_errors(tol=ROUGH)
    return [round(error, 6) for error in errors]


def best(errors, most):
    """The key with the smallest mean error over splits, and of equal means the smallest.

    ``errors`` are dictionaries, one a split. Numbers that a split left out, since smaller ones
    were clearly better there, count with the largest error ``most`` of that split.
    """
    keys = sorted({key for split in errors for key in split})
    return min(keys, key=lambda key: np.mean([split.get(key, most(split)) for split in errors]))


def chosen_k(entries):
    """The best k from entries [split, {k: error}] of a record."""
    return int(best([{int(k): e for k, e in found.items()} for _, found in entries], _largest))


def chosen_passes(entries):
    """The best number of passes from entries [split, errors] of a record."""
    return int(best([dict(enumerate(errors, 1)) for _, errors in entries], _largest))


def _largest(split):
    return max(split.values())


def measure(data, split, methods, device, k, n_passes):
    """Yield (method, entry) for the rows of a split: its figures, or the text of an error.

    ``n_passes`` is None where passes are stopped by held-out rows, after at most MOST_PASSES.
    """
    warnings.simplefilter("ignore")  # what they say stands in the remarks
    learners = split_learners(data, split, device, k)
    for method in methods:
        try:
            yield method, _row(learners, method, n_passes)
        except Exception as error:
            yield method, f"{type(error).__name__}: {error}"


def _row(learners, method, n_passes):
    """[k, leave-one-out, test and energy error, active constraints, seconds, remark]."""
    points = learners.train, learners.test
    if method in ("lda", "lmnn_lda"):
        points = tuple(map(learners.placed, discriminants(learners)[0]))
    metric, seconds = _metric(learners, method, points[0], n_passes)
    rule = learners.vote(metric).fit(points[0], learners.y_train)
    k, (y_train, y_test) = learners.n_neighbors, learners.task.labels
    codes = np.searchsorted(rule.classes_, y_train)
    near = to_host(rule.kneighbors(return_distance=False))
    train = np.mean(vote(codes[near], len(rule.classes_)) != codes)
    test = np.mean(rule.predict(points[1]) != y_test)
    energy = EnergyClassifier(metric, n_neighbors=k).fit(points[0], y_train)
    by_energy = np.mean(energy.predict(points[1]) != y_test)
    active = None
    if method in ("lmnn", "metrics"):
        active = active_constraints(metric, points[0], y_train, k)
    errors = [round(float(error), 6) for error in (train, test, by_energy)]
    return [k, *errors, active, round(seconds, 3), _remark(metric, method)]


def _metric(learners, method, points, n_passes):
    if method == "lmnn":
        return learners.lmnn
    if method == "metrics":
        return learners.multi_metric
    if method == "lmnn_lda":
        return learners.fitted(LMNN(**learners.single), points)
    if method == "passes":
        return learners.fitted(LMNN(n_passes=n_passes or MOST_PASSES, **learners.single))
    begin = time.perf_counter()
    identity = LinearMetric(np.eye(points.shape[1])).fit(points, learners.y_train)
    return identity, time.perf_counter() - begin


def _remark(metric, method):
    if method == "passes":
        return f"{metric.n_passes_} pass" + ("es" if metric.n_passes_ > 1 else "")
    status = getattr(metric, "status_", "converged")
    return "" if status in ("converged", "early_stopped") else status


def active_constraints(metric, X, y, k):
    """Triplets (i, j, l) with D(i, l) < 1 + D(i, j), j the k nearest of the class among the inputs.

    With several metrics that of the second point measures, as in section 5.2 of the paper.
    """
    kernels, codes = kernels_for(X), np.unique(y, return_inverse=True)[1]
    maps = np.asarray(to_host(metric.components_), dtype=np.float64)
    several = maps.ndim == 3
    targets = target_table(X, class_order(y, "LMNN"), k)
    X = kernels.double(X) - kernels.double(X[:1])
    reach = np.full(targets.shape, -np.inf)  # 1 + D(i, j), and nothing where there is no j
    for c in range(codes.max() + 1):
        own = np.flatnonzero(codes == c)
        Z = kernels.apply(X, maps[c] if several else maps)
        for j in range(k):
            known = own[targets[own, j] >= 0]
            ends = [kernels.index(rows, X) for rows in (known, targets[known, j])]
            reach[known, j] = 1 + to_host(kernels.sq_lengths(Z, *ends))
    count = 0
    for c in range(codes.max() + 1):
        Z = kernels.apply(X, maps[c] if several else maps)
        impostors = Z[kernels.index(np.flatnonzero(codes == c), X)]
        others = np.flatnonzero(codes != c)
        for first in range(0, len(others), BLOCK):
            rows = others[first : first + BLOCK]
            A = Z[kernels.index(rows, X)]
            squares = (A**2).sum(1)[:, None] + (impostors**2).sum(1) - 2 * A @ impostors.T
            limits = kernels.like(reach[rows], X)
            count += sum(int((squares < limits[:, [j]]).sum()) for j in range(k))
    return count
