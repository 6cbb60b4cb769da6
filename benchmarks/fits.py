"""About forty fits over all estimators on fixed data, to compare two versions of nearfar.

    python -m benchmarks.fits --output before.json            # on the old version
    python -m benchmarks.fits --output after.json             # on the new one
    python -m benchmarks.fits --compare before.json after.json
    python -m benchmarks.fits --smoke                          # a few of them: seconds, as in CI
    python -m benchmarks.fits --slow --output slow.json        # the slow ones instead: minutes

Each fit runs in a process of its own. A file holds objective, gap, status, iterations, seconds (the
least of three fits), processor seconds of the same fit (those in the system, too, which are mostly
page faults, and the number of these) and peak memory of each. The comparison fails if an objective
differs by more than the tolerance of its fit, or a gap that was below it no longer is; it lists
fits that take more than a tenth longer. Data come with scikit-learn or are made, so that no file is
needed; the slow fits also read MNIST and isolet from the folder that NEARFAR_DATA names.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from benchmarks import common

LIMIT = 600  # seconds that a fit may take
MARGIN = 1.0  # to which tolerances of LMNN and MCML are relative where the objective is smaller
ROUNDING = 1e-6  # differences that are no tolerance's
SLOWER = 1.1  # ratio of seconds above which a fit is listed
LEAST_SECONDS = 0.1  # differences below it are noise
USAGE = {"ru_utime": "user_seconds", "ru_stime": "system_seconds", "ru_minflt": "page_faults"}
REPEATS, ENOUGH = 3, 20.0  # fits of which the fastest counts, while they took less seconds together


# -- data: X, y -----------------------------------------------------------------------------------


def digits(n=1797):
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    return X[:n] / 16, y[:n]


def standardised(name):
    import sklearn.datasets
    from sklearn.preprocessing import StandardScaler

    X, y = getattr(sklearn.datasets, f"load_{name}")(return_X_y=True)
    return StandardScaler().fit_transform(X), y


def blobs(n, d, classes=10):
    from sklearn.datasets import make_blobs

    return make_blobs(n, d, centers=classes, cluster_std=4.0, random_state=0)


def swiss_roll(n):
    from sklearn.datasets import make_swiss_roll

    return make_swiss_roll(n, random_state=0)[0], None


def repeated_rows():
    X, y = standardised("iris")
    return X.round(0), y


def reduced(name):
    """The training part of MNIST or isolet on its principal components, in float32."""
    from benchmarks.lmnn.data import load

    X, _, y, _ = load(name)
    return X.astype("float32"), y


# -- fits: class, parameters, data ----------------------------------------------------------------

FITS = {
    "lmnn iris": ("LMNN", {}, lambda: standardised("iris")),
    "lmnn wine": ("LMNN", {}, lambda: standardised("wine")),
    "lmnn digits": ("LMNN", {}, digits),
    "lmnn digits float32": ("LMNN", {}, lambda: (digits()[0].astype("float32"), digits()[1])),
    "lmnn digits tol": ("LMNN", {"tol": 1e-5}, digits),
    "lmnn digits rectangular": ("LMNN", {"n_components": 4}, digits),
    "lmnn digits passes": ("LMNN", {"n_passes": 3}, digits),
    "lmnn digits held out": ("LMNN", {"validation_fraction": 0.3, "random_state": 0}, digits),
    "lmnn breast cancer": ("LMNN", {}, lambda: standardised("breast_cancer")),
    "lmnn repeated rows": ("LMNN", {}, repeated_rows),
    "lmnn 20000 points": ("LMNN", {"tol": 1e-2}, lambda: blobs(20000, 30)),
    "multi-metric wine": ("MultiMetricLMNN", {}, lambda: standardised("wine")),
    "multi-metric digits": ("MultiMetricLMNN", {}, lambda: digits(600)),
    "kernel lmnn wine": ("KernelLMNN", {}, lambda: standardised("wine")),
    "kernel lmnn digits": ("KernelLMNN", {"rank": 100}, lambda: digits(600)),
    "mcml wine": ("MCML", {"shrinkage": 0}, lambda: standardised("wine")),
    "mcml digits": ("MCML", {}, digits),
    "mcml projected gradient": (
        "MCML",
        {"solver": "projected-gradient", "shrinkage": 0.1},
        lambda: standardised("iris"),
    ),
    "kernel mcml wine": ("KernelMCML", {}, lambda: standardised("wine")),
    "kernel mcml digits": ("KernelMCML", {}, lambda: digits(400)),
    "nca wine": ("NCA", {}, lambda: standardised("wine")),
    "nca digits": ("NCA", {"n_components": 10}, digits),
    "nca diagonal": ("NCA", {"diagonal": True}, lambda: standardised("breast_cancer")),
    "mmc wine": ("MMC", {"shrinkage": 0}, lambda: standardised("wine")),
    "mmc digits": ("MMC", {"n_pairs": 5000, "shrinkage": 0.1, "random_state": 0}, digits),
    "mmc diagonal": ("MMC", {"diagonal": True, "shrinkage": 0}, lambda: standardised("wine")),
    "kernel mmc wine": (
        "KernelMMC",
        {"n_pairs": 500, "random_state": 0},
        lambda: standardised("wine"),
    ),
    "dml-eig wine": ("DMLEig", {"shrinkage": 0}, lambda: standardised("wine")),
    "dml-eig digits": (
        "DMLEig",
        {"n_pairs": 5000, "shrinkage": 0.1, "random_state": 0},
        digits,
    ),
    "dml-eig lecture": (
        "DMLEig",
        {"solver": "lecture", "tol": 0.5, "shrinkage": 0},
        lambda: standardised("iris"),
    ),
    "pola wine": ("POLA", {"n_pairs": 2000, "random_state": 0}, lambda: standardised("wine")),
    "kernel pola wine": (
        "KernelPOLA",
        {"n_pairs": 500, "random_state": 0},
        lambda: standardised("wine"),
    ),
    "rca digits": ("RCA", {"shrinkage": 0.1}, digits),
    "rca 100000 points": ("RCA", {"shrinkage": 0}, lambda: blobs(100_000, 64)),
    "mvu 200": ("MVU", {"n_neighbors": 6}, lambda: swiss_roll(200)),
    "mvu 500": ("MVU", {}, lambda: swiss_roll(500)),
    "mvu slack": ("MVU", {"constraints": "slack"}, lambda: swiss_roll(300)),
    "landmark mvu": ("LandmarkMVU", {"n_neighbors": 8}, lambda: swiss_roll(1500)),
    "variational mvu": ("VariationalMVU", {"n_neighbors": 8}, lambda: swiss_roll(3000)),
    "classical mds": ("ClassicalMDS", {}, lambda: swiss_roll(1000)),
    "metric mds": ("MetricMDS", {"random_state": 0}, lambda: swiss_roll(400)),
    "nonmetric mds": ("NonmetricMDS", {"random_state": 0}, lambda: swiss_roll(200)),
    "local mds": ("LocalMDS", {"n_neighbors": 8, "random_state": 0}, lambda: swiss_roll(400)),
}
SLOW = {
    "lmnn mnist60000": (
        "LMNN",
        {"tol": 1e-2, "shrinkage": 0},
        lambda: reduced("mnist60000"),
    ),
    "lmnn mnist60000 default": ("LMNN", {}, lambda: reduced("mnist60000")),
    "mcml mnist10000": ("MCML", {}, lambda: reduced("mnist10000")),
    "nca mnist10000": ("NCA", {}, lambda: reduced("mnist10000")),
    "multi-metric mnist10000": ("MultiMetricLMNN", {}, lambda: reduced("mnist10000")),
    "multi-metric isolet": ("MultiMetricLMNN", {}, lambda: reduced("isolet")),
    "pola mnist10000": (
        "POLA",
        {"n_pairs": 20_000, "random_state": 0},
        lambda: reduced("mnist10000"),
    ),
    "kernel lmnn all digits": ("KernelLMNN", {}, digits),
    "kernel mcml all digits": ("KernelMCML", {}, digits),
    "kernel mmc all digits": ("KernelMMC", {"n_pairs": 20_000, "random_state": 0}, digits),
}
SMOKE = ("lmnn iris", "mmc wine", "rca digits", "classical mds")


def measure(name):
    """Fit, and say what came out; in the process of the fit alone."""
    import resource
    import warnings

    import nearfar

    kind, parameters, make = (FITS | SLOW)[name]
    X, y = make()
    seconds, usages, began = [], [], time.perf_counter()
    while len(seconds) < REPEATS and (not seconds or time.perf_counter() - began < ENOUGH):
        model = getattr(nearfar, kind)(**parameters)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            before, start = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
            model.fit(X) if y is None else model.fit(X, y)
            seconds.append(time.perf_counter() - start)
            after = resource.getrusage(resource.RUSAGE_SELF)
        used = (getattr(after, key) - getattr(before, key) for key in USAGE)
        usages.append(dict(zip(USAGE.values(), used, strict=True)))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * common.MAXRSS_BYTES
    return {
        "objective": float(model.objective_),
        "gap": None if model.duality_gap_ is None else float(model.duality_gap_),
        "status": model.status_,
        "n_iter": int(model.n_iter_),
        "seconds": min(seconds),
        **usages[seconds.index(min(seconds))],
        "peak_mb": peak / 1e6,
        "tol": getattr(model, "tol", 0.0),
    }


def measure_all(names):
    """Each in a process of its own; what fails is recorded by the last line that it wrote."""
    found = {}
    for name in names:
        command = [sys.executable, "-m", "benchmarks.fits", "--fit", name]
        done = subprocess.run(
            command, cwd=common.ROOT, capture_output=True, text=True, timeout=LIMIT, check=False
        )
        if done.returncode:
            found[name] = {"error": done.stderr.strip().splitlines()[-1]}
        else:
            found[name] = json.loads(done.stdout)
        print(f"{name:<26} {json.dumps(found[name])}", flush=True)
    return found


# -- two versions ---------------------------------------------------------------------------------


def compare(before, after):
    """Print a row a fit; return what is worse than the tolerances allow."""
    worse = []
    heads = f"{'objective':>12} {'change':>9} {'gap':>15} {'iterations':>11} {'seconds':>15}"
    print(f"{'fit':<26} {heads}")
    for name, new in after.items():
        old = before.get(name, {"error": "not measured"})
        if "error" in new or "error" in old:
            print(f"{name:<26} {old.get('error', 'fine')} -> {new.get('error', 'fine')}")
            if "error" in new and "error" not in old:
                worse.append(f"{name} fails")
            continue
        least = MARGIN if (FITS | SLOW)[name][0].endswith(("LMNN", "MCML")) else 0.0
        change = (new["objective"] - old["objective"]) / max(abs(old["objective"]), least, 1e-300)
        if abs(change) > max(2 * new["tol"], ROUNDING):
            worse.append(f"{name}: the objective differs by {change:.1e}")
        met = max(old["tol"], ROUNDING)
        if old["gap"] is not None and old["gap"] <= met < (new["gap"] or 0.0):
            worse.append(f"{name}: gap {new['gap']:.1e}, where it was {old['gap']:.1e}")
        ratio = new["seconds"] / old["seconds"]
        slow = ratio > SLOWER and new["seconds"] - old["seconds"] > LEAST_SECONDS
        gaps = " ".join("-" if each["gap"] is None else f"{each['gap']:.1e}" for each in (old, new))
        print(
            f"{name:<26} {new['objective']:>12.6g} {change:>9.1e} {gaps:>15}"
            f" {old['n_iter']:>5} {new['n_iter']:>5} {old['seconds']:>7.3f} {new['seconds']:>7.3f}"
            f"{'  slower' if slow else ''}"
        )
    return worse


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, help="file to write the figures to")
    parser.add_argument("--only", help="fits whose name holds this")
    parser.add_argument("--compare", type=Path, nargs=2, metavar=("BEFORE", "AFTER"))
    parser.add_argument("--smoke", action="store_true", help="four fits")
    parser.add_argument("--slow", action="store_true", help="fits that take seconds to minutes")
    parser.add_argument("--fit", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.fit:
        print(json.dumps(measure(arguments.fit)))
        return 0
    if arguments.compare:
        worse = compare(*(json.loads(path.read_text())["fits"] for path in arguments.compare))
        print("\n".join(worse) or "nothing is worse than its tolerance allows")
        return 1 if worse else 0
    fits = SLOW if arguments.slow else FITS
    names = SMOKE if arguments.smoke else [n for n in fits if (arguments.only or "") in n]
    found = measure_all(names)
    if arguments.output:
        record = {"commit": common.commit(), "date": common.now(), "machine": common.machine()}
        arguments.output.write_text(json.dumps(record | {"fits": found}, indent=1) + "\n")
    return 1 if any("error" in each for each in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
