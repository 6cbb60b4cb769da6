"""Is a learned distance ever worse than the inputs? ``python -m benchmarks.never_worse``.

Every learner of labelled points at its default, beside the same inputs without learning, on many
real sets and few labels; 3-NN test errors. A split of a case is saved when all its learners are
measured, and left out of the next run, so that an interrupted run continues where it was.
"""

import json
import sys
import time
import warnings
from dataclasses import dataclass

import joblib
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.preprocessing import StandardScaler

import nearfar
from benchmarks import common, never_worse_data, never_worse_page
from benchmarks.never_worse_data import INPUTS, NAMES, SIZES
from benchmarks.papers.records import available, chosen, facts, record_path, run_script
from nearfar.evaluation import knn_error
from nearfar.registry import ENTRIES

SPLITS = 10
MAX_ROWS = 500  # to learn from
SMOKE = {"sets": ["iris", "wine"], "splits": 2, "sizes": ["5"]}

BASELINES = {
    "inputs": lambda: None,
    "standardised": StandardScaler,
    "LDA": LinearDiscriminantAnalysis,
    "shrunk LDA": lambda: LinearDiscriminantAnalysis(solver="eigen", shrinkage="auto"),
}
LABELLED = {
    entry.name: entry
    for entry in ENTRIES
    if entry.learns_from in ("labels", "pairs", "triplets", "quadruplets", "chunklets")
}
LEARNERS = (*BASELINES, *LABELLED)
LINEAR = (*BASELINES, *(n for n, e in LABELLED.items() if e.kind == "metric" and not e.kernel))

# The most rows for a learner whose time grows faster than that of the others.
KERNEL_ROWS = 100
ROW_LIMITS = {"MultiMetricLMNN": 300, "MMC": 200, "ITML": 200, "POLA": 100, "KernelPOLA": 50}


def most_rows(learner):
    kernel = learner in LABELLED and LABELLED[learner].kernel
    return ROW_LIMITS.get(learner, KERNEL_ROWS if kernel else sys.maxsize)


@dataclass(frozen=True, order=True)
class Case:
    """A set with so many labels, raw or standardised."""

    data: str
    size: str
    inputs: str

    def __str__(self):
        return f"{self.data}, {self.size}, {self.inputs}"


def measure(case, number, learners, max_rows):
    """What each learner does on a split: {learner: [error, processor seconds] or a failure}."""
    split = never_worse_data.split(case.data, case.size, case.inputs, number, max_rows)
    assert split is not None
    found = {}
    for name in learners:
        if len(split.X_train) > most_rows(name):
            continue
        begin = time.process_time()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # few points, and fits that are not worth it
                error = _error(name, split)
        except Exception as failure:  # saved and shown by name
            found[name] = f"{type(failure).__name__}: {failure}"
        else:
            found[name] = [round(error, 6), round(time.process_time() - begin, 3)]
    return found


def _error(name, split):
    learner = BASELINES[name]() if name in BASELINES else getattr(nearfar, name)()
    if learner is not None:
        learner.fit(split.X_train, split.y_train)
    if name in LABELLED and LABELLED[name].kind == "classifier":
        return 1 - learner.score(split.X_test, split.y_test)
    return knn_error(learner, split.X_train, split.y_train, split.X_test, split.y_test, 3)


class Record:
    """What was measured on one machine: {case: {split: what ``measure`` found}}, as a JSON file."""

    def __init__(self, path, max_rows):
        self.path, self.stamps, self.cases = path, [], {}
        self.facts = facts("cpu") | {"max_rows": max_rows}
        if path.exists():
            saved = json.loads(path.read_text())
            if saved["max_rows"] != max_rows:
                raise SystemExit(
                    f"{path.name} was measured with --max-rows {saved['max_rows']}, not {max_rows};"
                    " give the same number, or another --machine"
                )
            self.stamps = saved["stamps"]
            self.cases = {
                Case(row["data"], row["size"], row["inputs"]): row for row in saved["cases"]
            }

    def missing(self, case, number, learners):
        found = self.cases.get(case, {"splits": {}})["splits"].get(str(number), {})
        return [name for name in learners if name not in found]

    def add(self, case, shape, number, found, stamp):
        row = self.cases.setdefault(
            case,
            {"data": case.data, "size": case.size, "inputs": case.inputs, **shape, "splits": {}},
        )
        row["splits"].setdefault(str(number), {}).update(found)
        if stamp not in self.stamps:
            self.stamps.append(stamp)

    def write(self):
        """One case a line, its splits in order, whichever was measured first."""
        order = {name: number for number, name in enumerate((*NAMES, *SIZES, *INPUTS))}
        rows = sorted(
            self.cases.items(), key=lambda item: [order[v] for v in vars(item[0]).values()]
        )
        for _, row in rows:
            row["splits"] = dict(sorted(row["splits"].items(), key=lambda item: int(item[0])))
        body = ",\n".join(json.dumps(row, separators=(",", ":")) for _, row in rows)
        head = json.dumps(self.facts | {"stamps": self.stamps})[:-1]
        common.write_text(self.path, f'{head}, "cases": [\n{body}\n]}}\n')


