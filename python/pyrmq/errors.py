"""Every error that pyrmq raises, as one tree.

``RmqError`` is the root. The error of a broker or name server is a ``BrokerError`` with code and
remark; :func:`for_code` finds the subclass for a code. ``retriable`` says whether the same call may
succeed later. The text names what failed, why, and what to do.

``may_exist`` says whether the message may be stored despite the error. The error of a send also has
the message's unique id, its topic, broker and queue, and the failed attempts, as attributes and in
the text. Errors can be pickled and copied.

Example:
    >>> from pyrmq.errors import RmqError, TopicNotFound
    >>> issubclass(TopicNotFound, RmqError)
    True
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Self, TypedDict, Unpack

__all__ = [
    "AckError",
    "Attempt",
    "BatchSendError",
    "BrokerBusy",
    "BrokerError",
    "ClosedError",
    "CommitError",
    "ConfigError",
    "ConnectionLost",
    "DataLossError",
    "FilterError",
    "ForkError",
    "MessageError",
    "MessageRefused",
    "NameServerUnreachable",
    "NotSupported",
    "OffsetOutOfRange",
    "PermissionDenied",
    "ProtocolError",
    "QueueFull",
    "ReceiptError",
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


class Attempt(NamedTuple):
    """A failed attempt to send a message.

    Attributes:
        number: Number of the attempt, from 1.
        broker: Name of the broker.
        queue_id: Number of the queue; -1 if the broker was to choose.
        began: Seconds from the start of the send to the start of the attempt.
        took: Seconds from the start of the attempt to its failure.
        cause: The error.
        may_exist: Whether this attempt may have stored the message.

    Example:
        >>> attempt = Attempt(1, "broker-a", 0, 0.0, 1.5, "no answer", True)
        >>> attempt.began + attempt.took
        1.5
    """

    number: int
    broker: str
    queue_id: int
    began: float
    took: float
    cause: str
    may_exist: bool


class About(TypedDict, total=False):
    """The attributes of a send's error, as keyword arguments of each class's constructor."""

    topic: str | None
    broker: str | None
    queue_id: int | None
    message_id: str | None
    may_exist: bool
    attempts: Sequence[Attempt]


class RmqError(Exception):
    """Root of the tree.

    Attributes:
        retriable: Whether the same call may succeed later without any change.
        may_exist: Whether the message may be stored: the outcome is unknown. False if it is
            certainly not stored, or if there is no message.
        message_id: Unique id of the message; None if there is none (yet).
        topic: Topic; None if there is none.
        broker: Name of the last broker; its address if the name is unknown.
        queue_id: The last queue; None if there was none yet.
        attempts: The failed attempts of a send; of many, the first and the last seven.
    """

    retriable: ClassVar[bool] = False

    def __init__(
        self,
        text: object = "",
        *,
        topic: str | None = None,
        broker: str | None = None,
        queue_id: int | None = None,
        message_id: str | None = None,
        may_exist: bool = False,
        attempts: Sequence[Attempt] = (),
    ) -> None:
        super().__init__(text)
        self.topic = topic
        self.broker = broker
        self.queue_id = queue_id
        self.message_id = message_id
        self.may_exist = may_exist
        self.attempts = tuple(attempts)

    def __reduce__(self) -> tuple[Any, ...]:
        # Constructors differ: the copy gets its arguments and attributes without calling one.
        return _remade, (type(self), self.args), self.__dict__

    @classmethod
    def _of(cls, args: tuple[object, ...]) -> Self:
        made = cls.__new__(cls)
        made.args = args
        return made


def _remade(cls: type[RmqError], args: tuple[object, ...]) -> RmqError:
    return cls._of(args)


class ConfigError(RmqError, ValueError):
    """An option or argument that cannot be used; the text names it and what is allowed."""


class FilterError(ConfigError):
    """A SQL92 filter that cannot be read, or that cannot compare a message's value.

    Attributes:
        position: Character of the expression, counted from 0, at which the wrong part begins.
    """

    def __init__(self, text: str, *, position: int = 0, **about: Unpack[About]) -> None:
        super().__init__(text, **about)
        self.position = position


class MessageError(RmqError, ValueError):
    """A message that no broker would accept: illegal topic, body or properties too large."""


class ClosedError(RmqError):
    """A producer, consumer, client or server was used after ``close`` or ``stop``."""


class ServerError(RmqError):
    """A name server or broker cannot start or stop: port taken, store locked or not writable."""


class ForkError(RmqError):
    """A handle of the parent process was used in a forked child. Open a new one in the child."""


class ProtocolError(RmqError):
    """Bytes from the other side that do not follow RocketMQ's formats."""


class QueueFull(RmqError):
    """The limit on messages in flight is reached.

    Wait for results, or raise ``max_in_flight``.
    """

    retriable = True


class NameServerUnreachable(RmqError):
    """No name server answered; the text lists every address with its error.

    Attributes:
        addresses: The addresses that were tried.
    """

    retriable = True

    def __init__(self, text: str, *, addresses: str = "", **about: Unpack[About]) -> None:
        super().__init__(text, **about)
        self.addresses = [address for address in addresses.split(";") if address]


class RouteError(RmqError):
    """No broker can store or deliver messages of a topic; the text says why."""

    retriable = True


class ConnectionLost(RmqError):
    """The connection could not be opened, or ended before the answer arrived.

    Attributes:
        address: The other side, as ``host:port``.
    """

    retriable = True

    def __init__(self, text: str, *, address: str = "", **about: Unpack[About]) -> None:
        super().__init__(text, **about)
        self.address = address


