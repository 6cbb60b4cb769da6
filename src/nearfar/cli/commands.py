"""What the command line accepts. The work is in `fit` and `use`, imported when it starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from nearfar import __version__

_FILE = click.Path(path_type=Path)
_force = click.option("--force", is_flag=True, help="Replace the output file if it exists.")
# Read by nearfar.cli.main from the arguments; declared here for the parser and the help.
_debug = click.option(
    "--debug", is_flag=True, expose_value=False, help="Show the traceback of an error."
)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.version_option(__version__, message="nearfar %(version)s")
@_debug
def nearfar() -> None:
    """Learn a distance from labelled points, with a proof of how optimal it is."""


@nearfar.command()
@click.argument("table", type=_FILE, required=False)
@click.option("-t", "--target", metavar="COLUMN", help="Column of class labels in TABLE.")
@click.option("-o", "--output", type=_FILE, default=Path("model.nearfar"), help="Model file.")
@click.option("--method", type=click.Choice(["lmnn"]), default="lmnn", help="What to learn.")
@click.option(
    "-k", "--neighbors", type=click.IntRange(min=1), default=3, help="Target neighbours per point."
)
@click.option(
    "--push-weight",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.5,
    help="Weight of pushing impostors away, against pulling neighbours in (mu in the papers).",
)
@click.option(
    "--components", type=click.IntRange(min=1), metavar="R", help="Learn a map to R dimensions."
)
@click.option(
    "--reduce",
    type=click.Choice(["learn", "project"]),
    help="How --components gets there: learn the map (default), or project the square metric.",
)
@click.option(
    "--tol", type=click.FloatRange(min=0), default=1e-3, help="Certified relative gap to reach."
)
@click.option("--max-iter", type=click.IntRange(min=1), default=1000, help="Iterations at most.")
@click.option(
    "--max-seconds", type=click.FloatRange(min=0, min_open=True), help="Seconds of fit at most."
)
@click.option(
    "--test-share",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.3,
    help="Share of the rows kept for testing; 0 fits on all rows and tests nothing.",
)
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, help="Seed of the split.")
@click.option(
    "--checkpoint", type=_FILE, help="Write the state of the fit here, and resume from it."
)
@_force
@_debug
def fit(**options: Any) -> int:
    """Learn a metric from TABLE and save it.

    TABLE is a CSV, Parquet, NPY or NPZ file, or the name of a built-in set: breast_cancer, digits,
    iris or wine. Without TABLE, digits. Prints the kNN error of the metric and of the usual ones
    on the same test rows.
    """
    from nearfar.cli.fit import FitOptions, run

    return run(FitOptions(**options))


@nearfar.command()
@click.argument("model", type=_FILE)
@click.argument("table", type=_FILE)
@click.option(
    "-o", "--output", type=_FILE, required=True, help="A .csv, .parquet, .npy or .npz file."
)
@click.option("-t", "--target", metavar="COLUMN", help="Column of TABLE to leave out.")
@_force
@_debug
def transform(model: Path, table: Path, output: Path, target: str | None, force: bool) -> None:
    """Map the points of TABLE to where distances are Euclidean."""
    from nearfar.cli.use import transform_table

    transform_table(model, table, output, target, force)


@nearfar.command()
@click.argument("model", type=_FILE)
@click.argument("train", type=_FILE)
@click.argument("test", type=_FILE)
@click.option("-t", "--target", metavar="COLUMN", help="Column of class labels in both tables.")
@click.option(
    "-k", "--neighbors", type=click.IntRange(min=1), help="Neighbours that vote [the model's]."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@_debug
def evaluate(
    model: Path, train: Path, test: Path, target: str | None, neighbors: int | None, as_json: bool
) -> None:
    """Compare the kNN error of MODEL with the Euclidean one: TRAIN votes, TEST is classified."""
    from nearfar.cli.use import evaluate_model

    evaluate_model(model, train, test, target, neighbors, as_json)
