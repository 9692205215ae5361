"""Spans and figures of received and processed messages.

Example:
    >>> from pyrmq import PushConsumer
    >>> hooks = [ConsumeTelemetry()]
    >>> consumer = PushConsumer(name_server="127.0.0.1:9876", group="kitchen", hooks=hooks)
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from opentelemetry import context, metrics, propagate, trace
from opentelemetry.trace import Link, SpanKind, Status, StatusCode

from pyrmq._client.hooks.consume import ConsumeHook, Consuming

if TYPE_CHECKING:
    from collections.abc import Iterable

    from opentelemetry.context import Context

    from pyrmq._client.hooks.consume import ConsumeOutcome
    from pyrmq.message import ReceivedMessage

__all__ = ["ConsumeTelemetry", "context_of"]

_NAME = "pyrmq"
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""The buckets of OpenTelemetry's conventions, in seconds; the SDK's own begin at 5 s."""


def context_of(message: ReceivedMessage) -> Context:
    """Return the trace context of a message: the parent, or a link, of its processing.

    Example:
        >>> parent = context_of(message)  # doctest: +SKIP
        >>> with tracer.start_as_current_span("cook", context=parent):  # doctest: +SKIP
        ...     cook(message.body)
    """
    return propagate.extract(message.properties)


class ConsumeTelemetry(ConsumeHook):
    """A hook for ``hooks=[...]`` of consumers: spans ``process <topic>`` and ``receive <topic>``.

    A listener's call is a span of kind CONSUMER, which is current while the listener runs. A poll
    that returns messages is a span of kind CLIENT for each topic. Both link to the spans in which
    the messages were sent. Attributes and metrics are those of OpenTelemetry's
    conventions for messaging: ``messaging.process.duration``,
    ``messaging.client.operation.duration`` (of polls) and ``messaging.client.consumed.messages``.
    One hook serves any number of consumers and threads.

    Args:
        tracer_provider: The global one without it.
        meter_provider: The global one without it.

    Example:
        >>> ConsumeTelemetry().after_receive(Consuming("orders", []))
    """

    def __init__(
        self,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
    ) -> None:
        self._tracer = trace.get_tracer(_NAME, tracer_provider=tracer_provider)
        meter = metrics.get_meter(_NAME, meter_provider=meter_provider)
        self._processing = meter.create_histogram(
            "messaging.process.duration",
            "s",
            "Time of a listener's call.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        self._receiving = meter.create_histogram(
            "messaging.client.operation.duration",
            "s",
            "Time of a poll that returned messages.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "Messages given to the application."
        )

    def after_receive(self, consuming: Consuming) -> None:
        """Write the span of a poll.

        Example:
            >>> ConsumeTelemetry().after_receive(Consuming("orders", []))
        """
        took = time.monotonic() - consuming.began
        attributes = _common(consuming, "receive")
        end_ns = time.time_ns()
        span = self._tracer.start_span(
            f"receive {consuming.topic}",
            kind=SpanKind.CLIENT,
            links=_links(consuming.messages),
            start_time=end_ns - round(took * 1e9),
        )
        if span.is_recording():
            span.set_attributes(attributes | _details(consuming))
        span.end(end_ns)
        self._receiving.record(took, attributes)
        self._consumed.add(len(consuming.messages), attributes)

    def before_process(self, consuming: Consuming) -> None:
        """Begin the span of a call, and make it the current one.

        Example:
            >>> ConsumeTelemetry().before_process(Consuming("orders", []))
        """
        # The current span of the thread or task, if any, did not cause this call.
        span = self._tracer.start_span(
            f"process {consuming.topic}",
            context=context.Context(),
            kind=SpanKind.CONSUMER,
            links=_links(consuming.messages),
        )
        if span.is_recording():
            span.set_attributes(_common(consuming, "process") | _details(consuming))
        token = context.attach(trace.set_span_in_context(span))
        consuming.notes[self] = span, token

    def after_process(
        self, consuming: Consuming, error: BaseException | None, outcome: ConsumeOutcome
    ) -> None:
        """End the span of a call.

        Example:
            >>> telemetry, consuming = ConsumeTelemetry(), Consuming("orders", [])
            >>> telemetry.before_process(consuming)
            >>> telemetry.after_process(consuming, None, "success")
        """
        span, token = consuming.notes.pop(self)
        context.detach(token)
        attributes = _common(consuming, "process")
        self._consumed.add(len(consuming.messages), attributes)
        if outcome != "success":
            attributes["error.type"] = outcome if error is None else type(error).__qualname__
            span.set_attribute("error.type", attributes["error.type"])
            span.set_status(Status(StatusCode.ERROR, outcome if error is None else str(error)))
            if error is not None:
                span.record_exception(error)
        span.set_attribute("pyrmq.outcome", outcome)
        span.end()
        self._processing.record(time.monotonic() - consuming.began, attributes)


def _links(messages: Iterable[ReceivedMessage]) -> list[Link]:
    contexts = (trace.get_current_span(context_of(one)).get_span_context() for one in messages)
    return [Link(one) for one in contexts if one.is_valid]


def _common(consuming: Consuming, operation: str) -> dict[str, Any]:
    return {
        "messaging.system": "rocketmq",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": consuming.topic,
        "messaging.consumer.group.name": consuming.group,
    }


def _details(consuming: Consuming) -> dict[str, Any]:
    """Attributes of the messages: the number of several; the origin and id of a single one."""
    attributes: dict[str, Any] = {
        "messaging.rocketmq.namespace": consuming.namespace,
        "messaging.rocketmq.client_group": consuming.group,
    }
    if consuming.client_id:
        attributes["messaging.client.id"] = consuming.client_id
    if len(consuming.messages) != 1:
        attributes["messaging.batch.message_count"] = len(consuming.messages)
        return attributes
    (message,) = consuming.messages
    attributes["messaging.message.id"] = message.message_id
    attributes["messaging.message.body.size"] = len(message.body)
    attributes["messaging.destination.partition.id"] = str(message.queue_id)
    attributes["pyrmq.broker"] = message.broker
    attributes["pyrmq.reconsume_times"] = message.reconsume_times
    if message.tags:
        attributes["messaging.rocketmq.message.tag"] = message.tags
    if message.keys:
        attributes["messaging.rocketmq.message.keys"] = list(message.keys)
    return attributes
