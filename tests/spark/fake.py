"""A cluster in a dictionary, a clock that only the test moves, and a stream over both."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyrmq._tables.offsets import Mark
from pyrmq._tables.options.topic_options import Options
from pyrmq._tables.planning.cluster import AbsentBroker, ClusterSnapshot
from pyrmq._tables.planning.progress import Progress
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
        anew: from which offset on a queue's messages are others, and what this adds to their times.
        unmarked: queues of which no message can be had.
        group: what the consumer group has committed.
        size: stored bytes of a message.
        calls: how often a snapshot was taken.
        listings: how often topics were listed.
    """

    queues: dict[Queue, Bounds] = field(default_factory=dict)
    away: set[str] = field(default_factory=set)
    slaves: set[str] = field(default_factory=set)
    made_ms: dict[Queue, int] = field(default_factory=dict)
    anew: dict[Queue, tuple[int, int]] = field(default_factory=dict)
    unmarked: set[Queue] = field(default_factory=set)
    group: dict[Queue, int] = field(default_factory=dict)
    size: Callable[[Queue, int], int] = lambda queue, at: 100
    calls: int = 0
    listings: int = 0

    def topics(self, *, system: bool) -> list[str]:
        """List the topics."""
        self.listings += 1
        names = {queue.topic for queue in self.queues}
        return sorted(name for name in names if system or not name.startswith("RMQ_SYS"))

    def snapshot(
        self,
        topics: Iterable[str],
        *,
        expected: Iterable[Queue] = (),
        lenient: bool = False,
        fresh: bool = False,
    ) -> ClusterSnapshot:
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
        return ClusterSnapshot(bounds, away, frozenset(gone), frozenset(self.slaves))

    def marks(self, positions: Mapping[Queue, int]) -> dict[Queue, Mark]:
        """Return the messages before positions that are still there."""
        return {
            queue: Mark(self._stored(queue, offset - 1) * 10, self._stored(queue, offset - 1))
            for queue, offset in positions.items()
            if queue not in self.unmarked
            and self.queues[queue].lowest < offset <= self.queues[queue].highest
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
            queue: next(
                (at for at in range(*held) if self._stored(queue, at) >= timestamp_ms), held[1]
            )
            for queue, held in bounds.items()
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
        since, more = self.anew.get(queue, (0, 0))
        return self.made_ms.get(queue, 0) + offset * 1000 + (more if offset >= since else 0)


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


class Stream:
    """A stream, its cluster and its clock."""

    def __init__(self, queues: dict[Queue, Bounds], **given: str) -> None:
        options = {"nameServer": "h:1", "topic": "t", **given}
        if "topicPattern" in given:
            del options["topic"]
        self.cluster = FakeCluster(dict(queues))
        self.clock = FakeClock()
        self.options = Options.parse(options, batch=False)
        self.progress = self.again()

    def again(self) -> Progress:
        """A new process on the same cluster, as after a restart."""
        self.progress = Progress(
            self.options, self.cluster, self.clock, self.clock.sleep, self.clock.now_ms
        )
        return self.progress

    def latest(self, start: dict[str, Any], limit: int = 0) -> dict[str, Any]:
        """Return what Spark would see: the answer converted to text and back."""
        answer: dict[str, Any] = json.loads(json.dumps(self.progress.latest(start, limit=limit)))
        return answer

    def read(self, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[Queue, int, int]]:
        """Return what a batch would read."""
        return sorted(
            (part.queue, part.start, part.end)
            for task in self.progress.tasks(start, end)
            for part in task
        )
