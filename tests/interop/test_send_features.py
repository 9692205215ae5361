"""Features of messages and their destinations: our producer and Java's, on both brokers."""

from __future__ import annotations

import asyncio
import base64
import random
import re
import time
from typing import TYPE_CHECKING, Any

import pytest

from pyrmq import (
    Message,
    Producer,
    PullConsumer,
    QueueId,
    RmqError,
    TopicNotFound,
    TransactionProducer,
    TransactionState,
    aio,
)
from pyrmq.producer import SendHook, Sending
from pyrmq.routing import MachineRoom
from tests.interop.ask import ask, await_registered
from tests.interop.cluster import broker, name_server
from tests.interop.driver import bodies
from tests.reference import frame as wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyrmq import ReceivedMessage, SendResult
    from pyrmq._client.values import Compression
    from tests.interop.cluster import Cluster, Server
    from tests.interop.driver import Driver, Row

PAIRS = (("java", "JSON"),)
RARE_PAIRS = (("ours", "JSON"),)
POLL_S = 40.0
GET_ROUTEINFO_BY_TOPIC = 105
RESUME_CHECK_HALF_MESSAGE = 323


def java_reads(
    driver: Driver, cluster: Cluster, topic: str, count: int, **options: object
) -> list[Row]:
    """Make the Java client read a topic from its beginning."""
    with driver.lite(cluster.namesrv, topic, group=f"{topic}-java", **options) as consumer:
        rows: list[Row] = driver.call("lite.poll", id=consumer, count=count)["messages"]
        return rows


def we_read(
    name_server: str, topic: str, count: int, *, namespace: str = ""
) -> list[ReceivedMessage]:
    """Read a topic from its beginning until `count` messages arrived."""
    found: list[ReceivedMessage] = []
    deadline = time.monotonic() + POLL_S
    options: dict[str, Any] = {"name_server": name_server, "namespace": namespace}
    with PullConsumer(**options, group=f"ours-{time.monotonic_ns()}") as consumer:
        consumer.assign(dict.fromkeys(consumer.queues(topic), 0))
        while len(found) < count and time.monotonic() < deadline:
            found += consumer.poll(timeout=0.3)
    return found


def last(queues: Sequence[QueueId]) -> QueueId:
    """Choose the last queue."""
    return queues[-1]


def test_every_way_of_choosing_a_queue_and_of_waiting_is_stored_where_it_says(
    driver: Driver, cluster: Cluster, topic: str
) -> None:
    told: dict[str, SendResult | None] = {}
    place = QueueId(topic, cluster.broker_name, 2)
    with Producer(name_server=cluster.namesrv) as producer:
        told["function"] = producer.send(topic, "function", queue=last)
        told["random"] = producer.send(topic, "random", queue=random.choice)
        told["rooms"] = producer.send(topic, "rooms", queue=MachineRoom(["north"]))
        told["number"] = producer.send(topic, "number", queue=1)
        told["place"] = producer.send(topic, "place", queue=place)
        told["future"] = producer.send_async(topic, "future", queue=last).result(10)
        (told["batch"],) = producer.send_batch(topic, ["batch"], queue=last)
        producer.produce(
            topic, "produced", lambda _, result: told.update(produced=result), queue=last
        )
        producer.send_oneway(topic, "oneway", queue=place)
        assert producer.flush()

    async def main() -> None:
        async with aio.Producer(name_server=cluster.namesrv) as own:
            told["awaited"] = await own.send(topic, "awaited", queue=last)
            told["aio future"] = await (await own.produce(topic, "aio future", queue=place))
            (told["aio batch"],) = await own.send_batch(topic, ["aio batch"], queue=1)
            await own.send_oneway(topic, "aio oneway", queue=last)

    asyncio.run(main())
    rows = java_reads(driver, cluster, topic, 13)
    where = {
        body.decode(): (row["queueId"], row["queueOffset"])
        for body, row in zip(bodies(rows), rows, strict=True)
    }
    assert len(where) == 13
    for name, result in told.items():
        assert result is not None, name
        assert where[name] == (result.queue_id, result.queue_offset), name
    for name in ("function", "future", "batch", "produced", "awaited", "aio oneway"):
        assert where[name][0] == 3, name
    for name in ("place", "aio future", "oneway"):
        assert where[name][0] == 2, name


