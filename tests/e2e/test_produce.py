"""`produce`, its callbacks, and automatic batches, on a running cluster."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.e2e.wire import await_true

from pyrmq import (
    Admin,
    ClosedError,
    ConfigError,
    MessageError,
    NameServer,
    NameServerUnreachable,
    Producer,
    PullConsumer,
    QueueId,
    ReceivedMessage,
    RmqError,
    RouteError,
    SendResult,
    TopicNotFound,
    aio,
)
from pyrmq._client.options.consumer import ConsumerOptions
from pyrmq._client.options.producer import Options, ProducerOptions
from pyrmq.errors import QueueFull

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyrmq._client.values import Compression

Report = tuple[RmqError | None, SendResult | None]


class Reports:
    """A delivery callback that records its arguments."""

    def __init__(self) -> None:
        self.all: list[Report] = []

    def __call__(self, error: RmqError | None, result: SendResult | None) -> None:
        """Keep it."""
        self.all.append((error, result))

    @property
    def results(self) -> list[SendResult]:
        """Return the results; nothing may have failed."""
        assert all(error is None for error, _ in self.all), self.all[:3]
        return [result for _, result in self.all if result is not None]


def stored(address: str, topic: str, count: int) -> dict[tuple[str, int, int], tuple[str, bytes]]:
    """Return unique id and body of a topic's messages, by broker, queue and offset."""
    found: dict[tuple[str, int, int], tuple[str, bytes]] = {}
    with PullConsumer(name_server=address, group=f"stored-{topic}") as consumer:
        consumer.subscribe(topic)
        while len(found) < count:
            messages = consumer.poll(timeout=10)
            assert messages, f"only {len(found)} of {count} messages came"
            for m in messages:
                found[m.broker, m.queue_id, m.queue_offset] = (m.message_id, m.body)
    return found


def test_each_message_of_a_batch_gets_the_result_of_its_own(address: str, topic: str) -> None:
    reports = Reports()
    with Producer(name_server=address) as producer:
        for number in range(5000):
            producer.produce(topic, str(number), reports, flag=number)
        assert producer.flush()
        stats = producer.stats()
    assert len(reports.results) == 5000
    assert (stats.confirmed, stats.batched, stats.in_flight) == (5000, 5000, 0)
    assert stats.frames < 500
    assert stats.batch_size > 10
    found = stored(address, topic, 5000)
    bodies = {found[r.broker, r.queue_id, r.queue_offset] for r in reports.results}
    assert {
        (r.message_id, found[r.broker, r.queue_id, r.queue_offset][1]) for r in reports.results
    } == bodies
    assert {int(body) for _, body in bodies} == set(range(5000))


def test_what_a_message_carries_arrives_out_of_a_batch(address: str, topic: str) -> None:
    with Producer(name_server=address) as producer:
        producer.produce(topic, b"plain")
        producer.produce(
            topic,
            "Käse",
            keys=["a", "b"],
            tags="new",
            properties={"table": "7"},
            sharding_key="k",
            flag=9,
        )
    with PullConsumer(name_server=address, group=f"carry-{topic}") as consumer:
        consumer.subscribe(topic)
        messages: dict[str, ReceivedMessage] = {}
        while len(messages) < 2:
            messages.update({m.body.decode(): m for m in consumer.poll(timeout=10)})
    rich = messages["Käse"]
    assert (rich.keys, rich.tags, rich.sharding_key) == (["a", "b"], "new", "k")
    assert (rich.properties["table"], rich.flag) == ("7", 9)
    assert messages["plain"].keys == []


def test_messages_of_one_key_keep_their_order_from_the_first_on(address: str, topic: str) -> None:
    with Admin(name_server=address) as admin:
        admin.create_topic(topic, queues=4)
    with Producer(name_server=address) as producer:
        reports = {key: Reports() for key in "abcdefg"}
        for number in range(3000):
            key = "abcdefg"[number % 7]
            producer.produce(topic, f"{key}{number}", reports[key], sharding_key=key)
            if number % 500 == 0:
                producer.send_async(topic, f"{key}{number}.5", sharding_key=key)
        assert producer.flush()
    bodies: dict[str, list[float]] = {key: [] for key in reports}
    for _, (_, body) in sorted(stored(address, topic, 3006).items()):
        bodies[body.decode()[0]].append(float(body.decode()[1:]))
    for key, numbers in bodies.items():
        assert numbers == sorted(numbers), key
        assert len({(one.broker, one.queue_id) for one in reports[key].results}) == 1


