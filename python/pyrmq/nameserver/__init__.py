"""The name server, which knows all brokers and their topics."""

from pyrmq.nameserver.server import NameServer

__all__ = ["NameServer"]
