"""Options of consumers that hide messages for a time, and the common part of both forms."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, Required, TypedDict, Unpack

from pyrmq import _core
from pyrmq._client import log
from pyrmq._client.consumer_stats import ConsumerStats, consumer_stats
from pyrmq._client.ending import end_dropped
from pyrmq._client.hooks.consume import ConsumeHook, ConsumeHooks
from pyrmq._client.options.producer import Options
from pyrmq._client.values import milliseconds, whole
from pyrmq.errors import AckError, ConfigError, RmqError
from pyrmq.message import PoppedMessage, Receipt

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyrmq._client.security.credentials import Credentials
    from pyrmq._client.security.tls import Tls

__all__ = [
    "INVISIBLE_S",
    "MAX_MESSAGES",
    "WAIT_S",
    "ConfiguredSimpleConsumer",
    "MessageOrReceipt",
    "SimpleConsumerArguments",
    "SimpleConsumerOptions",
    "check_acks",
    "settled_of",
]

MAX_MESSAGES = 32
INVISIBLE_S = 60.0
WAIT_S = 15.0
RENEWAL_LIMIT_S = 3 * 3600.0
"""Apache's proxy renews a message for at most three hours."""

MessageOrReceipt = PoppedMessage | Receipt
"""What can be acknowledged: a message, or its receipt."""


class SimpleConsumerArguments(TypedDict, total=False):
    """The arguments of a simple consumer; :class:`pyrmq.SimpleConsumer` describes them."""

    name_server: str | Sequence[str] | None
    group: Required[str]
    order: Literal["none", "queue"]
    start: Literal["first", "last"]
    max_tries: int | None
    instance_name: str
    namespace: str
    unit_name: str
    address_server: str | None
    hooks: Sequence[ConsumeHook]
    request_fields: Mapping[str, str] | None
    credentials: Credentials | None
    tls: Tls | None


class SimpleConsumerOptions(Options):
    """Every option of a simple consumer with its default.

    Raises:
        ConfigError: An option is out of its range.

    Example:
        >>> SimpleConsumerOptions(name_server="127.0.0.1:9876", group="kitchen").order
        'none'
    """

    name_server: str | Sequence[str] | None = None
    group: str = ""
    order: Literal["none", "queue"] = "none"
    start: Literal["first", "last"] = "first"
    max_tries: int | None = None
    instance_name: str = ""
    namespace: str = ""
    unit_name: str = ""
    address_server: str | None = None
    hooks: Sequence[ConsumeHook] = ()
    request_fields: Mapping[str, str] | None = None
    credentials: Credentials | None = None
    tls: Tls | None = None

    def __init__(self, **given: Any) -> None:  # noqa: ANN401 - each has its type above
        super().__init__(**given)
        if self.order not in {"none", "queue"}:
            raise ConfigError(f"option `order` is {self.order!r}, it must be 'none' or 'queue'")
        if self.start not in {"first", "last"}:
            raise ConfigError(
                f"option `start` is {self.start!r}, it must be 'first' or 'last': brokers know no "
                "other start for a group that consumes by POP"
            )
        if self.max_tries is not None:
            whole("max_tries", self.max_tries, 0)
        for hook in self.hooks:
            if not isinstance(hook, ConsumeHook):
                raise ConfigError(f"option `hooks` has {hook!r}, it must be a `ConsumeHook`")

    def native(self) -> dict[str, Any]:
        """The settings of the native consumer, which checks their ranges."""
        return {
            "client": self.client(),
            "start": self.start,
            "is_ordered": self.order == "queue",
            "max_tries": self.max_tries,
        }


class ConfiguredSimpleConsumer:
    """Common part of both forms of the simple consumer: arguments, and the native consumer."""

    def __init__(self, **arguments: Unpack[SimpleConsumerArguments]) -> None:
        if "group" not in arguments:
            raise TypeError(f"{type(self).__name__}() needs the argument `group`")
        options = SimpleConsumerOptions(**arguments)
        self._options = options
        self._core = _core.SimpleConsumer(options.native())
        self._hooks = ConsumeHooks(options.hooks, options.group, options.namespace)
        self._hooks.client_id = self._core.client_id()
        self._closed = False
        self._unlog = log.serve(self)
        self._finalizer = weakref.finalize(self, end_dropped, self._core.close)

    def topics(self) -> list[str]:
        """List the topics that are subscribed to.

        Example:
            >>> consumer.topics()  # doctest: +SKIP
            ['orders']
        """
        return self._core.topics()

    def stats(self) -> ConsumerStats:
        """Return counters since the start, rates, what waits, and the state of each topic.

        Example:
            >>> consumer.stats().in_flight  # doctest: +SKIP
            10
        """
        done, later, dead, in_flight = self._core.counts()
        return consumer_stats(self._core, done=done, later=later, dead=dead, in_flight=in_flight)

    @contextmanager
    def renewing(
        self,
        messages: MessageOrReceipt | Iterable[MessageOrReceipt],
        invisible: float = INVISIBLE_S,
        limit: float = RENEWAL_LIMIT_S,
    ) -> Iterator[None]:
        """Keep messages hidden while the block runs, however long it takes.

        Their time is renewed in the background whenever a third of it has passed. A renewal that
        fails is logged and tried again while the time lasts. A copy of a receipt that was made
        before a renewal does not acknowledge the message after it.

        Args:
            messages: A message or its receipt, or several.
            invisible: Seconds for which each renewal hides them. It is also the time after a crash
                of this process until they are delivered again.
            limit: Seconds after which they are no longer renewed, in case the block hangs.

        Raises:
            ConfigError: A time is out of its range.

        Example:
            >>> with consumer.renewing(message, invisible=30.0):  # doctest: +SKIP
            ...     slow(message)
        """
        settled, _ = settled_of(messages)
        renewal = self._core.renew(
            settled, milliseconds("invisible", invisible), milliseconds("limit", limit)
        )
        try:
            yield
        finally:
            renewal.end()


def settled_of(
    messages: MessageOrReceipt | Iterable[MessageOrReceipt],
) -> tuple[list[MessageOrReceipt], bool]:
    """Read one message or several, and whether it is one."""
    if isinstance(messages, PoppedMessage | Receipt):
        return [messages], True
    if not isinstance(messages, Iterable):
        raise _no_message(messages)
    several = [*messages]
    for message in several:
        given: object = message
        if not isinstance(given, PoppedMessage | Receipt):
            raise _no_message(given)
    return several, False


def _no_message(given: object) -> ConfigError:
    return ConfigError(
        f"{given!r} cannot be acknowledged: give messages that `receive` returned, or their "
        "receipts"
    )


def check_acks(
    messages: Sequence[MessageOrReceipt],
    is_one: bool,  # noqa: FBT001 - as `settled_of` returns it
    outcomes: Sequence[Exception | None],
) -> None:
    """Raise what kept messages from being acknowledged.

    Raises:
        RmqError: One message was given: its failure.
        AckError: Several were given; it lists each failure.
    """
    failed = {
        place: outcome for place, outcome in enumerate(outcomes) if isinstance(outcome, RmqError)
    }
    if not failed:
        return
    first = next(iter(failed.values()))
    if is_one:
        raise first
    causes = [(messages[place], failure) for place, failure in failed.items()]
    raise AckError(
        f"{len(failed)} of {len(messages)} messages were not acknowledged; first: {first}",
        causes=causes,
    ) from first
