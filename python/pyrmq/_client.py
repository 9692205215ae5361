"""What producer, consumer, admin and their asyncio forms share: addresses, options, extras."""

import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple, Protocol

from pyrmq.errors import ConfigError, ForkError, RmqError
from pyrmq.message import Body, QueueId, SendResult

__all__ = [
    "PLAIN",
    "BrokerState",
    "Compression",
    "ConfiguredConsumer",
    "ConfiguredProducer",
    "ConsumerOptions",
    "Extras",
    "Hooks",
    "ProducerOptions",
    "ProducerStats",
    "Selector",
    "SendHook",
    "Start",
    "abandon",
    "at_least_one",
    "callback_raised",
    "milliseconds",
    "name_servers",
    "places_of",
    "properties_of",
    "queue_of",
    "selected",
    "start_of",
    "stats_of",
]

Start = Literal["first", "last"] | datetime
"""Where a group begins in a queue that it has never committed."""

Compression = Literal["zlib", "lz4", "zstd"]
"""How large bodies get smaller; brokers and consumers before 5.0 read zlib only."""

NAMESRV_ADDR = "NAMESRV_ADDR"
_log = logging.getLogger("pyrmq.producer")


def name_servers(given: str | Sequence[str] | None) -> list[str]:
    """Read name server addresses: `host:port;host:port`, a sequence, or the environment."""
    if given is None:
        given = os.environ.get(NAMESRV_ADDR, "")
        if not given:
            raise ConfigError(
                "no name server is given: pass name_server='host:port;host:port', "
                f"or set the environment variable {NAMESRV_ADDR}"
            )
    parts = given.replace(",", ";").split(";") if isinstance(given, str) else list(given)
    addresses = list(dict.fromkeys(part.strip() for part in parts if part.strip()))
    if not addresses:
        raise ConfigError("option `name_server` is empty, it must be `host:port;host:port`")
    return addresses


def milliseconds(option: str, seconds: float) -> int:
    """Turn a time in seconds into whole milliseconds, at least 1 unless it is 0."""
    if not seconds >= 0:
        raise ConfigError(f"option `{option}` is {seconds}, it must be a time of 0 s or more")
    return max(1, round(seconds * 1000)) if seconds else 0


def at_least_one(option: str, count: int) -> int:
    """Refuse a count that would never be reached."""
    if count < 1:
        raise ConfigError(f"option `{option}` is {count}, it must be at least 1")
    return count


Selector = Callable[[Sequence[QueueId]], QueueId | int]
"""Chooses among a topic's queues: one of them, or its place."""


class Routed(Protocol):
    """A native producer, as far as a selector needs it."""

    def queues(self, topic: str) -> list[tuple[str, str, int]]:
        """The queues of a topic that may be written."""
        ...


def queue_of(
    core: Routed, topic: str, queue: int | QueueId | Selector | None
) -> tuple[str, int] | None:
    """Read the queue that a caller names: a number, a queue of this topic, or a function."""
    if queue is None:
        return None
    if isinstance(queue, int):
        return "", queue
    if isinstance(queue, QueueId):
        if queue.topic != topic:
            raise ConfigError(f"queue {queue} is not of topic `{topic}`")
        return queue.broker, queue.queue_id
    return selected([QueueId(*place) for place in core.queues(topic)], queue)


def selected(queues: list[QueueId], selector: Selector) -> tuple[str, int]:
    """Ask a selector, and refuse what is no queue."""
    chosen = selector(queues)
    if not isinstance(chosen, QueueId):
        if isinstance(chosen, bool) or not isinstance(chosen, int):
            raise ConfigError(f"the selector returned {chosen!r}, it must return a queue")
        if not 0 <= chosen < len(queues):
            raise ConfigError(f"the selector returned {chosen}, there are {len(queues)} queues")
        chosen = queues[chosen]
    elif chosen not in queues:
        raise ConfigError(f"the selector returned {chosen}, which is not among the topic's queues")
    return chosen.broker, chosen.queue_id


def properties_of(properties: Mapping[str, str] | None) -> dict[str, str] | None:
    """The native module reads dicts."""
    if properties is None or isinstance(properties, dict):
        return properties
    return dict(properties)


class BrokerState(NamedTuple):
    """What a producer with ``latency_fault`` knows of a broker that was slow or failed.

    Attributes:
        broker: Broker name.
        latency_ms: Latency of its last attempt.
        left_out_ms: It is left out for this long from now on.
        reachable: False while a probe is awaited.
    """

    broker: str
    latency_ms: int
    left_out_ms: int
    reachable: bool


