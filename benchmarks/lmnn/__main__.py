"""Run nearfar's LMNN and its peers on the same data: ``python -m benchmarks.lmnn``."""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from benchmarks import common
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
GRACE = 30  # seconds past the limit that a program has to answer before it is killed


class Benchmark:
    """The command line, the folder of working files, and the record that grows with every run."""

    def __init__(self, arguments, folder):
        self.arguments = arguments
        self.folder = folder
        self.environment = common.threads_environment(arguments.threads)
        self.failures = []
        self.stamp = {"commit": common.commit(), "date": common.now()}
        self.path, self.record = self._open_record()

    def _open_record(self):
        machine = common.machine()
        arguments = self.arguments
        if arguments.device != "cpu":
            machine["device"] = self._device_name()
        name = arguments.machine or common.slug(
            machine.get("device") or f"{machine['cpu']} {machine['cores']} cores"
        )
        path = arguments.results / f"lmnn-{name}.json"
        record = {"machine": machine, "runs": [], "scaling": []}
        if path.exists():
            record |= json.loads(path.read_text())
        return path, record | {
            "machine": machine,
            "threads": arguments.threads,
            "seed": 0,
            "limit": arguments.limit,
        }

    def _device_name(self):
        code = f"import torch; print(torch.cuda.get_device_name({self.arguments.device!r}))"
        return self._python("device", ["-c", code]).strip()

    def _python(self, name, command):
        """What a step of the benchmark itself prints; it ends the benchmark if it fails."""
        log = self.folder / f"{name}.log"
        outcome = common.run_measured(
            [sys.executable, *command],
            log=log,
            started=log.with_suffix(".started"),
            limit=3600,
            environment=self.environment,
        )
        text = log.read_text()
        if outcome.returncode:
            raise common.UnavailableError(text.strip().splitlines()[-1] if text else name)
        return text

    def prepare(self, name):
        """The folder with the data set's parts, or None if it cannot be had."""
        folder = self.folder / name
        if not folder.exists():
            folder.mkdir()
            try:
                self._python(name, ["-m", "benchmarks.lmnn.data", name, str(folder)])
            except common.UnavailableError as error:
                print(f"{name}: left out: {error}", flush=True)
                folder.rmdir()
                return None
        return folder

    def run(self, data, folder, method, program, options, kind="runs"):
        """Run one method, have it judged, and put it into the record."""
        shape = json.loads((folder / "shape.json").read_text())
        run = {"data": data, "rows": shape[0], "columns": shape[1], "method": method}
        run |= {"program": program, "options": options, "limit": self.arguments.limit}
        run |= self.stamp
        output = Path(tempfile.mkdtemp(dir=self.folder))
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
            self._python("identity", ["-c", _IDENTITY, str(folder), str(output / "L.npy")])
            return {"status": "finished", "dtype": "float64"}
        arguments, environment = self.arguments, dict(self.environment)
        python, extra = Path(sys.executable), ["--threads", str(arguments.threads)]
        if program == "nearfar":
            environment["PYTHONPATH"] = str(common.ROOT / "src")
            extra += ["--device", arguments.device, "--dtype", arguments.dtype]
        else:
            python = common.python_of(program, arguments.envs)
        worker = str(Path(__file__).with_name("methods.py"))
        command = [str(python), "-P", worker, program, str(folder), str(output), *extra]
        command += ["--options", json.dumps(options), "--limit", str(arguments.limit)]
        outcome = common.run_measured(
            command,
            log=output / "log",
            started=output / "started",
            limit=arguments.limit + GRACE,
            environment=environment,
        )
        if outcome.killed:
            return {"status": "killed", "peak_mb": outcome.peak_mb}
        if outcome.returncode:
            text = (output / "log").read_text().strip()
            raise common.UnavailableError(
                text.splitlines()[-1] if text else f"exit code {outcome.returncode}"
            )
        return json.loads((output / "result.json").read_text())

    def _judge(self, folder, output):
        answer = output / "judgement.json"
        command = ["-m", "benchmarks.lmnn.evaluate", str(folder), str(output / "L.npy")]
        if (output / "targets.npy").exists():
            command += ["--targets", str(output / "targets.npy")]
        self._python("judge", [*command, "--output", str(answer)])
        return json.loads(answer.read_text())

    def _check(self, run):
        """What nearfar says of its answer has to be true, and in a smoke run it has to converge.

        objective_ has to be what the evaluator finds for the same L at scale 1.
        """
        place = f"{run['data']}, {run['method']}"
        if "objective_as_given" in run:
            expected, got = run["objective_as_given"], run["reported_objective"]
            run["disagreement"] = abs(got - expected) / expected
            if run["disagreement"] > AGREEMENT[run["dtype"]]:
                self.failures.append(
                    f"{place}: objective_ is {got:.8g}, the evaluator finds {expected:.8g} for "
                    "the same L"
                )
        converged = run.get("status") == "converged"
        gap, tol = run.get("duality_gap"), run["options"]["tol"]
        if converged and gap > tol:
            self.failures.append(f"{place}: converged with a gap of {gap:.1e}, above tol={tol:g}")
        if self.arguments.smoke and not converged:
            self.failures.append(f"{place}: status {run.get('status')!r}, expected 'converged'")

    def _keep(self, run, kind):
        def key(other):
            return other["data"], other["method"]

        runs = [other for other in self.record[kind] if key(other) != key(run)]
        known = {name: position for position, name in enumerate(dict.fromkeys(DATA + SCALING))}
        order = [name for name, *_ in (EUCLIDEAN, *PEERS, *NEARFAR)]
        runs.append(run)
        runs.sort(key=lambda r: (known.get(r["data"], len(known)), order.index(r["method"])))
        self.record[kind] = runs
        self._write()
        print(_line(run), flush=True)

    def _write(self):
        """The record, one run a line."""
        lines = {k: ",\n".join(map(json.dumps, self.record[k])) for k in ("runs", "scaling")}
        head = {k: v for k, v in self.record.items() if k not in lines}
        body = ",\n".join(f'"{name}": [\n{text}\n]' for name, text in lines.items())
        common.write_text(self.path, json.dumps(head)[:-1] + ",\n" + body + "}\n")

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
        """Find out when nearfar had each peer's objective, and put that into the peer's run.

        The history says when; the objective there is only that of the triplets at hand, so a
        second fit is cut off at that iteration and judged, and later ones until it holds.
        """
        ours = table.finest(self.record["runs"]).get(data)
        if ours is None:
            return
        judged = {ours["n_iter"]: ours["objective"]}
        for peer in table.peers(self.record["runs"], data):
            peer["nearfar"] = None
            n_iter = table.first_at_or_below(ours["history"], peer["objective"])
            while n_iter is not None and n_iter <= ours["n_iter"]:
                if n_iter not in judged:
                    judged[n_iter] = self._objective_after(n_iter, folder, ours)
                if judged[n_iter] <= peer["objective"]:
                    seconds = table.seconds_at(ours, n_iter)
                    reached = {"n_iter": n_iter, "seconds": seconds, "objective": judged[n_iter]}
                    peer["nearfar"] = reached | self.stamp
                    break
                n_iter = min(n_iter + 1 + n_iter // 10, max(ours["n_iter"], n_iter + 1))
        self._write()

    def _objective_after(self, n_iter, folder, ours):
        output = Path(tempfile.mkdtemp(dir=self.folder))
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


def _line(run):
    facts = [f"{run['data']:<11} {run['method']:<29}"]
    facts.append(run.get("reason") or run["status"])
    for name, form in (
        ("seconds", "{:.3g} s"),
        ("peak_mb", "{:.0f} MB"),
        ("objective", "objective {:.6g}"),
        ("duality_gap", "gap {:.1e}"),
        ("test_error", "error {:.2%}"),
    ):
        if run.get(name) is not None:
            facts.append(form.format(run[name]))
    return "  ".join(facts)


def write_page(arguments):
    """docs/results/lmnn.md from all records."""
    paths = sorted(arguments.results.glob("lmnn-*.json"))
    text = table.page([json.loads(path.read_text()) for path in paths])
    common.write_text(arguments.page, text)
    return text


def parse(arguments=None):
    def names(text):
        return [name for name in text.split(",") if name]

    root = common.ROOT
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lmnn", description=__doc__)
    add = parser.add_argument
    add("--data", type=names, default=list(DATA), help=f"of {','.join(DATA)}; default: all")
    peers = list(common.ENVIRONMENTS)
    add("--peers", type=names, default=peers, help="default: metric-learn,pylmnn,mlpack")
    add("--limit", type=float, default=240, help="seconds for each method; default: 240")
    add("--envs", type=Path, default=root / ".benchmark-envs", help="the peers' environments")
    add("--threads", type=int, default=2, help="default: 2")
    add("--device", default="cpu", help="cpu or cuda, for nearfar; cuda leaves out the peers")
    add("--dtype", choices=AGREEMENT, default="float32", help="nearfar's; default: float32")
    add("--machine", help="the name in the record's file name; default: the processor")
    add("--results", type=Path, default=root / "benchmarks" / "results", help="the records")
    add("--page", type=Path, default=root / "docs" / "results" / "lmnn.md", help="the tables")
    add("--scaling", action="store_true", help="only cost against n, on MNIST")
    add("--table", action="store_true", help="only write the tables anew")
    add("--smoke", action="store_true", help="nearfar alone on iris and wine; writes nothing")
    parsed = parser.parse_args(arguments)
    unknown = [peer for peer in parsed.peers if peer not in peers]
    if unknown:
        parser.error(f"no peer {unknown[0]!r}; expected some of {', '.join(peers)}")
    if parsed.smoke:
        parsed.data, parsed.peers = list(SMOKE), []
    if parsed.device != "cpu":
        parsed.peers = []
    return parsed


def main():
    arguments = parse()
    if arguments.table:
        write_page(arguments)
        return 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if arguments.smoke:
            arguments.results, arguments.page = folder / "results", folder / "lmnn.md"
        try:
            benchmark = Benchmark(arguments, folder)
        except common.UnavailableError as error:
            print(f"no device {arguments.device!r}: {error}", file=sys.stderr)
            return 2
        if arguments.scaling:
            benchmark.scale()
        else:
            for data in arguments.data:
                benchmark.compare(data)
        text = write_page(arguments)
        if arguments.smoke:
            print(text)
    for failure in benchmark.failures:
        print(failure, file=sys.stderr)
    return 1 if benchmark.failures else 0


if __name__ == "__main__":
    sys.exit(main())
