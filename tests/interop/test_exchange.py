"""Transactions, requests and gathered batches: our producer and the real one, on both brokers."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from pyrmq import Producer, PullConsumer, TransactionProducer, TransactionState
from tests.interop.ask import await_registered
from tests.interop.cluster import ASKS_SOON, broker, name_server
from tests.interop.driver import DriverError, bodies

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyrmq import ReceivedMessage, SendResult
    from tests.interop.cluster import Clusters
    from tests.interop.driver import Driver


class Site:
    """A name server and a broker that checks soon."""

    def __init__(self, namesrv: str, address: str) -> None:
        """Store the addresses."""
        self.namesrv = namesrv
        self.broker = address


@pytest.fixture(scope="module", params=["ours", "java"])
def site(
    request: pytest.FixtureRequest, version: str, clusters: Callable[[str], Clusters]
) -> Iterator[Site]:
    """Run our servers; other modules share the real ones."""
    if request.param == "java":
        real = clusters(version).get("java")
        yield Site(real.namesrv, real.broker)
        return
    with name_server("ours", version) as names:
        settings = ASKS_SOON["ours"]
        with broker("ours", version, names.address, properties=settings) as one:
            await_registered(names.address, one.address)
            yield Site(names.address, one.address)


@pytest.fixture
def java(drivers: Callable[[str, str], Driver], version: str) -> Driver:
    """The real client."""
    return drivers(version, "JSON")


@pytest.fixture
def topic(java: Driver, site: Site, name: str) -> str:
    """A new topic of four queues."""
    topic = f"Exchange{name}"
    java.call("admin.createTopic", namesrv=site.namesrv, topic=topic, broker=site.broker)
    return topic


def read(site: Site, topic: str, count: int, *, still: float = 0.0) -> list[bytes]:
    """Read a topic until `count` messages arrived, and `still` seconds longer."""
    found: list[bytes] = []
    deadline = time.monotonic() + 40
    with PullConsumer(name_server=site.namesrv, group=f"{topic}-{time.monotonic_ns()}") as consumer:
        consumer.assign(dict.fromkeys(consumer.queues(topic), 0))
        while len(found) < count and time.monotonic() < deadline:
            found += [message.body for message in consumer.poll(timeout=0.3)]
        if still:
            found += [message.body for message in consumer.poll(timeout=still)]
    return found


def test_gathered_batches_reach_java_one_by_one(java: Driver, site: Site, topic: str) -> None:
    results: list[SendResult] = []
    with Producer(name_server=site.namesrv, group="gathering") as producer:
        for number in range(500):
            producer.produce(
                topic,
                f"m-{number}",
                lambda error, result: results.append(result) if result else pytest.fail(str(error)),
                keys="red green",
                tags="Tag",
            )
        assert producer.flush()
        assert producer.stats().frames < 100
    with java.lite(site.namesrv, topic, group=f"{topic}-java") as consumer:
        rows = java.call("lite.poll", id=consumer, count=500)["messages"]
    assert sorted(bodies(rows)) == sorted(f"m-{number}".encode() for number in range(500))
    assert {(row["keys"], row["tags"]) for row in rows} == {("red green", "Tag")}
    places = {(row["queueId"], row["queueOffset"]): row["msgId"] for row in rows}
    if not java.version.startswith("4"):
        assert places == {(r.queue_id, r.queue_offset): r.message_id for r in results}


@pytest.mark.parametrize(
    "site", [pytest.param("ours", marks=pytest.mark.interop_all), "java"], indirect=True
)
def test_our_transactions_end_as_said_and_are_asked_about(site: Site, topic: str) -> None:
    asked: list[ReceivedMessage] = []

    def check(message: ReceivedMessage) -> TransactionState:
        asked.append(message)
        return TransactionState.COMMIT if message.body == b"asked" else TransactionState.ROLLBACK

    said = {
        b"yes": TransactionState.COMMIT,
        b"no": TransactionState.ROLLBACK,
        b"asked": TransactionState.UNKNOWN,
        b"refused": TransactionState.UNKNOWN,
    }
    with TransactionProducer(check=check, name_server=site.namesrv, group=topic) as producer:
        for body, state in said.items():

            def local(_: SendResult, state: TransactionState = state) -> TransactionState:
                return state

            result = producer.send_in_transaction(topic, body, local, keys="k")
            assert result.confirmed == (state is not TransactionState.UNKNOWN)
        found = read(site, topic, 2, still=6.0)
    assert sorted(found) == [b"asked", b"yes"]
    assert {message.body for message in asked} >= {b"asked", b"refused"}
    assert {message.topic for message in asked} == {topic}


@pytest.mark.parametrize(
    "site", ["ours", pytest.param("java", marks=pytest.mark.interop_all)], indirect=True
)
@pytest.mark.parametrize(
    "check", ["commit", pytest.param("rollback", marks=pytest.mark.interop_all)]
)
def test_javas_transactions_end_as_said_and_are_asked_about(
    java: Driver, site: Site, topic: str, check: str
) -> None:
    for local in ("commit", "rollback", "unknown"):
        options = {"transaction": True, "local": local, "check": check}
        with java.producer(site.namesrv, group=f"{topic}-{local}-{check}", **options) as producer:
            java.send(producer, topic, mode="transaction", prefix=local, key="k")
            if local == "unknown":
                wanted = 2 if check == "commit" else 1
                found = read(site, topic, wanted, still=6.0)
    assert len(found) == wanted, found


def test_java_replies_to_our_request(java: Driver, site: Site, topic: str) -> None:
    options = {"from": "LAST_OFFSET"}
    with (
        java.producer(site.namesrv, group="replying") as replier,
        java.push(site.namesrv, topic, group=f"{topic}-a", replier=replier, **options),
        Producer(name_server=site.namesrv, group=f"{topic}-asking") as producer,
    ):
        reply = None
        for _ in range(5):
            # The consumer may not have its queues yet.
            future = producer.request_async(topic, b"?", keys="question-7", timeout=5)
            if future.exception(10) is None:
                reply = future.result()
                break
        assert reply is not None
        assert reply.body == b"reply to question-7"


def test_we_reply_to_javas_request(java: Driver, site: Site, topic: str) -> None:
    stop = threading.Event()
    with (
        PullConsumer(name_server=site.namesrv, group=f"{topic}-b") as consumer,
        Producer(name_server=site.namesrv, group="our-replier") as replier,
    ):
        consumer.assign(dict.fromkeys(consumer.queues(topic), 0))

        def serve() -> None:
            while not stop.is_set():
                for message in consumer.poll(timeout=0.2):
                    replier.reply(message, b"ours to " + message.body)

        thread = threading.Thread(target=serve)
        # Longer than the replies: a reply that its client no longer confirms to the broker fails.
        with java.producer(site.namesrv, group=f"{topic}-asking") as asking:
            thread.start()
            try:
                answers = []
                for start in range(3):
                    try:
                        answer = java.call(
                            "producer.request", id=asking, topic=topic, key="q-", start=start
                        )
                    except DriverError:
                        continue
                    answers.append(answer["reply"])
                    break
            finally:
                stop.set()
                thread.join()
    assert answers
    assert answers[0].startswith("ours to ")
