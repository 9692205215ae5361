"""Many messages in one call: their order, the error if it ends early, how much may wait."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e.wire import await_true

from pyrmq import Admin, Message, MessageError, Producer, PullConsumer, RmqError, SendResult, aio
from pyrmq.errors import BatchSendError, QueueFull

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def topic(address: str, topic: str) -> str:
    """Create a topic on both brokers."""
    with Admin(name_server=address) as admin:
        admin.create_topic(topic, queues=4)
    return topic


def stored(address: str, topic: str, count: int) -> list[bytes]:
    """Return the bodies of a topic, in the order of each queue."""
    found: dict[tuple[str, int, int], bytes] = {}
    with PullConsumer(name_server=address, group=f"stored-{topic}") as consumer:
        consumer.subscribe(topic)
        while len(found) < count:
            messages = consumer.poll(timeout=10)
            assert messages, f"only {len(found)} of {count} messages came"
            found.update({(m.broker, m.queue_id, m.queue_offset): m.body for m in messages})
    return [body for _, body in sorted(found.items())]


@pytest.mark.parametrize("where", [{"sharding_key": "k"}, {"queue": 1}], ids=["key", "queue"])
def test_a_batch_stays_behind_what_was_sent_to_its_queue_before(
    address: str, topic: str, where: dict[str, Any]
) -> None:
    with Producer(name_server=address, linger=0.2) as producer:
        number = 0
        for _ in range(5):
            for _ in range(40):
                producer.produce(topic, f"{number:05}", **where)
                number += 1
            bodies = [f"{number + n:05}" for n in range(400)]
            sent = producer.send_batch(topic, bodies, batch_bytes=4096, **where)
            number += 400
            assert len({(result.queue_id, result.queue_offset) for result in sent}) == 400
            offsets = [result.queue_offset for result in sent]
            assert offsets == sorted(offsets)
        assert producer.flush()
        # The thread that launched the last frame may still be about to look for more.
        await_true(lambda: producer._batcher.partitions() == 0)
    assert [int(body) for body in stored(address, topic, number)] == list(range(number))


def test_each_result_of_a_mixed_call_is_that_of_its_message(address: str, topic: str) -> None:
    messages: list[Message | str] = []
    for number in range(600):
        if number % 3 == 0:
            messages.append(Message(topic, f"{number:04}", sharding_key=f"key-{number % 7}"))
        elif number % 50 == 1:
            messages.append(Message(topic, f"{number:04}", delay_level=1, sharding_key="later"))
        else:
            messages.append(f"{number:04}")
    with Producer(name_server=address) as producer:
        sent = producer.send_batch(topic, messages, batch_bytes=2048)
        assert len({result.message_id for result in sent}) == 600
    with PullConsumer(name_server=address, group=f"mixed-{topic}") as consumer:
        consumer.subscribe(topic)
        ids: dict[str, int] = {}
        while len(ids) < 600:
            got = consumer.poll(timeout=20)
            assert got
            ids.update({m.message_id: int(m.body) for m in got})
    assert [ids[result.message_id] for result in sent] == list(range(600))


def broken_off(count: int) -> Iterator[str]:
    """Yield some bodies, then raise an error of the caller."""
    for number in range(count):
        yield f"{number:0200}"
    raise LookupError("the source is gone")


@pytest.mark.parametrize("where", [{}, {"sharding_key": "k"}], ids=["any", "key"])
def test_a_call_that_ends_early_reports_what_it_has_sent(
    address: str, topic: str, where: dict[str, Any]
) -> None:
    with Producer(name_server=address) as producer:
        with pytest.raises(BatchSendError, match="the source is gone") as broken:
            producer.send_batch(topic, broken_off(1000), batch_bytes=16_384, **where)
        assert isinstance(broken.value.__cause__, LookupError)
        bodies = [*[bytes(200)] * 999, b"", b"never read"]
        with pytest.raises(BatchSendError, match="empty body") as illegal:
            producer.send_batch(topic, bodies, batch_bytes=16_384, **where)
        assert isinstance(illegal.value.__cause__, MessageError)
        assert isinstance(illegal.value.results[999], MessageError)
        confirmed = producer.stats().confirmed
    told = 0
    for error in (broken.value, illegal.value):
        assert len(error.results) == 1000
        assert not error.may_exist
        for result in error.results:
            if isinstance(result, SendResult):
                told += 1
            else:
                assert isinstance(result, RmqError)
                assert not result.may_exist
                assert result.__cause__ or isinstance(result, MessageError)
    assert told == confirmed
    assert told > 1000
    assert len(stored(address, topic, told)) == told


def test_a_call_of_which_nothing_was_sent_raises_what_it_ended_by(address: str, topic: str) -> None:
    with Producer(name_server=address) as producer:
        with pytest.raises(LookupError):
            producer.send_batch(topic, broken_off(3))
        with pytest.raises(MessageError):
            producer.send_batch(topic, [b"x", b""])
        with pytest.raises(LookupError):
            producer.send_batch(topic, broken_off(0), sharding_key="k")
        assert producer.send_batch(topic, []) == []
        assert producer.stats().frames == 0


def test_no_room_in_the_middle_of_a_call_reports_what_was_sent(address: str, topic: str) -> None:
    bodies = (bytes(100) for _ in range(300))
    with (
        Producer(name_server=address, max_in_flight=100, create_topic_key="no-such") as producer,
        pytest.raises(BatchSendError) as full,
    ):
        producer.send_batch("not-there", bodies, timeout=0.05, sharding_key="k")
    assert isinstance(full.value.__cause__, QueueFull)
    assert len(full.value.results) == 101
    assert all(isinstance(result, RmqError) for result in full.value.results)
    assert isinstance(full.value.results[100], QueueFull)


def test_a_call_of_an_event_loop_that_ends_early_reports_what_it_has_sent(
    address: str, topic: str
) -> None:
    async def main() -> None:
        async with aio.Producer(name_server=address) as producer:
            for key in (None, "k"):
                with pytest.raises(BatchSendError) as broken:
                    await producer.send_batch(
                        topic, broken_off(1000), batch_bytes=16_384, sharding_key=key
                    )
                assert isinstance(broken.value.__cause__, LookupError)
                assert len(broken.value.results) == 1000
            with pytest.raises(LookupError):
                await producer.send_batch(topic, broken_off(1))
            assert len(await producer.send_batch(topic, ["a", "b"], sharding_key="k")) == 2

    asyncio.run(main())


def test_calls_of_many_tasks_keep_to_the_window(address: str, topic: str) -> None:
    async def main() -> None:
        most = 0
        async with aio.Producer(name_server=address, max_in_flight=100) as producer:

            async def send(number: int) -> int:
                nonlocal most
                key = None if number % 2 else "k"
                sent = await producer.send_batch(topic, [b"x"] * 10, sharding_key=key)
                most = max(most, producer._core.in_flight())
                return len(sent)

            async def watch() -> None:
                nonlocal most
                while True:
                    most = max(most, producer._core.in_flight())
                    await asyncio.sleep(0)

            watching = asyncio.create_task(watch())
            sent = await asyncio.gather(*(send(number) for number in range(300)))
            watching.cancel()
        assert sum(sent) == 3000
        assert most <= 110

    asyncio.run(main())


def test_a_call_that_finds_no_room_in_its_time_is_refused(address: str) -> None:
    async def main() -> None:
        async with aio.Producer(
            name_server=address, max_in_flight=10, create_topic_key="no-such"
        ) as producer:
            futures = [await producer.produce("not-there", b"x") for _ in range(10)]
            with pytest.raises(QueueFull):
                await producer.send_batch("not-there", [b"x"], timeout=0.02)
            await asyncio.gather(*futures, return_exceptions=True)

    asyncio.run(main())


def test_properties_count_for_the_window(address: str, topic: str) -> None:
    with Producer(name_server=address, max_in_flight_bytes=1000, linger=30) as producer:
        producer.produce(topic, b"x", properties={"a": "y" * 900}, wait=False)
        with pytest.raises(QueueFull):
            producer.produce(topic, bytes(100), wait=False)
        producer.produce(topic, bytes(50), wait=False)
        producer.produce(topic, bytes(5), sharding_key="k", wait=False)
        assert producer.flush()
        producer.send_batch(topic, [Message(topic, b"x", properties={"a": "y" * 2000})])
        stats = producer.stats()
    assert (stats.in_flight, stats.in_flight_bytes) == (0, 0)


def test_idle_topics_and_queues_are_forgotten(address: str, topic: str) -> None:
    with Producer(name_server=address) as producer:
        for number in range(200):
            producer.produce(f"{topic}-{number % 5}", b"x", sharding_key=str(number))
            producer.produce(topic, b"x", queue=number)
        assert producer._batcher.partitions() > 10
        assert producer.flush()
        # The thread that launched the last frame may still be about to look for more.
        await_true(lambda: producer._batcher.partitions() == 0)


def test_other_threads_run_while_a_body_is_compressed() -> None:
    body = os.urandom(15 * 1024 * 1024)
    limit = len(body) + 1
    interval = sys.getswitchinterval()
    seen: list[bool] = []
    begin, done = threading.Event(), threading.Event()
    with Producer(
        name_server="127.0.0.1:1",
        compress_level=9,
        max_message_bytes=limit,
        max_in_flight_bytes=2 * limit,
        send_timeout=0.5,
    ) as producer:

        def compress() -> None:
            begin.set()
            producer.produce("orders", body)
            done.set()

        thread = threading.Thread(target=compress)
        # The running thread continues until it releases the GIL.
        sys.setswitchinterval(1000)
        try:
            thread.start()
            begin.wait()
            producer.produce("orders", b"small", wait=False)
            seen.append(done.is_set())
        finally:
            sys.setswitchinterval(interval)
            thread.join()
    assert seen == [False]
