"""The progress of streaming queries, and their lag."""
