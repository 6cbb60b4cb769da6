"""MCML, NCA, MMC, DML-eig and RCA against their peers: ``python -m benchmarks.metrics --help``."""
