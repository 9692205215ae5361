"""Offsets of queues: their bounds, and how far a group has come."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyrmq.message import QueueId

__all__ = ["WHICH", "QueueOffsets", "offsets_of"]

WHICH = ("first", "last", "committed")
"""What is asked for, in the order of the fields of :class:`QueueOffsets`."""


class QueueOffsets(NamedTuple):
    """A queue's offsets at one moment.

    Attributes:
        first: The first message that is kept.
        last: The offset that the next message gets.
        committed: The group's next message; None if it has not committed one.

    Example:
        >>> QueueOffsets(first=0, last=42, committed=40).lag
        2
    """

    first: int
    last: int
    committed: int | None

    @property
    def lag(self) -> int:
        """Messages that the group has not committed; all that are kept if it never has."""
        begin = self.first if self.committed is None else max(self.first, self.committed)
        return max(0, self.last - begin)


def offsets_of(
    queues: Sequence[QueueId], columns: Sequence[Sequence[int]]
) -> dict[QueueId, QueueOffsets]:
    """Put answers together: a column for each of :data:`WHICH`."""
    return {
        queue: QueueOffsets(first, last, None if committed < 0 else committed)
        for queue, first, last, committed in zip(queues, *columns, strict=True)
    }
