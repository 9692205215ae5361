"""The name server's Python handlers, one family per file."""
