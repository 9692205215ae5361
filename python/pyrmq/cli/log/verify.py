"""`pyrmq log verify`: every record, its checksum and its queue entry, and every entry's record."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyrmq._names import SCHEDULE_TOPIC, TIMER_TOPIC
from pyrmq.cli.log.covered import Covered
from pyrmq.cli.log.directory import Units
from pyrmq.cli.log.nul_records import NulRecords
from pyrmq.cli.log.progress import Progress
from pyrmq.cli.log.walk import Damage, walk
from pyrmq.cli.output import print_rows

if TYPE_CHECKING:
    import argparse

    from pyrmq.cli.log.directory import StoreDirectory, Unit
    from pyrmq.cli.log.walk import Row

_HEADERS = ("kind", "position", "where", "what")
_TRANSACTION = 0x0C
_WITHOUT_ENTRY = (0x04, 0x0C)
"""Prepared and rolled back messages are in no queue."""
_INNER_BATCH = 0x80
"""Batches stored as one record are in queues of another kind."""
_BY_TIME = (SCHEDULE_TOPIC, TIMER_TOPIC)
"""Topics whose entries contain times instead of tag codes."""
_LATE = 100_000
"""Missing entries that are searched again at the end: a running broker writes them later."""
_LATE_SECONDS = 10.0


@dataclass
class _Found:
    """The counts, and the problems."""

    most: int
    rows: list[tuple[str, int, str, str]] = field(default_factory=list)
    problems: int = 0
    records: int = 0
    entries: Counter[tuple[str, int]] = field(default_factory=Counter)

    def report(self, kind: str, position: int, where: str, what: str) -> None:
        self.problems += 1
        if len(self.rows) < self.most:
            self.rows.append((kind, position, where, what))


def run(directory: StoreDirectory, given: argparse.Namespace) -> int:
    """Print the problems and the counts; return 1 if there is a problem."""
    found = _Found(given.most)
    live = directory.is_live()
    segments = directory.segments()
    late: list[Row] = []
    deleted = directory.deleted()
    covered = Covered(directory)
    with (
        Units(directory) as units,
        Progress(sum(segment.size for segment in segments)) as progress,
    ):
        for piece in walk(
            segments, check=True, nul_records=NulRecords(directory.root), seen=progress.add
        ):
            if isinstance(piece, Damage):
                _report_damage(found, piece)
                continue
            for row in piece:
                found.records += 1
                is_gone = row.position < deleted.get(row.topic, 0)
                is_needed = live or covered.has(row)
                _check(
                    found,
                    units,
                    row,
                    late if live else None,
                    is_gone=is_gone,
                    is_needed=is_needed,
                )
        missing = set(_await(directory, units, late))
        for row in late:
            if row in missing:
                found.report("entry", row.position, _where(row), "no entry in the queue")
            elif units.at(row.topic, row.queue_id, row.queue_offset) is not None:
                _check(found, units, row, None, is_gone=False)
        if not live and segments:
            _count(found, directory, units, segments[0].base)
    if found.rows:
        print_rows(_HEADERS, found.rows, as_json=given.json)
    if not given.json:
        entries = sum(found.entries.values())
        print(
            f"{found.records} records, {entries} queue entries: "
            + (f"{found.problems} problems" if found.problems else "all well")
        )
    return 1 if found.problems else 0


def _await(directory: StoreDirectory, units: Units, late: list[Row]) -> list[Row]:
    """Give a running broker a moment to write the entries of the records it has just stored.

    Returns the records that still have no entry and that retention has not deleted.
    """
    deadline = time.monotonic() + _LATE_SECONDS
    missing = late
    while missing and time.monotonic() < deadline:
        time.sleep(_LATE_SECONDS / 200)
        units.refresh()
        missing = [
            row for row in missing if units.at(row.topic, row.queue_id, row.queue_offset) is None
        ]
        # Listed after the entries were read: retention may have deleted some meanwhile.
        start = directory.start()
        missing = [row for row in missing if row.position >= start]
    return missing


def _report_damage(found: _Found, damage: Damage) -> None:
    then = "nothing valid after it" if damage.until is None else f"valid again at {damage.until}"
    found.report("damage", damage.position, damage.segment.path.name, f"{damage.reason}; {then}")


def _check(
    found: _Found,
    units: Units,
    row: Row,
    late: list[Row] | None,
    *,
    is_gone: bool,
    is_needed: bool = True,
) -> None:
    if row.sys_flag & _TRANSACTION in _WITHOUT_ENTRY or row.sys_flag & _INNER_BATCH:
        return
    unit = units.at(row.topic, row.queue_id, row.queue_offset)
    where = _where(row)
    if is_gone and (unit is None or _wrong(unit, row)):
        # A deleted topic has no queue, or a new one.
        return
    if unit is None:
        if not is_needed:
            # The next start writes it.
            return
        if late is not None and len(late) < _LATE:
            late.append(row)
        else:
            found.report("entry", row.position, where, "no entry in the queue")
        return
    wrong = _wrong(unit, row)
    if wrong:
        found.report("entry", row.position, where, wrong)
        return
    found.entries[row.topic, row.queue_id] += 1


def _where(row: Row) -> str:
    return f"{row.topic} {row.queue_id}:{row.queue_offset}"


def _wrong(unit: Unit, row: Row) -> str | None:
    if (unit.position, unit.size) != (row.position, row.size):
        return f"the entry points at {unit.position}, {unit.size} bytes, not at its record"
    if row.topic not in _BY_TIME and unit.tags_code != row.tags_code:
        return f"the entry's tag code is {unit.tags_code}, the record's {row.tags_code}"
    return None


def _count(found: _Found, directory: StoreDirectory, units: Units, least: int) -> None:
    """Entries that point into the log, but not to the record of their queue offset."""
    for topic, queue_id in directory.queues():
        there = units.count(topic, queue_id, least)
        good = found.entries[topic, queue_id]
        if there != good:
            what = f"{there} entries, {good} of them with their record"
            found.report("queue", least, f"{topic} {queue_id}", what)
