"""Subscriptions of event loops: made in a thread, undone when their caller is cancelled.

A native subscription cannot be undone before it has ended: only then is it known what there is to
undo. A thread does that, even if the caller is cancelled or its loop is closed.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING

from pyrmq.errors import RmqError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["subscribed"]

_UNDO_S = 0.5
"""How long a caller that is cancelled waits until its subscription is undone."""


async def subscribed(
    subscribe: Callable[[], None], cancel: Callable[[], None], undo: Callable[[], None]
) -> None:
    """Subscribe in a thread.

    Args:
        subscribe: Joins topics.
        cancel: Has `subscribe` end soon. It does not wait.
        undo: Undoes what `subscribe` has done, even all of it. It waits until that has ended.

    Raises:
        RmqError: What `subscribe` raised.
        CancelledError: The call was cancelled, and is undone, if need be in the background.
    """
    ended = _call_in_thread(subscribe)
    try:
        await asyncio.wait([ended])
    except asyncio.CancelledError:
        cancel()
        undone = _call_in_thread(undo)
        try:
            await asyncio.wait([undone], timeout=_UNDO_S)
        finally:
            undone.cancel()
        raise
    finally:
        ended.cancel()
    failure = ended.result()
    if failure is not None:
        raise failure


def _call_in_thread(function: Callable[[], None]) -> asyncio.Future[Exception | None]:
    """Call a function in a thread that no loop waits for at its end; the result is its error."""
    outcome: Future[Exception | None] = Future()
    outcome.set_running_or_notify_cancel()

    def call() -> None:
        try:
            function()
        except Exception as error:  # noqa: BLE001 - the caller raises it
            outcome.set_result(error)
        except BaseException as error:  # noqa: BLE001 - as above
            outcome.set_result(RmqError(f"the call ended with {error!r}"))
        else:
            outcome.set_result(None)

    run = contextvars.copy_context().run
    name = "pyrmq-subscribe"
    threading.Thread(target=run, args=(call,), name=name, daemon=True).start()
    return asyncio.wrap_future(outcome)
