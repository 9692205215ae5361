"""Every error that pyrmq raises, as one tree.

``RmqError`` is the root. What a broker or name server answered is a ``BrokerError`` with code and
remark; its subclasses are found by code (:func:`for_code`). Each class says by ``retriable``
whether the same call may succeed later. A text names what failed, why, and what to do.

Example:
    >>> from pyrmq.errors import RmqError, TopicNotFound
    >>> issubclass(TopicNotFound, RmqError)
    True
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

__all__ = [
    "BatchSendError",
    "BrokerBusy",
    "BrokerError",
    "ClosedError",
    "CommitError",
    "ConfigError",
    "ConnectionLost",
    "DataLossError",
    "ForkError",
    "MessageError",
    "MessageRefused",
    "NameServerUnreachable",
    "NotSupported",
    "PermissionDenied",
    "ProtocolError",
    "QueueFull",
    "RequestTimeout",
    "RmqError",
    "RouteError",
    "SendTimeout",
    "ServerError",
    "ServiceUnavailable",
    "SubscriptionError",
    "TopicNotFound",
    "for_code",
]


class RmqError(Exception):
    """Root of the tree.

    Attributes:
        retriable: True when the same call may succeed later without any change.
    """

    retriable: ClassVar[bool] = False


class ConfigError(RmqError, ValueError):
    """An option or argument that cannot be used; the text names it and what is allowed."""


class MessageError(RmqError, ValueError):
    """A message that no broker would take: illegal topic, body or properties too large."""


class ClosedError(RmqError):
    """A producer, consumer, client or server was used after ``close`` or ``stop``."""


class ServerError(RmqError):
    """A name server or broker cannot start or stop: port taken, store locked or not writable."""


class ForkError(RmqError):
    """A handle of the parent process was used in a forked child. Open a new one in the child."""


class ProtocolError(RmqError):
    """Bytes from the other side that do not follow RocketMQ's formats."""


class QueueFull(RmqError):
    """Too many messages are on their way: the limit on messages in flight is reached.

    Wait for results, or raise ``max_in_flight``.
    """

    retriable = True


class NameServerUnreachable(RmqError):
    """No name server answered; the text lists every address with what happened there.

    Attributes:
        addresses: The addresses that were tried.
    """

    retriable = True

    def __init__(self, text: str, *, addresses: str = "") -> None:
        super().__init__(text)
        self.addresses = [address for address in addresses.split(";") if address]


class RouteError(RmqError):
    """No broker can take or give messages of a topic; the text says why.

    Attributes:
        topic: The topic.
    """

    retriable = True

    def __init__(self, text: str, *, topic: str = "") -> None:
        super().__init__(text)
        self.topic = topic


class ConnectionLost(RmqError):
    """The connection could not be opened, or ended before the answer came.

    Attributes:
        address: The other side, as ``host:port``.
        may_exist: True when the request had left: a message may have been stored.
    """

    retriable = True

    def __init__(self, text: str, *, address: str = "", may_exist: bool = False) -> None:
        super().__init__(text)
        self.address = address
        self.may_exist = may_exist


class RequestTimeout(RmqError, TimeoutError):
    """A request was not answered in time.

    Attributes:
        address: The other side, as ``host:port``.
    """

    retriable = True

    def __init__(self, text: str, *, address: str = "") -> None:
        super().__init__(text)
        self.address = address


class SendTimeout(RmqError, TimeoutError):
    """A send was not confirmed within its time.

    Attributes:
        topic: The topic.
        may_exist: True when an attempt had left and was not answered: the message may have been
            stored (the outcome is unknown). False when it certainly was not.
    """

    retriable = True

    def __init__(self, text: str, *, topic: str = "", may_exist: bool = False) -> None:
        super().__init__(text)
        self.topic = topic
        self.may_exist = may_exist


class DataLossError(RmqError):
    """Messages that should have been read are gone.

    They expired before they were read, their queue vanished, or it was created anew and now ends
    before where the reader stood.
    """


