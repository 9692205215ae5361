"""Callbacks for queues that fail, hang, are cancelled, or use their consumer in odd ways."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e.test_rebalance_callbacks import QUEUES, fill, member
from tests.e2e.wire import await_true

import pyrmq.aio
from pyrmq import ClosedError, ConfigError, PullConsumer

if TYPE_CHECKING:
    from pyrmq import QueueId, ReceivedMessage


def aio_member(address: str, topic: str, **options: Any) -> pyrmq.aio.PullConsumer:  # noqa: ANN401
    return pyrmq.aio.PullConsumer(name_server=address, group=f"g-{topic}", **options)


def test_a_callback_that_has_failed_is_called_again_before_messages_come(
    address: str, topic: str
) -> None:
    """It seeks; without it the messages before that offset would be returned."""
    fill(address, topic)
    calls = 0

    def on_assigned(consumer: PullConsumer, queues: list[QueueId]) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise ConnectionError("the database is away")
        for queue in queues:
            consumer.seek(queue, 2)

    with member(address, topic, on_assigned=on_assigned) as consumer:
        consumer.subscribe(topic)
        seen: list[ReceivedMessage] = []

        def poll() -> bool:
            try:
                seen.extend(consumer.poll(timeout=0.2))
            except ConnectionError:
                assert not seen
            return len(seen) >= QUEUES

        await_true(poll)
    assert [message.queue_offset for message in seen] == [2] * QUEUES
    assert calls >= 2


def test_a_cancelled_poll_leaves_its_callback_to_the_next_one(address: str, topic: str) -> None:
    fill(address, topic)
    calls: list[str] = []

    async def on_assigned(consumer: pyrmq.aio.PullConsumer, queues: list[QueueId]) -> None:
        calls.append("begin")
        await asyncio.sleep(0.5)
        for queue in queues:
            await consumer.seek(queue, 2)
        calls.append("end")

    async def main() -> None:
        async with aio_member(address, topic, on_assigned=on_assigned) as consumer:
            await consumer.subscribe(topic)
            seen: list[ReceivedMessage] = []
            async with asyncio.timeout(15):
                while len(seen) < QUEUES:
                    try:
                        seen += await asyncio.wait_for(consumer.poll(), 0.2)
                    except TimeoutError:
                        assert not seen
            assert [message.queue_offset for message in seen] == [2] * QUEUES

    asyncio.run(main())
    # The queues may be announced in several steps.
    assert calls == ["begin", "end"] * (len(calls) // 2)


def test_a_failure_of_a_callback_is_raised_once_in_asyncio(address: str, topic: str) -> None:
    fill(address, topic)
    calls = 0

    async def on_assigned(_: object, __: list[QueueId]) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise ConnectionError("the database is away")

    async def main() -> None:
        async with aio_member(address, topic, on_assigned=on_assigned) as consumer:
            await consumer.subscribe(topic)
            with pytest.raises(ConnectionError):
                await consumer.poll(timeout=10)
            assert await consumer.poll(timeout=10)

    asyncio.run(main())
    assert calls >= 2


def test_a_callback_that_hangs_holds_up_no_poll_and_no_close(address: str, topic: str) -> None:
    fill(address, topic)
    begun, release = threading.Event(), threading.Event()

    def on_assigned(_: PullConsumer, __: list[QueueId]) -> None:
        begun.set()
        release.wait(30)

    consumer = member(address, topic, on_assigned=on_assigned)
    consumer.subscribe(topic)

    def poll() -> None:
        with suppress(ClosedError):
            consumer.poll(timeout=0.1)

    poller = threading.Thread(target=poll, daemon=True)
    poller.start()
    try:
        assert begun.wait(10)
        began = time.monotonic()
        assert consumer.poll(timeout=0.2) == []
        assert time.monotonic() - began < 10.0
        consumer.close()
        assert time.monotonic() - began < 25.0
        with member(address, topic) as other:
            other.subscribe(topic)
            await_true(lambda: len(other.assignment()) == QUEUES)
    finally:
        release.set()
        poller.join(10)


@pytest.mark.parametrize("way", ["poll", "close"])
def test_a_callback_of_asyncio_is_known_in_the_tasks_that_it_awaits(
    address: str, topic: str, way: str
) -> None:
    fill(address, topic)
    outcomes: list[object] = []

    async def on_assigned(consumer: pyrmq.aio.PullConsumer, _: list[QueueId]) -> None:
        call = consumer.poll(1, timeout=0.1) if way == "poll" else consumer.close()
        try:
            outcomes.append(await asyncio.wait_for(asyncio.create_task(call), 8))
        except Exception as error:  # noqa: BLE001 - for the test
            outcomes.append(error)

    async def main() -> None:
        consumer = aio_member(address, topic, on_assigned=on_assigned)
        await consumer.subscribe(topic)
        if way == "poll":
            assert await consumer.poll(timeout=10)
        else:
            with pytest.raises(pyrmq.ClosedError):
                await consumer.poll(timeout=10)
        await consumer.close()

    asyncio.run(main())
    if way == "poll":
        assert {type(outcome) for outcome in outcomes} == {ConfigError}
    else:
        assert outcomes[0] is None


def test_a_task_that_a_callback_has_started_may_poll_once_it_has_returned(
    address: str, topic: str
) -> None:
    fill(address, topic)
    pollers: list[asyncio.Task[list[ReceivedMessage]]] = []

    async def main() -> None:
        async def later(consumer: pyrmq.aio.PullConsumer) -> list[ReceivedMessage]:
            await asyncio.sleep(0.2)
            return await consumer.poll(timeout=10)

        async def on_assigned(consumer: pyrmq.aio.PullConsumer, _: list[QueueId]) -> None:
            pollers.append(asyncio.create_task(later(consumer)))

        async with aio_member(address, topic, on_assigned=on_assigned) as consumer:
            await consumer.subscribe(topic)
            seen = await consumer.poll(1, timeout=10)
            assert seen
            assert await pollers[0]

    asyncio.run(main())
