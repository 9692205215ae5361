"""What of a batch read a query wants: values of columns, offsets, times. Without Spark."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyrmq._tables.namespace import plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyrmq._tables.offsets import Bounds, Offsets, Queue
    from pyrmq._tables.options.topic_options import Options
    from pyrmq._tables.planning.cluster import Cluster

__all__ = ["LARGEST", "Narrowing", "narrowed"]

LARGEST = 2**63 - 1


@dataclass(frozen=True)
class Narrowing:
    """What a query wants of a read.

    Attributes:
        values: the values that a column may have: topic, brokerName, queueId, tags.
        offsets: queue offsets from the first up to, not including, the second.
        times_ms: store times, likewise.
    """

    values: dict[str, frozenset[object]] = field(default_factory=dict)
    offsets: tuple[int, int] = (0, LARGEST)
    times_ms: tuple[int, int] = (0, LARGEST)

    def wants(self, queue: Queue, topic: str) -> bool:
        """Return whether a queue can have wanted rows; `topic` is its name without a namespace."""
        parts = {"topic": topic, "brokerName": queue.broker, "queueId": queue.queue_id}
        return all(
            value in self.values[name] for name, value in parts.items() if name in self.values
        )

    def tags(self) -> str | None:
        """Return the wanted tags as a subscription; None for any."""
        tags = self.values.get("tags")
        if tags is None or not all(_is_tag(tag) for tag in tags):
            return None
        return " || ".join(sorted(str(tag) for tag in tags)) or None


def narrowed(
    options: Options,
    narrowing: Narrowing,
    cluster: Cluster,
    bounds: Mapping[Queue, Bounds],
    start: Offsets,
    end: Offsets,
) -> tuple[Offsets, Offsets]:
    """Cut a read to what is wanted of it.

    Raises:
        ConnectionLost: a broker does not answer.
    """
    there = {
        queue: held
        for queue, held in bounds.items()
        if narrowing.wants(queue, plain(options.namespace, queue.topic) or queue.topic)
    }
    lowest, highest = narrowing.offsets
    since, until = narrowing.times_ms
    after = cluster.offsets_at(there, since) if since > 0 else {}
    before = cluster.offsets_at(there, until) if until < LARGEST else {}
    starts, ends = {}, {}
    for queue in there:
        starts[queue] = max(start[queue], lowest, after.get(queue, 0))
        ends[queue] = max(starts[queue], min(end[queue], highest, before.get(queue, LARGEST)))
    return starts, ends


def _is_tag(tag: object) -> bool:
    return isinstance(tag, str) and bool(tag) and "|" not in tag and tag == tag.strip() != "*"
