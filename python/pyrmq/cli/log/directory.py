"""A store directory on disk, ours or a Java broker's, read only.

The formats are those of docs/store.md; the records are read by the native module.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import zlib
from collections import OrderedDict
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from pyrmq import _core
from pyrmq.cli.log.numbered import numbered
from pyrmq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

_UNIT = struct.Struct(">qiq")
_PIECE = 4096 * _UNIT.size
_CHECKPOINT = struct.Struct(">qqq")
_FILLER = 0x7FFFFFFF
_EXTENDED = struct.Struct(">hq")
_MIN_CODE = -(2**31)
"""Codes below this are addresses of extended entries."""
_DELETION = struct.Struct(">qI")
_FLOCK = struct.Struct("hhqqi")
"""Linux's `struct flock`: type, whence, start, length, process."""
_LOCKED = 2
"""Bytes of the lock file that a broker locks: the first as Apache does, and another one."""
_OPEN = 256
"""Queue files that stay open."""


class Unit(NamedTuple):
    """An entry of a consume queue."""

    position: int
    size: int
    tags_code: int


@dataclass(frozen=True)
class Segment:
    """A file of the commit log.

    Attributes:
        base: position of its first byte.
        path: its path.
        size: its size in bytes.
    """

    base: int
    path: Path
    size: int

    @property
    def end(self) -> int:
        """Position after its last byte."""
        return self.base + self.size

    def is_used(self) -> bool:
        """Whether it begins with anything but zeros; False if retention has deleted it."""
        try:
            with self.path.open("rb") as file:
                return any(file.read(_UNIT.size))
        except FileNotFoundError:
            return False


