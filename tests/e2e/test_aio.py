"""The asyncio clients on a running cluster."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING

import pytest

from pyrmq import (
    Admin,
    ClosedError,
    ConfigError,
    MessageError,
    NameServerUnreachable,
    TopicNotFound,
)
from pyrmq.aio import Producer, PullConsumer
from pyrmq.errors import RouteError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from pyrmq import ReceivedMessage


def run(main: Callable[[], Coroutine[None, None, None]]) -> None:
    asyncio.run(asyncio.wait_for(main(), 25))


async def take(consumer: PullConsumer, count: int) -> list[ReceivedMessage]:
    found: list[ReceivedMessage] = []
    while len(found) < count:
        messages = await consumer.poll(count - len(found), timeout=10)
        assert messages, f"only {len(found)} of {count} messages came"
        found += messages
    return found


def test_a_thousand_tasks_each_await_their_send_without_a_thread(address: str, topic: str) -> None:
    async def main() -> None:
        async with Producer(name_server=address) as producer:
            await producer.send(topic, b"first")
            before = set(threading.enumerate())
            results = await asyncio.gather(*(producer.send(topic, str(n)) for n in range(1000)))
            # Those of earlier tests may end meanwhile.
            assert set(threading.enumerate()) <= before
            assert len({(r.broker, r.queue_id, r.queue_offset) for r in results}) == 1000
            batch = await producer.send_batch(topic, (str(n) for n in range(1000)))
            assert len({r.message_id for r in batch}) == 1000
            await producer.send_oneway(topic, b"x")
            assert await producer.flush()

    run(main)


def test_messages_come_by_async_for(address: str, topic: str) -> None:
    async def main() -> None:
        async with Producer(name_server=address) as producer:
            await producer.send_batch(topic, [str(n) for n in range(100)])
        async with PullConsumer(name_server=address, group="aio-for") as consumer:
            await consumer.subscribe(topic)
            bodies = []
            async for message in consumer:
                bodies.append(int(message.body))
                if len(bodies) == 100:
                    break
            assert sorted(bodies) == list(range(100))
            await consumer.commit()
            queues = consumer.assignment()
            assert sum([await consumer.committed(queue) or 0 for queue in queues]) == 100
            assert [consumer.position(q) for q in queues] == [
                (await consumer.bounds(q))[1] for q in queues
            ]

    run(main)


def test_a_poll_wakes_up_when_a_message_comes(address: str, topic: str) -> None:
    with Admin(name_server=address) as admin:
        # Create it on every broker before it is read: a reader checks for new brokers every 30 s.
        admin.create_topic(topic)

    async def main() -> None:
        async with (
            Producer(name_server=address) as producer,
            PullConsumer(name_server=address, group="aio-wait") as consumer,
        ):
            await producer.send(topic, b"first")
            await consumer.subscribe(topic)
            await take(consumer, 1)
            waiting = asyncio.create_task(consumer.poll(timeout=10))
            await asyncio.sleep(0)
            begin = time.monotonic()
            await producer.send(topic, b"late")
            assert [message.body for message in await waiting] == [b"late"]
            assert time.monotonic() - begin < 9
            begin = time.monotonic()
            assert await consumer.poll(timeout=0.1) == []
            assert 0.09 < time.monotonic() - begin < 10

    run(main)


def test_seek_and_assign_work_as_in_the_synchronous_form(address: str, topic: str) -> None:
    async def main() -> None:
        async with (
            Producer(name_server=address) as producer,
            PullConsumer(name_server=address, group="aio-seek") as consumer,
        ):
            for number in range(5):
                await producer.send(topic, str(number), queue=1)
            queue = next(q for q in await consumer.queues(topic) if q.queue_id == 1)
            await consumer.assign({queue: 3})
            assert [m.body for m in await take(consumer, 2)] == [b"3", b"4"]
            await consumer.seek(queue, "first")
            assert (await take(consumer, 1))[0].queue_offset == 0
            await consumer.seek(queue, 2)
            assert (await take(consumer, 1))[0].queue_offset == 2

    run(main)


def test_errors_are_those_of_the_synchronous_form(address: str, topic: str) -> None:
    async def main() -> None:
        async with Producer(name_server=address) as producer:
            with pytest.raises(MessageError, match="it is empty"):
                await producer.send("", b"x")
            with pytest.raises(RouteError, match="not among its writable queues"):
                await producer.send(topic, b"x", queue=77)
        with pytest.raises(ClosedError):
            await producer.send(topic, b"x")
        async with Producer(name_server="127.0.0.1:1") as producer:
            with pytest.raises(NameServerUnreachable, match=r"127\.0\.0\.1:1"):
                await producer.send(topic, b"x")
        async with PullConsumer(name_server=address, group="aio-errors") as consumer:
            with pytest.raises(TopicNotFound):
                await consumer.subscribe("nowhere")

    run(main)


def test_a_cancelled_send_harms_nobody(address: str, topic: str) -> None:
    async def main() -> None:
        async with Producer(name_server=address) as producer:
            tasks = [asyncio.create_task(producer.send(topic, str(n))) for n in range(100)]
            await asyncio.sleep(0)
            tasks[7].cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert isinstance(results[7], asyncio.CancelledError)
            assert sum(not isinstance(result, BaseException) for result in results) == 99

    run(main)


def test_a_full_window_makes_tasks_wait_and_loses_nothing(address: str, topic: str) -> None:
    async def main() -> None:
        async with Producer(name_server=address, max_in_flight=5, send_timeout=20) as producer:
            results = await asyncio.gather(*(producer.send(topic, str(n)) for n in range(100)))
            assert len(results) == 100

    run(main)


def test_one_object_belongs_to_one_loop(address: str, topic: str) -> None:
    producer = Producer(name_server=address)

    async def first() -> None:
        await producer.send(topic, b"x")

    async def second() -> None:
        await producer.send(topic, b"y")
        await producer.close()

    asyncio.run(first())
    # The first loop is closed: the producer may continue in another.
    asyncio.run(second())

    async def two_loops() -> None:
        async with Producer(name_server=address) as shared:
            await shared.send(topic, b"x")
            failure = await asyncio.to_thread(asyncio.run, attempt(shared))
            assert isinstance(failure, ConfigError)

    async def attempt(shared: Producer) -> Exception | None:
        try:
            await shared.send(topic, b"x")
        except ConfigError as error:
            return error
        return None

    run(two_loops)


def test_far_more_sends_than_room_are_all_stored_in_the_order_of_the_calls(
    address: str, topic: str
) -> None:
    async def main() -> list[int]:
        async with Producer(name_server=address, max_in_flight=3, send_timeout=20) as producer:
            sends = [producer.send(topic, str(number), queue=0) for number in range(1000)]
            return [result.queue_offset for result in await asyncio.gather(*sends)]

    offsets = asyncio.run(main())
    assert offsets == list(range(1000))


def test_a_close_fails_the_calls_that_wait_for_room(
    address: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> list[object]:
        producer = Producer(name_server=address, max_in_flight=1, send_timeout=20)
        sends = [asyncio.ensure_future(producer.send(topic, b"x")) for _ in range(100)]
        await asyncio.sleep(0)
        await producer.close()
        return list(await asyncio.gather(*sends, return_exceptions=True))

    outcomes = asyncio.run(main())
    assert isinstance(outcomes[-1], ClosedError)
    assert len(outcomes) == 100
    assert not [record for record in caplog.records if record.name == "asyncio"], caplog.text
    assert not [record for record in caplog.records if record.exc_info], caplog.text
