"""The sink: what a task sends, and what makes it exactly once."""
