"""What the benchmarks over many splits share: records that an interrupted run continues.

A row is a data set and a method with its splits. A split is saved as soon as it is measured, and
left out of the next run.
"""

import argparse
import json
import platform
import sys
import tempfile
from importlib import metadata
from pathlib import Path

from benchmarks import common

PACKAGES = ("numpy", "scipy", "scikit-learn", "torch", "umap-learn", "pymde")


class Records:
    """What is measured on one machine: a row for each data set and method, with its splits."""

    def __init__(self, path, facts, order):
        """``order`` are the pairs of data set and method in the order of the file."""
        self.path, self.facts, self.order = path, facts, order
        self.rows = {}
        if path.exists():
            saved = json.loads(path.read_text())
            self.rows = {(row["data"], row["method"]): row for row in saved["rows"]}

    def missing(self, data, split, methods):
        """The methods that have not been measured on a split."""
        return [method for method in methods if split not in self._splits(data, method)]

    def _splits(self, data, method):
        row = self.rows.get((data, method), {"splits": []})
        return {split for split, *_ in row["splits"]}

    def add(self, data, method, split, stamp):
        """Save what was measured of a split: a list that begins with the split's number."""
        row = self.rows.setdefault(
            (data, method), {"data": data, "method": method, "stamps": [], "splits": []}
        )
        if stamp not in row["stamps"]:
            row["stamps"].append(stamp)
        row["splits"].append(split)
        row["splits"].sort(key=lambda entry: entry[0])
        self._write()

    def _write(self):
        """One row a line."""
        place = self.order.index
        rows = sorted(self.rows.values(), key=lambda r: place((r["data"], r["method"])))
        body = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
        common.write_text(
            self.path, json.dumps(self.facts)[:-1] + ', "rows": [\n' + body + "\n]}\n"
        )


def run_script(arguments, stem, measure_all, page, draw=None):
    """What a script of records does: measure and write the page, or only write it (``--table``).

    ``measure_all(arguments)`` measures what is missing and answers with what failed; a smoke run
    keeps nothing and prints the page. ``draw(records, folder)`` draws pictures into the folder
    ``images`` beside that of the page. The answer is the exit status.
    """
    with tempfile.TemporaryDirectory() as folder:
        if arguments.smoke:
            arguments.results, arguments.page = Path(folder), Path(folder) / "results" / "page.md"
        failures = [] if arguments.table else measure_all(arguments) or []
        text = common.write_page(arguments, stem, page)
        records = common.read_records(arguments.results, stem)
        if draw is not None and records:
            images = arguments.page.parent.parent / "images"
            images.mkdir(parents=True, exist_ok=True)
            draw(records, images)
        if arguments.smoke:
            print(text)
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0


def open_records(arguments, stem, order):
    """The records of this machine, and the stamp of what is measured now."""
    about = facts(arguments.device)
    stamp = f"{common.commit()} {common.now()[:10]} {arguments.device}"
    return Records(record_path(arguments, stem, about["machine"]), about, order), stamp


def record_path(arguments, stem, machine):
    """The file of the records of a machine, by the name given or that of its processor."""
    named = machine.get("device") or f"{machine['cpu']} {machine['cores']} cores"
    return arguments.results / f"{stem}-{arguments.machine or common.slug(named)}.json"


def facts(device):
    """The machine and the versions."""
    machine = common.machine()
    if device != "cpu":
        import torch

        machine["device"] = torch.cuda.get_device_name(device)
    versions = {"python": platform.python_version()}
    versions |= {name: metadata.version(name) for name in PACKAGES if _installed(name)}
    return {"machine": machine, "versions": versions}


def _installed(name):
    try:
        return bool(metadata.version(name))
    except metadata.PackageNotFoundError:
        return False


def available(names, check):
    """The data sets that can be had here; what cannot is said."""
    kept = []
    for name in names:
        try:
            check(name)
            kept.append(name)
        except common.UnavailableError as error:
            print(f"{name}: left out: {error}", flush=True)
    return kept


def chosen(known, groups):
    """A reader of names, or of groups of them, with commas between."""

    def read(text):
        names = [n for name in text.split(",") if name for n in groups.get(name, (name,))]
        unknown = [name for name in names if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(
                f"no {unknown[0]!r}; expected some of {', '.join([*groups, *known])}"
            )
        return [name for name in known if name in names]

    return read


def machines(records):
    """A section of a page: where and with what the records were measured."""
    lines = ["## Machines\n"]
    for record in records:
        machine = record["machine"]
        stamps = sorted({stamp for row in record["rows"] for stamp in row["stamps"]})
        versions = ", ".join(f"{name} {v}" for name, v in record["versions"].items())
        cores = f"{machine['cores']} core" + ("s" if machine["cores"] != 1 else "")
        parts = [machine.get("device"), f"{machine['cpu']}, {cores}"]
        lines.append(
            f"- {', '.join(part for part in parts if part)}, {machine['memory_gb']} GB, "
            f"{machine['system']}; {versions}; commits, dates and devices: {'; '.join(stamps)}."
            + (f" {record['note']}" if "note" in record else "")
        )
    return "\n".join(lines) + "\n"


def best_rows(records):
    """The row of each data set and method with the most splits."""
    rows = {}
    for number, record in enumerate(records):
        for row in record["rows"]:
            key = row["data"], row["method"]
            if key not in rows or len(row["splits"]) >= len(rows[key]["splits"]):
                rows[key] = row | {"machine": number}
    return rows
