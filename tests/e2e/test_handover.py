"""Queues that go from member to member: nothing is done twice when members leave cleanly."""

from __future__ import annotations

import threading
import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import pytest
from tests.e2e.wire import await_true

from pyrmq import Admin, Producer, PullConsumer, PushConsumer, QueueId

if TYPE_CHECKING:
    from pyrmq import ReceivedMessage

QUEUES = 4
MEMBERS = 4


def lag(address: str, group: str, topic: str) -> int:
    """Ask how many messages a group has not committed."""
    with PullConsumer(name_server=address, group=group, auto_commit=None) as looker:
        return sum(each.lag for each in looker.offsets(looker.queues(topic)).values())


@pytest.mark.parametrize("order", ["none", pytest.param("key", marks=pytest.mark.nightly)])
def test_members_that_leave_under_load_leave_nothing_to_repeat(
    address: str, topic: str, order: str
) -> None:
    with Admin(name_server=address) as admin:
        admin.create_topic(topic, queues=QUEUES)
    group = f"handover-{topic}"
    seen: Counter[tuple[str, int, int]] = Counter()
    lock = threading.Lock()

    def handle(message: ReceivedMessage) -> None:
        with lock:
            seen[message.broker, message.queue_id, message.queue_offset] += 1

    members = []
    for _ in range(MEMBERS):
        # Without commits by the clock each hand-over depends on its own.
        member = PushConsumer(
            name_server=address,
            group=group,
            threads=2,
            order=order,  # type: ignore[arg-type]
            commit_interval=600,
        )
        member.subscribe(topic, handle)
        member.start()
        members.append(member)
    await_true(lambda: all(each.assignment() for each in members), 10)
    is_over = threading.Event()
    sent = 0

    def load() -> None:
        nonlocal sent
        with Producer(name_server=address) as producer:
            while not is_over.wait(0.02):
                for _ in range(10):
                    producer.send(topic, b"x")
                    sent += 1

    loader = threading.Thread(target=load)
    loader.start()
    try:
        time.sleep(0.8)
        for member in members[:-1]:
            member.close()
            time.sleep(0.8)
    finally:
        is_over.set()
        loader.join()
    await_true(lambda: len(seen) == sent, 10)
    members[-1].close()
    assert lag(address, group, topic) == 0
    assert Counter(seen.values()) == {1: sent}


@pytest.mark.parametrize("order", ["none", "queue"])
def test_what_was_read_ahead_of_a_queue_that_goes_is_for_its_next_member(
    address: str, topic: str, order: str
) -> None:
    with Admin(name_server=address) as admin, Producer(name_server=address) as producer:
        admin.create_topic(topic, queues=2)
        for _ in range(400):
            producer.send(topic, b"x")
    group = f"handover-{topic}"
    seen: list[Counter[tuple[str, int, int]]] = [Counter(), Counter()]
    members = [
        PushConsumer(name_server=address, group=group, order=order, threads=1)  # type: ignore[arg-type]
        for _ in seen
    ]

    def handle(message: ReceivedMessage, mine: Counter[tuple[str, int, int]]) -> None:
        time.sleep(0.004)
        mine[message.broker, message.queue_id, message.queue_offset] += 1

    for member, mine in zip(members, seen, strict=True):
        member.subscribe(topic, partial(handle, mine=mine))
    members[0].start()
    await_true(lambda: members[0].stats().waiting > 300 and len(seen[0]) > 10, 10)
    members[1].start()
    await_true(lambda: len(seen[0]) + len(seen[1]) == 400, 20)
    for member in members:
        member.close()
    assert Counter((seen[0] + seen[1]).values()) == {1: 400}
    assert seen[1], "queues have gone over"
    for broker, queue_id in {place[:2] for place in seen[1]}:
        of_queue = [
            [offset for *place, offset in mine if place == [broker, queue_id]] for mine in seen
        ]
        assert max(of_queue[0], default=-1) < min(of_queue[1])


def test_members_that_have_read_everything_leave_it_committed(address: str, topic: str) -> None:
    count = 8
    with Admin(name_server=address) as admin, Producer(name_server=address) as producer:
        admin.create_topic(topic, queues=8)
        for broker in ("broker-a", "broker-b"):
            for queue_id in range(8):
                producer.send_batch(topic, ["x"] * 10, queue=QueueId(topic, broker, queue_id))
    group = f"rolling-{topic}"
    members = []
    for _ in range(count):
        member = PullConsumer(name_server=address, group=group, auto_commit=600.0)
        member.subscribe(topic)
        members.append(member)
    total = 16 * 10
    seen: set[tuple[str, int, int]] = set()
    until = time.monotonic() + 20
    while len(seen) < total and time.monotonic() < until:
        for member in members:
            for one in member.poll(timeout=0.01):
                seen.add((one.broker, one.queue_id, one.queue_offset))
    assert len(seen) == total
    for member in members:
        member.poll(timeout=0.01)
    for member in members:
        member.close()
    assert lag(address, group, topic) == 0
