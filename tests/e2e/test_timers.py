"""When a message is delivered: delay levels, timer messages, recall, kill -9."""

from __future__ import annotations

import asyncio
import time
from base64 import urlsafe_b64encode
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from tests.interop.ask import await_registered
from tests.interop.ours import OurBroker, OurNameServer

from pyrmq import (
    Admin,
    ConfigError,
    Message,
    MessageError,
    Producer,
    PullConsumer,
    RouteError,
    aio,
)
from pyrmq.errors import BatchSendError, BrokerError, MessageRefused, PermissionDenied
from pyrmq.testing import Cluster, cluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyrmq import ReceivedMessage

SOON = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def quick() -> Iterator[Cluster]:
    """A broker with steps of a tenth of a second that allows recalls."""
    with cluster(timer_precision_ms=100, recall_message_enable=True) as running:
        yield running


def read(address: str, topic: str, count: int, seconds: float = 20.0) -> list[ReceivedMessage]:
    """Read a topic until `count` different messages arrived, and a little longer."""
    found: list[ReceivedMessage] = []
    deadline = time.monotonic() + seconds
    with PullConsumer(name_server=address, group=f"{topic}-{time.monotonic_ns()}") as consumer:
        consumer.assign(dict.fromkeys(consumer.queues(topic), 0))
        while len({message.body for message in found}) < count and time.monotonic() < deadline:
            found += consumer.poll(timeout=0.2)
        found += consumer.poll(timeout=0.3)
    return found


def test_every_way_of_sending_can_choose_the_moment(quick: Cluster, topic: str) -> None:
    address = quick.name_server
    with Producer(name_server=address, send_timeout=20) as producer:
        assert producer.send(topic, b"plain").recall_handle is None
        at = datetime.now(UTC) + timedelta(seconds=2)
        assert producer.send(topic, b"delayed", delay=2).recall_handle
        assert producer.send(topic, b"in the past", deliver_at=at - timedelta(hours=1)).message_id
        producer.send(topic, b"at", deliver_at=at, sharding_key="k")
        producer.send_async(topic, b"async", delay=2).result(timeout=10)
        told: list[BaseException | None] = []
        producer.produce(topic, b"produced", lambda error, _: told.append(error), delay=2)
        assert producer.flush()
        assert told == [None]
        producer.send_batch(topic, ["in a batch", Message(topic, b"later in one", delay=2)])

    async def main() -> None:
        async with aio.Producer(name_server=address) as producer:
            await producer.send(topic, b"awaited", delay=2)
            await (await producer.produce(topic, b"awaited produce", deliver_at=at))

    asyncio.run(asyncio.wait_for(main(), 25))
    found = read(address, topic, 10)
    now = {message.body for message in found if message.store_timestamp < at.timestamp() * 1000}
    assert now == {b"plain", b"in the past", b"in a batch"}
    later = {message.body for message in found} - now
    assert later == {
        b"delayed",
        b"at",
        b"async",
        b"produced",
        b"later in one",
        b"awaited",
        b"awaited produce",
    }
    assert len(found) == 10


def test_what_is_taken_back_never_comes(quick: Cluster, topic: str) -> None:
    address = quick.name_server
    with Producer(name_server=address) as producer:
        taken = producer.send(topic, b"taken back", delay=3)
        kept = producer.send(topic, b"kept", delay=3)
        assert taken.recall_handle
        assert kept.recall_handle
        assert producer.recall(topic, taken.recall_handle) == taken.message_id

        async def main() -> None:
            async with aio.Producer(name_server=address) as own:
                later = await own.send(topic, b"taken back, too", delay=3)
                assert later.recall_handle
                assert await own.recall(topic, later.recall_handle) == later.message_id

        asyncio.run(asyncio.wait_for(main(), 25))
        assert [message.body for message in read(address, topic, 1)] == [b"kept"]
        with pytest.raises(BrokerError, match="timestamp invalid"):
            producer.recall(topic, kept.recall_handle)


