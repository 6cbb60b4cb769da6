"""The methods that metric-learn has, too: objective and seconds of both, on the same data.

    python -m benchmarks.metric_learn_methods            # makes metric-learn's environment first
    python -m benchmarks.metric_learn_methods --peers '' # nearfar alone
    python -m benchmarks.metric_learn_methods --smoke    # small data: as in the tests
    python -m benchmarks.metric_learn_methods --record   # writes the record and its page

Every fit runs in a process of its own, with one thread; seconds are those of the processor, which
other programs on the machine do not change much. Objectives are computed here, in float64,
from the map that the process leaves, by the definitions of the pages: neither library's own figures
are used. LFDA's is to be large and all others small. Of quick methods each process repeats the fit,
and the shortest time counts. Closed forms are also timed on data of more features, where calls and
checks do not outweigh the computations, as they do on digits: normal classes, and, from the folder
NEARFAR_DATA, MNIST and isolet. They stand beside two yardsticks. The first is the product XᵀX and
one eigendecomposition of it, which is all that Covariance needs. The second are the products and
decompositions of the method's own formula, one call of BLAS or LAPACK each, without checks, sums
over classes and proofs. Those of GMML are factors of both scatters, and two eigendecompositions,
for the geometric mean and for orthogonal rows. Those of LFDA are, for each class, the products of
all pairs of its points, their exponentials and the product of these with the points, and then the
scatters and the leading eigenvectors of one matrix. So neither comes down to 1.5 times the first
yardstick: the last column has the second in units of it. MLKR has a tolerance of 1e-8.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
METHODS = ("covariance", "gmml", "lfda", "itml", "lsml", "sdml", "scml", "mlkr")
# Fitted twice, and the second fit is timed, as are all of nearfar: modules are loaded when they are
# first used.
QUICK = ("covariance", "gmml", "lfda", "lsml", "sdml")
CLOSED = ("covariance", "gmml", "lfda")
OWN = ("gmml", "lfda")  # whose formulas need more than one product and one eigendecomposition
YARDSTICKS = ("eigendecomposition", "formula")
REPEATED = (*QUICK, "mlkr")
WIDE = {"normal": (5000, 500), "mnist": (5000, 164), "isolet": (7797, 617)}
REPEATS = 5  # of these, of which the fastest counts
LIMIT = 240.0  # seconds of one fit
NEIGHBOURS = 7  # of LFDA
ROWS = 5  # of its map
SPARSITY = 1e-5  # the price of the trace of SCML, metric-learn's default
ENTRIES = 0.01  # the price of the entries of SDML, the default of both
PRECISE = 1e-8  # the tolerance of MLKR, at which the objective is no higher than metric-learn's
SEED = 0


# -- data ----------------------------------------------------------------------------------------


def wide_data(name):
    """Points and labels of more features, or None if the folder does not have them."""
    from sklearn.decomposition import PCA

    n, d = WIDE[name]
    if name == "normal":
        random = np.random.default_rng(SEED)
        y = np.arange(n) % 10
        return {"X": random.normal(size=(n, d)) + random.normal(size=(10, d))[y], "y": y}
    path = Path(os.environ.get("NEARFAR_DATA", ""), f"{name}.npz")
    if not path.is_file():
        return None
    with np.load(path) as arrays:
        X, y = arrays["X"][:n].reshape(n, -1).astype(np.float64), arrays["y"][:n]
    return {"X": X if X.shape[1] == d else PCA(d, random_state=SEED).fit_transform(X), "y": y}


def make_data(method, smoke):
    """Arrays for a method, as a process reads them."""
    from sklearn.datasets import load_digits, make_friedman1
    from sklearn.decomposition import PCA

    from nearfar import make_pairs, make_quadruplets, make_triplets

    if method == "mlkr":
        X, y = make_friedman1(60 if smoke else 1200, noise=1.0, random_state=SEED)
        return {"X": X, "y": y}
    X, y = load_digits(return_X_y=True)
    X = PCA(10 if smoke else 40, random_state=SEED).fit_transform(X)[: 200 if smoke else None]
    X, y = X / X.std(), y[: len(X)]
    data = {"X": X, "y": y}
    count = 100 if smoke else 1000
    if method == "itml":
        pairs, kinds = make_pairs(X, y, count, random_state=SEED)
        squares = ((X[pairs.indices[:, 0]] - X[pairs.indices[:, 1]]) ** 2).sum(axis=1)
        bounds = np.percentile(squares, [5, 95])
        data |= {"indices": pairs.indices, "kinds": kinds, "bounds": bounds}
    if method == "sdml":
        pairs, kinds = make_pairs(X, y, count, random_state=SEED)
        differences = X[pairs.indices[:, 0]] - X[pairs.indices[:, 1]]
        smallest = np.linalg.eigvalsh(differences.T @ (kinds[:, None] * differences))[0]
        data |= {"indices": pairs.indices, "kinds": kinds, "balance": -0.5 / smallest}
    if method == "lsml":
        data |= {"indices": make_quadruplets(X, y, 2 * count, random_state=SEED).indices}
    if method == "scml":
        data |= {"indices": make_triplets(X, y, 2 * count, random_state=SEED).indices}
    return data


# -- one fit, in a process of either environment -------------------------------------------------


def fit_nearfar(method, data):
    import nearfar

    X, y = data["X"], data.get("y")
    if method == "itml":
        model = nearfar.ITML(bounds=data["bounds"])
        arguments = (nearfar.Tuples(X, data["indices"]), data["kinds"])
    elif method == "sdml":
        model = nearfar.SDML(balance=float(data["balance"]), sparsity_weight=ENTRIES)
        arguments = (nearfar.Tuples(X, data["indices"]), data["kinds"])
    elif method == "lsml":
        model, arguments = nearfar.LSML(), (nearfar.Tuples(X, data["indices"]),)
    elif method == "scml":
        far = X[data["indices"][:, 0]] - X[data["indices"][:, 2]]
        weight = SPARSITY / (far**2).sum(axis=1).mean()
        model = nearfar.SCML(sparsity_weight=weight)
        arguments = (nearfar.Tuples(X, data["indices"]),)
    else:
        papers = {"shrinkage": 0.0}  # nothing of the inputs' distance is kept
        options = {"lfda": {"n_components": ROWS, **papers}, "gmml": papers}.get(method, {})
        options = {"mlkr": {"tol": PRECISE}}.get(method, options)
        names = {"covariance": "Covariance"}
        model = getattr(nearfar, names.get(method, method.upper()))(**options)
        arguments = (X, y)
    began = time.process_time()
    model.fit(*arguments)
    return model.components_, time.process_time() - began, model.duality_gap_


def fit_metric_learn(method, data):
    import metric_learn

    X, y, options = data["X"], data.get("y"), {}
    if method == "itml":
        model, arguments = metric_learn.ITML(), (X[data["indices"]], data["kinds"])
        options = {"bounds": data["bounds"]}
    elif method == "sdml":
        model = metric_learn.SDML(balance_param=float(data["balance"]), sparsity_param=ENTRIES)
        arguments = (X[data["indices"]], data["kinds"])
    elif method == "lsml":
        model, arguments = metric_learn.LSML(), (X[data["indices"]],)
    elif method == "scml":
        model = metric_learn.SCML(beta=SPARSITY, random_state=SEED)
        arguments = (X[data["indices"]],)
    elif method == "lfda":
        model, arguments = metric_learn.LFDA(n_components=ROWS, k=NEIGHBOURS), (X, y)
    else:
        kind = {"covariance": "Covariance", "mlkr": "MLKR"}[method]
        model, arguments = getattr(metric_learn, kind)(), (X, y)
    began = time.process_time()
    model.fit(*arguments, **options)
    return model.components_, time.process_time() - began, None


def fit_eigendecomposition(_, data):
    from scipy import linalg

    X = data["X"]
    began = time.process_time()
    _, vectors = linalg.eigh(X.T @ X, driver="evd")
    return vectors, time.process_time() - began, None


def fit_formula(method, data):
    """The products and decompositions of a formula; of scatters, stand-ins that take as long."""
    from scipy import linalg

    X, y = data["X"], data["y"]
    classes, d = [X[y == c] for c in np.unique(y)], X.shape[1]
    began = time.process_time()
    total = X.T @ X
    near = total + total.trace() / d * np.eye(d)
    if method == "gmml":
        F, R = linalg.cholesky(near, lower=True), linalg.cholesky(total)
        half = linalg.blas.dtrmm(1.0, F, R.T, lower=1, trans_a=1)
        values, V = linalg.eigh(half @ half.T, driver="evd")
        L = linalg.solve_triangular(F, V * values**0.25, trans="T", lower=True).T
        _, found = linalg.eigh(L.T @ L, driver="evd")
    else:
        for Z in classes:
            table = Z @ Z.T
            table /= table.max()
            np.exp(table, out=table)
            near += Z.T @ (table @ Z)
        _, found = linalg.eigh(total, near, subset_by_index=(d - ROWS, d - 1))
    return found, time.process_time() - began, None


FITS = {
    "nearfar": fit_nearfar,
    "metric-learn": fit_metric_learn,
    "eigendecomposition": fit_eigendecomposition,
    "formula": fit_formula,
}


def work(library, method, source, target):
    """What a process does."""
    with np.load(source) as arrays:
        data = dict(arrays)
    if method in QUICK or library == "nearfar":
        FITS[library](method, data)  # loads what is loaded when it is first used
    repeats = REPEATS if method in REPEATED else 1
    found = [FITS[library](method, data) for _ in range(repeats)]
    components, seconds, gap = min(found, key=lambda each: each[1])
    Path(target).write_text(
        json.dumps({"components": np.asarray(components).tolist(), "seconds": seconds, "gap": gap})
    )


def measured(python, library, method, data):
    """The map, seconds and gap of a fit, or None if it ran past the limit or failed."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "data.npz"), Path(folder, "found.json")
        np.savez(source, **data)
        command = [str(python), __file__, "--work", library, method, str(source), str(target)]
        threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        paths = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
        if library == "nearfar":
            threads["PYTHONPATH"] = paths
        environment = {key: os.environ[key] for key in os.environ if key != "PYTHONPATH"} | threads
        try:
            subprocess.run(
                command, env=environment, timeout=LIMIT, check=True, capture_output=True, text=True
            )
        except subprocess.TimeoutExpired:
            return f"more than {LIMIT:.0f} s"
        except subprocess.CalledProcessError as error:
            return (error.stderr.strip().splitlines() or ["no message"])[-1]
        return json.loads(target.read_text())


