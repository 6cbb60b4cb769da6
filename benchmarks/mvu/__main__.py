"""Solve the same unfoldings by nearfar and by general solvers: ``python -m benchmarks.mvu``."""

import json
import sys

from benchmarks import common, runner
from benchmarks.mvu import page
from benchmarks.mvu.programs import GAP, METHODS, PEERS, VIOLATION, data_of, methods_of, size_of

AGREEMENT = 1e-9  # of objective_ with the evaluator's variance, relative
LIMIT = 900


class Benchmark(runner.Runner):
    """All methods on all programs."""

    STEM, PACKAGE = "mvu", "benchmarks.mvu"

    def run(self, data, folder, method, program, options):
        """Run one method, have it judged, and put it into the record."""
        points, edges = json.loads((folder / "shape.json").read_text())
        run = {"data": data, "points": points, "edges": edges}
        run |= {"method": method, "program": program, "options": options}
        run |= {"limit": self.arguments.limit} | self.stamp
        output = self.output()
        try:
            given = options | {"data": data}
            run |= self.measure(folder, output, program, given, dtype="float64")
            if (output / "K.npy").exists():
                run |= self.judge([folder, output], output)
        except common.UnavailableError as error:
            run["reason"] = f"failed: {error}"
            self.failures.append(f"{data}, {method}: {error}")
        for name in ("K", "y"):  # the largest have gigabytes
            (output / f"{name}.npy").unlink(missing_ok=True)
        if program == "nearfar":
            self._check(run)
        self._keep(run)

    def _check(self, run):
        """What nearfar says of its answer has to be true, and in a smoke run it has to converge."""
        place = f"{run['data']}, {run['method']}"
        converged, violation = run.get("status") == "converged", run.get("violation")
        kept = violation is not None and violation <= VIOLATION
        if "objective" in run:
            run["objective_as_given"] = run["objective"]
            self.check_objective(run, place, AGREEMENT)
        if converged and kept:
            gap = run["gap"]
            if gap is None or gap > GAP + AGREEMENT:
                self.failures.append(f"{place}: converged, but the evaluator's gap is {gap}")
        if self.arguments.smoke and not (converged and kept):
            self.failures.append(
                f"{place}: status {run.get('status')!r} and violation {violation}; expected "
                f"'converged' and at most {VIOLATION:g}"
            )

    def _keep(self, run):
        methods = [method for method, *_ in METHODS]

        def position(other):
            return *size_of(other["data"]), methods.index(other["method"])

        self.keep(run, "runs", key=lambda r: (r["data"], r["method"]), position=position)


def parse(arguments=None):
    parser = runner.parser("mvu", __doc__, PEERS, "nearfar alone on small rolls; writes nothing")
    parser.set_defaults(limit=LIMIT)
    add = parser.add_argument
    add("--data", type=runner.names, help="such as roll400k4,roll2000k5; default: all")
    parsed = parser.parse_args(arguments)
    for name in parsed.data or ():
        size_of(name)
    if parsed.smoke or parsed.device != "cpu":
        parsed.peers = []
    return parsed


def work(benchmark):
    for data in data_of(benchmark.arguments):
        folder = benchmark.prepare(data)
        if folder is not None:
            for method, program, options in methods_of(data, benchmark.arguments.peers):
                benchmark.run(data, folder, method, program, options)


def main(arguments=None):
    return runner.main(parse(arguments), "mvu", page.page, Benchmark, work)


if __name__ == "__main__":
    sys.exit(main())
