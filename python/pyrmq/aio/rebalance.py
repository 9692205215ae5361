"""Callbacks when queues of a group come and go, for asyncio."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING

from pyrmq.consumer.rebalance import rebalance_callbacks, refuse_nested_poll
from pyrmq.errors import CommitError
from pyrmq.message import QueueId

if TYPE_CHECKING:
    from pyrmq._client.consumer_options import ConsumerOptions
    from pyrmq._core import ConsumerControl
    from pyrmq.aio.completions import CompletionList

__all__ = ["RebalanceCallbacks"]


class RebalanceCallbacks:
    """Calls the application in the task that polls, unsubscribes or closes.

    Args:
        control: The native consumer.
        options: Its options.
        outcomes: Where the outcomes of its calls come.
    """

    def __init__(
        self, control: ConsumerControl, options: ConsumerOptions, outcomes: CompletionList
    ) -> None:
        self._events = control.rebalance_events()
        self._callbacks = rebalance_callbacks(options)
        self._outcomes = outcomes
        self._lock = asyncio.Lock()
        self._task: asyncio.Task[object] | None = None

    async def before_poll(self, consumer: object) -> CommitError | None:
        """Make the calls that are due.

        Raises:
            ConfigError: A callback polls.
        """
        if self._task is not None and self._task is asyncio.current_task():
            raise refuse_nested_poll()
        return await self.call(consumer, all_done=True)

    async def call(self, consumer: object, *, all_done: bool) -> CommitError | None:
        """Make the calls that are due; see :meth:`pyrmq.consumer.rebalance`."""
        task = asyncio.current_task()
        if self._task is not None and self._task is task:
            # A callback closes its consumer.
            return await self._call_each(consumer, all_done=all_done)
        async with self._lock:
            self._task = task
            try:
                return await self._call_each(consumer, all_done=all_done)
            finally:
                self._task = None

    async def retire(
        self, consumer: object, topic: str | None, *, all_done: bool
    ) -> CommitError | None:
        """Have the queues of a topic, or all, revoked before they go back."""
        if topic is None:
            self._events.retire_all()
        else:
            self._events.retire(topic)
        return await self.call(consumer, all_done=all_done)

    async def _call_each(self, consumer: object, *, all_done: bool) -> CommitError | None:
        failure: CommitError | None = None
        while (event := self._events.next(all_done)) is not None:
            failure = await self._call_one(consumer, *event) or failure
        return failure

    async def _call_one(
        self, consumer: object, kind: str, places: list[tuple[str, str, int]]
    ) -> CommitError | None:
        callback = self._callbacks[kind]
        failure: CommitError | None = None
        has_returned = False
        try:
            if callback is not None:
                outcome = callback(consumer, [QueueId(*place) for place in places])
                if inspect.isawaitable(outcome):
                    await outcome
            has_returned = True
        finally:
            ended = self._outcomes.call(self._events.end_to, kind, places, has_returned)
            try:
                # A poll that is cancelled must not leave its queues behind.
                await asyncio.shield(ended)
            except CommitError as error:
                failure = error
        return failure
