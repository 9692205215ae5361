"""Requests of the driver to a real cluster: all brokers at once, each with its own deadline.

A broker that does not answer delays no other: a snapshot waits at most `_BROKER_TIMEOUT_MS` for
it, and while it is away it gets a request only every `_PROBE_S`. A call that needs an answer
repeats its request until ``timeoutMs`` has passed.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from pyrmq import _core
from pyrmq._names import V5_0_0
from pyrmq._tables.brokers.groups import KnownGroup
from pyrmq._tables.brokers.routes import Routes
from pyrmq._tables.brokers.times import first_at
from pyrmq._tables.brokers.wire import (
    TRANSIENT,
    Fields,
    group_fields,
    pull_fields,
    read_attributes,
    read_mark,
    read_size,
    read_stats,
)
from pyrmq._tables.offsets import Bounds, Mark, Offsets, Queue
from pyrmq._tables.planning.cluster import AbsentBroker, ClusterSnapshot
from pyrmq.admin import Admin
from pyrmq.codes import RequestCode, ResponseCode
from pyrmq.errors import (
    BrokerBusy,
    BrokerError,
    ConnectionLost,
    NameServerUnreachable,
    ProtocolError,
    RmqError,
    TopicNotFound,
)
from pyrmq.remoting import Command, answer_error

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from pyrmq._tables.options.topic_options import Options

__all__ = ["RemoteCluster"]

_BROKER_TIMEOUT_MS = 1000
_PROBE_S = 2.0
_PROBE_MS = 500
_REQUEST_MS = 5000
_NAMES_S = 2.0
_TOPICS_PER_REQUEST = 500
_MAX_RETRIES_AT_ONCE = 10
"""Below the 20 requests of one connection that our brokers let wait."""
_MASTERLESS = "only slaves of it are registered; readFrom=any reads from them"
_PAUSE_S = (0.05, 0.1, 0.2, 0.5)

_log = logging.getLogger("pyrmq.spark")

_Answer = TypeVar("_Answer")


class _TopicRequest(NamedTuple):
    topic: str
    broker: str
    address: str
    queues: range


@dataclass
class RemoteCluster:
    """The cluster behind the name servers of some options.

    Args:
        options: name servers and time-outs.

    Example:
        >>> RemoteCluster(options).snapshot(["orders"]).bounds  # doctest: +SKIP
        {Queue(topic='orders', broker='broker-a', queue_id=0): Bounds(lowest=0, highest=12)}
    """

    options: Options
    _connections: _core.Connections = field(init=False)
    _routes: Routes = field(init=False)
    _group: KnownGroup = field(init=False)
    _away: dict[str, tuple[float, AbsentBroker]] = field(default_factory=dict, init=False)
    _unreadable: set[str] = field(default_factory=set, init=False)
    _policies: dict[str, str] = field(default_factory=dict, init=False)
    _one_by_one: set[str] = field(default_factory=set, init=False)
    """Addresses of brokers that answer only for one topic."""
    _at_once: dict[str, int] = field(default_factory=dict, init=False)
    """Topics to request from a broker at once, by address, if it refused a request with more."""
    _unanswered: set[tuple[str, str]] = field(default_factory=set, init=False)
    """Topics, each with an address, for which a broker returned an error."""
    _old: set[str] = field(default_factory=set, init=False)
    """Addresses of brokers before 5.0."""

    def __post_init__(self) -> None:
        """Prepare the connections; nothing is sent yet."""
        self._timeout_ms = min(_REQUEST_MS, self.options.timeout_ms)
        self._connections = _core.Connections(
            connect_timeout_ms=_BROKER_TIMEOUT_MS, **self.options.security.native()
        )
        self._admin = Admin(
            name_server=self.options.name_server,
            timeout=min(_NAMES_S, self._timeout_ms / 1000),
            **self.options.security.arguments(),
        )
        self._routes = Routes(self.options, self._admin)
        self._group = KnownGroup(self._connections, self._admin, self.options.group)

    def topics(self, *, system: bool) -> list[str]:
        """List every topic that the name server knows, with or without system topics.

        Raises:
            NameServerUnreachable: no name server answers.
        """
        return self._with_retries(lambda: self._routes.topics(system=system))

    def snapshot(
        self,
        topics: Iterable[str],
        *,
        expected: Iterable[Queue] = (),
        lenient: bool = False,
        fresh: bool = False,
    ) -> ClusterSnapshot:
        """Request bounds from every broker of these topics once; see `Cluster.snapshot`."""
        requests, away = self._requests_for(topics, expected, lenient=lenient, fresh=fresh)
        bounds: dict[Queue, Bounds] = {}
        gone: set[tuple[str, str]] = set()
        for request, answer in self._statistics(requests):
            if isinstance(answer, TopicNotFound):
                gone.add((request.topic, request.broker))
                self._away.pop(request.broker, None)
            elif isinstance(answer, TRANSIENT):
                away[request.broker] = AbsentBroker(request.address, str(answer))
            elif isinstance(answer, Exception):
                raise answer
            else:
                try:
                    held = self._bounds_of(request, answer)
                except TRANSIENT as error:
                    away[request.broker] = AbsentBroker(request.address, str(error))
                    continue
                self._away.pop(request.broker, None)
                bounds.update(held)
        for broker, cause in away.items():
            self._away[broker] = (time.monotonic(), cause)
        away.update({name: cause for name, (_, cause) in self._away.items()})
        silent = {queue for queue in bounds if queue.broker in away}
        kept = {queue: held for queue, held in sorted(bounds.items()) if queue not in silent}
        brokers = {request.broker for request in requests}
        return ClusterSnapshot(
            kept, away, frozenset(gone), frozenset(brokers & self._routes.slaves)
        )

    def marks(self, positions: Mapping[Queue, int]) -> dict[Queue, Mark]:
        """Return the message before each position, if it exists and its broker answers."""
        before = {
            queue: offset - 1
            for queue, offset in positions.items()
            if offset > 0 and queue.broker not in self._away
        }
        try:
            return self._peek(before, all_of=False)
        except ConnectionLost:
            return {}

    def sizes(self, probes: Sequence[tuple[Queue, int]]) -> dict[tuple[Queue, int], int]:
        """Return the stored bytes of messages, without those that are unavailable now."""
        probed = [probe for probe in probes if probe[0].broker not in self._away]
        try:
            bodies = self._messages(probed)
        except ConnectionLost:
            return {}
        return {
            probe: read_size(body)
            for probe, body in zip(probed, bodies, strict=True)
            if isinstance(body, bytes)
        }

    def compacted(self, topics: Collection[str]) -> set[str]:
        """Return the topics with compaction; each broker of a topic gets one request.

        One of them may be away, or not have the attribute yet, so any of them decides.
        """
        requests = []
        for topic in topics:
            route = None if topic in self._policies else self._routes.of(topic)
            if route is not None:
                # Brokers before 5.0 know no compaction, and those before 4.9.1 would not answer.
                if self._old.issuperset(route.addresses.values()):
                    self._policies[topic] = "DELETE"
                addresses = set(route.addresses.values()) - self._old
                requests += [_TopicRequest(topic, "", at, range(0)) for at in addresses]
        fields: list[tuple[Fields, int]] = [
            ({"topic": a.topic}, self._timeout_ms) for a in requests
        ]
        answers = self._request(RequestCode.GET_TOPIC_CONFIG, requests, fields)
        for request, answer in zip(requests, answers, strict=True):
            if isinstance(answer, TRANSIENT):
                continue
            known = {} if isinstance(answer, Exception) else read_attributes(answer.body)
            if self._policies.get(request.topic) != "COMPACTION":
                self._policies[request.topic] = known.get("cleanup.policy", "DELETE")
        return {topic for topic in topics if self._policies.get(topic) == "COMPACTION"}

    def offsets_at(self, bounds: Mapping[Queue, Bounds], timestamp_ms: int) -> Offsets:
        """Return each queue's first offset stored at or after a time; its end if there is none.

        Raises:
            ConnectionLost: a broker does not answer.
        """
        queues = list(bounds)
        fields: list[Fields] = [
            {"topic": queue.topic, "queueId": queue.queue_id, "timestamp": timestamp_ms}
            for queue in queues
        ]
        code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
        hints = self._with_retries(lambda: self._offsets_once(code, queues, fields))

        def store_times(wanted: dict[Queue, int]) -> dict[Queue, int]:
            marks = self._with_retries(lambda: self._peek(wanted, all_of=True))
            return {queue: mark.stored_ms for queue, mark in marks.items()}

        return first_at(bounds, dict(zip(queues, hints, strict=True)), timestamp_ms, store_times)

    def committed(self, queues: Iterable[Queue]) -> Offsets:
        """Return the group's committed offsets, for the queues that have one.

        Raises:
            ConnectionLost: a broker does not answer.
        """
        wanted = list(queues)
        group = self.options.group
        fields = [group_fields(group, queue) for queue in wanted]

        def request() -> Offsets:
            found: Offsets = {}
            answers = self._request_for_queues(RequestCode.QUERY_CONSUMER_OFFSET, wanted, fields)
            for queue, answer in zip(wanted, answers, strict=True):
                if isinstance(answer, BrokerError) and answer.code == ResponseCode.QUERY_NOT_FOUND:
                    continue
                if isinstance(answer, Exception):
                    raise answer
                found[queue] = max(0, int(answer.fields["offset"]))
            return found

        return self._with_retries(request)

    def commit(self, offsets: Offsets) -> list[str]:
        """Commit offsets to the group; return a text about those that failed."""
        queues = [queue for queue in offsets if queue.broker not in self._away]
        group = self.options.group
        masters = {queue.broker for queue in queues} - self._routes.slaves
        self._group.announce(masters, self.addresses(), self._timeout_ms)
        fields: list[Fields] = [
            {**group_fields(group, queue), "commitOffset": offsets[queue]} for queue in queues
        ]
        try:
            answers = self._request_for_queues(RequestCode.UPDATE_CONSUMER_OFFSET, queues, fields)
        except ConnectionLost as error:
            return [str(error)]
        return [
            f"{queue}: {answer}"
            for queue, answer in zip(queues, answers, strict=True)
            if isinstance(answer, Exception)
        ]

    def addresses(self) -> dict[str, str]:
        """Return ``host:port`` of every broker seen by `snapshot`, by name."""
        return self._routes.addresses()

    def close(self) -> None:
        """Close all connections."""
        self._connections.close()
        self._admin.close()

    def _statistics(
        self, requests: Sequence[_TopicRequest]
    ) -> list[tuple[_TopicRequest, dict[int, Bounds] | Exception]]:
        """Request bounds: of many topics at once from our brokers, topic by topic from others."""
        found: dict[_TopicRequest, dict[int, Bounds] | Exception] = {}
        left_out: set[_TopicRequest] = set()
        parts = self._parts(requests)
        while parts:
            firsts = [part[0] for part in parts]
            bodies = [json.dumps({"topics": [a.topic for a in p[1:]]}).encode() for p in parts]
            smaller: list[list[_TopicRequest]] = []
            for part, answer in zip(parts, self._request_statistics(firsts, bodies), strict=True):
                if isinstance(answer, TRANSIENT):
                    found.update(dict.fromkeys(part, answer))
                elif len(part) > 1 and _has_too_many_queues(answer):
                    half = (len(part) + 1) // 2
                    self._at_once[part[0].address] = half
                    smaller += [part[:half], part[half:]]
                elif not isinstance(answer, Exception):
                    found.update(
                        {
                            request: answer[request.topic]
                            for request in part
                            if request.topic in answer
                        }
                    )
                    left_out |= {request for request in part if request.topic not in answer}
            parts = smaller
        # A request for each finds the one of many that is unknown or forbidden.
        left = [request for request in requests if request not in found]
        for request, answer in zip(
            left, self._request_statistics(left, [b""] * len(left)), strict=True
        ):
            if isinstance(answer, Exception):
                found[request] = answer
                self._unanswered.add((request.topic, request.address))
            else:
                found[request] = answer.get(request.topic, {})
                if request in left_out:
                    self._one_by_one.add(request.address)
        return [(request, found[request]) for request in requests]

    def _parts(self, requests: Sequence[_TopicRequest]) -> list[list[_TopicRequest]]:
        """Return the requests for many topics, first those that were answered before."""
        groups: dict[str, list[_TopicRequest]] = {}
        for request in requests:
            if request.address not in self._one_by_one:
                groups.setdefault(request.address, []).append(request)
        parts: list[list[_TopicRequest]] = []
        for address, group in groups.items():
            group.sort(key=lambda request: (request.topic, request.address) in self._unanswered)
            size = self._at_once.get(address, _TOPICS_PER_REQUEST)
            starts = range(0, len(group) if len(group) > 1 else 0, size)
            parts += [group[at : at + size] for at in starts]
        return parts

    def _request_statistics(
        self, requests: Sequence[_TopicRequest], bodies: Sequence[bytes]
    ) -> list[dict[str, dict[int, Bounds]] | Exception]:
        fields: list[tuple[Fields, int]] = [
            ({"topic": request.topic}, self._timeout_of(request.broker)) for request in requests
        ]
        code = RequestCode.GET_TOPIC_STATS_INFO
        answers = self._request(code, requests, fields, bodies)
        given_up: set[str] = set()
        while few := _refused_as_busy(requests, answers, given_up):
            again = self._request(
                code,
                [requests[at] for at in few],
                [fields[at] for at in few],
                [bodies[at] for at in few],
            )
            new: dict[str, list[Command | Exception]] = {}
            for at, answer in zip(few, again, strict=True):
                answers[at] = answer
                new.setdefault(requests[at].address, []).append(answer)
            failures = {address: _failure(of_one) for address, of_one in new.items()}
            given_up |= {address for address, failure in failures.items() if failure is not None}
            answers = [
                failures.get(request.address) or answer
                if isinstance(answer, BrokerBusy)
                else answer
                for request, answer in zip(requests, answers, strict=True)
            ]
        self._old |= {
            request.address
            for request, answer in zip(requests, answers, strict=True)
            if not isinstance(answer, Exception) and answer.version < V5_0_0
        }
        return [
            answer if isinstance(answer, Exception) else read_stats(answer.body, request.broker)
            for request, answer in zip(requests, answers, strict=True)
        ]

    def _requests_for(
        self, topics: Iterable[str], expected: Iterable[Queue], *, lenient: bool, fresh: bool
    ) -> tuple[list[_TopicRequest], dict[str, AbsentBroker]]:
        wanted: dict[tuple[str, str], int] = {}
        for queue in expected:
            place = (queue.topic, queue.broker)
            wanted[place] = max(wanted.get(place, 0), queue.queue_id + 1)
        names = sorted({*topics, *(topic for topic, _ in wanted)})
        is_away = fresh or bool(self._away)
        requests: list[_TopicRequest] = []
        away: dict[str, AbsentBroker] = {}
        for topic in names:
            route = self._with_retries(partial(self._routes.of, topic, is_away=is_away))
            counts = {broker: count for (name, broker), count in wanted.items() if name == topic}
            if route is not None:
                counts = {
                    broker: count for broker, count in counts.items() if broker not in route.queues
                } | route.queues
                counts = {
                    broker: count
                    for broker, count in counts.items()
                    if broker not in route.unreadable
                }
                for broker in route.masterless - counts.keys():
                    away[broker] = AbsentBroker("", _MASTERLESS)
            if not counts and (route is None or not route.masterless):
                self._skip(topic, is_known=route is not None, lenient=lenient)
            for broker, count in sorted(counts.items()):
                address = self._address(broker, topic)
                if address is None:
                    away[broker] = AbsentBroker(
                        "", "is in no route and in no cluster of the name servers"
                    )
                elif self._is_due(broker):
                    requests.append(_TopicRequest(topic, broker, address, range(count)))
        return requests, away

    def _address(self, broker: str, topic: str) -> str | None:
        try:
            return self._routes.address(broker, self._routes.of(topic, is_away=False))
        except NameServerUnreachable:
            return self._routes.addresses().get(broker)

    def _skip(self, topic: str, *, is_known: bool, lenient: bool) -> None:
        if not is_known and not lenient:
            raise TopicNotFound(
                f"topic {topic}: does not exist on {self.options.name_server}: create it, or check"
                " the spelling",
                topic=topic,
            )
        if is_known and not lenient:
            raise BrokerError(
                f"topic {topic}: no broker allows reading it: its permission lacks read"
            )
        if is_known and topic not in self._unreadable:
            self._unreadable.add(topic)
            _log.warning("topic %s is left out: its permission lacks read", topic)

    def _is_due(self, broker: str) -> bool:
        known = self._away.get(broker)
        return known is None or time.monotonic() - known[0] >= _PROBE_S

    def _timeout_of(self, broker: str) -> int:
        return min(_PROBE_MS if broker in self._away else _BROKER_TIMEOUT_MS, self._timeout_ms)

    def _bounds_of(self, request: _TopicRequest, held: dict[int, Bounds]) -> dict[Queue, Bounds]:
        found = {}
        unlisted = []
        for queue_id in request.queues:
            queue = Queue(request.topic, request.broker, queue_id)
            if queue_id in held:
                found[queue] = held[queue_id]
            else:
                # The statistics list write queues; a topic may have more to read.
                unlisted.append(queue)
        if unlisted:
            fields: list[Fields] = [{"topic": q.topic, "queueId": q.queue_id} for q in unlisted]
            lowest = self._offsets_once(RequestCode.GET_MIN_OFFSET, unlisted, fields)
            highest = self._offsets_once(RequestCode.GET_MAX_OFFSET, unlisted, fields)
            found.update(zip(unlisted, map(Bounds, lowest, highest), strict=True))
        return found

    def _offsets_once(
        self, code: RequestCode, queues: Sequence[Queue], fields: Sequence[Fields]
    ) -> list[int]:
        found = []
        for queue, answer in zip(
            queues, self._request_for_queues(code, queues, fields), strict=True
        ):
            if isinstance(answer, Exception):
                raise answer
            try:
                found.append(max(0, int(answer.fields["offset"])))
            except (KeyError, ValueError) as error:
                raise ProtocolError(f"{queue}: no offset in the answer: {answer!r}") from error
        return found

    def _peek(self, offsets: Mapping[Queue, int], *, all_of: bool) -> dict[Queue, Mark]:
        """Read log position and store time of one message of each queue, if it exists.

        Raises:
            ConnectionLost: a broker does not answer, and all answers are required.
        """
        found: dict[Queue, Mark] = {}
        probes = list(offsets.items())
        for (queue, offset), body in zip(probes, self._messages(probes), strict=True):
            if isinstance(body, TRANSIENT) and all_of:
                raise body
            mark = read_mark(body, offset) if isinstance(body, bytes) else None
            if mark is not None:
                found[queue] = mark
        return found

    def _messages(self, probes: Sequence[tuple[Queue, int]]) -> list[bytes | Exception | None]:
        """Pull one message at each position, as it is stored; None if there is none.

        Raises:
            ConnectionLost: a broker is in no route.
        """
        fields: list[Fields] = [pull_fields(self.options.group, q, offset) for q, offset in probes]
        answers = self._request_for_queues(RequestCode.PULL_MESSAGE, [q for q, _ in probes], fields)
        return [
            answer if isinstance(answer, Exception) else answer.body or None for answer in answers
        ]

    def _request_for_queues(
        self, code: RequestCode, queues: Sequence[Queue], fields: Sequence[Fields]
    ) -> list[Command | Exception]:
        requests = []
        for queue in queues:
            address = self._address(queue.broker, queue.topic)
            if address is None:
                raise ConnectionLost(f"{queue}: the broker is in no route")
            requests.append(_TopicRequest(queue.topic, queue.broker, address, range(0)))
        return self._request(code, requests, [(each, self._timeout_ms) for each in fields])

    def _request(
        self,
        code: RequestCode,
        requests: Sequence[_TopicRequest],
        fields: Sequence[tuple[Fields, int]],
        bodies: Iterable[bytes] = (),
    ) -> list[Command | Exception]:
        """Send all requests at once; an answer other than success becomes its exception."""
        answers = _core.request_many(
            self._connections,
            [
                (request.address, Command(int(code), each, body or None), timeout_ms)
                for request, (each, timeout_ms), body in zip_longest(requests, fields, bodies)
            ],
        )
        return [
            answer_error(request.address, code, answer)
            if isinstance(answer, Command) and answer.code != ResponseCode.SUCCESS
            else answer
            for request, answer in zip(requests, answers, strict=True)
        ]

    def _with_retries(self, request: Callable[[], _Answer]) -> _Answer:
        """Repeat a request while the failure may be transient and time is left."""
        begun = time.monotonic()
        attempt = 0
        while True:
            try:
                return request()
            except RmqError as error:
                waited = time.monotonic() - begun
                pause = _PAUSE_S[min(attempt, len(_PAUSE_S) - 1)]
                late = waited + pause > self.options.timeout_ms / 1000
                if not isinstance(error, TRANSIENT) or late:
                    raise
            attempt += 1
            time.sleep(pause)


def _refused_as_busy(
    requests: Sequence[_TopicRequest],
    answers: Sequence[Command | Exception],
    given_up: Collection[str],
) -> list[int]:
    """Return the indexes of the first requests that each broker was too busy for.

    Args:
        requests: The requests.
        answers: Their answers, in the same order.
        given_up: Addresses of brokers that get no more requests.
    """
    counts: Counter[str] = Counter()
    few = []
    for at, (request, answer) in enumerate(zip(requests, answers, strict=True)):
        is_left = isinstance(answer, BrokerBusy) and request.address not in given_up
        if is_left and counts[request.address] < _MAX_RETRIES_AT_ONCE:
            counts[request.address] += 1
            few.append(at)
    return few


def _failure(answers: Sequence[Command | Exception]) -> Exception | None:
    """Return why one broker that gave these answers gets no more requests.

    It is silent or away, or too busy for each of a few requests.
    """
    transient = [answer for answer in answers if isinstance(answer, TRANSIENT)]
    others = [answer for answer in transient if not isinstance(answer, BrokerBusy)]
    if not others and len(transient) < len(answers):
        return None
    return (others or transient)[0]


def _has_too_many_queues(answer: object) -> bool:
    return (
        isinstance(answer, BrokerError)
        and answer.code == ResponseCode.INVALID_PARAMETER
        and "ask for fewer topics" in answer.remark
    )
