"""The broker: it receives, stores and delivers messages."""

from pyrmq.broker.server import Broker

__all__ = ["Broker"]
