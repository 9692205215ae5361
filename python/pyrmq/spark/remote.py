"""A real cluster as the driver asks it: routes from a name server, bounds from the brokers.

A route is kept for `ROUTE_S`, and longer when it cannot be had anew: while a broker is restarting
its name server has no route to it, although the broker itself will answer again soon. A server
that does not answer is asked again until ``timeoutMs`` has passed.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from pyrmq import _core
from pyrmq.admin import Admin
from pyrmq.codes import RequestCode
from pyrmq.errors import (
    BrokerBusy,
    BrokerError,
    ConnectionLost,
    NameServerUnreachable,
    ProtocolError,
    RequestTimeout,
    RmqError,
    ServiceUnavailable,
    TopicNotFound,
)
from pyrmq.remoting import Client
from pyrmq.spark.offsets import Bounds, Queue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyrmq._core import Command
    from pyrmq.admin import TopicRoute
    from pyrmq.spark.options import Options

__all__ = ["ROUTE_S", "RemoteCluster"]

ROUTE_S = 30.0
"""How long a route is used before it is asked for again, in seconds."""

_READABLE = 4
_REQUEST_MS = 5000
_PAUSE_S = (0.05, 0.1, 0.2, 0.5)

_Answer = TypeVar("_Answer")
_Fields: TypeAlias = dict[str, str | int | bool | None]


@dataclass
class _Route:
    asked_at: float
    addresses: dict[str, str]
    queues: dict[str, int]


@dataclass
class RemoteCluster:
    """The cluster behind the name servers of some options.

    Args:
        options: name servers and time-outs.

    Example:
        >>> RemoteCluster(options).bounds(["orders"])  # doctest: +SKIP
        {Queue(topic='orders', broker='broker-a', queue_id=0): Bounds(lowest=0, highest=12)}
    """

    options: Options
    _client: Client = field(default_factory=Client, init=False)
    _routes: dict[str, _Route] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        """Prepare to ask; nothing is sent yet."""
        self._timeout = min(_REQUEST_MS, self.options.timeout_ms) / 1000
        self._admin = Admin(name_server=self.options.name_server, timeout=self._timeout)

    def topics(self) -> list[str]:
        """List every topic that the name server knows.

        Raises:
            NameServerUnreachable: no name server answers.
        """
        return self._patiently(self._admin.topics)

    def bounds(self, topics: Iterable[str], *, missing_ok: bool = False) -> dict[Queue, Bounds]:
        """Say what each readable queue of these topics holds.

        Args:
            topics: their names.
            missing_ok: leave out a topic that does not exist.

        Raises:
            TopicNotFound: a topic does not exist.
            NameServerUnreachable: no name server answers.
            ConnectionLost: a broker does not answer.
        """
        found: dict[Queue, Bounds] = {}
        for topic in topics:
            try:
                found.update(self._patiently(lambda topic=topic: self._bounds(topic)))  # type: ignore[misc]
            except TopicNotFound:
                if not missing_ok:
                    raise
        return dict(sorted(found.items()))

    def offset_at(self, queue: Queue, timestamp_ms: int) -> int:
        """Return the first offset stored at or after a time; the queue's end when there is none.

        Raises:
            ConnectionLost: the broker does not answer.
        """
        fields: _Fields = {
            "topic": queue.topic,
            "queueId": queue.queue_id,
            "timestamp": timestamp_ms,
        }
        return self._patiently(
            lambda: self._offset(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, queue, fields)
        )

    def addresses(self) -> dict[str, str]:
        """Return ``host:port`` of every broker seen by `bounds`, by name."""
        return {
            broker: address
            for route in self._routes.values()
            for broker, address in route.addresses.items()
        }

    def close(self) -> None:
        """Give up all connections."""
        self._client.close()
        self._admin.close()

    def _bounds(self, topic: str) -> dict[Queue, Bounds]:
        route = self._route(topic)
        found: dict[Queue, Bounds] = {}
        for broker, count in route.queues.items():
            fields: _Fields = {"topic": topic}
            answer = self._ask(route.addresses[broker], RequestCode.GET_TOPIC_STATS_INFO, fields)
            held = _stats(answer.body, broker)
            for queue_id in range(count):
                queue = Queue(topic, broker, queue_id)
                # The statistics list write queues; a topic may have more to read.
                found[queue] = held.get(queue_id) or self._bounds_of(queue)
        return found

    def _bounds_of(self, queue: Queue) -> Bounds:
        fields: _Fields = {"topic": queue.topic, "queueId": queue.queue_id}
        return Bounds(
            self._offset(RequestCode.GET_MIN_OFFSET, queue, fields),
            self._offset(RequestCode.GET_MAX_OFFSET, queue, fields),
        )

    def _offset(self, code: RequestCode, queue: Queue, fields: _Fields) -> int:
        address = self._route(queue.topic).addresses[queue.broker]
        answer = self._ask(address, code, fields)
        try:
            return max(0, int(answer.fields["offset"]))
        except (KeyError, ValueError) as error:
            raise ProtocolError(f"{queue}: {address} answered no offset: {answer!r}") from error

    def _route(self, topic: str) -> _Route:
        known = self._routes.get(topic)
        now = time.monotonic()
        if known is not None and now - known.asked_at < ROUTE_S:
            return known
        try:
            answer = self._admin.route(topic)
        except (TopicNotFound, NameServerUnreachable) as error:
            if known is not None:
                return known
            if isinstance(error, TopicNotFound):
                raise TopicNotFound(
                    f"topic {topic}: does not exist on {self.options.name_server}: create it, or"
                    " look at the spelling",
                    topic=topic,
                    remark=error.remark,
                ) from error
            raise
        route = _read_route(answer, now)
        if not route.queues:
            raise BrokerError(
                f"topic {topic}: no broker lets it be read: its permission lacks read"
            )
        self._routes[topic] = route
        return route

    def _ask(self, address: str, code: RequestCode, fields: _Fields) -> Command:
        return self._client.ask(address, code, fields, timeout=self._timeout)

    def _patiently(self, ask: Callable[[], _Answer]) -> _Answer:
        """Ask again while the failure may pass and the time is not up."""
        begun = time.monotonic()
        attempt = 0
        while True:
            try:
                return ask()
            except RmqError as error:
                waited = time.monotonic() - begun
                pause = _PAUSE_S[min(attempt, len(_PAUSE_S) - 1)]
                passing = isinstance(
                    error,
                    ConnectionLost
                    | RequestTimeout
                    | NameServerUnreachable
                    | BrokerBusy
                    | ServiceUnavailable,
                )
                if not passing or waited + pause > self.options.timeout_ms / 1000:
                    raise
            attempt += 1
            time.sleep(pause)


def _read_route(route: TopicRoute, now: float) -> _Route:
    addresses = {
        # A slave serves reads while its master is away.
        broker.name: broker.addresses[min(broker.addresses)]
        for broker in route.brokers
        if broker.addresses
    }
    queues = {
        queue.broker: queue.read_queues
        for queue in route.queues
        if queue.perm & _READABLE and queue.broker in addresses
    }
    return _Route(now, addresses, queues)


def _stats(body: bytes | None, broker: str) -> dict[int, Bounds]:
    """Read topic statistics, whose names are queues: `parse_json` gives each as its pairs."""
    stats = _core.parse_json(body or b"{}")
    if not isinstance(stats, dict):
        raise ProtocolError(f"{broker}: the topic statistics are no JSON object: {body!r:.200}")
    held: dict[int, Bounds] = {}
    for name, offsets in (stats.get("offsetTable") or {}).items():
        queue = dict(name)
        if queue.get("brokerName") == broker:
            held[int(queue["queueId"])] = Bounds(
                max(0, int(offsets["minOffset"])), max(0, int(offsets["maxOffset"]))
            )
    return held
