"""`pyrmq log repair`: shows the ways to repair a damaged log and what each loses, and applies one.

Everything that is removed from the log is kept in a directory `repair-<time>` of the store.
"""

from __future__ import annotations

import os
import struct
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyrmq.cli.log.files import own, sync
from pyrmq.cli.log.nul_records import NulRecords
from pyrmq.cli.log.progress import Progress
from pyrmq.cli.log.walk import Damage, walk
from pyrmq.cli.output import print_json, print_rows

if TYPE_CHECKING:
    import argparse

    from pyrmq.cli.log.directory import Segment, StoreDirectory
    from pyrmq.cli.log.walk import Row

_HEADERS = ("choice", "at", "action", "good records lost", "bytes lost")
_BLANK = struct.Struct(">iI")
_BLANK_MAGIC = 0xCBD43194
_PIECE = 4 * 1024 * 1024
_BOOT = Path("/proc/sys/kernel/random/boot_id")
"""Identifies the system's boot, as `abort` does."""


def run(directory: StoreDirectory, given: argparse.Namespace) -> int:
    """Show the choices, or apply one.

    Raises:
        ConfigError: a broker runs on the store.
    """
    if given.choice is None:
        return _show(directory, as_json=given.json)
    # Locked to the end: a supervisor could start a broker that writes at the same time.
    with directory.locked():
        segments = directory.segments()
        damage, _, _ = _first_damage(directory, segments)
        if damage is None:
            return _sound(as_json=given.json)
        kept = _make(directory, segments, damage, given.choice)
    if given.json:
        print_json({"choice": given.choice, "at": damage.position, "kept": str(kept)})
        return 0
    print(f"done; removed bytes are kept in {kept}; the next start recovers queues and index")
    return 0


def _sound(*, as_json: bool) -> int:
    if not as_json:
        print("nothing to repair: every record is sound")
    return 0


def _show(directory: StoreDirectory, *, as_json: bool) -> int:
    damage, inside, behind = _first_damage(directory, directory.segments())
    if damage is None:
        return _sound(as_json=as_json)
    cut = "the log ends here; later files are moved away"
    skip = "the rest of this file is unused; later files stay"
    rows = [_choice("cut", damage, behind, cut), _choice("skip", damage, inside, skip)]
    print_rows(_HEADERS, rows, as_json=as_json)
    if not as_json:
        print(f"{damage.segment.path}: {damage.reason} at {damage.position}")
        print("nothing was changed; --choice cut or --choice skip repairs the log and keeps a copy")
    return 1


def _choice(name: str, damage: Damage, lost: Lost, what: str) -> tuple[str, int, str, int, int]:
    return (name, damage.position, what, lost.records, lost.size)


@dataclass
class Lost:
    """The good records that a choice loses."""

    records: int = 0
    size: int = 0

    def add(self, rows: list[Row]) -> None:
        """Add some records."""
        self.records += len(rows)
        self.size += sum(row.size for row in rows)


def _first_damage(
    directory: StoreDirectory, segments: list[Segment]
) -> tuple[Damage | None, Lost, Lost]:
    """The first damage, and the good records after it, in its file and in all files."""
    first: Damage | None = None
    inside, behind = Lost(), Lost()
    notes = NulRecords(directory.root)
    with Progress(sum(segment.size for segment in segments)) as progress:
        for piece in walk(segments, check=True, nul_records=notes, seen=progress.add):
            if isinstance(piece, Damage):
                first = first or piece
            elif first is not None:
                behind.add(piece)
                if piece[0].position < first.segment.end:
                    inside.add(piece)
    return first, inside, behind


def _make(directory: StoreDirectory, segments: list[Segment], damage: Damage, choice: str) -> Path:
    _mark_unclean(directory.root)
    kept = directory.root / time.strftime("repair-%Y%m%d-%H%M%S")
    kept.mkdir()
    segment = damage.segment
    _keep(segment, damage.position, kept / f"{segment.path.name}.from-{damage.position}")
    if choice == "cut":
        # The last file first: a crash in between then leaves a log without a gap.
        for later in reversed([one for one in segments if one.base > segment.base]):
            later.path.rename(kept / later.path.name)
    # A snapshot may share it.
    own(segment.path)
    descriptor = os.open(segment.path, os.O_RDWR)
    try:
        os.ftruncate(descriptor, damage.position - segment.base)
        os.ftruncate(descriptor, segment.size)
        left = segment.end - damage.position
        if choice == "skip" and left >= _BLANK.size:
            blank = _BLANK.pack(left, _BLANK_MAGIC)
            os.pwrite(descriptor, blank, damage.position - segment.base)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    # As after a crash, the broker checks the whole log and repairs queues, index and offsets.
    abort = directory.root / "abort"
    abort.write_text(str(os.getpid()))
    sync(abort)
    # Neither of these matches the log any more: both are rebuilt from it.
    for name in ("checkpoint", "queueEnds"):
        (directory.root / name).unlink(missing_ok=True)
    for changed in (kept, directory.commit_log, directory.root):
        sync(changed)
    return kept


def _mark_unclean(root: Path) -> None:
    """Make the store look as after a kill before anything changes.

    A start after a repair that was killed then makes queues and offsets match the log. A
    kill explains no damage, so a start before the log was cut still changes nothing.
    """
    abort = root / "abort"
    if abort.exists():
        return
    abort.touch()
    data = abort.stat()
    boot = _BOOT.read_text().strip().replace("-", "") if _BOOT.exists() else ""
    system = f"system {boot} {data.st_dev} {data.st_ino}\n" if boot else ""
    abort.write_text(f"{os.getpid()}\n{system}")
    for changed in (abort, root):
        sync(changed)


def _keep(segment: Segment, position: int, copy: Path) -> None:
    with segment.path.open("rb") as source, copy.open("wb") as target:
        source.seek(position - segment.base)
        while data := source.read(_PIECE):
            target.write(data)
        target.flush()
        os.fsync(target.fileno())
