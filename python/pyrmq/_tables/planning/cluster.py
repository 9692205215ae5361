"""Planning's requests to a cluster, as an interface, so that planning is tested without one."""

from __future__ import annotations

import logging
import re
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pyrmq._tables.errors import BrokerAway, OffsetError, OptionError
from pyrmq._tables.namespace import plain
from pyrmq._tables.offsets import Bounds, Mark, Offsets, Queue, resolve
from pyrmq.errors import ConnectionLost, RequestTimeout, TopicNotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from pyrmq._tables.options.topic_options import Options, Word

__all__ = [
    "NO_ANSWER",
    "AbsentBroker",
    "Cluster",
    "ClusterSnapshot",
    "await_brokers",
    "chosen",
    "ending",
    "is_wanted",
    "starting",
    "topics_of",
]

NO_ANSWER = (ConnectionLost, RequestTimeout)
"""Exceptions of a call if a broker does not answer."""
_log = logging.getLogger("pyrmq.spark")
_PAUSE_S = 0.2


class AbsentBroker(NamedTuple):
    """A broker that gave no answer.

    Attributes:
        address: its last address; empty if it is in no route.
        cause: what happened.
    """

    address: str
    cause: str


@dataclass(frozen=True)
class ClusterSnapshot:
    """The answers of the brokers at one moment.

    Attributes:
        bounds: the bounds of each readable queue.
        away: the brokers that gave no answer, by name.
        gone: topic and broker, if the broker says that it has no such topic.
        slaves: brokers whose slave answered, which may lack messages of its master.
    """

    bounds: dict[Queue, Bounds] = field(default_factory=dict)
    away: dict[str, AbsentBroker] = field(default_factory=dict)
    gone: frozenset[tuple[str, str]] = frozenset()
    slaves: frozenset[str] = frozenset()

    @property
    def brokers(self) -> set[str]:
        """The brokers that answered."""
        return {queue.broker for queue in self.bounds}


class Cluster(Protocol):
    """The name servers and brokers, as an interface for the driver.

    Every method raises `NameServerUnreachable` when no name server answers in time.
    """

    def topics(self, *, system: bool) -> list[str]:
        """List every topic that the name server knows, with or without system topics."""

    def snapshot(
        self,
        topics: Iterable[str],
        *,
        expected: Iterable[Queue] = (),
        lenient: bool = False,
        fresh: bool = False,
    ) -> ClusterSnapshot:
        """Request the bounds of these topics from every broker once, all at the same time.

        Args:
            topics: their names.
            expected: queues that a query has read from; their brokers get a request even if they
                are in no route.
            lenient: leave out topics that are unknown or not readable.
            fresh: a broker is missing from the routes: request them again after a second.

        Raises:
            TopicNotFound: a topic does not exist.
            BrokerError: a topic is not readable.
        """

    def marks(self, positions: Mapping[Queue, int]) -> dict[Queue, Mark]:
        """Return the message before each position, if it exists and its broker answers."""

    def sizes(self, probes: Sequence[tuple[Queue, int]]) -> dict[tuple[Queue, int], int]:
        """Return the stored bytes of messages, without those that are unavailable now."""

    def compacted(self, topics: Collection[str]) -> set[str]:
        """Return the topics with compaction: missing offsets are not a loss there."""

    def offsets_at(self, bounds: Mapping[Queue, Bounds], timestamp_ms: int) -> Offsets:
        """Return each queue's first offset stored at or after a time; its end if there is none.

        Raises:
            ConnectionLost: a broker does not answer.
        """

    def committed(self, queues: Iterable[Queue]) -> Offsets:
        """Return the group's committed offsets, for the queues that have one.

        Raises:
            ConnectionLost: a broker does not answer.
        """

    def commit(self, offsets: Offsets) -> list[str]:
        """Commit offsets to the group; return a text about those that failed."""

    def addresses(self) -> dict[str, str]:
        """Return ``host:port`` of every broker seen by `snapshot`, by name."""

    def close(self) -> None:
        """Close all connections."""


def topics_of(options: Options, cluster: Cluster) -> tuple[str, ...]:
    """Return the topics of a read: those named, or those that match now."""
    if options.topic_pattern is None:
        return options.topics
    known = cluster.topics(system=options.include_system_topics)
    return tuple(sorted(topic for topic in known if _matches(options, topic)))


def _matches(options: Options, topic: str) -> bool:
    name = plain(options.namespace, topic)
    return bool(name and re.fullmatch(options.topic_pattern or "", name))


def is_wanted(options: Options, queue: Queue) -> bool:
    """Return whether a queue belongs to a read, whatever its options called the topics."""
    if options.queues:
        return queue in options.queues
    if options.topic_pattern is None:
        return queue.topic in options.topics
    return _matches(options, queue.topic)


def chosen(options: Options, snapshot: ClusterSnapshot) -> ClusterSnapshot:
    """Leave out the queues that option ``queues`` does not name."""
    if not options.queues:
        return snapshot
    return replace(
        snapshot,
        bounds={queue: held for queue, held in snapshot.bounds.items() if queue in options.queues},
    )


