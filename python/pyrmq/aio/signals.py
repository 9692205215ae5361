"""The signals that end `run`, shared by all consumers of an event loop.

A loop has one handler per signal, which must end all consumers that run in the loop.
"""

from __future__ import annotations

import asyncio
import signal
import threading
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyrmq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["stop_signals"]

_NUMBERS = (signal.SIGTERM, signal.SIGINT)


class _Handlers:
    """The handlers of one loop, and what they replaced."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.events: set[asyncio.Event] = set()
        # A loop has no public way to get its handler.
        of_loop = getattr(loop, "_signal_handlers", {})
        self._before = {
            number: (signal.getsignal(number), of_loop.get(number)) for number in _NUMBERS
        }
        for number in _NUMBERS:
            loop.add_signal_handler(number, self._stop)

    def _stop(self) -> None:
        for event in self.events:
            event.set()

    def put_back(self) -> None:
        """Restore the application's handlers."""
        for number, (function, handle) in self._before.items():
            self._loop.remove_signal_handler(number)
            if handle is not None:
                self._loop.add_signal_handler(number, handle._callback, *handle._args)
            elif function is not None:
                # None: native code installed it, and only that code can restore it.
                signal.signal(number, function)


_by_loop: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Handlers] = (
    weakref.WeakKeyDictionary()
)


@contextmanager
def stop_signals() -> Iterator[asyncio.Event]:
    """Yield an event that SIGTERM and SIGINT set; restore the former handlers afterwards.

    Raises:
        ConfigError: This is not the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        raise ConfigError(
            "`run` handles signals, which only the main thread gets: use `start` here"
        )
    loop = asyncio.get_running_loop()
    handlers = _by_loop.get(loop)
    if handlers is None:
        handlers = _by_loop[loop] = _Handlers(loop)
    event = asyncio.Event()
    handlers.events.add(event)
    try:
        yield event
    finally:
        handlers.events.discard(event)
        if not handlers.events:
            del _by_loop[loop]
            handlers.put_back()
