"""Cuts a micro-batch to a number of bytes, estimated from samples.

A broker does not report the bytes of a queue's messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from pyrmq._tables.planning.plan import limit_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyrmq._tables.offsets import Offsets, Queue

__all__ = ["Sizes", "limit_bytes"]

Sizes: TypeAlias = "Callable[[Sequence[tuple[Queue, int]]], dict[tuple[Queue, int], int]]"
"""Stored bytes of the messages at some offsets; unavailable ones are left out."""

_ROUNDS = 4
_SAMPLES = 5
_MAX_SAMPLES = 256


def limit_bytes(start: Mapping[Queue, int], end: Offsets, limit: int, sizes: Sizes) -> Offsets:
    """Cut a batch to about `limit` bytes, each queue in proportion to what it has waiting.

    A queue with anything to read gets at least one message. The shorter batch is sampled again,
    since its messages may be larger than those after it.

    Args:
        start: position of each queue.
        end: how far the batch could go.
        limit: maximum bytes; 0: no limit.
        sizes: requests the sizes of messages.

    Example:
        >>> from pyrmq._tables.offsets import Queue
        >>> queue = Queue("t", "b", 0)
        >>> ten = lambda probes: {probe: 10 for probe in probes}
        >>> limit_bytes({queue: 0}, {queue: 1000}, 500, ten)[queue]
        50
    """
    if limit <= 0:
        return end
    for _ in range(_ROUNDS):
        waiting = {q: at - start[q] for q, at in end.items() if at > start.get(q, at)}
        if not waiting:
            break
        found = sizes(_probes(start, waiting))
        bytes_ = _estimate(waiting, found)
        if bytes_ <= limit:
            break
        shorter = limit_rows(start, end, max(1, sum(waiting.values()) * limit // bytes_))
        if shorter == end:
            break
        end = shorter
    return end


def _probes(start: Mapping[Queue, int], waiting: Mapping[Queue, int]) -> list[tuple[Queue, int]]:
    """Pick offsets evenly over each range; if there are very many queues, of some only."""
    step = -(-len(waiting) // _MAX_SAMPLES)
    queues = list(waiting)[::step]
    each = max(1, min(_SAMPLES, _MAX_SAMPLES // len(queues)))
    return [
        (queue, start[queue] + at)
        for queue in queues
        for at in sorted(
            {number * (waiting[queue] - 1) // max(1, each - 1) for number in range(each)}
        )
    ]


def _estimate(waiting: Mapping[Queue, int], found: Mapping[tuple[Queue, int], int]) -> int:
    if not found:
        return 0
    mean = sum(found.values()) / len(found)
    by_queue: dict[Queue, list[int]] = {}
    for (queue, _), size in found.items():
        by_queue.setdefault(queue, []).append(size)
    means = {queue: sum(some) / len(some) for queue, some in by_queue.items()}
    return round(sum(count * means.get(queue, mean) for queue, count in waiting.items()))
