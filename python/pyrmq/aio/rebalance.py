"""Callbacks when queues of a group come and go, for asyncio.

A callback runs in a separate task. A cancelled poll leaves it running, and the next poll waits for
it.
"""

from __future__ import annotations

import asyncio
import inspect
from contextvars import ContextVar
from typing import TYPE_CHECKING

from pyrmq.consumer.rebalance import CLOSE_S, hangs, rebalance_callbacks, refuse_nested_poll
from pyrmq.errors import CommitError
from pyrmq.message import QueueId

if TYPE_CHECKING:
    from pyrmq._client.options.consumer import ConsumerOptions
    from pyrmq._core import ConsumerControl
    from pyrmq.aio.completions import CompletionList

__all__ = ["RebalanceCallbacks"]


class _Call:
    """A running callback. Tasks that it starts inherit it, and may outlive it."""

    def __init__(self, callbacks: RebalanceCallbacks) -> None:
        self.callbacks = callbacks
        self.is_over = False


_current: ContextVar[_Call | None] = ContextVar("pyrmq_rebalance_call", default=None)


class RebalanceCallbacks:
    """Calls the application while it polls, unsubscribes or closes.

    Args:
        control: The native consumer.
        options: Its options.
        outcomes: Receives the outcomes of its calls.
    """

    def __init__(
        self, control: ConsumerControl, options: ConsumerOptions, outcomes: CompletionList
    ) -> None:
        self._events = control.rebalance_events()
        self._callbacks = rebalance_callbacks(options)
        self._group = options.group
        self._outcomes = outcomes
        self._task: asyncio.Task[CommitError | None] | None = None

    async def before_poll(self, consumer: object, deadline: float | None) -> CommitError | None:
        """Make the calls that are due.

        Args:
            consumer: Argument of the callbacks.
            deadline: Time of the loop until which to wait for a callback; None: no limit.

        Raises:
            ConfigError: A callback polls.
        """
        if self._is_inside():
            raise refuse_nested_poll()
        return await self._call(consumer, all_done=True, deadline=deadline)

    async def retire(
        self, consumer: object, topic: str | None, *, all_done: bool
    ) -> CommitError | None:
        """Have the queues of a topic, or all queues, revoked before they go back."""
        if topic is None:
            self._events.retire_all()
        else:
            self._events.retire(topic)
        task = self._task
        if task is not None and not self._is_inside():
            await asyncio.wait([task], timeout=CLOSE_S)
            if not task.done():
                hangs(self._group)
                task.cancel()
                await asyncio.wait([task])
                self._task = None
        return await self._call(consumer, all_done=all_done, deadline=None)

    def _is_inside(self) -> bool:
        """Whether the caller is a callback of this consumer, or a task that one started."""
        call = _current.get()
        return call is not None and call.callbacks is self and not call.is_over

    async def _call(
        self, consumer: object, *, all_done: bool, deadline: float | None
    ) -> CommitError | None:
        """Make the calls that are due; see :mod:`pyrmq.consumer.rebalance`."""
        failure: CommitError | None = None
        is_inside = self._is_inside()
        while True:
            if self._task is None or is_inside:
                event = self._events.next(all_done)
                if event is None:
                    return failure
                if is_inside:
                    # A callback closes its consumer.
                    failure = await self._call_one(consumer, *event) or failure
                    continue
                self._task = asyncio.create_task(self._call_one(consumer, *event))
            task = self._task
            time = None if deadline is None else deadline - asyncio.get_running_loop().time()
            # A cancellation here does not affect the task.
            await asyncio.wait([task], timeout=None if time is None else max(0.0, time))
            if not task.done():
                return failure
            if self._task is task:
                self._task = None
                failure = task.result() or failure

    async def _call_one(
        self, consumer: object, kind: str, places: list[tuple[str, str, int]]
    ) -> CommitError | None:
        callback = self._callbacks[kind]
        failure: CommitError | None = None
        has_returned = False
        call = _Call(self)
        before = _current.set(call)
        try:
            if callback is not None:
                outcome = callback(consumer, [QueueId(*place) for place in places])
                if inspect.isawaitable(outcome):
                    await outcome
            has_returned = True
        finally:
            call.is_over = True
            _current.reset(before)
            ended = self._outcomes.call(self._events.end, kind, places, has_returned)
            try:
                # Even if it ended with its loop, it must not leave its queues behind.
                await asyncio.shield(ended)
            except CommitError as error:
                failure = error
        return failure