# -- objectives ----------------------------------------------------------------------------------


def objective(method, L, data):
    """That of the page of the method, of a map L; None where there is none to compare."""
    X, M = data["X"], L.T @ L
    if method == "covariance":
        return float(np.trace(np.cov(X.T) @ M) - np.linalg.slogdet(M)[1])
    if method == "lfda":
        return fisher(L, X, data["y"])
    if method == "mlkr":
        return leave_one_out(L, X, data["y"])
    if method == "itml":
        squares = lengths(M, X, data["indices"])
        near, (upper, lower) = data["kinds"] == 1, data["bounds"]
        ratios = np.where(near, np.maximum(squares / upper, 1), np.minimum(squares / lower, 1))
        return divergence(M) + float((ratios - np.log(ratios) - 1).sum())
    if method == "sdml":
        squares = lengths(M, X, data["indices"])
        entries = np.abs(M).sum() - np.abs(np.diag(M)).sum()
        wanted = float(data["balance"] * data["kinds"] @ squares + ENTRIES * entries)
        return divergence(M) + wanted
    if method == "lsml":
        a, c = (np.sqrt(lengths(M, X, data["indices"][:, k : k + 2])) for k in (0, 2))
        return divergence(M) + float((np.maximum(a - c, 0) ** 2).mean())
    if method == "scml":
        near, far = (lengths(M, X, data["indices"][:, [0, k]]) for k in (1, 2))
        return float(np.maximum(1 + near - far, 0).mean() + SPARSITY * np.trace(M))
    return None


