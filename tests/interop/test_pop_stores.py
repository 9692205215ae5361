"""A store with popped messages in flight moves between the real 5.5.0 and our broker."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING

import pytest

from pyrmq import Admin, PoppedMessage, Producer, SimpleConsumer
from tests.interop import artifacts
from tests.interop.ask import await_registered
from tests.interop.ours import OurBroker, OurNameServer
from tests.interop.rocketmq import JavaBroker

if TYPE_CHECKING:
    from pathlib import Path

TOPIC, GROUP = "moved", "movers"
INVISIBLE_S = 20.0
SENT = [f"{number:02}" for number in range(12)]


def broker_of(kind: str, name_server: str, store: Path) -> OurBroker | JavaBroker:
    if kind == "ours":
        return OurBroker(name_server, store_dir=store)
    return JavaBroker("5.5.0", name_server, store_dir=store)


@pytest.mark.interop_all
@pytest.mark.timeout(180)
@pytest.mark.parametrize(("first", "second"), [("java", "ours"), ("ours", "java")])
def test_what_is_acknowledged_stays_gone_and_the_rest_comes_back(
    first: str, second: str, tmp_path: Path
) -> None:
    artifacts.require_java()
    store = tmp_path / "store"
    with OurNameServer() as names, broker_of(first, names.address, store) as broker:
        await_registered(names.address, broker.address)
        with Admin(name_server=names.address) as admin:
            admin.create_topic(TOPIC, queues=1)
        with Producer(name_server=names.address) as producer:
            for body in SENT:
                producer.send(TOPIC, body)
        consumer = SimpleConsumer(name_server=names.address, group=GROUP)
        consumer.subscribe(TOPIC)
        popped: list[PoppedMessage] = []
        while len(popped) < 8:
            popped += consumer.receive(8 - len(popped), invisible=INVISIBLE_S, wait=5.0)
        hidden_until = time.monotonic() + INVISIBLE_S
        done = sorted(one.body.decode() for one in popped[:5])
        consumer.ack(popped[:3])
        consumer.ack(popped[3])
        consumer.ack(popped[4])
        # Neither closed nor acknowledged: three are in flight when the broker stops.
        broker.stop()
        consumer.close()
    moved = tmp_path / "moved"
    shutil.copytree(store, moved)
    with OurNameServer() as names, broker_of(second, names.address, moved) as broker:
        await_registered(names.address, broker.address)
        with SimpleConsumer(name_server=names.address, group=GROUP) as consumer:
            consumer.subscribe(TOPIC)
            came: dict[str, float] = {}
            deadline = time.monotonic() + 90
            while len(came) < len(SENT) - len(done) and time.monotonic() < deadline:
                for message in consumer.receive(invisible=60.0, wait=2.0):
                    came[message.body.decode()] = time.monotonic()
                    consumer.ack(message)
            assert sorted([*came, *done]) == SENT
            early = [came[one.body.decode()] for one in popped[5:]]
            assert min(early) > hidden_until - 1.0, "hidden messages came too early"
            assert not consumer.receive(wait=3.0)
