"""
Many rows, on a CPU or a GPU
============================

LMNN asks of every point that points of other classes keep away, which is a statement about all
triplets of points: a million million of them for ten thousand points. This example shows what that
costs as the rows grow, in time and in memory, what more rows are good for, and how the same program
runs on a GPU.

Where the environment variable ``NEARFAR_DATA`` names a folder with letter.npz, the rows are 20000
printed letters, described by 16 numbers each. Elsewhere twenty clouds of points stand in, told
apart by 8 of 16 directions.
"""

# %%
# The rows
# --------

import importlib.util
import os
import time
import tracemalloc
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from nearfar import LMNN
from nearfar.evaluation import knn_error


def clouds(n=12000, classes=20, told_by=8, blurred=8):
    """Points around a centre for each class, with as many directions that say nothing of it."""
    random = np.random.default_rng(0)
    y = random.integers(classes, size=n)
    centres = random.normal(0, 1.6, (classes, told_by))
    telling = centres[y] + random.normal(size=(n, told_by))
    X = np.hstack([telling, random.normal(0, 2, (n, blurred))])
    turned, _ = np.linalg.qr(random.normal(size=(told_by + blurred, told_by + blurred)))
    return X @ turned, y


path = Path(os.environ.get("NEARFAR_DATA", "")) / "letter.npz"
if path.is_file():
    with np.load(path, allow_pickle=False) as data:
        X, y = data["X"], data["y"]
else:
    X, y = clouds()
order = np.random.default_rng(0).permutation(len(X))
X, y = X[order].astype(np.float32), y[order]  # single precision halves time and memory
X_test, y_test = X[:2000], y[:2000]
X_known, y_known = X[2000:], y[2000:]
print(f"{len(X)} rows of {X.shape[1]} numbers, {len(X_test)} of them to try the metric on")

# %%
# What they cost
# --------------
#
# A tolerance of 1e-2 means that the objective is proved to be within 1 % of its optimum, whatever
# the number of rows. Memory is the most that a fit has taken beside the data.

sizes = [1000, 2000, 4000, 8000]
seconds, megabytes, errors, models = [], [], [], {}
print(f"{'rows':>6}{'seconds':>9}{'MB':>6}{'gap':>9}{'3-NN error':>12}{'as given':>10}")
for n in sizes:
    rows, labels = X_known[:n], y_known[:n]
    tracemalloc.start()
    began = time.perf_counter()
    model = models[n] = LMNN(tol=1e-2).fit(rows, labels)
    seconds.append(time.perf_counter() - began)
    megabytes.append(tracemalloc.get_traced_memory()[1] / 1e6)
    tracemalloc.stop()
    errors.append(
        [100 * knn_error(metric, rows, labels, X_test, y_test) for metric in (model, None)]
    )
    print(
        f"{n:>6}{seconds[-1]:>9.2f}{megabytes[-1]:>6.0f}{model.duality_gap_:>9.1e}"
        f"{errors[-1][0]:>10.1f} %{errors[-1][1]:>8.1f} %"
    )

# %%
# No array of all pairs is made: for comparison, the dashed line is what one such array of single
# precision would take. The error on new rows falls with the number of known ones, and with any
# number of them it is lower after learning.

figure, axes = plt.subplots(1, 3, figsize=(10.5, 3.4), layout="constrained")
axes[0].plot(sizes, seconds, "o-", color="#0072B2")
axes[0].set(title="time", ylabel="seconds", ylim=(0, None))
axes[1].plot(sizes, megabytes, "o-", color="#0072B2", label="LMNN")
axes[1].plot(sizes, [4 * n**2 / 1e6 for n in sizes], "--", color="#8a8a8a", label="all pairs")
axes[1].set(title="memory beside the data", ylabel="MB", yscale="log")
learned, given = np.transpose(errors)
axes[2].plot(sizes, learned, "o-", color="#0072B2", label="LMNN")
axes[2].plot(sizes, given, "s--", color="#8a8a8a", label="as given")
axes[2].set(title="3-NN error on new rows", ylabel="%", ylim=(0, None))
for ax in axes:
    ax.set(xlabel="rows", xscale="log")
    ax.set_xticks(sizes, sizes)
    ax.minorticks_off()
    ax.spines[["top", "right"]].set_visible(False)
for ax in axes[1:]:
    ax.legend(frameon=False)

# %%
# On a GPU
# --------
#
# Give the rows as a torch tensor, and everything is computed where they are. What comes back is a
# tensor on the same device. The metric is the same up to rounding, on every device.

if importlib.util.find_spec("torch"):
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    tensor = torch.as_tensor(X_known[:1000], device=device)
    there = LMNN(tol=1e-2).fit(tensor, y_known[:1000])
    mapped = there.transform(tensor)
    print(f"a {type(mapped).__name__} on {mapped.device}, certified to {there.duality_gap_:.1e}")
    print(f"objective {there.objective_:.1f} there, {models[1000].objective_:.1f} by NumPy")
else:
    print("left out: torch is not installed")

# %%
# Tolerances, time limits and checkpoints for longer runs are described in the guide to large data.

plt.show()
