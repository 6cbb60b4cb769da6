"""A report, as a file or in a notebook."""

from __future__ import annotations

import html
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nearfar.analysis.study import study
from nearfar.errors import InvalidInputError
from nearfar.evaluation.compare import model_name
from nearfar.files import atomic_writer, check_target
from nearfar.progress import announce
from nearfar.report.material import gather
from nearfar.report.origin import Origin
from nearfar.report.page import describe, render, template

MOST_BYTES = 15_000_000
SHRUNK = 0.8  # share of the rows that is kept where the page is too large
FRAME_HEIGHT = 800  # pixels, in a notebook


@dataclass(frozen=True, repr=False)
class Report:
    """A page on a model; a notebook shows it inline.

    Attributes
    ----------
    page : the HTML file as text
    """

    page: str

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page to a file, completely or not at all; one that exists is replaced."""
        check_target(path)
        with atomic_writer(path) as stream:
            stream.write(self.page.encode("utf-8"))

    def _repr_html_(self) -> str:
        """The page in a frame of its own, which can run its program and nothing else."""
        return (
            f'<iframe srcdoc="{html.escape(self.page)}" width="100%" height="{FRAME_HEIGHT}"'
            ' sandbox="allow-scripts allow-downloads" title="nearfar report"'
            ' style="border: 0"></iframe>'
        )

    def __repr__(self) -> str:
        return f"Report({len(self.page.encode('utf-8')) / 1e6:.2f} MB of HTML)"


def explore(
    model: Any,
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
    verbose: int = 0,
) -> Report:
    """Make a page on which to explore what a fitted model has learned.

    It is one HTML file that needs no network: a notebook shows what is returned inline, and
    `Report.save` writes it. What does not apply to a model is left out: a kernel has no features to
    stretch, an unfolding no errors to count, several metrics no common map. The page stays below
    15 MB: of more than 100 000 rows a sample is drawn, and the page says how many rows it holds.

    Parameters
    ----------
    model : estimator
        Any fitted estimator of nearfar, or a pipeline that ends in one, such as
        ``make_pipeline(StandardScaler(), LMNN())``.
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
        Rows that are listed first. None chooses rows that learning fixed or broke.
    image_shape : (int, int) or None, default=None
        Rows and columns, if the points are pictures. None finds out where the features are called
        ``pixel_0_0`` and so on.
    title : str or None, default=None
        The heading; None is the name of the model's class.
    origin : Origin or None, default=None
        Where model and rows come from; ``nearfar report`` fills it in.
    random_state : int, default=0
        Draws the samples.
    verbose : int, default=0
        1 says on stderr what is done now. The copy of the model that is fitted for comparison
        shows its iterations if the model has ``verbose=1``.

    Returns
    -------
    Report
        The page.

    Notes
    -----
    The search for neighbours takes O(m n (d + r)) time for n training and m queried rows, with m at
    most 13000 or so, in blocks; beside the data there are images (n, r). The slider and the list of
    suspicious labels add searches of at most 5·10⁷ and 5·10⁸ pairs.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from nearfar import LMNN
    >>> from nearfar.report import explore
    >>> X, y = load_iris(return_X_y=True)
    >>> explore(LMNN().fit(X, y), X, y)
    Report(... MB of HTML)
    """
    page = template()
    say = announce if verbose else lambda _: None
    say("report: searching neighbours")
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
    say("report: measuring errors, with a second fit for comparison")
    material = gather(subject, columns, rows, image_shape, random_state)
    say("report: writing the page")
    heading = title or model_name(subject.model)
    origin = origin or Origin()
    description = describe(subject, material, heading, target_name, origin, random_state)
    count = len(material.shown)
    while True:
        part = material.first(count)
        text = render(page, description, subject, part, target_name, origin.first_row)
        size = len(text.encode("utf-8"))
        if size < MOST_BYTES:
            break
        if count == 1:
            raise InvalidInputError(
                f"the report would have {size} bytes; {MOST_BYTES} are the most."
                " Shorten the names of features, labels or columns."
            )
        count = max(1, min(count - 1, int(SHRUNK * count)))
    return Report(text)


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
    verbose: int = 0,
) -> None:
    """Write the page of `explore` as one HTML file that needs no network.

    Parameters
    ----------
    model : estimator
        As of `explore`, like all other parameters.
    path : path-like
        The file to write, completely or not at all; one that exists is replaced.
    X, y, train, test, n_neighbors, feature_names, target_name, columns
        What is shown, which rows are tested, and what things are called.
    rows, image_shape, title, origin, random_state, verbose
        What is shown first, and how.

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
    ...     (Path(folder) / "iris.html").stat().st_size < 15_000_000
    True
    """
    check_target(path)
    report = explore(
        model,
        X,
        y,
        train=train,
        test=test,
        n_neighbors=n_neighbors,
        feature_names=feature_names,
        target_name=target_name,
        columns=columns,
        rows=rows,
        image_shape=image_shape,
        title=title,
        origin=origin,
        random_state=random_state,
        verbose=verbose,
    )
    report.save(path)
