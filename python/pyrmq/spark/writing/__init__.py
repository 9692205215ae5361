"""The sink: sends a task's rows, at least once or exactly once."""
