"""Completes futures of one event loop with the outcomes of native calls, through one descriptor."""

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from pyrmq import _core
from pyrmq.errors import ClosedError, ConfigError, ForkError

__all__ = ["CompletionList", "Reader", "leave_loop"]

_CHECK_SECONDS = 0.02


class Reader:
    """The reader callback that completes a native accumulator's futures in a loop."""

    def __init__(self, accumulator: _core.Accumulator) -> None:
        self._batcher = accumulator
        self.loop: asyncio.AbstractEventLoop | None = None

    def enter(self, loop: asyncio.AbstractEventLoop) -> None:
        """Register with the loop."""
        loop.add_reader(self._batcher.fileno(), self._batcher.serve_futures, 0)
        self.loop = loop

    def serve(self) -> None:
        """Complete what can be completed, if this is the loop."""
        if self.loop is asyncio.get_running_loop():
            self._batcher.serve_futures(0)

    def leave_when(self, is_idle: Callable[[], bool]) -> None:
        """Leave the loop once no future is awaited."""
        if self.loop is not None and not is_idle():
            self.loop.call_later(_CHECK_SECONDS, self.leave_when, is_idle)
        else:
            self.leave()

    def leave(self) -> None:
        """Leave the loop permanently."""
        loop, self.loop = self.loop, None
        if loop is not None and not loop.is_closed():
            loop.remove_reader(self._batcher.fileno())


def leave_loop(core: _core.Producer, reader: Reader, outcomes: "CompletionList") -> None:
    """Leave the loop of a producer that was dropped, from any thread.

    Messages in flight end first: their futures are still awaited.
    """
    leave_reader = partial(reader.leave_when, lambda: core.in_flight() == 0)
    for loop, leave in ((reader.loop, leave_reader), (outcomes.loop, outcomes.close)):
        if loop is not None and not loop.is_closed():
            # It may have been closed meanwhile, with nothing left to leave.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(leave)


class CompletionList:
    """Futures by token; the loop's reader callback completes those that are ready."""

    def __init__(self) -> None:
        self._native = _core.CompletionList(descriptor=True)
        self.loop: asyncio.AbstractEventLoop | None = None
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._next = 0
        self._closed = False
        self._pid = os.getpid()

    def enter(self) -> None:
        """Belong to the running loop from now on, as with a call.

        Raises:
            ClosedError: The list is closed.
            ConfigError: The object belongs to another loop.
            ForkError: The object, and its loop, belong to the parent process.
        """
        if self.is_inherited():
            raise self.other_loop("this object")
        loop = asyncio.get_running_loop()
        if loop is not self.loop:
            self._bind(loop)

    def call(self, start: Callable[..., object], *arguments: object) -> asyncio.Future[Any]:
        """Start a native call that reports under a token; return the future of its outcome."""
        loop = asyncio.get_running_loop()
        if loop is not self.loop:
            self._bind(loop)
        token = self._next
        self._next = token + 1
        future: asyncio.Future[Any] = loop.create_future()
        self._waiting[token] = future
        try:
            start(*arguments, to=(self._native, token))
        except BaseException:
            del self._waiting[token]
            raise
        return future

    def close(self) -> None:
        """Leave the loop permanently; calls in progress fail."""
        self._closed = True
        if self.loop is not None and not self.loop.is_closed():
            self.loop.remove_reader(self._native.fileno())
        self.loop = None
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(ClosedError("it was closed before the outcome arrived"))
        self._waiting.clear()

    def check_loop(self, *others: asyncio.AbstractEventLoop | None) -> None:
        """Refuse a call from another event loop than that of earlier calls, if that is still open.

        Args:
            others: Loops that the owner of this list also belongs to.

        Raises:
            ConfigError: The object belongs to another loop.
            ForkError: The object, and its loop, belong to the parent process.
        """
        running = asyncio.get_running_loop()
        for loop in (self.loop, *others):
            if loop is not None and loop is not running and not loop.is_closed():
                raise self.other_loop("this object")

    def is_inherited(self) -> bool:
        """Whether this is a forked child: the object and its loop belong to the parent.

        A child must not even leave the loop, since both processes share its selector.
        """
        return os.getpid() != self._pid

    def other_loop(self, what: str) -> ConfigError | ForkError:
        """Return the error for a call from a loop that is not the object's."""
        if self.is_inherited():
            return ForkError(
                f"{what} was opened in process {self._pid} and cannot be used in its forked child "
                f"{os.getpid()}: open a new one there"
            )
        return ConfigError(f"{what} belongs to another event loop: create one per loop")

    def _bind(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._closed:
            raise ClosedError("it is closed")
        self.check_loop()
        self._waiting.clear()
        loop.add_reader(self._native.fileno(), self._drain)
        self.loop = loop

    def _drain(self) -> None:
        pop = self._waiting.pop
        for token, value, error in self._native.take():
            future = pop(token, None)
            # A cancelled future needs no result.
            if future is None or future.done():
                continue
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(error)
