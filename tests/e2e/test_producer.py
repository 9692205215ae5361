"""The producer on a running cluster."""

from __future__ import annotations

import logging
import threading
import time

import pytest
from tests.e2e.timing import least

from pyrmq import (
    Admin,
    ClosedError,
    ConfigError,
    Message,
    MessageError,
    NameServerUnreachable,
    Producer,
    PullConsumer,
    QueueId,
    RouteError,
    SendResult,
    SendStatus,
    SendTimeout,
    TopicNotFound,
)
from pyrmq.errors import BatchSendError, ConnectionLost, RmqError
from pyrmq.testing import cluster


def drain(address: str, topic: str, count: int) -> list[tuple[str, int, int, bytes]]:
    """Read a topic: broker, queue, offset and body of each message."""
    found: list[tuple[str, int, int, bytes]] = []
    with PullConsumer(name_server=address, group=f"drain-{topic}") as consumer:
        consumer.subscribe(topic)
        while len(found) < count:
            messages = consumer.poll(timeout=10)
            assert messages, f"only {len(found)} of {count} messages came"
            found += [(m.broker, m.queue_id, m.queue_offset, m.body) for m in messages]
    return found


def test_a_send_says_where_the_message_is(address: str, topic: str) -> None:
    with Producer(name_server=address, group="shop") as producer:
        result = producer.send(topic, b"two coffees", keys=["order-42", "table-7"], tags="new")
    assert result.status is SendStatus.SEND_OK
    assert (result.topic, result.queue_offset) == (topic, 0)
    assert result.broker in {"broker-a", "broker-b"}
    assert (len(result.message_id), len(result.offset_message_id)) == (32, 32)
    assert (result.attempts, result.may_be_duplicate) == (1, False)
    assert f'topic="{topic}"' in repr(result)


@pytest.mark.parametrize(
    "body", [b"tea", bytearray(b"tea"), memoryview(b"tea"), "tea"], ids=lambda b: type(b).__name__
)
def test_a_body_is_bytes_like_or_text(
    address: str, topic: str, body: bytes | bytearray | memoryview | str
) -> None:
    with Producer(name_server=address) as producer:
        producer.send(topic, body)
    assert [body for *_, body in drain(address, topic, 1)] == [b"tea"]


def test_everything_a_message_carries_arrives(address: str, topic: str) -> None:
    with Producer(name_server=address) as producer:
        sent = producer.send(
            topic,
            "Käse",
            keys=["a", "b"],
            tags="new",
            properties={"table": "7", "ü": "ö"},
            sharding_key="k",
            flag=9,
        )
    with PullConsumer(name_server=address, group="all") as consumer:
        consumer.subscribe(topic)
        message = next(iter(consumer))
    assert message.body.decode() == "Käse"
    assert (message.keys, message.tags, message.sharding_key) == (["a", "b"], "new", "k")
    assert message.properties.items() >= {"table": "7", "ü": "ö"}.items()
    assert (message.flag, message.message_id) == (9, sent.message_id)
    assert message.offset_message_id == sent.offset_message_id
    assert abs(message.store_timestamp - time.time() * 1000) < 60_000


def test_a_large_body_travels_compressed_and_comes_back_whole(address: str, topic: str) -> None:
    body = b"all the same " * 10_000
    with Producer(name_server=address) as producer:
        producer.send(topic, body)
    with PullConsumer(name_server=address, group="large") as consumer:
        consumer.subscribe(topic)
        message = next(iter(consumer))
    assert message.sys_flag & 1 == 1
    assert message.body == body


def test_a_batch_gives_a_result_for_each_message_in_order(address: str, topic: str) -> None:
    bodies = [f"message {number}" for number in range(5000)]
    with Producer(name_server=address) as producer:
        results = producer.send_batch(topic, iter(bodies), tags="t", batch_bytes=20_000)
        assert producer.stats().frames < 100
    assert len({result.message_id for result in results}) == len(bodies)
    stored = {tuple(place): body for *place, body in drain(address, topic, len(bodies))}
    assert [stored[r.broker, r.queue_id, r.queue_offset].decode() for r in results] == bodies


def test_messages_of_a_batch_keep_their_own_extras(address: str, topic: str) -> None:
    messages = [
        Message(topic, str(number), keys=f"key-{number}", sharding_key=f"plane-{number % 7}")
        for number in range(100)
    ]
    with Admin(name_server=address) as admin:
        admin.create_topic(topic, queues=4)
    with Producer(name_server=address) as producer:
        results = producer.send_batch(topic, messages)
        single = [producer.send(topic, b"x", sharding_key=f"plane-{n}") for n in range(7)]
    places = [(one.broker, one.queue_id) for one in single]
    assert [(one.broker, one.queue_id) for one in results] == [places[n % 7] for n in range(100)]
    with Admin(name_server=address) as admin:
        assert sum(q.last - q.first for q in admin.topic_stats(topic).values()) == 107


