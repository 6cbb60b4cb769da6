"""The sections of the page: words, numbers and charts for its template."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from nearfar.analysis.comparison import Changes, Comparison
from nearfar.analysis.convergence import Trace, ending
from nearfar.analysis.features import learned_axes
from nearfar.analysis.models import sample_rows
from nearfar.analysis.spectrum import COUNTED, spectra
from nearfar.analysis.study import Study
from nearfar.analysis.views import metric_name
from nearfar.evaluation.embeddings import measure_embedding
from nearfar.report.charts import Line, interval_bar, line_chart, number, paired_bars, picture
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
    return study.model if hasattr(study.model, "status_") else study.metric


def summary(study: Study) -> str:
    """The first line of the class's documentation."""
    return (inspect.getdoc(type(study.model)) or "").split("\n")[0]


def learned(study: Study) -> str:
    """What the model is, in a sentence or two."""
    name, inner = type(study.model).__name__, type(study.metric).__name__
    around = "" if study.model is study.metric else f"{name} decides by a {inner}. "
    metric = study.metric
    if study.unfolds:
        n, r = metric.embedding_.shape
        return f"{inner} laid out {n:,} points in {_dimensions(r)}."
    components = getattr(metric, "components_", None)
    if components is None:
        r, n = metric.dual_coef_.shape
        kernel = metric.kernel if isinstance(metric.kernel, str) else "given"
        return (
            f"{around}{inner} learned a map to {_dimensions(r)} in the feature space of the"
            f" {kernel} kernel, by {n:,} points. Distances between images are the learned ones."
        )
    if components.ndim == 3:
        return (
            f"{around}{inner} learned {len(components)} metrics. The distance to a row is measured"
            " by the metric of that row, so that there is no map of all rows at once."
        )
    r, d = components.shape
    return (
        f"{around}{inner} learned a linear map of {d:,} feature{'s' * (d > 1)} to {_dimensions(r)}."
        " Distances between images are the learned ones."
    )


def _dimensions(r: int) -> str:
    return "1 dimension" if r == 1 else f"{r:,} dimensions"


def cards(study: Study, comparison: Comparison | None) -> list[tuple[str, str, str]]:
    """Heading, large figure and what it means."""
    cards = []
    if comparison is not None:
        cards.append(
            (
                "Error after learning" if study.held_out else "Error after, not held out",
                _error(comparison.after.error),
                f"{_error(comparison.before.error)} before, by {study.n_neighbors} neighbours",
            )
        )
    fitted = traced(study)
    sentence = ending(fitted)
    if sentence is not None:
        gap = fitted.duality_gap_
        if gap is None:
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
    return f"{len(study.voters):,} vote, {study.n_test:,} held out; {kinds}"


def sample(study: Study, material: Material) -> str:
    """How many rows are drawn."""
    shown, n = len(material.shown), len(study)
    if shown == n:
        return f"All {n:,} rows are drawn."
    return (
        f"{shown:,} of the {n:,} rows are drawn, at random but for chosen rows and their"
        " neighbours; the page holds no others. Neighbours were searched among all rows that vote."
    )


def errors(study: Study, comparison: Comparison, origin: Origin) -> dict[str, Any]:
    """Errors of all methods, and what they mean."""
    most = max(outcome.interval[1] for outcome in comparison.outcomes)
    tested = len(study.tested)
    drawn_from = "" if tested == study.n_test else f", drawn from {study.n_test:,} at random"
    held_out = (
        origin.held_out
        if origin.held_out is not None
        else "They were set apart by the caller."
        if study.held_out
        else None
    )
    return {
        "rows": [
            {
                "name": outcome.name,
                "error": _error(outcome.error),
                "wrong": f"{int(outcome.wrong.sum()):,}",
                "interval": "{} – {}".format(*map(_error, outcome.interval)),
                "bar": interval_bar(outcome.error, *outcome.interval, most),
                "changes": None
                if outcome is comparison.after
                else _changes(comparison.changes(outcome)),
            }
            for outcome in comparison.outcomes
        ],
        "tested": f"{tested:,} row{'s' * (tested != 1)}{drawn_from}",
        "held_out": study.held_out,
        "note": held_out,
        "voters": f"{len(study.voters):,}",
        "n_neighbors": study.n_neighbors,
        "by_itself": study.decides,
        "verdict": " ".join(
            [
                _verdict(comparison.changes(comparison.before)),
                _verdict(comparison.changes(comparison.standardised), "standardised features"),
            ]
        ),
        "classes": _by_class(study, comparison),
    }


def _changes(changes: Changes) -> tuple[str, str, str]:
    return f"{changes.fixed:,}", f"{changes.broken:,}", _probability(changes.p_value)


def _verdict(changes: Changes, over: str = "the Euclidean distance") -> str:
    """What the comparison with another method says."""
    both = f"{over[0].upper()}{over[1:]} and the model are"
    if changes.fixed + changes.broken == 0:
        return f"{both} wrong on the same rows."
    if changes.fixed == changes.broken:
        return f"{both} right equally often."
    which = "gain" if changes.fixed > changes.broken else "loss"
    if changes.p_value >= 0.05:
        return f"The {which} over {over} may be chance: few rows tell them apart."
    return f"The {which} over {over} is more than chance would easily make."


def _by_class(study: Study, comparison: Comparison) -> list[dict[str, Any]]:
    """Errors of each class, the worst first."""
    if study.classes is None:
        return []
    classes, codes = study.classes
    truth = codes[study.tested]
    counts, before, after = (
        np.bincount(truth[mask], minlength=len(classes))
        for mask in (
            np.ones(len(truth), dtype=bool),
            comparison.before.wrong,
            comparison.after.wrong,
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
    return {
        "status": fitted.status_.replace("_", " "),
        "sentence": sentence,
        "objective": f"{fitted.objective_:.6g}",
        "gap": None if gap is None else number(gap),
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
