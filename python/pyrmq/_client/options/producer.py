"""Options of producers, and the constructors that have them."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypedDict

from pyrmq._client.hooks.send import Hooks, SendHook
from pyrmq._client.options.request_fields import added_fields
from pyrmq._client.security.credentials import Credentials
from pyrmq._client.security.effective import native_security
from pyrmq._client.security.tls import Tls
from pyrmq._client.values import (
    Compression,
    Durability,
    milliseconds,
    name_servers,
    whole,
)
from pyrmq._names import TEMPLATE_TOPIC, TRACE_TOPIC
from pyrmq.errors import ConfigError

__all__ = [
    "ConfiguredProducer",
    "Options",
    "OtherProducerOptions",
    "ProducerOptions",
    "own_group",
]


class Options:
    """Options by name; subclasses define each with its default."""

    def __init__(self, **given: Any) -> None:  # noqa: ANN401 - each has its type in the subclass
        known = {name for kind in type(self).__mro__ for name in inspect.get_annotations(kind)}
        unknown = given.keys() - known
        if unknown:
            raise TypeError(f"unknown options: {', '.join(sorted(unknown))}")
        fields = given.get("request_fields")
        if isinstance(fields, Mapping):
            # The trace's producer and requests for patterns of topics read them later, too.
            given["request_fields"] = dict(fields)
        self.__dict__.update(given)

    def client(self) -> dict[str, Any]:
        """The settings that native clients of every kind have."""
        given: Any = self
        return {
            "name_servers": name_servers(given.name_server, given.address_server),
            "group": given.group,
            "instance_name": given.instance_name,
            "namespace": given.namespace,
            "unit_name": given.unit_name,
            "address_server": given.address_server,
            "request_fields": added_fields(given.request_fields),
            **native_security(given.credentials, given.tls),
        }


class ProducerOptions(Options):
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
    create_topic_key: str = TEMPLATE_TOPIC
    retry_codes: Collection[int] | None = None
    namespace: str = ""
    latency_fault: bool = False
    fault_schedule: Sequence[tuple[float, float]] | None = None
    start_detector: bool = False
    detect_timeout: float = 0.2
    detect_interval: float = 2.0
    trace: bool = False
    trace_topic: str = TRACE_TOPIC
    durability: Durability | None = None
    vip_channel: bool = False
    unit_mode: bool = False
    unit_name: str = ""
    address_server: str | None = None
    max_in_flight: int = 16_384
    max_in_flight_bytes: int = 64 * 1024 * 1024
    linger: float = 0.005
    batch_bytes: int = 64 * 1024
    batch_messages: int = 1024
    hooks: Sequence[SendHook] = ()
    request_fields: Mapping[str, str] | None = None
    credentials: Credentials | None = None
    tls: Tls | None = None

    def __init__(self, **given: Any) -> None:  # noqa: ANN401 - each has its type above
        super().__init__(**given)
        if self.compression not in {"zlib", "lz4", "zstd"}:
            raise ConfigError(
                f"option `compression` is {self.compression!r}, it must be 'zlib', 'lz4' or 'zstd'"
            )
        if self.durability not in {None, "memory", "local"}:
            raise ConfigError(
                f"option `durability` is {self.durability!r}, it must be 'memory', 'local' or None"
            )
        for name, lowest in _WHOLE_NUMBERS.items():
            number = getattr(self, name)
            if number is not None or name != "compress_over_bytes":
                whole(name, number, lowest)
        if self.compress_level > 9:
            raise ConfigError(
                f"option `compress_level` is {self.compress_level}, it must be 0 to 9"
            )
        if milliseconds("linger", self.linger) > 60_000:
            raise ConfigError(f"option `linger` is {self.linger}, it must be 0 to 60 s")
        for hook in self.hooks:
            if not isinstance(hook, SendHook):
                raise ConfigError(f"option `hooks` has {hook!r}, it must be a `SendHook`")

    def native(self) -> dict[str, Any]:
        """The arguments of the native producer; its crate checks the ranges that it knows."""
        return {
            "client": self.client(),
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
            "durability": self.durability,
            "vip_channel": self.vip_channel,
            "unit_mode": self.unit_mode,
            "max_in_flight": self.max_in_flight,
            "max_in_flight_bytes": self.max_in_flight_bytes,
        }

    def batching(self) -> tuple[int, int, int]:
        """The native accumulator's linger in microseconds, bytes and messages of a batch."""
        return round(self.linger * 1_000_000), self.batch_bytes, self.batch_messages


class OtherProducerOptions(TypedDict, total=False):
    """A producer's options without its group, as keyword arguments of a constructor."""

    name_server: str | Sequence[str] | None
    instance_name: str
    send_timeout: float
    retries: int
    retry_not_stored_ok: bool
    compress_over_bytes: int | None
    compression: Compression
    compress_level: int
    max_message_bytes: int
    default_queues: int
    create_topic_key: str
    retry_codes: Collection[int] | None
    namespace: str
    latency_fault: bool
    fault_schedule: Sequence[tuple[float, float]] | None
    start_detector: bool
    detect_timeout: float
    detect_interval: float
    trace: bool
    trace_topic: str
    durability: Durability | None
    vip_channel: bool
    unit_mode: bool
    unit_name: str
    address_server: str | None
    max_in_flight: int
    max_in_flight_bytes: int
    linger: float
    batch_bytes: int
    batch_messages: int
    hooks: Sequence[SendHook]
    request_fields: Mapping[str, str] | None
    credentials: Credentials | None
    tls: Tls | None


def own_group(group: str) -> str:
    """Refuse the default group: brokers check transactions with any of its members.

    Raises:
        ConfigError: The group is the default one.
    """
    if group == ProducerOptions.group:
        raise ConfigError(
            f"option `group` is {group!r}, the default of every producer: give the producers of "
            "these transactions their own group, since brokers check with any member of it"
        )
    return group


_WHOLE_NUMBERS = {
    "retries": 0,
    "compress_over_bytes": 0,
    "compress_level": 0,
    "max_message_bytes": 0,
    "default_queues": 0,
    "max_in_flight": 0,
    "max_in_flight_bytes": 0,
    "batch_bytes": 1,
    "batch_messages": 1,
}
"""Options that are counts, each with its minimum; the native producer checks the others."""


class ConfiguredProducer(ABC):
    """The constructor that both forms of the producer have."""

    _checks = False  # Whether brokers may ask it how transactions ended.

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
        durability: Durability | None = ProducerOptions.durability,
        vip_channel: bool = ProducerOptions.vip_channel,
        unit_mode: bool = ProducerOptions.unit_mode,
        unit_name: str = ProducerOptions.unit_name,
        address_server: str | None = ProducerOptions.address_server,
        max_in_flight: int = ProducerOptions.max_in_flight,
        max_in_flight_bytes: int = ProducerOptions.max_in_flight_bytes,
        linger: float = ProducerOptions.linger,
        batch_bytes: int = ProducerOptions.batch_bytes,
        batch_messages: int = ProducerOptions.batch_messages,
        hooks: Sequence[SendHook] = ProducerOptions.hooks,
        request_fields: Mapping[str, str] | None = ProducerOptions.request_fields,
        credentials: Credentials | None = ProducerOptions.credentials,
        tls: Tls | None = ProducerOptions.tls,
    ) -> None:
        given = {name: value for name, value in locals().items() if name != "self"}
        self._options = ProducerOptions(**given)
        self._hooks = Hooks(hooks, group, namespace)
        self._open()

    @abstractmethod
    def _open(self) -> None:
        """Create the parts of this form, once the options are set."""
