"""Consumers with a SQL92 condition on two of our brokers, which evaluate it."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING

import pytest
from tests.e2e.wire import await_true

from pyrmq import Admin, Producer, PullConsumer, PushConsumer, aio
from pyrmq.errors import FilterError
from pyrmq.testing import cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyrmq import ReceivedMessage
    from pyrmq.testing import Cluster

CONDITION = "price BETWEEN 10 AND 14 AND colour IN ('red', 'blue')"


@pytest.fixture(scope="module")
def pair() -> Iterator[Cluster]:
    with cluster(brokers=2, enable_property_filter=True) as running:
        yield running


def sent(pair: Cluster, topic: str) -> list[bytes]:
    """Send 40 messages to both brokers; return the bodies that the condition selects."""
    with Admin(name_server=pair.name_server) as admin:
        admin.create_topic(topic, queues=2)
    with Producer(name_server=pair.name_server) as producer:
        for number in range(40):
            colour = ("red", "green", "blue")[number % 3]
            properties = {"price": str(number), "colour": colour}
            producer.send(topic, str(number), properties=properties)
        # Without the properties a condition is not true.
        producer.send(topic, "none")
    return sorted(b"%d" % number for number in range(10, 15) if number % 3 != 1)


def test_a_pull_consumer_gets_what_the_condition_selects(pair: Cluster) -> None:
    wanted = sent(pair, "sql-pull")
    found: list[ReceivedMessage] = []
    with PullConsumer(name_server=pair.name_server, group="sql-pull") as consumer:
        consumer.subscribe("sql-pull", sql=CONDITION)
        deadline = time.monotonic() + 20
        while len(found) < len(wanted) and time.monotonic() < deadline:
            found += consumer.poll(timeout=0.5)
        assert not consumer.poll(timeout=0.5)
    assert sorted(message.body for message in found) == wanted
    assert {message.broker for message in found} == {"broker-a", "broker-b"}


def test_a_held_pull_waits_on_for_what_the_condition_selects(pair: Cluster) -> None:
    wanted = sent(pair, "sql-push")
    seen: list[bytes] = []
    consumer = PushConsumer(name_server=pair.name_server, group="sql-push")

    @consumer.listener("sql-push", sql=CONDITION)
    def handle(body: bytes) -> None:
        seen.append(body)

    with consumer:
        await_true(lambda: len(seen) == len(wanted), 20)
        with Producer(name_server=pair.name_server) as producer:
            for colour in ("green", "red"):
                producer.send("sql-push", colour, properties={"price": "12", "colour": colour})
        await_true(lambda: len(seen) == len(wanted) + 1, 20)
        threading.Event().wait(0.3)
    assert sorted(seen) == sorted([*wanted, b"red"])


def test_asyncio_selects_the_same(pair: Cluster) -> None:
    wanted = sent(pair, "sql-aio")

    async def main() -> list[bytes]:
        async with aio.PullConsumer(name_server=pair.name_server, group="sql-aio") as consumer:
            await consumer.subscribe("sql-aio", sql=CONDITION)
            found: list[bytes] = []
            async with asyncio.timeout(20):
                while len(found) < len(wanted):
                    found += [message.body for message in await consumer.poll(timeout=1.0)]
            return sorted(found)

    assert asyncio.run(main()) == wanted


def test_a_condition_that_cannot_be_read_names_the_token(pair: Cluster) -> None:
    with (
        PullConsumer(name_server=pair.name_server, group="sql-bad") as consumer,
        pytest.raises(FilterError, match="AND"),
    ):
        consumer.subscribe("sql-pull", sql="price > 5 AND AND colour = 'red'")
