"""Plans a read of log files: pieces of files, without Spark.

Records are skipped by their heads. A log ends where zeros follow the last record, or where the last
record is not whole and nothing valid follows: a broker was killed, or is writing it now. Anything
else that cannot be read is damage.
"""

from __future__ import annotations

import logging
import os
import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from pyrmq import _core
from pyrmq._core import deleted_topics, log_files, next_record, plan_log
from pyrmq._names import INTERNAL_PREFIXES
from pyrmq._tables.errors import DataLossError, OptionError
from pyrmq.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyrmq._tables.options.log_options import LogOptions

__all__ = ["LogDirectory", "LogFile", "LogPiece", "plan"]

LogFile: TypeAlias = tuple[str | os.PathLike[str], int, int]
"""Path, position of the first byte, and bytes."""

_Planned: TypeAlias = tuple[int, int, int, int, int, int, list[str]]
"""Positions of the first record, of the last, and after it; records, times, topics."""
_TAIL_READS = 5
_TAIL_PAUSE_S = 0.05
"""How often, and how far apart, the log's last record is read again before it counts as cut."""
_DIGITS = 20
_log = logging.getLogger("pyrmq.spark")


class LogPiece(NamedTuple):
    """Adjacent records of one file, and what to read of them.

    Attributes:
        file: the file.
        start: position of the first record.
        end: position after the last.
        records: how many there are, of all topics.
        topics: the topics to read.
        deleted: positions before which a topic's messages were deleted.
    """

    file: LogFile
    start: int
    end: int
    records: int
    topics: frozenset[str]
    deleted: dict[str, int]


@dataclass
class LogDirectory:
    """A broker's store, or its commit log alone.

    Args:
        path: `storePathRootDir`, or `storePathCommitLog`.

    Raises:
        OptionError: there is no commit log.
        PermissionError: a directory may not be read.
    """

    path: str
    commit_log: Path = field(init=False)
    deleted: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        root = Path(self.path)
        if not root.is_dir():
            kind = "is not a directory" if root.exists() else "does not exist"
            raise OptionError(
                "path", f"{root} {kind}: name a broker's storePathRootDir or storePathCommitLog"
            )
        names = [entry.name for entry in root.iterdir()]
        if "commitlog" in names:
            self.commit_log = root / "commitlog"
        elif any(len(name) == _DIGITS and name.isdecimal() for name in names):
            self.commit_log, root = root, root.parent
        else:
            kind = "is empty" if not names else "has no commitlog and no log files"
            if any(name.startswith("dledger-") for name in names):
                kind = "is a DLedger store, whose log has another format"
            raise OptionError(
                "path", f"{root} {kind}: name a broker's storePathRootDir or storePathCommitLog"
            )
        self.deleted = deleted_topics(root)

    def files(self) -> list[LogFile]:
        """List the files of the log, in order."""
        return log_files(self.commit_log)


def plan(
    options: LogOptions,
    *,
    start: int | None = None,
    end: int | None = None,
    most_records: int = 0,
) -> tuple[list[LogPiece], int]:
    """Cut the range between two positions of the log into pieces.

    Args:
        options: the directory, and what to read of it.
        start: where a record begins; None for the oldest.
        end: records from here on are left out; None for all.
        most_records: maximum number of records, of all topics; 0: all.

    Returns:
        The pieces, and the position after the last record that was seen.

    Raises:
        OptionError: the directory holds no log.
        DataLossError: the log begins after `start`, or ends before it.
        ProtocolError: the log is damaged, and option onCorrupt is fail.
    """
    directory = LogDirectory(options.directory)
    planner = _Planner(options, directory, end, most_records or 2**63 - 1)
    return planner.pieces(start)


