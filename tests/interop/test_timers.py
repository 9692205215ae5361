"""Timer messages and their recall in all pairings; batch topics, which our broker lacks."""

from __future__ import annotations

import asyncio
import struct
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from pyrmq import BrokerError, Message, Producer, PullConsumer, TransactionState, _core, aio
from tests.interop.ask import await_registered
from tests.interop.cluster import broker, name_server
from tests.interop.driver import DriverError, bodies

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyrmq import ReceivedMessage, SendResult
    from tests.interop.cluster import Clusters, Server
    from tests.interop.driver import Driver


@pytest.fixture(scope="module", params=["java", "ours"])
def who(request: pytest.FixtureRequest) -> str:
    """Whether the servers are ours or the real ones."""
    kind: str = request.param
    return kind


@pytest.fixture(scope="module")
def servers(
    who: str, version: str, clusters: Callable[[str], Clusters]
) -> Iterator[tuple[Server, Server]]:
    """Yield a name server and a broker that allows recalls; other modules share the real ones."""
    if who == "java":
        yield clusters(version).get("java").servers
        return
    with name_server("ours", version) as names:
        allowed = {"recallMessageEnable": "true"}
        with broker("ours", version, names.address, properties=allowed) as one:
            await_registered(names.address, one.address)
            yield names, one


@pytest.fixture
def namesrv(servers: tuple[Server, Server]) -> str:
    """The address of the name server."""
    return servers[0].address


@pytest.fixture
def java(drivers: Callable[[str, str], Driver], version: str) -> Driver:
    """The real client."""
    return drivers(version, "JSON")


@pytest.fixture
def topic(java: Driver, servers: tuple[Server, Server], name: str) -> str:
    """A new topic of four queues."""
    made = f"Timed{name}"
    names, one = servers
    java.call("admin.createTopic", namesrv=names.address, topic=made, broker=one.address)
    return made


@pytest.fixture
def timed(who: str, version: str) -> None:
    """Skip brokers and clients without timers, which came with 5.0."""
    if version.startswith("4"):
        pytest.skip(f"{who}: clients and brokers before 5.0 have none")


def read(namesrv: str, topic: str, count: int, *, still: float = 0.0) -> list[ReceivedMessage]:
    """Read a topic until `count` messages arrived, and `still` seconds longer."""
    found: list[ReceivedMessage] = []
    deadline = time.monotonic() + 40
    with PullConsumer(name_server=namesrv, group=f"{topic}-{time.monotonic_ns()}") as consumer:
        consumer.assign(dict.fromkeys(consumer.queues(topic), 0))
        while len(found) < count and time.monotonic() < deadline:
            found += consumer.poll(timeout=0.3)
        if still:
            found += consumer.poll(timeout=still)
    return found


OURS_LATER = pytest.mark.parametrize(
    "who", ["java", pytest.param("ours", marks=pytest.mark.interop_all)], indirect=True
)
"""For clients of ours: with one version only on the real servers; tests/e2e has our own."""

JAVA_LATER = pytest.mark.parametrize(
    "who", [pytest.param("java", marks=pytest.mark.interop_all), "ours"], indirect=True
)
"""For the real client: with one version only on our servers."""


@OURS_LATER
def test_the_timer_delivers_what_every_way_of_sending_gave_it(
    namesrv: str, topic: str, timed: None
) -> None:
    told: list[SendResult | None] = []
    with Producer(name_server=namesrv) as producer:
        producer.send(topic, b"after", delay=3)
        at = datetime.now(UTC) + timedelta(seconds=3)
        producer.send(topic, b"at", deliver_at=at, sharding_key="k")
        producer.produce(topic, b"produced", lambda _, result: told.append(result), delay=3)
        producer.send_batch(topic, ["plain", Message(topic, b"in a batch", deliver_at=at)])
        future = producer.send_async(topic, b"async", delay=3)
        assert future.result(timeout=10).status.name == "SEND_OK"
        assert producer.flush()
    assert told[0] is not None
    found = read(namesrv, topic, 6)
    assert sorted(m.body for m in found) == [
        b"after",
        b"async",
        b"at",
        b"in a batch",
        b"plain",
        b"produced",
    ]
    # The timer counts in seconds and is at most one early.
    early = (at - timedelta(seconds=1.5)).timestamp() * 1000
    assert [m.body for m in found if m.store_timestamp < early] == [b"plain"]


