"""Tests of the Python package that need no server."""
