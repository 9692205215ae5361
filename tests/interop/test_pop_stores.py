"""A store with popped messages in flight moves between the real 5.5.0 and our broker."""

from __future__ import annotations

import shutil
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest

from pyrmq import Admin, PoppedMessage, Producer, Receipt, SimpleConsumer
from pyrmq.admin import ConsumeMode
from tests.interop import artifacts
from tests.interop.ask import await_registered
from tests.interop.ours import OurBroker, OurNameServer
from tests.interop.rocketmq import JavaBroker

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

TOPIC, GROUP = "moved", "movers"
ORDERED, AGAIN = "moved-in-order", "again-in-order"
INVISIBLE_S = 20.0
HIDDEN_S = 60.0
"""Longer than a broker takes to stop, the next one to start, and its part of a test."""
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


@contextmanager
def serving(kind: str, names: OurNameServer, store: Path) -> Iterator[str]:
    """Run a broker on a store; the value is the name server's address."""
    with broker_of(kind, names.address, store) as broker:
        await_registered(names.address, broker.address)
        yield names.address


def send(address: str, topic: str, bodies: Iterable[str]) -> None:
    with Producer(name_server=address) as producer:
        for body in bodies:
            producer.send(topic, body)


def plain_and_ordered(address: str, stack: ExitStack) -> tuple[SimpleConsumer, SimpleConsumer]:
    """Make a consumer of each group, subscribed."""
    plain = SimpleConsumer(name_server=address, group=GROUP)
    ordered = SimpleConsumer(name_server=address, group=f"{GROUP}-in-order", order="queue")
    for consumer, topics in ((plain, [TOPIC]), (ordered, [ORDERED, AGAIN])):
        stack.enter_context(consumer).subscribe(topics)
    return plain, ordered


def take(
    consumer: SimpleConsumer, count: int, invisible: float = HIDDEN_S
) -> dict[str, PoppedMessage]:
    """Receive exactly these many messages."""
    found: dict[str, PoppedMessage] = {}
    deadline = time.monotonic() + 30
    while len(found) < count:
        assert time.monotonic() < deadline, f"{sorted(found)} of {count}"
        for one in consumer.receive(count - len(found), invisible=invisible, wait=5.0):
            found[one.body.decode()] = one
    return found


def take_twice(
    consumer: SimpleConsumer, address: str, topic: str, bodies: list[str], count: int
) -> dict[str, PoppedMessage]:
    """Send messages, and receive the first of them until they come for the second time."""
    send(address, topic, bodies)
    take(consumer, count, invisible=1.0)
    found = take(consumer, count)
    assert {body: one.reconsume_times for body, one in found.items()} == dict.fromkeys(
        bodies[:count], 1
    )
    return found


def receipts(messages: dict[str, PoppedMessage]) -> dict[str, Receipt]:
    """Return what another process would have of them."""
    return {body: Receipt(one.receipt.topic, one.receipt.handle) for body, one in messages.items()}


def due(receipt: Receipt) -> float:
    """When its message comes again, by the brokers' clock, in seconds."""
    _, popped_ms, invisible_ms = map(int, receipt.handle.split()[:3])
    return (popped_ms + invisible_ms) / 1000


@pytest.mark.interop_all
@pytest.mark.timeout(300)
def test_what_is_in_flight_goes_from_the_real_broker_to_ours_and_back(tmp_path: Path) -> None:
    """Of a plain and of an ordered group: modes, changed times, second deliveries of both."""
    artifacts.require_java()
    store = tmp_path / "store"
    with OurNameServer() as names:
        with serving("java", names, store) as address, ExitStack() as stack:
            admin = stack.enter_context(Admin(name_server=address))
            for topic in (TOPIC, ORDERED, AGAIN):
                admin.create_topic(topic, queues=1)
            plain, ordered = plain_and_ordered(address, stack)
            admin.set_consume_mode(GROUP, TOPIC, "pop", share=2)
            popped = take_twice(plain, address, TOPIC, ["p0"], 1)
            send(address, TOPIC, [f"p{number}" for number in range(1, 7)])
            send(address, ORDERED, [f"o{number}" for number in range(6)])
            popped |= take(plain, 4) | take(ordered, 3)
            plain.ack(popped["p1"])
            plain.change_invisible(popped["p2"], HIDDEN_S + 5)
            ordered.ack(popped["o0"])
            hidden = receipts(popped)
        with serving("ours", names, store) as address, ExitStack() as stack:
            admin = stack.enter_context(Admin(name_server=address))
            assert admin.consume_modes(GROUP, TOPIC) == {"broker-a": ConsumeMode("pop", 2)}
            admin.set_consume_mode(GROUP, TOPIC, "pop", share=3)
            plain, ordered = plain_and_ordered(address, stack)
            assert not ordered.receive(wait=0.5), "the queue is closed"
            ordered.ack(hidden["o1"])
            plain.ack(hidden["p3"])
            popped = take(plain, 2)
            plain.ack(popped["p5"])
            popped |= take_twice(plain, address, TOPIC, ["p7"], 1)
            popped |= take_twice(ordered, address, AGAIN, ["q0", "q1", "q2"], 2)
            ordered.ack(popped["q0"])
            plain.change_invisible(hidden["p4"], HIDDEN_S)
            ordered.change_invisible(hidden["o2"], HIDDEN_S)
            hidden |= receipts(popped)
        came: dict[str, tuple[float, int]] = {}
        with serving("java", names, store) as address, ExitStack() as stack:
            admin = stack.enter_context(Admin(name_server=address))
            assert admin.consume_modes(GROUP, TOPIC) == {"broker-a": ConsumeMode("pop", 3)}
            consumers = plain_and_ordered(address, stack)
            deadline = time.monotonic() + 150
            while len(came) < 11 and time.monotonic() < deadline:
                for consumer in consumers:
                    for one in consumer.receive(invisible=60.0, wait=1.0):
                        came[one.body.decode()] = (time.time(), one.reconsume_times)
                        consumer.ack(one)
            assert not [one for consumer in consumers for one in consumer.receive(wait=3.0)]
    tries = {body: tries for body, (_, tries) in came.items()}
    ordered_tries = {"o2": 1, "o3": 0, "o4": 0, "o5": 0, "q1": 2, "q2": 0}
    assert tries == ordered_tries | {"p0": 2, "p2": 1, "p4": 1, "p6": 1, "p7": 2}
    assert [body for body in came if body.startswith("o")] == ["o2", "o3", "o4", "o5"]
    assert [body for body in came if body.startswith("q")] == ["q1", "q2"]
    early = {body: due(hidden[body]) - at for body, (at, _) in came.items() if body in hidden}
    assert max(early.values()) < 1.0, f"seconds too early: {early}"
