"""What is sent, what comes back, what is received.

``Message`` is what you send when a body alone does not say it all. ``SendResult`` says where a
message was stored. ``ReceivedMessage`` is a message as the broker keeps it.

Example:
    >>> message = Message("orders", b"two coffees", keys="order-42", tags="new")
    >>> message.keys
    'order-42'
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import NamedTuple, Self

from pyrmq._core import ReceivedMessage as ReceivedMessage
from pyrmq._core import SendResult as SendResult
from pyrmq.errors import MessageError

__all__ = [
    "Body",
    "Message",
    "QueueId",
    "ReceivedMessage",
    "SendResult",
    "SendStatus",
    "TransactionState",
    "When",
    "when_of",
]

Body = bytes | bytearray | memoryview | str
"""What a body may be; text is sent as UTF-8."""


class SendStatus(Enum):
    """How a message was stored. With each of these it *is* stored on the broker that answered."""

    SEND_OK = "SEND_OK"
    """As the broker is configured to: in memory, flushed, or replicated."""
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    """Stored, but the disk was not flushed in time."""
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    """Stored, but the replica did not confirm in time."""
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    """Stored, but there is no replica to confirm."""


class TransactionState(Enum):
    """How a local transaction ended (Apache's ``LocalTransactionState``)."""

    COMMIT = 8
    """It took place: the message appears."""
    ROLLBACK = 12
    """It did not: the message never appears."""
    UNKNOWN = 0
    """Not known yet: the broker will ask."""


When = int | tuple[str, str]
"""When a message is delivered: a delay level, or the timer property that says it."""


def when_of(delay_level: int, delay: float | None, deliver_at: datetime | None) -> When:
    """Read when a message shall be delivered.

    Raises:
        MessageError: More than one says it, or a delay is below 0.

    Example:
        >>> when_of(0, 1.5, None)
        ('TIMER_DELAY_MS', '1500')
    """
    if delay is None and deliver_at is None:
        return delay_level
    if (delay is not None and deliver_at is not None) or delay_level:
        raise MessageError("of `delay_level`, `delay` and `deliver_at` only one can be given")
    if deliver_at is not None:
        return "TIMER_DELIVER_MS", str(round(deliver_at.timestamp() * 1000))
    if delay is None or not 0 <= delay < float("inf"):
        raise MessageError(f"`delay` is {delay}, it must be a time of 0 s or more")
    return "TIMER_DELAY_MS", str(round(delay * 1000))


class QueueId(NamedTuple):
    """A queue of a topic on one broker.

    Attributes:
        topic: Topic.
        broker: Broker name (not its address).
        queue_id: Number of the queue on that broker, from 0.
    """

    topic: str
    broker: str
    queue_id: int


class _Fields(NamedTuple):
    topic: str
    body: Body
    keys: str | Sequence[str] | None
    tags: str | None
    properties: Mapping[str, str] | None
    sharding_key: str | None
    delay_level: int
    flag: int
    delay: float | None
    deliver_at: datetime | None


class Message(_Fields):
    """A message to send.

    Attributes:
        topic: Topic: 1 to 127 of the characters ``a-z A-Z 0-9 % | _ -``.
        body: Bytes, any bytes-like object, or text (sent as UTF-8).
        keys: A key, or several: brokers find messages by them. Spaces separate keys: one with
            a space in it counts as several, as in Java.
        tags: Tag that consumers filter by.
        properties: Further text by name. Names and values are not empty and do not have the
            characters 0x01 and 0x02; names that RocketMQ uses itself are refused.
        sharding_key: Messages with the same key go to the same queue, in the order of the sends.
        delay_level: 1 to 18 for 1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h
            (a broker may be configured otherwise); 0 delivers at once.
        flag: A number of your own that travels along.
        delay: Seconds until it is delivered, by the timer of RocketMQ 5 (up to 3 days).
        deliver_at: When it is delivered, by that timer; a time without a zone is local.

    Raises:
        MessageError: A field has a type that cannot be sent, or more than one says when the
            message is delivered.

    Example:
        >>> Message("orders", "tea", properties={"table": "7"}).properties
        {'table': '7'}
    """

    __slots__ = ()

    def __new__(
        cls,
        topic: str,
        body: Body,
        keys: str | Sequence[str] | None = None,
        tags: str | None = None,
        properties: Mapping[str, str] | None = None,
        sharding_key: str | None = None,
        delay_level: int = 0,
        flag: int = 0,
        delay: float | None = None,
        deliver_at: datetime | None = None,
    ) -> Self:
        """Check the fields."""
        if not isinstance(body, bytes | bytearray | memoryview | str):
            raise MessageError(
                f"body of a message for topic `{topic}` is {type(body).__name__}: "
                "give bytes, another bytes-like object, or text"
            )
        if properties is not None and not isinstance(properties, dict):
            properties = dict(properties)
        when_of(delay_level, delay, deliver_at)
        return super().__new__(
            cls,
            topic,
            body,
            keys,
            tags,
            properties,
            sharding_key,
            delay_level,
            flag,
            delay,
            deliver_at,
        )

    @property
    def when(self) -> When:
        """When it is delivered, as it travels. The native module reads this."""
        return when_of(self.delay_level, self.delay, self.deliver_at)