def test_our_sharding_key_means_the_queue_that_javas_hash_selector_takes(
    driver: Driver, cluster: Cluster, topic: str
) -> None:
    keys = ["order-42", "größe", "", "a", "polygenelubricants", "7"]
    with (
        driver.producer(cluster.namesrv) as java,
        Producer(name_server=cluster.namesrv) as producer,
    ):
        for key in filter(None, keys):
            theirs = driver.send(java, topic, hash=key)[0]["queueId"]
            assert producer.send(topic, "x", sharding_key=key).queue_id == theirs, key


@pytest.mark.parametrize("kind_of_compression", ["zlib", "lz4", "zstd"])
def test_every_compression_of_ours_java_unpacks(
    driver: Driver, cluster: Cluster, topic: str, kind_of_compression: Compression
) -> None:
    if kind_of_compression != "zlib" and driver.version.startswith("4"):
        pytest.skip("4.x clients know zlib only")
    for level in (1, 9):
        with Producer(
            name_server=cluster.namesrv, compression=kind_of_compression, compress_level=level
        ) as producer:
            producer.send(topic, b"a lot of text that compresses " * 3000)
            future = producer.send_async(topic, b"a lot of text that compresses " * 3000)
            future.result(10)
    rows = java_reads(driver, cluster, topic, 4)
    assert {(row["bodyLength"], row["storeSize"] < 20_000) for row in rows} == {(90_000, True)}
    assert len({row["bodyMd5"] for row in rows}) == 1


class Marking(SendHook):
    """Writes a property into every message."""

    def __init__(self) -> None:
        self.after: list[tuple[str, str]] = []

    def before_send(self, sending: Sending) -> None:
        """Mark it."""
        sending.properties["marked"] = sending.kind

    def after_send(self, sending: Sending, error: BaseException | None, result: object) -> None:
        """Record the outcome."""
        assert error is None
        self.after.append((sending.topic, sending.kind))


def test_a_delay_level_a_flag_and_what_a_hook_writes_arrive(
    driver: Driver, cluster: Cluster, topic: str
) -> None:
    hook = Marking()
    with Producer(name_server=cluster.namesrv, hooks=[hook]) as producer:
        producer.send(topic, "late", delay_level=1, flag=7)
        producer.send_async(topic, "late future", delay_level=1, flag=7).result(10)
        producer.produce(topic, "late produced", delay_level=1, flag=7)
        batch = [Message(topic, "late in a batch", delay_level=1, flag=7), Message(topic, "now")]
        producer.send_batch(topic, batch)
        assert producer.flush()
    with driver.producer(cluster.namesrv) as java:
        driver.send(java, topic, prefix="late java", delay=1, flag=7)
    rows = java_reads(driver, cluster, topic, 6)
    found = {body.decode(): row for body, row in zip(bodies(rows), rows, strict=True)}
    assert len(found) == 6
    for name, row in found.items():
        waited = row["storeTimestamp"] - row["bornTimestamp"]
        assert (waited >= 900) == name.startswith("late"), (name, waited)
        assert row["topic"] == topic
        assert row["flag"] == (0 if name == "now" else 7)
        marks = {"late java-0": None, "now": "batch", "late in a batch": "batch"}
        assert row["properties"].get("marked") == marks.get(name, "send")
    assert sorted(hook.after) == sorted([(topic, "send")] * 3 + [(topic, "batch")])
    ours = {message.body.decode(): message for message in we_read(cluster.namesrv, topic, 6)}
    assert {name: message.flag for name, message in ours.items()} == {
        name: row["flag"] for name, row in found.items()
    }


def test_a_namespace_means_the_same_to_both(driver: Driver, cluster: Cluster, name: str) -> None:
    topic, namespace = f"Spaced{name}", f"ns{name}"
    whole = f"{namespace}%{topic}"
    where = {"namesrv": cluster.namesrv, "broker": cluster.broker}
    driver.call("admin.createTopic", topic=whole, **where)
    with Producer(name_server=cluster.namesrv, namespace=namespace) as producer:
        assert producer.send(topic, "ours").topic == topic
        producer.send_batch(topic, ["ours in a batch"])
    with driver.producer(cluster.namesrv, namespace=namespace) as java:
        driver.send(java, topic, prefix="java")
    wanted = [b"java-0", b"ours", b"ours in a batch"]
    rows = java_reads(driver, cluster, topic, 3, namespace=namespace)
    assert sorted(bodies(rows)) == wanted
    found = we_read(cluster.namesrv, topic, 3, namespace=namespace)
    assert sorted(message.body for message in found) == wanted
    assert {message.topic for message in found} == {topic}
    assert sorted(message.body for message in we_read(cluster.namesrv, whole, 3)) == wanted