class ProducerStats(NamedTuple):
    """Counters of a producer since it was made.

    Attributes:
        confirmed: Messages that a broker has stored.
        failed: Messages that were given up.
        retries: Attempts beyond the first, in frames.
        frames: Frames sent; a batch is one.
        in_flight: Messages on their way now, with those whose callback has not run.
        in_flight_bytes: Bytes of bodies on their way now.
        batches: Frames that were batches.
        batched: Messages in them.
        seconds: Since the producer was made.
        brokers: Brokers that were slow or failed, with ``latency_fault``.
        window: Messages that may be on their way now: ``max_in_flight``, less after a broker has
            said that it is busy.
        dropped_traces: Traces that were dropped because too many waited.
    """

    confirmed: int
    failed: int
    retries: int
    frames: int
    in_flight: int
    in_flight_bytes: int = 0
    batches: int = 0
    batched: int = 0
    seconds: float = 0.0
    brokers: tuple[BrokerState, ...] = ()
    window: int = 0
    dropped_traces: int = 0

    @property
    def per_second(self) -> float:
        """Messages confirmed a second, over the whole time."""
        return self.confirmed / self.seconds if self.seconds else 0.0

    @property
    def batch_size(self) -> float:
        """Messages of a batch, on average."""
        return self.batched / self.batches if self.batches else 0.0


class Counting(Protocol):
    """A native producer, as far as its statistics need it."""

    def stats(self) -> list[tuple[str, int]]:
        """Counters by name."""
        ...

    def brokers(self) -> list[tuple[str, int, int, bool]]:
        """The fault table."""
        ...


def stats_of(core: Counting, seconds: float) -> ProducerStats:
    """Read a native producer's counters."""
    brokers = tuple(BrokerState(*broker) for broker in core.brokers())
    return ProducerStats(**dict(core.stats()), seconds=seconds, brokers=brokers)


class Extras:
    """What a message has beside topic and body. The native module reads these attributes."""

    __slots__ = ("delay_level", "flag", "keys", "properties", "sharding_key", "tags")

    def __init__(
        self,
        keys: str | Sequence[str] | None = None,
        tags: str | None = None,
        properties: Mapping[str, str] | None = None,
        sharding_key: str | None = None,
        delay_level: int = 0,
        flag: int = 0,
    ) -> None:
        self.keys = keys
        self.tags = tags
        self.properties = (
            properties if properties is None or isinstance(properties, dict) else dict(properties)
        )
        self.sharding_key = sharding_key
        self.delay_level = delay_level
        self.flag = flag


PLAIN = Extras()


def start_of(start: Start) -> tuple[str, int]:
    """Read where to start: a word, and a time in milliseconds."""
    if isinstance(start, datetime):
        return "timestamp", int(start.timestamp() * 1000)
    if start not in {"first", "last"}:
        raise ConfigError(f"start is {start!r}, it must be 'first', 'last' or a datetime")
    return start, 0


def places_of(
    queues: Iterable[QueueId] | Mapping[QueueId, int | None],
) -> list[tuple[QueueId, int | None]]:
    """Read queues, each with an offset or None."""
    if isinstance(queues, Mapping):
        return [(queue, offset) for queue, offset in queues.items()]
    return [(queue, None) for queue in queues]


def callback_raised(error: BaseException) -> None:
    """Log what a delivery callback raised: it must not end the thread that called it."""
    _log.error("a delivery callback raised %r", error, exc_info=error)


class SendHook(Protocol):
    """Looks at each message of ``send``, ``send_async``, ``produce``: spans, counters, rules.

    Example:
        >>> class Count:
        ...     sent = 0
        ...     def before_send(self, topic, body):
        ...         if topic == "forbidden":
        ...             raise ValueError(topic)
        ...     def after_send(self, topic, error, result):
        ...         self.sent += error is None
    """

    def before_send(self, topic: str, body: Body) -> None:
        """Called before a message is taken; what it raises refuses the message."""
        ...

    def after_send(self, topic: str, error: BaseException | None, result: Any) -> None:  # noqa: ANN401
        """Called with the outcome, where callbacks run; what it raises is logged."""
        ...


