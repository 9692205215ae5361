"""The real Java client on every pairing of our and the real servers, with both header forms."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.interop.driver import DriverError, bodies

if TYPE_CHECKING:
    from tests.interop.cluster import Cluster
    from tests.interop.driver import Driver, Row


def texts(prefix: str, count: int, start: int = 0) -> list[bytes]:
    """Return the bodies that the driver sends."""
    return [f"{prefix}-{number}".encode() for number in range(start, start + count)]


def read(driver: Driver, cluster: Cluster, topic: str, count: int, group: str) -> list[Row]:
    """Read a topic from its beginning with the lite pull consumer."""
    with driver.lite(cluster.namesrv, topic, group=f"{group}-reader") as consumer:
        rows: list[Row] = driver.call("lite.poll", id=consumer, count=count)["messages"]
        return rows


@pytest.mark.mixed
@pytest.mark.parametrize("mode", ["sync", "async", "batch"])
def test_messages_sent_by_java_come_back_with_key_tag_and_properties(
    driver: Driver, cluster: Cluster, topic: str, mode: str
) -> None:
    with driver.producer(cluster.namesrv) as producer:
        results = driver.send(
            producer, topic, mode=mode, count=8, key="k-", tag="Tag", prop__größe="6 €"
        )
    assert {row["status"] for row in results} == {"SEND_OK"}
    rows = read(driver, cluster, topic, 8, topic)
    assert sorted(bodies(rows)) == texts("m", 8)
    for row in rows:
        assert row["tags"] == "Tag"
        assert row["properties"]["größe"] == "6 €"
        assert row["keys"].startswith("k-")
    ids = {one for row in results for one in row["msgId"].split(",")}
    if mode != "batch" or not driver.version.startswith("4"):
        assert ids == {row["msgId"] for row in rows}


def test_a_send_result_names_where_the_message_is(
    driver: Driver, cluster: Cluster, topic: str
) -> None:
    with driver.producer(cluster.namesrv) as producer:
        sent = driver.send(producer, topic, key="only-")[0]
    row = read(driver, cluster, topic, 1, topic)[0]
    assert (row["queueId"], row["queueOffset"]) == (sent["queueId"], sent["queueOffset"])
    assert sent["broker"] == cluster.broker_name
    host, port = cluster.broker.split(":")
    assert sent["offsetMsgId"] == (
        bytes(map(int, host.split("."))).hex().upper()
        + f"{int(port):08X}{row['commitLogOffset']:016X}"
    )
    assert row["storeHost"] == f"/{cluster.broker}"


def test_messages_sent_oneway_arrive(driver: Driver, cluster: Cluster, topic: str) -> None:
    with driver.producer(cluster.namesrv) as producer:
        driver.send(producer, topic, mode="oneway", count=5)
        assert sorted(bodies(read(driver, cluster, topic, 5, topic))) == texts("m", 5)


def test_a_big_body_is_compressed_on_the_way_and_whole_at_the_end(
    driver: Driver, cluster: Cluster, topic: str
) -> None:
    with driver.producer(cluster.namesrv) as producer:
        driver.send(producer, topic, size=500_000)
        driver.send(producer, topic, size=3_000_000, start=1, prefix="huge")
    rows = read(driver, cluster, topic, 2, topic)
    assert sorted(row["bodyLength"] for row in rows) == [500_000, 3_000_000]
    assert all(row["storeSize"] < 100_000 for row in rows)


@pytest.mark.parametrize("kind_of_compression", ["ZLIB", "LZ4", "ZSTD"])
def test_every_compression_of_a_5_client_comes_back_whole(
    driver: Driver, cluster: Cluster, topic: str, kind_of_compression: str
) -> None:
    if driver.version.startswith("4"):
        pytest.skip("4.x clients compress by zlib only")
    with driver.producer(cluster.namesrv, compressType=kind_of_compression) as producer:
        driver.send(producer, topic, size=50_000)
    assert read(driver, cluster, topic, 1, topic)[0]["bodyLength"] == 50_000


def test_messages_ordered_by_a_selector_come_in_order_to_an_orderly_consumer(
    driver: Driver, cluster: Cluster, topic: str
) -> None:
    with driver.producer(cluster.namesrv) as producer:
        results = driver.send(producer, topic, count=30, shards=3, key="s-")
    assert len({row["queueId"] for row in results}) == 3
    with driver.push(cluster.namesrv, topic, group=f"{topic}-group", orderly=True) as consumer:
        rows = driver.pushed(consumer, 30)
    assert len(rows) == 30
    for shard in range(3):
        expected = [text for number, text in enumerate(texts("m", 30)) if number % 3 == shard]
        mine = [body for body in bodies(rows) if int(body.split(b"-")[1]) % 3 == shard]
        assert mine == expected


def test_an_orderly_consumer_that_suspends_gets_the_message_again_in_order(
    driver: Driver, cluster: Cluster, topic: str
) -> None:
    with driver.producer(cluster.namesrv) as producer:
        driver.send(producer, topic, count=3, shards=1)
    options = {"orderly": True, "later": True, "suspend": 50}
    with driver.push(cluster.namesrv, topic, group=f"{topic}-group", **options) as consumer:
        rows = driver.pushed(consumer, 6)
    assert bodies([row for row in rows if row["accepted"]]) == texts("m", 3)


@pytest.mark.mixed
def test_a_concurrent_push_consumer_gets_all_and_commits(
    driver: Driver, cluster: Cluster, topic: str
) -> None:
    group = f"{topic}-group"
    with driver.producer(cluster.namesrv) as producer:
        driver.send(producer, topic, count=20)
        with driver.push(cluster.namesrv, topic, group=group) as consumer:
            assert sorted(bodies(driver.pushed(consumer, 20))) == sorted(texts("m", 20))
            driver.send(producer, topic, count=4, start=20)
            assert sorted(bodies(driver.pushed(consumer, 24))) == sorted(texts("m", 24))
        driver.send(producer, topic, count=2, start=24)
    with driver.push(cluster.namesrv, topic, group=group) as consumer:
        assert sorted(bodies(driver.pushed(consumer, 2))) == texts("m", 2, 24)


@pytest.mark.mixed
def test_two_push_consumers_of_a_group_share_the_queues(
    driver: Driver, cluster: Cluster, topic: str
) -> None:
    group = f"{topic}-group"
    with (
        driver.push(cluster.namesrv, topic, group=group) as one,
        driver.push(cluster.namesrv, topic, group=group) as other,
        driver.producer(cluster.namesrv) as producer,
    ):
        deadline = time.monotonic() + 40
        seen: tuple[int, int] = (0, 0)
        while not all(seen) and time.monotonic() < deadline:
            driver.send(producer, topic, count=8)
            seen = (
                driver.call("push.state", id=one)["seen"],
                driver.call("push.state", id=other)["seen"],
            )
        assert all(seen)


def test_a_broadcast_consumer_gets_every_message(
    driver: Driver, cluster: Cluster, topic: str
) -> None:
    group = f"{topic}-group"
    with driver.producer(cluster.namesrv) as producer:
        driver.send(producer, topic, count=6)
    with (
        driver.push(cluster.namesrv, topic, group=group, broadcast=True) as one,
        driver.push(cluster.namesrv, topic, group=group, broadcast=True) as other,
    ):
        assert len(driver.pushed(one, 6)) == 6
        assert len(driver.pushed(other, 6)) == 6


def test_a_tag_filter_lets_only_its_tags_through(
    driver: Driver, cluster: Cluster, topic: str
) -> None:
    with driver.producer(cluster.namesrv) as producer:
        for tag in ("Red", "Green", "Blue"):
            driver.send(producer, topic, count=4, tag=tag, prefix=tag)
    options = {"expression": "Red || Blue"}
    with driver.push(cluster.namesrv, topic, group=f"{topic}-group", **options) as consumer:
        assert sorted(bodies(driver.pushed(consumer, 8))) == texts("Blue", 4) + texts("Red", 4)


@pytest.mark.mixed
def test_a_message_refused_once_comes_back_through_the_retry_topic(
    driver: Driver, cluster: Cluster, topic: str
) -> None:
    with driver.producer(cluster.namesrv) as producer:
        driver.send(producer, topic, count=2, key="again-")
    options = {"later": True, "level": 1}
    with driver.push(cluster.namesrv, topic, group=f"{topic}-group", **options) as consumer:
        rows = driver.pushed(consumer, 4, timeout=60)
    accepted = [row for row in rows if row["accepted"]]
    assert sorted(bodies(accepted)) == texts("m", 2)
    assert {row["topic"] for row in accepted} == {topic}
    assert {row["reconsumeTimes"] for row in accepted} == {1}


def test_a_message_refused_too_often_goes_to_the_dead_letter_topic(
    driver: Driver, cluster: Cluster, topic: str
) -> None:
    group = f"{topic}-group"
    with driver.producer(cluster.namesrv) as producer:
        driver.send(producer, topic, key="dead-")
    options = {"later": True, "maxReconsume": 0}
    with driver.push(cluster.namesrv, topic, group=group, **options) as consumer:
        assert len(driver.pushed(consumer, 1)) == 1
        where = {"namesrv": cluster.namesrv, "topic": f"%DLQ%{group}"}
        driver.call("admin.awaitRoute", broker=cluster.broker, **where)
    offsets = driver.call("admin.offsets", brokerName=cluster.broker_name, queue=0, **where)
    assert (offsets["min"], offsets["max"]) == (0, 1)


def test_the_old_pull_consumer_pulls_commits_and_reads_back_its_offsets(
    driver: Driver, cluster: Cluster, topic: str
) -> None:
    group = f"{topic}-group"
    with driver.producer(cluster.namesrv) as producer:
        driver.send(producer, topic, count=12, shards=4)
    with driver.pull(cluster.namesrv, group=group) as consumer:
        queues = driver.call("pull.pull", id=consumer, topic=topic, commit=True)["queues"]
        assert [row["status"] for row in queues] == ["FOUND"] * 4
        assert [row["next"] for row in queues] == [3] * 4
    with driver.pull(cluster.namesrv, group=group) as consumer:
        offsets = driver.call("pull.committed", id=consumer, topic=topic)["offsets"]
        assert set(offsets.values()) == {3}
        past = driver.call("pull.pull", id=consumer, topic=topic, offset=3)["queues"]
        assert {row["status"] for row in past} == {"NO_NEW_MSG"}
        far = driver.call("pull.pull", id=consumer, topic=topic, offset=1000)["queues"]
        assert {row["status"] for row in far} == {"OFFSET_ILLEGAL"}


def test_a_held_pull_is_answered_when_a_message_arrives(
    driver: Driver, cluster: Cluster, topic: str
) -> None:
    with (
        driver.push(cluster.namesrv, topic, group=f"{topic}-group") as consumer,
        driver.producer(cluster.namesrv) as producer,
    ):
        driver.send(producer, topic, prefix="first")
        assert bodies(driver.pushed(consumer, 1)) == texts("first", 1)
        begin = time.monotonic()
        driver.send(producer, topic, prefix="second")
        assert len(driver.pushed(consumer, 2)) == 2
        # A pull that is not woken is held for 15 s and more.
        assert time.monotonic() - begin < 12


@pytest.mark.parametrize("mode", ["assign", "subscribe"])
def test_the_lite_pull_consumer_reads_all_and_continues_after_its_commit(
    driver: Driver, cluster: Cluster, topic: str, mode: str
) -> None:
    group = f"{topic}-group"
    with driver.producer(cluster.namesrv) as producer:
        driver.send(producer, topic, count=20)
        with driver.lite(cluster.namesrv, topic, group=group, mode=mode) as consumer:
            rows = driver.call("lite.poll", id=consumer, count=20)["messages"]
            assert sorted(bodies(rows)) == sorted(texts("m", 20))
            commit(driver, cluster, topic, consumer, group, 20)
        driver.send(producer, topic, count=3, start=20)
    with driver.lite(cluster.namesrv, topic, group=group, mode=mode) as consumer:
        rows = driver.call("lite.poll", id=consumer, count=3)["messages"]
        assert sorted(bodies(rows)) == texts("m", 3, 20)


def commit(
    driver: Driver, cluster: Cluster, topic: str, consumer: str, group: str, total: int
) -> None:
    """Commit until the broker has it: the older of two oneway updates may be processed last."""
    with driver.pull(cluster.namesrv, group=group) as other:
        deadline = time.monotonic() + 40
        while True:
            driver.call("lite.commit", id=consumer, topic=topic)
            offsets = driver.call("pull.committed", id=other, topic=topic)["offsets"]
            if sum(offsets.values()) == total:
                return
            assert time.monotonic() < deadline, offsets


def test_a_message_is_found_by_key_offset_id_and_unique_id(
    driver: Driver, cluster: Cluster, topic: str
) -> None:
    with driver.producer(cluster.namesrv) as producer:
        driver.send(producer, topic, count=5, key="other-")
        sent = driver.send(producer, topic, keys="red green", prefix="wanted")[0]
    where = {"namesrv": cluster.namesrv, "topic": topic}
    for key in ("red", "green"):
        found = driver.find_key(cluster.namesrv, topic, key)
        assert bodies(found) == texts("wanted", 1)
    for message_id in (sent["offsetMsgId"], sent["msgId"]):
        seen = driver.call("admin.view", msgId=message_id, **where)
        assert bodies([seen]) == texts("wanted", 1)


def test_offsets_are_searched_by_time(driver: Driver, cluster: Cluster, topic: str) -> None:
    with driver.producer(cluster.namesrv) as producer:
        driver.send(producer, topic, count=10, queue=1, broker=cluster.broker_name)
    where = {
        "namesrv": cluster.namesrv,
        "topic": topic,
        "brokerName": cluster.broker_name,
        "queue": 1,
    }
    rows = read(driver, cluster, topic, 10, topic)
    stored = {row["queueOffset"]: row["storeTimestamp"] for row in rows}
    first, last = stored[0], stored[9]
    offsets = driver.call("admin.offsets", time=first, **where)
    assert (offsets["min"], offsets["max"], offsets["earliest"]) == (0, 10, first)
    # Of several messages of one millisecond, 4.x returns any and 5.x the first.
    assert stored[offsets["searched"]] == first
    if cluster.broker_version.startswith("5"):
        assert offsets["searched"] == 0
    past = driver.call("admin.offsets", time=last + 1000, **where)["searched"]
    assert past in (9, 10)
    assert driver.call("admin.offsets", time=0, **where)["searched"] == 0


@pytest.mark.mixed
def test_a_topic_is_created_by_the_first_send(driver: Driver, cluster: Cluster, name: str) -> None:
    with driver.producer(cluster.namesrv, queues=3) as producer:
        results = driver.send(producer, name, count=6)
    assert {row["queueId"] for row in results} == {0, 1, 2}
    assert len(read(driver, cluster, name, 6, name)) == 6


def test_a_send_to_a_queue_that_is_not_there_is_refused(
    driver: Driver, cluster: Cluster, topic: str
) -> None:
    with driver.producer(cluster.namesrv, retries=0) as producer:
        with pytest.raises(DriverError) as refused:
            driver.send(producer, topic, queue=99, broker=cluster.broker_name)
        assert refused.value.code == (1 if cluster.broker_version.startswith("4") else 29)
        assert driver.send(producer, topic)[0]["status"] == "SEND_OK"


@pytest.mark.mixed
def test_a_pull_from_a_topic_without_read_permission_is_refused(
    driver: Driver, cluster: Cluster, topic: str
) -> None:
    with driver.pull(cluster.namesrv, group=f"{topic}-group") as consumer:
        driver.call("pull.pull", id=consumer, topic=topic)
        where = {"namesrv": cluster.namesrv, "broker": cluster.broker}
        driver.call("admin.createTopic", topic=topic, perm=2, **where)
        with pytest.raises(DriverError) as refused:
            driver.call("pull.pull", id=consumer, topic=topic, known=True)
    assert refused.value.code == 16
