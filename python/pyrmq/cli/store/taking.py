"""One try to copy a store, in the order that a start on the copy relies on."""

from __future__ import annotations

import errno
import json
import os
import shutil
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyrmq.cli.log.files import copy, sync_tree
from pyrmq.cli.log.progress import Progress
from pyrmq.cli.store.log_end import MARKS, check_gaps, end_of
from pyrmq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyrmq.cli.log.directory import Segment, StoreDirectory
    from pyrmq.cli.store.hold import Hold

NOTE = "snapshot.json"
FORMAT = 1

# Files of the root, copied in this order before the log.
_BEFORE = ("checkpoint", "deletedTopics", "queueEnds", "nulRecords")
_SYSTEM = b"system "
"""Begins the line of `abort` that identifies the file; a start on a copy must not trust it."""
# Below config/, after the log: a message needs its topic, a group its settings.
_AFTER = frozenset(
    name + end
    for name in ("topics.json", "subscriptionGroup.json", "topicQueueMapping.json")
    for end in ("", ".bak")
)
_QUEUES = ("consumequeue", "consumequeue_ext")
_LEVELS = "config/delayProgress"
_ATTEMPTS = 10
"""Attempts to find the log's end without a delayed message delivered meanwhile."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a snapshot holds.

    Attributes:
        start: Position of the oldest byte of its log.
        position: Position after its newest record.
        time_ms: When it was made, ms since 1970.
        source: Directory that it was made from.
        linked_bytes: Bytes of files that it shares with that directory.
        copied_bytes: Bytes of the log that were copied.
        format: Version of this note.
    """

    start: int
    position: int
    time_ms: int
    source: str
    linked_bytes: int
    copied_bytes: int
    format: int = FORMAT