def test_a_batch_has_one_topic(address: str, topic: str) -> None:
    with (
        Producer(name_server=address) as producer,
        pytest.raises(MessageError, match="a message for topic `other`"),
    ):
        producer.send_batch(topic, [Message("other", b"x")])


def test_an_empty_batch_is_no_message(address: str, topic: str) -> None:
    with Producer(name_server=address) as producer:
        assert producer.send_batch(topic, []) == []


def test_a_delayed_message_in_a_batch_goes_by_itself(address: str, topic: str) -> None:
    with Producer(name_server=address) as producer:
        plain = Message(topic, b"now")
        results = producer.send_batch(topic, [plain, Message(topic, b"later", delay_level=1)])
    assert [type(result) for result in results] == [SendResult, SendResult]


def test_many_futures_are_on_their_way_at_once(address: str, topic: str) -> None:
    with Producer(name_server=address) as producer:
        futures = [producer.send_async(topic, str(number)) for number in range(2000)]
        results = [future.result(timeout=10) for future in futures]
    assert len({(r.broker, r.queue_id, r.queue_offset) for r in results}) == 2000


def test_async_sends_of_one_key_stay_in_order_from_the_first_on(address: str, topic: str) -> None:
    with Producer(name_server=address) as producer:
        futures = [producer.send_async(topic, str(n), sharding_key="one") for n in range(500)]
        offsets = [future.result(timeout=10).queue_offset for future in futures]
    assert offsets == list(range(500))


def test_a_future_carries_the_error_that_send_would_raise(address: str, topic: str) -> None:
    with Producer(name_server=address) as producer:
        future = producer.send_async(topic, b"x", queue=99)
        with pytest.raises(RouteError, match="not among its writable queues"):
            future.result(timeout=10)


def test_a_full_window_makes_the_sender_wait_and_loses_nothing(address: str, topic: str) -> None:
    with Producer(name_server=address, max_in_flight=2) as producer:
        futures = [producer.send_async(topic, str(number)) for number in range(200)]
        assert len([future.result(timeout=10) for future in futures]) == 200


def test_a_queue_can_be_chosen(address: str, topic: str) -> None:
    with Producer(name_server=address) as producer:
        assert producer.send(topic, b"x", queue=3).queue_id == 3
        assert producer.send(topic, b"x", queue=QueueId(topic, "broker-a", 1)).queue_id == 1
        with pytest.raises(RouteError, match="the queue that was asked for"):
            producer.send(topic, b"x", queue=QueueId(topic, "no-such-broker", 1))


def test_a_oneway_send_arrives(address: str, topic: str) -> None:
    with Admin(name_server=address) as admin:
        # Create it on every broker before it is read: a reader checks for new brokers every 30 s.
        admin.create_topic(topic)
    with Producer(name_server=address) as producer:
        producer.send(topic, b"first")
        producer.send_oneway(topic, b"second")
        assert sorted(body for *_, body in drain(address, topic, 2)) == [b"first", b"second"]


def test_threads_share_a_producer(address: str, topic: str) -> None:
    results: list[SendResult] = []
    with Producer(name_server=address) as producer:

        def work() -> None:
            results.extend(producer.send(topic, b"x") for _ in range(50))

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len({(r.broker, r.queue_id, r.queue_offset) for r in results}) == 400


@pytest.mark.parametrize(
    ("topic_name", "reason"),
    [
        ("", "it is empty"),
        ("two words", "only the characters"),
        ("t" * 128, "longer than 127"),
        ("SCHEDULE_TOPIC_XXXX", "only brokers write to it"),
    ],
)
def test_an_illegal_topic_is_refused_before_it_leaves(
    address: str, topic_name: str, reason: str
) -> None:
    with Producer(name_server=address) as producer, pytest.raises(MessageError, match=reason):
        producer.send(topic_name, b"x")


def test_illegal_messages_are_refused_with_the_cause(address: str, topic: str) -> None:
    with Producer(name_server=address, max_message_bytes=100) as producer:
        with pytest.raises(MessageError, match=r"has 101 bytes, the limit is 100"):
            producer.send(topic, b"x" * 101)
        with pytest.raises(MessageError, match="the limit is 100"):
            producer.send_batch(topic, [b"x", b"x" * 101])
        with pytest.raises(MessageError, match=r"property `a\\u\{1\}`"):
            producer.send(topic, b"x", properties={"a\x01": "b"})
        with pytest.raises(MessageError, match="has a meaning of its own"):
            producer.send(topic, b"x", properties={"KEYS": "b"})
        with pytest.raises(MessageError, match="a value is not empty"):
            producer.send(topic, b"x", properties={"a": ""})
        with pytest.raises(MessageError, match="the limit is 32767"):
            producer.send(topic, b"x", properties={"a": "b" * 33_000})
        with pytest.raises(MessageError, match="has an empty body"):
            producer.send(topic, b"")
        with pytest.raises(TypeError, match="a body is bytes"):
            producer.send(topic, 42)  # type: ignore[arg-type]


