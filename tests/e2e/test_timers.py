"""When a message is delivered: levels, and the timer that only real brokers have so far."""

from __future__ import annotations

import asyncio
from base64 import urlsafe_b64encode
from datetime import UTC, datetime

import pytest

from pyrmq import ConfigError, Message, MessageError, Producer, RouteError, aio
from pyrmq.errors import BatchSendError, BrokerError, MessageRefused

SOON = datetime(2030, 1, 1, tzinfo=UTC)


def test_a_broker_without_timers_says_so_to_every_way_of_sending(address: str, topic: str) -> None:
    match = "timer messages .* are not built yet"
    with Producer(name_server=address) as producer:
        with pytest.raises(MessageRefused, match=match):
            producer.send(topic, b"x", delay=1)
        with pytest.raises(MessageRefused, match=match):
            producer.send(topic, b"x", deliver_at=SOON, sharding_key="k")
        with pytest.raises(MessageRefused, match=match):
            producer.send_async(topic, b"x", delay=1).result(timeout=10)
        told: list[BaseException | None] = []
        producer.produce(topic, b"x", lambda error, _: told.append(error), delay=0.5)
        assert producer.flush()
        assert isinstance(told[0], MessageRefused)
        with pytest.raises(BatchSendError) as raised:
            producer.send_batch(topic, ["now", Message(topic, b"later", delay=1)])
        assert [type(result).__name__ for result in raised.value.results] == [
            "SendResult",
            "MessageRefused",
        ]

    async def main() -> None:
        async with aio.Producer(name_server=address) as producer:
            with pytest.raises(MessageRefused, match=match):
                await producer.send(topic, b"x", delay=1)
            with pytest.raises(MessageRefused, match=match):
                await (await producer.produce(topic, b"x", deliver_at=SOON))

    asyncio.run(asyncio.wait_for(main(), 25))


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
    """A recall handle of these parts."""
    return urlsafe_b64encode(" ".join(parts).encode()).decode()


def test_recall_tells_what_is_wrong(address: str, topic: str) -> None:
    good = handle("v1", topic, "broker-a", "1893456000001", "0A" * 16)
    wrong = ("", "nonsense", "äöü", handle("v2", "a", "b", "1", "c"), handle("v1", topic, "b"))
    with Producer(name_server=address) as producer:
        producer.send(topic, b"x")
        for text in wrong:
            with pytest.raises(ConfigError, match="is no recall handle"):
                producer.recall(topic, text)
        with pytest.raises(RouteError, match="the broker that the handle names is not alive"):
            producer.recall(topic, handle("v1", topic, "broker-b", "1", "c"))
        with pytest.raises(BrokerError, match="timer messages are not built yet"):
            producer.recall(topic, good)

    async def main() -> None:
        async with aio.Producer(name_server=address) as producer:
            with pytest.raises(ConfigError, match="is no recall handle"):
                await producer.recall(topic, "nonsense")
            with pytest.raises(BrokerError, match="timer messages are not built yet"):
                await producer.recall(topic, good)

    asyncio.run(asyncio.wait_for(main(), 25))
