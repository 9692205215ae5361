"""Transactional messages for asyncio; see :mod:`pyrmq.transaction`."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Self, Unpack

from pyrmq import _core
from pyrmq._client.options.producer import OtherProducerOptions, own_group
from pyrmq._client.values import milliseconds
from pyrmq.aio.producer import Producer
from pyrmq.errors import ConfigError, RmqError
from pyrmq.message import (
    Body,
    HalfOptions,
    ReceivedMessage,
    SendResult,
    SendStatus,
    TransactionState,
)
from pyrmq.transaction import (
    ANSWER_MS,
    TransactionResult,
    answer_of,
    checked_message,
    end_of,
    end_time,
    half_properties,
    not_confirmed,
    not_taken,
    state_of,
)

__all__ = ["TransactionProducer"]

_log = logging.getLogger("pyrmq.aio.producer")


class TransactionProducer(Producer):
    """A producer whose messages belong to local transactions, for an event loop.

    ``check`` runs in the loop in which the producer is entered or first used. Use it as a context
    manager, so that brokers can check from the start.

    Args:
        check: Called in the loop with a message whose outcome the broker does not know; it may be a
            coroutine function. It returns how the local transaction ended. An exception is logged
            and counts as UNKNOWN.
        group: Producer group, for these producers only, since a broker may ask any member how a
            transaction ended.
        topics: Topics whose brokers get a heartbeat at the start, so that they can ask about
            transactions of an earlier process of the group.
        options: The other options of :class:`pyrmq.Producer`.

    Raises:
        ConfigError: An option is out of its range, or the group is the default of all producers.

    Example:
        >>> async def check(message: ReceivedMessage) -> TransactionState:
        ...     return TransactionState.ROLLBACK
        >>> async def main() -> None:
        ...     async with TransactionProducer(check=check, group="bank") as producer:
        ...         await producer.send_in_transaction("transfers", b"10 euros", local)
    """

    _checks = True

    def __init__(
        self,
        *,
        check: Callable[[ReceivedMessage], TransactionState | Awaitable[TransactionState]],
        group: str,
        topics: Sequence[str] = (),
        **options: Unpack[OtherProducerOptions],
    ) -> None:
        if not callable(check):
            raise ConfigError(f"option `check` is {check!r}, it must be a function")
        super().__init__(group=own_group(group), **options)
        self._check = check
        self._topics = tuple(topics)
        self._answers: set[asyncio.Task[None]] = set()

    async def send_in_transaction(
        self,
        topic: str,
        body: Body,
        local: Callable[[SendResult], TransactionState | Awaitable[TransactionState | None] | None],
        *,
        check_after: float | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - the time of the native send
        **options: Unpack[HalfOptions],
    ) -> TransactionResult:
        """Store a half message, run a local transaction, and end the half accordingly.

        For arguments, result and errors see
        :meth:`pyrmq.TransactionProducer.send_in_transaction`. ``local`` may be a coroutine
        function. If it raises or is cancelled, the state is UNKNOWN: the broker will ask.

        Example:
            >>> async def local(half):
            ...     await database.execute("...", half.transaction_id)  # doctest: +SKIP
            >>> await producer.send_in_transaction("orders", b"tea", local)  # doctest: +SKIP
        """
        self._serve_checks()
        system = half_properties(self._options.namespace, self._group, check_after)
        seconds = self._options.send_timeout if timeout is None else timeout
        wait = milliseconds("timeout", seconds)

        async def store() -> SendResult:
            return await self._store("half", topic, body, options, system, wait)

        began = time.monotonic()
        half: SendResult = await self._hooked("half", topic, body, options, store)
        left = end_time(wait, time.monotonic() - began)
        state = TransactionState.ROLLBACK
        if half.status is SendStatus.SEND_OK:
            said: object = local(half)
            if isinstance(said, Awaitable):
                said = await said
            state = state_of(TransactionState.COMMIT if said is None else said)
        if state is TransactionState.UNKNOWN:
            return TransactionResult(half, state, confirmed=False)
        confirmed = True
        end = end_of(topic, half, state, options)
        try:
            await self._outcomes.call(self._request_reply.core.end, end, left)
        except RmqError as error:
            not_confirmed(half, state, error)
            confirmed = False
        self._hooks.ended(topic, half.message_id, state, asked=False)
        return TransactionResult(half, state, confirmed)

    def _serve_checks(self) -> None:
        self._callback_queue_of(asyncio.get_running_loop())

    def _bind(self, loop: asyncio.AbstractEventLoop) -> _core.CallbackQueue:
        # From now on checks have a loop, whichever method was called first.
        callback_queue = super()._bind(loop)
        self._request_reply.serve_checks(self._hand_to_loop)
        return callback_queue

    def _hand_to_loop(self, request: _core.Request) -> None:
        """Pass a check on to the loop; this runs in the thread that receives checks."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._begin_answer, request)

    def _begin_answer(self, request: _core.Request) -> None:
        # Keep it until it is done: the loop has only weak references to tasks.
        task = asyncio.ensure_future(self._answer(request))
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)

    async def _answer(self, request: _core.Request) -> None:
        message = checked_message(self._request_reply.core, request)
        try:
            said: object = self._check(message)
            if isinstance(said, Awaitable):
                said = await said
            state = state_of(said)
        except Exception:  # noqa: BLE001 - a user's function; the broker checks again
            _log.exception("the check of %r failed", message)
            return
        if state is TransactionState.UNKNOWN:
            # Brokers ignore it, and Apache's do not answer it.
            return
        end = answer_of(request, message, state)
        try:
            await self._outcomes.call(self._request_reply.core.end, end, ANSWER_MS)
        except RmqError as error:
            not_taken(message, error)
            return
        self._hooks.ended(message.topic, message.message_id, state, asked=True)

    async def close(self, timeout: float = 10.0) -> None:  # noqa: ASYNC109 - as the sync form
        """Wait for running checks, then close as :meth:`pyrmq.aio.Producer.close`.

        Example:
            >>> await producer.close()  # doctest: +SKIP
        """
        await super().close(timeout)

    async def _settle(self, timeout: float) -> None:  # noqa: ASYNC109 - as the sync form
        if self._answers:
            await asyncio.wait(self._answers, timeout=timeout)

    async def __aenter__(self) -> Self:
        """Send a heartbeat to the brokers of ``topics``, and return the producer."""
        self._serve_checks()
        for topic in self._topics:
            await self._meet(topic, milliseconds("send_timeout", self._options.send_timeout))
        return self
