"""The name server: it knows the brokers, and which of them has which topic."""

from pyrmq.nameserver.server import NameServer

__all__ = ["NameServer"]