def test_an_unknown_topic_says_how_to_create_it() -> None:
    with (
        cluster(auto_create_topic_enable=False) as running,
        Producer(name_server=running.name_server) as producer,
        pytest.raises(TopicNotFound, match="pyrmq topic create nowhere") as caught,
    ):
        producer.send("nowhere", b"x")
    assert (caught.value.topic, caught.value.code) == ("nowhere", 17)


def test_name_servers_that_are_away_are_all_named() -> None:
    with (
        Producer(name_server="127.0.0.1:1;127.0.0.1:2") as producer,
        pytest.raises(NameServerUnreachable) as caught,
    ):
        producer.send("orders", b"x")
    assert sorted(caught.value.addresses) == ["127.0.0.1:1", "127.0.0.1:2"]
    assert all(f"127.0.0.1:{port}: Connection refused" in str(caught.value) for port in (1, 2))
    assert "pyrmq nameserver" in str(caught.value)


def test_a_name_server_that_is_away_is_passed_over(address: str, topic: str) -> None:
    with Producer(name_server=f"127.0.0.1:1;{address}") as producer:
        assert producer.send(topic, b"x").status is SendStatus.SEND_OK


def test_the_environment_names_the_name_server(
    address: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", address)
    with Producer() as producer:
        assert producer.send(topic, b"x").status is SendStatus.SEND_OK


def test_a_broker_that_is_away_fails_the_send_in_its_time(topic: str) -> None:
    with cluster() as running:
        producer = Producer(name_server=running.name_server, send_timeout=0.6)
        with producer:
            producer.send(topic, b"before", timeout=20)
            running.stop_broker()

            def fail() -> float:
                begin = time.monotonic()
                with pytest.raises((SendTimeout, ConnectionLost, RouteError, TopicNotFound)):
                    producer.send(topic, b"after")
                return time.monotonic() - begin

            assert least(fail, 0.6 + 1.0) < 0.6 + 1.0
            with pytest.raises(BatchSendError, match="2 of 2 messages") as batch:
                producer.send_batch(topic, [b"a", b"b"])
            assert len(batch.value.results) == 2


def test_a_broker_that_comes_back_within_the_time_is_no_error(topic: str) -> None:
    with (
        cluster() as running,
        Producer(name_server=running.name_server, send_timeout=20) as producer,
    ):
        producer.send(topic, b"before", queue=0)
        running.stop_broker()
        future = producer.send_async(topic, b"after", queue=0)
        running.start_broker()
        assert future.result(timeout=20).queue_offset == 1


def test_a_closed_producer_says_so(address: str, topic: str) -> None:
    producer = Producer(name_server=address)
    producer.close()
    producer.close()
    with pytest.raises(ClosedError, match="closed"):
        producer.send(topic, b"x")
    with pytest.raises(ClosedError, match="closed"):
        producer.send_async(topic, b"x")
    assert "closed" in repr(producer)


def test_closing_waits_for_messages_on_their_way(address: str, topic: str) -> None:
    producer = Producer(name_server=address)
    futures = [producer.send_async(topic, str(number)) for number in range(1000)]
    producer.close()
    assert all(future.done() and future.exception() is None for future in futures)


def test_closing_in_time_reports_what_was_not_sent(
    topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    with cluster() as running:
        producer = Producer(name_server=running.name_server, send_timeout=20)
        producer.send(topic, b"x", queue=0)
        running.stop_broker()
        future = producer.send_async(topic, b"y", queue=0)
        with caplog.at_level(logging.WARNING, "pyrmq.producer"):
            producer.close(timeout=0.05)
        assert "1 messages unconfirmed" in caplog.text
        assert isinstance(future.exception(timeout=5), RmqError)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"name_server": ""}, "`name_server` is empty"),
        ({"name_server": "nohost"}, "must be `host:port;host:port`"),
        ({"group": "two words"}, "option `group` is `two words`"),
        ({"group": ""}, "option `group` is ``"),
        ({"group": "g" * 121}, "1 to 120 of the characters"),
        ({"group": "DEFAULT_PRODUCER"}, "this name is RocketMQ's own"),
        ({"send_timeout": -1}, "`send_timeout` is -1"),
        ({"send_timeout": 0}, "option `send_timeout` is `0`, it must be more than 0 s"),
        ({"max_in_flight": 0}, "`max_in_flight` is `0`, it must be 1 to 65535"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        Producer(**{"name_server": "127.0.0.1:9876", **options})  # type: ignore[arg-type]


def test_the_error_without_any_name_server_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    with pytest.raises(ConfigError, match="NAMESRV_ADDR"):
        Producer()
