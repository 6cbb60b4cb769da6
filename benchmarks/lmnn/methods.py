"""One method on one data set in this process: ``python methods.py METHOD FOLDER OUTPUT …``.

The file is run by the interpreter of the method's own environment, so it imports only NumPy and
that method. FOLDER holds train.npz. OUTPUT receives ``started`` when the clock starts, L.npy and
result.json at the end, and targets.npy if the method tells its targets.
Only fit is timed, and the clock stops during callbacks.
"""

import argparse
import importlib.metadata
import json
import platform
import resource
import signal
import sys
import time
import warnings
from pathlib import Path

import numpy as np

N_NEIGHBORS = 3
PUSH_WEIGHT = 0.5
SEED = 0


class OverLimit(BaseException):
    """The time limit has come; not an Exception, so that no method catches it."""


class Clock:
    """Seconds since start, without the time spent in ``paused``."""

    def __init__(self, started):
        started.touch()
        self._pause = 0.0
        self._start = time.perf_counter()

    def seconds(self):
        return time.perf_counter() - self._start - self._pause

    def paused(self, function):
        def call(*arguments):
            begin = time.perf_counter()
            try:
                return function(*arguments)
            finally:
                self._pause += time.perf_counter() - begin

        return call


def stopped_after(limit, fit):
    """Call ``fit`` for at most ``limit`` seconds; whether it ended by itself."""

    def raise_over_limit(*_):
        raise OverLimit

    signal.signal(signal.SIGALRM, raise_over_limit)
    signal.setitimer(signal.ITIMER_REAL, limit)
    try:
        fit()
        return True
    except OverLimit:
        return False
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def run_pylmnn(X, y, options, job):
    from pylmnn import LargeMarginNearestNeighbor

    best = {}
    clock = job.clock()

    @clock.paused
    def keep(L, _):  # L-BFGS only ever improves its objective
        best["L"] = L.reshape(-1, X.shape[1]).copy()

    model = LargeMarginNearestNeighbor(
        n_neighbors=N_NEIGHBORS,
        weight_push_loss=PUSH_WEIGHT,
        callback=keep,
        random_state=SEED,
        n_jobs=job.threads,
        **options,
    )
    finished = stopped_after(job.limit, lambda: model.fit(X, y))
    seconds = clock.seconds()
    status = "finished" if finished else "stopped"
    n_iter = getattr(model, "n_iter_", None)
    L = model.components_ if finished else best.get("L")
    return L, {"seconds": seconds, "status": status, "n_iter": n_iter}


def run_metric_learn(X, y, options, job):
    from metric_learn import LMNN

    best = {"objective": np.inf}
    clock = job.clock()

    @clock.paused
    def keep(L, objective):
        if objective < best["objective"]:
            best.update(L=L.copy(), objective=objective)

    class Recorded(LMNN):
        def _loss_grad(self, X, L, *rest):
            answer = super()._loss_grad(X, L, *rest)
            keep(L, answer[1])
            return answer

    model = Recorded(
        n_neighbors=N_NEIGHBORS, regularization=PUSH_WEIGHT, random_state=SEED, **options
    )
    finished = stopped_after(job.limit, lambda: model.fit(X, y))
    seconds = clock.seconds()
    status = "finished" if finished else "stopped"
    n_iter = getattr(model, "n_iter_", None)
    L = model.components_ if finished else best.get("L")
    return L, {"seconds": seconds, "status": status, "n_iter": n_iter}


def run_mlpack(X, y, options, job):
    import mlpack

    clock = job.clock()
    answer = mlpack.lmnn(
        input_=X, labels=y, k=N_NEIGHBORS, regularization=PUSH_WEIGHT, seed=SEED + 1, **options
    )
    seconds = clock.seconds()
    # mlpack stores points in columns: what it returns is the transpose of L
    return answer["output"].T, {"seconds": seconds, "status": "finished"}


