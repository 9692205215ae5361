"""Walks from record to record through the log, past damage to the next good record."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pyrmq import _core

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyrmq.cli.log.directory import Segment
    from pyrmq.cli.log.nul_records import NulRecords

_PIECE = 4 * 1024 * 1024
_MAGICS = (b"\xda\xa3\x20\xa7", b"\xda\xa3\x20\xab")
_MAGIC_AT = 4
_POSITION_AT = 28
_HEAD = 36
"""Bytes of a record up to and including its position."""
_TAIL_READS = 5
_TAIL_PAUSE_SECONDS = 0.05
"""How often, and how far apart, the log's last record is read again before it counts as damaged."""


class Row(NamedTuple):
    """The fields of a record."""

    position: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int
    stored_ms: int
    tags_code: int
    sys_flag: int
    looks_torn: bool


@dataclass(frozen=True)
class Damage:
    """A position where no record can be read.

    Attributes:
        segment: its file.
        position: where the damage begins.
        until: where the next good record begins; None if there is none.
        reason: what is wrong.
    """

    segment: Segment
    position: int
    until: int | None
    reason: str


Piece = list[Row] | Damage


def walk(
    segments: Sequence[Segment],
    *,
    check: bool,
    nul_records: NulRecords | None = None,
    seen: Callable[[int], object] = lambda _: None,
) -> Iterator[Piece]:
    """Yield the records in pieces, with each damage in between.

    Args:
        segments: the log's files.
        check: whether bodies are compared with their checksums.
        nul_records: notes of records that lost a sector; None: none did.
        seen: called from time to time with the number of bytes that were read.
    """
    # A broker creates the next file before it needs it.
    used = [segment for segment in segments if segment.is_used()]
    for number, segment in enumerate(used):
        following = used[number + 1] if number + 1 < len(used) else None
        yield from _Walk(segment, following, nul_records, check=check, seen=seen).pieces()
        if following is not None and following.base != segment.end:
            reason = f"{following.base - segment.end} bytes are missing between two files"
            yield Damage(segment, segment.end, following.base, reason)


class _Walk:
    """One file."""

    def __init__(
        self,
        segment: Segment,
        following: Segment | None,
        nul_records: NulRecords | None,
        *,
        check: bool,
        seen: Callable[[int], object],
    ) -> None:
        self._segment = segment
        self._nul_records = nul_records
        self._following = following
        self._check = check
        self._seen = seen

    def pieces(self) -> Iterator[Piece]:
        try:
            descriptor = os.open(self._segment.path, os.O_RDONLY)
        except FileNotFoundError:
            # A running broker's retention has deleted it.
            return
        try:
            yield from self._pieces(descriptor)
        finally:
            os.close(descriptor)

    def _pieces(self, descriptor: int) -> Iterator[Piece]:
        segment, at, piece = self._segment, self._segment.base, _PIECE
        while at < segment.end:
            data = os.pread(descriptor, piece, at - segment.base)
            scanned, end, why, reason = _core.scan_records(data, at, segment.base, self._check)
            rows, torn = self._before_torn([Row(*row) for row in scanned], data, at)
            if rows:
                yield rows
            if torn is not None:
                until = self._resume(descriptor, torn)
                yield Damage(segment, torn, until, "a sector of the record is missing")
                if until is None or until >= segment.end:
                    return
                at, piece = until, _PIECE
                continue
            self._seen(end - at)
            progress, at = end > at, end
            if why == "blank":
                return
            if why == "more":
                if progress:
                    piece = _PIECE
                    continue
                wanted = int.from_bytes(data[:4], "big") if len(data) >= _MAGIC_AT else 0
                left = segment.end - at
                if len(data) < wanted <= left:
                    piece = wanted
                    continue
                if left < _HEAD and not any(data):
                    return
                reason = f"a record of {wanted} bytes does not fit its file"
            elif why == "unused":
                # Zeros end the log; if another file or records follow, something is missing.
                until = self._resume(descriptor, at)
                if until is None:
                    return
                if self._is_written_now(descriptor, at, wait=False):
                    continue
                yield Damage(segment, at, until, "zeros where a record should be")
                at = until
                if at >= segment.end:
                    return
                continue
            until = self._resume(descriptor, at)
            if self._is_written_now(descriptor, at, wait=until is None):
                continue
            yield Damage(segment, at, until, reason or "no record begins here")
            if until is None or until >= segment.end:
                return
            at, piece = until, _PIECE

    def _before_torn(self, rows: list[Row], data: bytes, base: int) -> tuple[list[Row], int | None]:
        """The rows before the first record that lost a sector, and its position."""
        if self._nul_records is not None:
            for number, row in enumerate(rows):
                if row.looks_torn:
                    start = row.position - base
                    record = data[start : start + row.size]
                    if self._nul_records.is_torn(row.position, record):
                        return rows[:number], row.position
        return rows, None

    def _is_written_now(self, descriptor: int, at: int, *, wait: bool) -> bool:
        """Whether a valid record is there now: a running broker was writing it."""
        left = self._segment.end - at
        for number in range(_TAIL_READS if wait else 1):
            time.sleep(_TAIL_PAUSE_SECONDS if number else 0)
            head = os.pread(descriptor, _MAGIC_AT, at - self._segment.base)
            size = int.from_bytes(head, "big")
            if _HEAD < size <= left:
                data = os.pread(descriptor, size, at - self._segment.base)
                if _core.scan_records(data, at, self._segment.base, True)[0]:
                    return True
        return False

    def _resume(self, descriptor: int, after: int) -> int | None:
        """Position of the next valid record; the next file if this one has none."""
        segment, at = self._segment, after + 1
        while at < segment.end - _HEAD:
            data = os.pread(descriptor, _PIECE, at - segment.base)
            found = self._sound(descriptor, data, at)
            if found is not None:
                return found
            # The next search finds records that begin at the very end.
            at += max(1, len(data) - _HEAD)
        return self._following.base if self._following is not None else None

    def _sound(self, descriptor: int, data: bytes, base: int) -> int | None:
        if not any(data):
            return None
        places = sorted(place for magic in _MAGICS for place in _all(data, magic))
        for place in places:
            start = place - _MAGIC_AT
            head = data[start : start + _HEAD] if start >= 0 else b""
            position = base + start
            if len(head) < _HEAD or int.from_bytes(head[_POSITION_AT:], "big") != position:
                continue
            size = int.from_bytes(head[:4], "big")
            if not _HEAD < size <= self._segment.end - position:
                continue
            record = os.pread(descriptor, size, position - self._segment.base)
            if _core.scan_records(record, position, self._segment.base, True)[0]:
                return position
        return None


def _all(data: bytes, what: bytes) -> Iterator[int]:
    place = data.find(what)
    while place >= 0:
        yield place
        place = data.find(what, place + 1)
