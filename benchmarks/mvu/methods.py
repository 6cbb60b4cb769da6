"""One program on one Swiss roll: ``python -m benchmarks.mvu.methods PROGRAM FOLDER OUTPUT …``.

It is run by the interpreter of the program's own environment. FOLDER holds program.npz; OUTPUT
receives ``started`` when the clock starts, and K.npy, y.npy and result.json at the end: y are the
variables of the dual,

    minimise sum_e y_e   with   sum_e (y_e / D_e) a_e a_e' >= I - 11'/n.

The clock runs while a program solves, not while it is stated; that of CSDP is a process of its own,
whose files are read and written in that time. nearfar's has to find the graph, too.
"""

import re
import shutil
import subprocess
import time
from pathlib import Path

import numpy as np

from benchmarks import worker
from benchmarks.mvu import forms
from benchmarks.mvu.data import swiss_roll
from benchmarks.mvu.programs import GAP, size_of

# param.csdp in its order, all but objtol as by default
CSDP_PARAMETERS = {
    "axtol": 1e-8,
    "atytol": 1e-8,
    "objtol": GAP / 2,  # relative to the sum of both objectives
    "pinftol": 1e8,
    "dinftol": 1e8,
    "maxiter": 100,
    "minstepfrac": 0.9,
    "maxstepfrac": 0.97,
    "minstepp": 1e-8,
    "minstepd": 1e-8,
    "usexzgap": 1,
    "tweakgap": 0,
    "affine": 0,
    "printlevel": 1,
    "perturbobj": 1,
    "fastmode": 0,
}
CSDP_ENDINGS = {
    0: "solved",
    3: "reduced accuracy",
    4: "100 iterations",
    5: "stuck at the edge of primal feasibility",
    6: "stuck at the edge of dual feasibility",
    7: "lack of progress",
    8: "a matrix is singular",
    9: "not a number",
}
WARM_UP = 60  # points


class Task(worker.Job):
    """What a program gets: the roll, its graph, options and the clock."""

    def __init__(self, arguments):
        super().__init__(arguments)
        self.options = dict(arguments.options)
        _, self.k = size_of(self.options.pop("data"))
        with np.load(arguments.folder / "program.npz") as program:
            self.X, self.heads, self.tails = (program[name] for name in ("X", "heads", "tails"))
            self.squares = program["squares"]
        self.n, self.m = len(self.X), len(self.heads)


# -- CSDP ---


def run_csdp(task):
    if shutil.which("csdp") is None:
        raise SystemExit(
            "the program csdp is not on the path; Debian has it in the package coinor-csdp"
        )
    folder = task.output
    edges = task.heads, task.tails, task.squares, task.n
    forms.write_sdpa(folder / "program.dat-s", *edges, task.options["centre"])
    lines = (f"{name}={value:g}\n" for name, value in CSDP_PARAMETERS.items())
    (folder / "param.csdp").write_text("".join(lines))
    (code, peak), facts = task.timed(lambda: watched_csdp(folder, task.limit))
    facts |= {"fit_mb": peak, "peak_mb": peak, "versions": csdp_versions(folder)}
    if code is None:
        return None, None, facts | {"status": "killed"}
    text = (folder / "csdp.log").read_text()
    if not (folder / "solution").exists():
        raise SystemExit(f"csdp ended with {code}: {text[-200:]}")
    facts["n_iter"] = len(re.findall(r"^Iter:", text, re.MULTILINE)) - 1
    facts["status"] = CSDP_ENDINGS.get(code, f"exit status {code}")
    return *forms.read_csdp(folder / "solution", task.n, task.m), facts


def watched_csdp(folder, limit):
    """Exit status, None past the limit, and peak memory in MB, of CSDP in a folder."""
    deadline, peak = time.monotonic() + limit, None
    with open(folder / "csdp.log", "w") as log:
        process = subprocess.Popen(
            ["csdp", "program.dat-s", "solution"], cwd=folder, stdout=log, stderr=log
        )
        while process.poll() is None:
            peak = peak_of(process.pid) or peak
            if time.monotonic() > deadline:
                process.kill()
                process.wait()
                return None, peak
            time.sleep(0.005)
    return process.returncode, peak


