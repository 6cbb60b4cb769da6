"""``nearfar map``: points in the plane, without learning from labels."""

from __future__ import annotations

import importlib.util
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from nearfar.cli import INTERRUPTED, OK, tell
from nearfar.cli.fit import DIFFERENT_UNITS, scale_ratio, warn_of_identifiers, without_columns
from nearfar.cli.methods import make_map
from nearfar.cli.output import (
    POINT_SUFFIXES,
    check_output,
    echo,
    is_builtin,
    refuse_target,
    shown_warnings,
    typed_command,
    write_points,
)
from nearfar.cli.report import column_of
from nearfar.datasets import Table, load_builtin, load_table
from nearfar.errors import InvalidInputError, install_command
from nearfar.files import atomic_writer
from nearfar.io import save
from nearfar.plots import EmbeddingDisplay
from nearfar.progress import progress
from nearfar.report import Origin, write_report
from nearfar.report.payload import checked_image_shape

DOTS_PER_INCH = 200


@dataclass(frozen=True)
class MapOptions:
    """The options of ``nearfar map``, as the command line gives them."""

    table: Path
    target: str | None
    drop: tuple[str, ...]
    output: Path
    picture: bool
    report: bool
    model: Path | None
    method: str
    components: int
    neighbors: int | None
    standardise: bool
    image_shape: tuple[int, int] | None
    seed: int
    max_seconds: float | None
    force: bool

    @property
    def picture_path(self) -> Path | None:
        """Where the picture goes, if there is one."""
        return self.output.with_suffix(".png") if self.picture else None

    @property
    def report_path(self) -> Path | None:
        """Where the page goes, if there is one."""
        return self.output.with_suffix(".html") if self.report else None


def run(options: MapOptions) -> int:
    """Place the rows of a table, write coordinates, picture and page; return the exit code."""
    learner = make_map(
        options.method, options.components, options.neighbors, options.max_seconds, options.seed
    )
    _check_outputs(options)
    table = _read(options)
    warn_of_identifiers(table)
    names = table.feature_names or tuple(str(i) for i in range(table.X.shape[1]))
    shape = checked_image_shape(options.image_shape, names)
    with shown_warnings():
        model = _placed(options, learner, table, shape)
        _write(options, model, table, shape)
    return INTERRUPTED if getattr(learner, "status_", "") == "interrupted" else OK


def _check_outputs(options: MapOptions) -> None:
    if options.output.suffix.lower() not in POINT_SUFFIXES:
        raise InvalidInputError(
            f"{options.output}: cannot write the format {options.output.suffix!r}. Expected one of"
            f" {', '.join(POINT_SUFFIXES)}. Give the output another suffix."
        )
    for path in (options.output, options.picture_path, options.report_path, options.model):
        if path is not None:
            check_output(path, options.force, [options.table])
    if options.picture and importlib.util.find_spec("matplotlib") is None:
        raise InvalidInputError(
            f"matplotlib is not installed; run: {install_command('plot')}, or leave the picture out"
            " with --no-picture."
        )


def _read(options: MapOptions) -> Table:
    """The points, and in y what to colour them by: classes, or numbers."""
    path, target = options.table, options.target
    if is_builtin(path):
        refuse_target(target, str(path))
        return without_columns(load_builtin(str(path)), options.drop, str(path))
    dropped = options.drop if target is None else (*options.drop, target)
    if path.suffix.lower() in (".npy", ".npz"):
        return load_table(path, target, labelled=target is not None, drop=options.drop)
    table = load_table(path, drop=dropped, labelled=False)
    if target is None:
        return table
    colours = column_of(path, target, table.feature_names)
    return Table(table.X, colours, table.feature_names, target)


def _placed(options: MapOptions, learner: Any, table: Table, shape: Any) -> Any:
    """The fitted model, with a line on how the fit ended."""
    points, scaler = table.X, None
    if options.standardise:
        scaler = StandardScaler()
        points = scaler.fit_transform(points)
    elif shape is None and scale_ratio(points) >= DIFFERENT_UNITS:
        tell(
            f"standard deviations of features differ by a factor of {scale_ratio(points):.2g}: if"
            " they have different units, give --standardise"
        )
    start = time.perf_counter()
    with progress(learner, tell):
        learner.fit(points)
    seconds = time.perf_counter() - start
    n, d = table.X.shape
    gap = getattr(learner, "duality_gap_", None)
    proof = "" if gap is None else f", certified gap {gap:.1e}"
    echo(
        f"{type(learner).__name__}: {n} rows, {d} features to {options.components} dimensions in"
        f" {seconds:.2f} s, {learner.status_}{proof}"
    )
    model = learner if scaler is None else make_pipeline(scaler, learner)
    if table.feature_names is not None:
        first = learner if scaler is None else scaler
        first.feature_names_in_ = np.array(table.feature_names, dtype=object)
    if options.model is not None:
        save(model, options.model)
        echo(f"saved {options.model}")
    if table.feature_names is not None:
        del first.feature_names_in_  # what follows takes plain arrays
    return model


def _write(options: MapOptions, model: Any, table: Table, shape: Any) -> None:
    """Coordinates, picture and page."""
    learner = model[-1] if options.standardise else model
    places = np.asarray(learner.embedding_)
    write_points(options.output, places, [f"axis{i + 1}" for i in range(places.shape[1])])
    echo(f"saved {options.output}: {places.shape[0]} rows, {places.shape[1]} columns")
    if options.picture_path is not None:
        images = {} if shape is None else {"images": table.X, "image_shape": shape}
        display = EmbeddingDisplay.from_predictions(
            places, table.y, name=f"{type(learner).__name__} of {options.table.name}", **images
        )
        with atomic_writer(options.picture_path) as stream:
            display.figure_.savefig(stream, format="png", dpi=DOTS_PER_INCH, bbox_inches="tight")
        echo(f"saved {options.picture_path}")
    if options.report_path is not None:
        write_report(
            model,
            options.report_path,
            table.X,
            columns=_colours(table),  # not labels: a map is not judged by classes
            feature_names=table.feature_names,
            image_shape=shape,
            title=f"{type(learner).__name__} of {options.table.name}",
            origin=Origin(first_row=1, commands={"This map": typed_command()}),
            random_state=options.seed,
        )
        echo(f"saved {options.report_path}: open it in a browser")


def _colours(table: Table) -> dict[str, Any]:
    """The column to colour by, if there is one: classes as text, others as numbers."""
    if table.y is None:
        return {}
    values = table.y if table.y.dtype.kind == "f" else table.y.astype(str)
    return {table.target_name or "label": values}
