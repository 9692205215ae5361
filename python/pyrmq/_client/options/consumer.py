"""Options of consumers, and the constructor that polled consumers have."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, Protocol, Required, TypedDict

from pyrmq._client.hooks.consume import ConsumeHook
from pyrmq._client.options.producer import Options
from pyrmq._client.values import milliseconds, start_of, whole
from pyrmq._names import TRACE_TOPIC
from pyrmq.errors import ConfigError
from pyrmq.message import QueueId

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike

    from pyrmq._client.security.credentials import Credentials
    from pyrmq._client.security.tls import Tls
    from pyrmq._client.values import Start

__all__ = [
    "Allocate",
    "Allocator",
    "ConfiguredConsumer",
    "ConsumerOptions",
    "ListenerArguments",
    "ListenerOptions",
    "OnRebalance",
    "Order",
    "OutOfRange",
]

_SHARED_NAME = "DEFAULT"
"""Instance name of a broadcasting member, as Apache's: its offsets are in a file by this name, so
it must be the same after a restart."""

_VIRTUAL_NODES = 10
"""Points of a member on the ring of ``"consistent_hash"`` (Apache's default)."""


class Allocator(Protocol):
    """A strategy of the application's own: those of :mod:`pyrmq.routing.allocate` are."""

    def allocate(
        self, client_id: str, queues: Sequence[QueueId], client_ids: Sequence[str]
    ) -> Sequence[QueueId]:
        """Return the queues of one member."""
        ...


OnRebalance = Callable[[Any, list[QueueId]], object]
"""Called with the consumer and queues; in :mod:`pyrmq.aio` it may return an awaitable."""

Allocate = Literal["average", "circle", "consistent_hash"] | Allocator
"""How the members of a group share the queues of a topic. All must use the same strategy."""


class ConsumerOptions(Options):
    """Every option of a pulling consumer with its default. See :class:`pyrmq.PullConsumer`.

    Example:
        >>> ConsumerOptions(name_server="127.0.0.1:9876", group="kitchen").batch
        1024
    """

    name_server: str | Sequence[str] | None = None
    group: str = ""
    start: Start = "first"
    instance_name: str = ""
    batch: int = 1024
    suspend: float = 15.0
    ahead_bytes: int = 64 * 1024 * 1024
    ahead_messages: int | None = None
    auto_commit: float | None = 5.0
    rebalance: float = 20.0
    namespace: str = ""
    unit_name: str = ""
    address_server: str | None = None
    allocate: Allocate = "average"
    broadcasting: bool = False
    offset_dir: str | PathLike[str] | None = None
    max_poll_interval: float | None = None
    out_of_range: OutOfRange = "nearest"
    on_assigned: OnRebalance | None = None
    on_revoked: OnRebalance | None = None
    on_lost: OnRebalance | None = None
    hooks: Sequence[ConsumeHook] = ()
    request_fields: Mapping[str, str] | None = None
    credentials: Credentials | None = None
    tls: Tls | None = None
    trace: bool = False
    trace_topic: str = TRACE_TOPIC

    def __init__(self, **given: Any) -> None:  # noqa: ANN401 - each has its type above
        super().__init__(**given)
        if self.max_poll_interval is not None and (
            milliseconds("max_poll_interval", self.max_poll_interval) == 0
        ):
            raise ConfigError(
                "option `max_poll_interval` is 0, it must be a time of more than 0 s, or None"
            )
        if self.out_of_range not in {"nearest", "first", "last", "error"}:
            raise ConfigError(
                f"option `out_of_range` is {self.out_of_range!r}, it must be 'nearest', 'first', "
                "'last' or 'error'"
            )
        for name in ("on_assigned", "on_revoked", "on_lost"):
            callback = getattr(self, name)
            if callback is not None and not callable(callback):
                raise ConfigError(
                    f"option `{name}` is {callback!r}, it must be a function of a consumer and a "
                    "list of queues"
                )
        for hook in self.hooks:
            if not isinstance(hook, ConsumeHook):
                raise ConfigError(f"option `hooks` has {hook!r}, it must be a `ConsumeHook`")

    def native(self) -> dict[str, Any]:
        """The settings of the native consumer, which checks their ranges."""
        whole("batch", self.batch, 1)
        whole("ahead_bytes", self.ahead_bytes, 1)
        if self.ahead_messages is not None:
            whole("ahead_messages", self.ahead_messages, 1)
        if self.offset_dir is not None and not self.broadcasting:
            raise ConfigError(
                "option `offset_dir` is for `broadcasting=True`: brokers keep the offsets of a "
                "group whose members share its queues"
            )
        where, timestamp_ms = start_of(self.start)
        client = self.client()
        if self.broadcasting and not self.instance_name:
            client["instance_name"] = _SHARED_NAME
        return {
            "client": client,
            "start": where,
            "start_timestamp_ms": timestamp_ms,
            "batch": self.batch,
            "suspend_ms": milliseconds("suspend", self.suspend),
            "ahead_bytes": self.ahead_bytes,
            "ahead_messages": self.ahead_messages,
            "commit_interval_ms": self._commit_interval(),
            "rebalance_interval_ms": milliseconds("rebalance", self.rebalance),
            "allocation": self._allocation(),
            "virtual_nodes": _VIRTUAL_NODES,
            "is_broadcasting": self.broadcasting,
            "announces_rebalances": self.announces_rebalances(),
            "out_of_range": self.out_of_range,
            "listening": None,
        }

    def announces_rebalances(self) -> bool:
        """Whether the application has callbacks for assigned or revoked queues."""
        callbacks = (self.on_assigned, self.on_revoked, self.on_lost)
        return any(callback is not None for callback in callbacks)

    def allocator(self) -> Allocator | None:
        """The application's own strategy; None if the native consumer has it."""
        return None if isinstance(self.allocate, str) else self.allocate

    def _allocation(self) -> str:
        if isinstance(self.allocate, str):
            if self.allocate not in {"average", "circle", "consistent_hash"}:
                raise ConfigError(
                    f"option `allocate` is {self.allocate!r}, it must be 'average', 'circle', "
                    "'consistent_hash' or a strategy such as those of `pyrmq.routing.allocate`"
                )
            return self.allocate
        if not callable(getattr(self.allocate, "allocate", None)):
            raise ConfigError(
                f"option `allocate` is {self.allocate!r}, which has no method `allocate`"
            )
        return "custom"

    def _commit_interval(self) -> int | None:
        if self.auto_commit is None:
            return None
        interval = milliseconds("auto_commit", self.auto_commit)
        if interval == 0:
            raise ConfigError(
                "option `auto_commit` is 0, it must be a time of more than 0 s, "
                "or None to commit by commit() only"
            )
        return interval


OutOfRange = Literal["nearest", "first", "last", "error"]
"""Where a queue continues whose position the broker does not have."""

Order = Literal["none", "queue", "key"]
"""Which messages stay in order when listeners are called."""


class ListenerArguments(TypedDict, total=False):
    """What the constructors of both forms take; :class:`pyrmq.PushConsumer` describes it."""

    name_server: str | Sequence[str] | None
    group: Required[str]
    order: Order
    consume_batch: int
    time_limit: float
    max_tries: int | None
    suspend_pause: float
    start: Start
    instance_name: str
    ahead_bytes: int
    ahead_messages: int | None
    max_span: int
    commit_interval: float
    rebalance: float
    namespace: str
    unit_name: str
    address_server: str | None
    allocate: Allocate
    broadcasting: bool
    offset_dir: str | PathLike[str] | None
    hooks: Sequence[ConsumeHook]
    request_fields: Mapping[str, str] | None
    credentials: Credentials | None
    tls: Tls | None
    trace: bool
    trace_topic: str
    invisible: float
    client_rebalance: bool


class ListenerOptions(ConsumerOptions):
    """Every option of a consumer with listeners. See :class:`pyrmq.PushConsumer`.

    Raises:
        ConfigError: An option is out of its range.

    Example:
        >>> ListenerOptions(name_server="127.0.0.1:9876", group="kitchen").threads
        20
    """

    threads: int = 20
    order: Order = "none"
    consume_batch: int = 1
    time_limit: float = 900.0
    max_tries: int | None = None
    suspend_pause: float = 1.0
    max_span: int = 65_536
    invisible: float = 60.0
    client_rebalance: bool = False

    def __init__(self, **given: Any) -> None:  # noqa: ANN401 - each has its type above
        super().__init__(**given)
        for name in ("threads", "consume_batch", "max_span"):
            whole(name, getattr(self, name), 1)
        if self.max_tries is not None:
            whole("max_tries", self.max_tries, 1)
        if self.order not in {"none", "queue", "key"}:
            raise ConfigError(
                f"option `order` is {self.order!r}, it must be 'none', 'queue' or 'key'"
            )
        if milliseconds("time_limit", self.time_limit) == 0:
            raise ConfigError("option `time_limit` is 0, it must be a time of more than 0 s")

    @classmethod
    def of(cls, threads: int, arguments: ListenerArguments) -> ListenerOptions:
        """Read the arguments of a constructor.

        Raises:
            TypeError: One is unknown, or the group is missing.
        """
        given: dict[str, Any] = {**arguments}
        refused = given.keys() - inspect.get_annotations(ListenerArguments)
        if refused:
            raise TypeError(f"PushConsumer() has no option {', '.join(sorted(refused))}")
        if "group" not in given:
            raise TypeError("PushConsumer() needs the argument `group`")
        if "commit_interval" in given:
            given["auto_commit"] = given.pop("commit_interval")
        return cls(threads=threads, **given)

    def native(self) -> dict[str, Any]:
        """The settings of the native consumer."""
        listening = {
            "order": self.order,
            "max_tries": self.max_tries,
            "suspend_pause_ms": milliseconds("suspend_pause", self.suspend_pause),
            "threads": self.threads,
            "max_span": self.max_span,
            "invisible_ms": milliseconds("invisible", self.invisible),
            "client_rebalance": self.client_rebalance,
        }
        return super().native() | {"listening": listening}


class ConfiguredConsumer(ABC):
    """The constructor that both forms of the pulling consumer have."""

    def __init__(
        self,
        *,
        name_server: str | Sequence[str] | None = ConsumerOptions.name_server,
        group: str,
        start: Start = ConsumerOptions.start,
        instance_name: str = ConsumerOptions.instance_name,
        batch: int = ConsumerOptions.batch,
        suspend: float = ConsumerOptions.suspend,
        ahead_bytes: int = ConsumerOptions.ahead_bytes,
        ahead_messages: int | None = ConsumerOptions.ahead_messages,
        auto_commit: float | None = ConsumerOptions.auto_commit,
        rebalance: float = ConsumerOptions.rebalance,
        namespace: str = ConsumerOptions.namespace,
        unit_name: str = ConsumerOptions.unit_name,
        address_server: str | None = ConsumerOptions.address_server,
        allocate: Allocate = ConsumerOptions.allocate,
        broadcasting: bool = ConsumerOptions.broadcasting,
        offset_dir: str | PathLike[str] | None = ConsumerOptions.offset_dir,
        max_poll_interval: float | None = ConsumerOptions.max_poll_interval,
        out_of_range: OutOfRange = ConsumerOptions.out_of_range,
        on_assigned: OnRebalance | None = ConsumerOptions.on_assigned,
        on_revoked: OnRebalance | None = ConsumerOptions.on_revoked,
        on_lost: OnRebalance | None = ConsumerOptions.on_lost,
        hooks: Sequence[ConsumeHook] = ConsumerOptions.hooks,
        request_fields: Mapping[str, str] | None = ConsumerOptions.request_fields,
        credentials: Credentials | None = ConsumerOptions.credentials,
        tls: Tls | None = ConsumerOptions.tls,
        trace: bool = ConsumerOptions.trace,
        trace_topic: str = ConsumerOptions.trace_topic,
    ) -> None:
        given = {name: value for name, value in locals().items() if name != "self"}
        self._options = ConsumerOptions(**given)
        self._open()

    @abstractmethod
    def _open(self) -> None:
        """Create the parts of this form, once the options are set."""
