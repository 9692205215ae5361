"""Requests to brokers and name servers: routes, offsets, times.

``docs/decisions/0019-planning-in-python.md`` says why they are not part of the client in Rust.
"""
