"""The broker's Python handlers, one family per file."""
