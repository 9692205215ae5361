"""Gathered batches over a real broker's limit: our producer splits them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from pyrmq import Producer, PullConsumer
from tests.interop.ask import await_registered
from tests.interop.ours import OurNameServer
from tests.interop.rocketmq import JavaBroker

if TYPE_CHECKING:
    from pyrmq import RmqError, SendResult

COUNT = 1000
LIMIT = 10_000


@pytest.mark.interop_all
@pytest.mark.timeout(240)
def test_a_gathered_batch_over_a_real_brokers_limit_is_stored_in_parts(
    version: str, name: str
) -> None:
    told: dict[int, tuple[RmqError | None, SendResult | None]] = {}

    def note(number: int, error: RmqError | None, sent: SendResult | None) -> None:
        told[number] = error, sent

    with (
        OurNameServer() as names,
        JavaBroker(version, names.address, properties={"maxMessageSize": LIMIT}) as broker,
    ):
        await_registered(names.address, broker.address)
        with Producer(name_server=names.address, send_timeout=30) as producer:
            producer.send(name, b"first", timeout=60)
            for number in range(COUNT):
                producer.produce(
                    name, b"%06d" % number + bytes(100), partial(note, number), sharding_key="k"
                )
            assert producer.flush(60)
            assert (producer.stats().failed, producer.stats().retries) == (0, 0)
        assert {error for error, _ in told.values()} == {None}
        found: list[int] = []
        with PullConsumer(name_server=names.address, group=name) as consumer:
            consumer.subscribe(name)
            while len(found) < COUNT:
                messages = consumer.poll(timeout=30)
                assert messages, len(found)
                found += [int(one.body[:6]) for one in messages if one.body != b"first"]
    assert found == list(range(COUNT))
