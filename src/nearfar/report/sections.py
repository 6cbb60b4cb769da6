"""The sections of the page: words, numbers and charts for its template."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from nearfar.analysis.comparison import TestedRows
from nearfar.analysis.convergence import Trace, ending
from nearfar.analysis.features import learned_axes
from nearfar.analysis.models import sample_rows
from nearfar.analysis.spectrum import COUNTED, spectra
from nearfar.analysis.study import Study
from nearfar.analysis.transition import STEPS
from nearfar.analysis.views import metric_name
from nearfar.evaluation.embeddings import measure_embedding
from nearfar.evaluation.verdict import Comparison, Row, Verdict
from nearfar.report.charts import (
    Line,
    error_curve,
    interval_bar,
    line_chart,
    number,
    paired_bars,
    picture,
)
from nearfar.report.origin import Origin
from nearfar.report.payload import Material, clipped

NAME = 60  # characters of the name of a feature
CLASSES = 40  # that have a line in the table of errors
METRICS = 12  # of several metrics, those that have a column
MEASURED = 2000  # rows whose neighbourhoods are compared, at most
SHOWN = 20  # features that the table names
DIRECTIONS = 6  # of the learned space that are shown as pictures


def traced(study: Study) -> Any:
    """The estimator that has a trace: the model, or the metric inside it."""
    return study.learner if hasattr(study.learner, "status_") else study.metric


def summary(study: Study) -> str:
    """The first line of the class's documentation."""
    return (inspect.getdoc(type(study.learner)) or "").split("\n")[0]


def learned(study: Study) -> str:
    """What the model is, in a sentence or two."""
    name, inner = type(study.learner).__name__, type(study.metric).__name__
    around = "" if study.learner is study.metric else f"{name} decides by a {inner}. "
    if study.model is not study.learner:
        before = [type(step).__name__ for _, step in study.model.steps[:-1]]
        around = f"The features go through {' and '.join(before)} first. {around}"
    metric = study.metric
    if study.unfolds:
        n, r = metric.embedding_.shape
        return f"{around}{inner} laid out {n:,} points in {_dimensions(r)}."
    components = getattr(metric, "components_", None)
    if components is None:
        r, n = metric.dual_coef_.shape
        kernel = metric.kernel if isinstance(metric.kernel, str) else "given"
        return (
            f"{around}{inner} learned a map to {_dimensions(r)} in the feature space of the"
            f" {kernel} kernel, by {n:,} points. Distances after this map are the learned ones."
        )
    if components.ndim == 3:
        return (
            f"{around}{inner} learned {len(components)} metrics. The distance to a row is measured"
            " by the metric of that row, so that there is no map of all rows at once."
        )
    r, d = components.shape
    return (
        f"{around}{inner} learned a linear map of {d:,} feature{'s' * (d > 1)} to {_dimensions(r)}."
        " Distances after this map are the learned ones."
    )


def _dimensions(r: int) -> str:
    return "1 dimension" if r == 1 else f"{r:,} dimensions"


def verdict(study: Study, tested: TestedRows | None) -> Verdict | None:
    """Whether to use the model; None where it learns no distance from labels."""
    return None if tested is None or study.unfolds else tested.comparison.verdict


def cards(study: Study, tested: TestedRows | None) -> list[tuple[str, str, str]]:
    """Heading, large figure and what it means."""
    cards = []
    if tested is not None:
        before, after = (float(outcome.wrong.mean()) for outcome in (tested.before, tested.after))
        cards.append(
            (
                "Error after learning" if study.held_out else "Error after, not held out",
                _error(after),
                f"{_error(before)} before, by {study.n_neighbors} neighbours",
            )
        )
    fitted = traced(study)
    sentence = ending(fitted)
    if sentence is not None:
        gap, sampled = fitted.duality_gap_, getattr(fitted, "sampled_gap_", None)
        if sampled is not None:
            sure = f"{fitted.gap_confidence_:.1%} confidence"
            cards.append(("Gap from a sample", number(sampled), f"at most, with {sure}"))
        elif gap is None:
            cards.append(
                ("Certificate", "none", "this problem is not convex, or no bound is known")
            )
        else:
            figure = "exact" if gap == 0 else number(gap)
            cards.append(("Certified gap", figure, "relative distance from the optimum, at most"))
        seconds = fitted.history_[-1]["seconds"] if fitted.history_ else None
        cards.append(
            (
                "Fit",
                fitted.status_.replace("_", " "),
                "closed form"
                if seconds is None
                else f"{fitted.n_iter_:,} iteration{'s' * (fitted.n_iter_ != 1)},"
                f" {number(float(f'{seconds:.2g}'))} s",
            )
        )
    cards.append(("Rows", f"{len(study):,}", _rows_card(study)))
    return cards


