"""Exact MVU against general semidefinite solvers: ``python -m benchmarks.mvu --help``."""
