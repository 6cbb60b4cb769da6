"""The records as Markdown: ``python -m benchmarks.lmnn.millions`` writes them."""

from benchmarks.tables import digits, markdown

INTRODUCTION = """\
# How far does it scale?

`python -m benchmarks.lmnn.millions --table` writes this page from
`benchmarks/results/millions-*.json`; do not edit it. `benchmarks/README.md` says how to repeat
the runs. *digits* are the training digits of MNIST, turned, scaled, shifted and bent at random as
in infinite MNIST, on the principal components of the first 60000; they are made on the device from
a seed, and the test digits are those of MNIST as they are. *covertype* has all features at one
scale and 10000 rows to test on. `LMNN(shrinkage=0)` learns in float32 with three neighbours: the
papers' program.

*Seconds* are those of `fit`, from tensors on the device to the certified metric, after a fit to
10000 digits with as many columns, which compiles the kernels; on the CPU rows are arrays. *Memory*
is the most that all tensors had on the device, the data among them; on the CPU it is by how much
the resident memory rose, beside the data. *Gap* is certified over all pairs. A judge that shares no
code with nearfar recomputes it: the *bound* from the dual point in `proof_`, over all its triplets,
and the *objective* from 4000 drawn rows, each compared with all points, with its standard error. It
also checks the target neighbours of some rows. Where it disagrees, the command ends with an error.

Rows *in 4 GB* stayed in host memory and streamed through the device (`nearfar.Streamed`), with that
`memory_limit`.

*Error* is that of three nearest neighbours among all rows, in per cent of the test rows. *Sample*
is a fit to 60000 of the rows: its seconds, the error if all rows are neighbours under its metric,
and the error if only the sample is.
"""
HEADER = ["data", "rows", "columns", "tol", "seconds", "memory GB", "data GB", "iterations"]
HEADER += ["searches", "gap", "judged objective", "judged bound"]
ERRORS = ["data", "rows", "inputs %", "learned %", "sample s", "its metric %", "sample alone %"]


def page(records):
    """docs/results/millions.md from the records, one section a machine."""
    return "\n".join([INTRODUCTION, *(_section(record) for record in records)])


def _section(record):
    machine, rows = record["machine"], record["runs"]
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    commits, dates = (sorted({row[key] for row in rows}) for key in ("commit", "date"))
    done = [row for row in rows if "reason" not in row]
    failed = [f"- {row['name']}: {row['reason']}" for row in rows if "reason" in row]
    unmet = [
        f"- {row['name']}: ended with status {row['status']!r} before tol={row['tol']:g}"
        for row in done
        if row["status"] != "converged"
    ]
    sampled = [row for row in done if "sample_error" in row]
    return "\n".join(
        [
            f"## {machine.get('device') or machine['cpu']}\n",
            f"{machine['cpu']}, {machine['cores']} cores, {record['threads']} threads, "
            f"{machine['memory_gb']} GB, {machine['system']}; {versions}; commit "
            f"{', '.join(commits)}; {dates[0]} to {dates[-1]}.\n",
            markdown(HEADER, [_row(row) for row in done]),
            markdown(ERRORS, [_errors(row) for row in sampled or done]),
            *(["Not reached:\n", *failed, *unmet, ""] if failed or unmet else []),
            *([record["note"] + "\n"] if "note" in record else []),
        ]
    )


def _row(row):
    off = digits(row.get("judged_error"), " ± {:.1g}")
    return [
        row["name"],
        f"{row['rows']:,}",
        str(row["columns"]),
        f"{row['tol']:g}",
        f"{row['seconds']:.3g}",
        digits(row["peak_gb"], "{:.3g}"),
        f"{row['data_gb']:.2g}",
        str(row["n_iter"]),
        str(row["searches"]),
        digits(row["gap"], "{:.1e}"),
        digits(row.get("judged_objective"), "{:.5g}") + off,
        digits(row.get("judged_bound"), "{:.5g}"),
    ]


def _errors(row):
    return [
        row["name"],
        f"{row['rows']:,}",
        f"{row['input_error']:.2f}",
        f"{row['error']:.2f}",
        digits(row.get("sample_seconds"), "{:.3g}"),
        digits(row.get("sample_error"), "{:.2f}"),
        digits(row.get("sample_alone_error"), "{:.2f}"),
    ]