class Hooks:
    """The hooks of one producer, in order; those after a send in reverse."""

    def __init__(self, hooks: Sequence[SendHook]) -> None:
        self._hooks = tuple(hooks)

    def __bool__(self) -> bool:
        return bool(self._hooks)

    def before(self, topic: str, body: Body) -> None:
        """A message is about to be taken."""
        for hook in self._hooks:
            hook.before_send(topic, body)

    def after(self, topic: str, error: BaseException | None, result: object) -> None:
        """Its outcome is known."""
        for hook in reversed(self._hooks):
            try:
                hook.after_send(topic, error, result)
            except Exception as raised:  # noqa: BLE001 - a user's function, not the send's fault
                callback_raised(raised)

    def callback(
        self, topic: str, then: Callable[[RmqError | None, SendResult | None], object] | None
    ) -> Callable[[RmqError | None, SendResult | None], object]:
        """A delivery callback that tells the hooks first."""

        def told(error: RmqError | None, result: SendResult | None) -> None:
            self.after(topic, error, result)
            if then is not None:
                then(error, result)

        return told

    def watch(self, topic: str, future: Any) -> None:  # noqa: ANN401 - of threads or a loop
        """Tell the hooks when a future is done."""

        def told(done: Any) -> None:  # noqa: ANN401 - of either kind
            if done.cancelled():
                return
            error = done.exception()
            self.after(topic, error, None if error else done.result())

        future.add_done_callback(told)


_ABANDONED_MS = 2000


class Ending(Protocol):
    """What ends with a producer."""

    def close(self) -> None:
        """Take nothing more."""
        ...


class Gathering(Ending, Protocol):
    """A native accumulator, as far as its end needs it."""

    def flush(self, timeout_ms: int) -> bool:
        """Send what is gathered, and wait."""
        ...

    def end(self) -> None:
        """End its threads."""
        ...


class Sending(Ending, Protocol):
    """A native producer, as far as its end needs it."""

    def shut(self) -> None:
        """End every connection."""
        ...


def abandon(core: Sending, gathering: Gathering, asked: Ending | None = None) -> None:
    """End a producer that nobody closed: what it has gathered leaves, for 2 s at most."""
    try:
        gathering.close()
        if not gathering.flush(_ABANDONED_MS):
            _log.warning("a producer was dropped without close, with messages unconfirmed")
    except ForkError:
        # It is the parent's to end.
        return
    finally:
        if asked is not None:
            asked.close()
        core.close()
        core.shut()
    gathering.end()


@dataclass(frozen=True, kw_only=True)
class ProducerOptions:
    """Every option of a producer with its default, checked. See :class:`pyrmq.Producer`.

    Raises:
        ConfigError: An option is out of its range.

    Example:
        >>> ProducerOptions(name_server="127.0.0.1:9876").send_timeout
        3.0
    """

    name_server: str | Sequence[str] | None = None
    group: str = "pyrmq_producer"
    instance_name: str = ""
    send_timeout: float = 3.0
    retries: int = 2
    retry_not_stored_ok: bool = False
    compress_over_bytes: int | None = 4096
    compression: Compression = "zlib"
    compress_level: int = 5
    max_message_bytes: int = 4 * 1024 * 1024
    default_queues: int = 4
    create_topic_key: str = "TBW102"
    retry_codes: Collection[int] | None = None
    namespace: str = ""
    latency_fault: bool = False
    fault_schedule: Sequence[tuple[float, float]] | None = None
    start_detector: bool = False
    detect_timeout: float = 0.2
    detect_interval: float = 2.0
    trace: bool = False
    trace_topic: str = "RMQ_SYS_TRACE_TOPIC"
    max_in_flight: int = 32_768
    max_in_flight_bytes: int = 64 * 1024 * 1024
    linger: float = 0.005
    batch_bytes: int = 64 * 1024
    batch_messages: int = 1024
    hooks: Sequence[SendHook] = ()

    def __post_init__(self) -> None:
        if self.compression not in {"zlib", "lz4", "zstd"}:
            raise ConfigError(
                f"option `compression` is {self.compression!r}, it must be 'zlib', 'lz4' or 'zstd'"
            )
        if not 0 <= self.compress_level <= 9:
            raise ConfigError(
                f"option `compress_level` is {self.compress_level}, it must be 0 to 9"
            )
        if not 0 <= self.linger <= 60:
            raise ConfigError(f"option `linger` is {self.linger}, it must be 0 to 60 s")
        if self.retries < 0:
            raise ConfigError(f"option `retries` is {self.retries}, it must be 0 or more")
        at_least_one("batch_bytes", self.batch_bytes)
        at_least_one("batch_messages", self.batch_messages)

    def native(self) -> dict[str, Any]:
        """The arguments of the native producer; its crate checks the ranges that it knows."""
        return {
            "name_servers": name_servers(self.name_server),
            "group": self.group,
            "instance_name": self.instance_name,
            "send_timeout_ms": milliseconds("send_timeout", self.send_timeout),
            "retries": self.retries,
            "retry_not_stored_ok": self.retry_not_stored_ok,
            "compress_over_bytes": self.compress_over_bytes,
            "compression": self.compression,
            "compress_level": self.compress_level,
            "max_message_bytes": self.max_message_bytes,
            "default_queues": self.default_queues,
            "create_topic_key": self.create_topic_key,
            "retry_codes": None if self.retry_codes is None else [int(c) for c in self.retry_codes],
            "namespace": self.namespace,
            "latency_fault": self.latency_fault,
            "fault_schedule": None
            if self.fault_schedule is None
            else [
                (milliseconds("fault_schedule", latency), milliseconds("fault_schedule", out))
                for latency, out in self.fault_schedule
            ],
            "detect": self.start_detector,
            "detect_timeout_ms": milliseconds("detect_timeout", self.detect_timeout),
            "detect_interval_ms": milliseconds("detect_interval", self.detect_interval),
            "trace_topic": self.trace_topic if self.trace else None,
            "max_in_flight": self.max_in_flight,
            "max_in_flight_bytes": self.max_in_flight_bytes,
        }

    def batching(self) -> tuple[int, int, int]:
        """The native accumulator's linger in microseconds, bytes and messages of a batch."""
        return round(self.linger * 1_000_000), self.batch_bytes, self.batch_messages


