"""The producer for asyncio."""

import asyncio
import logging
import time
import weakref
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, Self, Unpack

from pyrmq import _core
from pyrmq._client import log
from pyrmq._client.ending import abandon, is_interruption
from pyrmq._client.hooks.send import Sending, SendingKind, callback_raised
from pyrmq._client.options.producer import ConfiguredProducer
from pyrmq._client.stats import ProducerStats, stats_of
from pyrmq._client.values import (
    all_sent,
    handle_of,
    milliseconds,
    queue_of,
    selected,
    time_left,
    whole,
    with_properties,
)
from pyrmq._request_reply import RequestReply, left_of, reply_address
from pyrmq.aio.back_pressure import WaitingSends, most_bytes
from pyrmq.aio.completions import CompletionList, Reader, leave_loop
from pyrmq.errors import ClosedError, QueueFull, RmqError
from pyrmq.message import (
    BatchOptions,
    Body,
    Message,
    MessageOptions,
    QueueId,
    ReceivedMessage,
    ReplyOptions,
    RequestOptions,
    Selector,
    SendResult,
)

__all__ = ["Producer"]

_log = logging.getLogger("pyrmq.aio.producer")
# No queue chosen, and the producer's timeout.
_ANYWHERE = (None, None)


class Producer(ConfiguredProducer):
    """Sends messages from one event loop. The arguments are those of :class:`pyrmq.Producer`.

    Sends in the same iteration of the loop are sent together, and so are sends that start while
    another one of their topic is in flight. When ``max_in_flight`` is reached, a send waits.

    Example:
        >>> async def main() -> None:
        ...     async with Producer(name_server="127.0.0.1:9876", group="shop") as producer:
        ...         print(await producer.send("orders", b"two coffees"))
    """

    def _open(self) -> None:
        options = self._options
        self._core = _core.Producer(options.native(), self._checks)
        self._batcher = _core.Accumulator(self._core, *options.batching(), True, callback_raised)
        self._group = options.group
        self._request_reply = RequestReply(self._core, options.group, self._hooks)
        self._met: set[str] = set()
        self._began = time.monotonic()
        self._outcomes = CompletionList()
        self._reader = Reader(self._batcher)
        self._waiting_sends = self._new_waiting_sends()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._callback_queue: _core.CallbackQueue | None = None
        self._emptied: asyncio.Future[bool] | None = None
        self._has_hooks = bool(self._hooks)
        self._closed = False
        # Whether the wait for a close was cancelled; the close continues.
        self._is_interrupted = False
        self._unlog = log.serve(self)
        self._left = weakref.finalize(self, leave_loop, self._core, self._reader, self._outcomes)
        self._finalizer = weakref.finalize(
            self, abandon, self._core, self._batcher, self._request_reply.core
        )

    async def send(
        self,
        topic: str,
        body: Body,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - the time of the native send
        **options: Unpack[MessageOptions],
    ) -> SendResult:
        """Send a message; for arguments, result and errors see :meth:`pyrmq.Producer.send`.

        A cancelled send may still be stored.

        Example:
            >>> await producer.send("orders", b"tea", keys="order-43")  # doctest: +SKIP
        """
        if "queue" not in options:
            wait = None if timeout is None else milliseconds("timeout", timeout)
            future = self._offer(topic, body, options, wait)
            if future is not None:
                return await future
        return await (await self._submit(True, topic, body, options, timeout))

    # `/`: CPython compares each keyword with each parameter that may be given by name.
    async def produce(
        self, /, topic: str, body: Body, **options: Unpack[MessageOptions]
    ) -> asyncio.Future[SendResult]:
        """Add a message to a batch, and return the future of its result.

        The call waits only for capacity. The batch is sent when it is full, when its first message
        is ``linger`` old, or with :meth:`flush`; see :meth:`pyrmq.Producer.produce`. asyncio treats
        the future as one (`gather`, `wait`, `isfuture`), but its class is not `asyncio.Future`.

        Example:
            >>> futures = [await producer.produce("t", str(n)) for n in range(9)]  # doctest: +SKIP
            >>> await producer.flush()  # doctest: +SKIP
            True
        """
        if "queue" not in options and not self._has_hooks and not self._waiting_sends.waiting:
            # `_offer` and `_callback_queue_of` inlined: calling them would take 5 % of the time.
            loop, callback_queue = asyncio.get_running_loop(), self._callback_queue
            if callback_queue is None or loop is not self._loop:
                callback_queue = self._bind(loop)
            try:
                return self._batcher.offer(callback_queue, False, topic, body, options, _ANYWHERE)
            except QueueFull:
                pass
        return await self._submit(False, topic, body, options, None)

    def _offer(
        self, topic: str, body: Body, options: MessageOptions, wait: int | None
    ) -> asyncio.Future[SendResult] | None:
        """Send a message without another coroutine; None if it has to wait or there are hooks."""
        if self._has_hooks or self._waiting_sends.waiting:
            return None
        callback_queue = self._callback_queue_of(asyncio.get_running_loop())
        try:
            return self._batcher.offer(callback_queue, True, topic, body, options, (None, wait))
        except QueueFull:
            return None

    async def _submit(
        self,
        eager: bool,  # noqa: FBT001 - called by the methods above
        topic: str,
        body: Body,
        options: MessageOptions,
        timeout: float | None,  # noqa: ASYNC109 - the time of the native send
    ) -> asyncio.Future[SendResult]:
        if not self._has_hooks:
            return await self._hand_over(eager, topic, body, options, timeout)
        sending = self._hooks.before("send", topic, body, options)
        try:
            future = await self._hand_over(eager, topic, body, options, timeout)
        except BaseException as error:
            self._hooks.after(sending, error, None)
            raise
        self._hooks.watch(sending, future)
        return future

    async def _hand_over(
        self,
        eager: bool,  # noqa: FBT001 - called by the method above
        topic: str,
        body: Body,
        options: MessageOptions,
        timeout: float | None,  # noqa: ASYNC109 - the time of the native send
    ) -> asyncio.Future[SendResult]:
        _core.check_options("send", options)
        loop = asyncio.get_running_loop()
        callback_queue, began = self._callback_queue_of(loop), loop.time()
        wait = None if timeout is None else milliseconds("timeout", timeout)
        place = await self._place_of(topic, options.get("queue"), wait)
        seconds = self._options.send_timeout if timeout is None else timeout
        offer = partial(self._batcher.offer, callback_queue, eager, topic, body, options, place)
        size = most_bytes(body, plain=not any(options.values()))
        only_broker = partial(
            self._batcher.only_broker, topic, options.get("sharding_key"), place[0]
        )
        return await self._waiting_sends.enter(offer, only_broker, size, began, seconds)

    async def _hooked(
        self,
        kind: SendingKind,
        topic: str,
        body: Body,
        options: ReplyOptions,
        send: Callable[[], Awaitable[Any]],
    ) -> Any:  # noqa: ANN401 - what the call gives
        """Send, and call the hooks before and after."""
        if not self._hooks:
            _core.check_options(kind, options)
            return await send()
        return await self._with_hooks(self._hooks.before(kind, topic, body, options), send())

    async def _with_hooks(self, sending: Sending, outcome: Awaitable[Any]) -> Any:  # noqa: ANN401 - as above
        try:
            result = await outcome
        except BaseException as error:
            self._hooks.after(sending, error, None)
            raise
        self._hooks.after(sending, None, result)
        return result

    async def _place_of(
        self, topic: str, queue: int | QueueId | Selector | None, wait: int | None = None
    ) -> tuple[tuple[str, int] | None, int | None]:
        """The queue that a caller names, and the time left for the send."""
        if queue is None or isinstance(queue, int | QueueId):
            return queue_of(self._core, topic, queue), wait
        began = time.monotonic()
        places = await self._outcomes.call(self._core.queues, topic, wait)
        place = selected([QueueId(*place) for place in places], queue)
        return place, time_left(began, time.monotonic(), wait, self._options.send_timeout)

    def _new_waiting_sends(self) -> WaitingSends:
        # The callbacks hold the native parts, not this producer, which must be collectable.
        call, accumulator = self._outcomes.call, self._batcher
        return WaitingSends(
            lambda size, broker: call(accumulator.capacity_to, size, broker),
            accumulator.free,
            accumulator.full,
        )

    def _callback_queue_of(self, loop: asyncio.AbstractEventLoop) -> _core.CallbackQueue:
        callback_queue = self._callback_queue
        return (
            self._bind(loop) if callback_queue is None or loop is not self._loop else callback_queue
        )

    def _bind(self, loop: asyncio.AbstractEventLoop) -> _core.CallbackQueue:
        if self._closed:
            raise ClosedError("the producer is closed")
        if self._loop is not None and not self._loop.is_closed():
            raise self._outcomes.other_loop("this producer")
        self._reader.enter(loop)
        self._loop, self._callback_queue, self._waiting_sends = (
            loop,
            _core.CallbackQueue(loop),
            self._new_waiting_sends(),
        )
        # Messages that a closed loop held back to the end of its iteration would never be sent.
        self._batcher.uncork()
        return self._callback_queue

    async def send_batch(
        self,
        topic: str,
        messages: Iterable[Body | Message],
        *,
        batch_bytes: int = 256 * 1024,
        inner: bool = False,
        timeout: float | None = None,  # noqa: ASYNC109 - the time of the native send
        **options: Unpack[BatchOptions],
    ) -> list[SendResult]:
        """Send many messages in few frames; see :meth:`pyrmq.Producer.send_batch`.

        The iterable is read completely at first, so it must fit in memory.

        Example:
            >>> await producer.send_batch("lines", ["a", "b"])  # doctest: +SKIP
        """
        wait = None if timeout is None else milliseconds("timeout", timeout)
        whole("batch_bytes", batch_bytes, 1)
        sending = None
        if self._hooks:
            given = options.get("properties") or {}
            sending = self._hooks.before("batch", topic, None, options)
            messages = with_properties(messages, dict(sending.properties.items() - given.items()))

        async def send_all() -> list[SendResult]:
            _core.check_options("batch", options)
            loop, call = asyncio.get_running_loop(), self._outcomes.call
            began = loop.time()
            seconds = self._options.send_timeout if timeout is None else timeout
            place = await self._place_of(topic, options.get("queue"), wait)
            self._callback_queue_of(loop)
            to = (topic, messages, options, place, batch_bytes, inner)
            send = partial(call, self._batcher.send_batch_to, *to)
            # Capacity for one byte suffices: the whole list is in memory anyway.
            only_broker = partial(
                self._batcher.only_broker, topic, options.get("sharding_key"), place[0]
            )
            sent = await self._waiting_sends.enter(send, only_broker, 1, began, seconds)
            return all_sent(topic, await sent)

        if sending is None:
            return await send_all()
        results: list[SendResult] = await self._with_hooks(sending, send_all())
        return results

    async def send_oneway(self, topic: str, body: Body, **options: Unpack[BatchOptions]) -> None:
        """Send a message without confirmation; see :meth:`pyrmq.Producer.send_oneway`.

        Example:
            >>> await producer.send_oneway("metrics", b"42")  # doctest: +SKIP
        """

        async def leave() -> None:
            place, _ = await self._place_of(topic, options.get("queue"))
            await self._outcomes.call(self._core.send_oneway, topic, body, options, place)

        await self._hooked("oneway", topic, body, options, leave)

    async def recall(self, topic: str, handle: str) -> str:
        """Recall a message that the timer has not delivered yet.

        For arguments, result and errors see :meth:`pyrmq.Producer.recall`.

        Example:
            >>> later = await producer.send("orders", b"tea", delay=60)  # doctest: +SKIP
            >>> await producer.recall("orders", later.recall_handle)  # doctest: +SKIP
        """
        broker, message_id = handle_of(topic, handle)
        core = self._request_reply.core
        taken: str = await self._outcomes.call(core.recall, topic, broker, message_id, handle)
        return taken

    async def request(
        self,
        topic: str,
        body: Body,
        *,
        timeout: float = 3.0,  # noqa: ASYNC109 - travels with the request
        **options: Unpack[RequestOptions],
    ) -> ReceivedMessage:
        """Send a request and await the reply; see :meth:`pyrmq.Producer.request`.

        From then on, a thread of this producer receives replies.

        Example:
            >>> await producer.request("prices", b"tea")  # doctest: +SKIP
        """
        wait = max(1, milliseconds("timeout", timeout))
        self._request_reply.start()

        async def store() -> SendResult:
            return await self._store("request", topic, body, options, system, wait)

        until = time.monotonic() + wait / 1000
        correlation, reply, system = self._request_reply.expect(wait)
        try:
            stored: SendResult = await self._hooked("request", topic, body, options, store)
            self._request_reply.stored(correlation, stored)
            with suppress(TimeoutError):
                async with asyncio.timeout(until - time.monotonic()):
                    return await asyncio.wrap_future(reply)
            self._request_reply.give_up(correlation)
            return await asyncio.wrap_future(reply)
        except BaseException:
            self._request_reply.forget(correlation)
            raise

    async def _meet(self, topic: str, wait: int) -> None:
        """Send one heartbeat to a topic's brokers, so that they can check with this producer."""
        if topic not in self._met:
            await self._outcomes.call(self._request_reply.core.heartbeat, topic, wait)
            self._met.add(topic)

    async def _store(
        self,
        kind: SendingKind,
        topic: str,
        body: Body,
        options: RequestOptions,
        system: list[tuple[str, str]],
        wait: int,
    ) -> SendResult:
        """As :meth:`pyrmq._request_reply.RequestReply.store`."""
        until = time.monotonic() + wait / 1000
        place, _ = await self._place_of(topic, options.get("queue"), wait)
        with suppress(RmqError):
            await self._meet(topic, left_of(until))
        arguments = (topic, body, options, system, kind, (place, left_of(until)))
        result: SendResult = await self._outcomes.call(self._request_reply.core.send_to, *arguments)
        return result

    async def reply(
        self,
        request: ReceivedMessage,
        body: Body,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - the time of the native send
        **options: Unpack[ReplyOptions],
    ) -> SendResult:
        """Answer a request that a consumer has read; see :meth:`pyrmq.Producer.reply`.

        Example:
            >>> await producer.reply(message, b"2.80")  # doctest: +SKIP
        """
        core = self._request_reply.core
        topic, system, place = reply_address(request)
        wait = None if timeout is None else milliseconds("timeout", timeout)

        async def store() -> SendResult:
            arguments = (topic, body, options, system, "reply", (place, wait))
            sent: SendResult = await self._outcomes.call(core.send_to, *arguments)
            return sent

        result: SendResult = await self._hooked("reply", topic, body, options, store)
        return result

    async def flush(self, timeout: float = 10.0) -> bool:  # noqa: ASYNC109 - as the sync form
        """Send all open batches and wait until no message is in flight.

        Returns:
            False if messages are still in flight.

        Example:
            >>> await producer.flush()  # doctest: +SKIP
            True
        """
        self._batcher.launch()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while self._core.in_flight():
            emptied = self._emptied
            # All calls of flush share one native listener, which outlives their timeouts.
            mine = emptied is None or emptied.done() or emptied.get_loop() is not loop
            if emptied is None or mine:
                self._emptied = emptied = self._outcomes.call(self._batcher.empty_to)
                # If close ends it, its exception may never be retrieved.
                emptied.add_done_callback(lambda done: done.cancelled() or done.exception())
            await asyncio.wait((emptied,), timeout=max(0.0, deadline - loop.time()))
            if not emptied.done():
                return self._core.in_flight() == 0
            emptied.result()
            # Another call's listener may have fired before this call began.
            if mine:
                break
        return True

    def stats(self) -> ProducerStats:
        """Return counters since this producer was created.

        Example:
            >>> producer.stats().confirmed  # doctest: +SKIP
            1000
        """
        return stats_of(self._core, time.monotonic() - self._began)

    async def close(self, timeout: float = 10.0) -> None:  # noqa: ASYNC109 - as the sync form
        """Finish sends in flight, then close every connection. A second call does nothing.

        A cancelled call does not wait for sends in flight, which fail, and is finished in the
        background; a second call waits for that. In a forked child it does nothing: the producer is
        the parent's.

        Raises:
            ConfigError: The producer belongs to another loop, which runs; nothing has changed.

        Example:
            >>> await producer.close()  # doctest: +SKIP
        """
        if self._closed:
            if self._is_interrupted:
                await asyncio.to_thread(self._core.shut)
                self._reader.serve()
            return
        if self._outcomes.is_inherited():
            self._closed = True
            self._finalizer.detach()
            self._left.detach()
            return
        self._outcomes.check_loop(self._loop)
        self._closed = True
        self._finalizer.detach()
        ending: asyncio.Future[None] | None = None
        try:
            try:
                await self._settle(timeout)
                self._batcher.close()
                if not await self.flush(timeout):
                    _log.warning(
                        "producer of group %s closed with %d messages unconfirmed after %s s",
                        self._group,
                        self._core.in_flight(),
                        timeout,
                    )
            finally:
                self._batcher.close()
                self._request_reply.close(wait=False)
                self._core.close()
                # Not awaited here: a close that is cancelled does not wait.
                ending = self._outcomes.call(self._core.shut)
            await ending
            # Complete the futures of messages that failed because of the close.
            self._batcher.serve_futures(0)
        except BaseException:
            # The close continues, and fails what is on its way: the loop must still hear of that.
            self._is_interrupted = True
            if ending is not None:
                ending.cancel()
            core = self._core
            self._reader.leave_when(lambda: core.in_flight() == 0)
            raise
        else:
            self._reader.leave()
        finally:
            self._loop = self._callback_queue = None
            self._outcomes.close()
            self._left.detach()
            self._unlog()

    async def _settle(self, timeout: float) -> None:  # noqa: ASYNC109 - as the sync form
        """Wait for what needs the producer before it takes nothing more."""

    async def __aenter__(self) -> Self:
        """Return the producer."""
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close the producer. After a cancellation a route look-up gets 250 ms more."""
        if is_interruption(kind) or (kind is not None and issubclass(kind, asyncio.CancelledError)):
            self._core.end_lookups(250)
        await self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{self._core.in_flight()} in flight"
        return f"<aio.Producer group={self._group!r}, {state}>"
