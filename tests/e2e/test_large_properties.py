"""Every consumer gets a message whose properties have as many bytes as a record can hold."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e.test_aio_push import until
from tests.e2e.test_push import make
from tests.e2e.test_push_pop import switch
from tests.e2e.wire import await_true

from pyrmq import (
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    SimpleConsumer,
    aio,
)
from pyrmq.errors import MessageRefused

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_PROPERTIES = 32_767


def send_full(address: str, topic: str, **properties: str) -> int:
    """Send a message whose properties are as long as a record holds; return the length of `p`."""
    with Producer(name_server=address) as producer:
        # Clients and brokers add some of their own.
        fits, refused = MAX_PROPERTIES - 300, MAX_PROPERTIES - 60
        while refused - fits > 1:
            length = (fits + refused) // 2
            every = {**properties, "p": "v" * length}
            try:
                producer.send(f"{topic}-probe", b"body", keys="k", properties=every)
                fits = length
            except MessageRefused:
                refused = length
        producer.send(topic, b"body", keys="k", properties={**properties, "p": "v" * fits})
    return fits


def polled(**options: Any) -> list[ReceivedMessage]:  # noqa: ANN401
    with PullConsumer(**options) as consumer:
        consumer.subscribe(options["group"])
        return consumer.poll(timeout=15)


def polled_as_a_batch(**options: Any) -> list[ReceivedMessage]:  # noqa: ANN401
    with PullConsumer(**options) as consumer:
        consumer.subscribe(options["group"])
        batch = consumer.poll_batch(timeout=15)
        assert (batch.keys, batch.bodies) == (["k"], [b"body"])
        (table,) = batch.to_arrow(["body", "properties"]).to_pylist()
        assert dict(table["properties"]) == batch.messages[0].properties
        return batch.messages


def received(**options: Any) -> list[ReceivedMessage]:  # noqa: ANN401
    with SimpleConsumer(**options) as consumer:
        consumer.subscribe(options["group"])
        messages = consumer.receive()
        consumer.ack(messages)
        assert consumer.stats().done == 1
        return [*messages]


def handled(batch: int = 1, **options: Any) -> list[ReceivedMessage]:  # noqa: ANN401
    seen: list[Any] = []
    consumer = PushConsumer(**options, consume_batch=batch)
    consumer.subscribe(options["group"], seen.append if batch == 1 else seen.extend)
    with consumer:
        await_true(lambda: consumer.stats().done == 1, 15)
    return seen


def handled_in_lists(**options: Any) -> list[ReceivedMessage]:  # noqa: ANN401
    return handled(8, **options)


def popped(**options: Any) -> list[ReceivedMessage]:  # noqa: ANN401
    switch(options["name_server"], options["group"], options["group"], "pop")
    return handled(**options)


def tried_again(**options: Any) -> list[ReceivedMessage]:  # noqa: ANN401
    """Fail once; the message is tried again here, where its order is kept."""
    seen: list[ReceivedMessage] = []
    consumer = PushConsumer(**options, order="key", suspend_pause=0.05)

    @consumer.listener(options["group"])
    def fail_once(message: ReceivedMessage) -> None:
        seen.append(message)
        if len(seen) == 1:
            raise ValueError("once")

    with consumer:
        await_true(lambda: consumer.stats().done == 1, 15)
    first, second = seen
    assert first.properties == second.properties
    return [second]


def polled_in_a_loop(**options: Any) -> list[ReceivedMessage]:  # noqa: ANN401
    async def poll() -> list[ReceivedMessage]:
        async with aio.PullConsumer(**options) as consumer:
            await consumer.subscribe(options["group"])
            return (await consumer.poll_batch(timeout=15)).messages

    return asyncio.run(poll())


def received_in_a_loop(**options: Any) -> list[ReceivedMessage]:  # noqa: ANN401
    async def receive() -> list[ReceivedMessage]:
        async with aio.SimpleConsumer(**options) as consumer:
            await consumer.subscribe(options["group"])
            messages = await consumer.receive()
            await consumer.ack(messages)
            return [*messages]

    return asyncio.run(receive())


def awaited(**options: Any) -> list[ReceivedMessage]:  # noqa: ANN401
    seen: list[ReceivedMessage] = []

    async def handle(message: ReceivedMessage) -> None:
        seen.append(message)

    async def listen() -> None:
        consumer = aio.PushConsumer(**options)
        consumer.subscribe(options["group"], handle)
        async with consumer:
            await until(lambda: consumer.stats().done == 1)

    asyncio.run(listen())
    return seen


@pytest.mark.parametrize(
    "consume",
    [
        polled,
        polled_as_a_batch,
        received,
        handled,
        handled_in_lists,
        popped,
        tried_again,
        polled_in_a_loop,
        received_in_a_loop,
        awaited,
    ],
)
def test_properties_of_the_maximum_length_arrive(
    address: str, topic: str, consume: Callable[..., list[ReceivedMessage]]
) -> None:
    make(address, topic, [])
    length = send_full(address, topic)
    (message,) = consume(name_server=address, group=topic)
    assert message.properties["p"] == "v" * length
    text = [f"{name}\x01{value}\x02" for name, value in message.properties.items()]
    assert len("".join(text).encode()) == MAX_PROPERTIES


def test_a_listener_that_fails_makes_a_dead_letter_of_it(
    address: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """No broker takes it back: the properties that a retry adds would not fit in."""
    make(address, topic, [])
    length = send_full(address, topic, small="s")
    seen: list[ReceivedMessage] = []
    consumer = PushConsumer(name_server=address, group=topic, max_tries=1)

    @consumer.listener(topic)
    def fail(message: ReceivedMessage) -> None:
        seen.append(message)
        raise ValueError("poison")

    with caplog.at_level(logging.WARNING, "pyrmq"), consumer:
        await_true(lambda: consumer.stats().dead == 1, 30)
        await_true(lambda: "dead letter stored without these properties" in caplog.text, 5)
    assert [len(message.properties["p"]) for message in seen] == [length, length]
    with PullConsumer(name_server=address, group="looks") as looker:
        looker.subscribe(f"%DLQ%{topic}")
        (dead,) = looker.poll(timeout=10)
    assert (dead.body, dead.keys, dead.properties["small"]) == (b"body", ["k"], "s")
    assert dead.properties["RETRY_TOPIC"] == topic
    assert "p" not in dead.properties
    with PullConsumer(name_server=address, group=topic, auto_commit=None) as looker:
        done = [looker.committed(queue) for queue in looker.queues(topic)]
    assert sum(offset or 0 for offset in done) == 1, "its queue goes on behind it"


def test_a_redelivered_message_is_acknowledged_though_no_property_fits_in(
    address: str, topic: str
) -> None:
    """The broker cannot write the receipt handle into it."""
    make(address, topic, [])
    with Producer(name_server=address) as producer:
        producer.send(topic, b"body", properties={"p": "v" * (MAX_PROPERTIES - 160)})
    with SimpleConsumer(name_server=address, group=topic, max_tries=10) as consumer:
        consumer.subscribe(topic)
        (first,) = consumer.receive(wait=5)
        consumer.change_invisible(first, 0)
        (second,) = consumer.receive(wait=10, invisible=1.5)
        assert (second.topic, second.reconsume_times) == (topic, 1)
        consumer.ack(second)
        assert consumer.receive(wait=4) == []
