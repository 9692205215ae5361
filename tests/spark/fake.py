"""A cluster in a dictionary, and a clock that only the test moves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyrmq._tables.offsets import Mark
from pyrmq._tables.planning.cluster import AbsentBroker, Look
from pyrmq.errors import TopicNotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyrmq._tables.offsets import Bounds, Offsets, Queue


@dataclass
class FakeCluster:
    """Queues with bounds; the message at an offset was stored at `made_ms` plus offset times 1000.

    Attributes:
        queues: what each queue holds.
        away: brokers that do not answer.
        slaves: brokers whose slave answers.
        made_ms: when a queue was made, 0 unless a test made it again.
        group: what the consumer group has committed.
        size: stored bytes of a message.
        calls: how often brokers were looked at.
        listings: how often topics were listed.
    """

    queues: dict[Queue, Bounds] = field(default_factory=dict)
    away: set[str] = field(default_factory=set)
    slaves: set[str] = field(default_factory=set)
    made_ms: dict[Queue, int] = field(default_factory=dict)
    group: dict[Queue, int] = field(default_factory=dict)
    size: Callable[[Queue, int], int] = lambda queue, at: 100
    calls: int = 0
    listings: int = 0

    def topics(self, *, system: bool) -> list[str]:
        """List the topics."""
        self.listings += 1
        names = {queue.topic for queue in self.queues}
        return sorted(name for name in names if system or not name.startswith("RMQ_SYS"))

    def look(
        self,
        topics: Iterable[str],
        *,
        expected: Iterable[Queue] = (),
        lenient: bool = False,
        fresh: bool = False,
    ) -> Look:
        """Return the queues as they are now."""
        self.calls += 1
        expected = set(expected)
        wanted = {*topics, *(queue.topic for queue in expected)}
        unknown = wanted - {queue.topic for queue in self.queues}
        if unknown and not lenient:
            raise TopicNotFound(f"no route to topic {unknown.pop()}")
        bounds = {
            queue: held
            for queue, held in self.queues.items()
            if queue.topic in wanted and queue.broker not in self.away
        }
        there = {(queue.topic, queue.broker) for queue in bounds}
        asked = {(queue.topic, queue.broker) for queue in expected}
        gone = {place for place in asked - there if place[1] not in self.away}
        away = {broker: AbsentBroker("127.0.0.1:1", "no answer") for broker in self.away}
        return Look(bounds, away, frozenset(gone), frozenset(self.slaves))

    def marks(self, positions: Mapping[Queue, int]) -> dict[Queue, Mark]:
        """Return the messages before positions that are still there."""
        return {
            queue: Mark(self._stored(queue, offset - 1) * 10, self._stored(queue, offset - 1))
            for queue, offset in positions.items()
            if self.queues[queue].lowest < offset <= self.queues[queue].highest
        }

    def sizes(self, probes: Sequence[tuple[Queue, int]]) -> dict[tuple[Queue, int], int]:
        """Return the sizes that the test has given."""
        return {(queue, at): self.size(queue, at) for queue, at in probes}

    def compacted(self, topics: Iterable[str]) -> set[str]:
        """No topic has compaction."""
        return set()

    def offsets_at(self, bounds: Mapping[Queue, Bounds], timestamp_ms: int) -> Offsets:
        """Return the first offsets stored at or after a time."""
        return {
            queue: min(max(-(-(timestamp_ms - self._stored(queue, 0)) // 1000), low), high)
            for queue, (low, high) in bounds.items()
        }

    def committed(self, queues: Iterable[Queue]) -> Offsets:
        """Return the group's offsets."""
        return {queue: self.group[queue] for queue in queues if queue in self.group}

    def commit(self, offsets: Offsets) -> list[str]:
        """Take the group's offsets."""
        self.group.update(offsets)
        return []

    def addresses(self) -> dict[str, str]:
        """Return one address for all."""
        return {queue.broker: "127.0.0.1:10911" for queue in self.queues}

    def close(self) -> None:
        """Forget the queues."""
        self.queues = {}

    def _stored(self, queue: Queue, offset: int) -> int:
        return self.made_ms.get(queue, 0) + offset * 1000


@dataclass
class FakeClock:
    """Seconds that pass only by sleeping."""

    now: float = 1000.0
    slept: list[float] = field(default_factory=list)

    def __call__(self) -> float:
        """Return the time."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Advance the time."""
        self.slept.append(seconds)
        self.now += seconds

    def now_ms(self) -> int:
        """Return the time as milliseconds since 1970."""
        return round(self.now * 1000)
