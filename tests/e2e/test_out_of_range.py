"""Positions that a broker does not have, with two brokers."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from tests.e2e.test_push import make
from tests.e2e.wire import await_true

import pyrmq.aio
from pyrmq import Admin, ConfigError, Producer, PullConsumer, QueueId
from pyrmq.errors import OffsetOutOfRange

MESSAGES = 5
FAR = 1000


def fill(address: str, topic: str) -> list[QueueId]:
    """Send to each queue of two brokers; return the queues."""
    make(address, topic, [], queues=1)
    with (
        PullConsumer(name_server=address, group="looks", auto_commit=None) as looker,
        Producer(name_server=address) as producer,
    ):
        queues = looker.queues(topic)
        for queue in queues:
            producer.send_batch(topic, [b"x"] * MESSAGES, queue=queue)
    return queues


def read(consumer: PullConsumer, queues: list[QueueId]) -> set[tuple[str, int]]:
    """Poll until the position of each queue is its end; return what came."""
    found: set[tuple[str, int]] = set()

    def is_at_end() -> bool:
        found.update((one.broker, one.queue_offset) for one in consumer.poll(timeout=0.1))
        return {consumer.position(queue) for queue in queues} == {MESSAGES}

    await_true(is_at_end, 15)
    return found


@pytest.mark.parametrize("policy", ["nearest", "first", "last"])
@pytest.mark.parametrize("way", ["assigned", "subscribed"])
def test_a_position_that_is_not_there_continues_as_the_option_says(
    address: str, topic: str, way: str, policy: str
) -> None:
    queues = fill(address, topic)
    options: dict[str, Any] = {"out_of_range": policy}
    with PullConsumer(name_server=address, group=f"g-{topic}", **options) as consumer:
        if way == "assigned":
            consumer.assign(dict.fromkeys(queues, FAR))
        else:
            consumer.commit(dict.fromkeys(queues, FAR))
            consumer.subscribe(topic)
        found = read(consumer, queues)
    everything = {(queue.broker, at) for queue in queues for at in range(MESSAGES)}
    assert found == (everything if policy == "first" else set())


def test_with_error_polls_raise_until_another_position_is_sought(address: str, topic: str) -> None:
    queues = fill(address, topic)
    options: dict[str, Any] = {"out_of_range": "error"}
    with PullConsumer(name_server=address, group=f"g-{topic}", **options) as consumer:
        consumer.assign({queues[0]: FAR, queues[1]: 0})

        def poll_on() -> None:
            while True:
                assert all(one.broker == queues[1].broker for one in consumer.poll(timeout=5))

        with pytest.raises(OffsetOutOfRange, match="offset 1000 of queue 0") as caught:
            poll_on()
        error = caught.value
        assert (error.topic, error.broker, error.queue_id) == queues[0]
        assert (error.offset, error.first, error.last) == (FAR, 0, MESSAGES)
        consumer.seek(queues[0], MESSAGES - 2)

        found: list[int] = []

        def has_come() -> bool:
            # An error that was on its way may still be raised.
            with suppress(OffsetOutOfRange):
                polled = consumer.poll(timeout=0.1)
                found.extend(one.queue_offset for one in polled if one.broker == queues[0].broker)
            return found == [MESSAGES - 2, MESSAGES - 1]

        await_true(has_come, 15)
    with pytest.raises(ConfigError, match="`out_of_range` is 'earliest'"):
        PullConsumer(name_server=address, group="g", out_of_range="earliest")  # type: ignore[arg-type]


def test_asyncio_raises_the_same(address: str, topic: str) -> None:
    queues = fill(address, topic)

    async def main() -> None:
        async with pyrmq.aio.PullConsumer(
            name_server=address, group=f"g-{topic}", out_of_range="error"
        ) as consumer:
            await consumer.assign(dict.fromkeys(queues, FAR))
            with pytest.raises(OffsetOutOfRange):
                await consumer.poll(timeout=10)

    asyncio.run(main())


@pytest.mark.parametrize("policy", ["nearest", "error"])
def test_a_topic_that_is_made_again_between_two_consumers_is_read_from_its_first_message(
    address: str, topic: str, policy: str
) -> None:
    group, options = f"g-{topic}", {"out_of_range": policy}
    for _ in range(2):
        queues = fill(address, topic)
        with PullConsumer(name_server=address, group=group, **options) as consumer:  # type: ignore[arg-type]
            consumer.subscribe(topic)
            assert len(read(consumer, queues)) == len(queues) * MESSAGES
        with Admin(name_server=address) as admin:
            admin.delete_topic(topic)
