"""The broker's Python rows, one family a file."""
