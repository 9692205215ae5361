"""Spans, their context in messages, and a producer's figures, as the SDK's exporters see them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode, get_current_span

from pyrmq import Message, Producer, PullConsumer, RmqError, RouteError, TransactionProducer, aio
from pyrmq.otel import Telemetry, context_of
from pyrmq.testing import cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyrmq import ReceivedMessage


NAME = "messaging.destination.name"
SENT = {
    "messaging.system": "rocketmq",
    "messaging.operation.name": "send",
    "messaging.operation.type": "send",
}


class Seen:
    """What the SDK has received."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader])
        self.hook = Telemetry(self.tracers, self.meters)

    def spans(self) -> list[Any]:
        """The spans that have ended."""
        return list(self.exporter.get_finished_spans())

    def figures(self) -> dict[str, Any]:
        """The data points of each metric, by its name."""
        data = self.reader.get_metrics_data()
        assert data is not None
        scopes = [scope for part in data.resource_metrics for scope in part.scope_metrics]
        return {m.name: list(m.data.data_points) for scope in scopes for m in scope.metrics}


@pytest.fixture
def seen() -> Iterator[Seen]:
    """A separate SDK: the global one is untouched."""
    one = Seen()
    yield one
    one.tracers.shutdown()
    one.meters.shutdown()


def read(address: str, topic: str, count: int) -> list[ReceivedMessage]:
    """Return the messages of a topic."""
    found: list[ReceivedMessage] = []
    with PullConsumer(name_server=address, group=f"{topic}-read") as consumer:
        consumer.subscribe(topic)
        while len(found) < count:
            messages = consumer.poll(timeout=10)
            assert messages, f"only {len(found)} of {count} came"
            found += messages
    return found


def test_a_send_is_a_span_whose_context_travels_with_the_message(
    address: str, topic: str, seen: Seen
) -> None:
    tracer = seen.tracers.get_tracer("test")
    with (
        tracer.start_as_current_span("order") as parent,
        Producer(name_server=address, hooks=[seen.hook]) as producer,
    ):
        result = producer.send(topic, "tea!", keys=["a", "b"], tags="hot", properties={"own": "1"})
    span = seen.spans()[0]
    assert (span.name, span.kind) == (f"send {topic}", SpanKind.PRODUCER)
    assert span.parent.span_id == parent.get_span_context().span_id
    assert dict(span.attributes) == {
        "messaging.system": "rocketmq",
        "messaging.client.id": producer._request_reply.core.client_id,
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": topic,
        "messaging.destination.partition.id": str(result.queue_id),
        "messaging.message.body.size": 4,
        "messaging.message.id": result.message_id,
        "messaging.rocketmq.message.keys": ("a", "b"),
        "messaging.rocketmq.message.tag": "hot",
        "messaging.rocketmq.message.type": "normal",
        "messaging.rocketmq.namespace": "",
        "messaging.rocketmq.client_group": "pyrmq_producer",
        "pyrmq.attempts": 1,
        "pyrmq.broker": result.broker,
        "pyrmq.kind": "send",
        "server.address": "127.0.0.1",
        "server.port": int(result.offset_message_id[8:16], 16),
    }
    [message] = read(address, topic, 1)
    assert message.properties["own"] == "1"
    context = get_current_span(context_of(message)).get_span_context()
    assert (context.trace_id, context.span_id) == (
        span.get_span_context().trace_id,
        span.get_span_context().span_id,
    )


def test_every_way_of_sending_is_a_span(address: str, topic: str, seen: Seen) -> None:
    with TransactionProducer(
        check=lambda _: pytest.fail("asked"), name_server=address, group=topic, hooks=[seen.hook]
    ) as producer:
        producer.produce(topic, b"1")
        producer.send_async(topic, b"2").result(timeout=10)
        producer.send_batch(topic, ["3", Message(topic, b"4")])
        producer.send_oneway(topic, b"5")
        producer.flush()
        with seen.tracers.get_tracer("test").start_as_current_span("outer"):
            producer.send_in_transaction(topic, b"6", lambda _: None)
        with pytest.raises(RouteError):
            producer.send(topic, b"x", queue=99)
    spans = seen.spans()
    kinds = [span.attributes["pyrmq.kind"] for span in spans if "pyrmq.kind" in span.attributes]
    assert sorted(kinds) == ["batch", "half", "oneway", "send", "send", "send"]
    by_kind = {span.attributes.get("pyrmq.kind"): span for span in spans}
    assert by_kind["batch"].attributes["messaging.batch.message_count"] == 2
    assert by_kind["half"].attributes["messaging.rocketmq.message.type"] == "transaction"
    failed = spans[-1]
    assert failed.status.status_code is StatusCode.ERROR
    assert failed.attributes["error.type"] == "RouteError"
    [outer] = [span for span in spans if span.name == "outer"]
    assert [event.attributes["pyrmq.transaction.state"] for event in outer.events] == ["COMMIT"]
    assert all("traceparent" in message.properties for message in read(address, topic, 6))


