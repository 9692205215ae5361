"""Outcomes of native calls as futures of one event loop, by one descriptor."""

import asyncio
from collections.abc import Callable
from typing import Any

from pyrmq import _core
from pyrmq.errors import ClosedError, ConfigError

__all__ = ["Outcomes"]


class Outcomes:
    """Futures by token; the loop's reader callback completes those that are ready."""

    def __init__(self) -> None:
        self._native = _core.Outcomes(descriptor=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._next = 0
        self._closed = False

    def call(self, start: Callable[..., None], *arguments: object) -> asyncio.Future[Any]:
        """Start a native call that reports to a token, and give the future of its outcome."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._bind(loop)
        token = self._next
        self._next = token + 1
        future: asyncio.Future[Any] = loop.create_future()
        self._waiting[token] = future
        try:
            start(self._native, token, *arguments)
        except BaseException:
            del self._waiting[token]
            raise
        return future

    def close(self) -> None:
        """Leave the loop for good; whoever still waits is told."""
        self._closed = True
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._native.fileno())
        self._loop = None
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(ClosedError("it was closed before the outcome came"))
        self._waiting.clear()

    def _bind(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._closed:
            raise ClosedError("it is closed")
        if self._loop is not None and not self._loop.is_closed():
            raise ConfigError("this object belongs to another event loop: make one for each")
        self._waiting.clear()
        loop.add_reader(self._native.fileno(), self._drain)
        self._loop = loop

    def _drain(self) -> None:
        pop = self._waiting.pop
        for token, value, error in self._native.take():
            future = pop(token, None)
            # A cancelled future has nobody who waits.
            if future is None or future.done():
                continue
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(error)
