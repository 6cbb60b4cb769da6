"""About forty fits over all estimators on fixed data, to compare two versions of nearfar.

    python -m benchmarks.fits --output before.json            # on the old version
    python -m benchmarks.fits --output after.json             # on the new one
    python -m benchmarks.fits --compare before.json after.json
    python -m benchmarks.fits --smoke                          # a few of them: seconds, as in CI
    python -m benchmarks.fits --slow --output slow.json        # the slow ones instead: minutes
    python -m benchmarks.fits --against DIR --papers --output RECORD   # beside another checkout
    python -m benchmarks.fits --table                          # the page of such a record

Each fit runs in a process of its own. A file holds objective, gap, status, iterations, seconds (the
least of three fits), processor seconds of the same fit (those in the system, too, which are mostly
page faults, and the number of these) and peak memory of each. The comparison fails if an objective
differs by more than the tolerance of its fit, or a gap that was below it no longer is; it lists
fits that take more than a tenth longer. Data come with scikit-learn or are made, so that no file is
needed; the slow fits also read MNIST and isolet from the folder that NEARFAR_DATA names.

With ``--against`` each fit runs three times with the code of the other checkout and three times
with this one, by turns, so that both meet the same noise; the least of the times counts.
``--papers`` makes both solve the same program: that without shrinkage, or, where the metric must
have a price, that with the ``regularization`` that versions before shrinkage had. An ``--output``
of the same two commits is added to. ``--table`` writes docs/results/fits.md from
benchmarks/results/fits.json.
"""

import argparse
import inspect
import json
import os
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

from benchmarks import common, tables

LIMIT = 600  # seconds that a fit may take
MARGIN = 1.0  # to which tolerances of LMNN and MCML are relative where the objective is smaller
ROUNDING = 1e-6  # differences that are no tolerance's
SLOWER = 1.1  # ratio of seconds above which a fit is listed
LEAST_SECONDS = 0.1  # differences below it are noise
USAGE = {"ru_utime": "user_seconds", "ru_stime": "system_seconds", "ru_minflt": "page_faults"}
REPEATS, ENOUGH = 3, 20.0  # fits of which the fastest counts, while they took less seconds together
SHORT = 0.5  # seconds that are filled with fits, however many these are
ROUNDS, ENOUGH_OF_A_ROUND = 3, 2.0  # of two checkouts by turns, and seconds of fits in one of them


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
    "mvu 500": ("MVU", {"n_neighbors": 5}, lambda: swiss_roll(500)),
    "mvu slack": ("MVU", {"n_neighbors": 5, "constraints": "slack"}, lambda: swiss_roll(300)),
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

# What `--papers` changes besides shrinkage=0: versions before shrinkage get `regularization`, and
# others the shrinkage with the same price on the trace.
PAPERS = {
    "mcml projected gradient": {"shrinkage": 0},
    "kernel mcml wine": {"shrinkage": 0.5, "regularization": 0.1513466248251459},
    "kernel mcml digits": {"shrinkage": 0.5, "regularization": 0.14610390930374503},
    "kernel mcml all digits": {"shrinkage": 0.5, "regularization": 0.15872070295382626},
    "nca wine": {"init": "lda"},
    "nca digits": {"init": "lda"},
    "nca diagonal": {"init": "identity"},
    "nca mnist10000": {"init": "lda"},
} | {
    name: {"shrinkage": 1 / 11, "regularization": 0.1}
    for name in (
        "mmc digits",
        "kernel mmc wine",
        "kernel mmc all digits",
        "dml-eig digits",
        "rca digits",
    )
}

OTHERWISE = {  # how the program or the work differs nevertheless
    "mmc digits": "the metric also has a floor",
    "kernel mmc wine": "the metric also has a floor",
    "dml-eig digits": "the metric also has a floor",
    "rca digits": "the price is in the units of the features",
    "lmnn digits passes": "the second pass chooses its targets by the first metric",
    "lmnn digits held out": "other rows are held out, and other rows tell when to stop",
    "multi-metric digits": "ends at `max_iter`",
    "landmark mvu": "also proves a gap",
    "variational mvu": "also proves a gap",
}
RECORD = common.ROOT / "benchmarks" / "results" / "fits.json"
PAGE = common.ROOT / "docs" / "results" / "fits.md"


