"""Run servers in the foreground until SIGINT or SIGTERM.

The first signal drains the servers and stops them in reverse order of their start. A second one
ends the drain, never the flush.

SIGHUP makes the servers read their configuration again. It stops them if they cannot do that, or
if it came because their terminal was closed. As with other daemons:

- A process that starts with SIGHUP ignored (`nohup`) keeps ignoring it.
- A process without a controlling terminal (`setsid`, a service) reads its configuration.
- A process that outlives its terminal (`disown`) reads its configuration from then on.
"""

from __future__ import annotations

import os
import select
import signal
import threading
from typing import TYPE_CHECKING, Any

from pyrmq._client import log
from pyrmq.errors import RmqError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

    from pyrmq.server.lifecycle import Server

_STOPPED = b"\0"
_HANG_UP_MS = 1000


def serve(
    makers: Sequence[Callable[[list[Server[Any, Any]]], Server[Any, Any]]],
    *,
    ready: Callable[[list[Server[Any, Any]]], None],
    drain: float,
    reload: Callable[[list[Server[Any, Any]]], None] | None = None,
) -> None:
    """Start servers, wait for SIGINT or SIGTERM, stop them in reverse order.

    For a process that does nothing else: the signal handlers are never restored.

    Args:
        makers: each makes a server, given those that already run; in the order of their start.
        ready: called with all servers once they serve.
        drain: seconds for requests in progress; a second signal ends that wait, not the flush.
        reload: called with all servers at each SIGHUP; it must not raise. Without it, SIGHUP stops
            them.

    Raises:
        RmqError: one of them cannot start, and those before it were stopped; or one could not write
            everything when it stopped.
    """
    terminal = _Terminal()
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    taken = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        taken.append(signal.SIGHUP)
    for number in taken:
        signal.signal(number, _go_on)
    # The interpreter's own handler writes the signal's number there: a wait in Python could begin
    # just after a signal and never hear of it.
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    started: list[Server[Any, Any]] = []
    try:
        for maker in makers:
            started.append(maker(started).start())
        ready(started)
        while _wait(reader, terminal) == signal.SIGHUP and reload is not None:
            if terminal.has_gone():
                break
            reload(started)
    finally:
        _stop_all(started[::-1], drain, reader, writer)
        # The process is about to end, so another Ctrl-C must not interrupt it.
        for number in taken:
            signal.signal(number, signal.SIG_IGN)
        signal.set_wakeup_fd(-1)
        os.close(reader)
        os.close(writer)
        terminal.close()


class _Terminal:
    """The controlling terminal of this process, if there is one."""

    def __init__(self) -> None:
        try:
            self._fd: int | None = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError:
            self._fd = None

    def watch(self, poll: select.poll) -> None:
        """Have `poll` return once the terminal is closed."""
        if self._fd is not None:
            poll.register(self._fd, 0)

    def has_gone(self) -> bool:
        """Whether it was closed and the process has not outlived it."""
        return self._fd is not None and not os.isatty(self._fd)

    def close(self) -> None:
        """Forget it."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def _wait(reader: int, terminal: _Terminal) -> int:
    """Wait for a signal and return its number."""
    poll = select.poll()
    poll.register(reader, select.POLLIN)
    if not terminal.has_gone():
        terminal.watch(poll)
        poll.poll()
    if terminal.has_gone():
        only_signals = select.poll()
        only_signals.register(reader, select.POLLIN)
        # A shell that is closed with its terminal sends SIGHUP to its jobs a moment later.
        if not only_signals.poll(_HANG_UP_MS):
            terminal.close()
            log.get("pyrmq.server").warning("the terminal was closed; the server keeps running")
    return os.read(reader, 1)[0]


def _go_on(number: int, frame: FrameType | None) -> None:
    """Do nothing: the signal's number is in the pipe."""
    del number, frame


def _stop_all(servers: list[Server[Any, Any]], drain: float, reader: int, writer: int) -> None:
    hurried = threading.Event()
    begun: list[Server[Any, Any]] = []
    failures: list[RmqError] = []

    def stop() -> None:
        for server in servers:
            begun.append(server)
            try:
                server.stop(0 if hurried.is_set() else drain)
            except RmqError as error:
                failures.append(error)
        os.write(writer, _STOPPED)

    thread = threading.Thread(target=stop, name="pyrmq-stop")
    thread.start()
    while os.read(reader, 1) != _STOPPED:
        hurried.set()
        # Only this one: it still needs the others to unregister.
        for server in tuple(begun):
            server.hurry()
    thread.join()
    if failures:
        raise failures[0]
