"""The name server: who the brokers are and which of them has which topic."""

from pyrmq.nameserver.server import NameServer

__all__ = ["NameServer"]
