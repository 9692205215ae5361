"""Writes the files of a store from the log's records: consume queues and key index.

::

    queue unit    8 log position  4 size  8 tags code
    index header  8 begin time  8 end time  8 begin position  8 end position  4 used slots
                  4 next entry
    index slot    4 number of the newest entry, 0 for none
    index entry   4 hash  8 position  4 seconds since begin time  4 the entry before it in its slot
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.reference.java import index_hash, tags_code
from tests.reference.properties import decode as parse
from tests.reference.record import MAGIC_BLANK, Record, decode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

UNIT, HEADER, ENTRY = 20, 40, 20
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
TRANSACTION, PREPARED, ROLLBACK = 0xC, 0x4, 0xC
"""Bits of the sys flag."""
INNER_BATCH = 0x80
"""The body is a batch: only the queues of batch topics, which are of another kind, have it."""


def segments(root: Path) -> Iterator[tuple[int, bytes]]:
    """Yield every segment of the log with the position of its first byte."""
    for path in sorted((root / "commitlog").iterdir()):
        yield int(path.name), path.read_bytes()


def log(root: Path) -> Iterator[tuple[Record, int]]:
    """Yield every record of the log with its size; a blank record ends a segment, zero the log."""
    for base, data in segments(root):
        at = 0
        while at < len(data):
            size, magic = struct.unpack_from(">iI", data, at)
            if size == 0:
                return
            if magic == MAGIC_BLANK:
                assert at + size == len(data), "a blank record goes to the segment's end"
                break
            record, end = decode(data, at)
            assert record.physical_offset == base + at, "a record names its own position"
            yield record, end - at
            at = end


def queues(
    records: list[tuple[Record, int]], delays_ms: dict[int, int] | None = None
) -> dict[tuple[str, int], bytes]:
    """Return the units of every queue, back to back.

    Args:
        records: the log's records with their sizes.
        delays_ms: delay of each level.
    """
    units: dict[tuple[str, int], bytearray] = {}
    for record, size in records:
        if record.sys_flag & TRANSACTION in (PREPARED, ROLLBACK):
            assert record.queue_offset == 0, "no queue has it"
            continue
        if record.sys_flag & INNER_BATCH:
            continue
        queue = units.setdefault((record.topic, record.queue_id), bytearray())
        assert record.queue_offset * UNIT == len(queue), "indexes follow one another"
        pairs = parse(record.properties)
        code = tags_code(pairs.get("TAGS"))
        if record.topic == SCHEDULE_TOPIC and delays_ms:
            code = record.store_timestamp + delays_ms[int(pairs["DELAY"])]
        queue += struct.pack(">qiq", record.physical_offset, size, code)
    return {name: bytes(queue) for name, queue in units.items()}


def keys(record: Record) -> list[str]:
    """Return the index keys of a record, in the order in which they are added."""
    if record.sys_flag & TRANSACTION == ROLLBACK:
        return []
    properties = parse(record.properties)
    found = [properties[name] for name in ("UNIQ_KEY",) if name in properties]
    found += [key for key in properties.get("KEYS", "").split(" ") if key]
    found += [f"T#{tag}" for tag in [properties.get("TAGS", "")] if tag]
    return [f"{record.topic}#{key}" for key in found]


@dataclass
class IndexFile:
    """One file of the index as it grows."""

    slots: int
    limit: int
    begin_time: int = 0
    end_time: int = 0
    begin_position: int = 0
    end_position: int = 0
    used: int = 0
    newest: dict[int, int] = field(default_factory=dict)
    entries: list[bytes] = field(default_factory=list)

    def add(self, key: str, position: int, time: int) -> None:
        """Add a message's key."""
        number, hashed = len(self.entries) + 1, index_hash(key)
        before = self.newest.get(hashed % self.slots, 0)
        self.newest[hashed % self.slots] = number
        self.used += before == 0
        seconds = max(0, (time - self.begin_time) // 1000) if self.begin_time > 0 else 0
        if number == 1:
            self.begin_time, self.begin_position = time, position
        self.end_time, self.end_position = time, position
        self.entries.append(struct.pack(">iqii", hashed, position, seconds, before))

    def bytes(self) -> bytes:
        """Return the whole file."""
        head = struct.pack(
            ">qqqqii",
            self.begin_time,
            self.end_time,
            self.begin_position,
            self.end_position,
            self.used,
            len(self.entries) + 1,
        )
        slots = b"".join(struct.pack(">i", self.newest.get(slot, 0)) for slot in range(self.slots))
        body = bytes(ENTRY) + b"".join(self.entries)
        return head + slots + body.ljust(self.limit * ENTRY, b"\0")


def index(records: list[tuple[Record, int]], slots: int, limit: int) -> list[bytes]:
    """Return every file of the index."""
    files: list[IndexFile] = []
    for record, _ in records:
        for key in keys(record):
            if not files or len(files[-1].entries) + 1 >= limit:
                last = files[-1] if files else IndexFile(slots, limit)
                files.append(IndexFile(slots, limit, begin_time=last.end_time))
            files[-1].add(key, record.physical_offset, record.store_timestamp)
    return [one.bytes() for one in files]
