"""The file in which a member of a broadcasting group keeps its offsets.

Its path and format are Apache's (``LocalFileOffsetStore``), so a Java consumer with the same client
id continues where this one stopped::

    ~/.rocketmq_offsets/10.0.0.9@DEFAULT/kitchen/offsets.json       and offsets.json.bak
    {"offsetTable": {{"brokerName": "broker-a", "queueId": 0, "topic": "orders"}: 42}}
"""

from __future__ import annotations

import fcntl
import logging
import os
import threading
import weakref
from pathlib import Path
from typing import TYPE_CHECKING

from pyrmq import _core
from pyrmq.errors import ConfigError, ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["LocalOffsets"]

_log = logging.getLogger("pyrmq.consumer")

_Row = tuple[tuple[str, str, int], int]


class LocalOffsets:
    """A member's file of offsets.

    Args:
        folder: Where files of offsets are; None: ``.rocketmq_offsets`` in the home directory.
        client_id: The member.
        group: Its group, with its namespace.
    """

    def __init__(self, folder: str | os.PathLike[str] | None, client_id: str, group: str) -> None:
        base = Path.home() / ".rocketmq_offsets" if folder is None else Path(folder)
        self.path = base / client_id / group / "offsets.json"
        self._backup = self.path.with_name("offsets.json.bak")
        self._unlock: weakref.finalize[..., LocalOffsets] | None = None
        self._written = b""
        # Held while the file is replaced: a commit and the consumer's thread may both replace it.
        self._lock = threading.Lock()

    def take(self) -> None:
        """Warn if another member uses the same file, once there is a folder for it."""
        if self._unlock is not None or not self.path.parent.is_dir():
            return
        try:
            lock = os.open(self.path.with_name("offsets.json.lock"), os.O_RDWR | os.O_CREAT, 0o644)
            self._unlock = weakref.finalize(self, os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _log.warning(
                "%s is in use by another broadcasting member: each overwrites the other's offsets, "
                "so messages are missed or delivered again. Fix: give each its own "
                "`instance_name` or `offset_dir`",
                self.path,
            )
        except OSError as error:
            # Writing the offsets reports what is wrong with the folder.
            _log.debug("%s is not locked: %s", self.path, error)

    def release(self) -> None:
        """Unlock the file for another member."""
        if self._unlock is not None:
            self._unlock()
            self._unlock = None

    def read(self) -> list[_Row]:
        """Return the offsets; those of the backup if the file is damaged or missing.

        Raises:
            ConfigError: Neither can be read.
        """
        reasons: list[str] = []
        for path in (self.path, self._backup):
            try:
                text = path.read_bytes()
                if text.strip():
                    rows = _core.decode_local_offsets(text)
                    if reasons:
                        _log.warning("%s; using the offsets of %s", "; ".join(reasons), path)
                    return rows
                reasons.append(f"{path} is empty")
            except FileNotFoundError:
                continue
            except (ProtocolError, OSError) as error:
                reasons.append(f"{path} cannot be read: {error}")
        if reasons:
            raise ConfigError(
                f"{'; '.join(reasons)}. Restore it, or remove both files to start as option "
                "`start` says"
            )
        return []

    def write(self, encode: Callable[[], bytes]) -> None:
        """Replace the file; the old one becomes the backup.

        Raises:
            OSError: It cannot be written.
        """
        with self._lock:
            text = encode()
            if text == self._written:
                return
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.take()
            if self.path.exists():
                _replace(self._backup, self.path.read_bytes())
            _replace(self.path, text)
            self._written = text


def _replace(path: Path, text: bytes) -> None:
    """Write a file so that a crash leaves the old or the new one."""
    fresh = path.with_name(path.name + ".tmp")
    with fresh.open("wb") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
