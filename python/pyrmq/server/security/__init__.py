"""Whom a server serves: TLS, users, accounts, limits, and the files that say so."""
