"""The pulling consumer for asyncio."""

import asyncio
import logging
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from datetime import datetime
from functools import partial
from time import monotonic
from typing import Literal, Self, TypeVar

from pyrmq._client.values import committable, queue_offsets_of, start_of, topics_of, whole
from pyrmq.aio.completions import CompletionList
from pyrmq.aio.rebalance import RebalanceCallbacks
from pyrmq.aio.subscribing import subscribed
from pyrmq.consumer.membership import filter_of
from pyrmq.consumer.polled import WHICH, PolledConsumer, QueueOffsets, offsets_of
from pyrmq.consumer.subscriptions import SubscribeCall, await_joined
from pyrmq.errors import CommitError, ConfigError
from pyrmq.message import MessageBatch, QueueId, ReceivedMessage

__all__ = ["PullConsumer"]

_log = logging.getLogger("pyrmq.consumer")

_Messages = TypeVar("_Messages", list[ReceivedMessage], MessageBatch)


class PullConsumer(PolledConsumer):
    """Pulls messages in one event loop. The arguments are those of :class:`pyrmq.PullConsumer`.

    `on_assigned`, `on_revoked` and `on_lost` may be coroutine functions. They run in the task that
    polls, unsubscribes or closes.

    Example:
        >>> async def main() -> None:
        ...     async with PullConsumer(name_server="127.0.0.1:9876", group="kitchen") as consumer:
        ...         await consumer.subscribe("orders")
        ...         async for message in consumer:
        ...             print(message.body)
    """

    def _open(self) -> None:
        super()._open()
        self._outcomes = CompletionList()
        self._is_interrupted = False
        # Done when a close has ended, even a cancelled one, with what it raises.
        self._ending: Future[Exception | None] = Future()
        self._rebalances = (
            RebalanceCallbacks(self._control, self._options, self._outcomes)
            if self._options.announces_rebalances()
            else None
        )
        self._arrival: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def subscribe(
        self,
        topic: str | Iterable[str] | re.Pattern[str],
        tags: str = "*",
        *,
        sql: str | None = None,
    ) -> None:
        """Join the group for topics; see :meth:`pyrmq.PullConsumer.subscribe`.

        A call that is cancelled is undone; if servers do not answer, in the background.

        Example:
            >>> await consumer.subscribe("orders")  # doctest: +SKIP
        """
        text, is_sql = filter_of(tags, sql)
        self._outcomes.enter()
        subscriptions, call = self._subscriptions, SubscribeCall(text, is_sql)
        if isinstance(topic, re.Pattern):
            subscribe = partial(subscriptions.add_pattern, topic, call)
        else:
            topics = topics_of(topic)
            if len(topics) > 1:
                # A missing one must not make the group rebalance twice.
                for one in topics:
                    await self._outcomes.call(self._core.queues_of, one)
            subscribe = partial(subscriptions.subscribe, topics, call)
        await subscribed(
            subscribe, partial(subscriptions.cancel, call), partial(subscriptions.undo, call)
        )
        if isinstance(topic, re.Pattern) or self._options.max_poll_interval is not None:
            self._watch()

    async def unsubscribe(self, topic: str) -> None:
        """Leave the group for a topic; see :meth:`pyrmq.PullConsumer.unsubscribe`.

        Example:
            >>> await consumer.unsubscribe("orders")  # doctest: +SKIP
        """
        failure: CommitError | None = None
        with self._subscriptions.unsubscribing(topic) as was_known:
            try:
                if self._rebalances is not None:
                    failure = await self._rebalances.retire(self, topic, all_done=False)
            finally:
                was_there = await self._outcomes.call(self._control.unsubscribe, topic, False)
        if failure is not None:
            raise failure
        # After `max_poll_interval` without a poll the native consumer has left the topic itself.
        if not was_there and not was_known:
            raise ConfigError(f"topic `{topic}` is not subscribed to")

    async def assign(
        self, queues: Iterable[QueueId] | Mapping[QueueId, int | None], tags: str = "*"
    ) -> None:
        """Take exactly these queues; see :meth:`pyrmq.PullConsumer.assign`.

        Example:
            >>> await consumer.assign(await consumer.queues("orders"))  # doctest: +SKIP
        """
        await self._outcomes.call(self._core.assign, queue_offsets_of(queues), tags)

    async def queues(self, topic: str) -> list[QueueId]:
        """Request the readable queues of a topic.

        Example:
            >>> await consumer.queues("orders")  # doctest: +SKIP
        """
        places = await self._outcomes.call(self._core.queues_of, topic)
        return [QueueId(*place) for place in places]

    async def poll(
        self,
        max_messages: int = 1024,
        timeout: float | None = None,  # noqa: ASYNC109 - as the sync form
    ) -> list[ReceivedMessage]:
        """Return messages; wait for the first. See :meth:`pyrmq.PullConsumer.poll`.

        Example:
            >>> await consumer.poll(timeout=1.0)  # doctest: +SKIP
        """
        began = monotonic()
        messages = await self._poll(self._core.poll, max_messages, timeout)
        if self._hooks:
            self._call_hooks(messages, began)
        return messages

    async def poll_batch(
        self,
        max_messages: int = 1024,
        timeout: float | None = None,  # noqa: ASYNC109 - as the sync form
    ) -> MessageBatch:
        """Return messages as one object; see :meth:`pyrmq.PullConsumer.poll_batch`.

        Example:
            >>> (await consumer.poll_batch(timeout=1.0)).bodies  # doctest: +SKIP
        """
        began = monotonic()
        batch = await self._poll(self._core.poll_batch, max_messages, timeout)
        if self._hooks:
            self._call_hooks(batch.messages, began)
        return batch

    async def _poll(
        self,
        take: Callable[[int, int], _Messages],
        max_messages: int,
        timeout: float | None,  # noqa: ASYNC109 - as the sync form
    ) -> _Messages:
        whole("max_messages", max_messages, 1)
        if self._options.max_poll_interval is None:
            return await self._poll_native(take, max_messages, timeout)
        began = monotonic()
        joining = self._subscriptions.poll_begins()
        try:
            if joining is not None:
                await asyncio.wait([asyncio.wrap_future(joining)], timeout=timeout)
                await_joined(joining, 0)
                timeout = None if timeout is None else max(0.0, timeout + began - monotonic())
            return await self._poll_native(take, max_messages, timeout)
        finally:
            self._subscriptions.poll_ends()

    async def _poll_native(
        self,
        take: Callable[[int, int], _Messages],
        max_messages: int,
        timeout: float | None,  # noqa: ASYNC109 - as the sync form
    ) -> _Messages:
        arrival = self._listen()
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        while True:
            arrival.clear()
            await self._call_due(deadline)
            messages = take(max_messages, 0)
            if len(messages) or (deadline is not None and loop.time() >= deadline):
                return messages
            try:
                async with asyncio.timeout_at(deadline):
                    await arrival.wait()
            except TimeoutError:
                return take(max_messages, 0)

    async def _call_due(self, deadline: float | None) -> None:
        """Call the application for queues that were assigned or revoked."""
        if self._rebalances is None:
            return
        failure = await self._rebalances.before_poll(self, deadline)
        if failure is not None:
            _log.warning("group %s: %s", self._group, failure)

    async def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        """Yield messages one by one, without end. A message is done when the next is requested."""
        while not self._closed:
            for message in await self.poll(1):
                yield message

    async def seek(self, queue: QueueId, offset: int | Literal["first", "last"] | datetime) -> None:
        """Continue at another offset of an assigned queue; see :meth:`pyrmq.PullConsumer.seek`.

        Example:
            >>> await consumer.seek(queue, "first")  # doctest: +SKIP
        """
        if not isinstance(offset, int):
            arguments = ([queue], *start_of(offset), True)
            found: list[int] = await self._outcomes.call(self._control.offsets, *arguments)
            offset = found[0]
        self._core.seek(queue, offset)

    async def commit(self, offsets: Mapping[QueueId, int] | None = None) -> None:
        """Commit everything that was returned, or these offsets.

        See :meth:`pyrmq.PullConsumer.commit`.

        Example:
            >>> await consumer.commit()  # doctest: +SKIP
        """
        if offsets is None:
            await self._outcomes.call(self._control.commit)
        else:
            await self._outcomes.call(self._control.commit_offsets, committable(offsets))
        if self._offset_file:
            await asyncio.to_thread(self._offset_file.write)

    async def committed(self, queue: QueueId) -> int | None:
        """Request the group's committed offset in a queue; None if it has not committed one.

        Example:
            >>> await consumer.committed(queue)  # doctest: +SKIP
            42
        """
        call = self._outcomes.call
        (offset,) = await call(self._control.offsets, [queue], "committed", 0)
        return None if offset < 0 else offset

    async def bounds(self, queue: QueueId) -> tuple[int, int]:
        """Request a queue's first offset and the one that its next message will get.

        Example:
            >>> await consumer.bounds(queue)  # doctest: +SKIP
            (0, 336776)
        """
        offsets = (await self.offsets([queue]))[queue]
        return offsets.first, offsets.last

    async def offsets(self, queues: Iterable[QueueId] | None = None) -> dict[QueueId, QueueOffsets]:
        """Request the offsets of queues; see :meth:`pyrmq.PullConsumer.offsets`.

        Example:
            >>> sum(each.lag for each in (await consumer.offsets()).values())  # doctest: +SKIP
        """
        wanted = self.assignment() if queues is None else [*queues]
        call = self._outcomes.call
        calls = [call(self._control.offsets, [*wanted], which, 0) for which in WHICH]
        return offsets_of(wanted, await asyncio.gather(*calls))

    async def close(self, *, all_done: bool = True) -> None:
        """Commit, leave the group and close connections; see :meth:`pyrmq.PullConsumer.close`.

        A call that is cancelled is finished in the background, and the process does not end before
        that; a second call waits for it. In a forked child it does nothing: the consumer is the
        parent's.

        Example:
            >>> await consumer.close()  # doctest: +SKIP
        """
        if self._closed:
            if self._is_interrupted:
                await self._await_end()
            return
        if self._outcomes.is_inherited():
            self._closed = True
            self._finalizer.detach()
            return
        self._outcomes.check_loop(self._loop)
        self._closed = True
        self._finalizer.detach()
        failure: CommitError | None = None
        try:
            if self._rebalances is not None:
                failure = await self._rebalances.retire(self, None, all_done=all_done)
        except asyncio.CancelledError:
            self._is_interrupted = True
            raise
        finally:
            self._begin_end(all_done=all_done)
            if not self._is_interrupted:
                await self._await_end()
        if failure is not None:
            raise failure

    def _begin_end(self, *, all_done: bool) -> None:
        """Start the thread that commits and leaves the group: no cancellation stops it halfway."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._core.fileno())
        self._ending.set_running_or_notify_cancel()
        arguments = (asyncio.get_running_loop(), all_done)
        threading.Thread(target=self._end, args=arguments, name=f"pyrmq-end-{self._group}").start()

    def _end(self, loop: asyncio.AbstractEventLoop, all_done: bool) -> None:  # noqa: FBT001
        failure: Exception | None = None
        try:
            try:
                self._control.shut(all_done)
            finally:
                self._end_parts()
        except Exception as error:  # noqa: BLE001 - `close` raises it
            failure = error
        finally:
            # A closed loop needs no clean-up.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._outcomes.close)
            self._unlog()
            self._ending.set_result(failure)

    async def _await_end(self) -> None:
        try:
            failure = await asyncio.wrap_future(self._ending)
        except asyncio.CancelledError:
            self._is_interrupted = True
            raise
        if failure is not None:
            raise failure

    async def __aenter__(self) -> Self:
        """Return the consumer."""
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close the consumer; after an exception the last messages are not done.

        A failed commit is then only logged, so that the exception of the block is raised.
        """
        try:
            await self.close(all_done=kind is None)
        except CommitError:
            if kind is None:
                raise
        except Exception:
            if kind is None:
                raise
            _log.exception("group %s: `on_revoked` failed at the end", self._group)

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{len(self._core.positions())} queues"
        return f"<aio.PullConsumer group={self._group!r}, {state}>"

    def _listen(self) -> asyncio.Event:
        loop = asyncio.get_running_loop()
        if self._arrival is None or loop is not self._loop:
            if self._loop is not None and not self._loop.is_closed():
                raise self._outcomes.other_loop("this consumer")
            self._arrival, self._loop = asyncio.Event(), loop
            loop.add_reader(self._core.fileno(), self._on_arrival)
        return self._arrival

    def _on_arrival(self) -> None:
        self._core.hush()
        if self._arrival is not None:
            self._arrival.set()
