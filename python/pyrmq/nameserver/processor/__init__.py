"""The name server's Python rows, one family a file."""
