"""What notebooks show of an estimator: scikit-learn's diagram, and in it how the fit ended."""

from __future__ import annotations

from typing import Any

from sklearn.base import BaseEstimator


class Estimator(BaseEstimator):
    """The base of all estimators of nearfar.

    scikit-learn draws an estimator, alone or inside a pipeline or a search, from what
    ``_sk_visual_block_`` returns. Where that fails, as under a scikit-learn that has changed it,
    the diagram is scikit-learn's own, without the facts.
    """

    # What every fit that minimises something leaves behind; see `store_ending`.
    objective_: float | None
    duality_gap_: float | None
    status_: str
    n_iter_: int
    history_: list[dict[str, Any]]

    def _sk_visual_block_(self) -> Any:
        from sklearn.utils._repr_html.estimator import _VisualBlock

        own = {
            name: getattr(self, f"{name}_", part) for name, part in self.get_params(False).items()
        }
        parts = {  # the fitted ones, which know how their fits ended
            name: part
            for name, part in own.items()
            if hasattr(part, "fit") and not isinstance(part, type)
        }
        facts = fit_facts(self)
        if facts or not parts:
            return _VisualBlock(
                "single",
                self,
                names=type(self).__name__,
                name_details=str(self),
                name_caption=" · ".join(facts) or None,
            )
        return _VisualBlock(
            "parallel",
            list(parts.values()),
            names=[f"{name}: {type(part).__name__}" for name, part in parts.items()],
            name_details=[str(part) for part in parts.values()],
        )


def fit_facts(estimator: Any) -> list[str]:
    """How a fit ended, in a few words each; none where nothing was fitted or minimised.

    ``["converged", "certified gap 3.0e-04", "objective 226.7", "25 iterations", "0.029 s"]``
    """
    if getattr(estimator, "objective_", None) is None:
        return []
    gap, n_iter, history = estimator.duality_gap_, estimator.n_iter_, estimator.history_
    facts = [
        estimator.status_,
        "no certificate" if gap is None else f"certified gap {gap:.1e}" if gap else "exact",
        f"objective {estimator.objective_:.4g}",
    ]
    if n_iter:
        facts.append("1 iteration" if n_iter == 1 else f"{n_iter} iterations")
    if history:
        facts.append(f"{history[-1]['seconds']:.2g} s")
    return facts
