"""Hooks of consumers, their spans, and Apache's traces of consumed messages."""

from __future__ import annotations

import asyncio
import logging
import threading
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry import trace as otel
from opentelemetry.trace import SpanKind, StatusCode
from tests.e2e.test_aio_push import until
from tests.e2e.test_otel import Seen
from tests.e2e.test_pull_verbs import polled
from tests.e2e.test_push import make
from tests.e2e.wire import await_true

from pyrmq import Admin, ConfigError, Producer, PullConsumer, PushConsumer, ReconsumeLater, aio
from pyrmq._client.options.consumer import ConsumerOptions
from pyrmq.consumer import ConsumeHook, Consuming
from pyrmq.consumer.trace import Trace
from pyrmq.otel import ConsumeTelemetry
from pyrmq.testing import cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyrmq.consumer import ConsumeOutcome


@pytest.fixture
def seen() -> Iterator[Seen]:
    """A separate SDK: the global one is untouched."""
    one = Seen()
    yield one
    one.tracers.shutdown()
    one.meters.shutdown()


class Noting(ConsumeHook):
    """Notes what it sees."""

    def __init__(self) -> None:
        self.noted: list[tuple[str, str, int, str]] = []

    def before_process(self, consuming: Consuming) -> None:
        """Note a begin."""
        self.noted.append(("before", consuming.topic, len(consuming.messages), ""))

    def after_process(
        self, consuming: Consuming, error: BaseException | None, outcome: ConsumeOutcome
    ) -> None:
        """Note an end."""
        told = f"{outcome} {type(error).__name__}" if error else outcome
        self.noted.append(("after", consuming.topic, len(consuming.messages), told))


class Broken(ConsumeHook):
    """Raises."""

    def before_process(self, consuming: Consuming) -> None:
        """Fail."""
        raise LookupError(consuming.topic)


