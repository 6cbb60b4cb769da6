"""How a benchmark runs: each program in a process of its own, and a record that grows.

Only the standard library is imported here, for the reason that `benchmarks.common` gives.
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

from benchmarks import common, tables

GRACE = 30  # seconds past the limit that a program has to answer before it is killed
OWN = ("nearfar", "scikit-learn", "eigh", "csdp")  # programs that run by this interpreter


class Runner:
    """The command line, the folder of working files, and the record that grows with every run.

    ``STEM`` begins the record's file name, ``PARTS`` are its lists of runs, and the package
    ``PACKAGE`` has the modules ``data``, ``methods`` and ``evaluate``.
    """

    STEM = PACKAGE = ""
    PARTS = ("runs",)

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
        path = arguments.results / f"{self.STEM}-{name}.json"
        record = {"machine": machine, **{part: [] for part in self.PARTS}}
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
        return self.step("device", ["-c", code]).strip()

    def step(self, name, command):
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
                self.step(name, ["-m", f"{self.PACKAGE}.data", name, str(folder)])
            except common.UnavailableError as error:
                print(f"{name}: left out: {error}", flush=True)
                folder.rmdir()
                return None
        return folder

    def output(self):
        """A new folder for the answers of a process."""
        return Path(tempfile.mkdtemp(dir=self.folder))

    def measure(self, folder, output, program, options, *, dtype, extra=()):
        """Run a program on the data in ``folder`` and answer with what it says of itself."""
        arguments = self.arguments
        paths = [str(common.ROOT)]
        command = ["--threads", str(arguments.threads), *extra]
        if program == "nearfar":
            paths.append(str(common.ROOT / "src"))
            command += ["--device", arguments.device, "--dtype", dtype]
        own = program in OWN
        python = Path(sys.executable) if own else common.python_of(program, arguments.envs)
        command = [
            *(str(python), "-P", "-m", f"{self.PACKAGE}.methods"),
            *(program, str(folder), str(output), *command),
            *("--options", json.dumps(options), "--limit", str(arguments.limit)),
        ]
        outcome = common.run_measured(
            command,
            log=output / "log",
            started=output / "started",
            limit=arguments.limit + GRACE,
            environment=self.environment | {"PYTHONPATH": os.pathsep.join(paths)},
        )
        if outcome.killed:
            return {"status": "killed", "peak_mb": outcome.peak_mb}
        if outcome.returncode:
            text = (output / "log").read_text().strip()
            raise common.UnavailableError(
                text.splitlines()[-1] if text else f"exit code {outcome.returncode}"
            )
        return json.loads((output / "result.json").read_text())

    def judge(self, arguments, output):
        """What the evaluator says."""
        answer = output / "judgement.json"
        command = ["-m", f"{self.PACKAGE}.evaluate", *map(str, arguments)]
        self.step("judge", [*command, "--output", str(answer)])
        return json.loads(answer.read_text())

    def check_objective(self, run, place, agreement):
        """objective_ has to be what the evaluator finds for the same L."""
        if "objective_as_given" in run:
            expected, got = run["objective_as_given"], run["reported_objective"]
            run["disagreement"] = abs(got - expected) / max(abs(expected), 1e-300)
            if run["disagreement"] > agreement:
                self.failures.append(
                    f"{place}: objective_ is {got:.8g}, the evaluator finds {expected:.8g} for "
                    "the same L"
                )

    def match(self, ours, rivals, objective_after, sense=1, slack=0.0):
        """Find out when nearfar had each rival's objective, and put that into the rival's run.

        The history of ``ours`` says when; the objective there may be that of a part of the
        problem, so ``objective_after(n_iter)`` judges a fit that is cut off at that iteration, and
        later ones until it holds. ``sense`` is -1 where the objective is maximised, and ``slack``
        the relative difference that counts as none.
        """
        judged = {ours["n_iter"]: ours["objective"]}
        for rival in rivals:
            rival["nearfar"] = None
            wanted = rival["objective"] + sense * slack * abs(rival["objective"])
            if not ours["history"]:  # a closed form
                if sense * ours["objective"] <= sense * wanted:
                    reached = {key: ours[key] for key in ("n_iter", "seconds", "objective")}
                    rival["nearfar"] = reached | self.stamp
                continue
            n_iter = tables.first_at_or_below(ours["history"], wanted, sense)
            while n_iter is not None and n_iter <= ours["n_iter"]:
                if n_iter not in judged:
                    judged[n_iter] = objective_after(n_iter)
                if sense * judged[n_iter] <= sense * wanted:
                    seconds = tables.seconds_at(ours, n_iter)
                    reached = {"n_iter": n_iter, "seconds": seconds, "objective": judged[n_iter]}
                    rival["nearfar"] = reached | self.stamp
                    break
                n_iter = min(n_iter + 1 + n_iter // 10, max(ours["n_iter"], n_iter + 1))
        self.write()

    def keep(self, run, part, key, position):
        """Put a run into the record, in the place of the one with the same key, and say it."""
        runs = [other for other in self.record[part] if key(other) != key(run)]
        self.record[part] = sorted([*runs, run], key=position)
        self.write()
        print(line(run), flush=True)

    def write(self):
        """The record, one run a line."""
        lines = {part: ",\n".join(map(json.dumps, self.record[part])) for part in self.PARTS}
        head = {k: v for k, v in self.record.items() if k not in lines}
        body = ",\n".join(f'"{name}": [\n{text}\n]' for name, text in lines.items())
        common.write_text(self.path, json.dumps(head)[:-1] + ",\n" + body + "}\n")


def line(run):
    """A run in one line."""
    facts = [f"{run['data']:<11} {run['method']:<29}"]
    facts.append(run.get("reason") or run["status"])
    for name, form in (
        ("seconds", "{:.3g} s"),
        ("peak_mb", "{:.0f} MB"),
        ("objective", "objective {:.6g}"),
        ("gap", "gap {:.1e}"),
        ("duality_gap", "certified gap {:.1e}"),
        ("violation", "violation {:.1e}"),
        ("test_error", "error {:.2%}"),
    ):
        if run.get(name) is not None:
            facts.append(form.format(run[name]))
    return "  ".join(facts)


def names(text):
    return [name for name in text.split(",") if name]


def chosen(known, kind):
    """A reader of names with commas between them, all of which have to be known."""

    def read(text):
        unknown = [name for name in names(text) if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(
                f"no {kind} {unknown[0]!r}; expected some of {', '.join(known)}"
            )
        return names(text)

    return read


def parser(stem, description, peers, smoke):
    """The options that all benchmarks with peers have."""
    parser = common.record_parser(stem, description, smoke)
    add = parser.add_argument
    add("--peers", type=chosen(peers, "peer"), default=list(peers), help=f"of {','.join(peers)}")
    add("--limit", type=float, default=240, help="seconds for each method; default: 240")
    add(
        "--envs", type=Path, default=common.ROOT / ".benchmark-envs", help="the peers' environments"
    )
    add("--threads", type=int, default=2, help="default: 2")
    add("--device", default="cpu", help="cpu or cuda, for nearfar; cuda leaves out the peers")
    return parser


def main(arguments, stem, page, benchmark, work):
    """Do the work of a benchmark, write its page, and tell what failed; the exit status."""
    if arguments.table:
        common.write_page(arguments, stem, page)
        return 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if arguments.smoke:
            arguments.results, arguments.page = folder / "results", folder / f"{stem}.md"
        try:
            running = benchmark(arguments, folder)
        except common.UnavailableError as error:
            print(f"no device {arguments.device!r}: {error}", file=sys.stderr)
            return 2
        work(running)
        text = common.write_page(arguments, stem, page)
        if arguments.smoke:
            print(text)
    for failure in running.failures:
        print(failure, file=sys.stderr)
    return 1 if running.failures else 0