def test_a_unit_and_the_fast_port_mean_the_same_to_both(
    driver: Driver, cluster: Cluster, name: str
) -> None:
    ours, theirs = f"Unit{name}", f"JavaUnit{name}"
    options: dict[str, Any] = {"unit_mode": True, "unit_name": "north", "vip_channel": True}
    with Producer(name_server=cluster.namesrv, **options) as producer:
        producer.send(ours, "x")
    with driver.producer(cluster.namesrv, unit="north", vip=True) as java:
        driver.send(java, theirs)
    for topic, body in ((ours, b"x"), (theirs, b"m-0")):
        driver.call("admin.awaitRoute", topic=topic, namesrv=cluster.namesrv, broker=cluster.broker)
        question = wire.Frame(code=GET_ROUTEINFO_BY_TOPIC, version=407, fields={"topic": topic})
        route = (ask(cluster.namesrv, question).body or b"").decode()
        # A topic that a unit's send creates belongs to the unit (`TopicSysFlag.FLAG_UNIT`).
        assert re.search(r'"topicSy[ns]Flag":1\b', route), route
        assert bodies(java_reads(driver, cluster, topic, 1)) == [body]


def test_a_topic_for_ordered_groups_takes_a_group_as_sharding_key(
    driver: Driver, cluster: Cluster, name: str
) -> None:
    if driver.version.startswith("4"):
        pytest.skip("topics have a message type from 5.0 on")
    topic = f"Fifo{name}"
    where = f"-n {cluster.namesrv} -b {cluster.broker} -t {topic}"
    driver.mqadmin(f"updateTopic {where} -r 4 -w 4 -a +message.type=FIFO")
    driver.call("admin.awaitRoute", namesrv=cluster.namesrv, topic=topic, broker=cluster.broker)
    with Producer(name_server=cluster.namesrv) as producer:
        for number in range(20):
            producer.produce(topic, f"{number % 2}-{number:02}", sharding_key=f"g{number % 2}")
        assert producer.flush()
    with driver.push(cluster.namesrv, topic, group=f"{topic}-group", orderly=True) as consumer:
        rows = driver.pushed(consumer, 20)
    for group in (b"0", b"1"):
        mine = [body for body in bodies(rows) if body.startswith(group)]
        assert len(mine) == 10
        assert mine == sorted(mine)
    assert {row["properties"]["__SHARDINGKEY"] for row in rows} == {"g0", "g1"}


def decoded(driver: Driver, messages: list[ReceivedMessage]) -> list[Row]:
    """Return what Java's reader finds in trace messages."""
    rows: list[Row] = []
    for message in messages:
        body = base64.b64encode(message.body).decode()
        rows += driver.call("trace.decode", body=body)["contexts"]
    return rows


@pytest.mark.interop_all
def test_traces_of_both_are_read_by_javas_reader(
    driver: Driver, cluster: Cluster, topic: str
) -> None:
    ours, theirs = f"{topic}-ours", f"{topic}-theirs"
    where = {"namesrv": cluster.namesrv, "broker": cluster.broker}
    for trace in (ours, theirs):
        driver.call("admin.createTopic", topic=trace, queues=1, **where)
    options: dict[str, Any] = {"trace": True, "trace_topic": ours, "group": "traced"}
    with Producer(name_server=cluster.namesrv, **options) as producer:
        sent = producer.send(topic, "body", keys="order-42", tags="new")
    with driver.producer(cluster.namesrv, group="traced", trace=theirs) as java:
        java_sent = driver.send(java, topic, keys="order-42", tag="new", prefix="bod")[0]
        found = {theirs: decoded(driver, we_read(cluster.namesrv, theirs, 1))}
    found[ours] = decoded(driver, we_read(cluster.namesrv, ours, 1))
    ids = {ours: (sent.message_id, sent.offset_message_id)}
    ids[theirs] = (java_sent["msgId"], java_sent["offsetMsgId"])
    told = []
    for trace, rows in found.items():
        (row,) = rows
        assert (row["msgId"], row["offsetMsgId"]) == ids[trace]
        assert row["storeHost"].endswith(cluster.broker.rpartition(":")[2])
        assert abs(row["timestamp"] / 1000 - time.time()) < 120
        told.append({key: row[key] for key in ("type", "group", "success", "topic", "msgType")})
        assert (row["tags"], row["keys"]) == ("new", "order-42")
    assert told[0] == told[1]
    assert told[0]["topic"] == topic


