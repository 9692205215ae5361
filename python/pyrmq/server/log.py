"""Rust's events in Python's `logging`, under `pyrmq.*`: a thread drains the core's ring.

Nothing is installed at import. The first server that starts in a process starts the thread, the
last one that stops ends it. Levels are those of the logger `pyrmq` when a server starts.
"""

from __future__ import annotations

import logging
import os
import threading
from time import monotonic

from pyrmq import _core

_BATCH = 256
_WAIT_MS = 600_000
_END = "pyrmq.log.end"


class _Drain:
    """The thread and how many servers want it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()

    def acquire(self) -> None:
        _core.log_start(max(1, min(logging.getLogger("pyrmq").getEffectiveLevel(), 255)))
        if self._pid != os.getpid():
            self.__init__()  # type: ignore[misc] # the parent's thread and lock are not ours
        with self._lock:
            self._users += 1
            if self._thread is None:
                self._thread = threading.Thread(target=_run, name="pyrmq-log", daemon=True)
                self._thread.start()

    def release(self) -> None:
        if self._pid != os.getpid():
            return
        with self._lock:
            self._users -= 1
            thread = self._thread
            if self._users or thread is None:
                return
            self._thread = None
        _core.log_put(255, _END, "")
        thread.join(2.0)


def _run() -> None:
    until: float | None = None
    while until is None or monotonic() < until:
        records, dropped = _core.log_take(_BATCH, _WAIT_MS if until is None else 0)
        if dropped:
            logging.getLogger("pyrmq.log").warning(
                "%d events were dropped: they came faster than they are written", dropped
            )
        for level, logger, text in records:
            if logger == _END:
                until = monotonic() + 1.0
            else:
                logging.getLogger(logger).log(level, "%s", text)
        if until is not None and not records:
            return


_drain = _Drain()


def acquire() -> None:
    """Have events written from now on; for each call `release` once."""
    _drain.acquire()


def release() -> None:
    """No longer want events; the last release writes what waits and ends the thread."""
    _drain.release()