def await_brokers(
    options: Options,
    cluster: Cluster,
    *,
    all_of_route: bool,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> ClusterSnapshot:
    """Look up the queues of a new read, and wait up to ``timeoutMs`` for its brokers.

    Args:
        options: the read's options.
        cluster: the cluster to read from.
        all_of_route: fail when a broker of the route does not answer; otherwise continue without it
            as long as another one answers.
        clock: seconds, monotonic.
        sleep: waits seconds.

    Raises:
        TopicNotFound: a topic does not exist.
        OptionError: no topic matches the pattern.
        BrokerAway: a broker that is needed does not answer or is in no route.
    """
    topics = topics_of(options, cluster)
    if not topics:
        raise OptionError("topicPattern", f"matches no topic: {options.topic_pattern}")
    deadline = clock() + options.timeout_ms / 1000
    needed = sorted({*options.brokers, *(queue.broker for queue in options.queues)})
    missing: list[str] = []
    while True:
        try:
            snapshot = cluster.snapshot(
                topics, lenient=options.topic_pattern is not None, fresh=bool(missing)
            )
        except TopicNotFound:
            # No broker of the topic is registered; those to wait for may register meanwhile.
            if not needed or clock() >= deadline:
                raise
            sleep(_PAUSE_S)
            continue
        missing = [name for name in needed if name not in snapshot.brokers]
        if not snapshot.away and not missing:
            break
        if clock() >= deadline:
            _check_away(options, snapshot, missing, all_of_route=all_of_route)
            break
        sleep(_PAUSE_S)
    _log.info("reading %s from: %s", ", ".join(topics), ", ".join(sorted(snapshot.brokers)))
    for queue in sorted(options.queues - snapshot.bounds.keys()):
        if queue.broker not in snapshot.away:
            raise OffsetError(f"option queues: does not exist: {queue}")
    return chosen(options, snapshot)


def _check_away(
    options: Options, snapshot: ClusterSnapshot, missing: list[str], *, all_of_route: bool
) -> None:
    waited = f"waited {options.timeout_ms / 1000:g} s (timeoutMs)"
    for broker in missing:
        if broker not in snapshot.away:
            raise BrokerAway(
                f"broker {broker} is needed, but in no route of the topic; {waited}. Start it, or"
                " correct option brokers or queues if it names it"
            )
    if snapshot.away and (all_of_route or missing or not snapshot.bounds):
        broker, away = sorted(snapshot.away.items())[0]
        raise BrokerAway(
            f"broker {broker} ({away.address or 'no address'}) does not answer: {away.cause};"
            f" {waited}"
        )
    for broker, away in sorted(snapshot.away.items()):
        _log.warning(
            "the query starts without broker %s (%s): %s",
            broker,
            away.address or "no address",
            away.cause,
        )


def starting(options: Options, cluster: Cluster, bounds: Mapping[Queue, Bounds]) -> Offsets:
    """Find where a new read begins.

    Raises:
        OffsetError: offsets that do not fit the queues.
    """
    times = _times(options.starting_timestamp_ms, options.starting_times, bounds, "starting")
    if times is None:
        return _positions("startingOffsets", options.starting, bounds, cluster)
    offsets = _by_times(times, bounds, cluster)
    if options.starting_strategy == "error":
        for queue, offset in offsets.items():
            if offset == bounds[queue].highest:
                raise OffsetError(
                    f"{queue}: nothing was stored since {times[queue]};"
                    " startingOffsetsByTimestampStrategy=latest starts at its end"
                )
    return offsets


def ending(options: Options, cluster: Cluster, bounds: Mapping[Queue, Bounds]) -> Offsets:
    """Find where a batch read ends; raises as `starting`."""
    times = _times(options.ending_timestamp_ms, options.ending_times, bounds, "ending")
    if times is None:
        return _positions("endingOffsets", options.ending, bounds, cluster)
    return _by_times(times, bounds, cluster)


def _times(
    one_for_all: int | None, given: Offsets | None, bounds: Mapping[Queue, Bounds], which: str
) -> Mapping[Queue, int] | None:
    if one_for_all is not None:
        return dict.fromkeys(bounds, one_for_all)
    return None if given is None else resolve(given, bounds, f"{which}OffsetsByTimestamp")


def _by_times(
    times: Mapping[Queue, int], bounds: Mapping[Queue, Bounds], cluster: Cluster
) -> Offsets:
    found: Offsets = {}
    for moment in sorted(set(times.values())):
        at_once = {queue: held for queue, held in bounds.items() if times[queue] == moment}
        found.update(cluster.offsets_at(at_once, moment))
    return dict(sorted(found.items()))


def _positions(
    option: str,
    wanted: Word | Offsets,
    bounds: Mapping[Queue, Bounds],
    cluster: Cluster,
) -> Offsets:
    if isinstance(wanted, dict):
        return resolve(wanted, bounds, option)
    if wanted == "group":
        committed = cluster.committed(bounds)
        return {
            queue: min(max(committed.get(queue, held.lowest), held.lowest), held.highest)
            for queue, held in sorted(bounds.items())
        }
    return {
        queue: held.lowest if wanted == "earliest" else held.highest
        for queue, held in sorted(bounds.items())
    }
