"""Checks that the queues still have the messages of a batch that an earlier process planned.

Spark plans such a batch again from its two positions. A queue may have been created again
meanwhile, or its broker may have lost messages and reused their offsets; then the offsets belong to
other messages. So the messages before both positions are compared with those in the checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyrmq._tables.planning.watch import another

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyrmq._tables.offsets import Bounds, Mark, Offsets, Position, Queue
    from pyrmq._tables.planning.cluster import Cluster

__all__ = ["Replay"]

_PAUSE_S = 0.2


@dataclass(frozen=True)
class Replay:
    """Compares a batch with the content of its queues.

    Args:
        cluster: source of the messages before positions.
        timeout_ms: how long to request a message that should exist.
        clock: seconds, monotonic.
        sleep: waits for seconds.
    """

    cluster: Cluster
    timeout_ms: int
    clock: Callable[[], float]
    sleep: Callable[[float], None]

    def losses(
        self, start: Position, end: Position, lower: Offsets, bounds: Mapping[Queue, Bounds]
    ) -> dict[Queue, str]:
        """Return the queues that no longer have the planned messages, each with what happened.

        Args:
            start: where the batch begins.
            end: where it ends.
            lower: offset of each queue from which on the batch reads.
            bounds: the current bounds of the queues.
        """
        moved = {queue: at for queue, at in end.offsets.items() if at != lower.get(queue)}
        shorter = {
            queue: f"{queue}: planned up to {at}, now has {held.lowest} to {held.highest}"
            for queue, at in moved.items()
            if (held := bounds.get(queue)) is not None and held.highest < at
        }
        begins = {
            queue: at
            for queue, at in start.offsets.items()
            if queue in moved and lower.get(queue) == at
        }
        found = self.others(start.marks, begins, bounds)
        for queue, what in self.others(end.marks, moved, bounds).items():
            found.setdefault(queue, what)
        return {**shorter, **found}

    def others(
        self, marks: Mapping[Queue, Mark], positions: Offsets, bounds: Mapping[Queue, Bounds]
    ) -> dict[Queue, str]:
        """Return the queues where another message is before a position, each with both messages.

        Args:
            marks: the messages that were before the positions.
            positions: offset of each queue that is compared.
            bounds: the current bounds of the queues.
        """
        there = {
            queue: at
            for queue, at in positions.items()
            if queue in marks and queue in bounds and bounds[queue].lowest < at
            if at <= bounds[queue].highest
        }
        found = self._marks(there)
        return {
            queue: another(queue, there[queue], marks[queue], mark)
            for queue, mark in found.items()
            if mark != marks[queue]
        }

    def _marks(self, there: Offsets) -> dict[Queue, Mark]:
        if not there:
            return {}
        begun = self.clock()
        found = self.cluster.marks(there)
        compacted = self.cluster.compacted(sorted({queue.topic for queue in there}))
        while self.clock() - begun < self.timeout_ms / 1000:
            left = {
                queue: at
                for queue, at in there.items()
                if queue not in found and queue.topic not in compacted
            }
            if not left:
                break
            self.sleep(_PAUSE_S)
            found |= self.cluster.marks(left)
        return found
