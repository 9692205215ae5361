"""What planning asks of a cluster, one method a need, so that planning is tested without one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol

from pyrmq.spark.errors import OptionError
from pyrmq.spark.offsets import Bounds, Offsets, Queue, resolve

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyrmq.spark.options import Options, Word

__all__ = ["Cluster", "bounds_of", "ending", "starting", "topics_of"]


class Cluster(Protocol):
    """Name servers and brokers as the driver needs them.

    Every method raises `NameServerUnreachable` or `ConnectionLost` when nobody answers in time.
    """

    def topics(self) -> list[str]:
        """List every topic that the name server knows."""

    def bounds(self, topics: Iterable[str], *, missing_ok: bool = False) -> dict[Queue, Bounds]:
        """Say what each readable queue of these topics holds.

        Args:
            topics: their names.
            missing_ok: leave out a topic that does not exist.

        Raises:
            TopicNotFound: a topic does not exist.
        """

    def offset_at(self, queue: Queue, timestamp_ms: int) -> int:
        """Return the first offset stored at or after a time; the queue's end when there is none."""

    def addresses(self) -> dict[str, str]:
        """Return ``host:port`` of every broker seen by `bounds`, by name."""

    def close(self) -> None:
        """Give up all connections."""


def topics_of(options: Options, cluster: Cluster) -> tuple[str, ...]:
    """Return the topics that a read is about: those named, or those that match now."""
    if options.topic_pattern is None:
        return options.topics
    pattern = re.compile(options.topic_pattern)
    return tuple(sorted(topic for topic in cluster.topics() if pattern.fullmatch(topic)))


def bounds_of(options: Options, cluster: Cluster) -> dict[Queue, Bounds]:
    """Say what every queue that a new read is about holds now.

    Raises:
        TopicNotFound: a topic does not exist.
        OptionError: no topic matches the pattern.
    """
    topics = topics_of(options, cluster)
    if not topics:
        raise OptionError("topicPattern", f"matches no topic: {options.topic_pattern}")
    return cluster.bounds(topics)


def starting(options: Options, cluster: Cluster, bounds: Mapping[Queue, Bounds]) -> Offsets:
    """Find where a new read begins.

    Raises:
        OffsetError: offsets that do not fit the queues.
    """
    wanted, timestamp_ms = options.starting, options.starting_timestamp_ms
    return _positions("startingOffsets", wanted, timestamp_ms, bounds, cluster)


def ending(options: Options, cluster: Cluster, bounds: Mapping[Queue, Bounds]) -> Offsets:
    """Find where a batch read ends; raises as `starting`."""
    wanted, timestamp_ms = options.ending, options.ending_timestamp_ms
    return _positions("endingOffsets", wanted, timestamp_ms, bounds, cluster)


def _positions(
    option: str,
    wanted: Word | Offsets,
    timestamp_ms: int | None,
    bounds: Mapping[Queue, Bounds],
    cluster: Cluster,
) -> Offsets:
    if timestamp_ms is not None:
        return {
            queue: min(max(cluster.offset_at(queue, timestamp_ms), held.lowest), held.highest)
            for queue, held in sorted(bounds.items())
        }
    if isinstance(wanted, dict):
        return resolve(wanted, bounds, option)
    return {
        queue: held.lowest if wanted == "earliest" else held.highest
        for queue, held in sorted(bounds.items())
    }
