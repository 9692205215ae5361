"""Routes of topics from a name server, kept while it cannot provide new ones.

A name server forgets a broker that is down, although its messages still exist and it may be back in
a moment. So known brokers stay known here.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyrmq import _core
from pyrmq._names import INTERNAL_PREFIXES, PERM_READ, reply_topic
from pyrmq.errors import NameServerUnreachable, TopicNotFound

if TYPE_CHECKING:
    from pyrmq._tables.options.topic_options import Options
    from pyrmq.admin import Admin, BrokerAddresses, TopicRoute

__all__ = ["AGAIN_S", "ROUTE_S", "Route", "Routes"]

ROUTE_S = 30.0
"""How long a route is used before it is requested again, in seconds."""
AGAIN_S = 1.0
"""How long a route is used while a broker does not answer, in seconds."""

_log = logging.getLogger("pyrmq.spark")


@dataclass
class Route:
    """One topic's route.

    Attributes:
        addresses: ``host:port`` to read from, by broker.
        queues: number of readable queues, by broker.
        unreadable: brokers whose permission lacks read.
        masterless: brokers of which only slaves are registered, if only masters are to be read.
    """

    requested_at: float
    addresses: dict[str, str]
    queues: dict[str, int]
    unreadable: set[str]
    masterless: set[str]


@dataclass
class Routes:
    """The routes of a read's topics.

    Args:
        options: which of a broker's addresses to read from.
        admin: the name servers.
    """

    options: Options
    admin: Admin
    _known: dict[str, Route] = field(default_factory=dict, init=False)
    _addresses: dict[str, str] = field(default_factory=dict, init=False)
    slaves: set[str] = field(default_factory=set, init=False)
    """Brokers whose known address is a slave's."""
    _listed_at: float | None = field(default=None, init=False)

    def topics(self, *, system: bool) -> list[str]:
        """List the topics; system topics only on request."""
        topics = self.admin.topics()
        if system:
            return topics
        clusters = self.admin.cluster()
        hidden = {*_core.SYSTEM_TOPICS, *clusters}
        hidden |= {reply_topic(cluster) for cluster in clusters}
        hidden |= {broker.name for members in clusters.values() for broker in members}
        return [
            topic
            for topic in topics
            if topic not in hidden and not topic.startswith(INTERNAL_PREFIXES)
        ]

    def of(self, topic: str, *, is_away: bool = False) -> Route | None:
        """Return a topic's route; None when the name servers know none and never did.

        Args:
            topic: its name.
            is_away: a broker does not answer, so that the route may have changed.

        Raises:
            NameServerUnreachable: no name server answers, and the route is not known.
        """
        known = self._known.get(topic)
        now = time.monotonic()
        if known is not None and now - known.requested_at < (AGAIN_S if is_away else ROUTE_S):
            return known
        try:
            answer = self.admin.route(topic)
        except NameServerUnreachable as error:
            if known is None:
                raise
            _log.debug("the route of %s stays unchanged: %s", topic, error)
        except TopicNotFound:
            if known is None:
                return None
            known.queues.clear()
            known.masterless.clear()
        else:
            known = self._known[topic] = self._read(answer, now)
        known.requested_at = now
        return known

    def address(self, broker: str, route: Route | None) -> str | None:
        """Return where a broker is or was; None when no name server knows it."""
        if route is not None and broker in route.addresses:
            return route.addresses[broker]
        now = time.monotonic()
        if self._listed_at is None or now - self._listed_at >= AGAIN_S:
            self._listed_at = now
            for members in self.admin.cluster().values():
                for member in members:
                    self._learn(member)
        return self._addresses.get(broker)

    def addresses(self) -> dict[str, str]:
        """Return every known address by broker."""
        return dict(self._addresses)

    def _read(self, answer: TopicRoute, now: float) -> Route:
        for broker in answer.brokers:
            self._learn(broker)
        names = {broker.name for broker in answer.brokers}
        addresses = {name: at for name, at in self._addresses.items() if name in names}
        queues = {
            queue.broker: queue.read_queues
            for queue in answer.queues
            if queue.perm & PERM_READ and queue.broker in addresses
        }
        unreadable = {queue.broker for queue in answer.queues if not queue.perm & PERM_READ}
        masterless = {queue.broker for queue in answer.queues} - addresses.keys() - unreadable
        return Route(now, addresses, queues, unreadable, masterless)

    def _learn(self, broker: BrokerAddresses) -> None:
        address = self._chosen(broker)
        if address is None:
            return
        self._addresses[broker.name] = address
        if address == broker.master:
            self.slaves.discard(broker.name)
        else:
            self.slaves.add(broker.name)

    def _chosen(self, broker: BrokerAddresses) -> str | None:
        ids = sorted(broker.addresses)
        if self.options.read_from == "master":
            return broker.master
        if self.options.read_from == "slave":
            ids.reverse()
        return broker.addresses[ids[0]] if ids else None
