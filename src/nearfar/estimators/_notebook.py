"""The old place of `Estimator`, until nothing imports it from here."""

from nearfar.estimators._base import Estimator

__all__ = ["Estimator"]
