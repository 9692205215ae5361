"""Ours and Apache's by one driver, in one run, interleaved."""
