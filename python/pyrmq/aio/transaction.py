"""Transactional messages for asyncio; see :mod:`pyrmq.transaction`."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Self, Unpack

from pyrmq import _core
from pyrmq._client.options import OtherProducerOptions, own_group
from pyrmq._client.values import MessageProperties, Selector, milliseconds
from pyrmq.aio.producer import Producer
from pyrmq.errors import ConfigError, RmqError
from pyrmq.message import (
    Body,
    QueueId,
    ReceivedMessage,
    SendResult,
    SendStatus,
    TransactionState,
)
from pyrmq.transaction import (
    ANSWER_MS,
    TransactionResult,
    answer_of,
    asked_about,
    end_of,
    end_time,
    half_properties,
    not_confirmed,
    state_of,
)

__all__ = ["TransactionProducer"]

_log = logging.getLogger("pyrmq.aio.producer")


class TransactionProducer(Producer):
    """A producer whose messages belong to local transactions, for an event loop.

    The loop in which it is entered (or first used) is where ``check`` runs: use it as a context
    manager, so that brokers can ask from the start on.

    Args:
        check: Called in the loop with a message whose end the broker does not know; it may be a
            coroutine function. It says how the local transaction ended. What it raises counts as
            UNKNOWN, and is logged.
        group: Producer group, which these producers have to themselves: a broker asks any member
            of it how a transaction ended.
        topics: Topics whose brokers are greeted at the start, so that they can ask about
            transactions of an earlier process of the group.
        options: The others of :class:`pyrmq.Producer`.

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
        self._ask = check
        self._topics = tuple(topics)
        self._answers: set[asyncio.Task[None]] = set()

    async def send_in_transaction(
        self,
        topic: str,
        body: Body,
        local: Callable[[SendResult], TransactionState | Awaitable[TransactionState | None] | None],
        *,
        keys: str | Sequence[str] | None = None,
        tags: str | None = None,
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        queue: int | QueueId | Selector | None = None,
        check_after: float | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - the time of the native send
    ) -> TransactionResult:
        """Store a half message, run a local transaction, and end the half accordingly.

        Arguments, result and errors are those of
        :meth:`pyrmq.TransactionProducer.send_in_transaction`; ``local`` may be a coroutine
        function. When it raises or is cancelled, the end is UNKNOWN: the broker will ask.

        Example:
            >>> async def local(half):
            ...     await database.execute("...", half.transaction_id)  # doctest: +SKIP
            >>> await producer.send_in_transaction("orders", b"tea", local)  # doctest: +SKIP
        """
        self._serve_checks()
        system = half_properties(self._options.namespace, self._group, check_after)
        seconds = self._options.send_timeout if timeout is None else timeout
        wait = milliseconds("timeout", seconds)

        async def store(extras: MessageProperties) -> SendResult:
            return await self._store("half", topic, body, extras, system, queue, wait)

        began = time.monotonic()
        extras = MessageProperties(keys, tags, properties, None, 0, flag)
        half: SendResult = await self._hooked("half", topic, body, extras, store)
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
        end = end_of(topic, half, state, keys, tags)
        try:
            await self._outcomes.call(self._request_reply.native.end_to, end, left)
        except RmqError as error:
            not_confirmed(half, state, error)
            confirmed = False
        self._hooks.ended(topic, half.message_id, state, asked=False)
        return TransactionResult(half, state, confirmed)

    def _serve_checks(self) -> None:
        self._callback_queue_of(asyncio.get_running_loop())

    def _bind(self, loop: asyncio.AbstractEventLoop) -> _core.CallbackQueue:
        # Whatever is called first: from now on there is a loop for checks to run in.
        soon = super()._bind(loop)
        self._request_reply.serve_checks(self._hand_to_loop)
        return soon

    def _hand_to_loop(self, question: _core.Request) -> None:
        """Runs in the thread that takes what brokers ask."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._begin_answer, question)

    def _begin_answer(self, question: _core.Request) -> None:
        # Kept until it is done: the loop itself holds tasks weakly.
        task = asyncio.ensure_future(self._answer(question))
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)

    async def _answer(self, question: _core.Request) -> None:
        message = asked_about(self._request_reply.native, question)
        try:
            said: object = self._ask(message)
            if isinstance(said, Awaitable):
                said = await said
            state = state_of(said)
        except Exception:  # noqa: BLE001 - a user's function; the broker asks again
            _log.exception("the check of %r failed", message)
            return
        if state is TransactionState.UNKNOWN:
            # Brokers do nothing with it, and Apache's do not answer it.
            return
        end = answer_of(question, message, state)
        try:
            await self._outcomes.call(self._request_reply.native.end_to, end, ANSWER_MS)
        except RmqError as error:
            _log.warning("the broker did not take the end of %r and asks again: %s", message, error)
            return
        self._hooks.ended(message.topic, message.message_id, state, asked=True)

    async def close(self, timeout: float = 10.0) -> None:  # noqa: ASYNC109 - as the sync form
        """Wait for checks that run, then as :meth:`pyrmq.aio.Producer.close`.

        Example:
            >>> await producer.close()  # doctest: +SKIP
        """
        if self._answers:
            await asyncio.wait(self._answers, timeout=timeout)
        await super().close(timeout)

    async def __aenter__(self) -> Self:
        """Greet the brokers of ``topics``, and give the producer itself."""
        self._serve_checks()
        for topic in self._topics:
            await self._meet(topic, milliseconds("send_timeout", self._options.send_timeout))
        return self