def _rows_card(study: Study) -> str:
    if study.y is None:
        return "without labels"
    classes = len(study.classes[0]) if study.classes is not None else 0
    kinds = f"{classes:,} classes"
    if not study.held_out:
        return kinds
    return f"{len(study.voters):,} training rows, {study.n_test:,} held out; {kinds}"


def sample(study: Study, material: Material) -> str:
    """How many rows are drawn, and of how many the neighbours are there."""
    shown, n = len(material.shown), len(study)
    words = f"All {n:,} rows are drawn."
    if shown < n:
        words = (
            f"{shown:,} of the {n:,} rows are drawn, at random but for listed rows; the page holds"
            " no others."
        )
    if material.before is None and material.after is None:
        return words
    detailed = material.n_detailed
    if detailed < shown:
        words += f" The neighbours of {detailed:,} of them are on the page."
    if detailed < n:
        words += " They were searched among all training rows."
    return words


def old_distance(study: Study) -> str | None:
    """What the old distance is; None where there is none."""
    if study.old is None:
        return None
    if study.model is study.learner:
        return "the Euclidean distance of the features as they are"
    steps = [type(step).__name__ for _, step in study.model.steps[:-1]]
    return (
        f"the Euclidean distance of the features as the {type(study.learner).__name__} saw them,"
        f" after {' and '.join(steps)}"
    )


def curve(material: Material) -> dict[str, Any] | None:
    """The error at each step of the slider."""
    path = material.path
    if path is None or path.wrong is None:
        return None
    errors = path.wrong.mean(axis=1)
    return {"chart": error_curve(STEPS, errors), "count": f"{path.wrong.shape[1]:,}"}


def errors(study: Study, tested: TestedRows, origin: Origin) -> dict[str, Any]:
    """Errors of all methods, and on which rows."""
    comparison, count = tested.comparison, len(study.tested)
    most = max(row.interval[1] for row in comparison.rows if row.interval is not None)
    drawn_from = "" if count == study.n_test else f", drawn from {study.n_test:,} at random"
    held_out = (
        origin.held_out
        if origin.held_out is not None
        else "They were set apart by the caller."
        if study.held_out
        else None
    )
    return {
        "rows": [_error_row(row, comparison, most) for row in comparison.rows],
        "tested": f"{count:,} row{'s' * (count != 1)}{drawn_from}",
        "held_out": study.held_out,
        "note": held_out,
        "voters": f"{len(study.voters):,}",
        "n_neighbors": study.n_neighbors,
        "by_itself": study.decides,
        "classes": _by_class(study, tested),
    }


def _error_row(row: Row, comparison: Comparison, most: float) -> dict[str, Any]:
    is_model = row is comparison.model
    name = f"{row.method} (this model)" if is_model else row.method
    if row.wrong is None or row.error is None or row.interval is None:
        return {"name": name, "reason": row.reason}
    found = comparison.changes(row)
    return {
        "name": name,
        "reason": None,
        "error": _error(row.error),
        "wrong": f"{int(row.wrong.sum()):,}",
        "interval": "{} – {}".format(*map(_error, row.interval)),
        "bar": interval_bar(row.error, *row.interval, most),
        "is_model": is_model,
        "changes": None
        if is_model
        else (f"{found.fixed:,}", f"{found.broken:,}", _probability(found.p_value)),
    }


def _by_class(study: Study, tested: TestedRows) -> list[dict[str, Any]]:
    """Errors of each class, the worst first."""
    if study.classes is None:
        return []
    classes, codes = study.classes
    truth = codes[study.tested]
    counts, before, after = (
        np.bincount(truth[mask], minlength=len(classes))
        for mask in (
            np.ones(len(truth), dtype=bool),
            tested.before.wrong,
            tested.after.wrong,
        )
    )
    present = np.flatnonzero(counts)
    worst = present[np.argsort(-(after[present] / counts[present]), kind="stable")]
    return [
        {
            "name": clipped(classes[i]),
            "count": f"{counts[i]:,}",
            "before": f"{before[i]:,}",
            "after": f"{after[i]:,}",
            "share": _error(after[i] / counts[i]),
        }
        for i in worst[:CLASSES]
    ]