def test_the_asynchronous_form_is_traced_too(address: str, topic: str, seen: Seen) -> None:
    async def main() -> None:
        async with aio.Producer(name_server=address, hooks=[seen.hook]) as producer:
            with seen.tracers.get_tracer("test").start_as_current_span("outer"):
                await asyncio.gather(*(producer.send(topic, str(n)) for n in range(5)))

    asyncio.run(asyncio.wait_for(main(), 25))
    *sends, outer = seen.spans()
    assert [span.parent.span_id for span in sends] == [outer.get_span_context().span_id] * 5
    assert len({message.properties["traceparent"] for message in read(address, topic, 5)}) == 5


def test_a_producers_figures_are_instruments(address: str, topic: str, seen: Seen) -> None:
    with Producer(name_server=address, hooks=[seen.hook]) as producer:
        seen.hook.observe(producer, group="shop")
        for number in range(10):
            producer.produce(topic, str(number))
        producer.flush()
        figures = seen.figures()
        [point] = figures["pyrmq.producer.confirmed"]
        assert (point.value, dict(point.attributes)) == (
            10,
            {"messaging.system": "rocketmq", "group": "shop"},
        )
        [point] = figures["messaging.client.sent.messages"]
        assert (point.value, dict(point.attributes)) == (10, SENT | {NAME: topic})
        assert figures["pyrmq.producer.in_flight"][0].value == 0
        assert figures["messaging.client.operation.duration"][0].count == 10
        with Producer(name_server=address) as other:
            seen.hook.observe(other, group="other")
            assert len(seen.figures()["pyrmq.producer.frames"]) == 2


def test_the_kind_of_a_message_follows_the_conventions(
    address: str, topic: str, seen: Seen
) -> None:
    at = datetime.now(UTC) + timedelta(seconds=1)
    with Producer(
        name_server=address, group="shop", namespace="dev", hooks=[seen.hook]
    ) as producer:
        producer.send(topic, b"1")
        producer.send(topic, b"2", sharding_key="order-1")
        producer.send(topic, b"3", delay_level=1)
        producer.send_async(topic, b"4", deliver_at=at).result(timeout=10)
        producer.produce(topic, b"5", sharding_key="order-2")
        producer.flush()
    shown = []
    for span in sorted(seen.spans(), key=lambda span: span.start_time):
        told = {
            key.removeprefix("messaging.rocketmq."): value
            for key, value in span.attributes.items()
            if key.startswith("messaging.rocketmq.")
        }
        assert (told.pop("namespace"), told.pop("client_group")) == ("dev", "shop")
        shown.append(told)
    assert shown == [
        {"message.type": "normal"},
        {"message.type": "fifo", "message.group": "order-1"},
        {"message.type": "delay", "message.delay_time_level": 1},
        {
            "message.type": "delay",
            "message.delivery_timestamp": round(at.timestamp() * 1000),
        },
        {"message.type": "fifo", "message.group": "order-2"},
    ]


def test_the_duration_has_buckets_that_separate_fast_sends_from_slow_ones(
    address: str, topic: str, seen: Seen
) -> None:
    with Producer(name_server=address, hooks=[seen.hook]) as producer:
        producer.send(topic, b"1")
    [point] = seen.figures()["messaging.client.operation.duration"]
    assert point.explicit_bounds[0] == 0.005
    assert point.explicit_bounds[-1] == 10
    assert dict(point.attributes).items() >= (SENT | {NAME: topic}).items()


def test_attempts_that_fail_are_counted_with_their_error(topic: str, seen: Seen) -> None:
    with (
        cluster() as running,
        Producer(
            name_server=running.name_server, retries=0, send_timeout=2, hooks=[seen.hook]
        ) as producer,
    ):
        producer.send(topic, b"1", timeout=20)
        running.broker.stop()
        with pytest.raises(RmqError) as caught:
            producer.send(topic, b"2")
    failed = len(caught.value.attempts)
    assert failed > 0
    points = seen.figures()["messaging.client.sent.messages"]
    counted = {point.attributes.get("error.type"): point.value for point in points}
    assert counted == {None: 1, type(caught.value).__name__: failed}


def test_without_the_extra_the_import_says_what_to_install_and_nothing_else_needs_it() -> None:
    program = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "import pyrmq.producer\n"
        "try: import pyrmq.otel\n"
        "except ImportError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=25, check=True
    )
    assert done.stdout == "pyrmq.otel needs opentelemetry-api: pip install 'pyrmq-rocketmq[otel]'\n"
