"""`pyrmq log inspect`: files, ranges, times, topics, gaps."""

from __future__ import annotations

import sys
from bisect import bisect_right
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pyrmq.cli.log.progress import Progress
from pyrmq.cli.log.walk import Damage, walk
from pyrmq.cli.output import print_rows

if TYPE_CHECKING:
    import argparse

    from pyrmq.cli.log.directory import StoreDirectory
    from pyrmq.cli.log.walk import Row

_SEGMENT = ("file", "from", "to", "MB", "records", "first stored", "last stored", "damage")
_TOPIC = ("topic", "queues", "records", "MB", "first stored", "last stored")


@dataclass
class Sum:
    """The totals of some records."""

    records: int = 0
    size: int = 0
    first_ms: int = 0
    last_ms: int = 0
    end: int = 0
    queues: set[int] = field(default_factory=set)
    damage: list[Damage] = field(default_factory=list)

    def add(self, row: Row) -> None:
        """Add a record."""
        self.records += 1
        self.size += row.size
        self.end = row.position + row.size
        self.first_ms = min(self.first_ms or row.stored_ms, row.stored_ms)
        self.last_ms = max(self.last_ms, row.stored_ms)
        self.queues.add(row.queue_id)


def when(milliseconds: int) -> str | None:
    """A readable store time, in UTC; None if there is none."""
    if not milliseconds:
        return None
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(sep=" ", timespec="seconds")


def run(directory: StoreDirectory, given: argparse.Namespace) -> int:
    """Print a table by file or by topic, and the state of the store."""
    segments = directory.segments()
    by_file = {segment.base: Sum() for segment in segments}
    by_topic: dict[str, Sum] = {}
    bases = [segment.base for segment in segments]
    with Progress(sum(segment.size for segment in segments)) as progress:
        for piece in walk(segments, check=False, seen=progress.add):
            if isinstance(piece, Damage):
                by_file[piece.segment.base].damage.append(piece)
                continue
            # A piece never spans two files.
            file = by_file[bases[bisect_right(bases, piece[0].position) - 1]]
            for row in piece:
                file.add(row)
                by_topic.setdefault(row.topic, Sum()).add(row)
    if given.topics:
        rows = [
            (topic, len(one.queues), one.records, _mb(one), when(one.first_ms), when(one.last_ms))
            for topic, one in sorted(by_topic.items())
        ]
        print_rows(_TOPIC, rows, as_json=given.json)
        return 0
    files = []
    for segment in segments:
        one = by_file[segment.base]
        damage = "; ".join(f"{place.reason} at {place.position}" for place in one.damage) or None
        times = (when(one.first_ms), when(one.last_ms))
        end = one.end or segment.base
        files.append((segment.path.name, segment.base, end, _mb(one), one.records, *times, damage))
    print_rows(_SEGMENT, files, as_json=given.json)
    if not given.json:
        _print_summary(directory, sum(one.records for one in by_file.values()), len(by_topic))
    return 0


def _mb(one: Sum) -> float:
    return round(one.size / 1e6, 3)


def _print_summary(directory: StoreDirectory, records: int, topics: int) -> None:
    if directory.is_live():
        state = "a broker runs on it"
    elif directory.stopped_cleanly():
        state = "stopped cleanly"
    else:
        state = "not stopped cleanly: the next start recovers"
    print(f"{records} records of {topics} topics, {len(directory.queues())} queues; {state}")
    checkpoint = directory.checkpoint()
    if checkpoint:
        log, queues, index = (when(one) or "never" for one in checkpoint)
        print(f"durable up to: log {log}, queues {queues}, index {index} (UTC)")
    sys.stdout.flush()
