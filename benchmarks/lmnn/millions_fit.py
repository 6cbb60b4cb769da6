"""Fits of `benchmarks.lmnn.millions`, and their judge: ``... millions_fit TASKS.json RECORD.json``.

The judge works with torch in float64 and shares no code with nearfar. All pairs are too many for
it, so it draws rows i and compares each with all points: the mean over the rows, times n, is an
unbiased estimate of the objective

    f = (1-mu) sum_ij D_ij + mu sum_ijl [1 + D_ij - D_il]_+,    D_ij = |L x_i - L x_j|^2     (1)

with its standard error. The bound is checked without a sample: the dual point a of ``proof_`` has
to be feasible, 0 <= a <= 1, and

    P - S,  P = (1-mu) sum_ij C_ij,  S = mu sum_ijl a_ijl (C_il - C_ij)                      (2)

positive semidefinite, C_ij = (x_i - x_j)(x_i - x_j)^T; then mu sum a is the bound. Whether targets
are the nearest of their class is checked for some of the drawn rows.
"""

import json
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import torch

from benchmarks import common
from benchmarks.lmnn import millions_data
from benchmarks.worker import Memory

MU, K = 0.5, 3
DRAWN, JUDGED = 4000, 200  # rows that the judge draws for (1), and for their targets
SAMPLE = 60_000  # rows of the fit that a user could have made instead
TABLE = 1 << 27  # distances at a time
EDGES = 1 << 20  # differences at a time


def cuda(device):
    return device.startswith("cuda")


def fit(X, y, options, device):
    """A fitted LMNN, with its seconds and the peak of its memory, in bytes.

    On a device that is the peak of all tensors; without one, what the process had more than before.

    Rows in host memory stream through the device if their memory there is limited; without a device
    they are arrays.
    """
    from nearfar import LMNN, Streamed

    memory = Memory()
    if cuda(device):
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the status is recorded
        if not cuda(device):
            rows = X.numpy()
        else:
            rows = X if options.get("memory_limit") is None else Streamed(X, device)
        model = LMNN(n_neighbors=K, push_weight=MU, shrinkage=0, **options).fit(rows, y)
    if cuda(device):
        torch.cuda.synchronize()
    seconds = time.perf_counter() - began
    if cuda(device):
        return model, seconds, torch.cuda.max_memory_allocated()
    return model, seconds, 1e6 * memory.facts()["fit_mb"]


