"""The consumer that hides messages for a time, for asyncio."""

from __future__ import annotations

import asyncio
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Self, Unpack

from pyrmq._client.options.simple import (
    INVISIBLE_S,
    MAX_MESSAGES,
    WAIT_S,
    ConfiguredSimpleConsumer,
    check_acks,
    settled_of,
)
from pyrmq._client.values import milliseconds, topics_of, whole
from pyrmq.aio.completions import CompletionList
from pyrmq.aio.subscribing import subscribed
from pyrmq.consumer.membership import SimpleSubscriptions, filter_of
from pyrmq.consumer.subscriptions import SubscribeCall
from pyrmq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyrmq._client.options.simple import MessageOrReceipt, SimpleConsumerArguments
    from pyrmq.message import PoppedMessage

__all__ = ["SimpleConsumer"]

_LATE_S = 0.02
"""How often a call whose time has passed checks for answers on their way."""


class SimpleConsumer(ConfiguredSimpleConsumer):
    """Hides messages for a time, in one event loop. Arguments: :class:`pyrmq.SimpleConsumer`.

    Example:
        >>> async def main(address: str) -> None:
        ...     async with SimpleConsumer(name_server=address, group="kitchen") as consumer:
        ...         await consumer.subscribe("orders")
        ...         for message in await consumer.receive(10, invisible=30.0):
        ...             await consumer.ack(message)
    """

    def __init__(self, **arguments: Unpack[SimpleConsumerArguments]) -> None:
        super().__init__(**arguments)
        self._outcomes = CompletionList()
        self._waiting: set[asyncio.Event] = set()
        self._subscriptions = SimpleSubscriptions(self._core, self._options.group)
        self._loop: asyncio.AbstractEventLoop | None = None

    async def subscribe(
        self, topic: str | Iterable[str], tags: str = "*", *, sql: str | None = None
    ) -> None:
        """Receive messages of topics; see :meth:`pyrmq.SimpleConsumer.subscribe`.

        A call that is cancelled is undone; if servers do not answer, in the background.

        Example:
            >>> await consumer.subscribe("orders")  # doctest: +SKIP
        """
        text, is_sql = filter_of(tags, sql)
        self._outcomes.enter()
        call = SubscribeCall(text, is_sql)
        await subscribed(
            partial(self._subscriptions.subscribe, topics_of(topic), call),
            partial(setattr, call, "is_cancelled", True),
            partial(self._subscriptions.undo, call),
        )

    async def unsubscribe(self, topic: str) -> None:
        """Receive nothing more from a topic; see :meth:`pyrmq.SimpleConsumer.unsubscribe`.

        Example:
            >>> await consumer.unsubscribe("orders")  # doctest: +SKIP
        """
        self._subscriptions.forget(topic)
        if not await self._outcomes.call(self._core.unsubscribe, topic):
            raise ConfigError(f"topic `{topic}` is not subscribed to")

    async def receive(
        self,
        max_messages: int = MAX_MESSAGES,
        invisible: float = INVISIBLE_S,
        wait: float = WAIT_S,
    ) -> list[PoppedMessage]:
        """Return messages; wait for the first. See :meth:`pyrmq.SimpleConsumer.receive`.

        A cancelled call loses nothing: the next call gets what arrives for it.

        Example:
            >>> await consumer.receive(10, invisible=30.0)  # doctest: +SKIP
        """
        whole("max_messages", max_messages, 1)
        began = monotonic()
        loop = asyncio.get_running_loop()
        self._listen(loop)
        deadline = loop.time() + wait
        times = milliseconds("invisible", invisible), milliseconds("wait", wait)
        receiving = self._core.begin(max_messages, *times)
        arrival = asyncio.Event()
        self._waiting.add(arrival)
        try:
            while True:
                arrival.clear()
                messages = receiving.take()
                if messages is not None:
                    break
                until = max(deadline, loop.time() + _LATE_S)
                try:
                    async with asyncio.timeout_at(until):
                        await arrival.wait()
                except TimeoutError:
                    continue
        finally:
            self._waiting.discard(arrival)
            receiving.end()
        if self._hooks and messages:
            self._hooks.received([*messages], began)
        return messages

    async def ack(self, messages: MessageOrReceipt | Iterable[MessageOrReceipt]) -> None:
        """Acknowledge messages; see :meth:`pyrmq.SimpleConsumer.ack`.

        Example:
            >>> await consumer.ack(await consumer.receive())  # doctest: +SKIP
        """
        settled, is_one = settled_of(messages)
        check_acks(settled, is_one, await self._outcomes.call(self._core.ack, settled))

    async def change_invisible(self, message: MessageOrReceipt, invisible: float) -> None:
        """Hide a message for a new time; see :meth:`pyrmq.SimpleConsumer.change_invisible`.

        Example:
            >>> await consumer.change_invisible(message, 300.0)  # doctest: +SKIP
        """
        time = milliseconds("invisible", invisible)
        await self._outcomes.call(self._core.change_invisible, message, time)

    async def close(self) -> None:
        """Leave the group and close every connection; see :meth:`pyrmq.SimpleConsumer.close`.

        In a forked child it does nothing: the consumer is the parent's.

        Example:
            >>> await consumer.close()  # doctest: +SKIP
        """
        if self._closed:
            # A close may be in progress: its caller may have been cancelled.
            await asyncio.to_thread(self._core.close)
            return
        if self._outcomes.is_inherited():
            self._closed = True
            self._finalizer.detach()
            return
        self._outcomes.check_loop(self._loop)
        self._closed = True
        self._finalizer.detach()
        try:
            await self._outcomes.call(self._core.close)
        finally:
            if self._loop is not None:
                self._loop.remove_reader(self._core.fileno())
            self._outcomes.close()
            self._hooks.failures.report(at_end=True)
            self._unlog()

    async def __aenter__(self) -> Self:
        """Return the consumer."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the consumer."""
        await self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{len(self._core.topics())} topics"
        return f"<aio.SimpleConsumer group={self._options.group!r}, {state}>"

    def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        if loop is self._loop:
            return
        if self._loop is not None and not self._loop.is_closed():
            raise self._outcomes.other_loop("this consumer")
        self._loop = loop
        loop.add_reader(self._core.fileno(), self._on_arrival)

    def _on_arrival(self) -> None:
        self._core.hush()
        for arrival in self._waiting:
            arrival.set()
