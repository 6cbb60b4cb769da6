"""Benchmarks of learning from Dask arrays."""
