"""Exact MVU against general solvers of semidefinite programs: ``python -m benchmarks.mvu --help``."""