class RequestTimeout(RmqError, TimeoutError):
    """A request was not answered in time.

    Attributes:
        address: The other side, as ``host:port``.
    """

    retriable = True

    def __init__(self, text: str, *, address: str = "", **about: Unpack[About]) -> None:
        super().__init__(text, **about)
        self.address = address


class SendTimeout(RmqError, TimeoutError):
    """A send was not confirmed within its time."""

    retriable = True


class DataLossError(RmqError):
    """Messages that should have been read are gone.

    They expired before they were read, their queue was deleted, or it was created again and now
    ends before the reader's offset.
    """


class CommitError(RmqError):
    """The offsets of some queues could not be committed; those of all others are committed.

    A broker that is back accepts the next commit. Until then, the next reader of these queues gets
    the messages since the last commit again.

    Attributes:
        offsets: The offset to commit, for each queue (a :class:`pyrmq.QueueId`) that failed.
        causes: The exception, for each of these queues.
    """

    retriable = True

    def __init__(
        self,
        text: str,
        *,
        offsets: Mapping[tuple[str, str, int], int] | None = None,
        causes: Mapping[tuple[str, str, int], RmqError] | None = None,
        **about: Unpack[About],
    ) -> None:
        super().__init__(text, **about)
        self.offsets = dict(offsets or {})
        self.causes = dict(causes or {})


class OffsetOutOfRange(RmqError):
    """A queue's position does not exist: its messages have expired, or never existed.

    Raised by polls with ``out_of_range="error"``, again every few seconds until the consumer seeks
    another position.

    Attributes:
        offset: The position.
        first: The queue's first offset.
        last: The offset that its next message gets.
    """

    def __init__(
        self,
        text: str,
        *,
        offset: int = 0,
        first: int = 0,
        last: int = 0,
        **about: Unpack[About],
    ) -> None:
        super().__init__(text, **about)
        self.offset = offset
        self.first = first
        self.last = last


class ReceiptError(RmqError):
    """A receipt of a message cannot be used.

    It is malformed, used up or expired, or its broker does not know it. The message is delivered
    again unless it was acknowledged before.

    Attributes:
        handle: The receipt handle.
    """

    def __init__(self, text: str, *, handle: str = "", **about: Unpack[About]) -> None:
        super().__init__(text, **about)
        self.handle = handle


class AckError(RmqError):
    """Some of several messages could not be acknowledged; all others were.

    Attributes:
        causes: Each message (or receipt) that failed, with its exception.
    """

    retriable = True

    def __init__(
        self,
        text: str,
        *,
        causes: Sequence[tuple[object, RmqError]] = (),
        **about: Unpack[About],
    ) -> None:
        super().__init__(text, **about)
        self.causes = list(causes)


class BatchSendError(RmqError):
    """Some messages of a batch were not confirmed, or the call ended before all were read.

    Attributes:
        results: The result or the exception of each message that was read; ``may_exist`` of an
            exception says whether the message may be stored. If the call ended early (an invalid
            message, ``max_in_flight`` reached, an error of the iterable), that error is the
            ``__cause__``.
        may_exist: Whether one of the failed messages may be stored.
        attempts: The attempts of the first failed message.
    """

    retriable = True

    def __init__(
        self, topic: str, results: Sequence[object], ended_by: BaseException | None = None
    ) -> None:
        failed = [result for result in results if isinstance(result, RmqError)]
        super().__init__(
            f"{len(failed)} of {len(results)} messages for topic `{topic}` were not confirmed; "
            + (
                f"first: {failed[0] if failed else None}"
                if ended_by is None
                else f"no more were read, because of {ended_by!r}"
            ),
            topic=topic,
            may_exist=any(error.may_exist for error in failed),
            attempts=failed[0].attempts if failed else (),
        )
        self.results = list(results)


class BrokerError(RmqError):
    """A broker or name server answered with an error.

    Attributes:
        code: Response code (:class:`pyrmq.codes.ResponseCode`).
        remark: The other side's text.
        address: The other side, as ``host:port``.
    """

    def __init__(
        self,
        text: str,
        *,
        code: int = 1,
        remark: str = "",
        address: str = "",
        **about: Unpack[About],
    ) -> None:
        about["broker"] = about.get("broker") or address or None
        super().__init__(text, **about)
        self.code = code
        self.remark = remark
        self.address = address


class BrokerBusy(BrokerError):
    """SYSTEM_BUSY, FLOW_CONTROL: the other side is overloaded."""

    retriable = True


class NotSupported(BrokerError):
    """REQUEST_CODE_NOT_SUPPORTED: the other side does not know this request."""


class MessageRefused(BrokerError):
    """MESSAGE_ILLEGAL: the broker's limits on size, topic or properties forbid the message."""


class ServiceUnavailable(BrokerError):
    """SERVICE_NOT_AVAILABLE: the broker is shutting down, its disk is full, or it is a slave."""

    retriable = True


class PermissionDenied(BrokerError):
    """NO_PERMISSION: the broker, topic or group does not permit reads or writes."""


class TopicNotFound(BrokerError, RouteError):
    """TOPIC_NOT_EXIST: no broker has the topic and none may create it.

    Create it (``pyrmq topic create``), or set ``autoCreateTopicEnable=true`` on the broker.
    """

    retriable = False

    def __init__(
        self,
        text: str,
        *,
        code: int = 17,
        remark: str = "",
        address: str = "",
        **about: Unpack[About],
    ) -> None:
        super().__init__(text, code=code, remark=remark, address=address, **about)


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
