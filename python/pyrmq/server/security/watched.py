"""Files of users and policies: read again when they change, written so that a crash breaks none.

A file that cannot be used stops a start. While the server runs, it is reported, and the old content
stays in force.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
from abc import ABC, abstractmethod
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from pyrmq._client.security.secrets import check_private
from pyrmq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

CHECK_SECONDS = 0.25
"""How often the files are checked, so that a change is in force within a second."""

_LOCK_SECONDS = 10.0
"""How long a change waits for another one, which takes some milliseconds."""
_LOCK_CHECK_SECONDS = 0.01
_NO_LOCKS = {errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}
"""How file systems of networks refuse a lock on a folder."""

Version = tuple[int, int, int]
"""What distinguishes a file from other versions of it."""


class Watched(ABC):
    """Rules from files, and the thread that checks whether these have changed.

    Subclasses read the files; `what` names the rules in the log.

    Example:
        >>> issubclass(UserFile, Watched)  # doctest: +SKIP
        True
    """

    def __init__(self, what: str) -> None:
        self.what = what
        # Held while the files and the version in force change together.
        self.changing = threading.Lock()
        self._stop = threading.Event()
        self._watcher: threading.Thread | None = None

    @abstractmethod
    def reload(self) -> str | None:
        """Read changed files. Returns what is in force now; None if nothing has changed.

        Raises:
            ConfigError: A file cannot be used; the old content stays in force.
        """

    def watch(self) -> None:
        """Start a thread that checks the files for changes."""
        self._stop.clear()
        self._watcher = threading.Thread(target=self._watch, name="pyrmq-users", daemon=True)
        self._watcher.start()

    def close(self) -> None:
        """Stop the thread that checks the files."""
        self._stop.set()
        if self._watcher is not None:
            self._watcher.join(5.0)

    def _watch(self) -> None:
        from pyrmq._client import log

        last = ""
        while not self._stop.wait(CHECK_SECONDS):
            try:
                with self.changing:
                    found = self.reload()
                if found is not None:
                    log.get("pyrmq.audit").info("%s read again: %s", self.what, found)
                last = ""
            except (ConfigError, OSError) as error:
                if str(error) != last:
                    last = str(error)
                    log.get("pyrmq.audit").error("the old %s stay in force: %s", self.what, error)


def version(path: str) -> Version:
    """Return what distinguishes a file from other versions of it.

    Raises:
        OSError: There is no such file.
    """
    return _version(os.stat(path))  # noqa: PTH116 - four times a second


def _version(status: os.stat_result) -> Version:
    return status.st_mtime_ns, status.st_ino, status.st_size


def read_private(what: str, path: str) -> tuple[bytes, Version]:
    """Return the content of a file that only its owner may read, and its version.

    Args:
        what: Its content, for error texts.
        path: The file.

    Raises:
        ConfigError: It cannot be read, or others may read it.
    """
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - see pyrmq.server.files
            status = os.fstat(file.fileno())
            text = file.read()
    except OSError as error:
        raise ConfigError(f"cannot read the {what} in `{path}`: {error.strerror}") from error
    check_private(f"the {what} in", path, status.st_mode)
    return text, _version(status)


@contextmanager
def changing_alone(path: str) -> Iterator[None]:
    """Keep other processes and threads from changing a file, between its reading and its writing.

    They lock its folder, which needs no right to write there and leaves no file behind. On a file
    system without locks no process is kept out.

    Raises:
        OSError: The folder cannot be opened, or another process has held it for 10 s.
    """
    try:
        folder = os.open(os.path.dirname(os.path.realpath(path)), os.O_RDONLY)  # noqa: PTH120 - see pyrmq.server.files
    except FileNotFoundError:
        # The error of the reader names the file.
        yield
        return
    try:
        until = time.monotonic() + _LOCK_SECONDS
        while not _is_locked(folder):
            if time.monotonic() > until:
                raise TimeoutError(
                    f"another process has been changing `{path}` for {_LOCK_SECONDS:g} s"
                )
            time.sleep(_LOCK_CHECK_SECONDS)
        yield
    finally:
        # A child that was forked meanwhile has the descriptor, too.
        with suppress(OSError):
            fcntl.flock(folder, fcntl.LOCK_UN)
        os.close(folder)


def _is_locked(folder: int) -> bool:
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    return True


def write_private(path: str, text: bytes) -> None:
    """Replace a file that only its owner may read; a crash leaves the old or the new one.

    A writer that has read the file before holds `changing_alone`.

    Raises:
        OSError: It cannot be written; the old file is still there, unless the disk fails last.
    """
    # A link stays one: its target is replaced.
    path = os.path.realpath(path)
    # A separate name: two writers must not write into one file.
    fresh = f"{path}.{os.urandom(6).hex()}.tmp"
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, path)  # noqa: PTH105 - as above
    except BaseException:
        with suppress(OSError):
            os.unlink(fresh)  # noqa: PTH108 - as above
        raise
    folder = os.open(os.path.dirname(path), os.O_RDONLY)  # noqa: PTH120 - as above
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
