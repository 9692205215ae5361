"""A cluster in a dictionary, and a clock that only the test moves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyrmq.spark.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyrmq.spark.offsets import Bounds, Queue


@dataclass
class FakeCluster:
    """Queues with bounds, and the store time of each offset (offset times 1000)."""

    queues: dict[Queue, Bounds] = field(default_factory=dict)
    calls: int = 0

    def topics(self) -> list[str]:
        """List the topics."""
        return sorted({queue.topic for queue in self.queues})

    def bounds(self, topics: Iterable[str], *, missing_ok: bool = False) -> dict[Queue, Bounds]:
        """Return the queues as they are now."""
        self.calls += 1
        wanted = set(topics)
        unknown = wanted - set(self.topics())
        if unknown and not missing_ok:
            raise OptionError("topic", f"no route to topic {unknown.pop()}")
        return {queue: held for queue, held in self.queues.items() if queue.topic in wanted}

    def offset_at(self, queue: Queue, timestamp_ms: int) -> int:
        """Return the offset stored then."""
        return timestamp_ms // 1000

    def addresses(self) -> dict[str, str]:
        """Return one address for all."""
        return {queue.broker: "127.0.0.1:10911" for queue in self.queues}

    def close(self) -> None:
        """Forget the queues."""
        self.queues = {}


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
