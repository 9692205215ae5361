"""Failures at a producer's edges, and each caller's outcome."""

from __future__ import annotations

import asyncio
import gc
import random
import re
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e.wire import Connection

from pyrmq import Message, MessageError, Producer, ProtocolError, PullConsumer, aio
from pyrmq.codes import RequestCode, ResponseCode
from pyrmq.errors import MessageRefused, QueueFull
from pyrmq.testing import Cluster, cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyrmq import RmqError, SendResult

LIMIT = 10_000
COMPRESSED = 1
MAX_PROPERTIES = 32_767


@pytest.fixture(scope="module")
def narrow() -> Iterator[Cluster]:
    """A cluster whose broker accepts smaller batches than a producer gathers."""
    with cluster(max_message_size=LIMIT) as running:
        yield running


@pytest.mark.parametrize("key", [None, "k"])
def test_a_gathered_batch_that_is_too_long_for_the_broker_fails_nobody(
    narrow: Cluster, topic: str, key: str | None
) -> None:
    told: dict[int, tuple[RmqError | None, SendResult | None]] = {}
    count = 1000

    def note(number: int, error: RmqError | None, sent: SendResult | None) -> None:
        told[number] = error, sent

    with Producer(name_server=narrow.name_server) as producer:
        for number in range(count):
            producer.produce(
                topic,
                b"%06d" % number + bytes(100),
                partial(note, number),
                sharding_key=key,
            )
        assert producer.flush()
        stats = producer.stats()
    assert len(told) == count
    assert {error for error, _ in told.values()} == {None}
    places = [(sent.broker, sent.queue_id, sent.queue_offset) for _, sent in told.values() if sent]
    assert len(set(places)) == count
    ids = {sent.message_id: number for number, (_, sent) in told.items() if sent}
    assert (stats.confirmed, stats.failed, stats.in_flight) == (count, 0, 0)
    found: list[tuple[int, str, bytes]] = []
    with PullConsumer(name_server=narrow.name_server, group=f"read-{topic}") as consumer:
        consumer.subscribe(topic)
        while len(found) < count:
            messages = consumer.poll(timeout=20)
            assert messages, len(found)
            found += [(one.queue_id, one.message_id, one.body[:6]) for one in messages]
    assert all(ids[name] == int(body) for _, name, body in found)
    if key is not None:
        assert [int(body) for _, _, body in found] == list(range(count)), "one key, one order"


def test_a_message_that_no_broker_takes_fails_alone(narrow: Cluster, topic: str) -> None:
    told: dict[int, RmqError | None] = {}

    def note(number: int, error: RmqError | None, _: SendResult | None) -> None:
        told[number] = error

    with Producer(name_server=narrow.name_server, compress_over_bytes=None) as producer:
        for number in range(100):
            size = 2 * LIMIT if number == 57 else 100
            producer.produce(
                topic,
                random.Random(number).randbytes(size),
                partial(note, number),
            )
        assert producer.flush()
        assert (producer.stats().confirmed, producer.stats().failed) == (99, 1)
    failed = {number: error for number, error in told.items() if error is not None}
    assert list(failed) == [57]
    assert isinstance(failed[57], MessageRefused)
    assert re.search(f"has {2 * LIMIT} bytes, maxMessageSize is {LIMIT}", str(failed[57]))


def test_asynchronous_sends_are_split_too(narrow: Cluster, topic: str) -> None:
    async def main() -> list[SendResult]:
        async with aio.Producer(name_server=narrow.name_server) as producer:
            sends = (producer.send(topic, bytes(100)) for _ in range(500))
            return await asyncio.gather(*sends)

    assert (
        len({(sent.broker, sent.queue_id, sent.queue_offset) for sent in asyncio.run(main())})
        == 500
    )


def test_a_full_window_says_what_is_full_and_what_to_raise(address: str, topic: str) -> None:
    with Producer(name_server=address, max_in_flight=2, linger=30) as producer:
        producer.produce(topic, b"x")
        producer.produce(topic, b"x")
        with pytest.raises(QueueFull) as caught:
            producer.produce(topic, b"x", wait=False)
        assert str(caught.value) == (
            "2 messages are on their way, the limit is 2: wait for results or raise `max_in_flight`"
        )
        for send in (producer.send, producer.send_async):
            with pytest.raises(QueueFull) as caught:
                send(topic, b"x", timeout=0.1)
            assert str(caught.value) == (
                "2 messages are on their way, the limit is 2, and no room came in 100 ms, the time "
                "of the send: wait for results before you send more, or raise `send_timeout`, this "
                "send's `timeout` or `max_in_flight`"
            )

    with Producer(name_server=address, max_in_flight_bytes=10, linger=30) as producer:
        producer.produce(topic, b"12345678")
        with pytest.raises(QueueFull, match=r" 8 bytes .*is 10 bytes: .*_bytes`"):
            producer.produce(topic, b"123", wait=False)


