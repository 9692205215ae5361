"""Reads the files of a store as comparable values: parts that depend on the time are masked."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tests.reference import java
from tests.reference import record as log

if TYPE_CHECKING:
    from pathlib import Path

UNIT = struct.Struct(">qiq")
INDEX_HEADER = struct.Struct(">qqqqii")
INDEX_ENTRY = struct.Struct(">iqii")
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
NOW_TOPICS = ("RMQ_SYS_TRANS_OP_HALF_TOPIC",)
"""Topics whose records the broker itself creates."""


def segments(store: Path) -> list[bytes]:
    """Return the commit log's files in order."""
    return [path.read_bytes() for path in sorted(store.glob("commitlog/*"))]


def records(store: Path) -> list[log.Record]:
    """Return every record of the commit log in order."""
    return [record for data in segments(store) for record in log.scan_segment(data)]


def ends(store: Path) -> list[bytes]:
    """Return the bytes of each file after its last record, up to the zeros."""
    found = []
    for data in segments(store):
        at = 0
        while at + 8 <= len(data) and data[at : at + 4] != bytes(4):
            size, magic = struct.unpack_from(">II", data, at)
            if magic not in (log.MAGIC_V1, log.MAGIC_V2):
                break
            at += size
        found.append(data[at:].rstrip(b"\0"))
    while found and not found[-1]:
        found.pop()
    return found


def masked(record: log.Record) -> bytes:
    """Return a record's bytes without store time, sender's port and the broker's born times.

    The pairs of the properties are sorted, their bytes otherwise unchanged.
    """
    pairs = record.properties.removesuffix("\x02").split("\x02")
    tail = "\x02" if record.properties.endswith("\x02") else ""
    one = replace(
        record,
        properties="\x02".join(sorted(pairs)) + tail,
        store_timestamp=0,
        born_port=0,
        born_timestamp=0 if record.topic in NOW_TOPICS else record.born_timestamp,
    )
    return log.encode(one)


@dataclass(frozen=True)
class Unit:
    """One entry of a consume queue; the code of a delayed message is its delay."""

    position: int
    size: int
    code: int


def queues(store: Path) -> dict[str, list[Unit]]:
    """Return the entries of every non-empty queue: ``topic/queue`` to entries."""
    stored = {record.physical_offset: record.store_timestamp for record in records(store)}
    found = {}
    for folder in sorted((store / "consumequeue").glob("*/*")):
        data = b"".join(path.read_bytes() for path in sorted(folder.iterdir()))
        units = [Unit(*UNIT.unpack_from(data, at)) for at in range(0, len(data), UNIT.size)]
        units = [unit for unit in units if unit.size > 0]
        if folder.parent.name == SCHEDULE_TOPIC:
            units = [replace(unit, code=unit.code - stored[unit.position]) for unit in units]
        if units:
            found[f"{folder.parent.name}/{folder.name}"] = units
    return found


@dataclass(frozen=True)
class Index:
    """A key index: its chains, and the entries as hash, position and previous entry."""

    first: int
    last: int
    slots_used: int
    count: int
    entries: list[tuple[int, int, int]]
    slots: list[int]


def indexes(store: Path, slots: int) -> list[Index]:
    """Return the key index files in order, without their times."""
    found = []
    for path in sorted(store.glob("index/*")):
        data = path.read_bytes()
        _, _, first, last, used, count = INDEX_HEADER.unpack_from(data)
        start = INDEX_HEADER.size + 4 * slots
        rows = [INDEX_ENTRY.unpack_from(data, start + 20 * at) for at in range(1, max(1, count))]
        heads = struct.unpack_from(f">{slots}i", data, INDEX_HEADER.size)
        entries = [(code, position, before) for code, position, _, before in rows]
        found.append(Index(first, last, used, count, entries, list(heads)))
    return found


def hash_of(topic: str, key: str) -> int:
    """Return the hash under which the index keeps a key."""
    return java.index_hash(f"{topic}#{key}")