def jobs(arguments, record):
    """(case, shape, split, learners) for all that is missing."""
    for data in arguments.sets:
        X, y = never_worse_data.load(data)
        for size in arguments.sizes:
            counts = never_worse_data.n_learned(y, size, arguments.max_rows)
            if counts is None:
                continue
            columns = X.shape[1]
            if columns > never_worse_data.MOST_COLUMNS:
                columns = min(never_worse_data.COMPONENTS, int(counts.sum()) - 1)
            shape = {"rows": int(counts.sum()), "columns": columns, "classes": len(counts)}
            learners = [n for n in arguments.learners if shape["rows"] <= most_rows(n)]
            for inputs in INPUTS:
                case = Case(data, size, inputs)
                for number in range(arguments.splits):
                    missing = record.missing(case, number, learners)
                    if missing:
                        yield case, shape, number, missing


def run(job, max_rows, deadline):
    """A job in another process; nothing if it would begin after the deadline."""
    case, _, number, learners = job
    found = None if time.time() > deadline else measure(case, number, learners, max_rows)
    return job, found


def measure_all(arguments):
    """Measure what is missing and save it; what failed, but for fits that refuse their input."""
    deadline = time.time() + arguments.max_seconds
    if arguments.smoke:
        arguments.sets, arguments.splits = SMOKE["sets"], SMOKE["splits"]
        arguments.sizes = SMOKE["sizes"]
    arguments.sets = available(arguments.sets, never_worse_data.check)
    path = record_path(arguments, "never_worse", common.machine())
    record = Record(path, arguments.max_rows)
    stamp = f"{common.commit()} {common.now()[:10]}"
    work = sorted(jobs(arguments, record), key=lambda job: -job[1]["rows"])  # the longest first
    saved, done, failures = time.time(), 0, []
    with joblib.parallel_config("loky", n_jobs=arguments.jobs, inner_max_num_threads=1):
        parallel = joblib.Parallel(return_as="generator_unordered")
        tasks = (joblib.delayed(run)(job, arguments.max_rows, deadline) for job in work)
        for (case, shape, number, _), found in parallel(tasks):
            if found is None:
                continue
            record.add(case, shape, number, found, stamp)
            done += 1
            for learner, value in found.items():
                if isinstance(value, str):
                    line = f"{case}, split {number}: {learner}: {value}"
                    print(line, flush=True)
                    failures += [] if value.startswith("InvalidInputError") else [line]
            if time.time() > saved + 10:
                record.write()
                saved = time.time()
                print(f"{done} of {len(work)} splits", flush=True)
    if done:
        record.write()
    return failures


def parse(arguments=None):
    parser = common.record_parser("never_worse", __doc__, "two splits of iris and wine, kept not")
    add = parser.add_argument
    add("--sets", type=chosen(NAMES, {}), default=list(NAMES), help=f"of {','.join(NAMES)}")
    add("--sizes", type=chosen(SIZES, {}), default=list(SIZES), help=f"of {','.join(SIZES)}")
    add("--learners", type=chosen(LEARNERS, {}), default=list(LEARNERS), help="default: all")
    add("--splits", type=int, default=SPLITS, help=f"default: {SPLITS}")
    add("--max-rows", type=int, default=MAX_ROWS, help=f"to learn from; default: {MAX_ROWS}")
    add("--jobs", type=int, default=1, help="splits at a time, each in a process of one thread")
    add("--max-seconds", type=float, default=float("inf"), help="then nothing new is begun")
    return parser.parse_args(arguments)


def page(records):
    return never_worse_page.page(records, LEARNERS, LINEAR, most_rows, tuple(BASELINES))


def main(arguments=None):
    return run_script(parse(arguments), "never_worse", measure_all, page)


if __name__ == "__main__":
    sys.exit(main())
