"""The broker: takes messages, keeps them, gives them out."""

from pyrmq.broker.server import Broker

__all__ = ["Broker"]
