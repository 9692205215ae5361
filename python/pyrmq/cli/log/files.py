"""Copies files durably and with their holes; a failed copy leaves nothing behind."""

from __future__ import annotations

import errno
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from pyrmq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

_PIECE = 8 * 1024 * 1024
_SYNC_THREADS = 8
"""Concurrent fsyncs: a file system serves many of them by one write of its journal."""


def copy(
    source: Path,
    target: Path,
    end: int | None = None,
    seen: Callable[[int], object] = lambda _: None,
) -> None:
    """Copy a file with its time of change; its holes stay holes. The caller makes it durable.

    Brokers read the times: of `consumerOffset.json`, to know which pops it lacks, and of segments,
    to know how old they are.

    Args:
        source: The file.
        target: The copy; it must not exist.
        end: Bytes from there on are zero in the copy. Default: none.
        seen: Called with the number of bytes of each piece.

    Raises:
        OSError: It cannot be read or written.
        ConfigError: The source is not a file.
    """
    # Opening a pipe would wait for its writer.
    read = os.open(source, os.O_RDONLY | os.O_NONBLOCK)
    try:
        data = os.fstat(read)
        if not stat.S_ISREG(data.st_mode):
            raise ConfigError(f"{source} is not a regular file: move it away")
        length = data.st_size
        write = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            _copy_data(read, write, length if end is None else min(end, length), seen)
            os.ftruncate(write, length)
            os.utime(write, ns=(data.st_atime_ns, data.st_mtime_ns))
        finally:
            os.close(write)
    finally:
        os.close(read)


def _copy_data(read: int, write: int, end: int, seen: Callable[[int], object]) -> None:
    at = 0
    while at < end:
        try:
            at = os.lseek(read, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return
            raise
        hole = os.lseek(read, at, os.SEEK_HOLE)
        while at < min(hole, end):
            data = os.pread(read, min(_PIECE, min(hole, end) - at), at)
            if not data:
                return
            written = 0
            while written < len(data):
                written += os.pwrite(write, data[written:], at + written)
            at += len(data)
            seen(len(data))


def own(path: Path) -> None:
    """Give a file with several names its own copy, so that a change affects no other name.

    Raises:
        OSError: It cannot be copied; it is unchanged.
    """
    if path.stat().st_nlink < 2:
        return
    part = path.with_name(f"{path.name}.own")
    part.unlink(missing_ok=True)
    try:
        copy(path, part)
        sync(part)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    sync(path.parent)


def sync(path: Path) -> None:
    """Make a file, or the names in a directory, durable.

    Raises:
        OSError: An fsync failed.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(root: Path) -> None:
    """Make the files and names in a directory and all below it durable.

    Raises:
        OSError: An fsync failed.
    """
    files: list[Path] = []
    directories: list[Path] = []
    for place, _, names in os.walk(root, topdown=False):
        directories.append(Path(place))
        files += [Path(place) / name for name in names]
    with ThreadPoolExecutor(_SYNC_THREADS) as pool:
        for _ in pool.map(sync, files):
            pass
    for directory in directories:
        sync(directory)
