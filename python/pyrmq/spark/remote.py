"""A real cluster as the driver asks it: routes from a name server, bounds from the brokers.

A route is kept for `ROUTE_S`, and longer when it cannot be had anew: while a broker is restarting
its name server has no route to it, although the broker itself will answer again soon. Whoever does
not answer is asked again until ``timeoutMs`` has passed.
"""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from pyrmq._core import Command, Connections
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
    for_code,
)
from pyrmq.spark.offsets import Bounds, Queue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyrmq.spark.options import Options

__all__ = ["ROUTE_S", "RemoteCluster"]

ROUTE_S = 30.0
"""How long a route is used before it is asked for again, in seconds."""

_ROUTE, _TOPICS = 105, 206
_SEARCH_OFFSET, _MAX_OFFSET, _MIN_OFFSET, _TOPIC_STATS = 29, 30, 31, 202
_READABLE = 4
_REQUEST_MS = 5000
_PAUSE_S = (0.05, 0.1, 0.2, 0.5)
_BARE_KEY = re.compile(r"([{,]\s*)(\d+)\s*:")
_STATS_ENTRY = re.compile(r"(\{[^{}]*\})\s*:\s*(\{[^{}]*\})")

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
    _connections: Connections = field(default_factory=Connections)
    _routes: dict[str, _Route] = field(default_factory=dict)

    def topics(self) -> list[str]:
        """List every topic that the name server knows.

        Raises:
            NameServerUnreachable: no name server answers.
        """
        answer = self._patiently(lambda: self._ask_name_servers(_TOPICS, {}))
        return list(_object(answer.body).get("topicList") or [])

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
        return self._patiently(lambda: self._offset(_SEARCH_OFFSET, queue, fields))

    def addresses(self) -> dict[str, str]:
        """Return ``host:port`` of every broker seen by `bounds`, by name."""
        return {
            broker: address
            for route in self._routes.values()
            for broker, address in route.addresses.items()
        }

    def close(self) -> None:
        """Give up all connections."""
        self._connections.close()

    def _bounds(self, topic: str) -> dict[Queue, Bounds]:
        route = self._route(topic)
        found: dict[Queue, Bounds] = {}
        for broker, count in route.queues.items():
            answer = self._ask(route.addresses[broker], _TOPIC_STATS, {"topic": topic})
            held = _stats(answer.body, broker)
            for queue_id in range(count):
                queue = Queue(topic, broker, queue_id)
                # The statistics list write queues; a topic may have more to read.
                found[queue] = held.get(queue_id) or self._bounds_of(queue)
        return found

    def _bounds_of(self, queue: Queue) -> Bounds:
        fields: _Fields = {"topic": queue.topic, "queueId": queue.queue_id}
        return Bounds(
            self._offset(_MIN_OFFSET, queue, fields), self._offset(_MAX_OFFSET, queue, fields)
        )

    def _offset(self, code: int, queue: Queue, fields: _Fields) -> int:
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
        fields: _Fields = {"topic": topic, "acceptStandardJsonOnly": True}
        try:
            answer = self._ask_name_servers(_ROUTE, fields)
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
        route = _read_route(_object(answer.body), now)
        if not route.queues:
            raise BrokerError(
                f"topic {topic}: no broker lets it be read: its permission lacks read"
            )
        self._routes[topic] = route
        return route

    def _ask_name_servers(self, code: int, fields: _Fields) -> Command:
        failures = []
        for address in self.options.name_server.split(";"):
            try:
                return self._ask(address, code, fields)
            except (ConnectionLost, RequestTimeout) as error:
                failures.append(str(error))
        raise NameServerUnreachable(
            f"no name server answers: {'; '.join(failures)}", addresses=self.options.name_server
        )

    def _ask(self, address: str, code: int, fields: _Fields) -> Command:
        timeout_ms = min(_REQUEST_MS, self.options.timeout_ms)
        answer = self._connections.request(address, Command(code, fields), timeout_ms)
        if answer.code != 0:
            remark = answer.remark or ""
            raise for_code(answer.code)(
                f"{address} answered code {answer.code} to request {code}: {remark}",
                code=answer.code,
                remark=remark,
                broker=address,
            )
        return answer

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


def _object(body: bytes | None) -> dict[str, Any]:
    """Read a JSON object; old name servers write bare integers as keys."""
    text = (body or b"{}").decode()
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        try:
            value = json.loads(_BARE_KEY.sub(r'\1"\2":', text))
        except json.JSONDecodeError as error:
            raise ProtocolError(f"the answer is no JSON object: {text[:200]}") from error
    if not isinstance(value, dict):
        raise ProtocolError(f"the answer is no JSON object: {text[:200]}")
    return value


def _read_route(route: dict[str, Any], now: float) -> _Route:
    addresses: dict[str, str] = {}
    for broker in route.get("brokerDatas") or []:
        by_id = {int(number): address for number, address in broker["brokerAddrs"].items()}
        if by_id:
            addresses[broker["brokerName"]] = by_id[min(by_id)]
    queues = {
        queue["brokerName"]: int(queue["readQueueNums"])
        for queue in route.get("queueDatas") or []
        if int(queue["perm"]) & _READABLE and queue["brokerName"] in addresses
    }
    return _Route(now, addresses, queues)


def _stats(body: bytes | None, broker: str) -> dict[int, Bounds]:
    """Read topic statistics. Their keys are objects, which no JSON parser takes: find the pairs."""
    held: dict[int, Bounds] = {}
    for match in _STATS_ENTRY.finditer((body or b"").decode()):
        queue, offsets = json.loads(match[1]), json.loads(match[2])
        if queue.get("brokerName") == broker:
            held[int(queue["queueId"])] = Bounds(
                max(0, int(offsets["minOffset"])), max(0, int(offsets["maxOffset"]))
            )
    return held
