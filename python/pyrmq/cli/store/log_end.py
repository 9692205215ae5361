"""Where the log of a store ends, also while a broker writes to it."""

from __future__ import annotations

import os
import time
from itertools import pairwise
from typing import TYPE_CHECKING

from pyrmq import _core
from pyrmq.cli.log.walk import Damage, walk
from pyrmq.errors import ConfigError

if TYPE_CHECKING:
    from pyrmq.cli.log.directory import Segment

# The part of the checkpoint with the positions up to which log and queues are durable.
MARKS = slice(64, 108)
_PIECE = 4 * 1024 * 1024
_WRITTEN_SECONDS = 1.0
"""Within this time a record that is being written is whole."""


def check_gaps(used: list[Segment]) -> None:
    """Check that each file of the log follows the one before.

    Raises:
        ConfigError: Some bytes are missing.
    """
    for one, following in pairwise(used):
        if one.end != following.base:
            raise ConfigError(
                f"{following.base - one.end} bytes of the log are missing before {following.path}. "
                "Fix: `pyrmq log repair`"
            )


def end_of(last: Segment, marks: bytes, known: int = 0, *, may_be_torn: bool = False) -> int:
    """Position after the newest whole record, which is in the last used file.

    Args:
        last: The file.
        marks: The checkpoint's.
        known: Where it ended before.
        may_be_torn: Whether a crash may have cut off its last write: then the log ends before a
            record that is not whole, if nothing valid follows. Nothing writes to it now.

    Raises:
        ConfigError: Something that is not a record follows.
    """
    at = last.base
    # What the checkpoint covers is whole: start after it.
    if len(marks) == MARKS.stop - MARKS.start and marks.startswith(b"PYRMQ-C1"):
        known = max(known, int.from_bytes(marks[32:40], "big"))
    if last.base < known <= last.end:
        at = known
    descriptor = os.open(last.path, os.O_RDONLY)
    try:
        return _scanned(descriptor, last, at, may_be_torn=may_be_torn)
    finally:
        os.close(descriptor)


def _scanned(descriptor: int, last: Segment, at: int, *, may_be_torn: bool) -> int:
    piece, stalled_since = _PIECE, 0.0
    while at < last.end:
        data = os.pread(descriptor, piece, at - last.base)
        _, end, why, reason = _core.scan_records(data, at, last.base, True)
        if end > at:
            at, piece, stalled_since = end, _PIECE, 0.0
            if why == "blank":
                return last.end
            continue
        if why == "blank":
            return last.end
        if why == "unused" or (why == "more" and not any(data)):
            return at
        size = int.from_bytes(data[:4], "big")
        if why == "more" and len(data) < size <= last.end - at:
            piece = size
            continue
        if may_be_torn and _is_last(last, at):
            return at
        # A running broker may be writing it.
        now = time.monotonic()
        stalled_since = stalled_since or now
        if may_be_torn or now - stalled_since > _WRITTEN_SECONDS:
            raise ConfigError(
                f"{last.path} is damaged at position {at}: {reason or 'no record begins there'}. "
                "Fix: `pyrmq log verify` and `pyrmq log repair`"
            )
        time.sleep(0.02)
    return last.end


def _is_last(last: Segment, at: int) -> bool:
    """Whether the log's first damage is at a position, and nothing valid follows."""
    damages = (piece for piece in walk([last], check=True) if isinstance(piece, Damage))
    first = next(damages, None)
    return first is not None and first.position == at and first.until is None
