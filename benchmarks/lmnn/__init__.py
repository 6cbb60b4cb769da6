"""LMNN against metric-learn, pylmnn and mlpack: ``python -m benchmarks.lmnn --help``."""
