"""One program on one data set: ``python -m benchmarks.lmnn.methods PROGRAM FOLDER OUTPUT …``.

It is run by the interpreter of the method's own environment, so it imports only NumPy and
that method. FOLDER holds train.npz. OUTPUT receives ``started`` when the clock starts, L.npy and
result.json at the end, and targets.npy if the method tells its targets.
Only fit is timed, and the clock stops during callbacks. Where it takes less than a second, the
shortest of five counts, for every program.
"""

import numpy as np

from benchmarks import worker
from benchmarks.worker import SEED, as_numpy, stopped_after

N_NEIGHBORS = 3
PUSH_WEIGHT = 0.5


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
        shrinkage=0,  # the program of the peers
        max_seconds=job.limit,
        random_state=SEED,
        **options,
    )
    clock = job.clock()
    model.fit(X, y)
    synchronize()
    seconds = clock.seconds()
    return as_numpy(model.components_), {
        "seconds": seconds,
        "status": str(model.status_),
        "n_iter": int(model.n_iter_),
        "dtype": str(X.dtype).removeprefix("torch."),
        "reported_objective": float(model.objective_),
        "duality_gap": float(model.duality_gap_),
        "history": worker.columns(model.history_),
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


def main():
    arguments = worker.parse(__doc__.splitlines()[0], METHODS)
    job = worker.Job(arguments)
    with np.load(arguments.folder / "train.npz") as train:
        X, y = train["X"], train["y"]

    def once():
        return METHODS[arguments.program](X, y, arguments.options, job)

    answers = [once()]
    if answers[0][1]["seconds"] < worker.SHORT:
        answers += [once() for _ in range(worker.REPEATS - 1)]
    L, result = min(answers, key=lambda answer: answer[1]["seconds"])
    worker.write_answer(job, L, result, PACKAGES[arguments.program])
    if arguments.program == "nearfar":
        np.save(arguments.output / "targets.npy", targets_of_nearfar(X, y, job))


if __name__ == "__main__":
    main()
