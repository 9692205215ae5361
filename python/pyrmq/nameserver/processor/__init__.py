"""The name server's Python rows, one family per file."""