def test_java_replies_to_a_request_that_a_task_awaits(
    driver: Driver, cluster: Cluster, topic: str
) -> None:
    options = {"from": "FIRST_OFFSET"}
    with (
        driver.producer(cluster.namesrv, group=f"{topic}-replying") as replier,
        driver.push(cluster.namesrv, topic, group=f"{topic}-a", replier=replier, **options),
    ):

        async def main() -> bytes:
            async with aio.Producer(name_server=cluster.namesrv, group=f"{topic}-asks") as asking:
                reply = await asking.request(topic, b"?", keys="question-7", timeout=30)
                return reply.body

        assert asyncio.run(main()) == b"reply to question-7"


class Site:
    """A name server and a broker that gives up a transaction after one check."""

    def __init__(self, who: str, names: Server, one: Server) -> None:
        """Store the addresses."""
        self.who = who
        self.namesrv = names.address
        self.broker = one.address


@pytest.fixture(params=["ours", pytest.param("java", marks=pytest.mark.interop_all)])
def impatient(request: pytest.FixtureRequest, version: str) -> Iterator[Site]:
    """Run our servers, or the real ones."""
    names = name_server(request.param, version)
    names.start()
    try:
        quick = {
            "transactionTimeOut": 500,
            "transactionCheckInterval": 500,
            "transactionCheckMax": 1,
        }
        one = broker(request.param, version, names.address, properties=quick)
        one.start()
        try:
            await_registered(names.address, one.address)
            yield Site(request.param, names, one)
        finally:
            one.kill()
    finally:
        names.kill()


def given_up(site: Site) -> ReceivedMessage:
    """Wait for the transaction that the broker has given up."""
    deadline = time.monotonic() + POLL_S
    while True:
        try:
            found = we_read(site.namesrv, "TRANS_CHECK_MAX_TIME_TOPIC", 1)
        except (RmqError, TopicNotFound):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        else:
            return found[0]


def test_a_transaction_that_was_given_up_is_asked_about_again(
    drivers: Callable[[str, str], Driver], version: str, impatient: Site, name: str
) -> None:
    java = drivers(version, "JSON")
    topic = f"Resumed{name}"
    where = {"namesrv": impatient.namesrv, "broker": impatient.broker}
    java.call("admin.createTopic", topic=topic, **where)
    says = [TransactionState.UNKNOWN]
    asked: list[ReceivedMessage] = []

    def check(message: ReceivedMessage) -> TransactionState:
        asked.append(message)
        return says[0]

    options: dict[str, Any] = {"name_server": impatient.namesrv, "group": topic}
    with TransactionProducer(check=check, **options) as producer:
        half = producer.send_in_transaction(topic, b"x", lambda _: TransactionState.UNKNOWN).half
        lost = given_up(impatient)
        assert lost.message_id == half.message_id
        before = len(asked)
        assert before
        says[0] = TransactionState.COMMIT
        fields = {"topic": lost.topic, "msgId": lost.offset_message_id}
        if impatient.who == "ours":
            assert java.call("admin.resume", namesrv=impatient.namesrv, **fields)["resumed"]
        else:
            request = wire.Frame(code=RESUME_CHECK_HALF_MESSAGE, version=407, fields=fields)
            assert ask(impatient.broker, request).code == 0
        found = we_read(impatient.namesrv, topic, 1)
    # The real one records an end late: it may check, and store, once more.
    assert {message.message_id for message in found} == {half.message_id}
    assert len(asked) > before
