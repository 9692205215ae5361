"""What a member of a popping group has not begun is for other members, with two brokers."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from tests.e2e.test_push_pop import popped
from tests.e2e.wire import await_true

from pyrmq import PushConsumer, ReceivedMessage, SimpleConsumer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyrmq.testing import Cluster

BODIES = [str(number) for number in range(20)]


@pytest.fixture
def hold() -> Iterator[threading.Event]:
    """Give an event that is set at the end, so that calls that wait for it return."""
    event = threading.Event()
    try:
        yield event
    finally:
        event.set()


def test_a_member_whose_listeners_hang_hides_nothing_that_it_has_not_begun(
    address: str, topic: str, hold: threading.Event
) -> None:
    group = popped(address, topic, BODIES)
    begun: set[bytes] = set()
    stuck = PushConsumer(name_server=address, group=group, threads=2)

    @stuck.listener(topic)
    def handle(message: ReceivedMessage) -> None:
        begun.add(message.body)
        hold.wait(30)

    with SimpleConsumer(name_server=address, group=group) as other:
        stuck.start()
        await_true(lambda: len(begun) == 2)
        other.subscribe(topic)
        seen: list[tuple[bytes, int]] = []

        def receive() -> bool:
            for message in other.receive(32, invisible=30.0, wait=0.5):
                seen.append((message.body, message.reconsume_times))
                other.ack(message)
            return len(seen) >= 18

        # Far less than the invisible time of the member that hangs, which is 60 s.
        until = time.monotonic() + 20
        while not receive():
            assert time.monotonic() < until, f"{len(seen)} of 18 messages"
        hold.set()
        stuck.close(timeout=5)
    assert {body for body, _ in seen} == {body.encode() for body in BODIES} - begun
    assert {times for _, times in seen} == {0}, "what was not begun does not count as delivered"


@pytest.mark.parametrize("time_limit", [0.5, 60.0])
def test_a_quick_member_gets_what_a_slow_one_cannot_begin(
    address: str, topic: str, hold: threading.Event, time_limit: float
) -> None:
    """Also when the slow one gives up calls, and other threads of its hang as well."""
    group = popped(address, topic, BODIES)
    begun = threading.Event()
    done: Counter[bytes] = Counter()

    def hang(_: ReceivedMessage) -> None:
        begun.set()
        hold.wait(30)

    slow = PushConsumer(
        name_server=address, group=group, threads=1, invisible=2.0, time_limit=time_limit
    )
    slow.subscribe(topic, hang)
    slow.start()
    assert begun.wait(10)
    quick = PushConsumer(name_server=address, group=group, threads=8, invisible=2.0)
    quick.subscribe(topic, lambda message: done.update([message.body]))
    with quick:
        # Two threads of the slow one may hang with a message each.
        await_true(lambda: len(done) >= 18, 20)
        hold.set()
        slow.close(timeout=5)


def pops(shared: Cluster, topic: str) -> int:
    """Return how many pops found messages of a topic.

    Each pop of a queue stores a check point, which alone has the bits of its messages.
    """
    logs = [file for broker in shared.brokers for file in (broker.store / "commitlog").iterdir()]
    check_point = re.compile(rb'"bm":[^}]*"t":"%s"' % topic.encode())
    return sum(len(check_point.findall(log.read_bytes())) for log in logs)


def test_a_member_asks_for_more_than_its_threads_once_calls_are_quick(
    shared: Cluster, address: str, topic: str
) -> None:
    group = popped(address, topic, [str(number) for number in range(1000)])
    done: Counter[bytes] = Counter()
    consumer = PushConsumer(name_server=address, group=group, threads=1)
    consumer.subscribe(topic, lambda message: done.update([message.body]))
    with consumer:
        await_true(lambda: len(done) == 1000, 20)
    assert set(done.values()) == {1}
    assert 0 < pops(shared, topic) < 500, "one by one, it would be a thousand pops"


def test_listeners_that_are_slower_than_the_broker_do_not_pop_one_by_one(
    shared: Cluster, address: str, topic: str
) -> None:
    count = 2000
    group = popped(address, topic, [str(number) for number in range(count)])
    done: Counter[bytes] = Counter()
    consumer = PushConsumer(name_server=address, group=group, threads=4)

    @consumer.listener(topic)
    def handle(message: ReceivedMessage) -> None:
        time.sleep(0.001)
        done[message.body] += 1

    with consumer:
        await_true(lambda: len(done) == count, 30)
    assert 0 < pops(shared, topic) < count / 8
