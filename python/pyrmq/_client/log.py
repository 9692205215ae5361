"""Rust's events in Python's `logging`, under `pyrmq.*`: a thread drains the core's ring.

Nothing is installed at import. The first server or client of a process starts the thread. When the
last one ends, the thread writes everything and ends. The level is that of the logger `pyrmq` when a
server or client starts. `logging` itself is imported when there is something to write: a server's
start counts in milliseconds.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from time import monotonic
from typing import TYPE_CHECKING

from pyrmq import _core

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable

    from pyrmq._client.log_output import Output

_BATCH = 256
_WAIT_MS = 600_000
_END = "pyrmq.log.end"
_END_SECONDS = 1.0

_LEVELS = {"DEBUG": 10, "INFO": 20, "WARNING": 30, "ERROR": 40}

# The level of a command that owns its process; None: the application configures `logging`.
_level: str | None = None


class _Drain:
    """The thread, at most one, and the number of servers and clients that need it."""

    def __init__(self) -> None:
        # Reentrant: the garbage collector may end a client anywhere.
        self._lock = threading.RLock()
        self._users = 0
        self._thread: threading.Thread | None = None
        self._written: list[threading.Event] = []
        self.pid = os.getpid()

    def acquire(self, level: int) -> None:
        _core.log_start(max(1, min(level, 255)))
        with self._lock:
            self._users += 1
            if self._thread is not None:
                return
            thread = threading.Thread(target=self._run, name="pyrmq-log", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                # The interpreter is ending, and no thread can be started.
                return
            self._thread = thread

    def release(self) -> None:
        if self.pid != os.getpid():
            # The thread belongs to the parent process.
            return
        written = threading.Event()
        with self._lock:
            self._users -= 1
            thread = self._thread
            if self._users or thread is None:
                return
            self._written.append(written)
        _core.log_put(255, _END, "")
        if thread is not threading.current_thread():
            written.wait(2 * _END_SECONDS)

    def _run(self) -> None:
        try:
            self._serve()
        except BaseException:
            # The next client starts another.
            with self._lock:
                self._thread = None
            raise

    def _serve(self) -> None:
        until: float | None = None
        while True:
            records, dropped = _core.log_take(_BATCH, _WAIT_MS if until is None else 0)
            if until is None and any(logger == _END for _, logger, _ in records):
                until = monotonic() + _END_SECONDS
            records = [record for record in records if record[1] != _END]
            if records or dropped:
                _write(records, dropped)
            if until is None or (records and monotonic() < until):
                continue
            until = None
            with self._lock:
                for written in self._written:
                    written.set()
                self._written.clear()
                if not self._users:
                    self._thread = None
                    return


def _write(records: list[tuple[int, str, str]], dropped: int) -> None:
    if dropped:
        text = f"{dropped} events were dropped: they arrived faster than they were written"
        _write_one(_LEVELS["WARNING"], "pyrmq.log", text)
    for record in records:
        _write_one(*record)


def _write_one(level: int, logger: str, text: str) -> None:
    try:
        get(logger).log(level, "%s", text)
    except BaseException:  # noqa: BLE001 - a handler of the application must not end the thread
        _print_raised()


_drain = _Drain()


def acquire(level: int | None = None) -> None:
    """Start writing events; call `release` once for each call.

    Args:
        level: the lowest level number to write. Default: that of the logger `pyrmq`.
    """
    global _drain
    if _drain.pid != os.getpid():
        _drain = _Drain()
    _drain.acquire(_effective_level() if level is None else level)


def release() -> None:
    """Stop writing events; the last release writes what waits and ends the thread."""
    _drain.release()


def serve(client: object) -> Callable[[], object]:
    """Write events while this client exists.

    Returns:
        A function that ends it once, for a client that is closed.
    """
    acquire()
    return weakref.finalize(client, _drain.release)


def use_standard_error(level: str) -> None:
    """Write records of this level and above to standard error: for a command's own process.

    Example:
        >>> use_standard_error("info")  # doctest: +SKIP
    """
    global _level
    _level = level.upper()
    if "logging" in sys.modules:
        _configure()


def use(level: str, output: Output) -> None:
    """Write records of this level and above to a file or as JSON: for a command's own process.

    Raises:
        ConfigError: the file cannot be written.

    Example:
        >>> use("info", Output(file="broker.log"))  # doctest: +SKIP
    """
    output.install(level.upper())


def set_level(level: str | None) -> None:
    """Write records of the logger `pyrmq` and the core's events from this level on.

    Args:
        level: its name; `None` for the level of the loggers above.

    Example:
        >>> set_level("info")  # doctest: +SKIP
    """
    logger = get("pyrmq")
    logger.setLevel("NOTSET" if level is None else level.upper())
    _core.log_start(max(1, min(logger.getEffectiveLevel(), 255)))


def _configure() -> None:
    import logging

    if _level is not None:
        form = "%(asctime)s %(levelname)s %(name)s: %(message)s"
        logging.basicConfig(stream=sys.stderr, level=_level, format=form)


def get(name: str) -> logging.Logger:
    """Return a logger, importing `logging` on first use."""
    import logging

    _configure()
    return logging.getLogger(name)


def log_raised(logger: logging.Logger, error: BaseException, text: str, *arguments: object) -> None:
    """Log an exception in a thread that must continue; handlers of the application may raise, too.

    Example:
        >>> log_raised(get("pyrmq.producer"), ValueError("no"), "not answered")  # doctest: +SKIP
    """
    try:
        logger.error(text, *arguments, exc_info=error)
    except BaseException:  # noqa: BLE001 - of a handler of the application
        _print_raised()


def _print_raised() -> None:
    """Print the current exception where `logging` prints those of its handlers."""
    import logging
    import traceback

    if logging.raiseExceptions:
        traceback.print_exc()


def _effective_level() -> int:
    if "logging" in sys.modules:
        # The logs of changes and of requests may have a lower level than the rest.
        loggers = get("pyrmq"), get("pyrmq.audit"), get("pyrmq.requests")
        return min(logger.getEffectiveLevel() for logger in loggers)
    # Without an import of `logging`, no level can have been set.
    return _LEVELS[_level or "WARNING"]
