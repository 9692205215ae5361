"""Micro-benchmarks of the hot paths, with pytest-benchmark.

Java's classes are compared with ours by `python -m benches.e2e --rows codec,selection`.
"""
