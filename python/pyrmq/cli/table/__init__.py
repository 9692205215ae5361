"""`pyrmq export | import`: topics to files and back."""