def peak_of(pid):
    """The largest resident memory of a process so far in MB; None where Linux does not tell it."""
    try:
        found = re.search(r"VmHWM:\s*([0-9]+) kB", Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return None
    return int(found[1]) * 1024 / 1e6 if found else None


def csdp_versions(folder):
    """CSDP's version, and the file of the BLAS that it has found."""
    found = re.search(r"CSDP ([0-9.]+)", (folder / "csdp.log").read_text())
    versions = {"CSDP": found[1] if found else "unknown"}
    if shutil.which("ldd"):
        command = ["ldd", shutil.which("csdp")]
        listed = subprocess.run(command, capture_output=True, text=True).stdout
        blas = re.search(r"libblas\S* => (\S+)", listed)
        if blas:
            versions["BLAS"] = Path(blas[1]).resolve().parent.name
    return versions


# -- solvers in Python ---


def stated(task, unit, lower):
    """The conic form, with A as a sparse matrix."""
    from scipy import sparse

    edges = task.heads, task.tails, task.squares, unit
    (values, rows, columns), b, q = forms.conic(*edges, task.n, lower)
    return sparse.csc_array((values, (rows, columns)), shape=(len(b), task.m)), b, q


def run_clarabel(task):
    import clarabel
    from scipy import sparse

    unit = task.squares
    A, b, q = stated(task, unit, lower=False)
    settings = clarabel.DefaultSettings()
    settings.verbose, settings.time_limit = False, task.limit
    settings.max_threads = task.threads

    def solve():
        nothing, cone = sparse.csc_array((task.m, task.m)), clarabel.PSDTriangleConeT(task.n)
        return clarabel.DefaultSolver(nothing, q, A, b, [cone], settings).solve()

    found, facts = task.timed(solve)
    facts |= {"status": spaced(str(found.status)), "n_iter": int(found.iterations)}
    return forms.matrix_of(np.array(found.z), task.n, lower=False), np.array(found.x), facts


def spaced(name):
    """AlmostSolved as "almost solved"."""
    return re.sub(r"(?<!^)([A-Z])", r" \1", name).lower()


def run_scs(task):
    import scs

    unit = np.full(task.m, task.squares.mean())  # with rows of their own units it is lost
    A, b, q = stated(task, unit, lower=True)
    options = {"eps_abs": GAP, "eps_rel": GAP, "max_iters": 10**8, "time_limit_secs": task.limit}

    def solve():
        problem = {"A": A, "b": b, "c": q}
        return scs.SCS(problem, {"s": [task.n]}, verbose=False, **options).solve()

    found, facts = task.timed(solve)
    facts |= {"status": found["info"]["status"], "n_iter": int(found["info"]["iter"])}
    return forms.matrix_of(found["y"], task.n, lower=True), found["x"] * q, facts


# -- nearfar ---


def run_nearfar(task):
    import nearfar
    from nearfar.estimators import mvu

    X, synchronize = task.on_device(task.X)
    learner = nearfar.MVU(n_neighbors=task.k, max_seconds=task.limit, **task.options)
    if task.device != "cpu":  # starts the device's libraries, which is part of importing torch
        nearfar.MVU().fit(task.on_device(swiss_roll(WARM_UP))[0])
    best = {}

    def watched(program, start, solve=mvu.interior_point):
        """The solver, whose best iterate is kept: its y is not among the fitted attributes."""
        for iterate in solve(program, start):
            if not best or iterate.value < best["iterate"].value:
                best.update(iterate=iterate, program=program)
            yield iterate

    mvu.interior_point = watched
    model, facts = task.timed(lambda: learner.fit(X), synchronize)
    graph = model.graph_
    same = np.array_equal(graph.heads, task.heads) and np.array_equal(graph.tails, task.tails)
    if not same:
        raise SystemExit("nearfar's graph is not that of the program")
    facts |= {
        "status": str(model.status_),
        "n_iter": int(model.n_iter_),
        "reported_objective": float(model.objective_),
        "duality_gap": float(model.duality_gap_),
        "history": worker.columns(model.history_),
        "versions": blas_versions(),
    }
    solved = best["program"]  # in units of its own, and D may be a little larger in it
    y = best["iterate"].state.y * solved.scale * solved.given / solved.squares
    return worker.as_numpy(model.kernel_), worker.as_numpy(y), facts


def blas_versions():
    """The BLAS libraries of this process, each with the processor that its kernels are for."""
    from threadpoolctl import threadpool_info

    found = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    names = {
        f"{pool['internal_api']} {pool['version']} {pool.get('architecture')}" for pool in found
    }
    return {"BLAS": " and ".join(sorted(names))}


PROGRAMS = {
    "csdp": run_csdp,
    "clarabel": run_clarabel,
    "scs": run_scs,
    "nearfar": run_nearfar,
}
# what each program computes with
PACKAGES = {
    "csdp": (),
    "clarabel": ("clarabel", "scipy", "numpy"),
    "scs": ("scs", "scipy", "numpy"),
    "nearfar": ("nearfar", "scikit-learn", "scipy", "numpy", "torch"),
}


def main():
    arguments = worker.parse(__doc__.splitlines()[0], PROGRAMS)
    task = Task(arguments)
    K, y, result = PROGRAMS[arguments.program](task)
    if K is not None:
        np.save(task.output / "K.npy", K)
        np.save(task.output / "y.npy", y)
    worker.write_answer(task, None, result, PACKAGES[arguments.program])


if __name__ == "__main__":
    main()