def run_nearfar(X, y, options, job):
    from nearfar import LMNN

    X, synchronize = job.on_device(X)
    model = LMNN(
        n_neighbors=N_NEIGHBORS,
        push_weight=PUSH_WEIGHT,
        max_seconds=job.limit,
        random_state=SEED,
        **options,
    )
    clock = job.clock()
    model.fit(X, y)
    synchronize()
    seconds = clock.seconds()
    columns = dict.fromkeys(key for entry in model.history_ for key in entry)
    return as_numpy(model.components_), {
        "seconds": seconds,
        "status": str(model.status_),
        "n_iter": int(model.n_iter_),
        "dtype": str(X.dtype).removeprefix("torch."),
        "reported_objective": float(model.objective_),
        "duality_gap": float(model.duality_gap_),
        "history": {key: [number(e.get(key)) for e in model.history_] for key in columns},
    }


def targets_of_nearfar(X, y, job):
    """The targets that fit has used: where points are equally near, others would do as well."""
    from nearfar.supervision import class_order, nearest_targets

    X, _ = job.on_device(X)
    labels = class_order(y, "LMNN")
    _, tails = nearest_targets(X[labels.order], labels, N_NEIGHBORS)
    targets = np.empty((len(y), N_NEIGHBORS), dtype=np.int64)
    targets[labels.order] = labels.order[as_numpy(tails).reshape(len(y), N_NEIGHBORS)]
    return targets


def as_numpy(array):
    return array if isinstance(array, np.ndarray) else array.detach().cpu().numpy()


def number(value):
    """A JSON value with 8 digits."""
    if value is None or isinstance(value, bool | str):
        return value
    return float(f"{float(value):.8g}")


METHODS = {
    "pylmnn": run_pylmnn,
    "metric-learn": run_metric_learn,
    "mlpack": run_mlpack,
    "nearfar": run_nearfar,
}
# what each method computes with
PACKAGES = {
    "pylmnn": ("pylmnn", "scikit-learn", "scipy", "numpy"),
    "metric-learn": ("metric-learn", "scikit-learn", "scipy", "numpy"),
    "mlpack": ("mlpack", "numpy"),
    "nearfar": ("nearfar", "scikit-learn", "scipy", "numpy", "torch"),
}


class Job:
    """The command line, and what it means for data and clock."""

    def __init__(self, arguments):
        self.limit = arguments.limit
        self.threads = arguments.threads
        self.device = arguments.device
        self.dtype = arguments.dtype
        self.output = arguments.output

    def clock(self):
        return Clock(self.output / "started")

    def on_device(self, X):
        """X in the asked precision on the asked device, and a function that waits for it."""
        X = X.astype(self.dtype)
        if self.device == "cpu":
            return X, lambda: None
        import torch

        tensor = torch.from_numpy(X).to(self.device)
        tensor[:2] @ tensor[:2].T  # starts the device's BLAS, which is part of importing torch
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        return tensor, torch.cuda.synchronize

    def device_facts(self):
        if self.device == "cpu":
            return {}
        import torch

        return {
            "device": torch.cuda.get_device_name(self.device),
            "peak_device_mb": torch.cuda.max_memory_allocated(self.device) / 1e6,
        }


def versions(method):
    found = {"python": platform.python_version()}
    for name in PACKAGES[method]:
        if name == "torch" and "torch" not in sys.modules:
            continue
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"  # nearfar may run from its source tree
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("method", choices=METHODS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--options", type=json.loads, default={}, help="of the method, as JSON")
    parser.add_argument("--limit", type=float, default=240)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float64")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # what they say stands in the status
    with np.load(arguments.folder / "train.npz") as train:
        X, y = train["X"], train["y"]
    job = Job(arguments)
    L, result = METHODS[arguments.method](X, y, arguments.options, job)
    maxrss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = {"dtype": "float64", **result, **job.device_facts()}
    result["peak_mb"] = maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6
    result["versions"] = versions(arguments.method)
    if L is not None:
        np.save(arguments.output / "L.npy", np.asarray(L, dtype=np.float64))
    if arguments.method == "nearfar":
        np.save(arguments.output / "targets.npy", targets_of_nearfar(X, y, job))
    (arguments.output / "result.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
