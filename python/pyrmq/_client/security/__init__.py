"""In whose name a client sends, how it opens connections, and what must stay secret."""