class StoreDirectory:
    """A broker's store.

    Args:
        root: its directory (`storePathRootDir`).
        commit_log: directory of the log, if it is elsewhere (`storePathCommitLog`).

    Raises:
        ConfigError: there is no commit log.
    """

    def __init__(self, root: str, commit_log: str | None = None) -> None:
        self.root = Path(root)
        self.commit_log = Path(commit_log) if commit_log else self.root / "commitlog"
        if not self.commit_log.is_dir():
            raise ConfigError(
                f"{self.root} is not a store: there is no directory {self.commit_log}; "
                "name the broker's storePathRootDir, or its storePathCommitLog with --commit-log"
            )

    def segments(self) -> list[Segment]:
        """The files of the log, in order.

        Raises:
            ConfigError: something else has the name of one.
        """
        while True:
            try:
                return [
                    Segment(base, path, path.stat().st_size)
                    for base, path in numbered(self.commit_log)
                ]
            except FileNotFoundError:
                # Retention deletes the oldest files first: the list may have gaps. List them again.
                continue

    def start(self) -> int:
        """Position of the oldest byte."""
        return min((base for base, _ in numbered(self.commit_log)), default=0)

    def queues(self) -> list[tuple[str, int]]:
        """Topic and number of every consume queue."""
        found = []
        for topic in sorted(_directories(self.root / "consumequeue")):
            found += [
                (topic.name, int(queue.name))
                for queue in _directories(topic)
                if queue.name.isdigit()
            ]
        return sorted(found)

    def stopped_cleanly(self) -> bool:
        """Whether no broker runs on it and the last one stopped cleanly."""
        return not (self.root / "abort").exists()

    def is_live(self) -> bool:
        """Whether a running broker holds it locked, in this process or another one."""
        path = self.root / "lock"
        if _core.is_store_locked_here(path):
            return True
        try:
            lock = os.open(path, os.O_RDONLY)
        except OSError:
            return False
        try:
            # Requests the lock's owner, which needs no write permission.
            wanted = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, _LOCKED, 0)
            held = _FLOCK.unpack(fcntl.fcntl(lock, fcntl.F_GETLK, wanted))
        finally:
            os.close(lock)
        return bool(held[0] != fcntl.F_UNLCK)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock brokers and other tools out during a change.

        Raises:
            ConfigError: a broker runs on the store, or another tool changes it.
        """
        try:
            lock = _core.StoreLock(self.root / "lock")
        except BlockingIOError:
            raise ConfigError(f"a broker runs on {self.root}: stop it first") from None
        try:
            yield
        finally:
            lock.release()

    def checkpoint(self) -> tuple[int, int, int] | None:
        """The store times in ms up to which log, queues and index were durable."""
        try:
            head = (self.root / "checkpoint").read_bytes()[: _CHECKPOINT.size]
        except OSError:
            return None
        return _CHECKPOINT.unpack(head) if len(head) == _CHECKPOINT.size else None

    def deleted(self) -> dict[str, int]:
        """Deleted topics, each with the position before which its records need no entry."""
        try:
            data = (self.root / "deletedTopics").read_bytes()
        except OSError:
            return {}
        found: dict[str, int] = {}
        at = 0
        while at + 2 <= len(data):
            end = at + 2 + int.from_bytes(data[at : at + 2], "big")
            if end + _DELETION.size > len(data):
                break
            position, crc = _DELETION.unpack_from(data, end)
            sealed = b"PYRMQ-T1" + at.to_bytes(8, "big") + data[at : end + 8]
            if zlib.crc32(sealed) != crc:
                break
            topic = data[at + 2 : end].decode(errors="replace")
            found[topic] = max(position, found.get(topic, 0))
            at = end + _DELETION.size
        return found


class Units:
    """Entries of the consume queues; few files are open at once."""

    def __init__(self, directory: StoreDirectory) -> None:
        self._root = directory.root / "consumequeue"
        self._extended = directory.root / "consumequeue_ext"
        self._files: dict[Path, list[tuple[int, Path]]] = {}
        self._open: OrderedDict[Path, int] = OrderedDict()

    def at(self, topic: str, queue_id: int, offset: int) -> Unit | None:
        """The entry at a queue offset; None if there is none."""
        try:
            return self._at(topic, queue_id, offset)
        except FileNotFoundError:
            # Deleted by retention since the directory was listed.
            self.refresh()
            return None

    def refresh(self) -> None:
        """List the directories again: a running broker makes files and deletes them."""
        self._files.clear()

    def _at(self, topic: str, queue_id: int, offset: int) -> Unit | None:
        where = offset * _UNIT.size
        for base, path in reversed(self._of(topic, queue_id)):
            if base <= where:
                data = os.pread(self._descriptor(path), _UNIT.size, where - base)
                unit = _written(data)
                return unit and self._with_code(topic, queue_id, unit)
        return None

    def _with_code(self, topic: str, queue_id: int, unit: Unit) -> Unit:
        """The entry with its tag code, which may be only in an extended entry."""
        if unit.tags_code >= _MIN_CODE:
            return unit
        where = unit.tags_code + 2**63
        for base, path in reversed(self._of(topic, queue_id, self._extended)):
            if base <= where:
                data = os.pread(self._descriptor(path), _EXTENDED.size, where - base)
                if len(data) == _EXTENDED.size and (found := _EXTENDED.unpack(data))[0] > 0:
                    return unit._replace(tags_code=found[1])
                break
        return unit

    def count(self, topic: str, queue_id: int, least: int) -> int:
        """How many entries point to position `least` of the log or after it."""
        count = 0
        for _, path in self._of(topic, queue_id):
            for piece in _pieces(self._descriptor(path)):
                whole = len(piece) - len(piece) % _UNIT.size
                for position, size, _ in _UNIT.iter_unpack(piece[:whole]):
                    count += 0 < size < _FILLER and position >= least
        return count

    def sizes(self, topic: str, queue_id: int, least: int) -> tuple[int, int]:
        """How many records at position `least` of the log or after it a queue has, and their bytes.

        Args:
            topic: topic.
            queue_id: number of the queue.
            least: position; older records are gone.
        """
        count = total = 0
        try:
            for _, path in self._of(topic, queue_id):
                for piece in _pieces(self._descriptor(path)):
                    whole = len(piece) - len(piece) % _UNIT.size
                    for position, size, _ in _UNIT.iter_unpack(piece[:whole]):
                        if 0 < size < _FILLER and position >= least:
                            count += 1
                            total += size
        except FileNotFoundError:
            # Deleted meanwhile, by retention or with its topic.
            self.refresh()
        return count, total

    def _of(self, topic: str, queue_id: int, root: Path | None = None) -> list[tuple[int, Path]]:
        directory = (root or self._root) / topic / str(queue_id)
        if not self._files.get(directory):
            self._files[directory] = numbered(directory)
        return self._files[directory]

    def _descriptor(self, path: Path) -> int:
        if path in self._open:
            self._open.move_to_end(path)
            return self._open[path]
        if len(self._open) >= _OPEN:
            os.close(self._open.popitem(last=False)[1])
        self._open[path] = os.open(path, os.O_RDONLY)
        return self._open[path]

    def __enter__(self) -> Self:
        """Create a cache without open files."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the files."""
        for descriptor in self._open.values():
            os.close(descriptor)
        self._open.clear()


def _pieces(descriptor: int) -> Iterator[bytes]:
    """A queue file's entries, in chunks, without unwritten holes."""
    at = 0
    while True:
        try:
            at = os.lseek(descriptor, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return
            raise
        at -= at % _PIECE
        yield os.pread(descriptor, _PIECE, at)
        at += _PIECE


def _written(data: bytes) -> Unit | None:
    if len(data) < _UNIT.size:
        return None
    unit = Unit(*_UNIT.unpack(data))
    return unit if 0 < unit.size < _FILLER else None


def _directories(parent: Path) -> list[Path]:
    return [path for path in parent.iterdir() if path.is_dir()] if parent.is_dir() else []
