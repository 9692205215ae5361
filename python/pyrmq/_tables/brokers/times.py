"""The first offset stored at or after a time, exact on every broker.

A broker's own answer (SEARCH_OFFSET_BY_TIMESTAMP) is only a hint: brokers before Apache's fixes of
#2661, #7074 and #7961 answer the last message when all are older than the time, and any of several
messages with exactly that time. So the store times around the answer are read, for all queues in
the same round trips, and where the hint was wrong the search continues by halves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyrmq._tables.offsets import Bounds, Offsets, Queue

__all__ = ["StoreTimes", "first_at"]

StoreTimes: TypeAlias = "Callable[[dict[Queue, int]], dict[Queue, int]]"
"""Store time in milliseconds of the message at one offset of each queue, without expired ones."""


@dataclass
class _Search:
    """Messages below `low` are older than the time, those from `high` on are not."""

    low: int
    high: int
    probe: int
    step: int = 1

    def learn(self, *, is_older: bool) -> None:
        if is_older:
            self.low = self.probe + 1
            self.probe = min(self.low + self.step - 1, self.high - 1)
        else:
            self.high = self.probe
            self.probe = max(self.high - self.step, self.low)
        # Steps grow from the hint, and halving takes over when they would leave the range.
        self.step *= 2
        if self.step >= self.high - self.low:
            self.probe = (self.low + self.high) // 2


def first_at(
    bounds: Mapping[Queue, Bounds],
    hints: Mapping[Queue, int],
    timestamp_ms: int,
    store_times: StoreTimes,
) -> Offsets:
    """Find the first offset of each queue stored at or after a time; its end if there is none.

    Args:
        bounds: the bounds of each queue.
        hints: the brokers' own answers.
        timestamp_ms: the time, milliseconds since 1970.
        store_times: reads store times.

    Example:
        >>> from pyrmq._tables.offsets import Bounds, Queue
        >>> queue, stored = Queue("t", "b", 0), [10, 20, 20, 30]
        >>> read = lambda wanted: {q: stored[at] for q, at in wanted.items()}
        >>> first_at({queue: Bounds(0, 4)}, {queue: 3}, 20, read)
        {Queue(topic='t', broker='b', queue_id=0): 1}
    """
    searches = {}
    for queue, held in bounds.items():
        hint = min(max(hints.get(queue, held.lowest), held.lowest), held.highest)
        searches[queue] = _Search(held.lowest, held.highest, min(hint, max(held.highest - 1, 0)))
    while open_ := {q: search for q, search in searches.items() if search.low < search.high}:
        times = store_times({queue: search.probe for queue, search in open_.items()})
        for queue, search in open_.items():
            # A message that has expired meanwhile is older than all that are left.
            search.learn(is_older=times.get(queue, -1) < timestamp_ms)
    return {queue: search.low for queue, search in searches.items()}
