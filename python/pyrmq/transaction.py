"""Transactional messages: a message is delivered if, and only if, your local transaction succeeded.

The message is stored as a half message, which consumers cannot read. Then your function runs, and
the half message is committed or rolled back. If the broker does not learn the outcome (your process
died, the network broke, your function raised), it asks a producer of the group, and your ``check``
function answers.

Example:
    >>> from pyrmq.testing import cluster
    >>> def debit(half: SendResult) -> TransactionState:
    ...     return TransactionState.COMMIT
    >>> def check(message: ReceivedMessage) -> TransactionState:
    ...     return TransactionState.ROLLBACK
    >>> with cluster() as running:
    ...     options = {"group": "bank", "name_server": running.name_server}
    ...     with TransactionProducer(check=check, **options) as producer:
    ...         print(producer.send_in_transaction("transfers", b"10 euros", debit).state.name)
    COMMIT
"""

import logging
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, Unpack

from pyrmq import _core
from pyrmq._client.options.producer import OtherProducerOptions, own_group
from pyrmq._client.values import milliseconds
from pyrmq._names import Property
from pyrmq.errors import ConfigError, RmqError
from pyrmq.message import (
    Body,
    HalfOptions,
    ReceivedMessage,
    SendResult,
    SendStatus,
    TransactionState,
)
from pyrmq.producer import Producer

__all__ = [
    "ANSWER_MS",
    "TransactionProducer",
    "TransactionResult",
    "TransactionState",
    "answer_of",
    "checked_message",
    "end_of",
    "end_time",
    "half_properties",
    "not_confirmed",
    "not_taken",
    "state_of",
]

ANSWER_MS = 3000
"""Milliseconds for a broker to confirm the end of a transaction that it has checked."""

_MIN_END_MS = 50

_log = logging.getLogger("pyrmq.producer")


class TransactionResult(NamedTuple):
    """The outcome of a transactional send.

    Attributes:
        half: Where the half message is stored; ``transaction_id`` identifies the transaction.
        state: How the local transaction ended.
        confirmed: Whether the broker has confirmed the end. Otherwise it will ask.
    """

    half: SendResult
    state: TransactionState
    confirmed: bool


class TransactionProducer(Producer):
    """A producer whose messages belong to local transactions (Apache's ``TransactionMQProducer``).

    Args:
        check: Called in a thread of the producer with a message whose outcome the broker does not
            know; returns how its local transaction ended. An exception is logged and counts as
            UNKNOWN. It must not use the producer.
        group: Producer group, for these producers only, since a broker may ask any member how a
            transaction ended.
        topics: Topics whose brokers get a heartbeat at once, so that they can ask about
            transactions of an earlier process of the group.
        options: The other options of :class:`pyrmq.Producer`.

    Raises:
        ConfigError: An option is out of its range, or the group is the default of all producers.

    Example:
        >>> producer = TransactionProducer(
        ...     check=lambda message: TransactionState.ROLLBACK,
        ...     group="bank",
        ...     name_server="127.0.0.1:9876",
        ... )
        >>> producer.close()
    """

    _checks = True

    def __init__(
        self,
        *,
        check: Callable[[ReceivedMessage], TransactionState],
        group: str,
        topics: Sequence[str] = (),
        **options: Unpack[OtherProducerOptions],
    ) -> None:
        if not callable(check):
            raise ConfigError(f"option `check` is {check!r}, it must be a function")
        super().__init__(group=own_group(group), **options)
        self._check = check
        self._request_reply.serve_checks(self._answer)
        for topic in topics:
            self._request_reply.heartbeat(
                topic, milliseconds("send_timeout", self._options.send_timeout)
            )

    def send_in_transaction(
        self,
        topic: str,
        body: Body,
        local: Callable[[SendResult], TransactionState | None],
        *,
        check_after: float | None = None,
        timeout: float | None = None,
        **options: Unpack[HalfOptions],
    ) -> TransactionResult:
        """Store a half message, run a local transaction, and end the half accordingly.

        Args:
            topic: Topic.
            body: Bytes, any bytes-like object, or text.
            local: Runs the local transaction. It gets the result of the half message, whose
                ``transaction_id`` it should store for ``check``, and returns how the transaction
                ended; None is COMMIT. If it raises, the state is UNKNOWN: the broker will ask, and
                the exception is raised.
            check_after: Seconds after which the broker first checks. Default: its
                ``transactionTimeOut``.
            timeout: Seconds for storing the half message and confirming its end, without the time
                of ``local``. Default: the producer's ``send_timeout``.
            options: Other fields of the message: see :class:`pyrmq.message.HalfOptions`.

        Returns:
            The half's result, the state, and whether the broker has confirmed it.

        Raises:
            RmqError: The half message was not stored, as :meth:`pyrmq.Producer.send`; the local
                transaction did not run. If the half message may be stored nevertheless, ``check``
                does not know it and rolls it back.

        Example:
            >>> def local(half):
            ...     database.execute("...", half.transaction_id)  # doctest: +SKIP
            >>> producer.send_in_transaction("orders", b"tea", local)  # doctest: +SKIP
        """
        system = half_properties(self._options.namespace, self._group, check_after)

        seconds = self._options.send_timeout if timeout is None else timeout
        wait = milliseconds("timeout", seconds)

        def store() -> SendResult:
            return self._request_reply.store("half", topic, body, options, system, wait)

        began = time.monotonic()
        half = self._request_reply.hooked("half", topic, body, options, store)
        left = end_time(wait, time.monotonic() - began)
        state = TransactionState.ROLLBACK
        if half.status is SendStatus.SEND_OK:
            said: object = local(half)
            state = state_of(TransactionState.COMMIT if said is None else said)
        if state is TransactionState.UNKNOWN:
            return TransactionResult(half, state, confirmed=False)
        confirmed = self._end(half, state, end_of(topic, half, state, options), left)
        self._hooks.ended(topic, half.message_id, state, asked=False)
        return TransactionResult(half, state, confirmed)

    def _end(
        self, half: SendResult, state: TransactionState, end: dict[str, object], wait: int
    ) -> bool:
        try:
            self._request_reply.core.end(end, wait)
        except RmqError as error:
            not_confirmed(half, state, error)
            return False
        return True

    def _answer(self, request: _core.Request) -> None:
        message = checked_message(self._request_reply.core, request)
        try:
            state = state_of(self._check(message))
        except BaseException:  # noqa: BLE001 - a user's function; the broker checks again
            _log.exception("the check of %r failed", message)
            return
        if state is TransactionState.UNKNOWN:
            # Brokers ignore it, and Apache's do not answer it.
            return

        def confirmed(error: BaseException | None) -> None:
            if error is not None:
                not_taken(message, error)
                return
            self._hooks.ended(message.topic, message.message_id, state, asked=True)

        self._request_reply.end(answer_of(request, message, state), ANSWER_MS, confirmed)


