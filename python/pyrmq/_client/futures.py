"""The futures of a producer's messages, and the thread that completes them."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from pyrmq import _core
from pyrmq._client.hooks.send import callback_raised
from pyrmq.message import SendResult

__all__ = ["GuardedFuture", "SendFuture", "serve_futures"]

_SERVE_MS = 200
_AFTER_MAIN_S = 2.0

_Outcome = TypeVar("_Outcome")


class GuardedFuture(Future[_Outcome]):
    """A future whose callbacks cannot end the thread that completes all futures of its producer.

    The standard library logs an ``Exception`` of a callback. It lets ``SystemExit`` and asyncio's
    ``CancelledError`` pass, and then drops the callbacks after it.
    """

    def add_done_callback(self, fn: Callable[[Future[_Outcome]], Any]) -> None:
        """Call a function when the future is done; its exceptions are logged."""
        if self.done():
            # It runs in this thread, so Ctrl-C and sys.exit belong to the caller.
            super().add_done_callback(fn)
            return

        def guarded(future: Future[_Outcome]) -> None:
            try:
                fn(future)
            except BaseException as error:  # noqa: BLE001 - a user's function
                callback_raised(error)

        super().add_done_callback(guarded)


class SendFuture(GuardedFuture[SendResult]):
    """The future of a sent message."""


def serve_futures(accumulator: _core.Accumulator, core: _core.Producer) -> None:
    """Complete futures until the producer ends or, for a while, after the main thread has ended."""
    main = threading.main_thread()
    until: float | None = None
    while accumulator.serve_futures(_SERVE_MS):
        if main.is_alive():
            continue
        if until is None:
            accumulator.launch()
            until = time.monotonic() + _AFTER_MAIN_S
        if not core.in_flight() or time.monotonic() >= until:
            return
