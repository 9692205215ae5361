"""Compares our servers with Apache's: one driver, one run, interleaved."""