def parameters_of(name, kind, papers):
    """Those of the fit; with ``papers`` those of the same program in the version of ``kind``."""
    parameters = (FITS | SLOW)[name][1]
    if not papers:
        return parameters
    parameters = {"shrinkage": 0} | parameters | PAPERS.get(name, {})
    accepted = inspect.signature(kind).parameters
    left_out = "regularization" if "shrinkage" in accepted else "shrinkage"
    unknown = {"shrinkage", "regularization"} - set(accepted)
    return {each: value for each, value in parameters.items() if each not in {left_out} | unknown}


def measure(name, papers=False, enough=ENOUGH):
    """Fit, and say what came out; in the process of the fit alone."""
    import resource
    import warnings

    import nearfar

    kind, _, make = (FITS | SLOW)[name]
    parameters = parameters_of(name, getattr(nearfar, kind), papers)
    X, y = make()
    seconds, usages, began = [], [], time.perf_counter()

    def unfinished():
        spent = time.perf_counter() - began
        return not seconds or spent < SHORT or (len(seconds) < REPEATS and spent < enough)

    while unfinished():
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


def measured(name, root=common.ROOT, papers=False, enough=ENOUGH):
    """The fit in a process of its own, with the code below ``root``.

    What fails is recorded by the last line that it wrote.
    """
    command = [sys.executable, "-m", "benchmarks.fits", "--fit", name, "--enough", str(enough)]
    done = subprocess.run(
        command + ["--papers"] * papers,
        cwd=common.ROOT,
        env=os.environ | {"PYTHONPATH": str(root / "src")},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    if done.returncode:
        return {"error": done.stderr.strip().splitlines()[-1]}
    return json.loads(done.stdout)


def measure_all(names, papers):
    """Each fit with the code of this checkout."""
    found = {}
    for name in names:
        found[name] = measured(name, papers=papers)
        print(f"{name:<26} {json.dumps(found[name])}", flush=True)
    return found


# -- two versions ---------------------------------------------------------------------------------


def measure_by_turns(names, other, papers):
    """The fits of the checkout ``other`` and of this one, each the fastest of its rounds."""
    roots = {"before": other.resolve(), "after": common.ROOT}
    found = {side: {} for side in roots}
    for name in names:
        rounds = {side: [] for side in roots}
        for _ in range(ROUNDS):
            for side, root in roots.items():
                rounds[side].append(measured(name, root, papers, ENOUGH_OF_A_ROUND))
        for side, runs in rounds.items():
            found[side][name] = min(runs, key=lambda run: run.get("seconds", 0.0))
            print(f"{side:<6} {name:<26} {json.dumps(found[side][name])}", flush=True)
    return found


def compare(before, after):
    """Print a row a fit; return what is worse than the tolerances allow."""
    worse = []
    heads = f"{'objective':>12} {'change':>9} {'gap':>15} {'iterations':>11} {'seconds':>15}"
    heads += f" {'of a processor':>15}"
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
            f" {processor_seconds(old):>7.3f} {processor_seconds(new):>7.3f}"
            f"{'  slower' if slow else ''}"
        )
    return worse


def processor_seconds(fit):
    return fit["user_seconds"] + fit["system_seconds"]


