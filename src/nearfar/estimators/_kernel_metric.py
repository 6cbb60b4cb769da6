"""The old place of `KernelMetricLearner`, until nothing imports it from here."""

from nearfar.estimators._kernel import KernelMetricLearner

__all__ = ["KernelMetricLearner"]