class CommitError(RmqError):
    """The positions of some queues could not be committed; those of all others are.

    A broker that is back takes the next commit. Until then the messages since the last commit
    come again to whoever reads these queues next.

    Attributes:
        offsets: Each queue (a :class:`pyrmq.QueueId`) that is not committed, with the position that
            should be.
        causes: Each of them with the exception that its commit failed with.
    """

    retriable = True

    def __init__(
        self,
        text: str,
        *,
        offsets: Mapping[tuple[str, str, int], int] | None = None,
        causes: Mapping[tuple[str, str, int], RmqError] | None = None,
    ) -> None:
        super().__init__(text)
        self.offsets = dict(offsets or {})
        self.causes = dict(causes or {})


class BatchSendError(RmqError):
    """Some messages of a batch were not confirmed.

    Attributes:
        topic: The topic.
        results: For each message its result, or the exception that it failed with.
    """

    retriable = True

    def __init__(self, topic: str, results: Sequence[object]) -> None:
        failed = [result for result in results if isinstance(result, RmqError)]
        super().__init__(
            f"{len(failed)} of {len(results)} messages for topic `{topic}` were not confirmed; "
            f"first: {failed[0] if failed else None}"
        )
        self.topic = topic
        self.results = list(results)


class BrokerError(RmqError):
    """A broker or name server answered with an error.

    Attributes:
        code: Response code (:class:`pyrmq.codes.ResponseCode`).
        remark: The other side's text.
        broker: Address of who answered.
    """

    def __init__(self, text: str, *, code: int = 1, remark: str = "", broker: str = "") -> None:
        super().__init__(text)
        self.code = code
        self.remark = remark
        self.broker = broker


class BrokerBusy(BrokerError):
    """SYSTEM_BUSY, FLOW_CONTROL: the other side has too much to do now."""

    retriable = True


class NotSupported(BrokerError):
    """REQUEST_CODE_NOT_SUPPORTED: the other side does not know this request."""


class MessageRefused(BrokerError):
    """MESSAGE_ILLEGAL: the broker's limits on size, topic or properties forbid the message."""


class ServiceUnavailable(BrokerError):
    """SERVICE_NOT_AVAILABLE: shutting down, disk full, or a slave: no messages are taken now."""

    retriable = True


class PermissionDenied(BrokerError):
    """NO_PERMISSION: broker, topic or group may not be written or read."""


class TopicNotFound(BrokerError, RouteError):
    """TOPIC_NOT_EXIST: no broker has the topic and none may create it.

    Create it (``pyrmq topic create``), or set ``autoCreateTopicEnable=true`` on the broker.
    """

    retriable = False

    def __init__(
        self, text: str, *, code: int = 17, remark: str = "", broker: str = "", topic: str = ""
    ) -> None:
        BrokerError.__init__(self, text, code=code, remark=remark, broker=broker)
        self.topic = topic


class SubscriptionError(BrokerError):
    """SUBSCRIPTION_*, FILTER_DATA_*: the broker cannot use the group's subscription."""


_BY_CODE: dict[int, type[BrokerError]] = {
    2: BrokerBusy,
    3: NotSupported,
    13: MessageRefused,
    14: ServiceUnavailable,
    16: PermissionDenied,
    17: TopicNotFound,
    23: SubscriptionError,
    24: SubscriptionError,
    25: SubscriptionError,
    26: SubscriptionError,
    27: SubscriptionError,
    28: SubscriptionError,
    215: BrokerBusy,
}


def for_code(code: int) -> type[BrokerError]:
    """Find the class for a response code.

    Args:
        code: Response code of RocketMQ.

    Returns:
        The subclass of :class:`BrokerError` for this code, or ``BrokerError`` itself.

    Example:
        >>> for_code(17).__name__
        'TopicNotFound'
    """
    return _BY_CODE.get(code, BrokerError)