def test_an_awaited_send_that_found_no_room_says_how_long_it_waited(
    address: str, topic: str
) -> None:
    async def main() -> None:
        async with aio.Producer(name_server=address, max_in_flight=2, linger=30) as producer:
            await producer.produce(topic, b"x")
            await producer.produce(topic, b"x")
            with pytest.raises(QueueFull, match=r"no room came in 100 ms, the time of the send"):
                await producer.send(topic, b"x", timeout=0.1)

    asyncio.run(main())


@pytest.mark.parametrize("over", [1, 5000])
def test_properties_that_are_too_long_are_refused_with_their_size(
    address: str, topic: str, over: int
) -> None:
    # The common properties have 42 bytes, and 3 surround this one.
    long = {"p": "v" * (MAX_PROPERTIES - 42 - 3 + over)}
    text = f"properties of a message for topic `{topic}` have 3[2-7][0-9]{{3}} bytes together"
    with Producer(name_server=address) as producer:
        ways: list[Any] = [
            lambda: producer.send(topic, b"x", properties=long),
            lambda: producer.produce(topic, b"x", properties=long),
            lambda: producer.send_batch(topic, [Message(topic, b"x", properties=long)]),
            lambda: producer.send_oneway(topic, b"x", properties=long),
        ]
        for way in ways:
            with pytest.raises(MessageError, match=text):
                way()
        fits = {"p": long["p"][over + 100 :]}  # brokers add their own
        assert producer.send(topic, b"x", properties=fits).status.name == "SEND_OK"


def test_a_body_that_cannot_be_read_names_its_message(shared: Cluster, topic: str) -> None:
    fields = {
        "a": "g", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": str(COMPRESSED), "g": "1",
        "h": "0", "i": "UNIQ_KEY\x01THE-ID\x02",
    }  # fmt: skip
    with Connection(shared.broker.address) as connection:
        answer = connection.ask(RequestCode.SEND_MESSAGE_V2, fields, b"no zlib stream")
    assert answer.code == ResponseCode.SUCCESS
    with PullConsumer(name_server=shared.name_server, group=f"read-{topic}") as consumer:
        consumer.subscribe(topic)
        (message,) = consumer.poll(timeout=20)
    with pytest.raises(ProtocolError) as caught:
        _ = message.body
    told = f"message THE-ID, offset 0 of queue 0 of topic `{topic}` on broker `{message.broker}`: "
    assert told in str(caught.value)


def test_a_key_with_a_space_counts_as_two(address: str, topic: str) -> None:
    with Producer(name_server=address) as producer:
        producer.send(topic, b"x", keys="two words")
    with PullConsumer(name_server=address, group=f"read-{topic}") as consumer:
        consumer.subscribe(topic)
        (message,) = consumer.poll(timeout=20)
    assert message.keys == ["two", "words"]


@pytest.mark.parametrize("how", ["produced", "cancelled", "after the loop"])
def test_a_dropped_asynchronous_producer_does_not_wait_for_its_own_loop(
    address: str, topic: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its outcomes wait for the loop, whose thread would wait for them for 2 s and then warn."""
    kept: list[Any] = []

    async def main() -> None:
        producer = aio.Producer(name_server=address)
        await producer.send(topic, b"first")
        if how == "cancelled":
            send = asyncio.create_task(producer.send(topic, b"x"))
            await asyncio.sleep(0)
            send.cancel()
            return
        futures = [await producer.produce(topic, b"x") for _ in range(10)]
        if how == "produced":
            del producer
            gc.collect()
            assert len(await asyncio.gather(*futures)) == 10
        else:
            kept.extend([producer, *futures])

    asyncio.run(main())
    kept.clear()
    gc.collect()
    deadline = time.monotonic() + 20
    left = 1 if how == "cancelled" else 11
    with PullConsumer(name_server=address, group=f"read-{topic}") as consumer:
        consumer.subscribe(topic)
        while left > 0:
            assert time.monotonic() < deadline
            left -= len(consumer.poll(timeout=1))
    assert [one.getMessage() for one in caplog.records if "dropped" in one.getMessage()] == []
