"""Messages to send, results of sends, and received messages.

``Message`` is a body with its topic and options. ``SendResult`` is where a message is stored.
``ReceivedMessage`` is a message as the broker keeps it.

Example:
    >>> message = Message("orders", b"two coffees", keys="order-42", tags="new")
    >>> message.keys
    'order-42'
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import NamedTuple, Self, TypedDict

from pyrmq._core import MessageBatch as MessageBatch
from pyrmq._core import PoppedMessage as PoppedMessage
from pyrmq._core import Receipt as Receipt
from pyrmq._core import ReceivedMessage as ReceivedMessage
from pyrmq._core import SendResult as SendResult
from pyrmq._names import Property
from pyrmq.errors import MessageError

__all__ = [
    "BatchOptions",
    "Body",
    "HalfOptions",
    "Message",
    "MessageBatch",
    "MessageOptions",
    "PoppedMessage",
    "QueueId",
    "Receipt",
    "ReceivedMessage",
    "ReplyOptions",
    "RequestOptions",
    "Selector",
    "SendResult",
    "SendStatus",
    "TransactionState",
    "When",
    "when_of",
]

Body = bytes | bytearray | memoryview | str
"""The types of a body; text is sent as UTF-8."""


class SendStatus(Enum):
    """How a message is stored. With each status it *is* stored on the broker that answered."""

    SEND_OK = "SEND_OK"
    """Stored as the broker is configured: in memory, flushed, or replicated."""
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    """Stored, but the disk was not flushed in time."""
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    """Stored, but the replica did not confirm in time."""
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    """Stored, but there is no replica to confirm."""


class TransactionState(Enum):
    """How a local transaction ended (Apache's ``LocalTransactionState``)."""

    COMMIT = 8
    """It succeeded: the message is delivered."""
    ROLLBACK = 12
    """It failed: the message is never delivered."""
    UNKNOWN = 0
    """Not known yet: the broker will ask."""


When = int | tuple[str, str]
"""When a message is delivered: a delay level, or the name and value of a timer property."""


def when_of(delay_level: int, delay: float | None, deliver_at: datetime | None) -> When:
    """Read when a message is to be delivered.

    Raises:
        MessageError: More than one argument sets it, or a delay is negative.

    Example:
        >>> when_of(0, 1.5, None)
        ('TIMER_DELAY_MS', '1500')
    """
    if delay is None and deliver_at is None:
        return delay_level
    if (delay is not None and deliver_at is not None) or delay_level:
        raise MessageError("`delay_level`, `delay`, `deliver_at`: only one can be given")
    if deliver_at is not None:
        return Property.TIMER_DELIVER_MS, str(round(deliver_at.timestamp() * 1000))
    if delay is None or not 0 <= delay < float("inf"):
        raise MessageError(f"`delay` is {delay}, it must be a time of 0 s or more")
    return Property.TIMER_DELAY_MS, str(round(delay * 1000))


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


Selector = Callable[[Sequence[QueueId]], QueueId | int]
"""Chooses among a topic's queues: returns one of them, or its index."""


class ReplyOptions(TypedDict, total=False):
    """The options of a reply; see :class:`MessageOptions`."""

    keys: str | Sequence[str] | None
    tags: str | None
    properties: Mapping[str, str] | None


class RequestOptions(ReplyOptions, total=False):
    """The options of a request; see :class:`MessageOptions`."""

    queue: int | QueueId | Selector | None


class BatchOptions(RequestOptions, total=False):
    """The options of a batch and of a one-way message; see :class:`MessageOptions`."""

    sharding_key: str | None


class HalfOptions(RequestOptions, total=False):
    """The options of a transactional message; see :class:`MessageOptions`."""

    flag: int


class MessageOptions(BatchOptions, HalfOptions, total=False):
    """The options that describe a message, as keyword arguments of every call that sends one.

    All are optional. A wrapper that passes them on can be typed with
    ``**options: Unpack[MessageOptions]``.

    Attributes:
        keys: One key or several, to find the message by. Spaces separate keys: a key that contains
            a space counts as several, as in Java.
        tags: Tag that consumers filter by.
        properties: User properties by name.
        queue: A queue's number, a :class:`QueueId`, or a function that gets the topic's queues and
            returns one (such as :class:`pyrmq.routing.MachineRoom`). No other queue is tried.
        sharding_key: Messages with the same key go to the same queue.
        flag: A number of your own that is sent with the message. Default: 0.
        delay_level: 1 to 18, the broker's delay levels. Default: 0, deliver at once.
        delay: Seconds until the message is delivered, by the timer of brokers from 5.0 on.
        deliver_at: When the message is delivered, by that timer. A time without a zone is local.
    """

    delay_level: int
    delay: float | None
    deliver_at: datetime | None


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
        keys: One key or several, to find the message by. Spaces separate keys: a key that contains
            a space counts as several, as in Java.
        tags: Tag that consumers filter by.
        properties: User properties by name. Names and values must not be empty or contain the
            characters 0x01 and 0x02. Names that RocketMQ uses internally are refused.
        sharding_key: Messages with the same key go to the same queue, in the order of the sends.
        delay_level: 1 to 18 for 1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h (brokers
            may be configured differently); 0 delivers at once.
        flag: A number of your own that is sent with the message.
        delay: Seconds until it is delivered, by the timer of brokers from 5.0 on (up to 3 days).
        deliver_at: When it is delivered, by that timer. A time without a zone is local.

    Raises:
        MessageError: A field has the wrong type, or more than one sets the delivery time.

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
        """The delivery time as it is sent. The native module reads this."""
        return when_of(self.delay_level, self.delay, self.deliver_at)