def test_hooks_see_each_call_and_their_faults_change_nothing(
    address: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    make(address, topic, ["good", "bad"], queues=1)
    noting = Noting()

    def listener(body: str) -> None:
        if body == "bad":
            raise ValueError(body)

    consumer = PushConsumer(
        name_server=address, group=f"g-{topic}", hooks=[noting, Broken()], threads=1
    )
    consumer.subscribe(topic, listener)
    with caplog.at_level(logging.ERROR, "pyrmq.consumer"), consumer:
        await_true(lambda: len(noting.noted) == 4, 10)
        await_true(lambda: consumer.stats()["done"] == 1 and consumer.stats()["later"] == 1, 10)
    assert sorted(noting.noted) == [
        ("after", topic, 1, "later ValueError"),
        ("after", topic, 1, "success"),
        ("before", topic, 1, ""),
        ("before", topic, 1, ""),
    ]
    assert "a hook raised LookupError" in caplog.text
    with pytest.raises(ConfigError, match="ConsumeHook"):
        PushConsumer(name_server=address, group="g", hooks=[print])  # type: ignore[list-item]


class Ends(ConsumeHook):
    """Raises what is no `Exception`, at first."""

    def __init__(self, kind: type[BaseException]) -> None:
        self.kind = kind
        self.raised: list[str] = []

    def _raise(self, where: str) -> None:
        if where not in self.raised:
            self.raised.append(where)
            raise self.kind(f"a hook that ends {where}")

    def after_receive(self, consuming: Consuming) -> None:
        """End."""
        self._raise("received")

    def before_process(self, consuming: Consuming) -> None:
        """End."""
        self._raise("before")

    def after_process(
        self, consuming: Consuming, error: BaseException | None, outcome: ConsumeOutcome
    ) -> None:
        """End."""
        self._raise("after")


@pytest.mark.parametrize("kind", [SystemExit, asyncio.CancelledError])
def test_a_hook_that_ends_changes_nothing_for_the_messages_of_a_listener(
    address: str, topic: str, kind: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    make(address, topic, ["one", "two"], queues=1)
    noting, ends = Noting(), Ends(kind)
    handled: list[str] = []

    def listener(body: str) -> None:
        handled.append(body)

    consumer = PushConsumer(
        name_server=address, group=f"g-{topic}", hooks=[noting, ends], threads=1
    )
    consumer.subscribe(topic, listener)
    with consumer:
        await_true(lambda: consumer.stats()["done"] == 2, 10)
        assert consumer.stats()["later"] == 0
    assert sorted(handled) == ["one", "two"]
    assert [what for what, *_ in noting.noted] == ["before", "after"] * 2
    assert ends.raised == ["before", "after"]
    assert "a hook that ends after" in caplog.text


def test_a_poll_raises_what_ends_the_program_once_all_hooks_were_called(
    address: str, topic: str
) -> None:
    make(address, topic, ["one"], queues=1)
    received: list[int] = []

    class Counts(ConsumeHook):
        def after_receive(self, consuming: Consuming) -> None:
            received.append(len(consuming.messages))

    hooks = [Ends(SystemExit), Counts()]
    with PullConsumer(name_server=address, group=f"g-{topic}", hooks=hooks) as consumer:
        consumer.subscribe(topic)
        with pytest.raises(SystemExit, match="received"):
            polled(consumer, 1)
    assert received == [1]


def test_polls_of_two_threads_whose_hooks_end_the_program_are_both_repeated(
    address: str, topic: str
) -> None:
    make(address, topic, [], queues=1)
    is_stopping = {0: threading.Event(), 5: threading.Event()}
    reached: list[int] = []

    class Stops(ConsumeHook):
        def after_receive(self, consuming: Consuming) -> None:
            first = consuming.messages[0].queue_offset
            if first in is_stopping and first not in reached:
                reached.append(first)
                assert is_stopping[first].wait(10)
                raise SystemExit

    with PullConsumer(name_server=address, group=f"g-{topic}", hooks=[Stops()]) as consumer:
        with Producer(name_server=address) as producer:
            producer.send_batch(topic, [b"x"] * 10, queue=consumer.queues(topic)[0])
        consumer.subscribe(topic)

        def poll() -> None:
            with pytest.raises(SystemExit):
                consumer.poll(5, 10)

        threads = [threading.Thread(target=poll) for _ in is_stopping]
        for first, thread in zip(is_stopping, threads, strict=True):
            thread.start()
            await_true(partial(reached.__contains__, first), 10)
        # The poll of the later messages gives them back last.
        for thread, first in zip(threads, reached, strict=True):
            is_stopping[first].set()
            thread.join(10)
        assert [message.queue_offset for message in polled(consumer, 10)] == [*range(10)]


def test_a_call_is_a_span_linked_to_the_send(address: str, topic: str, seen: Seen) -> None:
    make(address, topic, [], queues=1)
    with Producer(name_server=address, hooks=[seen.hook]) as producer:
        sent = producer.send(topic, "tea", keys="k1", tags="hot")
    current: list[int] = []

    def listener(body: str) -> None:
        current.append(otel.get_current_span().get_span_context().span_id)
        if len(current) == 1:
            raise ReconsumeLater(pause=0.01)

    hook = ConsumeTelemetry(seen.tracers, seen.meters)
    consumer = PushConsumer(name_server=address, group=f"g-{topic}", hooks=[hook])
    consumer.subscribe(topic, listener)
    with consumer:
        await_true(lambda: len(current) == 2 and consumer.stats()["done"] == 1, 10)
    send, failed, good = sorted(seen.spans(), key=lambda span: span.start_time)
    assert [failed.get_span_context().span_id, good.get_span_context().span_id] == current
    for span in (failed, good):
        assert (span.name, span.kind, span.parent) == (f"process {topic}", SpanKind.CONSUMER, None)
        assert [link.context.span_id for link in span.links] == [send.get_span_context().span_id]
        attributes = dict(span.attributes)
        assert attributes["messaging.message.id"] == sent.message_id
        assert attributes["messaging.operation.type"] == "process"
        assert attributes["messaging.consumer.group.name"] == f"g-{topic}"
        assert attributes["messaging.rocketmq.message.keys"] == ("k1",)
    assert failed.status.status_code is StatusCode.ERROR
    assert (failed.attributes["pyrmq.outcome"], good.attributes["pyrmq.outcome"]) == (
        "again",
        "success",
    )
    figures = seen.figures()
    assert sum(point.count for point in figures["messaging.process.duration"]) == 2
    assert sum(point.value for point in figures["messaging.client.consumed.messages"]) == 2


def test_a_poll_is_a_span_with_a_link_for_each_message(
    address: str, topic: str, seen: Seen
) -> None:
    make(address, topic, [], queues=1)
    with Producer(name_server=address, hooks=[seen.hook]) as producer:
        for number in range(6):
            producer.send(topic, str(number))
    hook = ConsumeTelemetry(seen.tracers, seen.meters)
    with PullConsumer(name_server=address, group=f"g-{topic}", hooks=[hook]) as consumer:
        consumer.subscribe(topic)
        polled(consumer, 6)
    polls = [span for span in seen.spans() if span.name == f"receive {topic}"]
    assert all(span.kind is SpanKind.CLIENT for span in polls)
    sends = {span.get_span_context().span_id for span in seen.spans()} - {
        span.get_span_context().span_id for span in polls
    }
    links = [link.context.span_id for span in polls for link in span.links]
    assert sorted(links) == sorted(sends)


def test_the_asynchronous_form_has_hooks_too(address: str, topic: str, seen: Seen) -> None:
    make(address, topic, [str(number) for number in range(10)], queues=1)
    hook = ConsumeTelemetry(seen.tracers, seen.meters)
    current: set[int] = set()

    async def main() -> None:
        consumer = aio.PushConsumer(name_server=address, group=f"g-{topic}", hooks=[hook])

        @consumer.listener(topic)
        async def handle(body: str) -> None:
            await asyncio.sleep(0.01)
            current.add(otel.get_current_span().get_span_context().span_id)

        async with consumer:
            await until(lambda: consumer.stats()["done"] == 10)

    asyncio.run(main())
    assert {span.get_span_context().span_id for span in seen.spans()} == current
    assert len(current) == 10


def test_a_silent_broker_of_traces_does_not_hold_up_the_end() -> None:
    with cluster(brokers=2, faults=True) as running:
        address, (first, second) = running.name_server, running.brokers
        with Admin(name_server=address) as admin:
            admin.create_topic("T", brokers=[first.name])
            admin.create_topic("traces", brokers=[second.name])
        consumer = PushConsumer(name_server=address, group="g", trace=True, trace_topic="traces")
        consumer.subscribe("T", lambda _: None)
        with consumer, Producer(name_server=address) as producer:
            assert consumer._trace is not None
            second.network.silence()
            producer.send_batch("T", ["x"] * 40)
            await_true(lambda: consumer.stats()["done"] == 40, 20)
            # From here on its own thread waits for the broker.
            await_true(lambda: not consumer._trace._waiting, 20)
            producer.send_batch("T", ["x"] * 400)
            await_true(lambda: consumer.stats()["done"] == 440, 20)
            began = monotonic()
            consumer.close()
            # A message with traces has 3 s by itself, and there are at least 20.
            assert monotonic() - began < 20
            # Both contexts of each message.
            assert consumer._trace.dropped == 880


@pytest.mark.parametrize("form", ["threads", "asyncio"])
def test_traces_of_consumed_messages_have_apaches_form(address: str, topic: str, form: str) -> None:
    traces = f"{topic}-traces"
    make(address, traces, [], queues=1)
    make(address, topic, [], queues=1)
    with Producer(name_server=address) as producer:
        sent = producer.send(topic, "good", keys=["a", "b"])
        producer.send(topic, "bad")
    group = f"g-{topic}"
    options = {"name_server": address, "group": group, "trace": True, "trace_topic": traces}
    if form == "threads":
        consumer = PushConsumer(**options)  # type: ignore[arg-type]

        def listener(body: str) -> None:
            if body == "bad":
                raise ValueError(body)

        consumer.subscribe(topic, listener)
        with consumer:
            await_true(lambda: sum(consumer.stats()[key] for key in ("done", "later")) == 2, 10)
    else:

        async def main() -> None:
            listening = aio.PushConsumer(**options)  # type: ignore[arg-type]

            @listening.listener(topic)
            async def handle(body: str) -> None:
                if body == "bad":
                    raise ValueError(body)

            async with listening:
                await until(lambda: sum(listening.stats()[key] for key in ("done", "later")) == 2)

        asyncio.run(main())
    rows, _ = read_traces(address, traces, rows=4)
    before = [row for row in rows if row[0] == "SubBefore"]
    after = {row[1]: row for row in rows if row[0] == "SubAfter"}
    assert len(before) == len(after) == 2
    good = next(row for row in before if row[5] == sent.message_id)
    assert (good[3], good[6], good[7]) == (group, "0", "a b")
    end = after[good[4]]
    assert (end[2], end[4], end[5], end[6], end[8]) == (sent.message_id, "true", "a b", "0", group)
    bad = next(row for row in before if row is not good)
    assert (after[bad[4]][4], after[bad[4]][6]) == ("false", "2")


def read_traces(address: str, traces: str, *, rows: int) -> tuple[list[list[str]], list[str]]:
    """Read the trace topic: the fields of each message's traces, and the keys that find them."""
    found: list[list[str]] = []
    keys: list[str] = []
    with PullConsumer(name_server=address, group=f"looks-{traces}") as looker:
        looker.subscribe(traces)

        def has_all() -> bool:
            for message in looker.poll(timeout=0.2):
                contexts = message.body.decode().split("\x02")
                found.extend(context.split("\x01") for context in contexts if context)
                keys.extend(message.keys)
            return len(found) >= rows

        await_true(has_all, 20)
    return found, keys


@pytest.mark.parametrize("form", ["list", "batch", "iteration", "asyncio"])
def test_what_a_poll_returns_is_traced_as_apaches_lite_pull_does(
    address: str, topic: str, form: str
) -> None:
    traces = f"{topic}-traces"
    make(address, traces, [], queues=1)
    make(address, topic, [], queues=1)
    with Producer(name_server=address) as producer:
        sent = [producer.send(topic, "1", keys=["a", "b"]), producer.send(topic, "2")]
    group = f"g-{topic}"
    options = {"name_server": address, "group": group, "trace": True, "trace_topic": traces}
    if form == "asyncio":

        async def main() -> None:
            async with aio.PullConsumer(**options) as consumer:  # type: ignore[arg-type]
                await consumer.subscribe(topic)
                seen = 0
                while seen < 2:
                    seen += len(await consumer.poll(timeout=10))

        asyncio.run(main())
    else:
        with PullConsumer(**options) as consumer:  # type: ignore[arg-type]
            consumer.subscribe(topic)
            if form == "list":
                polled(consumer, 2)
            elif form == "iteration":
                for _, message in zip(range(2), consumer, strict=False):
                    assert message.topic == topic
            else:
                seen = 0
                while seen < 2:
                    seen += len(consumer.poll_batch(timeout=10))
    # The end of the consumer has sent them.
    rows, keys = read_traces(address, traces, rows=4)
    before = {row[5]: row for row in rows if row[0] == "SubBefore"}
    after = {row[2]: row for row in rows if row[0] == "SubAfter"}
    assert len(rows) == 4
    for one, wanted in zip(sent, ("a b", "null"), strict=True):
        begin, end = before[one.message_id], after[one.message_id]
        assert (begin[3], begin[6], begin[7]) == (group, "0", wanted)
        assert end[1] == begin[4]
        # No time, and success: what becomes of the messages is not known.
        assert (end[3], end[4], end[5], end[6], end[8]) == ("0", "true", wanted, "0", group)
    assert {"a", "b", *(one.message_id for one in sent)} <= set(keys)


def test_traces_of_a_large_poll_are_found_by_the_id_of_each_message(
    address: str, topic: str
) -> None:
    traces = f"{topic}-traces"
    make(address, traces, [], queues=1)
    make(address, topic, [], queues=1)
    with Producer(name_server=address) as producer:
        producer.send_batch(topic, ["x"] * 2000)
    with PullConsumer(
        name_server=address, group=f"g-{topic}", trace=True, trace_topic=traces
    ) as consumer:
        consumer.subscribe(topic)
        ids: set[str] = set()
        while len(ids) < 2000:
            messages = consumer.poll(2048, timeout=10)
            assert messages
            ids |= {message.message_id for message in messages}
    rows, keys = read_traces(address, traces, rows=4000)
    assert len(rows) == 4000
    assert ids <= set(keys)


def a_poll(address: str, topic: str) -> tuple[ConsumerOptions, Consuming]:
    """Poll a message; return options with a topic for traces, and what hooks see of the poll."""
    traces = f"{topic}-traces"
    make(address, traces, [], queues=1)
    make(address, topic, ["x"], queues=1)
    with PullConsumer(name_server=address, group=f"g-{topic}") as consumer:
        consumer.subscribe(topic)
        messages = polled(consumer, 1)
    options = ConsumerOptions(name_server=address, group=f"g-{topic}", trace_topic=traces)
    return options, Consuming(topic, messages)


def test_traces_are_sent_before_their_list_is_full(address: str, topic: str) -> None:
    options, consuming = a_poll(address, topic)
    calls: list[int] = []
    trace = Trace(options, lambda: calls.append(len(trace._waiting)))
    # Two contexts each.
    for _ in range(512):
        trace.after_receive(consuming)
    assert calls == []
    for _ in range(512):
        trace.after_receive(consuming)
    assert calls == [1025], "asked for once"
    assert trace.dropped == 0
    trace.after_receive(consuming)
    assert trace.dropped == 2, "the list is full"
    trace.close()
    rows, _ = read_traces(address, options.trace_topic, rows=2048)
    assert len(rows) == 2048


def test_a_signal_handler_may_close_a_trace_that_is_being_written(address: str, topic: str) -> None:
    class Interrupted(list[Any]):
        """A list in whose `append` a signal arrives."""

        def append(self, context: object) -> None:
            super().append(context)
            trace.close()
            closed.append(True)

    options, consuming = a_poll(address, topic)
    closed: list[bool] = []
    trace = Trace(options, lambda: None)
    trace._waiting = Interrupted()
    poll = threading.Thread(target=trace.after_receive, args=[consuming], daemon=True)
    poll.start()
    poll.join(30)
    assert closed


class EndsOnce(ConsumeHook):
    """Ends the first poll."""

    def __init__(self) -> None:
        self.has_ended = False

    def after_receive(self, consuming: Consuming) -> None:
        """End the program, once."""
        if not self.has_ended:
            self.has_ended = True
            raise SystemExit


@pytest.mark.parametrize("form", ["list", "batch"])
def test_messages_of_a_poll_that_a_hook_has_ended_come_again(
    address: str, topic: str, form: str
) -> None:
    make(address, topic, ["0", "1", "2"], queues=1)
    with PullConsumer(name_server=address, group=f"g-{topic}", hooks=[EndsOnce()]) as consumer:
        consumer.subscribe(topic)

        def poll() -> list[bytes]:
            if form == "batch":
                return consumer.poll_batch(timeout=3.0).bodies
            return [message.body for message in consumer.poll(timeout=3.0)]

        with pytest.raises(SystemExit):
            poll()
        found = poll()
        while len(found) < 3:
            more = poll()
            assert more, f"only {found} came again"
            found += more
        assert sorted(found) == [b"0", b"1", b"2"]


def test_messages_of_a_poll_in_a_loop_that_a_hook_has_ended_come_again(
    address: str, topic: str
) -> None:
    make(address, topic, ["0", "1", "2"], queues=1)

    async def main() -> None:
        async with aio.PullConsumer(
            name_server=address, group=f"g-{topic}", hooks=[EndsOnce()]
        ) as consumer:
            await consumer.subscribe(topic)
            with pytest.raises(SystemExit):
                await consumer.poll(timeout=3)
            found: list[bytes] = []
            while len(found) < 3:
                more = await consumer.poll(timeout=3)
                assert more, f"only {found} came again"
                found += [message.body for message in more]
            assert sorted(found) == [b"0", b"1", b"2"]

    asyncio.run(main())
