"""A client's user, its TLS, and options that must stay secret."""