@dataclass
class _Planner:
    options: LogOptions
    directory: LogDirectory
    end: int | None
    left: int
    _pattern: re.Pattern[str] | None = field(default=None, init=False)
    _found: list[LogPiece] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        if self.options.topic_pattern is not None:
            self._pattern = re.compile(self.options.topic_pattern)

    def pieces(self, start: int | None) -> tuple[list[LogPiece], int]:
        files = self.directory.files()
        first = files[0][1] if files else 0
        position = first if start is None else self._held(start, files)
        for number, file in enumerate(files):
            if file[1] + file[2] <= position:
                continue
            following = files[number + 1 :]
            if file[1] > position:
                self._corrupt(
                    file, position, f"{file[1] - position} bytes are missing before this file"
                )
                position = file[1]
            position, is_end = self._file(file, position, following)
            if is_end:
                break
        return self._found, position

    def _held(self, start: int, files: list[LogFile]) -> int:
        """Return where to continue: the log may begin or end elsewhere by now."""
        first = files[0][1] if files else 0
        last = files[-1][1] + files[-1][2] if files else 0
        where = self.directory.commit_log
        if start > last:
            self._lose(f"{where}: it was read up to position {start}, but its files end at {last}")
            return first
        if start < first:
            self._lose(f"{where}: positions {start} to {first} are deleted, but were not read")
            return first
        return start

    def _lose(self, what: str) -> None:
        if self.options.fail_on_data_loss:
            raise DataLossError(
                f"{what}. Messages that should have been read are gone; with failOnDataLoss=false"
                " the query goes on with what is left"
            )
        _log.warning("messages are gone and left out: %s", what)

    def _file(self, file: LogFile, position: int, following: list[LogFile]) -> tuple[int, bool]:
        """Cut a file into pieces; return the position after them, and if the log ends there."""
        reads, is_second = 0, False
        while True:
            before = position
            position, why, reason = self._records(file, position)
            if why == "limit" or (self.end is not None and position >= self.end):
                return position, True
            if why == "end":
                return max(position, file[1] + file[2]), False
            if position > before:
                reads, is_second = 0, False
            if why == "unused" and not _any_used(following):
                return position, True
            good = next_record(file, position)
            if good is None and not _any_used(following):
                if reads < _TAIL_READS:
                    reads += 1
                    time.sleep(_TAIL_PAUSE_S)
                    continue
                self._check_foreign(file, position, reason)
                _log.warning(
                    "%s ends at position %d with a record that is not whole: %s",
                    file[0],
                    position,
                    reason,
                )
                return position, True
            if good == position or not is_second:
                # A running broker has written more since the last check.
                is_second = True
                continue
            self._corrupt(file, position, reason or "zeros where a record should be")
            if good is None:
                return file[1] + file[2], False
            position = good

    def _records(self, file: LogFile, position: int) -> tuple[int, str, str | None]:
        wants_topics = not self.options.topics
        try:
            pieces, end, why, reason = plan_log(
                file,
                position,
                piece_bytes=self.options.max_partition_bytes,
                most_records=self.left,
                with_topics=wants_topics,
                until=self.end,
            )
        except FileNotFoundError as error:
            self._lose(f"{error}: the broker's retention has deleted it")
            return position, "end", None
        if pieces and why == "unused":
            end, why, reason = self._checked_end(file, pieces, end)
        for first, _, after, records, first_ms, last_ms, names in pieces:
            self.left -= records
            topics = self._wanted(names) if wants_topics else frozenset(self.options.topics)
            if topics and self._is_in_time(first_ms, last_ms):
                piece = LogPiece(file, first, after, records, topics, self.directory.deleted)
                self._found.append(piece)
        return end, why, reason

    def _checked_end(
        self, file: LogFile, pieces: list[_Planned], end: int
    ) -> tuple[int, str, str | None]:
        """Remove the log's last record from the pieces if only its head is whole."""
        first, last, _, records, first_ms, last_ms, names = pieces[-1]
        for number in range(_TAIL_READS):
            time.sleep(_TAIL_PAUSE_S if number else 0)
            if next_record(file, last) is not None:
                return end, "unused", None
        if records > 1:
            # The start of the record before it is not known; the piece ends at this one's start.
            pieces[-1] = (first, last, last, records - 1, first_ms, last_ms, names)
        else:
            del pieces[-1]
        return last, "damage", "a record is cut off"

    def _is_in_time(self, first_ms: int, last_ms: int) -> bool:
        since, until = self.options.since_ms, self.options.until_ms
        return (since is None or last_ms >= since) and (until is None or first_ms < until)

    def _wanted(self, names: Iterable[str]) -> frozenset[str]:
        def is_wanted(name: str) -> bool:
            if not self.options.include_system_topics and (
                name in _core.SYSTEM_TOPICS or name.startswith(INTERNAL_PREFIXES)
            ):
                return False
            return self._pattern is None or self._pattern.fullmatch(name) is not None

        return frozenset(filter(is_wanted, names))

    def _check_foreign(self, file: LogFile, position: int, reason: str | None) -> None:
        if position == file[1] and self.options.on_corrupt == "fail":
            raise ProtocolError(
                f"{file[0]} is not a file of a commit log: {reason}; onCorrupt=skip leaves it out"
            )

    def _corrupt(self, file: LogFile, position: int, reason: str) -> None:
        if self.options.on_corrupt == "fail":
            raise ProtocolError(
                f"{file[0]} cannot be read at position {position}: {reason}; onCorrupt=skip"
                " continues at the next valid record, and `pyrmq log verify` shows all such places"
            )
        _log.warning(
            "left out (onCorrupt=skip): %s from position %d: %s", file[0], position, reason
        )


def _any_used(files: list[LogFile]) -> bool:
    """Whether a file begins with anything but zeros; a broker creates the next one early."""
    for path, _, _ in files:
        try:
            with Path(path).open("rb") as opened:
                if any(opened.read(8)):
                    return True
        except FileNotFoundError:
            continue
    return False
