"""Run nearfar's learners and their peers on the same tasks: ``python -m benchmarks.metrics``."""

import json
import sys

from benchmarks import common, runner
from benchmarks.metrics import page
from benchmarks.metrics.tasks import PEERS, SMOKE, TASKS, data_of, methods_of

# Largest relative difference between objective_ and the evaluator's value of the same L, and by
# how much L may exceed its constraint: d x d matrices are summed in float64, L itself is not.
AGREEMENT = {"float32": 1e-4, "float64": 1e-7}


class Benchmark(runner.Runner):
    """All methods of all tasks."""

    STEM, PACKAGE = "metrics", "benchmarks.metrics"

    def run(self, name, data, folder, method, program, options):
        """Run one method, have it judged, and put it into the record."""
        shape = json.loads((folder / "shape.json").read_text())
        run = {"task": name, "data": data, "rows": shape[0], "columns": shape[1]}
        run |= {"method": method, "program": program, "options": options}
        run |= {"limit": self.arguments.limit} | self.stamp
        try:
            run |= self._judged(name, folder, program, options)
        except common.UnavailableError as error:
            run["reason"] = f"failed: {error}"
            self.failures.append(f"{name}, {data}, {method}: {error}")
        if program == "nearfar":
            self._check(run)
        self._keep(run)
        return run

    def _judged(self, name, folder, program, options):
        """What a program and the evaluator say of an answer."""
        output, dtype = self.output(), self.arguments.dtype or TASKS[name].dtype
        facts = self.measure(folder, output, program, options | {"task": name}, dtype=dtype)
        if (output / "L.npy").exists():
            facts |= self.judge([name, folder, output], output)
        return facts

    def _check(self, run):
        """What nearfar says of its answer has to be true, and in a smoke run it has to converge."""
        place = f"{run['task']}, {run['data']}, {run['method']}"
        if "dtype" in run:
            agreement = AGREEMENT[run["dtype"]]
            self.check_objective(run, place, agreement)
            if run.get("excess", 0) > agreement:
                self.failures.append(f"{place}: exceeds its constraint by {run['excess']:.1e}")
        converged = run.get("status") == "converged"
        gap, tol = run.get("duality_gap"), run["options"].get("tol", 1e-3)
        if converged and gap is not None and gap > tol:
            self.failures.append(f"{place}: converged with a gap of {gap:.1e}, above tol={tol:g}")
        if self.arguments.smoke and not converged:
            self.failures.append(f"{place}: status {run.get('status')!r}, expected 'converged'")

    def _keep(self, run):
        names = list(TASKS)

        def position(other):
            task = TASKS[other["task"]]
            data = [*task.data, *task.large, *task.device, other["data"]]
            methods = [method for method, *_ in task.methods]
            at = names.index(other["task"]), data.index(other["data"])
            return *at, methods.index(other["method"])

        self.keep(run, "runs", key=lambda r: (r["task"], r["data"], r["method"]), position=position)

    def compare(self, name, data):
        """All methods of a task on one data set."""
        folder = self.prepare(data)
        if folder is None:
            return
        wanted = ("nearfar", "eigh", *self.arguments.peers)
        methods = list(methods_of(TASKS[name], data, self.arguments.device))
        if self.arguments.smoke:  # of nearfar's the last alone
            methods = [each for each in methods if each[1] == "eigh"] + methods[-1:]
        for method, program, options in methods:
            if program in wanted:
                self.run(name, data, folder, method, program, options)
        try:
            self._match(name, data, folder)
        except common.UnavailableError as error:
            self.failures.append(f"{name}, {data}, nearfar cut off: {error}")

    def _match(self, name, data, folder):
        ours = page.finest(self.record["runs"], name, data)
        if ours is None:
            return

        def objective_after(n_iter):
            options = ours["options"] | {"max_iter": n_iter}
            return self._judged(name, folder, "nearfar", options)["objective"]

        rivals = page.rivals(self.record["runs"], name, data)
        self.match(ours, rivals, objective_after, TASKS[name].sense, TASKS[name].slack)


def parse(arguments=None):
    parser = runner.parser(
        "metrics", __doc__, PEERS, "nearfar alone on iris and wine; writes nothing"
    )
    add = parser.add_argument
    names = list(TASKS)
    add("--tasks", type=runner.chosen(names, "task"), default=names, help=f"of {','.join(names)}")
    add("--data", type=runner.names, help="default: all of the task")
    add("--dtype", choices=AGREEMENT, help="nearfar's; default: float32 for mcml and nca")
    parsed = parser.parse_args(arguments)
    if parsed.smoke or parsed.device != "cpu":
        parsed.peers = []
    return parsed


def work(benchmark):
    arguments = benchmark.arguments
    for name in arguments.tasks:
        known = SMOKE if arguments.smoke else data_of(TASKS[name], arguments.device)
        for data in arguments.data or known:
            if data in known:
                benchmark.compare(name, data)


def main(arguments=None):
    return runner.main(parse(arguments), "metrics", page.page, Benchmark, work)


if __name__ == "__main__":
    sys.exit(main())