def tables(Q, Z):
    """Squared distances (m, n) of some queries to all points at a time, and which queries."""
    squares, step = (Z * Z).sum(1), max(1, TABLE // len(Z))
    for first in range(0, len(Q), step):
        rows = slice(first, min(first + step, len(Q)))
        D = torch.addmm(squares, Q[rows], Z.T, alpha=-2) + (Q[rows] ** 2).sum(1)[:, None]
        yield rows, D


def error(Z, y, Q, truth):
    """Per cent of the queries that a vote of their three nearest points gets wrong, as in float32.

    Where classes have equally many votes, that of the nearest point wins.
    """
    labels, wrong = torch.as_tensor(y, device=Z.device), 0
    for rows, D in tables(Q, Z):
        near = labels[D.topk(K, largest=False).indices]
        votes = (near[:, :, None] == near[:, None, :]).sum(2)
        given = near.gather(1, votes.argmax(1, keepdim=True)).ravel().cpu().numpy()
        wrong += int((given != truth[rows]).sum())
    return 100 * wrong / len(Q)


def scatter(X, heads, tails, weights):
    """sum w C over pairs of rows, in float64."""
    total = torch.zeros((X.shape[1],) * 2, dtype=torch.float64, device=X.device)
    for first in range(0, len(heads), EDGES):
        part = slice(first, first + EDGES)
        ends = [torch.as_tensor(end[part], device=X.device).long() for end in (heads, tails)]
        difference = X[ends[0]].double() - X[ends[1]].double()
        w = torch.as_tensor(weights[part], device=X.device).double()[:, None]
        total += difference.T @ (w * difference)
    return total.cpu().numpy()


def bound(X, proof):
    """mu sum a scaled down until (2) holds, and the largest ratio of S to P before that."""
    targets, triplets, a = proof["targets"], proof["triplets"], proof["weights"]
    if a.min(initial=0) < 0 or a.max(initial=0) > 1 + 1e-9:
        return -np.inf, np.inf
    n = len(targets)
    P = (1 - MU) * scatter(X, np.repeat(np.arange(n), K), targets.ravel(), np.ones(n * K))
    S = MU * (
        scatter(X, triplets[:, 0], triplets[:, 2], a)
        - scatter(X, triplets[:, 0], triplets[:, 1], a)
    )
    values, vectors = np.linalg.eigh(P)
    kept = values > 1e-12 * values.max()
    root = vectors[:, kept] / np.sqrt(values[kept])
    top = float(np.linalg.eigvalsh(root.T @ S @ root)[-1])
    return MU * float(a.sum()) / max(1.0, top), top


def judge(X, y, model, seed=0):
    """What is said of a model, recomputed: see the top of this file."""
    L = torch.as_tensor(model.components_, device=X.device).double()
    centre = X[:1].double()
    n, labels = len(X), torch.as_tensor(y, device=X.device)
    drawn = np.sort(np.random.default_rng(seed).choice(n, min(DRAWN, n), replace=False))
    rows = torch.as_tensor(drawn, device=X.device)
    targets = torch.as_tensor(model.proof_["targets"][drawn], device=X.device).long()
    Z = torch.cat([(part.double() - centre) @ L.T for part in X.split(1 << 16)])
    pull = ((Z[rows][:, None] - Z[targets]) ** 2).sum(2)
    losses = (1 - MU) * pull.sum(1)
    for part, D in tables(Z[rows], Z):
        D[labels[rows[part], None] == labels] = torch.inf
        losses[part] += MU * sum(
            (1 + near[:, None] - D).clamp(min=0).sum(1) for near in pull[part].T
        )
    proved, top = bound(X, model.proof_)
    return {
        "judged_objective": float(losses.mean()) * n,
        "judged_error": float(losses.std()) / len(drawn) ** 0.5 * n,
        "judged_bound": proved,
        "judged_ratio": top,
        "judged_targets": right_targets(X, labels, rows[:: max(1, len(rows) // JUDGED)], model),
    }


def right_targets(X, labels, rows, model):
    """The share of drawn rows whose targets are as near as the nearest of the class."""
    targets = torch.as_tensor(model.proof_["targets"][rows.cpu().numpy()], device=X.device).long()
    right = 0
    for row, own in zip(rows, targets, strict=True):
        members = X[labels == labels[row]].double()
        D = ((members - X[row].double()) ** 2).sum(1).sort().values[1 : K + 1]
        got = ((X[own].double() - X[row].double()) ** 2).sum(1).sort().values
        right += bool(torch.allclose(got, D, rtol=1e-6, atol=1e-9))
    return right / len(rows)


def measured(task, device, limit):
    """A row of the record."""
    memory = task.get("memory_limit")
    place = device if memory is None else "cpu"
    X, y, X_test, y_test = millions_data.load(
        task["data"], task["rows"], task["columns"], device, place
    )
    options = {"tol": task["tol"], "max_seconds": limit, "memory_limit": memory}
    model, seconds, peak = fit(X, y, options, device)
    X = X.to(device)  # for the judge
    L = torch.as_tensor(model.components_, device=device)
    row = task | {
        "rows": len(X),
        "columns": X.shape[1],
        "seconds": seconds,
        "peak_gb": None if peak is None else peak / 1e9,
        "data_gb": X.nbytes / 1e9,
        "n_iter": model.n_iter_,
        "status": model.status_,
        "objective": model.objective_,
        "gap": model.duality_gap_,
        "rank": len(L),
        "triplets": model.history_[-1]["active_triplets"],
        "searches": sum(record["searched"] for record in model.history_),
        "input_error": error(X, y, X_test, y_test),
        "error": error(X @ L.T, y, X_test @ L.T, y_test),
    }
    if row["gap"] is not None:
        row |= judge(X, y, model)
    del model
    if len(X) > SAMPLE and memory is None:
        order = np.sort(np.random.default_rng(1).permutation(len(X))[:SAMPLE])
        part = X[torch.as_tensor(order, device=X.device)]
        other, sample_seconds, _ = fit(part, y[order], options, device)
        L = torch.as_tensor(other.components_, device=device)
        row |= {
            "sample_seconds": sample_seconds,
            "sample_gap": other.duality_gap_,
            "sample_error": error(X @ L.T, y, X_test @ L.T, y_test),
            "sample_alone_error": error(part @ L.T, y[order], X_test @ L.T, y_test),
        }
    return row


def main(tasks, path):
    given = json.loads(Path(tasks).read_text())
    device, began, rows = given["device"], time.monotonic(), []
    for data in given["warm_up"] if cuda(device) else ():  # starts the device, compiles kernels
        X, y, *_ = millions_data.load(*data, device)
        fit(X, y, {"tol": 1e-2}, device)
        if given["memory"]:
            fit(X.cpu(), y, {"tol": 1e-2, "memory_limit": given["memory"]}, device)
    for task in given["tasks"]:
        passed = time.monotonic() - began
        if passed > given["seconds"]:
            break
        try:
            row = measured(task, device, given["limit"])
        except Exception as fault:  # the next ones are still to be measured
            row = task | {"reason": f"{type(fault).__name__}: {str(fault)[:300]}"}
        rows.append(row | {"commit": common.commit(), "date": common.now()})
        common.write_text(Path(path), json.dumps(rows))
        print(json.dumps(rows[-1]), flush=True)
        if cuda(device):
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main(*sys.argv[1:])
