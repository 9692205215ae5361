"""The name server: who the brokers are and which of them has which topic."""

from pyrmq.nameserver.server import NameServer
from pyrmq.nameserver.views import LiveBroker, Route, RouteBroker, RouteQueues

__all__ = ["LiveBroker", "NameServer", "Route", "RouteBroker", "RouteQueues"]
