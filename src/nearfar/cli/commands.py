"""The commands and their options. The modules that do the work are imported when it starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from nearfar import __version__
from nearfar.cli.methods import MAPS, METHODS, PARAMETERS
from nearfar.cli.values import FiniteRange, auto_or_share, number_or_share, row_numbers, two_sizes

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
@click.option(
    "--drop",
    metavar="COLUMN",
    multiple=True,
    help="Column to leave out, such as an identifier; may be repeated.",
)
@click.option("-o", "--output", type=_FILE, default=Path("model.nearfar"), help="Model file.")
@click.option(
    "--standardise/--no-standardise",
    default=None,
    help="Divide features by their standard deviations first"
    "  [default: where units differ and it helps]",
)
@click.option(
    "--method", type=click.Choice(list(METHODS)), default="lmnn", help="Method to learn by."
)
@click.option(
    "-k",
    "--neighbors",
    type=click.IntRange(min=1),
    default=3,
    help="Neighbours that classify a row; for LMNN methods also the target neighbours.",
)
@click.option(
    "--test-share",
    type=FiniteRange(0, 1, max_open=True),
    default=0.3,
    help="Share of the rows kept for testing; 0 fits on all rows and tests nothing.",
)
@click.option(
    "--seed", type=click.IntRange(0, 2**32 - 1), default=0, help="Seed of the split and of the fit."
)
@click.option(
    "--rows",
    type=click.IntRange(min=2),
    metavar="N",
    help="Learn from N training rows drawn at random; all of them classify test rows.",
)
@click.option(
    "--dask",
    is_flag=True,
    help="Learn on a Dask cluster of this machine's cores; TABLE is a pattern of Parquet files.",
)
@click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Learn on the Dask cluster of this scheduler, such as tcp://10.0.0.1:8786.",
)
@click.option(
    "--push-weight",
    type=FiniteRange(0, 1, min_open=True, max_open=True),
    help="Weight of pushing impostors away; the rest pulls neighbours in (mu in the papers).",
)
@click.option(
    "--components", type=click.IntRange(min=1), metavar="R", help="Learn a map to R dimensions."
)
@click.option(
    "--reduce",
    type=click.Choice(["learn", "project"]),
    help="Learn the map to R dimensions directly, or learn a square metric and project it.",
)
@click.option(
    "--diagonal", is_flag=True, help="Learn one weight for each feature, and no rotation."
)
@click.option(
    "--passes",
    type=click.IntRange(min=1),
    help="Number of passes; each chooses the target neighbours under the last metric.",
)
@click.option(
    "--partition",
    type=click.Choice(["class", "kmeans", "spectral"]),
    help="What gets its own metric: each class, or clusters found by this method.",
)
@click.option(
    "--metrics",
    type=click.IntRange(min=1),
    help="Number of clusters for --partition kmeans or spectral.",
)
@click.option(
    "--kernel",
    type=click.Choice(["linear", "poly", "rbf", "laplacian", "cosine", "sigmoid"]),
    help="Kernel function.",
)
@click.option(
    "--gamma",
    type=FiniteRange(min=0, min_open=True),
    help="Scale gamma of the poly, rbf, laplacian and sigmoid kernels.",
)
@click.option(
    "--rank",
    metavar="N",
    callback=number_or_share,
    help="Directions of the feature space to keep: a count, or a share of the variance.",
)
@click.option(
    "--max-directions",
    type=click.IntRange(min=1),
    help="Most directions that kernel-pola keeps while it learns.",
)
@click.option(
    "--pca",
    metavar="N",
    callback=number_or_share,
    help="Principal components to keep before learning: a count, or a share of the variance.",
)
@click.option(
    "--shrinkage",
    metavar="SHARE",
    callback=auto_or_share,
    help="How much of the inputs' distance to keep: auto, or a number from 0 to below 1.",
)
@click.option(
    "--pairs",
    type=click.IntRange(min=1),
    help="Number of near pairs to draw, and as many far pairs.",
)
@click.option("--triplets", type=click.IntRange(min=1), help="Number of triplets to draw.")
@click.option("--quadruplets", type=click.IntRange(min=1), help="Number of quadruplets to draw.")
@click.option(
    "--beta",
    type=FiniteRange(min=0),
    help="Ignore pairs with a loss up to this; epochs end when no loss is above it.",
)
@click.option("--solver", metavar="NAME", help="Algorithm that finds the optimum.")
@click.option(
    "--tol", type=FiniteRange(min=0), help="Relative gap to the optimum at which the fit ends."
)
@click.option(
    "--certificate",
    type=click.Choice(["all", "sample"]),
    help="Compute the gap from all pairs of rows, or with 99.9 % confidence from a sample.",
)
@click.option("--max-iter", type=click.IntRange(min=1), help="Largest number of iterations.")
@click.option(
    "--max-seconds",
    type=FiniteRange(min=0, min_open=True),
    help="Time limit of the fit in seconds.",
)
@click.option(
    "--validation-fraction",
    type=FiniteRange(0, 1, min_open=True, max_open=True),
    help="Share of the training rows held out to stop early, when their error no longer falls.",
)
@click.option(
    "--checkpoint",
    type=_FILE,
    help="File in which the fit saves its state, and from which it resumes.",
)
@_force
@_debug
def fit(**options: Any) -> int:
    """Learn a metric from TABLE and save it.

    TABLE is a CSV, Parquet, NPY or NPZ file, or the name of a built-in set: breast_cancer, digits
    (the default), iris or wine. Prints the kNN error of the learned metric and of the usual
    distances on the same test rows.

    The options from --push-weight to --checkpoint apply to some methods only; an error names those
    that apply. Their defaults depend on the method.
    """
    from nearfar.cli.fit import FitOptions, run

    given = {name: options.pop(name) for name in PARAMETERS}
    given = {
        name: value for name, value in given.items() if value is not None and value is not False
    }
    return run(FitOptions(**options, given=given))


@nearfar.command(name="map")
@click.argument("table", type=_FILE)
@click.option("-t", "--target", metavar="COLUMN", help="Column to colour points by.")
@click.option(
    "--drop", metavar="COLUMN", multiple=True, help="Column to leave out; may be repeated."
)
@click.option(
    "-o", "--output", type=_FILE, default=Path("map.csv"), help="Coordinates, one row for each."
)
@click.option("--picture/--no-picture", default=True, help="Draw the map beside them, as PNG.")
@click.option("--report/--no-report", default=True, help="Write a page beside them, as HTML.")
@click.option("--model", type=_FILE, help="File in which to save the model.")
@click.option(
    "--method", type=click.Choice(list(MAPS)), default="variational", help="How to place points."
)
@click.option(
    "--components", type=click.IntRange(min=1), default=2, metavar="R", help="Dimensions."
)
@click.option(
    "-k",
    "--neighbors",
    type=click.IntRange(min=1),
    help="Neighbours of each point whose distances are kept [the method's].",
)
@click.option("--standardise", is_flag=True, help="Divide features by their standard deviations.")
@click.option(
    "--image-shape",
    metavar="RxC",
    callback=two_sizes,
    help="Height and width, if the features are pixels of images.",
)
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, help="Seed of the fit.")
@click.option(
    "--max-seconds",
    type=FiniteRange(min=0, min_open=True),
    help="Time limit of the fit in seconds.",
)
@_force
@_debug
def map_(**options: Any) -> int:
    """Draw a map of the rows of TABLE.

    Places the rows in the plane so that distances between neighbours are kept; labels are only
    colours. Writes the coordinates, a picture of them, and a page to explore them, with thumbnails
    if the columns are pixels.

    TABLE is a file as for fit, or the name of a built-in set.
    """
    from nearfar.cli.map import MapOptions, run

    return run(MapOptions(**options))


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
    """Map the points of TABLE with MODEL.

    Euclidean distances between the mapped points are the learned distances.

    TABLE is a file as for fit, or the name of a built-in set.
    """
    from nearfar.cli.use import transform_table

    transform_table(model, table, output, target, force)


@nearfar.command()
@click.argument("model", type=_FILE)
@click.argument("train", type=_FILE)
@click.argument("test", type=_FILE)
@click.option("-t", "--target", metavar="COLUMN", help="Column of class labels in both tables.")
@click.option(
    "-k",
    "--neighbors",
    type=click.IntRange(min=1),
    help="Neighbours that classify a row [the model's]; with --retrieval, the rank k [10].",
)
@click.option(
    "--retrieval",
    is_flag=True,
    help="Search for the rows of TEST among those of TRAIN, and print precision@k, MRR, MAP, ...",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@_debug
def evaluate(
    model: Path,
    train: Path,
    test: Path,
    target: str | None,
    neighbors: int | None,
    retrieval: bool,
    as_json: bool,
) -> None:
    """Compare MODEL with simple distances on a test table.

    Rows of TEST are classified by their nearest rows of TRAIN, under MODEL, the Euclidean distance,
    standardised features and LDA. The last line is a verdict.

    Each is a file as for fit, or the name of a built-in set. With --retrieval and one
    table given twice, each row is searched for among the others.
    """
    if retrieval:
        from nearfar.cli.retrieval import evaluate_retrieval

        evaluate_retrieval(model, train, test, target, neighbors, as_json)
    else:
        from nearfar.cli.use import evaluate_model

        evaluate_model(model, train, test, target, neighbors, as_json)


@nearfar.command()
@click.argument("model", type=_FILE)
@click.argument("table", type=_FILE)
@click.option("-t", "--target", metavar="COLUMN", help="Column of class labels [the fit's].")
@_debug
def verify(model: Path, table: Path, target: str | None) -> int:
    """Check the proof that MODEL carries against TABLE.

    Recomputes objective, feasibility and bound with code that shares nothing with the solvers.
    TABLE is the table of the fit, or its training rows. Exits with 1 if something does not hold.
    """
    from nearfar.cli.verify import verify_model

    return verify_model(model, table, target)


_SHOWN = (
    click.argument("model", type=_FILE),
    click.argument("table", type=_FILE, required=False),
    click.option("-t", "--target", metavar="COLUMN", help="Column of class labels [the fit's]."),
    click.option(
        "--test", type=_FILE, help="Table of test rows; all rows of TABLE are then training rows."
    ),
    click.option(
        "--test-share",
        type=FiniteRange(0, 1, max_open=True),
        help="Share of the rows of TABLE to test [the fit's, or 0.3].",
    ),
    click.option(
        "--seed", type=click.IntRange(0, 2**32 - 1), help="Seed of the split [the fit's]."
    ),
    click.option(
        "-k",
        "--neighbors",
        type=click.IntRange(min=1),
        help="Neighbours that classify a row [the model's].",
    ),
    click.option(
        "--rows", metavar="N,N,...", callback=row_numbers, help="Rows that are listed first."
    ),
    click.option(
        "--image-shape",
        metavar="RxC",
        callback=two_sizes,
        help="Height and width, if the features are pixels of pictures.",
    ),
    click.option(
        "--show",
        metavar="COLUMN",
        multiple=True,
        help="Another column to colour points by; may be repeated.",
    ),
)


def _shown_options(command: Any) -> Any:
    """What report and explore share: the model, the table, and what is shown of them."""
    for decorate in reversed(_SHOWN):
        command = decorate(command)
    return command


@nearfar.command()
@_shown_options
@click.option("-o", "--output", type=_FILE, default=Path("report.html"), help="HTML file.")
@_force
@_debug
def report(**options: Any) -> None:
    """Write a report on MODEL as one HTML file.

    It shows what was learned and needs no network.

    TABLE has the rows to show: a file as for fit, or the name of a built-in set. If it is the table
    of the fit, the rows that were held out then are tested. Without TABLE, the report shows the
    points that the model keeps, if there are any.
    """
    from nearfar.cli.report import ReportOptions, run

    run(ReportOptions(**options))


@nearfar.command()
@_shown_options
@click.option("-o", "--output", type=_FILE, help="HTML file [a temporary one].")
@click.option("--open/--no-open", "opens", default=True, help="Show it in the browser.")
@_force
@_debug
def explore(**options: Any) -> None:
    """Explore MODEL and TABLE in the browser.

    Writes the page of report to a temporary file, or to --output, and opens it: a map with a slider
    from the old distance to the learned one, neighbours, what a distance is made of, and lists of
    errors and suspicious labels.
    """
    from nearfar.cli.report import ReportOptions, run

    run(ReportOptions(**options))


@nearfar.command()
@_debug
def doctor() -> int:
    """Check the installation.

    Prints versions, missing packages and how to install them, cores, BLAS, threads and GPUs, and
    solves problems whose answers are known, in about ten seconds. Exits with 1 if something is
    wrong.
    """
    from nearfar.cli.doctor import examine

    return examine()
