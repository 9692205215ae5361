"""Our producer and consumer with the real servers, and with the real client as the peer."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import pytest

from pyrmq import Producer, PullConsumer
from pyrmq.admin import Admin
from pyrmq.codes import ResponseCode
from pyrmq.errors import BrokerError
from tests.interop.driver import bodies

if TYPE_CHECKING:
    from pyrmq.message import ReceivedMessage
    from tests.interop.cluster import Cluster
    from tests.interop.driver import Driver, Row

PAIRS = (("java", "JSON"),)
RARE_PAIRS = (("java", "ROCKETMQ"),)
"""The real servers, each answering in one header form."""

POLL_S = 40.0


def texts(count: int, start: int = 0) -> list[bytes]:
    """Return the bodies to send."""
    return [f"m-{number}".encode() for number in range(start, start + count)]


def java_reads(driver: Driver, cluster: Cluster, topic: str, count: int) -> list[Row]:
    """Make the Java client read a topic from its beginning."""
    with driver.lite(cluster.namesrv, topic, group=f"{topic}-java") as consumer:
        rows: list[Row] = driver.call("lite.poll", id=consumer, count=count)["messages"]
        return rows


def take(consumer: PullConsumer, count: int, seconds: float = POLL_S) -> list[ReceivedMessage]:
    """Poll until there are `count` messages or the time has passed."""
    found: list[ReceivedMessage] = []
    deadline = time.monotonic() + seconds
    while len(found) < count and time.monotonic() < deadline:
        found += consumer.poll(timeout=1.0)
    return found


def we_read(cluster: Cluster, topic: str, count: int, tags: str = "*") -> list[ReceivedMessage]:
    """Read a topic from its beginning with our consumer."""
    with PullConsumer(name_server=cluster.namesrv, group=f"{topic}-ours") as consumer:
        consumer.assign(dict.fromkeys(consumer.queues(topic), 0), tags)
        return take(consumer, count)


@pytest.mark.parametrize("how", ["send", "send_async", "send_oneway", "send_batch"])
def test_what_we_send_java_reads(driver: Driver, cluster: Cluster, topic: str, how: str) -> None:
    extras: dict[str, Any] = {
        "keys": ["red", "green"],
        "tags": "Tag",
        "properties": {"größe": "6 €"},
    }
    ids: set[str] = set()
    with Producer(name_server=cluster.namesrv, group="our-producer") as producer:
        if how == "send_batch":
            ids = {one.message_id for one in producer.send_batch(topic, texts(12), **extras)}
        elif how == "send_async":
            futures = [producer.send_async(topic, body, **extras) for body in texts(12)]
            ids = {future.result(10).message_id for future in futures}
        else:
            results = [getattr(producer, how)(topic, body, **extras) for body in texts(12)]
            ids = {one.message_id for one in results if one is not None}
        rows = java_reads(driver, cluster, topic, 12)
    assert sorted(bodies(rows)) == sorted(texts(12))
    for row in rows:
        assert (row["keys"], row["tags"]) == ("red green", "Tag")
        assert row["properties"]["größe"] == "6 €"
    if how == "send_batch" and cluster.broker_version.startswith("4"):
        return
    assert how == "send_oneway" or {row["msgId"] for row in rows} == ids


def test_where_we_sent_a_message_java_finds_it(
    driver: Driver, cluster: Cluster, topic: str
) -> None:
    with Producer(name_server=cluster.namesrv) as producer:
        sent = producer.send(topic, b"wanted", keys="order-42", queue=2)
    where = {"namesrv": cluster.namesrv, "topic": topic}
    for message_id in (sent.offset_message_id, sent.message_id):
        row = driver.call("admin.view", msgId=message_id, **where)
        assert bodies([row]) == [b"wanted"]
        assert (row["queueId"], row["queueOffset"]) == (2, sent.queue_offset)


def test_a_body_that_we_compress_java_unpacks(driver: Driver, cluster: Cluster, topic: str) -> None:
    with Producer(name_server=cluster.namesrv) as producer:
        producer.send(topic, b"a lot of text that compresses " * 30_000)
    (row,) = java_reads(driver, cluster, topic, 1)
    assert (row["bodyLength"], row["storeSize"] < 100_000) == (900_000, True)


def test_messages_with_one_sharding_key_reach_java_in_order(
    driver: Driver, cluster: Cluster, topic: str
) -> None:
    with Producer(name_server=cluster.namesrv) as producer:
        for number in range(30):
            producer.send(topic, f"{number % 3}-{number:03}", sharding_key=f"key-{number % 3}")
    with driver.push(cluster.namesrv, topic, group=f"{topic}-group", orderly=True) as consumer:
        rows = driver.pushed(consumer, 30)
    for shard in (b"0", b"1", b"2"):
        mine = [body for body in bodies(rows) if body.startswith(shard)]
        assert mine == sorted(mine)
        assert len(mine) == 10


@pytest.mark.parametrize("mode", ["sync", "batch"])
def test_what_java_sends_we_read(driver: Driver, cluster: Cluster, topic: str, mode: str) -> None:
    with driver.producer(cluster.namesrv) as producer:
        results = driver.send(
            producer, topic, mode=mode, count=40, keys="red green", tag="Tag", prop__größe="6 €"
        )
    messages = we_read(cluster, topic, 40)
    assert sorted(one.body for one in messages) == sorted(texts(40))
    for one in messages:
        assert (list(one.keys), one.tags) == (["red", "green"], "Tag")
        assert one.properties["größe"] == "6 €"
        assert one.store_host == cluster.broker
    if mode == "sync":
        places = {(row["msgId"], row["queueId"], row["queueOffset"]) for row in results}
        assert {(one.message_id, one.queue_id, one.queue_offset) for one in messages} == places
        offsets = {row["offsetMsgId"] for row in results}
        assert {one.offset_message_id for one in messages} == offsets


@pytest.mark.parametrize("kind_of_compression", ["ZLIB", "LZ4", "ZSTD"])
def test_a_body_that_java_compressed_we_unpack(
    driver: Driver, cluster: Cluster, topic: str, kind_of_compression: str
) -> None:
    if driver.version.startswith("4"):
        if kind_of_compression != "ZLIB":
            pytest.skip("4.x clients compress by zlib only")
        options = {}
    else:
        options = {"compressType": kind_of_compression}
    with driver.producer(cluster.namesrv, **options) as producer:
        driver.send(producer, topic, size=50_000)
    (one,) = we_read(cluster, topic, 1)
    assert (len(one.body), one.body[:6]) == (50_000, b"m-0 pa")


def test_a_tag_filter_of_ours_works_on_the_real_broker(
    driver: Driver, cluster: Cluster, topic: str
) -> None:
    with driver.producer(cluster.namesrv) as producer:
        for tag in ("Red", "Green", "Blue"):
            driver.send(producer, topic, count=40, tag=tag)
    messages = we_read(cluster, topic, 80, "Red || Blue")
    assert sorted(one.tags or "" for one in messages) == ["Blue"] * 40 + ["Red"] * 40


def await_committed(name_server: str, group: str, topic: str, seconds: float = 30.0) -> None:
    """Wait until a group has committed all of a topic: Java commits every five seconds.

    Raises:
        AssertionError: something is uncommitted after that time.
    """
    deadline = time.monotonic() + seconds
    with Admin(name_server=name_server) as admin:
        while left := sum(one.lag for one in admin.consumer_progress(group, topic).values()):
            assert time.monotonic() < deadline, f"{left} left after {seconds} s"
            time.sleep(0.05)


def test_a_group_goes_on_where_it_committed_whichever_client_it_was(
    driver: Driver, cluster: Cluster, topic: str
) -> None:
    group = f"{topic}-group"
    with Producer(name_server=cluster.namesrv) as producer:
        producer.send_batch(topic, texts(20))
        with PullConsumer(name_server=cluster.namesrv, group=group) as consumer:
            consumer.subscribe(topic)
            assert sorted(one.body for one in take(consumer, 20)) == sorted(texts(20))
        producer.send_batch(topic, texts(5, 20))
        with driver.push(cluster.namesrv, topic, group=group) as java:
            assert sorted(bodies(driver.pushed(java, 5))) == texts(5, 20)
            await_committed(cluster.namesrv, group, topic)
        producer.send_batch(topic, texts(4, 25))
    with PullConsumer(name_server=cluster.namesrv, group=group) as consumer:
        consumer.subscribe(topic)
        assert sorted(one.body for one in take(consumer, 4)) == texts(4, 25)


def test_our_consumer_shares_the_queues_of_a_group_with_java(
    driver: Driver, cluster: Cluster, topic: str
) -> None:
    group = f"{topic}-group"
    sent = 0
    seen: list[bytes] = []
    with (
        driver.push(cluster.namesrv, topic, group=group) as java,
        PullConsumer(name_server=cluster.namesrv, group=group, rebalance=1.0) as consumer,
        Producer(name_server=cluster.namesrv) as producer,
    ):
        consumer.subscribe(topic)
        deadline = time.monotonic() + 60
        shared = False
        while not shared and time.monotonic() < deadline:
            producer.send_batch(topic, texts(8, sent))
            sent += 8
            seen += [one.body for one in consumer.poll(timeout=0.5)]
            theirs = bodies(driver.pushed(java, 0, timeout=0.1))
            shared = len(consumer.assignment()) == 2 and bool(seen) and bool(theirs)
        assert shared
        while len({*seen, *theirs}) < sent and time.monotonic() < deadline:
            seen += [one.body for one in consumer.poll(timeout=0.5)]
            theirs = bodies(driver.pushed(java, 0, timeout=0.1))
        assert {*seen, *theirs} == set(texts(sent))


def test_we_seek_by_time_and_know_the_bounds(driver: Driver, cluster: Cluster, topic: str) -> None:
    with driver.producer(cluster.namesrv) as producer:
        driver.send(producer, topic, count=5, queue=0, broker=cluster.broker_name)
    with PullConsumer(name_server=cluster.namesrv, group=f"{topic}-group") as consumer:
        queue = next(one for one in consumer.queues(topic) if one.queue_id == 0)
        assert consumer.bounds(queue) == (0, 5)
        # 4.x brokers return 0 for a group that never committed while the queue still has its start.
        assert consumer.committed(queue) == (0 if cluster.broker_version.startswith("4") else None)
        consumer.assign({queue: 0})
        third = take(consumer, 5)[2]
        consumer.seek(queue, datetime.fromtimestamp(third.store_timestamp / 1000, UTC))
        again = take(consumer, 1)
        assert again[0].queue_offset <= third.queue_offset
        assert again[0].store_timestamp == third.store_timestamp


def test_errors_of_the_real_broker_carry_its_code(cluster: Cluster, topic: str) -> None:
    # Over the broker's limit, so that only the broker can refuse it.
    size = 5 << 20
    with (
        Producer(
            name_server=cluster.namesrv,
            retries=0,
            max_message_bytes=2 * size,
            compress_over_bytes=None,
        ) as producer,
        pytest.raises(BrokerError) as refused,
    ):
        producer.send(topic, b"x" * size)
    assert refused.value.code == ResponseCode.MESSAGE_ILLEGAL
    assert refused.value.remark


def test_a_topic_is_created_on_the_real_broker_by_our_first_send(
    driver: Driver, cluster: Cluster, name: str
) -> None:
    with Producer(name_server=cluster.namesrv, default_queues=3) as producer:
        results = [producer.send(name, body) for body in texts(6)]
    assert {one.queue_id for one in results} == {0, 1, 2}
    assert sorted(bodies(java_reads(driver, cluster, name, 6))) == texts(6)


@pytest.mark.parametrize("durability", ["memory", "local"])
def test_their_brokers_pass_over_the_durability_that_we_ask_for(
    cluster: Cluster, topic: str, durability: Literal["memory", "local"]
) -> None:
    """Real brokers do not report it; `memory` reaches them as `WAIT`."""
    with Producer(name_server=cluster.namesrv, durability=durability) as producer:
        results = [producer.send(topic, b"one"), *producer.send_batch(topic, [b"two", b"three"])]
    assert [(one.status.name, one.durability) for one in results] == [("SEND_OK", None)] * 3
    assert {one.body for one in we_read(cluster, topic, 3)} == {b"one", b"two", b"three"}