def half_properties(namespace: str, group: str, check_after: float | None) -> list[tuple[str, str]]:
    """RocketMQ's internal properties of a half message."""
    group = f"{namespace}%{group}" if namespace else group
    system = [(Property.TRAN_MSG, "true"), (Property.PGROUP, group)]
    if check_after is not None:
        seconds = max(1, round(milliseconds("check_after", check_after) / 1000))
        system.append((Property.CHECK_IMMUNITY_TIME_IN_SECONDS, str(seconds)))
    return system


def end_time(wait: int, spent: float) -> int:
    """Milliseconds left for the end once the half is stored; its request is sent in any case."""
    return max(_MIN_END_MS, wait - round(spent * 1000))


def end_of(
    topic: str, half: SendResult, state: TransactionState, options: HalfOptions
) -> dict[str, object]:
    """The request that ends a transaction."""
    keys = options.get("keys")
    return {
        "topic": topic,
        "broker": half.broker,
        "address": None,
        "half": half.offset_message_id,
        "queue_offset": half.queue_offset,
        "message_id": half.message_id,
        "state": state.value,
        "region": None,
        "tags": options.get("tags"),
        "keys": keys if keys is None or isinstance(keys, str) else " ".join(keys),
    }


def checked_message(core: _core.RequestReply, request: _core.Request) -> ReceivedMessage:
    """The message whose transaction a broker checks."""
    return core.message_to_check(request.body or b"", request.fields.get("bname", ""))


def answer_of(
    request: _core.Request, message: ReceivedMessage, state: TransactionState
) -> dict[str, object]:
    """The request that answers a broker's check."""
    fields = request.fields
    return {
        "topic": message.topic,
        "broker": fields.get("bname", ""),
        "address": request.remote,
        "half": fields["commitLogOffset"],
        "queue_offset": int(fields["tranStateTableOffset"]),
        "message_id": message.message_id,
        "state": state.value,
        "region": message.properties.get(Property.MSG_REGION),
        "tags": message.tags,
        "keys": message.properties.get(Property.KEYS),
    }


def not_confirmed(half: SendResult, state: TransactionState, error: RmqError) -> None:
    """Log that a broker has not confirmed an end."""
    _log.warning(
        "the broker did not confirm the %s of transaction %s and will ask: %s",
        state.name,
        half.message_id,
        error,
    )


def not_taken(message: ReceivedMessage, error: BaseException) -> None:
    """Log that a broker has not confirmed the end that it had requested."""
    _log.warning("the broker did not accept the end of %r and will ask again: %s", message, error)


def state_of(said: object) -> TransactionState:
    """Check what a local transaction or its check returned: it must be a state."""
    if not isinstance(said, TransactionState):
        raise ConfigError(
            f"the local transaction or its check returned {said!r}, it must be a TransactionState: "
            "its end counts as unknown"
        )
    return said