class Taking:
    """One try."""

    def __init__(
        self, directory: StoreDirectory, part: Path, held: Hold, leave_out: frozenset[str]
    ) -> None:
        self._directory = directory
        self._root = directory.root
        self._part = part
        self._held = held
        self._leave_out = leave_out
        self._linked = self._copied = 0

    def run(self) -> Snapshot | None:
        """Copy everything; None if a change by the broker meanwhile made the copy inconsistent.

        These are: it moved its checkpoint past what was copied, or it deleted a topic, whose
        messages and offsets may be the old ones and whose queues the new ones.
        """
        abort = self._read("abort")
        deleted = self._directory.deleted()
        for name in _BEFORE:
            self._copy_if_there(self._root / name, self._part / name)
        self._copy_config(lambda name: name not in _AFTER)
        # The wheel before the timers' log: units that the wheel names must exist.
        self._copy_if_there(self._root / "timerwheel", self._part / "timerwheel")
        self._copy_tree("timerlog")
        # The replay fills queues behind the log; ahead of it, more of the log would be read.
        for name in _QUEUES:
            self._copy_tree(name)
        start, end = self._copy_log(may_be_torn=abort is not None and self._held.is_held())
        self._copy_config(lambda name: name in _AFTER)
        is_same = all(deleted.get(topic) == at for topic, at in self._directory.deleted().items())
        if not is_same or not self._has_all_nul_records():
            return None
        self._write_abort(abort)
        made = Snapshot(
            start,
            end,
            time.time_ns() // 1_000_000,
            str(self._root.resolve()),
            self._linked,
            self._copied,
        )
        if NOTE not in self._leave_out:
            note = json.dumps(asdict(made))
            (self._part / NOTE).write_text(note, encoding="utf-8")
        sync_tree(self._part)
        return made

    def _read(self, name: str) -> bytes | None:
        try:
            return (self._root / name).read_bytes()
        except FileNotFoundError:
            return None

    def _write_abort(self, before: bytes | None) -> None:
        """Make a start on the copy recover it, unless it was copied after a clean stop.

        A broker may have been started and stopped since the copy began.

        Args:
            before: The file as it was then.
        """
        text = before if before is not None else self._read("abort")
        if text is None:
            if self._held.is_held():
                return
            text = b"%d\n" % os.getpid()
        lines = text.splitlines(keepends=True)
        kept = b"".join(line for line in lines if not line.startswith(_SYSTEM))
        (self._part / "abort").write_bytes(kept)

    def _find_end(self, *, may_be_torn: bool) -> tuple[list[Segment], int]:
        """The files of the log with records, and where it ends.

        The progress of delay levels is valid only if the log has the copy that was delivered last.
        So it is read just before the end is found, not before the queues.
        """
        used: list[Segment] = []
        end = 0
        for _ in range(_ATTEMPTS):
            levels = self._read(_LEVELS)
            used = [segment for segment in self._directory.segments() if segment.is_used()]
            if not used:
                break
            check_gaps(used)
            end = end_of(used[-1], self._marks(), end, may_be_torn=may_be_torn)
            if levels is not None:
                (self._part / "config").mkdir(exist_ok=True)
                (self._part / _LEVELS).write_bytes(levels)
            if self._read(_LEVELS) == levels:
                break
        return used, end

    def _copy_log(self, *, may_be_torn: bool) -> tuple[int, int]:
        """Link the full files of the log and copy the rest up to its end; where it begins, ends."""
        target = self._part / "commitlog"
        target.mkdir()
        used, end = self._find_end(may_be_torn=may_be_torn)
        if not used:
            # No message yet, or all are deleted: positions continue nevertheless.
            segments = self._directory.segments()
            for segment in segments[:1]:
                copy(segment.path, target / segment.path.name, 0)
            start = segments[0].base if segments else 0
            return start, start
        has_links = used[0].end <= end and self._has_links(used[0], target)
        self._check_space(used, end, has_links=has_links)
        start = used[0].base
        total = sum(segment.size for segment in used)
        with Progress(total) as progress:
            # Retention deletes the oldest first: the log now begins later.
            for segment in used:
                place = target / segment.path.name
                try:
                    if segment.end <= end and self._link(segment, place):
                        progress.add(segment.size)
                        continue
                    copy(segment.path, place, end - segment.base, progress.add)
                    self._copied += min(end, segment.end) - segment.base
                except FileNotFoundError:
                    # What was copied before is now followed by a gap.
                    for earlier in target.iterdir():
                        earlier.unlink()
                    self._linked = self._copied = 0
                    start = segment.end
        if start > used[0].base and not (target / used[-1].path.name).exists():
            raise ConfigError(f"retention deleted the whole log of {self._root} meanwhile")
        return start, end

    def _link(self, segment: Segment, place: Path) -> bool:
        try:
            os.link(segment.path, place)
        except FileNotFoundError:
            raise
        except OSError as error:
            # Another file system, or one without links.
            if error.errno in (errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK):
                return False
            raise
        self._linked += segment.size
        return True

    def _has_links(self, segment: Segment, target: Path) -> bool:
        """Whether links work; some directories of one file system refuse them, and some users."""
        probe = target / "link"
        try:
            is_linked = self._link(segment, probe)
        except FileNotFoundError:
            return True
        if is_linked:
            probe.unlink()
            self._linked = 0
        return is_linked

    def _check_space(self, used: list[Segment], end: int, *, has_links: bool) -> None:
        needed = sum(
            min(end, segment.end) - segment.base
            for segment in used
            if not has_links or segment.end > end
        )
        free = shutil.disk_usage(self._part).free
        if needed > free:
            raise OSError(errno.ENOSPC, f"{needed} bytes are needed and {free} are free")

    def _copy_config(self, is_wanted: Callable[[str], bool]) -> None:
        source, target = self._root / "config", self._part / "config"
        if not source.is_dir():
            return
        target.mkdir(exist_ok=True)
        for path in sorted(source.iterdir()):
            # A file gets its name only when it is complete.
            if path.is_file() and is_wanted(path.name) and not path.name.endswith(".tmp"):
                self._copy_if_there(path, target / path.name)

    def _copy_tree(self, name: str) -> None:
        for place, directories, names in os.walk(self._root / name, followlinks=True):
            target = self._part / Path(place).relative_to(self._root)
            target.mkdir(parents=True, exist_ok=True)
            directories.sort()
            for each in sorted(names):
                self._copy_if_there(Path(place) / each, target / each)

    def _copy_if_there(self, source: Path, target: Path) -> None:
        try:
            copy(source, target)
        except FileNotFoundError:
            # A topic or an old file was deleted.
            return

    def _marks(self) -> bytes:
        try:
            return (self._part / "checkpoint").read_bytes()[MARKS]
        except FileNotFoundError:
            return b""

    def _has_all_nul_records(self) -> bool:
        """Whether every note of a record that looks torn is there.

        A note's place is reused once the checkpoint covers its record. While the checkpoint stands
        still, no note is lost.
        """
        notes = self._root / "nulRecords"
        if not notes.exists():
            return True
        copied = self._part / "nulRecords"
        copied.unlink(missing_ok=True)
        self._copy_if_there(notes, copied)
        try:
            now = (self._root / "checkpoint").read_bytes()[MARKS]
        except FileNotFoundError:
            return True
        return now == self._marks() or not any(copied.read_bytes())
