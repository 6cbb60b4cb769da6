"""Run nearfar's LMNN and its peers on the same data: ``python -m benchmarks.lmnn``."""

import json
import sys

from benchmarks import common, runner
from benchmarks.lmnn import table

DATA = ("iris", "wine", "digits", "letter", "isolet", "mnist2000", "mnist10000", "mnist60000")
SCALING = ("mnist2000", "mnist5000", "mnist10000", "mnist30000", "mnist60000")
SMOKE = ("iris", "wine")

# method, program, options
EUCLIDEAN = ("Euclidean", "euclidean", {})
PEERS = (
    ("pylmnn, 50 iterations", "pylmnn", {"max_iter": 50}),
    ("pylmnn, 1000 iterations", "pylmnn", {"max_iter": 1000}),
    ("metric-learn, step 1e-2", "metric-learn", {"learn_rate": 1e-2}),
    ("mlpack, L-BFGS", "mlpack", {"optimizer": "lbfgs"}),
)
NEARFAR = (
    ("nearfar, tol 1e-2", "nearfar", {"tol": 1e-2}),
    ("nearfar, tol 1e-3", "nearfar", {"tol": 1e-3}),
)

# Largest relative difference between objective_ and the evaluator's value of the same L
AGREEMENT = {"float32": 1e-5, "float64": 1e-8}


class Benchmark(runner.Runner):
    """All methods on all data sets."""

    STEM, PACKAGE = "lmnn", "benchmarks.lmnn"
    PARTS = ("runs", "scaling")

    def run(self, data, folder, method, program, options, kind="runs"):
        """Run one method, have it judged, and put it into the record."""
        shape = json.loads((folder / "shape.json").read_text())
        run = {"data": data, "rows": shape[0], "columns": shape[1], "method": method}
        run |= {"program": program, "options": options, "limit": self.arguments.limit}
        run |= self.stamp
        output = self.output()
        try:
            run |= self._measure(folder, output, program, options)
            if kind == "runs" and (output / "L.npy").exists():
                run |= self._judge(folder, output)
        except common.UnavailableError as error:
            run["reason"] = f"failed: {error}"
            self.failures.append(f"{data}, {method}: {error}")
        if program == "nearfar":
            self._check(run)
        self._keep(run, kind)
        return run

    def _measure(self, folder, output, program, options):
        if program == "euclidean":
            self.step("identity", ["-c", _IDENTITY, str(folder), str(output / "L.npy")])
            return {"status": "finished", "dtype": "float64"}
        return self.measure(folder, output, program, options, dtype=self.arguments.dtype)

    def _judge(self, folder, output):
        command = [folder, output / "L.npy"]
        if (output / "targets.npy").exists():
            command += ["--targets", output / "targets.npy"]
        return self.judge(command, output)

    def _check(self, run):
        """What nearfar says of its answer has to be true, and in a smoke run it has to converge."""
        place = f"{run['data']}, {run['method']}"
        if "dtype" in run:
            self.check_objective(run, place, AGREEMENT[run["dtype"]])
        converged = run.get("status") == "converged"
        gap, tol = run.get("duality_gap"), run["options"]["tol"]
        if converged and gap > tol:
            self.failures.append(f"{place}: converged with a gap of {gap:.1e}, above tol={tol:g}")
        if self.arguments.smoke and not converged:
            self.failures.append(f"{place}: status {run.get('status')!r}, expected 'converged'")

    def _keep(self, run, kind):
        known = {name: position for position, name in enumerate(dict.fromkeys(DATA + SCALING))}
        order = [name for name, *_ in (EUCLIDEAN, *PEERS, *NEARFAR)]
        self.keep(
            run,
            kind,
            key=lambda r: (r["data"], r["method"]),
            position=lambda r: (known.get(r["data"], len(known)), order.index(r["method"])),
        )

    def compare(self, data):
        """All methods on one data set."""
        folder = self.prepare(data)
        if folder is None:
            return
        if self.arguments.device == "cpu":
            self.run(data, folder, *EUCLIDEAN)
        stopped = set()
        for method, program, options in PEERS:
            # a longer run of a stopped program would only repeat it
            if program in self.arguments.peers and program not in stopped:
                run = self.run(data, folder, method, program, options)
                if run.get("status") != "finished":
                    stopped.add(program)
        for method, program, options in NEARFAR:
            if data == "mnist60000" and self.arguments.device == "cpu" and options["tol"] < 1e-2:
                continue
            self.run(data, folder, method, program, options)
        try:
            self.match(data, folder)
        except common.UnavailableError as error:
            self.failures.append(f"{data}, nearfar cut off at a peer's objective: {error}")

    def match(self, data, folder):
        """Find out when nearfar had each peer's objective: see `runner.Runner.match`."""
        ours = table.finest(self.record["runs"]).get(data)
        if ours is not None:
            rivals = table.peers(self.record["runs"], data)
            super().match(ours, rivals, lambda n_iter: self._objective_after(n_iter, folder, ours))

    def _objective_after(self, n_iter, folder, ours):
        output = self.output()
        self._measure(folder, output, "nearfar", ours["options"] | {"max_iter": n_iter})
        return self._judge(folder, output)["objective"]

    def scale(self):
        for data in SCALING:
            folder = self.prepare(data)
            if folder is not None:
                self.run(data, folder, *NEARFAR[0], kind="scaling")


_IDENTITY = """
import json, sys, numpy
rows, columns = json.load(open(sys.argv[1] + "/shape.json"))
numpy.save(sys.argv[2], numpy.eye(columns))
"""


def parse(arguments=None):
    programs = list(dict.fromkeys(program for _, program, _ in PEERS))
    parser = runner.parser(
        "lmnn", __doc__, programs, "nearfar alone on iris and wine; writes nothing"
    )
    add = parser.add_argument
    add("--data", type=runner.names, default=list(DATA), help=f"of {','.join(DATA)}; default: all")
    add("--dtype", choices=AGREEMENT, default="float32", help="nearfar's; default: float32")
    add("--scaling", action="store_true", help="only cost against n, on MNIST")
    parsed = parser.parse_args(arguments)
    if parsed.smoke:
        parsed.data, parsed.peers = [name for name in SMOKE if name in parsed.data], []
    if parsed.device != "cpu":
        parsed.peers = []
    return parsed


def work(benchmark):
    if benchmark.arguments.scaling:
        benchmark.scale()
    else:
        for data in benchmark.arguments.data:
            benchmark.compare(data)


def main(arguments=None):
    return runner.main(parse(arguments), "lmnn", table.page, Benchmark, work)


if __name__ == "__main__":
    sys.exit(main())
