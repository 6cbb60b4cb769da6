"""The one function of a report."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from nearfar.analysis.study import study
from nearfar.errors import InvalidInputError
from nearfar.evaluation.compare import model_name
from nearfar.files import atomic_writer, check_target
from nearfar.report.material import gather
from nearfar.report.origin import Origin
from nearfar.report.page import describe, render, template

MOST_BYTES = 5_000_000


def write_report(
    model: Any,
    path: str | os.PathLike[str],
    X: Any = None,
    y: Any = None,
    *,
    train: Any = None,
    test: Any = None,
    n_neighbors: int | None = None,
    feature_names: Any = None,
    target_name: str = "label",
    columns: Mapping[str, Any] | None = None,
    rows: Any = None,
    image_shape: tuple[int, int] | None = None,
    title: str | None = None,
    origin: Origin | None = None,
    random_state: int = 0,
) -> None:
    """Write what a fitted model has learned as one HTML file that needs no network.

    What does not apply to a model is left out: a kernel has no features to stretch, an unfolding no
    errors to count, several metrics no common map. The file stays below 5 MB: of large data
    a sample is drawn, and the page says how many rows it holds.

    Parameters
    ----------
    model : estimator
        Any fitted estimator of nearfar, or a pipeline that ends in one, such as
        ``make_pipeline(StandardScaler(), LMNN())``.
    path : path-like
        The file to write, completely or not at all; one that exists is replaced.
    X : array-like or torch.Tensor of shape (n_samples, n_features) or None, default=None
        The points to show. None are those that the model keeps, if it keeps any. Of an unfolding
        other points than those of its fit are placed beside these; one that was fitted to
        distances or a graph shows the places of its fit.
    y : array-like of shape (n_samples,) or None, default=None
        Labels. Without them there are no errors.
    train, test : array-like of row numbers, or masks of shape (n_samples,), default=None
        Training rows, among which neighbours are searched, and rows whose error is measured. Where
        ``train`` is None, these are all rows that are not tested. Where ``test`` is None every row
        is tested by the others, and the page says that none was held out.
    n_neighbors : int or None, default=None
        How many neighbours decide; None is the model's own number, or 3.
    feature_names : sequence of str or None, default=None
        Names of the features; None are those of the fit, if it had any.
    target_name : str, default="label"
        What the labels are called.
    columns : mapping of str to array-like of shape (n_samples,), or None, default=None
        Further columns, numbers or text, to colour by and to search in.
    rows : array-like of row numbers or None, default=None
        Rows whose neighbours are shown first. None chooses rows that learning fixed or broke.
    image_shape : (int, int) or None, default=None
        Rows and columns, if the points are pictures. None finds out where the features are called
        ``pixel_0_0`` and so on.
    title : str or None, default=None
        The heading; None is the name of the model's class.
    origin : Origin or None, default=None
        Where model and rows come from; ``nearfar report`` fills it in.
    random_state : int, default=0
        Draws the samples.

    Notes
    -----
    The search for neighbours takes O(m n (d + r)) time for n voting and m queried rows, with m at
    most 13000 or so, in blocks; beside the data there are images (n, r).

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> from sklearn.datasets import load_iris
    >>> from nearfar import LMNN
    >>> from nearfar.report import write_report
    >>> X, y = load_iris(return_X_y=True)
    >>> test = np.arange(len(X)) % 3 == 0
    >>> model = LMNN().fit(X[~test], y[~test])
    >>> with TemporaryDirectory() as folder:
    ...     write_report(model, Path(folder) / "iris.html", X, y, test=test)
    ...     (Path(folder) / "iris.html").stat().st_size < 5_000_000
    True
    """
    check_target(path)
    page = template()
    subject = study(
        model,
        X,
        y,
        train=train,
        test=test,
        n_neighbors=n_neighbors,
        feature_names=feature_names,
        random_state=random_state,
    )
    material = gather(subject, columns, rows, image_shape, random_state)
    heading = title or model_name(subject.model)
    origin = origin or Origin()
    description = describe(subject, material, heading, target_name, origin, random_state)
    count = len(material.shown)
    while True:
        part = material.first(count)
        text = render(page, description, subject, part, target_name, origin.first_row)
        content = text.encode("utf-8")
        if len(content) < MOST_BYTES:
            break
        if count == 1:
            raise InvalidInputError(
                f"the report would have {len(content)} bytes; {MOST_BYTES} are the most."
                " Shorten the names of features, labels or columns."
            )
        count = max(1, count // 2)
    with atomic_writer(path) as stream:
        stream.write(content)
