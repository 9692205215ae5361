"""The parts of `pyrmq.Admin` about groups and messages."""
