"""Micro-benchmarks of the hot paths, with pytest-benchmark."""
