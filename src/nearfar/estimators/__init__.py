"""What users call: estimators that validate, build a problem, run a solver and store the answer."""

from __future__ import annotations

from nearfar.estimators.lmnn import LMNN

__all__ = ["LMNN"]
