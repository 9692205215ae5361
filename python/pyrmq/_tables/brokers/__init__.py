"""Requests to brokers and name servers: routes, offsets, times."""