def page(record):
    """The fits of two commits as a page."""
    sides = record["against"], record["commit"]
    header = ["fit", *(f"{what}, `{side[:7]}`" for what in ("s", "CPU s") for side in sides)]
    header += ["ratio of s", *(f"{what}, both" for what in ("iterations", "objective", "gap"))]
    header.append("differs")
    rows, slower = [], []
    for name, new in record["fits"].items():
        both = record["fits_before"][name], new
        ratio = both[1]["seconds"] / both[0]["seconds"]
        slower += [name] if ratio > SLOWER else []
        gaps = ["–" if each["gap"] is None else f"{each['gap']:.1e}" for each in both]
        rows.append(
            [
                name,
                *(f"{each['seconds']:.3g}" for each in both),
                *(f"{processor_seconds(each):.3g}" for each in both),
                f"**{ratio:.2f}**" if ratio > SLOWER else f"{ratio:.2f}",
                ", ".join(str(each["n_iter"]) for each in both),
                ", ".join(f"{each['objective']:.6g}" for each in both),
                ", ".join(gaps),
                OTHERWISE.get(name, ""),
            ]
        )
    by_much = sum(
        record["fits"][name]["seconds"] - record["fits_before"][name]["seconds"] >= LEAST_SECONDS
        for name in slower
    )
    return "\n".join(
        [
            "# Forty fits, beside an old version\n",
            "Written by `python -m benchmarks.fits --against DIR --papers`, with a checkout of"
            f" `{sides[0]}` in DIR. Each fit ran in {ROUNDS} processes with the code of either"
            " commit, by turns; the least of the times counts. Both solve the same program, that"
            " of the papers without `shrinkage`, where the last column says nothing else. CPU s are"
            f" seconds of the processor. Of {len(rows)} fits the ratio is above {SLOWER} in"
            f" {len(slower)}; of these, {by_much} took at least {LEAST_SECONDS:g} s longer.\n",
            tables.markdown(header, rows),
            tables.measured_on(record, ", both cores free", sides),
        ]
    )


def joined(path, record):
    """The record with the fits of an earlier one of the same two commits, in their usual order."""
    if "against" not in record or not path.exists():
        return record
    earlier = json.loads(path.read_text())
    if any(earlier.get(each) != record[each] for each in ("commit", "against")):
        return record
    for part in ("fits", "fits_before"):
        known = earlier[part] | record[part]
        record[part] = {name: known[name] for name in FITS | SLOW if name in known}
    return record


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, help="file to write the figures to")
    parser.add_argument("--only", help="fits whose name holds this, or one of these, by commas")
    parser.add_argument("--table", action="store_true", help="only write the page")
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--compare", type=Path, nargs=2, metavar=("BEFORE", "AFTER"))
    parser.add_argument("--against", type=Path, metavar="DIR", help="another checkout, by turns")
    parser.add_argument("--papers", action="store_true", help="programs without shrinkage")
    parser.add_argument("--smoke", action="store_true", help="four fits")
    parser.add_argument("--slow", action="store_true", help="fits that take seconds to minutes")
    parser.add_argument("--fit", help=argparse.SUPPRESS)
    parser.add_argument("--enough", type=float, default=ENOUGH, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.fit:
        print(json.dumps(measure(arguments.fit, arguments.papers, arguments.enough)))
        return 0
    if arguments.table:
        common.write_text(arguments.page, page(json.loads(RECORD.read_text())))
        return 0
    if arguments.compare:
        worse = compare(*(json.loads(path.read_text())["fits"] for path in arguments.compare))
        print("\n".join(worse) or "nothing is worse than its tolerance allows")
        return 1 if worse else 0
    fits = SLOW if arguments.slow else FITS
    parts = (arguments.only or "").split(",")
    names = SMOKE if arguments.smoke else [n for n in fits if any(part in n for part in parts)]
    record = {"commit": common.commit(), "date": common.now(), "machine": common.machine()}
    record["versions"] = {name: version(name) for name in ("numpy", "scipy", "scikit-learn")}
    if arguments.against:
        both = measure_by_turns(names, arguments.against, arguments.papers)
        worse, found = compare(both["before"], both["after"]), both["after"]
        print("\n".join(worse) or "nothing is worse than its tolerance allows")
        record |= {"against": common.commit(arguments.against), "fits_before": both["before"]}
    else:
        found = measure_all(names, arguments.papers)
    record["fits"] = found
    if arguments.output:
        common.write_text(arguments.output, json.dumps(joined(arguments.output, record), indent=1))
    return 1 if any("error" in each for each in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
