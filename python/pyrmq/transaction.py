"""Transactional messages: a message appears if, and only if, your local transaction took place.

The message is stored as a half that nobody can read; your function runs; then the half is
committed or rolled back. When that is not known (your process died, the network broke, your
function raised), the broker asks a producer of the group, and your ``check`` function answers.

Example:
    >>> from pyrmq.testing import cluster
    >>> def debit(half: SendResult) -> TransactionState:
    ...     return TransactionState.COMMIT
    >>> def ask(message: ReceivedMessage) -> TransactionState:
    ...     return TransactionState.ROLLBACK
    >>> with cluster() as running:
    ...     with TransactionProducer(check=ask, name_server=running.name_server) as producer:
    ...         print(producer.send_in_transaction("transfers", b"10 euros", debit).state.name)
    COMMIT
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

from pyrmq import _core
from pyrmq._client import Extras, Selector, milliseconds, queue_of
from pyrmq.errors import ConfigError, RmqError
from pyrmq.message import Body, QueueId, ReceivedMessage, SendResult, SendStatus
from pyrmq.producer import Producer

__all__ = ["TransactionProducer", "TransactionResult", "TransactionState"]

_log = logging.getLogger("pyrmq.producer")


class TransactionState(Enum):
    """How a local transaction ended (Apache's ``LocalTransactionState``)."""

    COMMIT = 8
    """It took place: the message appears."""
    ROLLBACK = 12
    """It did not: the message never appears."""
    UNKNOWN = 0
    """Not known yet: the broker will ask."""


class TransactionResult(NamedTuple):
    """What became of a transactional send.

    Attributes:
        half: Where the half message is stored; ``transaction_id`` is the transaction's.
        state: What the local transaction said.
        confirmed: True when the broker has confirmed the end. Otherwise it will ask.
    """

    half: SendResult
    state: TransactionState
    confirmed: bool


class TransactionProducer(Producer):
    """A producer whose messages belong to local transactions (Apache's ``TransactionMQProducer``).

    Args:
        check: Called in a thread of the producer with a message whose end the broker does not
            know; says how its local transaction ended. What it raises counts as UNKNOWN, and is
            logged. It must not use the producer.
        topics: Topics whose brokers are greeted at once, so that they can ask about transactions
            of an earlier process of the group.
        options: Those of :class:`pyrmq.Producer`; ``group`` is what brokers ask.

    Raises:
        ConfigError: An option is out of its range.

    Example:
        >>> producer = TransactionProducer(
        ...     check=lambda message: TransactionState.ROLLBACK, name_server="127.0.0.1:9876"
        ... )
        >>> producer.close()
    """

    def __init__(
        self,
        *,
        check: Callable[[ReceivedMessage], TransactionState],
        topics: Sequence[str] = (),
        **options: Any,  # noqa: ANN401 - those of Producer, checked there
    ) -> None:
        if not callable(check):
            raise ConfigError(f"option `check` is {check!r}, it must be a function")
        super().__init__(**options)
        self._ask = check
        self._exchange.serve_checks(self._answer)
        for topic in topics:
            self._exchange.meet(topic)

    def send_in_transaction(
        self,
        topic: str,
        body: Body,
        local: Callable[[SendResult], TransactionState | None],
        *,
        keys: str | Sequence[str] | None = None,
        tags: str | None = None,
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        queue: int | QueueId | Selector | None = None,
        check_after: float | None = None,
        timeout: float | None = None,
    ) -> TransactionResult:
        """Store a half message, run a local transaction, and end the half accordingly.

        Args:
            topic: As for :meth:`pyrmq.Producer.send`, and so for the arguments not told here.
            body: Bytes, any bytes-like object, or text.
            local: Runs the local transaction; gets the half's result, whose ``transaction_id``
                it should keep for ``check``. Says how it ended; None is COMMIT. When it raises,
                the end is UNKNOWN: the broker will ask, and the exception goes on.
            keys: A key, or several.
            tags: Tag that consumers filter by.
            properties: Further text by name.
            flag: A number of your own.
            queue: A queue, or a function that chooses.
            check_after: Seconds after which the broker asks first; its ``transactionTimeOut``
                without it.
            timeout: Seconds for storing the half.

        Returns:
            The half's result, the state, and whether the broker has confirmed it.

        Raises:
            RmqError: The half was not stored, as :meth:`pyrmq.Producer.send`: the local
                transaction did not run. A half that may be stored all the same is rolled back by
                ``check``, which does not know it.

        Example:
            >>> def local(half):
            ...     database.execute("...", half.transaction_id)  # doctest: +SKIP
            >>> producer.send_in_transaction("orders", b"tea", local)  # doctest: +SKIP
        """
        system = [("TRAN_MSG", "true"), ("PGROUP", self._exchange_group())]
        if check_after is not None:
            seconds = max(1, round(milliseconds("check_after", check_after) / 1000))
            system.append(("CHECK_IMMUNITY_TIME_IN_SECONDS", str(seconds)))
        self._exchange.meet(topic)
        half = self._exchange.native.send(
            topic,
            body,
            Extras(keys, tags, properties, None, 0, flag),
            system,
            "half",
            queue_of(self._core, topic, queue),
            None if timeout is None else milliseconds("timeout", timeout),
        )
        state = TransactionState.ROLLBACK
        if half.status is SendStatus.SEND_OK:
            said: object = local(half)
            state = _state_of(TransactionState.COMMIT if said is None else said)
        confirmed = state is not TransactionState.UNKNOWN and self._end(topic, half, state)
        return TransactionResult(half, state, confirmed)

    def _exchange_group(self) -> str:
        space = self._options.namespace
        return f"{space}%{self._group}" if space else self._group

    def _end(self, topic: str, half: SendResult, state: TransactionState) -> bool:
        try:
            self._exchange.native.end(
                topic,
                half.broker,
                None,
                half.offset_message_id,
                half.queue_offset,
                half.message_id,
                state.value,
            )
        except RmqError as error:
            _log.warning(
                "the broker did not confirm the %s of transaction %s and will ask: %s",
                state.name,
                half.message_id,
                error,
            )
            return False
        return True

    def _answer(self, question: _core.Request) -> None:
        fields = question.fields
        message = _core.Exchange.message_of(question.body or b"", fields.get("bname", ""))
        try:
            state = _state_of(self._ask(message))
        except Exception:  # noqa: BLE001 - a user's function; the broker asks again
            _log.exception("the check of %r failed", message)
            return
        if state is TransactionState.UNKNOWN:
            # Brokers do nothing with it, and Apache's do not answer it.
            return
        self._exchange.native.end(
            message.topic,
            fields.get("bname", ""),
            question.remote,
            fields["commitLogOffset"],
            int(fields["tranStateTableOffset"]),
            message.message_id,
            state.value,
        )


def _state_of(said: object) -> TransactionState:
    if not isinstance(said, TransactionState):
        raise ConfigError(
            f"the local transaction or its check returned {said!r}, it must be a TransactionState: "
            "its end counts as unknown"
        )
    return said