@OURS_LATER
def test_a_timer_message_is_taken_back_before_its_time(
    namesrv: str, topic: str, timed: None
) -> None:
    with Producer(name_server=namesrv, trace=True) as producer:
        taken = producer.send(topic, b"taken back", delay=4)
        kept = producer.send(topic, b"kept", delay=4)
        assert taken.recall_handle
        assert kept.recall_handle
        assert producer.recall(topic, taken.recall_handle) == taken.message_id
        with pytest.raises(BrokerError, match=r"topic not match|not exist"):
            producer.recall(f"{topic}-other", taken.recall_handle)

    async def main() -> None:
        async with aio.Producer(name_server=namesrv) as own:
            later = await own.send(topic, b"taken back, too", delay=4)
            assert later.recall_handle
            assert await own.recall(topic, later.recall_handle) == later.message_id

    asyncio.run(main())
    assert [m.body for m in read(namesrv, topic, 1, still=3.0)] == [b"kept"]


OF_THE_TIMER = {
    "REAL_QID",
    "REAL_TOPIC",
    "TIMER_DEQUEUE_MS",
    "TIMER_ENQUEUE_MS",
    "TIMER_OUT_MS",
}


@JAVA_LATER
def test_javas_timer_messages_come_as_apache_leaves_them_and_can_be_taken_back(
    java: Driver, namesrv: str, topic: str, timed: None
) -> None:
    at = round(time.time() * 1000) + 3000
    with java.producer(namesrv) as producer:
        asked = {"setDelayTimeSec": 2, "setDelayTimeMs": 2500, "setDeliverTimeMs": at}
        for setter, value in asked.items():
            java.send(producer, topic, prefix=setter, tag="t", key="k", **{setter: value})
        taken = java.send(producer, topic, prefix="taken", setDelayTimeMs=3000)[0]
        told = java.call("producer.recall", id=producer, topic=topic, handle=taken["recallHandle"])
        assert told["msgId"] == taken["msgId"]
        with pytest.raises(DriverError, match="recall handle is invalid"):
            java.call("producer.recall", id=producer, topic=topic, handle="nonsense")
        java.send(producer, topic, prefix="past", setDeliverTimeMs=at - 100_000)
        with pytest.raises(DriverError, match="timer message illegal"):
            java.send(producer, topic, setDelayTimeSec=400_000)
    with java.lite(namesrv, topic, group=f"{topic}-java") as consumer:
        rows = java.call("lite.poll", id=consumer, count=4)["messages"]
        assert [row["body"] for row in rows if b"taken" in bodies([row])[0]] == []
    found = {body.decode().split("-")[0]: row for body, row in zip(bodies(rows), rows, strict=True)}
    assert set(found) == {*asked, "past"}
    names = {
        "setDelayTimeSec": "TIMER_DELAY_SEC",
        "setDelayTimeMs": "TIMER_DELAY_MS",
        "setDeliverTimeMs": "TIMER_DELIVER_MS",
    }
    for setter, name in names.items():
        row = found[setter]
        times = {key for key in row["properties"] if key.startswith(("TIMER_", "REAL_"))}
        assert times == OF_THE_TIMER | {name}, setter
        assert (row["topic"], row["tags"], row["keys"]) == (topic, "t", "k0")
        due = row["bornTimestamp"] + asked[setter] * (1000 if name.endswith("SEC") else 1)
        due = at if name.endswith("DELIVER_MS") else due
        assert row["storeTimestamp"] >= due - 1500
    times = {key for key in found["past"]["properties"] if key.startswith(("TIMER_", "REAL_"))}
    assert times == {"TIMER_DELIVER_MS"}


def test_aio_transactions_and_the_fast_port_work(namesrv: str, topic: str) -> None:
    async def local(_: SendResult) -> TransactionState:
        return TransactionState.COMMIT

    async def main() -> None:
        async with aio.TransactionProducer(
            check=lambda _: TransactionState.ROLLBACK,
            name_server=namesrv,
            group=topic,
            vip_channel=True,
            unit_name="north",
        ) as producer:
            await producer.send(topic, b"fast")
            result = await producer.send_in_transaction(topic, b"committed", local)
            assert result.confirmed
            await producer.send_in_transaction(
                topic, b"rolled back", lambda _: TransactionState.ROLLBACK
            )

    asyncio.run(main())
    found = read(namesrv, topic, 2, still=0.5)
    assert sorted(m.body for m in found) == [b"committed", b"fast"]


