"""Security of a server: TLS, users, accounts, limits, and their files."""
