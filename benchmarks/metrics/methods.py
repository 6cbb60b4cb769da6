"""One program on one task: ``python -m benchmarks.metrics.methods PROGRAM FOLDER OUTPUT …``.

It is run by the interpreter of the program's own environment, so it imports only NumPy and that
program. FOLDER holds train.npz, pairs.npz and chunklets.npy. OUTPUT receives ``started`` when the
clock starts, L.npy and result.json at the end. Only fit is timed, by `worker.Job.timed`.
"""

from functools import cached_property

import numpy as np

from benchmarks import worker
from benchmarks.worker import SEED, as_numpy


class Task(worker.Job):
    """What a program gets: the task's name, its options, the data, and the clock."""

    def __init__(self, arguments):
        super().__init__(arguments)
        self.options = dict(arguments.options)
        self.name = self.options.pop("task")
        self.folder = arguments.folder
        with np.load(arguments.folder / "train.npz") as train:
            self.X, self.y = train["X"], train["y"]

    @cached_property
    def pairs(self):
        """Rows (m, 2) of the pairs, near ones first, and +1 or -1 for each."""
        with np.load(self.folder / "pairs.npz") as pairs:
            near, far = pairs["near"], pairs["far"]
        if self.name == "dml-eig-one":
            far = far[:1]
        return np.concatenate([near, far]), np.repeat([1, -1], [len(near), len(far)])

    @cached_property
    def chunklets(self):
        return np.load(self.folder / "chunklets.npy")


def few(y):
    """Numbers of up to ten rows each with the last two labels."""
    return np.concatenate([np.flatnonzero(y == label)[:10] for label in np.unique(y)[-2:]])


def fitted(task, make, X, y, synchronize=lambda: None):
    """A learner that ``make()`` gives after its fit, and the facts of that."""
    rows = few(y)
    return task.timed(lambda: make().fit(X, y), synchronize, lambda: make().fit(X[rows], y[rows]))


def factor(A):
    """L with A = L'L, of a matrix that is positive semidefinite up to rounding."""
    values, vectors = np.linalg.eigh((A + A.T) / 2)
    return np.sqrt(np.maximum(values, 0))[:, None] * vectors.T


def run_pydml(task):
    import dml

    if task.name == "mcml":
        model, facts = fitted(task, lambda: dml.MCML(**task.options), task.X, task.y)
        return factor(model.metric()), facts | {"n_iter": int(model.num_its_)}
    model, facts = fitted(task, lambda: dml.DML_eig(**task.options), task.X, task.y)
    return factor(model.metric()) @ pydml_whitening(task.X, task.y), facts


def pydml_whitening(X, y):
    """H^(-1/2) of pyDML, whose metric() is that of the whitened points.

    H sums over the ordered near pairs, but for those with the first point of each class.
    """
    H = np.zeros((X.shape[1], X.shape[1]))
    for label in np.unique(y):
        points = X[y == label]
        for other in points[1:]:
            H += (points - other).T @ (points - other)
    values, vectors = np.linalg.eigh(H)
    return (vectors / np.sqrt(np.maximum(values, 1e-10))) @ vectors.T


def run_metric_learn(task):
    import metric_learn

    options, X, y = task.options, task.X, task.y
    if task.name == "nca":
        learner, options = metric_learn.NCA, options | {"init": "identity", "random_state": SEED}
    elif task.name == "rca":
        learner, y = metric_learn.RCA, task.chunklets
    else:
        learner, options = metric_learn.MMC, options | {"random_state": SEED}
        rows, y = task.pairs
        X = X[rows]
    model, facts = fitted(task, lambda: learner(**options), X, y)
    n_iter = getattr(model, "n_iter_", None)
    return model.components_, facts | {"n_iter": None if n_iter is None else int(n_iter)}


def run_scikit_learn(task):
    from sklearn.neighbors import NeighborhoodComponentsAnalysis

    options = task.options | {"init": "identity", "random_state": SEED}
    model, facts = fitted(task, lambda: NeighborhoodComponentsAnalysis(**options), task.X, task.y)
    return model.components_, facts | {"n_iter": int(model.n_iter_)}


def run_eigh(task):
    """One eigendecomposition of the scatter, alone or with all that comes before it."""
    scatter_of = chunklet_covariance if task.name == "rca" else near_scatter
    scatter, whole = scatter_of(task), task.options["whole"]
    (values, vectors), facts = task.timed(
        lambda: np.linalg.eigh(scatter_of(task) if whole else scatter),
        small=lambda: np.linalg.eigh(np.eye(3)),
    )
    L = (vectors / np.sqrt(values)).T
    if task.name == "dml-eig-one":
        a, b = task.pairs[0][-1]
        L = (L @ (task.X[a] - task.X[b]))[None] @ L
    return L, facts


def chunklet_covariance(task):
    """C of RCA."""
    chunklets = task.chunklets
    rows = np.flatnonzero(chunklets >= 0)
    points, numbers = task.X[rows], chunklets[rows]
    order = np.argsort(numbers, kind="stable")
    points, starts = points[order], np.searchsorted(numbers[order], np.arange(numbers.max() + 1))
    counts = np.diff([*starts, len(points)])
    points -= np.repeat(np.add.reduceat(points, starts) / counts[:, None], counts, axis=0)
    return points.T @ points / len(points)


def near_scatter(task):
    """H of DML-eig."""
    rows, y = task.pairs
    a, b = rows[y > 0].T
    differences = task.X[a] - task.X[b]
    return differences.T @ differences


def run_nearfar(task):
    import nearfar
    from nearfar.registry import entries

    X, synchronize = task.on_device(task.X)
    options = task.options
    if options.pop("start", None) == "identity":
        options["init"] = np.eye(X.shape[1])
    if task.name in ("mmc", "dml-eig-one"):
        rows, y = task.pairs
        X = nearfar.Tuples(X, rows)
    else:
        y = task.chunklets if task.name == "rca" else task.y
    if task.name != "rca":
        options["max_seconds"] = task.limit
    # A task is named like a method, "-one" added where it is a special case.
    (learner,) = (
        getattr(nearfar, entry.name)
        for entry in entries(command=True)
        if entry.method == task.name.removesuffix("-one")
    )
    model, facts = fitted(task, lambda: learner(**options), X, y, synchronize)
    gap = model.duality_gap_
    facts |= {
        "status": str(model.status_),
        "n_iter": int(model.n_iter_),
        "dtype": str(X.dtype).removeprefix("torch."),
        "reported_objective": float(model.objective_),
        "duality_gap": None if gap is None else float(gap),
        "history": worker.columns(model.history_),
    }
    return as_numpy(model.components_), facts


PROGRAMS = {
    "pydml": run_pydml,
    "metric-learn": run_metric_learn,
    "scikit-learn": run_scikit_learn,
    "eigh": run_eigh,
    "nearfar": run_nearfar,
}
# what each program computes with
PACKAGES = {
    "pydml": ("pyDML", "scikit-learn", "scipy", "numpy", "Cython"),
    "metric-learn": ("metric-learn", "scikit-learn", "scipy", "numpy"),
    "scikit-learn": ("scikit-learn", "scipy", "numpy"),
    "eigh": ("numpy",),
    "nearfar": ("nearfar", "scikit-learn", "scipy", "numpy", "torch"),
}


def main():
    arguments = worker.parse(__doc__.splitlines()[0], PROGRAMS)
    task = Task(arguments)
    L, result = PROGRAMS[arguments.program](task)
    worker.write_answer(task, L, result, PACKAGES[arguments.program])


if __name__ == "__main__":
    main()
