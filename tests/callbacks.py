"""A callback of scikit-learn that notes what a fit tells it, and may act at one iteration."""

# ruff: noqa: ARG002 (the callback protocol of scikit-learn fixes the signatures)

import importlib.util

import pytest

needs_callbacks = pytest.mark.skipif(
    importlib.util.find_spec("sklearn.callback") is None, reason="needs scikit-learn 1.9"
)


class Recorder:
    """Notes every call, and of every iteration its record and what was fitted so far.

    ``act`` is called at the end of iteration ``number``, counted from 1. It may raise, or return
    True to end the fit.
    """

    def __init__(self, number=None, act=None):
        self.number, self.act = number, act
        self.calls, self.records, self.models = [], [], []

    def setup(self, estimator, context):
        self.calls.append("setup")

    def teardown(self, estimator, context):
        self.calls.append("teardown")

    def on_fit_task_begin(self, estimator, context):
        self.calls.append(f"begin {context.task_name}")

    def on_fit_task_end(self, estimator, context, *, fitted_estimator=None):
        self.calls.append(f"end {context.task_name}")
        if context.task_name != "iteration":
            return False
        self.records.append(dict(estimator.history_[-1]))
        self.models.append(fitted_estimator)
        return self.act() if self.is_due() else False

    def is_due(self):
        """Whether to act now."""
        return len(self.records) == self.number


def interrupt():
    """Act like Ctrl-C."""
    raise KeyboardInterrupt


def interrupt_at(number):
    """A recorder that acts like Ctrl-C at the end of iteration ``number``."""
    return Recorder(number, interrupt)
