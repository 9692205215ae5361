"""Which offsets a batch takes, and how they are cut into tasks. Pure arithmetic, no I/O.

A task costs Python and the JVM tens of milliseconds, so few large tasks are best: a queue with much
to read is a separate task (cut further only on request), small ones share a task.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, NamedTuple

from pyrmq._tables.errors import OffsetError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyrmq._tables.offsets import Bounds, Offsets, Queue

__all__ = ["PACK_ROWS", "Range", "limit_rows", "pack", "ranges_between", "rows", "split", "take"]

PACK_ROWS = 20_000
"""Ranges below this many offsets share a task until it has about as many."""
_LARGEST = 2**63 - 1


class Range(NamedTuple):
    """Offsets of one queue from `start` up to, not including, `end`.

    Attributes:
        compacted: whether the topic has compaction: missing offsets are then not a loss.

    Example:
        >>> from pyrmq._tables.offsets import Queue
        >>> Range(Queue("orders", "broker-a", 0), 5, 9).rows
        4
    """

    queue: Queue
    start: int
    end: int
    compacted: bool = False

    @property
    def rows(self) -> int:
        """How many offsets the range spans."""
        return self.end - self.start


def rows(ranges: Iterable[Range]) -> int:
    """Count the offsets of all ranges.

    Example:
        >>> from pyrmq._tables.offsets import Queue
        >>> rows([Range(Queue("t", "b", 0), 5, 9), Range(Queue("t", "b", 1), 0, 1)])
        5
    """
    return sum(part.rows for part in ranges)


def limit_rows(start: Mapping[Queue, int], end: Mapping[Queue, int], limit: int) -> Offsets:
    """Cut a batch to about `limit` rows, each queue in proportion to what it has waiting.

    A queue with anything to read gets at least one row, so that a small one next to a huge one
    makes progress; the sum may therefore exceed `limit` by one row per queue.

    Args:
        start: position of each queue; a queue that is missing here keeps its value in `end`.
        end: how far each queue could be read.
        limit: maximum rows; 0: no limit.

    Example:
        >>> from pyrmq._tables.offsets import Queue
        >>> a, b = Queue("t", "b", 0), Queue("t", "b", 1)
        >>> [*limit_rows({a: 0, b: 0}, {a: 900, b: 100}, 10).values()]
        [9, 1]
    """
    waiting = {
        queue: end[queue] - start[queue]
        for queue in end
        if end[queue] > start.get(queue, end[queue])
    }
    total = sum(waiting.values())
    if limit <= 0 or total <= limit:
        return dict(end)
    return {
        queue: (
            offset
            if queue not in waiting
            else min(offset, _LARGEST, start[queue] + max(1, limit * waiting[queue] // total))
        )
        for queue, offset in end.items()
    }


def ranges_between(
    start: Mapping[Queue, int], end: Mapping[Queue, int], bounds: Mapping[Queue, Bounds]
) -> list[Range]:
    """List the ranges between two positions, queue by queue, without the empty ones.

    A queue that only `end` knows is new and is read from its earliest message. A queue that only
    `start` knows has vanished, which the caller handles; it is left out here.

    Args:
        start: offsets to read from.
        end: offsets to read up to.
        bounds: where new queues begin.

    Raises:
        OffsetError: a queue's start is after its end.

    Example:
        >>> from pyrmq._tables.offsets import Queue
        >>> a = Queue("t", "b", 0)
        >>> ranges_between({a: 2}, {a: 5}, {})
        [Range(queue=Queue(topic='t', broker='b', queue_id=0), start=2, end=5, compacted=False)]
    """
    found = []
    for queue, upper in sorted(end.items()):
        lower = start.get(queue)
        if lower is None:
            lower = min(bounds[queue].lowest, upper) if queue in bounds else 0
        if lower > upper:
            raise OffsetError(f"{queue}: the start is after the end: {lower} > {upper}")
        if lower < upper:
            found.append(Range(queue, lower, upper))
    return found


def split(ranges: Sequence[Range], *, min_partitions: int = 0, max_records: int = 0) -> list[Range]:
    """Cut ranges so that there are about `min_partitions`, none with more than `max_records`.

    Args:
        ranges: what to read.
        min_partitions: minimum pieces; 0: do not cut. Larger ranges are cut into more.
        max_records: maximum offsets of a piece; 0: no limit.

    Example:
        >>> from pyrmq._tables.offsets import Queue
        >>> [part.rows for part in split([Range(Queue("t", "b", 0), 0, 10)], min_partitions=3)]
        [4, 3, 3]
    """
    total = rows(ranges)
    pieces = []
    for part in ranges:
        count = 1
        if min_partitions > len(ranges) and total:
            count = max(1, round(part.rows * min_partitions / total))
        if max_records:
            count = max(count, -(-part.rows // max_records))
        pieces.extend(_cut(part, min(count, part.rows)))
    return pieces


def pack(
    ranges: Sequence[Range], *, min_partitions: int = 0, max_records: int = 0
) -> list[list[Range]]:
    """Put ranges into tasks: large ones alone, small ones together, as evenly as possible.

    Args:
        ranges: pieces from `split`.
        min_partitions: minimum number of tasks, if there are enough ranges.
        max_records: maximum offsets of a task; 0: no limit.

    Example:
        >>> from pyrmq._tables.offsets import Queue
        >>> small = [Range(Queue("t", "b", number), 0, 5) for number in range(8)]
        >>> [len(task) for task in pack(small)]
        [8]
    """
    target = min(PACK_ROWS, max_records) if max_records else PACK_ROWS
    tasks = [[part] for part in ranges if part.rows >= target]
    small = [part for part in ranges if part.rows < target]
    count = min(len(small), max(-(-rows(small) // target), min_partitions - len(tasks)))
    if not count:
        return tasks
    bins: list[list[Range]] = [[] for _ in range(count)]
    loads = [(0, number) for number in range(count)]
    for part in sorted(small, key=lambda part: (-part.rows, part)):
        load, number = heapq.heappop(loads)
        if max_records and load and load + part.rows > max_records:
            heapq.heappush(loads, (load, number))
            number = len(bins)
            bins.append([])
            load = 0
        bins[number].append(part)
        heapq.heappush(loads, (load + part.rows, number))
    return tasks + [sorted(task) for task in bins if task]


def take(ranges: Iterable[Range], limit: int) -> list[Range]:
    """Keep the first `limit` offsets of the ranges.

    Example:
        >>> from pyrmq._tables.offsets import Queue
        >>> take([Range(Queue("t", "b", 0), 0, 10), Range(Queue("t", "b", 1), 0, 10)], 3)
        [Range(queue=Queue(topic='t', broker='b', queue_id=0), start=0, end=3, compacted=False)]
    """
    kept = []
    for part in ranges:
        if limit <= 0:
            break
        kept.append(part._replace(end=min(part.end, part.start + limit)))
        limit -= part.rows
    return kept


def _cut(part: Range, count: int) -> list[Range]:
    size, rest = divmod(part.rows, count)
    pieces, lower = [], part.start
    for number in range(count):
        upper = lower + size + (number < rest)
        pieces.append(part._replace(start=lower, end=upper))
        lower = upper
    return pieces