def divergence(M):
    """LogDet, from the identity."""
    return float(np.trace(M) - np.linalg.slogdet(M)[1] - len(M))


def lengths(M, X, rows):
    difference = X[rows[:, 0]] - X[rows[:, 1]]
    return np.einsum("ij,jk,ik->i", difference, M, difference)


def fisher(L, X, y):
    n, within = len(X), 0.0
    total = (X - X.mean(axis=0)).T @ (X - X.mean(axis=0))
    plain, local = 0.0, 0.0
    for c in np.unique(y):
        Z = X[y == c] - X[y == c].mean(axis=0)
        squares = ((Z[:, None] - Z) ** 2).sum(axis=2)
        scale = np.sqrt(np.sort(squares, axis=1)[:, NEIGHBOURS])
        A = np.exp(-squares / np.outer(scale, scale))
        scatter = Z.T @ (A.sum(axis=1)[:, None] * Z) - Z.T @ A @ Z
        within = within + scatter / len(Z)
        local, plain = local + scatter, plain + len(Z) * Z.T @ Z
    between = (n * total - plain + local) / n - within
    return float(np.trace(np.linalg.solve(L @ within @ L.T, L @ between @ L.T)))


def leave_one_out(L, X, y):
    Z = X @ L.T
    squares = ((Z[:, None] - Z) ** 2).sum(axis=2)
    np.fill_diagonal(squares, np.inf)
    weights = np.exp(squares.min(axis=1, keepdims=True) - squares)
    return float(((weights @ y / weights.sum(axis=1) - y) ** 2).sum())


# -- the table -----------------------------------------------------------------------------------