class ConfiguredProducer(ABC):
    """The constructor that both forms of the producer have."""

    def __init__(
        self,
        *,
        name_server: str | Sequence[str] | None = ProducerOptions.name_server,
        group: str = ProducerOptions.group,
        instance_name: str = ProducerOptions.instance_name,
        send_timeout: float = ProducerOptions.send_timeout,
        retries: int = ProducerOptions.retries,
        retry_not_stored_ok: bool = ProducerOptions.retry_not_stored_ok,
        compress_over_bytes: int | None = ProducerOptions.compress_over_bytes,
        compression: Compression = ProducerOptions.compression,
        compress_level: int = ProducerOptions.compress_level,
        max_message_bytes: int = ProducerOptions.max_message_bytes,
        default_queues: int = ProducerOptions.default_queues,
        create_topic_key: str = ProducerOptions.create_topic_key,
        retry_codes: Collection[int] | None = ProducerOptions.retry_codes,
        namespace: str = ProducerOptions.namespace,
        latency_fault: bool = ProducerOptions.latency_fault,
        fault_schedule: Sequence[tuple[float, float]] | None = ProducerOptions.fault_schedule,
        start_detector: bool = ProducerOptions.start_detector,
        detect_timeout: float = ProducerOptions.detect_timeout,
        detect_interval: float = ProducerOptions.detect_interval,
        trace: bool = ProducerOptions.trace,
        trace_topic: str = ProducerOptions.trace_topic,
        max_in_flight: int = ProducerOptions.max_in_flight,
        max_in_flight_bytes: int = ProducerOptions.max_in_flight_bytes,
        linger: float = ProducerOptions.linger,
        batch_bytes: int = ProducerOptions.batch_bytes,
        batch_messages: int = ProducerOptions.batch_messages,
        hooks: Sequence[SendHook] = ProducerOptions.hooks,
    ) -> None:
        given = {name: value for name, value in locals().items() if name != "self"}
        self._options = ProducerOptions(**given)
        self._hooks = Hooks(hooks)
        self._open()

    @abstractmethod
    def _open(self) -> None:
        """Make what the form has, once the options are there."""


@dataclass(frozen=True, kw_only=True)
class ConsumerOptions:
    """Every option of a pulling consumer with its default. See :class:`pyrmq.PullConsumer`.

    Example:
        >>> ConsumerOptions(name_server="127.0.0.1:9876", group="kitchen").batch
        1024
    """

    name_server: str | Sequence[str] | None = None
    group: str
    start: Start = "first"
    instance_name: str = ""
    batch: int = 1024
    suspend: float = 15.0
    ahead_bytes: int = 8 * 1024 * 1024
    auto_commit: float | None = 5.0
    rebalance: float = 20.0

    def native(self) -> dict[str, Any]:
        """The arguments of the native consumer, which checks their ranges."""
        where, timestamp_ms = start_of(self.start)
        return {
            "name_servers": name_servers(self.name_server),
            "group": self.group,
            "instance_name": self.instance_name,
            "start": where,
            "start_timestamp_ms": timestamp_ms,
            "batch": self.batch,
            "suspend_ms": milliseconds("suspend", self.suspend),
            "ahead_bytes": self.ahead_bytes,
            "commit_interval_ms": milliseconds("auto_commit", self.auto_commit or 0),
            "rebalance_interval_ms": milliseconds("rebalance", self.rebalance),
        }


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
        auto_commit: float | None = ConsumerOptions.auto_commit,
        rebalance: float = ConsumerOptions.rebalance,
    ) -> None:
        given = {name: value for name, value in locals().items() if name != "self"}
        self._options = ConsumerOptions(**given)
        self._open()

    @abstractmethod
    def _open(self) -> None:
        """Make what the form has, once the options are there."""
