"""Which records must have their queue entries on the disk (docs/store.md, Recovery)."""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from pyrmq.cli.log.directory import StoreDirectory
    from pyrmq.cli.log.walk import Row

_TIMES = struct.Struct(">qq")
_TIMES_END = 24
_MARKS = struct.Struct(">8sqqqqI")
_MARKS_AT = 64
_MAGIC = b"PYRMQ-C1"
_SLACK_MS = 3000
"""Apache's tolerance: the times of log and queues are written at different moments."""


class Covered:
    """What the checkpoint of a store calls durable in its queues.

    After a clean stop that is everything. After a crash, and in a snapshot of a running broker's
    store, the next start fills the queues from the log, beginning where the checkpoint ends.

    Args:
        directory: The store.
    """

    def __init__(self, directory: StoreDirectory) -> None:
        self._is_all = directory.stopped_cleanly()
        self._end, self._before_ms = _read(directory.root / "checkpoint")

    def has(self, row: Row) -> bool:
        """Whether the queue entry of a record must exist."""
        if self._is_all:
            return True
        if self._end is not None:
            return row.position < self._end
        return row.stored_ms < self._before_ms


def _read(checkpoint: Path) -> tuple[int | None, int]:
    """The position up to which queues are durable, if the file has it, and the time."""
    try:
        data = checkpoint.read_bytes()
    except OSError:
        return None, 0
    if len(data) < _TIMES.size:
        return None, 0
    before_ms = min(_TIMES.unpack_from(data)) - _SLACK_MS
    if len(data) < _MARKS_AT + _MARKS.size:
        return None, before_ms
    magic, _, _, _, end, crc = _MARKS.unpack_from(data, _MARKS_AT)
    sealed = data[:_TIMES_END] + data[_MARKS_AT : _MARKS_AT + _MARKS.size - 4]
    # A Java broker changes only the times.
    is_ours = magic == _MAGIC and zlib.crc32(sealed) == crc
    return (end if is_ours else None), before_ms
