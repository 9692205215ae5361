"""Spans and figures of sent messages, and the trace context in the messages."""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from opentelemetry import metrics, propagate, trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode

from pyrmq._client.hooks.send import SendHook, Sending
from pyrmq._client.stats import ProducerStats
from pyrmq._names import Property
from pyrmq.errors import BatchSendError, RmqError
from pyrmq.message import TransactionState

__all__ = ["Telemetry"]

_SYSTEM = "rocketmq"
_NAME = "pyrmq"
_COUNTERS = {
    "pyrmq.producer.confirmed": ("confirmed", "{message}", "Messages that brokers stored."),
    "pyrmq.producer.failed": ("failed", "{message}", "Messages that failed."),
    "pyrmq.producer.retries": ("retries", "{frame}", "Attempts beyond the first."),
    "pyrmq.producer.frames": ("frames", "{frame}", "Frames sent; a batch is one."),
    "pyrmq.producer.batches": ("batches", "{frame}", "Frames that were batches."),
    "pyrmq.producer.batched": ("batched", "{message}", "Messages in batches."),
    "pyrmq.producer.dropped_traces": ("dropped_traces", "{trace}", "Traces that were dropped."),
}
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""The buckets of OpenTelemetry's conventions, in seconds; the SDK's own begin at 5 s."""
_GAUGES = {
    "pyrmq.producer.in_flight": ("in_flight", "{message}", "Messages in flight."),
    "pyrmq.producer.in_flight.bytes": ("in_flight_bytes", "By", "Bytes of bodies in flight."),
    "pyrmq.producer.window": ("window", "{message}", "Maximum messages in flight now."),
}


class Observed(Protocol):
    """The part of a producer, blocking or async, that its figures need."""

    def stats(self) -> ProducerStats:
        """Its counters."""
        ...


class Telemetry(SendHook):
    """A hook for ``hooks=[...]``: spans ``send <topic>`` of kind PRODUCER, and their figures.

    Spans, attributes and metrics are those of OpenTelemetry's conventions for messaging and
    RocketMQ. ``messaging.client.operation.duration`` is the duration of a send in seconds, with
    its retries. ``messaging.client.sent.messages`` counts each attempt to send a message; failed
    ones have ``error.type``. The configured propagator writes the context into the messages'
    properties (``traceparent``), where consumers of any language find it. One hook serves any
    number of producers and threads.

    Args:
        tracer_provider: The global one without it.
        meter_provider: The global one without it.

    Example:
        >>> Telemetry().before_send(Sending("send", "orders", b"tea"))
    """

    def __init__(
        self,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
    ) -> None:
        self._tracer = trace.get_tracer(_NAME, tracer_provider=tracer_provider)
        self._meter = metrics.get_meter(_NAME, meter_provider=meter_provider)
        self._duration = self._meter.create_histogram(
            "messaging.client.operation.duration",
            "s",
            "Time of a send, retries included.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        self._sent = self._meter.create_counter(
            "messaging.client.sent.messages",
            "{message}",
            "Attempts to send a message.",
        )
        self._observed: WeakKeyDictionary[Observed, Mapping[str, str]] = WeakKeyDictionary()
        self._watching = False

    def before_send(self, sending: Sending) -> None:
        """Begin the span, and put its context among the message's properties.

        Example:
            >>> Telemetry().before_send(Sending("send", "orders", b"tea"))
        """
        span = self._tracer.start_span(f"send {sending.topic}", kind=SpanKind.PRODUCER)
        sending.notes[self] = span, time.monotonic()
        propagate.inject(sending.properties, trace.set_span_in_context(span))
        if span.is_recording():
            span.set_attributes(_attributes_of(sending))

    def after_send(self, sending: Sending, error: BaseException | None, result: Any) -> None:  # noqa: ANN401 - by kind
        """End the span.

        Example:
            >>> telemetry, sending = Telemetry(), Sending("send", "orders", b"tea")
            >>> telemetry.before_send(sending)
            >>> telemetry.after_send(sending, None, None)
        """
        span, began = sending.notes.pop(self)
        took = time.monotonic() - began
        attributes = _common(sending.topic)
        failed, delivered = _attempts(error, result)
        if failed:
            self._sent.add(failed, {**attributes, "error.type": _error_type(error)})
        if delivered:
            self._sent.add(delivered, attributes)
        server = _server_of(error if error is not None else result)
        if error is not None:
            attributes["error.type"] = _error_type(error)
            span.set_attribute("error.type", _error_type(error))
            span.record_exception(error)
            span.set_status(Status(StatusCode.ERROR, str(error)))
        elif span.is_recording():
            _describe(span, result)
        span.set_attributes(server)
        span.end()
        self._duration.record(took, {**attributes, **server})

    def after_transaction(
        self, topic: str, message_id: str, state: TransactionState, *, asked: bool
    ) -> None:
        """Note the end of a transaction as an event of the current span.

        Example:
            >>> end = TransactionState.COMMIT
            >>> Telemetry().after_transaction("t", "0A", end, asked=False)
        """
        trace.get_current_span().add_event(
            "pyrmq.transaction.end",
            {
                "messaging.destination.name": topic,
                "messaging.message.id": message_id,
                "pyrmq.transaction.state": state.name,
                "pyrmq.transaction.asked": asked,
            },
        )

    def observe(self, producer: Observed, **attributes: str) -> None:
        """Observe a producer's statistics by instruments, until the producer is freed.

        Args:
            producer: The producer, blocking or async; it is not kept alive.
            attributes: Attributes of each of its figures, to distinguish several producers.

        Example:
            >>> telemetry.observe(producer, group="shop")  # doctest: +SKIP
        """
        self._observed[producer] = {"messaging.system": _SYSTEM, **attributes}
        if self._watching:
            return
        self._watching = True
        for name, (field, unit, text) in _COUNTERS.items():
            self._meter.create_observable_counter(name, [self._reader(field)], unit, text)
        for name, (field, unit, text) in _GAUGES.items():
            self._meter.create_observable_up_down_counter(name, [self._reader(field)], unit, text)

    def _reader(
        self, field: str
    ) -> Callable[[metrics.CallbackOptions], Iterable[metrics.Observation]]:
        def read(_: metrics.CallbackOptions) -> Iterable[metrics.Observation]:
            for producer, attributes in list(self._observed.items()):
                yield metrics.Observation(getattr(producer.stats(), field), attributes)

        return read


def _common(topic: str) -> dict[str, str]:
    return {
        "messaging.system": _SYSTEM,
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": topic,
    }


def _attributes_of(sending: Sending) -> dict[str, Any]:
    attributes: dict[str, Any] = _common(sending.topic)
    attributes["pyrmq.kind"] = sending.kind
    attributes["messaging.rocketmq.namespace"] = sending.namespace
    attributes["messaging.rocketmq.client_group"] = sending.group
    if sending.client_id:
        attributes["messaging.client.id"] = sending.client_id
    if sending.kind == "half":
        attributes["messaging.rocketmq.message.type"] = "transaction"
    elif sending.when:
        attributes["messaging.rocketmq.message.type"] = "delay"
    elif sending.sharding_key is not None:
        attributes["messaging.rocketmq.message.type"] = "fifo"
    elif sending.kind != "batch":
        attributes["messaging.rocketmq.message.type"] = "normal"
    if sending.sharding_key is not None:
        attributes["messaging.rocketmq.message.group"] = sending.sharding_key
    if isinstance(sending.when, int):
        if sending.when:
            attributes["messaging.rocketmq.message.delay_time_level"] = sending.when
    else:
        key, text = sending.when
        after = 0 if key == Property.TIMER_DELIVER_MS else time.time() * 1000
        attributes["messaging.rocketmq.message.delivery_timestamp"] = round(after) + int(text)
    if isinstance(sending.body, str):
        attributes["messaging.message.body.size"] = len(sending.body.encode())
    elif isinstance(sending.body, bytes | bytearray | memoryview):
        attributes["messaging.message.body.size"] = memoryview(sending.body).nbytes
    if sending.tags:
        attributes["messaging.rocketmq.message.tag"] = sending.tags
    if sending.keys:
        keys = sending.keys.split(" ") if isinstance(sending.keys, str) else list(sending.keys)
        attributes["messaging.rocketmq.message.keys"] = keys
    return attributes


def _error_type(error: BaseException | None) -> str:
    """The class of a failure; for an attempt that a later one replaced, the root class."""
    return type(error).__qualname__ if error is not None else RmqError.__qualname__


def _attempts(error: BaseException | None, result: object) -> tuple[int, int]:
    """The numbers of failed and of answered attempts to send messages."""
    if isinstance(error, BatchSendError):
        return _attempts_of(error.results)
    if error is not None:
        return _failures(error), 0
    return _attempts_of(result if isinstance(result, list) else [result])


def _failures(error: BaseException) -> int:
    """The number of attempts that an error lists; a long list has only the first and the last."""
    attempts = error.attempts if isinstance(error, RmqError) else ()
    return attempts[-1].number if attempts else 0


def _attempts_of(outcomes: Iterable[object]) -> tuple[int, int]:
    failed, answered = 0, 0
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            failed += _failures(outcome)
        else:
            # A one-way message has no result and was sent once.
            failed += getattr(outcome, "attempts", 1) - 1
            answered += 1
    return failed, answered


_IPV4_ID = 32
"""Digits of an offset message id with an address of four bytes: address, port, log offset."""


def _server_of(outcome: object) -> dict[str, str | int]:
    """Address and port of the broker that stored a message, if the outcome contains them."""
    if isinstance(outcome, list):
        outcome = outcome[0] if len(outcome) == 1 else None
    offset_id = getattr(outcome, "offset_message_id", None)
    # A batch has several ids, separated by commas.
    offset_id = offset_id.partition(",")[0] if isinstance(offset_id, str) else ""
    if len(offset_id) != _IPV4_ID:
        return {}
    host = ".".join(str(byte) for byte in bytes.fromhex(offset_id[:8]))
    return {"server.address": host, "server.port": int(offset_id[8:16], 16)}


def _describe(span: Span, result: object) -> None:
    """Add the outcome to a span: the size of a batch, or where a message is stored."""
    if isinstance(result, list):
        span.set_attribute("messaging.batch.message_count", len(result))
        result = result[0] if len(result) == 1 else None
    identity = getattr(result, "message_id", None)
    if identity is None:
        return
    span.set_attribute("messaging.message.id", identity)
    span.set_attribute("messaging.destination.partition.id", str(result.queue_id))  # type: ignore[attr-defined]
    span.set_attribute("pyrmq.broker", result.broker)  # type: ignore[attr-defined]
    span.set_attribute("pyrmq.attempts", result.attempts)  # type: ignore[attr-defined]