def test_a_topic_of_batches_keeps_each_as_one_record_that_both_sides_unpack(
    java: Driver, servers: tuple[Server, Server], name: str, who: str, timed: None
) -> None:
    if who == "ours":
        pytest.skip("ours keeps no batches as one record, and says so: see below")
    topic = f"Batches{name}"
    namesrv, place = servers[0].address, servers[1].address
    java.mqadmin(f"updateTopic -n {namesrv} -b {place} -t {topic} -r 1 -w 1 -a +queue.type=BatchCQ")
    java.call("admin.awaitRoute", namesrv=namesrv, topic=topic, broker=place)
    told: list[SendResult] = []
    with Producer(name_server=namesrv) as producer:
        for first in (0, 5):
            batch = [Message(topic, f"m-{n}", keys=f"k{n}") for n in range(first, first + 5)]
            told += producer.send_batch(topic, batch, inner=True)
        assert [result.queue_offset for result in told] == list(range(10))
    with java.lite(namesrv, topic, group=f"{topic}-java") as consumer:
        rows = java.call("lite.poll", id=consumer, count=10)["messages"]
    assert bodies(rows) == [f"m-{n}".encode() for n in range(10)]
    with PullConsumer(name_server=namesrv, group=f"{topic}-ours") as consumer:
        (queue,) = consumer.queues(topic)
        for start in (0, 3, 5, 9):
            # Also from within a batch, which the broker returns whole.
            consumer.assign({queue: start})
            found: list[ReceivedMessage] = []
            deadline = time.monotonic() + 40
            while len(found) < 10 - start and time.monotonic() < deadline:
                found += consumer.poll(timeout=0.3)
            assert [m.body for m in found] == [f"m-{n}".encode() for n in range(start, 10)]
            assert [m.queue_offset for m in found] == list(range(start, 10))
            assert [list(m.keys) for m in found] == [[f"k{n}"] for n in range(start, 10)]
            assert [m.message_id for m in found] == [one.message_id for one in told[start:]]
        theirs = {(row["queueOffset"], row["msgId"], row["keys"]) for row in rows}
        assert theirs == {(n, told[n].message_id, f"k{n}") for n in range(10)}
    # As Spark reads it: a range that begins and ends within a batch.
    reader = _core.RangeReader(
        _core.Connections(),
        [(place, told[0].broker, topic, 0, 3, 9)],
        ["queueOffset"],
        group="ranges",
        tags="*",
        max_rows=100,
        max_bytes=1 << 20,
        pulls_in_flight=2,
        timeout_ms=20_000,
        skip_lost=False,
    )
    offsets: list[int] = []
    while (block := reader.next_block()) is not None:
        ((_, (_, values)),) = block.columns
        assert values is not None
        offsets += struct.unpack(f"{block.rows}q", bytes(memoryview(values)))
    assert offsets == [3, 4, 5, 6, 7, 8]


def test_our_broker_refuses_topics_of_batches_and_keeps_such_batches_message_by_message(
    java: Driver, namesrv: str, topic: str, servers: tuple[Server, Server], who: str, timed: None
) -> None:
    with Producer(name_server=namesrv) as producer:
        results = producer.send_batch(topic, ["a", "b", "c"], inner=True, queue=0)
    with java.lite(namesrv, topic, group=f"{topic}-java") as consumer:
        rows = java.call("lite.poll", id=consumer, count=3)["messages"]
    assert [(r["queueOffset"], r["msgId"]) for r in rows] == [
        (result.queue_offset, result.message_id) for result in results
    ]
    if who == "ours":
        wanted = f"updateTopic -n {namesrv} -b {servers[1].address} -t {topic}-b"
        told = java.mqadmin(f"{wanted} -a +queue.type=BatchCQ")
        assert "queue.type=BatchCQ" in told
        assert "not" in told