def faithful(study: Study, random_state: int) -> dict[str, Any] | None:
    """How faithful an unfolding of points is; None for other models."""
    n = len(study)
    if not study.unfolds or study.X is None or study.images is None or n < 4:
        return None
    rows = sample_rows(np.arange(n), MEASURED, random_state)
    k = min(15, (len(rows) - 1) // 2)
    measures = measure_embedding(study.X[rows], study.images[rows], k)
    found = {
        "local continuity": measures.local_continuity,
        "local trust": measures.local_trust,
        "neighbours kept": measures.neighborhood_intersection,
        "trustworthiness": measures.trustworthiness,
    }
    return {
        "measures": [(name, f"{value:.3f}") for name, value in found.items() if value is not None],
        "n_neighbors": k,
        "sample": None if len(rows) == n else f"{len(rows):,} of the {n:,} rows",
        "distortion": _distortion(study.metric),
    }


def _distortion(metric: Any) -> str | None:
    value = getattr(metric, "max_distortion_", None)
    return None if value is None else number(float(value))


def spectrum(study: Study, random_state: int) -> dict[str, Any] | None:
    """How the variance is spread; None where nothing varies."""
    found = [spectrum for spectrum in spectra(study, random_state) if spectrum.shares.any()]
    if not found:
        return None
    first = 0 if study.X is not None else 1
    lines = [
        Line(clipped(s.name), np.arange(1.0, len(s.shares) + 1), 100 * s.shares, first + i, "dots")
        for i, s in enumerate(found)
    ]
    needs = [
        (clipped(s.name), f"more than {COUNTED}" if s.n_most is None else f"{s.n_most:,}")
        for s in found
    ]
    chart = line_chart(lines, "direction", "% of the variance", whole=True)
    return {"chart": chart, "lines": lines, "needs": needs}


def features(study: Study, material: Material) -> dict[str, Any] | None:
    """What a linear metric does to features; None for other models."""
    shares = study.feature_shares()
    if shares is None or study.maps is None or study.X is None:
        return None
    d, several = shares.after.shape[1], len(shares.after) > 1
    top = shares.order[:SHOWN].tolist()
    rest = shares.order[SHOWN:]
    most = max(float(shares.before[top].max()), float(shares.after[:, top].max()))
    rows = [
        {
            "name": clipped(study.feature_names[i], NAME),
            "before": _percent(shares.before[i]),
            "after": [_percent(share) for share in shares.after[:METRICS, i]],
            "stretch": [f"{stretch:.2f}" for stretch in shares.stretch[:METRICS, i]],
            "bar": None if several else paired_bars(shares.before[i], shares.after[0, i], most),
        }
        for i in top
    ]
    metrics = [
        f"metric of {clipped(metric_name(study, i))}" for i in range(min(METRICS, len(study.maps)))
    ]
    pictures = []
    shape = material.image_shape
    if shape is not None and not several:
        points = study.X[study.voters]
        axes = learned_axes(study.maps[0], points) * points.std(axis=0)
        pictures = [
            ("variance of the pixels", picture(shares.before.reshape(shape))),
            ("what counts after learning", picture(shares.after[0].reshape(shape))),
            *(
                (f"axis {i + 1}", picture(row.reshape(shape), diverging=True))
                for i, row in enumerate(axes[:DIRECTIONS])
            ),
        ]
    return {
        "rows": rows,
        "metrics": metrics if several else [],
        "n": f"{d:,}",
        "rest": None
        if not len(rest)
        else {
            "count": f"{len(rest):,}",
            "before": _percent(shares.before[rest].sum()),
            "after": [_percent(share) for share in shares.after[:METRICS, rest].sum(axis=1)],
        },
        "pictures": pictures,
        "shape": shape,
    }


def certificate(study: Study) -> dict[str, Any] | None:
    """How the fit ended, and what is proved; None where nothing was minimised."""
    fitted = traced(study)
    sentence = ending(fitted)
    if sentence is None:
        return None
    gap, tol = fitted.duality_gap_, getattr(fitted, "tol", None)
    sampled = getattr(fitted, "sampled_gap_", None)
    return {
        "status": fitted.status_.replace("_", " "),
        "sentence": sentence,
        "objective": f"{fitted.objective_:.6g}",
        "gap": None if gap is None else number(gap),
        "sampled": None if sampled is None else number(sampled),
        "confidence": None if sampled is None else f"{fitted.gap_confidence_:.1%}",
        "estimated": bool(len(Trace(fitted.history_).estimates().x)),
        "tol": None if tol is None else number(tol),
    }


def _percent(share: float) -> str:
    if 0 < share < 0.0005:
        return "< 0.1 %"
    return f"{100 * share:.1f} %" if share < 0.9995 else "100 %"


def _error(share: float) -> str:
    return f"{100 * share:.2f} %"


def _probability(p: float) -> str:
    return "< 0.0001" if p < 1e-4 else f"{p:.2g}"