def test_a_delayed_a_large_and_a_plain_message_of_a_key_keep_their_order(
    address: str, topic: str
) -> None:
    reports = Reports()
    with Producer(name_server=address) as producer:
        for number in range(60):
            body = bytes([number]) * (20_000 if number % 3 == 0 else 10)
            producer.produce(topic, body, reports, sharding_key="k")
    bodies = [body[0] for _, (_, body) in sorted(stored(address, topic, 60).items())]
    assert bodies == list(range(60))
    assert len(reports.results) == 60


def test_a_lingering_message_leaves_without_flush(address: str, topic: str) -> None:
    reports = Reports()
    with Producer(name_server=address, linger=1) as producer:
        producer.produce(topic, b"x", reports)
        assert producer.poll() == 0, "it lingers"
        assert producer.poll(timeout=10) == 1
    assert len(reports.results) == 1


def test_callbacks_run_in_the_thread_that_asks_and_what_they_raise_is_logged(
    address: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    threads: set[int] = set()

    def shout(error: RmqError | None, result: SendResult | None) -> None:
        assert error is None
        assert result is not None
        threads.add(threading.get_ident())
        raise RuntimeError("boom")

    with Producer(name_server=address) as producer, caplog.at_level(logging.ERROR):
        for _ in range(3):
            producer.produce(topic, b"x", shout)
        assert producer.flush()
    assert threads == {threading.get_ident()}
    logged = [r for r in caplog.records if r.name == "pyrmq.producer"]
    assert len(logged) == 3
    assert logged[0].exc_info is not None


def test_ctrl_c_in_a_callback_ends_the_call_and_the_rest_runs_later(
    address: str, topic: str
) -> None:
    reports = Reports()

    def stop(error: RmqError | None, result: SendResult | None) -> None:
        reports(error, result)
        if len(reports.all) == 1:
            raise KeyboardInterrupt

    with Producer(name_server=address, linger=1) as producer:
        for _ in range(5):
            producer.produce(topic, b"x", stop)
        with pytest.raises(KeyboardInterrupt):
            producer.flush()
        assert producer.flush()
    assert len(reports.results) == 5


def test_a_full_window_serves_callbacks_instead_of_deadlocking(address: str, topic: str) -> None:
    reports = Reports()
    with Producer(name_server=address, max_in_flight=10, linger=0.001) as producer:
        for number in range(500):
            producer.produce(topic, str(number), reports)
        assert reports.all, "callbacks ran while produce waited for room"
        assert producer.flush()
    assert len(reports.results) == 500


def test_without_waiting_a_full_window_is_an_error_at_once(address: str, topic: str) -> None:
    with Producer(name_server=address, max_in_flight=10, linger=30) as producer:
        for _ in range(10):
            producer.produce(topic, b"x", wait=False)
        with pytest.raises(QueueFull, match="10 messages are on their way"):
            producer.produce(topic, b"x", wait=False)
        assert producer.flush()
        producer.produce(topic, b"x", wait=False)


def test_the_window_counts_bytes(address: str, topic: str) -> None:
    with Producer(name_server=address, max_in_flight_bytes=1000, linger=30) as producer:
        producer.produce(topic, bytes(900), wait=False)
        with pytest.raises(QueueFull):
            producer.produce(topic, bytes(101), wait=False)
        producer.produce(topic, bytes(100), wait=False)
        assert producer.stats().in_flight_bytes == 1000


def test_a_callback_may_produce_and_flush(address: str, topic: str) -> None:
    second = Reports()
    with Producer(name_server=address) as producer:

        def again(error: RmqError | None, result: SendResult | None) -> None:
            assert error is None
            assert result is not None
            producer.produce(topic, b"second", second)
            assert producer.flush()

        for _ in range(3):
            producer.produce(topic, b"first", again)
        assert producer.flush()
        assert len(second.results) == 3


def test_each_message_of_a_frame_gets_its_failure(address: str) -> None:
    reports = Reports()
    with Producer(name_server=address, create_topic_key="no-such") as producer:
        for key in (None, "k"):
            producer.produce("not-there", b"x", reports, sharding_key=key)
        assert producer.flush()
        assert producer.stats().failed == 2
    assert [type(error).__name__ for error, _ in reports.all] == ["TopicNotFound"] * 2


def test_mistakes_raise_at_once(address: str, topic: str) -> None:
    with Producer(name_server=address) as producer:
        for body, match in ((b"", "empty body"), (bytes(5_000_000), "the limit is")):
            with pytest.raises(MessageError, match=match):
                producer.produce(topic, body)
        with pytest.raises(MessageError, match="topic `a b` is illegal"):
            producer.produce("a b", b"x")
        with pytest.raises(MessageError, match="0x01 and 0x02"):
            producer.produce(topic, b"x", properties={"a": "\x01"})
        with pytest.raises(TypeError, match="a body is bytes"):
            producer.produce(topic, 7)  # type: ignore[arg-type]
        assert producer.stats().in_flight == 0, "what was refused does not count"
        reports = Reports()
        producer.produce(topic, b"x", reports, queue=99)
        producer.flush()
        assert isinstance(reports.all[0][0], RouteError)
    with pytest.raises(ClosedError):
        producer.produce(topic, b"x")


def test_closing_sends_what_lingers(address: str, topic: str) -> None:
    reports = Reports()
    with Producer(name_server=address, linger=30) as producer:
        for _ in range(100):
            producer.produce(topic, b"x", reports)
    assert len(reports.results) == 100


def test_closing_reports_what_was_not_sent(
    address: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    reports = Reports()
    producer = Producer(name_server=address, send_timeout=30)
    producer.produce(topic, b"x", reports)
    assert producer.flush()
    # A missing name server: the route of another topic is requested until the producer closes.
    lost = Producer(name_server="127.0.0.1:9", send_timeout=30, group="lost")
    lost.produce(topic, b"x", reports)
    lost.close(timeout=0.2)
    producer.close()
    assert len(reports.all) == 2
    assert isinstance(reports.all[1][0], RmqError)


def test_threads_share_the_accumulator(address: str, topic: str) -> None:
    with Producer(name_server=address) as producer:

        def work() -> None:
            for _ in range(500):
                producer.produce(topic, b"x")

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert producer.flush()
        assert producer.stats().confirmed == 4000


def test_a_selector_chooses_the_queue(address: str, topic: str) -> None:
    seen: list[Sequence[QueueId]] = []

    def third(queues: Sequence[QueueId]) -> QueueId:
        seen.append(queues)
        return queues[2]

    with Admin(name_server=address) as admin:
        admin.create_topic(topic, queues=4)
    with Producer(name_server=address) as producer:
        assert producer.send(topic, b"x", queue=third).queue_id == 2
        last = producer.send(topic, b"x", queue=lambda queues: len(queues) - 1)
        assert (last.broker, last.queue_id) == ("broker-b", 3)
        with pytest.raises(ConfigError, match="the selector returned 8, there are 8 queues"):
            producer.send(topic, b"x", queue=lambda _: 8)
        with pytest.raises(ConfigError, match="the selector returned None"):
            producer.send(topic, b"x", queue=lambda _: None)  # type: ignore[arg-type, return-value]
        with pytest.raises(ConfigError, match="not among the topic's queues"):
            producer.send(topic, b"x", queue=lambda _: QueueId(topic, "else", 0))
        with pytest.raises(ZeroDivisionError):
            producer.send(topic, b"x", queue=lambda _: 1 // 0)
    brokers = ("broker-a", "broker-b")
    assert seen[0] == [QueueId(topic, broker, n) for broker in brokers for n in range(4)]


def test_the_five_causes_of_no_route_are_distinguished(address: str, topic: str) -> None:
    with Admin(name_server=address) as admin:
        admin.create_topic(topic, perm=4)
    with NameServer(listen_port=0) as lonely:
        causes: list[tuple[str, str, type[RmqError], str]] = [
            (address, "not-there", TopicNotFound, "does not exist and no broker creates topics"),
            (lonely.address, "any", RouteError, "none is registered at the name server"),
            ("127.0.0.1:9", "any", NameServerUnreachable, "no name server answered"),
            (
                "no-such-host.invalid:9876",
                "any",
                NameServerUnreachable,
                "host name could be resolved",
            ),
            (address, topic, RouteError, "writing is not permitted"),
        ]
        for server, name, error, match in causes:
            with (
                Producer(name_server=server, create_topic_key="no-such") as producer,
                pytest.raises(error, match=match),
            ):
                producer.send(name, b"x")


def test_a_namespace_keeps_names_apart(address: str, topic: str) -> None:
    with Producer(name_server=address, namespace="dev") as producer:
        results = [
            producer.send(topic, b"x"),
            producer.send(topic, b"x", sharding_key="k"),
            *producer.send_batch(topic, ["x", "y"]),
        ]
        reports = Reports()
        producer.produce(topic, b"x", reports)
        producer.flush()
        results += reports.results
    assert {result.topic for result in results} == {topic}
    assert len(stored(address, f"dev%{topic}", 5)) == 5


@pytest.mark.parametrize("to", [ProducerOptions.trace_topic, "my-traces"])
def test_traces_report_each_frame_in_apaches_form(address: str, to: str) -> None:
    name = f"traced-{to}"
    if to == "my-traces":
        # Create it on every broker before it is read: a reader checks for new brokers every 30 s.
        with Admin(name_server=address) as admin:
            admin.create_topic(to)
    with Producer(name_server=address, group="tracing", trace=True, trace_topic=to) as producer:
        sent = [producer.send(name, b"x" * n, keys=["a", "b"], tags="t") for n in range(1, 31)]
        for _ in range(3):
            producer.produce(name, b"gathered")
        producer.flush()
        assert producer.stats().dropped_traces == 0
    found: dict[str, list[str]] = {}
    keys: set[str] = set()
    with PullConsumer(name_server=address, group=f"read-{name}") as consumer:
        consumer.subscribe(to)
        while len(found) < 33:
            messages = consumer.poll(timeout=10)
            assert messages, f"only {len(found)} contexts came"
            for message in messages:
                keys |= set(message.keys)
                for context in message.body.decode().split("\x02")[:-1]:
                    fields = context.split("\x01")
                    for message_id in fields[5].split(","):
                        found[message_id] = fields
    for number, result in enumerate(sent, 1):
        kind, _, region, group, topic, _, tags, own, host, size, cost, type_, offset, ok = found[
            result.message_id
        ]
        assert (kind, region, group, topic) == ("Pub", "DefaultRegion", "tracing", name)
        assert (tags, own, size, type_, ok) == ("t", "a b", str(number), "0", "true")
        assert (offset, int(cost) >= 0, ":" in host) == (result.offset_message_id, True, True)
    assert {"a", "b", sent[0].message_id} <= keys


FORGETFUL = """
import sys
from pyrmq import Producer
producer = Producer(name_server=sys.argv[1], linger=30, send_timeout=20)
for number in range(100):
    producer.produce(sys.argv[2], str(number), (lambda e, r: None) if number % 2 else None)
if sys.argv[3] == "futures":
    future = producer.send_async(sys.argv[2], b"future")
elif sys.argv[3] == "dropped":
    del producer
"""


@pytest.mark.parametrize("how", ["plain", "futures", "dropped"])
def test_a_producer_that_nobody_closed_sends_what_it_gathered(
    address: str, topic: str, how: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORGETFUL, address, topic, how],
        check=False,
        capture_output=True,
        text=True,
        timeout=20,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(stored(address, topic, 100)) >= 100


def test_opened_and_closed_producers_leave_nothing_behind(address: str, topic: str) -> None:
    def once() -> None:
        with Producer(name_server=address) as producer:
            producer.produce(topic, b"x")
            producer.send_async(topic, b"x").result(timeout=10)

    def held() -> tuple[int, int]:
        return len(list(Path("/proc/self/fd").iterdir())), threading.active_count()

    once()
    before = held()
    for _ in range(60):
        once()

    def is_left_alone() -> bool:
        files, threads = held()
        # The broker, which runs here too, opens files occasionally.
        return files <= before[0] + 20 and threads <= before[1]

    # The servers run in this process: their sides of the connections close a moment later.
    await_true(is_left_alone, 20)


def test_both_forms_have_one_constructor_and_its_defaults_stand_once() -> None:
    pairs: list[tuple[type, type, type[Options]]] = [
        (Producer, aio.Producer, ProducerOptions),
        (PullConsumer, aio.PullConsumer, ConsumerOptions),
    ]
    for sync, other, options in pairs:
        assert vars(sync).get("__init__") is vars(other).get("__init__") is None
        assert sync.__mro__[1] is other.__mro__[1]
        given = inspect.signature(sync).parameters
        assert set(given) == set(options.__annotations__)
        for name, parameter in given.items():
            if parameter.default is not inspect.Parameter.empty:
                assert parameter.default == getattr(options, name)
    with pytest.raises(TypeError, match="unknown options: lingers"):
        ProducerOptions(lingers=1)


def test_wrong_options_are_refused() -> None:
    for wrong, match in (
        ({"linger": -1}, "option `linger` is -1"),
        ({"batch_bytes": 0}, "option `batch_bytes` is 0"),
        ({"compression": "gzip"}, "option `compression` is 'gzip'"),
        ({"compress_level": 10}, "option `compress_level` is 10"),
        ({"retries": -1}, "option `retries` is -1"),
    ):
        with pytest.raises(ConfigError, match=match):
            Producer(name_server="127.0.0.1:1", **wrong)


@pytest.mark.parametrize(("compression", "bits"), [("zlib", 3), ("lz4", 1), ("zstd", 2)])
def test_bodies_travel_compressed_as_asked(
    address: str, topic: str, compression: Compression, bits: int
) -> None:
    body = b"all the same " * 10_000
    with Producer(name_server=address, compression=compression) as producer:
        producer.produce(topic, body)
        producer.send(topic, body)
    with PullConsumer(name_server=address, group=f"large-{topic}") as consumer:
        consumer.subscribe(topic)
        messages: list[ReceivedMessage] = []
        while len(messages) < 2:
            messages += consumer.poll(timeout=10)
    assert [(m.sys_flag & 1, m.sys_flag >> 8 & 7, m.body == body) for m in messages] == [
        (1, bits, True)
    ] * 2


def test_aio_gathers_awaits_and_keeps_order(address: str, topic: str) -> None:
    async def main() -> None:
        async with aio.Producer(name_server=address) as producer:
            futures = [await producer.produce(topic, str(n), sharding_key="k") for n in range(1000)]
            assert await producer.flush()
            assert all(future.done() for future in futures)
            assert [(await future).queue_offset for future in futures] == list(range(1000))
            assert producer.stats().frames < 200
            sends = [producer.send(topic, str(n), sharding_key="k") for n in range(500)]
            results = await asyncio.gather(*sends)
            assert [r.queue_offset for r in results] == list(range(1000, 1500))

    asyncio.run(asyncio.wait_for(main(), 25))


def test_aio_back_pressure_waits_and_loses_nothing(address: str, topic: str) -> None:
    async def main() -> None:
        async with aio.Producer(name_server=address, max_in_flight=7) as producer:
            results = await asyncio.gather(*(producer.send(topic, str(n)) for n in range(700)))
            assert len({(r.broker, r.queue_id, r.queue_offset) for r in results}) == 700
            await producer.send(topic, b"x", queue=lambda queues: queues[0])

    asyncio.run(asyncio.wait_for(main(), 25))


def test_a_cancelled_send_harms_nobody(address: str, topic: str) -> None:
    async def main() -> None:
        async with aio.Producer(name_server=address, linger=0.2) as producer:
            await producer.send(topic, b"first")
            task = asyncio.ensure_future(producer.send(topic, b"x"))
            await asyncio.sleep(0)
            task.cancel()
            assert (await producer.send(topic, b"y")).attempts == 1
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await producer.flush()

    asyncio.run(asyncio.wait_for(main(), 25))


def test_a_lone_send_does_not_linger(address: str, topic: str) -> None:
    with Producer(name_server=address, linger=20) as producer:
        began = time.monotonic()
        producer.send_async(topic, b"x").result(timeout=10)
        producer.send(topic, b"x", sharding_key="k")
        assert time.monotonic() - began < 10
