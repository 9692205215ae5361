"""Locks a store while it is copied, or finds that a broker runs on it.

A lock does not prove that a broker runs: `pyrmq log repair` and another `pyrmq store snapshot`
lock the store too, as do a start before it has written `abort` and a stop after it has removed
that file. A copy without `abort` would look like one after a clean stop. So only a store that has
`abort` is copied without the lock.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyrmq import _core
from pyrmq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyrmq.cli.log.directory import StoreDirectory

WAIT_SECONDS = 60.0
"""How long to wait for another tool that has the store locked."""
_PAUSE_SECONDS = 0.05


class Hold:
    """A lock that keeps a store unchanged.

    Args:
        directory: The store.
        lock: Its lock; None if it was not taken.
    """

    def __init__(self, directory: StoreDirectory, lock: _core.StoreLock | None) -> None:
        self._file = directory.root / "lock"
        self._lock = lock
        # A snapshot has no lock file and gets none: it must not change.
        self._was_there = lock is not None or self._file.exists()

    def is_held(self) -> bool:
        """Whether no broker can have changed the store since it was locked."""
        return self._lock is not None or not (self._was_there or self._file.exists())


@contextmanager
def hold(directory: StoreDirectory) -> Iterator[Hold]:
    """Lock a store on which no broker runs.

    Raises:
        ConfigError: Another tool has it locked for too long.
    """
    lock = _take(directory)
    try:
        yield Hold(directory, lock)
    finally:
        if lock is not None:
            lock.release()


def _take(directory: StoreDirectory) -> _core.StoreLock | None:
    file = directory.root / "lock"
    deadline = time.monotonic() + WAIT_SECONDS
    while file.exists():
        try:
            return _core.StoreLock(file)
        except BlockingIOError:
            pass
        except OSError:
            # The file may not be written, but the lock's state can be read.
            if not directory.is_live():
                return None
        if not directory.stopped_cleanly():
            return None
        if time.monotonic() >= deadline:
            raise ConfigError(
                f"{directory.root} is locked, but not by a running broker: by a start or a "
                "stop, `pyrmq log repair`, or another `pyrmq store snapshot`. Fix: wait for its "
                "end and try again"
            )
        time.sleep(_PAUSE_SECONDS)
    return None