def test_a_broker_without_timers_says_so_to_every_way_of_sending(topic: str) -> None:
    match = "timerWheelEnable is false"
    with cluster(timer_wheel_enable=False) as running:
        address = running.name_server
        with Producer(name_server=address, retries=0) as producer:
            with pytest.raises(BrokerError, match=match):
                producer.send(topic, b"x", delay=1)
            with pytest.raises(BrokerError, match=match):
                producer.send_async(topic, b"x", delay=1).result(timeout=10)
            told: list[BaseException | None] = []
            producer.produce(topic, b"x", lambda error, _: told.append(error), delay=0.5)
            assert producer.flush()
            assert isinstance(told[0], BrokerError)
            with pytest.raises(BatchSendError) as raised:
                producer.send_batch(topic, ["now", Message(topic, b"later", delay=1)])
            first, second = raised.value.results
            assert type(first).__name__ == "SendResult"
            assert isinstance(second, BrokerError)


def test_a_moment_too_far_ahead_is_refused(address: str, topic: str) -> None:
    with Producer(name_server=address) as producer:
        with pytest.raises(MessageRefused, match="max delay 259200000ms"):
            producer.send(topic, b"x", delay=4 * 86_400)
        with pytest.raises(MessageRefused, match="max delay 259200000ms"):
            producer.send(topic, b"x", deliver_at=SOON)


def test_one_time_at_most_and_not_before_now(address: str, topic: str) -> None:
    with Producer(name_server=address) as producer:
        for send in (producer.send, producer.send_async, producer.produce):
            with pytest.raises(MessageError, match="only one can be given"):
                send(topic, b"x", delay=1, delay_level=1)
            with pytest.raises(MessageError, match="only one can be given"):
                send(topic, b"x", delay=1, deliver_at=SOON)
            with pytest.raises(MessageError, match="`delay` is -1"):
                send(topic, b"x", delay=-1)
            with pytest.raises(MessageError, match="`delay` is nan"):
                send(topic, b"x", delay=float("nan"))
        with pytest.raises(MessageError, match="only one can be given"):
            Message(topic, b"x", delay_level=1, deliver_at=SOON)
    assert Message(topic, b"x", deliver_at=SOON).when == ("TIMER_DELIVER_MS", "1893456000000")


def handle(*parts: str) -> str:
    """Return a recall handle of these parts."""
    return urlsafe_b64encode(" ".join(parts).encode()).decode()


def test_recall_tells_what_is_wrong(address: str, topic: str) -> None:
    good = handle("v1", topic, "broker-a", "1893456000001", "0A" * 16)
    wrong = ("", "nonsense", "äöü", handle("v2", "a", "b", "1", "c"), handle("v1", topic, "b"))
    with Admin(name_server=address) as admin:
        admin.create_topic(topic)
    with Producer(name_server=address) as producer:
        producer.send(topic, b"x")
        for text in wrong:
            with pytest.raises(ConfigError, match="is not a recall handle"):
                producer.recall(topic, text)
        with pytest.raises(RouteError, match="the broker that the handle names is not alive"):
            producer.recall(topic, handle("v1", topic, "broker-x", "1", "c"))
        with pytest.raises(PermissionDenied, match="operation is forbidden"):
            producer.recall(topic, good)

    async def main() -> None:
        async with aio.Producer(name_server=address) as producer:
            with pytest.raises(ConfigError, match="is not a recall handle"):
                await producer.recall(topic, "nonsense")
            with pytest.raises(PermissionDenied, match="operation is forbidden"):
                await producer.recall(topic, good)

    asyncio.run(asyncio.wait_for(main(), 25))


@pytest.mark.timeout(120)
def test_what_waits_outlives_kill_9(tmp_path: Path) -> None:
    sent: Counter[bytes] = Counter()
    options = {"timerPrecisionMs": 100, "timerFlushIntervalMs": 50, "mappedFileSizeTimerLog": 4096}
    with OurNameServer() as names:
        port = None
        for number in range(4):
            one = OurBroker(
                names.address, store_dir=tmp_path / "store", port=port, properties=options
            )
            port = one.port
            with one:
                await_registered(names.address, one.address)
                if number == 3:
                    found = read(names.address, "timed", sent.total(), 40)
                    break
                with Producer(name_server=names.address, group=f"killed-{number}") as producer:
                    for at in range(150):
                        body = f"{number}/{at}".encode()
                        producer.send("timed", body, delay=at * 0.03)
                        sent[body] += 1
                one.kill()
    bodies = Counter(message.body for message in found)
    assert set(bodies) == set(sent)
