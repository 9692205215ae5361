"""Log files: pieces of a directory, and their rows as columns."""
