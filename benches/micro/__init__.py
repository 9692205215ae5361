"""Micro-benchmarks of the hot paths, with pytest-benchmark.

Java's classes are measured beside ours by `python -m benches.e2e --rows codec,selection`.
"""
