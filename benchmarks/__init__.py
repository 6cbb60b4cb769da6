"""Benchmarks of nearfar against its peers; each folder is one of them."""
