"""What is sent, what comes back, what is received.

``Message`` is what you send when a body alone does not say it all. ``SendResult`` says where a
message was stored. ``ReceivedMessage`` is a message as the broker keeps it.

Example:
    >>> message = Message("orders", b"two coffees", keys="order-42", tags="new")
    >>> message.keys
    'order-42'
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from pyrmq._core import ReceivedMessage as ReceivedMessage
from pyrmq._core import SendResult as SendResult
from pyrmq.errors import MessageError

__all__ = ["Body", "Message", "QueueId", "ReceivedMessage", "SendResult", "SendStatus"]

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


@dataclass(frozen=True, slots=True)
class Message:
    """A message to send.

    Attributes:
        topic: Topic: 1 to 127 of the characters ``a-z A-Z 0-9 % | _ -``.
        body: Bytes, any bytes-like object, or text (sent as UTF-8).
        keys: A key, or several: brokers find messages by them. A key has no space in it.
        tags: Tag that consumers filter by.
        properties: Further text by name. Names and values are not empty and do not have the
            characters 0x01 and 0x02; names that RocketMQ uses itself are refused.
        sharding_key: Messages with the same key go to the same queue, in the order of the sends.
        delay_level: 1 to 18 for 1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h
            (a broker may be configured otherwise); 0 delivers at once.
        flag: A number of your own that travels along.

    Raises:
        MessageError: A field has a type that cannot be sent.

    Example:
        >>> Message("orders", "tea", properties={"table": "7"}).properties
        {'table': '7'}
    """

    topic: str
    body: Body
    keys: str | Sequence[str] | None = None
    tags: str | None = None
    properties: Mapping[str, str] | None = None
    sharding_key: str | None = None
    delay_level: int = 0
    flag: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.body, bytes | bytearray | memoryview | str):
            raise MessageError(
                f"body of a message for topic `{self.topic}` is {type(self.body).__name__}: "
                "give bytes, another bytes-like object, or text"
            )
        if self.properties is not None and not isinstance(self.properties, dict):
            object.__setattr__(self, "properties", dict(self.properties))