def cases(methods, smoke):
    """Method, name of the data and arrays, one after the other."""
    for method in methods:
        yield method, "friedman1" if method == "mlkr" else "digits", make_data(method, smoke)
        for name in WIDE if method in CLOSED and not smoke else ():
            data = wide_data(name)
            if data is not None:
                yield method, name, data


def row_of(method, name, library, python, data):
    """A row of the table, as a dictionary."""
    row = {"method": method, "data": name, "shape": list(data["X"].shape), "library": library}
    found = measured(python, library, method, data)
    if isinstance(found, str):
        return row | {"failed": found}
    value = None
    if library not in YARDSTICKS:
        value = objective(method, np.array(found["components"]), data)
    return row | {"seconds": found["seconds"], "objective": value, "gap": found["gap"]}


def table_row(row):
    """The same in a table."""
    head = f"| {row['method']} | {row['data']} {' x '.join(map(str, row['shape']))} |"
    if "failed" in row:
        return f"{head} {row['library']} | {row['failed']} | | |"
    gap = "" if row["gap"] is None else f"{row['gap']:.1e}"
    value = "" if row["objective"] is None else f"{row['objective']:.8g}"
    return f"{head} {row['library']} | {row['seconds']:.4f} | {value} | {gap} |"


HEAD = (
    "| method | data | library | seconds | objective | gap |\n| --- | --- | --- | --- | --- | --- |"
)


def page_of(record):
    """The page of a record."""
    rows = {(row["method"], row["data"], row["library"]): row for row in record["rows"]}
    shares = [
        "| method | data | metric-learn's time | objective less metric-learn's, relative |"
        " product and eigendecomposition | own formula | own formula beside the former |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for (method, name, library), row in rows.items():
        if library != "nearfar" or "failed" in row:
            continue
        peer = rows.get((method, name, "metric-learn"), {})
        least, own = (rows.get((method, name, yardstick), {}) for yardstick in YARDSTICKS)
        cells = [""] * 5
        if "seconds" in peer:
            cells[0] = f"{row['seconds'] / peer['seconds']:.3g}"
            cells[1] = f"{row['objective'] / peer['objective'] - 1:.1e}"
        if "seconds" in least:
            cells[2] = f"{row['seconds'] / least['seconds']:.2f}"
        if "seconds" in own:
            cells[3] = f"{row['seconds'] / own['seconds']:.2f}"
            cells[4] = f"{own['seconds'] / least['seconds']:.2f}"
        shares.append(
            f"| {method} | {name} {row['shape'][0]} x {row['shape'][1]} | {' | '.join(cells)} |"
        )
    what = (__doc__ or "").partition("Every fit")
    return "\n".join(
        [
            "# The methods of metric-learn",
            "",
            "Written by `python -m benchmarks.metric_learn_methods --record`.",
            "",
            (what[1] + what[2]).strip(),
            "",
            f"Commit {record['commit']}, {record['machine']['cpu']}, {record['time']}."
            " nearfar's share of the others' times:",
            "",
            *shares,
            "",
            "All rows:",
            "",
            HEAD,
            *map(table_row, record["rows"]),
            "",
        ]
    )


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--methods", default=",".join(METHODS), help="some of them, by commas")
    parser.add_argument("--peers", default="metric-learn", help="'' for nearfar alone")
    parser.add_argument("--environments", type=Path, default=Path(".peers"))
    parser.add_argument("--smoke", action="store_true", help="small data")
    parser.add_argument("--record", action="store_true", help="write the record and its page")
    parser.add_argument("--work", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.work:
        work(*options.work)
        return
    from benchmarks import common

    pythons = {"nearfar": sys.executable}
    if options.peers:
        pythons["metric-learn"] = common.python_of("metric-learn", options.environments)
    record = {"commit": common.commit(), "machine": common.machine(), "time": common.now()}
    record["rows"] = []
    print(HEAD)
    for method, name, data in cases(options.methods.split(","), options.smoke):
        libraries = dict(pythons)
        if method == "gmml":
            libraries.pop("metric-learn", None)
        if method in CLOSED:
            libraries["eigendecomposition"] = sys.executable
        if method in OWN:
            libraries["formula"] = sys.executable
        for library, python in libraries.items():
            record["rows"].append(row_of(method, name, library, python, data))
            print(table_row(record["rows"][-1]), flush=True)
    if options.record:
        text = json.dumps(record, indent=1) + "\n"
        common.write_text(ROOT / "benchmarks" / "results" / "metric_learn_methods.json", text)
        page = ROOT / "docs" / "results" / "metric_learn_methods.md"
        common.write_text(page, page_of(record))


if __name__ == "__main__":
    main()
