"""The broker's Python rows, one family per file."""
