"""Servers as a program of their own: they run until SIGINT or SIGTERM.

The first signal drains and stops them in the opposite order of their start; a second one ends the
drain, never the flush. SIGHUP lets them read their configuration again where they can; where they
cannot, it stops them too: the terminal has gone. Who ignores it from the start (`nohup`) goes on.
"""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING, Any

from pyrmq.errors import RmqError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

    from pyrmq.server.lifecycle import Server

_STOPPED = b"\0"


def serve(
    makers: Sequence[Callable[[list[Server[Any, Any]]], Server[Any, Any]]],
    *,
    ready: Callable[[list[Server[Any, Any]]], None],
    drain: float,
    reload: Callable[[list[Server[Any, Any]]], None] | None = None,
) -> None:
    """Start servers, wait for SIGINT or SIGTERM, stop them in the opposite order.

    For a process that does nothing else: it takes these signals for good.

    Args:
        makers: each makes a server, given those that run already; in the order of their start.
        ready: called with all of them when they serve.
        drain: seconds that requests under way get; a second signal ends that wait, not the flush.
        reload: called with all of them at each SIGHUP; it raises nothing. Without it, SIGHUP stops
            them, as it always does when it comes because their terminal was closed.

    Raises:
        RmqError: one of them cannot start, and those before it are stopped; or one could not
            write everything when it stopped.
    """
    on_terminal = os.isatty(0)
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
        while os.read(reader, 1)[0] == signal.SIGHUP and reload is not None:
            if on_terminal and not os.isatty(0):
                break
            reload(started)
    finally:
        _stop_all(started[::-1], drain, reader, writer)
        # The process is about to end: one more Ctrl-C has nothing left to interrupt.
        for number in taken:
            signal.signal(number, signal.SIG_IGN)
        signal.set_wakeup_fd(-1)
        os.close(reader)
        os.close(writer)


def _go_on(number: int, frame: FrameType | None) -> None:
    """Do nothing: the pipe has the signal."""
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
        # Only those: the others are still needed by these, to take their leave.
        for server in tuple(begun):
            server.hurry()
    thread.join()
    if failures:
        raise failures[0]
