"""What is measured: for each task its data sets, its programs and their options.

Only the standard library is imported here, for the reason that `benchmarks.common` gives.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Task:
    """One problem that several programs solve.

    ``sense`` is -1 where the objective is maximised. ``methods`` are (method, program, options).
    ``slack`` is the relative difference of objectives that counts as none in a comparison.
    On the data sets ``large`` nearfar runs alone, and so it does with ``device_options`` on
    ``device``, which are those for a GPU.
    """

    title: str
    objective: str
    sense: int
    data: tuple[str, ...]
    methods: tuple[tuple[str, str, dict], ...]
    dtype: str = "float64"
    slack: float = 0.0
    large: tuple[str, ...] = ()
    device: tuple[str, ...] = ()
    device_options: tuple[tuple[str, object], ...] = ()


TASKS = {
    "mcml": Task(
        title="MCML",
        objective="""sum over points of KL[p0 | p] with p0(j|i) = 1 / (n - 1) for the n points of a
        class, at the best scalar scale of the metric; lower is better. pyDML minimises the same sum
        with each point weighted by the size of its class less one, which is the same problem for
        classes of one size; its step has to be chosen by hand. nearfar's shrinkage is 0""",
        sense=1,
        data=("iris", "wine", "digits300"),
        methods=(
            ("pyDML, defaults", "pydml", {}),
            ("pyDML, step 1e-3", "pydml", {"eta0": 1e-3}),
            ("pyDML, step 1e-4", "pydml", {"eta0": 1e-4}),
            ("nearfar, tol 1e-2", "nearfar", {"tol": 1e-2, "shrinkage": 0}),
            ("nearfar, tol 1e-3", "nearfar", {"tol": 1e-3, "shrinkage": 0}),
        ),
        dtype="float32",
        large=("digits", "mnist5000", "mnist10000"),
        device=("mnist60000",),
        device_options=(("max_iter", 50),),
    ),
    "nca": Task(
        title="NCA",
        objective="""expected number of training points that a soft nearest neighbour, not the point
        itself, gets right; higher is better. The problem is not convex: all start from the
        identity, and nearfar also from where it does by default. Where all points can be right, the
        objective comes nearer to their number the longer the map grows, so that a difference of
        1e-5 counts as none. nearfar's shrinkage is 0""",
        sense=-1,
        data=("iris", "wine", "digits", "mnist5000"),
        methods=(
            ("scikit-learn", "scikit-learn", {}),
            ("metric-learn", "metric-learn", {}),
            ("nearfar, defaults", "nearfar", {"shrinkage": 0}),
            ("nearfar, from the identity", "nearfar", {"start": "identity", "shrinkage": 0}),
        ),
        dtype="float32",
        slack=1e-5,
        large=("mnist10000",),
        device=("mnist60000",),
        device_options=(("max_iter", 50),),
    ),
    "mmc": Task(
        title="MMC",
        objective="""sum of the distances of the far pairs, at the scale at which the squared
        distances of the near pairs sum to 1; higher is better. All get the same pairs""",
        sense=-1,
        data=("iris", "wine", "digits40"),
        methods=(
            ("metric-learn, 100 iterations", "metric-learn", {}),
            ("metric-learn, 1000 iterations", "metric-learn", {"max_iter": 1000, "tol": 1e-6}),
            ("nearfar, tol 1e-2", "nearfar", {"tol": 1e-2, "shrinkage": 0}),
            ("nearfar, tol 1e-3", "nearfar", {"tol": 1e-3, "shrinkage": 0}),
        ),
        large=("isolet", "mnist5000"),
    ),
    "dml-eig": Task(
        title="DML-eig",
        objective="""smallest squared distance of a far pair among the metrics that have trace d
        where the near pairs are whitened; higher is better. Near and far are all pairs by label""",
        sense=-1,
        data=("iris", "wine", "digits300"),
        methods=(
            ("pyDML, 25 iterations", "pydml", {}),
            ("pyDML, 100 iterations", "pydml", {"max_it": 100}),
            ("nearfar, tol 1e-2", "nearfar", {"tol": 1e-2, "shrinkage": 0}),
            ("nearfar, tol 1e-3", "nearfar", {"tol": 1e-3, "shrinkage": 0}),
        ),
    ),
    "dml-eig-one": Task(
        title="DML-eig with one far pair",
        objective="""as before; with one far pair the optimum has a closed form, and all that is
        needed is to whiten the near pairs""",
        sense=-1,
        data=("isolet", "isolet617"),
        methods=(
            ("one eigendecomposition", "eigh", {"whole": False}),
            ("the same with its scatter", "eigh", {"whole": True}),
            ("nearfar, tol 1e-3", "nearfar", {"tol": 1e-3, "shrinkage": 0}),
        ),
    ),
    "rca": Task(
        title="RCA",
        objective="""sum over the N points in chunklets of the squared distance to the chunklet's
        mean, less N log det of the metric, at its best scalar scale; lower is better, and RCA is
        the minimum in closed form""",
        sense=1,
        data=("wine", "mnist5000", "isolet617"),
        methods=(
            ("one eigendecomposition", "eigh", {"whole": False}),
            ("the same with its scatter", "eigh", {"whole": True}),
            ("metric-learn", "metric-learn", {}),
            ("nearfar", "nearfar", {"shrinkage": 0}),
        ),
        slack=1e-9,
    ),
}
SMOKE = ("iris", "wine")
PEERS = ("metric-learn", "pydml", "scikit-learn")


def data_of(task, device):
    """The data sets of a task in the order in which they are measured."""
    return task.device if device != "cpu" else task.data + task.large


def methods_of(task, data, device):
    """The methods that are measured on a data set: nearfar alone on a large one."""
    alone = data in task.large or device != "cpu"
    for method, program, options in task.methods:
        if not alone or program == "nearfar":
            more = dict(task.device_options) if device != "cpu" else {}
            yield method, program, options | more
